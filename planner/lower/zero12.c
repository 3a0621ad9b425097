/* zero12.c - DeepSpeed ZeRO stages 1 and 2 (deepspeed 0.19.8), event for event.
 *
 * Parameters of 16 bits are views of one flat vector on every rank; a rank updates its partition of
 * it in fp32 (runtime/zero/stage_1_and_2.py):
 *
 *     backward   the first gradient makes the buckets. Stage 2 copies each gradient into the bucket
 *                as it comes; one that does not fit flushes it first: the bucket is averaged over
 *                all ranks, gradients of this rank's partition move to a buffer of their own, those
 *                of others are forgotten. A parameter larger than a bucket is a bucket by itself
 *     epilogue   the rest is flushed, buckets die. Stage 1 does all of the above here, parameter by
 *                parameter, in the last micro-batch only (with overlap_comm: as they come)
 *     step       zero12_step.c
 *
 * What a rank keeps are whole parameters: those that touch its partition. Ranks differ in that, so
 * each has a program of its own. */
#include "lower/zero12.h"
#include "lower/states.h"

#include <stdlib.h>
#include <string.h>

/* What is offloaded is, whatever the option says. */
static bool is_contiguous(const struct lowering *low)
{
    return low->strategy->zero.contiguous_gradients || zero12_of(low)->offload;
}

static uint64_t elements_of(const struct lowering *low, uint32_t param)
{
    return shape_elements(&low->plan->params[param].shape);
}

/* ---- what is there before the first step ---- */

static enum err_code check(const struct strategy *s, const struct graph *graph,
                           const struct stream *stream, struct err *err)
{
    if (zero_bf16_has(s) && graph->is_recording)
        return err_set(err, ERR_UNSUPPORTED,
                       "--grad-accum-dtype fp32: the optimizer that zero1 then is (BF16_Optimizer) "
                       "is not planned of recorded models; zero2 has it");
    return zero_check_used(graph, stream, err);
}

/* _round_robin_reorder. */
static void order_params(struct lowering *low)
{
    struct zero12 *z = low->state;
    const struct plan *plan = low->plan;
    uint32_t *listed = none_array(low, plan->param_count);
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (plan->params[p].trainable)
            listed[z->count++] = p;
    z->listed = listed;
    z->order = none_array(low, z->count);
    const uint32_t turns = low->strategy->zero.round_robin_gradients ? z->ranks : 1;
    uint32_t n = 0;
    for (uint32_t turn = 0; turn < turns; turn++)
        for (uint32_t i = turn; i < z->count; i += turns)
            z->order[n++] = listed[i];
}

/* flatten_dense_tensors_aligned: to a multiple of 4 bytes of 16 bits on every rank. */
static void lay_out(struct lowering *low)
{
    struct zero12 *z = low->state;
    uint64_t total = 0;
    z->at = arena_alloc(&low->scratch, (low->plan->param_count + 1) * sizeof *z->at);
    for (uint32_t i = 0; i < z->count; i++) {
        z->at[z->order[i]] = total;
        total += elements_of(low, z->order[i]);
    }
    const uint64_t alignment = 2 * (uint64_t)z->ranks;
    z->total = (total + alignment - 1) / alignment * alignment;
    z->partition = z->total / z->ranks;
}

static void find_own(struct lowering *low)
{
    struct zero12 *z = low->state;
    z->own = none_array(low, z->count);
    z->kept = arena_alloc(&low->scratch, (low->plan->param_count + 1) * sizeof *z->kept);
    z->is_own = arena_alloc(&low->scratch, low->plan->param_count + 1);
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        z->kept[p] = no_operand();
    for (uint32_t i = 0; i < z->count; i++) {
        const uint32_t p = z->order[i];
        const struct part part = zero12_part(low, p);
        if (part_elements(&part) == 0)
            continue;
        z->is_own[p] = true;
        z->own[z->own_count++] = p;
        z->own_elements += elements_of(low, p);
    }
}

