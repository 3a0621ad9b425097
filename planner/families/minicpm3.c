/* minicpm3.c - MiniCPM 3: Llama with latent attention, and numbers by which the embedding, what is
 * added to the residual, and (as a divisor) what the head is given are scaled. */
#include "families/llama.h"
#include "families/mla.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .scaled_rows = true,
        .mla = {.rotate = hf_mla_rotate_v3, .key_first = true},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    {COUNT("kv_lora_rank", kv_lora, 256, HIDDEN_MAX)},
    LATENT_QUERIES(768),
    {COUNT("qk_rope_head_dim", rotary_dim, 32, HEAD_DIM_MAX)},
    {COUNT("qk_rope_head_dim", head_dim, 32, HEAD_DIM_MAX)},
    {COUNT("qk_nope_head_dim", nope_dim, 64, HEAD_DIM_MAX)},
    {DERIVED("v_head_dim", v_dim, RULE_HEAD_SIZE, HEAD_DIM_MAX)},
    MSCALE_ALL,
    {POSITIONS("max_position_embeddings", 32768)},
    EPS("rms_norm_eps", 1e-5),
    STD("initializer_range", 0.1),
    THETA("rope_theta", 1e4),
    TIED(true),
    {CHOICE("hidden_act", gated, "silu", key_silu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("mlp_bias", mlp_bias, false)},
    {COUNT("scale_emb", embedding_scale, 12, 1 << 20)},
    {REAL("scale_depth", KEY_PER_LAYER, residual_multiplier, 1.4, 1e-9, 1e9),
     .null = RULE_ROOT_LAYERS},
    {REAL("dim_model_base", KEY_PER_HIDDEN, hidden_scaling, 256, 1, HIDDEN_MAX),
     .null = RULE_HIDDEN},
};

const struct family family_minicpm3 = {
    .name = "minicpm3",
    .class_name = "MiniCPM3ForCausalLM",
    .classifier = "MiniCPM3ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    .check = mla_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
