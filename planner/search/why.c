/* why.c - see why.h. */
#include "search/why.h"

#include "search/nearer.h"
#include "search/tune.h"

#include <math.h>

/* ---- what each is worth ---- */

struct asking { /* one point a reason, asked side by side */
    struct tuned *out;
    const struct grid *grid;
    uint64_t points[AXES_MOST + 1];
    uint32_t with_units; /* reasons of settings beside which units are kept as chosen */
};

/* Predicts a point with the units kept that were chosen; where it has none of these names, with as
 * many of its last ones. */
static enum err_code predict_kept(const struct tuned *out, struct settings *settings,
                                  struct tuned_prediction *p)
{
    struct settings named = *settings;
    per_unit_put(&out->per_unit, &named);
    if (tuned_predict(out, &named, false, 0, p, NULL) == ERR_OK)
        return ERR_OK;
    settings->job.strategy.keep_last = per_unit_set(&out->per_unit)->count;
    return tuned_predict(out, settings, false, 0, p, NULL);
}

/* What grows by more micro-batches, smaller though they are. */
static uint32_t holds_whole(const struct settings *settings)
{
    const struct strategy *s = &settings->job.strategy;
    return s->accumulate > 1 && !s->accumulate_sync &&
                   settings_find(settings, "accumulate-sync", NULL)
               ? s->accumulate
               : 0;
}

static void ask_one(void *context, uint32_t i, uint32_t thread)
{
    const struct asking *asking = context;
    struct tuned_setting *reason = &asking->out->reasons[i];
    struct settings settings;
    struct tuned_prediction p;
    (void)thread;
    grid_settings(asking->grid, asking->points[i], &settings);
    const bool kept = asking->out->per_unit.taken && i < asking->with_units;
    if ((kept ? predict_kept(asking->out, &settings, &p)
              : tuned_predict(asking->out, &settings, false, 0, &p, NULL)) != ERR_OK)
        return;
    reason->possible = true;
    reason->holds_whole = holds_whole(&settings);
    reason->after_release = p.prediction.after_release;
    reason->device_bytes = p.prediction.device_bytes;
    reason->fits_host = p.prediction.fits_host;
    reason->host_needed_bytes = p.prediction.host_needed_bytes;
    reason->fits = reason->device_bytes <= asking->out->limit_bytes && !reason->after_release &&
                   reason->fits_host;
    reason->step_s = p.time.timeline.step_s;
    tuned_prediction_free(&p);
}

static struct tuned_setting reason_of_units(const struct per_unit *p)
{
    if (p->last)
        return (struct tuned_setting){
            .name = "keep-unsharded", .value = p->of.last.number, .usual = "0"};
    return (struct tuned_setting){.name = "keep-units", .value = p->of.best.text, .usual = ""};
}

static void ask_reasons(struct tuned *out, struct pool *pool)
{
    struct asking asking = {
        .out = out, .grid = &out->space.grids[out->candidates.at[out->chosen.candidate].grid]};
    for (uint32_t a = 0; a < asking.grid->axis_count; a++) {
        const struct grid_axis *axis = &asking.grid->axes[a];
        const uint32_t digit = grid_digit(asking.grid, out->chosen.point, a);
        if (digit == axis->usual || axis->usual == axis->count)
            continue;
        asking.points[out->reason_count] =
            grid_with(asking.grid, out->chosen.point, a, axis->usual);
        out->reasons[out->reason_count++] = (struct tuned_setting){
            .name = axis->row->name,
            .value = axis->values[digit].text,
            .usual = axis->values[axis->usual].text,
        };
    }
    asking.with_units = out->reason_count;
    if (out->per_unit.taken) {
        asking.points[out->reason_count] = out->chosen.point;
        out->reasons[out->reason_count++] = reason_of_units(&out->per_unit);
    }
    pool_run(pool, out->reason_count, ask_one, &asking);
}

/* ---- the simplest that is about as fast ---- */

struct dropping { /* what becomes of one setting fewer, side by side */
    const struct tuned *out;
    double most_s;
    struct found to[AXES_MOST + 1]; /* device_bytes UINT64_MAX: it is not taken */
    bool keeps[AXES_MOST + 1];
};

