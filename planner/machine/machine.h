/* machine.h - what a job runs on. */
#ifndef SHARDPLAN_MACHINE_H
#define SHARDPLAN_MACHINE_H

#include "machine/profile.h"

struct machine {
    struct profile profile; /* of a GPU, its node and the network: owned, profile_free */
    uint32_t gpus_per_node;
    bool expandable_segments; /* PYTORCH_ALLOC_CONF=expandable_segments:True */
};

#endif
