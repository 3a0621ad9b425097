/* simulate.h - a step as it will happen: which kernel runs when, on which stream.
 *
 *     host            |i|i|i| issue  |i|i|i|                 one thread, in program order
 *     compute             |== mm ==|        |== mm ==|       each stream in its own order
 *     all_gather          |=== all_gather ===|               one FIFO a communicator
 *
 * A kernel starts when the host has issued it, its stream is free, the events its stream waits for
 * have happened, and (a collective) the one before it on its communicator has ended. From then on
 * it proceeds at a rate: kernels that run at once share each resource, collectives before others,
 * and where they ask for more than there is, each gets its part. The host blocks only where the
 * program says so (waits on the host stream: CPU offload). The step begins with nothing queued, as
 * after a loss that was read. Same input, same output, to the bit.
 *
 * Ranks run the same program, some of them slower (cost/slowest.h). The slowest waits for nobody:
 * simulate() with its costs gives the step of the job. Every other rank is through with a
 * collective when the slowest is: simulate_beside() gives such a rank's own step, as its profiler
 * would show it. A collective that waits takes no part of the machine: NCCL's blocks that spin
 * meanwhile would slow their own rank, which is not the one that others wait for. */
#ifndef SHARDPLAN_SIMULATE_H
#define SHARDPLAN_SIMULATE_H

#include "cost/cost.h"
#include "plan/plan.h"

/* What a moment of the step is spent on. */
#define SPENT_MAP(X)                                                                               \
    X(COMPUTE, "compute") /* the compute stream runs what arithmetic bounds */                     \
    X(MEMORY, "memory")   /* ... or what memory bandwidth bounds */                                \
    X(NETWORK, "network") /* it stands still while a collective runs */                            \
    X(RANKS, "ranks")     /* ... while one waits for slower ranks */                               \
    X(COPY, "copy")       /* ... while another stream copies */                                    \
    X(HOST, "host")       /* ... until the host issues something */

enum spent {
#define X(name, text) SPENT_##name,
    SPENT_MAP(X)
#undef X
        SPENT_COUNT
};

struct simulation; /* a plan, ready to be simulated: opaque */

/* Something that holds the host up at an alloc of the program: the caching allocator gives segments
 * back to the driver, for which the device must be idle, and asks for new ones. */
struct stall {
    uint32_t instruction;
    double host_s;
    bool idle; /* begins when the device has done all it was given */
};

/* The plan is lent for the call and passes plan_verify. `stalls` are in order of instructions. */
struct simulation *simulation_new(const struct plan *plan, const struct stall *stalls,
                                  uint32_t stall_count);
void simulation_free(struct simulation *simulation); /* NULL is allowed */

/* Of a plan with repeats (plan/repeat.h): the micro-batch that repeats is simulated so many times,
 * 0 among them, its stalls each time. simulation_new simulates it once, as it stands there. */
struct simulation *simulation_of_passes(const struct plan *plan, const struct stall *stalls,
                                        uint32_t stall_count, uint32_t times);

/* What was simulated: kernels, records, waits and stalls of a later step, in host order. */
uint32_t simulation_tasks(const struct simulation *simulation);
uint32_t simulation_instruction(const struct simulation *simulation, uint32_t task);

struct timeline {                /* seconds from the start of the step */
    double *issue_s;             /* (tasks) the host has issued it */
    double *begin_s, *end_s;     /* (tasks) on its stream; of records and waits: when they pass */
    double *done_s;              /* (tasks) of a collective: its own part is done; until end_s it
                                    waits for slower ranks */
    double step_s;               /* until everything is done */
    double compute_s;            /* the compute stream works, collectives on it aside */
    double communication_s;      /* at least one collective runs, or waits for slower ranks */
    double waiting_s;            /* of it: none runs, one waits */
    double exposed_s;            /* one does and the compute stream does not work */
    double host_s;               /* the host thread issues */
    double spent_s[SPENT_COUNT]; /* adds up to step_s */
    uint32_t passed;             /* tasks of an outline that were passed over (periods.h) */
};

/* Room for the tasks of a simulation; timeline_free. */
struct timeline timeline_new(const struct simulation *simulation);
void timeline_free(struct timeline *timeline);

/* Of a plan with repeats, after it was simulated: what one more pass takes, *period_s. True where
 * each more takes as much: all that is on a stream in that micro-batch came as much later as in
 * the one before, and the host got no further behind. */
bool simulation_is_steady(const struct simulation *simulation, const struct timeline *timeline,
                          double *period_s);

/* Everything behind the micro-batch that repeats, later than it was simulated: a rank that is
 * waited for, and slower with each repeat that is left out. */
void simulation_delay(const struct simulation *simulation, double seconds,
                      struct timeline *timeline);

/* Simulates one step. `scale` multiplies the times of each class (COST_CLASSES of them); NULL: 1,
 * which it is for outlines (costs->sequence, unless joined.h made it). Spans count as computing,
 * memory-bound or not. *out is reused from call to call. */
void simulate(const struct simulation *simulation, const struct costs *costs, const double *scale,
              struct timeline *out);

/* The same of a rank beside a slower one of the same simulation, whose timeline is lent: no
 * collective ends before it does there, nor the step. */
void simulate_beside(const struct simulation *simulation, const struct costs *costs,
                     const double *scale, const struct timeline *slower, struct timeline *out);

/* The same without the short cut for kernels that follow each other undisturbed: slower, and equal
 * to the bit; of an outline without passing over blocks, too, and equal to a rounding. `slower` may
 * be NULL. For tests of these short cuts. */
void simulate_each_event(const struct simulation *simulation, const struct costs *costs,
                         const double *scale, const struct timeline *slower, struct timeline *out);

const char *spent_name(enum spent spent);

#endif
