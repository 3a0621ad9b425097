/* test_work_fused.c - works that are several of a plan's in one, of each backend, beside their
 * parts one after the other: the same bits, whatever the dtypes, sizes and pitches. */
#include "runtime/work/fused.h"
#include "tests/support/work_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct work_operand like(const struct work_operand *x)
{
    return empty((enum dtype)x->dtype, x->shape);
}

static struct work_operand copy_of(const struct work_operand *x)
{
    const struct work_operand y = like(x);
    memcpy(y.data, x->data, shape_bytes(&x->shape, (enum dtype)x->dtype));
    return y;
}

static struct work_operand seen_as(const struct work_operand *x, enum dtype dtype,
                                   struct shape shape)
{
    return (struct work_operand){x->data, shape, 0, (uint8_t)dtype, NULL};
}

static struct work_operand unwritten(const struct work_operand *x)
{
    struct work_operand y = *x;
    y.data = NULL;
    return y;
}

static void same_bits(const struct work_operand *x, const struct work_operand *y)
{
    const size_t element = dtype_bytes((enum dtype)x->dtype);
    for (uint64_t i = 0; i < operand_count(x); i++)
        if (memcmp((const char *)x->data + place(x, i) * element,
                   (const char *)y->data + place(y, i) * element, element) != 0)
            fail_msg("element %llu (%s) is %.9g instead of %.9g", (unsigned long long)i,
                     dtype_brief((enum dtype)x->dtype), value(y, i), value(x, i));
}

static void run_with(enum work_kind kind, struct kernel_attr attr, uint32_t ins, uint32_t outs,
                     const struct work_operand *operand)
{
    const struct work work = {
        .kind = kind, .ins = ins, .outs = outs, .operand = operand, .attr = attr, .ranks = 1};
    run_work(&work);
}

/* ---- rotate ---- */

static void check_rotate(enum dtype dtype, bool conjugate, uint32_t d, uint32_t pitch)
{
    enum { B = 2, S = 5, A = 3 };
    const struct shape heads = SHAPE(B, S, A, d), pairs = SHAPE(B, S, A, d / 2);
    const struct work_operand x = pitched(dtype, heads, pitch);
    const struct work_operand numbers = filled(DTYPE_FP32, SHAPE(1, S, 1, d));
    const struct work_operand f = seen_as(&numbers, DTYPE_COMPLEX64, SHAPE(1, S, 1, d / 2));
    const struct work_operand turned = empty(DTYPE_FP32, SHAPE(1, S, 1, d));
    const struct work_operand g = seen_as(&turned, DTYPE_COMPLEX64, f.shape);
    const struct work_operand a = empty(DTYPE_FP32, heads), b = empty(DTYPE_FP32, heads);
    const struct work_operand y = empty(dtype, heads), fused = empty(dtype, heads);
    run_kind(WORK_CAST, 1, 1, (struct work_operand[]){x, a});
    if (conjugate)
        run_kind(WORK_CONJUGATE, 1, 1, (struct work_operand[]){f, g});
    run_kind(WORK_MUL, 2, 1,
             (struct work_operand[]){seen_as(&a, DTYPE_COMPLEX64, pairs), conjugate ? g : f,
                                     seen_as(&b, DTYPE_COMPLEX64, pairs)});
    run_kind(WORK_CAST, 1, 1, (struct work_operand[]){b, y});
    run_with(WORK_ROTATE, (struct kernel_attr){.p = conjugate ? -1.0F : 1.0F}, 2, 1,
             (struct work_operand[]){x, f, fused});
    same_bits(&y, &fused);
    if (!pitch) { /* where x was */
        run_with(WORK_ROTATE, (struct kernel_attr){.p = conjugate ? -1.0F : 1.0F}, 2, 1,
                 (struct work_operand[]){x, f, x});
        same_bits(&y, &x);
    }
    drop_all(7, (struct work_operand[]){x, numbers, turned, a, b, y, fused});
}

static void a_rotation_is_cast_product_cast(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        for (uint32_t d = 2; d <= 16; d += 2) {
            check_rotate(dtype, false, d, 0);
            check_rotate(dtype, true, d, 0);
        }
        check_rotate(dtype, true, 600, 0);
        check_rotate(dtype, false, 16, 96); /* chunks of a wider tensor */
        check_rotate(dtype, false, 6, 22);
    }
}

/* ---- products ---- */

static void check_gate(enum dtype dtype, struct shape shape, uint32_t pitch)
{
    const struct work_operand x = pitched(dtype, shape, pitch), u = pitched(dtype, shape, pitch);
    const struct work_operand s = empty(dtype, shape), y = empty(dtype, shape);
    const struct work_operand fused_s = empty(dtype, shape), fused_y = empty(dtype, shape);
    run_kind(WORK_SILU, 1, 1, (struct work_operand[]){x, s});
    run_kind(WORK_MUL, 2, 1, (struct work_operand[]){s, u, y});
    run_kind(WORK_GATE, 2, 2, (struct work_operand[]){x, u, fused_s, fused_y});
    same_bits(&s, &fused_s);
    same_bits(&y, &fused_y);
    memset(fused_y.data, 0xff, shape_bytes(&shape, dtype));
    run_kind(WORK_GATE, 2, 2, (struct work_operand[]){x, u, unwritten(&s), fused_y});
    same_bits(&y, &fused_y);
    drop_all(6, (struct work_operand[]){x, u, s, y, fused_s, fused_y});
}

