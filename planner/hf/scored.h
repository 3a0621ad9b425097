/* scored.h - decoders of an older time in Hugging Face's transformers: attention is in single ops
 * whatever the kernel is asked for, and each block returns its scores beside its output, so that
 * they live until the next block has returned. What GPT-J, CodeGen, GPT-Neo and MPT share. */
#ifndef SHARDPLAN_HF_SCORED_H
#define SHARDPLAN_HF_SCORED_H

#include "hf/classify.h"

struct hf_scored_inputs {           /* of every block; GRAPH_NONE: it is not called with it */
    uint32_t mask, bias, positions; /* (b, 1, s, s); any; (s) */
};

/* Declares block `index`, whose module is called `prefix`, and returns x (b, s, h) through it; x
 * stays the caller's, and so do *weights (b, a, s, s). */
typedef uint32_t hf_scored_block(struct graph *graph, const struct model_config *config,
                                 const struct model_job *job, uint32_t index, const char *prefix,
                                 uint32_t x, const struct hf_scored_inputs *in, uint32_t *weights);

struct hf_scored {
    const char *blocks, *norm; /* modules: "transformer.h", "ln_f" beside it */
    hf_scored_block *block;
    bool keeps_first; /* what the first block is called with has another name */
    bool bare_bias;   /* the last norm has no bias */
};

/* The mask of all blocks, as it is added to scores: (b, 1, s, s). */
uint32_t hf_scored_mask(struct graph *graph, const struct model_job *job, uint32_t positions);

/* x through all blocks and the last norm. What the last block returned, its
 * output and its scores, stays Python's: last[2]. */
uint32_t hf_scored_run(struct graph *graph, const struct model_config *config,
                       const struct model_job *job, const struct hf_scored *way,
                       const struct hf_scored_inputs *in, uint32_t x, uint32_t last[2]);

/* x through a LayerNorm with or without a bias. */
uint32_t hf_scored_normed(struct graph *graph, uint32_t x, struct norm norm);

/* scores (b, a, s, s) of fp32 as weights for values of a dtype, through softmax, a cast and the
 * dropout of a module beside `param`; scores go. */
uint32_t hf_scored_weights(struct graph *graph, uint32_t scores, enum dtype dtype, float dropout,
                           uint32_t param);

/* Heads (b, a, s, d), which go, as rows (b, s, h) that are contiguous. */
uint32_t hf_scored_merged(struct graph *graph, uint32_t o);

/* x cos + rotate_every_two(x) sin, of x (b, s, a, r), by rows (1, s, r): sines, then cosines. */
uint32_t hf_scored_rotated(struct graph *graph, uint32_t x, uint32_t rows);

/* fc_out(act(fc_in y)) of a module's Linears, and its dropout. */
uint32_t hf_scored_mlp(struct graph *graph, const struct model_config *config, struct linear fc_in,
                       struct linear fc_out, uint32_t y);

/* attended + fed + x of a block whose attention and feed-forward have one normed input `y`: both
 * and y are let go. */
uint32_t hf_scored_sum(struct graph *graph, uint32_t x, uint32_t y, uint32_t attended,
                       uint32_t fed);

/* The head of a model whose embedding is `table`: logits of `normed`, and the loss; of one that
 * classifies its own. */
struct hf_scored_head {
    uint32_t tokens, labels, table;
    bool biased;
};
void hf_scored_head(struct graph *graph, const struct model_config *config,
                    const struct model_job *job, const struct hf_scored_head *head,
                    uint32_t normed);

/* All of GPT-J, and of CodeGen, but their blocks: called with positions, and the head has a bias.
 */
void hf_scored_gptj(struct graph *graph, const struct model_config *config,
                    const struct model_job *job, hf_scored_block *block);

#endif
