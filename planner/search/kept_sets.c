/* kept_sets.c - see kept_sets.h. */
#include "search/kept_sets.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets that are simulated side by side: always so many, so that what is looked at does not depend
 * on the number of threads. */
enum { AT_ONCE = 32, TRIED_IN_FULL = 12 };

/* Steps are known to a rounding. */
#define AS_FAST (1 + 1e-9)

struct unit_name { /* "layers.", 7, ".experts" */
    const char *text;
    uint32_t plain, number, rest; /* characters before the number; it; where what follows begins */
};

struct sets {
    const struct kept_problem *p;
    struct kept_answer *out;
    struct kept_bounds bounds;
    struct unit_name *names; /* (units) in the order of the plan */
    bool *choice;            /* (units) scratch, for bounds */
    struct kept_set *tried;  /* (tried_count) each once */
    uint32_t tried_count, tried_cap;
    uint32_t units;
    bool ascend; /* numbers of each kind do, in that order: only then ranges name what is meant */
};

/* ---- sets ---- */

static bool has(const struct kept_set *set, uint32_t unit)
{
    return set->units[unit / 64] >> unit % 64 & 1;
}

static void flip(struct kept_set *set, uint32_t unit)
{
    set->units[unit / 64] ^= (uint64_t)1 << unit % 64;
}

static bool is_same(const struct kept_set *a, const struct kept_set *b)
{
    return memcmp(a->units, b->units, sizeof a->units) == 0;
}

static struct unit_name name_of(const char *text)
{
    struct unit_name name = {.text = text, .rest = (uint32_t)strlen(text)};
    uint32_t end = name.rest;
    while (end > 0 && !isdigit((unsigned char)text[end - 1]))
        end--;
    name.plain = end;
    while (name.plain > 0 && isdigit((unsigned char)text[name.plain - 1]))
        name.plain--;
    if (name.plain < end) {
        name.rest = end;
        name.number = (uint32_t)strtoul(text + name.plain, NULL, 10);
    } else {
        name.plain = name.rest; /* no number */
    }
    return name;
}

/* Whether names differ in their numbers alone. */
static bool is_of_kind(const struct unit_name *a, const struct unit_name *b)
{
    return a->plain == b->plain && a->text[a->plain] && strncmp(a->text, b->text, a->plain) == 0 &&
           strcmp(a->text + a->rest, b->text + b->rest) == 0;
}

static bool is_block(const struct unit_name *name)
{
    return name->text[name->plain] && !name->text[name->rest];
}

/* Units of one kind that follow each other in it are one range. */
static void write_text(struct sets *s, struct kept_set *set)
{
    enum { RANGE = 13 }; /* a comma, a dash, another number, no end */
    size_t size = 1, used = 0;
    for (uint32_t u = 0; u < s->units; u++)
        size += has(set, u) ? strlen(s->names[u].text) + RANGE : 0;
    bool *written = xcalloc(s->units + 1, sizeof *written);
    char *text = arena_alloc(&s->out->arena, size);
    text[0] = '\0';
    for (uint32_t u = 0; u < s->units; u++) {
        uint32_t end = u;
        if (!has(set, u) || written[u])
            continue;
        for (uint32_t v = u + 1; v < s->units; v++) {
            if (!is_of_kind(&s->names[u], &s->names[v]))
                continue;
            if (!has(set, v) || !s->ascend)
                break;
            written[v] = true;
            end = v;
        }
        const struct unit_name *name = &s->names[u];
        const char *comma = used ? "," : "";
        const int n = end == u ? snprintf(text + used, size - used, "%s%s", comma, name->text)
                               : snprintf(text + used, size - used, "%s%.*s%u-%u%s", comma,
                                          (int)name->plain, name->text, name->number,
                                          s->names[end].number, name->text + name->rest);
        used += (size_t)n;
    }
    set->text = text;
    free(written);
}

/* What it is besides its bits. */
static void describe(struct sets *s, struct kept_set *set)
{
    bool last = true, others = false;
    set->count = set->last = 0;
    for (uint32_t u = s->units; u-- > 0;) {
        const bool block = is_block(&s->names[u]);
        set->count += has(set, u);
        others = others || (has(set, u) && (!block || !last));
        last = last && (!block || has(set, u));
    }
    set->last = others ? 0 : set->count;
    set->step_s = INFINITY;
    set->device_bytes = set->device_floor = 0;
    write_text(s, set);
    set->number = arena_printf(&s->out->arena, "%u", set->count);
}

