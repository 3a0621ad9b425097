/* least.c - see least.h. */
#include "search/least.h"

#include "search/nearer.h"
#include "search/tune.h"

#include <math.h>
#include <stdlib.h>

enum { TRIED = 16 }; /* of those that are bounded lowest, each with all of the allocator's */

bool least_is_known(const struct least *least)
{
    return least->found.device_bytes && least->found.device_bytes <= least->bound;
}

static int by_floor(const void *x, const void *y)
{
    const struct found *a = x, *b = y;
    if (a->device_floor != b->device_floor)
        return a->device_floor < b->device_floor ? -1 : 1;
    if (a->candidate != b->candidate)
        return a->candidate < b->candidate ? -1 : 1;
    return a->point < b->point ? -1 : a->point > b->point;
}

/* ---- the least ----
 *
 *     candidates, by floor of their bytes
 *         | the next is above what the least so far takes, and enough of those below it are there
 *         | for what may fit all the same: no more
 *     members, simulated
 *         | floor above that: no more is asked
 *     bytes in full
 *         | less, or as much in a shorter step
 *     least */

enum { EXPANDED_AT_ONCE = 4, VERIFIED_AT_ONCE = 8 };

struct thrift {
    const struct candidates *c;
    const struct search_options *like;
    struct pool *pool;
    uint32_t *order; /* (order_count) candidates by floor of their bytes ... */
    uint32_t order_count, next;
    struct found *at; /* (count) members that were simulated */
    uint32_t count, cap;
    struct found least; /* device_bytes 0: none yet */
};

static bool stopped(const struct thrift *t)
{
    return t->like->stop && *t->like->stop;
}

static int by_bytes(const void *x, const void *y, void *context)
{
    const uint32_t *i = x, *j = y;
    const struct candidate *at = context, *a = &at[*i], *b = &at[*j];
    if (a->device_floor != b->device_floor)
        return a->device_floor < b->device_floor ? -1 : 1;
    return *i < *j ? -1 : *i > *j;
}

static void sort_candidates(struct thrift *t)
{
    t->order = xmalloc((t->c->count + 1) * sizeof *t->order);
    for (uint32_t i = 0; i < t->c->count; i++)
        if (!isinf(t->c->at[i].step_floor_s) && t->c->at[i].device_floor != UINT64_MAX)
            t->order[t->order_count++] = i;
    qsort_r(t->order, t->order_count, sizeof *t->order, by_bytes, t->c->at);
}

static void expand(struct thrift *t, uint32_t index)
{
    const struct candidate *candidate = &t->c->at[index];
    const struct grid *grid = &t->c->space->grids[candidate->grid];
    uint64_t *points = xmalloc(grid->inner_points * sizeof *points);
    const uint32_t count = candidate_members(t->c, candidate, points);
    for (uint32_t i = 0; i < count; i++) {
        ARRAY_GROW(t->at, t->count, t->cap);
        t->at[t->count++] = (struct found){.candidate = index,
                                           .weight = grid_departures(grid, points[i]),
                                           .point = points[i],
                                           .device_floor = candidate->device_floor};
    }
    free(points);
}

static bool is_less(const struct found *a, const struct found *b)
{
    if (b->device_bytes == 0 || a->device_bytes != b->device_bytes)
        return b->device_bytes == 0 || a->device_bytes < b->device_bytes;
    if (a->step_s != b->step_s)
        return a->step_s < b->step_s;
    return a->weight < b->weight;
}

/* Those that may take less than the least so far, each with all of the allocator's settings. */
static void verify(struct thrift *t, const struct found *from, uint32_t count)
{
    struct found batch[VERIFIED_AT_ONCE * AXES_MOST];
    for (uint32_t at = 0; at < count && !stopped(t);) {
        uint32_t full = 0;
        for (uint32_t taken = 0; at < count && taken < VERIFIED_AT_ONCE; at++) {
            uint64_t points[AXES_MOST];
            const struct found *found = &from[at];
            const struct grid *grid = &t->c->space->grids[t->c->at[found->candidate].grid];
            const uint64_t most = t->least.device_bytes;
            if (isinf(found->step_s) || (most && found->device_floor > most))
                continue;
            const uint32_t variants = member_variants(grid, found->point, points);
            taken++;
            for (uint32_t v = 0; v < variants; v++) {
                batch[full] = *found;
                batch[full].point = points[v];
                batch[full++].weight = grid_departures(grid, points[v]);
            }
        }
        search_verify(t->c, t->pool, batch, full, t->least.device_bytes);
        for (uint32_t i = 0; i < full; i++)
            if (batch[i].device_bytes != UINT64_MAX && is_less(&batch[i], &t->least))
                t->least = batch[i];
    }
}

