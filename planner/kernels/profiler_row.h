/* profiler_row.h - for this folder alone: one launch as torch.profiler shows it. */
#ifndef SHARDPLAN_PROFILER_ROW_H
#define SHARDPLAN_PROFILER_ROW_H

#include "aten/aten_kernel.h"
#include "base/err.h"

#include <jansson.h>

enum { PROFILER_TENSORS = 32 };

struct profiler_row {
    const char *op;                               /* "add", without its namespace: lent */
    const char *kernel;                           /* lent */
    struct aten_tensor tensors[PROFILER_TENSORS]; /* those that have dims, in order */
    uint32_t count;
    bool known;       /* all of their dtypes and ranks are */
    json_t *concrete; /* values of the other arguments: owned, profiler_row_free */
};

/* Takes the five cells of a row apart; `where` is in errors. The caller owns *out:
 * profiler_row_free. */
enum err_code profiler_row_read(const char *where, const char *const cells[5], const char *kernel,
                                struct profiler_row *out, struct err *err);
void profiler_row_free(struct profiler_row *row);

/* The row as a call, which lends what the row has. */
struct aten_call profiler_row_call(struct profiler_row *row);

/* Seconds of the row's kernel alone, or NAN; *class as in struct kernel_csv_row. */
struct profile;
double profiler_row_seconds(struct profiler_row *row, const struct profile *profile,
                            const char **class);

#endif
