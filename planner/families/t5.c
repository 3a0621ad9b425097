/* t5.c - T5 as Hugging Face transformers writes it: an encoder, a decoder that attends to its
 * output, one embedding for both and for the head.
 *
 *     encoder block   x + self(norm x);                       x + ff(norm x)
 *     decoder block   x + self(norm x); x + cross(norm x, e); x + ff(norm x)
 *
 * Norms are RMSNorms written out in Python, in fp32. Attention adds a bias (1, a, s, s_k) to its
 * scores, so it is the memory-efficient kernel: self-attention's is made in block 0 of each stack
 * (hf/t5_bias.c) and handed on from block to block, and its gradient comes back the same way;
 * cross-attention's is zeros, likewise. Each block makes its own contiguous copy of the former.
 *
 * The loss is inside the model and stays in the compute dtype. `tied` only says whether the head's
 * input is scaled: transformers 5 shares the embedding with the head in every T5, also in those
 * whose config.json asks for the opposite. */
#include "families/t5.h"

#include "graph/autocast.h"
#include "hf/hf.h"
#include "hf/t5.h"

#include <math.h>
#include <stdio.h>

struct t5_attention {
    struct linear q, k, v, o;
    uint32_t buckets; /* relative_attention_bias (buckets, a), or GRAPH_NONE */
    struct norm norm;
};

struct t5_block {
    struct t5_attention self, cross;
    struct linear wi, wi_1, wo; /* wi_1: where gated */
    struct norm norm;
};

struct t5_stack { /* what blocks of a stack share */
    const char *name;
    bool decoder;
    uint32_t bias;       /* (1, a, s, s) after block 0 */
    uint32_t cross_bias; /* decoder: likewise */
    uint32_t encoded;    /* decoder: the encoder's output */
};

/* ---- parameters ---- */

/* T5PreTrainedModel._init_weights: deviations by the sizes that a matrix is between. */
static void draw(struct graph *graph, uint32_t weight, double size)
{
    graph_init_param(graph, weight, init_normal(1 / sqrt(size), 0));
}

static struct t5_attention declare_attention(struct graph *graph, const struct model_config *c,
                                             const char *block, const char *name, bool relative)
{
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%s.layer.%s.", block, name);
    const uint32_t inner = c->heads * c->head_dim;
    struct t5_attention a = {.buckets = GRAPH_NONE};
    a.q = build_linear(graph, prefix, "q", inner, c->hidden, false);
    a.k = build_linear(graph, prefix, "k", inner, c->hidden, false);
    a.v = build_linear(graph, prefix, "v", inner, c->hidden, false);
    a.o = build_linear(graph, prefix, "o", c->hidden, inner, false);
    if (relative)
        a.buckets = graph_param(graph, PARAM_WEIGHT, SHAPE(c->relative_buckets, c->heads),
                                "%srelative_attention_bias.weight", prefix);
    draw(graph, a.q.weight, (double)c->hidden * c->head_dim);
    draw(graph, a.o.weight, inner);
    snprintf(prefix, sizeof prefix, "%s.layer.%c.", block, name[0]);
    a.norm = build_norm(graph, prefix, "layer_norm", c->hidden, false, c->norm_eps);
    return a;
}

static struct t5_block declare_block(struct graph *graph, const struct model_config *c,
                                     const struct t5_stack *stack, const char *name, bool first)
{
    const char layer = stack->decoder ? '2' : '1';
    char prefix[96];
    struct t5_block block = {.wi = {0, 0}};
    block.self = declare_attention(graph, c, name, "0.SelfAttention", first);
    if (stack->decoder)
        block.cross = declare_attention(graph, c, name, "1.EncDecAttention", false);
    snprintf(prefix, sizeof prefix, "%s.layer.%c.DenseReluDense.", name, layer);
    block.wi = build_linear(graph, prefix, c->gated ? "wi_0" : "wi", c->ffn, c->hidden, false);
    if (c->gated)
        block.wi_1 = build_linear(graph, prefix, "wi_1", c->ffn, c->hidden, false);
    block.wo = build_linear(graph, prefix, "wo", c->hidden, c->ffn, false);
    draw(graph, block.wo.weight, c->ffn);
    snprintf(prefix, sizeof prefix, "%s.layer.%c.", name, layer);
    block.norm = build_norm(graph, prefix, "layer_norm", c->hidden, false, c->norm_eps);
    return block;
}

