/* kernel_csv.h - tables of measured kernels, a row each, and what the cost model says of a row.
 *
 *     profiler    op, input_dims, input_types, input_strides, concrete_inputs (JSON), kernel: what
 *                 torch.profiler shows of a launch
 *     matmul      batch, m, n, k, dtypes ("bf16xbf16->bf16")
 *     attention   backend, dtype, mask, batch, q_seq, kv_seq, q_heads, kv_heads, head_qk, head_v,
 *                 pass, and perhaps deterministic and sliding_window
 *     norms       norm, backend, dtype, rows, columns: forward and backward
 *
 * A `gpu` column says where it was measured. What a row is made of is told by its columns; what the
 * model does not know (an operator, a dtype, a library) has no prediction, which is no error. */
#ifndef SHARDPLAN_KERNEL_CSV_H
#define SHARDPLAN_KERNEL_CSV_H

#include "base/csv.h"
#include "machine/profile.h"

enum kernel_csv_form {
    KERNEL_CSV_PROFILER,
    KERNEL_CSV_MATMUL,
    KERNEL_CSV_ATTENTION,
    KERNEL_CSV_NORMS,
    KERNEL_CSV_FORMS
};

struct kernel_csv {
    const char *path;
    const struct csv_table *table; /* lent */
    enum kernel_csv_form form;
};

struct kernel_csv_row {
    double seconds;    /* of the kernel alone; of a norm, forward and backward; NAN: not known */
    double backward_s; /* of a norm, of that: the backward pass; else NAN */
    const char *class; /* "gemm": what kind of kernel, "" where it is not known */
};

/* Tells the form by the header. ERR_INVALID: none; it says which columns each has. */
enum err_code kernel_csv_open(const char *path, const struct csv_table *table,
                              struct kernel_csv *out, struct err *err);

/* Predicts a row (from 0) on a profile, at its clock. ERR_INVALID, with file and line: a cell is no
 * number or no JSON where it must be. */
enum err_code kernel_csv_predict(const struct kernel_csv *csv, uint32_t row,
                                 const struct profile *profile, struct kernel_csv_row *out,
                                 struct err *err);

/* Seconds as the row has them: measured, or by its rate; NAN: it has none. `backward_s` of a norm,
 * where `seconds` is both. */
double kernel_csv_measured(const struct kernel_csv *csv, uint32_t row, double *backward_s);

#endif
