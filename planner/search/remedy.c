/* remedy.c - see remedy.h. */
#include "search/remedy.h"

#include "job/step_time.h"
#include "search/numerics.h"
#include "search/search.h"
#include "settings/settings_resolve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A remedy with more changes takes so much of the step of one with fewer, at most. */
#define WORTH_A_CHANGE 0.99

struct finder {
    const struct settings *settings;
    const struct model_config *config;
    const struct machine *machine;
    uint64_t limit_bytes;
    struct space_options options;
    struct pool *pool;
    struct remedy *found;
    uint32_t count;
};

static double tokens(const struct job *job)
{
    return (double)job->model.batch * job->model.seq * job->strategy.accumulate;
}

/* As fit calls it. */
static bool is_tight(const struct finder *f, uint64_t device_bytes)
{
    const double capacity = profile_value(&f->machine->profile, PROFILE_CAPACITY);
    return capacity - (double)device_bytes < RESERVED_ERROR * capacity;
}

/* `cost`: in words what else it changes; "": nothing. */
static void add(struct finder *f, const struct settings *changed, double step_s,
                uint64_t device_bytes, const char *cost)
{
    struct job job;
    char numerics[NUMERICS_TEXT];
    if (f->count == REMEDIES || settings_job(changed, f->config, &job, NULL) != ERR_OK)
        return;
    struct remedy *remedy = &f->found[f->count++];
    *remedy = (struct remedy){
        .device_bytes = device_bytes, .step_s = step_s, .tokens_per_s = tokens(&job) / step_s};
    settings_difference(f->settings, changed, remedy->change, sizeof remedy->change);
    numerics_difference(f->settings, changed, f->config, numerics);
    remedy->tight = is_tight(f, device_bytes);
    remedy->changes_numerics = numerics[0] != '\0';
    snprintf(remedy->cost, sizeof remedy->cost, "%s%s%s", cost, cost[0] && numerics[0] ? ", " : "",
             numerics);
}

/* ---- changes that keep the GPUs ---- */

/* From the fewest changes on: one more has to be worth it. */
static void add_front(struct finder *f, const struct candidates *c, const struct search *search)
{
    double least_s = INFINITY;
    for (uint32_t i = search->front_count; i-- > 0 && f->count + 1 < REMEDIES;) {
        struct settings changed;
        const struct found *found = &search->front[i];
        if (found->step_s > WORTH_A_CHANGE * least_s)
            continue;
        least_s = found->step_s;
        grid_settings(&c->space->grids[c->at[found->candidate].grid], found->point, &changed);
        add(f, &changed, found->step_s, found->device_bytes, "");
    }
}

static void search_changes(struct finder *f, uint32_t most)
{
    struct space space;
    struct candidates candidates;
    struct search search;
    const struct candidates_options narrow = {.most_changes = most, .limit_bytes = f->limit_bytes};
    const struct search_options by_changes = {.measure = SEARCH_CHANGES,
                                              .limit_bytes = f->limit_bytes};
    if (space_new(f->settings, &f->options, &space, NULL) != ERR_OK)
        return;
    if (candidates_new(&space, f->config, f->machine, &narrow, f->pool, &candidates, NULL) ==
        ERR_OK) {
        search_run(&candidates, &by_changes, f->pool, &search);
        add_front(f, &candidates, &search);
        search_free(&search);
        candidates_free(&candidates);
    }
    space_free(&space);
}

/* ---- more GPUs ---- */

/* Whether who is to be told the answer has words for all of it. */
static bool is_said(const struct finder *f, const struct settings *changed)
{
    uint64_t rows[SETTINGS_MOST_ROWS / 64];
    char list[NUMBER_TEXT];
    const struct space_options *o = &f->options;
    return !o->refuses ||
           (o->refuses(o->context, changed, rows, list, sizeof list, NULL) == ERR_OK && !list[0]);
}

static bool try_gpus(struct finder *f, uint32_t times)
{
    char cost[96];
    struct job job;
    struct prediction prediction;
    struct step_time time;
    struct settings changed = *f->settings;
    changed.job.strategy.world *= times;
    bool fits = false;
    if (!is_said(f, &changed) || settings_job(&changed, f->config, &job, NULL) != ERR_OK ||
        predict_few(&job, f->machine, &prediction, NULL) != ERR_OK)
        return false;
    if (prediction.device_bytes <= f->limit_bytes && !prediction.after_release &&
        step_time(&prediction, &job, f->machine, 0, &time, NULL) == ERR_OK) {
        snprintf(cost, sizeof cost, "%" PRIu32 " times the GPUs and tokens a step", times);
        add(f, &changed, time.timeline.step_s, prediction.device_bytes, cost);
        step_time_free(&time);
        fits = true;
    }
    prediction_free(&prediction);
    return fits;
}

static int by_tokens(const void *x, const void *y)
{
    const struct remedy *a = x, *b = y;
    return (a->tokens_per_s < b->tokens_per_s) - (a->tokens_per_s > b->tokens_per_s);
}

static uint32_t find(struct finder *f)
{
    search_changes(f, REMEDY_CHANGES);
    for (uint32_t times = 2; times <= 8 && !try_gpus(f, times);)
        times *= 2;
    qsort(f->found, f->count, sizeof *f->found, by_tokens);
    return f->count;
}

uint32_t remedies_wider(const struct settings *settings, const struct model_config *config,
                        const struct machine *machine, uint64_t limit_bytes,
                        const struct space_options *said, struct pool *pool,
                        struct remedy found[REMEDIES])
{
    struct finder f = {.settings = settings,
                       .config = config,
                       .machine = machine,
                       .limit_bytes = limit_bytes,
                       .options = {.refixed = true,
                                   .saves = true,
                                   .numerics = true,
                                   .refuses = said->refuses,
                                   .reader = said->reader,
                                   .context = said->context},
                       .pool = pool,
                       .found = found};
    return find(&f);
}

uint32_t remedies_find(const struct settings *settings, const struct model_config *config,
                       const struct machine *machine, struct remedy found[REMEDIES])
{
    struct finder f = {.settings = settings,
                       .config = config,
                       .machine = machine,
                       .limit_bytes = profile_bytes(&machine->profile, PROFILE_CAPACITY),
                       .options = {.refixed = true, .saves = true},
                       .pool = pool_new(0),
                       .found = found};
    find(&f);
    pool_free(f.pool);
    return f.count;
}
