/* hf.c - see hf.h. */
#include "hf/hf.h"

#include <assert.h>
#include <string.h>

static uint32_t free_op(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                        struct shape shape, uint32_t x)
{
    return op_no_grad(graph, work, aten, dtype, shape, 1, &x);
}

uint32_t hf_positions(struct graph *graph, const struct model_job *job)
{
    const uint32_t range = op_arange(graph, job->seq);
    const uint32_t positions =
        op_number(graph, WORK_ADD_NUMBER, ATEN_ADD, DTYPE_INT64, SHAPE(job->seq), range, 0.0F);
    graph_drop(graph, range);
    return positions;
}

void hf_packed_test(struct graph *graph, const struct model_job *job, uint32_t positions)
{
    const uint32_t b = job->batch, s = job->seq;
    const uint32_t rows = graph_expand(graph, positions, SHAPE(b, s));
    const uint32_t before = op_number(graph, WORK_ADD_NUMBER, ATEN_SUB, DTYPE_INT64, SHAPE(b, 1),
                                      graph_slice(graph, rows, 0, 1), -1.0F);
    const uint32_t joined = op_no_grad(graph, WORK_CAT, ATEN_CAT, DTYPE_INT64, SHAPE(b, s + 1), 2,
                                       (uint32_t[]){before, rows});
    const uint32_t steps = op_no_grad(
        graph, WORK_SUB, ATEN_SUB, DTYPE_INT64, SHAPE(b, s), 2,
        (uint32_t[]){graph_slice(graph, joined, 1, s), graph_slice(graph, joined, 0, s)});
    graph_drop(graph, joined);
    const uint32_t jumps =
        op_number(graph, WORK_NOT_EQUAL_NUMBER, ATEN_NE, DTYPE_BOOL, SHAPE(b, s), steps, 1.0F);
    const uint32_t sequence =
        free_op(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT64, SHAPE(b, s), jumps);
    graph_drop(graph, jumps);
    const uint32_t last = graph_view(graph, graph_slice(graph, sequence, s - 1, 1), SHAPE(b));
    const uint32_t single =
        op_number(graph, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL, SHAPE(b), last, 0.0F);
    const uint32_t all =
        free_op(graph, WORK_ALL, ATEN_ALL, DTYPE_BOOL, (struct shape){.rank = 0}, single);
    graph_drop(graph, single);
    graph_drop(graph, all);
    graph_drop(graph, before);
    graph_drop(graph, steps);
    graph_drop(graph, sequence);
}

uint32_t hf_rope_table(struct graph *graph, enum work_kind work, enum aten aten, uint32_t angles,
                       float factor)
{
    const struct shape shape = graph->tensors[angles].shape;
    const uint32_t table = free_op(graph, work, aten, DTYPE_FP32, shape, angles);
    const uint32_t scaled =
        op_number(graph, WORK_MUL_NUMBER, ATEN_MUL, DTYPE_FP32, shape, table, factor);
    graph_drop(graph, table);
    return scaled;
}

/* Positions times frequencies: (1, s, d/2). */
static uint32_t rope_angles(struct graph *graph, struct hf_angles of)
{
    const uint32_t s = graph->tensors[of.positions].shape.dim[0];
    const uint32_t pairs = graph->tensors[of.frequencies].shape.dim[0];
    const uint32_t positions = graph_view(graph, of.positions, SHAPE(1, s, 1));
    const uint32_t column =
        free_op(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, SHAPE(1, s, 1), positions);
    const uint32_t half = op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, SHAPE(1, s, pairs), 2,
                                     (uint32_t[]){column, of.frequencies});
    graph_drop(graph, column);
    return half;
}

