/* grid.c - points of a grid, and what they are as settings; see space.h. */
#include "search/space_said.h"

#include <string.h>

uint32_t axis_find(const struct grid_axis *axis, const char *text)
{
    uint32_t i = 0;
    while (i < axis->count && (!text || strcmp(axis->values[i].text, text) != 0))
        i++;
    return i;
}

uint64_t grid_count_points(const struct grid *grid, uint32_t from, uint32_t to)
{
    uint64_t points = 1;
    for (uint32_t a = from; a < to; a++)
        points *= grid->axes[a].count;
    return points;
}

static uint64_t stride_of(const struct grid *grid, uint32_t axis)
{
    return grid_count_points(grid, axis + 1, grid->axis_count);
}

uint32_t grid_digit(const struct grid *grid, uint64_t point, uint32_t axis)
{
    return (uint32_t)(point / stride_of(grid, axis) % grid->axes[axis].count);
}

uint64_t grid_with(const struct grid *grid, uint64_t point, uint32_t axis, uint32_t digit)
{
    const uint64_t stride = stride_of(grid, axis), old = grid_digit(grid, point, axis);
    return point - old * stride + digit * stride;
}

/* The axes from `first` to before `end`: their part of a point, into settings. */
static void put_axes(const struct grid *grid, uint32_t first, uint32_t end, uint64_t part,
                     struct settings *out)
{
    for (uint32_t a = end; a-- > first; part /= grid->axes[a].count) {
        const struct grid_axis *axis = &grid->axes[a];
        const struct settings *with = &axis->values[part % axis->count].with;
        setting_copy(axis->row, with, out);
        if (axis->follows)
            setting_copy(axis->follows, with, out);
    }
}

void grid_settings(const struct grid *grid, uint64_t point, struct settings *out)
{
    *out = grid->base;
    put_axes(grid, 0, grid->axis_count, point, out);
}

void grid_settings_within(const struct grid *grid, uint64_t inner, struct settings *out)
{
    put_axes(grid, grid->inner, grid->axis_count, inner, out);
}

void grid_chosen(const struct grid *grid, uint64_t point, struct settings *out)
{
    *out = grid->base;
    for (uint32_t a = 0; a < grid->axis_count; a++) {
        const struct grid_axis *axis = &grid->axes[a];
        const uint32_t digit = grid_digit(grid, point, a);
        const struct grid_value *value = &axis->values[digit];
        char text[NUMBER_TEXT];
        if (axis->follows && value->with.job.strategy.accumulate != 1)
            (void)settings_set(out, axis->follows->name,
                               setting_read(axis->follows, &value->with, text), NULL);
        if (axis->follows)
            setting_copy(axis->follows, &value->with, out);
        if (digit != axis->usual || settings_is_given(&grid->base, axis->row))
            (void)settings_set(out, axis->row->name, value->text, NULL);
        else
            setting_copy(axis->row, &value->with, out);
    }
}

/* Of the axes from `from` to before `to`, whose digits these are, those on which a point is not as
 * asked for (`present`) or not at the framework's default. */
static uint32_t count_away(const struct grid *grid, uint64_t digits, uint32_t from, uint32_t to,
                           bool present)
{
    uint32_t count = 0;
    for (uint32_t a = to; a-- > from; digits /= grid->axes[a].count) {
        const struct grid_axis *axis = &grid->axes[a];
        count += digits % axis->count != (present ? axis->present : axis->usual);
    }
    return count;
}

uint32_t grid_departures(const struct grid *grid, uint64_t point)
{
    return count_away(grid, point, 0, grid->axis_count, false);
}

uint32_t grid_inner_departures(const struct grid *grid, uint64_t inner)
{
    return count_away(grid, inner, grid->inner, grid->axis_count, false);
}

uint32_t grid_changes(const struct grid *grid, uint64_t point)
{
    return grid->other_system + count_away(grid, point, 0, grid->axis_count, true);
}

uint64_t grid_outer_within(const struct grid *grid, uint64_t outer, uint32_t most)
{
    while (outer < grid->outer_points && grid->other_system <= most) {
        uint64_t stride = grid->outer_points;
        uint32_t changes = grid->other_system, a = 0;
        for (; a < grid->inner && changes <= most; a++) {
            const struct grid_axis *axis = &grid->axes[a];
            stride /= axis->count;
            changes += outer / stride % axis->count != axis->present;
        }
        if (changes <= most)
            return outer;
        outer = (outer / stride + 1) * stride; /* whatever comes behind that axis */
    }
    return grid->outer_points;
}

uint64_t space_place(const struct space *space, uint32_t grid, uint64_t outer)
{
    uint64_t place = outer;
    for (uint32_t g = 0; g < grid; g++)
        place += space->grids[g].outer_points;
    return place;
}
