/* search.c - see search.h.
 *
 *     candidates, by floor of the step
 *         | wanted?  no: excluded
 *     the compute stream's segments, side by side
 *         | still wanted?  no: excluded
 *     members, to be simulated
 *         | one that does the same until the optimizer's update is simulated before another, which
 *         | waits until its own floor, by that, is the next
 *         | side by side
 *     steps, in a heap
 *         | the next of them is below every floor that is left: nothing faster is to come
 *         | wanted?  no: dropped
 *     memory in full, side by side
 *         | below all before it
 *     front
 *
 * Parts that run side by side are always of the same size, so that what is looked at does not
 * depend on the number of threads. */
#include "search/search.h"

#include "search/siblings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps are known to a rounding. */
#define AS_FAST (1 + 1e-9)

enum { SIMULATED_AT_ONCE = 32, VERIFIED_AT_ONCE = 8, RAISED_AT_ONCE = 16 };

/* Members of a candidate that one thread simulates, one after the other: neighbours differ in how
 * far ahead something is fetched, and some of them are one program (strategy_unify). */
enum { NEIGHBOURS = 3 };

struct member {
    struct found found;
    uint32_t siblings; /* by siblings.h, or NOT_ASKED */
};

#define NOT_ASKED (UINT32_MAX - 1)

struct members {
    struct member *at; /* (count) */
    uint32_t count, cap;
};

struct run {
    const struct candidates *c;
    const struct search_options *options;
    struct pool *pool;
    struct search *out;
    uint32_t simulated_cap, front_cap;
    uint32_t next;         /* candidate that is not expanded yet */
    uint32_t timed;        /* before this one all have a floor of their step */
    uint64_t *floors;      /* (candidates, variants) bytes of a device that each takes at least,
                              with each of the allocator's settings */
    uint8_t *known;        /* (candidates) of the last of these so many are raised by the compute
                              stream's segments */
    uint32_t variants;     /* at most */
    uint32_t raised;       /* before this one all that were wanted are raised, as far as need be */
    struct found *fitting; /* (fitting_count) the fastest that fit, options.next of them */
    uint32_t fitting_count;
    struct members members; /* of those that are, still to be simulated ... */
    uint32_t member_at;     /* ... from this one on */
    struct members waiting; /* of them, a heap by floor: their siblings are known */
    struct members held;    /* ... those whose siblings are being simulated */
    struct siblings *siblings;
    struct found *heap; /* simulated, by step */
    uint32_t heap_count, heap_cap;
    uint64_t best; /* what a slower one may take: bytes; or must stay below: changes */
};

/* ---- order ---- */

static int by_step(const void *x, const void *y)
{
    const struct found *a = x, *b = y;
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s ? -1 : 1;
    if (a->weight != b->weight)
        return a->weight < b->weight ? -1 : 1;
    if (a->candidate != b->candidate)
        return a->candidate < b->candidate ? -1 : 1;
    return a->point < b->point ? -1 : a->point > b->point;
}

static void heap_push(struct run *r, const struct found *found)
{
    ARRAY_GROW(r->heap, r->heap_count, r->heap_cap);
    uint32_t at = r->heap_count++;
    for (; at > 0 && by_step(found, &r->heap[(at - 1) / 2]) < 0; at = (at - 1) / 2)
        r->heap[at] = r->heap[(at - 1) / 2];
    r->heap[at] = *found;
}

static struct found heap_pop(struct run *r)
{
    const struct found top = r->heap[0], last = r->heap[--r->heap_count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < r->heap_count; at = child) {
        if (child + 1 < r->heap_count && by_step(&r->heap[child + 1], &r->heap[child]) < 0)
            child++;
        if (by_step(&last, &r->heap[child]) <= 0)
            break;
        r->heap[at] = r->heap[child];
    }
    r->heap[at] = last;
    return top;
}

static int by_floor(const struct member *a, const struct member *b)
{
    return by_step(&a->found, &b->found);
}

static void add_member(struct members *members, const struct member *member)
{
    ARRAY_GROW(members->at, members->count, members->cap);
    members->at[members->count++] = *member;
}

