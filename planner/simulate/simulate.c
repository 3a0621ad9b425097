/* simulate.c - see simulate.h.
 *
 * Discrete events, advanced from one start or end of a kernel to the next:
 *
 *     while there is something left:
 *         let the host issue as far as it can        (all of it, unless it waits for the device)
 *         start what can start, pass records and waits
 *         share out the resources among what runs
 *         pass over blocks that do what the one before did   (outlines: periods.h)
 *         go to the next end, or to the next issue that a stream is waiting for
 *
 * Between two such moments every rate is constant. A kernel whose rate stays the same from one to
 * the next keeps the end that was worked out when it got it: what becomes of others leaves no
 * rounding in it, so that many small steps come to the same bits as one long step (run_on). */
#include "simulate/periods.h"

#include "base/names.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Ended by now? A task that has not ended has an end of INFINITY. */
static bool has_ended(const struct run *r, uint32_t task)
{
    return task == NEVER || r->out->end_s[task] <= r->now;
}

static bool device_is_idle(const struct run *r)
{
    for (uint32_t index = 0; index < r->s->lane_count; index++)
        if (r->lanes[index].task != NEVER || r->lanes[index].at < r->lanes[index].issued)
            return false;
    return true;
}

/* Whether the host would have to wait at a task of its own. */
static bool host_is_blocked(const struct run *r, const struct task *task)
{
    return (task->idle && !device_is_idle(r)) ||
           (task->after != NEVER && isinf(r->out->end_s[task->after]));
}

/* The host thread's own tasks: a kernel or a stall takes its time, a record notes it, a wait and
 * what needs an idle device block. */
static bool host_own(struct run *r, uint32_t i)
{
    const struct task *task = &r->s->tasks[i];
    if (host_is_blocked(r, task))
        return false;
    if (task->after != NEVER)
        r->host_s = fmax(r->host_s, r->out->end_s[task->after]);
    if (task->idle)
        r->host_s = fmax(r->host_s, r->now);
    r->out->begin_s[i] = r->host_s;
    if (task->kind == TASK_RUN)
        r->host_s += cost_of(r, task)->device_s * r->scale[COST_HOST];
    r->host_s += (double)task->stall_s * r->scale[COST_HOST];
    r->out->issue_s[i] = r->out->end_s[i] = r->host_s;
    return true;
}

/* What it takes the host to issue some kernels of the sequence. */
static double host_seconds(const struct run *r, uint32_t first, uint32_t count)
{
    const double *host = r->costs->sequence->host;
    return host[first + count] - host[first];
}

/* Issues until the end, or until the host has to wait for the device. */
static void host_issue(struct run *r)
{
    const uint32_t count = r->s->count;
    const double scale = r->scale[COST_HOST], event_s = r->costs->event_s;
    double *const issue_s = r->out->issue_s, *const end_s = r->out->end_s;
    double host_s = r->host_s, issuing_s = r->out->host_s;
    uint32_t i = r->host;
    for (; i < count; i++) {
        const struct task *task = &r->s->tasks[i];
        double first_s = event_s, all_s = event_s;
        if (task->lane == LANE_HOST) {
            r->host_s = host_s;
            if (!host_own(r, i))
                break;
            host_s = r->host_s;
            continue;
        }
        if (task->kind == TASK_RUN) {
            first_s = all_s = cost_of(r, task)->host_s;
        } else if (task->kind == TASK_SPAN) {
            first_s = host_seconds(r, task->kernel, 1);
            all_s = first_s + host_seconds(r, task->kernel + 1, task->count - 1);
        }
        issue_s[i] = host_s + first_s * scale;
        host_s += all_s * scale;
        issuing_s += all_s * scale;
        end_s[i] = INFINITY;
        r->lanes[task->lane].issued++;
    }
    r->host = i;
    r->host_s = host_s;
    r->out->host_s = issuing_s;
}

