/* build_hf.h - for the builders of Hugging Face's op sequences: the pieces that they share.
 *
 * transformers 5 under PyTorch 2.14, model.train(), attn_implementation "sdpa", use_cache False,
 * no attention mask, and the loss inside the model (labels given). Python frees a returning
 * function's variables in the order of their first use as names: arguments, then locals. */
#ifndef SHARDPLAN_BUILD_HF_H
#define SHARDPLAN_BUILD_HF_H

#include "model/build.h"

/* arange(s) + 0: positions (s), Python's until the model returns. */
uint32_t hf_positions(struct graph *graph, const struct model_job *job);

/* Whether several sequences are packed into one, asked of the positions; all of it is gone at
 * once. */
void hf_packed_test(struct graph *graph, const struct model_job *job, uint32_t positions);

/* Causal mask within a window (b, 1, s, s), made of broadcast index comparisons. */
uint32_t hf_window_mask(struct graph *graph, const struct model_job *job, uint32_t window);

/* RoPE's factors (1, s, d) in the compute dtype, for d numbers of a head. */
struct hf_rope {
    uint32_t cos, sin;
};
struct hf_rope hf_rope_tables(struct graph *graph, const struct model_config *config,
                              const struct model_job *job, uint32_t d);

/* x cos + rotate_half(x) sin; x (b, a, s, d). */
uint32_t hf_rotate(struct graph *graph, uint32_t x, struct hf_rope rope);

/* RMSNorm as Python writes it, in fp32 but for the last product. */
uint32_t hf_rms_norm(struct graph *graph, uint32_t x, struct norm norm);

/* An activation by its name in config.json: some are one op, some several. */
uint32_t hf_activation(struct graph *graph, const char *name, uint32_t x);

/* A projection (b, s, a·d) as heads `shape`, (b, s, a, d). `copied`: what follows leaves the
 * gradient in the order (b, a, s, d) of memory, which cannot be viewed back. */
uint32_t hf_heads(struct graph *graph, uint32_t x, struct shape shape, bool copied);

/* Whether hf_attention leaves the gradients of k and v so: padding, repeated heads and single ops
 * do; fused kernels give (b, s, a, d). */
bool hf_copies_gradients(const struct graph *graph, const struct model_config *config, bool masked);

/* x through dropout, which takes its place. */
uint32_t hf_dropout(struct graph *graph, uint32_t x, float p);

/* scaled_dot_product_attention and what sdpa_attention_forward does around it. q (b, s, a, d), k
 * and v (b, s, k, d), with or without fewer heads; mask (b, 1, s, s) of bools or GRAPH_NONE: then
 * causal. The result (b, s, a·d) is Python's.
 *
 *     no mask, d <= 256, 16-bit        flash (d padded to a multiple of 8)
 *     no mask, d <= 256, fp32, k < a   math: matrices and softmax in single ops
 *     else                             memory-efficient (k and v repeated first if k < a) */
struct hf_attention {
    uint32_t q, k, v, mask;
    bool q_contiguous; /* in memory as (b, a, s, d): flash's output is then in that order too */
    float dropout;
};
uint32_t hf_attention(struct graph *graph, const struct hf_attention *attention);

/* A mixture of experts' parameters, and y (b, s, h) through it; y stays the caller's to drop. */
struct hf_moe {
    uint32_t router;  /* (E, h) */
    uint32_t gate_up; /* (E, 2f, h) */
    uint32_t down;    /* (E, h, f) */
};
struct hf_moe hf_moe_declare(struct graph *graph, const struct model_config *config,
                             const char *prefix);
uint32_t hf_moe(struct graph *graph, const struct model_config *config, const struct hf_moe *moe,
                uint32_t y);

/* ForCausalLMLoss of logits (b, s, v) with labels (b, s): upcast, labels shifted by padding, and
 * the mean over all b·s rows. Then the root module returns: what the head was given (`hidden`) goes
 * with its frame, and the logits with its output. */
void hf_loss(struct graph *graph, uint32_t hidden, uint32_t logits, uint32_t labels);

#endif
