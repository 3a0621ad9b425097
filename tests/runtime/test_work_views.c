/* test_work_views.c - work on views with strides, and the kinds that transformers' code is made of,
 * against plain loops in double. */
#include "tests/support/work_check.h"

#include "base/layout.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- running ---- */

static void run_with(enum work_kind kind, struct kernel_attr attr, uint32_t ins, uint32_t outs,
                     const struct work_operand *operand)
{
    const struct work work = {
        .kind = kind, .ins = ins, .outs = outs, .operand = operand, .attr = attr, .ranks = 1};
    run_work(&work);
}

/* Element i of an operand's list, however it lies. */
static double at(const struct work_operand *x, uint64_t i)
{
    struct work_operand whole = *x;
    uint64_t place = 0;
    if (!x->layout)
        return value(x, i);
    for (uint32_t d = x->shape.rank; d-- > 0; i /= x->shape.dim[d])
        place += i % x->shape.dim[d] * x->layout->of[d];
    whole.layout = NULL;
    whole.pitch = 0;
    return value(&whole, place);
}

/* (3, 2, 5, 4) that lies as (3, 5, 2, 4) does. */
static struct work_operand heads(enum dtype dtype, struct strides *room)
{
    struct work_operand x = filled(dtype, SHAPE(3, 5, 2, 4));
    *room = (struct strides){{40, 4, 8, 1}};
    x.shape = SHAPE(3, 2, 5, 4);
    x.layout = room;
    return x;
}

/* ---- elementwise ---- */

static double of_kind(enum work_kind kind, double x, double y, double p)
{
    switch (kind) {
    case WORK_ADD:
        return x + y;
    case WORK_SUB:
        return x - y;
    case WORK_MUL:
        return x * y;
    case WORK_DIV:
        return x / y;
    case WORK_MINIMUM:
        return fmin(x, y);
    case WORK_ADD_NUMBER:
        return x + p;
    case WORK_MUL_NUMBER:
        return x * p;
    case WORK_DIV_NUMBER:
        return x / p;
    case WORK_AT_MOST:
        return fmin(x, p);
    case WORK_AT_LEAST:
        return fmax(x, p);
    case WORK_WITHIN:
        return fmax(-p, fmin(x, p));
    case WORK_NEG:
        return -x;
    case WORK_ABS:
        return fabs(x);
    case WORK_POW:
        return pow(x, p);
    case WORK_COS:
        return cos(x);
    case WORK_SIN:
        return sin(x);
    case WORK_TANH:
        return tanh(x);
    case WORK_TANH_BACKWARD:
        return x * (1 - y * y);
    case WORK_SIGMOID:
        return 1 / (1 + exp(-x));
    case WORK_SIGMOID_BACKWARD:
        return x * y * (1 - y);
    case WORK_SOFTPLUS:
        return log1p(exp(x));
    case WORK_SOFTPLUS_BACKWARD:
        return x / (1 + exp(-y));
    case WORK_POWER_OF:
        return pow(p, x);
    case WORK_EXPM1:
        return expm1(x);
    case WORK_LOG:
        return log(p + x);
    case WORK_LESS:
        return x < y;
    case WORK_GREATER_NUMBER:
        return x > p;
    default:
        return x; /* CAST, REORDER */
    }
}

