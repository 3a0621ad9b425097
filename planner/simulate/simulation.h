/* simulation.h - for the files of this folder: a plan as the simulator walks it. */
#ifndef SHARDPLAN_SIMULATION_H
#define SHARDPLAN_SIMULATION_H

#include "simulate/simulate.h"

#define NEVER UINT32_MAX

enum item_kind { ITEM_RUN, ITEM_RECORD, ITEM_WAIT, ITEM_STALL };

struct item {
    uint32_t id;     /* instruction */
    uint32_t kernel; /* ITEM_RUN */
    uint32_t after;  /* item that must have ended: what a wait waits for, or a collective's
                        predecessor on its communicator; NEVER: none */
    float stall_s;   /* ITEM_STALL */
    uint8_t kind, lane;
    bool collective;
    bool idle; /* ITEM_STALL: waits for the device */
};

struct simulation {
    struct item *items;
    uint32_t *queue;                /* item indices, lane after lane */
    uint32_t first[LANES_MOST + 1]; /* of each lane in the queue */
    uint32_t lane_count;
    uint32_t count;
};

#endif
