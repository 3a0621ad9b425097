/* least.c - see least.h. */
#include "search/least.h"

#include "search/tune.h"

#include <math.h>
#include <stdlib.h>

enum { TRIED = 16 }; /* of those that are bounded lowest, each with all of the allocator's */

bool least_is_known(const struct least *least)
{
    return least->found.device_bytes && least->found.device_bytes <= least->bound;
}

/* The end of a front without a limit; what took too much by its class alone has a bound. */
static struct least least_of(const struct candidates *c, const struct search *all)
{
    struct least least = {.bound = all->interrupted ? all->least_floor : UINT64_MAX};
    if (all->front_count)
        least.found = all->front[all->front_count - 1];
    for (uint32_t i = 0; i < c->count; i++)
        if (isinf(c->at[i].step_floor_s) && c->at[i].device_floor < least.bound)
            least.bound = c->at[i].device_floor;
    return least;
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

static struct tight_fit tightest(struct tuned *out, struct search *all, struct pool *pool)
{
    struct tight_fit tried[1 + TRIED * AXES_MOST] = {{.found = out->least.found}};
    struct tuned view = *out;
    struct trying trying = {.tuned = &view, .at = tried};
    uint32_t count = out->least.found.device_bytes > 0;
    uint64_t points[AXES_MOST];
    if (all->simulated_count)
        qsort(all->simulated, all->simulated_count, sizeof *all->simulated, by_floor);
    for (uint32_t i = 0; i < all->simulated_count && i < TRIED; i++) {
        const struct found *found = &all->simulated[i];
        const struct grid *grid = &out->space.grids[out->candidates.at[found->candidate].grid];
        const uint32_t variants = member_variants(grid, found->point, points);
        for (uint32_t v = 0; v < variants; v++, count++) {
            tried[count] = (struct tight_fit){.found = *found};
            tried[count].found.point = points[v];
            tried[count].found.weight = grid_departures(grid, points[v]);
        }
    }
    if (profile_set_number(&view.machine.profile, PROFILE_CAPACITY, (double)out->most_bytes,
                           NULL) == ERR_OK)
        pool_run(pool, count, try_one, &trying);
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (is_better(&tried[i], &tried[best]))
            best = i;
    return tried[best];
}

void least_find(struct tuned *out, const struct search_options *like, struct pool *pool)
{
    struct search all;
    struct search_options options = *like;
    options.measure = SEARCH_BYTES;
    options.limit_bytes = UINT64_MAX - 1;
    options.grain_bytes = 1;
    options.next = 0;
    options.pools = false; /* the sixteen that are bounded lowest are of all */
    search_run(&out->candidates, &options, pool, &all);
    out->least = least_of(&out->candidates, &all);
    if (!all.interrupted)
        out->tight = tightest(out, &all, pool);
    search_free(&all);
}
