/* start_up_fsdp1.c - the ways of FullyShardedDataParallel (see start_up.h).
 *
 * Where nothing is sharded (NO_SHARD, or one rank) the flat parameter stays, and a state dict has
 * copies of what is there, on the device, whatever offload_to_cpu says.
 *
 * A unit is wrapped once all units inside it are: its parameters are put together into the flat
 * parameter (P elements), of which each rank keeps a copy of its part (S = ceil(P / N)). A state
 * dict goes the other way: a unit is gathered (N x S elements) when state_dict() enters it, and
 * again a shard when it leaves, so that the root is gathered as long as any other.
 *
 * With CPUOffload a unit's shard goes to the host as soon as it is there (flat_param_to), and comes
 * to the device again for each gather. */
#include "job/start_up_parts.h"

#include <stdlib.h>
#include <string.h>

enum { STATES = 2 };

struct flat_unit {
    const struct plan_unit *unit;
    const struct plan_piece *piece; /* of its first parameter */
    enum dtype dtype;
    uint32_t ranks;
    uint64_t elements, shard; /* P, S */
};

static bool is_whole(const struct plan_piece *piece)
{
    return piece->placement.kind == PLACEMENT_WHOLE;
}

/* False: nothing is in it. */
static bool flat_unit_of(const struct plan *plan, uint32_t unit, struct flat_unit *out)
{
    *out = (struct flat_unit){.unit = &plan->units[unit]};
    if (out->unit->params == 0)
        return false;
    out->piece = plan_piece(plan, plan->unit_params[out->unit->first_param], PIECE_STORE);
    out->dtype = start_up_dtype(plan, out->piece);
    out->ranks = plan_group_ranks(plan, out->piece->group);
    const struct buffer *store = &plan->buffers[out->piece->buffer];
    out->elements = is_whole(out->piece) ? store->bytes / dtype_bytes((enum dtype)store->dtype)
                                         : out->piece->placement.total;
    out->shard = placement_chunk(out->elements, out->ranks);
    return true;
}

/* Where a parameter is in the flat one. */
static uint64_t place_of(const struct plan *plan, uint32_t param)
{
    const struct plan_piece *piece = plan_piece(plan, param, PIECE_STORE);
    return is_whole(piece) ? piece->offset : piece->placement.at;
}

static uint32_t param_of(const struct plan *plan, const struct flat_unit *f, uint32_t i)
{
    return plan->unit_params[f->unit->first_param + i];
}

/* Padding behind the i-th parameter: before the next one, or the end. */
static uint64_t padding(const struct plan *plan, const struct flat_unit *f, uint32_t i)
{
    const uint32_t param = param_of(plan, f, i);
    const uint64_t end = place_of(plan, param) + start_up_elements(plan, param);
    const uint64_t next =
        i + 1 < f->unit->params ? place_of(plan, param_of(plan, f, i + 1)) : f->elements;
    return next - end;
}

/* Unit `inner` is inside of `outer`, by their names. */
static bool is_inside(const struct plan *plan, uint32_t inner, uint32_t outer)
{
    const char *in = plan->units[inner].name, *out = plan->units[outer].name;
    const size_t n = strlen(out);
    return n == 0 || (strncmp(in, out, n) == 0 && in[n] == '.');
}

typedef void (*unit_visit)(struct program *p, enum start_up_way way, uint32_t unit);

/* `enter`s a unit, walks those inside of it, in their order, and `leave`s it. Returns the one
 * behind them. */
static uint32_t walk(struct program *p, enum start_up_way way, uint32_t unit, unit_visit enter,
                     unit_visit leave)
{
    uint32_t next = unit + 1;
    if (enter)
        enter(p, way, unit);
    while (next < p->of->unit_count && is_inside(p->of, next, unit))
        next = walk(p, way, next, enter, leave);
    leave(p, way, unit);
    return next;
}

/* ---- initialisation ---- */

/* sync_module_states: buffers that are not yet, then the unit's parameters; across replicas first.
 */
