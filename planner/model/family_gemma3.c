/* family_gemma3.c - Gemma 3's text model: Gemma 2 with norms on each head of q and k, in place of
 * capped scores, and a RoPE of its own in layers with a window. */
#include "model/count.h"
#include "model/family_gemma.h"

static void build_hf_gemma3(struct graph *graph, const struct model_config *config,
                            const struct model_job *job)
{
    hf_decoder_build(
        graph, config, job,
        &(struct hf_decoder){HF_GEMMA_LAYER, .qk = HF_QK_LAST, .tables_by_layer = true});
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

const struct family family_gemma3 = {
    .name = "gemma3_text",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = count_gemma,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_gemma3},
};
