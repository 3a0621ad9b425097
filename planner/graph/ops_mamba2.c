/* ops_mamba2.c - Mamba-2's mixer as mamba-ssm 2.3 computes it in training, all but its first
 * product in one function of torch.autograd (MambaSplitConv1dScanCombinedFn): a short causal
 * convolution, a scan of the state, a gated norm, and the product behind it. Without a norm the
 * scan's kernel gates, and writes what it scanned beside that.
 *
 *     S_t = exp(A dt_t) S_{t-1} + dt_t x_t B_tT        y_t = S_t C_t + D x_t
 *
 * Its kernels are Triton's, which write what Python has allocated, so what is allocated, and when,
 * is in ops/triton/ssd_combined.py and the files that it calls. The scan goes by chunks: within one
 * by products of matrices, and from one to the next by the state. Little is saved: backward makes
 * convolution, states and scores again.
 *
 * Letters: b sequences of s tokens in k chunks of l; a heads of e numbers, i = a e; n numbers of
 * state for each of them, B and C one for each of g groups of heads; c = i + 2 g n channels. */
#include "graph/causal_conv.h"
#include "graph/op_class.h"
#include "graph/ready_queue.h"

enum { IN_ALL, IN_CONV, IN_CONV_BIAS, IN_DT_BIAS, IN_A, IN_D, IN_NORM, IN_OUT, IN_OUT_BIAS, INS };
/* The product; casts of the bias and of the weight, where there are any; the reciprocal deviation,
 * where there is a norm; and y. */
enum { OUT };

static bool is_normed(const struct graph_op *op)
{
    return op->in[IN_NORM] != GRAPH_NONE;
}

static uint32_t place_of_y(const struct graph_op *op)
{
    return op->outs - 1U;
}

static uint32_t place_of_rstd(const struct graph_op *op)
{
    return op->outs - 2U;
}

/* Of a weight and a bias of another dtype than autocast's the function has casts of its own, which
 * it saves. Where the weight's is; OUT: it has none. */
static uint32_t place_of_weight(const struct graph_op *op)
{
    return op->outs - (is_normed(op) ? 3U : 2U);
}

static uint32_t weight_of(const struct graph_op *op)
{
    const uint32_t place = place_of_weight(op);
    return place == OUT ? op->in[IN_OUT] : op->out[place];
}

static uint32_t bias_of(const struct graph_op *op)
{
    const uint32_t place = place_of_weight(op), bias = op->in[IN_OUT_BIAS];
    return place == OUT || bias == GRAPH_NONE ? bias : op->out[place - 1];
}

struct scan { /* its sizes */
    enum dtype dtype;
    uint32_t b, s, a, e, n, g, i, c, h, k, l;
    uint32_t splits;     /* of a group's heads, each of which sums gradients of B and C */
    uint32_t row_groups; /* each of which sums the norm's gradient */
    struct shape heads;  /* (b, s, a, e) */
    struct shape steps;  /* (b, a, k, l) */
    struct shape scores; /* (b, k, g, l, l) */
    struct shape states; /* (b, k, a, e, n) */
    struct shape rows;   /* (b s, i) */
    double tokens;       /* b s a */
};

static uint32_t ceil_of(uint32_t x, uint32_t by)
{
    return (x + by - 1) / by;
}

static uint32_t at_most(uint32_t x, uint32_t most)
{
    return x < most ? x : most;
}

/* chunk_state.py, chunk_scan.py: as few of a group's heads go together as fill the GPU. */
static uint32_t splits_of(const struct scan *m, uint32_t multiprocessors)
{
    const uint32_t of_group = m->a / m->g;
    const uint64_t all = (uint64_t)m->b * m->k * m->a;
    const uint64_t each = (all + multiprocessors - 1) / multiprocessors;
    return ceil_of(of_group, each < of_group ? (uint32_t)each : of_group);
}

/* layernorm_gated.py, _layer_norm_bwd: groups of rows for each multiprocessor, and more of them
 * where a group's numbers are too few for four warps. */
static uint32_t row_groups_of(const struct scan *m, uint32_t multiprocessors)
{
    enum { WARP_NUMBERS = 256, WARPS = 8, FILLING = 4 };
    uint32_t block = 1; /* 64 KB at most: others are refused with the model */
    while (block < m->i / m->g)
        block *= 2;
    const uint32_t warps = block < WARP_NUMBERS ? 1 : at_most(block / WARP_NUMBERS, WARPS);
    return ceil_of(multiprocessors * ceil_of(FILLING, warps), m->g);
}

