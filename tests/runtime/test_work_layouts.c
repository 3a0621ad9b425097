/* test_work_layouts.c - every kind of work that is taken in any layout, on every backend, in
 * layouts and dtypes that plans have, with the host's results as the reference; those are held to
 * loops in double by test_work_views.c, and to PyTorch by test_run_hf.c. */
#include "runtime/work/passes.h"
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

enum { MOST = 6 };

/* ---- cases ---- */

/* Operands by letters, in and out: f a number of the dtype at hand, L and I indices below `below`,
 * B a truth, N an int64 of no bounds, p a number between 0 and 1, "=" the same memory as the
 * operand of that place. "fL>f". */
struct form {
    enum work_kind kind;
    const char *operands;
    struct shape shape[MOST];
    struct kernel_attr attr;
    uint32_t below;
    bool ordered; /* ids are a permutation */
};

#define EACH_OF(kind)                                                                              \
    {                                                                                              \
        WORK_##kind, "f>f", {SHAPE(3, 4, 5, 8), SHAPE(3, 4, 5, 8)}, {.p = 0.75F}, 0, 0             \
    }
#define POSITIVE(kind)                                                                             \
    {                                                                                              \
        WORK_##kind, "p>f", {SHAPE(3, 4, 5, 8), SHAPE(3, 4, 5, 8)}, {.p = 3}, 0, 0                 \
    }
#define TRUTH_OF(kind)                                                                             \
    {                                                                                              \
        WORK_##kind, "f>B", {SHAPE(3, 4, 6), SHAPE(3, 4, 6)}, {.p = 0.25F}, 0, 0                   \
    }
#define OF_TWO(kind)                                                                               \
    {                                                                                              \
        WORK_##kind, "ff>f", {SHAPE(2, 3, 5, 8), SHAPE(3, 1, 8), SHAPE(2, 3, 5, 8)}, {0}, 0, 0     \
    }
#define SLOPE(kind)                                                                                \
    {                                                                                              \
        WORK_##kind, "ff>f", {SHAPE(2, 3, 16), SHAPE(2, 3, 16), SHAPE(2, 3, 16)}, {0}, 0, 0        \
    }
#define TRUTH_OF_TWO(kind)                                                                         \
    {                                                                                              \
        WORK_##kind, "ff>B", {SHAPE(2, 3, 7), SHAPE(2, 1, 7), SHAPE(2, 3, 7)}, {0}, 0, 0           \
    }