static void wait_push(struct members *heap, const struct member *member)
{
    add_member(heap, member);
    uint32_t at = heap->count - 1;
    for (; at > 0 && by_floor(member, &heap->at[(at - 1) / 2]) < 0; at = (at - 1) / 2)
        heap->at[at] = heap->at[(at - 1) / 2];
    heap->at[at] = *member;
}

static void wait_pop(struct members *heap)
{
    const struct member last = heap->at[--heap->count];
    uint32_t at = 0;
    for (uint32_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && by_floor(&heap->at[child + 1], &heap->at[child]) < 0)
            child++;
        if (by_floor(&last, &heap->at[child]) <= 0)
            break;
        heap->at[at] = heap->at[child];
    }
    heap->at[at] = last;
}

/* ---- what is worth a look ---- */

static const struct candidate *candidate_of(const struct run *r, const struct found *found)
{
    return &r->c->at[found->candidate];
}

/* What takes more is of no interest. */
static uint64_t bytes_wanted(const struct run *r)
{
    const bool any = r->options->measure == SEARCH_CHANGES || r->fitting_count < r->options->next;
    return any ? r->options->limit_bytes : r->best;
}

/* `weight`: the least of the members that are asked about. */
static bool is_wanted(const struct run *r, uint64_t device_floor, uint32_t weight)
{
    if (r->options->measure == SEARCH_BYTES)
        return device_floor <= bytes_wanted(r);
    return device_floor <= r->options->limit_bytes && weight < r->best;
}

static uint32_t weight_of(const struct run *r, const struct candidate *candidate, uint64_t point)
{
    const struct grid *grid = &r->c->space->grids[candidate->grid];
    return r->options->measure == SEARCH_BYTES ? grid_departures(grid, point)
                                               : grid_changes(grid, point);
}

/* ---- evaluating ---- */

/* A recording may not hold together in units that it was not made with (job_plan): what uses a
 * parameter need not be inside of them. Known of the program alone, which is made of those that
 * would be taken. */
static bool holds_together(const struct candidates *c, const struct job *job)
{
    struct plan *plan;
    if (!c->config->recording)
        return true;
    const bool holds = job_plan(job, &plan, NULL, NULL) == ERR_OK;
    plan_free(plan);
    return holds;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Its step and floor, or its bytes in full. */
static enum err_code evaluate(const struct candidates *c, struct evaluator *evaluator, bool full,
                              uint64_t enough, struct found *found)
{
    struct job job;
    bool expandable;
    struct evaluation fast;
    const struct candidate *at = &c->at[found->candidate];
    const struct stream_class *class = c->classes[at->stream_class];
    TRY(candidates_job(c, at->grid, found->point, &job, &expandable, NULL));
    if (full) {
        TRY(evaluate_full(evaluator, class, &job.strategy, expandable, enough, &found->device_bytes,
                          NULL));
        if ((!enough || found->device_bytes <= enough) && !holds_together(c, &job))
            found->device_bytes = UINT64_MAX;
        return ERR_OK;
    }
    TRY(evaluate_fast(evaluator, class, &job.strategy, &fast, NULL));
    found->step_s = fast.step_s;
    found->update_s = fast.update_s;
    found->device_floor = larger(found->device_floor, larger(fast.device_floor, at->device_floor));
    return ERR_OK;
}

struct batch {
    const struct candidates *c;
    struct found *found;
    bool full;
    uint64_t enough; /* bytes of a device, beyond which it does not matter; 0: all matter */
};

static void evaluate_one(void *context, uint32_t i, uint32_t thread)
{
    const struct batch *b = context;
    struct found *found = &b->found[i];
    if (evaluate(b->c, b->c->evaluators[thread], b->full, b->enough, found) == ERR_OK)
        return;
    found->device_bytes = UINT64_MAX; /* its frame could be made, so this does not happen */
    found->step_s = INFINITY;
}

void search_verify(const struct candidates *c, struct pool *pool, struct found *found,
                   uint32_t count, uint64_t enough)
{
    struct batch batch = {c, found, true, enough};
    pool_run(pool, count, evaluate_one, &batch);
}

void search_simulate(const struct candidates *c, struct pool *pool, struct found *found,
                     uint32_t count)
{
    struct batch batch = {c, found, false, 0};
    pool_run(pool, count, evaluate_one, &batch);
}

/* Groups side by side, what is in each one after the other: an evaluator knows what it was asked
 * for last. */
struct groups {
    struct batch batch;
    uint32_t first[SIMULATED_AT_ONCE + 1], count;
};

static void evaluate_group(void *context, uint32_t i, uint32_t thread)
{
    struct groups *g = context;
    for (uint32_t k = g->first[i]; k < g->first[i + 1]; k++)
        evaluate_one(&g->batch, k, thread);
}

/* ---- what candidates take at least ----
 *
 * A candidate is wanted as long as one of the allocator's settings may let it in: if one is known
 * to do so, how much it takes with the others is not asked. */

static uint32_t variants_of(const struct run *r, uint32_t candidate)
{
    const struct grid *grid = &r->c->space->grids[r->c->at[candidate].grid];
    uint64_t points[AXES_MOST];
    return member_variants(grid, 0, points);
}

/* With one of the allocator's settings, as member_variants has them. */
static uint64_t *floor_of(const struct run *r, uint32_t candidate, uint32_t variant)
{
    return &r->floors[(size_t)candidate * r->variants + variant];
}

static uint64_t least_floor(const struct run *r, uint32_t candidate)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t v = 0; v < r->variants; v++)
        least = *floor_of(r, candidate, v) < least ? *floor_of(r, candidate, v) : least;
    return least;
}

