/* ops_lora_kernels.c - axolotl's kernels of adapters (src/axolotl/kernels/lora.py, July 2026), each
 * a torch.autograd.Function of a group of linear layers and their adapters:
 *
 *     mlp   down(act(gate x) up x), its gated unit a Triton kernel (swiglu.py, geglu.py)
 *     qkv   three products of one input
 *     o     one
 *
 * A product is x wᵀ, to which the adapter's is added where it is. Saved are the input, what an
 * adapter was given where that is not it, gate's and up's products, and adapters in the input's
 * dtype: casts, or the parameters themselves. Backward puts the gated unit's gradients where its
 * factors were, and what it had made once more where its own gradient was; sums of products are
 * made in the first one's place. A weight in 4 bits is made whole for each product that it is a
 * factor of and goes with that (quantize.py). */
#include "graph/op_class.h"

#include <assert.h>
#include <string.h>

enum { X, X_DROPPED, PROJECTIONS }; /* operands; of each projection from there on: */
enum { WEIGHT, BIAS, SCALES, SCALES_OF_SCALES, A, B, EACH };
enum { GATE, UP, DOWN, MOST };

/* ---- operands and outputs ---- */

static uint32_t operand_of(const struct graph_op *op, uint32_t projection, uint32_t what)
{
    return op->in[PROJECTIONS + projection * EACH + what];
}

static uint32_t index_of(uint32_t projection, uint32_t what)
{
    return PROJECTIONS + projection * EACH + what;
}

static uint32_t projections_of(const struct graph_op *op)
{
    return (uint32_t)(op->ins - PROJECTIONS) / EACH;
}

static bool is_mlp(const struct graph_op *op)
{
    return op->kind == OP_LORA_MLP || op->kind == OP_LORA_MLP_GEGLU;
}

/* The dtype of all that it computes. */
static enum dtype dtype_within(const struct graph *graph, const struct graph_op *op)
{
    return dtype_of(graph, op->in[X]);
}

static bool casts(const struct graph *graph, const struct graph_op *op)
{
    return dtype_of(graph, operand_of(op, 0, A)) != dtype_within(graph, op);
}

/* Outputs that nobody else has, the last that is saved first: casts of adapters, then factors. */
static uint32_t hidden_at(const struct graph_op *op, uint32_t from_end)
{
    return op->out[op->outs - 1U - from_end];
}

static uint32_t factor_of(const struct graph_op *op, uint32_t projection)
{
    return hidden_at(op, projection);
}

/* Where among the outputs the cast of an adapter's matrix is. */
static uint32_t cast_at(const struct graph_op *op, uint32_t projection, uint32_t what)
{
    const uint32_t factors = is_mlp(op) ? 2 : 0;
    return op->outs - 1U - factors - 2 * projection - (what - A);
}

static uint32_t saved_adapter(const struct graph *graph, const struct graph_op *op,
                              uint32_t projection, uint32_t what)
{
    return casts(graph, op) ? op->out[cast_at(op, projection, what)]
                            : operand_of(op, projection, what);
}

static struct shape whole_of(const struct graph *graph, uint32_t weight)
{
    const struct graph_param *param = graph_param_of(graph, weight);
    return param && param->whole.rank ? param->whole : *shape_of(graph, weight);
}

static bool is_packed(const struct graph *graph, uint32_t weight)
{
    const struct graph_param *param = graph_param_of(graph, weight);
    return param && param->whole.rank > 0;
}

/* ---- constructors ---- */

static uint32_t begin_kernel(struct graph *graph, enum op_kind kind, const struct lora_input *x,
                             uint32_t count, const struct lora_projection *projections)
{
    uint32_t in[GRAPH_OPERANDS] = {x->x, x->dropped};
    for (uint32_t p = 0; p < count; p++) {
        const struct lora_projection *from = &projections[p];
        const struct graph_param *param = graph_param_of(graph, from->weight);
        uint32_t *at = &in[index_of(p, WEIGHT)];
        at[WEIGHT] = from->weight;
        at[BIAS] = from->bias;
        at[SCALES] = param->scales[0];
        at[SCALES_OF_SCALES] = param->scales[1];
        at[A] = from->a;
        at[B] = from->b;
    }
    const uint32_t op = begin(graph, kind, index_of(count, WEIGHT), in);
    graph->ops[op].attr.p = graph->lora.scale;
    return op;
}

