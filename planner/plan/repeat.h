/* repeat.h - a step of many micro-batches as a plan of few.
 *
 *     plan      0  1  2  3  4          micro-batches, 3 is issued once more for each of `repeats`
 *     step      0  1  2  3  3  3  4    ... as one of `repeats` 2 stands for
 *
 * Between the first micro-batches and the last one each issues the same instructions as the one
 * before, with its own buffers and events in the places of that one's. For those who ask how much a
 * step takes, one of them is enough, issued again and again; so it is in a file that would be too
 * long with all of them. What is run has them all.
 *
 * Whoever makes such a plan proves that it stands for the whole one: the instructions are the same
 * (plan_repeats), and so is the memory that they find (struct memory.repeats). */
#ifndef SHARDPLAN_REPEAT_H
#define SHARDPLAN_REPEAT_H

#include "plan/plan.h"

enum {
    REPEAT_FEW = 5,            /* micro-batches of such a plan, at the least */
    PASSES_FEW = 4,            /* ... of one that the time of a step may be taken of */
    MICRO_BATCHES_MOST = 4096, /* of any step: as many as --accumulate takes */
};

/* Whether the micro-batch before the last issues what the one before it does, one micro-batch
 * further. False for plans without notes of their micro-batches, and of fewer than REPEAT_FEW. */
bool plan_repeats(const struct plan *plan);
/* The same of as few as there can be, which the time of a step may be taken of: four, as the first
 * one has none before it. */
bool plan_passes(const struct plan *plan);

/* How often a step issues an instruction of the plan: once, or for each of its repeats, too. */
uint32_t plan_times(const struct plan *plan, uint32_t instruction);

/* Instructions that a step issues, repeats and all. */
uint64_t plan_instructions_of_step(const struct plan *plan);
/* Its micro-batches, if the plan repeats or notes them; else 0. */
uint64_t plan_micro_batches_of_step(const struct plan *plan);

/* The instruction's number in the whole plan: where it comes first. */
uint32_t plan_place_in_step(const struct plan *plan, uint32_t instruction);

#endif
