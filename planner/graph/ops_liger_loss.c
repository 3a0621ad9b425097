/* ops_liger_loss.c - Liger's losses (liger-kernel 0.8.5): `--loss liger-cross-entropy`
 * (ops/cross_entropy.py), which puts the gradient where the logits are as early as in forward, and
 * `--loss liger`, fused with the head's product (ops/fused_linear_cross_entropy.py).
 *
 * The second, in forward, for each chunk of the tokens: the head's product, a kernel that puts the
 * gradient where the logits are, and the products of both gradients, of which that of the weight is
 * added up. Backward hands them on, as they are where the loss's own gradient is 1.
 *
 *     operands in one dtype      one buffer of logits for all chunks; products write into it and
 *                                into the input's gradient
 *     ... of 16 bits             the weight's gradient is added to in the product
 *     ... fp32                   it is a product of its own, which is added
 *     autocast casts             weight and rows for each chunk's logits, the weight once more for
 *                                the gradients of the input, which are copied to their place; the
 *                                weight's is added up in its own dtype
 *
 * A loss that is divided before backward (by the micro-batches of a step, by a loss scale) has
 * both gradients multiplied in their place then: two passes over them, which are not planned. */
#include "graph/autocast.h"
#include "graph/op_class.h"

/* ---- what both do ---- */

/* How many targets count is asked for (.item()): the host waits for it. */
static struct operand count_targets(struct tape *tape, struct operand targets)
{
    const struct shape scalar = {.rank = 0};
    const struct operand mask = tape_call(tape, WORK_NOT_EQUAL_NUMBER, ATEN_NE, DTYPE_BOOL,
                                          targets.shape, -1.0, 1, &targets);
    tape_number(tape, -100.0F);
    tape_death(tape, tape_call(tape, WORK_SUM, ATEN_SUM, DTYPE_INT64, scalar, -1.0, 1, &mask));
    return mask;
}

/* The gradients of rows of logits, where these are, and their losses. */
static void slopes(struct tape *tape, struct operand logits, struct operand targets,
                   struct operand losses)
{
    tape_kernel(tape, WORK_CROSS_ENTROPY_SLOPES, ATEN_LIGER_CROSS_ENTROPY, -1.0, 2,
                (struct operand[]){logits, targets}, 2, (struct operand[]){losses, logits});
}

/* torch.equal(dloss, 1), which is two kernels, and the host waits. */
static void ask_for_one(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    const struct shape scalar = {.rank = 0};
    const struct operand one =
        tape_call(tape, WORK_FILL, ATEN_LIFT_FRESH, DTYPE_FP32, scalar, -1.0, 0, NULL);
    tape_number(tape, 1.0F);
    if (graph->autograd == AUTOGRAD_GPU) { /* a dispatch mode sees one call */
        const struct operand in[2] = {tape_grad(tape, op, 0), one};
        const struct operand same =
            tape_call(tape, WORK_EQUAL, ATEN_EQ_TENSOR, DTYPE_BOOL, scalar, -1.0, 2, in);
        tape_death(tape, tape_call(tape, WORK_ALL, ATEN_ALL, DTYPE_BOOL, scalar, -1.0, 1, &same));
        tape_death(tape, same);
    }
    tape_death(tape, one);
}

/* ---- cross-entropy ---- */

uint32_t op_liger_cross_entropy(struct graph *graph, uint32_t logits, uint32_t targets)
{
    return simple(graph, OP_LIGER_CROSS_ENTROPY, 2, (uint32_t[]){logits, targets}, ATEN_SUM,
                  dtype_of(graph, logits), (struct shape){.rank = 0});
}

