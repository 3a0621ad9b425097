/* candidates.c - see candidates.h. */
#include "search/candidates.h"

#include "search/keys.h"
#include "settings/settings_resolve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256, NO_INDEX = UINT32_MAX };

/* ---- jobs ---- */

/* What is equal has equal bytes where it was made by the same assignments. If not, it is taken for
 * different, which costs time, or a word more in what is shown, and nothing else. */
static bool has_bytes_of(const void *x, const void *y, size_t size)
{
    return memcmp(x, y, size) == 0;
}

/* *simplest: the point says it as its simplest form does. */
static enum err_code make_job(const struct candidates *c, uint32_t grid, uint64_t point,
                              struct job *out, bool *expandable_segments, bool *simplest,
                              struct err *err)
{
    struct settings settings;
    grid_settings(&c->space->grids[grid], point, &settings);
    TRY(settings_job(&settings, c->config, out, err));
    const struct strategy said = out->strategy;
    strategy_simplify(&out->strategy, c->blocks);
    tape_options_simplify(&out->tape, c->blocks);
    *simplest = has_bytes_of(&said, &out->strategy, sizeof said);
    *expandable_segments = settings.expandable_segments;
    return ERR_OK;
}

enum err_code candidates_job(const struct candidates *c, uint32_t grid, uint64_t point,
                             struct job *out, bool *expandable_segments, struct err *err)
{
    bool simplest;
    return make_job(c, grid, point, out, expandable_segments, &simplest, err);
}

uint32_t candidates_find(const struct candidates *c, uint32_t grid, uint64_t point)
{
    return c->of[space_place(c->space, grid, point / c->space->grids[grid].inner_points)];
}

/* ---- members ---- */

/* Strategies of one frame have as many members: how many micro-batches there are beyond a frame's
 * is nothing that these differ by. */
struct counting {
    struct candidates *c;
    uint32_t *firsts; /* (count) a candidate of each of them */
};

static void count_one(void *context, uint32_t i, uint32_t thread)
{
    const struct counting *counting = context;
    struct candidate *first = &counting->c->at[counting->firsts[i]];
    (void)thread;
    first->jobs = candidate_jobs(counting->c, first);
}

/* ---- seeds: what is known of an outer point before anything is built ---- */

enum seed_state {
    SEED_OPEN,
    SEED_TOO_LARGE, /* by its class */
    SEED_IMPOSSIBLE,
    SEED_LEFT_OUT,
    SEED_REPEATED,
};

struct seed {
    struct key class_key, frame_key, strategy_key;
    uint64_t outer, place; /* of its grid; of the space */
    uint32_t grid, stream_class, frame;
    uint32_t first; /* of those with the same job the one that stays */
    uint32_t rank;  /* of them it has the least: departures, what is not the simplest form last */
    uint8_t state;
};

struct building {
    struct candidates *c;
    const struct candidates_options *options;
    struct pool *pool;
    struct seed *seeds;
    uint32_t seed_count;
    uint32_t *class_firsts; /* (classes) the first seed of each */
    uint32_t *firsts;       /* (frames) likewise */
    bool *asked;            /* (classes) whose time is asked for now */
    uint64_t *of;           /* (frames, words_of) bits: the classes that have each */
    struct err err;         /* of the first that is impossible */
    uint32_t err_seed;
};

static bool leaves_out(const struct building *b)
{
    return b->options->beyond == BEYOND_LEFT_OUT;
}

static const struct grid *grid_of(const struct building *b, const struct seed *seed)
{
    return &b->c->space->grids[seed->grid];
}

static uint64_t seed_point(const struct building *b, const struct seed *seed)
{
    return seed->outer * grid_of(b, seed)->inner_points;
}

static enum err_code seed_job(const struct building *b, const struct seed *seed, struct job *job,
                              struct err *err)
{
    bool expandable_segments;
    return candidates_job(b->c, seed->grid, seed_point(b, seed), job, &expandable_segments, err);
}

