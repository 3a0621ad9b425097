/* test_work_gradients.c - layers against plain references in double, and their gradients against
 * differences of those.
 *
 * A layer is given as `forward`: inputs in double to one output in double. For random weights r of
 * the output the gradient of Σ r · output by an input is (f(x + e) - f(x - e)) / 2e; what the
 * kernel makes of dy = r must agree for a sample of each input's elements. Rows of the output that
 * do not depend on an element are the same in both, and need not be computed again. */
#include "tests/support/work_check.h"

#include <stdio.h>

enum { INPUTS = 3, SAMPLES = 48, KERNELS = 2 };

struct element { /* of an input: one that is changed */
    uint32_t input;
    uint64_t at;
};

struct layer {
    /* The rows of `out` that depend on `changed`; NULL: all. */
    void (*forward)(const struct layer *layer, const struct element *changed,
                    double *const in[INPUTS], double *out);
    enum work_kind kind;      /* of an elementwise function */
    uint32_t rows, h;         /* norms, losses */
    uint32_t b, s, s_k, a, d; /* attention */
    uint32_t window;
    float softcap;
    bool causal, centred;
    uint32_t parameters; /* of a norm: none, a weight, and a bias */
    const int64_t *targets;
};

static const float small = 1e-5F;

static double *doubles_of(const struct work_operand *x)
{
    const uint64_t count = shape_elements(&x->shape);
    double *out = malloc((count + 1) * sizeof *out);
    assert_non_null(out);
    for (uint64_t i = 0; i < count; i++)
        out[i] = value(x, i);
    return out;
}

/* ---- comparing ---- */

