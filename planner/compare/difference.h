/* difference.h - two plans side by side: settings, time by lane and kind, and unit by unit.
 *
 *     plan A --+
 *              +-- by name --> lanes, kinds, units --alike--> groups:
 *     plan B --+                                              "28 of 32 units: -1 all_gather"
 *
 * What happens in a step is counted from the programs, seconds are those of plan.json's "time". An
 * instruction of the sharding system belongs to the unit that its scope names, one of the model's
 * own code to the unit whose parameter was used last. */
#ifndef SHARDPLAN_DIFFERENCE_H
#define SHARDPLAN_DIFFERENCE_H

#include "plan/plan.h"

#include <jansson.h>

enum { SIDES = 2 }; /* A and B: index of every pair below */

struct difference_side { /* lent until difference_free */
    const struct plan *plan;
    const json_t *settings, *time; /* as in plan.json; each may be NULL */
};

struct difference_setting {
    const char *name;
    const json_t *value[SIDES]; /* lent; NULL: the side has no such setting */
};

struct difference_total { /* of a lane, or of a kind of work: a kernel's label, or an operation */
    const char *name;
    uint32_t count[SIDES]; /* kernels of a later step */
    double seconds[SIDES]; /* their sum; 0 without times */
};

struct difference_work {
    uint32_t count;
    uint64_t bytes; /* of collectives: the messages, the longer of what goes in and comes out; of
                       allocs: what is allocated; else 0 */
};

struct difference_unit {
    const char *name;  /* "layers.0"; "" for the root */
    bool there[SIDES]; /* units are matched by name */
    struct difference_work work[SIDES][PLAN_OP_COUNT];
    uint64_t held_bytes[SIDES]; /* allocated for it and alive when the last forward pass ends */
    double compute_s[SIDES], communication_s[SIDES];
    uint32_t group; /* index into groups */
};

struct difference_group {  /* units of both sides that changed alike: work and held bytes */
    uint32_t first, count; /* its first unit, and how many there are */
    bool changed;
};

struct difference {
    struct arena arena;                     /* owns the arrays */
    struct difference_setting *settings;    /* those that differ */
    struct difference_total *lanes, *kinds; /* kinds: most seconds apart first */
    struct difference_unit *units;          /* A's in order, then those that only B has */
    struct difference_group *groups;        /* in order of their first units */
    uint32_t setting_count, lane_count, kind_count, unit_count, group_count;
    bool timed; /* both sides have times */
};

/* Sets two plans that plan_verify accepts side by side. The caller owns what is in *out:
 * difference_free. */
void difference_of(const struct difference_side side[SIDES], struct difference *out);
void difference_free(struct difference *difference);

#endif
