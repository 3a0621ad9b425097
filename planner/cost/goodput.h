/* goodput.h - what a large job loses to failures.
 *
 * Times in seconds. Failures are independent and come as a Poisson process, as they do in published
 * logs of large clusters to good approximation. */
#ifndef SHARDPLAN_GOODPUT_H
#define SHARDPLAN_GOODPUT_H

#include "base/err.h"

#include <stdint.h>

/* Mean time between failures that stop a job, per GPU: 419 unexpected interruptions in 54 days on
 * 16,384 GPUs (The Llama 3 Herd of Models, section 3.3.4), 5.8 years. One GPU's failure stops all.
 */
#define GOODPUT_GPU_MTBF_S (54.0 * 86400 * 16384 / 419)

struct failures {
    double gpu_mtbf_s; /* of one GPU with its share of host and network */
    uint32_t gpus;
    double checkpoint_s; /* for which training stands still: an asynchronous write's first part */
    double restart_s;    /* from a failure until training runs again: found, rescheduled, loaded */
};

struct goodput {
    double job_mtbf_s;
    double interval_s; /* of work between checkpoints */
    /* Fractions of wall time; they add up to 1. */
    double useful;
    double checkpointing; /* writes that completed */
    double restarting;
    double repeating; /* work and writes that a failure took */
};

/* The goodput at a given interval of work between checkpoints: the renewal formula, exact for
 * Poisson failures that may also strike during checkpoint and restart,
 *
 *     wall time of one interval = M e^(R/M) (e^((interval + C)/M) - 1)
 *
 * (J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, 2006,
 * equation 20). ERR_INVALID names the field that is out of range; ERR_INFEASIBLE: failures come so
 * often that an interval is never finished in practice (less than 1e-6 of the time is useful). */
enum err_code goodput_at(const struct failures *failures, double interval_s, struct goodput *out,
                         struct err *err);

/* The interval with the highest goodput (Brent's minimiser over its logarithm), and the goodput
 * there. Errors as goodput_at; a checkpoint of 0 s has no best interval: ERR_INVALID. */
enum err_code goodput_best(const struct failures *failures, struct goodput *out, struct err *err);

/* Closed approximations of the best interval: Young 1974, sqrt(2 C M); Daly 2006, equation 37, M
 * for checkpoints of 2 M and longer. */
double checkpoint_interval_young(double checkpoint_s, double job_mtbf_s);
double checkpoint_interval_daly(double checkpoint_s, double job_mtbf_s);

#endif
