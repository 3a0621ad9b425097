/* scalars.c - see scalars.h. */
#include "calibrate/scalars.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void set(struct calibration *c, enum profile_key key, double value, double spread,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static void set(struct calibration *c, enum profile_key key, double value, double spread,
                const char *fmt, ...)
{
    struct calibrated *to = &c->of[key];
    *to = (struct calibrated){.known = true, .value = value, .spread = fmin(spread, 10)};
    va_list args;
    va_start(args, fmt);
    vsnprintf(to->source, sizeof to->source, fmt, args);
    va_end(args);
}

static void measured(struct calibration *c, enum profile_key key, double value, double spread,
                     uint32_t samples)
{
    set(c, key, value, spread, "calibrate, %s, %s, %u samples", c->options.date, c->options.device,
        samples);
}

/* ---- the host thread and the gap between kernels ---- */

static void measure_launches(struct calibration *c)
{
    const struct launches *l = &c->samples.launches;
    const double spread = l->plain.spread, plain_s = l->plain.mean_s;
    const uint32_t n = SUITE_LAUNCH_COUNT;
    if (plain_s <= 0)
        return;
    measured(c, PROFILE_HOST_OP, plain_s, spread, n);
    measured(c, PROFILE_HOST_BACKWARD, plain_s, spread, n);
    measured(c, PROFILE_HOST_HOOK, plain_s, spread, n);
    measured(c, PROFILE_HOST_COLLECTIVE, plain_s, spread, n);
    measured(c, PROFILE_HOST_TENSOR, fmax(0, (l->parts.mean_s - plain_s) / (SUITE_PARTS - 1)),
             l->parts.spread, n);
    /* One was recorded and one waited for, beside each kernel. */
    measured(c, PROFILE_HOST_EVENT, fmax(0, (l->events.mean_s - plain_s) / 2), l->events.spread, n);
}

static void measure_gap(struct calibration *c)
{
    struct samples *s = &c->samples;
    const double gap = samples_median(s->gaps, s->gap_count);
    measured(c, PROFILE_LATENCY, gap, samples_spread(s->gaps, s->gap_count), s->gap_count);
}

/* ---- peaks ---- */

static const struct kernel_fit *fit_of(const struct calibration *c, enum work_kind work,
                                       enum dtype dtype, bool backward)
{
    for (uint32_t i = 0; i < c->fit_count; i++)
        if (!c->fits[i].any_kind && c->fits[i].key.work == work && c->fits[i].key.dtype == dtype &&
            c->fits[i].key.backward == backward)
            return &c->fits[i];
    return NULL;
}

/* The highest rate of operations among samples of a dtype, of matrix products or of one other work;
 * 0: there is none. */
static double best_rate(const struct calibration *c, enum work_kind work, enum dtype dtype,
                        uint32_t *samples)
{
    double best = 0;
    *samples = 0;
    for (uint32_t i = 0; i < c->samples.kernel_count; i++) {
        const struct sample *s = &c->samples.kernels[i];
        const bool alike =
            s->key.work == work || (work_is_matmul(work) && work_is_matmul(s->key.work));
        if (!alike || (int)s->key.dtype != (int)dtype)
            continue;
        best = fmax(best, s->flops / s->seconds);
        *samples += s->repeats;
    }
    return best;
}

static void measure_peaks(struct calibration *c)
{
    uint32_t n, n16;
    const double fp32 = best_rate(c, WORK_MATMUL_NT, DTYPE_FP32, &n);
    const double bf16 = best_rate(c, WORK_MATMUL_NT, DTYPE_BF16, &n16);
    if (fp32 <= 0)
        return;
    measured(c, PROFILE_FP32, fmax(fp32, 1e9), 0, n);
    if (bf16 > 0)
        measured(c, PROFILE_BF16, fmax(bf16, 1e9), 0, n16);
    else
        set(c, PROFILE_BF16, fmax(fp32, 1e9), 0, "not measured: as fp32");
    set(c, PROFILE_FP16, c->of[PROFILE_BF16].value, 0, "not measured: as bf16");
    const struct kernel_fit *mm = fit_of(c, WORK_MATMUL_NT, DTYPE_FP32, false);
    const double rate = mm && mm->seconds_per_flop > 0 ? 1 / mm->seconds_per_flop : fp32;
    measured(c, PROFILE_GEMM, fmin(1, rate / fp32), mm ? mm->spread : 0, n);
    static const struct {
        enum profile_key key;
        enum work_kind work;
    } attention[] = {{PROFILE_ATTENTION, WORK_ATTENTION},
                     {PROFILE_ATTENTION_BACKWARD, WORK_ATTENTION_BACKWARD}};
    for (int i = 0; i < 2; i++) {
        const struct kernel_fit *fit = fit_of(c, attention[i].work, DTYPE_FP32,
                                              attention[i].key == PROFILE_ATTENTION_BACKWARD);
        const double best = best_rate(c, attention[i].work, DTYPE_FP32, &n);
        if (best > 0)
            measured(c, attention[i].key, fmin(1, fmax(0.001, best / fp32)), fit ? fit->spread : 0,
                     n);
    }
}

