/* build.c - see build.h. */
#include "model/build.h"

#include "model/bits4.h"
#include "model/bits8.h"
#include "model/dpo.h"
#include "model/grpo.h"
#include "model/lora.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

uint32_t build_input(struct graph *graph, const struct model_config *config, enum input_kind kind,
                     struct shape shape)
{
    const struct input_values values = {.kind = (uint8_t)kind,
                                        .vocab = config->vocab,
                                        .padded = graph->padded,
                                        .prompt = kind == INPUT_LABELS ? graph->prompt : 0};
    if (graph->cross_entropy == CROSS_ENTROPY_GRPO && kind != INPUT_POSITIONS)
        return grpo_input(graph, kind);
    const uint32_t input = graph_input(graph, shape, values);
    return graph->cross_entropy == CROSS_ENTROPY_DPO ? dpo_input(graph, kind, input) : input;
}

uint32_t build_rope(struct graph *graph, const struct model_config *config,
                    const struct model_job *job, enum rope_layout layout, uint32_t dim)
{
    struct buffer_values values = {
        .kind = VALUES_ROPE, .layout = (uint8_t)layout, .rope = config->rope};
    values.rope.dim = dim;
    values.rope.positions = job->seq;
    if (layout == ROPE_SINES)
        return graph_buffer(graph, DTYPE_FP32, SHAPE(config->max_positions, dim), &values);
    if (layout == ROPE_TURNS)
        return graph_buffer(graph, DTYPE_FP32, SHAPE(job->seq, 2 * dim), &values);
    return layout == ROPE_COMPLEX
               ? graph_buffer(graph, DTYPE_COMPLEX64, SHAPE(1, job->seq, 1, dim / 2), &values)
               : graph_buffer(graph, DTYPE_FP32, SHAPE(dim / 2), &values);
}

struct linear build_weights(struct graph *graph, const char *prefix, const char *name,
                            struct shape shape, uint32_t biases)
{
    struct linear linear = {.bias = GRAPH_NONE};
    linear.weight = graph_param(graph, PARAM_WEIGHT, shape, "%s%s.weight", prefix, name);
    if (biases)
        linear.bias = graph_param(graph, PARAM_BIAS, SHAPE(biases), "%s%s.bias", prefix, name);
    return linear;
}

struct linear build_short_filter(struct graph *graph, const char *prefix, const char *name,
                                 uint32_t channels, uint32_t width, bool biased)
{
    const struct linear filter =
        build_weights(graph, prefix, name, SHAPE(channels, 1, width), biased ? channels : 0);
    graph_read_around(graph, filter.weight);
    if (biased)
        graph_read_around(graph, filter.bias);
    return filter;
}

/* A layer by its weight's shape; with an adapter it is called base_layer. */
static struct linear build_layer(struct graph *graph, const char *prefix, const char *name,
                                 uint32_t out, uint32_t in, struct shape shape, bool biased)
{
    char base[128];
    const bool adapted = lora_wants(graph, prefix, name);
    snprintf(base, sizeof base, "%s%s", name, adapted ? ".base_layer" : "");
    struct linear linear;
    if (bits4_wants(graph, prefix, name)) {
        linear.weight = bits4_declare(graph, prefix, base, out, in, biased, &linear.bias);
        if (!lora_kernel_takes(graph, prefix, name))
            bits4_cast_bias(graph, linear.bias);
    } else if (bits8_wants(graph, prefix, name)) {
        linear.weight = bits8_declare(graph, prefix, base, out, in, biased, &linear.bias);
    } else {
        linear = build_weights(graph, prefix, base, shape, biased ? out : 0);
    }
    if (adapted)
        lora_declare(graph, prefix, name, linear.weight, out, in);
    return linear;
}

struct linear build_linear(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                           uint32_t in, bool biased)
{
    return build_layer(graph, prefix, name, out, in, SHAPE(out, in), biased);
}

struct linear build_read_linear(struct graph *graph, const char *prefix, const char *name,
                                uint32_t out, uint32_t in, bool biased)
{
    struct linear linear;
    if (bits4_wants(graph, prefix, name) || bits8_wants(graph, prefix, name)) {
        linear = build_weights(graph, prefix, name, SHAPE(out, in), biased ? out : 0);
        if (!graph->bits_read)
            graph->bits_read = graph_param_of(graph, linear.weight)->name;
    } else {
        linear = build_linear(graph, prefix, name, out, in, biased);
    }
    graph_read_around(graph, linear.weight);
    if (biased)
        graph_read_around(graph, linear.bias);
    return linear;
}

