/* zero_scalars.c - the scalars of a ZeRO step, kernel by kernel (see zero.h).
 *
 * DeepSpeed asks many small questions of its gradients on the device: is a tensor finite, is a norm
 * valid, by how much to clip. Each is a row of kernels whose results are scalars; they are listed
 * here as births and deaths, in order, as the recordings have them. They weigh next to nothing, but
 * each takes a launch. */
#include "lower/zero.h"

#include <stdlib.h>

enum { SLOTS = 8 };

struct scalar_step {
    int8_t slot; /* its number: born; the negative: dies */
    uint16_t label;
    uint8_t dtype;
};

#define BORN(slot, label, dtype)                                                                   \
    {                                                                                              \
        (slot), ATEN_##label, DTYPE_##dtype                                                        \
    }
#define DIES(slot)                                                                                 \
    {                                                                                              \
        -(slot), 0, 0                                                                              \
    }
#define STEPS(list) (list), (uint32_t)(sizeof(list) / sizeof(list)[0])

/* `slots` has what is alive. All have one shape, and those of dtype fp32 that of `wide`. */
static void run_scalars(struct lowering *low, uint8_t lane, const struct scalar_step *steps,
                        uint32_t count, struct shape shape, enum dtype wide, uint32_t slots[SLOTS])
{
    for (uint32_t i = 0; i < count; i++) {
        const struct scalar_step *s = &steps[i];
        if (s->slot < 0)
            emit_free(low, slots[-s->slot]);
        else
            slots[s->slot] =
                alloc_buffer(low, CATEGORY_OPTIMIZER, lane, (enum aten)s->label,
                             s->dtype == DTYPE_FP32 ? wide : (enum dtype)s->dtype, shape);
    }
}

static const struct shape scalar = {.rank = 0};

static uint32_t new_scalar(struct lowering *low, uint8_t lane, enum aten label, enum dtype dtype)
{
    return alloc_buffer(low, CATEGORY_OPTIMIZER, lane, label, dtype, scalar);
}

/* A scalar or vector as fp32, whatever its buffer was born as: what the host backend computes in.
 */
static struct operand as_fp32(const struct lowering *low, uint32_t buffer)
{
    struct operand x = plan_whole_buffer(low->plan, buffer);
    x.dtype = DTYPE_FP32;
    return x;
}

static uint32_t step(struct lowering *low, uint8_t lane, enum work_kind work, enum aten label,
                     uint32_t from, uint32_t to)
{
    const struct operand x = as_fp32(low, from), y = as_fp32(low, to);
    return emit_work_on(low, PLAN_COMPUTE, lane, work, label, PLAN_NO_GROUP, 1, &x, 1, &y);
}

/* ---- infinite gradients ---- */

/* torch.isfinite of slot 1. */
#define IS_FINITE(result)                                                                          \
    BORN(2, ABS, FP32), BORN(3, NE, BOOL), BORN(4, EQ_TENSOR, BOOL), BORN(result, MUL, BOOL),      \
        DIES(4), DIES(3), DIES(2)

/* has_inf_or_nan: the largest and the smallest element are finite. */
static const struct scalar_step overflow_steps[] = {
    BORN(1, AMAX, FP32),        IS_FINITE(5), DIES(1),
    BORN(1, AMIN, FP32),        IS_FINITE(6), DIES(1),
    BORN(2, LOGICAL_AND, BOOL), DIES(6),      DIES(5),
    BORN(3, LOGICAL_NOT, BOOL), DIES(2),      DIES(3),
};

static uint32_t new_flag(struct lowering *low, uint8_t lane, enum aten label, enum dtype dtype)
{
    return alloc_buffer(low, CATEGORY_OPTIMIZER, lane, label, dtype, SHAPE(1));
}

/* A flag as a byte, which all ranks share. */
static void share_flag(struct lowering *low, uint8_t group, uint32_t flag)
{
    const uint32_t byte = new_flag(low, LANE_COMPUTE, ATEN_TO_COPY, DTYPE_UINT8);
    emit_free(low, flag);
    if (group != PLAN_NO_GROUP)
        emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE, group,
                  1, &byte, 1, &byte);
    emit_free(low, byte);
}

