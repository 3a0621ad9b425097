/* qwen3_moe.c - Qwen3 with mixtures of experts. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

/* Where windows are asked for, every layer has one: max_window_layers is not read here. */
static const struct key keys[] = {
    SIZE_KEYS,
    KV_HEADS(4),
    HEAD_DIM_KEY,
    LLAMA_KEYS(32768, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
    {WINDOW(RULE_VALUE)},
    {BOOL("use_sliding_window", KEY_GATE, false), AT(sliding_window)},
    EXPERTS("num_experts", "num_local_experts", 128, 8),
    EXPERT_WIDTH(768),
    SPARSE_LAYERS,
    {FLAG("norm_topk_prob", norm_topk, false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Qwen/Qwen3-30B-A3B, -235B-A22B, both again in July 2025 (-Instruct-2507, -Thinking-2507),
 * Qwen3-Coder-480B-A35B-Instruct. Qwen3MoeForCausalLM. */
#define QWEN3_MOE(title, count, h, l, a, k, f, e, wide, positions, base)                           \
    {title, count,                                                                                 \
     {GATED(ARCH_QWEN3_MOE, h, l, a, k, 128, f, 151936, positions, 1e-6F, base), .qk_norm = true,  \
      .experts = e, .experts_per_token = 8, .expert_ffn = wide, .sparse_step = 1,                 \
      .norm_topk = true}}

static const struct model_preset presets[] = {
    QWEN3_MOE("qwen3-30b-a3b",         30532122624,  2048, 48, 32, 4, 6144,  128, 768,  40960,  1e6F),
    QWEN3_MOE("qwen3-235b-a22b",       235093634560, 4096, 94, 64, 4, 12288, 128, 1536, 40960,  1e6F),
    QWEN3_MOE("qwen3-30b-a3b-2507",    30532122624,  2048, 48, 32, 4, 6144,  128, 768,  262144, 1e7F),
    QWEN3_MOE("qwen3-235b-a22b-2507",  235093634560, 4096, 94, 64, 4, 12288, 128, 1536, 262144, 5e6F),
    QWEN3_MOE("qwen3-coder-480b-a35b", 480154875392, 6144, 62, 96, 8, 8192,  160, 2560, 262144, 1e7F),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .positions_first = true,
        HF_LLAMA_NORMS,
        .moe = {.route = hf_route_qwen,
                .gate = hf_gate_halves,
                .router = "gate",
                .leaf = "Qwen3MoeSparseMoeBlock",
                .experts_first = true},
    };
    hf_decoder_build(graph, config, job, &way);
}

const struct family family_qwen3_moe = {
    .name = "qwen3_moe",
    .class_name = "Qwen3MoeForCausalLM",
    .classifier = "Qwen3MoeForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .check = experts_check,
    .parameters = count_llama,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_TORCHTITAN] = build_qwen3, [CODE_HF] = build},
};
