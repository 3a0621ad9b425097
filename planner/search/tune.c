/* tune.c - see tune.h. */
#include "search/tune.h"

#include "search/nearer.h"
#include "search/numerics.h"
#include "settings/settings_resolve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct tuning {
    const struct tune_options *options;
    const struct space_options *space;
    struct pool *pool;
    struct tuned *out;
    const char *what; /* is being done */
    double first_s;   /* step of what was chosen before something took less in its place */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void show(void *context, double share)
{
    const struct tuning *t = context;
    if (t->options->progress)
        t->options->progress(t->options->context, t->what, share);
}

static bool stopped(const struct tuning *t)
{
    return t->options->stop && *t->options->stop;
}

/* ---- what is told of the front ---- */

static void tell_front(struct tuning *t)
{
    struct tuned *out = t->out;
    const size_t size = out->search.front_count * sizeof *out->front;
    out->front = xmalloc(size);
    memcpy(out->front, out->search.front, size);
    out->front_count = nearer_front(&out->candidates, t->pool, out->limit_bytes, out->front,
                                    out->search.front_count);
}

/* ---- which of those that are as good ----
 *
 * Two settings of one job share most of their errors: if the GPU is slower than the profile says,
 * both are. So they are drawn together, and one is as fast as the other, as far as is known, if it
 * is the faster one in some of the draws, and slower by no more than TOLD_APART. Of those with no
 * departure from the framework's defaults, with one, and so on, the fastest that fits is asked
 * whether it is so. What is as fast as that one and takes less memory is taken in its place. */

/* Of 143 published pairs of settings of one job 9 were measured in the other order: these are
 * predicted to differ by 3.1 % at most (reports/validation/choices.md: 1 + 74 + 68 pairs). */
#define TOLD_APART 1.031

struct choosing {
    struct tuning *t;
    const struct found *best;
    double best_s[TUNE_DRAWS]; /* its steps, draw by draw */
    double high_s;             /* the longest step that may be as fast */
    struct found *level;       /* those with as many departures, by floor of the step */
    uint32_t level_count, level_cap;
};

static enum err_code draw(const struct candidates *c, struct evaluator *evaluator,
                          const struct found *found, double steps_s[TUNE_DRAWS])
{
    struct job job;
    bool expandable;
    const struct candidate *at = &c->at[found->candidate];
    TRY(candidates_job(c, at->grid, found->point, &job, &expandable, NULL));
    return evaluate_draws(evaluator, c->classes[at->stream_class], &job.strategy, TUNE_DRAWS,
                          steps_s, NULL);
}

static bool is_as_fast(const struct choosing *choosing, const struct found *found)
{
    const struct candidates *c = &choosing->t->out->candidates;
    double steps_s[TUNE_DRAWS];
    if (found->step_s > choosing->high_s || draw(c, c->evaluators[0], found, steps_s) != ERR_OK)
        return false;
    for (int d = 0; d < TUNE_DRAWS; d++)
        if (steps_s[d] <= choosing->best_s[d])
            return true;
    return false;
}

static int by_step(const void *x, const void *y)
{
    const struct found *a = x, *b = y;
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s ? -1 : 1;
    if (a->candidate != b->candidate)
        return a->candidate < b->candidate ? -1 : 1;
    return a->point < b->point ? -1 : a->point > b->point;
}

/* All points with so many departures that may be as fast and fit. */
static void gather_level(struct choosing *choosing, uint32_t departures)
{
    const struct candidates *c = &choosing->t->out->candidates;
    choosing->level_count = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct candidate *at = &c->at[i];
        const struct grid *grid = &c->space->grids[at->grid];
        if (at->step_floor_s > choosing->high_s)
            return; /* they are in order of it */
        const uint32_t own = at->departures - grid_inner_departures(grid, 0);
        if (own > departures || at->device_floor > choosing->t->out->limit_bytes)
            continue;
        for (uint64_t m = 0; m < grid->inner_points; m++) {
            if (own + grid_inner_departures(grid, m) != departures)
                continue;
            ARRAY_GROW(choosing->level, choosing->level_count, choosing->level_cap);
            choosing->level[choosing->level_count++] = (struct found){
                .candidate = i,
                .weight = departures,
                .point = at->outer * grid->inner_points + m,
                .step_s = at->step_floor_s,
            };
        }
    }
}