/* Bytes per second of large kernels: what one more byte costs. */
static void measure_bandwidth(struct calibration *c)
{
    double best = 0;
    for (uint32_t i = 0; i < c->fit_count; i++)
        if (!c->fits[i].any_kind && c->fits[i].seconds_per_byte > 0 && c->fits[i].points > 2 &&
            c->fits[i].seconds_per_flop <= 0)
            best = fmax(best, 1 / c->fits[i].seconds_per_byte);
    if (best <= 0)
        return;
    measured(c, PROFILE_MEMORY, fmax(best, 1e6), 0, c->fit_count);
    static const struct {
        enum profile_key key;
        enum work_kind work;
        bool backward;
    } shares[] = {{PROFILE_STREAM, WORK_ADD, false},
                  {PROFILE_REDUCE, WORK_LOG_SOFTMAX, false},
                  {PROFILE_INDEX, WORK_EMBEDDING_BACKWARD, true}};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const struct kernel_fit *fit = fit_of(c, shares[i].work, DTYPE_FP32, shares[i].backward);
        if (fit && fit->seconds_per_byte > 0)
            measured(c, shares[i].key, fmin(1, fmax(0.01, 1 / fit->seconds_per_byte / best)),
                     fit->spread, fit->points);
    }
}

static void measure_transfers(struct calibration *c)
{
    const struct samples *s = &c->samples;
    double *rates = xmalloc((s->transfer_count + 1) * sizeof *rates);
    for (int of_optimizer = 0; of_optimizer < 2; of_optimizer++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->transfer_count; i++) {
            const struct transfer *t = &s->transfers[i];
            /* Small ones are latency; a copy's bytes are read on one side, written on the other. */
            if (t->of_optimizer == of_optimizer && t->bytes > 1 << 16 && t->seconds > 0)
                rates[n++] = t->bytes / (of_optimizer ? 1 : 2) / t->seconds;
        }
        const double median = samples_median(rates, n);
        if (n)
            measured(c, of_optimizer ? PROFILE_HOST_MEMORY : PROFILE_PCIE, fmax(1e6, median),
                     samples_spread(rates, n), n);
    }
    free(rates);
}

/* ---- collectives ---- */

static void measure_link(struct calibration *c)
{
    const struct samples *s = &c->samples;
    double best = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->message_count; i++) {
        const struct message *m = &s->messages[i];
        const double share = (double)(m->ranks - 1) / m->ranks;
        if (m->op == PLAN_ALL_GATHER)
            best = fmax(best, share * m->bytes / m->seconds);
        n += m->op == PLAN_ALL_GATHER;
    }
    if (n)
        measured(c, PROFILE_LINK, best, 0, n);
}

/* Collectives beside compute: what the compute stream loses meanwhile is the share of the compute
 * units that they use; what they lose themselves is more than sharing explains, since a rank that
 * computes comes late to every step of the other's message. */
static void measure_overlap(struct calibration *c)
{
    const double *part_s = c->samples.overlap.part_s, *spread = c->samples.overlap.spread;
    const double lost_s = part_s[ROUND_COMPUTE_BESIDE] - part_s[ROUND_COMPUTE_ALONE];
    const double alone_s = part_s[ROUND_GATHER_ALONE] + part_s[ROUND_REDUCE_ALONE];
    const double beside_s = part_s[ROUND_GATHER_BESIDE] + part_s[ROUND_REDUCE_BESIDE];
    const double error_s = hypot(part_s[ROUND_COMPUTE_BESIDE] * spread[ROUND_COMPUTE_BESIDE],
                                 part_s[ROUND_COMPUTE_ALONE] * spread[ROUND_COMPUTE_ALONE]);
    if (!(alone_s > 0) || !(beside_s > 0))
        return;
    const double use = fmin(1, fmax(0, lost_s / beside_s));
    measured(c, PROFILE_OVERLAP, use, lost_s > 0 ? error_s / lost_s : 0,
             SUITE_REPEATS - SUITE_WARM_UP);
    measured(c, PROFILE_OVERLAP_SLOWDOWN, fmax(1, beside_s / alone_s / (1 + use)),
             hypot(spread[ROUND_GATHER_BESIDE], spread[ROUND_REDUCE_BESIDE]),
             SUITE_REPEATS - SUITE_WARM_UP);
}

/* ---- ranks beside each other ---- */

/* The suite's products are too short for a card to come to its limit of power, where cards differ
 * most: a GPU's numbers are taken where they are larger than the profile's it starts from. */
static void measure_paces(struct calibration *c)
{
    struct paces_found found;
    struct profile base = {.kernels = NULL};
    const bool has_base = c->options.base && profile_find(c->options.base, &base, NULL) == ERR_OK;
    const uint32_t n = c->paces.plans * c->paces.ranks;
    if (paces_find(&c->paces, &found)) {
        if (!has_base || found.rank > profile_value(&base, PROFILE_RANK_SPREAD))
            measured(c, PROFILE_RANK_SPREAD, fmin(1, found.rank), found.rank_spread, n);
        if (!has_base || found.step > profile_value(&base, PROFILE_JITTER))
            measured(c, PROFILE_JITTER, fmin(1, found.step), found.step_spread, n);
    }
    profile_free(&base);
}

