/* goodput.c - see goodput.h. */
#include "cost/goodput.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_min.h>
#include <math.h>

/* Below this nothing useful is done; it also keeps exponentials far from overflow. */
#define LEAST_USEFUL 1e-6

static enum err_code check(const struct failures *f, struct err *err)
{
    if (!(f->gpu_mtbf_s > 0) || !isfinite(f->gpu_mtbf_s))
        return err_set(err, ERR_INVALID, "gpu_mtbf_s is %g: seconds, above 0", f->gpu_mtbf_s);
    if (f->gpus == 0)
        return err_set(err, ERR_INVALID, "gpus is 0: 1 or more");
    if (!(f->checkpoint_s >= 0) || !isfinite(f->checkpoint_s))
        return err_set(err, ERR_INVALID, "checkpoint_s is %g: seconds, 0 or more", f->checkpoint_s);
    if (!(f->restart_s >= 0) || !isfinite(f->restart_s))
        return err_set(err, ERR_INVALID, "restart_s is %g: seconds, 0 or more", f->restart_s);
    return ERR_OK;
}

/* ln of wall time over work: finite where the quotient itself would overflow. */
static double log_cost(const struct failures *f, double interval_s)
{
    const double m = f->gpu_mtbf_s / f->gpus, x = (interval_s + f->checkpoint_s) / m;
    const double grown = x > 30 ? x : log(expm1(x));
    return f->restart_s / m + grown + log(m / interval_s);
}

enum err_code goodput_at(const struct failures *f, double interval_s, struct goodput *out,
                         struct err *err)
{
    *out = (struct goodput){0};
    TRY(check(f, err));
    if (!(interval_s > 0) || !isfinite(interval_s))
        return err_set(err, ERR_INVALID, "a checkpoint interval of %g s: above 0", interval_s);
    const double m = f->gpu_mtbf_s / f->gpus, useful = exp(-log_cost(f, interval_s));
    if (!(useful >= LEAST_USEFUL))
        return err_set(err, ERR_INFEASIBLE,
                       "%u GPUs fail every %.4g s on average: %.4g s of work, a checkpoint of %.4g "
                       "s and a restart of %.4g s are hardly ever finished between failures",
                       f->gpus, m, interval_s, f->checkpoint_s, f->restart_s);
    out->job_mtbf_s = m;
    out->interval_s = interval_s;
    out->useful = useful;
    out->checkpointing = useful * f->checkpoint_s / interval_s;
    /* One failure every M of wall time; each restart lasts R or until the next failure. */
    out->restarting = -expm1(-f->restart_s / m);
    out->repeating = fmax(0, 1 - out->useful - out->checkpointing - out->restarting);
    return ERR_OK;
}

static double cost_at_log(double log_interval, void *context)
{
    return log_cost(context, exp(log_interval));
}

enum err_code goodput_best(const struct failures *failures, struct goodput *out, struct err *err)
{
    *out = (struct goodput){0};
    TRY(check(failures, err));
    if (failures->checkpoint_s == 0)
        return err_set(err, ERR_INVALID,
                       "checkpoint_s is 0: without a cost the best interval is none; give seconds");
    struct failures f = *failures;
    const double m = f.gpu_mtbf_s / f.gpus;
    /* The best interval lies below M, where repeating costs more than it can save, and above a
     * tenth of Young's or, for checkpoints longer than M, of M. */
    const double low = log(.1 * fmin(checkpoint_interval_young(f.checkpoint_s, m), m));
    const double high = log(10 * m);
    const double guess = log(fmin(checkpoint_interval_young(f.checkpoint_s, m), m));
    TRY(goodput_at(failures, exp(guess), out, err));
    const double here = log_cost(&f, exp(guess));
    if (!(here < log_cost(&f, exp(low)) && here < log_cost(&f, exp(high))))
        return ERR_OK; /* a checkpoint so short that its cost drowns in rounding */
    gsl_function function = {cost_at_log, &f};
    gsl_min_fminimizer *minimizer = gsl_min_fminimizer_alloc(gsl_min_fminimizer_brent);
    int status = gsl_min_fminimizer_set(minimizer, &function, guess, low, high);
    for (int i = 0; i < 100 && status == GSL_SUCCESS; i++) {
        status = gsl_min_fminimizer_iterate(minimizer);
        if (gsl_min_test_interval(gsl_min_fminimizer_x_lower(minimizer),
                                  gsl_min_fminimizer_x_upper(minimizer), 1e-8, 0) == GSL_SUCCESS)
            break;
    }
    const double best = exp(gsl_min_fminimizer_x_minimum(minimizer));
    gsl_min_fminimizer_free(minimizer);
    if (status != GSL_SUCCESS)
        return err_set(err, ERR_INTERNAL,
                       "best checkpoint interval for %.4g s at a failure every "
                       "%.4g s: %s",
                       f.checkpoint_s, m, gsl_strerror(status));
    return goodput_at(failures, best, out, err);
}

double checkpoint_interval_young(double checkpoint_s, double job_mtbf_s)
{
    return sqrt(2 * checkpoint_s * job_mtbf_s);
}

double checkpoint_interval_daly(double checkpoint_s, double job_mtbf_s)
{
    if (checkpoint_s >= 2 * job_mtbf_s)
        return job_mtbf_s;
    const double x = checkpoint_s / (2 * job_mtbf_s);
    return checkpoint_interval_young(checkpoint_s, job_mtbf_s) * (1 + sqrt(x) / 3 + x / 9) -
           checkpoint_s;
}
