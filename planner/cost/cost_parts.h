/* cost_parts.h - for the files of this folder alone: the parts that kernel_cost.c puts together.
 *
 *     gemm_cost.c  attention_cost.c   arithmetic, and the clock it runs at
 *     traffic.c                       bytes that they move
 *     row_cost.c   walk.c             kernels that are slower than the bytes they move
 *     delta_cost.c                    and linear attention's
 */
#ifndef SHARDPLAN_COST_PARTS_H
#define SHARDPLAN_COST_PARTS_H

#include "cost/clock.h"
#include "cost/cost.h"
#include "cost/walk.h"

/* Whether it is a product whose results are summed where they are. */
static inline bool is_cut(const struct kernel *kernel)
{
    return kernel->work == WORK_CUT_CROSS_ENTROPY ||
           kernel->work == WORK_CUT_CROSS_ENTROPY_BACKWARD;
}

/* What the kernel multiplies. */
struct gemm gemm_of(const struct kernel *kernel, const struct profile *profile);

/* ---- traffic ---- */

enum efficiency { NOT_LISTED, BY_STREAM, BY_REDUCE, BY_INDEX };

/* How often a kernel reads its inputs and writes its outputs, and how well. What is not listed
 * does each once, at streaming speed. Passes are counted in ATen's CUDA sources. */
struct traffic {
    enum efficiency efficiency;
    double reads, writes;
};
struct traffic traffic_of(const struct kernel *kernel);

/* ---- attention ---- */

bool is_attention(const struct kernel *kernel);
bool is_attention_backward(const struct kernel *kernel);

/* Seconds of a kernel of attention, without launch. */
double attention_seconds(const struct kernel *kernel, const struct profile *profile);

/* Seconds that its operations would take at the peak and boost, times what each draws beside one of
 * a product. */
double attention_matrix_seconds(const struct kernel *kernel, const struct profile *profile);

/* Relative standard deviation of attention_seconds. */
double attention_spread(const struct kernel *kernel, const struct profile *profile);

/* ---- linear attention ---- */

/* Seconds of a product of the gated delta rule or of Mamba-2, without launch; 0: it is none, or the
 * profile has no multiprocessors or clock. */
double delta_seconds(const struct kernel *kernel, const struct profile *profile);

/* ---- norms and softmax: a block of threads a row ---- */

/* Seconds of a kernel that works row by row, without launch; 0: it is none, or the profile has no
 * multiprocessors or clock. */
double row_seconds(const struct kernel *kernel, const struct profile *profile);

#endif
