/* start_up_ddp.c - the ways of DistributedDataParallel (see start_up.h): the model is whole on
 * every rank, rank 0 saves it with torch.save, and every rank loads the file. Those of one GPU that
 * trains alone are the same without DDP's own part. */
#include "job/start_up_parts.h"

#include <stdlib.h>

static const enum piece_role states[] = {PIECE_EXP_AVG, PIECE_EXP_AVG_SQ};
enum { STATES = sizeof states / sizeof states[0] };

/* _sync_module_states: parameters, then buffers. */
static void sync_module_states(struct program *p)
{
    const uint32_t params = p->of->param_count, count = params + p->of->module_buffer_count;
    enum dtype *dtypes = xcalloc(count + 1, sizeof *dtypes);
    uint64_t *elements = xcalloc(count + 1, sizeof *elements);
    for (uint32_t i = 0; i < params; i++) {
        dtypes[i] = start_up_dtype(p->of, start_up_store(p, i));
        elements[i] = start_up_elements(p->of, i);
    }
    for (uint32_t i = params; i < count; i++) {
        const struct buffer *b = &p->of->buffers[p->of->module_buffers[i - params].buffer];
        dtypes[i] = (enum dtype)b->dtype;
        elements[i] = b->bytes / dtype_bytes(dtypes[i]);
    }
    start_up_broadcast(p, p->world, count, dtypes, elements);
    free(dtypes);
    free(elements);
}

/* The first backward has all gradients of a dtype in one bucket; they are divided behind it. What
 * is frozen has none. */
static void make_buckets(struct program *p)
{
    uint64_t elements[DTYPE_COUNT] = {0};
    for (uint32_t i = 0; i < p->of->param_count; i++)
        if (p->of->params[i].trainable)
            elements[start_up_dtype(p->of, start_up_store(p, i))] += start_up_elements(p->of, i);
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
        if (elements[dtype])
            start_up_born(p, LANE_COMPUTE, CATEGORY_BUCKET, (enum dtype)dtype, elements[dtype]);
}

static void make_whole(struct program *p, enum start_up_way way)
{
    const uint8_t pool = way == START_UP_CPU ? LANE_HOST : LANE_COMPUTE;
    uint32_t *buffers = xcalloc(p->of->module_buffer_count + 1, sizeof *buffers);
    start_up_construct(p, pool, buffers);
    for (uint32_t i = 0; i < p->of->param_count; i++)
        start_up_move_param(p, i);
    if (pool == LANE_HOST)
        start_up_move_buffers(p, buffers);
    free(buffers);
}

static void initialise(struct program *p, enum start_up_way way)
{
    make_whole(p, way);
    sync_module_states(p);
    make_buckets(p);
}

static uint64_t elements_in(const struct program *p, uint32_t param, enum piece_role role,
                            enum dtype *dtype)
{
    const struct plan_piece *piece = plan_piece(p->of, param, role);
    if (!piece)
        return 0;
    *dtype = start_up_dtype(p->of, piece);
    return start_up_elements(p->of, param);
}

/* torch.save: a storage at a time. */
static void save(struct program *p, enum start_up_way way)
{
    enum dtype dtype = DTYPE_FP32;
    for (uint32_t i = 0; p->first && i < p->of->param_count; i++) {
        uint64_t elements = elements_in(p, i, PIECE_STORE, &dtype);
        start_up_stage(p, dtype, elements);
        for (int k = 0; way == START_UP_FULL_OPTIMIZER && k < STATES; k++) {
            elements = elements_in(p, i, states[k], &dtype);
            start_up_stage(p, dtype, elements);
        }
    }
}

/* The whole file onto every host; then load_state_dict copies parameters into theirs, and makes the
 * optimizer's states. */
static void load(struct program *p, enum start_up_way way)
{
    (void)way;
    enum dtype dtype = DTYPE_FP32;
    const uint32_t params = p->of->param_count;
    uint32_t(*host)[1 + STATES] = xcalloc(params + 1, sizeof *host);
    for (uint32_t i = 0; i < params; i++) {
        host[i][0] =
            start_up_born(p, LANE_HOST, CATEGORY_PARAM, start_up_dtype(p->of, start_up_store(p, i)),
                          start_up_elements(p->of, i));
        for (int k = 0; k < STATES; k++) {
            const uint64_t elements = elements_in(p, i, states[k], &dtype);
            host[i][k + 1] =
                elements ? start_up_born(p, LANE_HOST, CATEGORY_OPTIMIZER, dtype, elements) : NONE;
        }
        if (p->of->params[i].step_buffer != PLACE_NONE)
            start_up_born(p, LANE_HOST, CATEGORY_OPTIMIZER, DTYPE_FP32, 1);
    }
    for (uint32_t i = 0; i < params; i++)
        start_up_copy(p, PLAN_HOST_TO_DEVICE, host[i][0],
                      start_up_buffer(p, LANE_COMPUTE, CATEGORY_PARAM,
                                      start_up_dtype(p->of, start_up_store(p, i)),
                                      start_up_elements(p->of, i)));
    for (uint32_t i = 0; i < params; i++)
        for (int k = 0; k < STATES; k++) {
            const uint64_t elements = elements_in(p, i, states[k], &dtype);
            if (elements)
                start_up_copy(p, PLAN_HOST_TO_DEVICE, host[i][k + 1],
                              start_up_born(p, LANE_COMPUTE, CATEGORY_OPTIMIZER, dtype, elements));
        }
    free(host);
}

static uint64_t file(const struct start_up_job *job, enum start_up_way way, uint32_t rank)
{
    if (way != START_UP_LOAD && rank > 0)
        return 0;
    struct start_up_job once = *job; /* one storage of two names is written once */
    once.tied = false;
    const struct start_up_bytes whole = start_up_whole(&once);
    return whole.parameters + (way == START_UP_FULL ? 0 : whole.states);
}

const struct start_up_method start_up_ddp_methods[] = {
    {START_UP_CPU, "whole on each rank's CPU, model.to(device), then DDP", initialise, NULL, false},
    {START_UP_GPU, "whole on the GPU, then DDP", initialise, NULL, false},
    {START_UP_FULL, "torch.save(model.module.state_dict()) by rank 0", save, file, false},
    {START_UP_FULL_OPTIMIZER, "torch.save of model and optimizer by rank 0", save, file, false},
    {START_UP_LOAD, "torch.load(map_location=\"cpu\") of both on every rank", load, file, true},
    {START_UP_WAYS, NULL, NULL, NULL, false},
};

const struct start_up_method start_up_single_methods[] = {
    {START_UP_CPU, "whole on the CPU, then model.to(device)", make_whole, NULL, false},
    {START_UP_GPU, "whole on the GPU", make_whole, NULL, false},
    {START_UP_FULL, "torch.save(model.state_dict())", save, file, false},
    {START_UP_FULL_OPTIMIZER, "torch.save of model and optimizer", save, file, false},
    {START_UP_LOAD, "torch.load(map_location=\"cpu\") of both", load, file, true},
    {START_UP_WAYS, NULL, NULL, NULL, false},
};
