/* zero3_qgz.c - reductions of ZeRO stage 3 in 4 bits (zero_quantized_gradients; ZeRO++'s qgZ): for
 * zero3.c (deepspeed 0.19.8, all_to_all_quant_reduce of coalesced_collectives.py, and
 * csrc/quantization/pt_binding.cpp).
 *
 * Each gradient of the bucket goes by itself, and only of matrices that 2 N divides; the others are
 * reduced and scattered in 16 bits, one by one:
 *
 *     quantise   two numbers a byte, a scale (fp32) a group; rows in the order of who gets them
 *     in nodes   all to all, numbers and scales
 *     sum        what came is summed over the node's ranks, and quantised again
 *     across     all to all among the ranks of one place in their nodes
 *     sum        back in fp16, added up over nodes, and divided by their number
 *
 * Python's locals of one gradient live until the next one's take their names. Kernels read their
 * operands once and write once: they cost their bytes. */
#include "lower/zero3.h"

#include <stdlib.h>

static uint32_t node_ranks(const struct strategy *s)
{
    return s->zero.node_ranks ? s->zero.node_ranks : s->world;
}

bool zero3_has_qgz(const struct strategy *s)
{
    return s->zero.quantized_gradients && s->world / node_ranks(s) > 1;
}

enum err_code zero3_check_qgz(const struct strategy *s, struct err *err)
{
    const uint32_t node = node_ranks(s);
    if (!s->zero.quantized_gradients)
        return ERR_OK;
    if (!s->zero.reduce_scatter)
        return err_set(err, ERR_INVALID,
                       "--zero: zero_quantized_gradients: DeepSpeed asks for reduce_scatter, too");
    if (s->world > node && s->world % node != 0)
        return err_set(err, ERR_INVALID,
                       "--zero: zero_quantized_gradients: DeepSpeed makes groups of whole nodes, "
                       "and %u ranks are no multiple of %u (--gpus-per-node)",
                       s->world, node);
    if (!zero3_has_qgz(s))
        return ERR_OK;
    if (s->compute != DTYPE_FP16)
        return err_set(err, ERR_INVALID,
                       "--zero: zero_quantized_gradients: across nodes DeepSpeed's kernel reads 16 "
                       "bits as fp16, so that gradients of another dtype become other numbers; "
                       "--param-dtype fp16");
    if (s->zero.optimizer.on)
        return err_set(err, ERR_UNSUPPORTED,
                       "--zero: zero_quantized_gradients with offload_optimizer is not planned");
    return ERR_OK;
}

void zero3_set_up_qgz(struct lowering *low)
{
    struct zero3 *z = low->state;
    const uint32_t node = node_ranks(low->strategy);
    if (!zero3_has_qgz(low->strategy))
        return;
    z->node_group = plan_add_group(low->plan, "node", GROUP_RESHARD, node, 1);
    z->across_group = plan_add_group(low->plan, "nodes", GROUP_REPLICATE, z->ranks / node, node);
}

/* ---- one gradient ---- */

struct numbers { /* quantised; buffers */
    uint32_t values, scales;
};

struct locals { /* of all_to_all_quant_reduce, in the order in which Python's frame lets go */
    struct numbers quantised, received, summed, last;
    uint32_t half;
};

static uint32_t new_half(struct lowering *low, enum aten label, uint64_t elements)
{
    return alloc_buffer(low, CATEGORY_REDUCE_SCATTER, zero3_of(low)->reduce_lane, label, DTYPE_FP16,
                        flat(elements));
}

static uint32_t new_values(struct lowering *low, enum aten label, uint64_t bytes)
{
    return alloc_buffer(low, CATEGORY_REDUCE_SCATTER, zero3_of(low)->reduce_lane, label, DTYPE_INT8,
                        flat(bytes));
}

static uint32_t new_scales(struct lowering *low, enum aten label, uint64_t groups)
{
    return alloc_buffer(low, CATEGORY_REDUCE_SCATTER, zero3_of(low)->reduce_lane, label, DTYPE_FP32,
                        SHAPE((uint32_t)groups, 1));
}

static void let_go(struct lowering *low, uint32_t buffer)
{
    if (buffer != NONE)
        emit_free(low, buffer);
}

