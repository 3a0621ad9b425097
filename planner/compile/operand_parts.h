/* operand_parts.h - for joint.c only: which part of a wider tensor an operand is, as its pitch and
 * its strides say. */
#ifndef SHARDPLAN_OPERAND_PARTS_H
#define SHARDPLAN_OPERAND_PARTS_H

#include "base/kernel.h"

#include <stdbool.h>

/* Of (b, s, n, a, d) a row is of each of n: its heads. */
uint64_t part_row(const struct operand *operand);
/* The whole of which an operand is a part of each row: seen as it, with rows `pitch` wide. */
bool part_whole(const struct operand *operand, uint64_t row, struct shape *out);
/* Heads (b, a, s, d) that are part of each row of a wider product, or a part of each of them: the
 * part of the row that has them, as heads. */
bool part_heads(const struct operand *operand, struct operand *part, uint32_t *width);
/* Of every element of the last dim of a row how many places are to the next one: of what dims that
 * lie further in (a gradient of what was transposed) make up, one each. */
uint32_t part_step(const struct operand *operand);
/* Part of each row whose pitch the layout alone says: of what no gradient is computed of. 0: it is
 * none. */
uint32_t part_pitch(const struct operand *operand, uint64_t all);
/* Heads of one sequence, (a, s, d) or turned, (a, d, s), of a part of each row: as (1, a, s, d),
 * which `strides` says. */
bool part_is_one_sequence(const struct operand *operand, struct operand *heads,
                          struct strides *strides);
/* Heads (b, s, a, d) that are one, which a row has a part for: without being repeated. */
bool part_is_one_head(const struct operand *operand, struct operand *one);

#endif