uint32_t hf_complex_rope_table(struct graph *graph, const struct model_config *c,
                               struct hf_angles of)
{
    const uint32_t angles = rope_angles(graph, of);
    const struct shape shape = graph->tensors[angles].shape;
    const uint32_t ones = op_fill(graph, ATEN_ONES_LIKE, DTYPE_FP32, shape, 1.0F);
    const uint32_t polar = op_no_grad(graph, WORK_POLAR, ATEN_POLAR, DTYPE_COMPLEX64, shape, 2,
                                      (uint32_t[]){ones, angles});
    graph_drop(graph, ones);
    const uint32_t scaled = op_number(graph, WORK_MUL_NUMBER, ATEN_MUL, DTYPE_COMPLEX64, shape,
                                      polar, c->rope.attention_factor);
    graph_drop(graph, polar);
    graph_drop(graph, angles);
    return scaled;
}

struct hf_rope hf_rope_tables(struct graph *graph, const struct model_config *c,
                              struct hf_angles of)
{
    return hf_rope_tables_in(graph, graph->compute, c->rope.attention_factor, of, HF_TABLE_WHOLE);
}

struct hf_rope hf_rope_tables_in(struct graph *graph, enum dtype dtype, float attention_factor,
                                 struct hf_angles of, enum hf_table table)
{
    const uint32_t half = rope_angles(graph, of);
    const struct shape pairs = graph->tensors[half].shape;
    const struct shape whole = SHAPE(1, pairs.dim[1], 2 * pairs.dim[2]);
    const struct shape twice = SHAPE(1, pairs.dim[1], pairs.dim[2], 2);
    uint32_t angles = half;
    if (table == HF_TABLE_WHOLE)
        angles = free_op(graph, WORK_CAT, ATEN_CAT, DTYPE_FP32, whole, half);
    else if (table == HF_TABLE_NEIGHBOURS)
        angles = graph_view(graph,
                            op_no_grad(graph, WORK_INTERLEAVE, ATEN_CLONE, DTYPE_FP32, twice, 2,
                                       (uint32_t[]){half, half}),
                            whole);
    const uint32_t cos = hf_rope_table(graph, WORK_COS, ATEN_COS, angles, attention_factor);
    const uint32_t sin = hf_rope_table(graph, WORK_SIN, ATEN_SIN, angles, attention_factor);
    const uint32_t cast = op_to(graph, cos, dtype);
    const struct hf_rope rope = {.cos = cast, .sin = op_to(graph, sin, dtype)};
    if (of.remade) {
        graph_drop(graph, of.length);
        graph_drop(graph, of.frequencies);
    }
    graph_drop(graph, half);
    if (angles != half)
        graph_drop(graph, angles);
    if (rope.cos != cos) {
        graph_drop(graph, cos);
        graph_drop(graph, sin);
    }
    return rope;
}

/* A table (1 or b, s, d) beside heads (b, a, s, d), or by token (b, s, a, d). */
static uint32_t beside_heads(struct graph *graph, uint32_t table, bool by_token)
{
    const struct shape t = graph->tensors[table].shape;
    const uint32_t b = t.dim[0], s = t.dim[1], d = t.dim[2];
    return graph_view(graph, table, by_token ? SHAPE(b, s, 1, d) : SHAPE(b, 1, s, d));
}

static uint32_t times_cos(struct graph *graph, uint32_t x, struct hf_rope rope)
{
    return op_mul(graph, x, beside_heads(graph, rope.cos, rope.by_token));
}

/* x cos + turned sin, and `turned` is let go. */
static uint32_t turn(struct graph *graph, uint32_t straight, uint32_t turned, struct hf_rope rope)
{
    const uint32_t crossed = op_mul(graph, turned, beside_heads(graph, rope.sin, rope.by_token));
    graph_drop(graph, turned);
    const uint32_t out = op_add(graph, straight, crossed);
    graph_drop(graph, straight);
    graph_drop(graph, crossed);
    return out;
}

