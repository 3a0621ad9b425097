/* kernel_cost.c - one kernel on one device: launch + max(arithmetic, traffic).
 *
 * Arithmetic: a GEMM is cut into tiles that fill the multiprocessors in waves; attention runs at a
 * share of the peak that grows with the sequence. Traffic: what the operands hold, times the
 * passes that the kernel makes over them. */
#include "cost/cost.h"

#include <math.h>

/* ---- GEMM ---- */

/* Tile shapes of cuBLAS's tensor-core kernels and how fast each is beside the largest: 256 x 128
 * full speed, 128 x 128 0.93, 128 x 64 0.75, 64 x 64 0.55 (NVIDIA, Matrix Multiplication
 * Background User's Guide, figures on A100). */
static const struct {
    double m, n, speed;
} tiles[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.93},
             {128, 64, 0.75}, {64, 128, 0.75}, {64, 64, 0.55}};

/* Split-K and stream-K kernels share out the last wave where the inner size allows it: what is
 * lost then stays under 15 %. */
enum { SPLIT_K_FROM = 4096 };
#define SPLIT_K_LEAST 0.85

double gemm_seconds(const struct profile *profile, double peak, double m, double n, double k,
                    double batch)
{
    const double sms = profile_value(profile, PROFILE_SMS);
    double best = sms > 0 ? 0 : 1; /* a CPU has neither tiles nor waves */
    for (size_t i = 0; sms > 0 && i < sizeof tiles / sizeof tiles[0]; i++) {
        const double count = batch * ceil(m / tiles[i].m) * ceil(n / tiles[i].n);
        const double full = batch * m * n / (count * tiles[i].m * tiles[i].n);
        double wave = count / (ceil(count / sms) * sms);
        if (k >= SPLIT_K_FROM)
            wave = fmax(wave, SPLIT_K_LEAST);
        best = fmax(best, tiles[i].speed * full * wave);
    }
    best *= profile_value(profile, PROFILE_GEMM) * k /
            (k + profile_value(profile, PROFILE_GEMM_K_HALF));
    return 2 * m * n * k * batch / (peak * best);
}

double peak_flops(const struct profile *profile, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return profile_value(profile, PROFILE_BF16);
    case DTYPE_FP16:
        return profile_value(profile, PROFILE_FP16);
    default:
        return profile_value(profile, PROFILE_FP32);
    }
}

/* (m, n) are the last two dims of the result, what is before them a batch; the inner size follows
 * from the arithmetic. */
static double gemm_of(const struct kernel *kernel, const struct profile *profile)
{
    const struct operand *out = &kernel->operands[kernel->ins];
    const struct shape *shape = &out->shape;
    const double n = shape->rank > 0 ? shape->dim[shape->rank - 1] : 1;
    const double m = shape->rank > 1 ? shape->dim[shape->rank - 2] : 1;
    const double elements = (double)shape_elements(shape);
    return gemm_seconds(profile, peak_flops(profile, (enum dtype)out->dtype), m, n,
                        kernel->flops / (2 * elements), elements / (m * n));
}

/* ---- attention ---- */

/* xformers' kernel beside FlashAttention-2, forward and backward (FlashAttention-2 paper, arXiv
 * 2307.08691, figures 4 to 6, A100). */
#define EFFICIENT_BESIDE_FLASH 0.55

/* Heads of 64 run as fast as heads of 128 in the llm-foundry rows (a fit of each alone gives the
 * same rate), within 15 % in FlashAttention-2's own figures; smaller ones leave tensor cores idle.
 */
static double head_factor(double head)
{
    return fmin(1, head / 64);
}

static bool is_attention_backward(const struct kernel *kernel)
{
    return kernel->work == WORK_ATTENTION_BACKWARD ||
           kernel->work == WORK_EFFICIENT_ATTENTION_BACKWARD;
}

static double attention_of(const struct kernel *kernel, const struct profile *profile)
{
    const bool backward = is_attention_backward(kernel);
    const struct operand *q = &kernel->operands[backward ? 1 : 0];
    const double tokens = q->shape.dim[1], head = q->shape.dim[q->shape.rank - 1];
    /* FlashAttention is for 16-bit numbers: in fp32, PyTorch takes the other whatever the plan's
     * recording, which was made without a GPU, calls it. */
    const bool flash =
        (kernel->work == WORK_ATTENTION || kernel->work == WORK_ATTENTION_BACKWARD) &&
        q->dtype != DTYPE_FP32;
    const double share =
        profile_value(profile, backward ? PROFILE_ATTENTION_BACKWARD : PROFILE_ATTENTION);
    const double rate = peak_flops(profile, (enum dtype)q->dtype) * share * head_factor(head) *
                        tokens / (tokens + profile_value(profile, PROFILE_ATTENTION_HALF)) *
                        (flash ? 1 : EFFICIENT_BESIDE_FLASH);
    return kernel->flops / rate;
}