static struct scan scan_of(const struct graph *graph, const struct graph_op *op)
{
    enum { A100 = 108 }; /* where nobody says which GPU */
    const uint32_t multiprocessors = graph->multiprocessors ? graph->multiprocessors : A100;
    const struct shape *all = shape_of(graph, op->in[IN_ALL]);
    struct scan m = {
        .dtype = dtype_of(graph, op->in[IN_ALL]),
        .b = all->dim[0],
        .s = all->dim[1],
        .a = shape_of(graph, op->in[IN_D])->dim[0],
        .g = op->attr.dim,
        .i = shape_of(graph, op->in[IN_OUT])->dim[1],
        .c = shape_of(graph, op->in[IN_CONV])->dim[0],
        .h = shape_of(graph, op->in[IN_OUT])->dim[0],
        .l = op->attr.first,
    };
    m.e = m.i / m.a;
    m.n = (m.c - m.i) / m.g / 2;
    m.k = ceil_of(m.s, m.l);
    m.splits = splits_of(&m, multiprocessors);
    m.row_groups = row_groups_of(&m, multiprocessors);
    m.heads = SHAPE(m.b, m.s, m.a, m.e);
    m.steps = SHAPE(m.b, m.a, m.k, m.l);
    m.scores = SHAPE(m.b, m.k, m.g, m.l, m.l);
    m.states = SHAPE(m.b, m.k, m.a, m.e, m.n);
    m.rows = SHAPE(m.b * m.s, m.i);
    m.tokens = (double)m.b * m.s * m.a;
    return m;
}

/* ---- floating-point operations ---- */

/* Each number of each head with each of its state, once a token. */
static double with_state(const struct scan *m)
{
    return 2 * m->tokens * m->e * m->n;
}

/* A product of each token with those of its chunk, `width` numbers deep: all that a chunk has, of
 * which half is masked where it is causal. */
static double within(const struct scan *m, double heads, double width)
{
    return 2 * (double)m->b * m->s * heads * m->l * width;
}

static double product_flops(const struct scan *m)
{
    return 2 * (double)m->b * m->s * m->i * m->h;
}

/* ---- parts of operands ---- */

/* Columns of x (b, s, all), from `first` on. */
static struct operand columns(struct operand x, uint32_t first, uint32_t width)
{
    const uint32_t last = x.shape.rank - 1U;
    if (!x.pitch)
        x.pitch = x.shape.dim[last];
    x.offset += first;
    x.shape.dim[last] = width;
    return x;
}

struct split { /* zxbcdt, and likewise its gradient */
    struct operand z, mixed, dt;
};
static struct split split_of(const struct scan *m, struct operand all)
{
    return (struct split){.z = columns(all, 0, m->i),
                          .mixed = columns(all, m->i, m->c),
                          .dt = columns(all, m->i + m->c, m->a)};
}

struct mixed { /* what the convolution gives, and likewise its gradient */
    struct operand all, x, b, c;
};
static struct mixed mixed_of(const struct scan *m, struct operand all)
{
    return (struct mixed){.all = all,
                          .x = columns(all, 0, m->i),
                          .b = columns(all, m->i, m->g * m->n),
                          .c = columns(all, m->i + m->g * m->n, m->g * m->n)};
}

/* ---- what forward and backward both compute ---- */

static struct mixed convolve(struct tape *tape, const struct graph *graph,
                             const struct graph_op *op, const struct scan *m, struct operand mixed)
{
    uint32_t ins = 2;
    struct operand in[3] = {mixed, tape_tensor(tape, op->in[IN_CONV])};
    if (op->in[IN_CONV_BIAS] != GRAPH_NONE)
        in[ins++] = tape_tensor(tape, op->in[IN_CONV_BIAS]);
    struct operand out = tape_birth(tape, ATEN_EMPTY_LIKE, m->dtype, SHAPE(m->b, m->c, m->s));
    out.shape = SHAPE(m->b, m->s, m->c);
    tape_kernel(tape, WORK_CAUSAL_CONV_SILU, ATEN_CAUSAL_CONV,
                2.0 * m->b * m->s * m->c * last_dim(shape_of(graph, op->in[IN_CONV])), ins, in, 1,
                &out);
    return mixed_of(m, out);
}

struct steps { /* dt as it is used, and A dt summed from where a chunk begins */
    struct operand dt, sums;
};
static struct steps step(struct tape *tape, const struct graph_op *op, const struct scan *m,
                         struct operand dt)
{
    struct operand out[2];
    for (int i = 0; i < 2; i++)
        out[i] = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, m->steps);
    tape_kernel(tape, WORK_SSM_STEPS, ATEN_SSM_STEPS, 4 * m->tokens, 3,
                (struct operand[]){dt, tape_tensor(tape, op->in[IN_A]),
                                   tape_tensor(tape, op->in[IN_DT_BIAS])},
                2, out);
    return (struct steps){out[0], out[1]};
}

static struct operand score(struct tape *tape, const struct scan *m, const struct mixed *mixed)
{
    const struct operand scores = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, m->scores);
    tape_kernel(tape, WORK_SSM_SCORES, ATEN_SSM_SCORES, within(m, m->g, m->n), 2,
                (struct operand[]){mixed->c, mixed->b}, 1, &scores);
    return scores;
}