static const struct form forms[] = {
    EACH_OF(CAST),
    EACH_OF(REORDER),
    EACH_OF(COPY),
    EACH_OF(ADD_NUMBER),
    EACH_OF(MUL_NUMBER),
    EACH_OF(DIV_NUMBER),
    EACH_OF(FLOOR_DIV_NUMBER),
    EACH_OF(AT_MOST),
    EACH_OF(AT_LEAST),
    EACH_OF(WITHIN),
    EACH_OF(NEG),
    EACH_OF(ABS),
    EACH_OF(SQUARE),
    EACH_OF(COS),
    EACH_OF(SIN),
    EACH_OF(TANH),
    EACH_OF(SIGMOID),
    EACH_OF(SILU),
    EACH_OF(GELU),
    EACH_OF(GELU_TANH),
    EACH_OF(RELU),
    EACH_OF(SOFTPLUS),
    EACH_OF(EXPM1),
    POSITIVE(POW),
    POSITIVE(SQUARE_ROOT),
    POSITIVE(RSQRT),
    POSITIVE(LOG),
    TRUTH_OF(EQUAL_NUMBER),
    TRUTH_OF(NOT_EQUAL_NUMBER),
    TRUTH_OF(LESS_NUMBER),
    TRUTH_OF(GREATER_NUMBER),
    TRUTH_OF(IS_INFINITE),
    OF_TWO(ADD),
    OF_TWO(SUB),
    OF_TWO(MUL),
    OF_TWO(MINIMUM),
    {WORK_DIV, "fp>f", {SHAPE(6, 4), SHAPE(6, 1), SHAPE(6, 4)}, {0}, 0, 0},
    {WORK_DIV_IN_PLACE, "fp>=f", {SHAPE(6, 4), SHAPE(6, 1), SHAPE(6, 4), SHAPE(6, 4)}, {0}, 0, 0},
    {WORK_ADD_IN_PLACE, "f>f", {SHAPE(6, 5, 4), SHAPE(6, 5, 4)}, {0}, 0, 0},
    {WORK_ADD_TO, "ff>=", {SHAPE(6, 5, 4), SHAPE(5, 1), SHAPE(6, 5, 4)}, {0}, 0, 0},
    SLOPE(TANH_BACKWARD),
    SLOPE(SIGMOID_BACKWARD),
    SLOPE(SILU_BACKWARD),
    SLOPE(GELU_BACKWARD),
    SLOPE(GELU_TANH_BACKWARD),
    SLOPE(RELU_BACKWARD),
    SLOPE(SOFTPLUS_BACKWARD),
    TRUTH_OF_TWO(EQUAL),
    TRUTH_OF_TWO(LESS),
    TRUTH_OF_TWO(LESS_EQUAL),
    TRUTH_OF_TWO(GREATER),
    TRUTH_OF_TWO(GREATER_EQUAL),
    {WORK_AND, "BB>B", {SHAPE(3, 5), SHAPE(5), SHAPE(3, 5)}, {0}, 0, 0},
    {WORK_OR, "BB>B", {SHAPE(3, 5), SHAPE(5), SHAPE(3, 5)}, {0}, 0, 0},
    {WORK_CLAMP, "fpp>f", {SHAPE(3, 5), SHAPE(1), SHAPE(1), SHAPE(3, 5)}, {0}, 0, 0},
    {WORK_WHERE, "Bff>f", {SHAPE(5, 8), SHAPE(3, 5, 8), SHAPE(1), SHAPE(3, 5, 8)}, {0}, 0, 0},
    {WORK_MASKED_FILL, "fB>f", {SHAPE(3, 5, 8), SHAPE(3, 5, 8), SHAPE(3, 5, 8)}, {.p = -9}, 0, 0},
    {WORK_FILL, ">f", {SHAPE(3, 5, 9)}, {.p = 2.5F}, 0, 0},
    {WORK_FILL, ">N", {SHAPE(3, 5, 9)}, {.p = -7}, 0, 0},
    {WORK_FILL_LOWEST, ">f", {SHAPE(7)}, {0}, 0, 0},
    {WORK_ADD_NUMBER, "N>N", {SHAPE(3, 5), SHAPE(3, 5)}, {.p = 7}, 0, 0},
    {WORK_CAST, "N>f", {SHAPE(3, 5), SHAPE(3, 5)}, {0}, 0, 0},
    {WORK_CAST, "f>N", {SHAPE(3, 5), SHAPE(3, 5)}, {0}, 0, 0},
    {WORK_CAST, "f>B", {SHAPE(3, 5), SHAPE(3, 5)}, {0}, 0, 0},
    {WORK_SUB, "NN>N", {SHAPE(3, 5), SHAPE(3, 1), SHAPE(3, 5)}, {0}, 0, 0},
    {WORK_REPEAT, "f>f", {SHAPE(3, 2, 1, 5, 8), SHAPE(3, 2, 4, 5, 8)}, {.dim = 2}, 0, 0},
    {WORK_CAT,
     "fff>f",
     {SHAPE(3, 5, 4), SHAPE(3, 5, 8), SHAPE(3, 5, 1), SHAPE(3, 5, 13)},
     {0},
     0,
     0},
    {WORK_CAT, "NN>N", {SHAPE(3, 1), SHAPE(3, 5), SHAPE(3, 6)}, {0}, 0, 0},
    {WORK_CAT, "f>f", {SHAPE(3, 4), SHAPE(3, 8)}, {0}, 0, 0},
    {WORK_INTERLEAVE, "ff>f", {SHAPE(3, 5, 4), SHAPE(3, 5, 4), SHAPE(3, 5, 4, 2)}, {0}, 0, 0},
    {WORK_PAD, "f>f", {SHAPE(3, 5, 12), SHAPE(3, 5, 16)}, {.p = 0.5F}, 0, 0},
    {WORK_PAD, "N>N", {SHAPE(3, 5), SHAPE(3, 4)}, {.p = -100}, 0, 0},
    {WORK_SLICE, "f>f", {SHAPE(3, 5, 12), SHAPE(3, 5, 4)}, {.first = 8}, 0, 0},
    {WORK_PUT_SLICE, "f>f", {SHAPE(3, 5, 4), SHAPE(3, 5, 12)}, {.first = 8}, 0, 0},
    {WORK_SLICE_BACKWARD, "f>f", {SHAPE(3, 5, 4), SHAPE(3, 5, 12)}, {.first = 8}, 0, 0},
    {WORK_STRIDE_BACKWARD, "f>f", {SHAPE(3, 5, 4), SHAPE(3, 5, 8)}, {.first = 1, .dim = 2}, 0, 0},
    {WORK_LOWER_TRIANGLE, "B>B", {SHAPE(9, 9), SHAPE(9, 9)}, {0}, 0, 0},
    {WORK_SUM, "f>f", {SHAPE(3, 4, 6, 8), SHAPE(1, 6, 1)}, {0}, 0, 0},
    {WORK_SUM, "f>f", {SHAPE(3, 4, 40), SHAPE(1, 1, 40)}, {0}, 0, 0},
    {WORK_SUM, "f>f", {SHAPE(3, 3000), SHAPE(3, 1)}, {0}, 0, 0},
    {WORK_SUM_DIM, "f>f", {SHAPE(6, 3, 8), SHAPE(6, 8)}, {.dim = 1}, 0, 0},
    {WORK_MEAN, "f>f", {SHAPE(3, 4, 48), SHAPE(3, 4, 1)}, {0}, 0, 0},
    {WORK_MEAN, "f>f", {SHAPE(2, 5000), SHAPE(2, 1)}, {0}, 0, 0},
    {WORK_MAXIMUM, "f>f", {SHAPE(3, 4, 5), SHAPE(1)}, {0}, 0, 0},
    {WORK_MAXIMUM, "N>N", {SHAPE(300), SHAPE(1)}, {0}, 0, 0},
    {WORK_LEAST, "f>f", {SHAPE(3, 4, 5), SHAPE(1)}, {0}, 0, 0},
    {WORK_LEAST, "N>N", {SHAPE(300), SHAPE(1)}, {0}, 0, 0},
    {WORK_ALL, "B>B", {SHAPE(300), SHAPE(1)}, {0}, 0, 0},
    {WORK_ANY, "B>B", {SHAPE(3, 4), SHAPE(1)}, {0}, 0, 0},
    {WORK_CUMULATIVE_SUM, "f>f", {SHAPE(3, 70), SHAPE(3, 70)}, {0}, 0, 0},
    {WORK_CUMULATIVE_SUM, "B>N", {SHAPE(3, 24), SHAPE(3, 24)}, {0}, 0, 0},
    {WORK_SOFTMAX, "f>f", {SHAPE(3, 5, 24), SHAPE(3, 5, 24)}, {0}, 0, 0},
    {WORK_SOFTMAX, "f>f", {SHAPE(2, 1111), SHAPE(2, 1111)}, {0}, 0, 0},
    {WORK_SAFE_SOFTMAX,
     "f>fBB",
     {SHAPE(3, 5, 24), SHAPE(3, 5, 24), SHAPE(3, 5, 24), SHAPE(3, 5, 1)},
     {0},
     0,
     0},
    {WORK_SOFTMAX_BACKWARD, "fp>f", {SHAPE(3, 5, 24), SHAPE(3, 5, 24), SHAPE(3, 5, 24)}, {0}, 0, 0},
    {WORK_SOFTMAX_BACKWARD, "fp>f", {SHAPE(2, 1111), SHAPE(2, 1111), SHAPE(2, 1111)}, {0}, 0, 0},
    {WORK_EMBEDDING, "Lf>f", {SHAPE(4, 6), SHAPE(11, 16), SHAPE(4, 6, 16)}, {0}, 11, 0},
    {WORK_EMBEDDING_BACKWARD, "fL>f", {SHAPE(4, 6, 16), SHAPE(4, 6), SHAPE(11, 16)}, {0}, 11, 0},
    {WORK_EMBEDDING_BACKWARD,
     "fL>f",
     {SHAPE(4, 6, 5), SHAPE(4, 6), SHAPE(7, 5)},
     {.first = 3},
     7,
     0},
    {WORK_INDEX, "fL>f", {SHAPE(6, 24), SHAPE(17), SHAPE(17, 24)}, {0}, 6, 0},
    {WORK_INDEX, "fL>f", {SHAPE(6, 3, 5), SHAPE(7), SHAPE(7, 3, 5)}, {0}, 6, 0},
    {WORK_INDEX_PUT, "fLf>f", {SHAPE(6, 24), SHAPE(700), SHAPE(700, 24), SHAPE(6, 24)}, {0}, 6, 0},
    {WORK_GATHER, "fL>f", {SHAPE(3, 4, 9), SHAPE(3, 4, 2), SHAPE(3, 4, 2)}, {0}, 9, 0},
    {WORK_SCATTER, "fLf>f", {SHAPE(9, 8), SHAPE(9, 3), SHAPE(9, 3), SHAPE(9, 8)}, {0}, 8, 0},
    {WORK_SCATTER_NUMBER, "fL>=", {SHAPE(9, 8), SHAPE(9, 3), SHAPE(9, 8)}, {.p = 1}, 8, 0},
    {WORK_TOPK, "f>fL", {SHAPE(5, 40), SHAPE(5, 4), SHAPE(5, 4)}, {0}, 40, 0},
    {WORK_SORT, "I>IL", {SHAPE(1500), SHAPE(1500), SHAPE(1500)}, {0}, 8, 0},
    {WORK_SORT, "f>fL", {SHAPE(300), SHAPE(300), SHAPE(300)}, {0}, 300, 0},
    {WORK_INVERT_PERMUTATION, "L>L", {SHAPE(300), SHAPE(300)}, {0}, 300, true},
    {WORK_HISTOGRAM, "I>I", {SHAPE(700), SHAPE(8)}, {0}, 9, 0},
    {WORK_BMM_NN, "ff>f", {SHAPE(3, 70, 40), SHAPE(3, 40, 66), SHAPE(3, 70, 66)}, {0}, 0, 0},
    {WORK_BMM_NT, "ff>f", {SHAPE(3, 7, 40), SHAPE(3, 9, 40), SHAPE(3, 7, 9)}, {0}, 0, 0},
    {WORK_BMM_TN, "ff>f", {SHAPE(3, 40, 7), SHAPE(3, 40, 9), SHAPE(3, 7, 9)}, {0}, 0, 0},
    EACH_OF(POWER_OF),
};

