/* calibrate.c - see calibrate.h: the suite is run, kinds of kernels are fitted one by one. */
#include "calibrate/calibrate.h"

#include "calibrate/scalars.h"

#include <stdlib.h>
#include <string.h>

/* ---- running ---- */

static enum err_code run_item(const struct calibrate_runner *runner, const struct suite_item *item,
                              struct calibration *out, struct err *err)
{
    const uint32_t ranks = item->plan->world;
    struct trace **traces = xcalloc(ranks, sizeof(struct trace *));
    enum err_code rc = runner->run(runner->context, item->plan, traces, err);
    if (rc == ERR_OK)
        rc = samples_add(&out->samples, item, traces[0], err);
    if (rc == ERR_OK)
        paces_add(&out->paces, item, (const struct trace *const *)traces);
    for (uint32_t rank = 0; rank < ranks; rank++)
        trace_free(traces[rank]);
    free(traces);
    return rc;
}

static enum err_code run_suite(const struct suite_options *options,
                               const struct calibrate_runner *runner, struct calibration *out,
                               struct err *err)
{
    const uint32_t count = suite_count(options);
    for (uint32_t i = 0; i < count; i++) {
        struct suite_item item;
        TRY(suite_make(options, i, &item, err));
        if (runner->progress)
            runner->progress(runner->context, i, count, item.name);
        const enum err_code rc = run_item(runner, &item, out, err);
        plan_free(item.plan);
        if (rc != ERR_OK)
            return err_context(err, "calibration plan \"%s\"", item.name);
    }
    if (runner->progress)
        runner->progress(runner->context, count, count, "");
    return ERR_OK;
}

/* ---- fitting ---- */

static int by_key(const void *a, const void *b)
{
    const struct kernel_key *x = &((const struct sample *)a)->key;
    const struct kernel_key *y = &((const struct sample *)b)->key;
    if (x->work != y->work)
        return x->work < y->work ? -1 : 1;
    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->backward - y->backward;
}

/* End of the stretch of samples that begins at `from` and is of one kind, or of one work. */
static uint32_t stretch_end(const struct samples *s, uint32_t from, bool of_work)
{
    uint32_t i = from;
    while (i < s->kernel_count && (of_work ? s->kernels[i].key.work == s->kernels[from].key.work
                                           : by_key(&s->kernels[i], &s->kernels[from]) == 0))
        i++;
    return i;
}

static void fit_kernels(struct calibration *c)
{
    struct samples *s = &c->samples;
    uint32_t cap = 0;
    if (s->kernel_count)
        qsort(s->kernels, s->kernel_count, sizeof *s->kernels, by_key);
    for (uint32_t i = 0; i < s->kernel_count;) {
        const uint32_t work_end = stretch_end(s, i, true), first = i;
        while (i < work_end) {
            const uint32_t end = stretch_end(s, i, false);
            ARRAY_GROW(c->fits, c->fit_count, cap);
            c->fits[c->fit_count++] = kernel_fit(&s->kernels[i], end - i);
            i = end;
        }
        ARRAY_GROW(c->fits, c->fit_count, cap);
        c->fits[c->fit_count] = kernel_fit(&s->kernels[first], work_end - first);
        c->fits[c->fit_count++].any_kind = true;
    }
}

void calibrate_fit(struct calibration *out)
{
    fit_kernels(out);
    scalars_measure(out);
}

enum err_code calibrate(const struct calibrate_options *options,
                        const struct calibrate_runner *runner, struct calibration *out,
                        struct err *err)
{
    *out = (struct calibration){.options = *options};
    const enum err_code rc = run_suite(&options->suite, runner, out, err);
    if (rc == ERR_OK)
        calibrate_fit(out);
    else
        calibrate_free(out);
    return rc;
}

void calibrate_free(struct calibration *calibration)
{
    samples_free(&calibration->samples);
    paces_free(&calibration->paces);
    free(calibration->fits);
    *calibration = (struct calibration){.fits = NULL};
}