/* Of some that were simulated, in order of their steps: the first that fits and is faster than
 * *fastest, or as fast with less memory. */
static void take_fitting(struct choosing *choosing, struct found *found, uint32_t count,
                         struct found *fastest)
{
    struct tuning *t = choosing->t;
    for (uint32_t i = 0; i < count && found[i].step_s <= fastest->step_s; i++) {
        if (found[i].device_floor > t->out->limit_bytes)
            continue;
        search_verify(&t->out->candidates, t->pool, &found[i], 1, t->out->limit_bytes);
        if (found[i].device_bytes <= t->out->limit_bytes &&
            (found[i].step_s < fastest->step_s || found[i].device_bytes < fastest->device_bytes))
            *fastest = found[i];
    }
}

/* The fastest of the level that fits; step_s INFINITY: none does. */
static struct found fastest_of_level(struct choosing *choosing)
{
    enum { PART = 32 };
    struct tuning *t = choosing->t;
    struct found fastest = {.step_s = INFINITY};
    for (uint32_t at = 0;
         at < choosing->level_count && choosing->level[at].step_s <= fastest.step_s; at += PART) {
        const uint32_t left = choosing->level_count - at, count = left < PART ? left : PART;
        search_simulate(&t->out->candidates, t->pool, choosing->level + at, count);
        qsort(choosing->level + at, count, sizeof *choosing->level, by_step);
        take_fitting(choosing, choosing->level + at, count, &fastest);
    }
    return fastest;
}

/* What is as fast as far as is shown, not as far as predictions tell apart, of which the choice is
 * one of those already. To give up more of the step for memory is the reader's to decide, by the
 * front. */
static bool take_less(struct tuning *t, const struct found *others, uint32_t count)
{
    return nearer_take_less(&t->out->chosen, t->first_s, others, count);
}

static void choose(struct tuning *t)
{
    struct tuned *out = t->out;
    struct choosing choosing = {.t = t, .best = &out->search.front[0]};
    out->chosen = *choosing.best;
    t->first_s = out->chosen.step_s;
    t->what = "choosing";
    if (draw(&out->candidates, out->candidates.evaluators[0], choosing.best, choosing.best_s) !=
        ERR_OK)
        return;
    for (int d = 0; d < TUNE_DRAWS; d++)
        choosing.high_s = fmax(choosing.high_s, choosing.best_s[d]);
    choosing.high_s = fmin(choosing.high_s, TOLD_APART * choosing.best->step_s);
    for (uint32_t d = 0; d < choosing.best->weight && !stopped(t); d++) {
        show(t, (double)d / choosing.best->weight);
        gather_level(&choosing, d);
        const struct found fastest = fastest_of_level(&choosing);
        if (isfinite(fastest.step_s) && is_as_fast(&choosing, &fastest)) {
            out->chosen = fastest;
            break;
        }
    }
    free(choosing.level);
    nearer_take(&out->candidates, t->pool, out->limit_bytes, false, &out->chosen);
    t->first_s = out->chosen.step_s;
    (void)take_less(t, out->front, out->front_count);
}

/* ---- which units are kept ---- */

/* Whether who is to be told has words for it. */
static bool can_say(void *context, const struct settings *settings)
{
    const struct tuning *t = context;
    uint64_t rows[SETTINGS_ROW_WORDS], idle[SETTINGS_ROW_WORDS];
    char list[256]; /* of each in `rows` */
    return t->options->refuses(t->options->refuses_context, settings, rows, idle, list, sizeof list,
                               NULL) == ERR_OK &&
           !list[0];
}