/* Where it costs less than simulating the members. */
static bool is_worth_raising(const struct run *r, uint32_t candidate)
{
    enum { FEWEST = 3 };
    const struct candidate *at = &r->c->at[candidate];
    const struct grid *grid = &r->c->space->grids[at->grid];
    return r->options->pools && system_fetches_apart(grid->base.job.strategy.system) &&
           at->jobs >= (uint64_t)FEWEST * variants_of(r, candidate);
}

/* Whether it is wanted for nothing but what is not known of it. */
static bool is_open(const struct run *r, uint32_t candidate)
{
    const uint32_t variants = r->variants, known = r->known[candidate];
    if (known == variants || !is_wanted(r, least_floor(r, candidate), 0))
        return false;
    for (uint32_t v = variants - known; v < variants; v++)
        if (is_wanted(r, *floor_of(r, candidate, v), 0))
            return false;
    return is_worth_raising(r, candidate);
}

/* All members have the compute stream's segments of the first (system_fetches_apart), each under
 * its own setting of the allocator; of other streams' segments there is the frame's bound. */
static enum err_code pools_of(const struct run *r, struct evaluator *evaluator, uint32_t candidate,
                              uint32_t variant, uint64_t *bytes)
{
    struct job job;
    bool expandable;
    uint64_t points[AXES_MOST];
    const struct candidate *at = &r->c->at[candidate];
    const struct grid *grid = &r->c->space->grids[at->grid];
    const uint64_t beside = r->c->frames[at->frame]->beside, enough = bytes_wanted(r);
    (void)member_variants(grid, at->outer * grid->inner_points, points);
    TRY(candidates_job(r->c, at->grid, points[variant], &job, &expandable, NULL));
    TRY(evaluate_pools(evaluator, r->c->classes[at->stream_class], &job.strategy, expandable,
                       enough > beside ? enough - beside : 1, bytes, NULL));
    *bytes += *bytes == UINT64_MAX ? 0 : beside;
    return ERR_OK;
}

struct raising {
    const struct run *run;
    uint32_t at[RAISED_AT_ONCE]; /* candidates */
};

/* The last of the allocator's settings first: it holds segments together, and takes less. */
static void raise_one(void *context, uint32_t i, uint32_t thread)
{
    const struct raising *raising = context;
    const struct run *r = raising->run;
    const uint32_t candidate = raising->at[i];
    const uint32_t variants = variants_of(r, candidate);
    while (is_open(r, candidate)) {
        const uint32_t variant = r->variants - 1 - r->known[candidate]++;
        uint64_t bytes = 0;
        if (variant >= variants ||
            pools_of(r, r->c->evaluators[thread], candidate, variant, &bytes) != ERR_OK)
            continue;
        *floor_of(r, candidate, variant) = larger(*floor_of(r, candidate, variant), bytes);
    }
}