void zero_look_at(struct lowering *low, uint8_t lane, enum dtype dtype)
{
    uint32_t slots[SLOTS];
    run_scalars(low, lane, STEPS(overflow_steps), scalar, dtype, slots);
}

void zero_share_overflow(struct lowering *low, uint8_t group)
{
    const uint32_t before = enter_scope(low, "ds_overflow", PLAN_NO_UNIT, false);
    const uint32_t byte = new_flag(low, LANE_COMPUTE, ATEN_LIFT_FRESH, DTYPE_UINT8);
    if (group != PLAN_NO_GROUP)
        emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE, group,
                  1, &byte, 1, &byte);
    emit_free(low, byte);
    leave_scope(low, before);
}

void zero_look_for_overflow(struct lowering *low, uint8_t group, uint32_t count,
                            const struct operand *gradients)
{
    const uint32_t before = enter_scope(low, "ds_overflow", PLAN_NO_UNIT, false);
    const uint32_t found = new_flag(low, LANE_COMPUTE, ATEN_ZEROS, DTYPE_FP32);
    for (uint32_t i = 0; i < count; i++)
        zero_look_at(low, LANE_COMPUTE, (enum dtype)gradients[i].dtype);
    const uint32_t any = new_flag(low, LANE_COMPUTE, ATEN_TO_COPY, DTYPE_BOOL);
    emit_free(low, found);
    share_flag(low, group, any);
    leave_scope(low, before);
}

/* ---- the norm ---- */

/* mask_nan_or_inf_with_val_inplace: births, then deaths. */
enum { MASK_BIRTHS = 4 };
static const struct scalar_step mask_steps[] = {
    BORN(1, ISINF, BOOL),
    BORN(2, ISNAN, BOOL),
    BORN(3, LOGICAL_OR, BOOL),
    BORN(4, LIFT_FRESH, FP32),
    DIES(1),
    DIES(2),
    DIES(3),
    DIES(4),
};

/* Whether slot 1 is infinite or below 0: is_invalid_grad_norm and its like. */
#define IS_INVALID                                                                                 \
    IS_FINITE(5), BORN(2, BITWISE_NOT, BOOL), DIES(5), BORN(3, LT, BOOL),                          \
        BORN(4, BITWISE_OR, BOOL), DIES(2), DIES(3)

static const struct scalar_step invalid_steps[] = {IS_INVALID};
static const struct scalar_step invalid_norm_steps[] = {IS_INVALID, BORN(5, ANY, BOOL), DIES(4),
                                                        DIES(5)};

uint32_t zero_norm_one(struct lowering *low, uint8_t lane, struct operand gradient)
{
    const uint32_t copy =
        alloc_buffer(low, CATEGORY_OPTIMIZER, lane, ATEN_TO_COPY, DTYPE_FP64, gradient.shape);
    const uint32_t norm = new_scalar(low, lane, ATEN_LINALG_VECTOR_NORM, DTYPE_FP64);
    emit_free(low, copy);
    const struct operand out = as_fp32(low, norm);
    emit_work_on(low, PLAN_COMPUTE, lane, WORK_NORMS, ATEN_LINALG_VECTOR_NORM, PLAN_NO_GROUP, 1,
                 &gradient, 1, &out);
    return norm;
}

/* The norm of each gradient, where that is in another dtype from a copy that lives for the moment.
 */
static void emit_norms(struct lowering *low, uint32_t count, const struct operand *gradients,
                       enum dtype dtype, uint32_t *norms)
{
    struct operand *out = xmalloc((count + 1) * sizeof *out);
    for (uint32_t i = 0; i < count; i++) {
        const bool cast = gradients[i].dtype != dtype;
        const uint32_t copy = cast ? alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE,
                                                  ATEN_TO_COPY, dtype, gradients[i].shape)
                                   : NONE;
        norms[i] = new_scalar(low, LANE_COMPUTE, ATEN_LINALG_VECTOR_NORM, dtype);
        if (cast)
            emit_free(low, copy);
        out[i] = as_fp32(low, norms[i]);
    }
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_NORMS, ATEN_LINALG_VECTOR_NORM,
                 PLAN_NO_GROUP, count, gradients, count, out);
    free(out);
}

