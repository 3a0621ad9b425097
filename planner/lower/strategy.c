/* strategy.c - strategies that come to the same program. */
#include "lower/lower.h"

#include "base/torch.h"

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

enum dtype strategy_own_reduce(const struct strategy *s, uint32_t torch)
{
    const bool stored = s->system == SYSTEM_FSDP2 && torch_does(torch, TORCH_REDUCES_AS_STORED);
    return stored || system_computes_as_stored(s->system) ? s->store : s->compute;
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
    if (s->optimizer != OPTIMIZER_ADAMW && s->optimizer != OPTIMIZER_SGD) /* they have but one */
        s->impl = IMPL_FOREACH;
    s->per_unit = least(s->per_unit, blocks);
    s->per_unit += s->per_unit == 0;
    const uint32_t units = (blocks + s->per_unit - 1) / s->per_unit;
    /* By default the root is not resharded; beside it there are units of blocks alone, but for
     * torchtitan's. */
    if (s->reshard == RESHARD_DEFAULT && s->units == UNITS_BLOCKS && s->keep_last >= units)
        s->reshard = RESHARD_NEVER;
    s->keep_last = s->reshard == RESHARD_NEVER ? 0 : least(s->keep_last, units);
    if (s->reshard == RESHARD_NEVER)
        s->keep_units = NULL;
    s->forward_prefetch = least(s->forward_prefetch, units ? units - 1 : 0);
    s->backward_prefetch = least(s->backward_prefetch, units ? units - 1 : 0);
}

/* ---- on one stream ---- */

static bool is_block(const struct graph *graph, uint32_t module)
{
    return module != MODULE_ROOT && graph->modules[module].role == ROLE_BLOCK;
}

static uint32_t count_blocks(const struct graph *graph)
{
    uint32_t blocks = 0;
    for (uint32_t m = 0; m < graph->module_count; m++)
        blocks += is_block(graph, m);
    return blocks;
}

/* Blocks with parameters, where parameters are listed module by module. */
static uint32_t count_with_params(const struct graph *graph)
{
    uint32_t blocks = 0, last = MODULE_ROOT;
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const uint32_t module = graph->params[p].module;
        if (module == GRAPH_NONE || module == last || !is_block(graph, module))
            continue;
        if (last != MODULE_ROOT && module < last)
            return 0;
        last = module;
        blocks++;
    }
    return blocks;
}

bool stream_blocks_follow(const struct graph *graph, const struct stream *stream)
{
    const uint32_t blocks = count_blocks(graph);
    uint32_t forward = 0, last = MODULE_ROOT, last_back = MODULE_ROOT;
    bool follow = true;
    for (uint32_t i = 0; i < stream->step_count && follow; i++) {
        const struct stream_step step = stream->steps[i];
        if (step.kind == STEP_POST_FORWARD) {
            if (!is_block(graph, step.arg)) {
                follow = forward == 0 || forward == blocks;
                continue;
            }
            follow = last == MODULE_ROOT || step.arg > last;
            last = step.arg;
            forward++;
        } else if (step.kind == STEP_PRE_BACKWARD && is_block(graph, step.arg)) {
            follow = last_back == MODULE_ROOT || step.arg < last_back;
            last_back = step.arg;
        }
    }
    return follow && forward == blocks && count_with_params(graph) == blocks;
}

/* What FSDP2 fetches by itself in backward is the unit whose forward ended before that of the one
 * that it comes to. Where blocks follow each other, so do the units of blocks, and a list of one
 * names just that unit; for the first of them there is no list. */
void strategy_unify(struct strategy *s, bool blocks_follow)
{
    if (blocks_follow && s->system == SYSTEM_FSDP2 && s->backward_prefetch == 1 &&
        !strategy_wraps_inside(s))
        s->backward_prefetch = 0;
}

void strategy_until_update(struct strategy *s)
{
    s->impl = IMPL_FOREACH;
}
