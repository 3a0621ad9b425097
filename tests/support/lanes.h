/* lanes.h - lanes for tests that need some: those of FSDP2, in its order. */
#ifndef SHARDPLAN_LANES_H
#define SHARDPLAN_LANES_H

#include "base/kernel.h"

enum {
    COPY_IN_LANE = LANE_HOST + 1,
    ALL_GATHER_LANE,
    REDUCE_SCATTER_LANE,
    ALL_REDUCE_LANE,
    TEST_LANES
};

static const struct lane_info test_lane_infos[TEST_LANES] = {
    {"compute", false},   {"host", false},          {"copy_in", true},
    {"all_gather", true}, {"reduce_scatter", true}, {"all_reduce", false},
};

static const struct lane_list test_lanes = {test_lane_infos, TEST_LANES};

#endif
