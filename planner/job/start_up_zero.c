/* start_up_zero.c - the ways of DeepSpeed's engine (see start_up.h; deepspeed 0.19.8).
 *
 *     _configure_distributed_model   the model, made in fp32, cast and moved tensor by tensor
 *     _broadcast_model               every parameter from rank 0
 *     stages 1, 2                    one flat vector of 16 bits, this rank's partition of it in
 * fp32 stage 3                        every parameter cut by itself (zero.Init: as it is made);
 * this rank's pieces together by way of the host, then in fp32
 *
 * save_checkpoint writes a file a rank of what the optimizer has, and rank 0 the model of stages 1
 * and 2: storages one after the other, by way of the host. */
#include "job/start_up_parts.h"

#include <stdlib.h>
#include <string.h>

static enum dtype compute_dtype(const struct program *p)
{
    return p->job->strategy->compute;
}

static const struct zero_options *options(const struct program *p)
{
    return &p->job->strategy->zero;
}

/* The buffers of a role, each once: `visit` is called with them in order. */
typedef void (*vector_visit)(struct program *p, const struct buffer *vector);

static uint64_t elements_of(const struct buffer *b)
{
    return b->bytes / dtype_bytes((enum dtype)b->dtype);
}

static uint64_t each_vector(struct program *p, const struct plan *plan, enum piece_role role,
                            vector_visit visit)
{
    bool *seen = xcalloc(plan->buffer_count + 1, sizeof *seen);
    uint64_t all = 0;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const struct plan_piece *piece = plan_piece(plan, i, role);
        if (!piece || seen[piece->buffer])
            continue;
        seen[piece->buffer] = true;
        const struct buffer *b = &plan->buffers[piece->buffer];
        all += elements_of(b);
        if (visit)
            visit(p, b);
    }
    free(seen);
    return all;
}

static uint64_t elements_of_role(const struct plan *plan, enum piece_role role)
{
    return each_vector(NULL, plan, role, NULL);
}

/* ---- initialisation ---- */

static void cast_param(struct program *p, uint32_t param)
{
    const uint32_t made = p->full[param];
    const struct buffer of = p->plan->buffers[made];
    if ((enum dtype)of.dtype == compute_dtype(p))
        return;
    p->full[param] = start_up_born(p, of.pool, CATEGORY_PARAM, compute_dtype(p),
                                   start_up_elements(p->of, param));
    start_up_dies(p, made);
}

static void broadcast_param(struct program *p, uint32_t param)
{
    start_up_move(p, PLAN_BROADCAST, WORK_BROADCAST, p->full[param], p->full[param], p->world);
}

/* The model in 16 bits on the device, the same on all ranks. */
static void make_model(struct program *p, uint8_t pool)
{
    uint32_t *buffers = xcalloc(p->of->module_buffer_count + 1, sizeof *buffers);
    start_up_construct(p, pool, buffers);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        cast_param(p, i);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        start_up_move_param(p, i);
    if (pool == LANE_HOST)
        start_up_move_buffers(p, buffers);
    free(buffers);
}

/* Elements of the vector of stages 1 and 2: what is trained, and padding. */
static uint64_t vector_elements(const struct plan *plan)
{
    return elements_of_role(plan, PIECE_MASTER) * plan->world;
}

static bool trains(const struct program *p, uint32_t param)
{
    return p->of->params[param].trainable;
}

/* flatten_dense_tensors_aligned on the device, or where it has no room, on the host: then a tensor
 * of one fp32 element takes each parameter's place. What is frozen stays as it is. */