/* Units of the plan: the vector, and what is not trained. */
static void declare_units(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    struct plan *plan = low->plan;
    const uint32_t frozen = plan->param_count - z->count;
    plan->unit_count = frozen ? 2 : 1;
    plan->units = arena_alloc(&plan->arena, 2 * sizeof *plan->units);
    plan->unit_params = arena_alloc(&plan->arena, (plan->param_count + 1) * sizeof(uint32_t));
    plan->units[0] = (struct plan_unit){"", 0, z->count};
    plan->units[1] = (struct plan_unit){frozen_unit(plan), z->count, frozen};
    memcpy(plan->unit_params, z->order, z->count * sizeof *z->order);
    uint32_t next = z->count;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        plan->params[p].unit = plan->params[p].trainable ? 0 : 1;
        if (!plan->params[p].trainable)
            plan->unit_params[next++] = p;
    }
}

static void declare_params(struct lowering *low)
{
    struct zero12 *z = low->state;
    const enum dtype dtype = low->strategy->compute;
    const struct placement whole = {.kind = PLACEMENT_WHOLE};
    z->flat = new_resident(low, CATEGORY_PARAM, LANE_COMPUTE, ATEN_CAT, dtype, flat(z->total));
    z->master = z->offload ? zero_new_host(low, CATEGORY_SHARDED_PARAM, DTYPE_FP32, z->partition,
                                           &low->strategy->zero.optimizer)
                           : new_resident(low, CATEGORY_SHARDED_PARAM, LANE_COMPUTE, ATEN_TO_COPY,
                                          DTYPE_FP32, flat(z->partition));
    for (uint32_t p = 0; p < low->plan->param_count; p++) {
        if (!low->plan->params[p].trainable) {
            const uint32_t own = new_resident(low, CATEGORY_PARAM, LANE_COMPUTE, ATEN_EMPTY,
                                              zero_dtype(low, p), low->plan->params[p].shape);
            new_piece(low, p, PIECE_STORE, own, 0, whole, PLAN_NO_GROUP);
            continue;
        }
        const struct placement placement = {PLACEMENT_FLAT, z->at[p], z->total};
        new_piece(low, p, PIECE_STORE, z->flat, z->at[p], whole, PLAN_NO_GROUP);
        new_piece(low, p, PIECE_MASTER, z->master, 0, placement, z->group);
    }
}

/* The optimizer has one tensor: the partition. */
static void declare_optimized(struct lowering *low)
{
    struct zero12 *z = low->state;
    low->optimized = arena_alloc(&low->scratch, sizeof *low->optimized);
    low->optimized_count = 1;
    struct optimized *o = low->optimized;
    *o = (struct optimized){
        .param = NONE,
        .value = plan_whole_buffer(low->plan, z->master),
        .gradient = no_operand(),
        .trained = true,
        .on_host = z->offload,
    };
    add_states(low, o);
    static const enum piece_role roles[] = {PIECE_EXP_AVG, PIECE_EXP_AVG_SQ};
    for (uint32_t i = 0; i < z->count; i++) {
        const struct placement placement = {PLACEMENT_FLAT, z->at[z->order[i]], z->total};
        low->plan->params[z->order[i]].step_buffer = o->step;
        for (uint32_t s = 0; s < 2; s++)
            if (state_piece(low, o, s) != NONE)
                new_piece(low, z->order[i], roles[s], o->state[s], 0, placement, z->group);
    }
}

static struct operand *new_grads(struct lowering *low)
{
    struct operand *grads =
        arena_alloc(&low->scratch, (low->plan->param_count + 1) * sizeof *grads);
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        grads[p] = no_operand();
    return grads;
}

static void set_up(struct lowering *low)
{
    struct zero12 *z = low->state;
    const struct strategy *s = low->strategy;
    z->ranks = s->world;
    z->group =
        s->world > 1 ? plan_add_group(low->plan, "data", GROUP_DATA, s->world, 1) : PLAN_NO_GROUP;
    z->lane = s->zero.overlap_comm ? plan_add_lane(low->plan, "reduction", false) : LANE_COMPUTE;
    z->each = s->system == SYSTEM_ZERO2;
    z->offload = s->zero.optimizer.on;
    z->held = z->copied = z->filled_event = z->emptied_event[0] = z->emptied_event[1] = NONE;
    z->fp32_partition = s->grad_accum_fp32 && s->compute != DTYPE_FP32 && !zero_bf16_has(s);
    z->widened = z->fp32_partition && !z->each;
    z->bucket[0] = z->bucket[1] = z->gradients = z->older = z->padding = NONE;
    order_params(low);
    lay_out(low);
    find_own(low);
    z->in = none_array(low, z->count);
    z->forgotten = none_array(low, z->count);
    declare_units(low);
    declare_params(low);
    declare_optimized(low);
    new_resident(low, CATEGORY_PERSISTENT, z->offload ? LANE_HOST : LANE_COMPUTE, ATEN_DIV,
                 DTYPE_FP32, (struct shape){.rank = 0}); /* the last step's norm */
    z->grads = z->widened ? new_grads(low) : low->grad;
    if (z->offload)
        zero12_offload_set_up(low);
    if (zero_bf16_has(s))
        zero_bf16_set_up(low);
}

