/* palette.c - see palette.h. */
#include "report/palette.h"

struct palette_entry palette_category(enum category category)
{
    static const struct palette_entry entries[CATEGORY_COUNT] = {
        [CATEGORY_PARAM] = {0x1f3a5f, "parameters"},
        [CATEGORY_SHARDED_PARAM] = {0x2f4b7c, "sharded parameters"},
        [CATEGORY_UNSHARDED_PARAM] = {0x64b5cd, "unsharded parameters"},
        [CATEGORY_CAST_SHARD] = {0x9ad0de, "low-precision shards"},
        [CATEGORY_ALL_GATHER] = {PALETTE_COLLECTIVE, "all-gather buffers"},
        [CATEGORY_REDUCE_SCATTER] = {0x2f7d4f, "reduce-scatter, gradients"},
        [CATEGORY_BUCKET] = {0x8fc49c, "gradient buckets"},
        [CATEGORY_ACTIVATION] = {PALETTE_FORWARD, "activations"},
        [CATEGORY_BACKWARD] = {PALETTE_BACKWARD, "backward"},
        [CATEGORY_GRADIENT] = {0xe9b08a, "gradients"},
        [CATEGORY_OPTIMIZER] = {PALETTE_OPTIMIZER, "optimizer"},
        [CATEGORY_INPUT] = {0xda8bc3, "input"},
        [CATEGORY_BUFFER] = {0xccb974, "buffers"},
        [CATEGORY_PERSISTENT] = {0x7f7f7f, "kept by the system"},
        [CATEGORY_WORKSPACE] = {0xa6a6a6, "workspaces"},
        [CATEGORY_OUTSIDE_ALLOCATOR] = {0xc7c7c7, "outside the allocator"},
    };
    return entries[category];
}

unsigned palette_instruction(const struct plan_instruction *instruction)
{
    static const unsigned phases[] = {PALETTE_FORWARD, PALETTE_BACKWARD, PALETTE_OPTIMIZER};
    return plan_op_is_collective((enum plan_op)instruction->op) ? PALETTE_COLLECTIVE
           : instruction->op == PLAN_OPTIMIZER ? PALETTE_OPTIMIZER /* on any lane */
           : instruction->lane != LANE_COMPUTE ? PALETTE_COPY
                                               : phases[instruction->phase];
}