static void sync_unit(struct program *p, const struct flat_unit *f, bool buffers)
{
    const uint32_t first = buffers ? p->of->module_buffer_count : 0;
    const uint32_t count = first + f->unit->params;
    enum dtype *dtypes = xcalloc(count + 1, sizeof *dtypes);
    uint64_t *elements = xcalloc(count + 1, sizeof *elements);
    for (uint32_t i = 0; i < first; i++) {
        const struct buffer *b = &p->of->buffers[p->of->module_buffers[i].buffer];
        dtypes[i] = (enum dtype)b->dtype;
        elements[i] = b->bytes / dtype_bytes(dtypes[i]);
    }
    for (uint32_t i = 0; i < f->unit->params; i++) {
        dtypes[first + i] = f->dtype;
        elements[first + i] = start_up_elements(p->of, param_of(p->of, f, i));
    }
    const uint8_t replicate = plan_group_of_role(p->of, GROUP_REPLICATE);
    if (replicate != PLAN_NO_GROUP)
        start_up_broadcast(p, replicate, count, dtypes, elements);
    start_up_broadcast(p, is_whole(f->piece) ? p->world : f->piece->group, count, dtypes, elements);
    free(dtypes);
    free(elements);
}

/* flat_param_to(cpu). */
static void to_host(struct program *p, const struct flat_unit *f, uint32_t from, uint64_t elements)
{
    start_up_copy(p, PLAN_DEVICE_TO_HOST, from,
                  start_up_born(p, LANE_HOST, CATEGORY_SHARDED_PARAM, f->dtype, elements));
    start_up_dies(p, from);
}

/* FlatParamHandle: the unit's parameters and what is between them, together; shard(): this rank's
 * part of it, which is padded where it is not all. */
static void flatten(struct program *p, const struct flat_unit *f)
{
    uint32_t *pads = xcalloc(f->unit->params + 1, sizeof *pads), count = 0;
    for (uint32_t i = 0; i < f->unit->params; i++) {
        const uint64_t n = padding(p->of, f, i);
        if (n == 0)
            continue;
        const uint32_t ones = start_up_born(p, LANE_COMPUTE, CATEGORY_PARAM, f->dtype, n);
        pads[count++] = start_up_born(p, LANE_COMPUTE, CATEGORY_PARAM, f->dtype, n);
        start_up_dies(p, ones);
    }
    const uint32_t flat_param =
        start_up_born(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM, f->dtype, f->elements);
    while (count > 0)
        start_up_dies(p, pads[--count]);
    free(pads);
    for (uint32_t i = 0; is_whole(f->piece) && i < f->unit->params; i++)
        start_up_dies(p, p->full[param_of(p->of, f, i)]);
    if (is_whole(f->piece))
        return;
    const uint64_t from = f->shard * plan_group_rank(p->of, f->piece->group, p->of->rank);
    const uint64_t left = from < f->elements ? f->elements - from : 0;
    const uint64_t own = left < f->shard ? left : f->shard;
    uint32_t shard = start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, f->dtype, own);
    if (own < f->shard) {
        const uint32_t chunk = shard;
        shard = start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, f->dtype, f->shard);
        start_up_dies(p, chunk);
    }
    start_up_dies(p, flat_param);
    for (uint32_t i = 0; i < f->unit->params; i++)
        start_up_dies(p, p->full[param_of(p->of, f, i)]);
    if (p->job->strategy->offload)
        to_host(p, f, shard, f->shard);
}

static bool is_on_meta(const struct program *p, enum start_up_way way)
{
    return way == START_UP_META || (way == START_UP_BROADCAST && !p->first);
}

/* Buffers of modules come with the root. */
static void wrap_unit(struct program *p, enum start_up_way way, uint32_t unit)
{
    struct flat_unit f;
    const bool has_params = flat_unit_of(p->of, unit, &f);
    for (uint32_t i = 0; has_params && i < f.unit->params; i++) {
        const uint32_t param = param_of(p->of, &f, i);
        if (is_on_meta(p, way))
            start_up_whole_param(p, param, LANE_COMPUTE);
        else
            start_up_move_param(p, param);
    }
    if (unit == 0 && is_on_meta(p, way))
        start_up_module_buffers(p, LANE_COMPUTE, NULL);
    else if (unit == 0 && way != START_UP_GPU)
        start_up_move_buffers(p, p->buffers);
    if (!has_params)
        return;
    if (way == START_UP_BROADCAST)
        sync_unit(p, &f, unit == 0);
    flatten(p, &f);
}

