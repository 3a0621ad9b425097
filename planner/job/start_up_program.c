/* start_up_program.c - see start_up_program.h.
 *
 * Parameters are walked in the order of model.parameters() where a state dict is, and by unit where
 * fully_shard is called: a unit a call, the root last. */
#include "job/start_up_program.h"

#include <stdlib.h>
#include <string.h>

static const enum piece_role states[] = {PIECE_EXP_AVG, PIECE_EXP_AVG_SQ};
enum { STATES = sizeof states / sizeof states[0], NONE = UINT32_MAX };

struct program {
    const struct plan *of; /* the step's plan */
    struct plan *plan;     /* what is written */
    bool tied, first, has_states;
    uint8_t world;   /* group of all ranks */
    uint32_t *full;  /* (params) the whole parameter, while it is there */
    uint32_t *shard; /* (params) the rank's part */
    uint32_t untied; /* the head's own part, between to_empty and the end of it; NONE */
    uint32_t *alive; /* of buffers, in the order of birth; NONE: dead */
    uint32_t alive_count, alive_cap;
};

uint32_t start_up_saved_by(const struct plan *plan, enum start_up_way way)
{
    const uint32_t shards = plan_group_ranks(plan, plan_group_of_role(plan, GROUP_SHARD));
    return way == START_UP_RESHARD && shards > 1 ? shards / 2 : shards;
}

/* ---- births, deaths, moves ---- */

static uint32_t new_buffer(struct program *p, uint8_t pool, enum category category,
                           enum dtype dtype, uint64_t elements)
{
    const struct buffer buffer = {
        .bytes = elements * dtype_bytes(dtype),
        .dtype = (uint8_t)dtype,
        .category = (uint8_t)category,
        .pool = pool,
        .shape = flat(elements),
    };
    return plan_add_buffer(p->plan, &buffer);
}

static void emit(struct program *p, enum plan_op op, uint32_t arg, uint8_t group)
{
    plan_add_instruction(p->plan,
                         &(struct plan_instruction){.op = (uint8_t)op, .arg = arg, .group = group});
}

static uint32_t born(struct program *p, uint8_t pool, enum category category, enum dtype dtype,
                     uint64_t elements)
{
    const uint32_t buffer = new_buffer(p, pool, category, dtype, elements);
    emit(p, PLAN_ALLOC, buffer, PLAN_NO_GROUP);
    ARRAY_GROW(p->alive, p->alive_count, p->alive_cap);
    p->alive[p->alive_count++] = buffer;
    return buffer;
}

static void dies(struct program *p, uint32_t buffer)
{
    emit(p, PLAN_FREE, buffer, PLAN_NO_GROUP);
    for (uint32_t i = p->alive_count; i-- > 0;)
        if (p->alive[i] == buffer) {
            p->alive[i] = NONE;
            while (p->alive_count && p->alive[p->alive_count - 1] == NONE)
                p->alive_count--;
            return;
        }
}

static void move(struct program *p, enum plan_op op, enum work_kind work, uint32_t from,
                 uint32_t to, uint8_t group)
{
    const struct operand in = plan_whole_buffer(p->plan, from);
    const struct operand out = plan_whole_buffer(p->plan, to);
    emit(p, op, plan_add_kernel(p->plan, work, ATEN_COPY_, 1, &in, 1, &out), group);
}

static void copy(struct program *p, enum plan_op op, uint32_t from, uint32_t to)
{
    move(p, op, WORK_COPY, from, to, PLAN_NO_GROUP);
}

/* ---- parameters ---- */

static const struct plan_piece *store_of(const struct program *p, uint32_t param)
{
    return plan_piece(p->of, param, PIECE_STORE);
}

static enum dtype dtype_of(const struct plan *plan, const struct plan_piece *piece)
{
    return (enum dtype)plan->buffers[piece->buffer].dtype;
}

static uint64_t whole_elements(const struct plan *plan, uint32_t param)
{
    return shape_elements(&plan->params[param].shape);
}

static uint64_t own_elements(const struct plan *plan, const struct plan_piece *piece, uint32_t rank)
{
    const struct part part = plan_part(plan, piece, rank);
    return part_elements(&part);
}

/* What every rank sets aside: fully_shard pads shards, so that all gather alike. */
static uint64_t padded_elements(const struct plan *plan, const struct plan_piece *piece)
{
    return placement_padded(piece->placement, &plan->params[piece->param].shape,
                            plan_group_ranks(plan, piece->group));
}

static void allocate_whole(struct program *p, uint32_t param, uint8_t pool)
{
    p->full[param] = born(p, pool, CATEGORY_PARAM, dtype_of(p->of, store_of(p, param)),
                          whole_elements(p->of, param));
}

/* The token embedding is the first parameter of its shape; the head has the same and is dropped for
 * it. */
