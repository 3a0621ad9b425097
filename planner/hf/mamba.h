/* mamba.h - Mamba-2 in the place of attention, as Hugging Face transformers write it for training,
 * with mamba-ssm and causal-conv1d installed (without them it falls back to what is "correct but
 * much slower", which is not planned).
 *
 *     out_proj(mixer(in_proj y))      the mixer is one function, and has out_proj in it
 *
 * Falcon-H1 multiplies y by a number and what in_proj gives by a vector.
 *
 * Letters as in graph/ops_mamba2.c: a heads of e numbers, i = a e; n numbers of state, g groups. */
#ifndef SHARDPLAN_HF_MAMBA_H
#define SHARDPLAN_HF_MAMBA_H

#include "hf/hf.h"
#include "model/keys.h"

struct hf_mamba {
    uint32_t dt_bias, a_log, skip; /* (a) */
    struct linear conv;            /* (i + 2 g n, 1, w), and perhaps (i + 2 g n) */
    struct linear in, out;
    struct norm norm; /* (i); its weight is GRAPH_NONE where there is none */
    uint32_t factors; /* a buffer (1, 1, 2 i + 2 g n + a), or GRAPH_NONE: what the first product
                         gives is times it */
};

/* Channels of its convolution, and outputs of its first product. */
uint32_t hf_mamba_channels(const struct model_config *config);
uint32_t hf_mamba_width(const struct model_config *config);

/* Declares the parameters of the module `prefix` ("model.layers.0.mamba.") in transformers' order,
 * of config's ssm_*, conv_width and conv_bias. */
struct hf_mamba hf_mamba_declare(struct graph *graph, const struct model_config *config,
                                 const char *prefix);

/* y (b, s, h), which stays the caller's: (b, s, h). */
uint32_t hf_mamba(struct graph *graph, const struct model_config *config,
                  const struct hf_mamba *mamba, uint32_t y);

/* The parameters of such a layer, but for its norms and feed-forward. */
double hf_mamba_count(const struct model_config *config);

/* ERR_INVALID unless the kernels can: groups divide heads, heads are no wider than any, and rows
 * begin where eight numbers do. */
enum err_code hf_mamba_check(const struct key_table *table, const struct model_config *config,
                             const char *where, struct err *err);

#endif
