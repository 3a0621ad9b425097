/* comm_sum.h - the arithmetic of collectives: sums over ranks that are the same every time. */
#ifndef SHARDPLAN_COMM_SUM_H
#define SHARDPLAN_COMM_SUM_H

#include "base/dtype.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether comm_sum knows the dtype; ERR_UNSUPPORTED names those that it does. */
enum err_code comm_sum_check(enum dtype dtype, uint32_t instruction, struct err *err);

/* out[i] = the sum over p of part[p][i], part 0 first, divided by `parts` when `average`; count
 * elements of fp32, bf16, fp16, int32 or uint8 (flags: the sum's low byte). `out` may be one of the
 * parts.
 */
void comm_sum(const char *const *part, uint32_t parts, uint64_t count, enum dtype dtype,
              bool average, char *out);

#endif
