/* row_cost.c - norms and softmax: what a block of threads does with a row.
 *
 * Norms (layer_norm_kernel.cu): a block of 128 threads reads a row twice, for the statistics and
 * for the result; sixteen rows are on a multiprocessor at a time, and what of them its first-level
 * cache does not hold comes from the second level the second time, or from memory again:
 *
 *     forward = rows' start + (x + y) / bandwidth + what is read again
 *     backward = the same of dy, x and dx, + a second kernel for the weight's gradient
 *
 * but never less than one row takes from begin to end, step by step. The second kernel gives each
 * multiprocessor 32 columns, all rows of which it sums: it cannot read as fast as memory could, and
 * with few columns most multiprocessors have nothing to do.
 *
 * The constants were fitted to the H200 rows of tests/data/gpu/norms_training.csv by PyTorch in
 * eager mode, what one row takes to the two of them that it decides and to a short LayerNorm of an
 * H100 (tests/data/gpu/kernels.csv); those of GB200, the shorter one there and MI300X's were left
 * out of that.
 *
 * Inductor's fused sums go by the same two numbers: a block of threads takes a row from memory
 * once, or a multiprocessor sums columns. Nothing was fitted to them; RMSNorm compiled alone, which
 * is such kernels, is in the same table.
 *
 * Softmax (SoftMax.cu): rows of up to 1,024 elements are kept by warps; for longer ones a block of
 * 1,024 threads takes a row, in three phases with a wait for all of them after each. */
#include "cost/cost_parts.h"

#include <math.h>

/* ---- norms ---- */

#define ROW_START 1e-7    /* seconds a row and multiprocessor: begin, sums over the block */
#define STEP_S 1.2e-6     /* from a load to what depends on it, a step */
#define ROW_ENDS 5e-7     /* begin and end of one row alone, beside those that any kernel has */
#define NORM_STREAM 0.91  /* of what kernels that stream reach: less, the last wave */
#define L1_BYTES 131072.0 /* that rows have of the first-level cache, beside what is staged */
#define COLUMN_RATE                                                                                \
    18.5e9                /* bytes a second of a multiprocessor that sums columns beside others    \
                           */
#define COLUMN_ALONE 60e9 /* and alone */
enum { ROWS_RESIDENT = 16, STEP = 512, COLUMNS = 32 };

struct rows {
    double count, columns, row_bytes; /* of one tensor */
    double sms;
};

/* Bytes a second that norms stream with. */
static double norm_rate(const struct profile *profile)
{
    return NORM_STREAM * profile_value(profile, PROFILE_MEMORY) *
           profile_value(profile, PROFILE_STREAM);
}

static struct rows rows_of(const struct kernel *kernel, uint32_t operand,
                           const struct profile *profile)
{
    const struct operand *x = &kernel->operands[operand];
    const double columns = x->shape.rank > 0 ? x->shape.dim[x->shape.rank - 1] : 1;
    return (struct rows){
        .count = (double)shape_elements(&x->shape) / columns,
        .columns = columns,
        .row_bytes = columns * dtype_bytes((enum dtype)x->dtype),
        .sms = profile_value(profile, PROFILE_SMS),
    };
}

/* Seconds to read `tensors` of such rows a second time, in part from the first-level cache. */
static double again_seconds(const struct rows *rows, double tensors, const struct profile *profile)
{
    const double resident = fmin(ROWS_RESIDENT, rows->count / rows->sms) * rows->row_bytes;
    const double missed = fmin(1, fmax(0, resident / L1_BYTES - 1));
    const double bandwidth = profile_value(profile, PROFILE_MEMORY);
    const double l2 = profile_value(profile, PROFILE_L2_RATE);
    const bool held = resident * rows->sms <= profile_value(profile, PROFILE_L2) && l2 > 0;
    return missed * tensors * rows->count * rows->row_bytes /
           (held ? fmax(l2, bandwidth) : norm_rate(profile));
}

/* `reads` tensors in, one out. */
static double norm_seconds(const struct rows *rows, double reads, const struct profile *profile)
{
    const double bytes = (reads + 1) * rows->count * rows->row_bytes;
    const double all = rows->count / rows->sms * ROW_START + bytes / norm_rate(profile) +
                       again_seconds(rows, reads, profile);
    return fmax(all, ROW_ENDS + ceil(rows->columns / STEP) * STEP_S);
}

