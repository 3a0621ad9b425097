/* search.h - the fastest configurations that fit, and the proof that there are no others.
 *
 * Candidates are taken in order of the least time that their step can last. One is simulated only
 * if the least memory that it can take is below what everything faster takes; and its memory is
 * worked out in full only if, with the step that the simulation found, that is still so. So what is
 * found is the exact front of memory against time, and of everything else a bound has shown that it
 * does not belong there.
 *
 * What the allocator makes of tensors is often several gigabytes more than they are, and most of
 * that is in the compute stream's segments. Where these are the same for all members of a candidate
 * (system_fetches_apart), they are worked out for one before any is simulated
 * (search_options.pools). */
#ifndef SHARDPLAN_SEARCH_H
#define SHARDPLAN_SEARCH_H

#include "search/candidates.h"

struct found {
    uint32_t candidate; /* index into candidates.at */
    uint32_t weight;    /* departures from the framework's defaults, or changes */
    uint64_t point;     /* of its grid */
    double step_s;
    double update_s;       /* simulated: evaluation.update_s */
    uint64_t device_floor; /* it takes at least so much */
    uint64_t device_bytes; /* 0: not worked out */
};

/* What a slower configuration must have less of to be on the front. */
enum search_measure {
    SEARCH_BYTES,   /* of the device */
    SEARCH_CHANGES, /* from what was asked for: all that fit are equal otherwise */
};

struct search_options {
    enum search_measure measure;
    uint64_t limit_bytes; /* what a job may take of a device */
    uint64_t grain_bytes; /* a slower one must take so much less to be on the front; 1: the front to
                             the byte */
    uint32_t next;        /* of SEARCH_BYTES: so many of the fastest that fit are simulated, too, on
                             the front or not: of different candidates, with different steps */
    bool pools;           /* candidates are excluded by the compute stream's segments, too */
    const volatile int *stop;
    void (*progress)(void *context, double share);
    void *context;
};

struct search {
    struct found *front; /* (front_count) fastest first: each takes a grain less than all before it
                          */
    uint32_t front_count;
    struct found *simulated; /* (simulated_count) as they were */
    uint32_t simulated_count;
    uint64_t configurations; /* different jobs there are; each was simulated or excluded */
    uint64_t excluded;       /* by bounds, before simulation */
    uint64_t verified;       /* whose memory was worked out in full */
    uint64_t least_floor;    /* bytes that the thriftiest of all takes at least; UINT64_MAX: no host
                                has room for any */
    uint64_t beyond_host; /* of those that no host has room for, bytes that a process takes of its
                             host at the least; UINT64_MAX: there are none */
    bool interrupted;     /* options.stop was set: the front is what is proven so far, of which the
                             first is the fastest of all */
};

/* Same result whatever the number of threads. The caller owns *out: search_free. */
void search_run(const struct candidates *candidates, const struct search_options *options,
                struct pool *pool, struct search *out);
void search_free(struct search *search);

/* Fills in device_bytes of (count) found ones, side by side; UINT64_MAX: more than `enough` (0: is
 * not asked), which is known sooner. */
void search_verify(const struct candidates *candidates, struct pool *pool, struct found *found,
                   uint32_t count, uint64_t enough);
/* Fills in step_s of (count) found ones likewise; INFINITY where it cannot be simulated. */
void search_simulate(const struct candidates *candidates, struct pool *pool, struct found *found,
                     uint32_t count);

#endif
