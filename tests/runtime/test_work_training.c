/* test_work_training.c - two small models trained by the host kernels alone, one rank, fp32.
 *
 * Every step of a Llama and of a GPT-2 is written out as pieces of work, in the order of a plan
 * and with its operands (tests/data/numerics: models, data and PyTorch's trajectories). What a
 * wrong gradient, rounding or update would change shows within 20 steps of AdamW. */
#include "tests/support/backends.h"
#include "tests/support/soak.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* On a GPU whose kernels are emulated, which takes a hundred times as long, some steps of them. */
enum {
    STEPS = 20,
    EMULATED_STEPS = 3, /* the second has what an update made, the third carried moments */
    PARAMS = 64,
    LAYERS = 3,
    OPERANDS = 4 * PARAMS,
    SCRATCH = 32 << 20
};

typedef struct work_operand tensor;

struct model {
    uint32_t h, heads, kv, ffn, v, b, s, d, params; /* hidden, ..., head size */
    tensor param[PARAMS], grad[PARAMS], m[PARAMS], n[PARAMS];
    tensor ids, targets, freqs;
    char *scratch; /* of one step */
    size_t used;
    tensor x[LAYERS + 1]; /* inputs of the blocks, then the last one's output */
};

/* ---- calling kernels ---- */

static void run(enum work_kind kind, struct kernel_attr attr, uint32_t ins, uint32_t outs,
                const tensor *operand)
{
    const struct work work = {
        .kind = kind, .ins = ins, .outs = outs, .operand = operand, .attr = attr, .ranks = 1};
    struct err err = {0};
    if (run_on_backend(&work, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static const struct kernel_attr plain, causal = {.causal = true}, eps = {.eps = 1e-5F};

#define RUN(kind, attr, ins, outs, ...)                                                            \
    run(WORK_##kind, attr, ins, outs, (const tensor[]){__VA_ARGS__})

static void *take(struct model *m, size_t bytes)
{
    char *memory = m->scratch + m->used;
    m->used += (bytes + 63) & ~(size_t)63;
    assert_true(m->used <= SCRATCH);
    return memory;
}

static tensor make(struct model *m, struct shape shape)
{
    void *data = take(m, shape_bytes(&shape, DTYPE_FP32));
    memset(data, 0xff, shape_bytes(&shape, DTYPE_FP32)); /* NaN: nobody may read what is not set */
    return (tensor){data, shape, 0, DTYPE_FP32, NULL};
}

static tensor seen_as(tensor x, struct shape shape)
{
    x.shape = shape;
    return x;
}

static tensor linear(struct model *m, tensor x, uint32_t weight, bool biased)
{
    const tensor w = m->param[weight];
    const tensor y = make(m, SHAPE(m->b * m->s, w.shape.dim[0]));
    if (biased)
        RUN(MATMUL_NT_BIAS, plain, 3, 1, x, w, m->param[weight + 1], y);
    else
        RUN(MATMUL_NT, plain, 2, 1, x, w, y);
    return y;
}

static tensor linear_backward(struct model *m, tensor dy, tensor x, uint32_t weight, bool biased)
{
    const tensor dx = make(m, x.shape);
    dy.shape = SHAPE(m->b * m->s, m->param[weight].shape.dim[0]);
    RUN(MATMUL_NN, plain, 2, 1, dy, m->param[weight], dx);
    RUN(MATMUL_TN, plain, 2, 1, dy, x, m->grad[weight]);
    if (biased)
        RUN(SUM, plain, 1, 1, dy, seen_as(m->grad[weight + 1], SHAPE(1, dy.shape.dim[1])));
    return dx;
}

static tensor add(struct model *m, tensor x, tensor y)
{
    const tensor z = make(m, x.shape);
    RUN(ADD, plain, 2, 1, x, seen_as(y, x.shape), z);
    return z;
}

struct attended {
    tensor q, k, v, o, logsumexp;
};

static void attend(struct model *m, struct attended *at)
{
    at->o = make(m, SHAPE(m->b, m->heads, m->s, m->d)); /* memory is (b, s, a, d) */
    at->logsumexp = make(m, SHAPE(m->b, m->heads, m->s));
    const tensor unused = {.dtype = DTYPE_UINT64};
    RUN(ATTENTION, causal, 3, 4, at->q, at->k, at->v, at->o, at->logsumexp, unused, unused);
}

/* The operand o is optional: given for a Llama, left out for a GPT-2. */
static void attend_backward(struct model *m, const struct attended *at, tensor dout, tensor dx[3])
{
    dout.shape = at->o.shape;
    for (uint32_t i = 0; i < 3; i++)
        dx[i] = make(m, at->o.shape);
    if (m->kv)
        RUN(ATTENTION_BACKWARD, causal, 6, 3, dout, at->q, at->k, at->v, at->logsumexp, at->o,
            dx[0], dx[1], dx[2]);
    else
        RUN(ATTENTION_BACKWARD, causal, 5, 3, dout, at->q, at->k, at->v, at->logsumexp, dx[0],
            dx[1], dx[2]);
}

/* ---- Llama: parameters of block i from 1 + 9i: norm, wq, wk, wv, wo, norm, w1, w2, w3 ---- */

struct llama_block {
    tensor h, y1, rstd1, y2, rstd2, gate, silu, up, product;
    struct attended at;
};

static tensor rotate(struct model *m, tensor x, tensor freqs, uint32_t heads)
{
    const struct shape pairs = SHAPE(m->b, m->s, heads, m->d / 2);
    const tensor y = make(m, SHAPE(m->b, m->s, heads, m->d));
    tensor in = seen_as(x, pairs), out = seen_as(y, pairs);
    in.dtype = out.dtype = DTYPE_COMPLEX64;
    RUN(MUL, plain, 2, 1, in, freqs, out);
    return y;
}

static tensor repeat(struct model *m, tensor x)
{
    const uint32_t times = m->heads / m->kv;
    const tensor y = make(m, SHAPE(m->b, m->s, m->kv, times, m->d));
    RUN(REPEAT, (struct kernel_attr){.dim = 3}, 1, 1, seen_as(x, SHAPE(m->b, m->s, m->kv, m->d)),
        y);
    return seen_as(y, SHAPE(m->b, m->s, m->heads, m->d));
}

static tensor repeat_backward(struct model *m, tensor dy)
{
    const uint32_t times = m->heads / m->kv;
    const tensor dx = make(m, SHAPE(m->b, m->s, m->kv, 1, m->d));
    RUN(SUM, plain, 1, 1, seen_as(dy, SHAPE(m->b, m->s, m->kv, times, m->d)), dx);
    return dx;
}

static tensor rms_norm(struct model *m, tensor x, uint32_t weight, tensor *rstd)
{
    const tensor y = make(m, x.shape);
    *rstd = make(m, SHAPE(m->b, m->s, 1));
    RUN(RMS_NORM, eps, 2, 2, x, m->param[weight], y, *rstd);
    return y;
}

static tensor rms_norm_backward(struct model *m, tensor dy, tensor x, uint32_t weight, tensor rstd)
{
    const tensor dx = make(m, x.shape);
    RUN(RMS_NORM_BACKWARD, eps, 4, 2, dy, x, m->param[weight], rstd, dx, m->grad[weight]);
    return dx;
}

static tensor llama_block(struct model *m, tensor x, uint32_t at, struct llama_block *k)
{
    k->y1 = rms_norm(m, x, at, &k->rstd1);
    k->at.q = rotate(m, linear(m, k->y1, at + 1, false), m->freqs, m->heads);
    k->at.k = repeat(m, rotate(m, linear(m, k->y1, at + 2, false), m->freqs, m->kv));
    k->at.v = repeat(m, linear(m, k->y1, at + 3, false));
    attend(m, &k->at);
    k->h = add(m, x, linear(m, seen_as(k->at.o, x.shape), at + 4, false));
    k->y2 = rms_norm(m, k->h, at + 5, &k->rstd2);
    k->gate = linear(m, k->y2, at + 6, false);
    k->up = linear(m, k->y2, at + 8, false);
    k->silu = make(m, k->gate.shape);
    k->product = make(m, k->gate.shape);
    RUN(SILU, plain, 1, 1, k->gate, k->silu);
    RUN(MUL, plain, 2, 1, k->silu, k->up, k->product);
    return add(m, k->h, linear(m, k->product, at + 7, false));
}

static tensor llama_mlp_backward(struct model *m, tensor dz, uint32_t at,
                                 const struct llama_block *k)
{
    const tensor dproduct = linear_backward(m, dz, k->product, at + 7, false);
    const tensor dup = make(m, k->up.shape), dsilu = make(m, k->up.shape);
    const tensor dgate = make(m, k->up.shape);
    RUN(MUL, plain, 2, 1, dproduct, k->silu, dup);
    RUN(MUL, plain, 2, 1, dproduct, k->up, dsilu);
    RUN(SILU_BACKWARD, plain, 2, 1, dsilu, k->gate, dgate);
    return add(m, linear_backward(m, dup, k->y2, at + 8, false),
               linear_backward(m, dgate, k->y2, at + 6, false));
}

static tensor llama_block_backward(struct model *m, tensor dz, tensor x, uint32_t at,
                                   const struct llama_block *k)
{
    const tensor dy2 = llama_mlp_backward(m, dz, at, k);
    const tensor dh = add(m, dz, rms_norm_backward(m, dy2, k->h, at + 5, k->rstd2));
    const tensor dout = linear_backward(m, dh, seen_as(k->at.o, x.shape), at + 4, false);
    tensor dqkv[3], back = m->freqs;
    attend_backward(m, &k->at, dout, dqkv);
    back.data = take(m, 8 * shape_elements(&back.shape));
    RUN(CONJUGATE, plain, 1, 1, m->freqs, back);
    const tensor dq = rotate(m, dqkv[0], back, m->heads);
    const tensor dk = rotate(m, repeat_backward(m, dqkv[1]), back, m->kv);
    const tensor dy1 = add(m, linear_backward(m, repeat_backward(m, dqkv[2]), k->y1, at + 3, false),
                           linear_backward(m, dk, k->y1, at + 2, false));
    RUN(ADD_IN_PLACE, plain, 1, 1, linear_backward(m, dq, k->y1, at + 1, false), dy1);
    return add(m, dh, rms_norm_backward(m, dy1, x, at, k->rstd1));
}

/* ---- GPT-2: parameters of block i from 2 + 12i: ln_1, c_attn, c_proj, ln_2, c_fc, m_proj ---- */

struct stats {
    tensor mean, rstd;
};

struct gpt2_block {
    tensor h, y1, y2, fc, gelu;
    struct stats ln1, ln2;
    struct attended at;
};

static tensor layer_norm(struct model *m, tensor x, uint32_t weight, struct stats *stats)
{
    const tensor y = make(m, x.shape);
    *stats = (struct stats){make(m, SHAPE(m->b, m->s, 1)), make(m, SHAPE(m->b, m->s, 1))};
    RUN(LAYER_NORM, eps, 3, 3, x, m->param[weight], m->param[weight + 1], y, stats->mean,
        stats->rstd);
    return y;
}

static tensor layer_norm_backward(struct model *m, tensor dy, tensor x, uint32_t weight,
                                  const struct stats *stats)
{
    const tensor dx = make(m, x.shape);
    RUN(LAYER_NORM_BACKWARD, eps, 5, 3, dy, x, m->param[weight], stats->mean, stats->rstd, dx,
        m->grad[weight], m->grad[weight + 1]);
    return dx;
}

/* A third of c_attn's output, seen as heads. */
static tensor third(const struct model *m, tensor qkv, uint32_t i)
{
    return (tensor){(float *)qkv.data + i * m->h, SHAPE(m->b, m->s, m->heads, m->d), 3 * m->h,
                    DTYPE_FP32, NULL};
}

static tensor gpt2_block(struct model *m, tensor x, uint32_t at, struct gpt2_block *k)
{
    k->y1 = layer_norm(m, x, at, &k->ln1);
    const tensor qkv = linear(m, k->y1, at + 2, true);
    k->at.q = third(m, qkv, 0);
    k->at.k = third(m, qkv, 1);
    k->at.v = third(m, qkv, 2);
    attend(m, &k->at);
    k->h = add(m, x, linear(m, seen_as(k->at.o, x.shape), at + 4, true));
    k->y2 = layer_norm(m, k->h, at + 6, &k->ln2);
    k->fc = linear(m, k->y2, at + 8, true);
    k->gelu = make(m, k->fc.shape);
    RUN(GELU_TANH, plain, 1, 1, k->fc, k->gelu);
    return add(m, k->h, linear(m, k->gelu, at + 10, true));
}

static tensor gpt2_block_backward(struct model *m, tensor dz, tensor x, uint32_t at,
                                  const struct gpt2_block *k)
{
    const tensor dgelu = linear_backward(m, dz, k->gelu, at + 10, true);
    const tensor dfc = make(m, k->fc.shape), dqkv = make(m, SHAPE(m->b, m->s, 3 * m->h));
    RUN(GELU_TANH_BACKWARD, plain, 2, 1, dgelu, k->fc, dfc);
    const tensor dy2 = linear_backward(m, dfc, k->y2, at + 8, true);
    const tensor dh = add(m, dz, layer_norm_backward(m, dy2, k->h, at + 6, &k->ln2));
    const tensor dout = linear_backward(m, dh, seen_as(k->at.o, x.shape), at + 4, true);
    tensor part[3];
    attend_backward(m, &k->at, dout, part);
    RUN(CAT, plain, 3, 1, seen_as(part[0], x.shape), seen_as(part[1], x.shape),
        seen_as(part[2], x.shape), dqkv);
    const tensor dy1 = linear_backward(m, dqkv, k->y1, at + 2, true);
    return add(m, dh, layer_norm_backward(m, dy1, x, at, &k->ln1));
}

/* ---- both ---- */

/* Logits (t, v) to the loss; returns their gradient. */
static tensor loss_and_gradient(struct model *m, tensor logits, double *loss)
{
    const struct shape scalar = {.rank = 0};
    const tensor y = make(m, logits.shape), dy = make(m, logits.shape), dx = make(m, logits.shape);
    const tensor mean = make(m, scalar), weight = make(m, scalar), one = make(m, scalar);
    RUN(LOG_SOFTMAX, plain, 1, 1, logits, y);
    RUN(NLL_LOSS, plain, 2, 2, y, m->targets, mean, weight);
    RUN(FILL, ((struct kernel_attr){.p = 1}), 0, 1, one);
    RUN(NLL_LOSS_BACKWARD, plain, 2, 1, one, m->targets, dy);
    RUN(LOG_SOFTMAX_BACKWARD, plain, 2, 1, dy, y, dx);
    *loss = (double)*(float *)mean.data;
    return dx;
}

static double llama_step(struct model *m)
{
    struct llama_block blocks[LAYERS];
    tensor rstd;
    double loss;
    const uint32_t norm = m->params - 2, head = m->params - 1;
    m->x[0] = make(m, SHAPE(m->b, m->s, m->h));
    RUN(EMBEDDING, plain, 2, 1, m->ids, m->param[0], m->x[0]);
    for (uint32_t i = 0; i < LAYERS; i++)
        m->x[i + 1] = llama_block(m, m->x[i], 1 + 9 * i, &blocks[i]);
    const tensor y = rms_norm(m, m->x[LAYERS], norm, &rstd);
    const tensor dlogits = loss_and_gradient(m, linear(m, y, head, false), &loss);
    tensor dx = linear_backward(m, dlogits, y, head, false);
    dx = rms_norm_backward(m, dx, m->x[LAYERS], norm, rstd);
    for (uint32_t i = LAYERS; i-- > 0;)
        dx = llama_block_backward(m, dx, m->x[i], 1 + 9 * i, &blocks[i]);
    RUN(EMBEDDING_BACKWARD, plain, 2, 1, dx, m->ids, m->grad[0]);
    return loss;
}

static double gpt2_step(struct model *m)
{
    struct gpt2_block blocks[LAYERS];
    struct stats stats;
    double loss;
    const uint32_t norm = m->params - 2;
    const tensor positions = {take(m, 8 * m->s), SHAPE(m->s), 0, DTYPE_INT64, NULL};
    const tensor token = make(m, SHAPE(m->b, m->s, m->h)), position = make(m, SHAPE(m->s, m->h));
    RUN(EMBEDDING, plain, 2, 1, m->ids, m->param[0], token);
    RUN(ARANGE, plain, 0, 1, positions);
    RUN(EMBEDDING, plain, 2, 1, positions, m->param[1], position);
    m->x[0] = make(m, token.shape);
    RUN(ADD, plain, 2, 1, token, position, m->x[0]);
    for (uint32_t i = 0; i < LAYERS; i++)
        m->x[i + 1] = gpt2_block(m, m->x[i], 2 + 12 * i, &blocks[i]);
    const tensor y = layer_norm(m, m->x[LAYERS], norm, &stats);
    const tensor dlogits = loss_and_gradient(m, linear(m, y, 0, false), &loss);
    tensor dx = linear_backward(m, dlogits, y, 0, false);
    dx = layer_norm_backward(m, dx, m->x[LAYERS], norm, &stats);
    for (uint32_t i = LAYERS; i-- > 0;)
        dx = gpt2_block_backward(m, dx, m->x[i], 2 + 12 * i, &blocks[i]);
    const tensor dposition = make(m, SHAPE(1, m->s, m->h)), dtable = make(m, m->grad[0].shape);
    RUN(SUM, plain, 1, 1, dx, dposition);
    RUN(EMBEDDING_BACKWARD, plain, 2, 1, dposition, positions, m->grad[1]);
    RUN(EMBEDDING_BACKWARD, plain, 2, 1, dx, m->ids, dtable);
    RUN(ADD_IN_PLACE, plain, 1, 1, dtable, m->grad[0]); /* tied to the head */
    return loss;
}

/* ---- clipping and update ---- */

static double grad_norm(struct model *m, tensor norms[PARAMS])
{
    tensor operand[2 * PARAMS];
    for (uint32_t i = 0; i < m->params; i++) {
        operand[i] = m->grad[i];
        operand[m->params + i] = norms[i] = make(m, (struct shape){.rank = 0});
    }
    run(WORK_NORMS, plain, m->params, m->params, operand);
    const tensor stacked = make(m, SHAPE(m->params)), total = make(m, (struct shape){.rank = 0});
    memcpy(operand, norms, m->params * sizeof *norms);
    operand[m->params] = stacked;
    run(WORK_STACK, plain, m->params, 1, operand);
    RUN(VECTOR_NORM, plain, 1, 1, stacked, total);
    return (double)*(float *)total.data;
}

static void clip(struct model *m, double norm, float max_norm)
{
    float total = (float)norm;
    tensor operand[2 * PARAMS + 2] = {{&total, {.rank = 0}, 0, DTYPE_FP32, NULL}};
    operand[1] = make(m, (struct shape){.rank = 0});
    const struct work coefficient = {
        .kind = WORK_CLIP_COEFFICIENT, .ins = 1, .outs = 1, .operand = operand, .attr.p = max_norm};
    assert_int_equal(run_on_backend(&coefficient, NULL), ERR_OK);
    for (uint32_t i = 0; i < m->params; i++)
        operand[2 + i] = operand[2 + m->params + i] = m->grad[i];
    run(WORK_SCALE, plain, m->params + 1, m->params, operand + 1);
}

static void update(struct model *m, uint32_t step)
{
    tensor operand[7 * PARAMS];
    for (uint32_t i = 0; i < m->params; i++) {
        const tensor lists[7] = {m->grad[i],  m->param[i], m->m[i], m->n[i],
                                 m->param[i], m->m[i],     m->n[i]};
        for (uint32_t list = 0; list < 7; list++)
            operand[list * m->params + i] = lists[list];
    }
    const struct work work = {.kind = WORK_ADAMW,
                              .ins = 4 * m->params,
                              .outs = 3 * m->params,
                              .operand = operand,
                              .update = {1e-3F, 0.9F, 0.95F, 1e-8F, 0.1F, step}};
    assert_int_equal(run_on_backend(&work, NULL), ERR_OK);
}

/* ---- the reference's formulas ---- */

static uint32_t mix(uint64_t x, uint32_t shift)
{
    x &= UINT32_MAX;
    return (uint32_t)((x ^ (x >> shift)) * 2246822519U);
}

static bool ends_with(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

static tensor allocate(struct shape shape)
{
    tensor x = {calloc(shape_elements(&shape), sizeof(float)), shape, 0, DTYPE_FP32, NULL};
    assert_non_null(x.data);
    return x;
}

static void add_param(struct model *m, const char *name, struct shape shape)
{
    const uint32_t p = m->params++;
    m->param[p] = allocate(shape);
    m->grad[p] = allocate(shape);
    m->m[p] = allocate(shape);
    m->n[p] = allocate(shape);
    float *data = m->param[p].data;
    for (uint64_t i = 0; i < shape_elements(&shape); i++) {
        const uint32_t x = mix(i * 2654435761U + (uint64_t)(p + 1) * 40503U * 65537U + 12345U, 16);
        data[i] = (float)((x / 4294967296.0 - 0.5) * 0.2);
        if (ends_with(name, ".bias"))
            data[i] = 0;
        else if (shape.rank == 1)
            data[i] = 1;
    }
}

static void set_tokens(struct model *m, uint32_t step)
{
    int64_t *ids = m->ids.data, *targets = m->targets.data;
    for (uint64_t i = 0; i < (uint64_t)m->b * (m->s + 1); i++) {
        const uint64_t row = i / (m->s + 1), column = i % (m->s + 1);
        const uint32_t x = mix(i * 1103515245U + (uint64_t)(step + 1) * 12345U * 7919U, 15);
        const int64_t token = (x >> 8) % m->v;
        if (column < m->s)
            ids[row * m->s + column] = token;
        if (column > 0)
            targets[row * m->s + column - 1] = token;
    }
}

static void set_freqs(struct model *m)
{
    const uint32_t pairs = m->d / 2;
    m->freqs = allocate(SHAPE(1, m->s, 1, 2 * pairs));
    m->freqs.shape.dim[3] = pairs;
    m->freqs.dtype = DTYPE_COMPLEX64;
    float *data = m->freqs.data;
    for (uint32_t t = 0; t < m->s; t++) {
        for (uint32_t j = 0; j < pairs; j++) {
            const double angle = t * pow(10000, -2.0 * j / m->d);
            *data++ = (float)cos(angle);
            *data++ = (float)sin(angle);
        }
    }
}

static uint32_t member(const json_t *config, const char *name)
{
    return (uint32_t)json_integer_value(json_object_get(config, name));
}

static void open_model(struct model *m, const json_t *reference)
{
    const json_t *config = json_object_get(reference, "config");
    const json_t *params = json_object_get(reference, "parameters");
    *m = (struct model){
        .h = member(config, "dim"),
        .heads = member(config, "heads"),
        .kv = member(config, "kv_heads"),
        .ffn = member(config, "ffn"),
        .v = member(config, "vocab"),
        .b = member(config, "batch"),
        .s = member(config, "seq"),
    };
    assert_int_equal(member(config, "layers"), LAYERS);
    m->d = m->h / m->heads;
    for (size_t i = 0; i < json_array_size(params); i++) {
        const json_t *param = json_array_get(params, i), *dims = json_array_get(param, 1);
        struct shape shape = {.rank = (uint32_t)json_array_size(dims)};
        for (uint32_t dim = 0; dim < shape.rank; dim++)
            shape.dim[dim] = (uint32_t)json_integer_value(json_array_get(dims, dim));
        add_param(m, json_string_value(json_array_get(param, 0)), shape);
    }
    m->ids = allocate(SHAPE(m->b, m->s, 2));
    m->targets = allocate(SHAPE(m->b * m->s, 2));
    m->ids.shape = SHAPE(m->b, m->s);
    m->targets.shape = SHAPE(m->b * m->s);
    m->ids.dtype = m->targets.dtype = DTYPE_INT64;
    m->scratch = malloc(SCRATCH);
    assert_non_null(m->scratch);
    set_freqs(m);
}

static void close_model(struct model *m)
{
    for (uint32_t i = 0; i < m->params; i++) {
        free(m->param[i].data);
        free(m->grad[i].data);
        free(m->m[i].data);
        free(m->n[i].data);
    }
    free(m->ids.data);
    free(m->targets.data);
    free(m->freqs.data);
    free(m->scratch);
}

/* ---- the tests ---- */

/* Returns how far apart two numbers are, relative to the one wanted. */
static double off_by(double got, double wanted, const char *what, uint32_t step)
{
    const double off = fabs(got - wanted) / fabs(wanted);
    if (!(off <= 1e-5))
        fail_msg("step %u: %s is %.9g instead of %.9g", step, what, got, wanted);
    return off;
}

static void check_first_step(const struct model *m, const json_t *reference,
                             const tensor norms[PARAMS])
{
    const json_t *wanted = json_object_get(reference, "first_step_grad_norm_by_parameter");
    const json_t *params = json_object_get(reference, "parameters");
    for (uint32_t i = 0; i < m->params; i++) {
        const char *name = json_string_value(json_array_get(json_array_get(params, i), 0));
        const double norm = json_real_value(json_object_get(wanted, name));
        if (norm > 1e-6) /* a key's bias has no gradient but rounding errors */
            off_by((double)*(float *)norms[i].data, norm, name, 1);
    }
}

static void train(struct model *m, const json_t *reference)
{
    const json_t *max_norm = json_object_get(reference, "clip");
    const bool is_llama = m->kv != 0;
    double worst_loss = 0, worst_norm = 0;
    const bool emulated = strcmp(backend_in_use->name, "cuda, emulated") == 0;
    const uint32_t few = json_is_real(max_norm) && !is_soak() ? 2 : EMULATED_STEPS;
    for (uint32_t step = 0; step < (emulated ? few : STEPS); step++) {
        tensor norms[PARAMS];
        m->used = 0;
        set_tokens(m, step);
        const double loss = is_llama ? llama_step(m) : gpt2_step(m);
        const double norm = grad_norm(m, norms);
        if (json_is_real(max_norm)) {
            clip(m, norm, (float)json_real_value(max_norm));
            grad_norm(m, norms);
        }
        if (step == 0)
            check_first_step(m, reference, norms);
        update(m, step + 1);
        const json_t *losses = json_object_get(reference, "loss");
        const json_t *grad_norms = json_object_get(reference, "grad_norm");
        worst_loss = fmax(worst_loss, off_by(loss, json_real_value(json_array_get(losses, step)),
                                             "loss", step + 1));
        worst_norm =
            fmax(worst_norm, off_by(norm, json_real_value(json_array_get(grad_norms, step)),
                                    "gradient norm", step + 1));
    }
    printf("note: %s%s: loss within %.1e, gradient norm within %.1e\n",
           json_string_value(json_object_get(reference, "kind")),
           json_is_real(max_norm) ? " clipped" : "", worst_loss, worst_norm);
}

static void train_reference(const char *kind, bool clipped)
{
    json_t *all = json_load_file("tests/data/numerics/reference.json", 0, NULL);
    assert_non_null(all);
    bool found = false;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *reference = json_array_get(all, i);
        if (strcmp(json_string_value(json_object_get(reference, "kind")), kind) != 0 ||
            json_is_real(json_object_get(reference, "clip")) != clipped)
            continue;
        struct model m;
        open_model(&m, reference);
        train(&m, reference);
        close_model(&m);
        found = true;
    }
    json_decref(all);
    assert_true(found);
}

static void a_llama_trains_as_in_pytorch(void **state)
{
    (void)state;
    train_reference("llama", false);
}

static void a_llama_trains_with_clipping_as_in_pytorch(void **state)
{
    (void)state;
    train_reference("llama", true);
}

static void a_gpt2_trains_as_in_pytorch(void **state)
{
    (void)state;
    train_reference("gpt2", false);
}

static void a_gpt2_trains_with_clipping_as_in_pytorch(void **state)
{
    (void)state;
    train_reference("gpt2", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_trains_as_in_pytorch),
        cmocka_unit_test(a_llama_trains_with_clipping_as_in_pytorch),
        cmocka_unit_test(a_gpt2_trains_as_in_pytorch),
        cmocka_unit_test(a_gpt2_trains_with_clipping_as_in_pytorch),
    };
    return on_backends("work_training", tests, sizeof tests / sizeof tests[0]);
}