/* ---- operands ---- */

/* How an operand lies: without gaps; its last two dims turned; with a gap behind each row; and, of
 * what is only read, its first dim repeated. */
enum lying { PLAIN, TURNED, GAPS, REPEATED, LYINGS };

static struct strides strides_of(const struct shape *shape, enum lying lying)
{
    struct strides out = layout_of_rows(shape, 0);
    const uint32_t rank = shape->rank;
    if (rank >= 2 && lying == TURNED) {
        out.of[rank - 2] = 1;
        out.of[rank - 1] = shape->dim[rank - 2];
    }
    for (uint32_t i = 0; i + 1 < rank && lying == GAPS; i++)
        out.of[i] = out.of[i] / shape->dim[rank - 1] * (shape->dim[rank - 1] + 3);
    if (rank > 0 && lying == REPEATED)
        out.of[0] = 0;
    return out;
}

static enum dtype dtype_of(char letter, enum dtype number)
{
    return letter == 'L' || letter == 'N' ? DTYPE_INT64
           : letter == 'I'                ? DTYPE_INT32
           : letter == 'B'                ? DTYPE_BOOL
                                          : number;
}

static void fill_number(const struct work_operand *x, char letter, uint64_t i, uint32_t below)
{
    static uint32_t seed;
    const uint32_t drawn = noise(seed++);
    const double number = drawn / 2147483648.0 - 1;
    const struct work_operand list = {x->data, SHAPE((uint32_t)i + 1), 0, x->dtype, NULL};
    if (x->dtype == DTYPE_INT64)
        ((int64_t *)x->data)[i] = letter == 'N' ? (int64_t)(drawn % 100) - 50 : drawn % below;
    else if (x->dtype == DTYPE_INT32)
        ((int32_t *)x->data)[i] = (int32_t)(drawn % below);
    else if (x->dtype == DTYPE_BOOL)
        ((uint8_t *)x->data)[i] = drawn % 2;
    else
        put(&list, i, letter == 'p' ? fabs(number) * 0.875 + 0.125 : number);
}

