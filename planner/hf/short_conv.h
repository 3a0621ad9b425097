/* short_conv.h - LFM2's short convolution in the place of attention, as Hugging Face transformers
 * write it, with causal-conv1d installed (without it PyTorch's conv1d does the same, which is
 * slower and not planned).
 *
 *     b, c, x = in_proj y          out_proj(c · conv(b · x)) */
#ifndef SHARDPLAN_HF_SHORT_CONV_H
#define SHARDPLAN_HF_SHORT_CONV_H

#include "hf/hf.h"

struct hf_short_conv {
    struct linear conv; /* (h, 1, w) and perhaps (h) */
    struct linear in, out;
};

/* Declares the parameters of the module `prefix` ("model.layers.0.conv.") in transformers' order.
 */
struct hf_short_conv hf_short_conv_declare(struct graph *graph, const struct model_config *config,
                                           const char *prefix);

/* y (b, s, h), which stays the caller's: (b, s, h). */
uint32_t hf_short_conv(struct graph *graph, const struct hf_short_conv *conv, uint32_t y);

/* The parameters of such a layer, but for its norms and feed-forward. */
double hf_short_conv_count(const struct model_config *config);

#endif
