/* trajectory.h - runs of recorded models, and what they printed beside PyTorch's trajectories. */
#ifndef SHARDPLAN_TEST_TRAJECTORY_H
#define SHARDPLAN_TEST_TRAJECTORY_H

#include "tests/support/soak.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A recording has so many steps. Most runs do some of them: what a strategy does, it has done by
 * then, and optimizers carried over. */
enum { TRAJECTORY_STEPS = 20 };
#define TRAJECTORY_SOME (is_soak() ? 8 : 3)

/* Set-up and tear-down of a group of tests: what tests/data/numerics/NAME.json has recorded, and a
 * folder, in which plans are not drawn: that would take longer than all else of most. */
int trajectories_open(const char *name);
int trajectories_close(void **state);
const json_t *trajectories(void); /* lent, as the next */
const char *trajectories_folder(void);

/* A recorded model's model_type, lent; and whether autocast of it is planned. */
const char *trajectory_type(const json_t *model);
bool trajectory_autocasts(const json_t *model);

/* Plans a recorded model with its own config.json, batch and length into the folder's plan/. */
void trajectory_plan(const json_t *model, int ranks, const char *options);

/* Plans and runs it for so many steps: losses and gradient norms are the recorded within
 * `tolerance`. On one rank the first gradients are, too, parameter by parameter. */
void trajectory_check(const json_t *model, int ranks, const char *options, int steps,
                      double tolerance);

/* |ours - theirs| / |theirs| */
double relative(double ours, double theirs);

/* Largest relative error of the losses and gradient norms that `shardplan run --json` printed last
 * (program_output, which is taken apart), against a row of tests/data/numerics; *steps: how many
 * steps it printed. */
double compare_steps(const json_t *reference, size_t *steps);

/* The same of losses alone. */
double compare_losses(const json_t *reference, size_t *steps);

#endif
