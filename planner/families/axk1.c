/* axk1.c - SK Telecom's A.X-K1: DeepSeek-V3 whose mixtures of experts end with a norm. */
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
        .tables_first = true,
        .mla = {.rotate = hf_mla_rotate_v3},
        .moe = {.route = hf_route_deepseek_v3,
                .gate = hf_gate_halves,
                .router = "gate",
                .norm = "post_mlp_layernorm",
                .experts_first = true,
                .flattens = true,
                .correction = HF_CORRECTION_AS_MADE},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    MLA_KEYS(1536),
    LLAMA_KEYS(32768, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("rope_interleave", rope_interleave, true)},
    EXPERTS("n_routed_experts", "num_local_experts", 192, 8),
    EXPERT_WIDTH(2048),
    EXPERT_GROUPS(8, 4, 2.5),
    SHARED_EXPERTS(1, 1),
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
    {FLAG("norm_topk_prob", norm_topk, true)},
};

static double parameters(const struct model_config *c)
{
    return count_llama(c) + (double)experts_layers(c) * c->hidden;
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    TRY(mla_check_experts(table, c, where, err));
    return c->q_lora ? ERR_OK
                     : err_set(err, ERR_INVALID,
                               "%s: \"%s\": null: the class has a latent of queries always", where,
                               NAME_OF(table, q_lora));
}

const struct family family_axk1 = {
    .name = "axk1",
    .class_name = "AXK1ForCausalLM",
    .classifier = "AXK1ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    .check = check,
    .parameters = parameters,
    .uncompiled = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