/* Its step and bytes, with the choice's units kept where they are. */
static enum err_code evaluate_kept(const struct dropping *d, struct evaluator *evaluator,
                                   bool keeps, struct found *found)
{
    struct job job;
    bool expandable;
    struct evaluation fast;
    const struct candidates *c = &d->out->candidates;
    const struct candidate *at = &c->at[found->candidate];
    const struct stream_class *class = c->classes[at->stream_class];
    TRY(candidates_job(c, at->grid, found->point, &job, &expandable, NULL));
    if (keeps) {
        job.strategy.keep_units = per_unit_set(&d->out->per_unit)->text;
        job.strategy.keep_last = 0;
    }
    TRY(evaluate_fast(evaluator, class, &job.strategy, &fast, NULL));
    found->step_s = fast.step_s;
    if (fast.step_s > d->most_s || fast.device_floor > d->out->limit_bytes)
        return ERR_OK;
    return evaluate_full(evaluator, class, &job.strategy, expandable, d->out->limit_bytes,
                         &found->device_bytes, NULL);
}

static void drop_one(void *context, uint32_t i, uint32_t thread)
{
    struct dropping *d = context;
    struct found *found = &d->to[i];
    found->device_bytes = UINT64_MAX;
    if (evaluate_kept(d, d->out->candidates.evaluators[thread], d->keeps[i], found) != ERR_OK ||
        found->device_bytes > d->out->limit_bytes)
        found->device_bytes = UINT64_MAX;
}

/* Those with one setting fewer that are there and may be as fast. Returns their number. */
static uint32_t gather_dropped(struct dropping *d, const struct simpler *from)
{
    uint64_t points[AXES_MOST + 1];
    const struct candidates *c = &d->out->candidates;
    const uint32_t index = c->at[from->found.candidate].grid;
    const struct grid *grid = &c->space->grids[index];
    uint32_t count = nearer_points(grid, from->found.point, points), kept = 0;
    const uint32_t without_units = count;
    if (from->keeps_units)
        points[count++] = from->found.point;
    for (uint32_t i = 0; i < count; i++) {
        const bool keeps = from->keeps_units && i != without_units;
        const uint32_t candidate = candidates_find(c, index, points[i]);
        if (candidate >= c->count || c->at[candidate].device_floor > d->out->limit_bytes ||
            (!keeps && c->at[candidate].step_floor_s > d->most_s))
            continue;
        d->keeps[kept] = keeps;
        d->to[kept++] = (struct found){.candidate = candidate,
                                       .point = points[i],
                                       .weight = grid_departures(grid, points[i]) + keeps};
    }
    return kept;
}

static bool drop_cheapest(struct tuned *out, struct pool *pool)
{
    struct dropping d = {.out = out, .most_s = SIMPLER_WITHIN * out->chosen.step_s};
    const uint32_t count = gather_dropped(&d, &out->simpler);
    uint32_t best = 0;
    pool_run(pool, count, drop_one, &d);
    for (uint32_t i = 1; i < count; i++)
        if (d.to[best].device_bytes == UINT64_MAX ||
            (d.to[i].device_bytes != UINT64_MAX && d.to[i].step_s < d.to[best].step_s))
            best = i;
    if (count == 0 || d.to[best].device_bytes == UINT64_MAX)
        return false;
    out->simpler.found = d.to[best];
    out->simpler.keeps_units = d.keeps[best];
    return true;
}

static void find_simpler(struct tuned *out, struct pool *pool)
{
    struct simpler *simpler = &out->simpler;
    *simpler = (struct simpler){.found = out->chosen, .keeps_units = out->per_unit.taken};
    while (drop_cheapest(out, pool))
        simpler->is_there = true;
    if (!simpler->is_there)
        return;
    tuned_settings(out, &simpler->found, &simpler->own);
    if (simpler->keeps_units)
        per_unit_put(&out->per_unit, &simpler->own);
}

void why_ask(struct tuned *out, struct pool *pool)
{
    ask_reasons(out, pool);
    find_simpler(out, pool);
}
