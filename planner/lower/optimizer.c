/* optimizer.c - clipping, the optimizer's states and transients (torch/optim/adam.py, sgd.py and
 * nn/utils/clip_grad.py of torch 2.14; births as recorded in tests/data/truth).
 *
 *     foreach   one list of square roots of all second moments: one more local parameter size
 *     fused     nothing, but the step counters are on the device (512 bytes each when allocated)
 *     loop      sqrt and denominator of one parameter, the previous denominator still alive
 *
 * Plain SGD has no state and no transient. Python frees a list from its end. */
#include "lower/lowering.h"

#include <stdlib.h>

static bool has_local_gradient(const struct plan_param *param)
{
    return param->trainable && shape_elements(&param->local) > 0;
}

void declare_optimizer_states(struct lowering *low)
{
    struct plan *plan = low->plan;
    const bool adam = low->strategy->optimizer == OPTIMIZER_ADAMW;
    const bool on_host = low->strategy->offload;
    const enum stream_id pool = on_host ? STREAM_HOST : STREAM_COMPUTE;
    const enum stream_id step_pool =
        low->strategy->impl == IMPL_FUSED && !on_host ? STREAM_COMPUTE : STREAM_HOST;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        struct plan_param *param = &plan->params[i];
        param->state_buffer[0] = param->state_buffer[1] = param->step_buffer = PLACE_NONE;
        if (!adam || !param->trainable)
            continue;
        param->step_buffer = new_buffer(low, CATEGORY_OPTIMIZER, step_pool, ATEN_ZEROS, DTYPE_FP32,
                                        (struct shape){.rank = 0});
        plan->buffers[param->step_buffer].resident = true;
        for (uint32_t s = 0; s < 2 && shape_elements(&param->local) > 0; s++) {
            param->state_buffer[s] = new_buffer(low, CATEGORY_OPTIMIZER, pool, ATEN_ZEROS_LIKE,
                                                low->strategy->store, param->local);
            plan->buffers[param->state_buffer[s]].resident = true;
        }
    }
}

static uint32_t scalar(struct lowering *low, enum aten label, enum dtype dtype)
{
    return alloc_buffer(low, CATEGORY_OPTIMIZER, STREAM_COMPUTE, label, dtype,
                        (struct shape){.rank = 0});
}

static uint32_t vector(struct lowering *low, enum aten label, enum dtype dtype, uint32_t n)
{
    return alloc_buffer(low, CATEGORY_OPTIMIZER, STREAM_COMPUTE, label, dtype, SHAPE(n));
}

/* Gradients that are there, as operands; returns their number. `out` has room for all params. */
static uint32_t collect_gradients(const struct lowering *low, struct operand *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < low->plan->param_count && low->gradient; i++)
        if (low->gradient[i].place != PLACE_NONE)
            out[n++] = low->gradient[i];
    return n;
}

/* A kernel from one scalar or vector to another. */
static uint32_t step(struct lowering *low, enum work_kind work, enum aten label, uint32_t from,
                     uint32_t to)
{
    return emit_work(low, PLAN_COMPUTE, STREAM_COMPUTE, work, label, PLAN_NO_GROUP, 1, &from, 1,
                     &to);
}

/* Squares of the norms are summed over the shards; the result's root is what each norm would have
 * been of the whole gradient. Returns the vector to take the total norm of. */
static uint32_t reduce_norms(struct lowering *low, uint8_t shard_group, uint32_t stacked,
                             uint32_t n)
{
    const enum dtype dtype = low->strategy->store;
    const uint32_t squares = vector(low, ATEN_POW, dtype, n);
    step(low, WORK_SQUARE, ATEN_POW, stacked, squares);
    const uint32_t reduced = vector(low, ATEN_C10D_ALL_REDUCE, dtype, n);
    const uint32_t waited = vector(low, ATEN_C10D_WAIT_TENSOR, dtype, n);
    emit_work(low, PLAN_ALL_REDUCE, STREAM_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_C10D_ALL_REDUCE,
              shard_group, 1, &squares, 1, &waited);
    emit_free(low, reduced);
    const uint32_t summed = vector(low, ATEN_POW, dtype, n);
    step(low, WORK_SQUARE_ROOT, ATEN_SQRT, waited, summed);
    emit_free(low, squares);
    emit_free(low, waited);
    return summed;
}