/* Whether the largest (least) of the targets that count is one: the host waits again. */
static void ask_extreme(struct tape *tape, struct operand targets, struct operand mask, bool least)
{
    const struct shape scalar = {.rank = 0};
    const struct operand in[2] = {targets, mask};
    const struct operand product =
        tape_call(tape, WORK_MUL, ATEN_MUL, DTYPE_INT64, targets.shape, -1.0, 2, in);
    const struct operand extreme =
        tape_call(tape, least ? WORK_LEAST : WORK_MAXIMUM, least ? ATEN_MIN : ATEN_MAX, DTYPE_INT64,
                  scalar, -1.0, 1, &product);
    tape_death(tape, product);
    const struct operand fits =
        tape_call(tape, least ? WORK_OTHER : WORK_LESS_NUMBER, least ? ATEN_GE_SCALAR : ATEN_LT,
                  DTYPE_BOOL, scalar, -1.0, 1, &extreme);
    tape_death(tape, extreme);
    tape_death(tape, fits);
}

static void liger_cross_entropy_forward(struct tape *tape, const struct graph *graph,
                                        const struct graph_op *op)
{
    (void)graph;
    const struct operand logits = tape_tensor(tape, op->in[0]),
                         targets = tape_tensor(tape, op->in[1]);
    const struct operand losses = tape_call(tape, WORK_FILL, ATEN_ZEROS, (enum dtype)logits.dtype,
                                            targets.shape, -1.0, 0, NULL);
    const struct operand mask = count_targets(tape, targets);
    ask_extreme(tape, targets, mask, false);
    ask_extreme(tape, targets, mask, true);
    slopes(tape, logits, targets, losses);
    const struct operand loss = tape_birth_output(tape, op, 0);
    tape_kernel(tape, WORK_SUM, ATEN_SUM, -1.0, 1, &losses, 1, &loss);
    tape_death(tape, losses);
    tape_death(tape, mask);
}

OP_BACKWARD(liger_cross_entropy)
{
    ask_for_one(tape, graph, op);
    tape_give_saved(tape, op, 0, op->in[0]);
}

OP_CLASS(liger_cross_entropy) = {
    .label = ATEN_LIGER_CROSS_ENTROPY,
    .saved = save_input,
    .backward = liger_cross_entropy_backward,
    .forward = liger_cross_entropy_forward,
    .in_python = true,
};

/* ---- ... of each row ---- */

uint32_t op_liger_cross_entropies(struct graph *graph, uint32_t logits, uint32_t targets)
{
    return simple(graph, OP_LIGER_CROSS_ENTROPIES, 2, (uint32_t[]){logits, targets}, ATEN_ZEROS,
                  dtype_of(graph, logits), *shape_of(graph, targets));
}

static void liger_cross_entropies_forward(struct tape *tape, const struct graph *graph,
                                          const struct graph_op *op)
{
    (void)graph;
    const struct operand logits = tape_tensor(tape, op->in[0]),
                         targets = tape_tensor(tape, op->in[1]);
    const struct operand losses = tape_birth_output(tape, op, 0);
    tape_kernel(tape, WORK_FILL, ATEN_ZEROS, -1.0, 0, NULL, 1, &losses);
    const struct operand mask = count_targets(tape, targets);
    ask_extreme(tape, targets, mask, false);
    ask_extreme(tape, targets, mask, true);
    slopes(tape, logits, targets, losses);
    tape_death(tape, mask);
}

/* torch.equal of two shapes is false without a kernel. */
OP_BACKWARD(liger_cross_entropies)
{
    const struct shape scalar = {.rank = 0};
    const struct operand one =
        tape_call(tape, WORK_FILL, ATEN_LIFT_FRESH, DTYPE_FP32, scalar, -1.0, 0, NULL);
    tape_number(tape, 1.0F);
    tape_death(tape, one);
    const struct operand in[2] = {tape_tensor(tape, op->in[0]), tape_grad(tape, op, 0)};
    tape_give(tape, op, 0,
              tape_call(tape, WORK_OTHER, ATEN_MUL, dtype_of(graph, op->in[0]),
                        *shape_of(graph, op->in[0]), -1.0, 2, in));
}

OP_CLASS(liger_cross_entropies) = {
    .label = ATEN_LIGER_CROSS_ENTROPY,
    .saved = save_input,
    .backward = liger_cross_entropies_backward,
    .forward = liger_cross_entropies_forward,
    .in_python = true,
};

