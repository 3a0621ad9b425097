/* kernel_rows.h - the tables of kernels in tests/data/gpu, predicted row by row. */
#ifndef SHARDPLAN_TESTS_KERNEL_ROWS_H
#define SHARDPLAN_TESTS_KERNEL_ROWS_H

#include "machine/profile.h"

#include <stdbool.h>
#include <stddef.h>

struct kernel_row {
    char name[160];                 /* what people call it: its shape, its operator */
    char gpu[64];                   /* name of its profile */
    char class[48];                 /* "gemm, bf16": kernels that are told apart in a report */
    double measured_s, predicted_s; /* predicted: NAN where the model does not know it */
    bool fitted; /* constants of the cost model were fitted to it, or to its neighbours */
};

/* Every row of a table ("kernels", "matmul_h100", "attention_training", "norms_training"), at a
 * clock; a norm has one for each pass. Ends the program with a message when something is wrong with
 * a file. The caller owns the rows: free. */
struct kernel_row *kernel_rows_read(const char *table, enum clock clock, size_t *count);

/* Of rows of a class and a GPU (NULL: any) that took `least_s` or longer and are predicted. */
struct kernel_errors {
    size_t count;
    double median, median_absolute, worst; /* relative to what was measured */
};
struct kernel_errors kernel_errors_of(const struct kernel_row *rows, size_t count,
                                      const char *class, const char *gpu, double least_s);

#endif
