/* kernel_fit.c - see kernel_fit.h.
 *
 * Dividing l + f·a + b·B = T by T gives rows (1/T, f/T, b/T) that are fitted to 1. Columns are
 * scaled to a largest entry of 1 first: 1/T and f/T differ by ten decades. */
#include "calibrate/kernel_fit.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LATENCY, FLOPS, BYTES, TERMS };

struct rows {
    const struct sample *samples;
    uint32_t count;
    bool used[TERMS];
    double scale[TERMS];
    double coefficient[TERMS];
};

static double term(const struct sample *sample, int which)
{
    const double of = which == LATENCY ? 1 : which == FLOPS ? sample->flops : sample->bytes;
    return of / sample->seconds;
}

static uint32_t terms_used(const struct rows *r)
{
    return (uint32_t)r->used[LATENCY] + r->used[FLOPS] + r->used[BYTES];
}

/* Different sizes: as many coefficients can be told apart. */
static uint32_t sizes(const struct rows *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        bool seen = false;
        for (uint32_t j = 0; j < i && !seen; j++)
            seen = r->samples[j].flops == r->samples[i].flops &&
                   r->samples[j].bytes == r->samples[i].bytes;
        n += !seen;
    }
    return n;
}

static void choose_terms(struct rows *r)
{
    for (int t = 0; t < TERMS; t++) {
        for (uint32_t i = 0; i < r->count; i++)
            r->scale[t] = fmax(r->scale[t], term(&r->samples[i], t));
        r->used[t] = r->scale[t] > 0;
    }
    r->used[FLOPS] = r->used[FLOPS] && r->samples[0].arithmetic;
    const uint32_t n = sizes(r);
    if (n < terms_used(r)) /* what decides at large sizes stays */
        r->used[LATENCY] = terms_used(r) == 1;
    if (n < terms_used(r))
        r->used[BYTES] = false;
}

/* Tukey's bisquare weights for what the fit leaves of its rows, in units of their scatter (the
 * median absolute residual over 0.6745; 4.685 of them keep 95 % of least squares' efficiency).
 * Returns the scatter. */
static double bisquare(const gsl_matrix *rows, const gsl_vector *ones, const gsl_vector *c,
                       gsl_vector *weights)
{
    const size_t n = rows->size1;
    double *off = xmalloc(2 * n * sizeof *off), *sorted = off + n;
    gsl_vector_view view = gsl_vector_view_array(off, n);
    gsl_multifit_linear_residuals(rows, ones, c, &view.vector);
    for (size_t i = 0; i < n; i++)
        sorted[i] = fabs(off[i]);
    const double sigma = samples_median(sorted, (uint32_t)n) / 0.6745;
    for (size_t i = 0; i < n; i++) {
        const double r = sigma > 0 ? off[i] / (4.685 * sigma) : 0, inside = fmax(0, 1 - r * r);
        gsl_vector_set(weights, i, inside * inside);
    }
    free(off);
    return sigma;
}

/* Least squares, reweighted until it settles where there are enough rows to disagree with.
 * gsl_multifit_robust would not do: with equal right-hand sides, as here, it takes 1 for their
 * scatter and rejects nothing. `cov` receives the coefficients' covariance. */
static int solve(const gsl_matrix *rows, const gsl_vector *ones, gsl_vector *c, gsl_matrix *cov)
{
    enum { ITERATIONS = 30 };
    const size_t n = rows->size1, p = rows->size2;
    gsl_multifit_linear_workspace *work = gsl_multifit_linear_alloc(n, p);
    gsl_vector *weights = gsl_vector_alloc(n);
    double chisq, sigma = 0;
    gsl_vector_set_all(weights, 1);
    int status = gsl_multifit_wlinear(rows, weights, ones, c, cov, &chisq, work);
    for (int i = 0; i < ITERATIONS && status == GSL_SUCCESS && n > 2 * p; i++) {
        sigma = bisquare(rows, ones, c, weights);
        status = gsl_multifit_wlinear(rows, weights, ones, c, cov, &chisq, work);
    }
    gsl_matrix_scale(cov, sigma * sigma);
    gsl_vector_free(weights);
    gsl_multifit_linear_free(work);
    return status;
}