static void initialise(struct program *p, enum start_up_way way)
{
    p->buffers = xcalloc(p->of->module_buffer_count + 1, sizeof *p->buffers);
    if (!is_on_meta(p, way))
        start_up_construct(p, way == START_UP_GPU ? LANE_COMPUTE : LANE_HOST, p->buffers);
    walk(p, way, 0, NULL, wrap_unit);
    free(p->buffers);
}

/* ---- state dicts of the model ---- */

static bool is_offloaded(enum start_up_way way)
{
    return way == START_UP_FULL || way == START_UP_FULL_OPTIMIZER;
}

/* flat_param_to(device) of what is offloaded: it lives until the gather is issued. */
static uint32_t bring_shard(struct program *p, const struct flat_unit *f)
{
    const uint32_t brought =
        start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, f->dtype, f->shard);
    start_up_copy(p, PLAN_HOST_TO_DEVICE,
                  start_up_buffer(p, LANE_HOST, CATEGORY_SHARDED_PARAM, f->dtype, f->shard),
                  brought);
    return brought;
}

/* _unshard: p->full of the unit's first parameter is the unit. */
static uint32_t gather(struct program *p, const struct flat_unit *f)
{
    const bool brings = p->job->strategy->offload;
    const uint32_t shard =
        brings ? bring_shard(p, f)
               : start_up_buffer(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, f->dtype, f->shard);
    const uint32_t whole =
        start_up_born(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM, f->dtype, f->shard * f->ranks);
    start_up_move(p, PLAN_ALL_GATHER, WORK_ALL_GATHER, shard, whole, f->piece->group);
    if (brings)
        start_up_dies(p, shard);
    return whole;
}

/* offload_to_cpu: rank 0 has it on the host while it is in there; others let it go. */
static void enter_unit(struct program *p, enum start_up_way way, uint32_t unit)
{
    struct flat_unit f;
    if (!flat_unit_of(p->of, unit, &f) || is_whole(f.piece))
        return;
    const uint32_t whole = gather(p, &f), first = param_of(p->of, &f, 0);
    p->full[first] = whole;
    if (!is_offloaded(way))
        return;
    p->full[first] = NONE;
    if (p->first) {
        p->full[first] = start_up_born(p, LANE_HOST, CATEGORY_PARAM, f.dtype, f.elements);
        start_up_copy(
            p, PLAN_DEVICE_TO_HOST,
            start_up_buffer(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM, f.dtype, f.elements),
            p->full[first]);
    }
    start_up_dies(p, whole);
}

/* Elements of this rank's rows: tensor.chunk(N), a ShardedTensor's; of what is not sharded, all
 * ranks share them. */
static uint64_t rows_of(const struct plan *plan, const struct flat_unit *f, uint32_t param,
                        uint32_t rank)
{
    const bool whole = is_whole(f->piece);
    const struct part part =
        placement_part((struct placement){.kind = PLACEMENT_ROWS}, &plan->params[param].shape,
                       whole ? plan->world : f->ranks,
                       whole ? rank : plan_group_rank(plan, f->piece->group, rank));
    return part_elements(&part);
}

static bool is_sharded(enum start_up_way way)
{
    return way == START_UP_SHARDED || way == START_UP_SHARDED_OPTIMIZER;
}

/* With a mesh, which replicas need, a sharded state dict has DTensors: made of a whole copy. */
static bool makes_dtensors(const struct program *p, enum start_up_way way)
{
    return is_sharded(way) && plan_group_of_role(p->of, GROUP_REPLICATE) != PLAN_NO_GROUP;
}

/* What a state dict has of a parameter is a copy of its own. Returns it; NONE: nothing. */
static uint32_t clone_param(struct program *p, enum start_up_way way, const struct flat_unit *f,
                            uint32_t param, uint8_t pool, bool rows)
{
    const uint64_t all = start_up_elements(p->of, param);
    const uint64_t elements = rows ? rows_of(p->of, f, param, p->of->rank) : all;
    const uint32_t whole =
        makes_dtensors(p, way) ? start_up_born(p, pool, CATEGORY_PARAM, f->dtype, all) : NONE;
    const uint32_t own =
        elements ? start_up_born(p, pool, CATEGORY_PARAM, f->dtype, elements) : NONE;
    if (whole != NONE)
        start_up_dies(p, whole);
    return own;
}

/* Behind offload_to_cpu the unit is brought back to the device before it is let go, and without
 * use_orig_params the modules keep their views of the copy on the host until they are next called.
 */