static struct operand make_states(struct tape *tape, const struct scan *m,
                                  const struct mixed *mixed, const struct steps *steps)
{
    const struct operand states = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, m->states);
    tape_kernel(tape, WORK_SSM_STATES, ATEN_SSM_STATES, with_state(m), 4,
                (struct operand[]){mixed->x, mixed->b, steps->dt, steps->sums}, 1, &states);
    return states;
}

/* The state that each chunk begins with, and the last one. */
struct passed {
    struct operand states, last;
};
static struct passed pass(struct tape *tape, const struct scan *m, enum dtype dtype,
                          struct operand states, struct operand sums)
{
    struct passed p;
    p.states = tape_birth(tape, ATEN_EMPTY, dtype, SHAPE(m->b, m->k, m->a, m->e * m->n));
    p.last = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, SHAPE(m->b, m->a, m->e * m->n));
    tape_kernel(tape, WORK_SSM_PASS, ATEN_SSM_PASS, -1.0, 2, (struct operand[]){states, sums}, 2,
                (struct operand[]){p.states, p.last});
    return p;
}

/* ---- forward ---- */

uint32_t op_mamba2(struct graph *graph, const struct mamba2 *called)
{
    const struct shape *filter = shape_of(graph, called->conv);
    const uint32_t conv = graph_view(graph, called->conv, SHAPE(filter->dim[0], last_dim(filter)));
    const uint32_t in[INS] = {called->all,     conv,          called->conv_bias,
                              called->dt_bias, called->decay, called->skip,
                              called->norm,    called->out,   called->out_bias};
    const bool biased = called->out_bias != GRAPH_NONE;
    const uint32_t op = begin(graph, biased ? OP_MAMBA2_BIAS : OP_MAMBA2, INS, in);
    graph->ops[op].attr.dim = called->groups;
    graph->ops[op].attr.first = called->chunk;
    graph->ops[op].attr.eps = called->eps;
    const struct scan m = scan_of(graph, &graph->ops[op]);
    const uint32_t out =
        graph_op_birth(graph, op, biased ? ATEN_ADDMM : ATEN_MM, m.dtype, SHAPE(m.b * m.s, m.h));
    if (graph->autocast.on && dtype_of(graph, called->out) != graph->autocast.dtype) {
        if (biased)
            graph_op_birth(graph, op, ATEN_TO_COPY, graph->autocast.dtype, SHAPE(m.h));
        graph_op_birth(graph, op, ATEN_TO_COPY, graph->autocast.dtype, SHAPE(m.h, m.i));
    }
    if (is_normed(&graph->ops[op]))
        graph_op_birth(graph, op, ATEN_EMPTY, DTYPE_FP32, SHAPE(m.g * m.b * m.s));
    graph_op_birth(graph, op, ATEN_EMPTY, m.dtype, m.heads);
    graph->ops[op].hidden = (uint8_t)(graph->ops[op].outs - 1);
    graph_op_done(graph, op);
    return graph_view(graph, out, SHAPE(m.b, m.s, m.h));
}

OP_SAVED(mamba2)
{
    const bool normed = is_normed(op);
    const uint32_t y = op->out[place_of_y(op)],
                   rstd = normed ? op->out[place_of_rstd(op)] : GRAPH_NONE;
    const uint32_t order[] = {
        op->in[IN_ALL], op->in[IN_CONV], op->in[IN_CONV_BIAS], y,
        op->in[IN_A],   op->in[IN_D],    op->in[IN_DT_BIAS],   op->in[IN_NORM],
        rstd,           weight_of(op),   bias_of(op)};
    uint32_t count = 0;
    (void)graph;
    for (uint32_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i] != GRAPH_NONE)
            saved[count++] = order[i];
    return count;
}

static void cast_to(struct tape *tape, const struct graph_op *op, uint32_t place, uint32_t param)
{
    const struct operand in = tape_tensor(tape, param), out = tape_birth_output(tape, op, place);
    tape_kernel(tape, WORK_CAST, ATEN_TO_COPY, -1.0, 1, &in, 1, &out);
}

/* The product behind the norm. */
static void project(struct tape *tape, const struct graph_op *op, const struct scan *m,
                    struct operand normed)
{
    const bool biased = op->in[IN_OUT_BIAS] != GRAPH_NONE;
    const uint32_t place = place_of_weight(op);
    if (place != OUT) {
        cast_to(tape, op, place, op->in[IN_OUT]);
        if (biased)
            cast_to(tape, op, place - 1, op->in[IN_OUT_BIAS]);
    }
    const struct operand out = tape_birth_output(tape, op, OUT);
    struct operand in[3] = {normed, tape_tensor(tape, weight_of(op))};
    if (biased)
        in[2] = tape_tensor(tape, bias_of(op));
    tape_kernel(tape, biased ? WORK_MATMUL_NT_BIAS : WORK_MATMUL_NT, biased ? ATEN_ADDMM : ATEN_MM,
                product_flops(m), biased ? 3 : 2, in, 1, &out);
}