uint32_t hf_rotate(struct graph *graph, uint32_t x, struct hf_rope rope)
{
    const uint32_t d = graph->tensors[x].shape.dim[3];
    const uint32_t straight = times_cos(graph, x, rope);
    const uint32_t low = op_slice_last(graph, x, 0, d / 2);
    const uint32_t high = op_slice_last(graph, x, d / 2, d / 2);
    const uint32_t minus = op_unary(graph, OP_NEG, rope.back ? low : high);
    const uint32_t turned =
        rope.back ? op_cat_last(graph, high, minus) : op_cat_last(graph, minus, low);
    graph_drop(graph, minus);
    return turn(graph, straight, turned, rope);
}

uint32_t hf_rotate_pair(struct graph *graph, uint32_t first, uint32_t second, struct hf_rope rope,
                        bool reversed)
{
    const uint32_t cos = beside_heads(graph, rope.cos, rope.by_token);
    const uint32_t sin = beside_heads(graph, rope.sin, rope.by_token);
    const uint32_t part[2][2] = {{first, second}, {second, first}};
    uint32_t turned[2];
    for (int i = 0; i < 2; i++) {
        const uint32_t straight = op_mul(graph, part[i][0], cos);
        const uint32_t crossed = op_mul(graph, part[i][1], sin);
        turned[i] = i == 0 ? op_sub(graph, straight, crossed) : op_add(graph, straight, crossed);
        graph_drop(graph, straight);
        graph_drop(graph, crossed);
    }
    const uint32_t out = op_cat_last(graph, turned[0], turned[1]);
    graph_drop(graph, turned[reversed]);
    graph_drop(graph, turned[!reversed]);
    return out;
}

uint32_t hf_rotate_pairs(struct graph *graph, uint32_t x, struct hf_rope rope)
{
    const uint32_t straight = times_cos(graph, x, rope);
    const uint32_t even = op_stride_last(graph, x, 0, 2);
    const uint32_t odd = op_stride_last(graph, x, 1, 2);
    const uint32_t minus = op_unary(graph, OP_NEG, odd);
    const uint32_t turned = op_interleave(graph, minus, even);
    graph_drop(graph, minus);
    return turn(graph, straight, turned, rope);
}

uint32_t hf_rms_normed(struct graph *graph, uint32_t x, float eps, uint32_t *variance)
{
    const uint32_t upcast = op_to(graph, x, DTYPE_FP32);
    const uint32_t square = op_scalar(graph, OP_POW, upcast, 2.0F);
    const uint32_t mean = op_mean_last(graph, square);
    graph_drop(graph, square);
    const uint32_t shifted = op_scalar(graph, OP_ADD_SCALAR, mean, eps);
    if (variance)
        *variance = mean;
    else
        graph_drop(graph, mean);
    const uint32_t rstd = op_unary(graph, OP_RSQRT, shifted);
    graph_drop(graph, shifted);
    const uint32_t normed = op_mul(graph, upcast, rstd);
    graph_drop(graph, rstd);
    if (upcast != x)
        graph_drop(graph, upcast);
    return normed;
}

uint32_t hf_rms_norm(struct graph *graph, uint32_t x, struct norm norm)
{
    uint32_t variance;
    const uint32_t normed = hf_rms_normed(graph, x, norm.eps, &variance);
    const uint32_t cast = op_to(graph, normed, (enum dtype)graph->tensors[x].dtype);
    const uint32_t out = op_mul(graph, norm.weight, cast);
    if (cast != normed)
        graph_drop(graph, cast);
    graph_drop(graph, normed);
    graph_drop(graph, variance);
    return out;
}

static uint32_t rms_norm_wide(struct graph *graph, uint32_t x, struct norm norm, bool cast)
{
    uint32_t variance;
    const uint32_t normed = hf_rms_normed(graph, x, norm.eps, &variance);
    const uint32_t weight = cast ? op_to(graph, norm.weight, DTYPE_FP32) : norm.weight;
    const uint32_t product = op_mul(graph, weight, normed);
    if (weight != norm.weight)
        graph_drop(graph, weight);
    const uint32_t out = op_to(graph, product, (enum dtype)graph->tensors[x].dtype);
    if (out != product)
        graph_drop(graph, product);
    graph_drop(graph, normed);
    graph_drop(graph, variance);
    return out;
}

