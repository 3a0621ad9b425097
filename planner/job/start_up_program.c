/* start_up_program.c - see start_up_program.h. */
#include "job/start_up_parts.h"

#include <stdlib.h>
#include <string.h>

const struct start_up_method *start_up_method(const struct start_up_job *job, enum start_up_way way)
{
    static const struct start_up_method *const of[SYSTEM_COUNT] = {
        [SYSTEM_FSDP2] = start_up_fsdp2_methods,   [SYSTEM_FSDP1] = start_up_fsdp1_methods,
        [SYSTEM_DDP] = start_up_ddp_methods,       [SYSTEM_ZERO1] = start_up_zero12_methods,
        [SYSTEM_ZERO2] = start_up_zero12_methods,  [SYSTEM_ZERO3] = start_up_zero3_methods,
        [SYSTEM_SINGLE] = start_up_single_methods,
    };
    const struct start_up_method *method = of[job->strategy->system];
    while (method && method->title && method->way != way)
        method++;
    return method && method->title ? method : NULL;
}

static bool is_state(const struct plan *plan, uint32_t buffer)
{
    for (uint32_t i = 0; i < plan->piece_count; i++)
        if (plan->pieces[i].buffer == buffer &&
            (plan->pieces[i].role == PIECE_EXP_AVG || plan->pieces[i].role == PIECE_EXP_AVG_SQ))
            return true;
    return false;
}

/* What lives between steps: the same buffers, resident here. */
static void keep_residents(struct program *p, bool fresh)
{
    for (uint32_t i = 0; i < p->of->buffer_count; i++) {
        struct buffer buffer = p->of->buffers[i];
        if ((!buffer.resident && !buffer.carried) || (fresh && is_state(p->of, i)))
            continue;
        buffer.resident = true;
        buffer.carried = false;
        p->kept[i] = plan_add_buffer(p->plan, &buffer);
    }
}

static uint32_t *none(uint32_t count)
{
    uint32_t *out = xmalloc((count + 1) * sizeof *out);
    memset(out, 0xff, (count + 1) * sizeof *out);
    return out;
}

struct plan *start_up_program(const struct start_up_job *job, enum start_up_way way, bool first)
{
    const struct plan *plan = job->plan;
    const struct start_up_method *method = start_up_method(job, way);
    struct program p = {
        .job = job, .of = plan, .plan = plan_new(), .tied = job->tied, .first = first};
    for (uint32_t i = 0; i < plan->param_count; i++)
        p.has_states |= plan_piece(plan, i, PIECE_EXP_AVG) != NULL;
    p.full = none(plan->param_count);
    p.shard = none(plan->param_count);
    p.secondary = none(plan->param_count);
    p.kept = none(plan->buffer_count);
    p.gone = xcalloc(plan->buffer_count + 1, sizeof *p.gone);
    p.plan->world = plan->world;
    p.plan->rank = plan->rank;
    for (uint32_t i = 0; i < plan->group_count; i++)
        plan_add_group(p.plan, plan->groups[i].name, (enum group_role)plan->groups[i].role,
                       plan->groups[i].ranks, plan->groups[i].stride);
    p.world = plan_add_group(p.plan, "world", GROUP_DATA, plan->world, 1);
    if (start_up_is_checkpoint(way))
        keep_residents(&p, method->fresh);
    start_up_emit(&p, PLAN_MARK, PLAN_MARK_START, PLAN_NO_GROUP);
    method->write(&p, way);
    start_up_emit(&p, PLAN_MARK, PLAN_MARK_END, PLAN_NO_GROUP);
    while (p.alive_count)
        start_up_dies(&p, p.alive[p.alive_count - 1]);
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        if (p.gone[i])
            start_up_emit(&p, PLAN_ALLOC, p.kept[i], PLAN_NO_GROUP);
    free(p.gone);
    free(p.full);
    free(p.shard);
    free(p.secondary);
    free(p.kept);
    free(p.alive);
    return p.plan;
}

uint64_t start_up_file_bytes(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    const struct start_up_method *method = start_up_method(job, way);
    return method->files ? method->files(job, way, rank) : 0;
}
