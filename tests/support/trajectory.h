/* trajectory.h - what a run printed beside a trajectory of PyTorch's. */
#ifndef SHARDPLAN_TEST_TRAJECTORY_H
#define SHARDPLAN_TEST_TRAJECTORY_H

#include <jansson.h>
#include <stddef.h>

/* What tests/data/numerics/NAME.json has recorded, for runs in `folder`, which is made
 * (folder_make); NULL: one of them is not to be had. Ranks will spare Open MPI under a sanitizer.
 * The caller owns it. */
json_t *trajectories_open(const char *name, char *folder);

/* |ours - theirs| / |theirs| */
double relative(double ours, double theirs);

/* Largest relative error of the losses and gradient norms that `shardplan run --json` printed last
 * (program_output, which is taken apart), against a row of tests/data/numerics; *steps: how many
 * steps it printed. */
double compare_steps(const json_t *reference, size_t *steps);

/* The same of losses alone. */
double compare_losses(const json_t *reference, size_t *steps);

#endif