/* ---- with the head's product ---- */

/* What it returns and saves, behind what the region of autocast keeps. LOGITS is never born: it
 * says in which shape and dtype a chunk's are. */
enum { HIDDEN = 3 };
struct outs {
    uint32_t loss, cast, dx, dweight, logits;
};

static struct outs outs_of(const struct graph_op *op)
{
    const uint32_t *hidden = op->out + op->outs - HIDDEN;
    return (struct outs){.loss = op->out[0],
                         .cast = op->outs > HIDDEN + 1 ? op->out[1] : op->in[3],
                         .dx = hidden[0],
                         .dweight = hidden[1],
                         .logits = hidden[2]};
}

/* A chunk's logits are about `times` as many as the input's elements (chunk_mem_const). */
static uint32_t rows_of_chunk(uint32_t tokens, uint32_t h, uint32_t vocabulary, uint32_t times)
{
    const uint64_t width = (uint64_t)h * times;
    const uint32_t parts = (uint32_t)((vocabulary + width - 1) / width);
    const uint32_t least = (tokens + parts - 1) / parts;
    uint32_t rows = 1;
    while (rows < least)
        rows *= 2;
    return rows < tokens ? rows : tokens;
}

uint32_t op_liger_linear_cross_entropy(struct graph *graph, uint32_t x, uint32_t weight,
                                       uint32_t targets)
{
    const struct shape s = *shape_of(graph, x), w = *shape_of(graph, weight);
    const uint32_t times = graph->liger.chunks ? graph->liger.chunks : 1;
    const uint32_t rows = rows_of_chunk(s.dim[0], s.dim[1], w.dim[0], times);
    const uint32_t op = begin(graph, OP_LIGER_LINEAR_CROSS_ENTROPY, 4,
                              (uint32_t[]){x, weight, targets, GRAPH_NONE});
    const enum dtype product =
        graph->autocast.on ? graph->autocast.dtype : promoted(graph, x, weight);
    const uint32_t loss =
        graph_op_birth(graph, op, ATEN_SUM, DTYPE_FP32, (struct shape){.rank = 0});
    const uint32_t cast = needs(graph, x) ? autocast_kept(graph, op, weight) : GRAPH_NONE;
    if (graph->ops[op].outs == 1)
        graph->ops[op].in[3] = cast;
    graph_op_birth(graph, op, ATEN_ZEROS_LIKE, dtype_of(graph, x), s);
    graph_op_birth(graph, op, ATEN_ZEROS_LIKE, dtype_of(graph, weight), w);
    graph_op_birth(graph, op, ATEN_MM, product, SHAPE(rows, w.dim[0]));
    graph->ops[op].hidden = HIDDEN;
    graph_op_done(graph, op);
    return loss;
}

/* Gradients are made only of an input that needs one (fused_linear_cross_entropy_forward). */
static bool has_dweight(const struct graph *graph, const struct graph_op *op)
{
    return needs(graph, op->in[0]) && needs(graph, op->in[1]);
}

OP_SAVED(liger_linear_cross_entropy)
{
    const struct outs outs = outs_of(op);
    saved[0] = outs.dx;
    saved[1] = outs.dweight;
    return has_dweight(graph, op) ? 2 : 1;
}

/* ---- forward ---- */

struct chunks {
    const struct graph_op *op;
    struct outs outs;
    struct operand x, weight, targets, dx, dweight, losses;
    struct operand logits; /* for all of them; PLACE_NONE: each has its own */
    struct shape shape;    /* of the logits */
    enum dtype product;    /* their dtype */
    double flops_row;      /* of one product */
    bool input_needs, weight_needs;
    bool cast_made; /* the one that the region of autocast keeps */
};

static struct operand rows_from(struct operand whole, uint32_t first, uint32_t rows)
{
    const uint32_t width = whole.shape.rank > 1 ? last_dim(&whole.shape) : 1;
    whole.offset += (uint64_t)first * width;
    whole.shape = whole.shape.rank > 1 ? SHAPE(rows, width) : SHAPE(rows);
    return whole;
}

