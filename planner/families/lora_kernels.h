/* lora_kernels.h - axolotl's kernels of adapters (model/lora_kernels.h): which of them a family
 * gets. */
#ifndef SHARDPLAN_FAMILIES_LORA_KERNELS_H
#define SHARDPLAN_FAMILIES_LORA_KERNELS_H

#include "families/family.h"

/* Reads --lora-kernels ("mlp,qkv,o"; NULL, "off": none) into *out. ERR_UNSUPPORTED with a sentence:
 * axolotl fails with them, or it is not planned. */
enum err_code lora_kernels_read(const struct family *family, const struct model_config *config,
                                const struct model_job *job, struct graph_lora *out,
                                struct err *err);

/* Of what is built. */
enum err_code lora_kernels_check_built(const struct graph *graph, struct err *err);

#endif