/* coefficient = clamp(max_norm / (total + 1e-6), max=1), then one multiply of all gradients. */
static void scale_gradients(struct lowering *low, uint32_t total)
{
    const enum dtype dtype = low->strategy->store;
    const uint32_t denominator = scalar(low, ATEN_ADD, dtype);
    const uint32_t inverse = scalar(low, ATEN_RECIPROCAL, dtype);
    const uint32_t ratio = scalar(low, ATEN_MUL, dtype);
    emit_free(low, inverse);
    emit_free(low, denominator);
    const uint32_t clamped = scalar(low, ATEN_CLAMP, dtype);
    const uint32_t clamp = step(low, WORK_CLIP_COEFFICIENT, ATEN_CLAMP, total, clamped);
    emit_free(low, ratio);
    if (!low->tally) {
        low->plan->kernels[clamp].attr.p = low->strategy->max_norm;
        struct operand *in = xmalloc((low->plan->param_count + 1) * sizeof *in);
        in[0] = plan_whole_buffer(low->plan, clamped);
        const uint32_t n = collect_gradients(low, in + 1);
        emit_work_on(low, PLAN_COMPUTE, STREAM_COMPUTE, WORK_SCALE, ATEN_FOREACH_MUL_,
                     PLAN_NO_GROUP, n + 1, in, n, in + 1);
        free(in);
    }
    emit_free(low, clamped);
}

static void emit_norms(struct lowering *low, const uint32_t *norms, uint32_t n)
{
    if (low->tally)
        return;
    struct operand *in = xmalloc((2 * (size_t)n + 1) * sizeof *in), *out = in + n;
    if (collect_gradients(low, in) == n) {
        for (uint32_t i = 0; i < n; i++)
            out[i] = plan_whole_buffer(low->plan, norms[i]);
        emit_work_on(low, PLAN_COMPUTE, STREAM_COMPUTE, WORK_NORMS, ATEN_FOREACH_NORM,
                     PLAN_NO_GROUP, n, in, n, out);
    }
    free(in);
}

void emit_clip(struct lowering *low, uint8_t shard_group)
{
    struct plan *plan = low->plan;
    const enum dtype dtype = low->strategy->store;
    uint32_t *norms = xmalloc((plan->param_count + 1) * sizeof *norms), n = 0;
    for (uint32_t i = 0; i < plan->param_count; i++)
        if (plan->params[i].trainable)
            norms[n++] = scalar(low, ATEN_FOREACH_NORM, dtype);
    emit_norms(low, norms, n);
    const uint32_t stacked = vector(low, ATEN_STACK, dtype, n);
    emit_work(low, PLAN_COMPUTE, STREAM_COMPUTE, WORK_STACK, ATEN_STACK, PLAN_NO_GROUP, n, norms, 1,
              &stacked);
    const uint32_t summed =
        shard_group == PLAN_NO_GROUP ? stacked : reduce_norms(low, shard_group, stacked, n);
    const uint32_t total = scalar(low, ATEN_LINALG_VECTOR_NORM, dtype);
    step(low, WORK_VECTOR_NORM, ATEN_LINALG_VECTOR_NORM, summed, total);
    if (summed != stacked)
        emit_free(low, summed);
    emit_free(low, stacked);
    for (uint32_t i = 0; i < n; i++)
        emit_free(low, norms[i]);
    scale_gradients(low, total);
    emit_free(low, total);
    free(norms);
}

/* Whether the update changes anything of parameter i on this rank. */
static bool is_updated(const struct lowering *low, uint32_t i)
{
    return low->gradient[i].place != PLACE_NONE && has_local_gradient(&low->plan->params[i]);
}

