/* test_work.c - every kind of work of each backend against plain loops in double.
 *
 * Operands are filled with numbers that their dtype holds exactly, so the loops see what the kernel
 * sees; a result may be off by its own rounding and, for sums, a little more (`close_to`). What has
 * a gradient is in test_work_gradients.c, whole models in test_work_training.c. */
#include "tests/support/work_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- 16-bit numbers ---- */

static void sixteen_bits_are_read_as_they_are(void **state)
{
    (void)state;
    for (enum dtype dtype = DTYPE_BF16; dtype <= DTYPE_FP16; dtype = (enum dtype)(dtype + 1)) {
        uint16_t *in = malloc(65536 * sizeof *in);
        float *out = malloc(65536 * sizeof *out);
        for (uint32_t i = 0; i < 65536; i++)
            in[i] = (uint16_t)i;
        const struct work_operand x[2] = {{in, SHAPE(65536), 0, (uint8_t)dtype, NULL},
                                          {out, SHAPE(65536), 0, DTYPE_FP32, NULL}};
        run_kind(WORK_CAST, 1, 1, x);
        for (uint32_t i = 0; i < 65536; i++) {
            const double wanted = decode(dtype, (uint16_t)i);
            assert_true(isnan(wanted) ? isnan(out[i]) : (double)out[i] == wanted);
        }
        free(in);
        free(out);
    }
}

/* The nearest of all 16-bit numbers, and of two equally near the even one: neighbours in value are
 * neighbours in bits. Above the largest, half a unit more is infinity. */
static bool is_nearest(enum dtype dtype, double value, uint16_t bits)
{
    const uint16_t infinity = dtype == DTYPE_BF16 ? 0x7f80 : 0x7c00, size = bits & 0x7fff;
    const double limit =
        2 * decode(dtype, (uint16_t)(infinity - 1)) - decode(dtype, (uint16_t)(infinity - 2));
    const double here = size == infinity ? limit : fabs(decode(dtype, bits));
    const double off = fabs(fabs(value) - here);
    if (signbit(value) != (bits >> 15) || size > infinity)
        return false;
    for (int step = -1; step <= 1; step += 2) {
        if ((size == 0 && step < 0) || (size == infinity && step > 0))
            continue;
        const uint16_t next = (uint16_t)(size + step);
        const double there = next == infinity ? limit : decode(dtype, next);
        const double next_off = fabs(fabs(value) - there);
        if (fabs(value) < limit && (next_off < off || (next_off <= off && size % 2 == 1)))
            return false;
    }
    return true;
}

/* Numbers of every size, many of them as far from one of a dtype as from the next. */
static float number_to_round(uint32_t i)
{
    float number;
    uint32_t bits = noise(i) ^ noise(i + 77) << 16;
    if (i % 3 == 0) /* exactly between two bf16 numbers; fp16 numbers */
        bits = (bits & 0xffff0000U) | 0x8000U;
    if (i % 3 == 1) /* and between two fp16 numbers */
        bits = (bits & 0x8fffe000U) + 0x30001000U;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static void check_rounding(enum dtype dtype, uint32_t count, struct shape shape, float *in,
                           uint16_t *out)
{
    const struct work_operand x[2] = {{in, shape, 0, DTYPE_FP32, NULL},
                                      {out, shape, 0, (uint8_t)dtype, NULL}};
    run_kind(WORK_CAST, 1, 1, x);
    for (uint32_t i = 0; i < count; i++)
        if (isnan(in[i]) ? !isnan(decode(dtype, out[i]))
                         : !is_nearest(dtype, (double)in[i], out[i]))
            fail_msg("%s of %.9g (%a) is %04x", dtype_name(dtype), (double)in[i], (double)in[i],
                     out[i]);
}

/* All of them at once, and some of them alone. */
static void stores_round_to_nearest_even(void **state)
{
    enum { COUNT = 200000, ALONE = 100 };
    float *in = malloc(COUNT * sizeof *in);
    uint16_t *out = malloc(COUNT * sizeof *out);
    (void)state;
    assert_true(in && out);
    for (uint32_t i = 0; i < COUNT; i++)
        in[i] = number_to_round(i);
    for (enum dtype dtype = DTYPE_BF16; dtype <= DTYPE_FP16; dtype = (enum dtype)(dtype + 1)) {
        check_rounding(dtype, COUNT, SHAPE(COUNT), in, out);
        for (uint32_t i = 0; i < ALONE; i++)
            check_rounding(dtype, 1, (struct shape){.rank = 0}, &in[i], &out[i]);
    }
    free(in);
    free(out);
}

/* ---- matrices ---- */

static void check_matmul(enum dtype dtype, uint32_t pitch)
{
    enum { T = 37, H = 19, O = 23 };
    struct work_operand x = pitched(dtype, SHAPE(1, T, H), pitch), w = filled(dtype, SHAPE(O, H));
    struct work_operand bias = filled(dtype, SHAPE(O)), dy = filled(dtype, SHAPE(T, O));
    struct work_operand y = empty(dtype, SHAPE(T, O)), dx = empty(dtype, SHAPE(T, H));
    struct work_operand dw = empty(dtype, SHAPE(O, H));
    run_kind(WORK_MATMUL_NT_BIAS, 3, 1, (struct work_operand[]){x, w, bias, y});
    for (uint32_t t = 0; t < T; t++) {
        for (uint32_t o = 0; o < O; o++) {
            double sum = value(&bias, o);
            for (uint32_t h = 0; h < H; h++)
                sum += value(&x, t * H + h) * value(&w, o * H + h);
            close_to(&y, t * O + o, sum, 16);
        }
    }
    run_kind(WORK_MATMUL_NT, 2, 1, (struct work_operand[]){x, w, y});
    close_to(&y, 0, dot(&x, 0, 1, &w, 0, 1, H), 16);
    close_to(&y, T * O - 1, dot(&x, (T - 1) * H, 1, &w, (O - 1) * H, 1, H), 16);
    run_kind(WORK_MATMUL_NN, 2, 1, (struct work_operand[]){dy, w, dx});
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t h = 0; h < H; h++)
            close_to(&dx, t * H + h, dot(&dy, t * O, 1, &w, h, H, O), 16);
    run_kind(WORK_MATMUL_TN, 2, 1, (struct work_operand[]){dy, x, dw});
    for (uint32_t o = 0; o < O; o++)
        for (uint32_t h = 0; h < H; h++)
            close_to(&dw, o * H + h, dot(&dy, o, O, &x, h, H, T), 16);
    drop_all(7, (struct work_operand[]){x, w, bias, dy, y, dx, dw});
}

