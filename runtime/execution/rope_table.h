/* rope_table.h - the numbers that a plan's RoPE (base/rope.h) stands for.
 *
 * Computed as transformers and torchtitan do: frequencies in fp32, angles as fp32 products of
 * position and frequency, so that long sequences are rounded as theirs are. */
#ifndef SHARDPLAN_ROPE_TABLE_H
#define SHARDPLAN_ROPE_TABLE_H

#include "base/rope.h"

#include <stdint.h>

/* f_j of each pair: (dim/2) numbers into `out`. `rope` has passed plan_verify. */
void rope_frequencies(const struct rope *rope, float *out);

/* attention_factor · exp(i t f_j) for t in 0 ... positions - 1: (positions, dim/2) complex numbers,
 * real part first, into `out`. */
void rope_table(const struct rope *rope, uint32_t positions, float *out);

/* sin(t f_j) of all pairs and then cos(t f_j), of the same t: (positions, dim) into `out`. */
void rope_sines(const struct rope *rope, uint32_t positions, float *out);

/* cos(t f_j) of all pairs, twice, and then sin(t f_j), likewise: (positions, 2 dim) into `out`. */
void rope_turns(const struct rope *rope, uint32_t positions, float *out);

#endif
