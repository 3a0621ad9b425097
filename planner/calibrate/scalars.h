/* scalars.h - the single numbers of a profile, from samples and fits: peaks, bandwidths, host
 * costs, what a collective takes from the compute beside it. */
#ifndef SHARDPLAN_SCALARS_H
#define SHARDPLAN_SCALARS_H

#include "calibrate/calibrate.h"

/* Sets the keys that were measured; of a CPU (options.base NULL) also those that have nothing to
 * measure, with a source that says so. */
void scalars_measure(struct calibration *calibration);

#endif