static void matmuls_are_sums_of_products(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        check_matmul(dtype, 0);
        check_matmul(dtype, 61); /* x is a chunk of rows of 61 */
    }
}

/* The matrix (rows, columns) that lies as `x` (columns, rows of a pitch) does. */
static struct work_operand turned(const struct work_operand *x, struct strides *room)
{
    *room = (struct strides){{1, x->pitch ? x->pitch : x->shape.dim[1]}};
    return (struct work_operand){.data = x->data,
                                 .shape = SHAPE(x->shape.dim[1], x->shape.dim[0]),
                                 .dtype = x->dtype,
                                 .layout = room};
}

static void check_turned(enum dtype dtype, uint32_t pitch)
{
    enum { T = 7, H = 5, O = 3 };
    struct work_operand xt = pitched(dtype, SHAPE(H, T), pitch), w = filled(dtype, SHAPE(O, H));
    struct work_operand wt = pitched(dtype, SHAPE(H, O), pitch), x = filled(dtype, SHAPE(T, H));
    struct work_operand y = empty(dtype, SHAPE(T, O)), dw = empty(dtype, SHAPE(O, H));
    struct work_operand dyt = pitched(dtype, SHAPE(O, T), pitch), bias = filled(dtype, SHAPE(O));
    struct strides at;
    const struct work_operand from_wt = turned(&wt, &at); /* (O, H) */
    run_kind(WORK_MATMUL_NT_BIAS, 3, 1, (struct work_operand[]){x, from_wt, bias, y});
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t o = 0; o < O; o++)
            close_to(&y, t * O + o, value(&bias, o) + dot(&x, t * H, 1, &wt, o, O, H), 16);
    const struct work_operand from_w = turned(&w, &at); /* (H, O) */
    run_kind(WORK_MATMUL_NN, 2, 1, (struct work_operand[]){x, from_w, y});
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t o = 0; o < O; o++)
            close_to(&y, t * O + o, dot(&x, t * H, 1, &w, o * H, 1, H), 16);
    const struct work_operand from_dyt = turned(&dyt, &at); /* (T, O) */
    run_kind(WORK_MATMUL_TN, 2, 1, (struct work_operand[]){from_dyt, x, dw});
    for (uint32_t o = 0; o < O; o++)
        for (uint32_t h = 0; h < H; h++)
            close_to(&dw, o * H + h, dot(&dyt, o * T, 1, &x, h, H, T), 16);
    const struct work_operand from_xt = turned(&xt, &at); /* (T, H) */
    run_kind(WORK_MATMUL_NN, 2, 1, (struct work_operand[]){from_xt, wt, y});
    for (uint32_t t = 0; t < T; t++)
        for (uint32_t o = 0; o < O; o++)
            close_to(&y, t * O + o, dot(&xt, t, T, &wt, o, O, H), 16);
    drop_all(8, (struct work_operand[]){xt, w, wt, x, y, dw, dyt, bias});
}

static void factors_may_lie_in_columns(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        check_turned(dtype, 0);
        check_turned(dtype, 11);
    }
}

