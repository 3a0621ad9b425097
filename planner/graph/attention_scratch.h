/* attention_scratch.h - what the backward kernels of attention take from the caching allocator. */
#ifndef SHARDPLAN_ATTENTION_SCRATCH_H
#define SHARDPLAN_ATTENTION_SCRATCH_H

#include "base/attention.h"
#include "base/kernel.h"

enum { ATTENTION_SCRATCHES = 4 };

/* The bytes of each workspace that a kernel has while it runs backward, in the order in which they
 * are allocated; returns how many. q (b, s, a, d), k (b, s', a', d); element_bytes: of k's dtype.
 *
 * FlashAttention-2 (pytorch flash_attn/flash_api.cpp, mha_bwd): the sums of do·o (b, a, s'), dq in
 * fp32 (b, s', a, d'), s' rounded to 128 and d' to 32; where heads of k and v are shared, their
 * gradients for each head of q in its dtype. cuDNN (native/cudnn/MHA.cpp: one workspace a call;
 * cudnn-frontend scaled_dot_product_flash_attention.h, get_fe_workspace_size_node): dq (b, a, s, d)
 * and the sums (b, a, s, 1) in fp32, not rounded. What the engine behind it asks for on top is not
 * published, and is not here. */
uint32_t attention_scratch(enum attention_kernel kernel, const struct shape *q,
                           const struct shape *k, uint32_t element_bytes,
                           uint64_t bytes[ATTENTION_SCRATCHES]);

#endif