/* The scan, and the norm of its output times silu of the gate; or the first does that, too. */
struct scanned {
    struct operand out; /* (b s, i), what the product is given */
    struct operand y;   /* (b, s, a, e), what is saved */
};
static struct scanned scan(struct tape *tape, const struct graph_op *op, const struct scan *m,
                           const struct mixed *mixed, const struct steps *steps,
                           const struct passed *passed, struct operand z)
{
    const bool normed = is_normed(op);
    const struct operand scores = score(tape, m, mixed);
    struct scanned out;
    if (!normed)
        out.out = tape_birth(tape, ATEN_EMPTY, m->dtype, m->heads);
    out.y = tape_birth_output(tape, op, place_of_y(op));
    const struct operand in[] = {scores,
                                 mixed->x,
                                 steps->dt,
                                 steps->sums,
                                 mixed->c,
                                 passed->states,
                                 tape_tensor(tape, op->in[IN_D]),
                                 z};
    tape_kernel(tape, normed ? WORK_SSM_SCAN : WORK_SSM_SCAN_GATED, ATEN_SSM_SCAN,
                within(m, m->a, m->e) / 2 + with_state(m), normed ? 7 : 8, in, normed ? 1 : 2,
                normed ? &out.y : (struct operand[]){out.out, out.y});
    tape_death(tape, scores);
    if (!normed) {
        tape_view(tape, &out.out, m->rows);
        return out;
    }
    struct operand norm[2] = {tape_birth(tape, ATEN_EMPTY_LIKE, m->dtype, m->rows)};
    norm[1] = tape_birth_output(tape, op, place_of_rstd(op));
    struct operand rows = out.y;
    tape_view(tape, &rows, m->rows);
    tape_kernel(tape, WORK_GATED_RMS_NORM, ATEN_GATED_RMS_NORM, -1.0, 3,
                (struct operand[]){rows, z, tape_tensor(tape, op->in[IN_NORM])}, 2, norm);
    out.out = norm[0];
    return out;
}

static void mamba2_forward(struct tape *tape, const struct graph *graph, const struct graph_op *op)
{
    const struct scan m = scan_of(graph, op);
    const struct split in = split_of(&m, tape_tensor(tape, op->in[IN_ALL]));
    const struct mixed mixed = convolve(tape, graph, op, &m, in.mixed);
    const struct steps steps = step(tape, op, &m, in.dt);
    const struct operand wide = make_states(tape, &m, &mixed, &steps);
    const struct passed passed = pass(tape, &m, m.dtype, wide, steps.sums);
    tape_death(tape, wide);
    const struct scanned scanned = scan(tape, op, &m, &mixed, &steps, &passed, in.z);
    if (!tape_takes_output(tape, op, OUT))
        project(tape, op, &m, scanned.out);
    tape_death(tape, scanned.out);
    tape_death(tape, mixed.all);
    tape_death(tape, steps.dt);
    tape_death(tape, steps.sums);
    tape_death(tape, passed.states);
    tape_death(tape, passed.last);
}

/* ---- backward ---- */

/* x summed over a dim of it. */
static struct operand sum_of(struct tape *tape, enum dtype dtype, struct operand x, uint32_t dim)
{
    struct shape shape = {.rank = 0};
    for (uint32_t i = 0; i < x.shape.rank; i++)
        if (i != dim)
            shape.dim[shape.rank++] = x.shape.dim[i];
    const struct operand sum = tape_call(tape, WORK_SUM_DIM, ATEN_SUM_DIM, dtype, shape,
                                         (double)shape_elements(&x.shape), 1, &x);
    tape_dim(tape, dim);
    return sum;
}

/* The same, which takes its place. */
static struct operand summed(struct tape *tape, struct operand x, uint32_t dim)
{
    const struct operand sum = sum_of(tape, DTYPE_FP32, x, dim);
    tape_death(tape, x);
    return sum;
}

/* Through the gated norm: of y and z, whose memory is there, and of its weight. */
static struct operand norm_backward(struct tape *tape, const struct graph *graph,
                                    const struct graph_op *op, const struct scan *m,
                                    const struct operand *in, struct operand again,
                                    struct operand dz, struct operand *dweight)
{
    const struct operand dy = tape_birth(tape, ATEN_EMPTY_LIKE, m->dtype, m->rows);
    const struct operand sums =
        tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, SHAPE(m->row_groups, m->i));
    tape_kernel(tape, WORK_GATED_RMS_NORM_BACKWARD, ATEN_GATED_RMS_NORM_BACKWARD, -1.0, 5, in, 4,
                (struct operand[]){dy, dz, sums, again});
    *dweight = as_stored(tape, sum_of(tape, DTYPE_FP32, sums, 0), dtype_of(graph, op->in[IN_NORM]));
    tape_death(tape, sums);
    return dy;
}