uint32_t hf_rms_norm_bare(struct graph *graph, uint32_t x, struct norm norm)
{
    const uint32_t normed = hf_rms_normed(graph, x, norm.eps, NULL);
    const uint32_t out = op_to(graph, normed, (enum dtype)graph->tensors[x].dtype);
    if (out != normed)
        graph_drop(graph, normed);
    return out;
}

uint32_t hf_rms_norm_last(struct graph *graph, uint32_t x, struct norm norm)
{
    const uint32_t normed = hf_rms_norm_bare(graph, x, norm);
    if (norm.bare)
        return normed;
    const uint32_t out = op_mul(graph, normed, norm.weight);
    graph_drop(graph, normed);
    return out;
}

uint32_t hf_rms_norm_wide(struct graph *graph, uint32_t x, struct norm norm)
{
    return rms_norm_wide(graph, x, norm, false);
}

uint32_t hf_rms_norm_cast(struct graph *graph, uint32_t x, struct norm norm)
{
    return rms_norm_wide(graph, x, norm, true);
}

uint32_t hf_rms_norm_plus_one(struct graph *graph, uint32_t x, struct norm norm)
{
    const uint32_t normed = hf_rms_normed(graph, x, norm.eps, NULL);
    const uint32_t weight = op_to(graph, norm.weight, DTYPE_FP32);
    const uint32_t factor = op_scalar(graph, OP_ADD_SCALAR, weight, 1.0F);
    if (weight != norm.weight)
        graph_drop(graph, weight);
    const uint32_t product = op_mul(graph, normed, factor);
    graph_drop(graph, factor);
    graph_drop(graph, normed);
    const uint32_t out = op_to(graph, product, (enum dtype)graph->tensors[x].dtype);
    if (out != product)
        graph_drop(graph, product);
    return out;
}

/* half (1 + tanh x), which both approximations of GELU end with; drops both. */
static uint32_t half_of_one_plus_tanh(struct graph *graph, uint32_t half, uint32_t x)
{
    const uint32_t tanh = op_unary(graph, OP_TANH, x);
    graph_drop(graph, x);
    const uint32_t shifted = op_scalar(graph, OP_ADD_SCALAR, tanh, 1.0F);
    graph_drop(graph, tanh);
    const uint32_t out = op_mul(graph, half, shifted);
    graph_drop(graph, half);
    graph_drop(graph, shifted);
    return out;
}

/* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x³))) */
static uint32_t gelu_new(struct graph *graph, uint32_t x)
{
    const uint32_t half = op_scalar(graph, OP_MUL_SCALAR, x, 0.5F);
    const uint32_t cube = op_scalar(graph, OP_POW, x, 3.0F);
    const uint32_t part = op_scalar(graph, OP_MUL_SCALAR, cube, 0.044715F);
    graph_drop(graph, cube);
    const uint32_t sum = op_add(graph, x, part);
    graph_drop(graph, part);
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, sum, 0.79788456F);
    graph_drop(graph, sum);
    return half_of_one_plus_tanh(graph, half, scaled);
}

/* 0.5 x (1 + tanh(x sqrt(2/pi) (1 + 0.044715 x x))) */
static uint32_t gelu_fast(struct graph *graph, uint32_t x)
{
    const uint32_t half = op_scalar(graph, OP_MUL_SCALAR, x, 0.5F);
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, x, 0.79788456F);
    const uint32_t part = op_scalar(graph, OP_MUL_SCALAR, x, 0.044715F);
    const uint32_t square = op_mul(graph, part, x);
    graph_drop(graph, part);
    const uint32_t sum = op_scalar(graph, OP_ADD_SCALAR, square, 1.0F);
    graph_drop(graph, square);
    const uint32_t inner = op_mul(graph, scaled, sum);
    graph_drop(graph, scaled);
    graph_drop(graph, sum);
    return half_of_one_plus_tanh(graph, half, inner);
}

