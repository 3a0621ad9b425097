/* ops_linear_attention.c - the gated delta rule: what flash-linear-attention 0.6 computes in the
 * place of attention.
 *
 *     S_t = exp(g_t) S_{t-1} (1 - beta_t k_t k_tT) + beta_t v_t k_tT        o_t = S_t q_t
 *
 * It is a function of torch.autograd whose kernels write what Python has allocated, so what it
 * allocates, and when, is in its source (fla/ops/gated_delta_rule/chunk.py and the files that it
 * calls). The rule goes by chunks of CHUNK tokens: within one by products of matrices, and from one
 * to the next by the state S, of which each chunk's is kept until the output is there. Backward
 * makes them again.
 *
 * Letters: i heads of q and k, a of v, g and beta; d numbers of a head of q and k, e of v. */
#include "graph/op_class.h"

enum { CHUNK = 64 };

enum { IN_Q, IN_K, IN_V, IN_G, IN_BETA, INS };
/* The last is the first to be let go of. */
enum { OUT_O, OUT_A, OUT_G, OUT_V, OUT_K_RSTD, OUT_K, OUT_Q_RSTD, OUT_Q, OUTS };

struct rule { /* its sizes */
    enum dtype dtype;
    struct shape keys, values; /* (b, s, a, d), (b, s, a, e) */
    struct shape heads;        /* (b, s, a) */
    struct shape few;          /* (b, s, i, d) */
    struct shape rows;         /* (b s i, d): as the norm of heads sees them */
    struct shape inner;        /* (b, s, a, CHUNK) */
    struct shape states;       /* (b, chunks, a, d, e) */
    double tokens;             /* b s a */
    double d, e;
};

static struct rule rule_of(const struct graph *graph, const struct graph_op *op)
{
    const struct shape q = *shape_of(graph, op->in[IN_Q]), v = *shape_of(graph, op->in[IN_V]);
    const uint32_t b = v.dim[0], s = v.dim[1], a = v.dim[2], d = q.dim[3], e = v.dim[3];
    return (struct rule){
        .dtype = dtype_of(graph, op->in[IN_V]),
        .keys = SHAPE(b, s, a, d),
        .values = v,
        .heads = SHAPE(b, s, a),
        .few = q,
        .rows = SHAPE(b * s * q.dim[2], d),
        .inner = SHAPE(b, s, a, CHUNK),
        .states = SHAPE(b, (s + CHUNK - 1) / CHUNK, a, d, e),
        .tokens = (double)b * s * a,
        .d = d,
        .e = e,
    };
}

/* Operations of products of a chunk's tokens with each other, of heads so wide; and with a state.
 */
static double within(const struct rule *r, double width)
{
    return 2 * r->tokens * CHUNK * width;
}

static double with_state(const struct rule *r)
{
    return 2 * r->tokens * r->d * r->e;
}

uint32_t op_gated_delta_rule(struct graph *graph, const struct delta_rule *called)
{
    const uint32_t in[INS] = {called->q, called->k, called->v, called->g, called->beta};
    const uint32_t op = begin(graph, OP_GATED_DELTA_RULE, INS, in);
    const struct rule r = rule_of(graph, &graph->ops[op]);
    const struct shape each = SHAPE(r.rows.dim[0]);
    const uint32_t o = graph_op_birth(graph, op, ATEN_EMPTY_LIKE, r.dtype, r.values);
    graph_op_birth(graph, op, ATEN_ZEROS, r.dtype, r.inner);
    graph_op_birth(graph, op, ATEN_EMPTY_LIKE, DTYPE_FP32, r.heads);
    graph_op_birth(graph, op, ATEN_CLONE, r.dtype, r.values);
    for (int i = 0; i < 2; i++) {
        graph_op_birth(graph, op, ATEN_EMPTY, DTYPE_FP32, each);
        graph_op_birth(graph, op, ATEN_EMPTY_LIKE, r.dtype, r.rows);
    }
    graph->ops[op].hidden = OUTS - 1;
    graph_op_done(graph, op);
    return o;
}

