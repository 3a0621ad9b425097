/* step_time.c - see step_time.h. */
#include "job/step_time.h"

#include "job/ranks.h"
#include "simulate/joined.h"

#include <assert.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a step that is simulated as few micro-batches: what repeats, so many times. Where it has not
 * come to a period yet, twice as often is tried, and all at last. */
struct passes {
    const struct plan *plan;
    struct stall *stalls; /* (stall_count) owned */
    uint32_t stall_count;
    struct joined more[32]; /* by doublings, made as they are needed: owned */
    struct timeline timelines[32];
};

static uint32_t all_passes(const struct passes *p)
{
    return 1 + p->plan->repeats;
}

static uint32_t twice(const struct passes *p, uint32_t times)
{
    return times < all_passes(p) - times ? 2 * times : all_passes(p);
}

static struct simulation *simulation_of(const struct passes *p, uint32_t times)
{
    return simulation_of_passes(p->plan, p->stalls, p->stall_count, times);
}

static void passes_free(struct passes *p)
{
    for (uint32_t i = 0; i < sizeof p->more / sizeof p->more[0] && p->more[i].simulation; i++) {
        timeline_free(&p->timelines[i]);
        joined_free(&p->more[i]);
    }
    free(p->stalls);
}

static void make_more(struct passes *p, uint32_t times, const struct costs *costs, uint32_t i)
{
    struct simulation *more = simulation_of(p, times);
    p->more[i] = joined_new(more, costs);
    p->timelines[i] = timeline_new(p->more[i].simulation);
    simulation_free(more);
}

/* Seconds of the whole step, after its few micro-batches were simulated. */
static double repeated_step(struct passes *p, const struct simulation *few,
                            const struct costs *costs, const double *scale,
                            const struct timeline *timeline)
{
    uint32_t times = 1;
    double period_s;
    for (uint32_t i = 0; times < all_passes(p); i++) {
        if (simulation_is_steady(few, timeline, &period_s))
            return timeline->step_s + (all_passes(p) - times) * period_s;
        times = twice(p, times);
        if (!p->more[i].simulation)
            make_more(p, times, costs, i);
        few = p->more[i].simulation;
        timeline = &p->timelines[i];
        simulate(few, &p->more[i].costs, scale, &p->timelines[i]);
    }
    return timeline->step_s;
}

/* Kernels of a class are off together (of a card that training was measured on, all classes of
 * kernels are, by what steps were off), so one factor a class and draw; logarithmic, since a time
 * is as likely to be twice as long as half as long. Draws come in pairs of opposite signs: the
 * quantiles of so few are as near as those of many times as many. */
static void draw_steps(const struct simulation *simulation, struct passes *passes,
                       const struct costs *costs, uint32_t draws, double *steps_s)
{
    struct joined joined = joined_new(simulation, costs);
    struct timeline timeline = timeline_new(joined.simulation);
    double drawn[COST_CLASSES] = {0}, luck = 0, truth = 0;
    /* Its default seed: the same draws always. gsl_rng_alloc would abort for want of memory. */
    gsl_rng own = {gsl_rng_mt19937, xmalloc(gsl_rng_mt19937->size)}, *random = &own;
    gsl_rng_set(random, gsl_rng_default_seed);
    for (uint32_t i = 0; i < draws; i++) {
        double scale[COST_CLASSES];
        const double sign = i % 2 == 0 ? 1 : -1;
        for (int k = 0; k < COST_CLASSES; k++) {
            if (i % 2 == 0)
                drawn[k] = gsl_ran_gaussian(random, costs->spread[k]);
            if (costs->together && cost_class_is_of_kernels((enum cost_class)k))
                drawn[k] = drawn[COST_GEMM];
            scale[k] = exp(sign * drawn[k]);
        }
        if (i % 2 == 0) {
            luck = gsl_ran_ugaussian(random);
            truth = gsl_ran_ugaussian(random);
        }
        ranks_slow_down(scale, slowest_draw(&costs->slowest, sign * luck, sign * truth));
        simulate(joined.simulation, &joined.costs, scale, &timeline);
        steps_s[i] = repeated_step(passes, joined.simulation, costs, scale, &timeline);
    }
    timeline_free(&timeline);
    joined_free(&joined);
    free(own.state);
}

