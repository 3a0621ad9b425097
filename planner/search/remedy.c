/* remedy.c - see remedy.h. */
#include "search/remedy.h"

#include "job/offloading.h"
#include "job/step_time.h"
#include "search/judged.h"
#include "search/losses.h"
#include "search/numerics.h"
#include "search/proposals.h"
#include "search/search.h"
#include "settings/settings_resolve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A remedy with more changes takes so much of the step of one with fewer, at most. */
#define WORTH_A_CHANGE 0.99

/* Two that differ by less are as fast. */
#define AS_FAST 0.99

/* A remedy in other dtypes is told where it is so much faster than those that leave them alone. */
#define WORTH_OTHER_DTYPES 1.05

/* What searches found: of each search as many as changes can be, at most. */
enum { MOST_SEARCHES = 8, MOST_FOUND = MOST_SEARCHES * (REMEDY_CHANGES + 1) };

/* Of each kind so many are told at most. */
enum kind { ON_THESE_GPUS, BY_OTHER_LOSSES, IN_OTHER_DTYPES, ON_MORE_GPUS, BY_RELEASING, KINDS };

struct finder {
    const struct settings *settings;
    const struct model_config *config;
    const struct machine *machine; /* of as many GPUs as are searched on */
    uint64_t limit_bytes;
    struct space_options options;
    struct pool *pool;
    struct class_store *store;
    const struct settings *base; /* searched instead of `settings`; NULL: those */
    bool dtypes_alone;           /* settings that change numerics are searched, and no others */
    bool losses_alone; /* what has another loss of the same function is, and nothing else */
    bool on_gpu_alone; /* what offloads is not searched */
    uint32_t searched; /* the most GPUs on which something was looked for */
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

/* Below a limit of one's own the machine is another one, whose verdict `fit` does not give. */
static bool is_whole(const struct finder *f)
{
    return f->limit_bytes == profile_bytes(&f->machine->profile, PROFILE_CAPACITY);
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

/* Never more than --gpus may be: what is told is to be typed. */
static uint64_t most_gpus(const struct finder *f, uint32_t times)
{
    const uint64_t most = (uint64_t)settings_find(f->settings, "gpus", NULL)->numbers[0].most;
    const uint64_t wanted = (uint64_t)times * gpus_asked(f);
    return wanted < most ? wanted : most;
}

/* In words what else a change of the GPUs changes, in `text`; "": nothing. */
static void describe_gpus(double times, double batch, char text[96])
{
    text[0] = '\0';
    if (times > 1 && batch > 1)
        snprintf(text, 96, "%.4g times the GPUs, %.4g times the tokens a step", times, batch);
    else if (times > 1)
        snprintf(text, 96, "%.4g times the GPUs", times);
}

/* In words what a job takes of a host, in `text`; "": no more than step counters. */
static void describe_host(const struct finder *f, const struct job *job, uint64_t needed,
                          char text[96])
{
    const double gib = 1073741824.0;
    const double there = profile_value(&f->machine->profile, PROFILE_HOST_CAPACITY);
    text[0] = '\0';
    const bool offloads = strategy_offloads(&job->strategy) || offloading_is_used(job);
    if (offloads && there > 0)
        snprintf(text, 96, "%.2f of %.2f GiB of a host", (double)needed / gib, there / gib);
    else if (offloads)
        snprintf(text, 96, "%.2f GiB of a host, if it has them", (double)needed / gib);
}

/* In words what a change trains otherwise; whether it is another loss of the same function alone.
 */
static bool describe_numerics(const struct finder *f, const struct settings *changed,
                              const struct job *job, char text[NUMERICS_TEXT])
{
    struct numerics numerics;
    numerics_compare(f->settings, changed, f->config, &numerics);
    const bool loss = numerics.count == 1 && strcmp(numerics.settings[0], "loss") == 0 &&
                      loss_is_plain(job->model.loss) && loss_is_plain(f->settings->job.model.loss);
    snprintf(text, NUMERICS_TEXT, "%s", loss ? loss_how(job->model.loss) : numerics.text);
    return loss;
}

/* `host_bytes`: of a rank; `wanted`: tokens of a step as they were asked for. NULL: no room. */
static struct remedy *add(struct finder *f, const struct settings *changed,
                          const struct found *found, uint64_t host_bytes, double wanted)
{
    struct job job;
    char numerics[NUMERICS_TEXT], gpus[96], host[96];
    if (f->count == MOST_FOUND || settings_job(changed, f->config, &job, NULL) != ERR_OK)
        return NULL;
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
    remedy->other_loss = describe_numerics(f, changed, &job, numerics);
    describe_gpus((double)job.strategy.world / gpus_asked(f), batch, gpus);
    remedy->changes = count_options(remedy->change);
    remedy->tight = device_is_tight(f->machine, found->device_bytes) ||
                    (is_whole(f) && judge_is_tight(changed, f->config, f->machine));
    remedy->recasts = numerics[0] != '\0';
    remedy->changes_numerics = remedy->recasts || batch != 1;
    remedy->offloads = strategy_offloads(&job.strategy);
    describe_host(f, &job, remedy->host_needed_bytes, host);
    snprintf(remedy->cost, sizeof remedy->cost, "%s%s%s%s%s", host, host[0] && gpus[0] ? ", " : "",
             gpus, (host[0] || gpus[0]) && numerics[0] ? ", " : "", numerics);
    return remedy;
}

/* ---- searches ---- */

/* Sequences that each GPU has in a step as it was asked for. */
static uint64_t sequences(const struct finder *f)
{
    return (uint64_t)f->settings->job.model.batch * f->settings->job.strategy.accumulate;
}

/* Tokens of a step as it was asked for; 0: it is no job. */
static double tokens_wanted(const struct finder *f)
{
    struct job job;
    const double sequences_wanted = (double)f->options.global_batch;
    if (settings_job(f->settings, f->config, &job, NULL) != ERR_OK)
        return 0;
    return sequences_wanted > 0 ? sequences_wanted * job.model.seq : tokens_a_step(&job);
}

/* From the fewest changes on: one more has to be worth it. */
static void add_front(struct finder *f, const struct candidates *c, const struct search *search)
{
    double least_s = INFINITY;
    const double wanted = tokens_wanted(f);
    if (wanted == 0)
        return;
    for (uint32_t i = search->front_count; i-- > 0;) {
        struct settings changed;
        const struct found *found = &search->front[i];
        if (found->step_s > WORTH_A_CHANGE * least_s)
            continue;
        least_s = found->step_s;
        grid_settings(&c->space->grids[c->at[found->candidate].grid], found->point, &changed);
        const struct candidate *at = &c->at[found->candidate];
        const uint64_t host = frame_host(c->frames[at->frame], c->classes[at->stream_class]);
        (void)add(f, &changed, found, host, wanted);
    }
}

static bool changes_numerics(const void *context, const struct settings *settings)
{
    const struct finder *f = context;
    struct numerics numerics;
    numerics_compare(f->settings, settings, f->config, &numerics);
    return numerics.count > 0;
}

static bool stays_on_gpu(const void *context, const struct settings *settings)
{
    (void)context;
    return !strategy_offloads(&settings->job.strategy);
}

static bool has_other_loss(const void *context, const struct settings *settings)
{
    const struct finder *f = context;
    return loss_is_plain(settings->job.model.loss) &&
           settings->job.model.loss != f->settings->job.model.loss;
}

/* What the search opens by itself, beside what is searched always. */
static void open_losses(struct settings *base)
{
    struct text_list *allow = &base->tune.allow;
    if (allow->count < SETTINGS_MOST_FILES)
        allow->at[allow->count++] = "loss,activation-offloading";
}

/* Beside another loss so few changes are looked for: of very many losses, little else. */
enum { CHANGES_BESIDE_A_LOSS = 2 };

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
    snprintf(what, sizeof what, "searching what would fit on %u GPU%s%s", p->gpus,
             p->gpus > 1 ? "s" : "", f->options.numerics ? ", in other dtypes, too" : "");
    f->progress.show(f->progress.context, what, p->from + share * (p->to - p->from));
}

/* ---- what fits all the same ---- */

/* Returns whether something fits without giving memory back: by a machine's clock. */
static bool try_as_fit(struct finder *f, const struct candidates *c)
{
    const double wanted = tokens_wanted(f);
    if (!is_whole(f) || wanted == 0)
        return false;
    struct judged *judged = xmalloc(JUDGED * sizeof *judged);
    const uint32_t count = judge_nearest(c, f->limit_bytes, f->pool, judged);
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        const bool told = judged[i].fits && !(f->losses_alone && judged[i].after_release);
        struct remedy *remedy =
            told ? add(f, &judged[i].settings, &judged[i].found, judged[i].host_bytes, wanted)
                 : NULL;
        if (remedy)
            remedy->after_release = judged[i].after_release;
        if (remedy && remedy->after_release)
            remedy->tight = true; /* as fit calls what needs that, however much is free then */
        any |= remedy && !remedy->after_release;
    }
    free(judged);
    return any;
}

