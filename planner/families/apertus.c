/* apertus.c - Apertus: Llama with norms on each head of q and k, whose feed-forward has no gate and
 * an activation with parameters, xIELU. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm,
        .norms = {{".attention_layernorm", HF_BEFORE_ATTENTION},
                  {".feedforward_layernorm", HF_BEFORE_MLP}},
        .qk = HF_QK_TURNED,
        .up = "up_proj",
        .down = "down_proj",
        .xielu = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct choice xielu_only[] = {{"xielu", "xielu", false}, {NULL, NULL, false}};

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 65536)},
    EPS("rms_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1.2e7),
    TIED(false),
    {CHOICE("hidden_act", gated, "xielu", xielu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
};

static double parameters(const struct model_config *c)
{
    return count_ungated(c) + 2.0 * c->layers;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* swiss-ai/Apertus-8B-2509, Apertus-70B-2509. ApertusForCausalLM. */
#define APERTUS(title, count, h, l, a, f)                                                          \
    {title, count,                                                                                 \
     {DECODER(ARCH_APERTUS, h, l, a, 8, 128, f, 131072, 65536, 1e-5F, 1.2e7F),                     \
      .activation = "xielu", .qk_norm = true, .rope.scaling = ROPE_LLAMA3, .rope.factor = 8,       \
      .rope.original_positions = 8192, .rope.low_freq_factor = 1, .rope.high_freq_factor = 4}}

static const struct model_preset presets[] = {
    APERTUS("apertus-8b",  8053338176,  4096, 32, 32, 21504),
    APERTUS("apertus-70b", 70599864480, 8192, 80, 64, 43008),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"apertus-8b-2509", "apertus-8b"},
    {"apertus-70b-2509", "apertus-70b"},
};

const struct family family_apertus = {
    .name = "apertus",
    .class_name = "ApertusForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .rope_absent = "{\"rope_type\": \"llama3\", \"rope_theta\": 12000000.0, \"factor\": 8.0, "
                   "\"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "
                   "\"original_max_position_embeddings\": 8192}",
    .parameters = parameters,
    .padding = 3 + 1,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
