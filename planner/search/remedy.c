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

/* A remedy in other dtypes is told where it is so much faster than those that leave them alone. */
#define WORTH_OTHER_DTYPES 1.05

/* What searches found: of each search as many as changes can be, at most. */
enum { MOST_TIMES = 8, MOST_SEARCHES = 6, MOST_FOUND = MOST_SEARCHES * (REMEDY_CHANGES + 1) };

/* Of each kind so many are told at most. */
enum kind { ON_THESE_GPUS, IN_OTHER_DTYPES, ON_MORE_GPUS, KINDS };

struct finder {
    const struct settings *settings;
    const struct model_config *config;
    const struct machine *machine;
    uint64_t limit_bytes;
    struct space_options options;
    struct pool *pool;
    struct class_store *store;
    bool dtypes_alone; /* settings that change numerics are searched, and no others */
    double least_tokens_per_s;
    struct remedy_progress progress;
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

static uint32_t gpus_asked(const struct finder *f)
{
    return f->settings->job.strategy.world;
}

/* In words what else a change of the GPUs changes, in `text`; "": nothing. */
static void describe_gpus(double times, double batch, char text[96])
{
    text[0] = '\0';
    if (times > 1 && batch > 1)
        snprintf(text, 96, "%g times the GPUs, %g times the tokens a step", times, batch);
    else if (times > 1)
        snprintf(text, 96, "%g times the GPUs", times);
}

/* In words what a job takes of a host, in `text`; "": no more than step counters. */
static void describe_host(const struct finder *f, const struct job *job, uint64_t needed,
                          char text[96])
{
    const double gib = 1073741824.0;
    const double there = profile_value(&f->machine->profile, PROFILE_HOST_CAPACITY);
    text[0] = '\0';
    if (strategy_offloads(&job->strategy) && there > 0)
        snprintf(text, 96, "%.2f of %.2f GiB of a host", (double)needed / gib, there / gib);
    else if (strategy_offloads(&job->strategy))
        snprintf(text, 96, "%.2f GiB of a host, if it has them", (double)needed / gib);
}

/* `host_bytes`: of a rank; `wanted`: tokens of a step as they were asked for. */
static void add(struct finder *f, const struct settings *changed, const struct found *found,
                uint64_t host_bytes, double wanted)
{
    struct job job;
    char numerics[NUMERICS_TEXT], gpus[96], host[96];
    if (f->count == MOST_FOUND || settings_job(changed, f->config, &job, NULL) != ERR_OK)
        return;
    const double batch = tokens_a_step(&job) / wanted;
    struct remedy *remedy = &f->found[f->count++];
    const uint32_t host_ranks =
        profile_host_ranks(&f->machine->profile, job.strategy.world, f->machine->gpus_per_node);
    *remedy = (struct remedy){.gpus = job.strategy.world,
                              .device_bytes = found->device_bytes,
                              .host_needed_bytes = host_bytes * host_ranks,
                              .step_s = found->step_s,
                              .tokens_per_s = tokens(&job) / found->step_s};
    settings_difference(f->settings, changed, remedy->change, sizeof remedy->change);
    numerics_difference(f->settings, changed, f->config, numerics);
    describe_gpus((double)job.strategy.world / gpus_asked(f), batch, gpus);
    remedy->changes = count_options(remedy->change);
    remedy->tight = is_tight(f, found->device_bytes);
    remedy->changes_numerics = numerics[0] != '\0' || batch != 1;
    describe_host(f, &job, remedy->host_needed_bytes, host);
    snprintf(remedy->cost, sizeof remedy->cost, "%s%s%s%s%s", host, host[0] && gpus[0] ? ", " : "",
             gpus, (host[0] || gpus[0]) && numerics[0] ? ", " : "", numerics);
}

/* ---- searches ---- */

/* Sequences that each GPU has in a step as it was asked for. */
static uint64_t sequences(const struct finder *f)
{
    return (uint64_t)f->settings->job.model.batch * f->settings->job.strategy.accumulate;
}

/* From the fewest changes on: one more has to be worth it. */
static void add_front(struct finder *f, const struct candidates *c, const struct search *search)
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
        add(f, &changed, found, c->frames[c->at[found->candidate].frame]->host, wanted);
    }
}