/* Of one number of GPUs: together more than a stack need have. */
struct tried {
    struct settings base;
    struct space space;
    struct candidates candidates;
    struct search search;
};

static struct candidates_options narrowed(const struct finder *f, uint32_t gpus,
                                          struct stretch *bounding)
{
    const uint32_t most =
        f->losses_alone ? 1 + CHANGES_BESIDE_A_LOSS : REMEDY_CHANGES - (gpus != gpus_asked(f));
    return (struct candidates_options){.most_changes = most,
                                       .limit_bytes = f->limit_bytes,
                                       .beyond = BEYOND_LEFT_OUT,
                                       .least_tokens_per_s = f->least_tokens_per_s,
                                       .wanted = f->losses_alone   ? has_other_loss
                                                 : f->dtypes_alone ? changes_numerics
                                                 : f->on_gpu_alone ? stays_on_gpu
                                                                   : NULL,
                                       .wanted_context = f,
                                       .store = f->store,
                                       .progress = show_part,
                                       .context = bounding};
}

static bool search_space(struct finder *f, struct tried *tried, uint32_t gpus,
                         const struct space_options *options)
{
    struct stretch bounding = {f, gpus, 0, 0.8}, searching = {f, gpus, 0.8, 1}; /* of the time */
    const struct candidates_options narrow = narrowed(f, gpus, &bounding);
    const struct search_options by_changes = {.measure = SEARCH_CHANGES,
                                              .limit_bytes = f->limit_bytes,
                                              .progress = show_part,
                                              .context = &searching};
    const uint32_t before = f->count;
    bool found = false;
    if (space_new(&tried->base, options, &tried->space, NULL) != ERR_OK)
        return false;
    if (candidates_new(&tried->space, f->config, f->machine, &narrow, f->pool, &tried->candidates,
                       NULL) == ERR_OK) {
        search_run(&tried->candidates, &by_changes, f->pool, &tried->search);
        add_front(f, &tried->candidates, &tried->search);
        found = f->count > before;
        if (!found && gpus == gpus_asked(f) && !f->options.numerics)
            found = try_as_fit(f, &tried->candidates);
        search_free(&tried->search);
        candidates_free(&tried->candidates);
    }
    space_free(&tried->space);
    return found;
}