/* Of the next that are wanted as far as is known. */
static void raise_some(struct run *r)
{
    struct raising raising = {.run = r};
    uint32_t count = 0;
    for (; r->raised < r->c->count && count < RAISED_AT_ONCE; r->raised++) {
        if (isinf(r->c->at[r->raised].step_floor_s))
            r->raised = r->c->count - 1; /* they are in order of it: no more frames */
        else if (is_open(r, r->raised))
            raising.at[count++] = r->raised;
    }
    pool_run(r->pool, count, raise_one, &raising);
}

/* Whether a member is wanted, by all that can be known before it is simulated. */
static bool is_still_wanted(struct run *r, struct found *found)
{
    struct raising raising = {.run = r, .at = {found->candidate}};
    if (!is_wanted(r, found->device_floor, found->weight))
        return false;
    if (!isinf(found->step_s) && is_open(r, found->candidate))
        pool_run(r->pool, 1, raise_one, &raising);
    found->device_floor = larger(found->device_floor, least_floor(r, found->candidate));
    return is_wanted(r, found->device_floor, found->weight);
}

/* ---- the next to be simulated ---- */

static void expand(struct run *r, uint32_t index)
{
    const struct candidate *candidate = &r->c->at[index];
    uint64_t *points = xmalloc(r->c->space->grids[candidate->grid].inner_points * sizeof *points);
    const uint32_t count = candidate_members(r->c, candidate, points);
    r->member_at = r->members.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct found found = {
            .candidate = index,
            .point = points[i],
            .step_s = candidate->step_floor_s,
            .device_floor = least_floor(r, index),
            .weight = weight_of(r, candidate, points[i]),
        };
        const struct member member = {found, NOT_ASKED};
        add_member(&r->members, &member);
    }
    free(points);
}

/* The next member that is wanted, in order of the candidates; NULL: none. */
static struct member *peek_member(struct run *r)
{
    for (;;) {
        for (; r->member_at < r->members.count; r->member_at++) {
            struct member *member = &r->members.at[r->member_at];
            if (is_still_wanted(r, &member->found))
                return member;
        }
        while (r->next < r->c->count && !is_wanted(r, least_floor(r, r->next), 0))
            r->next++;
        if (r->next == r->c->count)
            return NULL;
        if (r->next < r->raised)
            expand(r, r->next++);
        else
            raise_some(r);
    }
}

/* The next of those that wait and are wanted; NULL: none. */
static struct member *peek_waiting(struct run *r)
{
    struct members *heap = &r->waiting;
    while (heap->count && !is_still_wanted(r, &heap->at[0].found))
        wait_pop(heap);
    return heap->count ? &heap->at[0] : NULL;
}

static void drop_peeked(struct run *r, const struct member *member)
{
    if (r->waiting.count && member == &r->waiting.at[0])
        wait_pop(&r->waiting);
    else
        r->member_at++;
}

/* Whether what is known of its siblings raises its floor; then that is set. */
static bool is_raised(struct run *r, struct member *member)
{
    struct found *found = &member->found;
    if (isinf(found->step_s))
        return false;
    if (member->siblings == NOT_ASKED)
        member->siblings = siblings_of(r->siblings, found->candidate, found->point);
    const double floor_s = siblings_floor(r->siblings, member->siblings, found->candidate);
    if (floor_s <= found->step_s)
        return false;
    found->step_s = floor_s;
    return true;
}

/* The next of all that is wanted, by floor; NULL: none. It is not taken yet. */
static const struct member *peek(struct run *r)
{
    for (;;) {
        struct member *next = peek_member(r), *waiting = peek_waiting(r);
        if (waiting && (!next || waiting->found.step_s <= next->found.step_s))
            next = waiting;
        if (!next || !is_raised(r, next))
            return next;
        const struct member raised = *next;
        drop_peeked(r, next);
        wait_push(&r->waiting, &raised);
    }
}

