/* candidates.h - the jobs of a space that are possible and differ, each with its bounds.
 *
 *     points of the grids --settings_job, strategy_simplify--> jobs --the same once--> candidates
 *     candidate = class + frame: bounds without lowering or simulating it
 *
 * A candidate is an outer point of a grid: its members (grid.inner) do the same work in a step, so
 * what bounds one of them bounds all. */
#ifndef SHARDPLAN_CANDIDATES_H
#define SHARDPLAN_CANDIDATES_H

#include "search/class_store.h"
#include "search/evaluate.h"
#include "search/pool.h"
#include "search/space.h"

struct candidate {
    uint32_t grid;
    uint32_t stream_class, frame; /* indices; frame UINT32_MAX: the class alone takes too much */
    uint32_t departures;          /* of its first member from the framework's defaults */
    uint64_t outer;               /* point of the grid / grid.inner_points */
    uint64_t jobs;                /* different ones: members, each with all of the allocator's */
    double step_floor_s;          /* INFINITY where there is no frame, or a timeless one */
    uint64_t device_floor;
};

struct candidates {
    const struct space *space; /* lent, as the next two */
    const struct model_config *config;
    const struct machine *machine;
    struct class_store *store; /* lent, or NULL */
    struct stream_class **classes;
    struct key *keys; /* (class_count) */
    struct frame **frames;
    struct evaluator **evaluators; /* one for each thread of the pool */
    uint32_t evaluator_count;
    struct candidate *at; /* (count) by step_floor_s, then departures */
    uint32_t *of;         /* (outer points of the space) candidates_find's */
    uint32_t class_count, frame_count, count;
    uint32_t blocks;     /* of the model */
    bool freezes;        /* it has parameters that are not trained */
    uint64_t impossible; /* points that no job is possible of; not counted with BEYOND_LEFT_OUT */
};

/* What becomes of what takes more than the limit. */
enum beyond {
    BEYOND_KNOWN,    /* all is known of it, too */
    BEYOND_COUNTED,  /* it is a candidate, but how long it takes is not asked, unless it keeps all
                        units: for a search in which something fits */
    BEYOND_LEFT_OUT, /* it is none, nor is it asked whether it is possible: for those who want what
                        fits, and count nothing */
};

struct candidates_options {
    uint32_t most_changes; /* from what was asked for; UINT32_MAX: any */
    uint64_t limit_bytes;  /* of a device: what takes more need not be told apart; 0: all is */
    enum beyond beyond;
    double least_tokens_per_s; /* of a GPU: what trains fewer, whatever the strategy, is left out */
    /* Whether a point is asked for; NULL: all are. Called by several threads. */
    bool (*wanted)(const void *context, const struct settings *settings);
    const void *wanted_context;
    struct class_store *store; /* takes streams from there and leaves what it makes; NULL: none */
    const volatile int *stop;  /* not 0: give up early; NULL: never */
    void (*progress)(void *context, double share); /* NULL: none */
    void *context;
};

/* ERR_INVALID, ERR_UNSUPPORTED: no point of the space is possible; the first one's message. The
 * caller owns *out, which is empty where it was told to stop: candidates_free. */
enum err_code candidates_new(const struct space *space, const struct model_config *config,
                             const struct machine *machine,
                             const struct candidates_options *options, struct pool *pool,
                             struct candidates *out, struct err *err);
void candidates_free(struct candidates *candidates);

/* The job of a point of a grid, in its simplest form, and the allocator's setting of it.
 * ERR_INVALID as settings_job. */
enum err_code candidates_job(const struct candidates *candidates, uint32_t grid, uint64_t point,
                             struct job *out, bool *expandable_segments, struct err *err);

/* The candidate that has the job of a point of a grid, the point's own or another's, which is not
 * known with BEYOND_LEFT_OUT; UINT32_MAX: none has. */
uint32_t candidates_find(const struct candidates *candidates, uint32_t grid, uint64_t point);

/* The different members of a candidate that the allocator does not tell apart: points, in
 * `points` (grid.inner_points of them). Returns their number. */
uint32_t candidate_members(const struct candidates *candidates, const struct candidate *candidate,
                           uint64_t *points);
/* How many jobs those are, each with all of the allocator's settings. */
uint64_t candidate_jobs(const struct candidates *candidates, const struct candidate *candidate);
/* The points that differ from a member by the allocator's settings alone, itself the first. */
uint32_t member_variants(const struct grid *grid, uint64_t point, uint64_t points[AXES_MOST]);

#endif
