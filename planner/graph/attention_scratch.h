/* attention_scratch.h - what the kernels of attention take from the caching allocator. */
#ifndef SHARDPLAN_ATTENTION_SCRATCH_H
#define SHARDPLAN_ATTENTION_SCRATCH_H

#include "base/attention.h"
#include "base/kernel.h"

enum { ATTENTION_SCRATCHES = 4 };

/* The bytes of each workspace that a kernel has while it runs backward, in the order in which they
 * are allocated; returns how many. q (b, s, a, d), k (b, s', a', d), v (b, s', a', d');
 * element_bytes: of k's dtype.
 *
 * FlashAttention-2 (pytorch flash_attn/flash_api.cpp, mha_bwd): the sums of do·o (b, a, s'), dq in
 * fp32 (b, s', a, d'), s' rounded to 128 and d' to 32; where heads of k and v are shared, their
 * gradients for each head of q in its dtype. cuDNN (native/cudnn/MHA.cpp: one workspace a call;
 * cudnn-frontend scaled_dot_product_flash_attention.h, get_fe_workspace_size_node): dq (b, a, s, d)
 * and the sums (b, a, s, 1) in fp32, not rounded, and what the engine behind it asks for, as cuDNN
 * 9.19 and 9.24 themselves say it of the GPU (tests/data/cudnn/workspaces.csv). Of a GPU that is
 * not known the engine's is left out. Memory-efficient (transformers/cuda/attention_backward.cu and
 * mem_eff_attention/kernel_backward.h, Params::workspace_size, as cutlassB.h has kernels of compute
 * capability 8.0 and later): the sums of do·o (b, a, s), and dq in fp32, tile by tile; where heads
 * of 16 bits are wider than 128, dk and dv, too, of as many tiles as work at a time. Cards of 100
 * KB of shared memory (Ada, A10) take smaller tiles of heads above 64, which is not distinguished.
 * Of a GPU that is not known nothing is taken, AMD's kernels being others. */
uint32_t attention_scratch(enum attention_kernel kernel, enum attention_gpu gpu,
                           const struct shape *q, const struct shape *k, const struct shape *v,
                           uint32_t element_bytes, uint64_t bytes[ATTENTION_SCRATCHES]);

/* What is gone again before those are allocated: of the memory-efficient kernel in fp32, which has
 * do·o made in single ops, the products (b, s, a, d') and their sums (b, s, a). */
uint32_t attention_scratch_before(enum attention_kernel kernel, enum attention_gpu gpu,
                                  const struct shape *q, const struct shape *v,
                                  uint32_t element_bytes, uint64_t bytes[ATTENTION_SCRATCHES]);

/* The workspace of forward; 0: none. cuDNN's own on Hopper; the memory-efficient kernel's sum in
 * fp32 where heads of v in 16 bits are wider than its tile of 128. */
uint64_t attention_forward_scratch(enum attention_kernel kernel, enum attention_gpu gpu,
                                   const struct shape *q, const struct shape *v,
                                   uint32_t element_bytes);

#endif
