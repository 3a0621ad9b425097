/* host_ops_norm.c - RMSNorm and LayerNorm over the last dim, and their gradients.
 *
 *     n = (x − mean) · rstd, y = n · weight + bias          RMSNorm: mean 0, no bias
 *     g = dy · weight;  dx = rstd · (g − avg(g) − n · avg(g · n))   RMSNorm: without avg(g)
 *     dweight = Σ dy · n, dbias = Σ dy over all tokens
 *
 * Sums are double: a row is a few thousand elements, the tokens that a weight's gradient sums many
 * more. Statistics saved in 16 bits (a plan keeps LayerNorm's in the input's dtype) are too coarse
 * to go back with; they are taken from x again. */
#include "runtime/host/host_ops_internal.h"
#include "runtime/work/fused.h"

#include <math.h>
#include <stdlib.h>

struct norm {
    const struct work *work;
    const struct work_operand *x, *weight, *bias; /* bias NULL: RMSNorm */
    uint64_t t, h;
    float *row, *scale, *shift;              /* (h) fp32: a row of x, weight, bias */
    float *dy;                               /* (h), backward */
    double *dscale, *dshift;                 /* (h), backward */
    const struct work_operand *addend, *sum; /* ADD_RMS_NORM: x + addend is what is normed */
    const struct work_operand *z;            /* RMS_NORM_BACKWARD_ADD: what dx is added to */
};

static void close_norm(struct norm *norm)
{
    free(norm->row);
    free(norm->scale);
    free(norm->shift);
    free(norm->dy);
    free(norm->dscale);
    free(norm->dshift);
}

static enum err_code open_norm(struct norm *norm, const struct work *work,
                               const struct work_operand *x, const struct work_operand *weight,
                               struct err *err)
{
    *norm = (struct norm){.work = work, .x = x, .weight = weight};
    norm->t = operand_rows(x);
    norm->h = operand_last(x);
    TRY(host_scratch(work, norm->h, sizeof *norm->row, &norm->row, err));
    TRY(host_scratch(work, norm->h, sizeof *norm->scale, &norm->scale, err));
    TRY(host_scratch(work, norm->h, sizeof *norm->shift, &norm->shift, err));
    for (uint64_t i = 0; i < norm->h; i++) {
        norm->scale[i] = 1;
        norm->shift[i] = 0;
    }
    if (weight)
        host_load(weight, 0, norm->h, norm->scale);
    return ERR_OK;
}

/* Of the row loaded. */
static void statistics(const struct norm *norm, bool centred, double *mean, double *rstd)
{
    double sum = 0, squares = 0;
    if (centred)
        for (uint64_t i = 0; i < norm->h; i++)
            sum += (double)norm->row[i];
    *mean = sum / (double)norm->h;
    for (uint64_t i = 0; i < norm->h; i++) {
        const double away = (double)norm->row[i] - *mean;
        squares += away * away;
    }
    *rstd = 1 / sqrt(squares / (double)norm->h + (double)norm->work->attr.eps);
}

static void normalize_row(struct norm *norm, float mean, float rstd)
{
    for (uint64_t i = 0; i < norm->h; i++)
        norm->row[i] = (norm->row[i] - mean) * rstd * norm->scale[i] + norm->shift[i];
}

/* A row of what is normed. */
static void load_row(struct norm *norm, uint64_t row)
{
    host_load(norm->x, row * norm->h, norm->h, norm->row);
    if (!norm->addend)
        return;
    host_load(norm->addend, row * norm->h, norm->h, norm->dy);
    for (uint64_t i = 0; i < norm->h; i++)
        norm->row[i] += norm->dy[i];
    host_store(norm->sum, row * norm->h, norm->h, norm->row);
    host_round((enum dtype)norm->sum->dtype, norm->h, norm->row);
}

/* Rows to y, statistics to `mean_out` (NULL: none, mean is 0) and `rstd_out`. */
static void forward(struct norm *norm, const struct work_operand *y,
                    const struct work_operand *mean_out, const struct work_operand *rstd_out)
{
    for (uint64_t row = 0; row < norm->t; row++) {
        double mean, rstd;
        load_row(norm, row);
        statistics(norm, mean_out != NULL, &mean, &rstd);
        normalize_row(norm, (float)mean, (float)rstd);
        host_store(y, row * norm->h, norm->h, norm->row);
        host_store_one(rstd_out, row, (float)rstd);
        if (mean_out)
            host_store_one(mean_out, row, (float)mean);
    }
}

enum err_code host_rms_norm(const struct work *work, struct err *err)
{
    struct norm norm;
    enum err_code rc = ERR_OK;
    TRY_GOTO(rc, open_norm(&norm, work, work_in(work, 0), work_in(work, 1), err), done);
    forward(&norm, work_out(work, 0), NULL, work_out(work, 1));
done:
    close_norm(&norm);
    return rc;
}

enum err_code host_layer_norm(const struct work *work, struct err *err)
{
    struct norm norm;
    enum err_code rc = ERR_OK;
    const struct work_operand *weight = work->ins > 1 ? work_in(work, 1) : NULL;
    TRY_GOTO(rc, open_norm(&norm, work, work_in(work, 0), weight, err), done);
    if (work->ins > 2)
        host_load(work_in(work, 2), 0, norm.h, norm.shift);
    forward(&norm, work_out(work, 0), work_out(work, 1), work_out(work, 2));
done:
    close_norm(&norm);
    return rc;
}