static void flatten(struct program *p)
{
    const uint32_t params = p->of->param_count;
    const uint64_t elements = vector_elements(p->of);
    const bool host = p->job->flatten_on_host;
    uint32_t *stubs = xcalloc(params + 1, sizeof *stubs);
    uint64_t padding = elements;
    for (uint32_t i = 0; i < params; i++)
        padding -= trains(p, i) ? start_up_elements(p->of, i) : 0;
    for (uint32_t i = 0; host && i < params; i++) {
        const uint32_t from = p->full[i];
        if (!trains(p, i))
            continue;
        p->full[i] = start_up_born(p, LANE_HOST, CATEGORY_PARAM, compute_dtype(p),
                                   start_up_elements(p->of, i));
        start_up_copy(p, PLAN_DEVICE_TO_HOST, from, p->full[i]);
        const uint32_t one = start_up_born(p, LANE_HOST, CATEGORY_PARAM, DTYPE_FP32, 1);
        stubs[i] = start_up_born(p, LANE_COMPUTE, CATEGORY_PARAM, DTYPE_FP32, 1);
        start_up_dies(p, one);
        start_up_dies(p, from);
    }
    const uint32_t zeros = padding ? start_up_born(p, host ? LANE_HOST : LANE_COMPUTE,
                                                   CATEGORY_PARAM, compute_dtype(p), padding)
                                   : NONE;
    const uint32_t vector = start_up_born(p, host ? LANE_HOST : LANE_COMPUTE, CATEGORY_PARAM,
                                          compute_dtype(p), elements);
    if (zeros != NONE)
        start_up_dies(p, zeros);
    for (uint32_t i = 0; i < params; i++)
        if (trains(p, i))
            start_up_dies(p, p->full[i]);
    if (host) {
        start_up_copy(p, PLAN_HOST_TO_DEVICE, vector,
                      start_up_born(p, LANE_COMPUTE, CATEGORY_PARAM, compute_dtype(p), elements));
        start_up_dies(p, vector);
    }
    for (uint32_t i = 0; host && i < params; i++)
        if (trains(p, i))
            start_up_dies(p, stubs[i]);
    free(stubs);
}

/* get_accelerator().pin_memory: a copy in page-locked memory. `made` goes when the caller's name
 * for it is bound again. */
static uint32_t pin(struct program *p, uint32_t made, const struct zero_offload *offload)
{
    const struct buffer of = p->plan->buffers[made];
    if (offload->pageable)
        return made;
    const uint32_t pinned = start_up_born(p, LANE_HOST, (enum category)of.category,
                                          (enum dtype)of.dtype, elements_of(&of));
    p->plan->buffers[pinned].pinned = true;
    return pinned;
}

static uint32_t born_pinned(struct program *p, enum category category, enum dtype dtype,
                            uint64_t elements, const struct zero_offload *offload)
{
    const uint32_t made = start_up_born(p, LANE_HOST, category, dtype, elements);
    const uint32_t pinned = pin(p, made, offload);
    if (pinned != made)
        start_up_dies(p, made);
    return pinned;
}

/* The optimizer is tried with a gradient of zeros. */
static void try_optimizer(struct program *p, const struct buffer *vector)
{
    start_up_dies(p, start_up_born(p, LANE_COMPUTE, CATEGORY_GRADIENT, (enum dtype)vector->dtype,
                                   elements_of(vector)));
}

/* A copy of the partition, and that in fp32. */
static void master_partition(struct program *p, const struct buffer *vector)
{
    const uint64_t elements = elements_of(vector);
    const uint32_t clone =
        start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements);
    const uint32_t master =
        start_up_born(p, vector->pool, CATEGORY_SHARDED_PARAM, (enum dtype)vector->dtype, elements);
    if (vector->pool == LANE_HOST)
        start_up_copy(p, PLAN_DEVICE_TO_HOST, clone, master);
    start_up_dies(p, clone);
    if (vector->pool == LANE_HOST && pin(p, master, &options(p)->optimizer) != master)
        start_up_dies(p, master);
}

/* offload_optimizer: the partition in 16 bits, the largest gradient on either side, and the
 * partition's gradient, which stays. What was pinned of the first is let go at the end. */