struct linear build_conv1d(struct graph *graph, const char *prefix, const char *name, uint32_t in,
                           uint32_t out)
{
    return build_layer(graph, prefix, name, out, in, SHAPE(in, out), true);
}

struct norm build_norm(struct graph *graph, const char *prefix, const char *name, uint32_t h,
                       bool biased, float eps)
{
    struct norm norm = {.bias = GRAPH_NONE, .eps = eps};
    norm.weight = graph_param(graph, PARAM_NORM, SHAPE(h), "%s%s.weight", prefix, name);
    if (biased)
        norm.bias = graph_param(graph, PARAM_BIAS, SHAPE(h), "%s%s.bias", prefix, name);
    return norm;
}

struct norm build_bare_norm(struct graph *graph, const char *prefix, const char *name, float eps)
{
    return (struct norm){.weight = GRAPH_NONE,
                         .bias = GRAPH_NONE,
                         .eps = eps,
                         .bare = arena_printf(&graph->arena, "%s%s", prefix, name)};
}

struct norm build_head_norm(struct graph *graph, const char *prefix, const char *name, uint32_t a,
                            uint32_t d, float eps)
{
    const uint32_t weight =
        graph_param(graph, PARAM_WEIGHT, SHAPE(a, d), "%s%s.weight", prefix, name);
    graph_init_param(graph, weight, (struct param_init){.kind = INIT_ONES});
    return (struct norm){.weight = weight, .bias = GRAPH_NONE, .eps = eps};
}

/* torchtitan's Float8Converter leaves the head alone (filter_fqns), be it tied or not, and what
 * _scaled_mm cannot take. */
static bool is_float8(const struct graph *graph, uint32_t weight)
{
    enum { WHOLE = 16 };
    const struct graph_tensor *w = &graph->tensors[weight];
    if (!graph->float8)
        return false;
    const struct graph_param *param = &graph->params[graph->storages[w->storage].index];
    const bool in_block =
        param->module != GRAPH_NONE && graph->modules[param->module].role == ROLE_BLOCK;
    return in_block && w->shape.dim[0] % WHOLE == 0 && w->shape.dim[1] % WHOLE == 0;
}

uint32_t build_heads(struct graph *graph, uint32_t x, struct shape heads)
{
    return attention_is_composed(graph->attention) ? op_reshape(graph, x, heads)
                                                   : graph_view(graph, x, heads);
}

uint32_t apply_linear(struct graph *graph, uint32_t x, struct linear linear)
{
    x = lora_input(graph, linear.weight, x);
    const uint32_t y =
        bits8_is(graph, linear.weight)    ? bits8_apply(graph, x, linear.weight, linear.bias)
        : bits4_is(graph, linear.weight)  ? bits4_apply(graph, x, linear.weight, linear.bias)
        : is_float8(graph, linear.weight) ? op_float8_linear(graph, x, linear.weight, linear.bias)
                                          : op_linear(graph, x, linear.weight, linear.bias);
    return lora_apply(graph, linear.weight, x, y);
}

uint32_t apply_conv1d(struct graph *graph, uint32_t x, struct linear conv)
{
    x = lora_input(graph, conv.weight, x);
    const uint32_t y = bits8_is(graph, conv.weight) ? bits8_apply(graph, x, conv.weight, conv.bias)
                       : bits4_is(graph, conv.weight)
                           ? bits4_apply(graph, x, conv.weight, conv.bias)
                           : op_conv1d(graph, x, conv.weight, conv.bias);
    return lora_apply(graph, conv.weight, x, y);
}

uint32_t apply_activation(struct graph *graph, const char *name, uint32_t x)
{
    static const struct {
        const char *name;
        enum op_kind kind;
    } activations[] = {
        {"silu", OP_SILU},           {"relu", OP_RELU},          {"gelu", OP_GELU},
        {"gelu_tanh", OP_GELU_TANH}, {"gelu_new", OP_GELU_TANH}, {"gelu_fast", OP_GELU_TANH},
    };
    const size_t count = sizeof activations / sizeof *activations;
    size_t i = 0;
    while (i < count && strcmp(activations[i].name, name) != 0)
        i++;
    assert(i < count); /* families/config.c lets no other name through */
    return op_unary(graph, activations[i].kind, x);
}

