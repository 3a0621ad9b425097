/* dots1.c - dots.llm1: Qwen3's attention with DeepSeek-V3's mixture of experts. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .masks_by_layer = true,
        .masks_of_types = true,
        .moe = HF_DEEPSEEK_V3_MOE(HF_CORRECTION_AS_MADE),
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(32),
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("use_qk_norm", qk_norm)},
    {WINDOW(RULE_VALUE)},
    {.name = "max_window_layers",
     .type = KEY_INT,
     .max = LAYERS_MAX,
     AT(full_layers),
     .absent = RULE_VALUE,
     .value = 62},
    LAYER_TYPES,
    {SIZE("n_routed_experts", experts, EXPERTS_MAX), .other = "num_local_experts"},
    {SIZE("num_experts_per_tok", experts_per_token, EXPERTS_MAX)},
    EXPERT_WAYS,
    EXPERT_WIDTH(1408),
    EXPERT_GROUPS(1, 1, 1),
    {SIZE("n_shared_experts", shared_experts, EXPERTS_MAX)},
    DENSE_FIRST(0),
    {FLAG("norm_topk_prob", norm_topk, false)},
};

/* rednote-hilab/dots.llm1.base, dots.llm1.inst. Dots1ForCausalLM. */
static const struct model_preset presets[] = {
    {"dots.llm1",
     142774373888,
     {GATED(ARCH_DOTS1, 4096, 62, 32, 32, 128, 10944, 152064, 32768, 1e-5F, 1e7F), .qk_norm = true,
      .full_layers = 62, .experts = 128, .experts_per_token = 6, .expert_ffn = 1408,
      .shared_experts = 2, .dense_first = 1, .norm_topk = true, .groups = 1, .topk_groups = 1,
      .routed_scaling = 2.5F}},
};

static const struct preset_alias aliases[] = {
    {"dots.llm1.base", "dots.llm1"},
    {"dots.llm1.inst", "dots.llm1"},
};

const struct family family_dots1 = {
    .name = "dots1",
    .class_name = "Dots1ForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .check = experts_check_groups,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
