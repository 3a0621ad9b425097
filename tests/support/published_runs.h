/* published_runs.h - the rows of tests/data/published/runs.csv: training runs that nothing was
 * fitted to, as they were measured and as they are predicted. */
#ifndef SHARDPLAN_TESTS_PUBLISHED_RUNS_H
#define SHARDPLAN_TESTS_PUBLISHED_RUNS_H

#include "tests/support/csv.h"

#include <stdbool.h>
#include <stdint.h>

struct published_run {
    const char *group, *name, *model; /* lent by the table */
    uint32_t gpus, seq;
    double tokens; /* of a GPU's step */
    double measured_s, simulated_s, low_s, high_s;
    double allocated_gib; /* measured; 0: the source says nothing */
    double planned_gib;   /* with what the training script held besides (held_bytes) */
    double reserved_percent, planned_percent; /* of the card: likewise 0, or measured and planned,
                                               * with the same */
};

/* Not among all: steps of some ten milliseconds, which a host and its data loader bound, and jobs
 * whose sources do not say what their times hang on. */
bool published_run_is_apart(const struct published_run *run);

/* Reads and predicts all. The table is lent as long as the rows, which are the caller's: free. Ends
 * the program where a row cannot be predicted. */
struct published_run *published_runs(const struct csv *csv);

/* Whether two of them are one job, of sequences as long on as many GPUs, under different settings.
 */
bool published_runs_pair(const struct published_run *a, const struct published_run *b);

#endif
