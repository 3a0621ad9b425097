/* judged.c - see judged.h. */
#include "search/judged.h"

#include "job/step_time.h"
#include "settings/settings_resolve.h"

#include <stdlib.h>

struct judging {
    const struct candidates *candidates;
    uint64_t limit_bytes;
    struct judged *at; /* (count) */
};

/* The allocator is a machine's, and settings change it. */
static struct machine with_allocator(const struct machine *machine, const struct settings *settings)
{
    struct machine own = *machine;
    own.expandable_segments = settings->expandable_segments;
    return own;
}

void judge(struct judged *j, const struct model_config *config, const struct machine *machine,
           uint64_t limit_bytes)
{
    struct job job;
    struct prediction p;
    struct step_time time;
    const struct machine own = with_allocator(machine, &j->settings);
    j->fits = false;
    if (settings_job(&j->settings, config, &job, NULL) != ERR_OK ||
        predict_few(&job, &own, &p, NULL) != ERR_OK)
        return;
    if (p.fits && p.device_bytes <= limit_bytes &&
        step_time(&p, &job, &own, 0, &time, NULL) == ERR_OK) {
        j->found = (struct found){.device_bytes = p.device_bytes, .step_s = time.timeline.step_s};
        j->host_bytes = p.host_needed_bytes / (p.host_ranks ? p.host_ranks : 1);
        j->after_release = p.after_release;
        j->fits = true;
        step_time_free(&time);
    }
    prediction_free(&p);
}

bool device_is_tight(const struct machine *machine, uint64_t device_bytes)
{
    const double capacity = profile_value(&machine->profile, PROFILE_CAPACITY);
    return capacity - (double)device_bytes < RESERVED_ERROR * capacity;
}

bool judge_is_tight(const struct settings *settings, const struct model_config *config,
                    const struct machine *machine)
{
    struct job job;
    struct prediction p;
    const struct machine own = with_allocator(machine, settings);
    if (settings_job(settings, config, &job, NULL) != ERR_OK ||
        predict_few(&job, &own, &p, NULL) != ERR_OK)
        return false;
    const bool tight = predict_clocked(&p, &own, NULL) == ERR_OK && p.tight;
    prediction_free(&p);
    return tight;
}

static void judge_one(void *context, uint32_t i, uint32_t thread)
{
    const struct judging *judging = context;
    (void)thread;
    judge(&judging->at[i], judging->candidates->config, judging->candidates->machine,
          judging->limit_bytes);
}

struct near { /* a candidate's member that changes least */
    uint64_t point;
    uint32_t candidate, changes;
};

static struct near nearest_of(const struct candidates *c, uint32_t candidate)
{
    const struct grid *grid = &c->space->grids[c->at[candidate].grid];
    uint64_t point = c->at[candidate].outer * grid->inner_points;
    for (uint32_t a = grid->inner; a < grid->axis_count; a++)
        if (grid->axes[a].present < grid->axes[a].count)
            point = grid_with(grid, point, a, grid->axes[a].present);
    return (struct near){point, candidate, grid_changes(grid, point)};
}

/* Candidates are in the order of what their steps last at the least. */
static int by_changes(const void *x, const void *y)
{
    const struct near *a = x, *b = y;
    if (a->changes != b->changes)
        return a->changes < b->changes ? -1 : 1;
    return a->candidate < b->candidate ? -1 : a->candidate > b->candidate;
}

uint32_t judge_nearest(const struct candidates *c, uint64_t limit_bytes, struct pool *pool,
                       struct judged *out)
{
    struct near *all = xmalloc((c->count + 1) * sizeof *all);
    uint32_t count = c->count < JUDGED ? c->count : JUDGED;
    for (uint32_t i = 0; i < c->count; i++)
        all[i] = nearest_of(c, i);
    qsort(all, c->count, sizeof *all, by_changes);
    for (uint32_t i = 0; i < count; i++)
        grid_settings(&c->space->grids[c->at[all[i].candidate].grid], all[i].point,
                      &out[i].settings);
    free(all);
    struct judging judging = {c, limit_bytes, out};
    pool_run(pool, count, judge_one, &judging);
    return count;
}