/* Jobs with the same key have one stream. Which parameters need a gradient may follow from the
 * units that they are in, and which modules have borders. */
static struct key stream_key(const struct job *job, bool freezes)
{
    const struct model_job model = job_model(job); /* by members: made anew, it has other padding */
    const struct tape_options tape = job_tape(job);
    const struct strategy *s = &job->strategy;
    const bool made[] = {model.views,        model.casts_inputs,  model.copies_outputs,
                         model.own_experts,  model.watched,       model.made != DTYPE_FP32,
                         model.wide_trained, model.returns_nodes, system_casts_root(s)};
    const uint64_t units[] = {(uint64_t)s->system,
                              (uint64_t)s->units,
                              s->per_unit,
                              s->unit_bytes,
                              s->unit_elements,
                              model.adapters_apart,
                              model.adapters_apart ? (uint64_t)model.apart : 0};
    struct key key = key_of((struct key){1, 2}, &job->model, sizeof job->model);
    key = key_of(key, made, sizeof made);
    key = key_of(key, &tape, sizeof tape);
    return freezes || strategy_wraps_inside(s) ? key_of(key, units, sizeof units) : key;
}

static bool is_asked_for(const struct building *b, const struct seed *seed)
{
    const struct candidates_options *options = b->options;
    struct settings settings;
    if (!options->wanted)
        return true;
    grid_settings(grid_of(b, seed), seed_point(b, seed), &settings);
    return options->wanted(options->wanted_context, &settings);
}

static void fill_seed(const struct building *b, struct seed *seed)
{
    struct job job;
    bool expandable, simplest;
    const struct grid *grid = grid_of(b, seed);
    const uint64_t point = seed_point(b, seed);
    if (!is_asked_for(b, seed)) {
        seed->state = SEED_LEFT_OUT;
        return;
    }
    if (make_job(b->c, seed->grid, point, &job, &expandable, &simplest, NULL) != ERR_OK ||
        job_check(&job, NULL) != ERR_OK) {
        seed->state = SEED_IMPOSSIBLE;
        return;
    }
    seed->rank = 2 * grid_departures(grid, point) + !simplest;
    const struct strategy few = frame_strategy(&job.strategy);
    seed->class_key = stream_key(&job, b->c->freezes);
    seed->frame_key = key_of((struct key){5, 6}, &few, sizeof few);
    seed->strategy_key = /* which is that, and */
        key_of(seed->frame_key, &job.strategy.accumulate, sizeof job.strategy.accumulate);
}

static void fill_chunk(void *context, uint32_t chunk, uint32_t thread)
{
    struct building *b = context;
    (void)thread;
    for (uint32_t i = chunk * CHUNK; i < (chunk + 1) * CHUNK && i < b->seed_count; i++)
        fill_seed(b, &b->seeds[i]);
}

/* Into `seeds`, if given; returns how many points there are that near to what was asked for. */
static uint32_t put_seeds(const struct building *b, struct seed *seeds)
{
    const struct space *space = b->c->space;
    const uint32_t most = b->options->most_changes;
    uint32_t count = 0;
    for (uint32_t g = 0; g < space->grid_count; g++) {
        const struct grid *grid = &space->grids[g];
        uint64_t outer = grid_outer_within(grid, 0, most);
        for (; outer < grid->outer_points; outer = grid_outer_within(grid, outer + 1, most)) {
            if (seeds)
                seeds[count] =
                    (struct seed){.grid = g, .outer = outer, .place = space_place(space, g, outer)};
            count++;
        }
    }
    return count;
}

static void make_seeds(struct building *b)
{
    b->seed_count = put_seeds(b, NULL);
    b->seeds = xmalloc((b->seed_count + 1) * sizeof *b->seeds);
    b->firsts = xmalloc((b->seed_count + 1) * sizeof *b->firsts);
    b->class_firsts = xmalloc((b->seed_count + 1) * sizeof *b->class_firsts);
    put_seeds(b, b->seeds);
    pool_run(b->pool, (b->seed_count + CHUNK - 1) / CHUNK, fill_chunk, b);
}

