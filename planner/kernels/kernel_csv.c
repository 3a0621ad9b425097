/* kernel_csv.c - see kernel_csv.h. */
#include "kernels/kernel_csv.h"

#include "base/number.h"
#include "cost/cost.h"
#include "kernels/profiler_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MOST = 12 };

/* In the order of enum kernel_csv_form. */
static const struct {
    const char *name, *columns[COLUMNS_MOST];
} forms[KERNEL_CSV_FORMS] = {
    {"profiler", {"op", "input_dims", "input_types", "input_strides", "concrete_inputs", "kernel"}},
    {"matmul", {"dtypes", "batch", "m", "n", "k"}},
    {"attention",
     {"backend", "dtype", "mask", "batch", "q_seq", "kv_seq", "q_heads", "kv_heads", "head_qk",
      "head_v", "pass"}},
    {"norms", {"norm", "backend", "dtype", "rows", "columns"}},
};

enum err_code kernel_csv_open(const char *path, const struct csv_table *table,
                              struct kernel_csv *out, struct err *err)
{
    *out = (struct kernel_csv){.path = path, .table = table};
    for (int f = 0; f < KERNEL_CSV_FORMS; f++) {
        int i = 0;
        while (i < COLUMNS_MOST && forms[f].columns[i] &&
               csv_table_column(table, forms[f].columns[i]) != UINT32_MAX)
            i++;
        out->form = (enum kernel_csv_form)f;
        if (i == COLUMNS_MOST || !forms[f].columns[i])
            return ERR_OK;
    }
    return err_set(
        err, ERR_INVALID,
        "%s:1: no table of kernels: a profiler's has the columns op, input_dims, "
        "input_types, input_strides, concrete_inputs and kernel, one of products dtypes, "
        "batch, m, n and k, one of attention backend, dtype, mask, batch, q_seq, kv_seq, "
        "q_heads, kv_heads, head_qk, head_v and pass, one of norms norm, backend, dtype, "
        "rows and columns",
        path);
}

/* ---- cells ---- */

static const char *text(const struct kernel_csv *csv, uint32_t row, const char *column)
{
    const uint32_t at = csv_table_column(csv->table, column);
    return at == UINT32_MAX ? "" : csv_table_cell(csv->table, row, at);
}

static uint32_t line_of(const struct kernel_csv *csv, uint32_t row)
{
    return csv->table->lines[row + 1];
}

/* A count of 1 ... 2^31. */
static enum err_code count(const struct kernel_csv *csv, uint32_t row, const char *column,
                           double *out, struct err *err)
{
    const char *cell = text(csv, row, column);
    uint64_t value = 0;
    if (!number_integer(cell, &value) || value == 0 || value > INT32_MAX)
        return err_set(err, ERR_INVALID, "%s:%u: %s: \"%s\" is no number of 1 ... 2147483647",
                       csv->path, line_of(csv, row), column, cell);
    *out = (double)value;
    return ERR_OK;
}

static bool is(const struct kernel_csv *csv, uint32_t row, const char *column, const char *word)
{
    return strcmp(text(csv, row, column), word) == 0;
}

/* bfloat16, float16, float32; DTYPE_COUNT for what the model does not know. */
static enum dtype dtype_of(const char *name)
{
    static const enum dtype known[] = {DTYPE_BF16, DTYPE_FP16, DTYPE_FP32};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, dtype_name(known[i])) == 0)
            return known[i];
    return DTYPE_COUNT;
}

static double start_seconds(const struct profile *profile)
{
    return profile_value(profile, PROFILE_LATENCY) - profile_value(profile, PROFILE_GAP);
}

/* ---- products ---- */

/* XLA lets TF32 stand for fp32. Its operands are row by row, and the newest instructions for TF32
 * want the right one column by column: mma.sync runs, which reaches 0.62 of the peak (arXiv
 * 2402.13499, recalled), and gemm_efficiency is of the newest; the largest rows say the same. */
#define TF32_SPEED 0.74

