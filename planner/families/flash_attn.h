/* flash_attn.h - the package flash-attn in transformers' models (`--attention flash-attn`,
 * attn_implementation "flash_attention_2"): which of them take it, and what it asks for. */
#ifndef SHARDPLAN_FAMILIES_FLASH_ATTN_H
#define SHARDPLAN_FAMILIES_FLASH_ATTN_H

#include "families/family.h"

/* Before the model is built. ERR_INVALID with a sentence where transformers 5.23 or the package
 * (2.8) refuses it, ERR_UNSUPPORTED where it is not planned. */
enum err_code flash_attn_check(const struct family *family, const struct model_config *config,
                               const struct model_job *job, struct err *err);

/* Of samples that sequences are joined of (`--sample-tokens`), before the model is built: likewise.
 */
enum err_code samples_check(const struct family *family, const struct model_config *config,
                            const struct model_job *job, struct err *err);

#endif