static void choose_units(struct tuning *t)
{
    struct tuned *out = t->out;
    const struct found found[] = {out->chosen, out->search.front[0]};
    const struct per_unit_options options = {.limit_bytes = out->limit_bytes,
                                             .found = found,
                                             .found_count = 2,
                                             .can_say = t->options->refuses ? can_say : NULL,
                                             .context = t,
                                             .stop = t->options->stop};
    t->what = "choosing units";
    show(t, 0);
    per_unit_search(&out->candidates, &options, t->pool, &out->per_unit);
    if (!out->per_unit.taken)
        return;
    const struct kept_set *set = per_unit_set(&out->per_unit);
    out->chosen = out->per_unit.base;
    out->chosen.weight++;
    out->chosen.step_s = set->step_s;
    out->chosen.device_floor = set->device_floor;
    out->chosen.device_bytes = set->device_bytes;
    t->first_s = set->step_s;
}

static enum err_code find_range(struct tuned *out, struct err *err)
{
    struct tuned_prediction p;
    TRY(tuned_predict(out, &out->choice, false, STEP_TIME_DRAWS, &p, err));
    out->low_s = p.time.low_s;
    out->high_s = p.time.high_s;
    out->by_clock = p.prediction.by_clock;
    out->late_bytes = p.prediction.unconstrained_bytes;
    out->offloads = strategy_offloads(&p.job.strategy);
    out->host_needed_bytes = p.prediction.host_needed_bytes;
    tuned_prediction_free(&p);
    return ERR_OK;
}

/* ---- runners-up ---- */

static bool is_taken(const struct tuned *out, const struct found *found)
{
    bool taken = out->chosen.candidate == found->candidate ||
                 out->search.front[0].candidate == found->candidate;
    for (uint32_t i = 0; i < out->runner_count; i++)
        taken |= out->runners[i].candidate == found->candidate ||
                 out->runners[i].step_s == found->step_s;
    return taken;
}

enum { TRIED_AT_ONCE = 8 };

struct trying { /* some that were simulated, each with all of the allocator's settings */
    struct found found[TRIED_AT_ONCE * AXES_MOST];
    uint32_t first[TRIED_AT_ONCE + 1]; /* (count + 1) of each */
    uint32_t count;
};

static void add_trial(const struct candidates *c, const struct found *simulated,
                      struct trying *trying)
{
    uint64_t points[AXES_MOST];
    const struct grid *grid = &c->space->grids[c->at[simulated->candidate].grid];
    const uint32_t count = member_variants(grid, simulated->point, points);
    struct found *found = trying->found + trying->first[trying->count];
    for (uint32_t v = 0; v < count; v++) {
        found[v] = *simulated;
        found[v].point = points[v];
        found[v].weight = grid_departures(grid, points[v]);
    }
    trying->first[trying->count + 1] = trying->first[trying->count] + count;
    trying->count++;
}

/* Those that fit, each with the first of the allocator's settings with which it does. Returns how
 * many could have been taken. */
static uint32_t take_runners(struct tuning *t, struct trying *trying)
{
    struct tuned *out = t->out;
    uint32_t tried = 0;
    search_verify(&out->candidates, t->pool, trying->found, trying->first[trying->count],
                  out->limit_bytes);
    for (uint32_t i = 0; i < trying->count && out->runner_count < TUNE_RUNNERS; i++) {
        uint32_t v = trying->first[i];
        if (is_taken(out, &trying->found[v]))
            continue;
        tried++;
        while (v < trying->first[i + 1] && trying->found[v].device_bytes > out->limit_bytes)
            v++;
        if (v < trying->first[i + 1])
            out->runners[out->runner_count++] = trying->found[v];
    }
    return tried;
}