/* Parts of a sum over tokens, and of heads: as one dim of all but heads. */
static struct operand parts_of_skip(const struct scan *m, struct tape *tape, enum aten label)
{
    enum { BLOCK = 32 };
    return tape_birth(tape, label, DTYPE_FP32, SHAPE(ceil_of(m->l, BLOCK), m->b, m->k, m->a, 1));
}

static struct operand as_rows(struct tape *tape, const struct scan *m, struct operand parts)
{
    tape_view(tape, &parts, SHAPE(parts.shape.dim[0] * m->b * m->k, m->a, 1));
    return parts;
}

/* Where the scan gated: through that. dz has memory; *again is what the product was given, and
 * *dskip dD in fp32 sums. */
static struct operand gate_backward(struct tape *tape, const struct graph *graph,
                                    const struct graph_op *op, const struct scan *m,
                                    const struct operand *in, struct operand dz,
                                    struct operand *again, struct operand *dskip)
{
    const struct operand parts = parts_of_skip(m, tape, ATEN_EMPTY);
    *again = tape_birth(tape, ATEN_EMPTY_LIKE, m->dtype, m->heads);
    const struct operand dy = tape_birth(tape, ATEN_EMPTY_LIKE, m->dtype, m->heads);
    tape_kernel(tape, WORK_SSM_GATE_BACKWARD, ATEN_SSM_GATE_BACKWARD, -1.0, 5, in, 4,
                (struct operand[]){dz, dy, *again, parts});
    *dskip = as_stored(tape, sum_of(tape, DTYPE_FP32, as_rows(tape, m, parts), 0),
                       dtype_of(graph, op->in[IN_D]));
    dskip->shape = SHAPE(m->a);
    tape_death(tape, parts);
    return dy;
}

/* Through what goes from one chunk to the next. */
struct states_gradient {
    struct operand now, states; /* of the states, and these, as they are multiplied */
    struct operand decay;       /* (b, a, k) */
};
static struct states_gradient states_backward(struct tape *tape, const struct scan *m,
                                              struct operand passed, struct operand sums,
                                              struct operand c, struct operand dy)
{
    enum { BLOCK = 64 }; /* the least of those that the autotuner tries */
    const struct shape flat = SHAPE(m->b, m->k, m->a, m->e * m->n);
    struct states_gradient g;
    const struct operand of_output = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, m->states);
    tape_kernel(tape, WORK_SSM_STATES_BACKWARD, ATEN_SSM_STATES_BACKWARD, with_state(m), 3,
                (struct operand[]){c, sums, dy}, 1, &of_output);
    g.now = tape_birth(tape, ATEN_EMPTY_LIKE, m->dtype, flat);
    g.states = passed;
    if (m->dtype != DTYPE_FP32)
        g.states = tape_birth(tape, ATEN_EMPTY_LIKE, m->dtype, flat);
    const struct operand parts = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32,
                                            SHAPE(m->b, m->a, m->k, ceil_of(m->e * m->n, BLOCK)));
    tape_kernel(tape, WORK_SSM_PASS_BACKWARD, ATEN_SSM_PASS_BACKWARD, -1.0, 3,
                (struct operand[]){of_output, passed, sums}, 3,
                (struct operand[]){g.now, g.states, parts});
    g.decay = summed(tape, parts, 3);
    tape_death(tape, of_output);
    if (m->dtype != DTYPE_FP32)
        tape_death(tape, passed);
    return g;
}

/* dx, where there is memory, d(dt), and dD. */
static struct operand input_backward(struct tape *tape, const struct graph *graph,
                                     const struct graph_op *op, const struct scan *m,
                                     const struct operand *in, struct operand dx,
                                     struct operand *dskip)
{
    const struct operand parts = parts_of_skip(m, tape, ATEN_ZEROS);
    tape_kernel(tape, WORK_FILL, ATEN_ZEROS, -1.0, 0, NULL, 1, &parts);
    const struct operand ddt = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, m->steps);
    tape_kernel(tape, WORK_SSM_INPUT_BACKWARD, ATEN_SSM_INPUT_BACKWARD,
                within(m, m->a, m->e) / 2 + with_state(m), 8, in, 3,
                (struct operand[]){dx, ddt, parts});
    const struct operand by_head = summed(tape, as_rows(tape, m, parts), 0);
    *dskip = as_stored(tape, summed(tape, by_head, 1), dtype_of(graph, op->in[IN_D]));
    return ddt;
}

/* dB or dC, which each part of a group's heads sums for itself, and what of the decay is theirs,
 * born before. */
