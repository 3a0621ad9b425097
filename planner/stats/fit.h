/* fit.h - measured times as functions of size: straight pieces, and a curve through the points.
 *
 * Times of copies, collectives and launches span six decades, so everything here weighs relative
 * error: a microsecond at 10 counts as much as a millisecond at 10,000. */
#ifndef SHARDPLAN_FIT_H
#define SHARDPLAN_FIT_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define FIT_MAX_PIECES 3

struct alpha_beta_piece {
    double from_bytes; /* the piece holds from here up to the next one's; 0 in the first */
    double alpha_s;
    double s_per_byte; /* 0: this stretch does not grow with size */
};

struct alpha_beta_fit {
    uint32_t pieces;
    struct alpha_beta_piece piece[FIT_MAX_PIECES];
    double r_squared; /* of ln seconds over all points, outliers too; NAN when all are equal */
    double sigma;     /* relative: 1.4826 x median absolute residual, as 1-sigma without outliers */
};

/* Seconds = alpha + bytes x beta in up to three pieces; breakpoints are searched over all splits
 * (over 64 quantiles of the sizes when there are more points). Each piece is fitted robustly
 * (Tukey's bisquare on relative error), so single outliers do not move it. A piece has at least
 * five points; fewer pieces are used when more do not explain more. bytes and seconds (n of each,
 * in any order) are lent. ERR_INVALID: fewer than 4 points, or one that is not finite and above 0
 * (bytes may be 0).
 */
enum err_code fit_alpha_beta(const double *bytes, const double *seconds, size_t n,
                             struct alpha_beta_fit *out, struct err *err);

/* Seconds by the fit; pieces need not meet, so a larger size is never given less than a piece
 * before it reached at its end. */
double fit_alpha_beta_seconds(const struct alpha_beta_fit *fit, double bytes);

struct fit_curve; /* opaque: a monotone curve through measured points */

/* A curve through the medians of equal sizes, made monotone by a running maximum, then Steffen's
 * interpolation of (ln bytes, ln seconds): it has no overshoot. Below the smallest size time stays,
 * above the largest it grows with bytes. Points of 0 bytes are left out. On ERR_OK the caller owns
 * *out (fit_curve_free), else it is NULL. ERR_INVALID: fewer than 3 distinct sizes, or a value that
 * is not finite and above 0. */
enum err_code fit_curve_new(const double *bytes, const double *seconds, size_t n,
                            struct fit_curve **out, struct err *err);

/* Frees the curve; NULL does nothing. */
void fit_curve_free(struct fit_curve *curve);

/* Seconds at `bytes` >= 0. Any number of threads may ask at once. */
double fit_curve_seconds(const struct fit_curve *curve, double bytes);

/* The smallest and the largest measured size, and their seconds on the curve. */
void fit_curve_ends(const struct fit_curve *curve, double bytes[2], double seconds[2]);

#endif