static void offload_partition(struct program *p)
{
    const struct zero_offload *o = &options(p)->optimizer;
    const uint64_t elements = elements_of_role(p->of, PIECE_MASTER);
    uint64_t largest = 0;
    for (uint32_t i = 0; i < p->of->param_count; i++) {
        const uint64_t n = start_up_elements(p->of, i);
        largest = trains(p, i) && n > largest ? n : largest;
    }
    const uint32_t cast = start_up_born(p, LANE_HOST, CATEGORY_PARAM, compute_dtype(p), elements);
    const uint32_t pinned = pin(p, cast, o);
    born_pinned(p, CATEGORY_PERSISTENT, compute_dtype(p), largest, o);
    start_up_born(p, LANE_COMPUTE, CATEGORY_PERSISTENT, compute_dtype(p), largest);
    born_pinned(p, CATEGORY_GRADIENT, DTYPE_FP32, elements, o);
    if (pinned != cast)
        start_up_dies(p, cast);
}

static void initialise12(struct program *p, enum start_up_way way)
{
    make_model(p, way == START_UP_CPU ? LANE_HOST : LANE_COMPUTE);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        broadcast_param(p, i);
    flatten(p);
    each_vector(p, p->of, PIECE_MASTER, master_partition);
    if (options(p)->optimizer.on)
        offload_partition(p);
    else
        each_vector(p, p->of, PIECE_MASTER, try_optimizer);
}

static uint64_t part_of(const struct program *p, uint32_t param)
{
    return placement_chunk(start_up_elements(p->of, param), p->of->world);
}

/* With offload_param on the host. */
static uint32_t born_part(struct program *p, uint64_t elements)
{
    const struct zero_offload *o = &options(p)->param;
    return o->on
               ? born_pinned(p, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements, o)
               : start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements);
}

/* partition(): hpZ's piece, this rank's piece; the whole one goes. */
static void partition(struct program *p, uint32_t param)
{
    const struct zero_offload *o = &options(p)->param;
    const uint64_t part = part_of(p, param), group = options(p)->hpz_partition_size;
    if (group > 1)
        p->secondary[param] = born_part(p, part * p->of->world / group);
    p->shard[param] = born_part(p, part);
    if (o->on)
        start_up_copy(p, PLAN_DEVICE_TO_HOST,
                      start_up_buffer(p, LANE_COMPUTE, CATEGORY_PARAM, compute_dtype(p), part),
                      p->shard[param]);
    start_up_dies(p, p->full[param]);
}

/* Parameters of one module follow each other and share the name up to the last dot. */
static uint32_t module_end(const struct plan *plan, uint32_t param)
{
    const char *name = plan->params[param].name, *dot = strrchr(name, '.');
    const size_t n = dot ? (size_t)(dot - name) + 1 : 0;
    uint32_t end = param + 1;
    while (end < plan->param_count && strncmp(plan->params[end].name, name, n) == 0 &&
           !strchr(plan->params[end].name + n, '.'))
        end++;
    return end;
}

/* zero.Init: a module's parameters are cast as they are made, and partitioned when its constructor
 * returns. */
static void make_partitioned(struct program *p)
{
    const uint32_t twice = start_up_tied(p->of, p->tied);
    for (uint32_t i = 0, end; i < p->of->param_count; i = end) {
        end = module_end(p->of, i);
        for (uint32_t j = i; j < end; j++) {
            start_up_whole_param(p, j, LANE_COMPUTE);
            cast_param(p, j);
        }
        for (uint32_t j = i; j < end; j++) {
            broadcast_param(p, j);
            partition(p, j);
        }
    }
    if (twice != NONE) { /* the head is one of its own before it is the embedding */
        const uint32_t own = p->shard[twice], secondary = p->secondary[twice];
        start_up_whole_param(p, twice, LANE_COMPUTE);
        cast_param(p, twice);
        broadcast_param(p, twice);
        partition(p, twice);
        start_up_dies(p, own);
        if (secondary != NONE)
            start_up_dies(p, secondary);
    }
    start_up_module_buffers(p, LANE_COMPUTE, NULL);
}

/* The pieces of what is trained are put together on the host, so that they leave no holes; with
 * offload_param they stay there. */
