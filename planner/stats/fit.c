/* fit.c - see fit.h.
 *
 * Relative error turns alpha + beta x S = T into alpha/T + beta x S/T = 1: rows (1/T, S/T) fitted
 * to 1 with Tukey's bisquare weights. Which breakpoints are best is decided by the
 * bisquare loss at a fixed scale, so that an outlier costs the same in every split. */
#include "stats/fit.h"

#include "base/arena.h"

#include <gsl/gsl_interp.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>

#define MIN_PIECE 5U   /* points of a piece: two parameters, and some to disagree */
#define MAX_SPLITS 64U /* candidate breakpoints */

/* A relative error of 0.2 and more costs the same: 4.685 (95 % efficiency) x 4 %, the scatter
 * between two repetitions of one nccl-tests size. */
#define LOSS_WIDTH 0.2

/* The worst point of a published sweep lies 26 % off its piece; twice that is another cause. */
#define OUTLIER 0.5

struct point {
    double bytes, seconds;
};

static int by_size(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* The points by size, owned by the caller; NULL and ERR_INVALID in *err when one is no time. */
static struct point *sorted_points(const double *bytes, const double *seconds, size_t n,
                                   struct err *err)
{
    struct point *points = xmalloc(n * sizeof *points + 1);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(bytes[i]) || bytes[i] < 0 || !isfinite(seconds[i]) || seconds[i] <= 0) {
            free(points);
            err_set(err, ERR_INVALID,
                    "point %zu of a fit is %g bytes in %g s: bytes are finite and 0 or more, "
                    "seconds finite and above 0",
                    i, bytes[i], seconds[i]);
            return NULL;
        }
        points[i] = (struct point){bytes[i], seconds[i]};
    }
    qsort(points, n, sizeof *points, by_size);
    return points;
}

static double residual(const struct alpha_beta_piece *piece, const struct point *p)
{
    return (piece->alpha_s + p->bytes * piece->s_per_byte) / p->seconds - 1;
}

/* A constant, when time does not grow: the one with the least relative squares, over the half of
 * the points around the median. */
static struct alpha_beta_piece flat(const struct point *points, size_t n)
{
    double *seconds = xmalloc(n * sizeof *seconds);
    for (size_t i = 0; i < n; i++)
        seconds[i] = points[i].seconds;
    const double median = gsl_stats_median(seconds, 1, n);
    free(seconds);
    return (struct alpha_beta_piece){.from_bytes = points[0].bytes, .alpha_s = median};
}

/* A line through the origin, when the fit would start below it. */
static struct alpha_beta_piece proportional(const struct point *points, size_t n)
{
    double *slope = xmalloc(n * sizeof *slope);
    for (size_t i = 0; i < n; i++)
        slope[i] = points[i].seconds / fmax(points[i].bytes, 1);
    const double median = gsl_stats_median(slope, 1, n);
    free(slope);
    return (struct alpha_beta_piece){.from_bytes = points[0].bytes, .s_per_byte = median};
}

/* Weighted least squares of 1 = alpha x u + beta x v: two normal equations. */
static int solve(const double *u, const double *v, const double *weights, size_t n, double c[2])
{
    double uu = 0, uv = 0, vv = 0, ru = 0, rv = 0;
    for (size_t i = 0; i < n; i++) {
        const double w = weights[i];
        uu += w * u[i] * u[i];
        uv += w * u[i] * v[i];
        vv += w * v[i] * v[i];
        ru += w * u[i];
        rv += w * v[i];
    }
    const double det = uu * vv - uv * uv;
    c[0] = (ru * vv - rv * uv) / det;
    c[1] = (rv * uu - ru * uv) / det;
    return det > 1e-12 * uu * vv && isfinite(c[0]) && isfinite(c[1]);
}

/* Weights of the residuals by Tukey's bisquare, in units of their scatter (the median absolute one
 * over 0.6745), but never finer than measurements repeat: a piece is not exactly straight, and its
 * ends are no outliers for that. */
static void bisquare(const double *off, double *weights, double *scratch, size_t n)
{
    for (size_t i = 0; i < n; i++)
        scratch[i] = fabs(off[i]);
    const double sigma = gsl_stats_median(scratch, 1, n) / .6745;
    const double width = fmax(4.685 * sigma, LOSS_WIDTH);
    for (size_t i = 0; i < n; i++) {
        const double r = off[i] / width, inside = fmax(0, 1 - r * r);
        weights[i] = inside * inside;
    }
}

/* Iteratively reweighted least squares, as gsl_multifit_robust does it: that one takes 1 for the
 * scatter when all right-hand sides are equal, as they are here, and so rejects nothing; and where
 * it does not settle it ends the process. Here the last iterate serves. */
