/* compare_gaps.c - when the compute lane stood still, and what for.
 *
 *     compute     |==mm==|            |==mm==|
 *     all_gather    |=====gather=====|
 *                        ^---gap-----^  before mm, for the gather
 *
 * We walk the program as the host does and note for each stream the piece of recorded work that
 * what comes next has to wait for: its own last kernel or, after a wait, the kernel behind the
 * event when that ended later. That the wait ended a gap shows in the recorded times: the awaited
 * kernel ran through most of the gap. Else the lane was waiting for the host to launch. */
#include "compare/compare_parts.h"

#include <math.h>
#include <stdlib.h>

#define CLOCK_S 0.5e-9 /* files keep nanoseconds: less than half of one is rounding */

struct walk {
    const struct plan *plan;
    const struct compare_interval *spans;
    uint32_t last[LANES_MOST]; /* what the next kernel of the stream waits for */
    uint32_t *events;          /* (event_count) what a wait for the event waits for */
    struct compare_gap *gaps;
    uint32_t gap_count;
    double busy_until_s; /* of the compute lane */
};

static bool ends_later(const struct walk *walk, uint32_t a, uint32_t b)
{
    if (a == COMPARE_NONE)
        return false;
    return b == COMPARE_NONE || walk->spans[a].end_s > walk->spans[b].end_s;
}

static uint32_t blame(const struct walk *walk, double begin_s, double end_s)
{
    const uint32_t awaited = walk->last[LANE_COMPUTE];
    if (awaited == COMPARE_NONE || walk->plan->instructions[awaited].lane == LANE_COMPUTE)
        return COMPARE_NONE;
    return walk->spans[awaited].end_s >= 0.5 * (begin_s + end_s) ? awaited : COMPARE_NONE;
}

static void pass_kernel(struct walk *walk, uint32_t id)
{
    const uint8_t stream = walk->plan->instructions[id].lane;
    const struct compare_interval *span = &walk->spans[id];
    if (isnan(span->begin_s))
        return;
    if (stream == LANE_COMPUTE) {
        if (span->begin_s > walk->busy_until_s + CLOCK_S)
            walk->gaps[walk->gap_count++] = (struct compare_gap){
                .when = {walk->busy_until_s, span->begin_s},
                .next = id,
                .waited_for = blame(walk, walk->busy_until_s, span->begin_s),
            };
        walk->busy_until_s = fmax(walk->busy_until_s, span->end_s);
    }
    walk->last[stream] = id;
}

static void pass(struct walk *walk, uint32_t id)
{
    const struct plan_instruction *instruction = &walk->plan->instructions[id];
    uint32_t *last = &walk->last[instruction->lane];
    if (instruction->op == PLAN_RECORD)
        walk->events[instruction->arg] = *last;
    else if (instruction->op == PLAN_WAIT &&
             ends_later(walk, walk->events[instruction->arg], *last))
        *last = walk->events[instruction->arg];
    else if (plan_op_is_kernel((enum plan_op)instruction->op))
        pass_kernel(walk, id);
}

static int longest_first(const void *a, const void *b)
{
    const struct compare_gap *x = a, *y = b;
    const double p = x->when.end_s - x->when.begin_s, q = y->when.end_s - y->when.begin_s;
    if (p != q)
        return p < q ? 1 : -1;
    return (x->next > y->next) - (x->next < y->next);
}

void compare_gaps(const struct plan *plan, const struct compare_interval *spans,
                  struct arena *arena, const struct compare_gap **out, uint32_t *count)
{
    struct walk walk = {
        .plan = plan,
        .spans = spans,
        .events = arena_alloc(arena, (plan->event_count + 1) * sizeof *walk.events),
        .gaps = arena_alloc(arena, plan->instruction_count * sizeof *walk.gaps),
    };
    for (uint32_t s = 0; s < plan->lane_count; s++)
        walk.last[s] = COMPARE_NONE;
    for (uint32_t e = 0; e < plan->event_count; e++)
        walk.events[e] = COMPARE_NONE; /* of the step before: long past */
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (compare_runs(plan, i))
            pass(&walk, i);
    qsort(walk.gaps, walk.gap_count, sizeof *walk.gaps, longest_first);
    *out = walk.gaps;
    *count = walk.gap_count;
}