static void bring_back(struct program *p, const struct flat_unit *f, uint32_t host)
{
    const uint32_t whole =
        start_up_born(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM, f->dtype, f->shard * f->ranks);
    start_up_copy(
        p, PLAN_HOST_TO_DEVICE, host,
        start_up_buffer(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM, f->dtype, f->elements));
    if (p->job->strategy->use_orig_params)
        start_up_dies(p, host);
    start_up_dies(p, whole);
}

static void leave_unit(struct program *p, enum start_up_way way, uint32_t unit)
{
    struct flat_unit f;
    if (!flat_unit_of(p->of, unit, &f))
        return;
    const uint32_t twice = start_up_tied(p->of, p->tied), held = p->full[param_of(p->of, &f, 0)];
    const bool whole = is_whole(f.piece);
    const uint8_t pool = is_offloaded(way) && !whole ? LANE_HOST : LANE_COMPUTE;
    if (held == NONE && !whole)
        return;
    for (uint32_t i = 0; way != START_UP_LOAD && i < f.unit->params; i++) {
        const uint32_t param = param_of(p->of, &f, i);
        clone_param(p, way, &f, param, pool, is_sharded(way) && !whole);
        if (param == twice)
            clone_param(p, way, &f, param, pool, is_sharded(way) && !whole);
    }
    if (whole)
        return;
    if (is_offloaded(way))
        bring_back(p, &f, held);
    else
        start_up_dies(p, held);
}

/* ---- the optimizer's ---- */

static bool has_state(const struct plan *plan, uint32_t param)
{
    return plan->params[param].trainable;
}

/* Those of DTensors go to the host once the unit has all of them, as the optimizer's configuration
 * has it by default; ShardedTensors do not. */
static void state_copies(struct program *p, enum start_up_way way, const struct flat_unit *f,
                         uint32_t states)
{
    uint32_t *copies = xcalloc(f->unit->params * STATES + 1, sizeof *copies), count = 0;
    for (uint32_t i = 0; (p->first || !is_offloaded(way)) && i < f->unit->params; i++)
        for (uint32_t k = 0; k < states && has_state(p->of, param_of(p->of, f, i)); k++)
            copies[count++] =
                clone_param(p, way, f, param_of(p->of, f, i),
                            is_offloaded(way) ? LANE_HOST : LANE_COMPUTE, is_sharded(way));
    for (uint32_t i = 0; makes_dtensors(p, way) && i < count; i++) {
        if (copies[i] == NONE)
            continue;
        const uint64_t elements = p->plan->buffers[copies[i]].bytes / dtype_bytes(f->dtype);
        start_up_copy(p, PLAN_DEVICE_TO_HOST, copies[i],
                      start_up_born(p, LANE_HOST, CATEGORY_OPTIMIZER, f->dtype, elements));
        start_up_dies(p, copies[i]);
    }
    free(copies);
}

/* _communicate_optim_state: both states of a flat parameter, whole on every rank; of what is frozen
 * there are none. */
static void gather_states(struct program *p, enum start_up_way way, uint32_t unit)
{
    struct flat_unit f;
    if (!flat_unit_of(p->of, unit, &f) || !plan_piece(p->of, param_of(p->of, &f, 0), PIECE_EXP_AVG))
        return;
    uint32_t whole[STATES];
    const bool gathers = !is_whole(f.piece);
    for (int k = 0; gathers && k < STATES; k++)
        whole[k] = gather(p, &f);
    const uint32_t step = start_up_born(p, LANE_HOST, CATEGORY_OPTIMIZER, DTYPE_FP32, 1);
    state_copies(p, way, &f, STATES);
    for (int k = 0; gathers && k < STATES; k++)
        start_up_dies(p, whole[k]);
    if (!p->first && is_offloaded(way))
        start_up_dies(p, step);
}

/* Elements in this rank's part of those of the flat parameter that begin `at`. */
static uint64_t own_elements(const struct plan *plan, const struct flat_unit *f, uint64_t at,
                             uint64_t elements)
{
    const uint64_t from = f->shard * plan_group_rank(plan, f->piece->group, plan->rank);
    const uint64_t end = at + elements, to = from + f->shard;
    const uint64_t low = at > from ? at : from, high = end < to ? end : to;
    return low < high ? high - low : 0;
}

