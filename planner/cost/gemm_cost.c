/* gemm_cost.c - products of matrices: tiles and waves.
 *
 *     time = start + waves · (tile + begin of it) + result / rate of the second-level cache
 *     tile = the larger of its arithmetic and of what it reads from the second-level cache
 *
 * A result is cut into tiles that fill the multiprocessors in waves; the last wave is as long as
 * the others. A multiprocessor that writes its tile multiplies nothing: a result goes to the
 * second-level cache in no one's shadow, which shows where the inner size is small. The smaller a
 * tile, the more it reads for each operation. Where tiles are few and the
 * inner size is long, several of them share one result (split-K) and add their parts in fp32
 * through memory. The best of the tile shapes is what cuBLAS's heuristics mostly find.
 *
 * A larger problem never takes less: each way of cutting takes longer with each size, where it is
 * there for the larger one it is for the smaller, and the time is that of the fastest. So it is
 * with multiprocessors, as long as each stays what it is: `peak` is that of all together. */
#include "cost/cost_parts.h"

#include <math.h>

/* Of cuBLAS's kernels for tensor cores. */
static const struct tile {
    double m, n;
} tiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64}};

/* Blocks of a cluster share what they read, where there are clusters and kernels that use them. */
#define SHARED_READS 2

/* Inner size that a part takes as long as, at the least: a problem that is too small for so many
 * could be padded to one that is not. */
#define SPLIT_LEAST 256.0

/* Seconds of a tile of one multiprocessor over an inner size of `k`. */
static double tile_seconds(const struct profile *profile, const struct gemm *g,
                           const struct tile *tile, double k)
{
    const double sms = profile_value(profile, PROFILE_SMS);
    const double feed = profile_value(profile, PROFILE_GEMM_FEED);
    const bool shares = g->speed >= 1 && (profile->generation == GENERATION_HOPPER ||
                                          profile->generation == GENERATION_BLACKWELL);
    const double rate =
        g->peak * clock_boost(profile) * profile_value(profile, PROFILE_GEMM) * g->speed;
    const double arithmetic_s = 2 * tile->m * tile->n * k * sms / rate;
    const double read_s = feed > 0 ? (tile->m + tile->n) * k * g->element_bytes * sms /
                                         (feed * (shares ? SHARED_READS : 1))
                                   : 0;
    return fmax(arithmetic_s, read_s);
}

/* One tile shape, at the best split. */
static double tiled(const struct profile *profile, const struct gemm *g, const struct tile *tile)
{
    const double sms = profile_value(profile, PROFILE_SMS);
    const double each_s = profile_value(profile, PROFILE_GEMM_TILE);
    const double count = g->batch * ceil(g->m / tile->m) * ceil(g->n / tile->n);
    const double whole_s = tile_seconds(profile, g, tile, g->k);
    const double memory =
        profile_value(profile, PROFILE_MEMORY) * profile_value(profile, PROFILE_STREAM);
    const double elements = g->batch * g->m * g->n;
    const double part_s = 8 * elements / memory; /* written and read, in fp32 */
    const double written_s =
        elements * g->result_bytes / fmax(profile_value(profile, PROFILE_L2_RATE), memory);
    double best = ceil(count / sms) * (whole_s + each_s);
    for (double parts = 2; count * parts <= sms; parts *= 2) {
        const double inner = fmax(g->k / parts, SPLIT_LEAST);
        best = fmin(best, tile_seconds(profile, g, tile, inner) + each_s + parts * part_s);
        if (inner * parts > g->k)
            break; /* more parts only add more */
    }
    return best + written_s;
}

/* Seconds of the multiplying alone, at boost clock. */
static double boost_seconds(const struct profile *profile, const struct gemm *g)
{
    double best = INFINITY;
    if (profile_value(profile, PROFILE_SMS) <= 0) /* a CPU has neither tiles nor waves */
        return gemm_flops(g) / (g->peak * profile_value(profile, PROFILE_GEMM));
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        best = fmin(best, tiled(profile, g, &tiles[i]));
    return best;
}

double gemm_flops(const struct gemm *g)
{
    return 2 * g->m * g->n * g->k * g->batch;
}

double gemm_seconds(const struct profile *profile, const struct gemm *g)
{
    const double boost_s = boost_seconds(profile, g);
    return boost_s / clock_share(profile, g->peak, gemm_flops(g), boost_s, 1);
}

/* Rows that do not begin at multiples of 16 bytes cannot be read by the kernels of the newer
 * instructions (cuBLAS, "Tensor Core Usage"). Of a plan's operands, a row is the last dim. */