static int reweight(const double *u, const double *v, size_t n, double c[2])
{
    double *weights = xmalloc(3 * n * sizeof *weights), *off = weights + n;
    for (size_t i = 0; i < n; i++)
        weights[i] = 1;
    int good = solve(u, v, weights, n, c);
    for (int i = 0; i < 50 && good; i++) {
        const double before[2] = {c[0], c[1]};
        for (size_t j = 0; j < n; j++)
            off[j] = 1 - c[0] * u[j] - c[1] * v[j];
        bisquare(off, weights, off + n, n);
        good = solve(u, v, weights, n, c);
        if (fabs(c[0] - before[0]) <= 1e-9 * fabs(before[0]) &&
            fabs(c[1] - before[1]) <= 1e-9 * fabs(before[1]))
            break;
    }
    free(weights);
    return good;
}

static struct alpha_beta_piece fit_robust(const struct point *points, size_t n)
{
    if (points[0].bytes == points[n - 1].bytes || n < 3)
        return flat(points, n);
    /* Units of the largest size and of the first time bring both columns near 1. */
    const double unit = points[n - 1].bytes, time = points[0].seconds;
    double *u = xmalloc(2 * n * sizeof *u), *v = u + n, c[2];
    for (size_t i = 0; i < n; i++) {
        u[i] = time / points[i].seconds;
        v[i] = points[i].bytes / unit * u[i];
    }
    const int good = reweight(u, v, n, c);
    free(u);
    const struct alpha_beta_piece piece = {points[0].bytes, c[0] * time, c[1] * time / unit};
    if (!good || piece.s_per_byte <= 0)
        return flat(points, n);
    return piece.alpha_s < 0 ? proportional(points, n) : piece;
}

/* Bisquare starts from least squares, whose scale outliers stretch: they keep some weight. Points
 * that far off are left out of a second fit. */
static struct alpha_beta_piece fit_piece(const struct point *points, size_t n)
{
    const struct alpha_beta_piece first = fit_robust(points, n);
    struct point *near = xmalloc(n * sizeof *near);
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        if (fabs(residual(&first, &points[i])) < OUTLIER)
            near[count++] = points[i];
    struct alpha_beta_piece piece = first;
    if (count < n && count >= MIN_PIECE && 2 * count > n) {
        piece = fit_robust(near, count);
        piece.from_bytes = first.from_bytes;
    }
    free(near);
    return piece;
}

static double loss(const struct alpha_beta_piece *piece, const struct point *points, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double r = fabs(residual(piece, &points[i])) / LOSS_WIDTH;
        const double inside = 1 - r * r;
        sum += r < 1 ? 1 - inside * inside * inside : 1;
    }
    return sum;
}

/* Every stretch between two candidate breakpoints, fitted once. */
struct stretches {
    const struct point *points;
    size_t cut[MAX_SPLITS + 2], cuts; /* first points of possible pieces, and the end */
    struct alpha_beta_piece piece[MAX_SPLITS + 2][MAX_SPLITS + 2];
    double loss[MAX_SPLITS + 2][MAX_SPLITS + 2];
};

static void fit_stretches(struct stretches *s, size_t n)
{
    const size_t step = n <= MAX_SPLITS ? 1 : (n + MAX_SPLITS - 1) / MAX_SPLITS;
    for (size_t i = 0; i < n; i += step) {
        size_t at = i; /* equal sizes stay together */
        while (at > 0 && at < n && s->points[at].bytes == s->points[at - 1].bytes)
            at++;
        if (at < n && (s->cuts == 0 || at > s->cut[s->cuts - 1]))
            s->cut[s->cuts++] = at;
    }
    s->cut[s->cuts] = n;
    for (size_t i = 0; i < s->cuts; i++)
        for (size_t j = i + 1; j <= s->cuts; j++) {
            const size_t from = s->cut[i], count = s->cut[j] - from;
            s->loss[i][j] = INFINITY;
            if (count < MIN_PIECE && !(i == 0 && j == s->cuts))
                continue;
            s->piece[i][j] = fit_piece(s->points + from, count);
            s->loss[i][j] = loss(&s->piece[i][j], s->points + from, count);
        }
}

/* One more piece must remove a quarter of the loss, and more than the loss of half an outlier. */
static int worth(double loss_before, double loss_after)
{
    return loss_after < .75 * loss_before && loss_before - loss_after > .5;
}

static void choose_pieces(const struct stretches *s, struct alpha_beta_fit *out)
{
    const size_t end = s->cuts;
    double best = s->loss[0][end], two = INFINITY, three = INFINITY;
    size_t a = 0, b = 0, c = 0;
    for (size_t i = 1; i < end; i++) {
        if (s->loss[0][i] + s->loss[i][end] < two) {
            two = s->loss[0][i] + s->loss[i][end];
            a = i;
        }
        for (size_t j = i + 1; j < end; j++)
            if (s->loss[0][i] + s->loss[i][j] + s->loss[j][end] < three) {
                three = s->loss[0][i] + s->loss[i][j] + s->loss[j][end];
                b = i;
                c = j;
            }
    }
    out->pieces = 1;
    out->piece[0] = s->piece[0][end];
    if (worth(best, two)) {
        best = two;
        out->pieces = 2;
        out->piece[0] = s->piece[0][a];
        out->piece[1] = s->piece[a][end];
    }
    if (worth(best, three)) {
        out->pieces = 3;
        out->piece[0] = s->piece[0][b];
        out->piece[1] = s->piece[b][c];
        out->piece[2] = s->piece[c][end];
    }
    out->piece[0].from_bytes = 0;
}

