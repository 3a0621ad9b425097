/* delta.h - linear attention by the gated delta rule, as Hugging Face transformers write it for
 * Qwen 3.5, with flash-linear-attention and causal-conv1d installed (without them it falls back to
 * what is "correct but much slower", which is not planned).
 *
 *     q, k, v = conv(in_proj_qkv y)        a short causal convolution of each channel, and silu
 *     beta = sigmoid(in_proj_b y)          g = -exp(A_log) softplus(in_proj_a y + dt_bias)
 *     out_proj(norm(rule(q, k, v, g, beta)) · silu(in_proj_z y))
 *
 * Qwen3-Next has one product for q, k, v and z, of each head of q and k one behind the other, which
 * takes copies to sort out, and one for beta and g.
 *
 * OLMo Hybrid has a product for each of q, k and v, whose results are copied side by side for the
 * convolution; what beta, g and the gate are made of is computed where it is used.
 *
 * Letters: i heads of q and k with d numbers each, a of v with e. */
#ifndef SHARDPLAN_HF_DELTA_H
#define SHARDPLAN_HF_DELTA_H

#include "hf/hf.h"

struct hf_delta {
    uint32_t dt_bias, a_log, conv;   /* (a), (a), (2 i d + a e, 1, w) */
    struct norm norm;                /* (e) */
    struct linear out, qkv, z, b, a; /* joint: qkv has z, and b a, which are not set then */
    struct linear k, v;              /* apart: qkv is q's, else they are not set */
};

/* The channels of its convolution: 2 i d + a e. */
uint32_t hf_delta_channels(const struct model_config *config);

/* Declares the parameters of the module `prefix` ("model.layers.0.linear_attn.") in transformers'
 * order, of config's delta_*, conv_width and joint_delta. */
struct hf_delta hf_delta_declare(struct graph *graph, const struct model_config *config,
                                 const char *prefix);

/* y (b, s, h), which stays the caller's: (b, s, h). Sequences are of two tokens and more. */
uint32_t hf_delta(struct graph *graph, const struct model_config *config,
                  const struct hf_delta *delta, uint32_t y);

/* The parameters of such a layer, but for its norms and feed-forward. */
double hf_delta_count(const struct model_config *config);

#endif
