/* step_time.c - see step_time.h. */
#include "job/step_time.h"

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

/* Kernels of a class are off together (of a card that training was measured on, all classes of
 * kernels are, by what steps were off), so one factor a class and draw; logarithmic, since a time
 * is as likely to be twice as long as half as long. Draws come in pairs of opposite signs: the
 * quantiles of so few are as near as those of many times as many. */
void step_draws(const struct simulation *simulation, const struct costs *costs, uint32_t draws,
                double *steps_s, struct timeline *timeline)
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
    }
    free(own.state);
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

/* With it, that of the mean one. */
static void simulate_job(struct step_time *t)
{
    struct timeline slowest = simulate_slowest(t->simulation, &t->costs);
    simulate_beside(t->simulation, &t->costs, NULL, &slowest, &t->timeline);
    timeline_free(&slowest);
}

static void draw_range(struct step_time *t, uint32_t draws)
{
    struct timeline timeline = timeline_new(t->simulation);
    double *steps = xmalloc(draws * sizeof *steps);
    step_draws(t->simulation, &t->costs, draws, steps, &timeline);
    gsl_sort(steps, 1, draws);
    t->low_s = gsl_stats_quantile_from_sorted_data(steps, 1, draws, 0.05);
    t->high_s = gsl_stats_quantile_from_sorted_data(steps, 1, draws, 0.95);
    free(steps);
    timeline_free(&timeline);
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
    simulate_job(out);

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
        draw_range(out, draws);
    if (draws && prediction->after_release)
        out->high_s = fmax(out->high_s, RELEASING_LONGER * t->step_s);
    return ERR_OK;
}

enum err_code step_time_with(const struct prediction *prediction, const struct profile *profile,
                             uint32_t gpus_per_node, struct costs *costs, double *step_s,
                             struct err *err)
{
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
