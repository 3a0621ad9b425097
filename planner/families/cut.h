/* cut.h - cut cross entropy (`--loss cut-cross-entropy`): which families axolotl's fork of
 * cut-cross-entropy (its commit 5f0c7a7, cut_cross_entropy/transformers/patch.py) patches, and what
 * its kernels ask for. */
#ifndef SHARDPLAN_CUT_H
#define SHARDPLAN_CUT_H

#include "families/family.h"

/* Before the model is built. ERR_UNSUPPORTED with a sentence: the family is not patched, or it is
 * not planned. */
enum err_code cut_check(const struct family *family, const struct model_job *job, struct err *err);

/* Of the model: ERR_INVALID where a hidden state or the head's weight is in fp32, which the kernel
 * of backward does not take; ERR_UNSUPPORTED where the family's builder has another loss. */
enum err_code cut_check_built(const struct family *family, const struct graph *graph,
                              struct err *err);

#endif