static void defragment(struct program *p)
{
    const struct zero_offload always = {.on = true}; /* pinned, whatever pin_memory says */
    const bool stays = options(p)->param.on;
    const uint64_t elements = elements_of_role(p->of, PIECE_MASTER);
    const uint32_t host =
        stays ? born_pinned(p, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements, &always)
              : start_up_born(p, LANE_HOST, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements);
    for (uint32_t i = 0; i < p->of->param_count; i++) {
        if (!trains(p, i))
            continue;
        if (!stays)
            start_up_copy(p, PLAN_DEVICE_TO_HOST, p->shard[i],
                          start_up_buffer(p, LANE_HOST, CATEGORY_SHARDED_PARAM, compute_dtype(p),
                                          part_of(p, i)));
        start_up_dies(p, p->shard[i]);
    }
    if (stays)
        return;
    start_up_copy(
        p, PLAN_HOST_TO_DEVICE, host,
        start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements));
    start_up_dies(p, host);
}

/* A group in fp32 where it is updated, and a clone of that. */
static void master_clone(struct program *p, const struct buffer *vector)
{
    const enum dtype dtype = (enum dtype)vector->dtype;
    const uint64_t elements = elements_of(vector);
    const bool from_host = options(p)->param.on, to_host = vector->pool == LANE_HOST;
    const uint32_t cast = start_up_born(p, vector->pool, CATEGORY_SHARDED_PARAM, dtype, elements);
    if (from_host != to_host)
        start_up_copy(p, to_host ? PLAN_DEVICE_TO_HOST : PLAN_HOST_TO_DEVICE,
                      start_up_buffer(p, to_host ? LANE_COMPUTE : LANE_HOST, CATEGORY_SHARDED_PARAM,
                                      compute_dtype(p), elements),
                      cast);
    start_up_born(p, vector->pool, CATEGORY_SHARDED_PARAM, dtype, elements);
    start_up_dies(p, cast);
}

/* offload_optimizer: a group's gradient is made on the host, wherever it is updated. */
static void group_gradient(struct program *p, const struct buffer *vector)
{
    const uint32_t made = born_pinned(p, CATEGORY_GRADIENT, (enum dtype)vector->dtype,
                                      elements_of(vector), &options(p)->optimizer);
    if (vector->pool == LANE_HOST)
        return;
    start_up_copy(p, PLAN_HOST_TO_DEVICE, made,
                  start_up_born(p, LANE_COMPUTE, CATEGORY_GRADIENT, (enum dtype)vector->dtype,
                                elements_of(vector)));
    start_up_dies(p, made);
}

static uint64_t largest_vector(const struct plan *plan)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const struct plan_piece *piece = plan_piece(plan, i, PIECE_MASTER);
        const uint64_t n = piece ? elements_of(&plan->buffers[piece->buffer]) : 0;
        largest = n > largest ? n : largest;
    }
    return largest;
}

/* initialize_optimizer_states: with zeros for the largest group. */
static void try_groups(struct program *p)
{
    const bool offloads = options(p)->optimizer.on;
    const uint32_t zeros = start_up_born(p, offloads ? LANE_HOST : LANE_COMPUTE, CATEGORY_GRADIENT,
                                         DTYPE_FP32, largest_vector(p->of));
    if (offloads)
        each_vector(p, p->of, PIECE_MASTER, group_gradient);
    start_up_dies(p, zeros);
}

/* One rank gathers of itself. */
static uint8_t shard_group(const struct program *p)
{
    const uint8_t group = plan_group_of_role(p->of, GROUP_SHARD);
    return group == PLAN_NO_GROUP ? p->world : group;
}

/* This rank's piece of a parameter on the device. */
static uint32_t bring_shard(struct program *p, uint32_t param)
{
    const uint64_t part = part_of(p, param);
    if (!options(p)->param.on)
        return start_up_buffer(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p), part);
    const uint32_t copy =
        start_up_born(p, LANE_COMPUTE, CATEGORY_ALL_GATHER, compute_dtype(p), part);
    start_up_copy(p, PLAN_HOST_TO_DEVICE,
                  start_up_buffer(p, LANE_HOST, CATEGORY_SHARDED_PARAM, compute_dtype(p), part),
                  copy);
    return copy;
}

