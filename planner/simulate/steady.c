/* steady.c - whether a micro-batch takes as long as the one before it, and so do all after it; see
 * simulate.h.
 *
 * The micro-batch that repeats and its predecessor have the same tasks. If each of these begins and
 * ends one period later, streams, links and collectives are one period later where they were, and
 * the next micro-batch finds them so again. The host may be further ahead by then: what it has
 * issued in time stays issued in time. A host that needs longer than the period is still caught
 * up with some time later, and is not steady. Nor is one that gets ahead as long as anything behind
 * the micro-batches (an optimizer of many small kernels) still waits for it: that would wait for
 * less after more of them. */
#include "simulate/simulation.h"

#include <math.h>

/* Seconds are sums of thousands of kernels' times: two equal ones differ by their rounding. */
#define STEADY_TOLERANCE 1e-11

struct moments { /* of a task and of the same one a micro-batch later */
    double earlier, later;
};

/* Records and waits take nothing from anybody: those of an idle stream may pass sooner and sooner,
 * as the host gets ahead. */
static bool is_later(struct moments m, double period_s, bool at_most, double tolerance_s)
{
    const double over_s = m.later - m.earlier - period_s;
    return over_s <= tolerance_s && (at_most || over_s >= -tolerance_s);
}

/* A kernel of the compute stream's, or a span of them: outlines may have nothing else there. */
static bool runs_compute(const struct task *task)
{
    return task->lane == LANE_COMPUTE && (task->kind == TASK_RUN || task->kind == TASK_SPAN);
}

/* Whether the host met the device there: what it does from then on depends on that alone. */
static bool host_waited(const struct simulation *s, const struct timeline *t, uint32_t i)
{
    const struct task *task = &s->tasks[i];
    if (task->lane != LANE_HOST)
        return false;
    if (task->idle)
        return i > 0 && t->begin_s[i] > t->issue_s[i - 1];
    return task->after != NEVER && t->begin_s[i] <= t->end_s[task->after];
}

/* Whether a kernel behind the micro-batches that repeat begins when the host has issued it, and no
 * wait of the host's own comes before. */
static bool rest_waits_for_host(const struct simulation *s, const struct timeline *t,
                                double tolerance_s)
{
    for (uint32_t i = s->repeat[1]; i < s->count && !host_waited(s, t, i); i++) {
        const struct task *task = &s->tasks[i];
        const bool runs = task->kind == TASK_RUN || task->kind == TASK_SPAN;
        if (runs && task->lane != LANE_HOST && t->begin_s[i] <= t->issue_s[i] + tolerance_s)
            return true;
    }
    return false;
}

bool simulation_is_steady(const struct simulation *s, const struct timeline *t, double *period_s)
{
    const uint32_t first = s->repeat[0], count = s->repeat[1] - first;
    const double tolerance_s = STEADY_TOLERANCE * t->step_s;
    if (count == 0 || first < count)
        return false;
    uint32_t compute = first; /* its first kernel of the model's */
    while (compute < s->repeat[1] && !runs_compute(&s->tasks[compute]))
        compute++;
    if (compute == s->repeat[1])
        return false;
    const double period = t->begin_s[compute] - t->begin_s[compute - count];
    for (uint32_t i = first; i < s->repeat[1]; i++) {
        const struct task *task = &s->tasks[i], *same = &s->tasks[i - count];
        const bool passes = task->kind == TASK_RECORD || task->kind == TASK_WAIT;
        const struct moments issue = {t->issue_s[i - count], t->issue_s[i]};
        const struct moments begin = {t->begin_s[i - count], t->begin_s[i]};
        const struct moments end = {t->end_s[i - count], t->end_s[i]};
        if (task->lane != same->lane || task->kind != same->kind ||
            !is_later(issue, period, true, tolerance_s) ||
            !is_later(begin, period, passes, tolerance_s) ||
            !is_later(end, period, passes, tolerance_s))
            return false;
    }
    *period_s = period;
    const uint32_t last = s->repeat[1] - 1;
    const bool gets_ahead = t->issue_s[last] - t->issue_s[last - count] < period - tolerance_s;
    return !gets_ahead || !rest_waits_for_host(s, t, tolerance_s);
}

void simulation_delay(const struct simulation *s, double seconds, struct timeline *t)
{
    for (uint32_t i = s->repeat[1]; i < s->count; i++) {
        t->issue_s[i] += seconds;
        t->begin_s[i] += seconds;
        t->end_s[i] += seconds;
    }
    t->step_s += seconds;
}