/* Of the rows of x: (t, o). */
static uint32_t birth_product(struct graph *graph, uint32_t op, uint32_t projection)
{
    const struct graph_op *o = &graph->ops[op];
    const struct shape w = whole_of(graph, operand_of(o, projection, WEIGHT));
    return graph_op_birth(graph, op, ATEN_MM, dtype_within(graph, o),
                          SHAPE(rows_of(shape_of(graph, o->in[X])), w.dim[0]));
}

/* A and B in the dtype of x, the last that is saved first. */
static void birth_casts(struct graph *graph, uint32_t op)
{
    const struct graph_op o = graph->ops[op];
    for (uint32_t p = projections_of(&o); p-- > 0 && casts(graph, &o);)
        for (uint32_t what = B; what >= A; what--)
            graph_op_birth(graph, op, ATEN_TO_COPY, dtype_within(graph, &o),
                           *shape_of(graph, operand_of(&o, p, what)));
}

static uint32_t finish(struct graph *graph, uint32_t op, uint32_t given)
{
    struct graph_op *o = &graph->ops[op];
    o->hidden = (uint8_t)(o->outs - given);
    graph_op_done(graph, op);
    return op;
}

static uint32_t as_given(struct graph *graph, uint32_t op, uint32_t projection, uint32_t out)
{
    const struct graph_op *o = &graph->ops[op];
    const struct shape w = whole_of(graph, operand_of(o, projection, WEIGHT));
    return graph_view(graph, out, with_last(*shape_of(graph, o->in[X]), w.dim[0]));
}

uint32_t op_lora_mlp(struct graph *graph, const struct lora_input *x, bool gelu,
                     const struct lora_projection projections[3])
{
    const uint32_t op =
        begin_kernel(graph, gelu ? OP_LORA_MLP_GEGLU : OP_LORA_MLP, x, MOST, projections);
    const uint32_t out = birth_product(graph, op, DOWN);
    birth_casts(graph, op);
    birth_product(graph, op, UP);
    birth_product(graph, op, GATE);
    return as_given(graph, finish(graph, op, 1), DOWN, out);
}

void op_lora_qkv(struct graph *graph, const struct lora_input *x,
                 const struct lora_projection projections[3], uint32_t out[3])
{
    const uint32_t op = begin_kernel(graph, OP_LORA_QKV, x, MOST, projections);
    for (uint32_t p = 0; p < MOST; p++)
        out[p] = birth_product(graph, op, p);
    birth_casts(graph, op);
    finish(graph, op, MOST);
    for (uint32_t p = 0; p < MOST; p++)
        out[p] = as_given(graph, op, p, out[p]);
}

uint32_t op_lora_o(struct graph *graph, const struct lora_input *x,
                   const struct lora_projection *projection)
{
    const uint32_t op = begin_kernel(graph, OP_LORA_O, x, 1, projection);
    const uint32_t out = birth_product(graph, op, 0);
    birth_casts(graph, op);
    return as_given(graph, finish(graph, op, 1), 0, out);
}

/* ---- what is saved ---- */

OP_SAVED(lora)
{
    uint32_t count = 0;
    saved[count++] = op->in[X];
    saved[count++] = op->in[op->in[X_DROPPED] == GRAPH_NONE ? X : X_DROPPED];
    for (uint32_t p = GATE; p <= UP && is_mlp(op); p++)
        saved[count++] = factor_of(op, p);
    for (uint32_t p = 0; p < projections_of(op); p++)
        for (uint32_t what = A; what <= B; what++)
            saved[count++] = saved_adapter(graph, op, p, what);
    return count;
}