/* ---- evaluating ---- */

static struct strategy strategy_of(const struct kept_problem *p, const struct kept_set *set)
{
    struct strategy strategy = p->strategy;
    strategy.keep_last = 0;
    strategy.keep_units = *set->text ? set->text : NULL;
    return strategy;
}

struct batch {
    const struct kept_problem *p;
    struct kept_set *sets;
};

static void simulate_one(void *context, uint32_t i, uint32_t thread)
{
    const struct batch *b = context;
    struct kept_set *set = &b->sets[i];
    const struct strategy strategy = strategy_of(b->p, set);
    struct evaluation fast;
    if (evaluate_fast(b->p->evaluators[thread], b->p->stream_class, &strategy, &fast, NULL) !=
        ERR_OK)
        return;
    set->step_s = fast.step_s;
    set->device_floor = fast.device_floor;
}

static void work_out(const struct kept_problem *p, struct kept_set *set)
{
    const struct strategy strategy = strategy_of(p, set);
    if (evaluate_full(p->evaluators[0], p->stream_class, &strategy, p->expandable_segments,
                      p->limit_bytes, &set->device_bytes, NULL) != ERR_OK)
        set->device_bytes = UINT64_MAX;
}

static bool fits(const struct sets *s, struct kept_set *set)
{
    if (set->device_floor > s->p->limit_bytes)
        return false;
    if (!set->device_bytes)
        work_out(s->p, set);
    return set->device_bytes <= s->p->limit_bytes;
}

static bool is_tried(const struct sets *s, const struct kept_set *set)
{
    bool tried = false;
    for (uint32_t i = 0; i < s->tried_count && !tried; i++)
        tried = is_same(&s->tried[i], set);
    return tried;
}

static int by_step(const void *x, const void *y)
{
    const struct kept_set *a = x, *b = y;
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s ? -1 : 1;
    return memcmp(a->units, b->units, sizeof a->units);
}

static void take(struct sets *s, struct kept_set *set)
{
    struct kept_answer *out = s->out;
    if (set->step_s * AS_FAST < out->best.step_s && fits(s, set))
        out->best = *set;
    if (set->last && set->step_s * AS_FAST < out->last.step_s && fits(s, set))
        out->last = *set;
}

/* Simulates (count) sets side by side, and takes what is faster and fits. Returns whether the best
 * is another one. */
static bool try_all(struct sets *s, struct kept_set *sets, uint32_t count)
{
    struct batch batch = {s->p, sets};
    const double before = s->out->best.step_s;
    pool_run(s->p->pool, count, simulate_one, &batch);
    s->out->simulated += count;
    for (uint32_t i = 0; i < count && !s->out->closed; i++) { /* where all are, each is once */
        ARRAY_GROW(s->tried, s->tried_count, s->tried_cap);
        s->tried[s->tried_count++] = sets[i];
    }
    qsort(sets, count, sizeof *sets, by_step);
    uint32_t full = 0; /* a batch of which all but a few are too large costs no more than it */
    for (uint32_t i = 0; i < count && (full < TRIED_IN_FULL || s->out->closed); i++) {
        full += sets[i].device_floor <= s->p->limit_bytes &&
                sets[i].step_s * AS_FAST < s->out->best.step_s;
        take(s, &sets[i]);
    }
    return s->out->best.step_s < before;
}

/* By bounds. */
static bool may_fit(const struct sets *s, const struct kept_set *set)
{
    for (uint32_t u = 0; u < s->units; u++)
        s->choice[u] = has(set, u);
    return kept_bounds_bytes(&s->bounds, s->choice) <= s->p->limit_bytes;
}

static bool stopped(const struct sets *s)
{
    return s->p->stop && *s->p->stop;
}

/* ---- all of few ---- */

struct branching {
    struct sets *s;
    struct kept_set at;
    bool *kept, *gathered; /* (units) what is settled */
    struct kept_set leaves[AT_ONCE];
    uint32_t leaf_count;
};

