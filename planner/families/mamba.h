/* mamba.h - what Granite 4's hybrids and Bamba have in common, whose layers are attention or
 * Mamba-2, each with a feed-forward behind it: for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_MAMBA_H
#define SHARDPLAN_FAMILIES_MAMBA_H

#include "families/llama.h"
#include "hf/decoder.h"

/* clang-format off */
#define MAMBA_KEYS                                                                                 \
    {COUNT("mamba_n_heads", ssm_heads, 128, HEADS_MAX)},                                           \
    {COUNT("mamba_n_groups", ssm_groups, 1, HEADS_MAX)},                                           \
    {COUNT("mamba_d_state", ssm_state, 256, SSM_STATE_MAX)},                                       \
    {REAL("mamba_d_conv", KEY_INT, conv_width, 4, CONV_WIDTH_MIN, CONV_WIDTH_MAX)},                \
    {COUNT("mamba_expand", ssm_expand, 2, 64)},                                                    \
    {COUNT("mamba_chunk_size", ssm_chunk, 256, SSM_CHUNK_MAX)},                                    \
    {FLAG("mamba_conv_bias", conv_bias, true)},                                                    \
    {FLAG("mamba_proj_bias", ssm_bias, false)},                                                    \
    {FLAG("mamba_proj_bias", ssm_out_bias, false)}
/* clang-format on */

/* "mamba_d_head": "auto", or a number that must come to the same. */
enum err_code mamba_read(const json_t *root, const char *where, struct model_config *config,
                         struct err *err);

/* The same of a file that says what heads share out as "mamba_d_ssm". */
enum err_code mamba_read_inner(const json_t *root, const char *where, uint32_t inner,
                               struct model_config *config, struct err *err);

/* Without a list all layers are Mamba's. */
void mamba_settle(struct model_config *config);

/* ERR_INVALID unless the kernels can what layers have, if any is Mamba's. */
enum err_code mamba_check(const struct key_table *table, const struct model_config *config,
                          const char *where, struct err *err);

/* Llama's parameters, with Mamba-2 for attention in the layers that have it. */
double count_mamba(const struct model_config *config);

#endif