static double largest(const double *x, uint64_t n)
{
    double most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

/* `got` may be off by `room` of the largest number wanted. */
static void expect_near(double got, double wanted, double most, double room, const char *what,
                        uint64_t i)
{
    if (!(fabs(got - wanted) <= room * fmax(most, 1e-3)))
        fail_msg("%s element %llu is %.9g instead of %.9g", what, (unsigned long long)i, got,
                 wanted);
}

/* fp32: a few roundings of sums; 16-bit: the rounding of results, and of what went between. */
static double room_of(enum dtype dtype)
{
    return dtype == DTYPE_FP32 ? 4e-6 : 2.5 * half_unit(dtype);
}

static void check_output(const struct layer *layer, const struct work_operand *in, uint32_t ins,
                         const struct work_operand *y)
{
    const uint64_t count = shape_elements(&y->shape);
    double *x[INPUTS] = {0}, *out = calloc(count, sizeof *out);
    assert_non_null(out);
    for (uint32_t i = 0; i < ins; i++)
        x[i] = doubles_of(&in[i]);
    layer->forward(layer, NULL, x, out);
    const double most = largest(out, count);
    for (uint64_t i = 0; i < count; i++)
        expect_near(value(y, i), out[i], most, room_of((enum dtype)y->dtype), "output", i);
    for (uint32_t i = 0; i < ins; i++)
        free(x[i]);
    free(out);
}

static double weighted(const struct layer *layer, const struct element *changed,
                       double *const x[INPUTS], const double *r, uint64_t count, double *out)
{
    layer->forward(layer, changed, x, out);
    double sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += r[i] * out[i];
    return sum;
}

static double largest_of(const struct work_operand *x)
{
    double *all = doubles_of(x);
    const double most = largest(all, shape_elements(&x->shape));
    free(all);
    return most;
}

static void expect_slope(const struct work_operand *dx, uint64_t at, double slope, double most)
{
    expect_near(value(dx, at), slope, most, room_of((enum dtype)dx->dtype), "gradient", at);
}

/* dx[i] is a kernel's gradient of in[i]; one without data was not asked for. The gradients of so
 * many `kernels`, one after the other. */
static void check_gradients_of(const struct layer *layer, const struct work_operand *in,
                               uint32_t ins, const struct work_operand *dy,
                               const struct work_operand *dx, uint32_t kernels)
{
    const uint64_t outs = shape_elements(&dy->shape);
    double *x[INPUTS] = {0}, *r = doubles_of(dy), *out = calloc(outs, sizeof *out);
    assert_non_null(out);
    for (uint32_t i = 0; i < ins; i++)
        x[i] = doubles_of(&in[i]);
    for (uint32_t i = 0; i < ins; i++) {
        if (!dx[i].data)
            continue;
        const uint64_t count = shape_elements(&dx[i].shape);
        const double e = 1e-4;
        const uint64_t step = count > SAMPLES ? count / SAMPLES : 1;
        double most[KERNELS];
        for (uint32_t k = 0; k < kernels; k++)
            most[k] = largest_of(&dx[k * ins + i]);
        for (uint64_t at = 0; at < count; at += step) {
            const struct element changed = {i, at};
            const double here = x[i][at];
            x[i][at] = here + e;
            const double above = weighted(layer, &changed, x, r, outs, out);
            x[i][at] = here - e;
            const double below = weighted(layer, &changed, x, r, outs, out);
            x[i][at] = here;
            for (uint32_t k = 0; k < kernels; k++)
                expect_slope(&dx[k * ins + i], at, (above - below) / (2 * e), most[k]);
        }
    }
    for (uint32_t i = 0; i < ins; i++)
        free(x[i]);
    free(r);
    free(out);
}

static void check_gradients(const struct layer *layer, const struct work_operand *in, uint32_t ins,
                            const struct work_operand *dy, const struct work_operand *dx)
{
    check_gradients_of(layer, in, ins, dy, dx, 1);
}

static void run_attr(enum work_kind kind, struct kernel_attr attr, uint32_t ins, uint32_t outs,
                     const struct work_operand *operand)
{
    const struct work work = {
        .kind = kind, .ins = ins, .outs = outs, .operand = operand, .attr = attr};
    run_work(&work);
}

/* ---- elementwise ---- */

static void activate(const struct layer *layer, const struct element *changed,
                     double *const in[INPUTS], double *out)
{
    (void)changed;
    for (uint32_t i = 0; i < layer->rows; i++) {
        const double x = in[0][i];
        if (layer->kind == WORK_SILU)
            out[i] = x / (1 + exp(-x));
        else if (layer->kind == WORK_GELU)
            out[i] = x * erfc(-x / sqrt(2)) / 2;
        else if (layer->kind == WORK_GELU_TANH)
            out[i] = 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
        else
            out[i] = fmax(x, 0);
    }
}

static void activations_and_their_slopes(void **state)
{
    (void)state;
    static const enum work_kind kinds[4][2] = {{WORK_SILU, WORK_SILU_BACKWARD},
                                               {WORK_GELU, WORK_GELU_BACKWARD},
                                               {WORK_GELU_TANH, WORK_GELU_TANH_BACKWARD},
                                               {WORK_RELU, WORK_RELU_BACKWARD}};
    FOR_DTYPES()
    {
        for (uint32_t k = 0; k < 4; k++) {
            const struct layer layer = {activate, .kind = kinds[k][0], .rows = 1031};
            struct work_operand x = filled(dtype, SHAPE(1031)), y = empty(dtype, SHAPE(1031));
            struct work_operand dy = filled(dtype, SHAPE(1031)), dx = empty(dtype, SHAPE(1031));
            for (uint32_t i = 0; i < 1031; i++) /* away from the corner of relu, and further out */
                put(&x, i, value(&x, i) * 6 + (value(&x, i) < 0 ? -0.01 : 0.01));
            run_kind(kinds[k][0], 1, 1, (struct work_operand[]){x, y});
            check_output(&layer, &x, 1, &y);
            run_kind(kinds[k][1], 2, 1,
                     (struct work_operand[]){dy, layer.kind == WORK_RELU ? y : x, dx});
            check_gradients(&layer, &x, 1, &dy, &dx);
            drop_all(4, (struct work_operand[]){x, y, dy, dx});
        }
    }
}

/* ---- norms ---- */

static void normalize(const struct layer *layer, const struct element *changed,
                      double *const in[INPUTS], double *out)
{
    (void)changed;
    const uint32_t h = layer->h;
    for (uint32_t row = 0; row < layer->rows; row++) {
        const double *x = in[0] + (size_t)row * h;
        double mean = 0, squares = 0;
        for (uint32_t i = 0; i < h && layer->centred; i++)
            mean += x[i] / h;
        for (uint32_t i = 0; i < h; i++)
            squares += (x[i] - mean) * (x[i] - mean) / h;
        for (uint32_t i = 0; i < h; i++)
            out[row * h + i] = (x[i] - mean) / sqrt(squares + (double)small) *
                                   (layer->parameters > 0 ? in[1][i] : 1) +
                               (layer->parameters > 1 ? in[2][i] : 0);
    }
}

static void rms_norm_and_its_gradients(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        const struct layer layer = {normalize, .rows = 15, .h = 37, .parameters = 1};
        const struct kernel_attr attr = {.eps = small};
        const struct shape shape = SHAPE(3, 5, 37);
        struct work_operand in[2] = {pitched(dtype, shape, 41), filled(dtype, SHAPE(37))};
        struct work_operand y = empty(dtype, shape), rstd = empty(DTYPE_FP32, SHAPE(3, 5, 1));
        struct work_operand dy = filled(dtype, shape);
        struct work_operand dx[2] = {empty(dtype, shape), empty(dtype, SHAPE(37))};
        run_attr(WORK_RMS_NORM, attr, 2, 2, (struct work_operand[]){in[0], in[1], y, rstd});
        check_output(&layer, in, 2, &y);
        run_attr(WORK_RMS_NORM_BACKWARD, attr, 4, 2,
                 (struct work_operand[]){dy, in[0], in[1], rstd, dx[0], dx[1]});
        check_gradients(&layer, in, 2, &dy, dx);
        drop_all(2, in);
        drop_all(2, dx);
        drop_all(3, (struct work_operand[]){y, rstd, dy});
    }
}