/* Elements of memory that it takes. */
static uint64_t reach_of(const struct work_operand *x)
{
    const struct strides at = layout_of(&x->shape, x->pitch, x->layout);
    uint64_t reach;
    assert_true(layout_reach(&x->shape, &at, &reach));
    return reach;
}

struct case_of { /* a form with operands; both runs have memory of their own */
    uint32_t ins, outs;
    struct work_operand operand[MOST];
    struct strides room[MOST];
    uint64_t bytes[MOST];
};

static void make_case(const struct form *form, enum dtype dtype, enum lying lying,
                      struct case_of *to)
{
    uint32_t n = 0;
    bool out = false;
    *to = (struct case_of){0};
    for (const char *letter = form->operands; *letter; letter++) {
        if (*letter == '>') {
            out = true;
            continue;
        }
        struct work_operand *x = &to->operand[n];
        *(out ? &to->outs : &to->ins) += 1;
        if (*letter == '=') { /* of the first operand in */
            *x = to->operand[0];
            n++;
            continue;
        }
        /* nobody writes what lies in one place, and a row of y has one in most kinds */
        const bool indices = strchr("LI", *letter);
        const enum lying own = (out && lying == REPEATED) || (form->ordered && indices) ||
                                       (n == 0 && strchr(form->operands, '=') && lying == REPEATED)
                                   ? PLAIN
                                   : lying;
        *x = (struct work_operand){.shape = form->shape[n],
                                   .dtype = (uint8_t)dtype_of(*letter, dtype)};
        to->room[n] = strides_of(&x->shape, own);
        const struct strides plain = layout_of_rows(&x->shape, 0);
        if (!layout_same(&x->shape, &plain, &to->room[n]))
            x->layout = &to->room[n];
        const uint64_t count = reach_of(x);
        to->bytes[n] = count * dtype_bytes((enum dtype)x->dtype);
        x->data = malloc(to->bytes[n]);
        assert_non_null(x->data);
        for (uint64_t i = 0; i < count; i++)
            fill_number(x, *letter, i, form->below ? form->below : 1);
        for (uint64_t i = 0; form->ordered && i < count; i++) /* 7 is coprime */
            ((int64_t *)x->data)[i] = (int64_t)(i * 7 % count);
        n++;
    }
}