/* Of points with one job the one stays that is nearest to the framework's defaults: of these the
 * first in the simplest form. */
static void drop_repeated(struct building *b)
{
    struct key_table table = key_table_new(b->seed_count);
    uint32_t *stays = xmalloc((b->seed_count + 1) * sizeof *stays); /* of the first of each job */
    for (uint32_t i = 0; i < b->seed_count; i++) {
        struct seed *seed = &b->seeds[i];
        if (seed->state != SEED_OPEN)
            continue;
        const struct key key =
            key_of(seed->class_key, &seed->strategy_key, sizeof seed->strategy_key);
        const uint32_t first = seed->first = key_table_index(&table, key, i);
        if (first == i || seed->rank < b->seeds[stays[first]].rank)
            stays[first] = i;
    }
    for (uint32_t i = 0; i < b->seed_count; i++) {
        struct seed *seed = &b->seeds[i];
        if (seed->state != SEED_OPEN)
            continue;
        seed->first = stays[seed->first];
        if (seed->first != i)
            seed->state = SEED_REPEATED;
    }
    free(stays);
    key_table_free(&table);
}

/* Where nothing is counted, those that are open are all there is. An error's point (note_failure)
 * is by its place among these then: who leaves out asks for no error. */
static void keep_open(struct building *b)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < b->seed_count; i++)
        if (b->seeds[i].state == SEED_OPEN)
            b->seeds[open++] = b->seeds[i];
    b->seed_count = open;
}

static void note_failure(struct building *b, uint32_t seed, const struct err *err)
{
    if (b->err_seed <= seed)
        return;
    b->err = *err;
    b->err_seed = seed;
}

/* The first point's, where none gets as far as being built. */
static void note_refusal(struct building *b)
{
    struct job job;
    struct err err = {0};
    for (uint32_t i = 0; i < b->seed_count; i++)
        if (b->seeds[i].state != SEED_IMPOSSIBLE && b->seeds[i].state != SEED_LEFT_OUT)
            return;
    for (uint32_t i = 0; i < b->seed_count && b->err_seed == NO_INDEX; i++)
        if (b->seeds[i].state == SEED_IMPOSSIBLE &&
            (seed_job(b, &b->seeds[i], &job, &err) != ERR_OK || job_check(&job, &err) != ERR_OK))
            note_failure(b, i, &err);
}

static bool stopped(const struct building *b)
{
    return b->options->stop && *b->options->stop;
}

static void show(const struct building *b, double share)
{
    if (b->options->progress)
        b->options->progress(b->options->context, share);
}

/* ---- classes ---- */

static bool is_large(const struct building *b, const struct stream_class *class)
{
    return b->options->limit_bytes && stream_class_device_floor(class) > b->options->limit_bytes;
}

struct build_errors { /* of what is built beside each other */
    struct building *b;
    struct err *errs;
};

static void build_class(void *context, uint32_t i, uint32_t thread)
{
    const struct build_errors *e = context;
    struct building *b = e->b;
    struct candidates *c = b->c;
    struct job job;
    (void)thread;
    if (stopped(b) || seed_job(b, &b->seeds[b->class_firsts[i]], &job, &e->errs[i]) != ERR_OK)
        return;
    const struct stream_class *made = c->store ? class_store_find(c->store, c->keys[i]) : NULL;
    if (stream_class_untimed(made, &job, c->machine, &c->classes[i], &e->errs[i]) == ERR_OK &&
        leaves_out(b) && !c->classes[i]->lent && is_large(b, c->classes[i]))
        stream_class_strip(c->classes[i]);
}