void step_draws(const struct plan *plan, const struct costs *costs, uint32_t draws, double *steps_s)
{
    struct passes passes = {.plan = plan};
    struct simulation *simulation = simulation_new(plan, NULL, 0);
    draw_steps(simulation, &passes, costs, draws, steps_s);
    simulation_free(simulation);
    passes_free(&passes);
}

/* The sums of a timeline and `more` times what they are beyond those of a shorter one. */
static void add_sums(struct timeline *t, const struct timeline *shorter, double more)
{
    double *const sums[] = {&t->step_s,    &t->compute_s, &t->communication_s,
                            &t->waiting_s, &t->exposed_s, &t->host_s};
    const double of_shorter[] = {shorter->step_s,    shorter->compute_s, shorter->communication_s,
                                 shorter->waiting_s, shorter->exposed_s, shorter->host_s};
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++)
        *sums[i] += more * (*sums[i] - of_shorter[i]);
    for (int i = 0; i < SPENT_COUNT; i++)
        t->spent_s[i] += more * (t->spent_s[i] - shorter->spent_s[i]);
}

static void take_sums(struct timeline *t, const struct timeline *whole)
{
    const struct timeline own = *t;
    *t = *whole;
    t->issue_s = own.issue_s; /* the tasks' moments stay those of few micro-batches */
    t->begin_s = own.begin_s;
    t->end_s = own.end_s;
    t->done_s = own.done_s;
}

/* What one more micro-batch adds, for each that is not there after `times` passes. Where no
 * collective keeps the mean rank, it gets further ahead of the slowest with each: by the last one
 * as far as in the whole step, whether a pass more is simulated or not. */
static void add_repeats(struct timeline *sums, const struct passes *p, uint32_t times,
                        const struct simulation *simulation, const struct costs *costs,
                        const double period_s[2])
{
    struct simulation *shorter = simulation_of(p, times - 1);
    struct timeline timeline = timeline_new(shorter);
    const double more = all_passes(p) - times, ahead_s = fmax(period_s[0] - period_s[1], 0);
    double ignored[2];
    ranks_mean(simulation, costs, more * ahead_s, sums, ignored);
    ranks_mean(shorter, costs, (more + 1) * ahead_s, &timeline, ignored);
    add_sums(sums, &timeline, more);
    timeline_free(&timeline);
    simulation_free(shorter);
}

/* The step's sums after `times` passes, and after all if these have come to a period; if not,
 * false. */
static bool try_passes(const struct passes *p, uint32_t times, const struct simulation *simulation,
                       const struct costs *costs, struct timeline *sums)
{
    double period_s[2];
    const bool steady = ranks_mean(simulation, costs, 0, sums, period_s);
    if (times == all_passes(p))
        return true;
    if (steady)
        add_repeats(sums, p, times, simulation, costs, period_s);
    return steady;
}

/* The job's step. */
static void make_timeline(struct step_time *t, const struct passes *p)
{
    bool done = try_passes(p, 1, t->simulation, &t->costs, &t->timeline);
    for (uint32_t times = twice(p, 1); !done; times = twice(p, times)) {
        struct simulation *more = simulation_of(p, times);
        struct timeline sums = timeline_new(more);
        done = try_passes(p, times, more, &t->costs, &sums);
        take_sums(&t->timeline, &sums);
        timeline_free(&sums);
        simulation_free(more);
    }
}