uint32_t apply_norm(struct graph *graph, uint32_t x, struct norm norm)
{
    return norm.bias == GRAPH_NONE ? op_rms_norm(graph, x, norm.weight, norm.eps)
                                   : op_layer_norm(graph, x, norm.weight, norm.bias, norm.eps);
}

uint32_t build_returned(struct graph *graph, uint32_t x)
{
    return graph->copies_outputs ? op_unary(graph, OP_CLONE, x) : x;
}

uint32_t build_widened(struct graph *graph, uint32_t x)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    const bool narrow = dtype == DTYPE_BF16 || dtype == DTYPE_FP16;
    return graph->outputs_fp32 && narrow ? op_to(graph, x, DTYPE_FP32) : x;
}

uint32_t build_return(struct graph *graph, uint32_t logits)
{
    if (graph->outputs_fp32)
        graph_leave_autocast(graph);
    const uint32_t field = build_widened(graph, logits);
    if (field != logits)
        graph_drop(graph, logits);
    const uint32_t returned = build_returned(graph, field);
    if (returned != field)
        graph_drop(graph, field);
    graph_mark(graph, MARK_ROOT_EXIT);
    graph_mark(graph, MARK_LOGITS);
    return returned;
}

uint32_t build_cross_entropy(struct graph *graph, uint32_t logits, uint32_t targets)
{
    switch (graph->cross_entropy) {
    case CROSS_ENTROPY_FUSED:
        return op_fused_cross_entropy(graph, logits, targets);
    case CROSS_ENTROPY_LIGER_LOGITS:
        return op_liger_cross_entropy(graph, logits, targets);
    default:
        return op_cross_entropy(graph, logits, targets);
    }
}

uint32_t build_upcast(struct graph *graph, uint32_t logits)
{
    const bool as_they_are =
        graph->cross_entropy == CROSS_ENTROPY_FUSED || graph->cross_entropy == CROSS_ENTROPY_DIRECT;
    return as_they_are ? logits : op_to(graph, logits, DTYPE_FP32);
}

void build_loss(struct graph *graph, uint32_t logits, uint32_t targets)
{
    const struct shape shape = graph->tensors[logits].shape;
    const uint32_t rows = (uint32_t)(shape_elements(&shape) / shape.dim[shape.rank - 1]);
    const uint32_t flat = graph_view(graph, logits, SHAPE(rows, shape.dim[shape.rank - 1]));
    const uint32_t upcast = build_upcast(graph, flat);
    graph->loss = build_cross_entropy(graph, upcast, targets);
    if (upcast != flat)
        graph_drop(graph, upcast);
    graph_output(graph, logits);
    graph_mark(graph, MARK_LOSS);
}

static void build_chunked(struct graph *graph, uint32_t module, uint32_t x, uint32_t residual,
                          struct linear head, uint32_t targets)
{
    if (module != GRAPH_NONE)
        graph_enter(graph, module, x);
    graph->loss = op_chunked_cross_entropy(graph, x, head.weight, targets);
    if (module != GRAPH_NONE)
        graph_exit(graph, module, graph->loss);
    graph_drop(graph, x);
    graph_drop(graph, residual);
    graph_mark(graph, MARK_ROOT_EXIT);
    graph_mark(graph, MARK_LOGITS);
    graph_mark(graph, MARK_LOSS);
}

void build_head(struct graph *graph, uint32_t module, uint32_t x, uint32_t residual,
                struct linear head, uint32_t targets)
{
    if (graph->cross_entropy == CROSS_ENTROPY_CHUNKED) {
        build_chunked(graph, module, x, residual, head, targets);
        return;
    }
    if (module != GRAPH_NONE)
        graph_enter(graph, module, x);
    const uint32_t logits = apply_linear(graph, x, head);
    if (module != GRAPH_NONE)
        graph_exit(graph, module, logits);
    graph_drop(graph, x);
    graph_drop(graph, residual);
    build_loss(graph, build_return(graph, logits), targets);
}
