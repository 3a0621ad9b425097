/* bamba.c - Bamba: Llama with Mamba-2 in the place of attention in most layers, and RoPE on half of
 * each head in the others. */
#include "families/mamba.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm,
        .norms = {{".input_layernorm", HF_BEFORE_ATTENTION}, {".pre_ff_layernorm", HF_BEFORE_MLP}},
        .last_norm = "final_layernorm",
        .mlp = "feed_forward",
        .attention_last = true,
        .rotary = HF_ROTARY_BOTH,
        .uncounted = true,
        .positions_first = true,
        .masks_by_layer = true,
        .mixer = &hf_mixer_mamba,
    };
    hf_decoder_build(graph, config, job, &way);
}

/* Of its share of a head that turns it takes what RoPE's object says, and else a half, whatever the
 * file says beside that. Which layers attend is a list of them; one of words fails in its class. */
static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_KEYS(262144, 1e-5, 1e4),
    NEUTRAL("partial_rotary_factor", 0.5),
    {REAL("rope_parameters.partial_rotary_factor", KEY_SHARE, rotary_dim, 0.5, 0.001, 1)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {FLAG("mlp_bias", mlp_bias, false)},
    {LAYER_LIST("attn_layer_indices", KEY_OTHERS, linear, NULL, RULE_NONE)},
    NEUTRAL("layer_types", NO_NUMBER),
    NEUTRAL("layers_block_type", NO_NUMBER),
    NEUTRAL("z_loss_coefficient", 0),
    MAMBA_KEYS,
};

/* clang-format off */
/* ibm-ai-platform/Bamba-9B-v1, BambaForCausalLM. */
static const struct model_preset presets[] = {
    {"bamba-9b", 9780235392,
     {GATED(ARCH_BAMBA, 4096, 32, 32, 8, 128, 14336, 128256, 262144, 1e-5F, 1e4F), .padding = 1,
      .rotary_dim = 64, .ssm_heads = 128, .ssm_head_dim = 64, .ssm_state = 128, .ssm_groups = 1,
      .ssm_chunk = 256, .ssm_expand = 2, .conv_width = 4, .conv_bias = true,
      .linear = {true, {0xf7fbfdff}}}},
};
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"bamba-9b-v1", "bamba-9b"},
    {"bamba-9b-v2", "bamba-9b"},
};

const struct family family_bamba = {
    .name = "bamba",
    .class_name = "BambaForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .padding = 0 + 1,
    .read = mamba_read,
    .settle = mamba_settle,
    .check = mamba_check,
    .parameters = count_mamba,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