/* Mean relative standard error of what the fit says of its own rows. */
static double mean_error(const gsl_matrix *rows, const gsl_vector *c, const gsl_matrix *cov)
{
    double sum = 0;
    for (size_t i = 0; i < rows->size1; i++) {
        double y, error;
        const gsl_vector_const_view row = gsl_matrix_const_row(rows, i);
        gsl_multifit_linear_est(&row.vector, c, cov, &y, &error);
        sum += error / (double)rows->size1;
    }
    return sum;
}

/* Fits the terms in use. Returns the one that came out lowest below zero, or TERMS. */
static int fit_terms(struct rows *r, double *confidence)
{
    const size_t p = terms_used(r), n = r->count;
    gsl_matrix *rows = gsl_matrix_alloc(n, p), *cov = gsl_matrix_alloc(p, p);
    gsl_vector *ones = gsl_vector_alloc(n), *c = gsl_vector_alloc(p);
    gsl_vector_set_all(ones, 1);
    for (size_t i = 0; i < n; i++)
        for (int t = 0, column = 0; t < TERMS; t++)
            if (r->used[t])
                gsl_matrix_set(rows, i, (size_t)column++, term(&r->samples[i], t) / r->scale[t]);
    const bool solved = n >= p && solve(rows, ones, c, cov) == GSL_SUCCESS;
    int worst = TERMS;
    double lowest = 0;
    for (int t = 0, column = 0; t < TERMS; t++) {
        r->coefficient[t] = 0;
        if (!r->used[t])
            continue;
        const double scaled = solved ? gsl_vector_get(c, (size_t)column++) : NAN;
        r->coefficient[t] = scaled / r->scale[t];
        if (scaled < lowest) {
            lowest = scaled;
            worst = t;
        }
    }
    *confidence = solved && n > p ? mean_error(rows, c, cov) : 0;
    gsl_vector_free(c);
    gsl_vector_free(ones);
    gsl_matrix_free(cov);
    gsl_matrix_free(rows);
    return worst;
}

static double residual(const struct kernel_fit *fit, const struct sample *sample)
{
    return fabs(kernel_fit_seconds(fit, sample->flops, sample->bytes) / sample->seconds - 1);
}

static void measure_residuals(struct kernel_fit *fit, const struct sample *samples, uint32_t count)
{
    double *off = xmalloc(count * sizeof *off);
    for (uint32_t i = 0; i < count; i++) {
        off[i] = residual(fit, &samples[i]);
        fit->worst = fmax(fit->worst, off[i]);
    }
    fit->spread = 1.4826 * samples_median(off, count);
    free(off);
}

struct kernel_fit kernel_fit(const struct sample *samples, uint32_t count)
{
    struct rows r = {.samples = samples, .count = count};
    struct kernel_fit fit = {.key = samples[0].key, .points = count};
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    choose_terms(&r);
    for (int negative = 0; negative != TERMS && terms_used(&r) > 0;) {
        negative = fit_terms(&r, &fit.confidence);
        if (negative != TERMS)
            r.used[negative] = false;
    }
    gsl_set_error_handler(handler);
    fit.latency_s = r.coefficient[LATENCY];
    fit.seconds_per_flop = r.coefficient[FLOPS];
    fit.seconds_per_byte = r.coefficient[BYTES];
    if (!isfinite(kernel_fit_seconds(&fit, 1, 1))) { /* rows that cannot be told apart */
        double *seconds = xmalloc(count * sizeof *seconds);
        for (uint32_t i = 0; i < count; i++)
            seconds[i] = samples[i].seconds;
        fit = (struct kernel_fit){
            .key = samples[0].key, .points = count, .latency_s = samples_median(seconds, count)};
        free(seconds);
    }
    measure_residuals(&fit, samples, count);
    return fit;
}

double kernel_fit_seconds(const struct kernel_fit *fit, double flops, double bytes)
{
    return fit->latency_s + flops * fit->seconds_per_flop + bytes * fit->seconds_per_byte;
}
