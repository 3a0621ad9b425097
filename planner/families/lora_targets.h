/* lora_targets.h - which layers of a model have low-rank adapters (model/lora.h): for the files of
 * this folder only. The targets of each model type are those of peft 0.21.2 (utils/constants.py).
 */
#ifndef SHARDPLAN_FAMILIES_LORA_TARGETS_H
#define SHARDPLAN_FAMILIES_LORA_TARGETS_H

#include "model/model.h"

/* Reads "16", "16,q_proj,k_proj", "16,.*\.self_attn\.[qv]_proj" (a regular expression of whole
 * paths) or "16,all-linear" for a model; the targets go into the arena.
 * ERR_INVALID: the rank is none, or no targets are named and peft has none of its own for the
 * model type. ERR_UNSUPPORTED: a code that peft does not wrap. */
enum err_code lora_read(const char *text, const struct model_config *config,
                        const struct model_job *job, struct arena *arena, struct graph_lora *out,
                        struct err *err);

/* Of a graph that is complete: ERR_INVALID where no layer is a target; ERR_UNSUPPORTED where one is
 * whose weight is read past it. */
enum err_code lora_check(const struct graph *graph, const struct model_config *config,
                         struct err *err);

#endif
