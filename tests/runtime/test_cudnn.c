/* test_cudnn.c - the graphs that the cuda backend gives to cuDNN, computed operation by operation
 * by tests/emulate's cuDNN: that they are attention and its gradients, as the host's kernels have
 * them, which are held to double precision (test_work_gradients.c). What an engine of cuDNN takes
 * is not for this test. */
#include "runtime/work/half.h"
#include "tests/support/backends.h"

#include <math.h>
#include <unistd.h>

enum { INS = 6, OUTS = 3 };

struct form {
    uint32_t b, s, s_k, a, a_k, d, pitch; /* 0: packed */
    enum dtype dtype;
    bool causal;
};

static struct device *device;
static char *given; /* SHARDRUN_CUDNN, as this program was started with */

static const char *emulated_file(void)
{
    const char *file = getenv("SHARDRUN_EMULATED");
    if (file && access(file, R_OK) == 0)
        return file;
    printf("note: the emulated backend is not built\n");
    skip();
    return NULL;
}

static enum err_code open_here(enum attention_kernel kernel, bool deterministic, struct err *err)
{
    const struct cuda_settings settings = {.events = 1,
                                           .lanes = test_lanes,
                                           .ranks = 1,
                                           .timeout_s = 60,
                                           .attention = kernel,
                                           .deterministic = deterministic};
    return device_open_cuda(&settings, &device, err);
}

/* The emulated backend, with its cuDNN. */
static void open_device(const char *file, enum attention_kernel kernel, bool deterministic)
{
    const char *before = getenv(CUDA_BACKEND_VARIABLE);
    char kept[4096];
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    setenv(CUDA_BACKEND_VARIABLE, file, 1);
    setenv("SHARDRUN_CUDNN", file, 1);
    struct err err = {0};
    if (open_here(kernel, deterministic, &err) != ERR_OK)
        fail_msg("%s", err.text);
    if (before)
        setenv(CUDA_BACKEND_VARIABLE, kept, 1);
    else
        unsetenv(CUDA_BACKEND_VARIABLE);
}

static void drop_device(void)
{
    device_close(device);
    device = NULL;
    if (given)
        setenv("SHARDRUN_CUDNN", given, 1);
    else
        unsetenv("SHARDRUN_CUDNN");
}

/* ---- operands ---- */

static struct work_operand operand_new(enum dtype dtype, struct shape shape, uint32_t pitch)
{
    struct work_operand x = {.shape = shape, .dtype = (uint8_t)dtype, .pitch = pitch};
    const struct stretch all = stretch_of(&x);
    const size_t bytes = (size_t)(all.end - all.begin);
    x.data = aligned_alloc(16, (bytes + 15) / 16 * 16);
    memset(x.data, 0xff, bytes); /* NaN */
    return x;
}

static uint64_t place_of(const struct work_operand *x, uint64_t i)
{
    const uint64_t width = operand_row_width(x);
    return x->pitch ? i / width * x->pitch + i % width : i;
}

static double value_of(const struct work_operand *x, uint64_t i)
{
    const uint64_t at = place_of(x, i);
    if (x->dtype == DTYPE_FP32)
        return (double)((const float *)x->data)[at];
    const uint16_t half = ((const uint16_t *)x->data)[at];
    return (double)(x->dtype == DTYPE_BF16 ? float_from_bf16(half) : float_from_fp16(half));
}

/* Numbers in [-2, 2], different for each operand and element. */
static void fill(struct work_operand *x, uint32_t seed)
{
    for (uint64_t i = 0; i < operand_count(x); i++) {
        seed = seed * 1664525U + 1013904223U;
        const float number = (float)(seed >> 8) / 4194304.0F - 2.0F;
        ((uint16_t *)x->data)[place_of(x, i)] =
            x->dtype == DTYPE_BF16 ? bf16_from_float(number) : fp16_from_float(number);
    }
}