/* What the host was waiting for has happened. */
static bool host_can_go_on(const struct run *r)
{
    return r->host < r->s->count && !host_is_blocked(r, &r->s->tasks[r->host]);
}

/* The lane's kernel begins. */
static void start_kernel(struct run *r, uint32_t index)
{
    struct lane *lane = &r->lanes[index];
    lane->left_s = lane->cost->device_s * r->scale[lane->cost->class];
    lane->since = r->now;
    lane->rate = 0; /* until rates are shared out */
    r->running |= 1U << index;
    r->changed = true;
}

/* Puts the lane before the first kernel of a task. */
static void take_task(const struct run *r, struct lane *lane, uint32_t i)
{
    const struct task *task = &r->s->tasks[i];
    lane->task = i;
    lane->further = 0;
    if (task->kind != TASK_SPAN) {
        lane->cost = cost_of(r, task);
        return;
    }
    struct sequence *sequence = r->costs->sequence;
    const double *begin = sequence->paces[0].begin;
    lane->cost = &sequence->cost[task->kernel];
    lane->kernel = task->kernel;
    lane->further = task->count - 1;
    lane->first_issue = r->out->issue_s[i] - host_at(r, task->kernel + 1);
    lane->lag = -INFINITY;
    for (uint32_t k = task->kernel; k < task->kernel + task->count; k++)
        lane->lag = fmax(lane->lag, host_at(r, k + 1) - begin_at(r, begin, k));
}

/* When the host has issued a kernel of the span that the lane is at. */
static double issue_in_span(const struct run *r, const struct lane *lane, uint32_t kernel)
{
    return lane->first_issue + host_at(r, kernel + 1);
}

/* On to the next kernel of a span. */
static void next_in_span(const struct run *r, struct lane *lane)
{
    lane->kernel++;
    lane->further--;
    lane->cost = &r->costs->sequence->cost[lane->kernel];
}

/* Passes records and waits, and starts the next kernel if it can. Returns whether anything passed
 * that another lane may be waiting for. */
static bool lane_advance(struct run *r, uint32_t index)
{
    struct lane *lane = &r->lanes[index];
    bool passed = false;
    lane->moment = INFINITY;
    while (lane->at < lane->issued) {
        const uint32_t i = r->s->queue[lane->at];
        const struct task *task = &r->s->tasks[i];
        if (r->out->issue_s[i] > r->now) {
            lane->moment = r->out->issue_s[i];
            return passed;
        }
        if (!has_ended(r, task->after)) {
            lane->moment = r->out->end_s[task->after]; /* what the host did may lie ahead */
            return passed;
        }
        lane->at++;
        if (task->kind == TASK_RUN || task->kind == TASK_SPAN) {
            r->out->begin_s[i] = r->now;
            take_task(r, lane, i);
            start_kernel(r, index);
            return passed;
        }
        r->out->begin_s[i] = r->out->end_s[i] = r->now;
        passed |= task->kind == TASK_RECORD;
    }
    return passed;
}

static void start_all(struct run *r)
{
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t index = 0; index < r->s->lane_count; index++) {
            struct lane *lane = &r->lanes[index];
            if (lane->task == NEVER && lane->at < lane->issued)
                again |= lane_advance(r, index);
            else if (lane->task != NEVER && !(r->running >> index & 1) && lane->moment <= r->now)
                start_kernel(r, index); /* within a span, now that it is issued */
        }
    }
}

/* Of what is served first, others always get this share all the same. */
#define LEFT_AT_LEAST 0.1F

static void sum_up(struct run *r)
{
    struct share *others = &r->share[false], *first = &r->share[true];
    memset(r->share, 0, sizeof r->share);
    r->computes = false;
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        const struct lane *lane = &r->lanes[__builtin_ctz(bits)];
        const struct cost *cost = lane->cost;
        for (int k = 0; k < RESOURCE_COUNT; k++)
            r->share[cost->first].asked[k] += cost->use[k];
        r->computes |= !r->s->tasks[lane->task].collective;
    }
    for (int k = 0; k < RESOURCE_COUNT; k++) {
        const float left = 1 - first->asked[k];
        first->there[k] = 1;
        others->there[k] = left > LEFT_AT_LEAST ? left : LEFT_AT_LEAST;
    }
}

