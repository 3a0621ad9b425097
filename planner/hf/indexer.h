/* indexer.h - what chooses the tokens that a query sees, as Hugging Face transformers writes it for
 * DeepSeek-V3.2's sparse attention (DSA): small heads that score every token, outside of autograd.
 *
 *     score[q, k] = sum over heads of w_h(y_q) · relu(q_h · k / root of d)
 *
 * q is a product of the latent of attention's own queries, k one head for all, w a product of y;
 * RoPE turns the first r numbers of both. The k tokens before q with the best scores are seen. All
 * of it is under torch.no_grad: its parameters never get a gradient. */
#ifndef SHARDPLAN_HF_INDEXER_H
#define SHARDPLAN_HF_INDEXER_H

#include "hf/hf.h"

struct hf_indexer {
    struct linear q, k, weights; /* q.weight GRAPH_NONE: there is none */
    struct norm k_norm;
};

/* "<prefix>indexer.wq_b" and the others. */
struct hf_indexer hf_indexer_declare(struct graph *graph, const struct model_config *config,
                                     const char *prefix);

/* What it is called with; all of it stays the caller's. */
struct hf_indexed {
    uint32_t y, latent;  /* (b, s, h), (b, s, q_lora) */
    uint32_t mask;       /* causal (1 or b, 1, s, s): of bools, or added to scores */
    struct hf_rope rope; /* tables (1, s, r) */
    bool neighbours;     /* a number's partner is the next one, not half of r away */
};
/* The places (b, s, k) of the tokens that each query sees, int32: Python's. */
uint32_t hf_indexer(struct graph *graph, const struct model_config *config,
                    const struct hf_indexer *indexer, const struct hf_indexed *of);

/* The mask (b, 1, s, s) of those places and of what `mask`, of the same kind, lets be seen;
 * *others, of bools, is Python's, too, and goes behind it. */
uint32_t hf_indexed_mask(struct graph *graph, uint32_t mask, uint32_t places, uint32_t *others);

#endif
