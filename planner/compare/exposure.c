/* exposure.c - see exposure.h. */
#include "compare/exposure.h"

#include "base/arena.h"
#include "plan/repeat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sums {
    struct exposure *items;
    uint32_t count, cap;
};

static void add(struct sums *sums, const struct plan *plan, uint32_t id, double seconds)
{
    const struct plan_instruction *i = &plan->instructions[id];
    const uint32_t times = plan_times(plan, id);
    const struct exposure key = {i->op, i->phase, plan_scope_unit(plan, i), times, times * seconds};
    for (uint32_t k = 0; k < sums->count; k++) {
        struct exposure *item = &sums->items[k];
        if (item->op == key.op && item->phase == key.phase && item->unit == key.unit) {
            item->count += key.count;
            item->seconds += key.seconds;
            return;
        }
    }
    ARRAY_GROW(sums->items, sums->count, sums->cap);
    sums->items[sums->count++] = key;
}

/* Of those that run at `when`, the one that ends last; COMPARE_NONE: none does. */
static uint32_t running_at(const struct compare_interval *spans, const uint32_t *collectives,
                           uint32_t count, double when)
{
    uint32_t best = COMPARE_NONE;
    for (uint32_t k = 0; k < count; k++) {
        const struct compare_interval *span = &spans[collectives[k]];
        if (span->begin_s <= when && span->end_s > when &&
            (best == COMPARE_NONE || span->end_s > spans[best].end_s))
            best = collectives[k];
    }
    return best;
}

static void split(const struct plan *plan, const struct compare_interval *spans,
                  const uint32_t *collectives, uint32_t count,
                  const struct compare_interval *exposed, struct sums *sums)
{
    for (double at = exposed->begin_s; at < exposed->end_s;) {
        const uint32_t id = running_at(spans, collectives, count, at);
        if (id == COMPARE_NONE)
            return; /* touching intervals were joined over less than a nanosecond */
        const double end = fmin(spans[id].end_s, exposed->end_s);
        add(sums, plan, id, end - at);
        at = end;
    }
}

static int by_seconds(const void *a, const void *b)
{
    const struct exposure *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? 1 : -1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

uint32_t exposure_of(const struct plan *plan, const struct compare_interval *spans,
                     const struct compare_time *time, struct exposure *out, uint32_t most)
{
    struct sums sums = {NULL, 0, 0};
    uint32_t *collectives = xmalloc((plan->instruction_count + 1) * sizeof *collectives);
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (!isnan(spans[i].begin_s) &&
            plan_op_is_collective((enum plan_op)plan->instructions[i].op))
            collectives[count++] = i;
    for (uint32_t i = 0; i < time->exposed_count; i++)
        split(plan, spans, collectives, count, &time->exposed[i], &sums);
    const uint32_t all = sums.count;
    if (all)
        qsort(sums.items, all, sizeof *sums.items, by_seconds);
    if (all && most)
        memcpy(out, sums.items, (all < most ? all : most) * sizeof *out);
    free(sums.items);
    free(collectives);
    return all;
}
