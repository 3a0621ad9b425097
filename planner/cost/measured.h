/* measured.h - a collective's seconds from a profile's measured points. */
#ifndef SHARDPLAN_MEASURED_H
#define SHARDPLAN_MEASURED_H

#include "cost/profile.h"

/* Sets *seconds by a monotone curve (cost/fit.h) through the points of this collective with as many
 * ranks on as many nodes; `bytes` as nccl-tests counts them. False: the profile has fewer than
 * three such points, and *seconds is as before. */
bool measured_collective(const struct profile *profile, const char *collective, uint32_t ranks,
                         uint32_t nodes, double bytes, double *seconds);

#endif