/* ---- averaging a bucket ---- */

/* Adds a run of a reduced gradient to the fp32 partition, by way of a copy in fp32. */
static void add_to_partition(struct lowering *low, uint32_t p, struct operand reduced)
{
    struct zero12 *z = low->state;
    const struct part part = zero12_part(low, p);
    const uint64_t count = part_elements(&part);
    const uint32_t copy =
        alloc_buffer(low, CATEGORY_GRADIENT, z->lane, ATEN_TO_COPY, DTYPE_FP32, flat(count));
    const struct operand to =
        zero_run(plan_whole_buffer(low->plan, z->gradients), part.offset, count);
    const struct operand whole = plan_whole_buffer(low->plan, copy);
    reduced.shape = whole.shape;
    emit_work_on(low, PLAN_COMPUTE, z->lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1, &reduced, 1,
                 &whole);
    emit_work_on(low, PLAN_COMPUTE, z->lane, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP, 1, &whole,
                 1, &to);
    emit_free(low, copy);
}

static void make_fp32_partition(struct lowering *low)
{
    struct zero12 *z = low->state;
    if (z->gradients != NONE)
        return;
    z->gradients =
        alloc_buffer(low, CATEGORY_GRADIENT, z->lane, ATEN_ZEROS, DTYPE_FP32, flat(z->partition));
    const struct operand whole = plan_whole_buffer(low->plan, z->gradients);
    emit_work_on(low, PLAN_COMPUTE, z->lane, WORK_FILL, ATEN_ZEROS, PLAN_NO_GROUP, 0, NULL, 1,
                 &whole);
}

static void all_reduce(struct lowering *low, struct operand x)
{
    const struct zero12 *z = zero12_of(low);
    if (z->group != PLAN_NO_GROUP)
        emit_work_on(low, PLAN_ALL_REDUCE, z->lane, WORK_ALL_REDUCE_SUM, ATEN_ALL_REDUCE, z->group,
                     1, &x, 1, &x);
}

struct slice { /* of a bucket: one rank's */
    struct operand of;
    uint32_t param; /* of several: the first */
    bool own;       /* to be put back; its own part is kept in fp32 where that is asked */
    uint64_t skip;  /* elements before that part */
};

/* allreduce_and_copy_with_multiple_ranks: slices are put together (one alone is as it is), summed
 * over all ranks, and this rank's put back. */
static void reduce_slices(struct lowering *low, const struct slice *slices, uint32_t count,
                          uint64_t elements)
{
    const struct zero12 *z = zero12_of(low);
    struct operand *parts = xmalloc((count + 1) * sizeof *parts);
    for (uint32_t i = 0; i < count; i++)
        parts[i] = slices[i].of;
    uint32_t cat = NONE;
    struct operand together = parts[0];
    if (count > 1) {
        cat = alloc_buffer(low, CATEGORY_BUCKET, z->lane, ATEN_CAT, zero12_reduced_dtype(low),
                           flat(elements));
        together = plan_whole_buffer(low->plan, cat);
        emit_work_on(low, PLAN_COMPUTE, z->lane, WORK_PACK, ATEN_CAT, PLAN_NO_GROUP, count, parts,
                     1, &together);
    }
    if (z->widened) {
        const uint32_t narrow = zero12_narrow(low, together);
        all_reduce(low, plan_whole_buffer(low->plan, narrow));
        zero12_put_back(low, plan_whole_buffer(low->plan, narrow), together);
        if (cat != NONE)
            emit_free(low, cat);
        cat = narrow;
        together = plan_whole_buffer(low->plan, narrow);
    } else {
        all_reduce(low, together);
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t n = shape_elements(&parts[i].shape);
        const struct operand reduced = zero_run(together, at, n);
        if (slices[i].own && z->fp32_partition && z->is_own[slices[i].param]) {
            make_fp32_partition(low);
            add_to_partition(low, slices[i].param, zero_run(reduced, slices[i].skip, n));
        }
        if (slices[i].own && cat != NONE)
            zero12_put_back(low, reduced, parts[i]);
        at += n;
    }
    if (cat != NONE)
        emit_free(low, cat);
    free(parts);
}