/* ---- traffic ---- */

enum efficiency { BY_STREAM, BY_REDUCE, BY_INDEX };

/* How often a kernel reads its inputs and writes its outputs, and how well. What is not listed
 * does each once, at streaming speed. Passes are counted in ATen's CUDA sources. */
struct traffic {
    enum work_kind work;
    enum efficiency efficiency;
    double reads, writes;
};

static const struct traffic traffics[] = {
    /* Only the rows that are looked up: as much as is written. */
    {WORK_EMBEDDING, BY_REDUCE, 0, 2},
    /* The gradient is filled with zeros; then indices are sorted, and segments are summed in two
     * steps with partial sums: 12 bytes a gradient element of 2 (Embedding.cu). */
    {WORK_EMBEDDING_BACKWARD, BY_INDEX, 6, 1},
    {WORK_LAYER_NORM, BY_REDUCE, 1, 1},
    {WORK_RMS_NORM, BY_REDUCE, 1, 1},
    /* One kernel for the input's gradient, another for those of the weights: both read all. */
    {WORK_LAYER_NORM_BACKWARD, BY_REDUCE, 2, 1},
    {WORK_RMS_NORM_BACKWARD, BY_REDUCE, 2, 1},
    {WORK_MEAN, BY_REDUCE, 1, 1},
    {WORK_SUM, BY_REDUCE, 1, 1},
    {WORK_SUM_DIM, BY_REDUCE, 1, 1},
    {WORK_NORMS, BY_REDUCE, 1, 1},
    /* Picks one element a row. */
    {WORK_NLL_LOSS, BY_REDUCE, 0, 1},
    /* Zero-fill, then one element a row. */
    {WORK_NLL_LOSS_BACKWARD, BY_STREAM, 0, 1},
    {WORK_TOPK, BY_INDEX, 2, 1},
    {WORK_SORT, BY_INDEX, 8, 8}, /* radix sort: eight passes over 64-bit keys */
    {WORK_GATHER, BY_INDEX, 1, 1},
    {WORK_SCATTER, BY_INDEX, 1, 1},
    {WORK_INDEX, BY_INDEX, 0, 2},
    {WORK_INDEX_PUT, BY_INDEX, 1, 1},
    /* Its output is the whole gather buffer, of which it fills one slice. */
    {WORK_COPY_IN, BY_STREAM, 2, 0},
    /* What is added to is read and written. */
    {WORK_ADD_IN_PLACE, BY_STREAM, 1, 2},
    /* foreach and loop: lerp 3, mul 2, addcmul 3, decay 2, sqrt 2, div 2, add 2, addcdiv 4 passes
     * over the parameters, where the operands are 7 (4 in, 3 out) that the fused kernel moves. */
    {WORK_ADAMW, BY_STREAM, 20.0 / 7, 20.0 / 7},
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
    return (struct traffic){(enum work_kind)kernel->work, BY_REDUCE,
                            kept       ? 1
                            : backward ? 1.5
                                       : 3,
                            1};
}

static struct traffic traffic_of(const struct kernel *kernel)
{
    const enum work_kind work = (enum work_kind)kernel->work;
    if (work == WORK_SOFTMAX || work == WORK_LOG_SOFTMAX)
        return softmax_traffic(kernel, false);
    if (work == WORK_SOFTMAX_BACKWARD || work == WORK_LOG_SOFTMAX_BACKWARD)
        return softmax_traffic(kernel, true);
    for (size_t i = 0; i < sizeof traffics / sizeof traffics[0]; i++)
        if (traffics[i].work == work)
            return traffics[i];
    return (struct traffic){work, BY_STREAM, 1, 1};
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
    const double in = operands_bytes(kernel->operands, kernel->ins);
    const double out = operands_bytes(kernel->operands + kernel->ins, kernel->outs);
    return traffic.reads * in + traffic.writes * out;
}

double kernel_traffic(const struct kernel *kernel)
{
    return traffic_bytes(kernel, traffic_of(kernel));
}

