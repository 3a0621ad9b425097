/* traffic.c - what kernels move between the device and its memory; see cost_parts.h. */
#include "cost/cost_parts.h"

static const struct traffic traffics[WORK_KIND_COUNT] = {
    /* Only the rows that are looked up: as much as is written. */
    [WORK_EMBEDDING] = {BY_REDUCE, 0, 2},
    /* The gradient is filled with zeros; then indices are sorted, and segments are summed in two
     * steps with partial sums: 12 bytes a gradient element of 2 (Embedding.cu). */
    [WORK_EMBEDDING_BACKWARD] = {BY_INDEX, 6, 1},
    [WORK_LAYER_NORM] = {BY_STREAM, 1, 1},
    [WORK_RMS_NORM] = {BY_STREAM, 1, 1},
    /* One kernel for the input's gradient, another for those of the weights: both read all. */
    [WORK_LAYER_NORM_BACKWARD] = {BY_STREAM, 2, 1},
    [WORK_RMS_NORM_BACKWARD] = {BY_STREAM, 2, 1},
    [WORK_SUM] = {BY_REDUCE, 1, 1},
    /* Inductor's: every operand once (row_cost.c). */
    [WORK_FUSED_REDUCTION] = {BY_STREAM, 1, 1},
    [WORK_SUM_DIM] = {BY_REDUCE, 1, 1},
    [WORK_NORMS] = {BY_REDUCE, 1, 1},
    /* Picks one element a row. */
    [WORK_NLL_LOSS] = {BY_REDUCE, 0, 1},
    [WORK_NLL_LOSSES] = {BY_REDUCE, 0, 1},
    /* Zero-fill, then one element a row. */
    [WORK_NLL_LOSS_BACKWARD] = {BY_STREAM, 0, 1},
    [WORK_NLL_LOSSES_BACKWARD] = {BY_STREAM, 0, 1},
    /* The sum of a row's exponents, then its gradient: two walks over the logits (Liger's
     * ops/cross_entropy.py). */
    [WORK_CROSS_ENTROPY_SLOPES] = {BY_STREAM, 2, 1},
    /* What is added to is read. */
    [WORK_MATMUL_TN_ADD] = {BY_STREAM, 1, 2},
    [WORK_MATMUL_NT_ADD] = {BY_STREAM, 1, 2},
    [WORK_MATMUL_NN_ADD] = {BY_STREAM, 1, 2},
    [WORK_TOPK] = {BY_INDEX, 2, 1},
    [WORK_SORT] = {BY_INDEX, 8, 8}, /* radix sort: eight passes over 64-bit keys */
    [WORK_GATHER] = {BY_INDEX, 1, 1},
    [WORK_SCATTER] = {BY_INDEX, 1, 1},
    [WORK_INDEX] = {BY_INDEX, 0, 2},
    [WORK_INDEX_SET] = {BY_INDEX, 0, 2},
    [WORK_INDEX_PUT] = {BY_INDEX, 1, 1},
    /* Its output is the whole gather buffer, of which it fills one slice. */
    [WORK_COPY_IN] = {BY_STREAM, 2, 0},
    /* What is added to is read and written. */
    [WORK_ADD_IN_PLACE] = {BY_STREAM, 1, 2},
    /* foreach and loop: lerp 3, mul 2, addcmul 3, decay 2, sqrt 2, div 2, add 2, addcdiv 4 passes
     * over the parameters, where the operands are 7 (4 in, 3 out) that the fused kernel moves. */
    [WORK_ADAMW] = {BY_STREAM, 20.0 / 7, 20.0 / 7},
};

/* A softmax keeps a row in registers up to about 9,000 elements, and in shared memory while it is
 * below 48 KiB; a longer one is read for the maximum, for the sum and for the result. The backward
 * reads a long gradient for the sum and both for the result (SoftMax.cu's dispatch). */
enum { SOFTMAX_KEPT = 9216, SOFTMAX_KEPT_BYTES = 49152 };

static struct traffic softmax_traffic(const struct kernel *kernel, bool backward)
{
    const struct operand *x = kernel->operands;
    const uint32_t row = x->shape.rank > 0 ? x->shape.dim[x->shape.rank - 1] : 1;
    const bool kept = row <= SOFTMAX_KEPT ||
                      (uint64_t)row * dtype_bytes((enum dtype)x->dtype) < SOFTMAX_KEPT_BYTES;
    return (struct traffic){BY_REDUCE, kept ? 1 : backward ? 1.5 : 3, 1};
}

struct traffic traffic_of(const struct kernel *kernel)
{
    const enum work_kind work = (enum work_kind)kernel->work;
    if (work == WORK_SOFTMAX || work == WORK_LOG_SOFTMAX)
        return softmax_traffic(kernel, false);
    if (work == WORK_SOFTMAX_BACKWARD || work == WORK_LOG_SOFTMAX_BACKWARD)
        return softmax_traffic(kernel, true);
    return traffics[work].efficiency == NOT_LISTED ? (struct traffic){BY_STREAM, 1, 1}
                                                   : traffics[work];
}

static double operands_bytes(const struct operand *operands, uint32_t count)
{
    double bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += (double)shape_bytes(&operands[i].shape, (enum dtype)operands[i].dtype);
    return bytes;
}

/* Bytes moved between the device and its memory. */
static double traffic_bytes(const struct kernel *kernel, struct traffic traffic)
{
    if (kernel->summed)
        return traffic.reads * kernel->in_bytes +
               traffic.writes * (kernel->bytes - kernel->in_bytes);
    const double in = operands_bytes(kernel->operands, kernel->ins);
    const double out = operands_bytes(kernel->operands + kernel->ins, kernel->outs);
    return traffic.reads * in + traffic.writes * out;
}

double kernel_traffic(const struct kernel *kernel)
{
    return traffic_bytes(kernel, traffic_of(kernel));
}

double kernel_traffic_beyond(const struct kernel *kernel, double held)
{
    const struct traffic traffic = traffic_of(kernel);
    double bytes = traffic_bytes(kernel, traffic);
    for (uint32_t i = 0; !kernel->summed && i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const struct operand *operand = &kernel->operands[i];
        const double passes = i < kernel->ins ? traffic.reads : traffic.writes;
        if (operand->since > 0 && (double)operand->since <= held)
            bytes -= operands_bytes(operand, 1) * (passes < 1 ? passes : 1);
    }
    return bytes;
}