struct group_gradient {
    struct operand decay, sum; /* (b, a, k, l), (b, s, g, n) */
};
static struct group_gradient group_backward(struct tape *tape, const struct scan *m,
                                            enum work_kind work, enum aten label, uint32_t ins,
                                            const struct operand *in)
{
    struct group_gradient g = {.decay = tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, m->steps)};
    const struct operand parts =
        tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, SHAPE(m->b, m->s, m->splits, m->g, m->n));
    tape_kernel(tape, work, label, with_state(m), ins, in, 2, (struct operand[]){parts, g.decay});
    g.sum = summed(tape, parts, 2);
    return g;
}

static struct operand elementwise(struct tape *tape, enum work_kind work, enum aten label,
                                  uint32_t ins, const struct operand *in)
{
    return tape_call(tape, work, label, DTYPE_FP32, in[0].shape, -1.0, ins, in);
}

/* A chunk's sums from each token to its end; x is the caller's. */
static struct operand sums_to_end(struct tape *tape, struct operand x)
{
    const struct operand turned = elementwise(tape, WORK_REORDER, ATEN_FLIP, 1, &x);
    const struct operand sums = elementwise(tape, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, 1, &turned);
    tape_death(tape, turned);
    const struct operand back = elementwise(tape, WORK_REORDER, ATEN_FLIP, 1, &sums);
    tape_death(tape, sums);
    return back;
}

/* Backward through the scan, from dy (b, s, a, e) on; gradients of x, B, C and dt go where there is
 * memory. Where it gated, y is what it scanned, and *again what the product was given. */
static void scan_backward(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                          const struct scan *m, const struct mixed *mixed,
                          const struct mixed *gradient, const struct split *in,
                          const struct split *out, struct operand dy, struct operand y,
                          struct operand *again, struct operand *given)
{
    enum { BLOCK = 32 };
    const struct operand skip = tape_tensor(tape, op->in[IN_D]);
    const struct operand dt =
        tape_call(tape, WORK_REORDER, ATEN_CLONE, m->dtype, in->dt.shape, -1.0, 1, &in->dt);
    const struct steps steps = step(tape, op, m, dt);
    const struct operand scores = score(tape, m, mixed);
    const struct operand wide = make_states(tape, m, mixed, &steps);
    const struct passed passed = pass(tape, m, DTYPE_FP32, wide, steps.sums);
    tape_death(tape, wide);
    struct operand dskip;
    if (!is_normed(op))
        dy = gate_backward(tape, graph, op, m, (struct operand[]){dy, y, in->z, mixed->x, skip},
                           out->z, again, &given[IN_D]);
    const struct states_gradient states =
        states_backward(tape, m, passed.states, steps.sums, mixed->c, dy);
    const struct operand ddt = input_backward(
        tape, graph, op, m,
        (struct operand[]){mixed->x, scores, dy, steps.dt, steps.sums, mixed->b, states.now, skip},
        gradient->x, is_normed(op) ? &given[IN_D] : &dskip);
    const struct group_gradient b =
        group_backward(tape, m, WORK_SSM_B_BACKWARD, ATEN_SSM_B_BACKWARD, 5,
                       (struct operand[]){mixed->x, states.now, mixed->b, steps.dt, steps.sums});
    tape_kernel(tape, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, -1.0, 1, &b.decay, 1, &b.decay);
    const struct group_gradient c =
        group_backward(tape, m, WORK_SSM_C_BACKWARD, ATEN_SSM_C_BACKWARD, 4,
                       (struct operand[]){dy, states.states, mixed->c, steps.sums});
    const struct operand parts =
        tape_birth(tape, ATEN_EMPTY, DTYPE_FP32, SHAPE(m->b, m->k, m->splits, m->g, m->l, m->l));
    tape_kernel(tape, WORK_SSM_SCORES_BACKWARD, ATEN_SSM_SCORES_BACKWARD, within(m, m->a, m->e), 4,
                (struct operand[]){mixed->x, dy, steps.dt, steps.sums}, 1, &parts);
    const struct operand dscores = summed(tape, parts, 2);
    tape_kernel(tape, WORK_SSM_SCORES_TO_GROUP, ATEN_SSM_SCORES_TO_GROUP, within(m, m->g, m->n), 3,
                (struct operand[]){mixed->c, dscores, b.sum}, 1, &gradient->b);
    tape_kernel(tape, WORK_SSM_SCORES_TO_GROUP, ATEN_SSM_SCORES_TO_GROUP, within(m, m->g, m->n), 3,
                (struct operand[]){mixed->b, dscores, c.sum}, 1, &gradient->c);
    struct operand of_chunks = states.decay; /* the sum at a chunk's end is of all of it */
    tape_view(tape, &of_chunks, SHAPE(m->b, m->a, m->k, 1));
    add_to(tape, of_chunks, columns(c.decay, m->l - 1, 1));
    const struct operand before = sums_to_end(tape, c.decay);
    const struct operand of_blocks = tape_birth(
        tape, ATEN_EMPTY, DTYPE_FP32, SHAPE(m->b, m->a, m->k, ceil_of(m->l, BLOCK), m->l));
    tape_kernel(tape, WORK_SSM_DECAY_BACKWARD, ATEN_SSM_DECAY_BACKWARD, within(m, m->a, m->e), 5,
                (struct operand[]){mixed->x, steps.dt, steps.sums, dy, scores}, 1, &of_blocks);
    const struct operand decay = summed(tape, of_blocks, 3);
    const struct operand others =
        elementwise(tape, WORK_ADD, ATEN_ADD, 2, (struct operand[]){b.decay, before});
    add_to(tape, others, decay);
    tape_death(tape, others);
    const struct shape each = SHAPE(m->a);
    given[IN_DT_BIAS] = tape_birth(tape, ATEN_EMPTY_LIKE, DTYPE_FP32, each);
    given[IN_A] = tape_birth(tape, ATEN_EMPTY_LIKE, DTYPE_FP32, each);
    tape_kernel(tape, WORK_SSM_STEPS_BACKWARD, ATEN_SSM_STEPS_BACKWARD, 4 * m->tokens, 5,
                (struct operand[]){decay, ddt, dt, tape_tensor(tape, op->in[IN_A]),
                                   tape_tensor(tape, op->in[IN_DT_BIAS])},
                3, (struct operand[]){out->dt, given[IN_A], given[IN_DT_BIAS]});
    const struct operand held[] = {steps.dt,   ddt,    b.sum,         c.sum,      passed.last, dt,
                                   steps.sums, scores, states.states, states.now, states.decay};
    const struct operand later[] = {b.decay, c.decay, dscores, before, decay};
    if (!is_normed(op))
        tape_death(tape, dy);
    for (uint32_t i = 0; i < sizeof held / sizeof *held; i++)
        tape_death(tape, held[i]);
    if (!is_normed(op)) /* summed for nobody */
        tape_death(tape, dskip);
    for (uint32_t i = 0; i < sizeof later / sizeof *later; i++)
        tape_death(tape, later[i]);
}

