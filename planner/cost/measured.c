/* measured.c - see measured.h. */
#include "cost/measured.h"

#include "base/arena.h"
#include "cost/fit.h"

#include <stdlib.h>
#include <string.h>

bool measured_collective(const struct profile *profile, const char *collective, uint32_t ranks,
                         uint32_t nodes, double bytes, double *seconds)
{
    struct fit_curve *curve = NULL;
    double *sizes = xmalloc((2 * (size_t)profile->point_count + 1) * sizeof *sizes);
    double *times = sizes + profile->point_count;
    size_t n = 0;
    for (uint32_t i = 0; i < profile->point_count; i++) {
        const struct profile_point *p = &profile->points[i];
        if (strcmp(p->collective, collective) == 0 && p->ranks == ranks && p->nodes == nodes) {
            sizes[n] = p->bytes;
            times[n++] = p->seconds;
        }
    }
    const bool found = n >= 3 && fit_curve_new(sizes, times, n, &curve, NULL) == ERR_OK;
    if (found)
        *seconds = fit_curve_seconds(curve, bytes);
    fit_curve_free(curve);
    free(sizes);
    return found;
}