/* Rounding of p, ds and the results to 16 bits, in sums of s terms of size 1. */
static void expect_alike(const struct work_operand *x, const struct work_operand *y,
                         const char *what)
{
    double difference = 0, size = 0;
    for (uint64_t i = 0; i < operand_count(x); i++) {
        const double e = value_of(x, i) - value_of(y, i);
        difference += e * e;
        size += value_of(y, i) * value_of(y, i);
    }
    const double step = x->dtype == DTYPE_BF16   ? 0x1p-8
                        : x->dtype == DTYPE_FP16 ? 0x1p-11
                                                 : 0x1p-18;
    if (!(sqrt(difference) <= 2 * step * sqrt(size)))
        fail_msg("%s: differs by %g of its norm", what, sqrt(difference / size));
}

static void run_both(enum work_kind kind, const struct form *form, uint32_t ins, uint32_t outs,
                     struct work_operand *operand, struct work_operand *own, struct err *err)
{
    struct work work = {.kind = kind,
                        .ins = ins,
                        .outs = outs,
                        .operand = operand,
                        .attr.causal = form->causal,
                        .ranks = 1,
                        .group = -1};
    if (run_on_device(device, &work, err) != ERR_OK)
        fail_msg("%s", err->text);
    for (uint32_t i = 0; i < ins; i++)
        own[i] = operand[i];
    work.operand = own;
    assert_int_equal(host_run(&work, err), ERR_OK);
    for (uint32_t i = ins; i < ins + outs; i++)
        expect_alike(&operand[i], &own[i], work_name(kind));
}

static void check_form(const struct form *form)
{
    const struct shape q = SHAPE(form->b, form->s, form->a, form->d);
    const struct shape k = SHAPE(form->b, form->s_k, form->a_k, form->d);
    const struct shape turned = SHAPE(form->b, form->a, form->s, form->d); /* memory is q's */
    const struct shape rows = SHAPE(form->b, form->a, form->s);
    const enum dtype dtype = form->dtype;
    struct err err = {0};
    struct work_operand forward[2][5], backward[2][INS + OUTS];
    for (int i = 0; i < 2; i++) {
        forward[i][0] = operand_new(dtype, q, form->pitch);
        forward[i][1] = operand_new(dtype, k, form->pitch);
        forward[i][2] = operand_new(dtype, k, form->pitch);
        forward[i][3] = operand_new(dtype, turned, 0);
        forward[i][4] = operand_new(DTYPE_FP32, rows, 0);
        for (uint32_t n = 0; n < 3; n++)
            fill(&forward[i][n], n + 1);
        backward[i][0] = operand_new(dtype, turned, 0);
        fill(&backward[i][0], 9);
        memcpy(&backward[i][1], forward[i], 3 * sizeof forward[i][0]);
        backward[i][4] = forward[i][4];
        backward[i][5] = forward[i][3];
        backward[i][6] = operand_new(dtype, turned, 0);
        backward[i][7] = operand_new(dtype, k, 0);
        backward[i][8] = operand_new(dtype, k, 0);
    }
    const struct work asked = {.kind = WORK_ATTENTION, .ins = 3, .outs = 2, .operand = forward[0]};
    if (form->a_k != form->a && work_check(&asked, WORK_ON_CUDA, &err) != ERR_OK)
        return; /* the backend's other kernels have no such form */
    run_both(WORK_ATTENTION, form, 3, 2, forward[0], forward[1], &err);
    run_both(WORK_ATTENTION_BACKWARD, form, INS, OUTS, backward[0], backward[1], &err);
}

static const struct form forms[] = {
    {1, 128, 128, 2, 2, 64, 0, DTYPE_BF16, true},   {1, 128, 128, 1, 1, 128, 0, DTYPE_BF16, true},
    {2, 64, 128, 2, 2, 64, 0, DTYPE_BF16, false},   {1, 32, 256, 1, 1, 128, 0, DTYPE_FP16, false},
    {1, 128, 128, 2, 2, 64, 384, DTYPE_BF16, true}, {2, 128, 128, 4, 2, 64, 0, DTYPE_BF16, true},
    {1, 7, 7, 3, 3, 8, 0, DTYPE_BF16, true},        {2, 9, 5, 2, 2, 16, 96, DTYPE_FP16, true},
    {2, 9, 5, 6, 2, 8, 0, DTYPE_FP16, false},
};

