/* delta_rule.h - how long flash-linear-attention's gated delta rule took on real GPUs, and takes
 * here. */
#ifndef SHARDPLAN_TESTS_DELTA_RULE_H
#define SHARDPLAN_TESTS_DELTA_RULE_H

#include "machine/profile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct delta_row { /* of tests/data/gpu/delta_rule.csv */
    char gpu[32], source[16];
    bool backward;
    uint32_t sequences, tokens, heads_k, heads_v, head_dim; /* tokens: of each sequence */
    double measured_s, predicted_s;
};

/* All rows, each with what its kernels cost in a burst on its GPU, one after the other: *count of
 * them, the caller's (free). What cannot be read ends the program. */
struct delta_row *delta_rows_read(size_t *count);

/* Of rows that have a GPU, a pass and a source. */
struct delta_group {
    const char *gpu, *source;
    bool backward;
    size_t count;
    double error, bias, worst; /* mean, absolute; mean; the one farthest from 0: predicted over
                                  measured, less 1 */
};
enum { DELTA_GROUPS = 6 };
void delta_groups(const struct delta_row *rows, size_t count,
                  struct delta_group groups[DELTA_GROUPS]);

#endif