/* What was born since `before` were alive. */
static void drop_since(struct program *p, uint32_t before)
{
    while (p->alive_count > before)
        start_up_dies(p, p->alive[p->alive_count - 1]);
}

/* Parameters [first, end), of which p->full are to be whole on the device: one by itself, several
 * at once, with all pieces that are on the host there first. */
static void gather_params(struct program *p, uint32_t first, uint32_t end)
{
    uint32_t *shards = xcalloc(end - first, sizeof *shards);
    for (uint32_t i = first; i < end; i++)
        shards[i - first] = bring_shard(p, i);
    for (uint32_t i = first; i < end; i++) {
        p->full[i] = start_up_born(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM, compute_dtype(p),
                                   part_of(p, i) * p->of->world);
        start_up_move(p, PLAN_ALL_GATHER, WORK_ALL_GATHER, shards[i - first], p->full[i],
                      shard_group(p));
    }
    for (uint32_t i = first; i < end && options(p)->param.on; i++)
        start_up_dies(p, shards[i - first]);
    free(shards);
}

/* The bucket, the gradients' partition; and the hooks, for which each parameter is gathered. */
static void make_hooks(struct program *p)
{
    const struct strategy *s = p->job->strategy;
    const enum dtype gradients = s->grad_accum_fp32 ? DTYPE_FP32 : compute_dtype(p);
    const uint64_t elements = elements_of_role(p->of, PIECE_MASTER);
    if (s->zero.contiguous_gradients)
        start_up_born(p, LANE_COMPUTE, CATEGORY_BUCKET, compute_dtype(p),
                      s->zero.reduce_bucket_size);
    if (s->zero.optimizer.on)
        born_pinned(p, CATEGORY_GRADIENT, gradients, elements, &s->zero.optimizer);
    else
        start_up_born(p, LANE_COMPUTE, CATEGORY_GRADIENT, gradients, elements);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        if (trains(p, i)) {
            gather_params(p, i, i + 1);
            start_up_dies(p, p->full[i]);
        }
}

static void initialise3(struct program *p, enum start_up_way way)
{
    if (way == START_UP_ZERO_INIT) {
        make_partitioned(p);
    } else {
        make_model(p, way == START_UP_CPU ? LANE_HOST : LANE_COMPUTE);
        for (uint32_t i = 0; i < p->of->param_count; i++)
            broadcast_param(p, i);
        for (uint32_t i = 0; i < p->of->param_count; i++) { /* a second time, as zero.Init does */
            broadcast_param(p, i);
            partition(p, i);
        }
    }
    start_up_born(p, options(p)->optimizer.on ? LANE_HOST : LANE_COMPUTE, CATEGORY_PERSISTENT,
                  DTYPE_BOOL, 1); /* inf_or_nan_tracker */
    defragment(p);
    each_vector(p, p->of, PIECE_MASTER, master_clone);
    try_groups(p);
    make_hooks(p);
}

/* ---- checkpoints ---- */

/* checkpoint_event_prologue and _epilogue: small parameters are partitioned, and gathered again. */
static void drop_persistent(struct program *p)
{
    for (uint32_t i = 0; i < p->of->param_count; i++) {
        const struct plan_piece *piece = plan_piece(p->of, i, PIECE_GATHERED);
        if (piece && p->kept[piece->buffer] != NONE)
            start_up_emit(p, PLAN_FREE, p->kept[piece->buffer], PLAN_NO_GROUP);
    }
}

static bool is_persistent(const struct program *p, uint32_t param)
{
    const struct plan_piece *piece = plan_piece(p->of, param, PIECE_GATHERED);
    return piece && p->kept[piece->buffer] != NONE;
}

/* Several at once: pieces that are on the host are all brought first. One rank has no group: what
 * it brings is the parameter. */