static uint32_t tied_again(const struct plan *plan, bool tied)
{
    for (uint32_t i = 0; tied && i < plan->param_count; i++)
        if (plan->params[i].shape.rank == 2)
            return i;
    return NONE;
}

/* Buffers of modules, which are what they are in a step. */
static void module_buffers(struct program *p, uint8_t pool, uint32_t *made)
{
    for (uint32_t i = 0; i < p->of->module_buffer_count; i++) {
        const struct buffer *b = &p->of->buffers[p->of->module_buffers[i].buffer];
        const uint32_t buffer = born(p, pool, CATEGORY_BUFFER, (enum dtype)b->dtype,
                                     b->bytes / dtype_bytes((enum dtype)b->dtype));
        if (made)
            made[i] = buffer;
    }
}

/* The whole model as its constructor leaves it. A head that is tied is made before it is. */
static void construct(struct program *p, uint8_t pool, uint32_t *buffers)
{
    const uint32_t twice = tied_again(p->of, p->tied);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        allocate_whole(p, i, pool);
    if (twice != NONE)
        dies(p, born(p, pool, CATEGORY_PARAM, dtype_of(p->of, store_of(p, twice)),
                     whole_elements(p->of, twice)));
    module_buffers(p, pool, buffers);
}

/* ---- fully_shard ---- */

typedef void (*unit_call)(struct program *p, const struct plan_unit *unit);

/* The root is called last, and has what is left. */
static void each_unit(struct program *p, bool root, unit_call call)
{
    for (uint32_t i = 0; i < p->of->unit_count; i++)
        if ((p->of->units[i].name[0] == '\0') == root)
            call(p, &p->of->units[i]);
}

static uint32_t param_of(const struct program *p, const struct plan_unit *unit, uint32_t i)
{
    return p->of->unit_params[unit->first_param + i];
}

static void allocate_shard(struct program *p, uint32_t param)
{
    const struct plan_piece *piece = store_of(p, param);
    p->shard[param] = born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype_of(p->of, piece),
                           padded_elements(p->of, piece));
}

/* One call moves what it manages, makes its shards, and returns: whole parameters die then. */
static void shard_unit(struct program *p, const struct plan_unit *unit)
{
    for (uint32_t i = 0; i < unit->params; i++) {
        const uint32_t param = param_of(p, unit, i), from = p->full[param];
        if (p->plan->buffers[from].pool != LANE_HOST)
            continue;
        allocate_whole(p, param, LANE_COMPUTE);
        copy(p, PLAN_HOST_TO_DEVICE, from, p->full[param]);
        dies(p, from);
    }
    for (uint32_t i = 0; i < unit->params; i++)
        allocate_shard(p, param_of(p, unit, i));
    for (uint32_t i = 0; i < unit->params; i++)
        dies(p, p->full[param_of(p, unit, i)]);
}

static void shard_module_buffers(struct program *p, const uint32_t *from)
{
    uint32_t *to = xcalloc(p->of->module_buffer_count + 1, sizeof *to);
    module_buffers(p, LANE_COMPUTE, to);
    for (uint32_t i = 0; i < p->of->module_buffer_count; i++) {
        copy(p, PLAN_HOST_TO_DEVICE, from[i], to[i]);
        dies(p, from[i]);
    }
    free(to);
}

static void initialise_whole(struct program *p, uint8_t pool)
{
    uint32_t *buffers = xcalloc(p->of->module_buffer_count + 1, sizeof *buffers);
    construct(p, pool, buffers);
    /* They belong to the last call, whose parameters are moved before them; where they are moved
     * makes no difference to what lives together with that call's shards. */
    each_unit(p, false, shard_unit);
    if (pool == LANE_HOST)
        shard_module_buffers(p, buffers);
    each_unit(p, true, shard_unit);
    free(buffers);
}

static uint32_t allocate_unpadded(struct program *p, uint32_t param)
{
    const struct plan_piece *piece = store_of(p, param);
    return born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype_of(p->of, piece),
                own_elements(p->of, piece, p->of->rank));
}

/* to_empty allocates what a rank has without padding, for each module that has it: a head that is
 * tied gets its own ... */
static void empty_unit(struct program *p, const struct plan_unit *unit)
{
    const uint32_t twice = tied_again(p->of, p->tied);
    for (uint32_t i = 0; i < unit->params; i++) {
        const uint32_t param = param_of(p, unit, i);
        p->shard[param] = allocate_unpadded(p, param);
        if (param == twice)
            p->untied = allocate_unpadded(p, param);
    }
}

/* ... and reset_sharded_param gives those a padded copy that need it. */
static void pad_unit(struct program *p, const struct plan_unit *unit)
{
    for (uint32_t i = 0; i < unit->params; i++) {
        const uint32_t param = param_of(p, unit, i), own = p->shard[param];
        const struct plan_piece *piece = store_of(p, param);
        if (own_elements(p->of, piece, p->of->rank) == padded_elements(p->of, piece))
            continue;
        allocate_shard(p, param);
        dies(p, own);
    }
}