/* Its own input last. */
OP_SAVED(lora_o)
{
    saved[0] = saved_adapter(graph, op, 0, A);
    saved[1] = saved_adapter(graph, op, 0, B);
    saved[2] = op->in[X];
    saved[3] = op->in[op->in[X_DROPPED] == GRAPH_NONE ? X : X_DROPPED];
    return 4;
}

/* ---- products ---- */

/* The function that runs. */
struct call {
    struct tape *tape;
    const struct graph *graph;
    const struct graph_op *op;
    enum dtype dtype;
};

static struct call call_of(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    return (struct call){tape, graph, op, dtype_within(graph, op)};
}

static struct operand in_rows(struct operand x)
{
    if (x.shape.rank > 2)
        x.shape = SHAPE(rows_of(&x.shape), last_dim(&x.shape));
    return x;
}

static struct operand rows(const struct call *c, uint32_t tensor)
{
    return in_rows(tape_tensor(c->tape, tensor));
}

static double flops_of(const struct operand *x, const struct operand *y)
{
    return 2.0 * (double)shape_elements(&x->shape) * last_dim(&y->shape);
}

/* x wᵀ (NT), x w (NN), or xᵀ w (TN), into y. */
static void multiply(const struct call *c, enum work_kind work, struct operand x, struct operand w,
                     struct operand y)
{
    const struct operand in[2] = {x, w};
    tape_kernel(c->tape, work, ATEN_MM, flops_of(&x, &y), 2, in, 1, &y);
}

static struct operand product(const struct call *c, enum work_kind work, struct operand x,
                              struct operand w, struct shape shape)
{
    const struct operand y = tape_birth(c->tape, ATEN_MM, c->dtype, shape);
    multiply(c, work, x, w, y);
    return y;
}

/* addmm_: alpha is the adapters' scale where `scaled`. */
static void add_product(const struct call *c, enum work_kind work, struct operand x,
                        struct operand w, bool scaled, struct operand y)
{
    const struct operand in[2] = {x, w};
    tape_kernel(c->tape, work, ATEN_ADDMM_, flops_of(&x, &y), 2, in, 1, &y);
    tape_number(c->tape, scaled ? c->graph->lora.scale : 1);
}

/* dequantize(): the weight is born before its scales are. Those of one level are functional's. */
static struct operand made_whole(const struct call *c, uint32_t projection)
{
    const uint32_t weight = operand_of(c->op, projection, WEIGHT),
                   nested = operand_of(c->op, projection, SCALES_OF_SCALES);
    const struct shape whole = whole_of(c->graph, weight);
    struct operand scales = tape_tensor(c->tape, operand_of(c->op, projection, SCALES));
    const bool twice = nested != GRAPH_NONE;
    const struct operand out =
        tape_birth(c->tape, twice ? ATEN_EMPTY : ATEN_DEQUANTIZE_4BIT, c->graph->bits4.made, whole);
    if (twice) {
        const struct operand in[2] = {scales, tape_tensor(c->tape, nested)};
        scales = tape_birth(c->tape, ATEN_EMPTY, DTYPE_FP32, scales.shape);
        tape_kernel(c->tape, WORK_DEQUANTIZE_BLOCKS, ATEN_DEQUANTIZE_BLOCKWISE, -1.0, 2, in, 1,
                    &scales);
        tape_kernel(c->tape, WORK_ADD_NUMBER, ATEN_ADD_, -1.0, 1, &scales, 1, &scales);
        tape_number(c->tape, 0); /* the mean */
    }
    const struct operand in[2] = {tape_tensor(c->tape, weight), scales};
    tape_kernel(c->tape, WORK_DEQUANTIZE_BLOCKS, ATEN_DEQUANTIZE_4BIT, -1.0, 2, in, 1, &out);
    if (twice)
        tape_death(c->tape, scales);
    return out;
}

static struct operand weight_of(const struct call *c, uint32_t projection)
{
    const uint32_t weight = operand_of(c->op, projection, WEIGHT);
    return is_packed(c->graph, weight) ? made_whole(c, projection) : tape_tensor(c->tape, weight);
}

