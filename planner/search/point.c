/* point.c - see point.h. */
#include "search/point.h"

#include "search/step_spans.h"
#include "settings/settings_resolve.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void take_memory(const struct prediction *p, const struct machine *machine,
                        struct point *out)
{
    const struct memory *m = &p->memory;
    out->verdict = p->fits ? POINT_FITS : POINT_TOO_LARGE;
    out->after_release = p->fits && p->after_release;
    out->fits_gpu = p->fits_gpu;
    out->fits_host = p->fits_host;
    out->host_needed_bytes = p->host_needed_bytes;
    out->host_capacity_bytes = p->host_capacity_bytes;
    out->requested_bytes = (p->host_apart ? m->device : m->requested).bytes;
    out->allocated_bytes = p->memory.allocated.bytes;
    out->reserved_bytes = p->memory.reserved_bytes;
    out->device_bytes = p->device_bytes;
    out->capacity_bytes = profile_bytes(&machine->profile, PROFILE_CAPACITY);
    out->host_bytes = p->memory.host.bytes;
    memcpy(out->categories, p->memory.device_categories, sizeof out->categories);
    out->categories[CATEGORY_WORKSPACE] = p->workspace_bytes;
    out->categories[CATEGORY_OUTSIDE_ALLOCATOR] = p->outside_bytes;
}

static void name_exposure(const struct plan *plan, const struct exposure *e, char *text,
                          size_t size)
{
    const char *unit = e->unit == PLAN_NO_UNIT ? "no unit" : plan->units[e->unit].name;
    snprintf(text, size, "%s of %s, %s", plan_op_name((enum plan_op)e->op),
             unit[0] ? unit : "the root", plan_phase_name((enum plan_phase)e->phase));
}

static void take_exposures(const struct plan *plan, const struct step_time *t, struct point *out)
{
    struct arena arena = {0};
    struct compare_time time = {.step_s = t->timeline.step_s};
    struct exposure found[POINT_EXPOSURES];
    struct compare_interval *spans =
        arena_alloc(&arena, ((size_t)plan->instruction_count + 1) * sizeof *spans);
    step_spans(plan, t, spans);
    compare_overlap(plan, spans, &arena, &time);
    const uint32_t all = exposure_of(plan, spans, &time, found, POINT_EXPOSURES);
    out->exposure_count = all < POINT_EXPOSURES ? all : POINT_EXPOSURES;
    for (uint32_t i = 0; i < out->exposure_count; i++) {
        out->exposures[i].seconds = found[i].seconds;
        name_exposure(plan, &found[i], out->exposures[i].what, sizeof out->exposures[i].what);
    }
    arena_free(&arena);
}

static void take_time(const struct step_time *t, struct point *out)
{
    out->step_s = t->timeline.step_s;
    out->tokens_per_s = t->tokens_per_s;
    out->mfu = t->mfu;
    out->hfu = t->hfu;
    out->communication_s = t->timeline.communication_s;
    out->exposed_s = t->timeline.exposed_s;
    out->compute_s = t->timeline.compute_s;
    out->host_s = t->timeline.host_s;
    out->bound = t->bound;
    memcpy(out->spent_s, t->timeline.spent_s, sizeof out->spent_s);
}

void point_take(const struct prediction *prediction, const struct step_time *time,
                const struct machine *machine, struct point *out)
{
    *out = (struct point){.reason = ""};
    take_memory(prediction, machine, out);
    take_time(time, out);
    take_exposures(prediction->plan, time, out);
}

static enum err_code evaluate(const struct job *job, const struct machine *machine,
                              struct point *out, struct err *err)
{
    struct prediction prediction;
    struct step_time time;
    TRY(predict_few(job, machine, &prediction, err));
    const enum err_code rc = step_time(&prediction, job, machine, 0, &time, err);
    if (rc == ERR_OK)
        point_take(&prediction, &time, machine, out);
    step_time_free(&time);
    prediction_free(&prediction);
    return rc;
}

void point_refuse(const struct err *err, struct point *out)
{
    *out = (struct point){.verdict = POINT_REFUSED};
    snprintf(out->reason, sizeof out->reason, "%.*s", (int)sizeof out->reason - 1, err->text);
}

void point_evaluate(const struct choice *choice, struct point *out)
{
    struct settings settings = choice->settings;
    struct job job;
    struct machine machine;
    struct err err = {0};
    *out = (struct point){.verdict = POINT_REFUSED};
    enum err_code rc = settings_resolve(&settings, &job, &machine, &err);
    if (rc == ERR_OK) {
        rc = choice_set_numbers(choice, &machine.profile, &err);
        if (rc == ERR_OK)
            rc = evaluate(&job, &machine, out, &err);
        settings_release(&job, &machine);
    }
    if (rc != ERR_OK)
        point_refuse(&err, out);
}

void point_of(const struct settings *base, const struct axis *axes, const char *const *values,
              uint32_t axis_count, struct point *out)
{
    struct choice choice;
    struct err err = {0};
    if (axis_choose(base, axes, values, axis_count, &choice, &err) == ERR_OK)
        point_evaluate(&choice, out);
    else
        point_refuse(&err, out);
}

double point_value(const struct point *point, enum point_measure measure)
{
    const double values[MEASURE_COUNT] = {
        [MEASURE_TOKENS] = point->tokens_per_s,
        [MEASURE_STEP] = point->step_s,
        [MEASURE_MFU] = point->mfu,
        [MEASURE_EXPOSED] = point->exposed_s,
        [MEASURE_DEVICE] = (double)point->device_bytes,
        [MEASURE_RESERVED] = (double)point->reserved_bytes,
        [MEASURE_REQUESTED] = (double)point->requested_bytes,
    };
    return point->verdict == POINT_REFUSED ? (double)NAN : values[measure];
}