static void a_matmul_over_nothing_is_zero(void **state)
{
    (void)state;
    struct work_operand dy = empty(DTYPE_FP32, SHAPE(0, 3)), x = empty(DTYPE_FP32, SHAPE(0, 2));
    struct work_operand dw = filled(DTYPE_FP32, SHAPE(3, 2));
    run_kind(WORK_MATMUL_TN, 2, 1, (struct work_operand[]){dy, x, dw});
    for (uint32_t i = 0; i < 6; i++)
        close_to(&dw, i, 0, 0);
    drop_all(3, (struct work_operand[]){dy, x, dw});
}

/* ---- elementwise ---- */

static void add_and_mul_broadcast_from_the_right(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand x = pitched(dtype, SHAPE(3, 5, 7), 17),
                            z = empty(dtype, SHAPE(3, 5, 7));
        const struct shape shapes[] = {SHAPE(3, 5, 7), SHAPE(5, 7),    SHAPE(7),
                                       SHAPE(3, 1, 7), SHAPE(3, 5, 1), {.rank = 0}};
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct work_operand y = filled(dtype, shapes[s]);
            const uint32_t rank = shapes[s].rank;
            const bool has[3] = {rank == 3, rank >= 2 && shapes[s].dim[rank - 2] > 1,
                                 rank >= 1 && shapes[s].dim[rank - 1] > 1};
            for (uint32_t i = 0; i < 105; i++) {
                const uint32_t a = has[0] ? i / 35 : 0, b = has[1] ? i / 7 % 5 : 0;
                const uint32_t at =
                    (a * (has[1] ? 5 : 1) + b) * (has[2] ? 7 : 1) + (has[2] ? i % 7 : 0);
                if (i == 0)
                    run_kind(WORK_ADD, 2, 1, (struct work_operand[]){x, y, z});
                close_to(&z, i, value(&x, i) + value(&y, at), 1);
            }
            run_kind(WORK_MUL, 2, 1, (struct work_operand[]){y, x, z});
            close_to(&z, 104, value(&x, 104) * value(&y, shape_elements(&shapes[s]) - 1), 1);
            close_to(&z, 0, value(&x, 0) * value(&y, 0), 1);
            drop_all(1, &y);
        }
        drop_all(2, (struct work_operand[]){x, z});
    }
}

static void complex_numbers_multiply_and_conjugate(void **state)
{
    (void)state;
    enum { B = 2, S = 3, A = 2, D = 5 };
    struct work_operand x = filled(DTYPE_FP32, SHAPE(B, S, A, 2 * D));
    struct work_operand f = filled(DTYPE_FP32, SHAPE(1, S, 1, 2 * D));
    struct work_operand c = empty(DTYPE_FP32, f.shape), z = empty(DTYPE_FP32, x.shape);
    struct work_operand in[3] = {x, f, z}, back[2] = {f, c};
    for (uint32_t i = 0; i < 3; i++) {
        in[i].dtype = DTYPE_COMPLEX64;
        in[i].shape.dim[3] = D;
    }
    back[0] = back[1] = in[1];
    back[1].data = c.data;
    run_kind(WORK_MUL, 2, 1, in);
    run_kind(WORK_CONJUGATE, 1, 1, back);
    for (uint32_t i = 0; i < B * S * A * D; i++) {
        const uint32_t at = i / (A * D) % S * D + i % D;
        const double a = value(&x, 2 * i), b = value(&x, 2 * i + 1);
        close_to(&z, 2 * i, a * value(&f, 2 * at) - b * value(&f, 2 * at + 1), 2);
        close_to(&z, 2 * i + 1, a * value(&f, 2 * at + 1) + b * value(&f, 2 * at), 2);
        close_to(&c, 2 * at, value(&f, 2 * at), 0);
        close_to(&c, 2 * at + 1, -value(&f, 2 * at + 1), 0);
    }
    drop_all(4, (struct work_operand[]){x, f, c, z});
}

static void gradients_accumulate_into_another_dtype(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand x = filled(dtype, SHAPE(1100)), y = filled(DTYPE_FP32, SHAPE(1100));
        double wanted[1100];
        for (uint32_t i = 0; i < 1100; i++)
            wanted[i] = value(&x, i) + value(&y, i);
        run_kind(WORK_ADD_IN_PLACE, 1, 1, (struct work_operand[]){x, y});
        for (uint32_t i = 0; i < 1100; i++)
            close_to(&y, i, wanted[i], 1);
        drop_all(2, (struct work_operand[]){x, y});
    }
}

static void constants_fill_what_they_are_given(void **state)
{
    (void)state;
    int64_t ids[5];
    struct work_operand x = {ids, SHAPE(5), 0, DTYPE_INT64, NULL}, y = empty(DTYPE_BF16, SHAPE(3));
    run_kind(WORK_ARANGE, 0, 1, &x);
    for (int64_t i = 0; i < 5; i++)
        assert_int_equal(ids[i], i);
    const struct work ones = {.kind = WORK_FILL, .outs = 1, .operand = &y, .attr.p = 0.25F};
    assert_int_equal(run_on_backend(&ones, NULL), ERR_OK);
    close_to(&y, 2, 0.25, 0);
    drop_all(1, &y);
}

