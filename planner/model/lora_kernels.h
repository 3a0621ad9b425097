/* lora_kernels.h - axolotl's kernels of adapters in the place of peft's layers
 * (graph_lora.kernels): which of a model's linear layers they take, and those layers through them.
 *
 * axolotl's apply_lora_kernel_patches (src/axolotl/monkeypatch/lora_kernels.py, July 2026) gives a
 * group of layers its kernel where all of them have an adapter; the others stay peft's. What an
 * adapter drops of its input it drops once for a group. */
#ifndef SHARDPLAN_LORA_KERNELS_H
#define SHARDPLAN_LORA_KERNELS_H

#include "model/build.h"

/* Whether the gated unit of these is one kernel. */
bool lora_kernel_mlp_is(const struct graph *graph, struct linear gate, struct linear up,
                        struct linear down);
uint32_t lora_kernel_mlp(struct graph *graph, uint32_t x, struct linear gate, struct linear up,
                         struct linear down);

/* Whether attention's forward is the rewritten one, which makes all three products of its input
 * before it looks at any. */
bool lora_kernels_attend(const struct graph *graph);
/* These three, by the kernel or by peft's layers. */
void lora_kernel_qkv(struct graph *graph, uint32_t x, struct linear q, struct linear k,
                     struct linear v, uint32_t out[3]);
/* Likewise. */
uint32_t lora_kernel_o(struct graph *graph, uint32_t x, struct linear o);

#endif
