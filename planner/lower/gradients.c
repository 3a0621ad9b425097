/* gradients.c - see gradients.h. */
#include "lower/gradients.h"
#include "lower/tally.h"

#include <stdlib.h>

static uint32_t buffer_of(const struct lowering *low, const struct stream_grad *grad)
{
    return low->base + (low->tally ? (uint32_t)(grad - low->stream->grads) : grad->buffer);
}

/* A gradient is described where it is to stay: one that is copied is read back in wide words right
 * behind the narrow ones it was written in, which a processor cannot forward. */
static void set_gradient_operand(const struct lowering *low, const struct stream_grad *grad,
                                 struct operand *out)
{
    plan_set_whole_buffer(low->plan, buffer_of(low, grad), out);
    out->shape = low->plan->params[grad->param].shape;
}

/* Whether the engine casts a gradient because its node needs another dtype (engine.cpp,
 * validate_outputs), and to which. What is kept of the parameter's decides, so ask before. */
static bool is_cast(const struct lowering *low, uint32_t param, enum dtype from, enum dtype *to)
{
    return low->system->casts_gradient && low->system->casts_gradient(low, param, from, to);
}

static struct operand cast_gradient(struct lowering *low, uint32_t param,
                                    const struct operand *gradient, enum dtype dtype)
{
    const uint32_t buffer = alloc_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE, ATEN_TO_COPY, dtype,
                                         low->plan->params[param].shape);
    const struct operand cast = plan_whole_buffer(low->plan, buffer);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                 gradient, 1, &cast);
    return cast;
}

/* ---- gradients of several uses, each cast where it is given ---- */

static struct recast *recast_of(const struct lowering *low, uint32_t buffer)
{
    for (uint32_t i = 0; i < low->recast_count; i++)
        if (low->recast[i].buffer == buffer)
            return &low->recast[i];
    return NULL;
}

static void keep_recast(struct lowering *low, struct recast recast)
{
    ARRAY_GROW(low->recast, low->recast_count, low->recast_cap);
    low->recast[low->recast_count++] = recast;
}

static void drop_recast(struct lowering *low, struct recast *recast)
{
    *recast = low->recast[--low->recast_count];
}

/* A cast is held by nobody else and is no view, so that autograd adds to it in place; dispatch
 * modes keep it from that. */
static bool adds_casts_in_place(const struct lowering *low)
{
    return low->graph->autograd == AUTOGRAD_GPU;
}

/* Where it is to be added to what is not cast, it is not cast either. */
void take_given(struct lowering *low, const struct stream_given *given)
{
    const bool adds = given->sum != NONE;
    const uint32_t buffer = stream_buffer(low, given->buffer);
    enum dtype dtype;
    if ((adds && !recast_of(low, given->before)) ||
        !is_cast(low, given->param, low->plan->buffers[buffer].dtype, &dtype))
        return;
    struct operand gradient = plan_whole_buffer(low->plan, buffer);
    gradient.shape = low->plan->params[given->param].shape;
    const struct operand cast = cast_gradient(low, given->param, &gradient, dtype);
    if (!given->shared)
        emit_free(low, gradient.place);
    keep_recast(low, (struct recast){given->buffer, cast, given});
    if (!adds || given->sum == given->before || adds_casts_in_place(low))
        return;
    struct buffer *sum = &low->plan->buffers[stream_buffer(low, given->sum)];
    sum->dtype = cast.dtype;
    sum->bytes = low->plan->buffers[cast.place].bytes;
}

static bool is_sum_in_place(const struct lowering *low, uint32_t buffer)
{
    for (uint32_t i = 0; i < low->recast_count; i++) {
        const struct stream_given *given = low->recast[i].given;
        if (given && given->sum == buffer && given->sum != given->before)
            return adds_casts_in_place(low);
    }
    return false;
}

static struct recast *added_by(const struct lowering *low, uint32_t kernel)
{
    for (uint32_t i = 0; i < low->recast_count; i++) {
        const struct stream_given *given = low->recast[i].given;
        if (given && given->sum != NONE && given->kernel == kernel)
            return &low->recast[i];
    }
    return NULL;
}

/* The kernel that adds the gradient of a later use to those before, of what they were cast to. */
static void add_recast(struct lowering *low, struct recast *later)
{
    const struct stream_given *given = later->given;
    struct recast *before = recast_of(low, given->before);
    const struct operand in[2] = {before->now, later->now};
    if (given->sum == given->before || adds_casts_in_place(low)) {
        emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP,
                     1, &in[1], 1, &in[0]);
        if (given->sum != given->before) {
            before->now = no_operand();
            keep_recast(low, (struct recast){given->sum, in[0], NULL});
        }
    } else {
        const struct operand sum = plan_whole_buffer(low->plan, stream_buffer(low, given->sum));
        emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_ADD, ATEN_ADD, PLAN_NO_GROUP, 2, in, 1,
                     &sum);
    }
    later = recast_of(low, given->buffer);
    if (!given->shared) {
        later->given = NULL;
        return;
    }
    emit_free(low, in[1].place);
    drop_recast(low, later);
}

