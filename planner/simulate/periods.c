/* periods.c - see periods.h. */
#include "simulate/periods.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of the time that has passed: two equal distances from it differ by their rounding. */
#define ALIKE 1e-13

enum {
    LOOKED_BACK = 16, /* spans in which the one that is like this one is looked for */
    MOMENTS = 16,     /* that are remembered: spans of a period that it can begin with, at most */
    FEWEST = 3,       /* periods in a row that are worth a look */
};

struct range { /* tasks first ... end - 1: each is like the one `period` before, from first + period
                  on */
    uint32_t first, end, period;
};

struct moment {    /* what the simulator is like */
    uint32_t task; /* the span that begins on the compute stream; NEVER: nothing is noted */
    uint32_t running;
    double now;
    struct lane lanes[LANES_MOST];
    double spent_s[SPENT_COUNT], communication_s;
};

struct periods {
    struct range *ranges; /* (range_count) in order, apart from each other */
    uint32_t range_count, range_cap;
    uint32_t at; /* the range that the compute stream is in, or comes to next */
    uint32_t next_moment;
    struct moment moments[MOMENTS];
};

/* ---- which tasks are alike ---- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15U; /* Knuth's multiplicative hashing */
    return hash ^ hash >> 29;
}

struct signatures {
    uint64_t *of_tasks;   /* (tasks) what each is, wherever it stands */
    uint64_t *of_kernels; /* (kernels with costs of their own) 0: not worked out yet */
};

static uint64_t kernel_signature(const struct costs *costs, uint32_t kernel,
                                 struct signatures *signatures)
{
    uint64_t *known = &signatures->of_kernels[kernel - costs->first];
    if (*known == 0)
        *known = cost_signature(&costs->kernels[kernel - costs->first]) | 1;
    return *known;
}

static uint64_t signature(const struct simulation *s, const struct costs *costs, uint32_t i,
                          struct signatures *signatures)
{
    const struct task *task = &s->tasks[i];
    const uint64_t behind = task->after == NEVER ? 0 : i - task->after;
    const uint64_t hash =
        mix(behind, (uint64_t)task->kind << 16 | (uint64_t)task->lane << 8 | task->collective);
    if (task->kind == TASK_SPAN)
        return mix(hash, sequence_signature(costs->sequence, task->kernel, task->count));
    if (task->kind == TASK_RUN)
        return mix(hash, kernel_signature(costs, task->kernel, signatures));
    return hash;
}

static struct signatures signatures_new(const struct simulation *s, const struct costs *costs)
{
    const uint32_t kernels = s->kernel_end > costs->first ? s->kernel_end - costs->first : 0;
    struct signatures signatures = {
        .of_tasks = xmalloc((s->count + 1) * sizeof *signatures.of_tasks),
        .of_kernels = xcalloc(kernels + 1, sizeof *signatures.of_kernels),
    };
    for (uint32_t i = 0; i < s->count; i++)
        signatures.of_tasks[i] = signature(s, costs, i, &signatures);
    return signatures;
}

static bool begins_period(const struct task *task)
{
    return task->kind == TASK_SPAN && task->lane == LANE_COMPUTE;
}

/* From `first` on, as far as each is like the one `period` before it. */
static uint32_t end_of(const uint64_t *signatures, uint32_t count, uint32_t first, uint32_t period)
{
    uint32_t end = first + period;
    while (end < count && signatures[end] == signatures[end - period])
        end++;
    return end;
}

static void add_range(struct periods *p, struct range range)
{
    ARRAY_GROW(p->ranges, p->range_count, p->range_cap);
    p->ranges[p->range_count++] = range;
}

static void find_ranges(struct periods *p, const struct simulation *s, const uint64_t *signatures)
{
    uint32_t spans[LOOKED_BACK], count = 0; /* the last ones, round and round */
    for (uint32_t i = 0; i < s->count; i++) {
        if (!begins_period(&s->tasks[i]))
            continue;
        struct range found = {0, 0, 0};
        for (uint32_t k = 1; k <= LOOKED_BACK && k <= count && !found.period; k++) {
            const uint32_t before = spans[(count - k) % LOOKED_BACK];
            if (signatures[before] == signatures[i]) {
                found = (struct range){before, 0, i - before};
                found.end = end_of(signatures, s->count, before, found.period);
                if (found.end - before < FEWEST * found.period)
                    found.period = 0;
            }
        }
        if (found.period) {
            add_range(p, found);
            i = found.end - 1;
            count = 0;
        } else {
            spans[count++ % LOOKED_BACK] = i;
        }
    }
}

