/* members.c - the points that a candidate stands for; see candidates.h. */
#include "search/candidates.h"

#include "search/keys.h"

#include <stdlib.h>

uint32_t member_variants(const struct grid *grid, uint64_t point, uint64_t points[AXES_MOST])
{
    uint32_t count = 0;
    points[count++] = point;
    for (uint32_t a = grid->inner; a < grid->axis_count; a++)
        for (uint32_t d = 1; grid->axes[a].row->allocator && d < grid->axes[a].count; d++)
            points[count++] = grid_with(grid, point, a, d);
    return count;
}

uint32_t candidate_members(const struct candidates *c, const struct candidate *candidate,
                           uint64_t *points)
{
    const struct grid *grid = &c->space->grids[candidate->grid];
    const uint64_t first = candidate->outer * grid->inner_points;
    struct key *seen = xmalloc(grid->inner_points * sizeof *seen);
    struct settings settings;
    uint32_t count = 0;
    grid_settings(grid, first, &settings);
    for (uint64_t m = 0; m < grid->inner_points; m++) {
        bool own = true;
        for (uint32_t a = grid->inner; a < grid->axis_count && own; a++)
            own = !grid->axes[a].row->allocator || grid_digit(grid, first + m, a) == 0;
        if (!own)
            continue;
        grid_settings_within(grid, m, &settings);
        struct strategy strategy = settings.job.strategy;
        strategy_simplify(&strategy, c->blocks);
        const struct key key = key_of((struct key){1, 2}, &strategy, sizeof strategy);
        for (uint32_t i = 0; i < count && own; i++)
            own = seen[i].a != key.a || seen[i].b != key.b;
        if (!own)
            continue;
        seen[count] = key;
        points[count++] = first + m;
    }
    free(seen);
    return count;
}

uint64_t candidate_jobs(const struct candidates *c, const struct candidate *candidate)
{
    const struct grid *grid = &c->space->grids[candidate->grid];
    uint64_t *points = xmalloc(grid->inner_points * sizeof *points), count = 1;
    const uint32_t members = candidate_members(c, candidate, points);
    for (uint32_t a = grid->inner; a < grid->axis_count; a++)
        count *= grid->axes[a].row->allocator ? grid->axes[a].count : 1;
    free(points);
    return members * count;
}