/* Of the nodes that so many GPUs are in where nobody said it: their size, and ports of theirs. */
static bool search_in_nodes(struct finder *f, struct tried *tried, uint32_t gpus,
                            const struct space_options *options)
{
    const struct machine *asked = f->machine;
    struct machine own;
    if (tried->base.gpus_per_node == asked->gpus_per_node)
        return search_space(f, tried, gpus, options);
    if (settings_machine(&tried->base, &own, NULL) != ERR_OK)
        return false;
    f->machine = &own;
    const bool found = search_space(f, tried, gpus, options);
    f->machine = asked;
    profile_free(&own.profile);
    return found;
}

/* All settings on so many GPUs, which share the tokens of a step where these can be split; where
 * not, each GPU has as many as before. Returns whether something fits. */
static bool search_on(struct finder *f, uint32_t gpus)
{
    struct tried *tried = xmalloc(sizeof *tried);
    struct space_options options = f->options;
    f->searched = gpus > f->searched ? gpus : f->searched;
    if (!options.global_batch && gpus > 0 && sequences(f) * gpus_asked(f) % gpus == 0)
        options.global_batch = sequences(f) * gpus_asked(f);
    tried->base = f->base ? *f->base : *f->settings;
    settings_set_gpus(&tried->base, gpus);
    if (f->losses_alone)
        open_losses(&tried->base);
    const bool found = search_in_nodes(f, tried, gpus, &options);
    free(tried);
    return found;
}