static void gather_persistent(struct program *p)
{
    const bool alone = p->of->world == 1;
    const uint32_t before = p->alive_count;
    uint32_t *shards = xcalloc(p->of->param_count + 1, sizeof *shards);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        if (is_persistent(p, i) && !alone)
            shards[i] = bring_shard(p, i);
    for (uint32_t i = 0; i < p->of->param_count; i++) {
        if (!is_persistent(p, i))
            continue;
        const uint32_t whole = p->kept[plan_piece(p->of, i, PIECE_GATHERED)->buffer];
        start_up_emit(p, PLAN_ALLOC, whole, PLAN_NO_GROUP);
        if (alone)
            start_up_copy(p, PLAN_HOST_TO_DEVICE,
                          start_up_buffer(p, LANE_HOST, CATEGORY_SHARDED_PARAM, compute_dtype(p),
                                          part_of(p, i)),
                          whole);
        else
            start_up_move(p, PLAN_ALL_GATHER, WORK_ALL_GATHER, shards[i], whole, shard_group(p));
    }
    drop_since(p, before);
    free(shards);
}

/* _checkpoint_tag_validation: a hash of 20 bytes, and what is made to compare it. */
static void validate_tag(struct program *p)
{
    enum { HASH = 20, COPIES = 4 };
    uint32_t copies[COPIES];
    const uint32_t host = start_up_born(p, LANE_HOST, CATEGORY_PERSISTENT, DTYPE_BOOL, HASH);
    for (int i = 0; i < COPIES; i++) {
        copies[i] = start_up_born(p, LANE_COMPUTE, CATEGORY_PERSISTENT, DTYPE_BOOL, HASH);
        if (i == 0)
            start_up_dies(p, host);
    }
    for (int i = 0; i < COPIES; i++)
        start_up_dies(p, copies[i]);
}

/* torch.save takes what is on the device by way of the host. */
static void stage_vector(struct program *p, const struct buffer *vector)
{
    if (vector->pool != LANE_HOST)
        start_up_stage(p, (enum dtype)vector->dtype, elements_of(vector));
}

/* frozen_param_fragments: stages 2 and 3 write what is frozen by itself, as a rank has it. */
static bool has_fragments(const struct start_up_job *job)
{
    return job->strategy->system != SYSTEM_ZERO1;
}

/* Those, on the host. */
static void copy_fragments(struct program *p, enum dtype dtype)
{
    for (uint32_t i = 0; i < p->of->param_count; i++) {
        const struct buffer *own = &p->of->buffers[start_up_store(p, i)->buffer];
        if (trains(p, i) || own->pool == LANE_HOST)
            continue;
        start_up_copy(p, PLAN_DEVICE_TO_HOST,
                      start_up_buffer(p, LANE_COMPUTE, CATEGORY_PARAM, dtype, elements_of(own)),
                      start_up_born(p, LANE_HOST, CATEGORY_PARAM, dtype, elements_of(own)));
    }
}

static void save(struct program *p, enum start_up_way way)
{
    (void)way;
    const bool stage3 = p->job->strategy->system == SYSTEM_ZERO3;
    if (stage3)
        drop_persistent(p);
    validate_tag(p);
    const uint32_t before = p->alive_count;
    if (has_fragments(p->job))
        copy_fragments(p, compute_dtype(p));
    if (!stage3 && p->first)
        each_vector(p, p->of, PIECE_STORE, stage_vector);
    drop_since(p, before);
    each_vector(p, p->of, PIECE_MASTER, stage_vector);
    each_vector(p, p->of, PIECE_EXP_AVG, stage_vector);
    each_vector(p, p->of, PIECE_EXP_AVG_SQ, stage_vector);
    if (stage3)
        gather_persistent(p);
}

static void broadcast_back(struct program *p, uint32_t param)
{
    const uint32_t whole = start_up_buffer(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM,
                                           compute_dtype(p), start_up_elements(p->of, param));
    start_up_move(p, PLAN_BROADCAST, WORK_BROADCAST, whole, whole, p->world);
    if (p->full[param] != NONE)
        start_up_dies(p, p->full[param]);
}

/* _no_gather_coalesced: several parameters of one rank are what it has, on the device. NONE: they
 * are there. */