/* The update: gradients in; parameters, and what states there are, in and out. */
static void emit_update(struct lowering *low, enum work_kind work, enum aten label)
{
    if (low->tally)
        return;
    const struct plan *plan = low->plan;
    struct operand *in = xmalloc((4 * (size_t)plan->param_count + 1) * sizeof *in);
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->param_count; i++)
        if (is_updated(low, i))
            in[n++] = low->gradient[i];
    const uint32_t gradients = n;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        if (!is_updated(low, i))
            continue;
        in[n] = plan_whole_buffer(plan, plan->params[i].shard_buffer);
        in[n++].shape = plan->params[i].local;
    }
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t i = 0; i < plan->param_count; i++)
            if (is_updated(low, i) && plan->params[i].state_buffer[s] != PLACE_NONE)
                in[n++] = plan_whole_buffer(plan, plan->params[i].state_buffer[s]);
    emit_work_on(low, PLAN_OPTIMIZER, low->strategy->offload ? STREAM_HOST : STREAM_COMPUTE, work,
                 label, PLAN_NO_GROUP, n, in, n - gradients, in + gradients);
    free(in);
}

static void create_states(struct lowering *low)
{
    low->here.flags |= PLAN_FIRST_STEP;
    for (uint32_t i = 0; i < low->plan->param_count; i++) {
        const struct plan_param *param = &low->plan->params[i];
        const uint32_t buffers[] = {param->step_buffer, param->state_buffer[0],
                                    param->state_buffer[1]};
        for (uint32_t b = 0; b < 3; b++)
            if (buffers[b] != PLACE_NONE)
                emit_alloc(low, buffers[b]);
    }
    low->here.flags &= (uint8_t)~PLAN_FIRST_STEP;
}

static void adam_foreach(struct lowering *low)
{
    struct plan *plan = low->plan;
    uint32_t *roots = xmalloc((plan->param_count + 1) * sizeof *roots), n = 0;
    const uint32_t literal = alloc_buffer(low, CATEGORY_OPTIMIZER, STREAM_HOST, ATEN_LIFT_FRESH,
                                          DTYPE_FP32, (struct shape){.rank = 0});
    emit_free(low, literal); /* torch.tensor(1.0), added to the CPU step counters */
    for (uint32_t i = 0; i < plan->param_count; i++)
        if (has_local_gradient(&plan->params[i]))
            roots[n++] = alloc_buffer(low, CATEGORY_OPTIMIZER, STREAM_COMPUTE, ATEN_FOREACH_SQRT,
                                      low->strategy->store, plan->params[i].local);
    emit_update(low, WORK_ADAMW, ATEN_ADAMW);
    if (n)
        emit_free(low, roots[n - 1]); /* a loop variable's, rebound first */
    for (uint32_t i = n ? n - 1 : 0; i-- > 0;)
        emit_free(low, roots[i]);
    free(roots);
}

static void adam_loop(struct lowering *low)
{
    struct plan *plan = low->plan;
    uint32_t previous = PLACE_NONE;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const struct plan_param *param = &plan->params[i];
        if (!has_local_gradient(param))
            continue;
        const uint32_t root = alloc_buffer(low, CATEGORY_OPTIMIZER, STREAM_COMPUTE, ATEN_SQRT,
                                           low->strategy->store, param->local);
        const uint32_t denominator = alloc_buffer(low, CATEGORY_OPTIMIZER, STREAM_COMPUTE, ATEN_DIV,
                                                  low->strategy->store, param->local);
        emit_free(low, root);
        if (previous != PLACE_NONE)
            emit_free(low, previous);
        previous = denominator;
    }
    emit_update(low, WORK_ADAMW, ATEN_ADAMW);
    if (previous != PLACE_NONE)
        emit_free(low, previous);
}

void emit_optimizer(struct lowering *low)
{
    const struct strategy *strategy = low->strategy;
    create_states(low);
    if (strategy->optimizer == OPTIMIZER_SGD)
        emit_update(low, WORK_SGD, ATEN_FOREACH_ADD_);
    else if (strategy->impl == IMPL_FUSED)
        emit_update(low, WORK_ADAMW_FUSED, ATEN_FUSED_ADAMW_);
    else if (strategy->offload)
        emit_update(low, WORK_ADAMW, ATEN_ADAMW); /* transients are the CPU's */
    else if (strategy->impl == IMPL_FOREACH)
        adam_foreach(low);
    else
        adam_loop(low);
}