static uint32_t stack_norms(struct lowering *low, uint8_t lane, uint32_t count,
                            const uint32_t *norms, enum dtype dtype)
{
    struct operand *in = xmalloc((count + 1) * sizeof *in);
    for (uint32_t i = 0; i < count; i++)
        in[i] = as_fp32(low, norms[i]);
    const uint32_t stack =
        alloc_buffer(low, CATEGORY_OPTIMIZER, lane, ATEN_STACK, dtype, SHAPE(count));
    const struct operand stacked = as_fp32(low, stack);
    emit_work_on(low, PLAN_COMPUTE, lane, WORK_STACK, ATEN_STACK, PLAN_NO_GROUP, count, in, 1,
                 &stacked);
    free(in);
    return stack;
}

/* stack(norms).pow(2).sum(); *squares: what is summed, the caller's to free. */
static uint32_t sum_norms(struct lowering *low, uint32_t count, const uint32_t *norms,
                          enum dtype dtype, uint32_t *squares)
{
    const uint32_t stack = stack_norms(low, LANE_COMPUTE, count, norms, dtype);
    *squares = alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, ATEN_POW, dtype, SHAPE(count));
    step(low, LANE_COMPUTE, WORK_SQUARE, ATEN_POW, stack, *squares);
    emit_free(low, stack);
    const uint32_t sum = new_scalar(low, LANE_COMPUTE, ATEN_SUM, dtype);
    step(low, LANE_COMPUTE, WORK_SUM, ATEN_SUM, *squares, sum);
    return sum;
}

static uint32_t sum_squares(struct lowering *low, uint32_t count, const uint32_t *norms)
{
    uint32_t squares;
    const uint32_t sum = sum_norms(low, count, norms, DTYPE_FP64, &squares);
    emit_free(low, squares);
    const uint32_t total = new_scalar(low, LANE_COMPUTE, ATEN_TO_COPY, DTYPE_FP32);
    step(low, LANE_COMPUTE, WORK_COPY, ATEN_TO_COPY, sum, total);
    emit_free(low, sum);
    return total;
}

/* A rank without gradients adds nothing. */
static uint32_t no_squares(struct lowering *low)
{
    const uint32_t total = new_scalar(low, LANE_COMPUTE, ATEN_LIFT_FRESH, DTYPE_FP32);
    const struct operand out = plan_whole_buffer(low->plan, total);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_FILL, ATEN_LIFT_FRESH, PLAN_NO_GROUP, 0,
                 NULL, 1, &out);
    return total;
}

static uint32_t norm_of_group(struct lowering *low, uint8_t group, uint32_t count,
                              const struct operand *gradients)
{
    uint32_t *norms = xmalloc((count + 1) * sizeof *norms), slots[SLOTS];
    const uint32_t before = enter_scope(low, "ds_norm", PLAN_NO_UNIT, false);
    if (count)
        emit_norms(low, count, gradients, DTYPE_FP64, norms);
    const uint32_t squares = count ? sum_squares(low, count, norms) : no_squares(low);
    if (group != PLAN_NO_GROUP)
        emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE, group,
                  1, &squares, 1, &squares);
    const uint32_t norm = new_scalar(low, LANE_COMPUTE, ATEN_POW, DTYPE_FP32);
    step(low, LANE_COMPUTE, WORK_SQUARE_ROOT, ATEN_POW, squares, norm);
    emit_free(low, squares);
    run_scalars(low, LANE_COMPUTE, STEPS(mask_steps), scalar, DTYPE_FP32, slots);
    for (uint32_t i = 0; i < count; i++)
        emit_free(low, norms[i]);
    leave_scope(low, before);
    free(norms);
    return norm;
}

