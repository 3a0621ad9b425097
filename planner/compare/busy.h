/* busy.h - whether a machine did something else, too: where the prediction is a calibration's of
 * this very machine, and the run is off by more than what both leave open, in its steps and in its
 * kernels each alone, the machine was busy at one time and not at the other. */
#ifndef SHARDPLAN_BUSY_H
#define SHARDPLAN_BUSY_H

#include "traces/steps.h"

enum machine_busy { BUSY_NO, BUSY_NOW, BUSY_AT_CALIBRATION };

struct busy_evidence {
    struct run_steps steps;
    double step_s, low_s, high_s;   /* predicted, and what that leaves open; NAN: not told */
    double work_s, work_measured_s; /* kernels of the compute lane: recorded, and by calibration */
    const char *profile, *device;   /* names; NULL: not told */
};

/* BUSY_NO also where the times are no calibration's of that device. */
enum machine_busy busy_of(const struct busy_evidence *evidence);

#endif