static void flush(struct branching *b)
{
    (void)try_all(b->s, b->leaves, b->leaf_count);
    b->leaf_count = 0;
}

/* Settles one unit after the other: kept first, which is faster. */
static void branch(struct branching *b, uint32_t unit)
{
    struct sets *s = b->s;
    if (kept_bounds_bytes(&s->bounds, b->kept) > s->p->limit_bytes ||
        kept_bounds_step(&s->bounds, b->gathered) * AS_FAST >= s->out->best.step_s || stopped(s))
        return;
    if (unit == s->units) {
        if (is_tried(s, &b->at))
            return;
        b->leaves[b->leaf_count] = b->at;
        describe(s, &b->leaves[b->leaf_count++]);
        if (b->leaf_count == AT_ONCE)
            flush(b);
        return;
    }
    b->kept[unit] = true;
    flip(&b->at, unit);
    branch(b, unit + 1);
    b->kept[unit] = false;
    flip(&b->at, unit);
    b->gathered[unit] = true;
    branch(b, unit + 1);
    b->gathered[unit] = false;
}

static void try_every(struct sets *s)
{
    struct branching b = {.s = s,
                          .kept = xcalloc(s->units + 1, sizeof(bool)),
                          .gathered = xcalloc(s->units + 1, sizeof(bool))};
    s->out->closed = true;
    branch(&b, 0);
    flush(&b);
    s->out->closed = !stopped(s);
    free(b.kept);
    free(b.gathered);
}

/* ---- some of many ---- */

struct queue { /* sets that are tried together */
    struct sets *s;
    struct kept_set *at; /* (count) */
    uint32_t count, cap;
};

static bool enqueue(struct queue *q, struct kept_set set)
{
    bool there = is_tried(q->s, &set) || !may_fit(q->s, &set);
    for (uint32_t i = 0; i < q->count && !there; i++)
        there = is_same(&q->at[i], &set);
    if (there)
        return false;
    describe(q->s, &set);
    ARRAY_GROW(q->at, q->count, q->cap);
    q->at[q->count++] = set;
    return true;
}

static void run_queue(struct queue *q)
{
    for (uint32_t i = 0; i < q->count; i += AT_ONCE)
        (void)try_all(q->s, q->at + i, q->count - i < AT_ONCE ? q->count - i : AT_ONCE);
    q->count = 0;
}

/* Adds units in an order as long as bounds let them fit: as many as there is room for, and a few
 * less, as the allocator may take more than the bound. */
static void fill_in_order(struct queue *q, struct kept_set from, const uint32_t *order,
                          uint32_t count)
{
    enum { LESS = 3 };
    struct kept_set before[LESS];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct kept_set more = from;
        if (has(&from, order[i]))
            continue;
        flip(&more, order[i]);
        if (!may_fit(q->s, &more))
            continue;
        before[kept++ % LESS] = from;
        from = more;
    }
    (void)enqueue(q, from);
    for (uint32_t i = 1; i <= LESS && i <= kept; i++)
        (void)enqueue(q, before[(kept - i) % LESS]);
}

struct worth { /* of keeping a unit, for the bytes that it takes */
    uint32_t unit;
    double worth;
};

static int by_worth(const void *x, const void *y)
{
    const struct worth *a = x, *b = y;
    if (a->worth != b->worth)
        return a->worth > b->worth ? -1 : 1;
    return a->unit > b->unit ? -1 : a->unit < b->unit;
}

/* What each saves by itself is simulated. */
static void fill_by_worth(struct queue *q)
{
    struct sets *s = q->s;
    struct kept_set *alone = xcalloc(s->units + 1, sizeof *alone);
    struct worth *worths = xcalloc(s->units + 1, sizeof *worths);
    uint32_t *order = xcalloc(s->units + 1, sizeof *order);
    for (uint32_t u = 0; u < s->units; u++) {
        flip(&alone[u], u);
        describe(s, &alone[u]);
    }
    struct batch batch = {s->p, alone};
    pool_run(s->p->pool, s->units, simulate_one, &batch);
    s->out->simulated += s->units;
    for (uint32_t u = 0; u < s->units; u++)
        worths[u] = (struct worth){u, (s->out->none.step_s - alone[u].step_s) /
                                          (double)(s->bounds.most[u] + 1)};
    qsort(worths, s->units, sizeof *worths, by_worth);
    for (uint32_t i = 0; i < s->units; i++)
        order[i] = worths[i].unit;
    fill_in_order(q, s->out->none, order, s->units);
    free(alone);
    free(worths);
    free(order);
}

