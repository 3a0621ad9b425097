/* ops_flash_attn.c - FlashAttention-2 of the package flash-attn (2.8, flash_attn_interface.py and
 * csrc/flash_attn/flash_api.cpp), which transformers calls for "flash_attention_2".
 *
 * A torch.autograd.Function around two operators. Forward births o and logsumexp and has the state
 * of the random numbers on the device; backward makes dq, dk and dv like q, k and v, and the
 * operator returns the sums of do·o besides, which nobody takes. The kernels are those of
 * ops_attention.c; heads of k and v may be fewer, of each a window may be seen, and scores be
 * capped: what PyTorch's own call has masks or single ops for.
 *
 * Of a row that is joined of samples it is flash_attn_varlen_func, whose operators have no batch.
 */
#include "graph/attention_scratch.h"
#include "graph/op_class.h"

#include <math.h>

enum { TILE = 128, EIGHT = 8 };

enum { OUT, LOGSUMEXP, RANDOM, PADDED }; /* outputs; PADDED and two more: q, k and v, if they are */

static uint32_t padded(uint32_t d)
{
    return (d + EIGHT - 1) / EIGHT * EIGHT;
}

static bool pads(const struct graph_op *op)
{
    return op->outs > PADDED;
}

/* Operands of samples, behind q, k and v. */
enum { ENDS = 3, LONGEST };

static bool is_varlen(const struct graph_op *op)
{
    return op->kind == OP_FLASH_ATTN_VARLEN;
}

/* A row (1, s, a, d) as the operator has it: (s, a, d). */
static struct shape as_seen(const struct graph_op *op, struct shape s)
{
    return is_varlen(op) ? SHAPE(s.dim[1], s.dim[2], s.dim[3]) : s;
}

/* What the kernel is given for operand i: that, or a padded copy. */
static uint32_t taken(const struct graph_op *op, uint32_t i)
{
    return pads(op) ? op->out[PADDED + i] : op->in[i];
}

/* Born in the operator's shape. */
static uint32_t birth(struct graph *graph, uint32_t op, enum aten aten, enum dtype dtype,
                      struct shape shape)
{
    const uint32_t out = graph_op_birth(graph, op, aten, dtype, shape);
    graph->storages[graph->tensors[out].storage].shape = as_seen(&graph->ops[op], shape);
    return out;
}

struct flash_attn_result op_flash_attn(struct graph *graph, const struct flash_attn *a)
{
    const struct shape q = *shape_of(graph, a->q);
    const uint32_t d = q.dim[3], wide = padded(d);
    const uint32_t in[] = {a->q, a->k, a->v, a->ends, a->longest};
    const enum dtype dtype = dtype_of(graph, a->q);
    const bool varlen = a->sample > 0;
    const uint32_t ins = !varlen ? 3 : a->longest == GRAPH_NONE ? LONGEST : LONGEST + 1;
    const enum aten label = varlen ? ATEN_FLASH_ATTN_VARLEN : ATEN_FLASH_ATTN;
    const uint32_t op = begin(graph, varlen ? OP_FLASH_ATTN_VARLEN : OP_FLASH_ATTN, ins, in);
    struct flash_attn_result r = {.held_count = 0};
    const uint32_t out = birth(graph, op, label, dtype, with_last(q, wide));
    const struct shape rows =
        varlen ? SHAPE(q.dim[2], q.dim[1]) : SHAPE(q.dim[0], q.dim[2], q.dim[1]);
    const uint32_t logsumexp = graph_op_birth(graph, op, label, DTYPE_FP32, rows);
    const uint32_t random = graph_op_birth(graph, op, label, DTYPE_INT64, SHAPE(2));
    for (uint32_t i = 0; i < 3 && wide != d; i++)
        r.held[r.held_count++] =
            birth(graph, op, ATEN_CONSTANT_PAD, dtype, with_last(*shape_of(graph, in[i]), wide));
    r.held[r.held_count++] = logsumexp;
    r.held[r.held_count++] = random;
    graph->ops[op].attr = (struct kernel_attr){.causal = a->causal,
                                               .window = a->window,
                                               .sample = a->sample,
                                               .softcap = a->softcap,
                                               .scale = a->scale,
                                               .p = a->dropout};
    if (wide != d && !(a->scale > 0)) /* whatever it is padded to */
        graph->ops[op].attr.scale = 1 / sqrtf((float)d);
    graph_op_done(graph, op);
    for (uint32_t i = 0; i < r.held_count; i++)
        graph->tensors[r.held[i]].requires_grad = false;
    if (wide != d) { /* out[..., :d] */
        graph->tensors[out].shape = q;
        graph->tensors[out].pitch = wide;
    }
    r.out = graph_view(graph, out, q);
    return r;
}

