/* gemma3.c - Gemma 3's text model: Gemma 2 with norms on each head of q and k, in place of capped
 * scores, and a RoPE of its own in layers with a window. */
#include "families/gemma.h"
#include "model/count.h"

static void build_hf_gemma3(struct graph *graph, const struct model_config *config,
                            const struct model_job *job)
{
    hf_decoder_build(
        graph, config, job,
        &(struct hf_decoder){HF_GEMMA_LAYER, .qk = HF_QK_TURNED, .tables_by_layer = true});
}

/* The published files have no sizes that are the class's. */
static const struct key keys[] = {
    {COUNT("vocab_size", vocab, 262208, VOCAB_MAX)},
    {SIZE("hidden_size", hidden, HIDDEN_MAX)},
    {SIZE("num_hidden_layers", layers, LAYERS_MAX)},
    {COUNT("num_attention_heads", heads, 8, HEADS_MAX)},
    {SIZE("intermediate_size", ffn, FFN_MAX)},
    GEMMA_KEYS(131072),
    {NUMBER("rope_theta", rope.theta, 1e6, 1, 1e12),
     .other = "rope_parameters.full_attention.rope_theta"},
    {NUMBER("rope_local_base_freq", window_theta, 1e4, 1, 1e12),
     .other = "rope_parameters.sliding_attention.rope_theta"},
    SOFTCAP("final_logit_softcapping", logits_softcap, 0),
    {ALWAYS("qk_norm", qk_norm)},
    {.name = "sliding_window_pattern",
     .type = KEY_INT,
     .min = 2,
     .max = LAYERS_MAX,
     AT(window_period),
     .absent = RULE_VALUE,
     .value = 6},
    LAYER_TYPES,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Gemma 3: google/gemma-3-1b-pt, and the text models of gemma-3-4b-pt, -12b, -27b.
 * Gemma3ForCausalLM. */
#define GEMMA3(h, l, a, k, d, f, v, positions, scalar, window)                                     \
    DECODER(ARCH_GEMMA3, h, l, a, k, d, f, v, positions, 1e-6F, 1e6F), .tied = true,               \
    .activation = "gelu_tanh", .qk_norm = true, .query_scalar = scalar, .sliding_window = window,  \
    .window_period = 6, .window_theta = 1e4F, .padding = 0 + 1
/* Made for 32,768 positions and stretched. */
#define GEMMA3_LONG(title, count, h, l, a, k, d, f, scalar)                                        \
    {title, count,                                                                                 \
     {GEMMA3(h, l, a, k, d, f, 262208, 131072, scalar, 1024),                                      \
      .rope.scaling = ROPE_LINEAR, .rope.factor = 8}}

static const struct model_preset presets[] = {
    {"gemma-3-270m", 268098176,
     {GEMMA3(640, 18, 4, 1, 256, 2048, 262144, 32768, 256, 512)}},
    {"gemma-3-1b", 999885952,
     {GEMMA3(1152, 26, 4, 1, 256, 6912, 262144, 32768, 256, 512)}},
    GEMMA3_LONG("gemma-3-4b-text",  3880263168,  2560, 34, 8,  4,  256, 10240, 256),
    GEMMA3_LONG("gemma-3-12b-text", 11766034176, 3840, 48, 16, 8,  256, 15360, 256),
    GEMMA3_LONG("gemma-3-27b-text", 27009346304, 5376, 62, 32, 16, 128, 21504, 168),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_gemma3 = {
    .name = "gemma3_text",
    .traced = true,
    .class_name = "Gemma3ForCausalLM",
    .classifier = "Gemma3TextForSequenceClassification",
    .part_absent =
        "{\"hidden_size\": 2304, \"num_hidden_layers\": 26, "
        "\"num_attention_heads\": 8, \"intermediate_size\": 9216, \"vocab_size\": 262208}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = count_gemma,
    .padding = 0 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_gemma3},
};
