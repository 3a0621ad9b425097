/* mamba1.h - Mamba-1's mixer as Hugging Face transformers write it for Jamba, with mamba-ssm and
 * causal-conv1d installed (without them it falls back to what is "correct but much slower", which
 * is not planned).
 *
 *     x, z = in_proj y             x = silu(conv(x)): a short causal convolution of each channel
 *     d, B, C = x_proj x, each through a norm
 *     out_proj(scan(x, dt_proj d, -exp(A_log), B, C, D) · silu(z))
 *
 * Letters: i channels, n numbers of state for each; r numbers that a token's steps are made of. */
#ifndef SHARDPLAN_HF_MAMBA1_H
#define SHARDPLAN_HF_MAMBA1_H

#include "hf/hf.h"
#include "model/keys.h"

struct hf_mamba1 {
    uint32_t a_log, skip; /* (i, n), (i) */
    struct linear conv;   /* (i, 1, w), and (i) */
    struct linear in, x, dt, out;
    struct norm dt_norm, b_norm, c_norm; /* (r), (n), (n) */
};

/* Declares the parameters of the module `prefix` ("model.layers.0.mamba.") in transformers' order,
 * of config's scan_rank, ssm_* and conv_*. */
struct hf_mamba1 hf_mamba1_declare(struct graph *graph, const struct model_config *config,
                                   const char *prefix);

/* y (b, s, h), which stays the caller's: (b, s, h). Sequences are of two tokens and more. */
uint32_t hf_mamba1(struct graph *graph, const struct model_config *config,
                   const struct hf_mamba1 *mamba, uint32_t y);

/* The parameters of such a layer, but for the layer's norms and feed-forward. */
double hf_mamba1_count(const struct model_config *config);

/* ERR_INVALID unless causal-conv1d has kernels for so many channels. */
enum err_code hf_mamba1_check(const struct key_table *table, const struct model_config *config,
                              const char *where, struct err *err);

#endif
