/* lm_head.h - TRL's fused LM head (`--loss fused-lm-head`): the loss that its trainers have of any
 * causal model since 1.16 (trl.trainer.utils.add_fused_lm_head). */
#ifndef SHARDPLAN_LM_HEAD_H
#define SHARDPLAN_LM_HEAD_H

#include "families/family.h"

/* Before the model is built. ERR_UNSUPPORTED or ERR_INVALID with a sentence: not transformers'
 * code, a family that TRL fails with, beside something it is not planned with, or of sequences
 * that have no target. */
enum err_code lm_head_check(const struct family *family, const struct model_job *job,
                            struct err *err);

/* Of the model: ERR_UNSUPPORTED where the family's builder has another loss. */
enum err_code lm_head_check_built(const struct family *family, const struct graph *graph,
                                  struct err *err);

#endif
