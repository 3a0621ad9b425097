/* periods.c - see periods.h. */
#include "simulate/periods.h"

#include <assert.h>
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

struct moment {    /* what the simulator is like */
    uint32_t task; /* the span that begins on the compute stream; NEVER: nothing is noted */
    uint32_t running;
    uint32_t host; /* task that it issues next */
    double now, host_s;
    struct lane lanes[LANES_MOST];
    double spent_s[SPENT_COUNT], communication_s, issuing_s;
};

struct periods {
    struct ranges ranges;
    bool lent;   /* ... are the simulation's */
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
    const uint64_t word =
        behind << 32 | (uint64_t)task->kind << 16 | (uint64_t)task->lane << 8 | task->collective;
    if (task->kind == TASK_SPAN)
        return mix(word, sequence_signature(costs->sequence, task->kernel, task->count));
    if (task->kind == TASK_RUN)
        return mix(word, kernel_signature(costs, task->kernel, signatures));
    if (task->kind == TASK_STALL) /* what it takes is not looked at: none is like another */
        return mix(word, (uint64_t)i << 1 | 1);
    return word; /* a record or a wait is no more than that */
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

static void add_range(struct ranges *ranges, struct range range)
{
    ARRAY_GROW(ranges->of, ranges->count, ranges->cap);
    ranges->of[ranges->count++] = range;
}

static struct ranges find_ranges(const struct simulation *s, const uint64_t *signatures)
{
    struct ranges ranges = {.of = NULL};
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
            add_range(&ranges, found);
            i = found.end - 1;
            count = 0;
        } else {
            spans[count++ % LOOKED_BACK] = i;
        }
    }
    return ranges;
}

struct ranges periods_find(const struct simulation *s, const struct costs *costs)
{
    const struct signatures signatures = signatures_new(s, costs);
    const struct ranges ranges = find_ranges(s, signatures.of_tasks);
    free(signatures.of_tasks);
    free(signatures.of_kernels);
    return ranges;
}

struct periods *periods_new(const struct simulation *s, const struct costs *costs)
{
    struct periods *p = xmalloc(sizeof *p);
    p->lent = s->alike_known;
    p->ranges = p->lent ? s->alike : periods_find(s, costs);
    p->at = p->next_moment = 0;
    for (uint32_t m = 0; m < MOMENTS; m++)
        p->moments[m].task = NEVER;
    if (p->ranges.count)
        return p;
    periods_free(p);
    return NULL;
}

void periods_free(struct periods *p)
{
    if (!p)
        return;
    if (!p->lent)
        free(p->ranges.of);
    free(p);
}

/* ---- whether a moment is like one before ---- */

static bool is_idle(const struct lane *lane)
{
    return lane->task == NEVER;
}

/* The task that a lane does next, issued or not; NEVER: none. */
static uint32_t next_of(const struct run *r, uint32_t index, const struct lane *lane)
{
    return lane->at < r->s->first[index + 1] ? r->s->queue[lane->at] : NEVER;
}

static bool is_issued(const struct lane *lane)
{
    return lane->at < lane->issued;
}

/* Whether a lane is where it was, with nothing to do until something ends that comes after `last`.
 */
static bool stands(const struct run *r, uint32_t index, const struct lane *a, uint32_t last)
{
    const struct lane *b = &r->lanes[index];
    if (!is_idle(a) || !is_idle(b) || a->at != b->at)
        return false;
    if (!is_issued(b))
        return true;
    const uint32_t after = r->s->tasks[next_of(r, index, b)].after;
    return after != NEVER && after > last && isinf(r->out->end_s[after]);
}

/* Two moments: one as long after `a` as the other after now. */
static bool is_as_late(const struct run *r, const struct moment *a, double earlier, double later)
{
    return (isinf(earlier) && isinf(later)) ||
           fabs((later - r->now) - (earlier - a->now)) <= ALIKE * r->now;
}