static void empty_and_pad_unit(struct program *p, const struct plan_unit *unit)
{
    empty_unit(p, unit);
    pad_unit(p, unit);
}

static void initialise_meta(struct program *p)
{
    module_buffers(p, LANE_COMPUTE, NULL);
    each_unit(p, true, empty_unit);
    each_unit(p, false, empty_and_pad_unit);
    each_unit(p, true, pad_unit);
    if (p->untied != NONE)
        dies(p, p->untied);
}

/* ---- state dicts ---- */

/* _broadcast_tensors: one tensor at a time, whole on every rank. */
static void broadcast_param(struct program *p, uint32_t param, uint32_t host)
{
    const enum dtype dtype = dtype_of(p->of, store_of(p, param));
    const uint32_t whole =
        born(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, whole_elements(p->of, param));
    if (host != NONE)
        copy(p, PLAN_HOST_TO_DEVICE, host, whole);
    move(p, PLAN_BROADCAST, WORK_BROADCAST, whole, whole, p->world);
    dies(p, whole);
}

static void load_and_broadcast(struct program *p)
{
    const uint32_t twice = tied_again(p->of, p->tied);
    initialise_meta(p);
    if (p->first)
        construct(p, LANE_HOST, NULL);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        broadcast_param(p, i, p->full[i]);
    if (twice != NONE)
        broadcast_param(p, twice, p->full[twice]);
}

/* A part of a checkpoint of shards, for the time that it takes to write it, or for good. */
static void stage_piece(struct program *p, const struct plan_piece *piece, bool keep)
{
    const enum dtype dtype = dtype_of(p->of, piece);
    const uint64_t own = own_elements(p->of, piece, p->of->rank);
    if (own == 0)
        return;
    const uint32_t from = new_buffer(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype, own);
    const uint32_t to = born(p, LANE_HOST, CATEGORY_PARAM, dtype, own);
    copy(p, PLAN_DEVICE_TO_HOST, from, to);
    if (!keep)
        dies(p, to);
}

/* A DTensor is gathered into a tensor of padded shards, of which the whole one is a view; rank 0
 * copies that. */
static void gather_piece(struct program *p, const struct plan_piece *piece)
{
    const enum dtype dtype = dtype_of(p->of, piece);
    const uint64_t own = own_elements(p->of, piece, p->of->rank);
    const uint64_t padded = padded_elements(p->of, piece);
    const uint32_t ranks = plan_group_ranks(p->of, piece->group);
    if (piece->group == PLAN_NO_GROUP) { /* one rank has all: redistribute does nothing */
        if (p->first)
            stage_piece(p, piece, true);
        return;
    }
    const uint32_t in = own == padded
                            ? new_buffer(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, padded)
                            : born(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, padded);
    const uint32_t whole = born(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, dtype, padded * ranks);
    move(p, PLAN_ALL_GATHER, WORK_ALL_GATHER, in, whole, piece->group);
    if (own != padded)
        dies(p, in);
    if (p->first)
        copy(p, PLAN_DEVICE_TO_HOST, whole,
             born(p, LANE_HOST, CATEGORY_PARAM, dtype, whole_elements(p->of, piece->param)));
    dies(p, whole);
}

/* A stored shard is read onto the host, and what is wanted of it copied: chunk by chunk, of which
 * the first has the most. */
