/* moe.c - experts, and the block of a router, experts and what all tokens pass (moe.h); the rest of
 * the layer is Llama's (llama.c).
 *
 *     rows (t·k) sorted by expert -> silu(gate) · up -> down -> weighted -> back in order, summed
 *
 * All experts of a block are two parameters, (E, 2f, h) and (E, h, f). What runs is transformers'
 * own default, `grouped_mm`: one call multiplies t·k sorted rows, each group with its expert's
 * matrix, so every tensor's shape is the same however the tokens are routed. Balanced routing,
 * t·k/E rows an expert, is assumed nowhere but in the time of that call. `batched_mm` (the config's
 * experts_implementation) copies an expert's matrices for each of the t·k rows instead. (GPUs below
 * compute capability 8.0 have no grouped_mm: transformers' loop over experts is not planned.)
 *
 * Where weights of the k best are fp32, what they multiply is, and the sum over k is cast back. */
#include "hf/moe.h"

#include "hf/hf.h"
#include "model/bits4.h"
#include "model/experts.h"

#include <stdio.h>
#include <string.h>

void hf_experts_declare(struct graph *graph, const struct model_config *c,
                        const struct hf_moe_way *way, const char *prefix, struct hf_moe *moe)
{
    const uint32_t e = c->experts, h = c->hidden, f = experts_width(c);
    const uint32_t outer = graph->current_module;
    if (graph->own_experts)
        moe->module = graph_module(graph, ROLE_EXPERTS, "%sexperts", prefix);
    const uint32_t wide = way->ungated ? f : 2 * f;
    moe->gate_up = bits4_experts(graph, way->transposed ? SHAPE(e, h, wide) : SHAPE(e, wide, h),
                                 prefix, way->ungated ? "experts.up_proj" : "experts.gate_up_proj");
    moe->gate_up_bias = !c->expert_bias ? GRAPH_NONE
                                        : graph_param(graph, PARAM_BIAS, SHAPE(e, 2 * f),
                                                      "%sexperts.gate_up_proj_bias", prefix);
    moe->down = bits4_experts(graph, way->transposed ? SHAPE(e, f, h) : SHAPE(e, h, f), prefix,
                              "experts.down_proj");
    moe->down_bias = !c->expert_bias ? GRAPH_NONE
                                     : graph_param(graph, PARAM_BIAS, SHAPE(e, h),
                                                   "%sexperts.down_proj_bias", prefix);
    graph->current_module = outer;
}

/* A correction that is declared as a parameter, and is never trained. */
static uint32_t declare_statics(struct graph *graph, const struct model_config *c,
                                const struct hf_moe_way *way, const char *prefix)
{
    const bool outer = graph->all_frozen;
    graph->all_frozen = true;
    const struct shape shape = way->own_statics ? SHAPE(c->experts) : SHAPE(1, c->experts);
    const uint32_t correction = graph_param(graph, PARAM_BIAS, shape, "%s%s", prefix, way->statics);
    graph->all_frozen = outer;
    graph_init_param(graph, correction, (struct param_init){.kind = INIT_ZEROS});
    return correction;
}

/* The width of what all tokens pass within the block. */
static uint32_t shared_within(const struct model_config *c, const struct hf_moe_way *way)
{
    return way->when == HF_SHARED_BESIDE ? 0 : experts_shared_width(c);
}

struct hf_moe hf_moe_declare(struct graph *graph, const struct model_config *c,
                             const struct hf_moe_way *way, const char *prefix)
{
    struct hf_moe moe = {.module = GRAPH_NONE,
                         .shared_gate = {GRAPH_NONE, GRAPH_NONE},
                         .norm = {.weight = GRAPH_NONE}};
    char shared[128];
    snprintf(shared, sizeof shared, "%s%s.", prefix,
             way->shared      ? way->shared
             : c->shared_gate ? "shared_expert"
                              : "shared_experts");
    if (way->leaf)
        graph_leaf(graph, way->leaf, "%.*s", (int)strlen(prefix) - 1, prefix);
    if (way->own_statics)
        moe.correction = declare_statics(graph, c, way, prefix);
    if (way->experts_first)
        hf_experts_declare(graph, c, way, prefix, &moe);
    moe.router = build_weights(graph, prefix, way->router, SHAPE(c->experts, c->hidden),
                               c->expert_bias ? c->experts : 0);
    if (moe.router.bias != GRAPH_NONE) /* drawn as its weight is */
        graph_init_param(graph, moe.router.bias, init_normal((double)c->init_std, 0));
    if (way->statics && !way->own_statics)
        moe.correction = declare_statics(graph, c, way, prefix);
    if (!way->experts_first && !way->experts_last)
        hf_experts_declare(graph, c, way, prefix, &moe);
    if (way->correction)
        moe.correction =
            graph_buffer(graph, way->correction == HF_CORRECTION_FP32 ? DTYPE_FP32 : graph->made,
                         SHAPE(c->experts), &(struct buffer_values){.kind = VALUES_ZEROS});
    if (shared_within(c, way))
        moe.shared = (way->ungated ? hf_mlp_declare_plain : hf_mlp_declare)(graph, c, shared,
                                                                            shared_within(c, way));
    if (way->experts_last)
        hf_experts_declare(graph, c, way, prefix, &moe);
    if (c->shared_gate)
        moe.shared_gate = build_linear(graph, prefix, "shared_expert_gate", 1, c->hidden, false);
    if (way->norm)
        moe.norm = build_norm(graph, prefix, way->norm, c->hidden, false, c->norm_eps);
    return moe;
}