OP_SAVED(gated_delta_rule)
{
    (void)graph;
    const uint32_t order[] = {op->out[OUT_Q],      op->out[OUT_Q_RSTD], op->out[OUT_K],
                              op->out[OUT_K_RSTD], op->out[OUT_V],      op->out[OUT_G],
                              op->in[IN_BETA],     op->out[OUT_A]};
    for (uint32_t i = 0; i < sizeof order / sizeof *order; i++)
        saved[i] = order[i];
    return sizeof order / sizeof *order;
}

/* A head's rows, each divided by its length. */
static struct operand normed(struct tape *tape, const struct graph_op *op, const struct rule *r,
                             struct operand x, uint32_t output)
{
    struct operand out[2] = {tape_birth_output(tape, op, output),
                             tape_birth_output(tape, op, output - 1)};
    tape_view(tape, &x, r->rows);
    tape_kernel(tape, WORK_L2_NORM, ATEN_L2_NORM, 3.0 * (double)shape_elements(&r->rows), 1, &x, 2,
                out);
    out[0].shape = r->few;
    return out[0];
}

/* What the rule computes from k, v, g, beta and A: w, u and, from one chunk to the next, each
 * chunk's state h and what it adds to it, v_new. Forward and backward make them alike. */
struct parts {
    struct operand w, u, h, v_new;
};
static struct parts make_parts(struct tape *tape, const struct rule *r, struct operand k,
                               struct operand v, struct operand beta, struct operand a,
                               struct operand g)
{
    struct parts p;
    p.w = tape_birth(tape, ATEN_NEW_EMPTY, r->dtype, r->keys);
    p.u = tape_birth(tape, ATEN_EMPTY_LIKE, r->dtype, r->values);
    tape_kernel(tape, WORK_DELTA_FACTORS, ATEN_DELTA_FACTORS, within(r, r->d + r->e), 5,
                (struct operand[]){k, v, beta, a, g}, 2, (struct operand[]){p.w, p.u});
    p.h = tape_birth(tape, ATEN_NEW_EMPTY, r->dtype, r->states);
    p.v_new = tape_birth(tape, ATEN_EMPTY_LIKE, r->dtype, r->values);
    tape_kernel(tape, WORK_DELTA_STATES, ATEN_DELTA_STATES, 2 * with_state(r), 4,
                (struct operand[]){k, p.u, p.w, g}, 2, (struct operand[]){p.h, p.v_new});
    return p;
}

static void drop_parts(struct tape *tape, const struct parts *p)
{
    tape_death(tape, p->w);
    tape_death(tape, p->u);
    tape_death(tape, p->h);
    tape_death(tape, p->v_new);
}

static struct operand contiguous(struct tape *tape, const struct graph_op *op, uint32_t input)
{
    const struct operand x = tape_tensor(tape, op->in[input]);
    return tape_call(tape, WORK_REORDER, ATEN_CLONE, (enum dtype)x.dtype, x.shape, -1.0, 1, &x);
}

static void gated_delta_rule_forward(struct tape *tape, const struct graph *graph,
                                     const struct graph_op *op)
{
    const struct rule r = rule_of(graph, op);
    const struct operand views[2] = {contiguous(tape, op, IN_Q), contiguous(tape, op, IN_K)};
    const struct operand v = tape_tensor(tape, op->in[IN_V]), g = tape_tensor(tape, op->in[IN_G]),
                         beta = tape_tensor(tape, op->in[IN_BETA]);
    const struct operand own = tape_birth_output(tape, op, OUT_V);
    tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &v, 1, &own);
    const struct operand q = normed(tape, op, &r, views[0], OUT_Q);
    const struct operand k = normed(tape, op, &r, views[1], OUT_K);
    const struct operand sums = tape_birth_output(tape, op, OUT_G);
    tape_kernel(tape, WORK_CHUNK_SUM, ATEN_CHUNK_SUM, -1.0, 1, &g, 1, &sums);
    const struct operand a = tape_birth_output(tape, op, OUT_A);
    tape_kernel(tape, WORK_FILL, ATEN_ZEROS, -1.0, 0, NULL, 1, &a);
    tape_kernel(tape, WORK_DELTA_SOLVE, ATEN_DELTA_SOLVE, within(&r, r.d), 3,
                (struct operand[]){k, sums, beta}, 1, &a);
    const struct parts p = make_parts(tape, &r, k, own, beta, a, sums);
    const struct operand o = tape_birth_output(tape, op, OUT_O);
    tape_kernel(tape, WORK_DELTA_OUTPUT, ATEN_DELTA_OUTPUT, with_state(&r) + within(&r, r.d + r.e),
                5, (struct operand[]){q, k, p.v_new, p.h, sums}, 1, &o);
    drop_parts(tape, &p);
    tape_death(tape, views[0]);
    tape_death(tape, views[1]);
}

