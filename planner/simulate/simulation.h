/* simulation.h - for the files of this folder: a plan as the simulator walks it. */
#ifndef SHARDPLAN_SIMULATION_H
#define SHARDPLAN_SIMULATION_H

#include "simulate/sequence.h"
#include "simulate/simulate.h"

#define NEVER UINT32_MAX

enum task_kind { TASK_RUN, TASK_SPAN, TASK_RECORD, TASK_WAIT, TASK_STALL };

struct task {
    uint32_t id;     /* instruction */
    uint32_t kernel; /* TASK_RUN; TASK_SPAN: the first, a place in the sequence */
    uint32_t count;  /* TASK_SPAN: kernels */
    uint32_t after;  /* task that must have ended: what a wait waits for, or a collective's
                        predecessor on its communicator; NEVER: none */
    float stall_s;   /* TASK_STALL */
    uint8_t kind, lane;
    bool collective;
    bool idle; /* TASK_STALL: waits for the device */
};

struct range { /* tasks first ... end - 1: each is like the one `period` before, from first + period
                  on */
    uint32_t first, end, period;
};

struct ranges { /* in order, apart from each other */
    struct range *of;
    uint32_t count, cap;
};

struct simulation {
    struct task *tasks;
    uint32_t *queue;                /* task indices, lane after lane */
    uint32_t first[LANES_MOST + 1]; /* of each lane in the queue */
    uint32_t lane_count;
    uint32_t count;
    uint32_t kernel_end; /* all TASK_RUN's kernels come before it */
    uint32_t repeat[2];  /* tasks of the micro-batch that repeats, in its last pass; else 0 */
    struct ranges alike; /* of a step that is simulated many times (periods.h); else nothing */
    bool alike_known;
};

/* Each lane's tasks, in host order: queue, which has room for all, and first[]. */
void simulation_fill_queues(struct simulation *simulation);

#endif
