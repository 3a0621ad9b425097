/* systems.c - see systems.h. */
#include "search/systems.h"

#include "search/numerics.h"
#include "search/sweep.h"
#include "settings/settings_resolve.h"

#include <stdio.h>

struct visit {
    systems_visitor *call; /* NULL: none */
    void *context;
    uint32_t draws;
    enum err_code rc; /* its own, which ends the run */
};

static void take_job(const struct job *job, const struct prediction *p, struct system_point *out)
{
    out->form = closed_form_of(p->plan, &job->strategy);
    out->store = job->strategy.store;
    out->compute = job->strategy.compute;
    out->reduce = job->strategy.reduce;
    out->autocast = job->model.autocast;
}

static enum err_code run_on(const struct job *job, const struct machine *machine,
                            struct visit *visit, struct system_point *out, struct err *err)
{
    struct prediction prediction;
    struct step_time time;
    /* What a visitor writes has every instruction. */
    TRY(visit->call ? predict(job, machine, &prediction, err)
                    : predict_few(job, machine, &prediction, err));
    const enum err_code rc = step_time(&prediction, job, machine, visit->draws, &time, err);
    if (rc == ERR_OK) {
        point_take(&prediction, &time, machine, &out->point);
        take_job(job, &prediction, out);
        if (visit->call)
            visit->rc = visit->call(visit->context, &out->settings, out->name, job, machine,
                                    &prediction, &time, err);
    }
    step_time_free(&time);
    prediction_free(&prediction);
    return rc;
}

static enum err_code run_one(struct visit *visit, struct system_point *out, struct err *err)
{
    struct job job;
    struct machine machine;
    TRY(settings_resolve(&out->settings, &job, &machine, err));
    const enum err_code rc = run_on(&job, &machine, visit, out, err);
    settings_release(&job, &machine);
    return rc;
}

/* Beside what is best until now: of those that train what the first of them does. */
static bool is_better(const struct systems *s, uint32_t i)
{
    const struct system_point *at = &s->of[i];
    if (at->point.verdict != POINT_FITS || s->best == SWEEP_NONE)
        return at->point.verdict == POINT_FITS;
    const struct system_point *best = &s->of[s->best];
    return at->point.tokens_per_s > best->point.tokens_per_s &&
           numerics_same_training(&at->settings, &best->settings);
}

enum err_code systems_run(const struct settings_list *list, uint32_t draws, systems_visitor *visit,
                          void *context, struct systems *out, struct err *err)
{
    struct visit its = {visit, context, draws, ERR_OK};
    out->count = list->count;
    out->given = list->given;
    out->best = SWEEP_NONE;
    out->refused = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        struct system_point *at = &out->of[i];
        struct err why = {0};
        *at = (struct system_point){
            .name = list->names[i], .without = list->without[i], .settings = list->of[i]};
        const enum err_code rc = list->refused[i]
                                     ? err_set(&why, ERR_INVALID, "%s", list->refused[i])
                                     : run_one(&its, at, &why);
        if (rc != ERR_OK) {
            point_refuse(&why, &at->point);
            out->refused++;
        }
        if (its.rc != ERR_OK)
            return err_set(err, its.rc, "%s", why.text);
        if (is_better(out, i))
            out->best = i;
    }
    return ERR_OK;
}