static void elementwise_work_reads_any_strides_and_broadcasts(void **state)
{
    static const struct {
        enum work_kind kind;
        uint32_t ins;
        float p;
    } rows[] = {
        {WORK_ADD, 2, 0},
        {WORK_SUB, 2, 0},
        {WORK_MUL, 2, 0},
        {WORK_DIV, 2, 0},
        {WORK_MINIMUM, 2, 0},
        {WORK_ADD_NUMBER, 1, 0.75F},
        {WORK_MUL_NUMBER, 1, -3},
        {WORK_DIV_NUMBER, 1, 7},
        {WORK_AT_MOST, 1, 0.25F},
        {WORK_WITHIN, 1, 0.5F},
        {WORK_AT_LEAST, 1, 0.25F},
        {WORK_NEG, 1, 0},
        {WORK_ABS, 1, 0},
        {WORK_POW, 1, 2},
        {WORK_POW, 1, 3},
        {WORK_COS, 1, 0},
        {WORK_SIN, 1, 0},
        {WORK_TANH, 1, 0},
        {WORK_TANH_BACKWARD, 2, 0},
        {WORK_SIGMOID, 1, 0},
        {WORK_SIGMOID_BACKWARD, 2, 0},
        {WORK_SOFTPLUS, 1, 0},
        {WORK_SOFTPLUS_BACKWARD, 2, 0},
        {WORK_EXPM1, 1, 0},
        {WORK_POWER_OF, 1, 0.75F},
        {WORK_LOG, 1, 8},
        {WORK_CAST, 1, 0},
        {WORK_REORDER, 1, 0},
    };
    (void)state;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct strides room, wide;
        const struct shape table = SHAPE(1, 1, 5, 4);
        struct work_operand x = heads(DTYPE_FP32, &room), y = filled(DTYPE_FP32, table);
        struct work_operand z = empty(DTYPE_FP32, SHAPE(3, 2, 5, 4));
        struct work_operand operand[3] = {x, rows[r].ins > 1 ? y : z, z};
        const struct strides own = layout_of_rows(&table, 0);
        assert_true(layout_expand(&table, &own, &z.shape, &wide));
        run_with(rows[r].kind, (struct kernel_attr){.p = rows[r].p}, rows[r].ins, 1, operand);
        for (uint64_t i = 0; i < operand_count(&z); i++)
            close_to(&z, i, of_kind(rows[r].kind, at(&x, i), value(&y, i % 20), (double)rows[r].p),
                     8);
        drop_all(3, (struct work_operand[]){x, y, z});
    }
}

static void truths_are_bytes_that_choose(void **state)
{
    struct work_operand x = filled(DTYPE_FP32, SHAPE(2, 3, 8)), y = filled(DTYPE_FP32, SHAPE(8));
    struct work_operand z = empty(DTYPE_FP32, SHAPE(2, 3, 8));
    uint8_t less[48];
    const struct work_operand mask = {less, SHAPE(2, 3, 8), 0, DTYPE_BOOL, NULL};
    (void)state;
    run_with(WORK_LESS, (struct kernel_attr){0}, 2, 1, (struct work_operand[]){x, y, mask});
    for (uint64_t i = 0; i < 48; i++)
        assert_int_equal(less[i], value(&x, i) < value(&y, i % 8));
    run_with(WORK_WHERE, (struct kernel_attr){0}, 3, 1, (struct work_operand[]){mask, x, y, z});
    for (uint64_t i = 0; i < 48; i++)
        close_to(&z, i, less[i] ? value(&x, i) : value(&y, i % 8), 0);
    run_with(WORK_MASKED_FILL, (struct kernel_attr){.p = -9}, 2, 1,
             (struct work_operand[]){x, mask, z});
    for (uint64_t i = 0; i < 48; i++)
        close_to(&z, i, less[i] ? -9 : value(&x, i), 0);
    drop_all(3, (struct work_operand[]){x, y, z});
}

/* ---- rows ---- */

static void slices_are_put_back_where_they_were(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand x = filled(dtype, SHAPE(3, 7)), part = empty(dtype, SHAPE(3, 2));
        struct work_operand whole = empty(dtype, SHAPE(3, 7)), wide = empty(dtype, SHAPE(3, 9));
        const struct kernel_attr from = {.first = 4, .dim = 2, .p = -100};
        run_with(WORK_SLICE, from, 1, 1, (struct work_operand[]){x, part});
        for (uint64_t i = 0; i < 6; i++)
            close_to(&part, i, value(&x, i / 2 * 7 + 4 + i % 2), 0);
        run_with(WORK_SLICE_BACKWARD, from, 1, 1, (struct work_operand[]){part, whole});
        for (uint64_t i = 0; i < 21; i++)
            close_to(&whole, i, i % 7 == 4 || i % 7 == 5 ? value(&x, i) : 0, 0);
        run_with(WORK_STRIDE_BACKWARD, from, 1, 1, (struct work_operand[]){part, whole});
        for (uint64_t i = 0; i < 21; i++)
            close_to(&whole, i,
                     i % 7 == 4   ? value(&part, i / 7 * 2)
                     : i % 7 == 6 ? value(&part, i / 7 * 2 + 1)
                                  : 0,
                     0);
        run_with(WORK_PAD, from, 1, 1, (struct work_operand[]){x, wide});
        for (uint64_t i = 0; i < 27; i++)
            close_to(&wide, i, i % 9 < 7 ? value(&x, i / 9 * 7 + i % 9) : -100, 0);
        drop_all(4, (struct work_operand[]){x, part, whole, wide});
    }
}