/* Of the weight and bias; dmixed goes where there is memory. */
static void convolve_backward(struct tape *tape, const struct graph *graph,
                              const struct graph_op *op, const struct scan *m, struct operand mixed,
                              struct operand dout, struct operand dmixed, struct operand *given)
{
    const bool biased = op->in[IN_CONV_BIAS] != GRAPH_NONE;
    struct operand in[4] = {mixed, tape_tensor(tape, op->in[IN_CONV])}, out[3] = {dmixed};
    const uint32_t count = biased ? 3 : 2;
    if (biased)
        in[2] = tape_tensor(tape, op->in[IN_CONV_BIAS]);
    in[count] = dout;
    causal_conv_gradients(tape, WORK_CAUSAL_CONV_SILU_BACKWARD,
                          6.0 * m->b * m->s * m->c * last_dim(shape_of(graph, op->in[IN_CONV])),
                          count, in, out);
    for (uint32_t i = 1; i < count; i++)
        given[IN_ALL + i] = out[i];
}

/* Parameters' nodes come in the order that the engine's queue makes of them; the filter's weight
 * was squeezed, and behind that is the newest node of forward. */
static void give_all(struct tape *tape, const struct graph_op *op, const struct operand *given)
{
    static const uint32_t number[INS] = {
        [IN_ALL] = 1,
        [IN_A] = 2,
        [IN_CONV] = 3,
        [IN_CONV_BIAS] = READY_QUEUE_PARAM,
        [IN_DT_BIAS] = READY_QUEUE_PARAM,
        [IN_D] = READY_QUEUE_PARAM,
        [IN_NORM] = READY_QUEUE_PARAM,
        [IN_OUT] = READY_QUEUE_PARAM,
        [IN_OUT_BIAS] = READY_QUEUE_PARAM,
    };
    uint32_t inputs[INS], numbers[INS], order[INS], count = 0;
    for (uint32_t i = 0; i < INS; i++) {
        if (op->in[i] == GRAPH_NONE)
            continue;
        if (!tape_needs(tape, op, i)) {
            tape_give_unasked(tape, given[i]);
            continue;
        }
        inputs[count] = i;
        numbers[count++] = number[i];
    }
    ready_queue_order(count, numbers, order);
    for (uint32_t i = 0; i < count; i++)
        tape_give(tape, op, inputs[order[i]], given[inputs[order[i]]]);
}

/* What backward holds until it returns, beside what it has unpacked. */
struct held {
    struct operand dnormed, dy, mixed, gradient; /* dy: the norm's */
    struct operand again;                        /* what the product was given, made again */
    struct operand unused;                       /* memory for that which nothing is put into */
};