static double column_seconds(const struct rows *rows, const struct profile *profile)
{
    const double blocks = ceil(rows->columns / COLUMNS);
    const double bytes = 2 * rows->count * rows->row_bytes;
    const double rate =
        fmin(fmin(blocks * COLUMN_ALONE, rows->sms * COLUMN_RATE), norm_rate(profile));
    return bytes / rate;
}

static bool has_weight_gradient(const struct kernel *kernel)
{
    for (uint32_t i = kernel->ins; i < (uint32_t)kernel->ins + kernel->outs; i++)
        if (shape_elements(&kernel->operands[i].shape) < shape_elements(&kernel->operands[0].shape))
            return true;
    return false;
}

static double norm_backward_seconds(const struct kernel *kernel, const struct profile *profile)
{
    const struct rows rows = rows_of(kernel, 0, profile);
    const double second = has_weight_gradient(kernel)
                              ? column_seconds(&rows, profile) +
                                    profile_value(profile, PROFILE_LATENCY) -
                                    profile_value(profile, PROFILE_GAP)
                              : 0;
    return norm_seconds(&rows, 2, profile) + second;
}

/* ---- Inductor's ---- */

/* Rows of 256 elements and more have a block of their own; shorter ones share one of as many
 * elements at the most (get_persistent_configs,
 * torch/_inductor/heuristics/triton_codegen/reduction.py). */
enum { OWN_BLOCK = 256, SHARED_BLOCK = 4096 };

static const struct operand *largest(const struct operand *operands, uint32_t count)
{
    const struct operand *out = operands;
    for (uint32_t i = 1; i < count; i++)
        if (shape_elements(&operands[i].shape) > shape_elements(&out->shape))
            out = &operands[i];
    return out;
}

static uint32_t last_dim(const struct operand *operand)
{
    return operand->shape.rank > 0 ? operand->shape.dim[operand->shape.rank - 1] : 1;
}

/* Sums down columns are as wide as what they are of, and shorter. */
static double fused_seconds(const struct kernel *kernel, const struct profile *profile)
{
    if (kernel->ins == 0 || kernel->outs == 0)
        return 0;
    const struct operand *x = largest(kernel->operands, kernel->ins);
    const struct operand *y = largest(kernel->operands + kernel->ins, kernel->outs);
    const double elements = (double)shape_elements(&x->shape), columns = last_dim(x);
    const double sms = profile_value(profile, PROFILE_SMS);
    const double streamed = kernel_traffic(kernel) / (profile_value(profile, PROFILE_MEMORY) *
                                                      profile_value(profile, PROFILE_STREAM));
    if (columns > 1 && last_dim(y) == last_dim(x) &&
        2 * (double)shape_elements(&y->shape) < elements)
        return fmax(streamed, kernel_traffic(kernel) / (sms * COLUMN_RATE));
    const double shared = columns < OWN_BLOCK ? SHARED_BLOCK / columns : 1;
    return streamed + elements / columns / shared / sms * ROW_START;
}

/* ---- softmax ---- */

#define PHASES_S                                                                                   \
    6e-6 /* the three phases of a block that shares its multiprocessor with another                \
          */
enum { WARP_COLUMNS = 1024, BLOCKS_RESIDENT = 2 };

static double softmax_seconds(const struct kernel *kernel, const struct profile *profile)
{
    const struct rows rows = rows_of(kernel, 0, profile);
    return rows.columns <= WARP_COLUMNS
               ? 0
               : fmax(1, rows.count / (rows.sms * BLOCKS_RESIDENT)) * PHASES_S;
}

double row_seconds(const struct kernel *kernel, const struct profile *profile)
{
    if (profile_value(profile, PROFILE_SMS) <= 0)
        return 0;
    switch ((enum work_kind)kernel->work) {
    case WORK_RMS_NORM:
    case WORK_LAYER_NORM: {
        const struct rows rows = rows_of(kernel, 0, profile);
        return norm_seconds(&rows, 1, profile);
    }
    case WORK_RMS_NORM_BACKWARD:
    case WORK_LAYER_NORM_BACKWARD:
        return norm_backward_seconds(kernel, profile);
    case WORK_FUSED_REDUCTION:
        return fused_seconds(kernel, profile);
    case WORK_SOFTMAX:
    case WORK_SAFE_SOFTMAX:
    case WORK_LOG_SOFTMAX:
    case WORK_SOFTMAX_BACKWARD:
    case WORK_LOG_SOFTMAX_BACKWARD:
        return softmax_seconds(kernel, profile);
    default:
        return 0;
    }
}