/* When the host has issued the last of a task's kernels. */
static double issued_by(const struct run *r, uint32_t i)
{
    const struct task *task = &r->s->tasks[i];
    return r->out->issue_s[i] + (task->kind == TASK_SPAN ? host_at(r, task->kernel + task->count) -
                                                               host_at(r, task->kernel + 1)
                                                         : 0);
}

/* What the host has given a lane to do, if it still issues: as much, and as late. */
static bool has_as_much(const struct run *r, const struct moment *a, uint32_t index,
                        const struct range *range)
{
    const struct lane *x = &a->lanes[index], *y = &r->lanes[index];
    const double *issue_s = r->out->issue_s;
    if (r->host == r->s->count)
        return true;
    if (y->issued - y->at != x->issued - x->at)
        return false;
    for (uint32_t at = y->at - !is_idle(y); at < y->issued; at++) {
        const uint32_t later = r->s->queue[at];
        if (later < range->first + range->period) /* what is before the range repeats nothing */
            return false;
        const uint32_t earlier = later - range->period;
        if (!(issued_by(r, later) <= r->now && issued_by(r, earlier) <= a->now) &&
            !is_as_late(r, a, issue_s[earlier], issue_s[later]))
            return false;
    }
    return true;
}

/* Whether a lane has come so much further, and is like it was. */
static bool has_moved(const struct run *r, const struct moment *a, uint32_t index,
                      const struct range *range)
{
    const struct lane *x = &a->lanes[index], *y = &r->lanes[index];
    const uint32_t from = next_of(r, index, x), to = next_of(r, index, y);
    if (is_idle(x) != is_idle(y) || from == NEVER || to == NEVER || to - from != range->period ||
        from < range->first || !has_as_much(r, a, index, range) ||
        !is_as_late(r, a, x->moment, y->moment))
        return false;
    if (is_idle(x))
        return isinf(y->moment) || r->host < r->s->count;
    const struct task *earlier = &r->s->tasks[x->task], *later = &r->s->tasks[y->task];
    return y->task - x->task == range->period && x->task >= range->first &&
           (r->running >> index & 1) && x->rate == y->rate && x->further == y->further &&
           (earlier->kind != TASK_SPAN || x->kernel - earlier->kernel == y->kernel - later->kernel);
}

/* The host has issued all, or waits where it waited a period before. */
static bool host_has_moved(const struct run *r, const struct moment *a, const struct range *range)
{
    if (a->host == r->s->count || r->host == r->s->count)
        return a->host == r->host;
    return a->host >= range->first && r->host - a->host == range->period &&
           is_as_late(r, a, a->host_s, r->host_s);
}

/* The last task that the host, or any of the lanes which move, is at or looks at; 0: the moments
 * differ. */
static uint32_t furthest(const struct run *r, const struct moment *a, const struct range *range)
{
    uint32_t last = r->host < r->s->count ? r->host : 0;
    if (a->running != r->running || !host_has_moved(r, a, range))
        return 0;
    for (uint32_t index = 0; index < r->s->lane_count; index++)
        if (r->lanes[index].at != a->lanes[index].at) {
            if (!has_moved(r, a, index, range))
                return 0;
            const uint32_t next = next_of(r, index, &r->lanes[index]);
            last = next > last ? next : last;
        }
    for (uint32_t index = 0; index < r->s->lane_count; index++)
        if (r->lanes[index].at == a->lanes[index].at &&
            !stands(r, index, &a->lanes[index], range->end))
            return 0;
    return last;
}

/* How many more periods are like the one since that moment: their tasks are alike, and issued
 * before they begin, or as late as then. */
