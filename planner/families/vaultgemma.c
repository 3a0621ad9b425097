/* vaultgemma.c - VaultGemma: Gemma 2 with norms before attention and feed-forward alone. */
#include "families/gemma.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm_plus_one,
        .norms = {{".input_layernorm", HF_BEFORE_ATTENTION},
                  {".pre_feedforward_layernorm", HF_BEFORE_MLP}},
        .norms_at_zero = true,
        .scaled_rows = true,
        .masks_by_layer = true,
        .eager = true,
    };
    hf_decoder_build(graph, config, job, &way);
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

const struct family family_vaultgemma = {
    .name = "vaultgemma",
    .class_name = "VaultGemmaForCausalLM",
    .keys = KEY_TABLE(keys),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = count_llama,
    .padding = 0 + 1,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build},
};