uint32_t hf_gate_halves(struct graph *graph, const struct model_config *c, uint32_t gate_up)
{
    uint32_t part[2];
    op_chunk(graph, gate_up, 2, part);
    const uint32_t active = hf_activation_within(graph, c->activation, part[0], "act_fn");
    const uint32_t product = op_mul(graph, active, part[1]);
    graph_drop(graph, active);
    graph_drop(graph, gate_up);
    return product;
}

uint32_t hf_gate_none(struct graph *graph, const struct model_config *c, uint32_t up)
{
    const uint32_t active = hf_activation_within(graph, c->activation, up, "act_fn");
    graph_drop(graph, up);
    return active;
}

uint32_t hf_gate_clamped(struct graph *graph, const struct model_config *c, uint32_t gate_up)
{
    const uint32_t even = op_stride_last(graph, gate_up, 0, 2);
    const uint32_t odd = op_stride_last(graph, gate_up, 1, 2);
    const uint32_t gate = op_limit(graph, even, c->swiglu_limit, false);
    const uint32_t up = op_limit(graph, odd, c->swiglu_limit, true);
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, gate, c->swiglu_alpha);
    const uint32_t share = op_unary(graph, OP_SIGMOID, scaled);
    graph_drop(graph, scaled);
    const uint32_t active = op_mul(graph, gate, share);
    graph_drop(graph, share);
    const uint32_t shifted = op_scalar(graph, OP_ADD_SCALAR, up, 1.0F);
    const uint32_t product = op_mul(graph, shifted, active);
    graph_drop(graph, shifted);
    graph_drop(graph, gate);
    graph_drop(graph, up);
    graph_drop(graph, active);
    graph_drop(graph, gate_up);
    return product;
}

/* y times its rows' weights (n), in the wider dtype. */
static uint32_t weigh(struct graph *graph, uint32_t y, uint32_t weights)
{
    const uint32_t rows = graph->tensors[y].shape.dim[0];
    return op_mul(graph, y, graph_view(graph, weights, SHAPE(rows, 1)));
}

static uint32_t one(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                    struct shape shape, uint32_t x)
{
    return op_no_grad(graph, work, aten, dtype, shape, 1, &x);
}

/* The biases of the experts that sorted rows go to. */
static uint32_t biases_of(struct graph *graph, uint32_t bias, uint32_t ids)
{
    return bias == GRAPH_NONE ? GRAPH_NONE : op_index(graph, bias, ids);
}

static uint32_t grouped_linear(struct graph *graph, const struct hf_moe_way *way, uint32_t x,
                               uint32_t weight, uint32_t biases, uint32_t offsets)
{
    const uint32_t in = op_to(graph, x, (enum dtype)graph->tensors[weight].dtype);
    const uint32_t out = way->transposed ? op_grouped_mm_nn(graph, in, weight, offsets)
                                         : op_grouped_mm(graph, in, weight, offsets);
    if (in != x)
        graph_drop(graph, in);
    return biases == GRAPH_NONE ? out : op_add_in_place(graph, out, biases);
}

