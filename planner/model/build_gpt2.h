/* build_gpt2.h - GPT-2's two builders, and what its kin have of it: for the files of this folder
 * only. */
#ifndef SHARDPLAN_BUILD_GPT2_H
#define SHARDPLAN_BUILD_GPT2_H

#include "model/family.h"

family_builder build_gpt2;    /* nanoGPT's op sequence */
family_builder build_hf_gpt2; /* transformers' */

/* Where files of GPT-2's kind in transformers differ. */
struct hf_gpt2 {
    bool linear;       /* Linear for Conv1D */
    bool head_by_head; /* the product has a head's q, k and v beside each other, where no heads
                          share k and v */
    bool triangle;     /* a buffer of bools (n, n) for n positions, of an older time */
    bool asks_first;   /* whether sequences are packed is asked before positions are looked up, and
                          blocks are not called with them */
};
void hf_gpt2_build(struct graph *graph, const struct model_config *config,
                   const struct model_job *job, const struct hf_gpt2 *way);

/* ---- rows of keys ---- */

/* clang-format off */
#define GPT2_KEYS(act)                                                                             \
    {SIZE("vocab_size", vocab, VOCAB_MAX)},                                                        \
    {SIZE("n_embd", hidden, HIDDEN_MAX), .other = "hidden_size"},                                  \
    {SIZE("n_layer", layers, LAYERS_MAX), .other = "num_hidden_layers"},                           \
    {SIZE("n_head", heads, HEADS_MAX), .other = "num_attention_heads"},                            \
    {DERIVED("n_inner", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},                                          \
    {POSITIONS("n_positions", 1024), .other = "max_position_embeddings"},                          \
    EPS("layer_norm_epsilon", 1e-5),                                                               \
    STD("initializer_range", 0.02),                                                                \
    TIED(true),                                                                                    \
    {CHOICE("activation_function", gated, act, key_activations)},                                  \
    DROPOUT("resid_pdrop", dropout, 0.1),                                                          \
    DROPOUT("embd_pdrop", embedding_dropout, 0.1),                                                 \
    DROPOUT("attn_pdrop", attention_dropout, 0.1),                                                 \
    {ALWAYS("attention_bias", attention_bias)},                                                    \
    {ALWAYS("mlp_bias", mlp_bias)}
/* clang-format on */

#endif
