/* remedy.c - see remedy.h. */
#include "search/remedy.h"

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

/* What searches found: of each number of GPUs as many as changes can be, at most. */
enum { MOST_TIMES = 8, MOST_FOUND = 4 * (REMEDY_CHANGES + 1) };

struct finder {
    const struct settings *settings;
    const struct model_config *config;
    const struct machine *machine;
    uint64_t limit_bytes;
    struct space_options options;
    struct pool *pool;
    struct remedy found[MOST_FOUND];
    uint32_t count;
};

static double tokens(const struct job *job)
{
    return (double)job->model.batch * job->model.seq * job->strategy.accumulate;
}

static double tokens_a_step(const struct job *job)
{
    return tokens(job) * job->strategy.world;
}

/* As fit calls it. */
static bool is_tight(const struct finder *f, uint64_t device_bytes)
{
    const double capacity = profile_value(&f->machine->profile, PROFILE_CAPACITY);
    return capacity - (double)device_bytes < RESERVED_ERROR * capacity;
}

static uint32_t count_options(const char *change)
{
    uint32_t count = 0;
    for (const char *at = change; (at = strstr(at, "--")) != NULL; at += 2)
        count++;
    return count;
}

/* In words what else a change of the GPUs changes, in `text`; "": nothing. */
static void describe_gpus(uint32_t times, double batch, char text[96])
{
    text[0] = '\0';
    if (times > 1 && batch > 1)
        snprintf(text, 96, "%" PRIu32 " times the GPUs, %g times the tokens a step", times, batch);
    else if (times > 1)
        snprintf(text, 96, "%" PRIu32 " times the GPUs", times);
}

/* `wanted`: tokens of a step as they were asked for. */
static void add(struct finder *f, uint32_t times, const struct settings *changed,
                const struct found *found, double wanted)
{
    struct job job;
    char numerics[NUMERICS_TEXT], gpus[96];
    if (f->count == MOST_FOUND || settings_job(changed, f->config, &job, NULL) != ERR_OK)
        return;
    const double batch = tokens_a_step(&job) / wanted;
    struct remedy *remedy = &f->found[f->count++];
    *remedy = (struct remedy){.times = times,
                              .device_bytes = found->device_bytes,
                              .step_s = found->step_s,
                              .tokens_per_s = tokens(&job) / found->step_s};
    settings_difference(f->settings, changed, remedy->change, sizeof remedy->change);
    numerics_difference(f->settings, changed, f->config, numerics);
    describe_gpus(times, batch, gpus);
    remedy->changes = count_options(remedy->change);
    remedy->tight = is_tight(f, found->device_bytes);
    remedy->changes_numerics = numerics[0] != '\0' || batch != 1;
    snprintf(remedy->cost, sizeof remedy->cost, "%s%s%s", gpus, gpus[0] && numerics[0] ? ", " : "",
             numerics);
}

/* ---- searches ---- */

/* Sequences that each GPU has in a step as it was asked for. */
static uint64_t sequences(const struct finder *f)
{
    return (uint64_t)f->settings->job.model.batch * f->settings->job.strategy.accumulate;
}

/* From the fewest changes on: one more has to be worth it. */
static void add_front(struct finder *f, uint32_t times, const struct candidates *c,
                      const struct search *search)
{
    double least_s = INFINITY;
    struct job job;
    double wanted = (double)f->options.global_batch;
    if (settings_job(f->settings, f->config, &job, NULL) != ERR_OK)
        return;
    wanted = wanted > 0 ? wanted * job.model.seq : tokens_a_step(&job);
    for (uint32_t i = search->front_count; i-- > 0;) {
        struct settings changed;
        const struct found *found = &search->front[i];
        if (found->step_s > WORTH_A_CHANGE * least_s)
            continue;
        least_s = found->step_s;
        grid_settings(&c->space->grids[c->at[found->candidate].grid], found->point, &changed);
        add(f, times, &changed, found, wanted);
    }
}

/* All settings on so many times the GPUs, which share the tokens of a step where these can be
 * split; where not, each GPU has as many as before. Returns whether something fits. */
