/* run.h - for the files of this folder: a step that is being simulated (simulate.c). */
#ifndef SHARDPLAN_RUN_H
#define SHARDPLAN_RUN_H

#include "simulate/simulation.h"

struct lane {
    uint32_t at, issued; /* places in the queue: the next, and the first that is not issued yet */
    uint32_t task;       /* that runs; NEVER: none */
    const struct cost *cost;  /* of it, or of the span's kernel that runs or is next */
    uint32_t kernel, further; /* of a span: that kernel's place in the sequence; how many follow */
    double first_issue;       /* ... when the host had issued the kernel at place 0, as it were */
    double lag;               /* ... the most that a kernel can be issued after it could begin, if
                                 place 0 began and was issued at once */
    double left_s;            /* of the kernel at `since`: seconds at full speed */
    double since, rate;       /* its speed, and from when on */
    double moment;            /* when it ends at that speed, or the next may start where none runs;
                                 INFINITY: when something else has ended */
};

struct share {                   /* of each resource */
    float asked[RESOURCE_COUNT]; /* by those of a kind that run */
    float there[RESOURCE_COUNT]; /* for them */
};

struct run {
    const struct simulation *s;
    const struct costs *costs;
    const double *scale;
    const struct timeline *slower; /* of a rank that is waited for; NULL: of none */
    struct timeline *out;
    struct lane lanes[LANES_MOST]; /* LANE_HOST's stays empty: the host thread is its own */
    double now;
    double host_s;         /* the host's clock */
    uint32_t host;         /* next task it issues */
    uint32_t running;      /* bits: lanes with a kernel that runs */
    uint32_t held;         /* bits: lanes with a collective that waits for a slower rank */
    bool changed;          /* ... since rates were last shared out, when */
    struct share share[2]; /* ... others and those served first had these */
    bool computes;         /* ... and a kernel ran that is no collective */
};

static inline const struct cost *cost_of(const struct run *r, const struct task *task)
{
    return &r->costs->kernels[task->kernel - r->costs->first];
}

/* When the host has issued those before a place of the sequence, and when they are done at a pace
 * (sequence_begin), from place 0 on. */
static inline double host_at(const struct run *r, uint32_t place)
{
    return r->costs->sequence->host[place] * r->scale[COST_HOST];
}

static inline double begin_at(const struct run *r, const double *begin, uint32_t place)
{
    if (r->costs->sequence->parts == 1)
        return begin[place];
    const double *const parts = begin + (size_t)SEQUENCE_PARTS * place;
    return parts[COST_GEMM] * r->scale[COST_GEMM] +
           parts[COST_ATTENTION] * r->scale[COST_ATTENTION] +
           parts[COST_MEMORY] * r->scale[COST_MEMORY];
}

#endif
