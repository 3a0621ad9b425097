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

/* ibm-granite/granite-3.3-8b-instruct. GraniteForCausalLM. */
static const struct model_preset presets[] = {
    {"granite-3.3-8b", 8170864640,
     {GATED(ARCH_GRANITE, 4096, 40, 32, 8, 128, 12800, 49159, 131072, 1e-5F, 1e7F), .tied = true,
      .embedding_multiplier = 12, .attention_multiplier = 0.0078125F,
      .residual_multiplier = 0.22F, .logits_scaling = 16}},
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