bool pass_recast(struct lowering *low, struct stream_step step)
{
    struct recast *recast;
    if (step.kind == STEP_BIRTH)
        return is_sum_in_place(low, step.arg);
    if (step.kind == STEP_KERNEL) {
        recast = added_by(low, step.arg);
        if (recast)
            add_recast(low, recast);
        if (recast && low->tally)
            low->tally->at++; /* the stream's own does not run */
        return recast != NULL;
    }
    recast = recast_of(low, step.arg);
    if (!recast || (recast->given && recast->given->shared))
        return false;
    if (recast->now.place != NONE)
        emit_free(low, recast->now.place);
    drop_recast(low, recast);
    return true;
}

/* The gradient that arrives, as autograd made it. */
static void arrive(struct lowering *low, const struct stream_grad *grad, struct operand *out)
{
    struct recast *recast = low->recast_count ? recast_of(low, grad->buffer) : NULL;
    if (recast) {
        *out = recast->now;
        drop_recast(low, recast);
        return;
    }
    enum dtype dtype;
    const bool casts =
        is_cast(low, grad->param, low->plan->buffers[buffer_of(low, grad)].dtype, &dtype);
    set_gradient_operand(low, grad, out);
    if (!casts)
        return;
    const struct operand cast = cast_gradient(low, grad->param, out, dtype);
    emit_free(low, out->place);
    *out = cast;
}

/* What arrives where a copy of it would be kept. An outline has gradients alone. */
static void set_arriving_operand(const struct lowering *low, const struct stream_grad *grad,
                                 struct operand *out)
{
    set_gradient_operand(low, grad, out);
    const struct kernel *copy = plan_kernel(low->plan, grad->copy);
    if (!low->tally && copy->ins > 0)
        out->place = low->base + copy->operands[copy->ins - 1].place;
}

static void emit_copy_of_gradient(struct lowering *low, const struct stream_grad *grad,
                                  const struct operand *from, const struct operand *to)
{
    const struct strides *strides = plan_kernel(low->plan, grad->copy)->strides;
    const uint32_t ins = plan_kernel(low->plan, grad->copy)->ins;
    const uint32_t kernel = emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_COPY, ATEN_COPY_,
                                         PLAN_NO_GROUP, 1, from, 1, to);
    if (ins == 1 && from->dtype == to->dtype)
        plan_own_kernel(low->plan, kernel)->strides = strides;
}

static void add_to_gradient(struct lowering *low, uint32_t param, const struct operand *gradient)
{
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP, 1,
                 gradient, 1, &low->grad[param]);
}

void copy_gradient(struct lowering *low, const struct stream_grad *grad)
{
    const uint32_t p = grad->param;
    struct operand *const sum = &low->grad[p], from;
    enum dtype dtype;
    set_arriving_operand(low, grad, &from);
    const bool casts = is_cast(low, p, (enum dtype)from.dtype, &dtype);
    if (casts)
        from = cast_gradient(low, p, &from, dtype);
    if (sum->place != NONE) {
        add_to_gradient(low, p, &from);
    } else {
        set_gradient_operand(low, grad, sum);
        if (casts)
            plan_set_whole_buffer(low->plan,
                                  new_buffer(low, CATEGORY_BACKWARD, LANE_COMPUTE,
                                             ATEN_NEW_EMPTY_STRIDED, (enum dtype)from.dtype,
                                             low->plan->params[p].shape),
                                  sum);
        emit_alloc(low, sum->place);
        emit_copy_of_gradient(low, grad, &from, sum);
    }
    if (casts)
        emit_free(low, from.place);
}

/* The first gradient is kept as it is, later ones are added in place. */
static uint32_t keep_or_add(struct lowering *low, const struct stream_grad *grad)
{
    struct operand *const sum = &low->grad[grad->param];
    if (sum->place == NONE) {
        arrive(low, grad, sum);
        return sum->place;
    }
    struct operand gradient;
    arrive(low, grad, &gradient);
    add_to_gradient(low, grad->param, &gradient);
    return gradient.place;
}

void take_gradient(struct lowering *low, const struct stream_grad *grad)
{
    const uint32_t p = grad->param;
    const uint32_t came = grad->copy == GRAD_AS_IT_IS ? keep_or_add(low, grad) : NONE;
    low->incoming = came;
    low->strided[p] = grad->strided;
    if (low->system->gradient)
        low->system->gradient(low, p);
    if (low->incoming != NONE && came != low->grad[p].place)
        emit_free(low, came);
    low->incoming = NONE;
}
