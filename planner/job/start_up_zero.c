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

/* Elements of the buffers of a role, each once: `at` is called with them in order. */
typedef void (*vector_visit)(struct program *p, enum dtype dtype, uint64_t elements);

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
        const uint64_t elements = b->bytes / dtype_bytes((enum dtype)b->dtype);
        all += elements;
        if (visit)
            visit(p, (enum dtype)b->dtype, elements);
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
    if (p->of->world > 1)
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

/* flatten_dense_tensors_aligned on the device, or where it has no room, on the host: then a tensor
 * of one fp32 element takes each parameter's place. */
static void flatten(struct program *p)
{
    const uint32_t params = p->of->param_count;
    const uint64_t elements = elements_of_role(p->of, PIECE_STORE);
    const bool host = p->job->flatten_on_host;
    uint32_t *stubs = xcalloc(params + 1, sizeof *stubs);
    uint64_t padding = elements;
    for (uint32_t i = 0; i < params; i++)
        padding -= start_up_elements(p->of, i);
    for (uint32_t i = 0; host && i < params; i++) {
        const uint32_t from = p->full[i];
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
        start_up_dies(p, p->full[i]);
    if (host) {
        start_up_copy(p, PLAN_HOST_TO_DEVICE, vector,
                      start_up_born(p, LANE_COMPUTE, CATEGORY_PARAM, compute_dtype(p), elements));
        start_up_dies(p, vector);
    }
    for (uint32_t i = 0; host && i < params; i++)
        start_up_dies(p, stubs[i]);
    free(stubs);
}

/* The optimizer is tried with a gradient of zeros. */
static void try_optimizer(struct program *p, enum dtype dtype, uint64_t elements)
{
    start_up_dies(p, start_up_born(p, LANE_COMPUTE, CATEGORY_GRADIENT, dtype, elements));
}

/* A copy of the partition, and that in fp32. */
static void master_partition(struct program *p, enum dtype dtype, uint64_t elements)
{
    const uint32_t clone =
        start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements);
    start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype, elements);
    start_up_dies(p, clone);
}

static void initialise12(struct program *p, enum start_up_way way)
{
    make_model(p, way == START_UP_CPU ? LANE_HOST : LANE_COMPUTE);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        broadcast_param(p, i);
    flatten(p);
    each_vector(p, p->of, PIECE_MASTER, master_partition);
    each_vector(p, p->of, PIECE_MASTER, try_optimizer);
}

static uint64_t part_of(const struct program *p, uint32_t param)
{
    return placement_chunk(start_up_elements(p->of, param), p->of->world);
}

/* partition(): this rank's piece; the whole one goes. */
static void partition(struct program *p, uint32_t param)
{
    p->shard[param] =
        start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p), part_of(p, param));
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
        const uint32_t own = p->shard[twice];
        start_up_whole_param(p, twice, LANE_COMPUTE);
        cast_param(p, twice);
        broadcast_param(p, twice);
        partition(p, twice);
        start_up_dies(p, own);
    }
    start_up_module_buffers(p, LANE_COMPUTE, NULL);
}

/* The pieces are put together on the host, so that they leave no holes. */
static void defragment(struct program *p)
{
    const uint64_t elements = elements_of_role(p->of, PIECE_STORE);
    const uint32_t host =
        start_up_born(p, LANE_HOST, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements);
    for (uint32_t i = 0; i < p->of->param_count; i++) {
        start_up_copy(
            p, PLAN_DEVICE_TO_HOST, p->shard[i],
            start_up_buffer(p, LANE_HOST, CATEGORY_SHARDED_PARAM, compute_dtype(p), part_of(p, i)));
        start_up_dies(p, p->shard[i]);
    }
    start_up_copy(
        p, PLAN_HOST_TO_DEVICE, host,
        start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p), elements));
    start_up_dies(p, host);
}

/* .float(), and a clone of that. */
static void master_clone(struct program *p, enum dtype dtype, uint64_t elements)
{
    const uint32_t cast = start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype, elements);
    start_up_born(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, dtype, elements);
    start_up_dies(p, cast);
}

static uint32_t gather_param(struct program *p, uint32_t param)
{
    const uint64_t part = part_of(p, param);
    const uint32_t whole = start_up_born(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM,
                                         compute_dtype(p), part * p->of->world);
    start_up_move(p, PLAN_ALL_GATHER, WORK_ALL_GATHER,
                  start_up_buffer(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p), part),
                  whole, plan_group_of_role(p->of, GROUP_SHARD));
    return whole;
}

