/* start_up_bytes.c - what is read and written of a model and its states; see start_up_program.h. */
#include "job/start_up_parts.h"

uint32_t start_up_saved_by(const struct plan *plan, enum start_up_way way)
{
    const uint32_t shards = plan_group_ranks(plan, plan_group_of_role(plan, GROUP_SHARD));
    return way == START_UP_RESHARD && shards > 1 ? shards / 2 : shards;
}

struct scope_of_files {
    enum { OWN, WHOLE, READ } what;
    uint32_t rank, saved_by; /* READ: by how many ranks */
};

/* Shards lie one after the other: those of `saved_by` ranks that a rank's own elements touch. */
static uint64_t touched_elements(const struct plan *plan, const struct plan_piece *piece,
                                 const struct scope_of_files *scope)
{
    const struct part part = plan_part(plan, piece, scope->rank);
    const uint64_t count = part_elements(&part), whole = start_up_elements(plan, piece->param);
    const uint64_t chunk =
        placement_padded(piece->placement, &plan->params[piece->param].shape, scope->saved_by);
    if (count == 0)
        return 0;
    const uint64_t from = part.first / chunk * chunk;
    const uint64_t to = ((part.first + count - 1) / chunk + 1) * chunk;
    return (to < whole ? to : whole) - from;
}

static uint64_t elements_of(const struct plan *plan, const struct plan_piece *piece,
                            const struct scope_of_files *scope)
{
    return scope->what == WHOLE  ? start_up_elements(plan, piece->param)
           : scope->what == READ ? touched_elements(plan, piece, scope)
                                 : start_up_own(plan, piece, scope->rank);
}

static struct start_up_bytes sum(const struct start_up_job *job, struct scope_of_files scope)
{
    const struct plan *plan = job->plan;
    struct start_up_bytes out = {0, 0};
    const uint32_t twice = start_up_tied(plan, job->tied);
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const struct plan_piece *const pieces[] = {plan_piece(plan, i, PIECE_STORE),
                                                   plan_piece(plan, i, PIECE_EXP_AVG),
                                                   plan_piece(plan, i, PIECE_EXP_AVG_SQ)};
        for (int k = 0; k < 3; k++) {
            if (!pieces[k])
                continue;
            const uint64_t bytes =
                elements_of(plan, pieces[k], &scope) * dtype_bytes(start_up_dtype(plan, pieces[k]));
            *(k ? &out.states : &out.parameters) += k == 0 && i == twice ? 2 * bytes : bytes;
        }
    }
    return out;
}

struct start_up_bytes start_up_shards(const struct start_up_job *job, uint32_t rank)
{
    return sum(job, (struct scope_of_files){.what = OWN, .rank = rank});
}

struct start_up_bytes start_up_reads(const struct start_up_job *job, uint32_t rank,
                                     uint32_t saved_by)
{
    return sum(job, (struct scope_of_files){.what = READ, .rank = rank, .saved_by = saved_by});
}

struct start_up_bytes start_up_whole(const struct start_up_job *job)
{
    return sum(job, (struct scope_of_files){.what = WHOLE});
}
