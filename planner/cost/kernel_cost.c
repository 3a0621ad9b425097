/* kernel_cost.c - one kernel on one device: launch + the largest of what holds it up.
 *
 *     arithmetic     tiles and waves (gemm_cost.c), blocks of queries (attention_cost.c), at the
 *                    clock that the power limit leaves (clock.h)
 *     traffic        what the operands hold, times the passes that the kernel makes over them
 *     instructions   of kernels that are not vectorised (walk.h)
 *     rows           of norms and softmax, a block of threads each (row_cost.c) */
#include "cost/cost_parts.h"

#include <math.h>

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
    if (work_is_matmul(work) || work_is_grouped_matmul(work) || work == WORK_CONVOLUTION ||
        work == WORK_INT8_MM_NT || is_cut(kernel))
        return COST_GEMM;
    return is_attention(kernel) ? COST_ATTENTION : COST_MEMORY;
}

/* ---- what holds a kernel up ---- */

struct holds {
    double compute_s, memory_s, cache_s, issue_s, row_s;
    double start_s; /* before and after all of these */
    enum profile_key bandwidth;
};

/* A reduction over more than a thread's elements waits for its block: reduce_kernel takes 3.6 to
 * 4.1 us for next to nothing on H100 (tests/data/gpu/kernels.csv: all). */
#define REDUCE_START 2e-6

static bool reduces(const struct kernel *kernel)
{
    switch ((enum work_kind)kernel->work) {
    case WORK_MEAN:
    case WORK_SUM:
    case WORK_SUM_DIM:
    case WORK_ALL:
    case WORK_ANY:
    case WORK_VECTOR_NORM:
        return true;
    default:
        return false;
    }
}

static double compute_seconds(const struct kernel *kernel, const struct profile *profile,
                              enum cost_class class)
{
    if (class == COST_ATTENTION)
        return attention_seconds(kernel, profile);
    if (class != COST_GEMM)
        return 0;
    const struct gemm gemm = gemm_of(kernel, profile);
    return gemm_seconds(profile, &gemm);
}

static struct holds holds_of(const struct kernel *kernel, const struct profile *profile,
                             enum cost_class class, double bytes, enum efficiency efficiency)
{
    static const enum profile_key efficiencies[] = {
        [BY_STREAM] = PROFILE_STREAM, [BY_REDUCE] = PROFILE_REDUCE, [BY_INDEX] = PROFILE_INDEX};
    const double sms = profile_value(profile, PROFILE_SMS);
    const double clock = profile_value(profile, PROFILE_BOOST_CLOCK);
    struct holds h = {.bandwidth = efficiencies[efficiency]};
    h.compute_s = compute_seconds(kernel, profile, class);
    const double share = profile_value(profile, h.bandwidth);
    const double cache = profile_value(profile, PROFILE_L2_RATE) * share;
    const double held = cache > 0 ? profile_value(profile, PROFILE_L2_HELD) : 0;
    h.memory_s = (held > 0 ? kernel_traffic_beyond(kernel, held) : bytes) /
                 (profile_value(profile, PROFILE_MEMORY) * share);
    h.cache_s = held > 0 ? bytes / cache : 0;
    if (class == COST_MEMORY && sms > 0) {
        const double strided = profile_value(profile, PROFILE_STRIDED);
        const double elements =
            kernel->outs ? (double)shape_elements(&kernel->operands[kernel->ins].shape) : 0;
        const struct walk walk = walk_of(kernel, sms);
        h.row_s = fmax(row_seconds(kernel, profile), walk.trips_s);
        h.row_s = fmax(h.row_s, delta_seconds(kernel, profile));
        if (strided > 0 && clock > 0)
            h.issue_s = elements * strided * walk.cycles / (sms * clock);
        h.start_s = reduces(kernel) ? REDUCE_START : walk.start_s;
    } else if (class == COST_GEMM) {
        h.start_s = profile_value(profile, PROFILE_GEMM_START);
    }
    return h;
}

static double held(const struct holds *h)
{
    return fmax(fmax(h->compute_s, fmax(h->memory_s, h->cache_s)), fmax(h->issue_s, h->row_s));
}

