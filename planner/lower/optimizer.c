/* optimizer.c - clipping, the optimizer's states and transients (torch/optim/adam.py, sgd.py and
 * nn/utils/clip_grad.py of torch 2.14; births as recorded in tests/data/truth).
 *
 *     foreach   one list of square roots of all second moments: one more local parameter size
 *     fused     nothing, but the step counters are on the device (512 bytes each when allocated)
 *     loop      sqrt and denominator of one parameter, the previous denominator still alive
 *
 * What there is of states, and bitsandbytes' optimizers, is states.h's. Plain SGD has no state and
 * no transient. Python frees a list from its end. */
#include "lower/update.h"

#include <stdlib.h>
#include <string.h>

static enum dtype dtype_of(const struct optimized *o)
{
    return (enum dtype)o->value.dtype;
}

/* ---- what is optimized ---- */

static void add_state_pieces(struct lowering *low, const struct optimized *o,
                             const struct plan_piece *updated)
{
    struct placement placement = updated->placement;
    const uint8_t group = updated->group;
    if (placement.kind == PLACEMENT_FLAT) /* each in a buffer of its own */
        placement.kind = PLACEMENT_RUN;
    low->plan->params[o->param].step_buffer = o->step;
    if (state_piece(low, o, 0) != NONE)
        new_piece(low, o->param, PIECE_EXP_AVG, o->state[0], 0, placement, group);
    if (state_piece(low, o, 1) != NONE)
        new_piece(low, o->param, PIECE_EXP_AVG_SQ, o->state[1], 0, placement, group);
}

/* Of an outline: states that stand for so many parameters' more. */
static void again_states(struct lowering *low, const struct optimized *o, uint32_t times)
{
    uint32_t buffers[STATE_BUFFERS];
    const uint32_t count = state_buffers(low, o, buffers);
    for (uint32_t i = 0; i < count; i++)
        again_resident(low, buffers[i], times);
}

void optimize_param(struct lowering *low, struct optimized *o, uint32_t param)
{
    const struct plan *plan = low->plan;
    o->param = param;
    o->value = plan_piece_operand(plan, plan_updated_piece(plan, param));
    o->gradient = no_operand();
    o->trained = plan->params[param].trainable;
    o->updated = false;
    o->on_host = low->strategy->offload;
    add_states(low, o);
    if (!low->tally) { /* nobody looks where states of an outline are */
        const struct plan_piece updated = *plan_updated_piece(plan, param);
        add_state_pieces(low, o, &updated);
    }
}

void optimize_params(struct lowering *low, const uint32_t *order, uint32_t count)
{
    low->optimized = arena_lend(&low->scratch, (count + 1) * sizeof *low->optimized);
    low->optimized_count = count;
    uint32_t *again = arena_alloc(&low->scratch, (count + 1) * sizeof *again);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t p = order ? order[i] : i;
        struct optimized *o = &low->optimized[i];
        if (!order && low->like && low->like[p] != p) {
            again[low->like[p]]++;
            *o = low->optimized[low->like[p]];
            o->param = p;
            continue;
        }
        optimize_param(low, o, p);
    }
    for (uint32_t i = 0; i < count; i++)
        if (again[i])
            again_states(low, &low->optimized[i], again[i]);
}

void set_gradient(struct lowering *low, uint32_t param, uint32_t buffer, uint64_t offset,
                  bool whole)
{
    if (low->like && low->like[param] != param) {
        low->plan->params[param].piece[PIECE_GRADIENT] =
            low->plan->params[low->like[param]].piece[PIECE_GRADIENT];
        return;
    }
    const struct plan_piece updated = *plan_updated_piece(low->plan, param);
    struct placement placement = updated.placement;
    if (whole)
        placement = (struct placement){.kind = PLACEMENT_WHOLE};
    new_piece(low, param, PIECE_GRADIENT, buffer, offset, placement, updated.group);
}

/* ---- clipping ---- */

static uint32_t numbers(struct lowering *low, enum aten label, enum dtype dtype, struct shape shape)
{
    return alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, label, dtype, shape);
}

static uint32_t scalar(struct lowering *low, enum aten label, enum dtype dtype)
{
    return numbers(low, label, dtype, (struct shape){.rank = 0});
}