static uint32_t own_whole(struct program *p, uint32_t param)
{
    const uint64_t elements = part_of(p, param);
    if (!options(p)->param.on)
        return NONE;
    const uint32_t whole =
        start_up_born(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM, compute_dtype(p), elements);
    start_up_copy(p, PLAN_HOST_TO_DEVICE,
                  start_up_buffer(p, LANE_HOST, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements),
                  whole);
    return whole;
}

/* save_16bit_model: a module at a time is gathered, and broadcast again by rank 0, which might have
 * changed it. What is another module's, too, is gathered for that as well, and known already. */
static void gather_16bit(struct program *p, enum start_up_way way)
{
    (void)way;
    const uint32_t twice = start_up_tied(p->of, p->tied);
    drop_persistent(p);
    for (uint32_t i = 0, end; i < p->of->param_count; i = end) {
        end = module_end(p->of, i);
        if (end - i == 1 || p->of->world > 1)
            gather_params(p, i, end);
        for (uint32_t j = i; end - i > 1 && p->of->world == 1 && j < end; j++)
            p->full[j] = own_whole(p, j);
        for (uint32_t j = i; p->first && j < end; j++)
            start_up_copy(p, PLAN_DEVICE_TO_HOST,
                          start_up_buffer(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM,
                                          compute_dtype(p), start_up_elements(p->of, j)),
                          start_up_born(p, LANE_HOST, CATEGORY_PARAM, compute_dtype(p),
                                        start_up_elements(p->of, j)));
        for (uint32_t j = i; j < end; j++)
            broadcast_back(p, j);
    }
    if (twice != NONE) {
        gather_params(p, twice, twice + 1);
        broadcast_back(p, twice);
    }
    gather_persistent(p);
}

static void read_vector(struct program *p, const struct buffer *vector)
{
    start_up_born(p, LANE_HOST, CATEGORY_OPTIMIZER, (enum dtype)vector->dtype, elements_of(vector));
}

/* A loaded state where it is updated. */
static void load_vector(struct program *p, const struct buffer *vector)
{
    const enum dtype dtype = (enum dtype)vector->dtype;
    const uint64_t elements = elements_of(vector);
    if (vector->pool == LANE_HOST)
        return;
    start_up_copy(p, PLAN_HOST_TO_DEVICE,
                  start_up_buffer(p, LANE_HOST, CATEGORY_OPTIMIZER, dtype, elements),
                  start_up_born(p, LANE_COMPUTE, CATEGORY_OPTIMIZER, dtype, elements));
}

static void read_fragments(struct program *p)
{
    for (uint32_t i = 0; has_fragments(p->job) && i < p->of->param_count; i++)
        if (!trains(p, i))
            read_vector(p, &p->of->buffers[start_up_store(p, i)->buffer]);
}

/* The model's file is read twice: what is in it, then it. Every rank reads that of stages 1 and 2
 * whole, and of stage 3 its own, which has but what is frozen. Fragments stay until the end. */
static void read_model(struct program *p)
{
    const uint32_t before = p->alive_count;
    for (int i = 0; i < 2; i++) {
        if (p->job->strategy->system != SYSTEM_ZERO3)
            each_vector(p, p->of, PIECE_STORE, read_vector);
        read_fragments(p);
        drop_since(p, before);
    }
    read_fragments(p);
}

static void drop_states(struct program *p)
{
    static const enum piece_role states[] = {PIECE_EXP_AVG, PIECE_EXP_AVG_SQ};
    for (uint32_t i = 0; i < p->of->param_count; i++) {
        if (p->of->params[i].step_buffer != PLACE_NONE)
            start_up_let_go(p, p->of->params[i].step_buffer);
        for (int k = 0; k < 2; k++)
            if (plan_piece(p->of, i, states[k]))
                start_up_let_go(p, plan_piece(p->of, i, states[k])->buffer);
    }
}

/* Stages 1 and 2: the vector ends with padding, and some of it is this rank's. */
static bool is_padded(const struct plan *plan)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < plan->param_count; i++)
        elements += plan->params[i].trainable ? start_up_elements(plan, i) : 0;
    return elements_of_role(plan, PIECE_MASTER) * (plan->rank + 1) > elements;
}

