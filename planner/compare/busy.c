/* busy.c - see busy.h. */
#include "compare/busy.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* A calibration is named by its device and date: "host-2026-11-22". */
static bool is_calibration(const char *profile, const char *device)
{
    const size_t length = device ? strlen(device) : 0;
    return profile && length && strncmp(profile, device, length) == 0 && profile[length] == '-' &&
           isdigit((unsigned char)profile[length + 1]);
}

enum machine_busy busy_of(const struct busy_evidence *e)
{
    const double slow_s = e->steps.median_s / (1 + e->steps.spread); /* the best that it may be */
    const double fast_s = e->steps.median_s * (1 + e->steps.spread);
    if (e->steps.count == 0 || !(e->work_measured_s > 0) || !is_calibration(e->profile, e->device))
        return BUSY_NO;
    const double kernels = e->work_s / e->work_measured_s;
    const double most = e->high_s / e->step_s * (1 + e->steps.spread);
    const double least = e->low_s / e->step_s / (1 + e->steps.spread);
    if (slow_s > e->high_s && kernels > most)
        return BUSY_NOW;
    return fast_s < e->low_s && kernels < least ? BUSY_AT_CALIBRATION : BUSY_NO;
}
