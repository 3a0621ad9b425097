/* point.h - one choice of settings, as numbers: does it fit, how fast is it. */
#ifndef SHARDPLAN_POINT_H
#define SHARDPLAN_POINT_H

#include "compare/exposure.h"
#include "job/step_time.h"
#include "search/axis.h"

enum point_verdict {
    POINT_REFUSED, /* it cannot be: `reason` says why; there are no numbers */
    POINT_TOO_LARGE,
    POINT_FITS,
};

enum { POINT_EXPOSURES = 3 };

struct point {
    enum point_verdict verdict;
    char reason[512];   /* a sentence without a final period; "" unless refused */
    bool after_release; /* fits only because cached segments are given back */
    uint64_t requested_bytes, allocated_bytes, reserved_bytes, device_bytes; /* peaks, as fit's */
    uint64_t capacity_bytes, host_bytes;
    uint64_t host_needed_bytes, host_capacity_bytes; /* of a host, as prediction's */
    bool fits_gpu, fits_host;
    uint64_t categories[CATEGORY_COUNT]; /* at the device's peak; their sum, without what is outside
                                            the allocator and workspaces, is what tensors take */
    double step_s, tokens_per_s, mfu, hfu; /* tokens of one GPU; also of what does not fit */
    double communication_s, exposed_s, compute_s, host_s;
    double spent_s[SPENT_COUNT];
    enum spent bound;
    uint32_t exposure_count; /* most exposed first */
    struct {
        char what[64]; /* "all_gather of layers.0, fwd" */
        double seconds;
    } exposures[POINT_EXPOSURES];
};

/* The numbers of what was predicted and timed on a machine. */
void point_take(const struct prediction *prediction, const struct step_time *time,
                const struct machine *machine, struct point *out);

/* A point that cannot be, and why. */
void point_refuse(const struct err *why, struct point *out);

/* Predicts memory and step of a choice: predict and step_time (planner/job), on the machine of its
 * settings with its numbers put in. What cannot be planned or timed is a result, not an error. */
void point_evaluate(const struct choice *choice, struct point *out);

/* The point that `base` becomes with each of `axes` (axis_count) at its value. What axis_choose
 * will not have is refused. */
void point_of(const struct settings *base, const struct axis *axes, const char *const *values,
              uint32_t axis_count, struct point *out);

/* One of its numbers (settings.h). In tokens a second, seconds, a share, and bytes; NAN of a point
 * that is refused. */
double point_value(const struct point *point, enum point_measure measure);

#endif