/* What the name meant before dies when it means something else. */
static void bind(struct lowering *low, struct numbers *name, struct numbers to)
{
    let_go(low, name->values);
    let_go(low, name->scales);
    *name = to;
}

/* Made by a kernel: the scales first. */
static struct numbers made(struct lowering *low, uint64_t bytes, uint64_t groups)
{
    struct numbers n;
    n.scales = new_scales(low, ATEN_EMPTY, groups);
    n.values = new_values(low, ATEN_EMPTY, bytes);
    return n;
}

static void compute(struct lowering *low, enum work_kind work, uint32_t ins,
                    const struct operand *in, struct numbers to)
{
    const struct operand out[] = {plan_whole_buffer(low->plan, to.values),
                                  plan_whole_buffer(low->plan, to.scales)};
    emit_work_on(low, PLAN_COMPUTE, zero3_of(low)->reduce_lane, work, ATEN_EMPTY, PLAN_NO_GROUP,
                 ins, in, 2, out);
}

static void all_to_all(struct lowering *low, uint8_t group, uint32_t from, uint32_t to)
{
    emit_work(low, PLAN_ALL_TO_ALL, zero3_of(low)->reduce_lane, WORK_ALL_TO_ALL, ATEN_ALLTOALL_BASE,
              group, 1, &from, 1, &to);
}

/* Room for both, then both are exchanged. */
static void exchange(struct lowering *low, uint8_t group, struct numbers from, struct numbers *name)
{
    const struct buffer *buffers = low->plan->buffers;
    const uint64_t bytes = buffers[from.values].bytes;
    const uint64_t groups = buffers[from.scales].bytes / sizeof(float);
    const uint32_t values = new_values(low, ATEN_EMPTY_LIKE, bytes);
    let_go(low, name->values);
    const uint32_t scales = new_scales(low, ATEN_EMPTY_LIKE, groups);
    let_go(low, name->scales);
    *name = (struct numbers){values, scales};
    all_to_all(low, group, from.values, values);
    all_to_all(low, group, from.scales, scales);
}

/* sum(final_output.chunk(nodes)) / nodes: from Python's 0 on. Returns what that is in. */
static uint32_t average(struct lowering *low, uint32_t half, uint32_t nodes)
{
    const uint8_t lane = zero3_of(low)->reduce_lane;
    const struct operand all = plan_whole_buffer(low->plan, half);
    const uint64_t n = shape_elements(&all.shape) / nodes;
    struct operand sum = no_operand();
    for (uint32_t node = 0; node < nodes; node++) {
        const struct operand to = plan_whole_buffer(low->plan, new_half(low, ATEN_ADD, n));
        const struct operand in[] = {zero_run(all, node * n, n), sum};
        emit_work_on(low, PLAN_COMPUTE, lane, node ? WORK_ADD : WORK_ADD_NUMBER, ATEN_ADD,
                     PLAN_NO_GROUP, node ? 2 : 1, in, 1, &to);
        if (node)
            emit_free(low, sum.place);
        sum = to;
    }
    const uint32_t mean = new_half(low, ATEN_DIV, n);
    zero_scale(low, lane, 1.0 / nodes, sum, plan_whole_buffer(low->plan, mean));
    emit_free(low, sum.place);
    return mean;
}

