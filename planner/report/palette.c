/* palette.c - see palette.h. */
#include "report/palette.h"

struct palette_entry palette_category(enum category category)
{
    static const struct palette_entry entries[CATEGORY_COUNT] = {
        [CATEGORY_PARAM] = {0x14142b, "parameters"},
        [CATEGORY_SHARDED_PARAM] = {0x332288, "sharded parameters"},
        [CATEGORY_UNSHARDED_PARAM] = {0x56b4e9, "unsharded parameters"},
        [CATEGORY_CAST_SHARD] = {0xd6ddff, "low-precision shards"},
        [CATEGORY_ALL_GATHER] = {PALETTE_COLLECTIVE, "all-gather buffers"},
        [CATEGORY_REDUCE_SCATTER] = {0xcdeab8, "reduce-scatter, gradients"},
        [CATEGORY_BUCKET] = {0x004d30, "gradient buckets"},
        [CATEGORY_ACTIVATION] = {PALETTE_FORWARD, "activations"},
        [CATEGORY_BACKWARD] = {PALETTE_BACKWARD, "backward"},
        [CATEGORY_GRADIENT] = {0x9c4a00, "gradients"},
        [CATEGORY_OPTIMIZER] = {PALETTE_OPTIMIZER, "optimizer"},
        [CATEGORY_INPUT] = {0xf0e442, "input"},
        [CATEGORY_BUFFER] = {0xddcc77, "buffers"},
        [CATEGORY_PERSISTENT] = {0x666666, "kept by the system"},
        [CATEGORY_WORKSPACE] = {0xa6a6a6, "workspaces"},
        [CATEGORY_OUTSIDE_ALLOCATOR] = {0xc7c7c7, "outside the allocator"},
    };
    return entries[category];
}

struct palette_entry palette_work(uint32_t i)
{
    static const struct palette_entry entries[PALETTE_WORKS] = {
        {PALETTE_FORWARD, "forward"},
        {PALETTE_BACKWARD, "backward"},
        {PALETTE_OPTIMIZER, "optimizer"},
        {PALETTE_COLLECTIVE, "collective"},
        {PALETTE_WAITING, "waits for slower ranks"},
        {PALETTE_COPY, "copy"},
        {PALETTE_HOST, "host issues"},
        {PALETTE_EXPOSED, "exposed communication"},
    };
    return entries[i];
}

unsigned palette_instruction(const struct plan_instruction *instruction)
{
    static const unsigned phases[] = {PALETTE_FORWARD, PALETTE_BACKWARD, PALETTE_OPTIMIZER};
    return plan_op_is_collective((enum plan_op)instruction->op) ? PALETTE_COLLECTIVE
           : instruction->op == PLAN_OPTIMIZER ? PALETTE_OPTIMIZER /* on any lane */
           : instruction->lane != LANE_COMPUTE ? PALETTE_COPY
                                               : phases[instruction->phase];
}