/* From the last on, from the first on, and every n-th from the last on. */
static void fill_in_turn(struct queue *q)
{
    struct sets *s = q->s;
    uint32_t *order = xcalloc(s->units + 1, sizeof *order);
    const uint32_t n = s->units;
    for (uint32_t i = 0; i < n; i++)
        order[i] = n - 1 - i;
    fill_in_order(q, s->out->none, order, n);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    fill_in_order(q, s->out->none, order, n);
    for (uint32_t apart = 2; apart <= 4; apart++) {
        uint32_t count = 0;
        for (uint32_t from = 0; from < apart; from++)
            for (uint32_t i = from; i < n; i += apart)
                order[count++] = n - 1 - i;
        fill_in_order(q, s->out->none, order, n);
    }
    free(order);
}

/* The last k blocks alone, from the most that bounds let fit on down to the first that fits. */
static void fill_last(struct sets *s)
{
    struct kept_set set = s->out->none;
    uint32_t *blocks = xcalloc(s->units + 1, sizeof *blocks), count = 0, kept = 0;
    for (uint32_t u = s->units; u-- > 0;)
        if (is_block(&s->names[u]))
            blocks[count++] = u;
    for (; kept < count; kept++) {
        struct kept_set more = set;
        flip(&more, blocks[kept]);
        if (!may_fit(s, &more))
            break;
        set = more;
    }
    for (; kept > 0 && s->out->last.step_s == INFINITY && !stopped(s); kept--) {
        describe(s, &set);
        work_out(s->p, &set);
        if (set.device_bytes <= s->p->limit_bytes && !is_tried(s, &set))
            (void)try_all(s, &set, 1);
        flip(&set, blocks[kept - 1]);
    }
    free(blocks);
}

/* A set that differs from the best in one unit more, or in one for another; which of them comes
 * next is drawn, the same each time. */
static bool draw_neighbour(struct sets *s, uint64_t *seed, struct kept_set *out)
{
    uint32_t unit[2];
    for (int i = 0; i < 2; i++) {
        *seed = *seed * 6364136223846793005U + 1442695040888963407U;
        unit[i] = (uint32_t)(*seed >> 33) % s->units;
    }
    *out = s->out->best;
    if (!has(out, unit[0]))
        flip(out, unit[0]);
    if (has(out, unit[1]) && unit[1] != unit[0] && !may_fit(s, out))
        flip(out, unit[1]);
    return !is_same(out, &s->out->best);
}

static void improve(struct queue *q)
{
    enum { DRAWS = 8 * AT_ONCE };
    struct sets *s = q->s;
    uint64_t seed = 1;
    bool some = true;
    while (some && s->out->simulated < s->p->most_simulated && !stopped(s)) {
        for (uint32_t i = 0; i < DRAWS && q->count < AT_ONCE; i++) {
            struct kept_set set;
            if (draw_neighbour(s, &seed, &set))
                (void)enqueue(q, set);
        }
        some = q->count > 0;
        run_queue(q);
    }
}

static void try_some(struct sets *s)
{
    struct queue q = {.s = s};
    fill_in_turn(&q);
    fill_by_worth(&q);
    run_queue(&q);
    if (isfinite(s->out->best.step_s))
        improve(&q);
    free(q.at);
}

/* ---- the whole ---- */

static bool ascends(const struct sets *s)
{
    for (uint32_t v = 1; v < s->units; v++)
        for (uint32_t u = v; u-- > 0;)
            if (is_of_kind(&s->names[u], &s->names[v])) {
                if (s->names[u].number >= s->names[v].number)
                    return false;
                break;
            }
    return true;
}