static uint32_t periods_ahead(const struct run *r, const struct moment *a,
                              const struct range *range)
{
    const uint32_t last = furthest(r, a, range);
    const double *issue_s = r->out->issue_s, took_s = r->now - a->now;
    const bool issued = r->host == r->s->count;
    if (last == 0 || last + 1 >= range->end || (issued && issue_s[last + 1] > a->now))
        return 0;
    uint32_t ahead = 0;
    for (uint32_t end = last + range->period + 1;
         end < range->end && (!issued || issue_s[end] <= r->now + ahead * took_s);
         end += range->period)
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
    lane->moment += times * took_s;
    if (is_idle(lane))
        return;
    const struct sequence *sequence = r->costs->sequence;
    const double *begin = sequence->paces[0].begin;
    const struct task *before = &tasks[lane->task];
    const uint32_t within = lane->kernel - before->kernel;
    lane->task += times * range->period;
    lane->since += times * took_s;
    const struct task *task = &tasks[lane->task];
    if (task->kind != TASK_SPAN) {
        lane->cost = cost_of(r, task);
        return;
    }
    lane->kernel = task->kernel + within;
    lane->cost = &sequence->cost[lane->kernel];
    lane->first_issue = r->out->issue_s[lane->task] - host_at(r, task->kernel + 1);
    lane->lag += host_at(r, task->kernel + 1) - begin_at(r, begin, task->kernel) -
                 (host_at(r, before->kernel + 1) - begin_at(r, begin, before->kernel));
}

/* What the host issues on the way there. */
static void move_host(struct run *r, const struct moment *a, uint32_t times,
                      const struct range *range, double took_s)
{
    struct timeline *out = r->out;
    if (r->host == r->s->count)
        return;
    const uint32_t end = r->host + times * range->period;
    for (uint32_t i = r->host; i < end; i++) {
        const uint32_t before = i - range->period;
        const struct task *task = &r->s->tasks[i];
        out->issue_s[i] = out->issue_s[before] + took_s;
        out->end_s[i] = INFINITY;
        if (task->lane == LANE_HOST) {
            out->begin_s[i] = out->begin_s[before] + took_s;
            out->end_s[i] = out->end_s[before] + took_s;
        } else {
            r->lanes[task->lane].issued++;
        }
    }
    r->host = end;
    r->host_s += times * took_s;
    out->host_s += times * (out->host_s - a->issuing_s);
}

static void pass_over(struct run *r, const struct moment *a, uint32_t times,
                      const struct range *range)
{
    const double took_s = r->now - a->now;
    move_host(r, a, times, range, took_s);
    for (uint32_t index = 0; index < r->s->lane_count; index++) {
        struct lane *lane = &r->lanes[index];
        if (lane->at != a->lanes[index].at)
            move_lane(r, lane, lane->at - a->lanes[index].at, times, range, took_s);
    }
    for (uint32_t index = 0; index < r->s->lane_count; index++) {
        struct lane *lane = &r->lanes[index]; /* that stands: as lane_advance leaves it */
        if (lane->at != a->lanes[index].at || !is_issued(lane))
            continue;
        const double issue_s = r->out->issue_s[next_of(r, index, lane)];
        lane->moment = issue_s > r->now + times * took_s ? issue_s : INFINITY;
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
    m->host = r->host;
    m->now = r->now;
    m->host_s = r->host_s;
    m->issuing_s = r->out->host_s;
    memcpy(m->lanes, r->lanes, r->s->lane_count * sizeof *m->lanes);
    memcpy(m->spent_s, r->out->spent_s, sizeof m->spent_s);
    m->communication_s = r->out->communication_s;
}

void periods_pass(struct periods *p, struct run *r)
{
    const uint32_t task = r->lanes[LANE_COMPUTE].task;
    if (task == NEVER || !begins_period(&r->s->tasks[task]) || r->out->begin_s[task] != r->now)
        return;
    const struct ranges *ranges = &p->ranges;
    while (p->at < ranges->count && task >= ranges->of[p->at].end)
        p->at++;
    if (p->at == ranges->count || task < ranges->of[p->at].first)
        return;
    const struct range *range = &ranges->of[p->at];
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