/* Views of the last two are there until the end where there is a norm. */
static void end_normed(struct tape *tape, const struct graph_op *op, const struct held *held)
{
    const uint32_t early[] = {op->in[IN_CONV],
                              op->in[IN_CONV_BIAS],
                              op->in[IN_A],
                              op->in[IN_D],
                              op->in[IN_DT_BIAS],
                              op->in[IN_NORM],
                              op->out[place_of_rstd(op)],
                              weight_of(op),
                              bias_of(op)},
                   late[] = {op->out[place_of_y(op)], op->in[IN_ALL]};
    tape_death(tape, held->dy);
    tape_end_locals(tape, op, sizeof early / sizeof *early, early, false);
    tape_death(tape, held->mixed);
    tape_death(tape, held->gradient);
    tape_death(tape, held->again);
    tape_death(tape, held->dnormed);
    tape_end_locals(tape, op, sizeof late / sizeof *late, late, true);
}

static void end_gated(struct tape *tape, const struct graph_op *op, const struct held *held)
{
    const uint32_t early[] = {op->in[IN_CONV], op->in[IN_CONV_BIAS], op->out[place_of_y(op)],
                              op->in[IN_A],    op->in[IN_D],         op->in[IN_DT_BIAS],
                              weight_of(op),   bias_of(op)};
    tape_death(tape, held->dnormed);
    tape_end_locals(tape, op, sizeof early / sizeof *early, early, false);
    tape_death(tape, held->unused);
    tape_end_locals(tape, op, 1, &op->in[IN_ALL], true);
    tape_death(tape, held->mixed);
    tape_death(tape, held->gradient);
    tape_death(tape, held->again);
}

OP_BACKWARD(mamba2)
{
    const struct scan m = scan_of(graph, op);
    const bool biased = op->in[IN_OUT_BIAS] != GRAPH_NONE, normed = is_normed(op);
    const struct operand all = tape_tensor(tape, op->in[IN_ALL]),
                         weight = tape_tensor(tape, weight_of(op));
    struct operand grad = tape_grad(tape, op, OUT), y = tape_tensor(tape, op->out[place_of_y(op)]);
    struct operand given[INS];
    const struct split in = split_of(&m, all);
    tape_view(tape, &grad, SHAPE(m.b * m.s, m.h));
    struct held held = {.again = tape_birth(tape, ATEN_EMPTY, m.dtype, SHAPE(m.b, m.s, m.i))};
    held.unused = held.again;
    const struct mixed mixed = convolve(tape, graph, op, &m, in.mixed);
    given[IN_ALL] = tape_birth(tape, ATEN_EMPTY_LIKE, m.dtype, all.shape);
    const struct split out = split_of(&m, given[IN_ALL]);
    const struct mixed gradient =
        mixed_of(&m, tape_birth(tape, ATEN_EMPTY_LIKE, m.dtype, SHAPE(m.b, m.s, m.c)));
    held.mixed = mixed.all;
    held.gradient = gradient.all;
    held.dnormed = tape_call(tape, WORK_MATMUL_NN, ATEN_MM, m.dtype, m.rows, product_flops(&m), 2,
                             (struct operand[]){grad, weight});
    struct operand dy = held.dnormed;
    if (normed) {
        tape_view(tape, &y, m.rows);
        tape_view(tape, &held.again, m.rows);
        dy = held.dy = norm_backward(
            tape, graph, op, &m,
            (struct operand[]){held.dnormed, y, in.z, tape_tensor(tape, op->in[IN_NORM]),
                               tape_tensor(tape, op->out[place_of_rstd(op)])},
            held.again, out.z, &given[IN_NORM]);
    }
    tape_view(tape, &dy, m.heads);
    scan_backward(tape, graph, op, &m, &mixed, &gradient, &in, &out, dy, y, &held.again, given);
    tape_view(tape, &held.again, m.rows);
    given[IN_OUT] = tape_birth(tape, ATEN_BMM, m.dtype, SHAPE(1, m.h, m.i));
    given[IN_OUT].shape = weight.shape;
    tape_kernel(tape, WORK_MATMUL_TN, ATEN_BMM, product_flops(&m), 2,
                (struct operand[]){grad, held.again}, 1, &given[IN_OUT]);
    if (biased)
        given[IN_OUT_BIAS] = sum_of(tape, m.dtype, grad, 0);
    convolve_backward(tape, graph, op, &m, in.mixed, gradient.all, out.mixed, given);
    (normed ? end_normed : end_gated)(tape, op, &held);
    give_all(tape, op, given);
}

OP_CLASS(mamba2) = {
    .label = ATEN_SSM_SCAN,
    .saved = mamba2_saved,
    .backward = mamba2_backward,
    .keep = KEEP_EVERY_SECOND, /* the product, a mm, */
    .keeps_first = true,
    .forward = mamba2_forward,
    .in_python = true,
};

OP_CLASS(mamba2_bias) = {
    .label = ATEN_SSM_SCAN,
    .saved = mamba2_saved,
    .backward = mamba2_backward,
    .keep = KEEP_ALWAYS, /* or an addmm */
    .keeps_first = true,
    .forward = mamba2_forward,
    .in_python = true,
};
