/* gradients.h - the way of a parameter's gradient from its node to .grad (see driver.c).
 *
 *     a use gives it        STEP_GIVEN   take_given: cast, where it may be
 *     added to others' ...  the stream's pass_recast: what was cast, births and deaths with it
 *     copied, perhaps       STEP_COPIED  copy_gradient: cast before it, where it is not yet
 *     all of it has come    STEP_GRAD    take_gradient: likewise
 *
 * Since torch 2.15 parameters have a grad_dtype: the engine casts what each use of one gives
 * (engine.cpp, validate_outputs), and adds up what was cast. Whether it does is the system's
 * (casts_gradient), micro-batch by micro-batch, so that the stream has gradients as they are
 * computed. In an outline all of it is hooks (outline.h). */
#ifndef SHARDPLAN_GRADIENTS_H
#define SHARDPLAN_GRADIENTS_H

#include "lower/lowering.h"

/* What one use of a parameter gives: cast, if the system's parameters have another dtype. */
void take_given(struct lowering *low, const struct stream_given *given);

/* A birth, death or kernel of the stream's, while gradients that were cast have not arrived. True:
 * a cast gradient has a part in it, and it is done. */
bool pass_recast(struct lowering *low, struct stream_step step);

/* AccumulateGrad where it keeps a copy, if anything: when what came dies, the stream says. */
void copy_gradient(struct lowering *low, const struct stream_grad *grad);

/* AccumulateGrad: the first gradient is kept as it is, later ones are added in place. The engine
 * lets go of the gradient that came when the system's hook is done. */
void take_gradient(struct lowering *low, const struct stream_grad *grad);

#endif