static void copy_case(const struct case_of *from, struct case_of *to)
{
    *to = *from;
    for (uint32_t i = 0; i < from->ins + from->outs; i++) {
        to->operand[i].layout = from->operand[i].layout ? &to->room[i] : NULL;
        if (!from->bytes[i]) {
            to->operand[i] = to->operand[0];
            continue;
        }
        to->operand[i].data = malloc(from->bytes[i]);
        assert_non_null(to->operand[i].data);
        memcpy(to->operand[i].data, from->operand[i].data, from->bytes[i]);
    }
}

static void drop_case(const struct case_of *of)
{
    for (uint32_t i = 0; i < of->ins + of->outs; i++)
        if (of->bytes[i])
            free(of->operand[i].data);
}

/* ---- comparing ---- */

static double number_at(const struct work_operand *x, uint64_t i)
{
    const struct work_operand list = {x->data, SHAPE((uint32_t)i + 1), 0, x->dtype, NULL};
    if (x->dtype == DTYPE_INT64)
        return (double)((const int64_t *)x->data)[i];
    if (x->dtype == DTYPE_INT32)
        return ((const int32_t *)x->data)[i];
    return x->dtype == DTYPE_BOOL ? ((const uint8_t *)x->data)[i] : value(&list, i);
}

/* All memory of a result, gaps included: within a rounding of its dtype, and of fp32's sums. */
static void compare(const struct form *form, enum dtype dtype, enum lying lying,
                    const struct work_operand *ours, const struct work_operand *theirs)
{
    const bool exact = ours->dtype > DTYPE_FP16;
    const double terms =
        (double)shape_elements(&form->shape[0]) / (double)shape_elements(&ours->shape);
    const double largest = form->kind == WORK_SUM ? sqrt(fmax(terms, 1)) : 1; /* partial sums */
    for (uint64_t i = 0; i < reach_of(ours); i++) {
        const double x = number_at(ours, i), y = number_at(theirs, i);
        const double room =
            exact ? 0 : 2.1 * half_unit(dtype) * fabs(y) + 2e-6 * fmax(fabs(y), largest);
        if (!(fabs(x - y) <= room) && !(isnan(x) && isnan(y)) && !(isinf(x) && x * y > 0))
            fail_msg("%s \"%s\" of %s, lying %d: element %llu is %.9g instead of %.9g",
                     work_name(form->kind), form->operands, dtype_name(dtype), (int)lying,
                     (unsigned long long)i, x, y);
    }
}