/* Floor of all that are not simulated yet. */
static double next_floor(struct run *r)
{
    const struct member *member = peek(r);
    return member ? member->found.step_s : INFINITY;
}

/* Whether one of its siblings is among those that are about to be simulated. */
static bool is_held(const uint32_t *siblings, uint32_t count, uint32_t of)
{
    for (uint32_t i = 0; i < count; i++)
        if (siblings[i] == of)
            return true;
    return false;
}

static void simulate_some(struct run *r)
{
    struct found batch[SIMULATED_AT_ONCE];
    uint32_t siblings[SIMULATED_AT_ONCE], count = 0;
    const double until = r->heap_count ? r->heap[0].step_s : INFINITY;
    for (const struct member *member;
         count < SIMULATED_AT_ONCE && (member = peek(r)) && member->found.step_s < until;
         drop_peeked(r, member)) {
        if (is_held(siblings, count, member->siblings)) {
            add_member(&r->held, member);
            continue;
        }
        siblings[count] = member->siblings;
        batch[count++] = member->found;
    }
    struct groups work = {.batch = {r->c, batch, false, 0}};
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t first = work.count ? work.first[work.count - 1] : 0;
        if (i == 0 || batch[i].candidate != batch[first].candidate || i - first == NEIGHBOURS)
            work.first[work.count++] = i;
    }
    work.first[work.count] = count;
    pool_run(r->pool, work.count, evaluate_group, &work);
    for (uint32_t i = 0; i < count; i++) {
        siblings_note(r->siblings, siblings[i], batch[i].update_s);
        heap_push(r, &batch[i]);
        ARRAY_GROW(r->out->simulated, r->out->simulated_count, r->simulated_cap);
        r->out->simulated[r->out->simulated_count++] = batch[i];
    }
    while (r->held.count)
        wait_push(&r->waiting, &r->held.at[--r->held.count]);
}

/* ---- the next to be worked out in full ---- */

/* It is one of the fastest that fit, if those with its step, or of its candidate, have no faster
 * one among them. */
static void note_fitting(struct run *r, const struct found *found)
{
    bool other = r->fitting_count < r->options->next;
    for (uint32_t i = 0; i < r->fitting_count; i++)
        other &=
            r->fitting[i].candidate != found->candidate && r->fitting[i].step_s != found->step_s;
    if (other)
        r->fitting[r->fitting_count++] = *found;
}

static void take(struct run *r, const struct found *found)
{
    struct search *out = r->out;
    const bool bytes = r->options->measure == SEARCH_BYTES;
    if (found->device_bytes <= r->options->limit_bytes)
        note_fitting(r, found);
    if (found->device_bytes > r->options->limit_bytes ||
        (bytes ? found->device_bytes > r->best : found->weight >= r->best))
        return;
    const uint64_t grain = r->options->grain_bytes ? r->options->grain_bytes : 1;
    r->best = !bytes                        ? found->weight
              : found->device_bytes > grain ? found->device_bytes - grain
                                            : 0;
    if (out->front_count && found->step_s <= out->front[out->front_count - 1].step_s * AS_FAST)
        out->front_count--; /* as fast, and takes less */
    ARRAY_GROW(out->front, out->front_count, r->front_cap);
    out->front[out->front_count++] = *found;
}

/* A member with each of the allocator's settings: they differ in memory alone. */
static void verify_some(struct run *r, double until)
{
    struct found batch[VERIFIED_AT_ONCE + AXES_MOST];
    struct groups work = {.batch = {r->c, batch, true, bytes_wanted(r)}};
    uint32_t count = 0;
    while (count < VERIFIED_AT_ONCE && r->heap_count && r->heap[0].step_s <= until) {
        uint64_t points[AXES_MOST];
        const struct found found = heap_pop(r);
        const struct candidate *candidate = candidate_of(r, &found);
        const uint32_t variants =
            member_variants(&r->c->space->grids[candidate->grid], found.point, points);
        const uint32_t first = count;
        for (uint32_t v = 0; v < variants; v++) {
            const uint64_t floor = larger(found.device_floor, *floor_of(r, found.candidate, v));
            if (!is_wanted(r, floor, found.weight))
                continue;
            batch[count] = found;
            batch[count].point = points[v];
            batch[count].weight = weight_of(r, candidate, points[v]);
            count++;
        }
        if (count > first && (first == 0 || batch[first - 1].candidate != found.candidate ||
                              batch[first - 1].step_s != found.step_s))
            work.first[work.count++] = first;
    }
    work.first[work.count] = count;
    pool_run(r->pool, work.count, evaluate_group, &work);
    r->out->verified += count;
    for (uint32_t i = 0; i < count; i++)
        take(r, &batch[i]);
}

