/* start_up_fsdp2.c - the ways of FSDP2 (see start_up.h).
 *
 * Parameters are walked in the order of model.parameters() where a state dict is, and by unit where
 * fully_shard is called: a unit a call, the root last.
 *
 * With CPUOffloadPolicy shards are pinned memory of the host, each a copy of one that is not.
 * Collectives of initialisation are the host's, those of state dicts the device's. */
#include "job/start_up_parts.h"

#include <stdlib.h>

static const enum piece_role states[] = {PIECE_EXP_AVG, PIECE_EXP_AVG_SQ};
enum { STATES = sizeof states / sizeof states[0] };

/* ---- fully_shard ---- */

typedef void (*unit_call)(struct program *p, const struct plan_unit *unit);

static bool is_root(const struct plan_unit *unit)
{
    return unit->name[0] == '\0';
}

/* The root is called last, and has what is left. */
static void each_unit(struct program *p, bool root, unit_call call)
{
    for (uint32_t i = 0; i < p->of->unit_count; i++)
        if (is_root(&p->of->units[i]) == root)
            call(p, &p->of->units[i]);
}

static uint32_t param_of(const struct program *p, const struct plan_unit *unit, uint32_t i)
{
    return p->of->unit_params[unit->first_param + i];
}

static bool is_offloaded(const struct program *p)
{
    return p->job->strategy->offload;
}

static uint32_t born_shard(struct program *p, uint32_t param, uint8_t pool, uint64_t elements)
{
    return start_up_born(p, pool, CATEGORY_SHARDED_PARAM,
                         start_up_dtype(p->of, start_up_store(p, param)), elements);
}

/* Tensor.pin_memory: a copy of what then dies. */
static uint32_t pin(struct program *p, uint32_t param, uint32_t pageable, uint64_t elements)
{
    const uint32_t pinned = born_shard(p, param, LANE_HOST, elements);
    p->plan->buffers[pinned].pinned = true;
    start_up_dies(p, pageable);
    return pinned;
}

static void allocate_shard(struct program *p, uint32_t param)
{
    const uint64_t padded = start_up_padded(p->of, start_up_store(p, param));
    uint32_t shard = born_shard(p, param, LANE_COMPUTE, padded);
    if (is_offloaded(p)) {
        const uint32_t on_host = born_shard(p, param, LANE_HOST, padded);
        start_up_copy(p, PLAN_DEVICE_TO_HOST, shard, on_host);
        start_up_dies(p, shard);
        shard = pin(p, param, on_host, padded);
    }
    p->shard[param] = shard;
}

/* One call moves what it manages, makes its shards, and returns: whole parameters die then. */
static void shard_unit(struct program *p, const struct plan_unit *unit)
{
    for (uint32_t i = 0; i < unit->params; i++)
        start_up_move_param(p, param_of(p, unit, i));
    for (uint32_t i = 0; i < unit->params; i++)
        allocate_shard(p, param_of(p, unit, i));
    for (uint32_t i = 0; i < unit->params; i++)
        start_up_dies(p, p->full[param_of(p, unit, i)]);
}

static void initialise_whole(struct program *p, uint8_t pool)
{
    uint32_t *buffers = xcalloc(p->of->module_buffer_count + 1, sizeof *buffers);
    start_up_construct(p, pool, buffers);
    /* They belong to the last call, whose parameters are moved before them; where they are moved
     * makes no difference to what lives together with that call's shards. */
    each_unit(p, false, shard_unit);
    if (pool == LANE_HOST)
        start_up_move_buffers(p, buffers);
    each_unit(p, true, shard_unit);
    free(buffers);
}

static uint32_t allocate_unpadded(struct program *p, uint32_t param)
{
    return born_shard(p, param, is_offloaded(p) ? LANE_HOST : LANE_COMPUTE,
                      start_up_own(p->of, start_up_store(p, param), p->of->rank));
}

/* to_empty allocates what a rank has without padding, for each module that has it: a head that is
 * tied, too, whose parameter is swapped for what it gets (torch.utils.swap_tensors): what it had
 * until then dies ... */
static void empty_param(struct program *p, uint32_t param)
{
    p->shard[param] = allocate_unpadded(p, param);
}

