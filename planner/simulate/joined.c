/* joined.c - see joined.h. */
#include "simulate/joined.h"

#include "simulate/periods.h"
#include "simulate/sequence.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct joiner {
    const struct simulation *from;
    const struct costs *costs;
    struct simulation *to;
    const struct cost **spanned; /* of the kernels in spans, in order */
    uint32_t spanned_count;
    uint32_t *now; /* (tasks of `from`) which task of `to` each is, or is in */
};

static const struct cost *cost_of_task(const struct joiner *j, const struct task *task)
{
    return &j->costs->kernels[task->kernel - j->costs->first];
}

/* Whether it begins as soon as the one before it has ended. What comes behind the micro-batches
 * that repeat is looked at one by one (simulation_is_steady). */
static bool may_join(const struct joiner *j, uint32_t i)
{
    const struct task *task = &j->from->tasks[i];
    if (task->kind != TASK_RUN || task->lane != LANE_COMPUTE || task->collective ||
        task->after != NEVER || (j->from->repeat[1] && i >= j->from->repeat[1]))
        return false;
    const struct cost *cost = cost_of_task(j, task);
    return !cost->first && cost->class < SEQUENCE_PARTS;
}

/* Micro-batches are compared task by task. */
static bool begins_micro_batch(const struct simulation *s, uint32_t i)
{
    const uint32_t count = s->repeat[1] - s->repeat[0];
    return count > 0 && (i == s->repeat[0] || i + count == s->repeat[0] || i == s->repeat[1]);
}

static uint32_t end_of_span(const struct joiner *j, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < j->from->count && may_join(j, end) && !begins_micro_batch(j->from, end))
        end++;
    return end;
}

/* From task `first` on; returns the first that is not in it. */
static uint32_t add_span(struct joiner *j, uint32_t first)
{
    const uint32_t end = end_of_span(j, first), at = j->to->count++;
    struct task *task = &j->to->tasks[at];
    *task = j->from->tasks[first];
    task->kind = TASK_SPAN;
    task->kernel = j->spanned_count;
    task->count = end - first;
    for (uint32_t i = first; i < end; i++) {
        j->spanned[j->spanned_count++] = cost_of_task(j, &j->from->tasks[i]);
        j->now[i] = at;
    }
    return end;
}

static uint32_t add_alone(struct joiner *j, uint32_t i)
{
    const uint32_t at = j->to->count++;
    struct task *task = &j->to->tasks[at];
    *task = j->from->tasks[i];
    if (task->after != NEVER)
        task->after = j->now[task->after];
    j->now[i] = at;
    return i + 1;
}

static void add_tasks(struct joiner *j)
{
    const struct simulation *from = j->from;
    struct simulation *to = j->to;
    for (uint32_t i = 0; i < from->count;)
        i = may_join(j, i) ? add_span(j, i) : add_alone(j, i);
    for (int end = 0; end < 2 && from->repeat[1]; end++)
        to->repeat[end] = from->repeat[end] < from->count ? j->now[from->repeat[end]] : to->count;
}

struct joined joined_new(const struct simulation *from, const struct costs *costs)
{
    assert(!costs->sequence);
    struct simulation *to = xmalloc(sizeof *to);
    *to = (struct simulation){.tasks = xmalloc(from->count * sizeof *to->tasks + 1),
                              .lane_count = from->lane_count,
                              .kernel_end = from->kernel_end};
    struct joiner j = {.from = from,
                       .costs = costs,
                       .to = to,
                       .spanned = xmalloc((from->count + 1) * sizeof(const struct cost *)),
                       .now = xmalloc((from->count + 1) * sizeof *j.now)};
    add_tasks(&j);
    to->queue = xmalloc(to->count * sizeof *to->queue + 1);
    simulation_fill_queues(to);
    struct joined joined = {to, *costs};
    joined.costs.sequence = sequence_of_costs(j.spanned, j.spanned_count);
    free(j.spanned);
    free(j.now);
    to->alike = periods_find(to, &joined.costs);
    to->alike_known = true;
    return joined;
}

void joined_free(struct joined *joined)
{
    sequence_free(joined->costs.sequence);
    simulation_free(joined->simulation);
    *joined = (struct joined){.simulation = NULL};
}
