/* gpt2.h - GPT-2's builder, and what its kin have of it. */
#ifndef SHARDPLAN_HF_GPT2_H
#define SHARDPLAN_HF_GPT2_H

#include "model/builder.h"

model_builder build_hf_gpt2;

/* Where files of GPT-2's kind in transformers differ. */
struct hf_gpt2 {
    bool linear;       /* Linear for Conv1D */
    bool head_by_head; /* the product has a head's q, k and v beside each other, where no heads
                          share k and v */
    bool triangle;     /* a buffer of bools (n, n) for n positions, of an older time */
    bool asks_first;   /* whether sequences are packed is asked before positions are looked up, and
                          blocks are not called with them */
    bool asks_padding; /* whether a sequence begins or ends with padding, to warn of it */
};
void hf_gpt2_build(struct graph *graph, const struct model_config *config,
                   const struct model_job *job, const struct hf_gpt2 *way);

#endif
