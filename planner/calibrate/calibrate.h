/* calibrate.h - measures a machine and makes the profile that plans of it are timed with.
 *
 *     suite --run--> traces --> samples --fits--> struct calibration --> profile JSON
 *
 * Nothing here starts a process: the caller's `run` executes a plan and hands the trace of its last
 * step back. Every device that executes plans is calibrated in the same way. */
#ifndef SHARDPLAN_CALIBRATE_H
#define SHARDPLAN_CALIBRATE_H

#include "calibrate/kernel_fit.h"
#include "calibrate/paces.h"
#include "machine/profile.h"

#include <jansson.h>

struct calibrate_runner {
    /* Executes a plan (lent): out[rank] is that rank's trace, for as many as the plan has; all but
     * the first may stay NULL. On ERR_OK the caller of `run` owns them: trace_free. */
    enum err_code (*run)(void *context, const struct plan *plan, struct trace **out,
                         struct err *err);
    void (*progress)(void *context, uint32_t done, uint32_t of, const char *name); /* or NULL */
    void *context;
};

struct calibrate_options {
    struct suite_options suite;
    const char *device; /* "host", "cuda" */
    const char *base; /* built-in GPU for what is not measured; NULL: a CPU, every key is written */
    char date[32];    /* of the measurement, for sources: "2026-11-21" */
};

struct calibrated { /* one key of the profile */
    bool known;
    double value, spread;
    char source[160];
};

struct calibration { /* calibrate_free */
    struct calibrate_options options;
    struct samples samples;
    struct paces paces;
    struct kernel_fit *fits; /* by work, dtype and pass; a work's last is over all of it */
    uint32_t fit_count;
    struct calibrated of[PROFILE_KEYS];
};

/* Runs the suite and fits. Errors are those of `run`, with the plan's name in front. On ERR_OK the
 * caller owns what is in *out. */
enum err_code calibrate(const struct calibrate_options *options,
                        const struct calibrate_runner *runner, struct calibration *out,
                        struct err *err);

/* The second half alone: out->options, out->samples and out->paces are filled in. */
void calibrate_fit(struct calibration *out);

void calibrate_free(struct calibration *calibration);

/* The profile (machine/profile.h says what is in it). The caller owns the object. */
json_t *calibration_profile(const struct calibration *calibration);

#endif