/* combine_grad_norm_groups: the norm of the norms, or infinity. */
uint32_t zero_combine_norms(struct lowering *low, uint8_t lane, uint32_t count,
                            const uint32_t *norms, enum dtype dtype)
{
    uint32_t slots[SLOTS];
    const uint32_t stack = stack_norms(low, lane, count, norms, dtype);
    slots[1] = stack;
    run_scalars(low, lane, STEPS(invalid_steps), SHAPE(count), dtype, slots);
    const uint32_t any = new_scalar(low, lane, ATEN_ANY, DTYPE_BOOL);
    emit_free(low, slots[4]);
    const uint32_t combined = new_scalar(low, lane, ATEN_LINALG_VECTOR_NORM, dtype);
    step(low, lane, WORK_VECTOR_NORM, ATEN_LINALG_VECTOR_NORM, stack, combined);
    const uint32_t infinite = new_scalar(low, lane, ATEN_FULL_LIKE, dtype);
    const uint32_t chosen = new_scalar(low, lane, ATEN_WHERE, dtype);
    step(low, lane, WORK_COPY, ATEN_WHERE, combined, chosen);
    const uint32_t gone[] = {infinite, stack, any, combined};
    for (uint32_t i = 0; i < sizeof gone / sizeof gone[0]; i++)
        emit_free(low, gone[i]);
    return chosen;
}

void zero_check_norm(struct lowering *low, uint8_t lane, enum dtype dtype)
{
    uint32_t slots[SLOTS];
    run_scalars(low, lane, STEPS(invalid_norm_steps), scalar, dtype, slots);
}

uint32_t zero_norm(struct lowering *low, uint8_t group, uint32_t count,
                   const struct operand *gradients)
{
    const uint32_t norm = norm_of_group(low, group, count, gradients);
    const uint32_t combined = zero_combine_norms(low, LANE_COMPUTE, 1, &norm, DTYPE_FP32);
    emit_free(low, norm);
    zero_check_norm(low, LANE_COMPUTE, DTYPE_FP32);
    return combined;
}

uint32_t zero_norm_fp64(struct lowering *low, uint8_t group, uint32_t count,
                        const struct operand *gradients)
{
    uint32_t *norms = xmalloc((count + 1) * sizeof *norms), slots[SLOTS];
    const uint32_t before = enter_scope(low, "ds_norm", PLAN_NO_UNIT, false);
    emit_norms(low, count, gradients, DTYPE_FP64, norms);
    uint32_t each;
    const uint32_t squares = sum_norms(low, count, norms, DTYPE_FP64, &each);
    emit_free(low, each);
    if (group != PLAN_NO_GROUP) {
        const struct operand x = as_fp32(low, squares);
        emit_work_on(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE,
                     group, 1, &x, 1, &x);
    }
    const uint32_t root = new_scalar(low, LANE_COMPUTE, ATEN_POW, DTYPE_FP64);
    step(low, LANE_COMPUTE, WORK_SQUARE_ROOT, ATEN_POW, squares, root);
    run_scalars(low, LANE_COMPUTE, mask_steps, MASK_BIRTHS, scalar, DTYPE_FP32, slots);
    const uint32_t norm = new_scalar(low, LANE_COMPUTE, ATEN_WHERE, DTYPE_FP64);
    step(low, LANE_COMPUTE, WORK_COPY, ATEN_WHERE, root, norm);
    emit_free(low, root);
    emit_free(low, squares);
    for (uint32_t i = 0; i < count; i++)
        emit_free(low, norms[i]);
    run_scalars(low, LANE_COMPUTE, mask_steps + MASK_BIRTHS, MASK_BIRTHS, scalar, DTYPE_FP32,
                slots);
    leave_scope(low, before);
    free(norms);
    return norm;
}

static void scan(struct lowering *low, uint8_t lane, enum aten label, struct operand gradients)
{
    const uint32_t mask =
        alloc_buffer(low, CATEGORY_OPTIMIZER, lane, label, DTYPE_BOOL, gradients.shape);
    const uint32_t any = new_scalar(low, lane, ATEN_ANY, DTYPE_BOOL);
    emit_free(low, mask);
    emit_free(low, any);
}

void zero_scan_for_overflow(struct lowering *low, uint8_t lane, uint8_t group,
                            struct operand gradients)
{
    const uint32_t before = enter_scope(low, "ds_overflow", PLAN_NO_UNIT, false);
    scan(low, lane, ATEN_ISINF, gradients);
    scan(low, lane, ATEN_ISNAN, gradients);
    uint32_t flag = new_flag(low, lane, ATEN_CLONE, DTYPE_BOOL);
    if (lane == LANE_HOST) {
        const uint32_t found = flag;
        flag = new_flag(low, LANE_COMPUTE, ATEN_TO_COPY, DTYPE_BOOL);
        emit_free(low, found);
    }
    share_flag(low, group, flag);
    leave_scope(low, before);
}