/* ---- all of it ---- */

bool kernel_is_backward(const struct kernel *kernel)
{
    return kernel->backward && !kernel->recomputed;
}

enum dtype kernel_dtype(const struct kernel *kernel)
{
    return kernel->ins + kernel->outs == 0 ? DTYPE_FP32 : (enum dtype)kernel->operands[0].dtype;
}

enum dtype kernel_result_dtype(const struct kernel *kernel)
{
    return kernel->outs == 0 ? kernel_dtype(kernel)
                             : (enum dtype)kernel->operands[kernel->ins].dtype;
}

static const struct profile_kernel *measured(const struct profile *profile,
                                             const struct kernel *kernel)
{
    for (uint32_t i = 0; i < profile->kernel_count; i++) {
        const struct profile_kernel *k = &profile->kernels[i];
        if (k->work == (enum work_kind)kernel->work &&
            (k->dtype == PROFILE_ANY || k->dtype == (int8_t)kernel_dtype(kernel)) &&
            (k->to == PROFILE_ANY || k->to == (int8_t)kernel_result_dtype(kernel)) &&
            (k->backward == PROFILE_ANY || k->backward == kernel_is_backward(kernel)))
            return k;
    }
    return NULL;
}

enum cost_class kernel_class(const struct kernel *kernel)
{
    const enum work_kind work = (enum work_kind)kernel->work;
    if (work_is_matmul(work) || work_is_grouped_matmul(work))
        return COST_GEMM;
    if (work == WORK_ATTENTION || work == WORK_EFFICIENT_ATTENTION || is_attention_backward(kernel))
        return COST_ATTENTION;
    return COST_MEMORY;
}

/* That of the number which decides the kernel's time. */
static double spread_of(const struct profile *profile, const struct kernel *kernel, bool computes,
                        enum profile_key efficiency, double work_s)
{
    const enum cost_class class = kernel_class(kernel);
    const enum profile_key key = work_s < profile_value(profile, PROFILE_LATENCY) ? PROFILE_LATENCY
                                 : !computes                                      ? efficiency
                                 : class == COST_GEMM                             ? PROFILE_GEMM
                                 : is_attention_backward(kernel) ? PROFILE_ATTENTION_BACKWARD
                                                                 : PROFILE_ATTENTION;
    return profile->of[key].spread;
}

/* A kernel that waits for memory keeps this share of the multiprocessors busy: NCCL's and other
 * kernels' blocks find room beside its own. Assumed. */
#define COMPUTE_OF_MEMORY_BOUND 0.3F

void kernel_cost(const struct kernel *kernel, const struct profile *profile, struct cost *out)
{
    static const enum profile_key efficiencies[] = {PROFILE_STREAM, PROFILE_REDUCE, PROFILE_INDEX};
    const struct traffic traffic = traffic_of(kernel);
    const double bytes = traffic_bytes(kernel, traffic);
    const double bandwidth = profile_value(profile, PROFILE_MEMORY) *
                             profile_value(profile, efficiencies[traffic.efficiency]);
    const double memory_s = bytes / bandwidth;
    double compute_s = 0;
    *out = (struct cost){.class = kernel_class(kernel)};
    if (out->class == COST_GEMM)
        compute_s = gemm_of(kernel, profile);
    else if (out->class == COST_ATTENTION)
        compute_s = attention_of(kernel, profile);
    double work_s = fmax(compute_s, memory_s);
    out->spread = (float)spread_of(profile, kernel, compute_s > memory_s,
                                   efficiencies[traffic.efficiency], work_s);
    out->device_s = profile_value(profile, PROFILE_LATENCY) + work_s;
    const struct profile_kernel *own = measured(profile, kernel);
    if (own) {
        work_s = kernel->flops * own->seconds_per_flop + bytes * own->seconds_per_byte;
        out->device_s = own->latency_s + work_s;
        out->spread = (float)own->spread;
    }
    out->use[RESOURCE_COMPUTE] =
        compute_s >= memory_s && compute_s > 0 ? 1.0F : COMPUTE_OF_MEMORY_BOUND;
    out->use[RESOURCE_MEMORY] = work_s > 0 ? (float)fmin(1, memory_s / work_s) : 0;
    if (profile->generation == GENERATION_CPU) { /* a kernel is a thread, and a thread a core */
        out->use[RESOURCE_COMPUTE] = 1;
        out->use[RESOURCE_MEMORY] = 0;
    }
}
