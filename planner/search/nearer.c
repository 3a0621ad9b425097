/* nearer.c - see nearer.h. */
#include "search/nearer.h"

bool is_as_good(double step_s, uint64_t bytes, double than_s, uint64_t than_bytes)
{
    return step_s < than_s * (1 + SHOWN_STEP) && bytes < than_bytes + SHOWN_BYTES;
}

bool nearer_take_less(struct found *chosen, double first_s, const struct found *others,
                      uint32_t count)
{
    const uint64_t before = chosen->device_bytes;
    for (uint32_t i = 0; i < count; i++)
        if (others[i].step_s < first_s * (1 + SHOWN_STEP) &&
            others[i].device_bytes + SHOWN_BYTES <= chosen->device_bytes)
            *chosen = others[i];
    return chosen->device_bytes != before;
}

uint32_t nearer_points(const struct grid *grid, uint64_t point, uint64_t points[AXES_MOST])
{
    uint32_t count = 0;
    for (uint32_t a = 0; a < grid->axis_count; a++) {
        const struct grid_axis *axis = &grid->axes[a];
        if (axis->usual < axis->count && grid_digit(grid, point, a) != axis->usual)
            points[count++] = grid_with(grid, point, a, axis->usual);
    }
    return count;
}

/* Those that are possible and may fit, to be simulated. Returns their number. */
static uint32_t nearer_found(const struct candidates *c, uint64_t limit_bytes, bool within,
                             const struct found *from, struct found to[AXES_MOST])
{
    uint64_t points[AXES_MOST];
    const uint32_t index = c->at[from->candidate].grid;
    const struct grid *grid = &c->space->grids[index];
    const uint32_t count = nearer_points(grid, from->point, points);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t candidate = candidates_find(c, index, points[i]);
        if (candidate < c->count && (!within || candidate == from->candidate) &&
            c->at[candidate].device_floor <= limit_bytes &&
            c->at[candidate].step_floor_s < from->step_s * (1 + SHOWN_STEP))
            to[kept++] = (struct found){.candidate = candidate,
                                        .point = points[i],
                                        .weight = grid_departures(grid, points[i])};
    }
    return kept;
}

/* One setting fewer, in place; false: none can be put back. */
static bool take_one(const struct candidates *c, struct pool *pool, uint64_t limit_bytes,
                     bool within, struct found *found)
{
    struct found to[AXES_MOST];
    const struct found *best = NULL;
    const uint32_t count = nearer_found(c, limit_bytes, within, found, to);
    uint32_t kept = 0;
    search_simulate(c, pool, to, count);
    for (uint32_t i = 0; i < count; i++)
        if (is_as_good(to[i].step_s, to[i].device_floor, found->step_s, found->device_bytes))
            to[kept++] = to[i];
    search_verify(c, pool, to, kept, limit_bytes);
    for (uint32_t i = 0; i < kept; i++)
        if (to[i].device_bytes <= limit_bytes &&
            is_as_good(to[i].step_s, to[i].device_bytes, found->step_s, found->device_bytes) &&
            (!best || to[i].step_s < best->step_s))
            best = &to[i];
    if (best)
        *found = *best;
    return best;
}

void nearer_take(const struct candidates *c, struct pool *pool, uint64_t limit_bytes, bool within,
                 struct found *found)
{
    while (take_one(c, pool, limit_bytes, within, found))
        continue;
}

uint32_t nearer_front(const struct candidates *c, struct pool *pool, uint64_t limit_bytes,
                      struct found *front, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct found found = front[i];
        nearer_take(c, pool, limit_bytes, false, &found);
        if (kept && found.device_bytes >= front[kept - 1].device_bytes)
            continue;
        if (kept && found.step_s <= front[kept - 1].step_s)
            kept--;
        front[kept++] = found;
    }
    return kept;
}
