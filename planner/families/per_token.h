/* per_token.h - LLaMA-Factory v1's loss (`--loss per-token`): of any causal model in transformers'
 * code that has ForCausalLMLoss. */
#ifndef SHARDPLAN_PER_TOKEN_H
#define SHARDPLAN_PER_TOKEN_H

#include "families/family.h"

/* Before the model is built. ERR_UNSUPPORTED or ERR_INVALID with a sentence: not transformers'
 * code, beside something it is not planned with, or of sequences that have no target. */
enum err_code per_token_check(const struct model_job *job, struct err *err);

/* Of the model: ERR_UNSUPPORTED where the family's builder has another loss. */
enum err_code per_token_check_built(const struct family *family, const struct graph *graph,
                                    struct err *err);

#endif