/* ---- which of them are told ---- */

enum remedy_group remedy_group(const struct remedy *remedy)
{
    return remedy->after_release      ? REMEDY_BY_RELEASING
           : remedy->other_loss       ? REMEDY_OTHER_LOSS
           : remedy->changes_numerics ? REMEDY_OTHERWISE
                                      : REMEDY_SAME;
}

static enum kind kind_of(const struct finder *f, const struct remedy *remedy)
{
    return remedy->after_release          ? BY_RELEASING
           : remedy->gpus > gpus_asked(f) ? ON_MORE_GPUS
           : remedy->other_loss           ? BY_OTHER_LOSSES
           : remedy->changes_numerics     ? IN_OTHER_DTYPES
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
        for (uint32_t k = 0; k < f->count && !f->found[i].asked_for; k++)
            if (k != i && dominates(f, &f->found[k], &f->found[i]) &&
                (k < i || !dominates(f, &f->found[i], &f->found[k]))) {
                remove_at(f, i);
                break;
            }
}

/* Of a kind, by tokens: its number, and those that are told whatever else there is: the fastest,
 * and that of the fewest changes, or of the fewest GPUs. */
struct of_kind {
    uint32_t count, first, fewest;
};

static struct of_kind count_kind(const struct finder *f, enum kind kind)
{
    struct of_kind of = {.count = 0};
    for (uint32_t i = 0; i < f->count; i++) {
        const struct remedy *one = &f->found[i], *other = &f->found[of.fewest];
        if (kind_of(f, one) != kind)
            continue;
        of.first = of.count ? of.first : i;
        if (of.count++ == 0 ||
            (kind == ON_MORE_GPUS ? one->gpus < other->gpus : one->changes < other->changes))
            of.fewest = i;
    }
    return of;
}

/* Of many of a kind the fastest are told, beside those that are in any case. */
static void keep_few(struct finder *f, enum kind kind, uint32_t most)
{
    for (;;) {
        const struct of_kind of = count_kind(f, kind);
        uint32_t last = UINT32_MAX;
        for (uint32_t i = 0; i < f->count; i++)
            if (kind_of(f, &f->found[i]) == kind && !f->found[i].asked_for && i != of.first &&
                (i != of.fewest || most == 1))
                last = i;
        if (of.count <= most || last == UINT32_MAX)
            return;
        remove_at(f, last);
    }
}

/* Of two that are as fast. */
static bool is_simpler(const struct remedy *a, const struct remedy *b)
{
    if (a->changes != b->changes)
        return a->changes < b->changes;
    return a->tokens_per_s > b->tokens_per_s;
}

/* Those that are told, in the order in which they are: by tokens until now. */
static void arrange(struct finder *f)
{
    for (uint32_t at = 0; at < f->count; at++) {
        uint32_t fastest = at, next;
        for (uint32_t i = at; i < f->count; i++)
            if (remedy_group(&f->found[i]) < remedy_group(&f->found[fastest]))
                fastest = i;
        next = fastest;
        for (uint32_t i = at; i < f->count; i++)
            if (remedy_group(&f->found[i]) == remedy_group(&f->found[fastest]) &&
                f->found[i].tokens_per_s >= AS_FAST * f->found[fastest].tokens_per_s &&
                is_simpler(&f->found[i], &f->found[next]))
                next = i;
        const struct remedy first = f->found[next];
        memmove(&f->found[at + 1], &f->found[at], (next - at) * sizeof first);
        f->found[at] = first;
    }
}

/* GPUs of a node, of so many. */
static uint32_t node_of(const struct finder *f, uint32_t gpus)
{
    struct settings on = *f->settings;
    settings_set_gpus(&on, gpus);
    return on.gpus_per_node;
}

static bool fills_nodes(const struct finder *f, uint32_t gpus)
{
    const uint32_t node = node_of(f, gpus);
    return gpus <= node || gpus % node == 0;
}

/* As many GPUs as were asked for, twice, four and eight times, until something fits there: then
 * also halfway to the half of them, where nothing did. */