static void rows_are_summed_and_softened(void **state)
{
    enum { ROWS = 6, N = 700 };
    struct work_operand x = filled(DTYPE_FP32, SHAPE(ROWS, N)),
                        y = empty(DTYPE_FP32, SHAPE(ROWS, N));
    struct work_operand one = empty(DTYPE_FP32, SHAPE(ROWS, 1)),
                        dy = filled(DTYPE_FP32, SHAPE(ROWS, N));
    struct work_operand dx = empty(DTYPE_FP32, SHAPE(ROWS, N));
    const struct kernel_attr none = {0};
    (void)state;
    run_with(WORK_MEAN, none, 1, 1, (struct work_operand[]){x, one});
    for (uint64_t row = 0; row < ROWS; row++) {
        double sum = 0;
        for (uint64_t i = 0; i < N; i++)
            sum += value(&x, row * N + i);
        close_to(&one, row, sum / N, 1);
    }
    run_with(WORK_CUMULATIVE_SUM, none, 1, 1, (struct work_operand[]){x, y});
    for (uint64_t row = 0; row < ROWS; row++) {
        double sum = 0;
        for (uint64_t i = 0; i < N; i++)
            close_to(&y, row * N + i, sum += value(&x, row * N + i), 1);
    }
    for (uint64_t i = 0; i < N; i++) /* the last row is masked */
        put(&x, (ROWS - 1) * N + i, -INFINITY);
    run_with(WORK_SAFE_SOFTMAX, none, 1, 1, (struct work_operand[]){x, y});
    {
        run_with(WORK_SOFTMAX_BACKWARD, none, 2, 1, (struct work_operand[]){dy, y, dx});
        for (uint64_t row = 0; row < ROWS; row++) {
            double sum = 0, along = 0;
            for (uint64_t i = 0; i < N; i++)
                sum += exp(value(&x, row * N + i));
            for (uint64_t i = row * N; i < (row + 1) * N; i++)
                along += sum > 0 ? value(&dy, i) * exp(value(&x, i)) / sum : 0;
            for (uint64_t i = row * N; i < (row + 1) * N; i++) {
                const double p = sum > 0 ? exp(value(&x, i)) / sum : 0;
                close_to(&y, i, p, 8);
                close_to(&dx, i, p * (value(&dy, i) - along), 8);
            }
        }
    }
    drop_all(5, (struct work_operand[]){x, y, one, dy, dx});
}

/* ---- matrices ---- */

static void batches_of_turned_matrices_multiply(void **state)
{
    enum { B = 3, M = 4, K = 5, O = 6 };
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand x = filled(dtype, SHAPE(B, M, K)), y = filled(dtype, SHAPE(B, O, K));
        struct work_operand z = empty(dtype, SHAPE(B, M, O));
        struct work_operand turned = y;
        const struct strides room = {{O * K, 1, K}}; /* (b, k, o) that lies as (b, o, k) */
        turned.shape = SHAPE(B, K, O);
        turned.layout = &room;
        for (int way = 0; way < 2; way++) {
            run_with(way ? WORK_BMM_NT : WORK_BMM_NN, (struct kernel_attr){0}, 2, 1,
                     (struct work_operand[]){x, way ? y : turned, z});
            for (uint32_t i = 0; i < B * M * O; i++) {
                const uint32_t b = i / (M * O), m = i / O % M, o = i % O;
                close_to(&z, i, dot(&x, (b * M + m) * K, 1, &y, (b * O + o) * K, 1, K), 16);
            }
        }
        drop_all(3, (struct work_operand[]){x, y, z});
    }
}