static bool changes_numerics(const void *context, const struct settings *settings)
{
    const struct finder *f = context;
    struct numerics numerics;
    numerics_compare(f->settings, settings, f->config, &numerics);
    return numerics.count > 0;
}

struct stretch { /* of a search: `from` and `to` of the whole */
    const struct finder *finder;
    uint32_t gpus;
    double from, to;
};

/* "what would fit on 16 GPUs, in other dtypes, too" */
static void show_part(void *context, double share)
{
    const struct stretch *p = context;
    const struct finder *f = p->finder;
    char what[80];
    if (!f->progress.show)
        return;
    snprintf(what, sizeof what, "what would fit on %u GPU%s%s", p->gpus, p->gpus > 1 ? "s" : "",
             f->options.numerics ? ", in other dtypes, too" : "");
    f->progress.show(f->progress.context, what, p->from + share * (p->to - p->from));
}

/* Of one number of GPUs: together more than a stack need have. */
struct tried {
    struct settings base;
    struct space space;
    struct candidates candidates;
    struct search search;
};

/* All settings on so many GPUs, which share the tokens of a step where these can be split; where
 * not, each GPU has as many as before. Returns whether something fits. */
static bool search_on(struct finder *f, uint32_t gpus)
{
    struct tried *tried = xmalloc(sizeof *tried);
    struct space_options options = f->options;
    struct stretch bounding = {f, gpus, 0, 0.8}, searching = {f, gpus, 0.8, 1}; /* of the time */
    const struct candidates_options narrow = {.most_changes =
                                                  REMEDY_CHANGES - (gpus != gpus_asked(f)),
                                              .limit_bytes = f->limit_bytes,
                                              .beyond = BEYOND_LEFT_OUT,
                                              .least_tokens_per_s = f->least_tokens_per_s,
                                              .wanted = f->dtypes_alone ? changes_numerics : NULL,
                                              .wanted_context = f,
                                              .store = f->store,
                                              .progress = show_part,
                                              .context = &bounding};
    const struct search_options by_changes = {.measure = SEARCH_CHANGES,
                                              .limit_bytes = f->limit_bytes,
                                              .progress = show_part,
                                              .context = &searching};
    const uint32_t before = f->count;
    if (!options.global_batch && sequences(f) * gpus_asked(f) % gpus == 0)
        options.global_batch = sequences(f) * gpus_asked(f);
    tried->base = *f->settings;
    tried->base.job.strategy.world = gpus;
    if (space_new(&tried->base, &options, &tried->space, NULL) == ERR_OK) {
        if (candidates_new(&tried->space, f->config, f->machine, &narrow, f->pool,
                           &tried->candidates, NULL) == ERR_OK) {
            search_run(&tried->candidates, &by_changes, f->pool, &tried->search);
            add_front(f, &tried->candidates, &tried->search);
            search_free(&tried->search);
            candidates_free(&tried->candidates);
        }
        space_free(&tried->space);
    }
    free(tried);
    return f->count > before;
}

/* ---- which of them are told ---- */

static enum kind kind_of(const struct finder *f, const struct remedy *remedy)
{
    return remedy->gpus > gpus_asked(f) ? ON_MORE_GPUS
           : remedy->changes_numerics   ? IN_OTHER_DTYPES
                                        : ON_THESE_GPUS;
}

static int by_tokens(const void *x, const void *y)
{
    const struct remedy *a = x, *b = y;
    if (a->tokens_per_s != b->tokens_per_s)
        return a->tokens_per_s < b->tokens_per_s ? 1 : -1;
    return (a->changes > b->changes) - (a->changes < b->changes);
}

/* Whether b is no better than a in anything. What is in other dtypes is no like for like, and hides
 * nothing of another kind. */
static bool dominates(const struct finder *f, const struct remedy *a, const struct remedy *b)
{
    const enum kind kind = kind_of(f, a);
    return (kind == ON_THESE_GPUS || kind == kind_of(f, b)) && a->tokens_per_s >= b->tokens_per_s &&
           a->device_bytes <= b->device_bytes && a->changes <= b->changes && a->gpus <= b->gpus &&
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
            if (k != i && dominates(f, &f->found[k], &f->found[i]) &&
                (k < i || !dominates(f, &f->found[i], &f->found[k]))) {
                remove_at(f, i);
                break;
            }
}