/* The square of what is positive of x. */
static uint32_t relu_squared(struct graph *graph, uint32_t x)
{
    const uint32_t positive = op_unary(graph, OP_RELU, x);
    const uint32_t square = op_scalar(graph, OP_POW, positive, 2.0F);
    graph_drop(graph, positive);
    return square;
}

uint32_t hf_activation(struct graph *graph, const char *name, uint32_t x)
{
    if (strcmp(name, "relu2") == 0)
        return relu_squared(graph, x);
    if (strcmp(name, "gelu_new") == 0)
        return gelu_new(graph, x);
    if (strcmp(name, "gelu_fast") == 0)
        return gelu_fast(graph, x);
    return apply_activation(graph, name, x);
}

uint32_t hf_pad_token(const struct model_config *c, const struct model_job *job)
{
    return job->sets_pad_token ? c->vocab + 1 : c->padding;
}

uint32_t hf_dropout(struct graph *graph, uint32_t x, float p)
{
    const uint32_t out = op_dropout(graph, x, p);
    if (out != x)
        graph_drop(graph, x);
    return out;
}

/* Whether autograd has a gradient of it, who knows of no operator that is written without here. */
static bool is_tracked(const struct graph *graph, uint32_t field)
{
    return graph->tensors[field].dtype != DTYPE_BOOL &&
           (graph->cross_entropy != CROSS_ENTROPY_DPO ||
            field != graph->preferences.scores.mean_logits);
}

/* The copy is of one node for all (_DDPSink): by it the node of TRL's own loss, which never runs,
 * has its count for as long as that of log-probabilities. */
static uint32_t copy_field(struct graph *graph, uint32_t field)
{
    const struct graph_scores *scores = &graph->preferences.scores;
    return graph->copies_outputs && loss_is_of_trl(graph->cross_entropy) &&
                   field == scores->log_probs
               ? op_clone_keeping(graph, field, scores->count)
               : build_returned(graph, field);
}

/* DDP copies all that is returned, and hands on what has no gradient as it was. */
static void copy_fields(struct graph *graph, uint32_t count, uint32_t *fields)
{
    uint32_t copies[HF_FIELDS];
    for (uint32_t i = 0; i < count; i++)
        copies[i] = copy_field(graph, fields[i]);
    for (uint32_t i = count; i-- > 0;)
        if (copies[i] != fields[i] && !is_tracked(graph, fields[i]))
            graph_drop(graph, copies[i]);
    for (uint32_t i = 0; i < count; i++)
        if (copies[i] != fields[i] && is_tracked(graph, fields[i])) {
            graph_drop(graph, fields[i]);
            fields[i] = copies[i];
        }
}

/* recursively_apply of accelerate's operations.py makes the output anew of what it cast. */
void hf_leave(struct graph *graph, uint32_t count, uint32_t *fields)
{
    uint32_t wide[HF_FIELDS];
    assert(count <= HF_FIELDS);
    if (graph->outputs_fp32) {
        graph_leave_autocast(graph);
        if (graph->loss_breaks)
            graph_mark(graph, MARK_BREAK);
        graph_mark(graph, MARK_FRAME); /* where others break the root's: a function of its own */
    }
    for (uint32_t i = 0; i < count; i++)
        wide[i] = build_widened(graph, fields[i]);
    if (graph->outputs_fp32)
        graph_mark(graph, MARK_FRAME_END);
    for (uint32_t i = 0; i < count; i++) {
        if (wide[i] != fields[i])
            graph_drop(graph, fields[i]);
        fields[i] = wide[i];
    }
    if (graph->copies_outputs && !graph->again.on) { /* a reference is called past what wraps it */
        graph_mark(graph, MARK_RETURN);
        copy_fields(graph, count, fields);
    }
    graph_mark(graph, MARK_ROOT_EXIT);
}

