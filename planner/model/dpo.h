/* dpo.h - a step of TRL's trainer of preferences (`--loss dpo`; TRL 1.16.0, trainer/dpo_trainer.py,
 * _compute_loss): half of the sequences of a batch are chosen, the others rejected.
 *
 *     policy      the model with its fused head (hf/lm_head.c); log-probabilities summed up
 *     reference   the same model again, without gradients, its adapters disabled; of one without
 *                 adapters another model like it; or two columns of the batch, where they were
 *                 computed before (precompute_ref_log_probs)
 *     loss        the default: -log sigmoid of beta times what chosen has gained over rejected
 *     log         what the trainer logs of it, number by number, each of which the host waits for
 *
 * Every token of a sequence but the first counts as one of its completion, unless it is padding,
 * and what ranks gather for the log stays on each. */
#ifndef SHARDPLAN_DPO_H
#define SHARDPLAN_DPO_H

#include "model/builder.h"

/* Builds the model, and the loss around it. */
void dpo_build(struct graph *graph, model_builder *builder, const struct model_config *config,
               const struct model_job *job);

/* What the builder takes for an input that the batch has: of labels, what is made of them. */
uint32_t dpo_input(struct graph *graph, enum input_kind kind, uint32_t input);

#endif