/* ---- pieces ---- */

static uint32_t t5_norm(struct graph *graph, uint32_t x, struct norm norm)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    x = op_call_input(graph, x); /* it reads x twice, and the sum behind it once more */
    const uint32_t upcast = op_to(graph, x, DTYPE_FP32);
    const uint32_t square = op_scalar(graph, OP_POW, upcast, 2.0F);
    if (upcast != x)
        graph_drop(graph, upcast);
    const uint32_t variance = op_mean_last(graph, square);
    graph_drop(graph, square);
    const uint32_t sum = op_scalar(graph, OP_ADD_SCALAR, variance, norm.eps);
    const uint32_t rsqrt = op_unary(graph, OP_RSQRT, sum);
    graph_drop(graph, sum);
    const uint32_t product = op_mul(graph, x, rsqrt); /* in fp32: x itself, not its upcast */
    graph_drop(graph, rsqrt);
    const uint32_t normed = op_to(graph, product, dtype);
    if (normed != product)
        graph_drop(graph, product);
    const uint32_t out = op_mul(graph, norm.weight, normed);
    graph_drop(graph, normed);
    graph_drop(graph, variance);
    return out;
}

/* Dropout of a branch, and the sum; the branch and x stay. */
static uint32_t add_dropped(struct graph *graph, const struct model_config *c, uint32_t x,
                            uint32_t branch)
{
    const uint32_t dropped = op_dropout(graph, branch, c->dropout);
    const uint32_t sum = op_add(graph, x, dropped);
    if (dropped != branch)
        graph_drop(graph, dropped);
    return sum;
}

/* scaled_dot_product_attention with a bias: rows of a multiple of 8, then the whole batch. */
static uint32_t biased_attention(struct graph *graph, const struct model_config *c, uint32_t q,
                                 uint32_t k, uint32_t v, uint32_t bias, bool is_view)
{
    struct shape shape = graph->tensors[bias].shape;
    /* Of one head the bias is a view whose strides are no multiples of 8: padded by a whole row. */
    const bool view = shape.dim[1] == 1 && shape.dim[2] > 1 && is_view;
    const uint32_t columns = shape.dim[3], padded = (columns + (view ? 8U : 7U)) & ~7U;
    uint32_t in[4] = {q, k, v, bias};
    autocast_attention_arguments(graph, OP_EFFICIENT_ATTENTION, 4, in);
    uint32_t padding = GRAPH_NONE, mask = in[3];
    if (padded != columns) {
        padding = op_pad_last(graph, mask, padded);
        mask = op_slice_last(graph, padding, 0, columns);
    }
    shape.dim[0] = graph->tensors[q].shape.dim[0];
    mask = op_expand(graph, mask, shape);
    const uint32_t o = op_efficient_attention(graph, in[0], in[1], in[2], mask, false, c->dropout);
    op_attention_scale(graph, o, 1.0F);
    if (padding != GRAPH_NONE)
        graph_drop(graph, padding);
    return o;
}