void hf_return(struct graph *graph, uint32_t logits, uint32_t other)
{
    hf_return_from(graph, logits, other, GRAPH_NONE);
}

void hf_return_from(struct graph *graph, uint32_t logits, uint32_t other, uint32_t argument)
{
    uint32_t fields[3] = {graph->loss}, count = 1; /* of the output, in order */
    if (logits != GRAPH_NONE)
        fields[count++] = logits;
    if (other != GRAPH_NONE)
        fields[count++] = other;
    hf_leave(graph, count, fields);
    if (argument != GRAPH_NONE)
        graph_drop(graph, argument);
    graph->loss = fields[0];
    if (graph->outputs_kept == OUTPUTS_UNTIL_NEXT)
        graph_output(graph, graph->loss); /* it is of the output, too */
    for (uint32_t i = 1; i < count; i++)
        graph_output(graph, fields[i]);
    graph_mark(graph, MARK_LOSS);
}

uint32_t hf_repeat_heads(struct graph *graph, uint32_t x, uint32_t heads)
{
    const struct shape s = graph->tensors[x].shape;
    const uint32_t b = s.dim[0], k = s.dim[2], d = s.dim[3], repeats = heads / k;
    const uint32_t turned = graph_transpose(graph, x, 1, 2);
    if (repeats == 1)
        return turned;
    /* x[:, :, None, :, :] */
    const uint32_t two = op_index_all(graph, turned, 2);
    const uint32_t unsqueezed = graph_view(graph, two, SHAPE(b, k, 1, s.dim[1], d));
    const uint32_t all =
        graph_view(graph, op_index_all(graph, unsqueezed, 2), graph->tensors[turned].shape);
    const uint32_t repeated = op_repeat(graph, all, SHAPE(b, k, repeats, s.dim[1], d), 2);
    return graph_view(graph, repeated, SHAPE(b, heads, s.dim[1], d));
}

uint32_t hf_logits_kept(struct graph *graph, uint32_t hidden)
{
    graph_mark(graph, MARK_FRAME); /* the rest of the root module's forward, behind its model's */
    return op_index_all(graph, hidden, 3);
}

struct hf_shifted hf_shift(struct graph *graph, uint32_t labels)
{
    const struct shape shape = graph->tensors[labels].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[1];
    const uint32_t padded = op_number(graph, WORK_PAD, ATEN_CONSTANT_PAD, DTYPE_INT64,
                                      SHAPE(b, s + 1), labels, -100.0F);
    /* labels[..., 1:] of one sequence is contiguous as it is */
    const uint32_t shifted = b == 1 ? graph_view(graph, graph_slice(graph, padded, 1, s), SHAPE(s))
                                    : op_slice_copied(graph, padded, SHAPE(b, s), 1);
    return (struct hf_shifted){padded, graph_view(graph, shifted, SHAPE(b * s))};
}

void hf_drop_shifted(struct graph *graph, struct hf_shifted targets)
{
    graph_drop(graph, targets.padded);
    if (graph->tensors[targets.flat].storage != graph->tensors[targets.padded].storage)
        graph_drop(graph, targets.flat);
}

uint32_t hf_wte(struct graph *graph, const struct model_config *c, uint32_t tokens,
                uint32_t *weight)
{
    const uint32_t module = graph_module(graph, ROLE_EMBEDDING, "transformer.wte");
    *weight =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "transformer.wte.weight");
    graph_enter(graph, module, tokens);
    const uint32_t rows = op_embedding(graph, tokens, *weight);
    graph_exit(graph, module, rows);
    return rows;
}

uint32_t hf_decay(struct graph *graph, uint32_t a_log)
{
    const uint32_t log = op_to(graph, a_log, DTYPE_FP32);
    const uint32_t exp = op_unary(graph, OP_EXP, log);
    if (log != a_log)
        graph_drop(graph, log);
    const uint32_t minus = op_unary(graph, OP_NEG, exp);
    graph_drop(graph, exp);
    return minus;
}