enum { FORMS = sizeof forms / sizeof forms[0], OF_MODELS = 6 /* the first of them */ };

/* On a GPU, by cuDNN; what it gives must be the same twice where that was asked for. */
static void cudnn_is_attention(void **state)
{
    (void)state;
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        struct err err = {0};
        if (open_here(ATTENTION_CUDNN, deterministic, &err) != ERR_OK) {
            printf("note: cuda: %s\n", err.text);
            skip();
            return;
        }
        for (size_t i = 0; i < OF_MODELS; i++)
            check_form(&forms[i]);
        assert_non_null(strstr(device->attention, "cuDNN "));
        drop_device();
    }
}

static void graphs_are_attention(void **state)
{
    (void)state;
    const char *file = emulated_file();
    if (!file)
        return;
    open_device(file, ATTENTION_CUDNN, false);
    for (size_t i = 0; i < FORMS; i++)
        check_form(&forms[i]);
    assert_string_equal(device->attention, "cuDNN 92000");
    drop_device();
}

/* dq without a sum in memory: an engine that keeps scores in its workspace, beside the plan. */
static void deterministic_graphs_are_attention(void **state)
{
    (void)state;
    const char *file = emulated_file();
    if (!file)
        return;
    open_device(file, ATTENTION_AUTO, true);
    for (size_t i = 0; i < FORMS; i++)
        check_form(&forms[i]);
    assert_string_equal(device->attention, "cuDNN 92000, deterministic");
    const struct form large = {1, 2112, 2112, 1, 1, 8, 0, DTYPE_BF16, true};
    check_form(&large); /* 2112² · 2 bytes are more than a stream's scratch */
    assert_non_null(
        strstr(device->attention, "cuDNN 92000, deterministic, 8.5 MiB beside the plan"));
    drop_device();
}

static void what_cudnn_does_not_take_is_an_error_where_it_was_asked_for(void **state)
{
    (void)state;
    const char *file = emulated_file();
    if (!file)
        return;
    struct err err = {0};
    struct work_operand operand[5];
    for (uint32_t i = 0; i < 3; i++) {
        operand[i] = operand_new(DTYPE_BF16, SHAPE(1, 8, 1, 8), 0);
        fill(&operand[i], i);
    }
    operand[3] = operand_new(DTYPE_BF16, SHAPE(1, 1, 8, 8), 0);
    operand[4] = operand_new(DTYPE_FP32, SHAPE(1, 1, 32), 0); /* rows are padded */
    const struct work work = {
        .kind = WORK_ATTENTION, .ins = 3, .outs = 2, .operand = operand, .ranks = 1, .group = -1};
    open_device(file, ATTENTION_CUDNN, false);
    assert_int_equal(run_on_device(device, &work, &err), ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--attention cudnn: its rows of statistics are padded"));
    drop_device();
    open_device(file, ATTENTION_AUTO, false);
    assert_int_equal(run_on_device(device, &work, &err), ERR_OK);
    assert_non_null(
        strstr(device->attention, "own kernels: attention of 1 x 8 x 1 x 8 bfloat16: "));
    drop_device();
}

int main(void)
{
    const char *before = getenv("SHARDRUN_CUDNN");
    given = before ? strdup(before) : NULL;
    const struct CMUnitTest tests[] = {
        {.name = "cuda: cudnn_is_attention", .test_func = cudnn_is_attention},
        cmocka_unit_test(graphs_are_attention),
        cmocka_unit_test(deterministic_graphs_are_attention),
        cmocka_unit_test(what_cudnn_does_not_take_is_an_error_where_it_was_asked_for),
    };
    return cmocka_run_group_tests_name("cudnn", tests, NULL, NULL);
}