static void load_piece(struct program *p, const struct plan_piece *piece, uint32_t saved_by)
{
    const enum dtype dtype = dtype_of(p->of, piece);
    const uint64_t own = own_elements(p->of, piece, p->of->rank);
    const uint64_t chunk =
        placement_padded(piece->placement, &p->of->params[piece->param].shape, saved_by);
    for (uint64_t done = 0; done < own; done += chunk) {
        const uint64_t wanted = own - done < chunk ? own - done : chunk;
        const uint32_t stored = born(p, LANE_HOST, CATEGORY_PARAM, dtype, chunk);
        copy(p, PLAN_HOST_TO_DEVICE, new_buffer(p, LANE_HOST, CATEGORY_PARAM, dtype, wanted),
             new_buffer(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype, wanted));
        dies(p, stored);
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
    const struct plan_piece *store = store_of(p, param);
    const bool is_left_out = p->has_states && !own && p->of->params[param].trainable &&
                             own_elements(p->of, store, p->of->rank) == 0;
    return is_left_out ? store : own;
}

/* Step counters are on the host already; a state dict's of all is rank 0's. */
static void save_or_load(struct program *p, enum start_up_way way)
{
    const uint32_t twice = tied_again(p->of, p->tied);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        save_piece(p, store_of(p, i), way);
    if (twice != NONE)
        save_piece(p, store_of(p, twice), way);
    for (uint32_t i = 0; way != START_UP_FULL && i < p->of->param_count; i++)
        for (int k = 0; k < STATES; k++)
            if (state_of(p, i, states[k]))
                save_piece(p, state_of(p, i, states[k]), way);
}

/* What lives between steps: the same buffers, resident here. */
static void keep_residents(struct program *p)
{
    for (uint32_t i = 0; i < p->of->buffer_count; i++) {
        struct buffer buffer = p->of->buffers[i];
        if (!buffer.resident && !buffer.carried)
            continue;
        buffer.resident = true;
        buffer.carried = false;
        plan_add_buffer(p->plan, &buffer);
    }
}

struct plan *start_up_program(const struct plan *plan, bool tied, enum start_up_way way, bool first)
{
    struct program p = {.of = plan, .plan = plan_new(), .tied = tied, .first = first};
    p.untied = NONE;
    for (uint32_t i = 0; i < plan->param_count; i++)
        p.has_states |= plan_piece(plan, i, PIECE_EXP_AVG) != NULL;
    p.full = xmalloc((plan->param_count + 1) * sizeof *p.full);
    p.shard = xmalloc((plan->param_count + 1) * sizeof *p.shard);
    memset(p.full, 0xff, (plan->param_count + 1) * sizeof *p.full);
    memset(p.shard, 0xff, (plan->param_count + 1) * sizeof *p.shard);
    p.plan->world = plan->world;
    p.plan->rank = plan->rank;
    for (uint32_t i = 0; i < plan->group_count; i++)
        plan_add_group(p.plan, plan->groups[i].name, (enum group_role)plan->groups[i].role,
                       plan->groups[i].ranks, plan->groups[i].stride);
    p.world = plan_add_group(p.plan, "world", GROUP_DATA, plan->world, 1);
    if (start_up_is_checkpoint(way)) {
        keep_residents(&p);
        save_or_load(&p, way);
    } else if (way == START_UP_META) {
        initialise_meta(&p);
    } else if (way == START_UP_BROADCAST) {
        load_and_broadcast(&p);
    } else {
        initialise_whole(&p, way == START_UP_CPU ? LANE_HOST : LANE_COMPUTE);
    }
    emit(&p, PLAN_MARK, PLAN_MARK_END, PLAN_NO_GROUP);
    while (p.alive_count)
        dies(&p, p.alive[p.alive_count - 1]);
    free(p.full);
    free(p.shard);
    free(p.alive);
    return p.plan;
}

/* ---- bytes of files ---- */

struct scope_of_files {
    enum { OWN, WHOLE, READ } what;
    uint32_t rank, saved_by; /* READ: by how many ranks */
};

/* Shards lie one after the other: those of `saved_by` ranks that a rank's own elements touch. */
static uint64_t touched_elements(const struct plan *plan, const struct plan_piece *piece,
                                 const struct scope_of_files *scope)
{
    const struct part part = plan_part(plan, piece, scope->rank);
    const uint64_t count = part_elements(&part), whole = whole_elements(plan, piece->param);
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
    return scope->what == WHOLE  ? whole_elements(plan, piece->param)
           : scope->what == READ ? touched_elements(plan, piece, scope)
                                 : own_elements(plan, piece, scope->rank);
}

static struct start_up_bytes sum(const struct plan *plan, bool tied, struct scope_of_files scope)
{
    struct start_up_bytes out = {0, 0};
    const uint32_t twice = tied_again(plan, tied);
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const struct plan_piece *const pieces[] = {plan_piece(plan, i, PIECE_STORE),
                                                   plan_piece(plan, i, PIECE_EXP_AVG),
                                                   plan_piece(plan, i, PIECE_EXP_AVG_SQ)};
        for (int k = 0; k < 3; k++) {
            if (!pieces[k])
                continue;
            const uint64_t bytes =
                elements_of(plan, pieces[k], &scope) * dtype_bytes(dtype_of(plan, pieces[k]));
            *(k ? &out.states : &out.parameters) += k == 0 && i == twice ? 2 * bytes : bytes;
        }
    }
    return out;
}

struct start_up_bytes start_up_shards(const struct plan *plan, bool tied, uint32_t rank)
{
    return sum(plan, tied, (struct scope_of_files){.what = OWN, .rank = rank});
}

struct start_up_bytes start_up_reads(const struct plan *plan, bool tied, uint32_t rank,
                                     uint32_t saved_by)
{
    return sum(plan, tied,
               (struct scope_of_files){.what = READ, .rank = rank, .saved_by = saved_by});
}

struct start_up_bytes start_up_whole(const struct plan *plan, bool tied)
{
    return sum(plan, tied, (struct scope_of_files){.what = WHOLE});
}
