/* olmo.c - OLMo: Llama whose norms have no parameters, in fp32. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_NORM_NAMES,    .norm = hf_layer_norm_bare, .bare_norms = true,
        .qk = HF_QK_NONE, .fp32_tables = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 2048)},
    TORCH_EPS,
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e4),
    TIED(false),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* OLMo: allenai/OLMo-1B-hf, OLMo-7B-hf. OlmoForCausalLM. */
#define OLMO(title, count, h, l, a, f, shared)                                                     \
    {title, count,                                                                                 \
     {GATED(ARCH_OLMO, h, l, a, a, 128, f, 50304, 2048, 1e-5F, 1e4F), .tied = shared}}

static const struct model_preset presets[] = {
    OLMO("olmo-1b", 1176764416, 2048, 16, 16, 8192,  true),
    OLMO("olmo-7b", 6888095744, 4096, 32, 32, 11008, false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

/* Llama's, less the factors of norms. */
static double parameters(const struct model_config *c)
{
    return count_llama(c) - (2.0 * c->layers + 1) * c->hidden;
}

const struct family family_olmo = {
    .name = "olmo",
    .class_name = "OlmoForCausalLM",
    .classifier = "OlmoForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .parameters = parameters,
    .padding = 1 + 1,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