struct periods *periods_new(const struct simulation *s, const struct costs *costs)
{
    struct periods *p = xmalloc(sizeof *p);
    p->ranges = NULL;
    p->range_count = p->range_cap = p->at = p->next_moment = 0;
    for (uint32_t m = 0; m < MOMENTS; m++)
        p->moments[m].task = NEVER;
    const struct signatures signatures = signatures_new(s, costs);
    find_ranges(p, s, signatures.of_tasks);
    free(signatures.of_tasks);
    free(signatures.of_kernels);
    if (p->range_count)
        return p;
    periods_free(p);
    return NULL;
}

void periods_free(struct periods *p)
{
    if (!p)
        return;
    free(p->ranges);
    free(p);
}

/* ---- whether a moment is like one before ---- */

static bool is_idle(const struct lane *lane)
{
    return lane->task == NEVER;
}

static uint32_t front_of(const struct run *r, const struct lane *lane)
{
    return lane->at < lane->issued ? r->s->queue[lane->at] : NEVER;
}

/* Whether a lane is where it was, with nothing to do until something ends that comes after `last`.
 */
static bool stands(const struct run *r, const struct lane *a, const struct lane *b, uint32_t last)
{
    if (!is_idle(a) || !is_idle(b) || a->at != b->at)
        return false;
    const uint32_t front = front_of(r, b);
    if (front == NEVER)
        return true;
    const uint32_t after = r->s->tasks[front].after;
    return after != NEVER && after > last && isinf(r->out->end_s[after]);
}

/* Whether a lane has come so much further, and is like it was. */
static bool has_moved(const struct run *r, const struct moment *a, uint32_t index,
                      const struct range *range, double tolerance_s)
{
    const struct lane *x = &a->lanes[index], *y = &r->lanes[index];
    const uint32_t from = front_of(r, x), to = front_of(r, y);
    if (is_idle(x) != is_idle(y) || from == NEVER || to == NEVER || to - from != range->period ||
        from < range->first)
        return false;
    if (is_idle(x))
        return isinf(x->moment) && isinf(y->moment);
    const struct task *earlier = &r->s->tasks[x->task], *later = &r->s->tasks[y->task];
    return y->task - x->task == range->period && x->task >= range->first &&
           (r->running >> index & 1) && x->rate == y->rate && x->further == y->further &&
           (earlier->kind != TASK_SPAN ||
            x->kernel - earlier->kernel == y->kernel - later->kernel) &&
           fabs((y->moment - r->now) - (x->moment - a->now)) <= tolerance_s;
}

/* The last task that any of the lanes which move is at, or looks at; 0: the moments differ. */
static uint32_t furthest(const struct run *r, const struct moment *a, const struct range *range)
{
    const double tolerance_s = ALIKE * r->now;
    uint32_t last = 0;
    if (a->running != r->running)
        return 0;
    for (uint32_t index = 0; index < r->s->lane_count; index++)
        if (r->lanes[index].at != a->lanes[index].at) {
            if (!has_moved(r, a, index, range, tolerance_s))
                return 0;
            const uint32_t front = front_of(r, &r->lanes[index]);
            last = front > last ? front : last;
        }
    for (uint32_t index = 0; index < r->s->lane_count; index++)
        if (r->lanes[index].at == a->lanes[index].at &&
            !stands(r, &a->lanes[index], &r->lanes[index], range->end))
            return 0;
    return last;
}

/* How many more periods are like the one since that moment: their tasks are alike, and issued
 * before they begin. */
static uint32_t periods_ahead(const struct run *r, const struct moment *a,
                              const struct range *range)
{
    const uint32_t last = furthest(r, a, range);
    const double *issue_s = r->out->issue_s, took_s = r->now - a->now;
    if (last == 0 || last + 1 >= range->end || issue_s[last + 1] > a->now)
        return 0;
    uint32_t ahead = 0;
    for (uint32_t end = last + range->period + 1;
         end < range->end && issue_s[end] <= r->now + ahead * took_s; end += range->period)
        ahead++;
    return ahead;
}