static void quality(const struct point *points, size_t n, struct alpha_beta_fit *fit)
{
    double *off = xmalloc(n * sizeof *off);
    double mean = 0, left = 0, total = 0;
    for (size_t i = 0; i < n; i++)
        mean += log(points[i].seconds) / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double ratio = fit_alpha_beta_seconds(fit, points[i].bytes) / points[i].seconds;
        off[i] = fabs(ratio - 1);
        left += log(ratio) * log(ratio);
        total += pow(log(points[i].seconds) - mean, 2);
    }
    fit->r_squared = total > 0 ? 1 - left / total : NAN;
    fit->sigma = 1.4826 * gsl_stats_median(off, 1, n);
    free(off);
}

enum err_code fit_alpha_beta(const double *bytes, const double *seconds, size_t n,
                             struct alpha_beta_fit *out, struct err *err)
{
    *out = (struct alpha_beta_fit){0};
    if (n < 4)
        return err_set(err, ERR_INVALID,
                       "%zu points are too few for a fit of latency and "
                       "bandwidth: at least 4",
                       n);
    struct point *points = sorted_points(bytes, seconds, n, err);
    if (!points)
        return ERR_INVALID;
    struct stretches *s = xcalloc(1, sizeof *s);
    s->points = points;
    fit_stretches(s, n);
    choose_pieces(s, out);
    free(s);
    quality(points, n, out);
    free(points);
    return ERR_OK;
}

double fit_alpha_beta_seconds(const struct alpha_beta_fit *fit, double bytes)
{
    double least = 0;
    for (uint32_t i = 0; i < fit->pieces; i++) {
        const struct alpha_beta_piece *piece = &fit->piece[i];
        const int last = i + 1 == fit->pieces || bytes < fit->piece[i + 1].from_bytes;
        const double at = last ? bytes : fit->piece[i + 1].from_bytes;
        least = fmax(least, piece->alpha_s + at * piece->s_per_byte);
        if (last)
            break;
    }
    return least;
}

struct fit_curve {
    size_t n;
    double *x, *y; /* ln bytes, ln seconds */
    gsl_interp *interp;
};

/* Medians of equal sizes, then the running maximum; points of 0 bytes fall out. Returns how many
 * sizes are left in points. */
static size_t one_of_each_size(struct point *points, size_t n)
{
    size_t count = 0;
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && points[j].bytes == points[i].bytes;)
            j++;
        if (points[i].bytes <= 0)
            continue;
        const size_t m = j - i; /* sorted by seconds within a size */
        const double median = m % 2
                                  ? points[i + m / 2].seconds
                                  : (points[i + m / 2 - 1].seconds + points[i + m / 2].seconds) / 2;
        const double before = count > 0 ? points[count - 1].seconds : 0;
        points[count++] = (struct point){points[i].bytes, fmax(median, before)};
    }
    return count;
}

enum err_code fit_curve_new(const double *bytes, const double *seconds, size_t n,
                            struct fit_curve **out, struct err *err)
{
    *out = NULL;
    struct point *points = sorted_points(bytes, seconds, n, err);
    if (!points)
        return ERR_INVALID;
    const size_t count = one_of_each_size(points, n);
    if (count < 3) { /* Steffen's slopes need two intervals */
        free(points);
        return err_set(err, ERR_INVALID, "%zu distinct sizes are too few for a curve: at least 3",
                       count);
    }
    struct fit_curve *curve = xmalloc(sizeof *curve);
    curve->n = count;
    curve->x = xmalloc(2 * count * sizeof *curve->x);
    curve->y = curve->x + count;
    for (size_t i = 0; i < count; i++) {
        curve->x[i] = log(points[i].bytes);
        curve->y[i] = log(points[i].seconds);
    }
    free(points);
    curve->interp = gsl_interp_alloc(gsl_interp_steffen, count);
    gsl_interp_init(curve->interp, curve->x, curve->y, count);
    *out = curve;
    return ERR_OK;
}

void fit_curve_free(struct fit_curve *curve)
{
    if (curve) {
        gsl_interp_free(curve->interp);
        free(curve->x);
        free(curve);
    }
}

double fit_curve_seconds(const struct fit_curve *curve, double bytes)
{
    const double x = log(fmax(bytes, 1)), last = curve->x[curve->n - 1];
    if (x <= curve->x[0])
        return exp(curve->y[0]);
    if (x >= last)
        return exp(curve->y[curve->n - 1] + x - last);
    return exp(gsl_interp_eval(curve->interp, curve->x, curve->y, x, NULL));
}

void fit_curve_ends(const struct fit_curve *curve, double bytes[2], double seconds[2])
{
    for (int i = 0; i < 2; i++) {
        bytes[i] = exp(curve->x[i ? curve->n - 1 : 0]);
        seconds[i] = exp(curve->y[i ? curve->n - 1 : 0]);
    }
}
