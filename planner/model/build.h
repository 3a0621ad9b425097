/* build.h - for the builders in this folder only: the pieces they share. */
#ifndef SHARDPLAN_BUILD_H
#define SHARDPLAN_BUILD_H

#include "graph/ops.h"
#include "model/model.h"

/* A Linear's parameters "<prefix>.weight" (out, in) and, if biased, "<prefix>.bias" (out). */
struct linear {
    uint32_t weight, bias;
};
struct linear build_linear(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                           uint32_t in, bool biased);

/* A norm's parameters "<prefix>.weight" and, if biased, "<prefix>.bias", both (h). */
struct norm {
    uint32_t weight, bias;
};
struct norm build_norm(struct graph *graph, const char *prefix, const char *name, uint32_t h,
                       bool biased);

uint32_t apply_linear(struct graph *graph, uint32_t x, struct linear linear);
uint32_t apply_norm(struct graph *graph, uint32_t x, struct norm norm);

/* Cross-entropy over all tokens outside the model, as torchtitan and nanoGPT train: upcasts the
 * logits (b, s, v), takes log-softmax and the mean negative log-likelihood, and lets go of the
 * upcast copy and the logits. Sets graph->loss. */
void build_loss(struct graph *graph, uint32_t logits, uint32_t targets);

#endif