static void squares_and_roots(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand x = filled(dtype, SHAPE(9)), y = empty(dtype, SHAPE(9));
        struct work_operand z = empty(dtype, SHAPE(9));
        run_kind(WORK_SQUARE, 1, 1, (struct work_operand[]){x, y});
        run_kind(WORK_SQUARE_ROOT, 1, 1, (struct work_operand[]){y, z});
        for (uint32_t i = 0; i < 9; i++) {
            close_to(&y, i, value(&x, i) * value(&x, i), 1);
            close_to(&z, i, sqrt(value(&y, i)), 1);
        }
        drop_all(3, (struct work_operand[]){x, y, z});
    }
}

/* Elements [first, first + count) of a vector, as an operand of its own. */
static struct work_operand view(const struct work_operand *of, uint32_t first, uint32_t count)
{
    return (struct work_operand){.data =
                                     (char *)of->data + first * dtype_bytes((enum dtype)of->dtype),
                                 .shape = SHAPE(count),
                                 .dtype = of->dtype};
}

static void multiply(struct work_operand x, struct work_operand y, float factor)
{
    const struct work_operand operand[] = {x, y};
    const struct work work = {
        .kind = WORK_MUL_NUMBER, .ins = 1, .outs = 1, .operand = operand, .attr.p = factor};
    run_work(&work);
}

/* As gradients go into a bucket: from a tensor of any dtype to a place in a vector; or they are
 * there already. What lies around the place stays. */
static void a_number_multiplies_into_a_view_or_in_place(void **state)
{
    (void)state;
    enum { N = 1030, FIRST = 3, ALL = FIRST + N + 5 };
    const float factor = 1.0F / 3;
    FOR_DTYPES()
    for (enum dtype to = DTYPE_FP32; to <= DTYPE_FP16; to = (enum dtype)(to + 1)) {
        struct work_operand x = pitched(dtype, SHAPE(103, 10), 17), bucket = filled(to, SHAPE(ALL));
        double before[ALL], product[N];
        for (uint32_t i = 0; i < ALL; i++)
            before[i] = value(&bucket, i);
        const struct work_operand place = view(&bucket, FIRST, N);
        multiply(x, place, factor);
        for (uint32_t i = 0; i < N; i++) {
            close_to(&place, i, (double)factor * value(&x, i), 1);
            product[i] = value(&place, i);
        }
        multiply(place, place, -2);
        for (uint32_t i = 0; i < ALL; i++)
            close_to(&bucket, i, i < FIRST || i >= FIRST + N ? before[i] : -2 * product[i - FIRST],
                     0);
        drop_all(2, (struct work_operand[]){x, bucket});
    }
}

static void a_cast_takes_and_gives_views(void **state)
{
    (void)state;
    enum { N = 1030, FIRST = 5 };
    FOR_DTYPES()
    for (enum dtype to = DTYPE_FP32; to <= DTYPE_FP16; to = (enum dtype)(to + 1)) {
        struct work_operand x = filled(dtype, SHAPE(FIRST + N)), y = empty(to, SHAPE(N + 2));
        const struct work_operand from = view(&x, FIRST, N), place = view(&y, 1, N);
        run_kind(WORK_CAST, 1, 1, (struct work_operand[]){from, place});
        run_kind(WORK_CAST, 1, 1, (struct work_operand[]){place, place}); /* in place: the same */
        for (uint32_t i = 0; i < N; i++)
            close_to(&place, i, value(&from, i), to == DTYPE_FP32 || to == dtype ? 0 : 1);
        assert_true(isnan(value(&y, 0)) && isnan(value(&y, N + 1)));
        drop_all(2, (struct work_operand[]){x, y});
    }
}

/* ---- shapes ---- */

static void repeat_and_sum_undo_each_other(void **state)
{
    (void)state;
    enum { B = 2, S = 3, K = 2, N = 3, D = 5 };
    FOR_DTYPES()
    {
        struct work_operand x = pitched(dtype, SHAPE(B, S, K, D), 3 * K * D);
        struct work_operand y = empty(dtype, SHAPE(B, S, K, N, D));
        struct work_operand sum = empty(dtype, SHAPE(B, S, K, 1, D));
        const struct work_operand operand[2] = {x, y};
        const struct work repeat = {
            .kind = WORK_REPEAT, .ins = 1, .outs = 1, .operand = operand, .attr.dim = 3};
        assert_int_equal(run_on_backend(&repeat, NULL), ERR_OK);
        for (uint32_t i = 0; i < B * S * K * N * D; i++)
            close_to(&y, i, value(&x, i / (N * D) * D + i % D), 0);
        run_kind(WORK_SUM, 1, 1, (struct work_operand[]){y, sum});
        for (uint32_t i = 0; i < B * S * K * D; i++)
            close_to(&sum, i, N * value(&x, i), 1);
        drop_all(3, (struct work_operand[]){x, y, sum});
    }
}

