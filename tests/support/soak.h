/* soak.h - of cases that are alike, a usual run of the tests takes some, and `make soak` all. */
#ifndef SHARDPLAN_TEST_SOAK_H
#define SHARDPLAN_TEST_SOAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static inline bool is_soak(void)
{
    return getenv("SOAK_JOBS") != NULL;
}

/* Of cases that are numbered from 0 on, every `every`-th, the first of which is `from`. */
static inline bool is_taken(size_t i, size_t every, size_t from)
{
    return is_soak() || i % every == from;
}

#endif