static void note_failed_classes(struct building *b, const struct build_errors *e)
{
    struct candidates *c = b->c;
    for (uint32_t i = 0; i < c->class_count; i++)
        if (!c->classes[i])
            note_failure(b, b->class_firsts[i], &e->errs[i]);
    for (uint32_t i = 0; i < b->seed_count; i++)
        if (b->seeds[i].state == SEED_OPEN && !c->classes[b->seeds[i].stream_class])
            b->seeds[i].state = SEED_IMPOSSIBLE;
}

static void time_class(void *context, uint32_t i, uint32_t thread)
{
    const struct build_errors *e = context;
    struct building *b = e->b;
    struct stream_class **class = &b->c->classes[i];
    struct job job;
    (void)thread;
    if (stopped(b) || !b->asked[i] ||
        (seed_job(b, &b->seeds[b->class_firsts[i]], &job, &e->errs[i]) == ERR_OK &&
         stream_class_time(*class, &job, b->c->machine, &e->errs[i]) == ERR_OK))
        return;
    stream_class_free(*class);
    *class = NULL;
}

/* Of those that still have candidates. */
static void time_classes(struct building *b)
{
    struct candidates *c = b->c;
    struct build_errors e = {b, xcalloc(c->class_count + 1, sizeof(struct err))};
    b->asked = xcalloc(c->class_count + 1, sizeof *b->asked);
    for (uint32_t i = 0; i < b->seed_count; i++) {
        const struct seed *seed = &b->seeds[i];
        if (seed->state == SEED_OPEN)
            b->asked[seed->stream_class] = !c->classes[seed->stream_class]->timed;
    }
    pool_run(b->pool, c->class_count, time_class, &e);
    note_failed_classes(b, &e);
    free(b->asked);
    free(e.errs);
}

static void build_classes(struct building *b)
{
    struct candidates *c = b->c;
    struct key_table table = key_table_new(b->seed_count);
    for (uint32_t i = 0; i < b->seed_count; i++) {
        struct seed *seed = &b->seeds[i];
        if (seed->state != SEED_OPEN)
            continue;
        seed->stream_class = key_table_index(&table, seed->class_key, c->class_count);
        if (seed->stream_class == c->class_count)
            b->class_firsts[c->class_count++] = i;
    }
    key_table_free(&table);
    c->classes = xcalloc(c->class_count + 1, sizeof(struct stream_class *));
    c->keys = xmalloc((c->class_count + 1) * sizeof *c->keys);
    for (uint32_t i = 0; i < c->class_count; i++)
        c->keys[i] = b->seeds[b->class_firsts[i]].class_key;
    struct build_errors e = {b, xcalloc(c->class_count + 1, sizeof(struct err))};
    pool_run(b->pool, c->class_count, build_class, &e);
    note_failed_classes(b, &e);
    free(e.errs);
}

/* ---- classes that take too much ----
 *
 * Large micro-batches without checkpointing do by themselves, and then no strategy need be lowered
 * around them: only whether it can be. And what is too slow by itself is too slow under all. */

static void drop_slow(struct building *b)
{
    const double least = b->options->least_tokens_per_s;
    for (uint32_t i = 0; i < b->seed_count && least > 0; i++) {
        struct seed *seed = &b->seeds[i];
        if (seed->state == SEED_OPEN &&
            stream_class_most_tokens(b->c->classes[seed->stream_class]) < least)
            seed->state = SEED_LEFT_OUT;
    }
}

struct large {
    struct building *b;
    bool *classes; /* (class_count) */
};