/* The bucket cut where partitions begin; neighbours of one rank are one slice. Returns how many. */
static uint32_t cut_bucket(struct lowering *low, struct operand bucket, struct slice *out)
{
    struct zero12 *z = low->state;
    uint32_t count = 0, last = NONE;
    uint64_t done = 0;
    for (uint32_t i = 0; i < z->in_count; i++) {
        const uint32_t p = z->in[i];
        const uint64_t from = z->at[p], to = from + elements_of(low, p);
        for (uint64_t at = from; at < to;) {
            const uint64_t owner = at / z->partition, end = (owner + 1) * z->partition;
            const uint64_t n = (end < to ? end : to) - at;
            const bool own = owner == low->strategy->rank;
            if (own && z->fp32_partition)
                make_fp32_partition(low);
            if (count && owner == last && !(own && z->fp32_partition)) {
                struct slice *before = &out[count - 1];
                before->of = zero_run(bucket, done - shape_elements(&before->of.shape),
                                      shape_elements(&before->of.shape) + n);
            } else {
                out[count++] = (struct slice){zero_run(bucket, done, n), p, own, 0};
            }
            last = (uint32_t)owner;
            done += n;
            at += n;
        }
    }
    return count;
}

/* reduce_scatter: each rank wants its slices only, but all are summed for all. Not more elements at
 * once than a bucket has. */
static void average_slices(struct lowering *low, struct operand bucket)
{
    const struct zero12 *z = zero12_of(low);
    struct slice *slices = xmalloc((z->in_count + z->ranks + 1) * sizeof *slices);
    zero_scale(low, z->lane, 1.0 / z->ranks, bucket, bucket);
    const uint32_t count = cut_bucket(low, bucket, slices);
    uint64_t elements = 0;
    for (uint32_t first = 0, i = 0; i < count; i++) {
        elements += shape_elements(&slices[i].of.shape);
        if (elements <= low->strategy->zero.reduce_bucket_size && i + 1 < count)
            continue;
        reduce_slices(low, slices + first, i + 1 - first, elements);
        first = i + 1;
        elements = 0;
    }
    free(slices);
}

static void average_whole(struct lowering *low, struct operand bucket)
{
    const struct zero12 *z = zero12_of(low);
    const struct operand wide = bucket;
    if (z->widened)
        bucket = plan_whole_buffer(low->plan, zero12_narrow(low, wide));
    all_reduce(low, bucket);
    zero_scale(low, z->lane, 1.0 / z->ranks, bucket, bucket);
    if (z->widened)
        zero12_put_back(low, bucket, wide);
    uint64_t at = 0;
    for (uint32_t i = 0; i < z->in_count; i++) {
        const struct part part = zero12_part(low, z->in[i]);
        if (z->fp32_partition && part_elements(&part)) {
            make_fp32_partition(low);
            add_to_partition(low, z->in[i],
                             zero_run(bucket, at + part.first, part_elements(&part)));
        }
        at += elements_of(low, z->in[i]);
    }
    if (z->widened)
        emit_free(low, bucket.place);
}

/* buffered_reduce_fallback: gradients where they are, together for the while. */
static void average_gradients(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    struct slice *slices = xmalloc((z->in_count + 1) * sizeof *slices);
    for (uint32_t i = 0; i < z->in_count; i++) {
        slices[i] =
            (struct slice){z->grads[z->in[i]], z->in[i], true, zero12_part(low, z->in[i]).first};
        zero_scale(low, z->lane, 1.0 / z->ranks, slices[i].of, slices[i].of);
    }
    reduce_slices(low, slices, z->in_count, z->filled);
    free(slices);
}

static struct operand filled_bucket(const struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    if (z->oversized)
        return zero_run(z->grads[z->in[0]], 0, z->filled);
    return zero_run(plan_whole_buffer(low->plan, z->bucket[z->turn]), 0, z->filled);
}