/* Gradients that are there, as operands; returns their number. `out` has room for all. */
static uint32_t collect_gradients(const struct lowering *low, struct operand *out)
{
    uint32_t n = 0;
    if (low->optimized_count && low->optimized[0].param == NONE) { /* of flat tensors */
        for (uint32_t i = 0; i < low->optimized_count; i++)
            if (low->optimized[i].gradient.place != NONE)
                out[n++] = low->optimized[i].gradient;
        return n;
    }
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        const struct plan_piece *piece = plan_piece(low->plan, p, PIECE_GRADIENT);
        if (piece)
            out[n++] = plan_piece_operand(low->plan, piece);
    }
    return n;
}

static uint32_t count_gradients(const struct lowering *low)
{
    struct operand *gradients = xmalloc((low->plan->param_count + 1) * sizeof *gradients);
    const uint32_t n = collect_gradients(low, gradients);
    free(gradients);
    return n;
}

/* That of the first that is there, which keep_low_precision_grads leaves in another than its
 * parameter is in. */
static enum dtype gradients_dtype(const struct lowering *low)
{
    for (uint32_t i = 0; i < low->optimized_count; i++) {
        const struct optimized *o = &low->optimized[i];
        const struct plan_piece *piece =
            o->param == NONE ? NULL : plan_piece(low->plan, o->param, PIECE_GRADIENT);
        if (o->param == NONE && o->gradient.place != NONE)
            return (enum dtype)o->gradient.dtype;
        if (piece)
            return (enum dtype)low->plan->buffers[piece->buffer].dtype;
    }
    return DTYPE_FP32;
}

/* A kernel from one scalar or vector to another. */
static uint32_t step(struct lowering *low, enum work_kind work, enum aten label, uint32_t from,
                     uint32_t to)
{
    return emit_unary(low, LANE_COMPUTE, work, label, from, to);
}

/* Squares of the norms (shape) are summed over the shards; the result's root is what each norm
 * would have been of the whole gradient. Returns what has the results. */
static uint32_t reduce_norms(struct lowering *low, uint32_t norms, struct shape shape)
{
    const enum dtype dtype = gradients_dtype(low);
    const uint32_t squares = numbers(low, ATEN_POW, dtype, shape);
    step(low, WORK_SQUARE, ATEN_POW, norms, squares);
    const uint32_t reduced = numbers(low, ATEN_C10D_ALL_REDUCE, dtype, shape);
    uint32_t waited =
        reduced; /* wait_tensor gives back what it was given; a fake one a new tensor */
    if (low->graph->autograd == AUTOGRAD_RECORDED)
        waited = numbers(low, ATEN_C10D_WAIT_TENSOR, dtype, shape);
    emit_work(low, PLAN_ALL_REDUCE, LANE_COMPUTE, WORK_ALL_REDUCE_SUM, ATEN_C10D_ALL_REDUCE,
              low->norm_group, 1, &squares, 1, &waited);
    if (waited != reduced)
        emit_free(low, reduced);
    const uint32_t summed = numbers(low, ATEN_POW, dtype, shape);
    step(low, WORK_SQUARE_ROOT, ATEN_SQRT, waited, summed);
    emit_free(low, squares);
    emit_free(low, waited);
    return summed;
}

struct norms { /* of each parameter's gradient; owned */
    uint32_t *of, count;
};

static void free_norms(struct lowering *low, const struct norms *norms)
{
    const uint32_t n = norms->count;
    for (uint32_t i = 0; i < n; i++) /* a list of plain tensors dies from its end */
        emit_free(low, norms->of[low->system->dtensors ? i : n - 1 - i]);
}

/* coefficient = clamp(max_norm / (total + 1e-6), max=1), then one multiply of all gradients. Where
 * the total is of this rank's shards alone, the sum with 1e-6 is, too: its reciprocal is the first
 * that has to know the others'. `norms`: those that clip_grad_norm_ still holds; NULL: none. */
