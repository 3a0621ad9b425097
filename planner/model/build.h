/* build.h - for builders only: the pieces they share. */
#ifndef SHARDPLAN_BUILD_H
#define SHARDPLAN_BUILD_H

#include "graph/ops.h"
#include "model/model.h"

/* An input of token ids. */
uint32_t build_input(struct graph *graph, const struct model_config *config, enum input_kind kind,
                     struct shape shape);

/* A buffer with what RoPE on the first `dim` numbers of a head needs: a table (1, s, 1, dim/2),
 * frequencies (dim/2), or a table (max_positions, dim) or (s, 2 dim), by `layout`. */
uint32_t build_rope(struct graph *graph, const struct model_config *config,
                    const struct model_job *job, enum rope_layout layout, uint32_t dim);

/* A Linear's parameters "<prefix>.weight" (out, in) and, if biased, "<prefix>.bias" (out). */
struct linear {
    uint32_t weight, bias;
};
struct linear build_linear(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                           uint32_t in, bool biased);
/* The same of one whose weight kernels read past its module, so that it cannot be in few bits. */
struct linear build_read_linear(struct graph *graph, const char *prefix, const char *name,
                                uint32_t out, uint32_t in, bool biased);
/* transformers' Conv1D: the weight is (in, out). */
struct linear build_conv1d(struct graph *graph, const char *prefix, const char *name, uint32_t in,
                           uint32_t out);
/* The parameters alone, of what is no layer that could have an adapter (lora.h): a router. `biases`
 * 0: it has none. */
struct linear build_weights(struct graph *graph, const char *prefix, const char *name,
                            struct shape shape, uint32_t biases);

/* nn.Conv1d's of a filter for each channel, (channels, 1, width) and perhaps (channels), which
 * transformers reads and hands to a function: the module is never called. */
struct linear build_short_filter(struct graph *graph, const char *prefix, const char *name,
                                 uint32_t channels, uint32_t width, bool biased);

/* A norm's parameters "<prefix>.weight" and, if biased, "<prefix>.bias", both (h), and what it adds
 * to the variance. */
struct norm {
    uint32_t weight, bias;
    float eps;
    const char *bare; /* of one that has no weight: its module; NULL: it has one */
};
struct norm build_norm(struct graph *graph, const char *prefix, const char *name, uint32_t h,
                       bool biased, float eps);

/* A norm that has no parameters. */
struct norm build_bare_norm(struct graph *graph, const char *prefix, const char *name, float eps);

/* The same with a weight for each number of each head, (a, d), and no bias. */
struct norm build_head_norm(struct graph *graph, const char *prefix, const char *name, uint32_t a,
                            uint32_t d, float eps);

/* A projection (b, s, a·d) as the heads (b, s, a, d) of graph->attention. Fused kernels leave their
 * gradients in that order of memory; single ops do not. */
uint32_t build_heads(struct graph *graph, uint32_t x, struct shape heads);

uint32_t apply_linear(struct graph *graph, uint32_t x, struct linear linear);
uint32_t apply_conv1d(struct graph *graph, uint32_t x, struct linear conv);
/* An activation by its name in config.json, as one operator. The three approximations of GELU by
 * tanh, one function written in three ways, are one operator. */
uint32_t apply_activation(struct graph *graph, const char *name, uint32_t x);
uint32_t apply_norm(struct graph *graph, uint32_t x, struct norm norm);

/* What the root's forward returns behind accelerate's cast: x, or x in fp32 (graph.outputs_fp32).
 * That is outside of autocast, which whoever calls has left (graph_leave_autocast). */
uint32_t build_widened(struct graph *graph, uint32_t x);
/* What the root's forward returned, as its caller gets it: x, or a copy (graph.copies_outputs). */
uint32_t build_returned(struct graph *graph, uint32_t x);
/* The root's forward returns logits alone. Returns what its caller has. */
uint32_t build_return(struct graph *graph, uint32_t logits);

/* The mean cross-entropy of logits (t, v) that graph->cross_entropy asks for, and the logits as it
 * takes them: fp32, or as they are. */
uint32_t build_cross_entropy(struct graph *graph, uint32_t logits, uint32_t targets);
uint32_t build_upcast(struct graph *graph, uint32_t logits);
/* Cross-entropy over all tokens outside the model, as torchtitan and nanoGPT train: upcasts the
 * logits (b, s, v), takes log-softmax and the mean negative log-likelihood, and lets go of the
 * upcast copy and the logits. Sets graph->loss. */
void build_loss(struct graph *graph, uint32_t logits, uint32_t targets);
/* From the head on: the module (or GRAPH_NONE) that is called with x (b, s, h), the end of the
 * root's forward, and the loss. Python's names of x, the residual and what comes after are dropped.
 */
void build_head(struct graph *graph, uint32_t module, uint32_t x, uint32_t residual,
                struct linear head, uint32_t targets);

#endif