static void drop_large_chunk(void *context, uint32_t chunk, uint32_t thread)
{
    const struct large *large = context;
    struct building *b = large->b;
    (void)thread;
    for (uint32_t i = chunk * CHUNK; i < (chunk + 1) * CHUNK && i < b->seed_count; i++) {
        struct seed *seed = &b->seeds[i];
        struct job job;
        if (seed->state != SEED_OPEN || !large->classes[seed->stream_class])
            continue;
        if (leaves_out(b)) {
            seed->state = SEED_LEFT_OUT;
            continue;
        }
        const struct stream_class *class = b->c->classes[seed->stream_class];
        seed->state =
            seed_job(b, seed, &job, NULL) == ERR_OK &&
                    lower_check(class->graph, class->stream, &job.strategy, NULL) == ERR_OK
                ? SEED_TOO_LARGE
                : SEED_IMPOSSIBLE;
    }
}

/* The thriftiest class is kept: what it takes at least is worth knowing where nothing fits. */
static void drop_large(struct building *b)
{
    const struct candidates *c = b->c;
    struct large large = {b, xcalloc(c->class_count + 1, sizeof(bool))};
    uint64_t least = UINT64_MAX;
    bool any = false;
    for (uint32_t i = 0; i < c->class_count; i++)
        if (c->classes[i] && stream_class_device_floor(c->classes[i]) < least)
            least = stream_class_device_floor(c->classes[i]);
    for (uint32_t i = 0; i < c->class_count && b->options->limit_bytes; i++) {
        large.classes[i] = c->classes[i] && is_large(b, c->classes[i]) &&
                           (leaves_out(b) || stream_class_device_floor(c->classes[i]) > least);
        any |= large.classes[i];
    }
    if (any)
        pool_run(b->pool, (b->seed_count + CHUNK - 1) / CHUNK, drop_large_chunk, &large);
    free(large.classes);
}

/* ---- frames ---- */

static bool has_hooks(const struct stream_class *class)
{
    return class && !class->bare;
}

/* The first class with the same hooks as each. */
static uint32_t *hooks_of_classes(const struct candidates *c)
{
    uint32_t *of = xmalloc((c->class_count + 1) * sizeof *of);
    for (uint32_t i = 0; i < c->class_count; i++) {
        of[i] = i;
        for (uint32_t j = 0; j < i && of[i] == i && has_hooks(c->classes[i]); j++)
            if (of[j] == j && has_hooks(c->classes[j]) &&
                stream_class_same_hooks(c->classes[i], c->classes[j]))
                of[i] = j;
    }
    return of;
}

/* Of the bits of all classes. */
static size_t words_of(const struct candidates *c)
{
    return c->class_count / 64 + 1;
}

/* How long it takes with all units kept is what a choice among them begins with (per_unit.h),
 * whether that fits or not. */
static bool keeps_all(const struct strategy *s)
{
    return s->system == SYSTEM_FSDP2 && s->reshard == RESHARD_NEVER;
}

static void build_frame(void *context, uint32_t i, uint32_t thread)
{
    const struct build_errors *e = context;
    struct building *b = e->b;
    const struct seed *seed = &b->seeds[b->firsts[i]];
    const struct frame_limit limit = {b->c->classes, b->of + (size_t)i * words_of(b->c),
                                      b->c->class_count, b->options->limit_bytes, leaves_out(b)};
    struct job job;
    if (stopped(b) || seed_job(b, seed, &job, &e->errs[i]) != ERR_OK)
        return;
    const bool within =
        leaves_out(b) || (b->options->beyond == BEYOND_COUNTED && !keeps_all(&job.strategy));
    (void)frame_new_within(evaluator_framer(b->c->evaluators[thread]),
                           b->c->classes[seed->stream_class], &job.strategy, within ? &limit : NULL,
                           &b->c->frames[i], &e->errs[i]);
}

/* In parts, between which others hear how far it is. */
static void run_in_parts(struct building *b, uint32_t count, struct build_errors *e)
{
    enum { PART = 256 };
    uint32_t *firsts = b->firsts;
    uint64_t *of = b->of;
    struct frame **frames = b->c->frames;
    struct build_errors part = *e;
    for (uint32_t at = 0; at < count; at += PART) {
        b->firsts = firsts + at;
        b->c->frames = frames + at;
        b->of = of + at * words_of(b->c);
        part.errs = e->errs + at;
        pool_run(b->pool, count - at < PART ? count - at : PART, build_frame, &part);
        show(b, (double)(at + PART) / count);
    }
    b->firsts = firsts;
    b->c->frames = frames;
    b->of = of;
}