static void let_go(const struct call *c, uint32_t projection, struct operand weight)
{
    if (is_packed(c->graph, operand_of(c->op, projection, WEIGHT)))
        tape_death(c->tape, weight);
}

/* ---- forward ---- */

/* A cast of A.t() or B.t(), which is in memory as that is. */
static struct operand turned_cast(const struct call *c, struct operand x)
{
    const struct shape shape = x.shape;
    struct operand cast =
        tape_birth(c->tape, ATEN_TO_COPY, c->dtype, SHAPE(shape.dim[1], shape.dim[0]));
    cast.shape = shape;
    tape_kernel(c->tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &x, 1, &cast);
    return cast;
}

/* matmul_lora(): x through a projection, and what the adapter was given through that, into y. */
static void project(const struct call *c, uint32_t projection, struct operand x,
                    struct operand given, struct operand (*born)(const struct call *, uint32_t),
                    struct operand *y)
{
    const struct operand weight = weight_of(c, projection);
    *y = in_rows(born(c, projection));
    multiply(c, WORK_MATMUL_NT, x, weight, *y);
    let_go(c, projection, weight);
    struct operand a = tape_tensor(c->tape, operand_of(c->op, projection, A)),
                   b = tape_tensor(c->tape, operand_of(c->op, projection, B));
    const bool cast = casts(c->graph, c->op);
    if (cast) {
        a = turned_cast(c, a);
        b = turned_cast(c, b);
    }
    const struct operand low =
        product(c, WORK_MATMUL_NT, given, a, SHAPE(x.shape.dim[0], a.shape.dim[0]));
    add_product(c, WORK_MATMUL_NT_ADD, low, b, true, *y);
    tape_death(c->tape, low);
    const uint32_t bias = operand_of(c->op, projection, BIAS);
    if (bias != GRAPH_NONE)
        add_to(c->tape, tape_tensor(c->tape, bias), *y);
    if (cast) {
        tape_death(c->tape, a);
        tape_death(c->tape, b);
    }
}

static struct operand born_factor(const struct call *c, uint32_t projection)
{
    return tape_birth_output(c->tape, c->op, c->op->outs - 1U - projection);
}

static struct operand born_result(const struct call *c, uint32_t projection)
{
    return tape_birth_output(c->tape, c->op, is_mlp(c->op) ? 0 : projection);
}

/* A.to(dtype) and B.to(dtype), of each projection. */
static void save_casts(const struct call *c)
{
    for (uint32_t p = 0; p < projections_of(c->op) && casts(c->graph, c->op); p++)
        for (uint32_t what = A; what <= B; what++) {
            const struct operand from = tape_tensor(c->tape, operand_of(c->op, p, what));
            const struct operand cast = tape_birth_output(c->tape, c->op, cast_at(c->op, p, what));
            tape_kernel(c->tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &from, 1, &cast);
        }
}

/* What adapters were given. */
static struct operand given_of(const struct call *c)
{
    return rows(c, c->op->in[c->op->in[X_DROPPED] == GRAPH_NONE ? X : X_DROPPED]);
}

static void lora_mlp_forward(struct tape *tape, const struct graph *graph,
                             const struct graph_op *op)
{
    const struct call c = call_of(tape, graph, op);
    const bool gelu = op->kind == OP_LORA_MLP_GEGLU;
    const struct shape *x = shape_of(graph, op->in[X]);
    struct operand factors[2], out;
    for (uint32_t p = GATE; p <= UP; p++)
        project(&c, p, rows(&c, op->in[X]), given_of(&c), born_factor, &factors[p]);
    const struct operand hidden =
        tape_birth(tape, gelu ? ATEN_AXOLOTL_GEGLU : ATEN_AXOLOTL_SWIGLU, c.dtype,
                   with_last(*x, last_dim(&factors[GATE].shape)));
    tape_kernel(tape, gelu ? WORK_GEGLU_ERF : WORK_SWIGLU,
                gelu ? ATEN_AXOLOTL_GEGLU : ATEN_AXOLOTL_SWIGLU, -1.0, 2, factors, 1, &hidden);
    project(&c, DOWN, in_rows(hidden), in_rows(hidden), born_result, &out);
    save_casts(&c);
    tape_death(tape, hidden);
}

