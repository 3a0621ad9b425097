/* samples.h - what a recorded step of a calibration plan says: seconds of kernels and collectives.
 *
 *     plan + trace --samples_add--> one sample for each kind of kernel and size, its median
 *
 * A kernel's seconds are its own only where nothing else took from them: one that ran while a
 * collective did is left out. */
#ifndef SHARDPLAN_SAMPLES_H
#define SHARDPLAN_SAMPLES_H

#include "calibrate/suite.h"
#include "traces/trace.h"

struct kernel_key { /* what a profile tells kernels apart by */
    enum work_kind work;
    enum dtype dtype, to; /* of the first operand, of the first result */
    bool backward;
};

struct sample { /* kernels of one kind and size, of one plan */
    struct kernel_key key;
    bool arithmetic;     /* a matrix product or attention: operations count, not bytes alone */
    double flops, bytes; /* as kernel_traffic counts them */
    double seconds;      /* median */
    uint32_t repeats;    /* that it is the median of */
};

struct transfer { /* a copy between host and device, or an optimizer on the host */
    bool of_optimizer;
    double bytes, seconds;
};

struct message { /* a collective among `ranks`; bytes as nccl-tests counts them */
    enum plan_op op;
    uint32_t ranks;
    double bytes, seconds; /* median of its repetitions */
};

struct overlap { /* seconds of the parts of a round, medians; 0: not measured */
    double part_s[ROUND_PARTS], spread[ROUND_PARTS];
};

struct pace { /* seconds from one launch to the next, of a run in the suite */
    double mean_s, spread;
};

struct launches {
    struct pace plain, events, parts;
};

struct samples { /* zero-initialise; samples_free */
    struct sample *kernels;
    struct transfer *transfers;
    struct message *messages;
    uint32_t kernel_count, transfer_count, message_count;
    uint32_t kernel_cap, transfer_cap, message_cap;
    struct overlap overlap;
    struct launches launches;
    double *gaps; /* seconds between a kernel's end and the next one's begin on the same stream */
    uint32_t gap_count, gap_cap;
};

/* Adds what the trace of a run of `item` says. ERR_INVALID: the trace is not of this plan, or of
 * its first step, where memory is touched for the first time. */
enum err_code samples_add(struct samples *samples, const struct suite_item *item,
                          const struct trace *trace, struct err *err);
void samples_free(struct samples *samples);

/* The median of `count` values, which are sorted; 0 of none. */
double samples_median(double *values, uint32_t count);

/* Their relative scatter: 1.4826 x the median absolute deviation over the median, which is the
 * relative standard deviation of normal ones. The values are overwritten. 0 where the median is. */
double samples_spread(double *values, uint32_t count);

#endif
