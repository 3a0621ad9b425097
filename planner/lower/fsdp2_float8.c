/* fsdp2_float8.c - weights that are gathered in float8: torchao's extension of fully_shard
 * (WeightWithDynamicFloat8CastTensor, torchao/float8/fsdp_utils.py of 0.18).
 *
 * A shard is cast before the gather, by the scale of the whole parameter: its largest element is
 * found on each rank and over the ranks, one all-reduce of a number a parameter and gather, or
 * (precomputed) one of all of them after the update. Shards, gradients and states stay as they are.
 * PyTorch lets go of a gather's scale when the next one is there; here it is written anew in its
 * place, once those who read it have run: a wait that costs nothing, as they ran before the gather
 * is asked for. */
#include "lower/fsdp2.h"

#include <stdlib.h>

/* float8_e4m3fn's largest (float8_utils.py, amax_to_scale). */
#define LARGEST 448.0F

bool is_in_float8(const struct lowering *low, uint32_t param)
{
    return low->graph->params[param].scale != GRAPH_NONE;
}

bool has_float8(const struct lowering *low, const struct unit *unit)
{
    if (low->graph->float8_gather == FLOAT8_GATHER_NOT) /* no parameter is: asked at every gather */
        return false;
    for (uint32_t i = 0; i < unit->count; i++)
        if (is_in_float8(low, unit->params[i]))
            return true;
    return false;
}

enum err_code fsdp2_check_float8(const struct strategy *s, const struct graph *graph,
                                 struct err *err)
{
    const uint32_t ranks = s->world / s->replicate;
    const char *option = ranks == 1                           ? "without sharding"
                         : s->offload                         ? "with --offload"
                         : s->columns                         ? "with --shard-dim"
                         : s->reshard == RESHARD_INT          ? "with --reshard N"
                         : graph->float8 != FLOAT8_TENSORWISE ? "but for --float8 tensorwise"
                                                              : NULL;
    if (option)
        return err_set(err, ERR_UNSUPPORTED, "--float8-gather %s is not planned", option);
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (graph->params[p].scale != GRAPH_NONE && graph->params[p].shape.dim[0] % ranks)
            return err_set(err, ERR_INVALID,
                           "--float8-gather: %s has %u rows, which %u ranks do not share evenly: "
                           "FSDP2's extensions ask for that",
                           graph->params[p].name, graph->params[p].shape.dim[0], ranks);
    return ERR_OK;
}

/* ---- kernels on a lane ---- */

struct place { /* where buffers of a chain of kernels are, and run */
    enum category category;
    uint8_t lane;
};

static uint32_t made(struct lowering *low, struct place at, enum work_kind work, enum aten label,
                     enum dtype dtype, struct shape shape, float number, uint32_t from)
{
    const uint32_t to = alloc_buffer(low, at.category, at.lane, label, dtype, shape);
    const uint32_t kernel = emit_unary(low, at.lane, work, label, from, to);
    plan_own_kernel(low->plan, kernel)->attr.p = number;
    return to;
}

/* amax_to_scale, in fp64: the largest that float8 has over the largest that is there. */
static void find_scale(struct lowering *low, struct place at, uint32_t least, uint32_t scale,
                       struct shape shape)
{
    const uint32_t inverse =
        made(low, at, WORK_RECIPROCAL, ATEN_RECIPROCAL, DTYPE_FP64, shape, 0, least);
    const uint32_t quotient =
        made(low, at, WORK_MUL_NUMBER, ATEN_MUL, DTYPE_FP64, shape, LARGEST, inverse);
    emit_free(low, inverse);
    if (shape.rank == 0)
        emit_free(low, least);
    emit_unary(low, at.lane, WORK_CAST, ATEN_TO_COPY, quotient, scale);
    emit_free(low, quotient);
    if (shape.rank > 0)
        emit_free(low, least);
}

static uint32_t scale_of(const struct lowering *low, uint32_t param)
{
    const struct graph *graph = low->graph;
    const uint32_t storage = graph->tensors[graph->params[param].scale].storage;
    return low->plan->module_buffers[graph->storages[storage].index].buffer;
}

/* The scale of the whole parameter, of what this rank has and the others. */
static void find_scale_of(struct lowering *low, struct place at, const struct unit *unit,
                          uint32_t param)
{
    const uint32_t stored = fsdp2_of(low)->store[param];
    const enum dtype store = stored_dtype(low, param);
    const struct shape shape = flat(padded_shard(low, param)), one = {.rank = 0};
    const uint32_t size = made(low, at, WORK_ABS, ATEN_ABS, store, shape, 0, stored);
    const uint32_t amax = made(low, at, WORK_MAXIMUM, ATEN_MAX, store, one, 0, size);
    emit_free(low, size);
    emit_work(low, PLAN_ALL_REDUCE, at.lane, WORK_ALL_REDUCE_MAX, ATEN_C10D_ALL_REDUCE,
              unit->mesh->shard_group, 1, &amax, 1, &amax);
    const uint32_t wide = made(low, at, WORK_CAST, ATEN_TO_COPY, DTYPE_FP64, one, 0, amax);
    const uint32_t least = made(low, at, WORK_WITHIN, ATEN_CLAMP, DTYPE_FP64, one, 0, wide);
    find_scale(low, at, least, scale_of(low, param), one);
    emit_free(low, wide);
    emit_free(low, amax);
}

