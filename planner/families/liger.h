/* liger.h - Liger's kernels in the place of a model's own: which of them a family gets, as
 * apply_liger_kernel_to_... of liger-kernel 0.8.5 (transformers/monkey_patch.py) does it. */
#ifndef SHARDPLAN_LIGER_H
#define SHARDPLAN_LIGER_H

#include "families/family.h"

/* Reads `--liger` ("rope,rms_norm,swiglu", "all"; NULL: none) and what `--loss liger` needs.
 * ERR_UNSUPPORTED with a sentence: Liger has no such kernel of the family, or it is not planned. */
enum err_code liger_read(const struct family *family, const struct model_config *config,
                         const struct model_job *job, struct graph_liger *out, struct err *err);

#endif