/* x + attention(norm x); `source` is what keys and values come from, GRAPH_NONE: norm x. */
static uint32_t attend(struct graph *graph, const struct model_config *c,
                       const struct t5_attention *a, uint32_t x, uint32_t source,
                       struct t5_stack *stack)
{
    const struct shape in = graph->tensors[x].shape;
    const uint32_t b = in.dim[0], s = in.dim[1];
    const struct shape heads = SHAPE(b, s, c->heads, c->head_dim);
    const bool cross = source != GRAPH_NONE;
    const uint32_t normed = t5_norm(graph, x, a->norm);
    const uint32_t from = cross ? source : normed;
    const uint32_t q = build_heads(graph, apply_linear(graph, normed, a->q), heads);
    const uint32_t k = build_heads(graph, apply_linear(graph, from, a->k), heads);
    const uint32_t v = build_heads(graph, apply_linear(graph, from, a->v), heads);
    uint32_t *shared = cross ? &stack->cross_bias : &stack->bias;
    if (*shared == GRAPH_NONE)
        *shared = cross ? op_fill(graph, ATEN_ZEROS, (enum dtype)graph->tensors[q].dtype,
                                  SHAPE(1, c->heads, s, s), 0.0F)
                        : t5_position_bias(graph, s, a->buckets, stack->decoder);
    const uint32_t bias = cross ? *shared : t5_own_bias(graph, *shared, stack->decoder);
    const struct math_attention single = {
        .q = q, .k = k, .v = v, .mask = bias, .dropout = c->dropout, .scale = 1.0F};
    const uint32_t o = graph->attention == ATTENTION_MATH
                           ? op_math_attention(graph, &single)
                           : biased_attention(graph, c, q, k, v, bias, !cross && bias == *shared);
    if (bias != *shared)
        graph_drop(graph, bias);
    const uint32_t joined = graph_view(graph, o, SHAPE(b, s, c->heads * c->head_dim));
    const uint32_t projected = apply_linear(graph, joined, a->o);
    graph_drop(graph, o);
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v);
    const uint32_t sum = add_dropped(graph, c, x, projected);
    /* Self-attention's layer reuses the name for the sum, cross-attention's does not. */
    graph_drop(graph, cross ? normed : projected);
    graph_drop(graph, cross ? projected : normed);
    return sum;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct t5_block *block, uint32_t x)
{
    const uint32_t normed = t5_norm(graph, x, block->norm);
    const uint32_t wide = apply_linear(graph, normed, block->wi);
    uint32_t active = hf_activation(graph, c->activation, wide);
    graph_drop(graph, wide);
    uint32_t gate = GRAPH_NONE, linear = GRAPH_NONE;
    if (c->gated) {
        gate = active;
        linear = apply_linear(graph, normed, block->wi_1);
        active = op_mul(graph, gate, linear);
    }
    const uint32_t dropped = op_dropout(graph, active, c->dropout);
    if (dropped != active)
        graph_drop(graph, active);
    const uint32_t stored = op_to(graph, dropped, graph->compute); /* .to(wo.weight.dtype) */
    if (stored != dropped)
        graph_drop(graph, dropped);
    const uint32_t projected = apply_linear(graph, stored, block->wo);
    graph_drop(graph, stored);
    if (c->gated) {
        graph_drop(graph, gate);
        graph_drop(graph, linear);
    }
    graph_drop(graph, normed);
    const uint32_t sum = add_dropped(graph, c, x, projected);
    graph_drop(graph, projected);
    return sum;
}

/* ---- stacks ---- */

/* fp16 only: infinities become the largest number, or a little less if there are any. The limit
 * stays Python's until the block's next one, or its end. */
#define LARGEST_FP16 65504.0F

