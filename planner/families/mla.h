/* mla.h - what families with latent attention have in common: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_MLA_H
#define SHARDPLAN_FAMILIES_MLA_H

#include "families/family.h"

/* Heads have keys and values of their own, which are two widths; RoPE turns an even part. */
enum err_code mla_check(const struct key_table *keys, const struct model_config *config,
                        const char *where, struct err *err);

/* Beside that, what must hold of experts in groups. */
enum err_code mla_check_experts(const struct key_table *keys, const struct model_config *config,
                                const char *where, struct err *err);

/* Beside that, what must hold of an indexer. */
enum err_code mla_check_indexed(const struct key_table *keys, const struct model_config *config,
                                const char *where, struct err *err);

/* DeepSeek-V3's decoder: experts in groups where the config has them. */
model_builder mla_build_v3;

/* clang-format off */
/* Absent, the latent of q has `number`; null means that there is none. */
#define LATENT_QUERIES(number)                                                                     \
    {.name = "q_lora_rank", .type = KEY_INT, .max = HIDDEN_MAX, AT(q_lora), .absent = RULE_VALUE,  \
     .null = RULE_NONE, .value = (number)}
/* As the config class, this calls what RoPE turns a head's size: a file that says otherwise has a
 * RoPE that fits no head. */
#define MLA_KEYS(number)                                                                           \
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},                             \
    {COUNT("kv_lora_rank", kv_lora, 512, HIDDEN_MAX)},                                             \
    LATENT_QUERIES(number),                                                                        \
    {COUNT("qk_rope_head_dim", rotary_dim, 64, HEAD_DIM_MAX), .other = "head_dim"},                \
    {COUNT("qk_rope_head_dim", head_dim, 64, HEAD_DIM_MAX), .other = "head_dim"},                  \
    {COUNT("qk_nope_head_dim", nope_dim, 128, HEAD_DIM_MAX)},                                      \
    {COUNT("v_head_dim", v_dim, 128, HEAD_DIM_MAX)},                                               \
    MSCALE_ALL
/* Of what chooses the tokens that a query sees, by so many heads. */
#define INDEXER_KEYS(heads)                                                                        \
    {COUNT("index_n_heads", index_heads, heads, HEADS_MAX)},                                       \
    {COUNT("index_head_dim", index_dim, 128, HEAD_DIM_MAX)},                                       \
    {COUNT("index_topk", index_topk, 2048, POSITIONS_MAX)}
#define MSCALE_ALL {NUMBER("rope_parameters.mscale_all_dim", mscale_all, 0, 0, 1e3)}
/* clang-format on */

#endif