static void sums_keep_the_dims_of_the_result(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand x = filled(dtype, SHAPE(700, 6)), row = empty(dtype, SHAPE(1, 6));
        struct work_operand column = empty(dtype, SHAPE(700, 1)), all = empty(dtype, SHAPE(1, 1));
        run_kind(WORK_SUM, 1, 1, (struct work_operand[]){x, row});
        run_kind(WORK_SUM, 1, 1, (struct work_operand[]){x, column});
        run_kind(WORK_SUM, 1, 1, (struct work_operand[]){x, all});
        double total = 0;
        for (uint32_t j = 0; j < 6; j++) {
            double wanted = 0;
            for (uint32_t i = 0; i < 700; i++)
                wanted += value(&x, i * 6 + j);
            close_to(&row, j, wanted, 16);
            total += wanted;
        }
        close_to(&all, 0, total, 16);
        for (uint32_t i = 0; i < 700; i++) {
            double wanted = 0;
            for (uint32_t j = 0; j < 6; j++)
                wanted += value(&x, i * 6 + j);
            close_to(&column, i, wanted, 16);
        }
        drop_all(4, (struct work_operand[]){x, row, column, all});
    }
}

/* Rows and columns that do and do not fit 16-byte accesses, one part and several. */
static void long_sums_are_those_of_double(void **state)
{
    (void)state;
    static const uint32_t cases[][3] = {/* outer, terms, inner */
                                        {1, 1000, 24}, {1, 333, 37}, {3, 130, 16}, {40, 5, 128},
                                        {1, 40000, 1}, {5, 1001, 1}, {1, 65, 1025}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        FOR_DTYPES()
        {
            const uint32_t outer = cases[c][0], terms = cases[c][1], inner = cases[c][2];
            struct work_operand x = filled(dtype, SHAPE(outer, terms, inner));
            struct work_operand y = empty(dtype, SHAPE(outer, 1, inner));
            run_kind(WORK_SUM, 1, 1, (struct work_operand[]){x, y});
            for (uint32_t i = 0; i < outer * inner; i++) {
                double wanted = 0;
                for (uint32_t t = 0; t < terms; t++)
                    wanted += value(&x, (i / inner * terms + t) * inner + i % inner);
                close_to(&y, i, wanted, 16);
            }
            drop_all(2, (struct work_operand[]){x, y});
        }
}

/* One search for each group of eight, for each element, and dims that become one. */
static void repeated_dims_have_any_sizes(void **state)
{
    (void)state;
    static const struct {
        struct shape x, y, z;
    } cases[] = {
        {SHAPE(3, 1, 5, 16), SHAPE(1, 7, 1, 16), SHAPE(3, 7, 5, 16)},
        {SHAPE(3, 7, 5, 1), SHAPE(3, 7, 5, 24), SHAPE(3, 7, 5, 24)},
        {SHAPE(2, 3, 1, 1, 9), SHAPE(1, 1, 4, 1, 9), SHAPE(2, 3, 4, 1, 9)},
        {SHAPE(61, 8), SHAPE(1, 8), SHAPE(61, 8)},
        {SHAPE(1, 1), SHAPE(5, 11), SHAPE(5, 11)},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        FOR_DTYPES()
        {
            struct work_operand x = filled(dtype, cases[c].x), y = filled(dtype, cases[c].y);
            struct work_operand z = empty(dtype, cases[c].z);
            const struct shape *of = &cases[c].z;
            run_kind(WORK_MUL, 2, 1, (struct work_operand[]){x, y, z});
            for (uint64_t i = 0; i < shape_elements(of); i++) {
                uint64_t rest = i, at[2] = {0}, step[2] = {1, 1};
                for (uint32_t dim = of->rank; dim-- > 0; rest /= of->dim[dim]) {
                    const uint32_t sizes[2] = {cases[c].x.dim[dim], cases[c].y.dim[dim]};
                    for (int k = 0; k < 2; k++) {
                        at[k] += sizes[k] > 1 ? rest % of->dim[dim] * step[k] : 0;
                        step[k] *= sizes[k];
                    }
                }
                close_to(&z, i, value(&x, at[0]) * value(&y, at[1]), 1);
            }
            drop_all(3, (struct work_operand[]){x, y, z});
        }
}

static void cat_joins_the_last_dim(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand a = filled(dtype, SHAPE(2, 3, 4)), b = filled(dtype, SHAPE(2, 3, 1));
        struct work_operand y = empty(dtype, SHAPE(2, 3, 5)), copy = empty(dtype, SHAPE(6, 5));
        run_kind(WORK_CAT, 2, 1, (struct work_operand[]){a, b, y});
        run_kind(WORK_COPY, 1, 1, (struct work_operand[]){y, copy});
        for (uint32_t i = 0; i < 30; i++)
            close_to(&copy, i, i % 5 < 4 ? value(&a, i / 5 * 4 + i % 5) : value(&b, i / 5), 0);
        drop_all(4, (struct work_operand[]){a, b, y, copy});
    }
}

static void an_embedding_takes_rows_and_sums_them_back(void **state)
{
    (void)state;
    enum { V = 7, H = 5, T = 12 };
    int64_t ids[T];
    for (uint32_t i = 0; i < T; i++)
        ids[i] = noise(i) % (V - 1); /* the last row is never taken */
    const struct work_operand tokens = {ids, SHAPE(3, 4), 0, DTYPE_INT64, NULL};
    FOR_DTYPES()
    {
        struct work_operand w = filled(dtype, SHAPE(V, H)), y = empty(dtype, SHAPE(3, 4, H));
        struct work_operand dy = filled(dtype, SHAPE(3, 4, H)), dw = empty(dtype, SHAPE(V, H));
        run_kind(WORK_EMBEDDING, 2, 1, (struct work_operand[]){tokens, w, y});
        run_kind(WORK_EMBEDDING_BACKWARD, 2, 1, (struct work_operand[]){dy, tokens, dw});
        double wanted[V * H] = {0};
        for (uint32_t i = 0; i < T * H; i++) {
            const uint32_t at = (uint32_t)ids[i / H] * H + i % H;
            close_to(&y, i, value(&w, at), 0);
            wanted[at] += value(&dy, i);
        }
        for (uint32_t i = 0; i < V * H; i++)
            close_to(&dw, i, wanted[i], 1);
        ids[5] = V;
        expect_refusal(ERR_INVALID, WORK_EMBEDDING, 2, 1, (struct work_operand[]){tokens, w, y});
        ids[5] = 0;
        drop_all(4, (struct work_operand[]){w, y, dy, dw});
    }
}

/* ---- packing ---- */

static void shards_go_through_a_gather_and_come_back(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    /* rows 4, 7, 1 of 2, 3, 5: chunks of 2, 3, 1 rows */
    const struct shape shapes[3] = {SHAPE(4, 2), SHAPE(7, 3), SHAPE(1, 5)};
    const uint32_t chunk[3] = {4, 9, 5};
    FOR_DTYPES()
    {
        struct work_operand part[3], whole[3], cat = empty(dtype, SHAPE(RANKS * 18));
        struct work_operand gather = empty(dtype, SHAPE(RANKS * 18));
        for (uint32_t i = 0; i < 3; i++)
            part[i] = filled(DTYPE_FP32, shapes[i]);
        run_ranked(WORK_CHUNK_CAT, 0, RANKS, 3, 1,
                   (struct work_operand[]){part[0], part[1], part[2], cat});
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            /* as a rank's shards: the chunks that chunk_cat put in its slice */
            struct work_operand shard[4];
            uint64_t at = (uint64_t)rank * 18;
            for (uint32_t i = 0; i < 3; at += chunk[i++])
                shard[i] = (struct work_operand){(char *)cat.data + at * dtype_bytes(dtype),
                                                 SHAPE(chunk[i]), 0, cat.dtype, NULL};
            shard[3] = gather;
            run_ranked(WORK_COPY_IN, rank, RANKS, 3, 1, shard);
        }
        assert_memory_equal(cat.data, gather.data, RANKS * 18 * dtype_bytes(dtype));
        for (uint32_t i = 0; i < 3; i++) /* i 0: with room for padding, as unsharded parameters */
            whole[i] = empty(dtype, i ? shapes[i] : SHAPE(RANKS * chunk[i]));
        run_ranked(WORK_COPY_OUT, 0, RANKS, 1, 3,
                   (struct work_operand[]){gather, whole[0], whole[1], whole[2]});
        for (uint32_t i = 0; i < 3; i++)
            for (uint32_t j = 0; j < shape_elements(&shapes[i]); j++)
                close_to(&whole[i], j, value(&part[i], j), 1);
        for (uint32_t j = 8; j < 12; j++)
            close_to(&whole[0], j, 0, 0);
        drop_all(3, part);
        drop_all(3, whole);
        drop_all(2, (struct work_operand[]){cat, gather});
    }
}