/* That of the number which decides the kernel's time. */
static double spread_of(const struct profile *profile, const struct kernel *kernel,
                        const struct holds *h)
{
    const enum cost_class class = kernel_class(kernel);
    const double work_s = held(h);
    if (work_s < profile_value(profile, PROFILE_LATENCY))
        return profile->of[PROFILE_LATENCY].spread;
    if (h->compute_s < work_s)
        return profile->of[h->issue_s == work_s ? PROFILE_STRIDED : h->bandwidth].spread;
    return clock_spread(profile, class == COST_GEMM ? profile->of[PROFILE_GEMM].spread
                                                    : attention_spread(kernel, profile));
}

/* A kernel that waits for memory keeps this share of the multiprocessors busy: NCCL's and other
 * kernels' blocks find room beside its own. Assumed. */
#define COMPUTE_OF_MEMORY_BOUND 0.3F

void kernel_cost(const struct kernel *kernel, const struct profile *profile, struct cost *out)
{
    const struct traffic traffic = traffic_of(kernel);
    const double bytes = kernel_traffic(kernel);
    *out = (struct cost){.class = kernel_class(kernel)};
    const struct profile_kernel *own = measured(profile, kernel);
    const struct holds h =
        holds_of(kernel, profile, (enum cost_class)out->class, bytes, traffic.efficiency);
    double work_s = held(&h);
    out->spread = (float)spread_of(profile, kernel, &h);
    out->device_s = profile_value(profile, PROFILE_LATENCY) + h.start_s + work_s;
    if (own) {
        work_s = kernel->flops * own->seconds_per_flop + bytes * own->seconds_per_byte;
        out->device_s = own->latency_s + work_s;
        out->spread = (float)own->spread;
    }
    const bool computes =
        fmax(h.compute_s, h.issue_s) >= fmax(fmax(h.memory_s, h.cache_s), h.row_s);
    out->use[RESOURCE_COMPUTE] = computes && held(&h) > 0 ? 1.0F : COMPUTE_OF_MEMORY_BOUND;
    out->use[RESOURCE_MEMORY] = work_s > 0 ? (float)fmin(1, h.memory_s / work_s) : 0;
    if (profile->generation == GENERATION_CPU) { /* a kernel is a thread, and a thread a core */
        out->use[RESOURCE_COMPUTE] = 1;
        out->use[RESOURCE_MEMORY] = 0;
    }
}

/* ---- the clock of many ---- */

void load_add(struct load *load, const struct kernel *kernel, const struct profile *profile,
              double times)
{
    struct profile boost = *profile;
    struct cost cost;
    if (profile->clock == CLOCK_BURST || profile_value(profile, PROFILE_POWER) <= 0)
        return;
    boost.clock = CLOCK_BURST;
    kernel_cost(kernel, &boost, &cost);
    if (cost.class == COST_GEMM) {
        const struct gemm gemm = gemm_of(kernel, profile);
        load->matrix_s += times * gemm_flops(&gemm) / (gemm.peak * clock_boost(profile));
    } else if (cost.class == COST_ATTENTION) {
        load->matrix_s += times * attention_matrix_seconds(kernel, profile);
    }
    /* Of arithmetic that waits for memory, its own time: so that a product which comes to wait has
     * not lost all that its clock could draw. */
    const double arithmetic_s =
        cost.class == COST_MEMORY ? 0
        : cost.use[RESOURCE_COMPUTE] >= 1
            ? cost.device_s
            : fmin(cost.device_s, compute_seconds(kernel, &boost, (enum cost_class)cost.class));
    load->compute_s += times * arithmetic_s;
    load->other_s += times * (cost.device_s - arithmetic_s);
}

struct profile profile_under(const struct profile *profile, const struct load *load)
{
    struct profile under = *profile;
    under.clock_share = clock_under(profile, load);
    return under;
}

bool kernel_is_vectorised(const struct kernel *kernel)
{
    return walk_of(kernel, 1).cycles <= 0;
}

double kernel_seconds(const struct kernel *kernel, const struct profile *profile)
{
    struct cost cost;
    kernel_cost(kernel, profile, &cost);
    return cost.device_s - profile_value(profile, PROFILE_GAP);
}
