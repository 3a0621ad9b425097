/* family_phi3.c - Phi-3 and Phi-4: Llama with fused projections, and RoPE on the first numbers of a
 * head. */
#include "model/count.h"
#include "model/family_llama.h"
#include "model/hf_decoder.h"

static void build_hf_phi3(struct graph *graph, const struct model_config *config,
                          const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){
                         HF_LLAMA_NORMS,
                         .fused_qkv = true,
                         .fused_gate_up = true,
                         .partial_rotary = true,
                         .positions_first = true,
                     });
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_KEYS(4096, 1e-5, 1e4),
    {COUNT("original_max_position_embeddings", rope.original_positions, 4096, POSITIONS_MAX)},
    PARTIAL_ROTARY(1),
    DROPOUT("resid_pdrop", dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_NONE)},
};

/* Phi3Config takes "su" and "yarn" of older files for longrope, and no other kind. */
static enum err_code check_scaling(const struct model_config *c, const char *where, struct err *err)
{
    const enum rope_scaling scaling = (enum rope_scaling)c->rope.scaling;
    if (scaling == ROPE_DEFAULT || scaling == ROPE_LONGROPE)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: RoPE scaling \"%s\": phi3 has \"default\" and \"longrope\"", where,
                   rope_scaling_name(scaling));
}

const struct family family_phi3 = {
    .name = "phi3",
    .keys = KEY_TABLE(keys),
    .check = check_scaling,
    .parameters = count_llama,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_phi3},
};
