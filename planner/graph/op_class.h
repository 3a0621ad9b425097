/* op_class.h - for the files of operators: what the tape has to know of one, and what constructors,
 * saved lists and backward functions share.
 *
 * An operator is written once, as a few things beside each other in one file:
 *
 *     uint32_t op_silu(...)    the constructor, declared in ops.h: births outputs, in the script
 *     OP_SAVED(silu)           what its node keeps for backward
 *     OP_BACKWARD(silu)        what the node does: births gradients, runs kernels, gives
 *     OP_CLASS(silu) = {...}   these two, the forward kernel's label and work
 *
 * Labels and the order of births are those that PyTorch 2.14 records (tests/data/truth);
 * derivatives.yaml names the same lists. */
#ifndef SHARDPLAN_OP_CLASS_H
#define SHARDPLAN_OP_CLASS_H

#include "graph/ops.h"
#include "graph/tape_emit.h"

/* torchtitan's selective checkpointing policy: outputs that are kept. mm alternates, counted in
 * the order of the block's forward; addmm, bmm and attention are always kept. */
enum op_keep { KEEP_NEVER, KEEP_EVERY_SECOND, KEEP_ALWAYS };

struct op_class {
    enum aten label;     /* label of its forward kernel; ATEN_NONE: that of what it births */
    enum work_kind work; /* what that computes; WORK_NONE: it has none, or each op says its own */
    /* What the node keeps for backward, in the order in which autograd's generated code lists
     * (and therefore frees) it; only what the needed gradients ask for. Returns the count. NULL:
     * nothing. */
    uint32_t (*saved)(const struct graph *graph, const struct graph_op *op, uint32_t *saved);
    /* Runs the node: births and gives gradients. NULL: not differentiable. */
    void (*backward)(struct tape *tape, const struct graph *graph, const struct graph_op *op);
    /* Floating-point operations of the forward kernel; NULL: one per output element. */
    double (*flops)(const struct graph *graph, const struct graph_op *op);
    /* bytes that the forward kernel has while it runs; NULL: none */
    uint64_t (*scratch)(const struct graph *graph, const struct graph_op *op);
    enum op_keep keep;
    bool keeps_first; /* ... its first output alone: the others are of no call that is kept */
    /* What its function does where that is more than one kernel: it births its outputs, too. NULL:
     * outputs are born in order, and one kernel fills them. */
    void (*forward)(struct tape *tape, const struct graph *graph, const struct graph_op *op);
    uint8_t for_backward; /* 1 + its output that is for backward alone, and is empty where a kernel
                             runs without grad mode, or none of q, k and v needs a gradient
                             (should_compute_logsumexp; flash asks nobody); 0: it has none */
    bool in_place;        /* writes its first operand: it runs though it births nothing */
    bool turns_weight;    /* its second operand transposed: its node saves that view */
    bool saves_rows;      /* it makes rows of what has more dims, and saves these */
    bool turns_heads;     /* likewise of four dims: the second and third of what has them */
    bool is_partial;      /* its backward leaves inputs that need a gradient without: what made them
                             runs all the same, and lets go of what it saved */
    /* The tensor that its context has as an attribute: that lives as long as the node does
     * (tape_nodes.c). NULL: it has none. */
    uint32_t (*attribute)(const struct graph_op *op);
    bool in_python;   /* a torch.autograd.Function: what it saves is packed behind its kernels */
    bool many_params; /* it gives gradients to so many parameters that autograd's queue says in
                         which order these arrive (ready_queue.h) */
    bool custom_bwd; /* torch.amp.custom_bwd: its backward is in a region of autocast of its own, as
                        forward was, which is left behind it */
};

#define X(KIND, name, autocast) extern const struct op_class name##_class;
OP_MAP(X)
#undef X

#define OP_CLASS(name) const struct op_class name##_class
/* `saved` has room for GRAPH_OPERANDS + GRAPH_OUTPUTS tensors. */
#define OP_SAVED(name)                                                                             \
    static uint32_t name##_saved(const struct graph *graph, const struct graph_op *op,             \
                                 uint32_t *saved)
#define OP_BACKWARD(name)                                                                          \
    static void name##_backward(struct tape *tape, const struct graph *graph,                      \
                                const struct graph_op *op)

/* ---- shapes ---- */

static inline const struct shape *shape_of(const struct graph *graph, uint32_t tensor)
{
    return &graph->tensors[tensor].shape;
}

static inline enum dtype dtype_of(const struct graph *graph, uint32_t tensor)
{
    return (enum dtype)graph->tensors[tensor].dtype;
}

/* The dtype of an elementwise result: that of both, or the wider one; of what has dims where the
 * other has none. */
static inline enum dtype promoted(const struct graph *graph, uint32_t x, uint32_t y)
{
    if ((shape_of(graph, x)->rank == 0) != (shape_of(graph, y)->rank == 0))
        return dtype_of(graph, shape_of(graph, x)->rank == 0 ? y : x);
    return dtype_of(graph, x) == dtype_of(graph, y) ? dtype_of(graph, x) : DTYPE_FP32;
}

