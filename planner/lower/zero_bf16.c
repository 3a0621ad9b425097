/* zero_bf16.c - ZeRO stage 1 of bf16 parameters whose gradients are accumulated in fp32: DeepSpeed
 * has another optimizer for that (deepspeed 0.19.8, runtime/bf16_optimizer.py).
 *
 *     backward   .grad of every parameter is autograd's, in bf16, and stays until the step's end;
 *                later micro-batches begin with it zeroed
 *     epilogue   each is cast and added to a vector of fp32 as long as that of the parameters,
 *                which is always there. Behind the last micro-batch a copy of that in bf16 is
 *                summed over all ranks, and copied back
 *     step       the norm of all of it, clipping, the update of this rank's partition; gathered */
#include "lower/zero12.h"

#include <stdlib.h>

bool zero_bf16_has(const struct strategy *s)
{
    return s->system == SYSTEM_ZERO1 && s->grad_accum_fp32 && s->compute == DTYPE_BF16 &&
           !s->zero.optimizer.on;
}

void zero_bf16_set_up(struct lowering *low)
{
    struct zero12 *z = low->state;
    z->gradients = new_resident(low, CATEGORY_GRADIENT, LANE_COMPUTE, ATEN_ZEROS_LIKE, DTYPE_FP32,
                                flat(z->total));
}

static struct operand view_of(const struct lowering *low, uint32_t p)
{
    const struct zero12 *z = zero12_of(low);
    struct operand view = plan_whole_buffer(low->plan, z->gradients);
    view.offset = z->at[p];
    view.shape = low->plan->params[p].shape;
    return view;
}

static void fill(struct lowering *low, struct operand x)
{
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_FILL, ATEN_ZERO_, PLAN_NO_GROUP, 0, NULL, 1,
                 &x);
}

/* backward_prologue: clear_lp_grads. */
void zero_bf16_pre_backward(struct lowering *low, uint32_t module)
{
    const struct zero12 *z = zero12_of(low);
    if (module != MODULE_ROOT || !zero_bf16_has(low->strategy))
        return;
    for (uint32_t i = 0; i < z->count; i++)
        if (low->grad[z->listed[i]].place != NONE)
            fill(low, low->grad[z->listed[i]]);
}

/* _update_hp_grad. */
static void add_up(struct lowering *low, uint32_t p)
{
    const struct operand to = view_of(low, p);
    const struct operand copy = plan_whole_buffer(
        low->plan, alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_TO_COPY, DTYPE_FP32,
                                low->plan->params[p].shape));
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                 &low->grad[p], 1, &copy);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP, 1,
                 &copy, 1, &to);
    emit_free(low, copy.place);
}

/* allreduce_bucket: in communication_data_type, the parameters'. */
static void reduce(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    const uint32_t copy = alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_TO_COPY,
                                       low->strategy->compute, flat(z->total));
    const struct operand whole = plan_whole_buffer(low->plan, copy);
    emit_unary(low, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, z->gradients, copy);
    if (z->group != PLAN_NO_GROUP) {
        emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE,
                  z->group, 1, &copy, 1, &copy);
        zero_scale(low, LANE_COMPUTE, 1.0 / z->ranks, whole, whole);
    }
    emit_unary(low, LANE_COMPUTE, WORK_CAST, ATEN_COPY_, copy, z->gradients);
    emit_free(low, copy);
}

void zero_bf16_final(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    for (uint32_t i = 0; i < z->count; i++)
        add_up(low, z->listed[i]);
    if (low->micro_batch + 1 == low->strategy->accumulate)
        reduce(low);
}

/* This rank's partition of the vector. */
static void declare_gradients(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    for (uint32_t i = 0; i < z->count; i++)
        new_piece(low, z->order[i], PIECE_GRADIENT, z->gradients,
                  z->partition * low->strategy->rank,
                  (struct placement){PLACEMENT_FLAT, z->at[z->order[i]], z->total}, z->group);
}

/* step(). */
void zero_bf16_update(struct lowering *low)
{
    struct zero12 *z = low->state;
    struct operand *gradients = xmalloc((z->count + 1) * sizeof *gradients);
    for (uint32_t i = 0; i < z->count; i++)
        gradients[i] = view_of(low, z->listed[i]);
    const uint32_t norm = zero_norm_of_all(low, z->count, gradients);
    zero_check_norm(low, LANE_COMPUTE, DTYPE_FP32);
    if (low->strategy->max_norm > 0)
        zero_clip_all(low, norm, z->count, gradients);
    low->optimized[0].gradient = zero_run(plan_whole_buffer(low->plan, z->gradients),
                                          z->partition * low->strategy->rank, z->partition);
    declare_gradients(low);
    emit_optimizer(low);
    zero12_cast_back(low);
    zero12_gather(low);
    fill(low, plan_whole_buffer(low->plan, z->gradients));
    emit_free(low, norm);                     /* the one before: this one stays */
    for (uint32_t i = 0; i < z->count; i++) { /* zero_grad(set_to_none=True) */
        emit_free(low, low->grad[z->listed[i]].place);
        low->grad[z->listed[i]] = no_operand();
    }
    free(gradients);
}