static bool unit_has_states(const struct plan *plan, const struct flat_unit *f)
{
    for (uint32_t i = 0; i < f->unit->params; i++)
        if (has_state(plan, param_of(plan, f, i)))
            return true;
    return false;
}

/* What stands in this rank's part for the i-th parameter, which is frozen, and for the padding
 * behind it: something of as many elements. Returns how many `pads` there are then. */
static uint32_t stand_ins(struct program *p, const struct flat_unit *f, uint32_t i, uint32_t *pads,
                          uint32_t count)
{
    const uint32_t param = param_of(p->of, f, i);
    const uint64_t at = place_of(p->of, param);
    const uint64_t elements = start_up_elements(p->of, param);
    const uint64_t own[] = {
        has_state(p->of, param) ? 0 : own_elements(p->of, f, at, elements),
        own_elements(p->of, f, at + elements, padding(p->of, f, i)),
    };
    for (int k = 0; k < 2; k++)
        if (own[k])
            pads[count++] = start_up_born(p, LANE_COMPUTE, CATEGORY_OPTIMIZER, f->dtype, own[k]);
    return count;
}

/* _convert_all_state_info: of what is offloaded, both states of all parameters go to the device,
 * and stay there until the unit's are gathered. Returns how many, in `moved` (2 a parameter). */
static uint32_t bring_states(struct program *p, const struct flat_unit *f, uint32_t *moved)
{
    uint32_t count = 0;
    for (uint32_t i = 0; p->job->strategy->offload && i < f->unit->params; i++) {
        const uint32_t param = param_of(p->of, f, i);
        const uint64_t own =
            has_state(p->of, param)
                ? own_elements(p->of, f, place_of(p->of, param), start_up_elements(p->of, param))
                : 0;
        for (int k = 0; own && k < STATES; k++) {
            moved[count] = start_up_born(p, LANE_COMPUTE, CATEGORY_OPTIMIZER, f->dtype, own);
            start_up_copy(p, PLAN_HOST_TO_DEVICE,
                          start_up_buffer(p, LANE_HOST, CATEGORY_OPTIMIZER, f->dtype, own),
                          moved[count++]);
        }
    }
    return count;
}

/* _allgather_orig_param_states: a state at a time, put together as the flat parameter is. */
static void gather_orig_states(struct program *p, enum start_up_way way, uint32_t unit)
{
    struct flat_unit f;
    if (!flat_unit_of(p->of, unit, &f) || is_whole(f.piece) || !unit_has_states(p->of, &f))
        return;
    uint32_t before = NONE, *pads = xcalloc(2 * f.unit->params + 1, sizeof *pads);
    uint32_t *moved = xcalloc(STATES * f.unit->params + 1, sizeof *moved);
    uint32_t brought = bring_states(p, &f, moved);
    const uint32_t whole =
        start_up_born(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM, f.dtype, f.shard * f.ranks);
    for (int k = 0; k < STATES; k++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < f.unit->params; i++)
            count = stand_ins(p, &f, i, pads, count);
        const uint32_t own = start_up_born(p, LANE_COMPUTE, CATEGORY_OPTIMIZER, f.dtype, f.shard);
        if (before != NONE)
            start_up_dies(p, before);
        before = own;
        start_up_move(p, PLAN_ALL_GATHER, WORK_ALL_GATHER, own, whole, f.piece->group);
        state_copies(p, way, &f, 1);
        while (count > 0)
            start_up_dies(p, pads[--count]);
    }
    start_up_dies(p, before);
    start_up_dies(p, whole);
    while (brought > 0)
        start_up_dies(p, moved[--brought]);
    free(moved);
    free(pads);
}

struct named_unit {
    const char *name; /* the first, sorted, of its parameters */
    uint32_t unit;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named_unit *)a)->name, ((const struct named_unit *)b)->name);
}

/* The original parameters' states come sorted by name, and a unit with its first one. */
static void each_by_name(struct program *p, enum start_up_way way)
{
    struct named_unit *units = xcalloc(p->of->unit_count + 1, sizeof *units);
    uint32_t count = 0;
    for (uint32_t unit = 0; unit < p->of->unit_count; unit++) {
        struct flat_unit f;
        if (!flat_unit_of(p->of, unit, &f))
            continue;
        struct named_unit *named = &units[count++];
        *named = (struct named_unit){p->of->params[param_of(p->of, &f, 0)].name, unit};
        for (uint32_t i = 1; i < f.unit->params; i++) {
            const char *name = p->of->params[param_of(p->of, &f, i)].name;
            named->name = strcmp(name, named->name) < 0 ? name : named->name;
        }
    }
    qsort(units, count, sizeof *units, by_name);
    for (uint32_t i = 0; i < count; i++)
        gather_orig_states(p, way, units[i].unit);
    free(units);
}