/* ---- after it: who keeps what ---- */

static void forget(struct lowering *low, uint32_t p)
{
    const struct zero12 *z = zero12_of(low);
    if (zero12_has_storage(z, z->grads[p]))
        zero12_exchange(low, p, no_operand());
    z->grads[p] = no_operand();
}

/* copy_grads_in_partition: at the first of a backward, room for all of this rank's. */
static void keep_gradient(struct lowering *low, uint32_t p)
{
    struct zero12 *z = low->state;
    if (z->fp32_partition) {
        if (z->widened && p != z->held)
            forget(low, p);
        return;
    }
    if (z->gradients == NONE) {
        z->gradients = alloc_buffer(low, CATEGORY_GRADIENT, z->lane, ATEN_EMPTY,
                                    low->strategy->compute, flat(z->own_elements));
        z->gradients_used = 0;
    }
    struct operand view = plan_whole_buffer(low->plan, z->gradients);
    view.offset = z->gradients_used;
    view.shape = low->plan->params[p].shape;
    z->gradients_used += elements_of(low, p);
    zero_copy(low, z->lane, z->grads[p], view);
    if (z->grads[p].place != z->bucket[0] && z->grads[p].place != z->bucket[1])
        zero12_exchange(low, p, view);
    z->grads[p] = view;
}

/* Gradients of other partitions that a reduction on its own stream still read. */
static void forget_earlier(struct lowering *low)
{
    struct zero12 *z = low->state;
    for (uint32_t i = 0; i < z->forgotten_count; i++)
        forget(low, z->forgotten[i]);
    z->forgotten_count = 0;
}

static void settle(struct lowering *low)
{
    struct zero12 *z = low->state;
    const struct zero_options *o = &low->strategy->zero;
    for (uint32_t i = 0; i < z->in_count; i++)
        if (z->is_own[z->in[i]] && z->offload) {
            if (zero12_offload_gradient(low, z->in[i]) && z->in[i] != z->held)
                forget(low, z->in[i]);
        } else if (z->is_own[z->in[i]] && is_contiguous(low))
            keep_gradient(low, z->in[i]);
        else if (!z->is_own[z->in[i]] && z->each && o->overlap_comm && !is_contiguous(low))
            z->forgotten[z->forgotten_count++] = z->in[i];
    for (uint32_t i = z->in_count; i-- > 0;) /* a list that dies from its end */
        if (!z->is_own[z->in[i]] && z->each && !(o->overlap_comm && !is_contiguous(low)))
            forget(low, z->in[i]);
}

/* get_accelerator().synchronize(). */
static void wait_for_device(struct lowering *low)
{
    emit_sync(low, LANE_HOST, LANE_COMPUTE);
    emit_sync(low, LANE_HOST, zero12_of(low)->lane);
}

/* reduce_ipg_grads. */
static void flush(struct lowering *low)
{
    struct zero12 *z = low->state;
    const struct zero_options *o = &low->strategy->zero;
    const uint32_t before = enter_scope(low, "ds_reduce", PLAN_NO_UNIT, false);
    if (z->in_count) {
        if (o->overlap_comm && is_contiguous(low)) {
            if (z->filled_event != NONE)
                emit_wait(low, z->lane, z->filled_event);
            else
                emit_sync(low, z->lane, LANE_COMPUTE);
            emit_sync(low, LANE_COMPUTE, z->lane);
        } else if (o->overlap_comm) {
            wait_for_device(low);
            forget_earlier(low);
        }
        if (!is_contiguous(low))
            average_gradients(low);
        else if (o->reduce_scatter)
            average_slices(low, filled_bucket(low));
        else
            average_whole(low, filled_bucket(low));
        settle(low);
        if (z->offload && o->overlap_comm && !z->oversized)
            z->emptied_event[z->turn] = emit_record(low, z->lane);
    }
    z->filled_event = NONE;
    z->in_count = 0;
    z->filled = 0;
    z->oversized = false;
    leave_scope(low, before);
}

/* ---- gradients ---- */