static void pack_flattens_and_casts(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand a = filled(DTYPE_FP32, SHAPE(3, 5)), b = filled(DTYPE_FP32, SHAPE(2));
        struct work_operand none = empty(DTYPE_FP32, SHAPE(0, 4)), y = empty(dtype, SHAPE(17));
        run_kind(WORK_PACK, 3, 1, (struct work_operand[]){a, none, b, y});
        for (uint32_t i = 0; i < 17; i++)
            close_to(&y, i, i < 15 ? value(&a, i) : value(&b, i - 15), 1);
        drop_all(4, (struct work_operand[]){a, b, none, y});
    }
}

/* ---- optimizer ---- */

static void norms_stack_and_clip(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        const struct shape scalar = {.rank = 0};
        struct work_operand g[2] = {filled(dtype, SHAPE(31, 41)), filled(dtype, SHAPE(3))};
        struct work_operand norm[2] = {empty(DTYPE_FP32, scalar), empty(DTYPE_FP32, scalar)};
        struct work_operand all = empty(DTYPE_FP32, SHAPE(2)), total = empty(DTYPE_FP32, scalar);
        struct work_operand c = empty(DTYPE_FP32, scalar), y = empty(dtype, SHAPE(31, 41));
        run_kind(WORK_NORMS, 2, 2, (struct work_operand[]){g[0], g[1], norm[0], norm[1]});
        run_kind(WORK_STACK, 2, 1, (struct work_operand[]){norm[0], norm[1], all});
        run_kind(WORK_VECTOR_NORM, 1, 1, (struct work_operand[]){all, total});
        const double first = dot(&g[0], 0, 1, &g[0], 0, 1, 31 * 41);
        const double wanted = sqrt(first + dot(&g[1], 0, 1, &g[1], 0, 1, 3));
        close_to(&norm[0], 0, sqrt(first), 1);
        close_to(&total, 0, wanted, 2);
        const struct work_operand clip[2] = {total, c};
        struct work work = {
            .kind = WORK_CLIP_COEFFICIENT, .ins = 1, .outs = 1, .operand = clip, .attr.p = 1e6F};
        assert_int_equal(run_on_backend(&work, NULL), ERR_OK);
        close_to(&c, 0, 1, 0);
        work.attr.p = 0.5F;
        assert_int_equal(run_on_backend(&work, NULL), ERR_OK);
        close_to(&c, 0, 0.5 / (wanted + 1e-6), 2);
        run_kind(WORK_SCALE, 2, 1, (struct work_operand[]){c, g[0], y});
        for (uint32_t i = 0; i < 31 * 41; i++)
            close_to(&y, i, value(&g[0], i) * value(&c, 0), 1);
        drop_all(2, g);
        drop_all(2, norm);
        drop_all(4, (struct work_operand[]){all, total, c, y});
    }
}