static void a_gate_is_silu_and_product(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        check_gate(dtype, SHAPE(3, 7, 96), 0);
        check_gate(dtype, SHAPE(1, 1, 1029), 0);
        check_gate(dtype, SHAPE(5, 24), 64);
    }
}

static void products_are_two_products(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        const struct shape shape = SHAPE(9, 133);
        const struct work_operand z = filled(dtype, shape), x = filled(dtype, shape);
        const struct work_operand w = filled(dtype, shape);
        const struct work_operand xz = empty(dtype, shape), wz = empty(dtype, shape);
        const struct work_operand fused = empty(dtype, shape);
        run_kind(WORK_MUL, 2, 1, (struct work_operand[]){z, x, xz});
        run_kind(WORK_MUL, 2, 1, (struct work_operand[]){z, w, wz});
        run_kind(WORK_PRODUCTS, 3, 2, (struct work_operand[]){z, x, w, fused, z}); /* over z */
        same_bits(&xz, &fused);
        same_bits(&wz, &z);
        drop_all(6, (struct work_operand[]){z, x, w, xz, wz, fused});
    }
}

/* ---- norms ---- */

static void check_add_norm(enum dtype dtype, enum dtype weights, uint32_t t, uint32_t h)
{
    const struct kernel_attr attr = {.eps = 1e-5F};
    const struct shape shape = SHAPE(1, t, h);
    const struct work_operand x = filled(dtype, shape), y = filled(dtype, shape);
    const struct work_operand w = filled(weights, SHAPE(h));
    const struct work_operand s = like(&x), n = like(&x), r = empty(DTYPE_FP32, SHAPE(1, t, 1));
    const struct work_operand fused_s = like(&x), fused_r = like(&r);
    run_kind(WORK_ADD, 2, 1, (struct work_operand[]){x, y, s});
    run_with(WORK_RMS_NORM, attr, 2, 2, (struct work_operand[]){s, w, n, r});
    run_with(WORK_ADD_RMS_NORM, attr, 3, 3, (struct work_operand[]){x, y, w, fused_s, y, fused_r});
    same_bits(&s, &fused_s);
    same_bits(&n, &y); /* the norm is where y was */
    same_bits(&r, &fused_r);
    drop_all(8, (struct work_operand[]){x, y, w, s, n, r, fused_s, fused_r});
}

static void a_sum_and_its_norm_are_both(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        check_add_norm(dtype, dtype, 7, 64);
        check_add_norm(dtype, DTYPE_FP32, 3, 1037);
        check_add_norm(dtype, dtype, 2, 9001); /* more than a block of a GPU keeps */
    }
}

static void check_norm_backward(enum dtype dtype, uint32_t t, uint32_t h, bool weight)
{
    const struct kernel_attr attr = {.eps = 1e-5F};
    const struct shape shape = SHAPE(1, t, h);
    const struct work_operand dy = filled(dtype, shape), x = filled(dtype, shape);
    const struct work_operand w = filled(dtype, SHAPE(h)), r = filled(DTYPE_FP32, SHAPE(1, t, 1));
    const struct work_operand z = filled(dtype, shape), fused_z = copy_of(&z);
    const struct work_operand dx = like(&x), dw = like(&w), fused_dx = like(&x);
    const struct work_operand fused_dw = like(&w), again_z = copy_of(&z);
    run_with(WORK_RMS_NORM_BACKWARD, attr, 4, weight ? 2 : 1,
             (struct work_operand[]){dy, x, w, r, dx, dw});
    run_kind(WORK_ADD_IN_PLACE, 1, 1, (struct work_operand[]){dx, z});
    if (weight) {
        run_with(WORK_RMS_NORM_BACKWARD_ADD, attr, 4, 3,
                 (struct work_operand[]){dy, x, w, r, fused_dx, fused_dw, fused_z});
        same_bits(&dw, &fused_dw);
    } else {
        run_with(WORK_RMS_NORM_BACKWARD_ADD, attr, 4, 2,
                 (struct work_operand[]){dy, x, w, r, fused_dx, fused_z});
    }
    same_bits(&dx, &fused_dx);
    same_bits(&z, &fused_z);
    run_with(WORK_RMS_NORM_BACKWARD_ADD, attr, 4, 2,
             (struct work_operand[]){dy, x, w, r, unwritten(&dx), again_z});
    same_bits(&z, &again_z);
    drop_all(11,
             (struct work_operand[]){dy, x, w, r, z, fused_z, dx, dw, fused_dx, fused_dw, again_z});
}