/* Two products over the keys that a query sees. */
static double flash_attn_flops(const struct graph *graph, const struct graph_op *op)
{
    const struct shape *q = shape_of(graph, op->in[0]);
    const uint32_t all = shape_of(graph, op->in[1])->dim[1], sample = op->attr.sample;
    const uint32_t keys = sample > 0 && sample < all ? sample : all, window = op->attr.window;
    const bool causal = op->attr.causal, cut = window > 0 && window < keys;
    double seen = causal ? keys / 2.0 : keys;
    if (cut) {
        const double first = window * (window / 2.0); /* the first queries see fewer */
        seen = (first + ((double)keys - window) * window) / keys * (causal ? 1 : 2);
    }
    return 4.0 * (double)shape_elements(q) * seen;
}

/* All of o, of which the result may be a part. */
static struct operand whole(struct operand o, const struct operand *q)
{
    o.shape = q->shape;
    o.pitch = 0;
    return o;
}

static void flash_attn_forward(struct tape *tape, const struct graph *graph,
                               const struct graph_op *op)
{
    struct operand in[3], out[3];
    for (uint32_t i = 0; i < 3; i++) {
        in[i] = tape_tensor(tape, op->in[i]);
        if (!pads(op))
            continue;
        const struct operand copy = tape_birth_output(tape, op, PADDED + i);
        tape_kernel(tape, WORK_PAD, ATEN_CONSTANT_PAD, -1.0, 1, &in[i], 1, &copy);
        in[i] = copy;
    }
    for (uint32_t i = OUT; i <= RANDOM; i++)
        out[i] = tape_birth_output(tape, op, i);
    if (pads(op))
        out[OUT] = whole(out[OUT], &in[0]);
    tape_kernel(tape, WORK_ATTENTION, is_varlen(op) ? ATEN_FLASH_ATTN_VARLEN : ATEN_FLASH_ATTN,
                flash_attn_flops(graph, op), 3, in, 3, out);
}

OP_SAVED(flash_attn)
{
    (void)graph;
    uint32_t count = 0;
    for (uint32_t i = 0; i < 3; i++)
        saved[count++] = taken(op, i);
    saved[count++] = op->out[OUT];
    saved[count++] = op->out[LOGSUMEXP];
    if (is_varlen(op))
        saved[count++] = op->in[ENDS];
    saved[count++] = op->out[RANDOM];
    return count;
}

/* ctx.max_seqlen_q is the number itself, of which transformers asks the host where a batch is
 * padded. */
static uint32_t longest_of(const struct graph_op *op)
{
    return op->ins > LONGEST ? op->in[LONGEST] : GRAPH_NONE;
}

/* The sums of do·o, which the operator returns: (b, a, s), s a whole number of tiles; of samples
 * (a, s), s with a tile more for each. */
static struct shape sums_of(const struct graph *graph, const struct graph_op *op, struct shape q)
{
    if (!is_varlen(op))
        return SHAPE(q.dim[0], q.dim[2], (q.dim[1] + TILE - 1) / TILE * TILE);
    const uint32_t samples = shape_of(graph, op->in[ENDS])->dim[0] - 1;
    return SHAPE(q.dim[2], q.dim[1] + TILE * samples);
}

/* What the operator births and lets go of around the kernel. */
static void run_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                         const struct operand in[6], const struct operand out[3])
{
    const enum aten label =
        is_varlen(op) ? ATEN_FLASH_ATTN_VARLEN_BACKWARD : ATEN_FLASH_ATTN_BACKWARD;
    const struct shape sums = sums_of(graph, op, in[1].shape);
    struct operand scratch[ATTENTION_SCRATCHES];
    uint64_t bytes[ATTENTION_SCRATCHES];
    const uint32_t count =
        attention_scratch(graph->attention, graph->attention_gpu, &in[1].shape, &in[2].shape,
                          &in[3].shape, dtype_bytes((enum dtype)in[2].dtype), bytes);
    if (is_varlen(op)) /* dq, of as many rows as the sums */
        bytes[1] = bytes[1] / bytes[0] * (4 * shape_elements(&sums));
    scratch[0] = tape_birth(tape, label, DTYPE_FP32, sums);
    for (uint32_t i = 1; i < count; i++)
        scratch[i] = tape_scratch(tape, bytes[i]);
    tape_kernel(tape, WORK_ATTENTION_BACKWARD, label, 2.5 * flash_attn_flops(graph, op), 6, in, 3,
                out);
    for (uint32_t i = count; i-- > 0;)
        tape_death(tape, scratch[i]);
}

