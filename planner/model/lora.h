/* lora.h - low-rank adapters beside the linear layers of a model, as peft has them.
 *
 *     y = W x + b          y = W x + b + B (A dropout(x)) * scale          A (r, in), B (out, r)
 *
 * W, b and everything else are frozen: what a layer keeps for backward follows from that. Names,
 * order of parameters and order of calls are those of peft 0.21.2 (tuners/lora/layer.py,
 * Linear.forward), and scale is lora_alpha / r with peft's lora_alpha of 8. Each adapter drops
 * elements of its own: what two of them are given is two tensors. */
#ifndef SHARDPLAN_LORA_H
#define SHARDPLAN_LORA_H

#include "graph/graph.h"

/* What is to be (families/lora_targets.h): before anything is declared. */
void lora_begin(struct graph *graph, const struct graph_lora *lora);

/* Whether a linear layer "<prefix><name>" is to have an adapter. */
bool lora_wants(const struct graph *graph, const char *prefix, const char *name);

/* Whether one of axolotl's kernels (lora_kernels.h) computes that layer: all of its group have
 * adapters. It is never called then. */
bool lora_kernel_takes(const struct graph *graph, const char *prefix, const char *name);

/* Declares the adapter of a layer (out, in) behind its own parameters. */
void lora_declare(struct graph *graph, const char *prefix, const char *name, uint32_t weight,
                  uint32_t out, uint32_t in);

/* x as the layer and its adapter both read it. */
uint32_t lora_input(struct graph *graph, uint32_t weight, uint32_t x);

/* What becomes of the layer's output y, for its input x; y is let go where there is an adapter. */
uint32_t lora_apply(struct graph *graph, uint32_t weight, uint32_t x, uint32_t y);

/* The first weight A of so many elements, of any adapter; GRAPH_NONE: there is none. */
uint32_t lora_of_elements(const struct graph *graph, uint64_t least);

#endif