static void scale_gradients(struct lowering *low, uint32_t total, bool reduced,
                            const struct norms *norms)
{
    const enum dtype dtype = gradients_dtype(low);
    const uint32_t denominator = scalar(low, ATEN_ADD, dtype);
    if (!reduced)
        total = reduce_norms(low, total, (struct shape){.rank = 0});
    const uint32_t inverse = scalar(low, ATEN_RECIPROCAL, dtype);
    if (!reduced) { /* it goes now: the norm is handed on, to the kernel that computes it all */
        step(low, WORK_COPY, ATEN_RECIPROCAL, total, inverse);
        emit_free(low, total);
    }
    const uint32_t ratio = scalar(low, ATEN_MUL, dtype);
    if (!reduced) {
        step(low, WORK_COPY, ATEN_MUL, inverse, ratio);
        total = ratio;
    }
    emit_free(low, inverse);
    emit_free(low, denominator);
    const uint32_t clamped = scalar(low, ATEN_CLAMP, dtype);
    const uint32_t clamp = step(low, WORK_CLIP_COEFFICIENT, ATEN_CLAMP, total, clamped);
    if (norms)
        free_norms(low, norms);
    emit_free(low, ratio);
    plan_own_kernel(low->plan, clamp)->attr.p = low->strategy->max_norm;
    struct operand *in = xmalloc((low->plan->param_count + 1) * sizeof *in);
    in[0] = plan_whole_buffer(low->plan, clamped);
    const uint32_t n = collect_gradients(low, in + 1);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_SCALE, ATEN_FOREACH_MUL_, PLAN_NO_GROUP,
                 n + 1, in, n, in + 1);
    free(in);
    emit_free(low, clamped);
}

static void emit_norms(struct lowering *low, const uint32_t *norms, uint32_t n)
{
    struct operand *in = xmalloc((2 * (size_t)n + 1) * sizeof *in), *out = in + n;
    collect_gradients(low, in);
    for (uint32_t i = 0; i < n; i++)
        out[i] = plan_whole_buffer(low->plan, norms[i]);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_NORMS, ATEN_FOREACH_NORM, PLAN_NO_GROUP, n,
                 in, n, out);
    free(in);
}

void emit_clip(struct lowering *low)
{
    const enum dtype dtype = gradients_dtype(low);
    const uint32_t n = count_gradients(low);
    const struct norms norms = {xmalloc((n + 1) * sizeof *norms.of), n};
    for (uint32_t i = 0; i < n; i++)
        norms.of[i] = scalar(low, ATEN_FOREACH_NORM, dtype);
    emit_norms(low, norms.of, n);
    const uint32_t stacked = numbers(low, ATEN_STACK, dtype, SHAPE(n));
    emit_work(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_STACK, ATEN_STACK, PLAN_NO_GROUP, n, norms.of,
              1, &stacked);
    const bool alone = low->norm_group == PLAN_NO_GROUP;
    const bool each = torch_does(low->graph->torch, TORCH_NORMS_REDUCED);
    const uint32_t summed = alone || !each ? stacked : reduce_norms(low, stacked, SHAPE(n));
    const uint32_t total = scalar(low, ATEN_LINALG_VECTOR_NORM, dtype);
    step(low, WORK_VECTOR_NORM, ATEN_LINALG_VECTOR_NORM, summed, total);
    if (summed != stacked)
        emit_free(low, summed);
    emit_free(low, stacked);
    const bool go = torch_does(low->graph->torch, TORCH_NORMS_GO_FIRST);
    if (go)
        free_norms(low, &norms);
    scale_gradients(low, total, alone || each, go ? NULL : &norms);
    emit_free(low, total);
    free(norms.of);
}

/* ---- the update ---- */

static void find_updated(const struct lowering *low, struct optimized *optimized, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct optimized *o = &optimized[i];
        const bool there = o->param == NONE
                               ? o->gradient.place != NONE
                               : plan_piece(low->plan, o->param, PIECE_GRADIENT) != NULL;
        o->updated = there && optimized_has_elements(low, o);
    }
}

/* What the updates of so many tensors like one add to an outline's kernel. States are as large as
 * what they are of. */