static inline uint32_t last_dim(const struct shape *shape)
{
    return shape->dim[shape->rank - 1];
}

/* Rows when the last dim is one row. */
static inline uint32_t rows_of(const struct shape *shape)
{
    return (uint32_t)(shape_elements(shape) / last_dim(shape));
}

static inline struct shape with_last(struct shape shape, uint32_t last)
{
    shape.dim[shape.rank - 1] = last;
    return shape;
}

/* ---- constructing ---- */

static inline uint32_t begin(struct graph *graph, enum op_kind kind, uint32_t ins,
                             const uint32_t *in)
{
    const uint32_t op = graph_op_new(graph, (int)kind);
    for (uint32_t i = 0; i < ins; i++)
        graph->ops[op].in[i] = in[i];
    graph->ops[op].ins = (uint8_t)ins;
    return op;
}

/* An op with one output of the given birth; the usual case. */
static inline uint32_t simple(struct graph *graph, enum op_kind kind, uint32_t ins,
                              const uint32_t *in, enum aten aten, enum dtype dtype,
                              struct shape shape)
{
    const uint32_t op = begin(graph, kind, ins, in);
    const uint32_t out = graph_op_birth(graph, op, aten, dtype, shape);
    graph_op_done(graph, op);
    return out;
}

/* ---- saving ---- */

static inline bool needs(const struct graph *graph, uint32_t tensor)
{
    return tensor != GRAPH_NONE && graph->tensors[tensor].requires_grad;
}

static inline uint32_t save_input(const struct graph *graph, const struct graph_op *op,
                                  uint32_t *saved)
{
    (void)graph;
    saved[0] = op->in[0];
    return 1;
}

static inline uint32_t save_second(const struct graph *graph, const struct graph_op *op,
                                   uint32_t *saved)
{
    (void)graph;
    saved[0] = op->in[1];
    return 1;
}

static inline uint32_t save_output(const struct graph *graph, const struct graph_op *op,
                                   uint32_t *saved)
{
    (void)graph;
    saved[0] = op->out[0];
    return 1;
}

/* Of a product: for each factor that needs a gradient, the other one. */
static inline uint32_t save_factors(const struct graph *graph, const struct graph_op *op,
                                    uint32_t *saved)
{
    uint32_t count = 0;
    if (needs(graph, op->in[0]))
        saved[count++] = op->in[1];
    if (needs(graph, op->in[1]))
        saved[count++] = op->in[0];
    return count;
}

/* ---- backward ---- */

/* dx of an elementwise op: one call with the gradient and one other operand (or none). */
static inline void give_elementwise(struct tape *tape, const struct graph *graph,
                                    const struct graph_op *op, enum work_kind work, enum aten aten,
                                    uint32_t other)
{
    struct operand in[2] = {tape_grad(tape, op, 0), {.place = PLACE_NONE}};
    if (other != GRAPH_NONE)
        in[1] = tape_tensor(tape, other);
    tape_give(tape, op, 0,
              tape_call(tape, work, aten, dtype_of(graph, op->in[0]), *shape_of(graph, op->in[0]),
                        -1.0, 2, in));
}

/* A kernel that writes the gradients of inputs 0 .. count - 1, asked for or not, has run: what was
 * not asked for dies with the node's function. */
static inline void drop_unneeded(struct tape *tape, const struct graph_op *op, uint32_t count,
                                 const struct operand *gradient)
{
    for (uint32_t i = 0; i < count; i++)
        if (!tape_needs(tape, op, i))
            tape_death(tape, gradient[i]);
}

/* One or two operands of the same shape into a new tensor. */
static inline struct operand call1(struct tape *tape, enum work_kind work, enum aten aten,
                                   struct operand x)
{
    return tape_call(tape, work, aten, (enum dtype)x.dtype, x.shape, -1.0, 1, &x);
}

static inline struct operand call2(struct tape *tape, enum work_kind work, enum aten aten,
                                   struct operand x, struct operand y)
{
    const struct operand in[2] = {x, y};
    return tape_call(tape, work, aten, (enum dtype)x.dtype, x.shape, -1.0, 2, in);
}

/* A sum in fp32 as the parameter is stored. */
static inline struct operand as_stored(struct tape *tape, struct operand sum, enum dtype dtype)
{
    if (dtype == DTYPE_FP32)
        return sum;
    const struct operand cast =
        tape_call(tape, WORK_CAST, ATEN_TO_COPY, dtype, sum.shape, -1.0, 1, &sum);
    tape_death(tape, sum);
    return cast;
}

static inline void add_to(struct tape *tape, struct operand x, struct operand to)
{
    tape_kernel(tape, WORK_ADD_IN_PLACE, ATEN_ADD_, -1.0, 1, &x, 1, &to);
}

/* An operand and a number into a new tensor. */
static inline struct operand call_number(struct tape *tape, enum work_kind work, enum aten aten,
                                         struct operand x, float number)
{
    const struct operand out = call1(tape, work, aten, x);
    tape_number(tape, number);
    return out;
}

#endif
