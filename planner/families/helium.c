/* helium.c - Helium: Llama where RoPE turns neighbours and norms multiply in fp32. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm_cast,
        HF_NORM_NAMES,
        .rotary = HF_ROTARY_NEIGHBOURS,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 20, HEADS_MAX)},
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    LLAMA_KEYS(4096, 1e-8, 1e5),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("mlp_bias", mlp_bias, false)},
};

/* o_proj is made of the hidden size, whatever heads add up to. */
static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (c->heads * c->head_dim != c->hidden)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": %u heads of %u numbers: o_proj takes \"%s\": %u of them", where,
                       NAME_OF(table, head_dim), c->heads, c->head_dim, NAME_OF(table, hidden),
                       c->hidden);
    return ERR_OK;
}

/* kyutai/helium-1-preview-2b. HeliumForCausalLM. */
static const struct model_preset presets[] = {
    {"helium-1-preview-2b",
     2172643840,
     {GATED(ARCH_HELIUM, 2560, 24, 20, 20, 128, 7040, 48000, 4096, 1e-8F, 1e5F), .padding = 3 + 1}},
};

static const struct preset_alias aliases[] = {
    {"helium-1-preview", "helium-1-preview-2b"},
};

const struct family family_helium = {
    .name = "helium",
    .class_name = "HeliumForCausalLM",
    .classifier = "HeliumForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .padding = 3 + 1,
    .check = check,
    .parameters = count_llama,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build},
};