/* Outputs of backward: a bit for each of dx, dweight, dbias. */
static void check_layer_norm(enum dtype dtype, uint32_t parameters, uint32_t asked)
{
    const struct layer layer = {normalize, .rows = 15, .h = 37, .centred = true,
                                .parameters = parameters};
    const uint32_t ins = 1 + parameters;
    const struct kernel_attr attr = {.eps = small};
    const struct shape shape = SHAPE(3, 5, 37);
    struct work_operand in[3] = {filled(dtype, shape), filled(dtype, SHAPE(37)),
                                 filled(dtype, SHAPE(37))};
    struct work_operand y = empty(dtype, shape), dy = filled(dtype, shape), dx[3] = {{0}};
    struct work_operand mean = empty(dtype, SHAPE(3, 5, 1)), rstd = empty(dtype, SHAPE(3, 5, 1));
    for (uint32_t i = 0; i < 555; i++) /* a mean far from 0: 16 bits of it would not do */
        put(&in[0], i, value(&in[0], i) + 3);
    struct work_operand operand[8] = {in[0], in[1], in[2]};
    operand[ins] = y;
    operand[ins + 1] = mean;
    operand[ins + 2] = rstd;
    run_attr(WORK_LAYER_NORM, attr, ins, 3, operand);
    check_output(&layer, in, ins, &y);
    uint32_t outs = 0, read = 0;
    operand[read++] = dy;
    operand[read++] = in[0];
    if (parameters)
        operand[read++] = in[1];
    operand[read++] = mean;
    operand[read++] = rstd;
    for (uint32_t i = 0; i < 3; i++) {
        if (!(asked >> i & 1U))
            continue;
        dx[i] = empty(dtype, in[i].shape);
        operand[read + outs++] = dx[i];
    }
    run_attr(WORK_LAYER_NORM_BACKWARD, attr, read, outs, operand);
    check_gradients(&layer, in, ins, &dy, dx);
    drop_all(3, in);
    drop_all(3, dx);
    drop_all(4, (struct work_operand[]){y, dy, mean, rstd});
}