uint32_t cast_to_float8(struct lowering *low, const struct unit *unit, uint32_t param)
{
    const struct place at = {CATEGORY_ALL_GATHER, unit->comm->copy_in};
    const struct shape shape = flat(padded_shard(low, param));
    const uint32_t stored = fsdp2_of(low)->store[param], scale = scale_of(low, param);
    uint32_t wide = stored;
    if (low->graph->float8_gather == FLOAT8_GATHER_DYNAMIC)
        find_scale_of(low, at, unit, param);
    if (stored_dtype(low, param) != DTYPE_FP32)
        wide = made(low, at, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, shape, 0, stored);
    const uint32_t product = alloc_buffer(low, at.category, at.lane, ATEN_MUL, DTYPE_FP32, shape);
    emit_work(low, PLAN_COMPUTE, at.lane, WORK_MUL, ATEN_MUL, PLAN_NO_GROUP, 2,
              (uint32_t[]){wide, scale}, 1, &product);
    if (wide != stored)
        emit_free(low, wide);
    const uint32_t within =
        made(low, at, WORK_WITHIN, ATEN_CLAMP, DTYPE_FP32, shape, LARGEST, product);
    const uint32_t bits =
        made(low, at, WORK_CAST, ATEN_TO_COPY, DTYPE_FLOAT8_E4M3, shape, 0, within);
    emit_free(low, within);
    emit_free(low, product);
    return bits;
}

/* ---- all scales at once, after the update ---- */

static uint32_t *float8_params(const struct lowering *low, uint32_t *count)
{
    uint32_t *params = xmalloc((low->plan->param_count + 1) * sizeof *params);
    *count = 0;
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        if (is_in_float8(low, p))
            params[(*count)++] = p;
    return params;
}

/* Of `count` parameters, whose shards' norms are in buffers: one all-reduce, and where each product
 * finds its scale. */
static void share_scales(struct lowering *low, struct place at, uint32_t count,
                         const uint32_t *params, const uint32_t *norms)
{
    const struct shape shape = flat(count);
    const enum dtype store = stored_dtype(low, params[0]);
    const uint32_t all = alloc_buffer(low, at.category, at.lane, ATEN_STACK, store, shape);
    emit_work(low, PLAN_COMPUTE, at.lane, WORK_STACK, ATEN_STACK, PLAN_NO_GROUP, count, norms, 1,
              &all);
    const uint32_t most =
        alloc_buffer(low, at.category, at.lane, ATEN_C10D_ALL_REDUCE, store, shape);
    emit_work(low, PLAN_ALL_REDUCE, at.lane, WORK_ALL_REDUCE_MAX, ATEN_C10D_ALL_REDUCE,
              fsdp2_of(low)->mesh.shard_group, 1, &all, 1, &most);
    const uint32_t least = made(low, at, WORK_WITHIN, ATEN_CLAMP, store, shape, 0, most);
    emit_free(low, most);
    emit_free(low, all);
    const uint32_t wide = made(low, at, WORK_CAST, ATEN_TO_COPY, DTYPE_FP64, shape, 0, least);
    emit_free(low, least);
    const uint32_t scales =
        alloc_buffer(low, at.category, at.lane, ATEN_TO_COPY, DTYPE_FP32, shape);
    find_scale(low, at, wide, scales, shape);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t scale = scale_of(low, params[i]);
        const struct operand to = plan_whole_buffer(low->plan, scale);
        struct operand from = plan_whole_buffer(low->plan, scales);
        from.shape = to.shape;
        from.offset = i;
        emit_work_on(low, PLAN_COMPUTE, at.lane, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1, &from, 1,
                     &to);
    }
    emit_free(low, scales);
}

/* precompute_float8_dynamic_scale_for_fsdp: infinity norms of all shards, side by side. */
void precompute_scales(struct lowering *low)
{
    const struct fsdp2 *f = fsdp2_of(low);
    const struct place at = {CATEGORY_OPTIMIZER, LANE_COMPUTE};
    const struct shape one = {.rank = 0};
    uint32_t count;
    if (low->graph->float8_gather != FLOAT8_GATHER_PRECOMPUTED)
        return;
    uint32_t *params = float8_params(low, &count);
    uint32_t *norms = xmalloc((count + 1) * sizeof *norms);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t p = params[i];
        norms[i] = made(low, at, WORK_MAXIMUM, ATEN_FOREACH_NORM, stored_dtype(low, p), one, 0,
                        f->store[p]);
    }
    if (count)
        share_scales(low, at, count, params, norms);
    for (uint32_t i = 0; i < count; i++)
        emit_free(low, norms[i]);
    free(norms);
    free(params);
}