static void groups_of_rows_have_matrices_of_their_own(void **state)
{
    enum { T = 7, H = 4, O = 5, G = 3 };
    int32_t ends[G] = {2, 2, 6}; /* one group is empty, and a row behind the last is nobody's */
    const struct work_operand of = {ends, SHAPE(G), 0, DTYPE_INT32, NULL};
    struct work_operand x = filled(DTYPE_FP32, SHAPE(T, H)), w = filled(DTYPE_FP32, SHAPE(G, O, H));
    struct work_operand y = empty(DTYPE_FP32, SHAPE(T, O)), dw = empty(DTYPE_FP32, SHAPE(G, O, H));
    (void)state;
    run_with(WORK_GROUPED_MM_NT, (struct kernel_attr){0}, 3, 1,
             (struct work_operand[]){x, w, of, y});
    {
        for (uint32_t i = 0; i < T * O; i++) {
            const uint32_t t = i / O, g = t < 2 ? 0 : 2;
            close_to(&y, i, t < 6 ? dot(&x, t * H, 1, &w, (g * O + i % O) * H, 1, H) : 0, 8);
        }
        run_with(WORK_GROUPED_MM_TN, (struct kernel_attr){0}, 3, 1,
                 (struct work_operand[]){y, x, of, dw});
        for (uint32_t i = 0; i < G * O * H; i++) {
            const uint32_t g = i / (O * H), first = g == 0 ? 0 : 2;
            const uint32_t rows = g == 0 ? 2 : g == 1 ? 0 : 4;
            close_to(&dw, i, dot(&y, first * O + i / H % O, O, &x, first * H + i % H, H, rows), 16);
        }
        ends[1] = 1; /* before the first's end */
        struct err err = {0};
        const struct work_operand wrong[] = {x, w, of, y};
        const struct work work = {
            .kind = WORK_GROUPED_MM_NT, .ins = 3, .outs = 1, .operand = wrong, .ranks = 1};
        assert_int_equal(run_on_backend(&work, &err), ERR_INVALID);
    }
    drop_all(4, (struct work_operand[]){x, w, y, dw});
}

/* ---- by index ---- */

static void rows_are_taken_and_added(void **state)
{
    int64_t ids[4] = {4, 0, 4, 2};
    const struct work_operand at_rows = {ids, SHAPE(4), 0, DTYPE_INT64, NULL};
    struct work_operand x = filled(DTYPE_FP32, SHAPE(5, 3)), y = empty(DTYPE_FP32, SHAPE(4, 3));
    struct work_operand sum = empty(DTYPE_FP32, SHAPE(5, 3));
    (void)state;
    run_with(WORK_INDEX, (struct kernel_attr){0}, 2, 1, (struct work_operand[]){x, at_rows, y});
    for (uint32_t i = 0; i < 12; i++)
        close_to(&y, i, value(&x, (uint64_t)ids[i / 3] * 3 + i % 3), 0);
    run_with(WORK_INDEX_PUT, (struct kernel_attr){0}, 3, 1,
             (struct work_operand[]){x, at_rows, y, sum});
    for (uint32_t i = 0; i < 15; i++) {
        const double times = i / 3 == 4 ? 3 : i / 3 == 0 || i / 3 == 2 ? 2 : 1;
        close_to(&sum, i, times * value(&x, i), 1);
    }
    ids[1] = 5;
    expect_refusal(ERR_INVALID, WORK_INDEX, 2, 1, (struct work_operand[]){x, at_rows, y});
    drop_all(3, (struct work_operand[]){x, y, sum});
}

static void the_largest_are_chosen_in_order(void **state)
{
    enum { ROWS = 5, N = 9, M = 3 };
    int64_t places[ROWS * M];
    const struct work_operand at_places = {places, SHAPE(ROWS, M), 0, DTYPE_INT64, NULL};
    struct work_operand x = filled(DTYPE_FP32, SHAPE(ROWS, N)),
                        y = empty(DTYPE_FP32, SHAPE(ROWS, M));
    struct work_operand back = zeros(DTYPE_FP32, SHAPE(ROWS, N)),
                        z = empty(DTYPE_FP32, SHAPE(ROWS, N));
    (void)state;
    put(&x, 0, value(&x, 1)); /* of equal ones the first comes first */
    run_with(WORK_TOPK, (struct kernel_attr){0}, 1, 2, (struct work_operand[]){x, y, at_places});
    {
        for (uint64_t row = 0; row < ROWS; row++)
            for (uint64_t k = 0; k < M; k++) {
                uint32_t before = 0;
                const uint64_t place = row * N + (uint64_t)places[row * M + k];
                for (uint64_t i = row * N; i < (row + 1) * N; i++)
                    before += value(&x, i) > value(&x, place) ||
                              (i < place && !(value(&x, i) < value(&x, place)));
                assert_int_equal(before, k);
                close_to(&y, row * M + k, value(&x, place), 0);
            }
        run_with(WORK_SCATTER, (struct kernel_attr){0}, 3, 1,
                 (struct work_operand[]){back, at_places, y, z});
        double all = 0, put_back = 0;
        for (uint64_t i = 0; i < ROWS * M; i++)
            all += value(&y, i);
        for (uint64_t i = 0; i < ROWS * N; i++) {
            put_back += value(&z, i);
            assert_true(fabs(value(&z, i)) < 1e-30 || fabs(value(&z, i) - value(&x, i)) < 1e-30);
        }
        assert_true(fabs(all - put_back) < 1e-5);
    }
    drop_all(4, (struct work_operand[]){x, y, back, z});
}