/* Whether what comes next can neither be the least, nor be among those that are bounded lowest. */
static bool is_done(const struct thrift *t)
{
    if (t->next == t->order_count)
        return true;
    const uint64_t floor = t->c->at[t->order[t->next]].device_floor;
    uint32_t lower = 0;
    for (uint32_t i = 0; i < t->count; i++)
        lower += t->at[i].device_floor < floor;
    return t->least.device_bytes && floor > t->least.device_bytes && lower >= TRIED;
}

static void find_least(struct thrift *t)
{
    sort_candidates(t);
    while (!stopped(t) && !is_done(t)) {
        const uint32_t first = t->count;
        for (uint32_t i = 0; i < EXPANDED_AT_ONCE && t->next < t->order_count; i++)
            expand(t, t->order[t->next++]);
        search_simulate(t->c, t->pool, t->at + first, t->count - first);
        if (t->count > first)
            qsort(t->at + first, t->count - first, sizeof *t->at, by_floor);
        verify(t, t->at + first, t->count - first);
        if (t->like->progress)
            t->like->progress(t->like->context, (double)t->next / t->order_count);
    }
}

/* What took too much by its class alone has a bound. */
static struct least least_of(const struct thrift *t, uint64_t least_floor)
{
    struct least least = {.found = t->least, .bound = stopped(t) ? least_floor : UINT64_MAX};
    for (uint32_t i = 0; i < t->c->count; i++)
        if (isinf(t->c->at[i].step_floor_s) && t->c->at[i].device_floor < least.bound)
            least.bound = t->c->at[i].device_floor;
    return least;
}

/* ---- what fits all the same ---- */

struct trying {
    const struct tuned *tuned;
    struct tight_fit *at;
};

static void try_one(void *context, uint32_t i, uint32_t thread)
{
    const struct trying *trying = context;
    struct tight_fit *at = &trying->at[i];
    struct settings settings;
    struct tuned_prediction p;
    (void)thread;
    tuned_settings(trying->tuned, &at->found, &settings);
    if (tuned_predict(trying->tuned, &settings, false, 0, &p, NULL) != ERR_OK)
        return;
    at->fits = p.prediction.fits;
    at->after_release = p.prediction.after_release;
    at->by_clock = p.prediction.by_clock;
    at->device_bytes = p.prediction.device_bytes;
    at->step_s = p.time.timeline.step_s;
    prediction_calls(&p.prediction, &at->mallocs, &at->frees);
    tuned_prediction_free(&p);
}

/* What keeps its segments first, then what departs least from the defaults, then the fastest. */
static bool is_better(const struct tight_fit *a, const struct tight_fit *b)
{
    if (!a->fits || !b->fits)
        return a->fits;
    if (a->after_release != b->after_release)
        return b->after_release;
    if (a->found.weight != b->found.weight)
        return a->found.weight < b->found.weight;
    return a->step_s < b->step_s;
}

static struct tight_fit tightest(struct tuned *out, struct thrift *thrift, struct pool *pool)
{
    struct tight_fit *tried = xcalloc(1 + TRIED * AXES_MOST, sizeof *tried);
    struct tuned *view = xcalloc(1, sizeof *view); /* large: not on the stack */
    struct trying trying = {.tuned = view, .at = tried};
    uint32_t count = out->least.found.device_bytes > 0;
    uint64_t points[AXES_MOST];
    *view = *out;
    tried[0].found = out->least.found;
    if (thrift->count)
        qsort(thrift->at, thrift->count, sizeof *thrift->at, by_floor);
    for (uint32_t i = 0; i < thrift->count && i < TRIED; i++) {
        const struct found *found = &thrift->at[i];
        const struct grid *grid = &out->space.grids[out->candidates.at[found->candidate].grid];
        const uint32_t variants = member_variants(grid, found->point, points);
        for (uint32_t v = 0; v < variants; v++, count++) {
            tried[count] = (struct tight_fit){.found = *found};
            tried[count].found.point = points[v];
            tried[count].found.weight = grid_departures(grid, points[v]);
        }
    }
    if (profile_set_number(&view->machine.profile, PROFILE_CAPACITY, (double)out->most_bytes,
                           NULL) == ERR_OK)
        pool_run(pool, count, try_one, &trying);
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (is_better(&tried[i], &tried[best]))
            best = i;
    const struct tight_fit chosen = tried[best];
    free(tried);
    free(view);
    return chosen;
}

void least_find(struct tuned *out, const struct search_options *like, struct pool *pool)
{
    struct thrift thrift = {.c = &out->candidates, .like = like, .pool = pool};
    find_least(&thrift);
    out->least = least_of(&thrift, out->search.least_floor);
    if (out->least.found.device_bytes && !stopped(&thrift)) /* no more bytes, a step as shown */
        nearer_take(&out->candidates, pool, out->least.found.device_bytes, false,
                    &out->least.found);
    if (!stopped(&thrift))
        out->tight = tightest(out, &thrift, pool);
    free(thrift.order);
    free(thrift.at);
}