static void a_norms_gradient_is_added_where_it_is_rounded(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        check_norm_backward(dtype, 9, 64, true);
        check_norm_backward(dtype, 130, 40, true);
        check_norm_backward(dtype, 2, 9001, false);
    }
}

/* ---- the loss ---- */

static void check_slope(enum dtype logits, uint32_t t, uint32_t v)
{
    const struct shape shape = SHAPE(t, v);
    int64_t target[64];
    float share = 0.5F;
    for (uint32_t i = 0; i < t; i++)
        target[i] = i % 5 == 2 ? -100 : (int64_t)(noise(i) % v);
    const struct work_operand d = {&share, {.rank = 0}, 0, DTYPE_FP32, NULL};
    const struct work_operand targets = {target, SHAPE(t), 0, DTYPE_INT64, NULL};
    const struct work_operand x = filled(logits, shape), cast = empty(DTYPE_FP32, shape);
    const struct work_operand y = empty(DTYPE_FP32, shape), fused_y = like(&y);
    const struct work_operand g = like(&y), a = like(&y), dx = like(&x), fused = like(&x);
    run_kind(WORK_CAST, 1, 1, (struct work_operand[]){x, cast});
    run_kind(WORK_LOG_SOFTMAX, 1, 1, (struct work_operand[]){cast, y});
    run_kind(WORK_LOG_SOFTMAX, 1, 1, (struct work_operand[]){x, fused_y}); /* takes any dtype */
    same_bits(&y, &fused_y);
    run_kind(WORK_NLL_LOSS_BACKWARD, 2, 1, (struct work_operand[]){d, targets, g});
    run_kind(WORK_LOG_SOFTMAX_BACKWARD, 2, 1, (struct work_operand[]){g, y, a});
    run_kind(WORK_CAST, 1, 1, (struct work_operand[]){a, dx});
    run_kind(WORK_CROSS_ENTROPY_SLOPE, 3, 1, (struct work_operand[]){d, targets, y, fused});
    same_bits(&dx, &fused);
    run_kind(WORK_CROSS_ENTROPY_SLOPE, 3, 1, (struct work_operand[]){d, targets, y, y});
    same_bits(&a, &y); /* fp32, where the log-probabilities were */
    drop_all(8, (struct work_operand[]){x, cast, y, fused_y, g, a, dx, fused});
}

static void the_way_back_through_the_loss_is_its_steps(void **state)
{
    (void)state;
    FOR_DTYPES()
    {
        check_slope(dtype, 7, 33);
        check_slope(dtype, 1, 5003);
        check_slope(dtype, 40, 64);
    }
}

/* ---- refusals ---- */

static void operands_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct work_operand x = filled(DTYPE_FP32, SHAPE(2, 4)), y = like(&x);
    const struct work_operand odd = filled(DTYPE_FP32, SHAPE(2, 3)),
                              w = filled(DTYPE_FP32, SHAPE(4));
    const struct work_operand f = seen_as(&w, DTYPE_COMPLEX64, SHAPE(2));
    const struct work_operand r = filled(DTYPE_FP32, SHAPE(2, 1));
    expect_refusal(ERR_INVALID, WORK_ROTATE, 2, 1, (struct work_operand[]){odd, f, odd});
    expect_refusal(ERR_INVALID, WORK_ROTATE, 2, 1, (struct work_operand[]){x, x, y});
    expect_refusal(ERR_INVALID, WORK_GATE, 2, 2, (struct work_operand[]){x, odd, y, y});
    expect_refusal(ERR_INVALID, WORK_PRODUCTS, 3, 2, (struct work_operand[]){x, x, x, y, odd});
    expect_refusal(ERR_INVALID, WORK_ADD_RMS_NORM, 3, 3,
                   (struct work_operand[]){x, y, odd, x, y, r});
    expect_refusal(ERR_INVALID, WORK_RMS_NORM_BACKWARD_ADD, 4, 2,
                   (struct work_operand[]){x, x, w, r, y, odd});
    expect_refusal(ERR_UNSUPPORTED, WORK_CROSS_ENTROPY_SLOPE, 3, 1,
                   (struct work_operand[]){
                       (struct work_operand){w.data, {.rank = 0}, 0, DTYPE_FP32, NULL}, x, x, y});
    drop_all(5, (struct work_operand[]){x, y, odd, w, r});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rotation_is_cast_product_cast),
        cmocka_unit_test(a_gate_is_silu_and_product),
        cmocka_unit_test(products_are_two_products),
        cmocka_unit_test(a_sum_and_its_norm_are_both),
        cmocka_unit_test(a_norms_gradient_is_added_where_it_is_rounded),
        cmocka_unit_test(the_way_back_through_the_loss_is_its_steps),
        cmocka_unit_test(operands_that_do_not_fit_are_refused),
    };
    return on_backends("fused work", tests, sizeof tests / sizeof tests[0]);
}
