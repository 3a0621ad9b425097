/* granite.c - Granite 3: Llama with numbers by which the embedding, attention's scores, what is
 * added to the residual, and (as a divisor) the logits are scaled. */
#include "families/granite.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build_hf_granite(struct graph *graph, const struct model_config *config,
                             const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_LLAMA_NORMS, .positions_first = true});
}

static const struct key keys[] = {
    GRANITE_KEYS,
    {FLAG("mlp_bias", mlp_bias, false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* ibm-granite/granite-3.3-8b-instruct, 3.0-2b-base, 3.0-8b-base, 3.1-8b-base, 3.2-8b-instruct: they
 * differ in their vocabularies and in dropout. GraniteForCausalLM. */
#define GRANITE(title, count, h, d, f, v, positions, base, drop, scores, logits)                   \
    {title, count,                                                                                 \
     {GATED(ARCH_GRANITE, h, 40, 32, 8, d, f, v, positions, 1e-5F, base), .tied = true,            \
      .padding = 0 + 1, .attention_dropout = drop, .embedding_multiplier = 12,                     \
      .attention_multiplier = scores, .residual_multiplier = 0.22F, .logits_scaling = logits}}
#define GRANITE_8B(title, count, v, positions, base, drop)                                         \
    GRANITE(title, count, 4096, 128, 12800, v, positions, base, drop, 0.0078125F, 16)

static const struct model_preset presets[] = {
    GRANITE_8B("granite-3.3-8b",          8170864640, 49159, 131072, 1e7F, 0),
    GRANITE_8B("granite-3.2-8b-instruct", 8170848256, 49155, 131072, 1e7F, 0.1F),
    GRANITE_8B("granite-3.1-8b-base",     8170835968, 49152, 131072, 1e7F, 0.1F),
    GRANITE_8B("granite-3.0-8b-base",     8170835968, 49152, 4096,   1e4F, 0.1F),
    GRANITE("granite-3.0-2b-base", 2533525504, 2048, 64, 8192, 49152, 4096, 1e4F, 0.1F, 0.015625F, 8),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_granite = {
    .name = "granite",
    .class_name = "GraniteForCausalLM",
    .part_absent =
        "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, "
        "\"num_attention_heads\": 32, \"intermediate_size\": 11008, \"vocab_size\": 32000}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_granite},
};
