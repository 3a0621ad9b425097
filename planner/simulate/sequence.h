/* sequence.h - the kernels of a stream in the order in which they run, costed once for all the
 * outlines (lower/outline.h) that are made of it.
 *
 * What others leave of the machine stays the same for long, so sums of the kernels' times at such a
 * pace say at once which kernel of a span runs at a moment. Sums are made when a pace is first
 * asked for, and kept: a sequence belongs to one thread. */
#ifndef SHARDPLAN_SEQUENCE_H
#define SHARDPLAN_SEQUENCE_H

#include "cost/cost.h"

enum { SEQUENCE_PACES = 64, SEQUENCE_PARTS = 3 }; /* parts: COST_GEMM, _ATTENTION and _MEMORY */

struct sequence {
    struct cost *cost; /* (count) */
    double *host;      /* (count + 1) seconds in which the host issues those before */
    uint32_t parts;    /* 1; SEQUENCE_PARTS where the times of a class may be scaled */
    uint64_t *sums;    /* (count + 1) 64 bits of all costs before: sequence_signature */
    uint64_t *powers;  /* (count + 1) */
    uint32_t count;
    struct pace {
        float there[RESOURCE_COUNT];
        double *begin;       /* (count + 1)(parts) seconds until those before are done: of all
                                classes, or of each that a span's kernels have */
    } paces[SEQUENCE_PACES]; /* [0]: with all there is */
    uint32_t pace_count, oldest;
};

/* `kernels` (count) are those of the table that run, `forward_count` of them before backward; all
 * are lent for the call. Arithmetic takes `slower` times the mean rank's (cost/slowest.h). The
 * caller owns it: sequence_free. */
struct sequence *sequence_new(const struct kernel_table *table, const uint32_t *kernels,
                              uint32_t count, uint32_t forward_count, const struct profile *profile,
                              double slower);

/* The same of kernels in that order that are costed already, `costs` (count), which are lent for
 * the call, none of another class than SEQUENCE_PARTS has: their times may be scaled, class by
 * class. The caller owns it: sequence_free. */
struct sequence *sequence_of_costs(const struct cost *const *costs, uint32_t count);
void sequence_free(struct sequence *sequence); /* NULL is allowed */

/* A kernel's speed where it asks for its own share alone, and `there` is left for it. */
static inline double pace_of(const struct cost *cost, const float there[RESOURCE_COUNT])
{
    float most = 1; /* how often more than there is is asked for */
    for (int k = 0; k < RESOURCE_COUNT; k++)
        if (cost->use[k] > most * there[k])
            most = cost->use[k] / there[k];
    return 1 / (double)most;
}

/* (count + 1)(parts) When each kernel begins if each follows the one before, at that pace. Valid
 * until the next call. */
const double *sequence_begin(struct sequence *sequence, const float there[RESOURCE_COUNT]);

/* 64 bits of what a kernel costs, and of what `count` kernels from `first` on do one after the
 * other: what costs the same has the same. */
uint64_t cost_signature(const struct cost *cost);
static inline uint64_t sequence_signature(const struct sequence *sequence, uint32_t first,
                                          uint32_t count)
{
    return sequence->sums[first + count] - sequence->sums[first] * sequence->powers[count];
}

#endif
