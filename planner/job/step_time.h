/* step_time.h - the time of a plan's step on a machine, with its range and its causes. */
#ifndef SHARDPLAN_STEP_TIME_H
#define SHARDPLAN_STEP_TIME_H

#include "job/predict.h"
#include "simulate/simulate.h"

struct step_time {
    struct costs costs; /* owned, as the next two: step_time_free */
    struct simulation *simulation;
    struct timeline timeline; /* of the mean rank, which waits for the slowest (simulate.h), with
                                 the profile's own numbers: step_s is that of the job, which is the
                                 slowest's (whose timeline it is where nobody waits for it). Of a
                                 plan with repeats (plan/repeat.h), sums are those of the whole
                                 step, and the tasks' moments those of the plan as it stands */
    double low_s, high_s;     /* the step lies between them in 90 of 100 draws of the profile's
                                 numbers within their spreads, and of ranks (seeded, in pairs of
                                 opposite signs: always the same) */
    double tokens_per_s;      /* of one GPU */
    double mfu, hfu;          /* shares of the peak: of the model's arithmetic, and with what
                                 is computed again */
    const char *peak_of;      /* NULL: of the dtype that is computed in; else whose it is, as some
                                 products are of a dtype that has a higher one */
    double overlapped;        /* share of the communication that compute hides; NAN: there is
                                 none */
    char profile[64];         /* name of what it was simulated on */
    enum spent bound;         /* what most of the step is spent on */
};

/* Simulates one step of a prediction, which is the job's, on a machine. `draws` are for the
 * range; 0: there is none, low_s and high_s are NAN. ERR_INVALID as costs_of_plan. On ERR_OK the
 * caller owns what is in *out. */
enum err_code step_time(const struct prediction *prediction, const struct job *job,
                        const struct machine *machine, uint32_t draws, struct step_time *out,
                        struct err *err);
void step_time_free(struct step_time *time);

enum { STEP_TIME_DRAWS = 200 };

/* Of the draws, how many per cent lie below low_s and below high_s. */
enum { STEP_TIME_LOW_PERCENT = 5, STEP_TIME_HIGH_PERCENT = 95 };

/* Where a job fits only by giving cached segments back, the calls of a settled step are simulated
 * as stalls; whether a run settles depends on clocks, which a plan has not. Of 12 published runs
 * (llm-foundry on A100s: reports/validation/time-published.md) 6 are within 8 % of the settled
 * step, 6 took 1.16 to 1.36 times as long. The step is the settled one, and the range ends there.
 */
#define RELEASING_LONGER 1.36

/* Of a plan without repeats: the job's step alone, with another profile's numbers than it was
 * predicted with (memory stays what it is), and the costs of its kernels: costs_free. Errors as
 * costs_of_plan. */
enum err_code step_time_with(const struct prediction *prediction, const struct profile *profile,
                             uint32_t gpus_per_node, struct costs *costs, double *step_s,
                             struct err *err);

/* Seconds of the job's step in each of (draws) draws of the numbers within their spreads. They are
 * the same for every plan, a factor for each class of costs and one for the slowest rank's
 * arithmetic, so that two can be compared draw by draw. A plan of few micro-batches stands for the
 * step that it says (plan->repeats). */
void step_draws(const struct plan *plan, const struct costs *costs, uint32_t draws,
                double *steps_s);

#endif