/* Returns what this rank's piece is in. */
static uint32_t reduce_matrix(struct lowering *low, uint32_t p, struct locals *l)
{
    const struct zero3 *z = zero3_of(low);
    const struct shape *shape = &low->plan->params[p].shape;
    const uint32_t node = plan_group_ranks(low->plan, z->node_group);
    const uint64_t n = zero3_elements(low, p);
    uint64_t groups = shape->dim[0] > shape->dim[1] ? shape->dim[0] : shape->dim[1];
    groups = groups > z->ranks ? groups : z->ranks;

    const struct operand grad = zero_run(low->grad[p], 0, n);
    const struct numbers quantised = made(low, n / 2, groups);
    bind(low, &l->quantised, quantised);
    compute(low, WORK_QUANTIZE, 1, &grad, quantised);
    exchange(low, z->node_group, quantised, &l->received);

    const struct operand came[] = {plan_whole_buffer(low->plan, l->received.values),
                                   plan_whole_buffer(low->plan, l->received.scales)};
    const struct numbers summed = made(low, n / 2 / node, groups / node);
    bind(low, &l->summed, summed);
    compute(low, WORK_QUANTIZED_SUM, 2, came, summed);
    exchange(low, z->across_group, summed, &l->last);

    const struct operand last[] = {plan_whole_buffer(low->plan, l->last.values),
                                   plan_whole_buffer(low->plan, l->last.scales)};
    const uint32_t half = new_half(low, ATEN_EMPTY, n / node);
    let_go(low, l->half);
    l->half = half;
    const struct operand out = plan_whole_buffer(low->plan, half);
    emit_work_on(low, PLAN_COMPUTE, z->reduce_lane, WORK_DEQUANTIZE, ATEN_EMPTY, PLAN_NO_GROUP, 2,
                 last, 1, &out);
    return average(low, half, z->ranks / node);
}

/* ---- those of a bucket ---- */

static bool is_quantised(const struct lowering *low, uint32_t p)
{
    const struct zero3 *z = zero3_of(low);
    return low->plan->params[p].shape.rank > 1 &&
           zero3_elements(low, p) % (2 * (uint64_t)z->ranks) == 0;
}

/* Each gradient's piece; in[i] is what it is in, NONE: the gradient's own memory. */
static void reduce_each(struct lowering *low, struct operand *pieces, uint32_t *in)
{
    struct zero3 *z = low->state;
    uint32_t *const all = z->in, count = z->in_count;
    const struct numbers none = {NONE, NONE};
    struct locals l = {none, none, none, none, NONE};
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t n = zero3_own_elements(low, all[i]);
        if (is_quantised(low, all[i])) {
            in[i] = reduce_matrix(low, all[i], &l);
            pieces[i] = zero_run(plan_whole_buffer(low->plan, in[i]), 0, n);
            continue;
        }
        z->in = &all[i];
        z->in_count = 1;
        pieces[i] = zero_run(zero3_scatter(low, &in[i]), 0, n);
        z->in = all;
        z->in_count = count;
    }
    bind(low, &l.quantised, none);
    bind(low, &l.received, none);
    bind(low, &l.summed, none);
    bind(low, &l.last, none);
    let_go(low, l.half);
}

/* In the dtype in which they are kept. What they were in dies from the last on. */
static void cast_each(struct lowering *low, struct operand *pieces, uint32_t *in)
{
    const struct zero3 *z = zero3_of(low);
    const enum dtype dtype = (enum dtype)low->plan->buffers[z->gradients].dtype;
    if (dtype == low->strategy->compute)
        return;
    uint32_t *casts = none_array(low, z->in_count);
    for (uint32_t i = 0; i < z->in_count; i++) {
        casts[i] = alloc_buffer(low, CATEGORY_GRADIENT, z->reduce_lane, ATEN_TO_COPY, dtype,
                                pieces[i].shape);
        const struct operand to = plan_whole_buffer(low->plan, casts[i]);
        emit_work_on(low, PLAN_COMPUTE, z->reduce_lane, WORK_CAST, ATEN_TO_COPY, PLAN_NO_GROUP, 1,
                     &pieces[i], 1, &to);
        pieces[i] = to;
    }
    for (uint32_t i = z->in_count; i-- > 0;) {
        let_go(low, in[i]);
        in[i] = casts[i];
    }
}

void zero3_reduce_qgz(struct lowering *low)
{
    const struct zero3 *z = zero3_of(low);
    struct operand *pieces = xmalloc((z->in_count + 1) * sizeof *pieces);
    uint32_t *in = none_array(low, z->in_count);
    reduce_each(low, pieces, in);
    cast_each(low, pieces, in);
    zero3_keep(low, pieces, true);
    for (uint32_t i = 0; i < z->in_count; i++)
        if (in[i] != NONE)
            zero3_forget(low, z->in[i]);
    for (uint32_t i = z->in_count; i-- > 0;) {
        let_go(low, in[i]);
        if (in[i] == NONE)
            zero3_forget(low, z->in[i]);
    }
    free(pieces);
}