/* Of many of a kind the fastest are told, and that of the fewest changes; of those on more GPUs the
 * fastest and that of the fewest GPUs. */
static void keep_few(struct finder *f, enum kind kind, uint32_t most)
{
    for (;;) {
        uint32_t count = 0, kept = 0, last = 0;
        for (uint32_t i = 0; i < f->count; i++)
            if (kind_of(f, &f->found[i]) == kind) {
                const struct remedy *one = &f->found[i], *other = &f->found[kept];
                if (count == 0 || (kind == ON_MORE_GPUS ? one->gpus < other->gpus
                                                        : one->changes < other->changes))
                    kept = i;
                count++;
            }
        if (count <= most)
            return;
        for (uint32_t i = 0; i < f->count; i++)
            if (kind_of(f, &f->found[i]) == kind && (i != kept || most == 1))
                last = i;
        remove_at(f, last);
    }
}

static bool fills_nodes(const struct finder *f, uint32_t gpus)
{
    return gpus <= f->machine->gpus_per_node || gpus % f->machine->gpus_per_node == 0;
}

/* As many GPUs as were asked for, twice, four and eight times, until something fits there: then
 * also halfway to the half of them, where nothing did. */
static void search_all(struct finder *f)
{
    const uint32_t asked = gpus_asked(f);
    uint32_t gpus = 2 * asked;
    (void)search_on(f, asked);
    while (gpus <= MOST_TIMES * asked && !search_on(f, gpus))
        gpus *= 2;
    if (gpus <= MOST_TIMES * asked && gpus % 4 == 0 && fills_nodes(f, gpus / 4 * 3))
        (void)search_on(f, gpus / 4 * 3);
}

/* Of what is found now, the fastest on as many GPUs as were asked for; 0: there is none. */
static double fastest(const struct finder *f, uint32_t from)
{
    double most = 0;
    for (uint32_t i = from; i < f->count; i++)
        if (f->found[i].gpus == gpus_asked(f))
            most = fmax(most, f->found[i].tokens_per_s);
    return most;
}

/* Other dtypes are no like for like: they are told where nothing else helps on these GPUs, or by
 * much less. */
static void search_other_dtypes(struct finder *f)
{
    const uint32_t before = f->count;
    const double least = WORTH_OTHER_DTYPES * fastest(f, 0);
    f->options.numerics = f->dtypes_alone = true;
    f->least_tokens_per_s = least;
    (void)search_on(f, gpus_asked(f));
    f->options.numerics = f->dtypes_alone = false;
    f->least_tokens_per_s = 0;
    for (uint32_t i = f->count; i-- > before;)
        if (f->found[i].tokens_per_s < least)
            remove_at(f, i);
}

static uint32_t find(struct finder *f, struct remedy told[REMEDIES])
{
    static const uint32_t most[] = {
        [ON_THESE_GPUS] = REMEDIES - 3, [IN_OTHER_DTYPES] = 1, [ON_MORE_GPUS] = 2};
    search_all(f);
    if (f->count == 0) {
        f->options.numerics = f->options.rest = true;
        search_all(f);
    } else {
        search_other_dtypes(f);
    }
    if (f->count)
        qsort(f->found, f->count, sizeof *f->found, by_tokens);
    drop_dominated(f);
    for (enum kind kind = 0; kind < KINDS; kind++)
        keep_few(f, kind, most[kind]);
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
                         struct remedy_progress progress, struct remedy found[REMEDIES])
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
                       .pool = pool,
                       .progress = progress,
                       .store = class_store_new()};
    const uint32_t count = find(&f, found);
    class_store_free(f.store);
    return count;
}

uint32_t remedies_find(const struct settings *settings, const struct model_config *config,
                       const struct machine *machine, struct remedy_progress progress,
                       struct remedy found[REMEDIES])
{
    const struct space_options all = {.refuses = NULL};
    struct pool *pool = pool_new(0);
    const uint32_t count = remedies_within(settings, config, machine,
                                           profile_bytes(&machine->profile, PROFILE_CAPACITY), &all,
                                           pool, progress, found);
    pool_free(pool);
    return count;
}
