/* gemma.c - Gemma: Llama with an embedding scaled by the root of its width, norms of factors 1 + w,
 * and GELU. */
#include "families/gemma.h"
#include "model/count.h"

static void build_hf_gemma(struct graph *graph, const struct model_config *config,
                           const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){
                         .norm = hf_rms_norm_plus_one,
                         .norms_at_zero = true,
                         .scaled_rows = true,
                         .positions_first = true,
                         .norms = {{".input_layernorm", HF_BEFORE_ATTENTION},
                                   {".post_attention_layernorm", HF_BEFORE_MLP}},
                     });
}

/* GemmaConfig takes "gelu" of the first files for what was meant. */
static const struct choice activations[] = {
    {"gelu_pytorch_tanh", "gelu_tanh", false}, {"gelu", "gelu_tanh", false}, {NULL, NULL, false}};

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 16, HEADS_MAX)},
    {COUNT("head_dim", head_dim, 256, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 8192)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e4),
    TIED(true),
    {CHOICE("hidden_act", gated, "gelu_pytorch_tanh", activations)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    NEUTRAL("use_bidirectional_attention", NO_NUMBER),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* google/gemma-2b, gemma-7b. GemmaForCausalLM. */
#define GEMMA(title, count, h, l, a, k, f)                                                         \
    {title, count,                                                                                 \
     {DECODER(ARCH_GEMMA, h, l, a, k, 256, f, 256000, 8192, 1e-6F, 1e4F), .tied = true,            \
      .activation = "gelu_tanh"}}

static const struct model_preset presets[] = {
    GEMMA("gemma-2b", 2506172416, 2048, 18, 8,  1,  16384),
    GEMMA("gemma-7b", 8537680896, 3072, 28, 16, 16, 24576),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"codegemma-2b", "gemma-2b"},         {"codegemma-7b", "gemma-7b"},
    {"codegemma-1.1-7b", "gemma-7b"},     {"gemma-1.1-2b", "gemma-2b"},
    {"gemma-1.1-7b", "gemma-7b"},         {"zephyr-7b-gemma-sft-v0.1", "gemma-7b"},
    {"zephyr-7b-gemma-v0.1", "gemma-7b"},
};

const struct family family_gemma = {
    .name = "gemma",
    .traced = true,
    .class_name = "GemmaForCausalLM",
    .classifier = "GemmaForSequenceClassification",
    .part_absent =
        "{\"hidden_size\": 3072, \"num_hidden_layers\": 28, "
        "\"num_attention_heads\": 16, \"intermediate_size\": 24576, \"vocab_size\": 256000}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .parameters = count_llama,
    .padding = 0 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_gemma},
};
