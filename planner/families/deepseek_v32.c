/* deepseek_v32.c - DeepSeek-V3.2: V3 whose queries see the tokens that an indexer chooses (DSA).
 * The indexer is under torch.no_grad: a loss of its own, which transformers has not, would train
 * it. */
#include "families/llama.h"
#include "families/mla.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .masked = true,
        .masks_by_layer = true,
        .mla = {.rotate = hf_mla_rotate_v3, .key_first = true},
        .moe = HF_DEEPSEEK_V3_MOE(HF_CORRECTION_FP32),
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    MLA_KEYS(1536),
    INDEXER_KEYS(64),
    LLAMA_KEYS(163840, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {ALWAYS("rope_interleave", rope_interleave)},
    EXPERTS("n_routed_experts", "num_local_experts", 256, 8),
    EXPERT_WIDTH(2048),
    EXPERT_GROUPS(8, 4, 2.5),
    SHARED_EXPERTS(1, 3),
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
    {FLAG("norm_topk_prob", norm_topk, true)},
};

/* deepseek-ai/DeepSeek-V3.2-Exp. DeepseekV32ForCausalLM. Published weights are in FP8. */
static const struct model_preset presets[] = {
    {"deepseek-v3.2-exp",
     671877929216,
     {GATED(ARCH_DEEPSEEK_V32, 7168, 61, 128, 128, 64, 18432, 129280, 163840, 1e-6F, 1e4F),
      .rotary_dim = 64,
      .kv_lora = 512,
      .q_lora = 1536,
      .nope_dim = 128,
      .v_dim = 128,
      .rope_interleave = true,
      .index_heads = 64,
      .index_dim = 128,
      .index_topk = 2048,
      .experts = 256,
      .experts_per_token = 8,
      .expert_ffn = 2048,
      .shared_experts = 1,
      .dense_first = 3,
      .groups = 8,
      .topk_groups = 4,
      .routed_scaling = 2.5F,
      .norm_topk = true,
      .rope.scaling = ROPE_YARN,
      .rope.factor = 40,
      .rope.beta_fast = 32,
      .rope.beta_slow = 1,
      .rope.truncate = true,
      .rope.original_positions = 4096,
      .mscale_all = 1}},
};

static const struct preset_alias aliases[] = {
    {"deepseek-v3.2", "deepseek-v3.2-exp"},
};

const struct family family_deepseek_v32 = {
    .name = "deepseek_v32",
    .class_name = "DeepseekV32ForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .check = mla_check_indexed,
    .parameters = count_llama,
    .uncompiled = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