static bool is_aligned(const struct kernel *kernel)
{
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const struct operand *operand = &kernel->operands[i];
        const uint32_t bytes = dtype_bytes((enum dtype)operand->dtype);
        const struct shape *shape = &operand->shape;
        const bool scale = kernel->work == WORK_SCALED_MM_NT && i >= 2 && i < kernel->ins;
        if (shape->rank < 2 || scale)
            continue;
        uint64_t row = operand->pitch ? operand->pitch : shape->dim[shape->rank - 1];
        if (kernel->strides) { /* whichever of the two last dims is not dense */
            const uint64_t *stride = kernel->strides[i].of;
            row = stride[shape->rank - 1] == 1 ? stride[shape->rank - 2] : stride[shape->rank - 1];
        }
        if (row * bytes % 16)
            return false;
    }
    return true;
}

/* Whether units for matrices compute it. None of NVIDIA does fp32 as it is (TF32 is off in
 * PyTorch): those kernels multiply element by element and read so
 * ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", H100, tests/data/gpu/kernels.csv), whatever their
 * rows begin at. */
static bool is_on_matrix_units(const struct profile *profile, enum dtype dtype)
{
    return dtype != DTYPE_FP32 || profile->generation == GENERATION_AMD;
}

/* Cut cross entropy's product (graph/ops_cut_loss.c) is one of Triton's, whose result is never
 * written: on an A100, forward of 8,192 tokens and Gemma 2 2B's head took 46 ms, and backward 100
 * ms, of which the blocks whose gradients it skips are most (Wijmans et al., "Cut Your Losses in
 * Large-Vocabulary Language Models", table 1: one row, to which both numbers are fitted; without
 * the skipping backward took 314 ms, so it is the model's confidence that decides). Both together
 * on an H100, 16,384 tokens and a head of 248,320 x 2,048, took 92.6 ms (huggingface/trl's pull
 * request 6858), where these say 85.6 ms in a burst and 101 ms sustained. */
#define CUT_SPEED 0.713
#define CUT_BACKWARD (100.0 / 46.0)

static struct gemm cut_gemm(const struct kernel *kernel, const struct profile *profile)
{
    const bool backward = kernel->work == WORK_CUT_CROSS_ENTROPY_BACKWARD;
    const struct operand *x = &kernel->operands[0], *weight = &kernel->operands[1];
    const struct operand *logsumexp = &kernel->operands[backward ? 2 : kernel->ins];
    return (struct gemm){
        .peak = peak_flops(profile, (enum dtype)x->dtype),
        .m = logsumexp->shape.dim[0],
        .n = weight->shape.dim[0],
        .k = weight->shape.dim[1],
        .batch = backward ? CUT_BACKWARD : 1,
        .element_bytes = dtype_bytes((enum dtype)x->dtype),
        .speed = CUT_SPEED,
    };
}

/* (m, n) are the last two dims of the result, what is before them a batch; the inner size follows
 * from the arithmetic. */
struct gemm gemm_of(const struct kernel *kernel, const struct profile *profile)
{
    if (is_cut(kernel))
        return cut_gemm(kernel, profile);
    const struct operand *in = &kernel->operands[0], *out = &kernel->operands[kernel->ins];
    const bool float8 = kernel->work == WORK_SCALED_MM_NT;
    /* Of integers no profile has a peak: that of fp16 is assumed, of which datasheets say half. */
    const bool integers = kernel->work == WORK_INT8_MM_NT;
    /* What 16 bits are multiplied into fp32 is on the units of 16 bits (addmm's out_dtype). */
    const bool widened = dtype_bytes((enum dtype)in->dtype) == 2 && out->dtype == DTYPE_FP32;
    const enum dtype dtype =
        integers ? DTYPE_FP16 : (enum dtype)(float8 || widened ? in : out)->dtype;
    const struct shape *shape = &out->shape;
    const double n = shape->rank > 0 ? shape->dim[shape->rank - 1] : 1;
    const double m = shape->rank > 1 ? shape->dim[shape->rank - 2] : 1;
    const double elements = (double)shape_elements(shape);
    const bool as_fast = !is_on_matrix_units(profile, dtype) || is_aligned(kernel);
    return (struct gemm){
        .peak = peak_flops(profile, dtype),
        .m = m,
        .n = n,
        .k = kernel->flops / (2 * elements),
        .batch = elements / (m * n),
        .element_bytes = integers ? 1 : dtype_bytes(dtype),
        .result_bytes = dtype_bytes((enum dtype)out->dtype),
        .speed = as_fast ? 1 : profile_value(profile, PROFILE_GEMM_UNALIGNED),
    };
}

double peak_flops(const struct profile *profile, enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_BF16:
        return profile_value(profile, PROFILE_BF16);
    case DTYPE_FP16:
        return profile_value(profile, PROFILE_FP16);
    case DTYPE_FLOAT8_E4M3:
    case DTYPE_FLOAT8_E5M2:
        return profile_value(profile, PROFILE_FP8) * profile_value(profile, PROFILE_FP8_SPEED);
    default:
        return profile_value(profile, PROFILE_FP32);
    }
}