/* Names of the units but the root's. */
static enum err_code find_names(struct sets *s, struct err *err)
{
    const struct kept_problem *p = s->p;
    struct plan *plan;
    struct strategy strategy = p->strategy;
    strategy.keep_units = NULL;
    strategy.accumulate = 1;
    TRY(lower_plan(p->stream_class->graph, p->stream_class->stream, &strategy, &plan, err));
    s->names = xcalloc(plan->unit_count + 1, sizeof *s->names);
    for (uint32_t u = 1; u < plan->unit_count; u++) {
        const char *name = plan->units[u].name;
        s->names[s->units++] =
            name_of(arena_printf(&s->out->arena, "%.*s", (int)strcspn(name, ","), name));
    }
    plan_free(plan);
    s->ascend = ascends(s);
    return s->units <= KEPT_UNITS_MOST
               ? ERR_OK
               : err_set(err, ERR_UNSUPPORTED, "%u units are more than the %d of a set", s->units,
                         KEPT_UNITS_MOST);
}

static bool bound(struct sets *s)
{
    const struct kept_problem *p = s->p;
    const char **texts = xcalloc(s->units + 1, sizeof *texts);
    struct strategy strategy = p->strategy;
    strategy.keep_last = 0;
    for (uint32_t u = 0; u < s->units; u++)
        texts[u] = s->names[u].text;
    const bool bounded = kept_bounds_new(p->stream_class, &strategy, texts, s->units, "*",
                                         p->evaluators, p->pool, &s->bounds);
    free(texts);
    return bounded;
}

/* Without the units that are kept, or gathered again, whatever is said of them: [norm, output] of
 * torchtitan's. */
static bool drop_idle(struct sets *s)
{
    uint32_t kept = 0;
    for (uint32_t u = 0; u < s->units; u++)
        if (s->bounds.most[u] > 0 || s->bounds.saved[u].lane_s[LANE_COMPUTE] > 0)
            s->names[kept++] = s->names[u];
    const bool dropped = kept < s->units;
    s->units = kept;
    return dropped;
}

static enum err_code prepare(struct sets *s, struct err *err)
{
    TRY(find_names(s, err));
    if (s->units == 0)
        return ERR_OK;
    bool bounded = bound(s);
    if (bounded && drop_idle(s)) {
        kept_bounds_free(&s->bounds);
        bounded = s->units == 0 || bound(s);
    }
    if (!bounded)
        return err_set(err, ERR_INVALID, "no frame of the strategy can be made");
    s->choice = xcalloc(s->units + 1, sizeof *s->choice);
    return ERR_OK;
}

static void look(struct sets *s)
{
    struct kept_answer *out = s->out;
    struct kept_set ends[2] = {{.count = 0}, {.count = 0}};
    for (uint32_t u = 0; u < s->units; u++)
        flip(&ends[1], u);
    describe(s, &ends[0]);
    describe(s, &ends[1]);
    (void)try_all(s, ends, 2);
    for (int i = 0; i < 2; i++)
        *(ends[i].count ? &out->all : &out->none) = ends[i];
    fill_last(s);
    const bool few = s->units < 20 && (uint32_t)1 << s->units <= s->p->most_simulated;
    if (few)
        try_every(s);
    else
        try_some(s);
    out->bound_s =
        out->closed ? out->best.step_s : kept_bounds_least(&s->bounds, s->p->limit_bytes);
    if (out->bound_s >= out->best.step_s) {
        out->bound_s = out->best.step_s;
        out->closed = !stopped(s);
    }
}

enum err_code kept_sets_search(const struct kept_problem *problem, struct kept_answer *out,
                               struct err *err)
{
    struct sets s = {.p = problem, .out = out};
    *out = (struct kept_answer){.best = {.step_s = INFINITY}, .last = {.step_s = INFINITY}};
    out->none.step_s = out->all.step_s = INFINITY;
    const enum err_code rc = prepare(&s, err);
    out->units = s.units;
    if (rc == ERR_OK && s.units > 0)
        look(&s);
    kept_bounds_free(&s.bounds);
    free(s.names);
    free(s.choice);
    free(s.tried);
    if (rc != ERR_OK)
        kept_answer_free(out);
    return rc;
}

void kept_answer_free(struct kept_answer *answer)
{
    arena_free(&answer->arena);
    *answer = (struct kept_answer){.units = 0};
}