/* Of LoRA_QKV and LoRA_O. */
static void lora_forward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    const struct call c = call_of(tape, graph, op);
    struct operand out;
    for (uint32_t p = 0; p < projections_of(op); p++)
        project(&c, p, rows(&c, op->in[X]), given_of(&c), born_result, &out);
    save_casts(&c);
}

/* ---- backward ---- */

struct gradients { /* of a projection's adapter, and dy B, which those of x are made of */
    struct operand a, b, low;
};

static struct operand adapter(const struct call *c, uint32_t projection, uint32_t what)
{
    return tape_tensor(c->tape, saved_adapter(c->graph, c->op, projection, what));
}

/* torch.empty_like(A.t()), in memory as A is. */
static struct operand like_turned(const struct call *c, const struct operand *x)
{
    struct operand out =
        tape_birth(c->tape, ATEN_EMPTY_LIKE, c->dtype, SHAPE(x->shape.dim[1], x->shape.dim[0]));
    out.shape = x->shape;
    return out;
}

/* dA = s (dy B)ᵀ x and dB = s dyᵀ (x Aᵀ). */
static struct gradients adapter_gradients(const struct call *c, uint32_t projection,
                                          struct operand x, struct operand dy)
{
    const struct operand a = adapter(c, projection, A), b = adapter(c, projection, B);
    const uint32_t t = dy.shape.dim[0], r = a.shape.dim[0];
    struct gradients g;
    g.low = product(c, WORK_MATMUL_NN, dy, b, SHAPE(t, r));
    g.a = like_turned(c, &a);
    g.b = like_turned(c, &b);
    const struct operand to_a[2] = {g.low, x};
    tape_kernel(c->tape, WORK_MATMUL_TN_SCALED, ATEN_ADDMM_, flops_of(&x, &g.low), 2, to_a, 1,
                &g.a);
    struct operand low = tape_birth(c->tape, ATEN_MM, c->dtype, SHAPE(r, t)); /* A xᵀ */
    multiply(c, WORK_MATMUL_NT, a, x, low);
    const struct operand to_b[2] = {dy, low};
    tape_kernel(c->tape, WORK_MATMUL_TT_SCALED, ATEN_ADDMM_, flops_of(&dy, &g.b), 2, to_b, 1, &g.b);
    tape_death(c->tape, low);
    return g;
}

static void give_adapter(const struct call *c, uint32_t projection, const struct gradients *g)
{
    const uint32_t a = index_of(projection, A), b = index_of(projection, B);
    if (tape_needs(c->tape, c->op, a))
        tape_give_view(c->tape, c->op, a, g->a);
    else
        tape_give_unasked(c->tape, g->a);
    if (tape_needs(c->tape, c->op, b))
        tape_give_view(c->tape, c->op, b, g->b);
    else
        tape_give_unasked(c->tape, g->b);
}

static void give_input(const struct call *c, uint32_t i, struct operand dx)
{
    if (tape_needs(c->tape, c->op, i))
        tape_give_view(c->tape, c->op, i, dx);
    else
        tape_give_unasked(c->tape, dx);
}

/* dy w of the first projection, or added to that of those before. */
static void through_weight(const struct call *c, uint32_t projection, struct operand dy,
                           struct operand *dx)
{
    const struct operand weight = weight_of(c, projection);
    if (dx->place == PLACE_NONE)
        *dx = product(c, WORK_MATMUL_NN, dy, weight, SHAPE(dy.shape.dim[0], weight.shape.dim[1]));
    else
        add_product(c, WORK_MATMUL_NN_ADD, dy, weight, false, *dx);
    let_go(c, projection, weight);
}

/* What adapters give of x: added to it, or, where they were given another, by itself. */
static struct operand place_of_dropped(const struct call *c, struct operand dx)
{
    if (c->op->in[X_DROPPED] == GRAPH_NONE)
        return dx;
    const struct operand zeros =
        tape_call(c->tape, WORK_FILL, ATEN_ZEROS_LIKE, c->dtype, dx.shape, -1.0, 0, NULL);
    tape_number(c->tape, 0);
    return zeros;
}

