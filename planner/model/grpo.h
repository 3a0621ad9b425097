/* grpo.h - a step of TRL's trainer of policies (`--loss grpo`; TRL 1.16.0, trainer/grpo_trainer.py,
 * _compute_loss): completions that were generated and scored before, whose tokens' probabilities
 * change by the advantage that each completion has over the others of its prompt.
 *
 *     policy    the model with its fused head (hf/lm_head.c), of completions' tokens alone
 *     ratio     exp of what a token's log-probability has gained over the old one: a column of the
 *               batch, or, where each batch is used once, its own without a gradient
 *     loss      the least of ratio times advantage and of what is clipped of that; divided by
 *               how --grpo-loss says
 *     log       what the trainer logs of it, number by number, each of which the host waits for
 *
 * The batch is what _generate_and_score_completions returns, of all micro-batches that are
 * generated at once (steps_per_generation): micro-batches are views of it, and it stays there
 * between steps. Generation, the forward passes of old log-probabilities and of the reference,
 * and rewards are before the step. What ranks reduce or gather for the log stays on each. */
#ifndef SHARDPLAN_GRPO_H
#define SHARDPLAN_GRPO_H

#include "model/builder.h"

/* Builds the model, and the loss around it. */
void grpo_build(struct graph *graph, model_builder *builder, const struct model_config *config,
                const struct model_job *job);

/* What the builder takes for an input of this kind: of tokens and labels, what is made of the
 * batch's; any other is `input`. */
uint32_t grpo_input(struct graph *graph, enum input_kind kind);

/* How many micro-batches are generated at once (steps_per_generation). */
uint32_t grpo_generated(const struct model_job *job);

/* Whether the old log-probabilities are a column: a batch is used more than once, or optimizer
 * steps are between its micro-batches, or what vLLM sampled is corrected. */
bool grpo_has_old(const struct model_job *job);

#endif