static enum err_code predict_matmul(const struct kernel_csv *csv, uint32_t row,
                                    const struct profile *profile, struct kernel_csv_row *out,
                                    struct err *err)
{
    struct gemm g = {.element_bytes = 2, .result_bytes = 2, .speed = 1};
    TRY(count(csv, row, "batch", &g.batch, err));
    TRY(count(csv, row, "m", &g.m, err));
    TRY(count(csv, row, "n", &g.n, err));
    TRY(count(csv, row, "k", &g.k, err));
    if (is(csv, row, "dtypes", "bf16xbf16->bf16")) {
        g.peak = profile_value(profile, PROFILE_BF16);
    } else if (is(csv, row, "dtypes", "f16xf16->f16")) {
        g.peak = profile_value(profile, PROFILE_FP16);
    } else if (is(csv, row, "dtypes", "f32xf32->f32")) {
        g.peak = profile_value(profile, PROFILE_TF32);
        g.speed = TF32_SPEED;
        g.element_bytes = g.result_bytes = 4;
    }
    if (g.peak <= 0)
        return ERR_OK;
    const double memory_s =
        g.element_bytes * g.batch * (g.m * g.k + g.k * g.n + g.m * g.n) /
        (profile_value(profile, PROFILE_MEMORY) * profile_value(profile, PROFILE_STREAM));
    out->class = g.element_bytes < 4 ? "gemm" : "gemm, TF32";
    out->seconds = start_seconds(profile) + profile_value(profile, PROFILE_GEMM_START) +
                   fmax(memory_s, gemm_seconds(profile, &g));
    return ERR_OK;
}

/* ---- attention ---- */

static enum err_code read_attention(const struct kernel_csv *csv, uint32_t row,
                                    struct attention *out, struct err *err)
{
    double head = 0, head_v = 0;
    const struct {
        const char *column;
        double *to;
    } cells[] = {{"batch", &out->batch},   {"q_seq", &out->queries}, {"kv_seq", &out->keys},
                 {"q_heads", &out->heads}, {"head_qk", &head},       {"head_v", &head_v}};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
        TRY(count(csv, row, cells[i].column, cells[i].to, err));
    if (*text(csv, row, "sliding_window"))
        TRY(count(csv, row, "sliding_window", &out->window, err));
    out->head = (uint32_t)head;
    out->head_v = (uint32_t)head_v;
    out->dtype = dtype_of(text(csv, row, "dtype"));
    out->causal = !is(csv, row, "mask", "no_mask");
    out->backward = is(csv, row, "pass", "bwd");
    out->deterministic = is(csv, row, "deterministic", "True");
    return ERR_OK;
}

static enum err_code predict_attention(const struct kernel_csv *csv, uint32_t row,
                                       const struct profile *profile, struct kernel_csv_row *out,
                                       struct err *err)
{
    struct attention a = {.dtype = DTYPE_COUNT};
    struct profile used = *profile;
    used.attention = ATTENTION_AUTO;
    TRY(read_attention(csv, row, &a, err));
    for (int k = ATTENTION_CUDNN; k < ATTENTION_KERNELS; k++)
        if (is(csv, row, "backend", attention_name((enum attention_kernel)k)))
            used.attention = (enum attention_kernel)k;
    if (used.attention == ATTENTION_AUTO || a.dtype == DTYPE_COUNT)
        return ERR_OK;
    out->class = a.backward ? "attention, backward" : "attention, forward";
    out->seconds = start_seconds(profile) + attention_time(&a, &used);
    return ERR_OK;
}

/* ---- norms ---- */

/* y (and the statistics) of x; dx and the weight's gradient of dy and x. */
static double norm_pass(const struct profile *profile, enum work_kind work, struct shape shape,
                        enum dtype dtype, bool backward)
{
    struct operand operands[4];
    for (int i = 0; i < 4; i++)
        operands[i] = (struct operand){.dtype = (uint8_t)dtype, .shape = shape};
    operands[3].shape = SHAPE(shape.dim[1]);
    const struct kernel kernel = {.work = (uint8_t)work,
                                  .ins = backward ? 2 : 1,
                                  .outs = backward ? 2 : 1,
                                  .backward = backward,
                                  .operands = operands};
    return kernel_seconds(&kernel, profile);
}

/* Inductor's kernel of the first `ins` operands and the rest, sums among them. */
static double fused_seconds(const struct profile *profile, struct operand *operands, uint16_t ins,
                            uint16_t outs)
{
    const struct kernel kernel = {
        .work = WORK_FUSED_REDUCTION, .ins = ins, .outs = outs, .operands = operands};
    return kernel_seconds(&kernel, profile);
}

/* As the programs of planner/compile have them: y and the statistics in one kernel; dx in another,
 * the weight's gradient in parts and these added up. */
static void compiled_norm(const struct profile *profile, struct shape shape, enum dtype dtype,
                          struct kernel_csv_row *out)
{
    enum { PARTS = 32 };
    const struct operand x = {.dtype = (uint8_t)dtype, .shape = shape};
    const struct operand w = {.dtype = (uint8_t)dtype, .shape = SHAPE(shape.dim[1])};
    const struct operand statistics = {.dtype = DTYPE_FP32, .shape = SHAPE(shape.dim[0], 1)};
    const struct operand parts = {.dtype = DTYPE_FP32, .shape = SHAPE(PARTS, shape.dim[1])};
    const double y_s = fused_seconds(profile, (struct operand[]){x, w, x, statistics}, 2, 2);
    out->backward_s = fused_seconds(profile, (struct operand[]){x, x, w, statistics, x}, 4, 1) +
                      fused_seconds(profile, (struct operand[]){x, x, statistics, parts}, 3, 1) +
                      fused_seconds(profile, (struct operand[]){parts, w}, 1, 1);
    out->seconds = y_s + out->backward_s;
}