static void layer_norm_and_its_gradients(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        check_layer_norm(dtype, 2, 7);
        check_layer_norm(dtype, 2, 1); /* dx alone: frozen weights */
        check_layer_norm(dtype, 2, 6); /* without dx: the first layer */
        check_layer_norm(dtype, 1, 3); /* no bias */
        check_layer_norm(dtype, 0, 1); /* nor a weight */
    }
}

/* ---- attention ---- */

/* An element of q changes one row, of k and v those of its head that see it. */
static bool attends_otherwise(const struct layer *l, const struct element *changed, uint32_t row)
{
    if (!changed)
        return true;
    const uint32_t at = (uint32_t)(changed->at / l->d); /* of whose tokens and heads */
    if (changed->input == 0)
        return at == row;
    return at % l->a == row % l->a && at / l->a / l->s_k == row / l->a / l->s &&
           (!l->causal || at / l->a % l->s_k <= row / l->a % l->s);
}

/* In four sums, none of which waits for another: most of these tests' time is here. */
static double product(const double *x, const double *y, uint32_t count)
{
    double sum[4] = {0};
    uint32_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (uint32_t k = 0; k < 4; k++)
            sum[k] += x[i + k] * y[i + k];
    for (; i < count; i++)
        sum[0] += x[i] * y[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

static void attend(const struct layer *l, const struct element *changed, double *const in[INPUTS],
                   double *out)
{
    double *p = calloc(l->s_k, sizeof *p);
    const double root = sqrt(l->d);
    assert_non_null(p);
    for (uint32_t row = 0; row < l->b * l->s * l->a; row++) {
        if (!attends_otherwise(l, changed, row))
            continue;
        const uint32_t b = row / (l->s * l->a), i = row / l->a % l->s, head = row % l->a;
        const uint32_t own = l->causal && i + 1 < l->s_k ? i + 1 : l->s_k;
        const uint32_t seen = l->window && i + l->window < own ? i + l->window : own;
        const uint32_t first = l->window && i >= l->window ? i + 1 - l->window : 0;
        const double *q = in[0] + (size_t)row * l->d;
        double sum = 0;
        for (uint32_t j = first; j < seen; j++) {
            const double *k = in[1] + ((size_t)(b * l->s_k + j) * l->a + head) * l->d;
            double score = product(q, k, l->d) / root;
            if (l->softcap > 0)
                score = (double)l->softcap * tanh(score / (double)l->softcap);
            p[j] = exp(score);
            sum += p[j];
        }
        double *o = out + (size_t)row * l->d;
        memset(o, 0, l->d * sizeof *o);
        for (uint32_t j = first; j < seen; j++) {
            const double *v = in[2] + ((size_t)(b * l->s_k + j) * l->a + head) * l->d;
            const double share = p[j] / sum;
            for (uint32_t c = 0; c < l->d; c++)
                o[c] += share * v[c];
        }
    }
    free(p);
}

/* `pitch`: q, k, v are parts of rows that wide. */
static void check_attention(enum dtype dtype, struct layer layer, uint32_t pitch)
{
    layer.forward = attend;
    const struct shape q = SHAPE(layer.b, layer.s, layer.a, layer.d);
    const struct shape k = SHAPE(layer.b, layer.s_k, layer.a, layer.d);
    const struct shape turned = SHAPE(layer.b, layer.a, layer.s, layer.d); /* memory is q's */
    const struct kernel_attr attr = {
        .causal = layer.causal, .window = layer.window, .softcap = layer.softcap};
    struct work_operand in[3] = {pitched(dtype, q, pitch), pitched(dtype, k, pitch),
                                 pitched(dtype, k, pitch)};
    struct work_operand o = empty(dtype, turned), dy = filled(dtype, turned);
    struct work_operand lse = empty(DTYPE_FP32, SHAPE(layer.b, layer.a, layer.s));
    struct work_operand dx[6];
    for (uint32_t i = 0; i < 6; i++)
        dx[i] = empty(dtype, i % 3 ? k : turned);
    const struct work_operand unused = {.dtype = DTYPE_UINT64};
    for (uint64_t i = 0; i < shape_elements(&q); i++)
        put(&in[0], i, 4 * value(&in[0], i)); /* a softmax with a few large terms */
    run_attr(WORK_ATTENTION, attr, 3, 4,
             (struct work_operand[]){in[0], in[1], in[2], o, lse, unused, unused});
    check_output(&layer, in, 3, &o);
    for (uint32_t with_o = 0; with_o < 2; with_o++) {
        struct work_operand operand[9] = {dy, in[0], in[1], in[2], lse, o};
        memcpy(operand + 5 + with_o, dx + 3 * with_o, 3 * sizeof *dx);
        run_attr(WORK_ATTENTION_BACKWARD, attr, 5 + with_o, 3, operand);
    }
    check_gradients_of(&layer, in, 3, &dy, dx, 2);
    drop_all(3, in);
    drop_all(6, dx);
    drop_all(3, (struct work_operand[]){o, dy, lse});
}

static void attention_and_its_gradients(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        for (uint32_t causal = 0; causal < 2; causal++) {
            check_attention(
                dtype, (struct layer){.b = 2, .s = 7, .s_k = 7, .a = 3, .d = 5, .causal = causal},
                0);
            check_attention(
                dtype, (struct layer){.b = 1, .s = 67, .s_k = 67, .a = 2, .d = 5, .causal = causal},
                3 * 2 * 5);
            check_attention(
                dtype, (struct layer){.b = 1, .s = 1, .s_k = 1, .a = 1, .d = 1, .causal = causal},
                0);
        }
        /* heads as models have them; cuDNN's own engines take these */
        check_attention(dtype, (struct layer){.b = 1, .s = 128, .s_k = 128, .a = 1, .d = 64}, 0);
        check_attention(
            dtype, (struct layer){.b = 1, .s = 128, .s_k = 128, .a = 1, .d = 128, .causal = true},
            0);
        check_attention(dtype, (struct layer){.b = 2, .s = 5, .s_k = 129, .a = 1, .d = 3}, 4);
        check_attention(
            dtype, (struct layer){.b = 1, .s = 130, .s_k = 64, .a = 1, .d = 3, .causal = true}, 0);
    }
}

static void attention_with_a_window_and_capped_scores(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        for (uint32_t causal = 0; causal < 2; causal++) {
            check_attention(
                dtype,
                (struct layer){
                    .b = 2, .s = 9, .s_k = 9, .a = 2, .d = 5, .window = 3, .causal = causal},
                0);
            check_attention(dtype,
                            (struct layer){.b = 1,
                                           .s = 150,
                                           .s_k = 150,
                                           .a = 1,
                                           .d = 3,
                                           .window = 20, /* tiles that no query sees */
                                           .softcap = 1.5F,
                                           .causal = causal},
                            0);
            check_attention(
                dtype,
                (struct layer){
                    .b = 1, .s = 67, .s_k = 67, .a = 2, .d = 5, .softcap = 2, .causal = causal},
                3 * 2 * 5);
        }
    }
}

