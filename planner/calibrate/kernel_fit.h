/* kernel_fit.h - seconds of a kind of kernel as a function of its size.
 *
 *     seconds = latency + flops·a + bytes·b        (flops only for what computes: GEMM, attention)
 *
 * Fitted on relative error, so that a microsecond at 10 counts as much as a millisecond at 10,000,
 * and robustly (Tukey's bisquare), so that single outliers do not move it. A term that comes out
 * negative is dropped and the rest fitted anew: no size may cost less than nothing. */
#ifndef SHARDPLAN_KERNEL_FIT_H
#define SHARDPLAN_KERNEL_FIT_H

#include "calibrate/samples.h"

struct kernel_fit {
    struct kernel_key key;
    bool any_kind; /* over all dtypes and passes of key.work */
    double latency_s, seconds_per_flop, seconds_per_byte;
    double spread;     /* relative: 1.4826 x median absolute residual */
    double worst;      /* largest relative residual */
    double confidence; /* relative standard error of a prediction, mean over the sizes */
    uint32_t points;   /* sizes fitted */
};

/* Fits `count` samples (lent) of one kind. count >= 1, seconds > 0. */
struct kernel_fit kernel_fit(const struct sample *samples, uint32_t count);

double kernel_fit_seconds(const struct kernel_fit *fit, double flops, double bytes);

#endif
