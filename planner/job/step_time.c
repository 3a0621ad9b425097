/* step_time.c - see step_time.h. */
#include "job/step_time.h"

#include <assert.h>
#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Multiplies times of arithmetic by what a slower rank takes longer. */
static void slow_down(double scale[COST_CLASSES], double factor)
{
    for (int k = 0; k < COST_CLASSES; k++)
        scale[k] *= cost_class_is_arithmetic((enum cost_class)k) ? factor : 1;
}

/* Of a step that is simulated as few micro-batches. */
struct repeats {
    const struct plan *plan;
    struct simulation *whole; /* NULL: not needed so far */
    struct timeline timeline; /* of it */
};

/* Seconds of the whole step, after its few micro-batches were simulated. */
static double repeated_step(struct repeats *r, const struct simulation *few,
                            const struct costs *costs, const double *scale,
                            const struct timeline *timeline)
{
    double period_s;
    if (simulation_is_steady(few, timeline, &period_s))
        return timeline->step_s + r->plan->repeats * period_s;
    if (!r->whole) {
        r->whole = simulation_of_passes(r->plan, 1 + r->plan->repeats);
        r->timeline = timeline_new(r->whole);
    }
    simulate(r->whole, costs, scale, &r->timeline);
    return r->timeline.step_s;
}

/* Kernels of a class are off together (of a card that training was measured on, all classes of
 * kernels are, by what steps were off), so one factor a class and draw; logarithmic, since a time
 * is as likely to be twice as long as half as long. Draws come in pairs of opposite signs: the
 * quantiles of so few are as near as those of many times as many. */
static void draw_steps(const struct simulation *simulation, struct repeats *repeats,
                       const struct costs *costs, uint32_t draws, double *steps_s,
                       struct timeline *timeline)
{
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
        slow_down(scale, slowest_draw(&costs->slowest, sign * luck, sign * truth));
        simulate(simulation, costs, scale, timeline);
        steps_s[i] = timeline->step_s;
        if (repeats)
            steps_s[i] = repeated_step(repeats, simulation, costs, scale, timeline);
    }
    free(own.state);
}

void step_draws(const struct simulation *simulation, const struct costs *costs, uint32_t draws,
                double *steps_s, struct timeline *timeline)
{
    draw_steps(simulation, NULL, costs, draws, steps_s, timeline);
}

/* The timeline of the slowest rank: the job's step. The caller owns it. */
static struct timeline simulate_slowest(const struct simulation *simulation,
                                        const struct costs *costs)
{
    double scale[COST_CLASSES];
    for (int k = 0; k < COST_CLASSES; k++)
        scale[k] = 1;
    slow_down(scale, costs->slowest.factor);
    struct timeline slowest = timeline_new(simulation);
    simulate(simulation, costs, scale, &slowest);
    return slowest;
}

/* A rank that waits for the slowest ends with it, to a rounding. */
#define ENDS_WITH_IT (1 + 1e-9)

/* With it, that of the mean one, beside the slowest if that has got `delay_s` further behind before
 * the last micro-batch. The periods of both, if they have come to one, go to period_s.
 *
 * The mean rank meets its collectives at other moments, and where its own kernels on their stream
 * (FSDP1's divisions) share the memory with other ones than the slowest's do, it may end some
 * microseconds later than that. Nobody waits for the slowest then, whose timeline it is. */