static void attention_of_large_scores_stays_finite(void **state)
{
    (void)state;
    struct work_operand q = filled(DTYPE_FP32, SHAPE(1, 150, 1, 4)),
                        v = filled(DTYPE_FP32, q.shape);
    struct work_operand o = empty(DTYPE_FP32, q.shape), lse = empty(DTYPE_FP32, SHAPE(1, 1, 150));
    for (uint32_t i = 0; i < 600; i++)
        put(&q, i, i % 4 ? 0 : i); /* scores to 10⁵: each token sees itself, the longest, alone */
    run_attr(WORK_ATTENTION, (struct kernel_attr){.causal = true}, 3, 2,
             (struct work_operand[]){q, q, v, o, lse});
    for (uint32_t i = 16; i < 600; i++)
        close_to(&o, i, value(&v, i), 1);
    put(&v, 4 * 149, NAN);
    run_attr(WORK_ATTENTION, (struct kernel_attr){.causal = true}, 3, 2,
             (struct work_operand[]){q, q, v, o, lse});
    assert_true(isnan(value(&o, 4 * 149)));
    close_to(&o, 4 * 100, value(&v, 4 * 100), 1);
    drop_all(4, (struct work_operand[]){q, v, o, lse});
}

static void logsumexp_may_have_wider_rows(void **state)
{
    (void)state;
    struct work_operand q = filled(DTYPE_FP32, SHAPE(2, 5, 2, 4)), o = empty(DTYPE_FP32, q.shape);
    struct work_operand narrow = empty(DTYPE_FP32, SHAPE(2, 2, 5));
    struct work_operand wide = empty(DTYPE_FP32, SHAPE(2, 2, 32));
    struct work_operand dx[2] = {empty(DTYPE_FP32, q.shape), empty(DTYPE_FP32, q.shape)};
    const struct work_operand lse[2] = {narrow, wide};
    for (uint32_t i = 0; i < 2; i++) {
        run_attr(WORK_ATTENTION, (struct kernel_attr){0}, 3, 2,
                 (struct work_operand[]){q, q, q, o, lse[i]});
        run_attr(WORK_ATTENTION_BACKWARD, (struct kernel_attr){0}, 5, 3,
                 (struct work_operand[]){q, q, q, q, lse[i], dx[i], o, o});
    }
    for (uint32_t i = 0; i < 20; i++)
        close_to(&wide, i / 5 * 32 + i % 5, value(&narrow, i), 0);
    assert_memory_equal(dx[0].data, dx[1].data, 80 * sizeof(float));
    drop_all(2, dx);
    drop_all(4, (struct work_operand[]){q, o, narrow, wide});
}

