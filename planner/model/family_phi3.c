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
                         .rotary = HF_ROTARY_PARTS,
                         .positions_first = true,
                         .attention_dropout = "resid_attn_dropout",
                         .mlp_dropout = "resid_mlp_dropout",
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

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* microsoft/Phi-3-mini-4k-instruct, phi-4. Phi3ForCausalLM. */
#define PHI3(title, count, h, l, a, k, f, v, positions, base, window)                              \
    {title, count,                                                                                 \
     {GATED(ARCH_PHI3, h, l, a, k, h / a, f, v, positions, 1e-5F, base), .rotary_dim = h / a,      \
      .rope.original_positions = positions, .sliding_window = window}}

static const struct model_preset presets[] = {
    PHI3("phi-3-mini-4k", 3821079552,  3072, 32, 32, 32, 8192,  32064,  4096,  1e4F,   2047),
    PHI3("phi-4",         14659507200, 5120, 40, 40, 10, 17920, 100352, 16384, 2.5e5F, 0),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"phi-3-mini", "phi-3-mini-4k"},
    {"phi-3-mini-4k-instruct", "phi-3-mini-4k"},
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
    .class_name = "Phi3ForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .check = check_scaling,
    .parameters = count_llama,
    .padding = 32000 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_phi3},
};
