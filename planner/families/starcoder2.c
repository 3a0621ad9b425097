/* starcoder2.c - StarCoder2: Llama with LayerNorms, biases, a feed-forward without a gate, and a
 * window. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build_hf_starcoder2(struct graph *graph, const struct model_config *config,
                                const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){
                         .norm = apply_norm,
                         .norms = {{".input_layernorm", HF_BEFORE_ATTENTION},
                                   {".post_attention_layernorm", HF_BEFORE_MLP}},
                         .biased_norms = true,
                         .up = "c_fc",
                         .down = "c_proj",
                         .act = "act",
                         .own_dropout = true,
                         .positions_first = true,
                     });
}

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 2, HEADS_MAX)},
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 4096)},
    EPS("norm_epsilon", 1e-5),
    STD("initializer_range", 0.018042),
    THETA("rope_theta", 1e4),
    TIED(true),
    {CHOICE("hidden_act", gated, "gelu_pytorch_tanh", key_activations)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    DROPOUT("residual_dropout", dropout, 0),
    DROPOUT("embedding_dropout", embedding_dropout, 0),
    {FLAG("use_bias", attention_bias, true)},
    {FLAG("use_bias", output_bias, true)},
    {FLAG("use_bias", mlp_bias, true)},
    {WINDOW(RULE_NONE)},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim, f = c->ffn;
    const double kv = (double)c->kv_heads * c->head_dim;
    const double block = count_linear(q, h, c->attention_bias) +
                         2 * count_linear(kv, h, c->attention_bias) +
                         count_linear(h, q, c->output_bias) + count_linear(f, h, c->mlp_bias) +
                         count_linear(h, f, c->mlp_bias) + 4 * h;
    return c->layers * block + (c->tied ? 1 : 2) * (double)c->vocab * h + 2 * h;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* bigcode/starcoder2-3b, -7b, -15b, -15b-instruct-v0.1. Starcoder2ForCausalLM. */
#define STARCODER2(title, count, h, l, a, k, f, base, std, drop, shared)                           \
    {title, count,                                                                                 \
     {DRAWN(ARCH_STARCODER2, h, l, a, k, 128, f, 49152, 16384, 1e-5F, base, 1, std),               \
      .activation = "gelu_tanh", .tied = shared, .attention_bias = true, .output_bias = true,      \
      .mlp_bias = true, .sliding_window = 4096, .dropout = drop, .embedding_dropout = drop,        \
      .attention_dropout = drop}}

static const struct model_preset presets[] = {
    STARCODER2("starcoder2-3b",  3030371328,  3072, 30, 24, 2, 12288, 999999.4420358813F, 0.018042F, 0.1F, true),
    STARCODER2("starcoder2-7b",  7173923840,  4608, 32, 36, 4, 18432, 1e6F, 0.018042F, 0.1F, true),
    STARCODER2("starcoder2-15b", 15957889024, 6144, 40, 48, 4, 24576, 1e5F, 0.01275F,  0.1F, false),
    STARCODER2("starcoder2-15b-instruct", 15957889024, 6144, 40, 48, 4, 24576, 1e5F, 0.01275F, 0, false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"starcoder2-15b-instruct-v0.1", "starcoder2-15b-instruct"},
};

const struct family family_starcoder2 = {
    .name = "starcoder2",
    .class_name = "Starcoder2ForCausalLM",
    .classifier = "Starcoder2ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_starcoder2},
};