enum err_code host_add_rms_norm(const struct work *work, struct err *err)
{
    struct norm norm;
    enum err_code rc = ERR_OK;
    TRY_GOTO(rc, open_norm(&norm, work, work_in(work, 0), work_in(work, 2), err), done);
    TRY_GOTO(rc, host_scratch(work, norm.h, sizeof *norm.dy, &norm.dy, err), done);
    norm.addend = work_in(work, 1);
    norm.sum = work_out(work, 0);
    forward(&norm, work_out(work, 1), NULL, work_out(work, 2));
done:
    close_norm(&norm);
    return rc;
}

/* ---- backward ---- */

/* From the row of x and of dy: adds to dweight and dbias, and makes the row of x that of dx. */
static void backward_row(struct norm *norm, bool centred, double mean, double rstd)
{
    double sum = 0, along = 0;
    for (uint64_t i = 0; i < norm->h; i++) {
        const double n = ((double)norm->row[i] - mean) * rstd, dy = (double)norm->dy[i];
        const double g = dy * (double)norm->scale[i];
        norm->dscale[i] += dy * n;
        norm->dshift[i] += dy;
        sum += g;
        along += g * n;
    }
    sum = centred ? sum / (double)norm->h : 0;
    along /= (double)norm->h;
    for (uint64_t i = 0; i < norm->h; i++) {
        const double n = ((double)norm->row[i] - mean) * rstd;
        const double g = (double)norm->dy[i] * (double)norm->scale[i];
        norm->row[i] = (float)(rstd * (g - sum - n * along));
    }
}

static void store_sums(const struct work_operand *y, uint64_t count, const double *sums)
{
    for (uint64_t i = 0; i < count; i++)
        host_store_one(y, i, (float)sums[i]);
}

/* The row of dx where it is asked for, and onto z's. */
static void store_gradient(struct norm *norm, const struct work_operand *dx, uint64_t row)
{
    if (operand_is_written(dx))
        host_store(dx, row * norm->h, norm->h, norm->row);
    if (!norm->z)
        return;
    host_round((enum dtype)dx->dtype, norm->h, norm->row);
    host_load(norm->z, row * norm->h, norm->h, norm->dy);
    for (uint64_t i = 0; i < norm->h; i++)
        norm->row[i] += norm->dy[i];
    host_store(norm->z, row * norm->h, norm->h, norm->row);
}

static enum err_code backward(struct norm *norm, const struct work_operand *mean_in,
                              const struct work_operand *rstd_in, const struct norm_gradients *to,
                              struct err *err)
{
    const struct work *work = norm->work;
    const struct work_operand *dy = work_in(work, 0);
    const bool exact = rstd_in->dtype == DTYPE_FP32;
    TRY(host_scratch(work, norm->h, sizeof *norm->dy, &norm->dy, err));
    TRY(host_scratch(work, norm->h, sizeof *norm->dscale, &norm->dscale, err));
    TRY(host_scratch(work, norm->h, sizeof *norm->dshift, &norm->dshift, err));
    for (uint64_t i = 0; i < norm->h; i++)
        norm->dscale[i] = norm->dshift[i] = 0;
    for (uint64_t row = 0; row < norm->t; row++) {
        double mean = mean_in ? (double)host_load_one(mean_in, row) : 0;
        double rstd = (double)host_load_one(rstd_in, row);
        host_load(norm->x, row * norm->h, norm->h, norm->row);
        host_load(dy, row * norm->h, norm->h, norm->dy);
        if (!exact)
            statistics(norm, mean_in != NULL, &mean, &rstd);
        backward_row(norm, mean_in != NULL, mean, rstd);
        if (to->dx)
            store_gradient(norm, to->dx, row);
    }
    if (to->dweight)
        store_sums(to->dweight, norm->h, norm->dscale);
    if (to->dbias)
        store_sums(to->dbias, norm->h, norm->dshift);
    return ERR_OK;
}

static enum err_code run_backward(const struct work *work, const struct norm_gradients *to,
                                  const struct work_operand *z, const struct work_operand *mean,
                                  const struct work_operand *rstd, struct err *err)
{
    struct norm norm;
    enum err_code rc = ERR_OK;
    const bool weighted = !mean || work->ins > 4;
    const struct work_operand *weight = weighted ? work_in(work, 2) : NULL;
    TRY_GOTO(rc, open_norm(&norm, work, work_in(work, 1), weight, err), done);
    norm.z = z;
    rc = backward(&norm, mean, rstd, to, err);
done:
    close_norm(&norm);
    return rc;
}

enum err_code host_rms_norm_backward(const struct work *work, struct err *err)
{
    const struct norm_gradients to = work_norm_gradients(work);
    return run_backward(work, &to, NULL, NULL, work_in(work, 3), err);
}

enum err_code host_layer_norm_backward(const struct work *work, struct err *err)
{
    const struct norm_gradients to = work_norm_gradients(work);
    return run_backward(work, &to, NULL, work_in(work, work->ins - 2), work_in(work, work->ins - 1),
                        err);
}

enum err_code host_rms_norm_backward_add(const struct work *work, struct err *err)
{
    const struct norm_backward_add all = work_norm_backward_add(work);
    const struct norm_gradients to = {.dx = all.dx, .dweight = all.dweight};
    return run_backward(work, &to, all.z, NULL, work_in(work, 3), err);
}
