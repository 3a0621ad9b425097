/* glm_moe_dsa.c - GLM-5: DeepSeek-V3.2 whose indexer turns neighbours, and whose layers return what
 * it chose, with which the next one is called: it may have no indexer of its own. */
#include "families/llama.h"
#include "families/mla.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

#include <string.h>

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .masked = true,
        .masks_by_layer = true,
        .mla = {.rotate = hf_mla_rotate_v3,
                .key_first = true,
                .index_neighbours = true,
                .hands_on = true},
        .moe = HF_DEEPSEEK_V3_MOE(HF_CORRECTION_FP32),
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct choice index_layers[] = {
    {"shared", NULL, true}, {"full", NULL, false}, {NULL, NULL, false}};

static const struct key keys[] = {
    SIZE_KEYS,
    MLA_KEYS(2048),
    INDEXER_KEYS(32),
    {LAYER_LIST("indexer_types", KEY_LAYERS, reused_index, index_layers, RULE_NONE)},
    LLAMA_KEYS(202752, 1e-5, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {ALWAYS("rope_interleave", rope_interleave)},
    EXPERTS("n_routed_experts", "num_local_experts", 256, 8),
    EXPERT_WIDTH(2048),
    EXPERT_GROUPS(1, 1, 2.5),
    SHARED_EXPERTS(1, 3),
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
    {FLAG("norm_topk_prob", norm_topk, true)},
};

/* zai-org/GLM-5. GlmMoeDsaForCausalLM. The layer that predicts a second token is not part of it. */
static const struct model_preset presets[] = {
    {"glm-5",
     743911199232,
     {GATED(ARCH_GLM_MOE_DSA, 6144, 78, 64, 64, 64, 12288, 154880, 202752, 1e-5F, 1e6F),
      .rotary_dim = 64, .kv_lora = 512, .q_lora = 2048, .nope_dim = 192, .v_dim = 256,
      .rope_interleave = true, .index_heads = 32, .index_dim = 128, .index_topk = 2048,
      .experts = 256, .experts_per_token = 8, .expert_ffn = 2048, .shared_experts = 1,
      .dense_first = 3, .groups = 1, .topk_groups = 1, .routed_scaling = 2.5F, .norm_topk = true}},
};

static const struct preset_alias aliases[] = {
    {"glm-5.1", "glm-5"},
};

static enum err_code read_pattern(const json_t *pattern, const char *where, struct model_config *c,
                                  struct err *err)
{
    const char *text = json_string_value(pattern);
    if (!text || strlen(text) != c->layers || strspn(text, "FS") != c->layers)
        return err_set(err, ERR_INVALID,
                       "%s: \"index_topk_pattern\": expected a letter for each of %u layers, F "
                       "(full) or S (shared); as a list it is called \"indexer_types\"",
                       where, c->layers);
    for (uint32_t i = 0; i < c->layers; i++)
        layer_put(&c->reused_index, i, text[i] == 'S');
    return ERR_OK;
}

/* Where no list says which layers have an indexer, a pattern does, or how often one has. */
static enum err_code read(const json_t *root, const char *where, struct model_config *c,
                          struct err *err)
{
    const json_t *pattern = json_object_get(root, "index_topk_pattern");
    uint32_t often, offset;
    if (c->reused_index.listed)
        return ERR_OK;
    if (pattern && !json_is_null(pattern))
        return read_pattern(pattern, where, c, err);
    TRY(key_integer(root, where, "index_topk_freq", 0, LAYERS_MAX, 1, &often, err));
    TRY(key_integer(root, where, "index_skip_topk_offset", 0, LAYERS_MAX, 2, &offset, err));
    for (uint32_t i = 0; i < c->layers; i++)
        layer_put(&c->reused_index, i,
                  i + 1 > offset && often > 1 && (i + 1 - offset) % often != 0);
    return ERR_OK;
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    TRY(mla_check_indexed(table, c, where, err));
    if (layer_listed(&c->reused_index, 0))
        return err_set(err, ERR_INVALID,
                       "%s: \"indexer_types\": the first layer is shared, and there is none before "
                       "it whose indexer it could share",
                       where);
    return ERR_OK;
}

const struct family family_glm_moe_dsa = {
    .name = "glm_moe_dsa",
    .class_name = "GlmMoeDsaForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .read = read,
    .check = check,
    .parameters = count_llama,
    .uncompiled = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
