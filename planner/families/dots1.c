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

const struct family family_dots1 = {
    .name = "dots1",
    .class_name = "Dots1ForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .check = experts_check_groups,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