static void empty_head(struct program *p)
{
    const uint32_t twice = start_up_tied(p->of, p->tied);
    if (twice == NONE)
        return;
    const uint32_t before = p->shard[twice];
    empty_param(p, twice);
    start_up_dies(p, before);
}

/* ... and reset_sharded_param gives those a padded copy that need it, and the host's a pinned one.
 */
static void pad_unit(struct program *p, const struct plan_unit *unit)
{
    const bool host = is_offloaded(p);
    for (uint32_t i = 0; i < unit->params; i++) {
        const uint32_t param = param_of(p, unit, i), own = p->shard[param];
        const struct plan_piece *piece = start_up_store(p, param);
        const uint64_t padded = start_up_padded(p->of, piece);
        const bool pads = start_up_own(p->of, piece, p->of->rank) != padded;
        if (!pads && !host)
            continue;
        uint32_t shard = pads ? born_shard(p, param, host ? LANE_HOST : LANE_COMPUTE, padded) : own;
        if (host)
            shard = pin(p, param, shard, padded);
        if (pads)
            start_up_dies(p, own);
        p->shard[param] = shard;
    }
}

static void empty_and_pad_unit(struct program *p, const struct plan_unit *unit)
{
    for (uint32_t i = 0; i < unit->params; i++)
        empty_param(p, param_of(p, unit, i));
    pad_unit(p, unit);
}

/* Modules in the order of registration: a unit where its first parameter is, the root's own
 * parameters between them, a head behind the blocks, and the root's padded behind all. */
static void initialise_meta(struct program *p)
{
    const struct plan *of = p->of;
    bool *done = xcalloc(of->unit_count + 1, sizeof *done);
    for (uint32_t i = 0; i < of->param_count; i++) {
        const struct plan_unit *unit = &of->units[of->params[i].unit];
        if (is_root(unit))
            empty_param(p, i);
        else if (!done[of->params[i].unit])
            empty_and_pad_unit(p, unit);
        done[of->params[i].unit] = true;
    }
    empty_head(p);
    start_up_module_buffers(p, is_offloaded(p) ? LANE_HOST : LANE_COMPUTE, NULL);
    each_unit(p, true, pad_unit);
    free(done);
}

/* ---- state dicts ---- */

/* _broadcast_tensors: one tensor at a time, whole on every rank, where shards are. */
static void broadcast_param(struct program *p, uint32_t param, uint32_t host)
{
    const enum dtype dtype = start_up_dtype(p->of, start_up_store(p, param));
    if (is_offloaded(p) && host != NONE) {
        start_up_move(p, PLAN_BROADCAST, WORK_BROADCAST, host, host, p->world);
        return;
    }
    const uint32_t whole =
        start_up_born(p, is_offloaded(p) ? LANE_HOST : LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype,
                      start_up_elements(p->of, param));
    if (host != NONE)
        start_up_copy(p, PLAN_HOST_TO_DEVICE, host, whole);
    start_up_move(p, PLAN_BROADCAST, WORK_BROADCAST, whole, whole, p->world);
    start_up_dies(p, whole);
}

static void load_and_broadcast(struct program *p)
{
    const uint32_t twice = start_up_tied(p->of, p->tied);
    initialise_meta(p);
    if (p->first)
        start_up_construct(p, LANE_HOST, NULL);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        broadcast_param(p, i, p->full[i]);
    if (twice != NONE)
        broadcast_param(p, twice, p->full[twice]);
}

/* A part of a checkpoint of shards, for the time that it takes to write it, or for good. What is on
 * the host is written from there, unless it is a part of a padded tensor
 * (checkpoint/filesystem.py, _SerialCpuLoader). */
static void stage_piece(struct program *p, const struct plan_piece *piece, bool keep)
{
    const enum dtype dtype = start_up_dtype(p->of, piece);
    const uint64_t own = start_up_own(p->of, piece, p->of->rank);
    const bool is_view = piece->role == PIECE_STORE && own != start_up_padded(p->of, piece);
    if (own == 0 || (is_offloaded(p) && !keep && !is_view))
        return;
    const uint32_t to = start_up_born(p, LANE_HOST, CATEGORY_PARAM, dtype, own);
    if (!is_offloaded(p))
        start_up_copy(p, PLAN_DEVICE_TO_HOST,
                      start_up_buffer(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype, own), to);
    if (!keep)
        start_up_dies(p, to);
}

