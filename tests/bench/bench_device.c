/* bench_device.c - how fast a GPU's kernels are beside what it can do: matrix products in TFLOP/s,
 * and kernels that move memory in the share of a plain copy's rate, which is measured first.
 *
 *     bench_device [--small]      one JSON object a line; --small: shapes for a dry run
 *
 * Each kernel runs as a plan has it, on operands of random numbers that together exceed the caches;
 * a time is the median of those of TIMES launches, by the device's own events, once the kernel has
 * run for long enough that a GPU which was idle is back at its clock. */
#include "base/arena.h"
#include "runtime/device/clock.h"
#include "runtime/device/device.h"
#include "runtime/execution/values.h"
#include "runtime/loader/cuda_load.h"
#include "runtime/work/operand.h"
#include "tests/support/lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES = 15, MOST_OPERANDS = 6 };
static const double WARM_UP_S = 0.1;

struct bench {
    struct device *dev;
    double warm_up_s;
    double copy_rate; /* bytes read and written a second */
    double seconds[TIMES];
    uint32_t count;
};

struct row { /* a kernel: operands that are read, then those that are written */
    const char *name;
    enum work_kind kind;
    uint32_t ins, outs;
    struct shape shape[MOST_OPERANDS];
    enum dtype dtype[MOST_OPERANDS];
    double flops; /* 0: what it moves counts */
    float p;
};

static void end_with(const struct err *err)
{
    fprintf(stderr, "bench_device: %s\n", err->text);
    exit(3);
}

/* ---- operands ---- */

/* Numbers around 0, or small ids: some that are made here, and copies of them, as the device makes
 * billions of them the faster. */
static void fill(struct bench *bench, uint64_t address, const struct shape *shape, enum dtype dtype,
                 struct err *err)
{
    enum { CHUNK = 1 << 22 };
    const struct param_init init = {.kind = INIT_NORMAL, .number = 1};
    const uint64_t bytes = shape_bytes(shape, dtype), size = dtype_bytes(dtype);
    const uint64_t some = bytes / size < CHUNK ? bytes / size : CHUNK;
    float *values = xmalloc(2 * some * sizeof *values); /* of a complex number two */
    int64_t *ids = xmalloc(some * sizeof *ids);
    values_of_param(&init, 1, 0, 2 * some, values);
    for (uint64_t i = 0; i < some; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        ids[i] = bits >> 8 & 1023;
        if (dtype == DTYPE_BF16) /* cut off: any number will do */
            ((uint16_t *)ids)[i] = (uint16_t)(bits >> 16);
    }
    const bool is_other = dtype == DTYPE_BF16 || dtype == DTYPE_INT64;
    const void *from = is_other ? (const void *)ids : values;
    if (device_write(bench->dev, address, from, some * size, err) != ERR_OK)
        end_with(err);
    for (uint64_t done = some * size; done < bytes;) {
        const uint64_t more = done < bytes - done ? done : bytes - done;
        const struct shape run = SHAPE((uint32_t)(more / size));
        const struct work_operand copy[] = {
            {.data = (void *)(uintptr_t)address, .shape = run, .dtype = (uint8_t)dtype},
            {.data = (void *)(uintptr_t)(address + done), .shape = run, .dtype = (uint8_t)dtype}};
        const struct work work = {
            .kind = WORK_COPY, .ins = 1, .outs = 1, .operand = copy, .group = -1};
        if (device_launch(bench->dev, LANE_COMPUTE, &work, err) != ERR_OK)
            end_with(err);
        done += more;
    }
    free(values);
    free(ids);
}

static void take_time(void *context, uint32_t instruction, uint8_t stream, double begin_s,
                      double end_s)
{
    struct bench *bench = context;
    (void)instruction, (void)stream;
    if (bench->count < TIMES)
        bench->seconds[bench->count++] = end_s - begin_s;
}