/* Rows of a gradient that no one step leads to are refused by name. */
static void check_form(const struct form *form, enum dtype dtype, enum lying lying)
{
    struct case_of ours, theirs;
    struct err err = {0};
    make_case(form, dtype, lying, &ours);
    copy_case(&ours, &theirs);
    struct work work = {.kind = form->kind,
                        .ins = ours.ins,
                        .outs = ours.outs,
                        .operand = ours.operand,
                        .attr = form->attr,
                        .ranks = 1};
    const enum err_code rc = run_on_backend(&work, &err);
    if (rc == ERR_UNSUPPORTED && lying != PLAIN && form->kind == WORK_EMBEDDING_BACKWARD) {
        assert_non_null(strstr(err.text, "do not go together"));
        drop_case(&theirs);
        drop_case(&ours);
        return;
    }
    if (rc != ERR_OK)
        fail_msg("%s \"%s\" of %s, lying %d: %s", work_name(form->kind), form->operands,
                 dtype_name(dtype), (int)lying, err.text);
    work.operand = theirs.operand;
    if (host_run(&work, &err) != ERR_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = ours.ins; i < ours.ins + ours.outs; i++)
        compare(form, dtype, lying, &ours.operand[i], &theirs.operand[i]);
    drop_case(&theirs);
    drop_case(&ours);
}

static void run_forms(enum lying lying)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        FOR_DTYPES()
    if (dtype == DTYPE_FP32 || strpbrk(forms[i].operands, "fp"))
        check_form(&forms[i], dtype, lying);
}

static void operands_lie_without_gaps(void **state)
{
    (void)state;
    run_forms(PLAIN);
}

static void operands_are_turned(void **state)
{
    (void)state;
    run_forms(TURNED);
}

static void rows_have_gaps_that_are_left_alone(void **state)
{
    (void)state;
    run_forms(GAPS);
}

static void operands_are_repeated(void **state)
{
    (void)state;
    run_forms(REPEATED);
}

/* The table has every kind that is computed by passes. */
static void no_kind_is_left_out(void **state)
{
    (void)state;
    for (unsigned kind = 0; kind < WORK_KIND_COUNT; kind++) {
        bool found = kind == WORK_POLAR; /* complex: test_work_views.c */
        for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
            found = found || forms[i].kind == kind;
        if (work_has_passes((enum work_kind)kind) && !found)
            fail_msg("no form of %s", work_name((enum work_kind)kind));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_lie_without_gaps),
        cmocka_unit_test(operands_are_turned),
        cmocka_unit_test(rows_have_gaps_that_are_left_alone),
        cmocka_unit_test(operands_are_repeated),
        cmocka_unit_test(no_kind_is_left_out),
    };
    return on_backends("work_layouts", tests, sizeof tests / sizeof tests[0]);
}