/* The bucket, the gradients' partition; and the hooks, for which each parameter is gathered. */
static void make_hooks(struct program *p)
{
    const struct strategy *s = p->job->strategy;
    const enum dtype gradients = s->grad_accum_fp32 ? DTYPE_FP32 : compute_dtype(p);
    if (s->zero.contiguous_gradients)
        start_up_born(p, LANE_COMPUTE, CATEGORY_BUCKET, compute_dtype(p),
                      s->zero.reduce_bucket_size);
    start_up_born(p, LANE_COMPUTE, CATEGORY_GRADIENT, gradients,
                  elements_of_role(p->of, PIECE_STORE));
    for (uint32_t i = 0; i < p->of->param_count; i++)
        start_up_dies(p, gather_param(p, i));
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
    start_up_born(p, LANE_COMPUTE, CATEGORY_PERSISTENT, DTYPE_BOOL, 1); /* inf_or_nan_tracker */
    defragment(p);
    each_vector(p, p->of, PIECE_MASTER, master_clone);
    each_vector(p, p->of, PIECE_MASTER, try_optimizer);
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

static void gather_persistent(struct program *p)
{
    for (uint32_t i = 0; i < p->of->param_count; i++) {
        const struct plan_piece *piece = plan_piece(p->of, i, PIECE_GATHERED);
        if (!piece || p->kept[piece->buffer] == NONE)
            continue;
        const uint32_t whole = p->kept[piece->buffer];
        start_up_emit(p, PLAN_ALLOC, whole, PLAN_NO_GROUP);
        start_up_move(p, PLAN_ALL_GATHER, WORK_ALL_GATHER,
                      start_up_buffer(p, LANE_COMPUTE, CATEGORY_SHARDED_PARAM, compute_dtype(p),
                                      part_of(p, i)),
                      whole, plan_group_of_role(p->of, GROUP_SHARD));
    }
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

static void save(struct program *p, enum start_up_way way)
{
    (void)way;
    const bool stage3 = p->job->strategy->system == SYSTEM_ZERO3;
    if (stage3)
        drop_persistent(p);
    validate_tag(p);
    if (!stage3 && p->first)
        each_vector(p, p->of, PIECE_STORE, start_up_stage);
    each_vector(p, p->of, PIECE_MASTER, start_up_stage);
    each_vector(p, p->of, PIECE_EXP_AVG, start_up_stage);
    each_vector(p, p->of, PIECE_EXP_AVG_SQ, start_up_stage);
    if (stage3)
        gather_persistent(p);
}

static void broadcast_back(struct program *p, uint32_t param)
{
    const uint32_t whole = start_up_buffer(p, LANE_COMPUTE, CATEGORY_UNSHARDED_PARAM,
                                           compute_dtype(p), start_up_elements(p->of, param));
    start_up_move(p, PLAN_BROADCAST, WORK_BROADCAST, whole, whole, p->world);
    start_up_dies(p, p->full[param]);
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
        for (uint32_t j = i; j < end; j++)
            p->full[j] = gather_param(p, j);
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
        p->full[twice] = gather_param(p, twice);
        broadcast_back(p, twice);
    }
    gather_persistent(p);
}

static void read_vector(struct program *p, enum dtype dtype, uint64_t elements)
{
    start_up_born(p, LANE_HOST, CATEGORY_OPTIMIZER, dtype, elements);
}

/* A loaded state on the device. */
static void load_vector(struct program *p, enum dtype dtype, uint64_t elements)
{
    start_up_copy(p, PLAN_HOST_TO_DEVICE,
                  start_up_buffer(p, LANE_HOST, CATEGORY_OPTIMIZER, dtype, elements),
                  start_up_born(p, LANE_COMPUTE, CATEGORY_OPTIMIZER, dtype, elements));
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
        elements += start_up_elements(plan, i);
    return elements_of_role(plan, PIECE_MASTER) * (plan->rank + 1) > elements;
}

/* Stages 1 and 2 read the model's file twice: what is in it, then it. Every rank reads it. */
static void load(struct program *p, enum start_up_way way)
{
    (void)way;
    const bool stage3 = p->job->strategy->system == SYSTEM_ZERO3;
    if (stage3)
        drop_persistent(p);
    else
        for (int i = 0; i < 2; i++)
            each_vector(p, p->of, PIECE_STORE, start_up_stage);
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

/* Every rank has as much; the model of stages 1 and 2 is the flat vector. */
static uint64_t files(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    const bool stage3 = job->strategy->system == SYSTEM_ZERO3, reads = way == START_UP_LOAD;
    const uint64_t vector =
        elements_of_role(job->plan, PIECE_STORE) * dtype_bytes(job->strategy->compute);
    const uint64_t model = stage3 || (rank > 0 && !reads) ? 0 : vector;
    return optimizer_bytes(job->plan) + model * (reads ? 2 : 1);
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