static void note_classes(struct building *b)
{
    const size_t words = words_of(b->c);
    b->of = xcalloc((b->c->frame_count + 1) * words, sizeof *b->of);
    for (uint32_t i = 0; i < b->seed_count; i++) {
        const struct seed *seed = &b->seeds[i];
        if (seed->state == SEED_OPEN)
            b->of[seed->frame * words + seed->stream_class / 64] |= UINT64_C(1)
                                                                    << seed->stream_class % 64;
    }
}

static void build_frames(struct building *b)
{
    struct candidates *c = b->c;
    uint32_t *hooks = hooks_of_classes(c);
    struct key_table table = key_table_new(b->seed_count);
    for (uint32_t i = 0; i < b->seed_count; i++) {
        struct seed *seed = &b->seeds[i];
        if (seed->state != SEED_OPEN)
            continue;
        const struct key key = key_of(seed->frame_key, &hooks[seed->stream_class], sizeof *hooks);
        seed->frame = key_table_index(&table, key, c->frame_count);
        if (seed->frame == c->frame_count)
            b->firsts[c->frame_count++] = i;
    }
    key_table_free(&table);
    free(hooks);
    note_classes(b);
    c->frames = xcalloc(c->frame_count + 1, sizeof(struct frame *));
    struct build_errors e = {b, xcalloc(c->frame_count + 1, sizeof(struct err))};
    run_in_parts(b, c->frame_count, &e);
    for (uint32_t i = 0; i < c->frame_count; i++)
        if (!c->frames[i])
            note_failure(b, b->firsts[i], &e.errs[i]);
    for (uint32_t i = 0; i < b->seed_count; i++)
        if (b->seeds[i].state == SEED_OPEN && !c->frames[b->seeds[i].frame])
            b->seeds[i].state = SEED_IMPOSSIBLE;
    free(e.errs);
    free(b->of);
}

/* What takes too much in its frame. */
static void leave_out_beyond(struct building *b)
{
    const struct candidates *c = b->c;
    for (uint32_t i = 0; i < b->seed_count && b->options->limit_bytes; i++) {
        struct seed *seed = &b->seeds[i];
        if (seed->state == SEED_OPEN &&
            (c->frames[seed->frame]->timeless ||
             frame_device_floor(c->frames[seed->frame], c->classes[seed->stream_class]) >
                 b->options->limit_bytes))
            seed->state = SEED_LEFT_OUT;
    }
}

/* ---- candidates ---- */

static void bound_chunk(void *context, uint32_t chunk, uint32_t thread)
{
    struct building *b = context;
    const struct candidates *c = b->c;
    (void)thread;
    for (uint32_t i = chunk * CHUNK; i < (chunk + 1) * CHUNK && i < c->count; i++) {
        struct candidate *at = &c->at[i];
        struct settings settings;
        const struct grid *grid = &c->space->grids[at->grid];
        const uint64_t point = at->outer * grid->inner_points;
        grid_settings(grid, point, &settings);
        at->departures = grid_departures(grid, point);
        if (at->frame == NO_INDEX) {
            at->device_floor = stream_class_device_floor(c->classes[at->stream_class]);
            at->step_floor_s = INFINITY;
            continue;
        }
        at->device_floor = frame_device_floor(c->frames[at->frame], c->classes[at->stream_class]);
        at->step_floor_s = INFINITY;
        if (c->frames[at->frame]->timeless)
            continue;
        at->step_floor_s = frame_step_floor(c->frames[at->frame], c->classes[at->stream_class],
                                            settings.job.strategy.accumulate);
    }
}