OP_BACKWARD(flash_attn)
{
    const uint32_t d = last_dim(shape_of(graph, op->in[0]));
    struct operand in[6] = {tape_grad(tape, op, OUT)}, out[3];
    for (uint32_t i = 0; i < 3; i++)
        in[1 + i] = tape_tensor(tape, taken(op, i));
    in[4] = tape_tensor(tape, op->out[LOGSUMEXP]);
    in[5] = tape_tensor(tape, op->out[OUT]);
    if (pads(op))
        in[5] = whole(in[5], &in[1]);
    for (uint32_t i = 0; i < 3; i++) {
        out[i] = tape_birth(tape, ATEN_EMPTY_LIKE, (enum dtype)in[1 + i].dtype,
                            as_seen(op, in[1 + i].shape));
        out[i].shape = in[1 + i].shape;
    }
    if (pads(op)) {
        const struct operand grad = in[0];
        in[0] =
            tape_birth(tape, ATEN_CONSTANT_PAD, (enum dtype)grad.dtype, as_seen(op, in[1].shape));
        in[0].shape = in[1].shape;
        tape_kernel(tape, WORK_PAD, ATEN_CONSTANT_PAD, -1.0, 1, &grad, 1, &in[0]);
    }
    run_backward(tape, graph, op, in, out);
    tape_end_frame(tape, op);
    if (pads(op))
        tape_death(tape, in[0]);
    for (uint32_t i = 0; i < 3; i++) {
        if (pads(op)) { /* dq[..., :d] */
            out[i].pitch = last_dim(&out[i].shape);
            out[i].shape = with_last(out[i].shape, d);
        }
        if (tape_needs(tape, op, i))
            tape_give_view(tape, op, i, out[i]);
        else
            tape_give_unasked(tape, out[i]);
    }
}

OP_CLASS(flash_attn) = {
    .label = ATEN_FLASH_ATTN,
    .work = WORK_ATTENTION,
    .saved = flash_attn_saved,
    .forward = flash_attn_forward,
    .backward = flash_attn_backward,
    .flops = flash_attn_flops,
    .in_python = true,
};

OP_CLASS(flash_attn_varlen) = {
    .label = ATEN_FLASH_ATTN_VARLEN,
    .work = WORK_ATTENTION,
    .saved = flash_attn_saved,
    .forward = flash_attn_forward,
    .backward = flash_attn_backward,
    .flops = flash_attn_flops,
    .attribute = longest_of,
    .in_python = true,
};

/* ---- what was padded, padded again (bert_padding.py) ---- */

uint32_t op_index_put_first_axis(struct graph *graph, uint32_t values, uint32_t ids, uint32_t n)
{
    const uint32_t op = begin(graph, OP_INDEX_PUT_FIRST_AXIS, 2, (uint32_t[]){values, ids});
    struct shape shape = *shape_of(graph, values);
    shape.dim[0] = n;
    const uint32_t out = graph_op_birth(graph, op, ATEN_ZEROS, dtype_of(graph, values), shape);
    graph_op_done(graph, op);
    return out;
}

static void index_put_first_axis_forward(struct tape *tape, const struct graph *graph,
                                         const struct graph_op *op)
{
    const struct operand out = tape_birth_output(tape, op, 0);
    const struct operand in[3] = {out, tape_tensor(tape, op->in[1]), tape_tensor(tape, op->in[0])};
    (void)graph;
    tape_kernel(tape, WORK_FILL, ATEN_ZEROS, -1.0, 0, NULL, 1, &out);
    tape_kernel(tape, WORK_INDEX_SET, ATEN_INDEX_PUT_, -1.0, 3, in, 1, &out);
}

OP_BACKWARD(index_put_first_axis)
{
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1])};
    tape_give(tape, op, 0,
              tape_call(tape, WORK_INDEX, ATEN_INDEX, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), -1.0, 2, in));
    tape_end_frame(tape, op);
}

OP_CLASS(index_put_first_axis) = {
    .label = ATEN_INDEX_PUT_,
    .work = WORK_INDEX_SET,
    .saved = save_second,
    .forward = index_put_first_axis_forward,
    .backward = index_put_first_axis_backward,
    .in_python = true,
};