/* What is gathered is first on the mesh's device. */
static uint32_t to_device(struct program *p, const struct plan_piece *piece)
{
    const enum dtype dtype = start_up_dtype(p->of, piece);
    const uint64_t own = start_up_own(p->of, piece, p->of->rank);
    const uint32_t to = start_up_born(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, own);
    start_up_copy(p, PLAN_HOST_TO_DEVICE,
                  start_up_buffer(p, LANE_HOST, CATEGORY_SHARDED_PARAM, dtype, own), to);
    return to;
}

/* What was gathered by columns lies rank by rank: it is put together in another tensor, beside it
 * (all_gather_tensor of torch's _functional_collectives.py, gather_dim 1). */
static uint32_t in_columns(struct program *p, uint32_t gathered)
{
    const struct buffer of = p->plan->buffers[gathered];
    const enum dtype dtype = (enum dtype)of.dtype;
    const uint32_t out =
        start_up_born(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, of.bytes / dtype_bytes(dtype));
    start_up_copy(p, PLAN_COMPUTE, gathered, out);
    start_up_dies(p, gathered);
    return out;
}

/* A DTensor is gathered into a tensor of padded shards, of which, by rows, the whole one is a view;
 * rank 0 copies that. */
static void gather_piece(struct program *p, const struct plan_piece *piece)
{
    const enum dtype dtype = start_up_dtype(p->of, piece);
    const uint64_t own = start_up_own(p->of, piece, p->of->rank);
    const uint64_t padded = start_up_padded(p->of, piece);
    const uint32_t ranks = plan_group_ranks(p->of, piece->group);
    const uint32_t moved = is_offloaded(p) ? to_device(p, piece) : NONE;
    if (piece->group == PLAN_NO_GROUP) { /* one rank has all: redistribute does nothing */
        if (p->first)
            stage_piece(p, piece, true);
        if (moved != NONE)
            start_up_dies(p, moved);
        return;
    }
    const uint32_t in = own == padded
                            ? start_up_buffer(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, padded)
                            : start_up_born(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, padded);
    uint32_t whole = start_up_born(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, padded * ranks);
    start_up_move(p, PLAN_ALL_GATHER, WORK_ALL_GATHER, in, whole, piece->group);
    if (piece->placement.kind == PLACEMENT_COLUMNS)
        whole = in_columns(p, whole);
    if (own != padded)
        start_up_dies(p, in);
    if (moved != NONE)
        start_up_dies(p, moved);
    if (p->first)
        start_up_copy(p, PLAN_DEVICE_TO_HOST, whole,
                      start_up_born(p, LANE_HOST, CATEGORY_PARAM, dtype,
                                    start_up_elements(p->of, piece->param)));
    start_up_dies(p, whole);
}

/* A stored shard is read onto the host, and what is wanted of it copied: chunk by chunk, of which
 * the first has the most. */
static void load_piece(struct program *p, const struct plan_piece *piece, uint32_t saved_by)
{
    const enum dtype dtype = start_up_dtype(p->of, piece);
    const uint64_t own = start_up_own(p->of, piece, p->of->rank);
    const uint64_t chunk =
        placement_padded(piece->placement, &p->of->params[piece->param].shape, saved_by);
    for (uint64_t done = 0; done < own; done += chunk) {
        const uint64_t wanted = own - done < chunk ? own - done : chunk;
        const uint32_t stored = start_up_born(p, LANE_HOST, CATEGORY_PARAM, dtype, chunk);
        if (!is_offloaded(p))
            start_up_copy(p, PLAN_HOST_TO_DEVICE,
                          start_up_buffer(p, LANE_HOST, CATEGORY_PARAM, dtype, wanted),
                          start_up_buffer(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype, wanted));
        start_up_dies(p, stored);
    }
}