static enum err_code predict_norm(const struct kernel_csv *csv, uint32_t row,
                                  const struct profile *profile, struct kernel_csv_row *out,
                                  struct err *err)
{
    double rows = 0, columns = 0;
    const bool layer = is(csv, row, "norm", "layer_norm");
    const enum dtype dtype = dtype_of(text(csv, row, "dtype"));
    TRY(count(csv, row, "rows", &rows, err));
    TRY(count(csv, row, "columns", &columns, err));
    const bool compiled = is(csv, row, "backend", "torch_compile");
    if (!(compiled || is(csv, row, "backend", "pytorch")) || dtype == DTYPE_COUNT ||
        !(layer || is(csv, row, "norm", "rms_norm")))
        return ERR_OK;
    const struct shape shape = SHAPE((uint32_t)rows, (uint32_t)columns);
    out->class = compiled ? "norm, compiled" : "norm";
    if (compiled) {
        compiled_norm(profile, shape, dtype, out);
        return ERR_OK;
    }
    out->backward_s = norm_pass(profile, layer ? WORK_LAYER_NORM_BACKWARD : WORK_RMS_NORM_BACKWARD,
                                shape, dtype, true);
    out->seconds = out->backward_s +
                   norm_pass(profile, layer ? WORK_LAYER_NORM : WORK_RMS_NORM, shape, dtype, false);
    return ERR_OK;
}

/* ---- profiler ---- */

static enum err_code predict_profiler(const struct kernel_csv *csv, uint32_t row,
                                      const struct profile *profile, struct kernel_csv_row *out,
                                      struct err *err)
{
    char where[512];
    const char *const cells[5] = {text(csv, row, "op"), text(csv, row, "input_dims"),
                                  text(csv, row, "input_types"), text(csv, row, "input_strides"),
                                  text(csv, row, "concrete_inputs")};
    struct profiler_row launch;
    snprintf(where, sizeof where, "%s:%u", csv->path, line_of(csv, row));
    const enum err_code rc =
        profiler_row_read(where, cells, text(csv, row, "kernel"), &launch, err);
    if (rc == ERR_OK)
        out->seconds = profiler_row_seconds(&launch, profile, &out->class);
    profiler_row_free(&launch);
    return rc;
}

enum err_code kernel_csv_predict(const struct kernel_csv *csv, uint32_t row,
                                 const struct profile *profile, struct kernel_csv_row *out,
                                 struct err *err)
{
    static enum err_code (*const predicts[KERNEL_CSV_FORMS])(
        const struct kernel_csv *, uint32_t, const struct profile *, struct kernel_csv_row *,
        struct err *) = {predict_profiler, predict_matmul, predict_attention, predict_norm};
    *out = (struct kernel_csv_row){.seconds = NAN, .backward_s = NAN, .class = ""};
    const enum err_code rc = predicts[csv->form](csv, row, profile, out, err);
    if (!isfinite(out->seconds)) /* a shape of nothing */
        out->seconds = NAN;
    return rc;
}

double kernel_csv_measured(const struct kernel_csv *csv, uint32_t row, double *backward_s)
{
    double value = 0, part = 0;
    *backward_s = NAN;
    switch (csv->form) {
    case KERNEL_CSV_PROFILER:
        return number_real(text(csv, row, "median_us"), &value) ? 1e-6 * value : NAN;
    case KERNEL_CSV_ATTENTION:
        return number_real(text(csv, row, "ms"), &value) ? 1e-3 * value : NAN;
    case KERNEL_CSV_NORMS:
        if (!number_real(text(csv, row, "fwd_ms"), &value) ||
            !number_real(text(csv, row, "bwd_ms"), &part))
            return NAN;
        *backward_s = 1e-3 * part;
        return 1e-3 * (value + part);
    default:
        if (!number_real(text(csv, row, "flops_per_s"), &value) || !(value > 0))
            return NAN;
        return 2 * strtod(text(csv, row, "batch"), NULL) * strtod(text(csv, row, "m"), NULL) *
               strtod(text(csv, row, "n"), NULL) * strtod(text(csv, row, "k"), NULL) / value;
    }
}
