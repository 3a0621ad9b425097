/* trajectory.h - what a run printed beside a trajectory of PyTorch's. */
#ifndef SHARDPLAN_TEST_TRAJECTORY_H
#define SHARDPLAN_TEST_TRAJECTORY_H

#include <jansson.h>
#include <stddef.h>

/* |ours - theirs| / |theirs| */
double relative(double ours, double theirs);

/* Largest relative error of the losses and gradient norms that `shardplan run --json` printed last
 * (program_output, which is taken apart), against a row of tests/data/numerics; *steps: how many
 * steps it printed. */
double compare_steps(const json_t *reference, size_t *steps);

/* The same of losses alone. */
double compare_losses(const json_t *reference, size_t *steps);

#endif