static int by_floor(const void *x, const void *y)
{
    const struct candidate *a = x, *b = y;
    if (a->step_floor_s != b->step_floor_s)
        return a->step_floor_s < b->step_floor_s ? -1 : 1;
    if (a->departures != b->departures)
        return a->departures < b->departures ? -1 : 1;
    if (a->grid != b->grid)
        return a->grid < b->grid ? -1 : 1;
    return a->outer < b->outer ? -1 : a->outer > b->outer;
}

/* `seeds` (count) are those of the candidates. */
static void count_all_jobs(struct building *b, const uint32_t *seeds)
{
    struct candidates *c = b->c;
    struct key_table table = key_table_new(c->count);
    struct counting counting = {c, xmalloc((c->count + 1) * sizeof *counting.firsts)};
    uint32_t *of = xmalloc((c->count + 1) * sizeof *of), count = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct seed *seed = &b->seeds[seeds[i]];
        const struct key key = key_of(seed->frame_key, &seed->grid, sizeof seed->grid);
        of[i] = key_table_index(&table, key, count);
        if (of[i] == count)
            counting.firsts[count++] = i;
    }
    pool_run(b->pool, count, count_one, &counting);
    for (uint32_t i = 0; i < c->count; i++)
        c->at[i].jobs = c->at[counting.firsts[of[i]]].jobs;
    key_table_free(&table);
    free(counting.firsts);
    free(of);
}

/* Which candidate has each outer point's job. */
static void note_places(struct building *b)
{
    struct candidates *c = b->c;
    const uint64_t places = space_place(c->space, c->space->grid_count, 0);
    c->of = xmalloc((places + 1) * sizeof *c->of);
    for (uint64_t i = 0; i < places; i++)
        c->of[i] = NO_INDEX;
    for (uint32_t i = 0; i < c->count; i++)
        c->of[space_place(c->space, c->at[i].grid, c->at[i].outer)] = i;
    for (uint32_t i = 0; i < b->seed_count && !leaves_out(b); i++)
        if (b->seeds[i].state == SEED_REPEATED)
            c->of[b->seeds[i].place] = c->of[b->seeds[b->seeds[i].first].place];
}

static void make_candidates(struct building *b)
{
    struct candidates *c = b->c;
    uint32_t *seeds = b->firsts; /* they are done with */
    c->at = xmalloc((b->seed_count + 1) * sizeof *c->at);
    for (uint32_t i = 0; i < b->seed_count; i++) {
        struct seed *seed = &b->seeds[i];
        const uint64_t points = grid_of(b, seed)->inner_points;
        if (seed->state == SEED_REPEATED && b->seeds[seed->first].state == SEED_IMPOSSIBLE)
            seed->state = SEED_IMPOSSIBLE;
        c->impossible += seed->state == SEED_IMPOSSIBLE ? points : 0;
        if (seed->state != SEED_OPEN && seed->state != SEED_TOO_LARGE)
            continue;
        seeds[c->count] = i;
        c->at[c->count++] = (struct candidate){
            .grid = seed->grid,
            .outer = seed->outer,
            .stream_class = seed->stream_class,
            .frame = seed->state == SEED_OPEN ? seed->frame : NO_INDEX,
        };
    }
    count_all_jobs(b, seeds);
    pool_run(b->pool, (c->count + CHUNK - 1) / CHUNK, bound_chunk, b);
    qsort(c->at, c->count, sizeof *c->at, by_floor);
    note_places(b);
}

static void bound_all(struct building *b)
{
    time_classes(b);
    drop_slow(b);
    drop_large(b);
    build_frames(b);
}

/* Bytes first: most is gone before anybody asks how long it takes. */
static void bound_what_fits(struct building *b)
{
    drop_large(b);
    if (b->options->least_tokens_per_s > 0)
        time_classes(b);
    drop_slow(b);
    build_frames(b);
    leave_out_beyond(b);
    time_classes(b);
}

