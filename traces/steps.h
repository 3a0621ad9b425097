/* steps.h - what a run's steps took, in the information of its trace: a single step says little
 * where a machine does other things, too.
 *
 *     "steps": "17", "step_median_s": "0.0531", "step_spread": "0.04" */
#ifndef SHARDPLAN_STEPS_H
#define SHARDPLAN_STEPS_H

#include "traces/trace.h"

struct run_steps {   /* that were not recorded piece by piece, without the first */
    uint32_t count;  /* 0: not told */
    double median_s; /* of the whole step, by the host's clock */
    double spread;   /* relative: 1.4826 x median absolute residual */
};

/* The statistics of `seconds` (count), which are sorted and changed. */
struct run_steps run_steps_of(double *seconds, uint32_t count);

/* Into a trace's information, and from there: what is not there, or no number, is not told. */
void run_steps_note(const struct run_steps *steps, struct trace *trace);
struct run_steps run_steps_read(const struct trace *trace);

#endif
