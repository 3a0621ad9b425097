/* family_granitemoehybrid.c - Granite 4 where all layers are attention's and there are no experts:
 * Granite with a feed-forward by two products, and perhaps without RoPE. */
#include "model/count.h"
#include "model/family_granite.h"
#include "model/hf_decoder.h"

#include <string.h>

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,          .fused_gate_up = true, .halves = "input_linear",
        .down = "output_linear", .mlp = "shared_mlp",   .mlp_last = true,
        .attention_last = true,  .unplaced = true,      .tables_first = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct choice layer_words[] = {
    {"attention", NULL, false}, {"full_attention", NULL, false},
    {"mamba", NULL, true},      {"linear_attention", NULL, true},
    {NULL, NULL, false},
};
static const struct choice position_words[] = {
    {"rope", NULL, false}, {"nope", NULL, true}, {NULL, NULL, false}};

/* Its feed-forward is what other files of Granite have beside experts. */
static const struct key keys[] = {
    SHAPE_KEYS,
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    {COUNT("shared_intermediate_size", ffn, 1024, FFN_MAX)},
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(2048, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    MULTIPLIER("embedding_multiplier", embedding_multiplier),
    MULTIPLIER("attention_multiplier", attention_multiplier),
    MULTIPLIER("residual_multiplier", residual_multiplier),
    MULTIPLIER("logits_scaling", logits_scaling),
    {CHOICE("position_embedding_type", unturned, "nope", position_words), .null = RULE_VALUE},
    {LAYER_LIST("layer_types", KEY_LAYERS, mamba, layer_words, RULE_NONE),
     .other = "layers_block_type"},
    {.name = "num_local_experts",
     .type = KEY_INT,
     .max = EXPERTS_MAX,
     AT(experts),
     .absent = RULE_VALUE,
     .value = 8},
};

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    uint32_t mamba = 0;
    (void)table;
    for (uint32_t i = 0; i < c->layers; i++)
        mamba += !c->mamba.listed || layer_listed(&c->mamba, i);
    if (mamba == 0 && c->experts == 0)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: %u of %u layers are Mamba's, %u experts: planned is what has attention and "
                   "a feed-forward alone. Record the model once, and plan the recording: "
                   "tools/record.py --hf %.*s --seq 2048 --batch 1 -o model.stream.json.gz",
                   where, mamba, c->layers, c->experts, (int)strcspn(where, ":"), where);
}

const struct family family_granitemoehybrid = {
    .name = "granitemoehybrid",
    .class_name = "GraniteMoeHybridForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .check = check,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
