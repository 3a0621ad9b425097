/* youtu.c - Youtu-LLM: Llama with DeepSeek-V3's latent attention. */
#include "families/llama.h"
#include "families/mla.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {HF_LLAMA_NORMS, .mla = {.rotate = hf_mla_rotate_v3}};
    hf_decoder_build(graph, config, job, &way);
}

/* What the class draws its weights with, where the file has none, follows from the hidden size, and
 * rows of the embedding are twice that: not what a run draws. */
static const struct key keys[] = {
    SIZE_KEYS,
    MLA_KEYS(1536),
    {POSITIONS("max_position_embeddings", 131072)},
    EPS("rms_norm_eps", 1e-6),
    {NUMBER("initializer_range", init_std, 0.02, 1e-9, 100), .null = RULE_VALUE},
    THETA("rope_theta", 1e4),
    TIED(true),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("mlp_bias", mlp_bias, false)},
    {FLAG("rope_interleave", rope_interleave, true)},
};

const struct family family_youtu = {
    .name = "youtu",
    .class_name = "YoutuForCausalLM",
    .keys = KEY_TABLE(keys),
    .check = mla_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