static uint32_t clamp_fp16(struct graph *graph, uint32_t x, uint32_t *limit)
{
    const struct shape scalar = {.rank = 0};
    if (graph->tensors[x].dtype != DTYPE_FP16)
        return x;
    uint32_t any = t5_step(graph, WORK_IS_INFINITE, ATEN_ISINF, DTYPE_BOOL, graph->tensors[x].shape,
                           x, GRAPH_NONE);
    any = t5_step(graph, WORK_ANY, ATEN_ANY, DTYPE_BOOL, scalar, any, any);
    const uint32_t less =
        op_fill(graph, ATEN_SCALAR_TENSOR, DTYPE_FP32, scalar, LARGEST_FP16 - 1000.0F);
    const uint32_t largest = op_fill(graph, ATEN_SCALAR_TENSOR, DTYPE_FP32, scalar, LARGEST_FP16);
    const uint32_t most = op_no_grad(graph, WORK_WHERE, ATEN_WHERE, DTYPE_FP32, scalar, 3,
                                     (uint32_t[]){any, less, largest});
    graph_drop(graph, less);
    graph_drop(graph, largest);
    graph_drop(graph, any);
    if (*limit != GRAPH_NONE)
        graph_drop(graph, *limit);
    *limit = most;
    const uint32_t least = t5_step(graph, WORK_NEG, ATEN_NEG, DTYPE_FP32, scalar, most, GRAPH_NONE);
    const uint32_t out = op_clamp(graph, x, least, most);
    graph_drop(graph, least);
    graph_drop(graph, x);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct t5_block *block, struct t5_stack *stack, uint32_t x,
                          uint32_t encoded)
{
    uint32_t limit = GRAPH_NONE;
    uint32_t h = clamp_fp16(graph, attend(graph, c, &block->self, x, GRAPH_NONE, stack), &limit);
    if (stack->decoder) {
        const uint32_t crossed = attend(graph, c, &block->cross, h, encoded, stack);
        graph_drop(graph, h);
        h = clamp_fp16(graph, crossed, &limit);
    }
    const uint32_t fed = feed_forward(graph, c, block, h);
    graph_drop(graph, h);
    const uint32_t z = clamp_fp16(graph, fed, &limit);
    if (limit != GRAPH_NONE)
        graph_drop(graph, limit);
    return z;
}

/* What a block is called with by place, not by name: hooks pass it through a node. */
static uint32_t called_with(struct graph *graph, uint32_t x)
{
    return op_call_input(graph, op_module_input(graph, x));
}

/* Declares and runs a stack on embedded tokens; returns its normed output. */
static uint32_t run_stack(struct graph *graph, const struct model_config *c, struct t5_stack *stack,
                          uint32_t embedded, uint32_t layers)
{
    uint32_t x = op_dropout(graph, embedded, c->dropout);
    for (uint32_t i = 0; i < layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "%s.block.%u", stack->name, i);
        const struct t5_block block =
            declare_block(graph, c, stack, graph->modules[module].name, i == 0);
        const uint32_t encoded = stack->decoder ? called_with(graph, stack->encoded) : GRAPH_NONE;
        if (i > 0)
            stack->bias = called_with(graph, stack->bias);
        graph_enter(graph, module, x);
        if (i > 0)
            graph_also_input(graph, module, stack->bias);
        if (stack->decoder)
            graph_also_input(graph, module, encoded);
        if (i > 0 && stack->decoder)
            graph_also_input(graph, module, stack->cross_bias);
        const uint32_t z = run_block(graph, c, &block, stack, x, encoded);
        graph_exit(graph, module, z);
        if (x != embedded)
            graph_drop(graph, x);
        x = z;
    }
    char prefix[16];
    snprintf(prefix, sizeof prefix, "%s.", stack->name);
    const struct norm norm =
        build_norm(graph, prefix, "final_layer_norm", c->hidden, false, c->norm_eps);
    const uint32_t normed = t5_norm(graph, x, norm);
    graph_drop(graph, x);
    const uint32_t out = op_dropout(graph, normed, c->dropout);
    if (out != normed)
        graph_drop(graph, normed);
    graph_drop(graph, embedded);
    graph_drop(graph, stack->bias);
    if (stack->decoder)
        graph_drop(graph, stack->cross_bias);
    return out;
}