/* A kernel's speed: its part of the resource that it gets the least of. */
static inline double rate_of(const struct run *r, const struct cost *cost, const float *asked)
{
    const float *there = r->share[cost->first].there;
    float most = 1; /* how often more than there is is asked for */
    for (int k = 0; k < RESOURCE_COUNT; k++)
        if (cost->use[k] > 0 && asked[k] > most * there[k])
            most = asked[k] / there[k];
    const double rate = 1 / (double)most;
    return r->computes && cost->slowdown > 1 ? rate / (double)cost->slowdown : rate;
}

static void set_rate(struct lane *lane, double now, double rate)
{
    assert(rate > 0 && rate <= 1);
    if (rate == lane->rate)
        return;
    lane->left_s = fmax(lane->left_s - (now - lane->since) * lane->rate, 0);
    lane->since = now;
    lane->rate = rate;
    lane->moment = now + lane->left_s / rate;
}

static void share_out(struct run *r)
{
    sum_up(r);
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        struct lane *lane = &r->lanes[__builtin_ctz(bits)];
        set_rate(lane, r->now, rate_of(r, lane->cost, r->share[lane->cost->first].asked));
    }
    r->changed = false;
}

/* ... by the compute stream on a kernel that is no collective. */
static enum spent spent_computing(const struct cost *cost)
{
    return cost->use[RESOURCE_COMPUTE] >= 1 ? SPENT_COMPUTE : SPENT_MEMORY;
}

/* What the time from now on is spent on; `talks`: a collective runs. */
static enum spent spent_on(const struct run *r, bool talks)
{
    const struct lane *compute = &r->lanes[LANE_COMPUTE];
    if (r->running >> LANE_COMPUTE & 1 && !r->s->tasks[compute->task].collective)
        return spent_computing(compute->cost);
    return talks ? SPENT_NETWORK : r->held ? SPENT_RANKS : r->running ? SPENT_COPY : SPENT_HOST;
}

static void spend(struct run *r, enum spent spent, bool talks, double next)
{
    const double step = next - r->now;
    assert(step >= 0); /* what has happened is not undone */
    r->out->spent_s[spent] += step;
    if (talks || r->held)
        r->out->communication_s += step;
    if (!talks && r->held)
        r->out->waiting_s += step;
    r->now = next;
}

/* When the slower rank is through with a task that is all ranks'. */
static double slower_end(const struct run *r, uint32_t task)
{
    return r->slower && r->s->tasks[task].collective ? r->slower->end_s[task] : 0;
}

/* The lane's task has done its own part. */
static void end_task(struct run *r, uint32_t index)
{
    struct lane *lane = &r->lanes[index];
    const double slower_s = slower_end(r, lane->task);
    if (!(r->held >> index & 1))
        r->out->done_s[lane->task] = r->now;
    if (slower_s > r->now) {
        r->held |= 1U << index;
        lane->moment = slower_s;
        return;
    }
    r->held &= ~(1U << index);
    r->out->end_s[lane->task] = r->now;
    lane->task = NEVER;
    lane->moment = INFINITY;
}