/* grouped_mm_experts_forward */
static uint32_t grouped(struct graph *graph, const struct model_config *c,
                        const struct hf_moe_way *way, const struct hf_moe *moe, uint32_t rows,
                        const struct hf_routing *r)
{
    const uint32_t k = c->experts_per_token, n = graph->tensors[rows].shape.dim[0] * k;
    const struct shape flat = SHAPE(n), experts = SHAPE(c->experts);
    uint32_t order;
    const uint32_t ids = op_sort(graph, graph_view(graph, r->experts, flat), &order);
    const uint32_t tokens = op_number(graph, WORK_FLOOR_DIV_NUMBER, ATEN_FLOOR_DIVIDE, DTYPE_INT64,
                                      flat, order, (float)k);
    const uint32_t chosen = op_index(graph, rows, tokens);
    graph_drop(graph, tokens);
    const uint32_t weights = op_index(graph, graph_view(graph, r->weights, flat), order);
    /* int32 on CUDA: as many bytes */
    const uint32_t numbers = one(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, flat, ids);
    const uint32_t counts = one(graph, WORK_HISTOGRAM, ATEN_HISTC, DTYPE_FP32, experts, numbers);
    const uint32_t offsets =
        one(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT32, experts, counts);

    const uint32_t first = bits4_whole(graph, moe->gate_up);
    const uint32_t wide = biases_of(graph, moe->gate_up_bias, ids);
    const uint32_t gate_up = grouped_linear(graph, way, chosen, first, wide, offsets);
    const uint32_t product = way->gate(graph, c, gate_up);
    const uint32_t second = bits4_whole(graph, moe->down);
    const uint32_t biases = biases_of(graph, moe->down_bias, ids);
    if (wide != GRAPH_NONE)
        graph_rebind(graph, wide, biases);
    const uint32_t out = grouped_linear(graph, way, product, second, biases, offsets);
    graph_drop(graph, product);

    const uint32_t weighted = weigh(graph, out, weights);
    const uint32_t inverse =
        one(graph, WORK_INVERT_PERMUTATION, ATEN_EMPTY_LIKE, DTYPE_INT64, flat, order);
    const uint32_t range = op_arange(graph, n);
    graph_drop(graph, range); /* put into inverse */
    const uint32_t restored = op_index(graph, weighted, inverse);
    graph_rebind(graph, weighted, restored);
    const uint32_t sum = op_sum_groups(graph, restored, k);
    const uint32_t cast = op_to(graph, sum, (enum dtype)graph->tensors[rows].dtype);
    graph_drop(graph, ids);
    graph_drop(graph, order);
    graph_drop(graph, chosen);
    graph_drop(graph, weights);
    graph_drop(graph, numbers);
    graph_drop(graph, counts);
    graph_drop(graph, offsets);
    if (biases != GRAPH_NONE)
        graph_drop(graph, biases);
    graph_drop(graph, out);
    graph_drop(graph, restored);
    graph_drop(graph, inverse);
    if (cast != sum)
        graph_drop(graph, sum);
    bits4_drop(graph, moe->gate_up, first);
    bits4_drop(graph, moe->down, second);
    return cast;
}

/* A matrix for each row: (n, o, i) times y (n, i): (n, o). */
static uint32_t batched_linear(struct graph *graph, uint32_t y, uint32_t matrices)
{
    const struct shape in = graph->tensors[y].shape;
    const uint32_t out =
        op_bmm(graph, matrices, graph_view(graph, y, SHAPE(in.dim[0], in.dim[1], 1)));
    return graph_view(graph, out, SHAPE(in.dim[0], graph->tensors[out].shape.dim[1]));
}

/* batched_mm_experts_forward */
static uint32_t batched(struct graph *graph, const struct model_config *c,
                        const struct hf_moe_way *way, const struct hf_moe *moe, uint32_t rows,
                        const struct hf_routing *r)
{
    const uint32_t k = c->experts_per_token, t = graph->tensors[rows].shape.dim[0], n = t * k;
    const uint32_t experts = graph_view(graph, r->experts, SHAPE(n));
    const uint32_t repeated = op_repeat_copied(graph, rows, SHAPE(t, k, c->hidden), 1);
    const uint32_t chosen = graph_view(graph, repeated, SHAPE(n, c->hidden));
    const uint32_t first = bits4_whole(graph, moe->gate_up);
    const uint32_t wide = op_index(graph, first, experts);
    const uint32_t product = way->gate(graph, c, batched_linear(graph, chosen, wide));
    const uint32_t second = bits4_whole(graph, moe->down);
    const uint32_t narrow = op_index(graph, second, experts);
    graph_rebind(graph, wide, narrow);
    const uint32_t out = batched_linear(graph, product, narrow);
    graph_drop(graph, product);
    const uint32_t weighted = weigh(graph, out, r->weights);
    const uint32_t sum = op_sum_groups(graph, weighted, k);
    const uint32_t cast = op_to(graph, sum, (enum dtype)graph->tensors[rows].dtype);
    graph_drop(graph, repeated);
    graph_drop(graph, narrow);
    graph_drop(graph, out);
    graph_drop(graph, weighted);
    if (cast != sum)
        graph_drop(graph, sum);
    bits4_drop(graph, moe->gate_up, first);
    bits4_drop(graph, moe->down, second);
    return cast;
}