static struct operand filled(struct tape *tape, const struct graph_op *op, uint32_t out,
                             enum aten aten)
{
    const struct operand y = tape_birth_output(tape, op, out);
    tape_kernel(tape, WORK_FILL, aten, -1.0, 0, NULL, 1, &y);
    return y;
}

/* An argument of a product, in its dtype: `*made`, a cast that goes with the call. */
static struct operand argument(struct tape *tape, const struct chunks *c, struct operand x,
                               bool *made)
{
    *made = (enum dtype)x.dtype != c->product;
    return *made ? tape_call(tape, WORK_CAST, ATEN_TO_COPY, c->product, x.shape, -1.0, 1, &x) : x;
}

/* `weight` as autocast hands it on without a view before: the kept cast, or one for the call. */
static struct operand plain_weight(struct tape *tape, struct chunks *c, bool *made)
{
    *made = false;
    if (c->outs.cast == GRAPH_NONE)
        return argument(tape, c, c->weight, made);
    if (!c->cast_made && c->op->outs > HIDDEN + 1) {
        const struct operand cast = tape_birth_output(tape, c->op, 1);
        tape_kernel(tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &c->weight, 1, &cast);
    }
    c->cast_made = true;
    return tape_tensor(tape, c->outs.cast);
}

/* A cast of weight.t(), a view: autocast keeps none. In memory it is as the weight is. */
static struct operand cast_of_view(struct tape *tape, const struct chunks *c)
{
    const struct shape w = c->weight.shape;
    struct operand cast = tape_birth(tape, ATEN_TO_COPY, c->product, SHAPE(w.dim[1], w.dim[0]));
    cast.shape = w;
    tape_kernel(tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &c->weight, 1, &cast);
    return cast;
}

/* The last argument is cast first, and the first dies first. */
static struct operand logits_of(struct tape *tape, const struct chunks *c, struct operand x)
{
    const uint32_t rows = x.shape.dim[0];
    const struct shape shape = SHAPE(rows, c->shape.dim[1]);
    const double flops = c->flops_row * rows;
    if (c->logits.place != PLACE_NONE) {
        const struct operand out = rows_from(c->logits, 0, rows);
        tape_kernel(tape, WORK_MATMUL_NT, ATEN_MM, flops, 2, (struct operand[]){x, c->weight}, 1,
                    &out);
        return out;
    }
    bool made[2];
    struct operand in[2];
    made[1] = (enum dtype)c->weight.dtype != c->product;
    in[1] = made[1] ? cast_of_view(tape, c) : c->weight;
    in[0] = argument(tape, c, x, &made[0]);
    const struct operand out =
        tape_call(tape, WORK_MATMUL_NT, ATEN_MM, c->product, shape, flops, 2, in);
    for (int i = 0; i < 2; i++)
        if (made[i])
            tape_death(tape, in[i]);
    return out;
}

static void add_dx(struct tape *tape, struct chunks *c, struct operand gradient, uint32_t first)
{
    const uint32_t rows = gradient.shape.dim[0];
    const struct operand place = rows_from(c->dx, first, rows);
    const double flops = c->flops_row * rows;
    if (c->logits.place != PLACE_NONE) {
        tape_kernel(tape, WORK_MATMUL_NN, ATEN_MM, flops, 2,
                    (struct operand[]){gradient, c->weight}, 1, &place);
        return;
    }
    bool made;
    const struct operand weight = plain_weight(tape, c, &made);
    const struct operand dx = tape_call(tape, WORK_MATMUL_NN, ATEN_MM, c->product, place.shape,
                                        flops, 2, (struct operand[]){gradient, weight});
    if (made)
        tape_death(tape, weight);
    tape_kernel(tape, WORK_PUT_ROWS, ATEN_COPY_, -1.0, 1, &dx, 1, &place);
    tape_death(tape, dx);
}

