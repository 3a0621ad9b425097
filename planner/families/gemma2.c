/* gemma2.c - Gemma 2: norms before and behind attention and feed-forward, of factors 1 + w; scores
 * and logits are capped by tanh, which no attention kernel does; every second layer has a window.
 */
#include "families/gemma.h"
#include "model/count.h"

static void build_hf_gemma2(struct graph *graph, const struct model_config *config,
                            const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_GEMMA_LAYER, .eager = true});
}

static const struct key keys[] = {
    SIZE_KEYS,
    GEMMA_KEYS(8192),
    THETA("rope_theta", 1e4),
    SOFTCAP("attn_logit_softcapping", attention_softcap, 50),
    SOFTCAP("final_logit_softcapping", logits_softcap, 30),
    WINDOW_PERIOD(2),
    LAYER_TYPES,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Gemma 2: google/gemma-2-2b, -9b, -27b. Gemma2ForCausalLM. */
#define GEMMA2(title, count, h, l, a, k, d, f, scalar)                                             \
    {title, count,                                                                                 \
     {DECODER(ARCH_GEMMA2, h, l, a, k, d, f, 256000, 8192, 1e-6F, 1e4F), .tied = true,             \
      .activation = "gelu_tanh", .query_scalar = scalar, .sliding_window = 4096,                   \
      .window_period = 2, .attention_softcap = 50, .logits_softcap = 30}}

static const struct model_preset presets[] = {
    GEMMA2("gemma-2-2b",  2614341888,  2304, 26, 8,  4,  256, 9216,  256),
    GEMMA2("gemma-2-9b",  9241705984,  3584, 42, 16, 8,  256, 14336, 256),
    GEMMA2("gemma-2-27b", 27227128320, 4608, 46, 32, 16, 128, 36864, 144),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

double count_gemma(const struct model_config *c)
{
    return count_llama(c) + 2.0 * c->layers * c->hidden;
}

const struct family family_gemma2 = {
    .name = "gemma2",
    .class_name = "Gemma2ForCausalLM",
    .classifier = "Gemma2ForSequenceClassification",
    .part_absent =
        "{\"hidden_size\": 2304, \"num_hidden_layers\": 26, "
        "\"num_attention_heads\": 8, \"intermediate_size\": 9216, \"vocab_size\": 256000}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = count_gemma,
    .padding = 0 + 1,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build_hf_gemma2},
};
