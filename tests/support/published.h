/* published.h - rows of tests/data/published, and the machines they were measured on. */
#ifndef SHARDPLAN_TESTS_PUBLISHED_H
#define SHARDPLAN_TESTS_PUBLISHED_H

#include "nccl/collective.h"

#include <stdbool.h>
#include <stddef.h>

/* A machine, as far as a source describes it. */
struct published_machine {
    const char *prefix; /* of the row's id: the longest that fits decides */
    struct fabric fabric;
    bool isolated;       /* each call waited for, from PyTorch: COLLECTIVE_ISOLATED_S is on top */
    const char *remark;  /* what had to be assumed, or is known to differ; NULL: nothing */
    const char *unknown; /* why the row cannot be predicted; NULL: it can */
};

struct published_row {
    char id[64];
    char collective[24];
    uint32_t ranks, nodes; /* nodes as the fabric counts them (an NVL72 rack is one) */
    uint64_t bytes;
    double seconds;
    const struct published_machine *machine;
    const char *unknown; /* why it cannot be predicted; NULL: it can */
    bool forced;         /* the way was chosen by hand */
    enum nccl_algorithm algorithm;
};

/* Calls `visit` for every row of both files, in order. Ends the program when a file cannot be read.
 */
void published_each(void (*visit)(void *context, const struct published_row *row), void *context);

/* Seconds by the model, as the row's benchmark would have seen them. */
double published_predict(const struct published_row *row, struct collective_cost *cost);

#endif