static void go_to(struct run *r, double next)
{
    bool talks = false;
    for (uint32_t bits = r->running; bits; bits &= bits - 1)
        talks |= r->s->tasks[r->lanes[__builtin_ctz(bits)].task].collective;
    spend(r, spent_on(r, talks), talks, next);
    for (uint32_t bits = r->held; bits; bits &= bits - 1)
        if (r->lanes[__builtin_ctz(bits)].moment <= next)
            end_task(r, (uint32_t)__builtin_ctz(bits));
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        struct lane *lane = &r->lanes[__builtin_ctz(bits)];
        if (lane->moment > next)
            continue;
        r->running &= ~(1U << (lane - r->lanes));
        r->changed = true;
        if (lane->further) {
            next_in_span(r, lane);
            lane->moment = issue_in_span(r, lane, lane->kernel);
            continue;
        }
        end_task(r, (uint32_t)(lane - r->lanes));
    }
}

/* When the next kernel ends, or what a lane waits for comes by itself; INFINITY: never. `own` (or
 * NULL) is not looked at. */
static double next_moment(const struct run *r, const struct lane *own)
{
    double next = INFINITY;
    for (uint32_t index = 0; index < r->s->lane_count; index++) {
        const struct lane *lane = &r->lanes[index];
        if (lane != own && lane->moment < next)
            next = lane->moment;
    }
    return next;
}

/* The lane of the only kernel that is not served first; NULL: there are several, or none. */
static struct lane *only_other(struct run *r, bool *talks)
{
    struct lane *found = NULL;
    *talks = false;
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        struct lane *lane = &r->lanes[__builtin_ctz(bits)];
        *talks |= r->s->tasks[lane->task].collective;
        if (lane->cost->first)
            continue;
        if (found)
            return NULL;
        found = lane;
    }
    return found && !r->s->tasks[found->task].collective ? found : NULL;
}

/* Whether a task may begin just because the one before it on its lane ends, without others' taking
 * notice. */
static bool may_follow(const struct run *r, const struct task *task)
{
    if (task->kind == TASK_SPAN)
        return true;
    return task->kind == TASK_RUN && !task->collective && task->after == NEVER &&
           !cost_of(r, task)->first;
}

/* Within a span whose kernels are all issued in time: goes on to the one that runs at the horizon,
 * or to the last. Its time is taken from sums, so that it differs from the longer way's by a
 * rounding. */
static void leap(struct run *r, struct lane *own, double horizon, enum spent spent, bool talks)
{
    struct sequence *sequence = r->costs->sequence;
    const uint32_t next = own->kernel + 1;
    if (own->first_issue + own->lag > own->moment - begin_at(r, sequence->paces[0].begin, next))
        return;
    const double *begin = sequence_begin(sequence, r->share[false].there);
    const double offset = own->moment - begin_at(r, begin, next);
    uint32_t low = own->kernel, high = own->kernel + own->further; /* low begins before it */
    while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        if (offset + begin_at(r, begin, middle) < horizon)
            low = middle;
        else
            high = middle - 1;
    }
    if (low <= next)
        return;
    spend(r, spent, talks, fmax(offset + begin_at(r, begin, low), own->moment));
    own->further -= low - own->kernel;
    own->kernel = low;
    own->cost = &sequence->cost[low];
    own->left_s = own->cost->device_s * r->scale[own->cost->class];
    own->since = r->now;
    own->rate = rate_of(r, own->cost, own->cost->use);
    own->moment = r->now + own->left_s / own->rate;
}

/* The usual case, made short: kernel follows kernel on one lane while nothing else begins or ends,
 * and what is served first takes no notice of them. Leaves everything as the longer way would, to
 * the bit (within spans: to a rounding). */
