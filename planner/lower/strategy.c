/* strategy.c - strategies that come to the same program. */
#include "lower/lower.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

void strategy_simplify(struct strategy *s, uint32_t blocks)
{
    const uint32_t shard = s->world / (s->replicate ? s->replicate : 1);
    if (s->accumulate == 1)
        s->accumulate_sync = false;
    if (s->reshard == RESHARD_INT && s->reshard_ranks == 1)
        s->reshard = RESHARD_NEVER;
    if (s->reshard == RESHARD_INT && s->reshard_ranks == shard)
        s->reshard = RESHARD_ALWAYS;
    if (s->reshard != RESHARD_INT)
        s->reshard_ranks = 0;
    if (s->units != UNITS_BYTES)
        s->unit_bytes = 0;
    if (s->units != UNITS_BLOCKS)
        s->per_unit = 1;
    s->per_unit = least(s->per_unit, blocks);
    s->per_unit += s->per_unit == 0;
    const uint32_t units = (blocks + s->per_unit - 1) / s->per_unit;
    /* By default the root is not resharded; beside it there are units of blocks alone, but for
     * torchtitan's. */
    if (s->reshard == RESHARD_DEFAULT && s->units == UNITS_BLOCKS && s->keep_last >= units)
        s->reshard = RESHARD_NEVER;
    s->keep_last = s->reshard == RESHARD_NEVER ? 0 : least(s->keep_last, units);
    s->forward_prefetch = least(s->forward_prefetch, units ? units - 1 : 0);
    s->backward_prefetch = least(s->backward_prefetch, units ? units - 1 : 0);
}