static void add_dweight(struct tape *tape, const struct chunks *c, struct operand gradient,
                        struct operand x)
{
    const double flops = c->flops_row * x.shape.dim[0];
    bool made = false;
    if (gradient.dtype == DTYPE_FP32) { /* no product adds */
        const struct operand more =
            tape_call(tape, WORK_MATMUL_TN, ATEN_MM, DTYPE_FP32, c->weight.shape, flops, 2,
                      (struct operand[]){gradient, x});
        add_to(tape, more, c->dweight);
        tape_death(tape, more);
        return;
    }
    const struct operand rows = argument(tape, c, x, &made);
    tape_kernel(tape, WORK_MATMUL_TN_ADD, ATEN_ADDMM, flops, 2, (struct operand[]){gradient, rows},
                1, &c->dweight);
    if (made)
        tape_death(tape, rows);
}

static void run_chunk(struct tape *tape, struct chunks *c, uint32_t first, uint32_t rows)
{
    const struct operand x = rows_from(c->x, first, rows);
    const struct operand targets = rows_from(c->targets, first, rows);
    const struct operand logits = logits_of(tape, c, x);
    slopes(tape, logits, targets, rows_from(c->losses, first, rows));
    if (c->input_needs)
        add_dx(tape, c, logits, first);
    if (c->weight_needs)
        add_dweight(tape, c, logits, x);
    if (c->logits.place == PLACE_NONE)
        tape_death(tape, logits);
}

static void liger_linear_cross_entropy_forward(struct tape *tape, const struct graph *graph,
                                               const struct graph_op *op)
{
    struct chunks c = {.op = op, .outs = outs_of(op), .logits.place = PLACE_NONE};
    c.x = tape_tensor(tape, op->in[0]);
    c.weight = tape_tensor(tape, op->in[1]);
    c.targets = tape_tensor(tape, op->in[2]);
    c.shape = *shape_of(graph, c.outs.logits);
    c.product = dtype_of(graph, c.outs.logits);
    c.flops_row = 2.0 * (double)shape_elements(&c.weight.shape);
    c.input_needs = needs(graph, op->in[0]);
    c.weight_needs = has_dweight(graph, op);
    const uint32_t tokens = c.x.shape.dim[0], most = c.shape.dim[0];

    c.dx = filled(tape, op, op->outs - HIDDEN, ATEN_ZEROS_LIKE);
    if (c.weight_needs)
        c.dweight = filled(tape, op, op->outs - HIDDEN + 1U, ATEN_ZEROS_LIKE);
    c.losses = tape_call(tape, WORK_FILL, ATEN_ZEROS, DTYPE_FP32, SHAPE(tokens), -1.0, 0, NULL);
    const struct operand mask = count_targets(tape, c.targets);
    if (c.x.dtype == c.weight.dtype && (enum dtype)c.x.dtype == c.product)
        c.logits = tape_birth(tape, ATEN_EMPTY, c.product, c.shape);
    for (uint32_t first = 0; first < tokens; first += most)
        run_chunk(tape, &c, first, tokens - first < most ? tokens - first : most);
    if (c.logits.place != PLACE_NONE)
        tape_death(tape, c.logits);
    const struct operand loss = tape_birth_output(tape, op, 0);
    tape_kernel(tape, WORK_SUM, ATEN_SUM, -1.0, 1, &c.losses, 1, &loss);
    tape_death(tape, mask);
    tape_death(tape, c.losses);
}

/* ---- backward ---- */

OP_BACKWARD(liger_linear_cross_entropy)
{
    const struct outs outs = outs_of(op);
    ask_for_one(tape, graph, op);
    if (tape_needs(tape, op, 0))
        tape_give_saved(tape, op, 0, outs.dx);
    if (has_dweight(graph, op))
        tape_give_saved(tape, op, 1, outs.dweight);
}

OP_CLASS(liger_linear_cross_entropy) = {
    .label = ATEN_MM,
    .saved = liger_linear_cross_entropy_saved,
    .backward = liger_linear_cross_entropy_backward,
    .forward = liger_linear_cross_entropy_forward,
    .in_python = true,
};