static void attention_refuses_what_it_has_no_form_for(void **state)
{
    (void)state;
    struct work_operand q = filled(DTYPE_FP32, SHAPE(2, 5, 2, 4)), k = q, lse = q, one = q;
    k.shape = SHAPE(2, 5, 4, 2);
    lse.shape = SHAPE(2, 2, 5);
    one.shape = SHAPE(2, 5, 8);
    struct work_operand operand[] = {q, k, q, q, lse}, flat[] = {one, one, one, one, lse};
    struct work_operand back[] = {q, q, q, q, lse, q, q, q, q};
    expect_refusal(ERR_INVALID, WORK_ATTENTION, 3, 2, operand);
    expect_refusal(ERR_INVALID, WORK_ATTENTION, 3, 2, flat);
    expect_refusal(ERR_INVALID, WORK_ATTENTION, 4, 1, operand); /* a bias */
    expect_refusal(ERR_UNSUPPORTED, WORK_ATTENTION_BACKWARD, 5, 4, back);
    drop_all(1, &q);
}

/* ---- loss ---- */

static void log_softmax(const struct layer *layer, const struct element *changed,
                        double *const in[INPUTS], double *out)
{
    for (uint32_t row = 0; row < layer->rows; row++) {
        if (changed && changed->at / layer->h != row)
            continue;
        const double *x = in[0] + (size_t)row * layer->h;
        double sum = exp(x[0]);
        for (uint32_t i = 1; i < layer->h; i++)
            sum += exp(x[i]);
        const double logarithm = log(sum);
        for (uint32_t i = 0; i < layer->h; i++)
            out[row * layer->h + i] = x[i] - logarithm;
    }
}