static void search_all(struct finder *f)
{
    const uint64_t most = most_gpus(f, REMEDY_TIMES);
    uint32_t gpus = 2 * gpus_asked(f);
    (void)search_on(f, gpus_asked(f));
    while (gpus <= most && !search_on(f, gpus))
        gpus *= 2;
    if (gpus <= most && gpus % 4 == 0 && fills_nodes(f, gpus / 4 * 3))
        (void)search_on(f, gpus / 4 * 3);
}

/* Of what is found now, the fastest on as many GPUs as were asked for; 0: there is none. */
static double fastest(const struct finder *f, uint32_t from)
{
    double most = 0;
    for (uint32_t i = from; i < f->count; i++)
        if (f->found[i].gpus == gpus_asked(f) && !f->found[i].after_release)
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

static bool can_say(const struct finder *f, const struct settings *settings)
{
    uint64_t rows[SETTINGS_ROW_WORDS], idle[SETTINGS_ROW_WORDS];
    char list[256]; /* of each in `rows` */
    return !f->options.refuses || (f->options.refuses(f->options.context, settings, rows, idle,
                                                      list, sizeof list, NULL) == ERR_OK &&
                                   !list[0]);
}

/* Of the job as it was asked for. */
static bool has_peak_in_loss(const struct finder *f)
{
    struct job job;
    struct prediction p;
    if (settings_job(f->settings, f->config, &job, NULL) != ERR_OK ||
        predict_few(&job, f->machine, &p, NULL) != ERR_OK)
        return false;
    const bool has = losses_have_peak(&job, &p);
    prediction_free(&p);
    return has;
}

/* Whether something trains the same and gives nothing back, on however many GPUs. */
static bool fits_any(const struct finder *f)
{
    bool any = false;
    for (uint32_t i = 0; i < f->count; i++)
        any |= !f->found[i].after_release && !f->found[i].other_loss;
    return any;
}

/* Where the peak is in the loss and nothing helps here that leaves it alone: other ways to compute
 * it, in the code that was asked for and in transformers', which has more of them. */
static void search_losses(struct finder *f)
{
    struct settings *other = xmalloc(sizeof *other);
    f->losses_alone = true;
    (void)search_on(f, gpus_asked(f));
    if (losses_in_transformers(f->settings, f->config, other) && can_say(f, other)) {
        f->base = other;
        (void)search_on(f, gpus_asked(f));
        f->base = NULL;
    }
    f->losses_alone = false;
    free(other);
}

/* What trains the same, tokens of a step aside, on the GPU alone: on the fewest GPUs, the fastest;
 * NULL: none. */
static struct remedy *fewest_gpus(struct finder *f)
{
    struct remedy *best = NULL;
    for (uint32_t i = 0; i < f->count; i++) {
        struct remedy *one = &f->found[i];
        if (!one->offloads && !one->recasts && !one->after_release &&
            (!best || one->gpus < best->gpus ||
             (one->gpus == best->gpus && one->tokens_per_s > best->tokens_per_s)))
            best = one;
    }
    return best;
}

static void remove_some(struct finder *f, uint32_t from, uint32_t to)
{
    memmove(&f->found[from], &f->found[to], (f->count - to) * sizeof *f->found);
    f->count -= to - from;
}

/* What the fewest GPUs are told to: whole nodes, within a node what was asked for. Of very many it
 * is more, for no more than HALVINGS searches. */
static uint32_t step_of_gpus(const struct finder *f, uint32_t miss, uint32_t hit)
{
    enum { HALVINGS = 5 };
    const uint32_t node = node_of(f, hit);
    const uint32_t step = hit > node ? node : gpus_asked(f);
    const uint32_t steps = (hit - miss) / step;
    return step * (1 + (steps ? steps - 1 : 0) / (1u << HALVINGS));
}

/* Between a number of GPUs on which nothing fits and one on which something does, both moved until
 * they are one step apart. What fits halfway there is no remedy once there is one on fewer. */
static void halve(struct finder *f, uint32_t miss, uint32_t hit)
{
    const uint32_t step = step_of_gpus(f, miss, hit), from = f->count;
    uint32_t low = miss / step, high = (hit + step - 1) / step;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2, before = f->count;
        if (search_on(f, middle * step)) {
            remove_some(f, from, before);
            high = middle;
        } else {
            low = middle;
        }
    }
}