static void drop_time(void *context, uint32_t instruction, uint8_t stream, double begin_s,
                      double end_s)
{
    (void)context, (void)instruction, (void)stream, (void)begin_s, (void)end_s;
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* ---- a kernel ---- */

static void print_row(const struct bench *bench, const struct row *row, double seconds,
                      uint64_t bytes)
{
    printf("{\"kernel\": \"%s\", \"shapes\": \"", row->name);
    for (uint32_t i = 0; i < row->ins + row->outs; i++) {
        printf("%s%s", i ? " " : "", dtype_name(row->dtype[i]));
        for (uint32_t k = 0; k < row->shape[i].rank; k++)
            printf("%c%u", k ? 'x' : ' ', row->shape[i].dim[k]);
    }
    printf("\", \"ms\": %.4f, \"gb_per_s\": %.1f", 1e3 * seconds, 1e-9 * (double)bytes / seconds);
    if (row->flops > 0)
        printf(", \"tflop_per_s\": %.1f", 1e-12 * row->flops / seconds);
    else if (bench->copy_rate > 0)
        printf(", \"of_copy\": %.3f", (double)bytes / seconds / bench->copy_rate);
    printf("}\n");
    fflush(stdout);
}

static void launch_some(struct bench *bench, const struct work *work)
{
    struct err err = {0};
    for (uint32_t i = 0; i < TIMES; i++)
        if (device_launch(bench->dev, LANE_COMPUTE, work, &err) != ERR_OK)
            end_with(&err);
    if (device_sync(bench->dev, &err) != ERR_OK)
        end_with(&err);
}

/* The median of the work's times. */
static double time_work(struct bench *bench, const struct work *work)
{
    const double start = clock_now_s();
    device_time_work(bench->dev, false);
    while (clock_now_s() - start < bench->warm_up_s)
        launch_some(bench, work);
    device_time_work(bench->dev, true);
    bench->dev->ops->take_times(bench->dev, drop_time, NULL); /* of what filled operands */
    launch_some(bench, work);
    bench->count = 0;
    bench->dev->ops->take_times(bench->dev, take_time, bench);
    qsort(bench->seconds, TIMES, sizeof bench->seconds[0], by_size);
    return bench->seconds[TIMES / 2];
}

/* Times one row; returns bytes moved a second. */
static double run_row(struct bench *bench, const struct row *row)
{
    struct work_operand operand[MOST_OPERANDS];
    struct work work = {.kind = row->kind,
                        .ins = row->ins,
                        .outs = row->outs,
                        .operand = operand,
                        .ranks = 1,
                        .group = -1};
    struct err err = {0};
    uint64_t total = 0, sizes[MOST_OPERANDS];
    work.attr.p = row->p;
    work.attr.eps = 1e-5F;
    work.update.lr = 1e-3F;
    work.update.beta1 = 0.9F;
    work.update.beta2 = 0.95F;
    work.update.eps = 1e-8F;
    work.update.step = 1;
    const uint64_t workspace = bench->dev->workspace_bytes;
    if (workspace && work_is_matmul(row->kind)) {
        work.workspace = (void *)(uintptr_t)device_segment_new(bench->dev, workspace);
        work.workspace_bytes = workspace;
    }
    for (uint32_t i = 0; i < row->ins + row->outs; i++) {
        sizes[i] = shape_bytes(&row->shape[i], row->dtype[i]);
        total += sizes[i];
        const uint64_t address = device_segment_new(bench->dev, sizes[i]);
        if (!address) {
            err_set(&err, ERR_NOMEM, "%s: no memory for %llu bytes", row->name,
                    (unsigned long long)sizes[i]);
            end_with(&err);
        }
        fill(bench, address, &row->shape[i], row->dtype[i], &err);
        operand[i] = (struct work_operand){.data = (void *)(uintptr_t)address,
                                           .shape = row->shape[i],
                                           .dtype = (uint8_t)row->dtype[i]};
    }
    if (row->kind == WORK_ADAMW) /* all four are read, three are written */
        total = total / 4 * 7;
    if (work_is_matmul(row->kind) && device_prepare(bench->dev, &work, 1, &err) != ERR_OK)
        end_with(&err);
    const double seconds = time_work(bench, &work);
    print_row(bench, row, seconds, total);
    for (uint32_t i = 0; i < row->ins + row->outs; i++)
        device_segment_drop(bench->dev, (uint64_t)(uintptr_t)operand[i].data, sizes[i]);
    if (work.workspace)
        device_segment_drop(bench->dev, (uint64_t)(uintptr_t)work.workspace, workspace);
    return (double)total / seconds;
}

/* ---- what is measured ---- */

static void run_products(struct bench *bench, uint32_t scale)
{
    static const uint32_t sizes[][3] = {/* t, h, o: Llama-3.1-8B's */
                                        {8192, 4096, 4096},   {8192, 4096, 1024},
                                        {8192, 4096, 14336},  {8192, 14336, 4096},
                                        {8192, 4096, 128256}, {8192, 8192, 8192}};
    static const char *const names[] = {"matmul_nt", "matmul_nn", "matmul_tn"};
    static const enum work_kind kinds[] = {WORK_MATMUL_NT, WORK_MATMUL_NN, WORK_MATMUL_TN};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < 3; k++) {
            const uint32_t t = sizes[i][0] / scale, h = sizes[i][1] / scale,
                           o = sizes[i][2] / scale;
            const struct shape x = SHAPE(t, h), w = SHAPE(o, h), y = SHAPE(t, o);
            const struct row row = {
                .name = names[k],
                .kind = kinds[k],
                .ins = 2,
                .outs = 1,
                .shape = {k == 0 ? x : y, k == 2 ? x : w,
                          k == 0   ? y
                          : k == 1 ? x
                                   : w},
                .dtype = {DTYPE_BF16, DTYPE_BF16, DTYPE_BF16},
                .flops = 2.0 * t * h * o,
            };
            run_row(bench, &row);
        }
}