static void check_adamw(enum dtype dtype)
{
    enum { N = 1030, STEPS = 4 };
    struct work_operand x[8];
    double p[2][N], m[2][N] = {{0}}, v[2][N] = {{0}};
    const uint32_t count[2] = {N, 3};
    for (uint32_t i = 0; i < 8; i++)
        x[i] = i < 4 ? filled(DTYPE_FP32, SHAPE(count[i % 2]))
                     : zeros(DTYPE_FP32, SHAPE(count[i % 2]));
    for (uint32_t t = 0; t < 2; t++) {
        drop_all(1, &x[t]);
        x[t] = filled(dtype, SHAPE(count[t])); /* gradients */
        for (uint32_t i = 0; i < count[t]; i++)
            p[t][i] = value(&x[2 + t], i);
    }
    struct work work = {.kind = WORK_ADAMW,
                        .ins = 8,
                        .operand = x,
                        .update = {1e-2F, 0.875F, 0.9375F, 1e-3F, 0.125F, 0}};
    const double lr = (double)1e-2F, small = (double)1e-3F;
    for (uint32_t step = 1; step <= STEPS; step++) {
        work.update.step = step;
        assert_int_equal(run_on_backend(&work, NULL), ERR_OK);
        for (uint32_t t = 0; t < 2; t++) {
            for (uint32_t i = 0; i < count[t]; i++) {
                const double g = value(&x[t], i);
                p[t][i] *= 1 - lr * 0.125;
                m[t][i] = 0.875 * m[t][i] + 0.125 * g;
                v[t][i] = 0.9375 * v[t][i] + 0.0625 * g * g;
                const double root = sqrt(v[t][i]) / sqrt(1 - pow(0.9375, step)) + small;
                p[t][i] -= lr / (1 - pow(0.875, step)) * m[t][i] / root;
                close_to(&x[2 + t], i, p[t][i], 4);
                close_to(&x[4 + t], i, m[t][i], 4);
                close_to(&x[6 + t], i, v[t][i], 4);
            }
        }
    }
    drop_all(8, x);
}

static void adamw_decays_apart_and_corrects_its_bias(void **state)
{
    (void)state;
    FOR_DTYPES()
    check_adamw(dtype);
}

static void sgd_steps_against_the_gradient(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        struct work_operand x[2] = {filled(dtype, SHAPE(5)), filled(dtype, SHAPE(5))};
        double wanted[5];
        for (uint32_t i = 0; i < 5; i++)
            wanted[i] = value(&x[1], i) - 0.25 * (value(&x[0], i) + 0.5 * value(&x[1], i));
        const struct work work = {.kind = WORK_SGD,
                                  .ins = 2,
                                  .operand = x,
                                  .update = {.lr = 0.25F, .weight_decay = 0.5F, .step = 1}};
        assert_int_equal(run_on_backend(&work, NULL), ERR_OK);
        for (uint32_t i = 0; i < 5; i++)
            close_to(&x[1], i, wanted[i], 1);
        drop_all(2, x);
    }
}

/* ---- what goes wrong ---- */