/* On how many GPUs it fits is told, if it does on any number (remedy.h says how exactly): something
 * that is found already is what to halve from. */
static void search_without_offload(struct finder *f)
{
    const uint64_t most = most_gpus(f, REMEDY_TIMES_ON_GPU);
    const struct space_options options = f->options;
    uint32_t miss = gpus_asked(f);
    f->options.numerics = false;
    f->on_gpu_alone = true;
    if (!fewest_gpus(f)) { /* else as it was found: on fewer GPUs, too, with all settings of that */
        f->options.rest = false;
        miss = f->searched;
    }
    for (uint64_t gpus = 2 * (uint64_t)miss; !fewest_gpus(f) && gpus <= most; gpus *= 2)
        if (!search_on(f, (uint32_t)gpus))
            miss = (uint32_t)gpus;
    if (fewest_gpus(f) && fewest_gpus(f)->gpus > miss)
        halve(f, miss, fewest_gpus(f)->gpus);
    f->on_gpu_alone = false;
    f->options = options;
    struct remedy *fewest = fewest_gpus(f);
    if (fewest)
        fewest->asked_for = true;
}

/* ---- what is proposed by name ---- */

static void judge_proposal(struct finder *f, const struct settings *settings)
{
    struct judged j = {.settings = *settings};
    char change[sizeof f->found[0].change];
    if (!can_say(f, &j.settings))
        return;
    settings_difference(f->settings, &j.settings, change, sizeof change);
    for (uint32_t i = 0; i < f->count; i++)
        if (strcmp(f->found[i].change, change) == 0) {
            f->found[i].asked_for = true;
            return;
        }
    if (!change[0] || f->count == MOST_FOUND)
        return;
    judge(&j, f->config, f->machine, f->limit_bytes);
    struct remedy *remedy = j.fits && !j.after_release
                                ? add(f, &j.settings, &j.found, j.host_bytes, tokens_wanted(f))
                                : NULL;
    if (remedy)
        remedy->asked_for = true;
}

static void judge_proposals(struct finder *f)
{
    struct settings *proposed = xmalloc(PROPOSALS_MOST * sizeof *proposed); /* too large a frame */
    const uint32_t count = proposals_of(f->settings, f->config, proposed);
    for (uint32_t i = 0; i < count; i++)
        judge_proposal(f, &proposed[i]);
    free(proposed);
}

static uint32_t find(struct finder *f, struct remedy told[REMEDIES])
{
    static const uint32_t most[] = {[ON_THESE_GPUS] = 3,
                                    [BY_OTHER_LOSSES] = 2,
                                    [IN_OTHER_DTYPES] = 1,
                                    [ON_MORE_GPUS] = 2,
                                    [BY_RELEASING] = 2};
    search_all(f);
    if (fastest(f, 0) == 0 && has_peak_in_loss(f))
        search_losses(f);
    if (!fits_any(f)) {
        f->options.numerics = f->options.rest = true;
        search_all(f);
    } else {
        search_other_dtypes(f);
    }
    search_without_offload(f);
    judge_proposals(f);
    if (f->count)
        qsort(f->found, f->count, sizeof *f->found, by_tokens);
    drop_dominated(f);
    for (enum kind kind = 0; kind < KINDS; kind++)
        keep_few(f, kind, most[kind]);
    arrange(f);
    f->count = f->count < REMEDIES ? f->count : REMEDIES;
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
    struct finder *f = xcalloc(1, sizeof *f); /* large for a stack */
    f->settings = settings;
    f->config = config;
    f->machine = machine;
    f->limit_bytes = limit_bytes;
    f->options = (struct space_options){.refixed = true,
                                        .saves = true,
                                        .config = config,
                                        .global_batch = said->global_batch,
                                        .refuses = said->refuses,
                                        .would = said->would,
                                        .reader = said->reader,
                                        .context = said->context};
    f->pool = pool;
    f->progress = progress;
    f->store = class_store_new();
    const uint32_t count = find(f, found);
    class_store_free(f->store);
    free(f);
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