static void through_adapter(const struct call *c, uint32_t projection, struct operand low,
                            struct operand dx)
{
    add_product(c, WORK_MATMUL_NN_ADD, low, adapter(c, projection, A), true, dx);
}

/* Locals that a checkpoint's hooks made of what is saved. */
static void end_casts(const struct call *c)
{
    for (uint32_t p = 0; p < projections_of(c->op); p++) {
        const uint32_t both[2] = {saved_adapter(c->graph, c->op, p, A),
                                  saved_adapter(c->graph, c->op, p, B)};
        tape_end_locals(c->tape, c->op, 2, both, false);
    }
}

static void end_inputs(const struct call *c, bool last)
{
    const uint32_t both[2] = {c->op->in[X],
                              c->op->in[c->op->in[X_DROPPED] == GRAPH_NONE ? X : X_DROPPED]};
    tape_end_locals(c->tape, c->op, 2, both, last);
}

OP_BACKWARD(lora_mlp)
{
    const struct call c = call_of(tape, graph, op);
    const bool gelu = op->kind == OP_LORA_MLP_GEGLU, asked = tape_needs(tape, op, X);
    const struct operand dy = in_rows(tape_grad(tape, op, 0)), given = given_of(&c);
    struct operand weight = weight_of(&c, DOWN);
    const struct operand grad =
        product(&c, WORK_MATMUL_NN, dy, weight, SHAPE(dy.shape.dim[0], weight.shape.dim[1]));
    let_go(&c, DOWN, weight);
    const struct operand low = product(&c, WORK_MATMUL_NN, dy, adapter(&c, DOWN, B),
                                       SHAPE(dy.shape.dim[0], adapter(&c, DOWN, A).shape.dim[0]));
    through_adapter(&c, DOWN, low, grad);
    tape_death(tape, low);
    const struct operand unit[3] = {grad, rows(&c, factor_of(op, GATE)),
                                    rows(&c, factor_of(op, UP))};
    tape_kernel(tape, gelu ? WORK_GEGLU_ERF_AGAIN : WORK_SWIGLU_AGAIN,
                gelu ? ATEN_AXOLOTL_GEGLU_BACKWARD : ATEN_AXOLOTL_SWIGLU_BACKWARD, -1.0, 3, unit, 3,
                unit);
    struct gradients g[MOST];
    g[DOWN] = adapter_gradients(&c, DOWN, grad, dy);
    g[UP] = adapter_gradients(&c, UP, given, unit[2]);
    g[GATE] = adapter_gradients(&c, GATE, given, unit[1]);
    struct operand dx = {.place = PLACE_NONE}, dropped = dx;
    if (asked) {
        through_weight(&c, UP, unit[2], &dx);
        through_weight(&c, GATE, unit[1], &dx);
        dropped = place_of_dropped(&c, dx);
        through_adapter(&c, UP, g[UP].low, dropped);
        through_adapter(&c, GATE, g[GATE].low, dropped);
    }
    end_inputs(&c, false);
    end_casts(&c);
    tape_death(tape, grad);
    tape_end_locals(tape, op, 2, (uint32_t[]){factor_of(op, GATE), factor_of(op, UP)}, true);
    tape_death(tape, g[UP].low);
    tape_death(tape, g[GATE].low);
    tape_death(tape, g[DOWN].low);
    if (asked)
        give_input(&c, X, dx);
    if (asked && op->in[X_DROPPED] != GRAPH_NONE)
        give_input(&c, X_DROPPED, dropped);
    for (uint32_t p = GATE; p < MOST; p++)
        give_adapter(&c, p, &g[p]);
}

OP_CLASS(lora_mlp) = {
    .label = ATEN_MM,
    .saved = lora_saved,
    .forward = lora_mlp_forward,
    .backward = lora_mlp_backward,
    .saves_rows = true,
    .in_python = true,
    .many_params = true,
    .custom_bwd = true,
};