static void run_on(struct run *r)
{
    bool talks;
    struct lane *const own = only_other(r, &talks);
    if (!own)
        return;
    const struct simulation *sim = r->s;
    const double horizon = next_moment(r, own);
    const bool computes = own == &r->lanes[LANE_COMPUTE];
    enum spent spent = spent_on(r, talks);
    for (;;) {
        if (own->further)
            leap(r, own, horizon, spent, talks);
        if (own->moment >= horizon)
            break;
        if (own->further) {
            if (issue_in_span(r, own, own->kernel + 1) > own->moment)
                break;
            spend(r, spent, talks, own->moment);
            next_in_span(r, own);
        } else {
            if (own->at == own->issued)
                break;
            const uint32_t next = sim->queue[own->at];
            const struct task *task = &sim->tasks[next];
            if (!may_follow(r, task) || r->out->issue_s[next] > own->moment)
                break;
            spend(r, spent, talks, own->moment);
            r->out->end_s[own->task] = r->out->begin_s[next] = own->moment;
            own->at++;
            take_task(r, own, next);
        }
        if (computes)
            spent = spent_computing(own->cost);
        own->left_s = own->cost->device_s * r->scale[own->cost->class];
        own->since = own->moment;
        own->rate = rate_of(r, own->cost, own->cost->use);
        own->moment += own->left_s / own->rate;
    }
}

static void begin(struct run *r)
{
    for (uint32_t index = 0; index < r->s->lane_count; index++)
        r->lanes[index] = (struct lane){.at = r->s->first[index],
                                        .issued = r->s->first[index],
                                        .task = NEVER,
                                        .moment = INFINITY};
    r->out->communication_s = r->out->waiting_s = r->out->host_s = 0;
    r->out->passed = 0;
    memset(r->out->spent_s, 0, sizeof r->out->spent_s);
}

static void finish(struct run *r)
{
    struct timeline *out = r->out;
    if (r->host_s > r->now) { /* the last thing was the host's */
        out->spent_s[SPENT_HOST] += r->host_s - r->now;
        r->now = r->host_s;
    }
    if (r->slower && r->slower->step_s > r->now) { /* before the next step's first collective */
        const double rest_s = r->slower->step_s - r->now;
        out->spent_s[SPENT_RANKS] += rest_s;
        out->communication_s += rest_s;
        out->waiting_s += rest_s;
        r->now = r->slower->step_s;
    }
    out->step_s = r->now;
    out->compute_s = out->spent_s[SPENT_COMPUTE] + out->spent_s[SPENT_MEMORY];
    out->exposed_s = out->spent_s[SPENT_NETWORK] + out->spent_s[SPENT_RANKS];
}

static void simulate_step(const struct simulation *s, const struct costs *costs,
                          const double *scale, const struct timeline *slower, bool short_cut,
                          struct timeline *out)
{
    double ones[COST_CLASSES];
    assert(!scale || !costs->sequence || costs->sequence->parts > 1); /* sums are of all classes */
    for (int class = 0; class < COST_CLASSES; class ++)
        ones[class] = 1;
    struct run r = {
        .s = s, .costs = costs, .scale = scale ? scale : ones, .slower = slower, .out = out};
    struct periods *periods =
        short_cut && costs->sequence && !slower ? periods_new(s, costs) : NULL;
    begin(&r);
    for (;;) {
        if (r.host < s->count)
            host_issue(&r);
        start_all(&r);
        if (host_can_go_on(&r))
            continue;
        if (r.changed)
            share_out(&r);
        if (periods)
            periods_pass(periods, &r);
        if (short_cut)
            run_on(&r);
        const double next = next_moment(&r, NULL);
        if (isinf(next))
            break;
        go_to(&r, next);
    }
    periods_free(periods);
    assert(r.host == s->count && device_is_idle(&r)); /* of a verified plan nothing is left */
    finish(&r);
}

void simulate(const struct simulation *s, const struct costs *costs, const double *scale,
              struct timeline *out)
{
    simulate_step(s, costs, scale, NULL, true, out);
}

void simulate_beside(const struct simulation *s, const struct costs *costs, const double *scale,
                     const struct timeline *slower, struct timeline *out)
{
    simulate_step(s, costs, scale, slower, true, out);
}

void simulate_each_event(const struct simulation *s, const struct costs *costs, const double *scale,
                         const struct timeline *slower, struct timeline *out)
{
    simulate_step(s, costs, scale, slower, false, out);
}

ENUM_NAME(spent_name, enum spent, SPENT_MAP)
