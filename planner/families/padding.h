/* padding.h - which batches with padding are planned (`--padding-tokens`). */
#ifndef SHARDPLAN_FAMILIES_PADDING_H
#define SHARDPLAN_FAMILIES_PADDING_H

#include "families/family.h"

/* ERR_INVALID: there is no such batch, or none is told of its mask; ERR_UNSUPPORTED: what the
 * model, its loss or torch.compile make of the mask is not planned. */
enum err_code padding_check(const struct family *family, const struct model_config *config,
                            const struct model_job *job, struct err *err);

#endif
