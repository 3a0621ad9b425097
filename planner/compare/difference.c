/* difference.c - settings and times of two plans; see difference.h. Units: difference_units.c. */
#include "compare/difference.h"

#include "compare/compare_parts.h"
#include "compare/difference_parts.h"
#include "plan/repeat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings ---- */

static void add_setting(struct difference *d, const char *name, const json_t *a, const json_t *b)
{
    d->settings[d->setting_count++] = (struct difference_setting){name, {a, b}};
}

static void compare_settings(const struct difference_side side[SIDES], struct difference *d)
{
    const json_t *a = side[0].settings, *b = side[1].settings;
    const char *name;
    json_t *value;
    d->settings =
        arena_alloc(&d->arena, (json_object_size(a) + json_object_size(b)) * sizeof *d->settings);
    json_object_foreach((json_t *)(uintptr_t)a, name, value)
    {
        const json_t *other = json_object_get(b, name);
        if (!other || !json_equal(value, other))
            add_setting(d, name, value, other);
    }
    json_object_foreach((json_t *)(uintptr_t)b, name, value)
    {
        if (!json_object_get(a, name))
            add_setting(d, name, NULL, value);
    }
}

/* ---- lanes and kinds ---- */

struct totals {
    struct difference_total *items;
    uint32_t count, cap;
};

static void add_to(struct totals *totals, const char *name, int s, uint32_t times, double seconds)
{
    uint32_t i = 0;
    while (i < totals->count && strcmp(totals->items[i].name, name) != 0)
        i++;
    if (i == totals->count) {
        ARRAY_GROW(totals->items, totals->count, totals->cap);
        totals->items[totals->count++] = (struct difference_total){.name = name};
    }
    totals->items[i].count[s] += times;
    totals->items[i].seconds[s] += times * seconds;
}

static int by_seconds_apart(const void *a, const void *b)
{
    const struct difference_total *x = a, *y = b;
    const double of_x = fabs(x->seconds[1] - x->seconds[0]);
    const double of_y = fabs(y->seconds[1] - y->seconds[0]);
    if (of_x != of_y)
        return of_x < of_y ? 1 : -1;
    return strcmp(x->name, y->name);
}

static struct difference_total *keep(struct arena *arena, struct totals *totals)
{
    struct difference_total *kept = arena_alloc(arena, totals->count * sizeof *kept);
    if (totals->count)
        memcpy(kept, totals->items, totals->count * sizeof *kept);
    free(totals->items);
    return kept;
}

static void compare_times(const struct difference_side side[SIDES], struct difference *d)
{
    struct totals lanes = {NULL, 0, 0}, kinds = {NULL, 0, 0};
    for (int s = 0; s < SIDES; s++) {
        const struct plan *plan = side[s].plan;
        for (uint32_t i = 0; i < plan->instruction_count; i++) {
            const struct plan_instruction *instruction = &plan->instructions[i];
            if (!plan_op_is_kernel((enum plan_op)instruction->op) ||
                (instruction->flags & PLAN_FIRST_STEP))
                continue;
            const double seconds = difference_seconds(&side[s], i);
            const uint32_t times = plan_times(plan, i);
            add_to(&lanes, plan->lanes[instruction->lane].name, s, times, seconds);
            add_to(&kinds, compare_kind_of(plan, instruction), s, times, seconds);
        }
    }
    d->lane_count = lanes.count;
    d->kind_count = kinds.count;
    d->lanes = keep(&d->arena, &lanes);
    d->kinds = keep(&d->arena, &kinds);
    if (d->kind_count)
        qsort(d->kinds, d->kind_count, sizeof *d->kinds, by_seconds_apart);
}

void difference_of(const struct difference_side side[SIDES], struct difference *out)
{
    *out = (struct difference){.timed = true};
    for (int s = 0; s < SIDES; s++)
        out->timed = out->timed && json_object_get(side[s].time, "instruction_s");
    compare_settings(side, out);
    compare_times(side, out);
    difference_units(side, out);
}

void difference_free(struct difference *difference)
{
    arena_free(&difference->arena);
}