static void find_runners(struct tuning *t)
{
    enum { MOST_TRIED = 64 };
    struct tuned *out = t->out;
    struct trying trying = {.count = 0};
    uint32_t tried = 0, at = 0;
    qsort(out->search.simulated, out->search.simulated_count, sizeof *out->search.simulated,
          by_step);
    while (at < out->search.simulated_count && out->runner_count < TUNE_RUNNERS &&
           tried < MOST_TRIED) {
        for (trying.count = 0; at < out->search.simulated_count && trying.count < TRIED_AT_ONCE;
             at++) {
            const struct found *found = &out->search.simulated[at];
            if (found->step_s >= out->search.front[0].step_s && !is_taken(out, found) &&
                found->device_floor <= out->limit_bytes)
                add_trial(&out->candidates, found, &trying);
        }
        tried += take_runners(t, &trying);
    }
    for (uint32_t i = 0; i < out->runner_count; i++)
        nearer_take(&out->candidates, t->pool, out->limit_bytes, true, &out->runners[i]);
    qsort(out->runners, out->runner_count, sizeof *out->runners, by_step);
}

/* Nothing that is told beside the choice is as fast with less memory. */
static void take_told(struct tuning *t)
{
    struct tuned *out = t->out;
    uint32_t kept = 0;
    const bool front = take_less(t, out->front, out->front_count);
    if (!take_less(t, out->runners, out->runner_count) && !front)
        return;
    out->per_unit.taken = false;
    for (uint32_t i = 0; i < out->runner_count; i++)
        if (out->runners[i].candidate != out->chosen.candidate)
            out->runners[kept++] = out->runners[i];
    out->runner_count = kept;
}

/* ---- the whole ---- */

static uint64_t most_of(const struct tuned *out)
{
    const uint64_t asked = out->settings.tune.max_memory;
    const uint64_t capacity = profile_bytes(&out->machine.profile, PROFILE_CAPACITY);
    return asked && asked < capacity ? asked : capacity;
}

static uint64_t limit_of(const struct tuned *out)
{
    const struct tune_settings *s = &out->settings.tune;
    const double capacity = profile_value(&out->machine.profile, PROFILE_CAPACITY);
    /* what `fit` calls tight is not chosen unless one says what room is to be left */
    const bool given = (double)s->headroom <= HEADROOM_MOST;
    const uint64_t room = given           ? s->headroom
                          : s->max_memory ? 0
                                          : (uint64_t)(RESERVED_ERROR * capacity);
    return most_of(out) > room ? most_of(out) - room : 0;
}

static enum err_code look(struct tuning *t, struct err *err)
{
    struct tuned *out = t->out;
    const uint64_t capacity = profile_bytes(&out->machine.profile, PROFILE_CAPACITY);
    struct candidates_options candidates = {.most_changes = UINT32_MAX,
                                            .limit_bytes = limit_of(out),
                                            .beyond = BEYOND_COUNTED,
                                            .stop = t->options->stop,
                                            .progress = show,
                                            .context = t};
    const struct search_options search = {
        .limit_bytes = limit_of(out),
        .grain_bytes = t->options->grain_bytes ? t->options->grain_bytes : capacity / 64,
        .next = TUNE_RUNNERS + 2, /* beside the fastest and the chosen one */
        .pools = true,
        .stop = t->options->stop,
        .progress = show,
        .context = t};
    out->most_bytes = most_of(out);
    out->host_capacity_bytes = profile_bytes(&out->machine.profile, PROFILE_HOST_CAPACITY);
    out->host_ranks = profile_host_ranks(&out->machine.profile, out->job.strategy.world,
                                         out->machine.gpus_per_node);
    out->limit_bytes = search.limit_bytes;
    t->what = "bounding";
    TRY(candidates_new(&out->space, &out->job.config, &out->machine, &candidates, t->pool,
                       &out->candidates, err));
    t->what = "searching";
    search_run(&out->candidates, &search, t->pool, &out->search);
    if (out->search.front_count == 0 &&
        !stopped(t)) { /* then what is beyond the limit counts, too */
        candidates.beyond = BEYOND_KNOWN;
        search_free(&out->search);
        candidates_free(&out->candidates);
        TRY(candidates_new(&out->space, &out->job.config, &out->machine, &candidates, t->pool,
                           &out->candidates, err));
        search_run(&out->candidates, &search, t->pool, &out->search);
    }
    if (out->search.front_count == 0) {
        t->what = "looking for the least";
        if (!stopped(t))
            least_find(out, &search, t->pool);
        if (!stopped(t))
            out->remedy_count = remedies_within(
                &out->settings, &out->job.config, &out->machine, out->limit_bytes, t->space,
                t->pool, (struct remedy_progress){t->options->progress, t->options->context},
                out->remedies);
        return ERR_OK;
    }
    tell_front(t);
    choose(t);
    choose_units(t);
    find_runners(t);
    take_told(t);
    why_ask(out, t->pool);
    tuned_settings(out, &out->chosen, &out->choice);
    if (out->per_unit.taken)
        per_unit_put(&out->per_unit, &out->choice);
    return find_range(out, err);
}