/* ---- the whole ---- */

static bool goes_on(struct run *r)
{
    if (!r->options->stop || !*r->options->stop)
        return true;
    r->out->interrupted = true;
    return false;
}

static void count_all(struct run *r)
{
    struct search *out = r->out;
    out->least_floor = out->beyond_host = UINT64_MAX;
    for (uint32_t i = 0; i < r->c->count; i++) {
        const struct candidate *candidate = &r->c->at[i];
        out->configurations += candidate->jobs;
        r->timed += !isinf(candidate->step_floor_s);
        if (candidate->device_floor < out->least_floor)
            out->least_floor = candidate->device_floor;
        if (candidate->device_floor != UINT64_MAX)
            continue;
        const struct frame *frame = r->c->frames[candidate->frame];
        const uint64_t host = frame_host(frame, r->c->classes[candidate->stream_class]);
        if (host > frame->host_limit && host < out->beyond_host)
            out->beyond_host = host;
    }
}

/* What a grid has not is never wanted. */
static void begin_floors(struct run *r)
{
    const struct candidates *c = r->c;
    uint64_t points[AXES_MOST];
    for (uint32_t g = 0; g < c->space->grid_count; g++) {
        const uint32_t variants = member_variants(&c->space->grids[g], 0, points);
        r->variants = variants > r->variants ? variants : r->variants;
    }
    r->floors = xmalloc(((size_t)c->count * r->variants + 1) * sizeof *r->floors);
    r->known = xcalloc(c->count + 1, sizeof *r->known);
    for (uint32_t i = 0; i < c->count; i++) {
        const uint32_t variants = variants_of(r, i);
        for (uint32_t v = 0; v < r->variants; v++)
            *floor_of(r, i, v) = v < variants ? c->at[i].device_floor : UINT64_MAX;
    }
}

void search_run(const struct candidates *c, const struct search_options *options, struct pool *pool,
                struct search *out)
{
    *out = (struct search){.front = NULL};
    struct run r = {.c = c,
                    .options = options,
                    .pool = pool,
                    .out = out,
                    .siblings = siblings_new(c),
                    .raised = options->pools ? 0 : c->count,
                    .fitting = xmalloc((options->next + 1) * sizeof *r.fitting),
                    .best =
                        options->measure == SEARCH_BYTES ? options->limit_bytes + 1 : UINT64_MAX};
    begin_floors(&r);
    count_all(&r);
    while (goes_on(&r)) {
        const double floor = next_floor(&r);
        if (r.heap_count && r.heap[0].step_s <= floor)
            verify_some(&r, floor);
        else if (!isinf(floor))
            simulate_some(&r);
        else
            break;
        if (options->progress)
            options->progress(options->context, fmin(1, (double)r.next / (r.timed + 1)));
    }
    uint64_t simulated = 0;
    for (uint32_t i = 0; i < out->simulated_count; i++) {
        uint64_t points[AXES_MOST];
        const struct candidate *at = candidate_of(&r, &out->simulated[i]);
        simulated += member_variants(&c->space->grids[at->grid], out->simulated[i].point, points);
    }
    out->excluded = out->configurations - simulated;
    free(r.floors);
    free(r.known);
    free(r.fitting);
    siblings_free(r.siblings);
    free(r.members.at);
    free(r.waiting.at);
    free(r.held.at);
    free(r.heap);
}

void search_free(struct search *search)
{
    free(search->front);
    free(search->simulated);
    *search = (struct search){.front = NULL};
}