/* What has a head of q's or k's of its own for each of v's, summed to theirs, takes its place. */
static struct operand of_few(struct tape *tape, const struct rule *r, struct operand x)
{
    if (r->few.dim[2] == r->keys.dim[2])
        return x;
    struct operand grouped = x;
    tape_view(tape, &grouped,
              SHAPE(r->few.dim[0], r->few.dim[1], r->few.dim[2], r->keys.dim[2] / r->few.dim[2],
                    r->few.dim[3]));
    const struct operand sum = tape_call(tape, WORK_SUM_DIM, ATEN_SUM_DIM, r->dtype, r->few,
                                         (double)shape_elements(&x.shape), 1, &grouped);
    tape_dim(tape, 3);
    tape_death(tape, x);
    return sum;
}

/* Through the norm of heads y, which takes its place. */
static struct operand norm_backward(struct tape *tape, const struct rule *r, struct operand y,
                                    struct operand rstd, struct operand dy)
{
    struct operand in[3] = {y, rstd, dy};
    tape_view(tape, &in[0], r->rows);
    tape_view(tape, &in[2], r->rows);
    const struct operand dx = tape_birth(tape, ATEN_EMPTY_LIKE, r->dtype, r->rows);
    tape_kernel(tape, WORK_L2_NORM_BACKWARD, ATEN_L2_NORM_BACKWARD, -1.0, 3, in, 1, &dx);
    tape_death(tape, dy);
    return dx;
}

struct saved { /* and the output's gradient */
    struct operand q, k, v, g, beta, a, d_o;
};

/* dv of the output, and from one chunk to the next dh, which adds to it: it takes its place. */
static struct operand states_backward(struct tape *tape, const struct rule *r,
                                      const struct saved *s, const struct parts *p,
                                      struct operand *dh)
{
    const struct operand local = tape_birth(tape, ATEN_EMPTY_LIKE, r->dtype, r->values);
    tape_kernel(tape, WORK_DELTA_VALUES_BACKWARD, ATEN_DELTA_VALUES_BACKWARD,
                within(r, r->d + r->e), 4, (struct operand[]){s->q, s->k, s->g, s->d_o}, 1, &local);
    *dh = tape_birth(tape, ATEN_NEW_EMPTY, r->dtype, r->states);
    const struct operand dv = tape_birth(tape, ATEN_EMPTY_LIKE, r->dtype, r->values);
    tape_kernel(tape, WORK_DELTA_STATES_BACKWARD, ATEN_DELTA_STATES_BACKWARD, 3 * with_state(r), 6,
                (struct operand[]){s->q, s->k, p->w, s->g, s->d_o, local}, 2,
                (struct operand[]){*dh, dv});
    tape_death(tape, local);
    return dv;
}

/* How wide a piece of a head is, each of which sums its own gradient of g (chunk_o.py,
 * _bwd_block_sizes): on Hopper and datacentre Blackwell, and on an A100 where all is of 16 bits.
 * With less shared memory it is 64 or 32, which the planner does not ask: each more piece takes
 * 4 b s a bytes until the next kernel. */
enum { PIECE = 128 };