static void load(struct program *p, enum start_up_way way)
{
    (void)way;
    const bool stage3 = p->job->strategy->system == SYSTEM_ZERO3;
    if (stage3)
        drop_persistent(p);
    read_model(p);
    start_up_born(p, LANE_HOST, CATEGORY_OPTIMIZER, DTYPE_FP32, 1); /* the step */
    each_vector(p, p->of, PIECE_MASTER, read_vector);
    each_vector(p, p->of, PIECE_EXP_AVG, read_vector);
    each_vector(p, p->of, PIECE_EXP_AVG_SQ, read_vector);
    each_vector(p, p->of, PIECE_EXP_AVG, load_vector);
    each_vector(p, p->of, PIECE_EXP_AVG_SQ, load_vector);
    drop_states(p);
    if (stage3)
        gather_persistent(p);
    else if (is_padded(p->of)) /* its fp32 values with the padding that was not saved */
        start_up_dies(p, start_up_born(p, LANE_HOST, CATEGORY_OPTIMIZER, DTYPE_FP32,
                                       elements_of_role(p->of, PIECE_MASTER)));
}

/* ---- bytes of files ---- */

static uint64_t optimizer_bytes(const struct plan *plan)
{
    const uint64_t states = elements_of_role(plan, PIECE_EXP_AVG);
    return dtype_bytes(DTYPE_FP32) * (elements_of_role(plan, PIECE_MASTER) + 2 * states);
}

/* Elements of what is frozen that a rank has. */
static uint64_t frozen_elements(const struct plan *plan)
{
    uint64_t elements = 0;
    for (uint32_t i = 0; i < plan->param_count; i++)
        if (!plan->params[i].trainable)
            elements += elements_of(&plan->buffers[plan_piece(plan, i, PIECE_STORE)->buffer]);
    return elements;
}

/* Every rank has as much; the model of stages 1 and 2 is the flat vector and what is frozen. */
static uint64_t files(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    const bool stage3 = job->strategy->system == SYSTEM_ZERO3, reads = way == START_UP_LOAD;
    const uint64_t fragments = has_fragments(job) ? frozen_elements(job->plan) : 0;
    const uint64_t model =
        stage3 ? fragments
               : (rank > 0 && !reads ? 0 : elements_of_role(job->plan, PIECE_STORE) + fragments);
    return optimizer_bytes(job->plan) +
           model * dtype_bytes(job->strategy->compute) * (reads ? 2 : 1);
}

static uint64_t model_file(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    (void)way;
    uint64_t bytes = 0;
    for (uint32_t i = 0; rank == 0 && i < job->plan->param_count; i++)
        bytes += shape_bytes(&job->plan->params[i].shape, job->strategy->compute);
    return bytes;
}

const struct start_up_method start_up_zero12_methods[] = {
    {START_UP_CPU, "whole on each rank's CPU, deepspeed.initialize", initialise12, NULL, false},
    {START_UP_GPU, "whole on the GPU, deepspeed.initialize", initialise12, NULL, false},
    {START_UP_SAVE, "engine.save_checkpoint", save, files, false},
    {START_UP_LOAD, "engine.load_checkpoint of as many ranks", load, files, false},
    {START_UP_WAYS, NULL, NULL, NULL, false},
};

const struct start_up_method start_up_zero3_methods[] = {
    {START_UP_ZERO_INIT, "under deepspeed.zero.Init, on the GPU", initialise3, NULL, false},
    {START_UP_CPU, "whole on each rank's CPU, deepspeed.initialize", initialise3, NULL, false},
    {START_UP_GPU, "whole on the GPU, deepspeed.initialize", initialise3, NULL, false},
    {START_UP_SAVE, "engine.save_checkpoint", save, files, false},
    {START_UP_GATHER_16BIT, "engine.save_16bit_model: whole on rank 0's host", gather_16bit,
     model_file, false},
    {START_UP_LOAD, "engine.load_checkpoint of as many ranks", load, files, false},
    {START_UP_WAYS, NULL, NULL, NULL, false},
};