/* setup_buckets: at the first gradient of a backward. */
static void set_up_buckets(struct lowering *low)
{
    struct zero12 *z = low->state;
    const struct zero_options *o = &low->strategy->zero;
    if (z->ready)
        return;
    z->ready = true;
    z->turn = 0;
    for (uint32_t i = 0; i < (o->overlap_comm ? 2U : 1U) && is_contiguous(low); i++)
        z->bucket[i] = alloc_buffer(low, CATEGORY_BUCKET, LANE_COMPUTE, ATEN_EMPTY,
                                    zero12_reduced_dtype(low), flat(o->reduce_bucket_size));
}

/* Offloading reads .grad when autograd may have given its memory to others: a copy takes its place.
 */
static void own_gradient(struct lowering *low, uint32_t p)
{
    const struct zero12 *z = zero12_of(low);
    const uint32_t clone = alloc_buffer(low, CATEGORY_BUCKET, LANE_COMPUTE, ATEN_CLONE,
                                        zero12_reduced_dtype(low), low->plan->params[p].shape);
    const struct operand whole = plan_whole_buffer(low->plan, clone);
    zero_copy(low, LANE_COMPUTE, z->grads[p], whole);
    zero12_exchange(low, p, whole);
    z->grads[p] = whole;
}

/* reduce_independent_p_g_buckets_and_remove_grads. */
static void take(struct lowering *low, uint32_t p)
{
    struct zero12 *z = low->state;
    const struct zero_options *o = &low->strategy->zero;
    const uint64_t n = elements_of(low, p);
    const uint32_t before = enter_named_scope(low, "ds_grad", zero_name(low, p));
    if (z->filled + n > o->reduce_bucket_size) {
        flush(low);
        if (is_contiguous(low) && o->overlap_comm)
            z->turn = 1 - z->turn;
    }
    if (is_contiguous(low) && n > o->reduce_bucket_size) {
        z->oversized = true;
        if (z->offload)
            own_gradient(low, p);
    } else if (is_contiguous(low)) {
        if (z->emptied_event[z->turn] != NONE)
            emit_wait(low, LANE_COMPUTE, z->emptied_event[z->turn]);
        struct operand view = plan_whole_buffer(low->plan, z->bucket[z->turn]);
        view.offset = z->filled;
        view.shape = low->plan->params[p].shape;
        zero_copy(low, LANE_COMPUTE, z->grads[p], view);
        zero12_exchange(low, p, view);
    }
    if (z->offload && o->overlap_comm)
        z->filled_event = emit_record(low, LANE_COMPUTE);
    z->filled += n;
    z->in[z->in_count++] = p;
    leave_scope(low, before);
}

static bool at_boundary(const struct lowering *low)
{
    return low->micro_batch + 1 == low->strategy->accumulate;
}

static void gradient(struct lowering *low, uint32_t p)
{
    const struct zero12 *z = zero12_of(low);
    if (low->incoming != NONE && low->incoming != low->grad[p].place) {
        emit_free(low, low->incoming); /* added to .grad: gone before the hook */
        low->incoming = NONE;
    }
    if (zero_bf16_has(low->strategy))
        return;
    set_up_buckets(low);
    if (z->widened)
        zero12_widen(low, p);
    if (z->each || (low->strategy->zero.overlap_comm && at_boundary(low)))
        take(low, p);
}

/* ---- the epilogue ---- */

/* What this micro-batch left is added to what those before did. */
static void accumulate(struct lowering *low)
{
    struct zero12 *z = low->state;
    if (z->fp32_partition) {
        if (at_boundary(low))
            make_fp32_partition(low);
        return;
    }
    for (uint32_t i = 0; i < z->own_count; i++) {
        const uint32_t p = z->own[i];
        if (z->kept[p].place == NONE)
            z->kept[p] = z->grads[p];
        else
            emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_,
                         PLAN_NO_GROUP, 1, &z->grads[p], 1, &z->kept[p]);
    }
}

/* get_flat_partition: zeros behind the last parameter. */
static void pad(struct lowering *low)
{
    struct zero12 *z = low->state;
    uint64_t filled = 0;
    for (uint32_t i = 0; i < z->own_count; i++) {
        const struct part part = zero12_part(low, z->own[i]);
        filled += part_elements(&part);
    }
    if (filled == z->partition || z->fp32_partition || !at_boundary(low))
        return;
    z->padding = alloc_buffer(low, CATEGORY_GRADIENT, LANE_COMPUTE, ATEN_ZEROS,
                              low->strategy->compute, flat(z->partition - filled));
    const struct operand whole = plan_whole_buffer(low->plan, z->padding);
    emit_work_on(low, PLAN_COMPUTE, LANE_COMPUTE, WORK_FILL, ATEN_ZEROS, PLAN_NO_GROUP, 0, NULL, 1,
                 &whole);
}

