/* padded.h - the mask of a batch that is padded (`--padding-tokens`), of which a model is told. */
#ifndef SHARDPLAN_PADDED_H
#define SHARDPLAN_PADDED_H

#include "model/builder.h"

/* Calls the model, as builder has it, with the mask of a batch that is padded:
 * graph->attention_mask, which the builder reads. Called twice, the model is given the same. */
void padded_call(struct graph *graph, model_builder *builder, const struct model_config *config,
                 const struct model_job *job);

/* The mask (b, s) of int64 that TRL's trainers of pairs count tokens by: the model's own, or one
 * that it is not given, as nothing is padded. */
uint32_t padded_pairs_mask(struct graph *graph, const struct model_job *job);

#endif