static bool simulate_job(const struct simulation *simulation, const struct costs *costs,
                         double delay_s, struct timeline *mean, double period_s[2])
{
    struct timeline slowest = simulate_slowest(simulation, costs);
    const bool steady = simulation_is_steady(simulation, &slowest, &period_s[0]);
    simulation_delay(simulation, delay_s, &slowest);
    simulate_beside(simulation, costs, NULL, &slowest, mean);
    const bool both = steady && simulation_is_steady(simulation, mean, &period_s[1]);
    if (mean->step_s > slowest.step_s * ENDS_WITH_IT) {
        timeline_free(mean);
        *mean = slowest;
    } else {
        timeline_free(&slowest);
    }
    return both;
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

/* What one more micro-batch adds, for each that is not there. Where no collective keeps the mean
 * rank, it gets further ahead of the slowest with each: by the last one as far as in the whole
 * step, whether a pass more is simulated or not. */
static void add_repeats(struct step_time *t, const struct plan *plan, const double period_s[2])
{
    struct simulation *shorter = simulation_of_passes(plan, 0);
    struct timeline timeline = timeline_new(shorter);
    const double more = plan->repeats, ahead_s = fmax(period_s[0] - period_s[1], 0);
    double ignored[2];
    simulate_job(t->simulation, &t->costs, more * ahead_s, &t->timeline, ignored);
    simulate_job(shorter, &t->costs, (more + 1) * ahead_s, &timeline, ignored);
    add_sums(&t->timeline, &timeline, more);
    timeline_free(&timeline);
    simulation_free(shorter);
}

static void simulate_all(struct step_time *t, const struct plan *plan)
{
    struct simulation *whole = simulation_of_passes(plan, 1 + plan->repeats);
    struct timeline timeline = timeline_new(whole);
    double ignored[2];
    simulate_job(whole, &t->costs, 0, &timeline, ignored);
    take_sums(&t->timeline, &timeline);
    timeline_free(&timeline);
    simulation_free(whole);
}

/* The job's step, from few micro-batches where they have come to a period. */
static void make_timeline(struct step_time *t, const struct plan *plan)
{
    double period_s[2];
    const bool steady = simulate_job(t->simulation, &t->costs, 0, &t->timeline, period_s);
    if (plan->repeats && steady)
        add_repeats(t, plan, period_s);
    else if (plan->repeats)
        simulate_all(t, plan);
}

static void draw_range(struct step_time *t, const struct plan *plan, uint32_t draws)
{
    struct timeline timeline = timeline_new(t->simulation);
    struct repeats repeats = {.plan = plan};
    double *steps = xmalloc(draws * sizeof *steps);
    draw_steps(t->simulation, plan->repeats ? &repeats : NULL, &t->costs, draws, steps, &timeline);
    gsl_sort(steps, 1, draws);
    t->low_s = gsl_stats_quantile_from_sorted_data(steps, 1, draws, 0.05);
    t->high_s = gsl_stats_quantile_from_sorted_data(steps, 1, draws, 0.95);
    free(steps);
    timeline_free(&timeline);
    timeline_free(&repeats.timeline);
    simulation_free(repeats.whole);
}

/* The allocator's calls as stalls of the host. */
static struct simulation *prepare(const struct prediction *p, const struct profile *profile)
{
    struct stall *stalls = xmalloc((p->call_count + 1) * sizeof *stalls);
    for (uint32_t i = 0; i < p->call_count; i++)
        stalls[i] = (struct stall){
            .instruction = p->calls[i].instruction,
            .host_s = p->calls[i].mallocs * profile_value(profile, PROFILE_HOST_MALLOC) +
                      p->calls[i].frees * profile_value(profile, PROFILE_HOST_FREE),
            .idle = p->calls[i].frees > 0,
        };
    struct simulation *simulation = simulation_new(p->plan, stalls, p->call_count);
    free(stalls);
    return simulation;
}

enum err_code step_time(const struct prediction *prediction, const struct job *job,
                        const struct machine *machine, uint32_t draws, struct step_time *out,
                        struct err *err)
{
    *out = (struct step_time){0};
    TRY(costs_of_plan(prediction->plan, &machine->profile, machine->gpus_per_node, &out->costs,
                      err));
    out->simulation = prepare(prediction, &machine->profile);
    out->timeline = timeline_new(out->simulation);
    make_timeline(out, prediction->plan);

    const struct timeline *t = &out->timeline;
    snprintf(out->profile, sizeof out->profile, "%s", machine->profile.name);
    const double tokens = (double)job->model.batch * job->model.seq * job->strategy.accumulate;
    out->low_s = out->high_s = t->step_s;
    out->tokens_per_s = tokens / t->step_s;
    out->mfu = out->costs.model_flops / t->step_s / out->costs.peak_flops;
    out->hfu = out->costs.hardware_flops / t->step_s / out->costs.peak_flops;
    out->overlapped = t->communication_s > 0 ? 1 - t->exposed_s / t->communication_s : NAN;
    for (int i = 0; i < SPENT_COUNT; i++)
        if (t->spent_s[i] > t->spent_s[out->bound])
            out->bound = (enum spent)i;
    if (draws)
        draw_range(out, prediction->plan, draws);
    if (draws && prediction->after_release)
        out->high_s = fmax(out->high_s, RELEASING_LONGER * t->step_s);
    return ERR_OK;
}

enum err_code step_time_with(const struct prediction *prediction, const struct profile *profile,
                             uint32_t gpus_per_node, struct costs *costs, double *step_s,
                             struct err *err)
{
    assert(prediction->plan->repeats == 0);
    TRY(costs_of_plan(prediction->plan, profile, gpus_per_node, costs, err));
    struct simulation *simulation = prepare(prediction, profile);
    struct timeline slowest = simulate_slowest(simulation, costs);
    *step_s = slowest.step_s;
    timeline_free(&slowest);
    simulation_free(simulation);
    return ERR_OK;
}

void step_time_free(struct step_time *time)
{
    costs_free(&time->costs);
    simulation_free(time->simulation);
    timeline_free(&time->timeline);
    time->simulation = NULL;
}