static void a_nan_goes_through(void **state)
{
    (void)state;
    static const enum work_kind unary[] = {WORK_CAST,        WORK_SILU,       WORK_GELU,
                                           WORK_GELU_TANH,   WORK_RELU,       WORK_SQUARE,
                                           WORK_SQUARE_ROOT, WORK_LOG_SOFTMAX};
    FOR_DTYPES()
    {
        struct work_operand x = filled(dtype, SHAPE(1, 3)), y = empty(dtype, SHAPE(1, 3));
        put(&x, 1, NAN);
        for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
            run_kind(unary[i], 1, 1, (struct work_operand[]){x, y});
            assert_true(isnan(value(&y, 1)));
        }
        struct work_operand norm = empty(DTYPE_FP32, (struct shape){.rank = 0});
        run_kind(WORK_NORMS, 1, 1, (struct work_operand[]){x, norm});
        assert_true(isnan(value(&norm, 0)));
        const struct work clip = {.kind = WORK_CLIP_COEFFICIENT,
                                  .ins = 1,
                                  .outs = 1,
                                  .attr.p = 1,
                                  .operand = (struct work_operand[]){norm, norm}};
        assert_int_equal(run_on_backend(&clip, NULL), ERR_OK);
        assert_true(isnan(value(&norm, 0)));
        drop_all(3, (struct work_operand[]){x, y, norm});
    }
}

static void operands_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct work_operand a = filled(DTYPE_FP32, SHAPE(4, 3)), b = filled(DTYPE_FP32, SHAPE(2, 5));
    struct work_operand y = empty(DTYPE_FP32, SHAPE(4, 2)), ids = a;
    ids.dtype = DTYPE_INT64;
    struct work_operand aby[3] = {a, b, y}, iay[3] = {ids, a, y};
    static const enum work_kind both[] = {
        WORK_MATMUL_NT, WORK_MATMUL_NN,     WORK_MATMUL_TN,
        WORK_ADD,       WORK_MUL,           WORK_CAT,
        WORK_PACK,      WORK_SILU_BACKWARD, WORK_LOG_SOFTMAX_BACKWARD,
    };
    for (size_t i = 0; i < sizeof both / sizeof *both; i++)
        expect_refusal(ERR_INVALID, both[i], 2, 1, aby);
    expect_refusal(ERR_INVALID, WORK_MATMUL_NT, 1, 1, aby);
    expect_refusal(ERR_INVALID, WORK_COPY, 1, 1, aby);
    expect_refusal(ERR_INVALID, WORK_SUM, 1, 1, aby);
    expect_refusal(ERR_INVALID, WORK_MUL_NUMBER, 1, 1, aby);
    expect_refusal(ERR_INVALID, WORK_CAST, 1, 1, aby);
    expect_refusal(ERR_INVALID, WORK_COPY_IN, 2, 1, aby);
    expect_refusal(ERR_INVALID, WORK_ADAMW, 3, 0, aby);
    expect_refusal(ERR_UNSUPPORTED, WORK_ARANGE, 0, 1, aby);
    expect_refusal(ERR_UNSUPPORTED, WORK_MATMUL_NN, 2, 1, iay);
    if (strcmp(backend_in_use->name, "host") == 0) /* collectives are the device's */
        expect_refusal(ERR_INTERNAL, WORK_ALL_GATHER, 1, 1, aby);
    expect_refusal(ERR_UNSUPPORTED, WORK_CONVOLUTION, 1, 1, aby);
    drop_all(3, aby);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_are_read_as_they_are),
        cmocka_unit_test(stores_round_to_nearest_even),
        cmocka_unit_test(matmuls_are_sums_of_products),
        cmocka_unit_test(factors_may_lie_in_columns),
        cmocka_unit_test(a_matmul_over_nothing_is_zero),
        cmocka_unit_test(add_and_mul_broadcast_from_the_right),
        cmocka_unit_test(complex_numbers_multiply_and_conjugate),
        cmocka_unit_test(gradients_accumulate_into_another_dtype),
        cmocka_unit_test(constants_fill_what_they_are_given),
        cmocka_unit_test(squares_and_roots),
        cmocka_unit_test(a_number_multiplies_into_a_view_or_in_place),
        cmocka_unit_test(a_cast_takes_and_gives_views),
        cmocka_unit_test(repeat_and_sum_undo_each_other),
        cmocka_unit_test(sums_keep_the_dims_of_the_result),
        cmocka_unit_test(long_sums_are_those_of_double),
        cmocka_unit_test(repeated_dims_have_any_sizes),
        cmocka_unit_test(cat_joins_the_last_dim),
        cmocka_unit_test(an_embedding_takes_rows_and_sums_them_back),
        cmocka_unit_test(shards_go_through_a_gather_and_come_back),
        cmocka_unit_test(pack_flattens_and_casts),
        cmocka_unit_test(norms_stack_and_clip),
        cmocka_unit_test(adamw_decays_apart_and_corrects_its_bias),
        cmocka_unit_test(sgd_steps_against_the_gradient),
        cmocka_unit_test(a_nan_goes_through),
        cmocka_unit_test(operands_that_do_not_fit_are_refused),
    };
    return on_backends("work", tests, sizeof tests / sizeof tests[0]);
}