/* As it was asked for, or as its family has it. */
static bool freezes_any(const struct job *job, const struct graph *graph)
{
    bool any = job->model.frozen || job->model.lora;
    for (uint32_t p = 0; p < graph_own_params(graph); p++)
        any = any || !graph->params[p].trainable;
    return any;
}

static enum err_code find_blocks_of(struct candidates *c, const struct settings *settings,
                                    struct err *err)
{
    struct job job;
    struct graph *graph;
    TRY(settings_job(settings, c->config, &job, err));
    TRY(job_graph(&job, &graph, err));
    c->blocks = graph_count_blocks(graph);
    c->freezes = freezes_any(&job, graph);
    graph_free(graph);
    return ERR_OK;
}

/* Blocks, and what is frozen, are the same in every class: those of the model as it was asked for,
 * or, where it is no job (a recorded model has its own batches), of the first point along an axis
 * that is one. */
static enum err_code find_blocks(struct candidates *c, struct err *err)
{
    const struct grid *grid = &c->space->grids[0];
    struct err first = {0};
    enum err_code rc = find_blocks_of(c, &grid->base, &first);
    for (uint32_t a = 0; a < grid->inner && rc != ERR_OK; a++)
        for (uint32_t d = 0; d < grid->axes[a].count && rc != ERR_OK; d++) {
            struct settings settings;
            grid_settings(grid, grid_with(grid, 0, a, d), &settings);
            if (find_blocks_of(c, &settings, NULL) == ERR_OK)
                rc = ERR_OK;
        }
    return rc == ERR_OK ? rc : err_set(err, first.code, "%s", first.text);
}

enum err_code candidates_new(const struct space *space, const struct model_config *config,
                             const struct machine *machine,
                             const struct candidates_options *options, struct pool *pool,
                             struct candidates *out, struct err *err)
{
    *out = (struct candidates){
        .space = space, .config = config, .machine = machine, .store = options->store};
    struct building b = {.c = out, .options = options, .pool = pool, .err_seed = NO_INDEX};
    TRY(find_blocks(out, err));
    out->evaluator_count = pool_threads(pool);
    out->evaluators = xmalloc(out->evaluator_count * sizeof(struct evaluator *));
    for (uint32_t i = 0; i < out->evaluator_count; i++)
        out->evaluators[i] = evaluator_new(machine);
    make_seeds(&b);
    note_refusal(&b);
    drop_repeated(&b);
    if (leaves_out(&b))
        keep_open(&b);
    build_classes(&b);
    if (leaves_out(&b))
        bound_what_fits(&b);
    else
        bound_all(&b);
    if (!stopped(&b))
        make_candidates(&b);
    free(b.seeds);
    free(b.firsts);
    free(b.class_firsts);
    if (out->count > 0 || stopped(&b))
        return ERR_OK;
    candidates_free(out);
    if (b.err_seed == NO_INDEX)
        return err_set(err, ERR_INVALID, "no point of the search is a possible job");
    return err_set(err, b.err.code, "%s", b.err.text);
}

static void free_class(const struct candidates *c, uint32_t i)
{
    if (c->store && c->classes[i] && !c->classes[i]->lent)
        class_store_keep(c->store, c->keys[i], c->classes[i]);
    else
        stream_class_free(c->classes[i]);
}

void candidates_free(struct candidates *c)
{
    for (uint32_t i = 0; i < c->evaluator_count; i++)
        evaluator_free(c->evaluators[i]);
    free(c->evaluators);
    for (uint32_t i = 0; i < c->class_count && c->classes; i++)
        free_class(c, i);
    for (uint32_t i = 0; i < c->frame_count && c->frames; i++)
        frame_free(c->frames[i]);
    free(c->classes);
    free(c->keys);
    free(c->frames);
    free(c->at);
    free(c->of);
    *c = (struct candidates){.space = NULL};
}