static uint32_t run_experts(struct graph *graph, const struct model_config *c,
                            const struct hf_moe_way *way, const struct hf_moe *moe, uint32_t rows,
                            const struct hf_routing *r)
{
    return c->batched_experts ? batched(graph, c, way, moe, rows, r)
                              : grouped(graph, c, way, moe, rows, r);
}

/* As a module that is wrapped, which is called with casts of what is not in the compute dtype. */
static uint32_t run_wrapped(struct graph *graph, const struct model_config *c,
                            const struct hf_moe_way *way, const struct hf_moe *moe, uint32_t rows,
                            const struct hf_routing *r)
{
    struct hf_routing in = *r;
    const uint32_t cast =
        graph->casts_inputs ? op_to(graph, r->weights, graph->compute) : r->weights;
    rows = op_module_input(graph, rows);
    in.weights = op_module_input(graph, cast);
    graph_enter(graph, moe->module, rows);
    graph_also_input(graph, moe->module, in.experts);
    graph_also_input(graph, moe->module, in.weights);
    const uint32_t out = run_experts(graph, c, way, moe, rows, &in);
    graph_exit(graph, moe->module, out);
    if (cast != r->weights)
        graph_drop(graph, cast);
    return out;
}

uint32_t hf_experts(struct graph *graph, const struct model_config *c, const struct hf_moe_way *way,
                    const struct hf_moe *moe, uint32_t rows, const struct hf_routing *r)
{
    hf_call(graph, moe->gate_up);
    const uint32_t out = moe->module == GRAPH_NONE ? run_experts(graph, c, way, moe, rows, r)
                                                   : run_wrapped(graph, c, way, moe, rows, r);
    graph_call_end(graph);
    return out;
}

static uint32_t shared_mlp(struct graph *graph, const struct model_config *c,
                           const struct hf_moe *moe, uint32_t x)
{
    hf_call_outer(graph, moe->shared.down.weight);
    const uint32_t out = hf_mlp(graph, c, &moe->shared, x);
    graph_call_end(graph);
    return out;
}

/* sigmoid(gate y) · what all tokens passed, added to `out`; drops both. */
static uint32_t add_gated(struct graph *graph, const struct hf_moe *moe, uint32_t rows,
                          uint32_t shared, uint32_t out)
{
    const uint32_t logit = apply_linear(graph, rows, moe->shared_gate);
    const uint32_t weight = op_unary(graph, OP_SIGMOID, logit);
    graph_drop(graph, logit);
    const uint32_t weighted = op_mul(graph, weight, shared);
    graph_drop(graph, weight);
    graph_rebind(graph, shared, weighted);
    const uint32_t sum = op_add(graph, out, weighted);
    graph_rebind(graph, out, sum);
    graph_drop(graph, weighted);
    return sum;
}

/* What all tokens passed, added to `out`, which stays the caller's; drops it. */
static uint32_t add_shared(struct graph *graph, struct shape shape, uint32_t shared, uint32_t out)
{
    const uint32_t sum = op_add(graph, graph_view(graph, out, shape), shared);
    graph_drop(graph, shared);
    return sum;
}

/* What all tokens pass, of rows, added to `routed`, which stays the caller's; in fp32 where the
 * config says so, and back. */
static uint32_t add_behind(struct graph *graph, const struct model_config *c,
                           const struct hf_moe *moe, uint32_t rows, uint32_t routed)
{
    const enum dtype dtype = c->wide_sum ? DTYPE_FP32 : graph->compute;
    const uint32_t a = op_to(graph, routed, dtype);
    const uint32_t shared = shared_mlp(graph, c, moe, rows), b = op_to(graph, shared, dtype);
    if (b != shared)
        graph_drop(graph, shared);
    const uint32_t sum = op_add(graph, a, b);
    if (a != routed)
        graph_drop(graph, a);
    graph_drop(graph, b);
    const uint32_t out = op_to(graph, sum, graph->compute);
    if (out != sum)
        graph_drop(graph, sum);
    return out;
}

/* `routed`, which goes, and what all tokens passed, which stays the caller's: their sum, or half of
 * it. */
static uint32_t add_after(struct graph *graph, const struct model_config *c, uint32_t shared,
                          uint32_t routed)
{
    const uint32_t sum = op_add(graph, routed, shared);
    const uint32_t out = c->shared_average ? op_scalar(graph, OP_DIV_SCALAR, sum, 2) : sum;
    if (out != sum)
        graph_drop(graph, sum);
    graph_rebind(graph, routed, shared); /* whose name comes next */
    return out;
}