static bool search_on(struct finder *f, uint32_t times)
{
    struct space space;
    struct candidates candidates;
    struct search search;
    struct settings base = *f->settings;
    struct space_options options = f->options;
    const struct candidates_options narrow = {.most_changes = REMEDY_CHANGES - (times > 1),
                                              .limit_bytes = f->limit_bytes};
    const struct search_options by_changes = {.measure = SEARCH_CHANGES,
                                              .limit_bytes = f->limit_bytes};
    const uint32_t before = f->count;
    if (!options.global_batch && sequences(f) % times == 0)
        options.global_batch = sequences(f) * base.job.strategy.world;
    base.job.strategy.world *= times;
    if (space_new(&base, &options, &space, NULL) != ERR_OK)
        return false;
    if (candidates_new(&space, f->config, f->machine, &narrow, f->pool, &candidates, NULL) ==
        ERR_OK) {
        search_run(&candidates, &by_changes, f->pool, &search);
        add_front(f, times, &candidates, &search);
        search_free(&search);
        candidates_free(&candidates);
    }
    space_free(&space);
    return f->count > before;
}

/* ---- which of them are told ---- */

static int by_tokens(const void *x, const void *y)
{
    const struct remedy *a = x, *b = y;
    if (a->tokens_per_s != b->tokens_per_s)
        return a->tokens_per_s < b->tokens_per_s ? 1 : -1;
    return (a->changes > b->changes) - (a->changes < b->changes);
}

/* Whether b is no better than a in anything. */
static bool dominates(const struct remedy *a, const struct remedy *b)
{
    return a->tokens_per_s >= b->tokens_per_s && a->device_bytes <= b->device_bytes &&
           a->changes <= b->changes && a->times <= b->times &&
           a->changes_numerics <= b->changes_numerics;
}

static void remove_at(struct finder *f, uint32_t at)
{
    memmove(&f->found[at], &f->found[at + 1], (--f->count - at) * sizeof *f->found);
}

/* Those that another one dominates: an equal one goes behind that before it. */
static void drop_dominated(struct finder *f)
{
    for (uint32_t i = f->count; i-- > 0;)
        for (uint32_t k = 0; k < f->count; k++)
            if (k != i && dominates(&f->found[k], &f->found[i]) &&
                (k < i || !dominates(&f->found[i], &f->found[k]))) {
                remove_at(f, i);
                break;
            }
}

/* Of many with as many GPUs (or with more) the fastest are told, and that of the fewest changes. */
static void keep_few(struct finder *f, bool more, uint32_t most)
{
    for (;;) {
        uint32_t count = 0, fewest = 0, last = 0;
        for (uint32_t i = 0; i < f->count; i++)
            if ((f->found[i].times > 1) == more) {
                if (count == 0 || f->found[i].changes < f->found[fewest].changes)
                    fewest = i;
                count++;
            }
        if (count <= most)
            return;
        for (uint32_t i = 0; i < f->count; i++)
            if ((f->found[i].times > 1) == more && (i != fewest || most == 1))
                last = i;
        remove_at(f, last);
    }
}

static void search_all(struct finder *f)
{
    (void)search_on(f, 1);
    for (uint32_t times = 2; times <= MOST_TIMES && !search_on(f, times);)
        times *= 2;
}

static uint32_t find(struct finder *f, struct remedy told[REMEDIES])
{
    search_all(f);
    if (f->count == 0) {
        f->options.numerics = f->options.rest = true;
        search_all(f);
    }
    if (f->count)
        qsort(f->found, f->count, sizeof *f->found, by_tokens);
    drop_dominated(f);
    keep_few(f, true, 1);
    keep_few(f, false, REMEDIES - 1);
    memcpy(told, f->found, f->count * sizeof *told);
    return f->count;
}

const char *remedies_unsearched(const struct settings *settings, struct arena *arena)
{
    const struct space_options last = {.refixed = true, .numerics = true, .rest = true};
    uint32_t count;
    const char *list = "";
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        const struct setting *row = &rows[i];
        if (row->group >= GROUP_STRATEGY && row->group <= GROUP_ZERO &&
            setting_is_of(row, settings->command) &&
            setting_suits(row, settings->job.strategy.system) &&
            !space_searches(settings, &last, row))
            list = arena_printf(arena, "%s%s--%s", list, *list ? ", " : "", row->name);
    }
    return list;
}

uint32_t remedies_within(const struct settings *settings, const struct model_config *config,
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
                                   .config = config,
                                   .global_batch = said->global_batch,
                                   .refuses = said->refuses,
                                   .would = said->would,
                                   .reader = said->reader,
                                   .context = said->context},
                       .pool = pool};
    return find(&f, found);
}

uint32_t remedies_find(const struct settings *settings, const struct model_config *config,
                       const struct machine *machine, struct remedy found[REMEDIES])
{
    const struct space_options all = {.refuses = NULL};
    struct pool *pool = pool_new(0);
    const uint32_t count =
        remedies_within(settings, config, machine,
                        profile_bytes(&machine->profile, PROFILE_CAPACITY), &all, pool, found);
    pool_free(pool);
    return count;
}