static void save_piece(struct program *p, const struct plan_piece *piece, enum start_up_way way)
{
    if (way == START_UP_FULL || way == START_UP_FULL_OPTIMIZER)
        gather_piece(p, piece);
    else if (way == START_UP_LOAD || way == START_UP_RESHARD)
        load_piece(p, piece, start_up_saved_by(p->of, way));
    else
        stage_piece(p, piece, way == START_UP_ASYNC);
}

/* Where a rank has no element of a parameter, its states have none and are no piece of the plan;
 * they are gathered all the same. */
static const struct plan_piece *state_of(const struct program *p, uint32_t param,
                                         enum piece_role role)
{
    const struct plan_piece *own = plan_piece(p->of, param, role);
    const struct plan_piece *store = start_up_store(p, param);
    const bool is_left_out = p->has_states && !own && p->of->params[param].trainable &&
                             start_up_own(p->of, store, p->of->rank) == 0;
    return is_left_out ? store : own;
}

/* Step counters are on the host already; a state dict's of all is rank 0's. */
static void save_or_load(struct program *p, enum start_up_way way)
{
    const uint32_t twice = start_up_tied(p->of, p->tied);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        save_piece(p, start_up_store(p, i), way);
    if (twice != NONE)
        save_piece(p, start_up_store(p, twice), way);
    for (uint32_t i = 0; way != START_UP_FULL && i < p->of->param_count; i++)
        for (int k = 0; k < STATES; k++)
            if (state_of(p, i, states[k]))
                save_piece(p, state_of(p, i, states[k]), way);
}

/* ---- bytes of files ---- */

static uint64_t of_first(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    if (rank > 0)
        return 0;
    const struct start_up_bytes whole = start_up_whole(job);
    return whole.parameters + (way == START_UP_FULL_OPTIMIZER ? whole.states : 0);
}

/* Ranks that hold the same shards share the writing of them. */
static uint64_t of_shards(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    (void)way;
    const struct plan *plan = job->plan;
    const uint8_t group = plan_group_of_role(plan, GROUP_REPLICATE);
    const uint32_t replicas = plan_group_ranks(plan, group);
    const struct start_up_bytes own = start_up_shards(job, rank);
    const uint64_t bytes = own.parameters + own.states;
    return bytes / replicas + (plan_group_rank(plan, group, rank) < bytes % replicas);
}

static uint64_t of_reads(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    const struct start_up_bytes reads =
        start_up_reads(job, rank, start_up_saved_by(job->plan, way));
    return reads.parameters + reads.states;
}

static void meta(struct program *p, enum start_up_way way)
{
    (void)way;
    initialise_meta(p);
}

static void whole(struct program *p, enum start_up_way way)
{
    initialise_whole(p, way == START_UP_CPU ? LANE_HOST : LANE_COMPUTE);
}

static void broadcast(struct program *p, enum start_up_way way)
{
    (void)way;
    load_and_broadcast(p);
}

const struct start_up_method start_up_fsdp2_methods[] = {
    {START_UP_META, "meta device, fully_shard, to_empty", meta, NULL, false},
    {START_UP_CPU, "whole on each rank's CPU, fully_shard moves it unit by unit", whole, NULL,
     false},
    {START_UP_GPU, "whole on the GPU, then fully_shard", whole, NULL, false},
    {START_UP_BROADCAST, "rank 0 reads it, set_model_state_dict broadcasts", broadcast, of_first,
     false},
    {START_UP_SHARDED, "distributed.checkpoint.save", save_or_load, of_shards, false},
    {START_UP_ASYNC, "distributed.checkpoint.async_save: staged on the host", save_or_load,
     of_shards, false},
    {START_UP_FULL, "get_model_state_dict(full, cpu_offload), saved by rank 0", save_or_load,
     of_first, false},
    {START_UP_FULL_OPTIMIZER, "get_state_dict(full, cpu_offload) likewise", save_or_load, of_first,
     false},
    {START_UP_LOAD, "distributed.checkpoint.load, saved by as many ranks", save_or_load, of_reads,
     false},
    {START_UP_RESHARD, "the same, saved by half as many: shards are read whole", save_or_load,
     of_reads, false},
    {START_UP_WAYS, NULL, NULL, NULL, false},
};
