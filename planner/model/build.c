/* build.c - pieces that the builders share, and the choice of builder. */
#include "model/build.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint32_t build_input(struct graph *graph, const struct model_config *config, enum input_kind kind,
                     struct shape shape)
{
    return graph_input(graph, shape, (struct input_values){(uint8_t)kind, config->vocab});
}

uint32_t build_rope(struct graph *graph, const struct model_config *config,
                    const struct model_job *job, enum rope_layout layout, uint32_t dim)
{
    struct buffer_values values = {
        .kind = VALUES_ROPE, .layout = (uint8_t)layout, .rope = config->rope};
    values.rope.dim = dim;
    values.rope.positions = job->seq;
    return layout == ROPE_COMPLEX
               ? graph_buffer(graph, DTYPE_COMPLEX64, SHAPE(1, job->seq, 1, dim / 2), &values)
               : graph_buffer(graph, DTYPE_FP32, SHAPE(dim / 2), &values);
}

struct linear build_linear(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                           uint32_t in, bool biased)
{
    struct linear linear = {.bias = GRAPH_NONE};
    linear.weight = graph_param(graph, PARAM_WEIGHT, SHAPE(out, in), "%s%s.weight", prefix, name);
    if (biased)
        linear.bias = graph_param(graph, PARAM_BIAS, SHAPE(out), "%s%s.bias", prefix, name);
    return linear;
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

uint32_t apply_linear(struct graph *graph, uint32_t x, struct linear linear)
{
    return op_linear(graph, x, linear.weight, linear.bias);
}

uint32_t apply_activation(struct graph *graph, const char *name, uint32_t x)
{
    static const struct {
        const char *name;
        enum op_kind kind;
    } activations[] = {
        {"silu", OP_SILU},          {"relu", OP_RELU},
        {"gelu", OP_GELU},          {"gelu_pytorch_tanh", OP_GELU_TANH},
        {"gelu_new", OP_GELU_TANH}, {"gelu_fast", OP_GELU_TANH},
    };
    const size_t count = sizeof activations / sizeof *activations;
    size_t i = 0;
    while (i < count && strcmp(activations[i].name, name) != 0)
        i++;
    assert(i < count); /* config.c lets no other name through */
    return op_unary(graph, activations[i].kind, x);
}

uint32_t apply_norm(struct graph *graph, uint32_t x, struct norm norm)
{
    return norm.bias == GRAPH_NONE ? op_rms_norm(graph, x, norm.weight, norm.eps)
                                   : op_layer_norm(graph, x, norm.weight, norm.bias, norm.eps);
}

void build_loss(struct graph *graph, uint32_t logits, uint32_t targets)
{
    const struct shape shape = graph->tensors[logits].shape;
    const uint32_t rows = (uint32_t)(shape_elements(&shape) / shape.dim[shape.rank - 1]);
    const uint32_t flat = graph_view(graph, logits, SHAPE(rows, shape.dim[shape.rank - 1]));
    const uint32_t upcast = op_to(graph, flat, DTYPE_FP32);
    const uint32_t log_probabilities = op_log_softmax(graph, upcast);
    graph->loss = op_nll_loss(graph, log_probabilities, targets);
    graph_drop(graph, log_probabilities);
    graph_drop(graph, upcast);
    if (upcast != flat)
        graph_drop(graph, logits);
    graph_mark(graph, MARK_LOSS);
}

enum code model_default_code(enum arch arch)
{
    switch (arch) {
    case ARCH_LLAMA:
    case ARCH_MISTRAL:
    case ARCH_QWEN2:
    case ARCH_QWEN3:
        return CODE_TORCHTITAN;
    case ARCH_GPT2:
        return CODE_NANOGPT;
    case ARCH_FSDP2_TUTORIAL:
        return CODE_TORCHTITAN;
    default:
        return CODE_HF;
    }
}

const char *arch_name(enum arch arch)
{
    static const char *const names[] = {
#define X(name, text) text,
        ARCH_MAP(X)
#undef X
    };
    return names[arch];
}

const char *code_name(enum code code)
{
    static const char *const names[] = {"torchtitan", "nanogpt", "hf"};
    return names[code];
}

enum err_code model_build(const struct model_config *config, const struct model_job *job,
                          struct graph **out, struct err *err)
{
    *out = NULL;
    TRY(build_check(config, job, err));
    struct graph *graph = graph_new(job->compute, job->frozen);
    graph->own_init = job->own_init;
    switch (config->arch) {
    case ARCH_LLAMA:
    case ARCH_MISTRAL:
    case ARCH_QWEN2:
    case ARCH_QWEN3:
        if (job->code == CODE_HF)
            build_hf_llama(graph, config, job);
        else
            build_llama(graph, config, job);
        break;
    case ARCH_GPT2:
        if (job->code == CODE_HF)
            build_hf_gpt2(graph, config, job);
        else
            build_gpt2(graph, config, job);
        break;
    case ARCH_GPT_NEOX:
        build_hf_gpt_neox(graph, config, job);
        break;
    case ARCH_OPT:
        build_hf_opt(graph, config, job);
        break;
    case ARCH_MIXTRAL:
        build_hf_llama(graph, config, job);
        break;
    case ARCH_BERT:
        build_bert(graph, config, job);
        break;
    case ARCH_T5:
        build_t5(graph, config, job);
        break;
    case ARCH_FSDP2_TUTORIAL:
        build_tutorial(graph, config, job);
        break;
    default:
        graph_free(graph);
        return err_set(err, ERR_UNSUPPORTED, "no builder for %s", arch_name(config->arch));
    }
    graph_list_groups(graph);
    *out = graph;
    return ERR_OK;
}