/* ---- passing over ---- */

/* A lane's tasks on the way there: each as long after the one a period before it. */
static void fill_in(struct run *r, struct lane *lane, uint32_t places, uint32_t times,
                    const struct range *range, double took_s)
{
    struct timeline *out = r->out;
    const uint32_t *queue = r->s->queue;
    const uint32_t runs = !is_idle(lane), end = lane->at + times * places;
    for (uint32_t at = lane->at - runs; at < end - runs; at++) {
        const uint32_t task = queue[at], before = task - range->period;
        out->end_s[task] = out->end_s[before] + took_s;
        out->done_s[task] = out->done_s[before] + took_s;
    }
    for (uint32_t at = lane->at; at < end; at++)
        out->begin_s[queue[at]] = out->begin_s[queue[at] - range->period] + took_s;
}

static void move_lane(struct run *r, struct lane *lane, uint32_t places, uint32_t times,
                      const struct range *range, double took_s)
{
    const struct task *tasks = r->s->tasks;
    fill_in(r, lane, places, times, range, took_s);
    lane->at += times * places;
    if (is_idle(lane))
        return;
    const uint32_t within = lane->kernel - tasks[lane->task].kernel;
    lane->task += times * range->period;
    lane->since += times * took_s;
    lane->moment += times * took_s;
    const struct task *task = &tasks[lane->task];
    if (task->kind != TASK_SPAN) {
        lane->cost = cost_of(r, task);
        return;
    }
    lane->kernel = task->kernel + within;
    lane->cost = &r->costs->sequence->cost[lane->kernel];
    lane->first_issue = r->out->issue_s[lane->task] - r->costs->sequence->host[task->kernel + 1];
}

static void pass_over(struct run *r, const struct moment *a, uint32_t times,
                      const struct range *range)
{
    const double took_s = r->now - a->now;
    for (uint32_t index = 0; index < r->s->lane_count; index++) {
        struct lane *lane = &r->lanes[index];
        if (lane->at != a->lanes[index].at)
            move_lane(r, lane, lane->at - a->lanes[index].at, times, range, took_s);
    }
    for (uint32_t index = 0; index < r->s->lane_count; index++) {
        struct lane *lane = &r->lanes[index]; /* that stands: as lane_advance leaves it */
        const uint32_t front = front_of(r, lane);
        if (lane->at == a->lanes[index].at && front != NEVER)
            lane->moment = r->out->issue_s[front] > r->now + times * took_s ? r->out->issue_s[front]
                                                                            : INFINITY;
    }
    for (int i = 0; i < SPENT_COUNT; i++)
        r->out->spent_s[i] += times * (r->out->spent_s[i] - a->spent_s[i]);
    r->out->communication_s += times * (r->out->communication_s - a->communication_s);
    r->now += times * took_s;
    r->out->passed += times * range->period;
}

static void note(struct periods *p, const struct run *r, uint32_t task)
{
    struct moment *m = &p->moments[p->next_moment++ % MOMENTS];
    m->task = task;
    m->running = r->running;
    m->now = r->now;
    memcpy(m->lanes, r->lanes, r->s->lane_count * sizeof *m->lanes);
    memcpy(m->spent_s, r->out->spent_s, sizeof m->spent_s);
    m->communication_s = r->out->communication_s;
}

void periods_pass(struct periods *p, struct run *r)
{
    const uint32_t task = r->lanes[LANE_COMPUTE].task;
    if (task == NEVER || r->host < r->s->count || !begins_period(&r->s->tasks[task]) ||
        r->out->begin_s[task] != r->now)
        return;
    while (p->at < p->range_count && task >= p->ranges[p->at].end)
        p->at++;
    if (p->at == p->range_count || task < p->ranges[p->at].first)
        return;
    const struct range *range = &p->ranges[p->at];
    const struct moment *before = NULL;
    for (uint32_t m = 0; m < MOMENTS && !before; m++)
        if (p->moments[m].task != NEVER && p->moments[m].task + range->period == task)
            before = &p->moments[m];
    const uint32_t times = before ? periods_ahead(r, before, range) : 0;
    if (times)
        pass_over(r, before, times, range);
    else
        note(p, r, task);
}