/* Whether it is one that was added: of its own memory, and not what is kept. What is offloaded is
 * added on the host, and in no list. */
static bool is_listed(const struct lowering *low, uint32_t p)
{
    const struct zero12 *z = zero12_of(low);
    return !z->fp32_partition && !z->offload && z->is_own[p] &&
           zero12_has_storage(z, z->grads[p]) && z->kept[p].place != z->grads[p].place;
}

static void clear_gradient(struct lowering *low, uint32_t p)
{
    struct zero12 *z = low->state;
    const bool view = z->grads[p].place != NONE && !zero12_has_storage(z, z->grads[p]);
    if (z->kept[p].place != z->grads[p].place)
        forget(low, p);
    z->grads[p] = no_operand();
    if (view)
        zero12_release_buckets(low);
}

/* _clear_param_grad_only: .grad goes; what was kept stays. `held` has another reference, and so
 * have gradients that were added to what was kept: a list of them dies behind it, from its end. */
static void clear_gradients(struct lowering *low, uint32_t held)
{
    struct zero12 *z = low->state;
    for (uint32_t i = 0; i < z->count; i++)
        if (z->listed[i] != held && !is_listed(low, z->listed[i]))
            clear_gradient(low, z->listed[i]);
    for (uint32_t i = z->own_count; i-- > 1;)
        if (z->own[i - 1] != held)
            clear_gradient(low, z->own[i - 1]);
    if (z->own_count && z->own[z->own_count - 1] != held) /* a loop variable's */
        clear_gradient(low, z->own[z->own_count - 1]);
    if (z->fp32_partition || z->offload || z->gradients == NONE)
        return;
    if (z->older == NONE)
        z->older = z->gradients;
    else
        emit_free(low, z->gradients);
    z->gradients = NONE;
}

static void run_epilogue(struct lowering *low)
{
    struct zero12 *z = low->state;
    const struct zero_options *o = &low->strategy->zero;
    const bool walks = !z->each && !o->overlap_comm;
    for (uint32_t i = 0; i < z->count && walks; i++)
        if (z->grads[z->listed[i]].place != NONE)
            take(low, z->listed[i]);
    /* The walk's loop variable still has the last gradient, which is a view of the bucket unless it
     * was kept. */
    const uint32_t last = walks && z->count ? z->listed[z->count - 1] : NONE;
    z->held = last != NONE && (!z->is_own[last] || z->offload || z->widened) ? last : NONE;
    const uint32_t before = enter_scope(low, "ds_epilogue", PLAN_NO_UNIT, false);
    flush(low);
    if (o->overlap_comm) {
        wait_for_device(low);
        forget_earlier(low);
    }
    if (!z->offload) {
        accumulate(low);
        pad(low);
    }
    zero12_release_buckets(low);
    if (!z->widened)
        clear_gradients(low, z->held);
    leave_scope(low, before);
    if (z->held != NONE && (!z->widened || (z->is_own[z->held] && is_contiguous(low))))
        clear_gradient(low, z->held);
    z->held = NONE;
    z->ready = false;
}

static void final(struct lowering *low)
{
    const struct zero12 *z = zero12_of(low);
    if (zero_bf16_has(low->strategy))
        zero_bf16_final(low);
    else if (z->each || at_boundary(low))
        run_epilogue(low);
}

/* casts_params: keep_in_fp32.py. */
#define ZERO12(stage)                                                                              \
    {                                                                                              \
        .name = "zero" #stage, .state_bytes = sizeof(struct zero12), .zero_stage = (stage),        \
        .own_programs = true, .scaled_loss = true, .casts_params = true,                           \
        .unscaled = zero_bf16_has, .check = check, .set_up = set_up,                               \
        .pre_backward = zero_bf16_pre_backward, .gradient = gradient, .final = final,              \
        .update = zero12_update,                                                                   \
    }

const struct system system_zero1 = ZERO12(1);
const struct system system_zero2 = ZERO12(2);