static void save_or_load(struct program *p, enum start_up_way way)
{
    if (way == START_UP_LOAD) /* the whole state dict is on every rank's host */
        for (uint32_t i = 0; i < p->of->param_count; i++)
            start_up_born(p, LANE_HOST, CATEGORY_PARAM, start_up_dtype(p->of, start_up_store(p, i)),
                          start_up_elements(p->of, i));
    walk(p, way, 0, enter_unit, leave_unit);
    if (way != START_UP_FULL_OPTIMIZER && way != START_UP_SHARDED_OPTIMIZER)
        return;
    if (!p->has_states)
        return;
    if (p->job->strategy->use_orig_params)
        each_by_name(p, way);
    else
        for (uint32_t unit = 0; unit < p->of->unit_count; unit++)
            gather_states(p, way, unit);
}

/* ---- bytes of files ---- */

static uint64_t of_whole(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    const bool all = way == START_UP_LOAD;
    if (rank > 0 && !all)
        return 0;
    struct start_up_job once = *job;
    once.tied = job->tied && !all && way != START_UP_BROADCAST;
    const struct start_up_bytes whole = start_up_whole(&once);
    return whole.parameters + (way == START_UP_FULL_OPTIMIZER ? whole.states : 0);
}

/* Rows of every parameter; replicas share them. What is not sharded one rank writes, here rank 0,
 * of the model, and each its rows of the optimizer's states. */
static uint64_t of_shards(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    const struct plan *plan = job->plan;
    const uint8_t group = plan_group_of_role(plan, GROUP_REPLICATE);
    const uint32_t replicas = plan_group_ranks(plan, group);
    const uint32_t twice = start_up_tied(plan, job->tied);
    uint64_t bytes = 0;
    for (uint32_t unit = 0; unit < plan->unit_count; unit++) {
        struct flat_unit f;
        if (!flat_unit_of(plan, unit, &f))
            continue;
        for (uint32_t i = 0; i < f.unit->params; i++) {
            const uint32_t param = param_of(plan, &f, i);
            const uint64_t rows = rows_of(plan, &f, param, rank);
            const uint64_t all = rank == 0 ? start_up_elements(plan, param) : 0;
            const uint64_t model = is_whole(f.piece) ? all : rows;
            const bool states =
                way == START_UP_SHARDED_OPTIMIZER && plan_piece(plan, param, PIECE_EXP_AVG) != NULL;
            bytes += (model * (1U + (param == twice)) + (states ? rows * STATES : 0)) *
                     dtype_bytes(f.dtype);
        }
    }
    return bytes / replicas + (plan_group_rank(plan, group, rank) < bytes % replicas);
}

const struct start_up_method start_up_fsdp1_methods[] = {
    {START_UP_META, "meta device, param_init_fn=to_empty", initialise, NULL, false},
    {START_UP_CPU, "whole on each rank's CPU, device_id moves it unit by unit", initialise, NULL,
     false},
    {START_UP_GPU, "whole on the GPU, then FSDP", initialise, NULL, false},
    {START_UP_BROADCAST, "rank 0 reads it, others meta, sync_module_states", initialise, of_whole,
     false},
    {START_UP_SHARDED, "SHARDED_STATE_DICT", save_or_load, of_shards, false},
    {START_UP_SHARDED_OPTIMIZER, "the same and FSDP.optim_state_dict", save_or_load, of_shards,
     false},
    {START_UP_FULL, "FULL_STATE_DICT(offload_to_cpu, rank0_only)", save_or_load, of_whole, false},
    {START_UP_FULL_GPU, "FULL_STATE_DICT as by default: on every GPU", save_or_load, of_whole,
     false},
    {START_UP_FULL_OPTIMIZER, "FULL_STATE_DICT and FSDP.optim_state_dict on rank 0", save_or_load,
     of_whole, false},
    {START_UP_LOAD, "load_state_dict of a full one, read by every rank", save_or_load, of_whole,
     false},
    {START_UP_WAYS, NULL, NULL, NULL, false},
};
