/* gpt_oss.c - GPT-OSS: experts with biases, attention sinks, every second layer a window.
 *
 * Attention is eager, the default of the class, which has no sdpa: kernels that know sinks come
 * from elsewhere. Published weights are in MXFP4; who trains has them in bf16 or fp32. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

/* batched_mm adds a bias in place to a view, whose node is another. */
static const struct choice ways[] = {{"grouped_mm", NULL, false}, {NULL, NULL, false}};

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 64, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    LLAMA_KEYS(131072, 1e-5, 150000),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(true),
    {ALWAYS("sinks", sinks)},
    {SIZE("sliding_window", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 128},
    {COUNT("layer_types", window_period, 2, 2), .fixed = true},
    LAYER_TYPES,
    EXPERTS("num_local_experts", "num_experts", 128, 4),
    {CHOICE("experts_implementation", batched_experts, "grouped_mm", ways)},
    {ALWAYS("experts.bias", expert_bias)},
    {NUMBER("swiglu_alpha", swiglu_alpha, 1.702, 0, 1000)},
    {NUMBER("swiglu_limit", swiglu_limit, 7, 0, 1e6)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* openai/gpt-oss-20b, openai/gpt-oss-120b. GptOssForCausalLM. */
#define YARN_32 1.34657359F /* 0.1 ln 32 + 1 */
#define GPT_OSS(title, count, l, e)                                                                \
    {title, count,                                                                                 \
     {STRETCHED(ARCH_GPT_OSS, 2880, l, 64, 8, 64, 2880, 201088, 131072, 1e-5F, 1.5e5F, YARN_32),   \
      .activation = "silu", .attention_bias = true, .output_bias = true, .sinks = true,            \
      .sliding_window = 128,                                                                       \
      .window_period = 2, .experts = e, .experts_per_token = 4, .expert_bias = true,                  \
      .swiglu_alpha = 1.702F, .swiglu_limit = 7, .rope.scaling = ROPE_YARN, .rope.factor = 32,     \
      .rope.beta_fast = 32, .rope.beta_slow = 1, .rope.original_positions = 4096}}

static const struct model_preset presets[] = {
    GPT_OSS("gpt-oss-20b",  20914757184,  24, 32),
    GPT_OSS("gpt-oss-120b", 116829156672, 36, 128),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"gpt-oss-safeguard-20b", "gpt-oss-20b"},
    {"gpt-oss-safeguard-120b", "gpt-oss-120b"},
    {"gpt-oss-20b-dequantized", "gpt-oss-20b"},
    {"gpt-oss-120b-dequantized", "gpt-oss-120b"},
};

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (c->kv_heads == c->heads || c->kv_heads == 1)
        return err_set(err, ERR_INVALID,
                       "%s: \"num_key_value_heads\": %u: more than 1 and fewer than "
                       "\"num_attention_heads\" are planned for",
                       where, c->kv_heads);
    return experts_check(table, c, where, err);
}

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .rotary = HF_ROTARY_HALVES,
        HF_NORM_NAMES,
        .norm = hf_rms_norm_wide,
        .embedded_last = true,
        .moe = {.route = hf_route_gpt_oss,
                .gate = hf_gate_clamped,
                .router = "router",
                .transposed = true,
                .returns_scores = true},
    };
    hf_decoder_build(graph, config, job, &way);
}

const struct family family_gpt_oss = {
    .name = "gpt_oss",
    .class_name = "GptOssForCausalLM",
    .classifier = "GptOssForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .rope_absent = "{\"rope_type\": \"yarn\", \"factor\": 32, \"beta_fast\": 32, \"beta_slow\": 1, "
                   "\"truncate\": false, \"original_max_position_embeddings\": 4096}",
    .check = check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