static void gated_delta_rule_gradients(struct tape *tape, const struct rule *r,
                                       const struct saved *s, struct operand gradient[INS])
{
    const struct parts p = make_parts(tape, r, s->k, s->v, s->beta, s->a, s->g);
    struct operand dh;
    const struct operand du = states_backward(tape, r, s, &p, &dh);
    const uint32_t pieces = ((uint32_t)r->d + PIECE - 1) / PIECE;
    struct operand dq = tape_birth(tape, ATEN_NEW_EMPTY, r->dtype, r->keys);
    struct operand dk = tape_birth(tape, ATEN_NEW_EMPTY, r->dtype, r->keys);
    const struct operand of_pieces =
        tape_birth(tape, ATEN_EMPTY, DTYPE_FP32,
                   SHAPE(pieces, r->heads.dim[0], r->heads.dim[1], r->heads.dim[2]));
    const struct operand dw = tape_birth(tape, ATEN_EMPTY_LIKE, r->dtype, r->keys);
    tape_kernel(tape, WORK_DELTA_OUTPUT_BACKWARD, ATEN_DELTA_OUTPUT_BACKWARD,
                4 * with_state(r) + within(r, 2 * r->d + r->e), 8,
                (struct operand[]){s->q, s->k, p.v_new, s->g, p.h, s->d_o, dh, du}, 4,
                (struct operand[]){dq, dk, dw, of_pieces});
    dq = of_few(tape, r, dq);
    dk = of_few(tape, r, dk);
    struct operand dg =
        tape_call(tape, WORK_SUM_DIM, ATEN_SUM_DIM, DTYPE_FP32, r->heads, -1.0, 1, &of_pieces);
    tape_dim(tape, 0);
    tape_death(tape, of_pieces);
    struct operand more = tape_birth(tape, ATEN_NEW_EMPTY, r->dtype, r->keys);
    const struct operand dv = tape_birth(tape, ATEN_EMPTY_LIKE, r->dtype, r->values),
                         dg_more = tape_birth(tape, ATEN_EMPTY_LIKE, DTYPE_FP32, r->heads),
                         dbeta =
                             tape_birth(tape, ATEN_EMPTY_LIKE, (enum dtype)s->beta.dtype, r->heads);
    tape_kernel(tape, WORK_DELTA_FACTORS_BACKWARD, ATEN_DELTA_FACTORS_BACKWARD,
                within(r, 3 * r->d + 2 * r->e + 2 * CHUNK), 7,
                (struct operand[]){s->k, s->v, s->beta, s->g, s->a, dw, du}, 4,
                (struct operand[]){more, dv, dg_more, dbeta});
    more = of_few(tape, r, more);
    tape_death(tape, du);
    add_to(tape, more, dk);
    add_to(tape, dg_more, dg);
    const struct operand backwards = tape_birth(tape, ATEN_EMPTY_LIKE, DTYPE_FP32, r->heads);
    tape_kernel(tape, WORK_CHUNK_SUM, ATEN_CHUNK_SUM, -1.0, 1, &dg, 1, &backwards);
    tape_death(tape, dg);
    drop_parts(tape, &p);
    tape_death(tape, dh);
    tape_death(tape, dw);
    tape_death(tape, more);
    tape_death(tape, dg_more);
    gradient[IN_Q] = dq;
    gradient[IN_K] = dk;
    gradient[IN_V] = dv;
    gradient[IN_G] = backwards;
    gradient[IN_BETA] = dbeta;
}

OP_BACKWARD(gated_delta_rule)
{
    const struct rule r = rule_of(graph, op);
    struct operand gradient[INS];
    struct saved s = {
        .q = tape_tensor(tape, op->out[OUT_Q]),
        .k = tape_tensor(tape, op->out[OUT_K]),
        .v = tape_tensor(tape, op->out[OUT_V]),
        .g = tape_tensor(tape, op->out[OUT_G]),
        .beta = tape_tensor(tape, op->in[IN_BETA]),
        .a = tape_tensor(tape, op->out[OUT_A]),
        .d_o = tape_grad(tape, op, OUT_O),
    };
    const struct operand q = s.q, k = s.k;
    s.q.shape = s.k.shape = r.few;
    gated_delta_rule_gradients(tape, &r, &s, gradient);
    gradient[IN_Q] =
        norm_backward(tape, &r, q, tape_tensor(tape, op->out[OUT_Q_RSTD]), gradient[IN_Q]);
    gradient[IN_K] =
        norm_backward(tape, &r, k, tape_tensor(tape, op->out[OUT_K_RSTD]), gradient[IN_K]);
    for (uint32_t i = 0; i < INS; i++)
        if (tape_needs(tape, op, i))
            tape_give(tape, op, i, gradient[i]);
        else
            tape_give_unasked(tape, gradient[i]);
    tape_end_frame(tape, op);
}

OP_CLASS(gated_delta_rule) = {
    .label = ATEN_DELTA_OUTPUT,
    .saved = gated_delta_rule_saved,
    .backward = gated_delta_rule_backward,
    .forward = gated_delta_rule_forward,
    .in_python = true,
};