/* ---- clipping ---- */

static const struct scalar_step clip_steps[] = {
    BORN(1, DIV, FP32),
    BORN(2, ADD, FP32),
    DIES(1),
    BORN(1, DIV, FP32),
    DIES(2),
    BORN(3, CLAMP, FP32),
    DIES(1),
    BORN(1, MUL, FP32),
    BORN(2, RECIPROCAL, FP32),
    BORN(4, MUL, FP32),
    DIES(2),
};

void zero_clip(struct lowering *low, uint8_t lane, uint32_t norm, struct operand gradient,
               enum dtype dtype, bool check)
{
    uint32_t slots[SLOTS];
    if (check)
        zero_check_norm(low, lane, dtype);
    run_scalars(low, lane, STEPS(clip_steps), scalar, dtype, slots);
    const uint32_t coefficient = slots[4];
    const uint32_t kernel = step(low, lane, WORK_CLIP_COEFFICIENT, ATEN_CLAMP, norm, coefficient);
    plan_own_kernel(low->plan, kernel)->attr.p = low->strategy->max_norm;
    struct operand in[] = {as_fp32(low, coefficient), gradient};
    uint32_t there = NONE; /* a number that a kernel on the device is given */
    const uint8_t at =
        low->plan->buffers[gradient.place].pool == LANE_HOST ? LANE_HOST : LANE_COMPUTE;
    if (at != lane) {
        there = new_buffer(low, CATEGORY_OPTIMIZER, at, ATEN_MUL, DTYPE_FP32, scalar);
        low->plan->buffers[there].scratch = true;
        emit_alloc(low, there);
        emit_sync(low, at, lane);
        zero_move(low, PLAN_HOST_TO_DEVICE, at, in[0], plan_whole_buffer(low->plan, there), false);
        in[0] = plan_whole_buffer(low->plan, there);
    }
    emit_work_on(low, PLAN_COMPUTE, at, WORK_SCALE, ATEN_FOREACH_MUL_, PLAN_NO_GROUP, 2, in, 1,
                 &gradient);
    if (there != NONE)
        emit_free(low, there);
    emit_free(low, coefficient);
    emit_free(low, slots[1]);
    emit_free(low, slots[3]);
}

/* ---- BF16_Optimizer ---- */

uint32_t zero_norm_of_all(struct lowering *low, uint32_t count, const struct operand *gradients)
{
    const uint8_t lane = LANE_COMPUTE;
    uint32_t *norms = xmalloc((count + 1) * sizeof *norms), squares, slots[SLOTS];
    emit_norms(low, count, gradients, DTYPE_FP32, norms);
    const uint32_t sum = sum_norms(low, count, norms, DTYPE_FP32, &squares);
    const uint32_t norm = new_scalar(low, lane, ATEN_POW, DTYPE_FP32);
    step(low, lane, WORK_SQUARE_ROOT, ATEN_POW, sum, norm);
    run_scalars(low, lane, STEPS(mask_steps), scalar, DTYPE_FP32, slots);
    for (uint32_t i = 0; i + 1 < count; i++)
        emit_free(low, norms[i]);
    emit_free(low, sum);
    emit_free(low, norms[count - 1]); /* a loop variable's */
    emit_free(low, squares);
    free(norms);
    return norm;
}

static const struct scalar_step clip_all_steps[] = {
    BORN(1, ADD, FP32),
    BORN(2, RECIPROCAL, FP32),
    BORN(3, MUL, FP32),
    DIES(2),
    DIES(1),
    BORN(4, LT, BOOL),
    DIES(4),
};