static void draw_range(struct step_time *t, struct passes *p, uint32_t draws)
{
    double *steps = xmalloc(draws * sizeof *steps);
    draw_steps(t->simulation, p, &t->costs, draws, steps);
    gsl_sort(steps, 1, draws);
    t->low_s = gsl_stats_quantile_from_sorted_data(steps, 1, draws, STEP_TIME_LOW_PERCENT / 100.0);
    t->high_s =
        gsl_stats_quantile_from_sorted_data(steps, 1, draws, STEP_TIME_HIGH_PERCENT / 100.0);
    free(steps);
}

/* The allocator's calls as stalls of the host. */
static struct passes passes_of(const struct prediction *p, const struct profile *profile)
{
    struct passes passes = {.plan = p->plan,
                            .stalls = xmalloc((p->call_count + 1) * sizeof *passes.stalls),
                            .stall_count = p->call_count};
    for (uint32_t i = 0; i < p->call_count; i++)
        passes.stalls[i] = (struct stall){
            .instruction = p->calls[i].instruction,
            .host_s = p->calls[i].mallocs * profile_value(profile, PROFILE_HOST_MALLOC) +
                      p->calls[i].frees * profile_value(profile, PROFILE_HOST_FREE),
            .idle = p->calls[i].frees > 0,
        };
    return passes;
}

enum err_code step_time(const struct prediction *prediction, const struct job *job,
                        const struct machine *machine, uint32_t draws, struct step_time *out,
                        struct err *err)
{
    *out = (struct step_time){0};
    TRY(costs_of_plan(prediction->plan, &machine->profile, machine->gpus_per_node, &out->costs,
                      err));
    struct passes passes = passes_of(prediction, &machine->profile);
    out->simulation = simulation_new(prediction->plan, passes.stalls, passes.stall_count);
    out->timeline = timeline_new(out->simulation);
    make_timeline(out, &passes);

    const struct timeline *t = &out->timeline;
    snprintf(out->profile, sizeof out->profile, "%s", machine->profile.name);
    const double tokens = (double)job->model.batch * job->model.seq * job->strategy.accumulate;
    out->low_s = out->high_s = NAN;
    out->tokens_per_s = tokens / t->step_s;
    out->mfu = out->costs.model_flops / t->step_s / out->costs.peak_flops;
    out->hfu = out->costs.hardware_flops / t->step_s / out->costs.peak_flops;
    if (job->model.float8 != FLOAT8_NONE)
        out->peak_of = dtype_brief(job->model.autocast                    ? DTYPE_BF16
                                   : job->strategy.compute == DTYPE_COUNT ? job->strategy.store
                                                                          : job->strategy.compute);
    out->overlapped = t->communication_s > 0 ? 1 - t->exposed_s / t->communication_s : NAN;
    for (int i = 0; i < SPENT_COUNT; i++)
        if (t->spent_s[i] > t->spent_s[out->bound])
            out->bound = (enum spent)i;
    if (draws)
        draw_range(out, &passes, draws);
    if (draws && prediction->after_release)
        out->high_s = fmax(out->high_s, RELEASING_LONGER * t->step_s);
    passes_free(&passes);
    return ERR_OK;
}

enum err_code step_time_with(const struct prediction *prediction, const struct profile *profile,
                             uint32_t gpus_per_node, struct costs *costs, double *step_s,
                             struct err *err)
{
    assert(prediction->plan->repeats == 0);
    TRY(costs_of_plan(prediction->plan, profile, gpus_per_node, costs, err));
    struct passes passes = passes_of(prediction, profile);
    struct simulation *simulation =
        simulation_new(prediction->plan, passes.stalls, passes.stall_count);
    struct timeline slowest = ranks_slowest(simulation, costs);
    *step_s = slowest.step_s;
    timeline_free(&slowest);
    simulation_free(simulation);
    passes_free(&passes);
    return ERR_OK;
}

void step_time_free(struct step_time *time)
{
    costs_free(&time->costs);
    simulation_free(time->simulation);
    timeline_free(&time->timeline);
    time->simulation = NULL;
}