static void add_updates(const struct lowering *low, const struct optimized *o, uint32_t times,
                        struct sums *sums)
{
    struct operand gradient;
    set_gradient_of(low->plan, o, &gradient);
    const uint32_t states = (o->state[0] != NONE ? 1U : 0U) + (o->state[1] != NONE ? 1U : 0U);
    const uint64_t bytes = shape_bytes(&o->value.shape, dtype_of(o));
    const uint64_t of_gradient = shape_bytes(&gradient.shape, (enum dtype)gradient.dtype);
    if (sums->ins == 0) {
        sums->first[0] = gradient;
        sums->first[1] = o->value;
    }
    sums->ins += times * (2 + states);
    sums->outs += times * (1 + states);
    sums->in_bytes += (double)(times * (of_gradient + (1 + states) * bytes));
    sums->out_bytes += (double)(times * (1 + states) * bytes);
}

static void emit_update_sums(struct lowering *low, struct updated u, enum work_kind work,
                             enum aten label)
{
    struct sums sums = begin_sums(low);
    uint32_t *times = arena_alloc(&low->scratch, (u.count + 1) * sizeof *times);
    for (uint32_t i = 0; i < u.count; i++)
        times[updated_like(low, u, i)] += u.of[i].updated;
    for (uint32_t i = 0; i < u.count; i++)
        if (times[i])
            add_updates(low, &u.of[i], times[i], &sums);
    emit_sums(low, PLAN_OPTIMIZER, u.of[0].on_host ? LANE_HOST : LANE_COMPUTE, work, label,
              PLAN_NO_GROUP, &sums);
}

/* Gradients in; parameters, and what states there are, in and out. */
static void emit_update(struct lowering *low, struct updated u, enum work_kind work,
                        enum aten label)
{
    struct plan *plan = low->plan;
    if (low->tally) {
        emit_update_sums(low, u, work, label);
        return;
    }
    struct operand *in = plan_push_operands(plan, (4 + 3) * u.count);
    uint32_t n = 0;
    for (uint32_t i = 0; i < u.count; i++)
        if (u.of[i].updated)
            set_gradient_of(plan, &u.of[i], &in[n++]);
    const uint32_t gradients = n;
    for (uint32_t i = 0; i < u.count; i++)
        if (u.of[i].updated)
            in[n++] = u.of[i].value;
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t i = 0; i < u.count; i++)
            if (u.of[i].updated && u.of[i].state[s] != NONE)
                plan_set_whole_buffer(plan, u.of[i].state[s], &in[n++]);
    memcpy(in + n, in + gradients, (n - gradients) * sizeof *in);
    emit_kernel(low, PLAN_OPTIMIZER, u.of[0].on_host ? LANE_HOST : LANE_COMPUTE,
                plan_push_kernel(plan, work, label, n, n - gradients, in), PLAN_NO_GROUP);
}

static void create_states(struct lowering *low, struct updated u)
{
    if (outline_is_short(low)) /* of which the first step is no part */
        return;
    low->here.flags |= PLAN_FIRST_STEP;
    for (uint32_t i = 0; i < u.count; i++) {
        uint32_t buffers[STATE_BUFFERS];
        const uint32_t count = state_buffers(low, &u.of[i], buffers);
        for (uint32_t b = 0; b < count; b++)
            emit_alloc(low, buffers[b]);
    }
    low->here.flags &= (uint8_t)~PLAN_FIRST_STEP;
}

/* A tensor as large as what is optimized, for the time of the update. */
static uint32_t new_transient(struct lowering *low, enum aten label, const struct optimized *o)
{
    const uint8_t pool = o->on_host ? LANE_HOST : LANE_COMPUTE;
    const uint32_t buffer =
        new_buffer(low, CATEGORY_OPTIMIZER, pool, label, dtype_of(o), o->value.shape);
    low->plan->buffers[buffer].local = o->value.local;
    return buffer;
}

static uint32_t alloc_transient(struct lowering *low, enum aten label, const struct optimized *o)
{
    const uint32_t buffer = new_transient(low, label, o);
    emit_alloc(low, buffer);
    return buffer;
}

/* Whether this rank's optimizer has any parameter. */
static bool counts_steps(const struct lowering *low, struct updated u)
{
    for (uint32_t i = 0; i < u.count; i++)
        if (u.of[i].step != NONE && low->plan->buffers[u.of[i].step].bytes)
            return true;
    return false;
}