/* ---- what a CPU does not have, and what is not measured ---- */

static double machine_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static void fill_cpu(struct calibration *c)
{
    static const struct {
        enum profile_key key;
        double value;
        const char *source;
    } given[] = {
        {PROFILE_CONTEXT, 0, "a CPU needs none"},
        {PROFILE_CUBLAS_WORKSPACE, 0, "a CPU needs none"},
        {PROFILE_NCCL_INIT, 0, "MPI's buffers are not in the arena"},
        {PROFILE_NCCL_RING, 0, "MPI's buffers are not in the arena"},
        {PROFILE_NCCL_NET, 0, "MPI's buffers are not in the arena"},
        {PROFILE_TF32, 0, "a CPU has none"},
        {PROFILE_FP8, 0, "a CPU has none"},
        {PROFILE_FP8_SPEED, 1, "a CPU has none"},
        {PROFILE_CLOCK, 0, "rates are measured as the machine runs"},
        {PROFILE_BOOST_CLOCK, 0, "rates are measured as the machine runs"},
        {PROFILE_POWER, 0, "rates are measured as the machine runs"},
        {PROFILE_IDLE_POWER, 0, "rates are measured as the machine runs"},
        {PROFILE_STREAM_POWER, 0, "rates are measured as the machine runs"},
        {PROFILE_MATRIX_POWER, 0, "rates are measured as the machine runs"},
        {PROFILE_GEMM_START, 0, "a CPU has no tiles of this kind"},
        {PROFILE_GEMM_TILE, 0, "a CPU has no tiles of this kind"},
        {PROFILE_GEMM_FEED, 0, "a CPU has no tiles of this kind"},
        {PROFILE_GEMM_UNALIGNED, 1, "a CPU has no tiles of this kind"},
        {PROFILE_SMS, 0, "a CPU has none"},
        {PROFILE_ATTENTION_START, 0, "attention is fitted under \"kernels\""},
        {PROFILE_STRIDED, 0, "not measured: as contiguous"},
        {PROFILE_L2, 0, "not measured: as memory"},
        {PROFILE_L2_RATE, 0, "not measured: as memory"},
        {PROFILE_L2_HELD, 0, "not measured: nothing"},
        {PROFILE_GAP, 0, "measured with it"},
        {PROFILE_NICS, 0, "one machine"},
        {PROFILE_NIC, 0, "one machine"},
        {PROFILE_NIC_LATENCY, 0, "one machine"},
        {PROFILE_LINK, 0, "not measured: one rank"},
        {PROFILE_OVERLAP, 1, "not measured: a collective's thread is taken to use a core"},
        {PROFILE_OVERLAP_SLOWDOWN, 1, "not measured: as sharing a core makes it"},
        {PROFILE_ATTENTION, 1, "not measured: no such kernel in the suite"},
        {PROFILE_ATTENTION_BACKWARD, 1, "not measured: no such kernel in the suite"},
        {PROFILE_STREAM, 1, "not measured: no such kernel in the suite"},
        {PROFILE_REDUCE, 1, "not measured: no such kernel in the suite"},
        {PROFILE_INDEX, 1, "not measured: no such kernel in the suite"},
        {PROFILE_HOST_MEMORY, 1e10, "not measured: 10 GB/s assumed"},
        {PROFILE_HOST_GPUS, 0, "one machine"},
        {PROFILE_NODE_GPUS, 8, "one machine: not asked"},
        {PROFILE_PCIE, 1e10, "not measured: 10 GB/s assumed"},
        {PROFILE_HOST_MALLOC, 0, "not measured: the arena is mapped once"},
        {PROFILE_HOST_FREE, 0, "not measured: the arena is mapped once"},
        {PROFILE_RESTART, 600, "not measured: 10 minutes assumed"},
        {PROFILE_RANK_SPREAD, 0, "not measured: one rank"},
        {PROFILE_JITTER, 0.01, "not measured: one rank; 1 % assumed"},
        {PROFILE_STEPS, 0, "not measured: what kernels scatter stands for it"},
        {PROFILE_STORE, 1e9, "not measured: 1 GB/s assumed"},
        {PROFILE_MTBF, 1.8e8, "not measured: that of a GPU in Llama 3 (arXiv 2407.21783)"},
    };
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        if (!c->of[given[i].key].known)
            set(c, given[i].key, given[i].value, 0, "%s", given[i].source);
    set(c, PROFILE_CAPACITY, fmax(1, machine_bytes()), 0,
        "the machine's memory, which all ranks share");
}

void scalars_measure(struct calibration *calibration)
{
    measure_launches(calibration);
    measure_gap(calibration);
    measure_peaks(calibration);
    measure_bandwidth(calibration);
    measure_transfers(calibration);
    measure_link(calibration);
    measure_overlap(calibration);
    measure_paces(calibration);
    set(calibration, PROFILE_HOST_CAPACITY, machine_bytes(), 0,
        "this machine's memory, as its system has it");
    if (!calibration->options.base)
        fill_cpu(calibration);
}