void zero_clip_all(struct lowering *low, uint32_t norm, uint32_t count,
                   const struct operand *gradients)
{
    uint32_t slots[SLOTS];
    run_scalars(low, LANE_COMPUTE, STEPS(clip_all_steps), scalar, DTYPE_FP32, slots);
    const uint32_t kernel =
        step(low, LANE_COMPUTE, WORK_CLIP_COEFFICIENT, ATEN_MUL, norm, slots[3]);
    plan_own_kernel(low->plan, kernel)->attr.p = low->strategy->max_norm;
    emit_sync(low, LANE_HOST, LANE_COMPUTE); /* which reads whether there is anything to do */
    for (uint32_t i = 0; i < count; i++) {
        const struct operand in[] = {as_fp32(low, slots[3]), gradients[i]};
        emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_SCALE, ATEN_MUL_, PLAN_NO_GROUP, 2, in,
                     1, &gradients[i]);
    }
    emit_free(low, slots[3]);
}

/* ---- what the host reads ---- */

/* On the host, and no tensor: a number of Python's. */
static uint32_t new_number(struct lowering *low, struct shape shape)
{
    const uint32_t buffer =
        new_buffer(low, CATEGORY_OPTIMIZER, LANE_HOST, ATEN_EMPTY, DTYPE_FP32, shape);
    low->plan->buffers[buffer].scratch = true;
    emit_alloc(low, buffer);
    return buffer;
}

uint32_t zero_read_norms(struct lowering *low, uint32_t count, const uint32_t *norms)
{
    const uint32_t sum = new_number(low, scalar);
    const struct operand out = plan_whole_buffer(low->plan, sum);
    if (count == 0) {
        emit_work_on(low, PLAN_COMPUTE, LANE_HOST, WORK_FILL, ATEN_LIFT_FRESH, PLAN_NO_GROUP, 0,
                     NULL, 1, &out);
        return sum;
    }
    const uint32_t read = new_number(low, SHAPE(count)), squares = new_number(low, SHAPE(count));
    for (uint32_t i = 0; i < count; i++) {
        const struct operand x = as_fp32(low, norms[i]);
        struct operand y = zero_run(plan_whole_buffer(low->plan, read), i, 1);
        y.shape = x.shape;
        emit_work_on(low, PLAN_DEVICE_TO_HOST, LANE_COMPUTE, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP,
                     1, &x, 1, &y);
        emit_sync(low, LANE_HOST, LANE_COMPUTE);
    }
    step(low, LANE_HOST, WORK_SQUARE, ATEN_POW, read, squares);
    step(low, LANE_HOST, WORK_SUM, ATEN_SUM, squares, sum);
    emit_free(low, squares);
    emit_free(low, read);
    return sum;
}

uint32_t zero_scalar(struct lowering *low, uint8_t lane, enum work_kind work, uint32_t of)
{
    const uint32_t out = new_scalar(low, lane, ATEN_POW, DTYPE_FP64);
    step(low, lane, work, ATEN_POW, of, out);
    return out;
}

uint32_t zero_add_scalar(struct lowering *low, uint32_t sum, uint32_t one)
{
    const bool first = sum == NONE;
    if (first)
        sum = new_scalar(low, LANE_COMPUTE, ATEN_ADD, DTYPE_FP64);
    step(low, LANE_COMPUTE, first ? WORK_COPY : WORK_ADD_IN_PLACE, ATEN_ADD, one, sum);
    return sum;
}

/* float(sum): the host waits for it. */
static uint32_t read_number(struct lowering *low, uint32_t sum)
{
    const uint32_t number = new_number(low, scalar);
    const struct operand y = plan_whole_buffer(low->plan, number);
    if (sum == NONE)
        emit_work_on(low, PLAN_COMPUTE, LANE_HOST, WORK_FILL, ATEN_LIFT_FRESH, PLAN_NO_GROUP, 0,
                     NULL, 1, &y);
    else
        zero_move(low, PLAN_DEVICE_TO_HOST, LANE_COMPUTE, as_fp32(low, sum), y, true);
    return number;
}