static enum err_code tune_from(const struct settings *settings, const struct tune_options *options,
                               struct tuned *out, struct err *err)
{
    const double begin = now();
    struct space_options space = {.global_batch = settings->tune.global_batch,
                                  .refuses = options->refuses,
                                  .would = options->would,
                                  .reader = options->reader,
                                  .context = options->refuses_context};
    *out = (struct tuned){.settings = *settings};
    TRY(settings_resolve(&out->settings, &out->job, &out->machine, err));
    space.config = &out->job.config;
    enum err_code rc = space_new(&out->settings, &space, &out->space, err);
    if (rc == ERR_OK) {
        struct tuning t = {
            .options = options, .space = &space, .pool = pool_new(options->threads), .out = out};
        rc = look(&t, err);
        pool_free(t.pool);
    }
    out->seconds = now() - begin;
    if (rc != ERR_OK)
        tune_free(out);
    return rc;
}

/* One GPU shards nothing: `single`, in what comes nearest to the default's dtypes, as long as
 * nobody says of which system, or of which dtypes, the search is. */
static bool begin_alone(const struct settings *settings, const struct tune_options *options,
                        struct settings *alone)
{
    static const char *const said[] = {"strategy", "param-dtype", "reduce-dtype", "store-dtype",
                                       "autocast"};
    struct job job;
    struct machine machine;
    *alone = *settings;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        const struct setting *row = settings_find(settings, said[i], NULL);
        if (row && settings_is_given(settings, row))
            return false;
    }
    if (settings->job.strategy.world != 1 || settings->from || options->refuses ||
        settings_resolve(alone, &job, &machine, NULL) != ERR_OK)
        return false;
    *alone = *settings;
    const bool is_set = settings_set(alone, "strategy", system_name(SYSTEM_SINGLE), NULL) == ERR_OK;
    if (is_set)
        numerics_keep(settings, &job.config, alone);
    settings_release(&job, &machine);
    return is_set;
}

enum err_code tune(const struct settings *settings, const struct tune_options *options,
                   struct tuned *out, struct err *err)
{
    struct settings alone;
    if (!begin_alone(settings, options, &alone))
        return tune_from(settings, options, out, err);
    if (tune_from(&alone, options, out, NULL) == ERR_OK) {
        out->alone = true;
        if (out->search.front_count > 0 || (options->stop && *options->stop))
            return ERR_OK;
        tune_free(out); /* others keep parameters on the host */
    }
    return tune_from(settings, options, out, err);
}

void tune_free(struct tuned *tuned)
{
    per_unit_free(&tuned->per_unit);
    free(tuned->front);
    search_free(&tuned->search);
    candidates_free(&tuned->candidates);
    space_free(&tuned->space);
    settings_release(&tuned->job, &tuned->machine);
}