static void run_movers(struct bench *bench, uint32_t scale)
{
    const uint32_t t = 16384 / scale, h = 4096 / scale, v = 128256 / scale, n = 1U << 27;
    const enum dtype b = DTYPE_BF16, f = DTYPE_FP32, id = DTYPE_INT64;
    const struct shape x = SHAPE(t, h), w = SHAPE(h), one = SHAPE(t, 1), wide = SHAPE(t / 2, v);
    const struct shape list = SHAPE(n / scale / scale), rope = SHAPE(1, t, 32, h / 64);
    const struct row rows[] = {
        {"silu", WORK_SILU, 1, 1, {x, x}, {b, b}, 0, 0},
        {"silu_backward", WORK_SILU_BACKWARD, 2, 1, {x, x, x}, {b, b, b}, 0, 0},
        {"add", WORK_ADD, 2, 1, {x, x, x}, {b, b, b}, 0, 0},
        {"mul", WORK_MUL, 2, 1, {x, x, x}, {b, b, b}, 0, 0},
        {"add (bias)", WORK_ADD, 2, 1, {x, w, x}, {b, b, b}, 0, 0},
        {"sum (bias's gradient)", WORK_SUM, 1, 1, {x, SHAPE(1, h)}, {b, b}, 0, 0},
        {"sum (rows)", WORK_SUM, 1, 1, {x, one}, {b, b}, 0, 0},
        {"cast", WORK_CAST, 1, 1, {x, x}, {f, b}, 0, 0},
        {"mul (complex)",
         WORK_MUL,
         2,
         1,
         {rope, SHAPE(1, t, 1, h / 64), rope},
         {DTYPE_COMPLEX64, DTYPE_COMPLEX64, DTYPE_COMPLEX64},
         0,
         0},
        {"rms_norm", WORK_RMS_NORM, 2, 2, {x, w, x, one}, {b, b, b, f}, 0, 0},
        {"log_softmax", WORK_LOG_SOFTMAX, 1, 1, {wide, wide}, {f, f}, 0, 0},
        {"log_softmax_backward",
         WORK_LOG_SOFTMAX_BACKWARD,
         2,
         1,
         {wide, wide, wide},
         {f, f, f},
         0,
         0},
        {"embedding",
         WORK_EMBEDDING,
         2,
         1,
         {SHAPE(1, t), SHAPE(1024, h), SHAPE(1, t, h)},
         {id, b, b},
         0,
         0},
        {"adamw", WORK_ADAMW, 4, 0, {list, list, list, list}, {f, f, f, f}, 0, 0},
        {"norms", WORK_NORMS, 1, 1, {list, {.rank = 0}}, {f, f}, 0, 0},
        {"fill", WORK_FILL, 0, 1, {list}, {f}, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_row(bench, &rows[i]);
}

int main(int argc, char **argv)
{
    const uint32_t scale = argc > 1 && strcmp(argv[1], "--small") == 0 ? 64 : 1;
    const struct cuda_settings settings = {
        .events = 1, .lanes = test_lanes, .ranks = 1, .timeout_s = 60};
    const uint32_t n = scale > 1 ? 1U << 16 : 1U << 30;
    const struct row copy = {.name = "copy",
                             .kind = WORK_COPY,
                             .ins = 1,
                             .outs = 1,
                             .shape = {SHAPE(n), SHAPE(n)},
                             .dtype = {DTYPE_FP32, DTYPE_FP32}};
    struct bench bench = {.warm_up_s = scale > 1 ? 0 : WARM_UP_S};
    struct err err = {0};
    if (device_open_cuda(&settings, &bench.dev, &err) != ERR_OK)
        end_with(&err);
    bench.copy_rate = run_row(&bench, &copy);
    run_movers(&bench, scale);
    run_products(&bench, scale);
    device_close(bench.dev);
    return 0;
}