OP_CLASS(lora_mlp_geglu) = {
    .label = ATEN_MM,
    .saved = lora_saved,
    .forward = lora_mlp_forward,
    .backward = lora_mlp_backward,
    .saves_rows = true,
    .in_python = true,
    .many_params = true,
    .custom_bwd = true,
};

OP_BACKWARD(lora_qkv)
{
    const struct call c = call_of(tape, graph, op);
    struct operand dy[MOST], dx = {.place = PLACE_NONE};
    struct gradients g[MOST];
    for (uint32_t p = 0; p < MOST; p++)
        dy[p] = in_rows(tape_grad(tape, op, p));
    for (uint32_t p = 0; p < MOST; p++)
        g[p] = adapter_gradients(&c, p, given_of(&c), dy[p]);
    for (uint32_t p = 0; p < MOST; p++)
        through_weight(&c, p, dy[p], &dx);
    const struct operand dropped = place_of_dropped(&c, dx);
    for (uint32_t p = 0; p < MOST; p++)
        through_adapter(&c, p, g[p].low, dropped);
    if (op->in[X_DROPPED] != GRAPH_NONE)
        tape_end_locals(tape, op, 1, &op->in[X], false);
    end_casts(&c);
    if (op->in[X_DROPPED] != GRAPH_NONE)
        tape_end_locals(tape, op, 1, &op->in[X_DROPPED], true);
    else
        end_inputs(&c, true);
    for (uint32_t p = 0; p < MOST; p++)
        tape_death(tape, g[p].low);
    give_input(&c, X, dx);
    if (op->in[X_DROPPED] != GRAPH_NONE)
        give_input(&c, X_DROPPED, dropped);
    for (uint32_t p = 0; p < MOST; p++)
        give_adapter(&c, p, &g[p]);
}

OP_CLASS(lora_qkv) = {
    .label = ATEN_MM,
    .saved = lora_saved,
    .forward = lora_forward,
    .backward = lora_qkv_backward,
    .saves_rows = true,
    .in_python = true,
    .many_params = true,
    .custom_bwd = true,
};

/* What an adapter gives of what it was given: (dy B A) s, a product of its own. */
static struct operand dropped_of_o(const struct call *c, struct operand low)
{
    const struct operand a = adapter(c, 0, A);
    const struct operand wide =
        product(c, WORK_MATMUL_NN, low, a, SHAPE(low.shape.dim[0], a.shape.dim[1]));
    const struct operand out =
        call_number(c->tape, WORK_MUL_NUMBER, ATEN_MUL, wide, c->graph->lora.scale);
    tape_death(c->tape, wide);
    return out;
}

OP_BACKWARD(lora_o)
{
    const struct call c = call_of(tape, graph, op);
    struct operand dy, dx = {.place = PLACE_NONE}, dropped = dx;
    const bool copied = tape_rows_of_grad(tape, op, &dy), drops = op->in[X_DROPPED] != GRAPH_NONE;
    dy = in_rows(dy);
    const struct gradients g = adapter_gradients(&c, 0, given_of(&c), dy);
    through_weight(&c, 0, dy, &dx);
    if (drops)
        dropped = dropped_of_o(&c, g.low);
    else
        through_adapter(&c, 0, g.low, dx);
    if (copied)
        tape_death(tape, dy);
    end_casts(&c);
    if (drops)
        tape_end_locals(tape, op, 1, &op->in[X], false);
    tape_death(tape, g.low);
    if (drops)
        tape_end_locals(tape, op, 1, &op->in[X_DROPPED], true);
    else
        end_inputs(&c, true);
    give_input(&c, X, dx);
    if (drops)
        give_input(&c, X_DROPPED, dropped);
    give_adapter(&c, 0, &g);
}

OP_CLASS(lora_o) = {
    .label = ATEN_MM,
    .saved = lora_o_saved,
    .forward = lora_forward,
    .backward = lora_o_backward,
    .saves_rows = true,
    .in_python = true,
    .many_params = true,
    .custom_bwd = true,
};