static void reverse(uint32_t *list, uint32_t count)
{
    for (uint32_t i = 0; i < count / 2; i++) {
        const uint32_t first = list[i];
        list[i] = list[count - 1 - i];
        list[count - 1 - i] = first;
    }
}

/* The list of roots, in which one may stand for others of its size. */
static uint32_t new_roots(struct lowering *low, struct updated u, uint32_t *roots)
{
    uint32_t *of = xmalloc((u.count + 1) * sizeof *of), n = 0;
    for (uint32_t i = 0; i < u.count; i++) {
        if (!u.of[i].updated)
            continue;
        const uint32_t like = updated_like(low, u, i);
        of[i] = like == i ? new_transient(low, ATEN_FOREACH_SQRT, &u.of[i]) : of[like];
        roots[n++] = of[i];
    }
    free(of);
    return n;
}

static void adam_foreach(struct lowering *low, struct updated u)
{
    uint32_t *roots = xmalloc((u.count + 1) * sizeof *roots);
    if (counts_steps(low, u)) { /* torch.tensor(1.0), added to the CPU step counters */
        const uint32_t literal = alloc_buffer(low, CATEGORY_OPTIMIZER, LANE_HOST, ATEN_LIFT_FRESH,
                                              DTYPE_FP32, (struct shape){.rank = 0});
        emit_free(low, literal);
    }
    const struct bundle all = bundle_of(low, new_roots(low, u, roots), roots);
    emit_alloc_all(low, &all);
    emit_update(low, u, WORK_ADAMW, ATEN_ADAMW);
    reverse(roots, all.count); /* a loop variable's first, then the list from its end */
    emit_free_all(low, &all);
    free(roots);
}

/* A DTensor has a gradient on every rank, if one without elements. */
static bool is_updated_elsewhere(const struct lowering *low, const struct optimized *o)
{
    return low->system->dtensors && o->param != NONE &&
           plan_piece(low->plan, o->param, PIECE_GRADIENT) != NULL;
}

static void adam_loop(struct lowering *low, struct updated u)
{
    uint32_t previous = NONE;
    for (uint32_t i = 0; i < u.count; i++) {
        const struct optimized *o = &u.of[i];
        if (!o->updated) {
            if (previous != NONE && is_updated_elsewhere(low, o)) {
                emit_free(low, previous);
                previous = NONE;
            }
            continue;
        }
        const uint32_t root = alloc_transient(low, ATEN_SQRT, o);
        const uint32_t denominator = alloc_transient(low, ATEN_DIV, o);
        emit_free(low, root);
        if (shape_elements(&o->value.shape) == 0) { /* no gradient here: other ranks' alone */
            emit_free(low, denominator);
            continue;
        }
        if (previous != NONE)
            emit_free(low, previous);
        previous = denominator;
    }
    emit_update(low, u, WORK_ADAMW, ATEN_ADAMW);
    if (previous != NONE)
        emit_free(low, previous);
}

void emit_update_of(struct lowering *low, uint32_t first, uint32_t count)
{
    const struct strategy *strategy = low->strategy;
    const struct updated u = {low->optimized + first, count};
    const bool on_host = count && u.of[0].on_host;
    find_updated(low, low->optimized + first, count);
    if (on_host && strategy->max_norm > 0) /* clipping ran on the device's stream */
        emit_sync(low, LANE_HOST, LANE_COMPUTE);
    create_states(low, u);
    const struct optimizer_rule *rule = optimizer_rule(strategy->optimizer);
    if (updates_each(rule))
        emit_update_each(low, u, rule);
    else if (strategy->optimizer == OPTIMIZER_SGD)
        emit_update(low, u, WORK_SGD, ATEN_FOREACH_ADD_);
    else if (strategy->impl == IMPL_FUSED || is_cpu_adam(low, u.of))
        emit_update(low, u, WORK_ADAMW_FUSED, ATEN_FUSED_ADAMW_);
    else if (strategy->impl == IMPL_FOREACH)
        adam_foreach(low, u);
    else
        adam_loop(low, u);
}

void emit_optimizer(struct lowering *low)
{
    const uint32_t first = low->second_group ? low->second_group : low->optimized_count;
    emit_update_of(low, 0, first);
    if (first < low->optimized_count)
        emit_update_of(low, first, low->optimized_count - first);
}