/* What all tokens pass may be computed first, of y or of its rows, or last. */
static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct hf_moe_way *way, const struct hf_moe *moe, uint32_t y,
                          uint32_t *scores)
{
    const struct shape shape = graph->tensors[y].shape;
    const struct shape flat = SHAPE(shape.dim[0] * shape.dim[1], shape.dim[2]);
    uint32_t shared = GRAPH_NONE, routed = GRAPH_NONE;
    if (way->when == HF_SHARED_FIRST)
        shared = shared_mlp(graph, c, moe, y);
    uint32_t rows = way->flattens         ? y
                    : c->input_jitter > 0 ? hf_jitter(graph, y)
                                          : op_view_node(graph, y, flat);
    if (way->when == HF_SHARED_ROWS && shared_within(c, way))
        shared = shared_mlp(graph, c, moe, rows);
    if (way->when == HF_SHARED_HELD && shared_within(c, way)) /* its sum apart, as recorded */
        shared = shared_mlp(graph, c, moe, op_call_input(graph, rows));
    const struct hf_routing r = way->route(graph, c, moe, way->router_flattens ? y : rows);
    if (way->when == HF_SHARED_BETWEEN)
        shared = shared_mlp(graph, c, moe, op_call_input(graph, rows));
    if (r.in_place)
        rows = r.rows;
    if (way->flattens)
        rows = op_view_node(graph, y, flat);
    uint32_t out = hf_experts(graph, c, way, moe, rows, &r);
    if (c->shared_gate) {
        out = add_gated(graph, moe, rows, shared, out);
    } else if (way->when == HF_SHARED_HELD) {
        if (shared != GRAPH_NONE) {
            const uint32_t sum = op_add(graph, out, shared);
            graph_rebind(graph, out, sum);
            out = sum;
        }
    } else if (way->when == HF_SHARED_BEHIND) {
        routed = out;
        out = add_behind(graph, c, moe, rows, routed);
    } else if (way->when == HF_SHARED_AFTER && shared_within(c, way)) {
        shared = shared_mlp(graph, c, moe, rows);
        out = add_after(graph, c, shared, out);
    } else if (way->when == HF_SHARED_BETWEEN) {
        routed = out;
        out = op_add(graph, graph_view(graph, shared, shape), graph_view(graph, routed, shape));
    } else if (shared_within(c, way)) {
        routed = out;
        if (way->when == HF_SHARED_LAST)
            shared = shared_mlp(graph, c, moe, y);
        out = add_shared(graph, shape, shared, routed);
        if (way->when == HF_SHARED_LAST)
            graph_drop(graph, routed);
    }
    if (way->norm) {
        const uint32_t normed = hf_rms_norm_called(graph, graph_view(graph, out, shape), moe->norm);
        graph_drop(graph, out);
        out = normed;
    }
    *scores = way->returns_scores ? r.weights : GRAPH_NONE;
    graph_drop(graph, r.logits);
    if (way->when == HF_SHARED_HELD && shared != GRAPH_NONE)
        graph_drop(graph, shared);
    if (!way->returns_scores)
        graph_drop(graph, r.weights);
    graph_drop(graph, r.experts);
    if (shared != GRAPH_NONE && (way->when == HF_SHARED_BETWEEN || way->when == HF_SHARED_AFTER))
        graph_drop(graph, shared);
    if (routed != GRAPH_NONE && way->when != HF_SHARED_LAST)
        graph_drop(graph, routed);
    return graph_view(graph, out, shape);
}

/* A leaf module has none in it that would say where it begins and ends. */
uint32_t hf_moe(struct graph *graph, const struct model_config *c, const struct hf_moe_way *way,
                const struct hf_moe *moe, uint32_t y, uint32_t *scores)
{
    if (way->every) {
        hf_call_outer(graph, moe->router.weight);
        const uint32_t all = hf_every(graph, c, moe, y, scores);
        graph_call_end(graph);
        return all;
    }
    if (strchr(way->router, '.') && !way->own_statics) /* none of these is one, unless told */
        return run_block(graph, c, way, moe, y, scores);
    if (way->own_statics)
        hf_call(graph, moe->correction);
    else
        hf_call_outer(graph, moe->router.weight);
    /* parameters of its own go where the gradient of what it was called with is complete */
    const uint32_t called = way->own_statics ? op_called_alone(graph, y) : y;
    const uint32_t out = run_block(graph, c, way, moe, called, scores);
    graph_call_end(graph);
    return out;
}