/* _shift_right(labels): the decoder's input. */
static uint32_t shift_right(struct graph *graph, const struct model_job *job, uint32_t labels)
{
    const uint32_t b = job->batch, s = job->seq;
    const uint32_t ids =
        t5_step(graph, WORK_FILL, ATEN_NEW_ZEROS, DTYPE_INT64, SHAPE(b, s), labels, GRAPH_NONE);
    const uint32_t rest =
        op_slice_copied(graph, graph_view(graph, labels, SHAPE(b, s)), SHAPE(b, s - 1), 0);
    op_put_slice(graph, ids, rest, 1, s);
    graph_drop(graph, rest);
    if (!torch_does(graph->torch, TORCH_NUMBER_FILLS))
        graph_drop(graph,
                   op_fill(graph, ATEN_LIFT_FRESH, DTYPE_INT64, (struct shape){.rank = 0}, 0.0F));
    const uint32_t ignored =
        op_number(graph, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL, SHAPE(b, s), ids, -100.0F);
    graph_drop(graph, ignored);
    return ids;
}

void t5_build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = build_input(graph, c, INPUT_REPLIES, SHAPE(job->batch * job->seq));
    const uint32_t table =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "shared.weight");
    graph_init_param(graph, table, init_normal(1, 0));
    graph_init_weights(graph, init_normal(1 / sqrt(c->hidden), 0));

    struct t5_stack encoder = {"encoder", false, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE};
    const uint32_t encoded =
        run_stack(graph, c, &encoder, op_embedding(graph, tokens, table), c->layers);

    const uint32_t ids = shift_right(graph, job, labels);
    struct t5_stack decoder = {"decoder", true, GRAPH_NONE, GRAPH_NONE, encoded};
    const uint32_t decoded =
        run_stack(graph, c, &decoder, op_embedding(graph, ids, table), c->decoder_layers);

    uint32_t scaled = decoded;
    if (c->tied)
        scaled = op_scalar(graph, OP_MUL_SCALAR, decoded, 1.0F / sqrtf((float)c->hidden));
    const uint32_t logits = op_linear(graph, scaled, table, GRAPH_NONE);
    const uint32_t flat = graph_view(graph, logits, SHAPE(job->batch * job->seq, c->vocab));
    graph->loss = build_cross_entropy(graph, flat, labels);
    graph_drop(graph, ids);
    graph_drop(graph, scaled);
    graph_drop(graph, decoded);
    hf_return(graph, logits, encoded);
}

const struct choice t5_feed_forwards[] = {
    {"relu", "relu", false},
    /* so T5Config reads what T5 v1.1 wrote */
    {"gated-gelu", "gelu_new", true},
    {"gated-silu", "silu", true},
    {"gated-relu", "relu", true},
    {"gelu", "gelu", false},
    {"gelu_new", "gelu_new", false},
    {"silu", "silu", false},
    {NULL, NULL, false},
};

static const struct key keys[] = {
    T5_KEYS("relu"),
    TIED(true),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* T5: google-t5/t5-{small,base,large,3b,11b}. T5ForConditionalGeneration. */
#define T5(title, count, h, l, a, d, f)                                                            \
    {title, count, {T5_MODEL(ARCH_T5, h, l, a, d, f, 32128), .tied = true, .activation = "relu"}}

static const struct model_preset presets[] = {
    T5("t5-small", 60506624,    512,  6,  8,   64,  2048),
    T5("t5-base",  222903552,   768,  12, 12,  64,  3072),
    T5("t5-large", 737668096,   1024, 24, 16,  64,  4096),
    T5("t5-3b",    2851598336,  1024, 24, 32,  128, 16384),
    T5("t5-11b",   11307321344, 1024, 24, 128, 128, 65536),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

double t5_parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, attention = 4.0 * h * c->heads * c->head_dim,
                 feed_forward = (c->gated ? 3.0 : 2.0) * h * c->ffn,
                 encoder = c->layers * (attention + feed_forward + 2 * h) + h,
                 decoder = c->decoder_layers * (2 * attention + feed_forward + 3 * h) + h;
    /* transformers 5 shares the embedding whatever "tie_word_embeddings" says: for T5 that key only
     * tells whether the head's input is scaled */
    return encoder + decoder + 2.0 * c->relative_buckets * c->heads + v * h;
}

const struct family family_t5 = {
    .name = "t5",
    .class_name = "T5ForConditionalGeneration",
    .block_class = "T5Block",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .parameters = t5_parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = t5_build},
};