static void check_log_softmax(enum dtype dtype, uint32_t rows, uint32_t h)
{
    const struct layer layer = {log_softmax, .rows = rows, .h = h};
    const struct shape shape = SHAPE(rows, h);
    struct work_operand x = filled(dtype, shape), y = empty(dtype, shape);
    struct work_operand dy = filled(dtype, shape), dx = empty(dtype, shape);
    run_kind(WORK_LOG_SOFTMAX, 1, 1, (struct work_operand[]){x, y});
    check_output(&layer, &x, 1, &y);
    for (uint32_t i = 0; i < rows * h; i++) /* a sum like that of nll_loss, one sign */
        put(&dy, i, i % h == 3 ? -1 : 0);
    run_kind(WORK_LOG_SOFTMAX_BACKWARD, 2, 1, (struct work_operand[]){dy, y, dx});
    check_gradients(&layer, &x, 1, &dy, &dx);
    drop_all(4, (struct work_operand[]){x, y, dy, dx});
}

/* Rows of 67 and of GPT-2's vocabulary begin where no 16-byte access does. */
static void log_softmax_and_its_gradient(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        check_log_softmax(dtype, 5, 67);
        check_log_softmax(dtype, 3, 50257);
        check_log_softmax(dtype, 2, 4096);
    }
}

static void mean_loss(const struct layer *layer, const struct element *changed,
                      double *const in[INPUTS], double *out)
{
    (void)changed;
    uint32_t count = 0;
    *out = 0;
    for (uint32_t row = 0; row < layer->rows; row++)
        count += layer->targets[row] >= 0;
    for (uint32_t row = 0; row < layer->rows; row++)
        if (layer->targets[row] >= 0)
            *out -= in[0][row * layer->h + (uint32_t)layer->targets[row]] / count;
}

static void nll_loss_and_its_gradient(void **state)
{
    (void)state;
    int64_t ids[6] = {3, 0, 10, -100, 3, 7};
    const struct layer layer = {mean_loss, .rows = 6, .h = 11, .targets = ids};
    const struct work_operand targets = {ids, SHAPE(6), 0, DTYPE_INT64, NULL};
    const struct shape scalar = {.rank = 0};
    FOR_DTYPES()
    {
        struct work_operand x = filled(dtype, SHAPE(6, 11)), dx = empty(dtype, SHAPE(6, 11));
        struct work_operand loss = empty(dtype, scalar), weight = empty(dtype, scalar);
        struct work_operand dloss = filled(dtype, scalar);
        run_kind(WORK_NLL_LOSS, 2, 2, (struct work_operand[]){x, targets, loss, weight});
        check_output(&layer, &x, 1, &loss);
        close_to(&weight, 0, 5, 0); /* one target is ignored */
        run_kind(WORK_NLL_LOSS_BACKWARD, 2, 1, (struct work_operand[]){dloss, targets, dx});
        check_gradients(&layer, &x, 1, &dloss, &dx);
        ids[1] = 11;
        expect_refusal(ERR_INVALID, WORK_NLL_LOSS, 2, 2,
                       (struct work_operand[]){x, targets, loss, weight});
        ids[1] = 0;
        drop_all(5, (struct work_operand[]){x, dx, loss, weight, dloss});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_and_their_slopes),
        cmocka_unit_test(rms_norm_and_its_gradients),
        cmocka_unit_test(layer_norm_and_its_gradients),
        cmocka_unit_test(attention_and_its_gradients),
        cmocka_unit_test(attention_with_a_window_and_capped_scores),
        cmocka_unit_test(attention_of_large_scores_stays_finite),
        cmocka_unit_test(logsumexp_may_have_wider_rows),
        cmocka_unit_test(attention_refuses_what_it_has_no_form_for),
        cmocka_unit_test(log_softmax_and_its_gradient),
        cmocka_unit_test(nll_loss_and_its_gradient),
    };
    return on_backends("work_gradients", tests, sizeof tests / sizeof tests[0]);
}