uint32_t zero_share_sum(struct lowering *low, uint8_t group, uint32_t sum)
{
    uint32_t slots[SLOTS];
    const uint32_t number = read_number(low, sum);
    const uint32_t total = new_flag(low, LANE_COMPUTE, ATEN_LIFT_FRESH, DTYPE_FP32);
    emit_sync(low, LANE_COMPUTE, LANE_HOST);
    zero_move(low, PLAN_HOST_TO_DEVICE, LANE_COMPUTE, plan_whole_buffer(low->plan, number),
              plan_whole_buffer(low->plan, total), true);
    emit_free(low, number);
    if (group != PLAN_NO_GROUP)
        emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE, group,
                  1, &total, 1, &total);
    const uint32_t root = new_scalar(low, LANE_COMPUTE, ATEN_POW, DTYPE_FP32);
    struct operand x = plan_whole_buffer(low->plan, total), y = plan_whole_buffer(low->plan, root);
    x.shape = y.shape;
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_SQUARE_ROOT, ATEN_POW, PLAN_NO_GROUP, 1, &x,
                 1, &y);
    if (sum != NONE)
        emit_free(low, sum);
    run_scalars(low, LANE_COMPUTE, STEPS(mask_steps), scalar, DTYPE_FP32, slots);
    const uint32_t norm = new_scalar(low, LANE_HOST, ATEN_TO_COPY, DTYPE_FP32);
    zero_move(low, PLAN_DEVICE_TO_HOST, LANE_COMPUTE, y, plan_whole_buffer(low->plan, norm), true);
    emit_free(low, root);
    emit_free(low, total);
    return norm;
}

void zero_move(struct lowering *low, enum plan_op op, uint8_t lane, struct operand x,
               struct operand y, bool waits)
{
    x.shape = y.shape;
    emit_work_on(low, op, lane, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1, &x, 1, &y);
    if (waits)
        emit_sync(low, LANE_HOST, lane);
}

uint32_t zero_new_host(struct lowering *low, enum category category, enum dtype dtype,
                       uint64_t elements, const struct zero_offload *offload)
{
    const uint32_t buffer =
        new_resident(low, category, LANE_HOST, ATEN_ZEROS, dtype, flat(elements));
    low->plan->buffers[buffer].pinned = !offload->pageable;
    return buffer;
}

/* ---- small kernels ---- */

void zero_scale(struct lowering *low, uint8_t lane, double factor, struct operand x,
                struct operand y)
{
    const uint32_t kernel = emit_work_on(low, PLAN_COMPUTE, lane, WORK_MUL_NUMBER, ATEN_MUL,
                                         PLAN_NO_GROUP, 1, &x, 1, &y);
    plan_own_kernel(low->plan, kernel)->attr.p = (float)factor;
}

void zero_copy(struct lowering *low, uint8_t lane, struct operand x, struct operand y)
{
    x.shape = y.shape;
    emit_work_on(low, PLAN_COMPUTE, lane, WORK_COPY, ATEN_COPY_, PLAN_NO_GROUP, 1, &x, 1, &y);
}

struct operand zero_run(struct operand of, uint64_t first, uint64_t count)
{
    of.offset += first;
    of.shape = flat(count);
    return of;
}

const char *zero_name(const struct lowering *low, uint32_t param)
{
    return low->plan->params[param].name;
}

struct operand zero_join(struct lowering *low, uint32_t count, const struct operand *parts,
                         struct operand one, uint64_t elements)
{
    const enum dtype dtype = (enum dtype)one.dtype;
    struct operand together = one;
    uint32_t cat = NONE;
    if (count > 1) {
        cat = alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, ATEN_CAT, dtype, flat(elements));
        together = plan_whole_buffer(low->plan, cat);
        emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_PACK, ATEN_CAT, PLAN_NO_GROUP, count,
                     parts, 1, &together);
    }
    if (dtype == DTYPE_FP32)
        return together;
    const uint32_t cast = alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, ATEN_TO_COPY,
                                       DTYPE_FP32, flat(elements));
    const struct operand whole = plan_whole_buffer(low->plan, cast);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                 &together, 1, &whole);
    if (cat != NONE)
        emit_free(low, cat);
    return whole;
}

enum err_code zero_check_used(const struct graph *graph, const struct stream *stream,
                              struct err *err)
{
    const uint32_t unused = find_unused(graph, stream);
    if (unused != NONE)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is trained and not used: its place in the partitions is not planned; "
                       "--freeze what is like it",
                       graph->params[unused].name);
    return ERR_OK;
}