/* ---- attention with a bias ---- */

static void scores_have_a_bias_and_a_scale(void **state)
{
    enum { B = 2, S = 70, A = 2, D = 4, V = 3 };
    const struct shape rows = SHAPE(B, S, A, D);
    struct work_operand q = filled(DTYPE_FP32, rows), k = filled(DTYPE_FP32, rows);
    struct work_operand v = filled(DTYPE_FP32, SHAPE(B, S, A, V));
    struct work_operand bias = filled(DTYPE_FP32, SHAPE(B, 1, S, S));
    struct work_operand o = empty(DTYPE_FP32, SHAPE(B, S, A, V));
    struct work_operand logsumexp = empty(DTYPE_FP32, SHAPE(B, A, 96));
    (void)state;
    for (uint64_t i = 0; i < operand_count(&bias); i++) /* a window of five */
        if (i % S > i / S % S || i % S + 5 <= i / S % S)
            put(&bias, i, -INFINITY);
    run_with(WORK_EFFICIENT_ATTENTION, (struct kernel_attr){.scale = 0.7F}, 4, 2,
             (struct work_operand[]){q, k, v, bias, o, logsumexp});
    for (uint32_t i = 0; i < B * S * A; i++) {
        const uint32_t b = i / (S * A), s = i / A % S, a = i % A;
        double sum = 0, mixed[V] = {0};
        for (uint32_t t = 0; t < S; t++) {
            const uint32_t key = (b * S + t) * A + a;
            const double p = exp((double)0.7F * dot(&q, i * D, 1, &k, key * D, 1, D) +
                                 value(&bias, (b * S + s) * S + t));
            sum += p;
            for (uint32_t j = 0; j < V; j++)
                mixed[j] += p * value(&v, key * V + j);
        }
        close_to(&logsumexp, (b * A + a) * 96 + s, log(sum), 8);
        for (uint32_t j = 0; j < V; j++)
            close_to(&o, i * V + j, mixed[j] / sum, 16);
    }
    const struct kernel_attr others[] = {{.causal = true}, {.window = 5}, {.softcap = 2}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct work work = {.kind = WORK_EFFICIENT_ATTENTION,
                                  .ins = 4,
                                  .outs = 2,
                                  .operand = (struct work_operand[]){q, k, v, bias, o, logsumexp},
                                  .attr = others[i]};
        struct err err = {0};
        assert_int_equal(run_on_backend(&work, &err), ERR_INVALID);
    }
    drop_all(6, (struct work_operand[]){q, k, v, bias, o, logsumexp});
}

/* The bias is a part of x, from element `first` on: one that is aligned, then one that is not. */
static void a_bias_may_begin_anywhere(void **state)
{
    (void)state;
    enum { T = 5, H = 16, O = 24 };
    FOR_DTYPES()
    {
        const struct work_operand x = filled(dtype, SHAPE(T, H)), w = filled(dtype, SHAPE(O, H));
        const struct work_operand y = empty(dtype, SHAPE(T, O));
        for (uint32_t first = 0; first < 3; first++) {
            struct work_operand bias = x;
            bias.data = (char *)x.data + first * dtype_bytes(dtype);
            bias.shape = SHAPE(O);
            run_kind(WORK_MATMUL_NT_BIAS, 3, 1, (struct work_operand[]){x, w, bias, y});
            for (uint32_t i = 0; i < T * O; i++)
                close_to(&y, i,
                         value(&x, first + i % O) + dot(&x, i / O * H, 1, &w, i % O * H, 1, H), 16);
        }
        drop_all(3, (struct work_operand[]){x, w, y});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bias_may_begin_anywhere),
        cmocka_unit_test(elementwise_work_reads_any_strides_and_broadcasts),
        cmocka_unit_test(truths_are_bytes_that_choose),
        cmocka_unit_test(slices_are_put_back_where_they_were),
        cmocka_unit_test(rows_are_summed_and_softened),
        cmocka_unit_test(batches_of_turned_matrices_multiply),
        cmocka_unit_test(groups_of_rows_have_matrices_of_their_own),
        cmocka_unit_test(rows_are_taken_and_added),
        cmocka_unit_test(the_largest_are_chosen_in_order),
        cmocka_unit_test(scores_have_a_bias_and_a_scale),
    };
    return on_backends("work_views", tests, sizeof tests / sizeof tests[0]);
}
