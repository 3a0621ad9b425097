/* simulate.c - see simulate.h.
 *
 * Discrete events, advanced from one start or end of a kernel to the next:
 *
 *     while there is something left:
 *         let the host issue as far as it can        (all of it, unless it waits for the device)
 *         start what can start, pass records and waits
 *         share out the resources among what runs
 *         go to the next end, or to the next issue that a stream is waiting for
 *
 * Between two such moments every rate is constant. */
#include "simulate/simulation.h"

#include <math.h>
#include <string.h>

struct lane {
    uint32_t at, issued;  /* places in the queue: the next, and the first that is not issued yet */
    uint32_t item;        /* that runs; NEVER: none */
    double left_s, rate;  /* of it: seconds at full speed, speed */
    double blocked_until; /* INFINITY: until something else ends */
};

struct run {
    const struct simulation *s;
    const struct costs *costs;
    const double *scale;
    struct timeline *out;
    struct lane lanes[LANES_MOST]; /* LANE_HOST's stays empty: the host thread is its own */
    double now;
    double host_s;    /* the host's clock */
    uint32_t host;    /* next item it issues */
    uint32_t running; /* bits: lanes with a kernel */
    bool changed;     /* ... since rates were last shared out */
};

static const struct cost *cost_of(const struct run *r, const struct item *item)
{
    return &r->costs->kernels[item->kernel];
}

/* Ended by now? An item that has not ended has an end of INFINITY. */
static bool has_ended(const struct run *r, uint32_t item)
{
    return item == NEVER || r->out->end_s[item] <= r->now;
}

static bool device_is_idle(const struct run *r)
{
    uint32_t left = r->running;
    for (uint32_t stream = 0; stream < r->s->lane_count; stream++)
        left |= r->lanes[stream].issued - r->lanes[stream].at;
    return left == 0;
}

/* Whether the host would have to wait at an item of its own. */
static bool host_is_blocked(const struct run *r, const struct item *item)
{
    return (item->idle && !device_is_idle(r)) ||
           (item->after != NEVER && isinf(r->out->end_s[item->after]));
}

/* The host thread's own items: a kernel or a stall takes its time, a record notes it, a wait and
 * what needs an idle device block. */
static bool host_own(struct run *r, uint32_t i)
{
    const struct item *item = &r->s->items[i];
    if (host_is_blocked(r, item))
        return false;
    if (item->after != NEVER)
        r->host_s = fmax(r->host_s, r->out->end_s[item->after]);
    if (item->idle)
        r->host_s = fmax(r->host_s, r->now);
    r->out->begin_s[i] = r->host_s;
    if (item->kind == ITEM_RUN)
        r->host_s += cost_of(r, item)->device_s * r->scale[COST_HOST];
    r->host_s += (double)item->stall_s * r->scale[COST_HOST];
    r->out->issue_s[i] = r->out->end_s[i] = r->host_s;
    return true;
}

/* Issues until the end, or until the host has to wait for the device. */
static void host_issue(struct run *r)
{
    const double event_s = r->costs->event_s * r->scale[COST_HOST];
    for (; r->host < r->s->count; r->host++) {
        const struct item *item = &r->s->items[r->host];
        if (item->lane == LANE_HOST) {
            if (!host_own(r, r->host))
                return;
            continue;
        }
        const double cost_s =
            item->kind == ITEM_RUN ? cost_of(r, item)->host_s * r->scale[COST_HOST] : event_s;
        r->host_s += cost_s;
        r->out->host_s += cost_s;
        r->out->issue_s[r->host] = r->host_s;
        r->out->end_s[r->host] = INFINITY;
        r->lanes[item->lane].issued++;
    }
}

/* What the host was waiting for has happened. */
static bool host_can_go_on(const struct run *r)
{
    return r->host < r->s->count && !host_is_blocked(r, &r->s->items[r->host]);
}

static void start(struct run *r, uint32_t stream, uint32_t i)
{
    struct lane *lane = &r->lanes[stream];
    const struct cost *cost = cost_of(r, &r->s->items[i]);
    lane->item = i;
    lane->left_s = cost->device_s * r->scale[cost->class];
    lane->rate = 1;
    r->out->begin_s[i] = r->now;
    r->running |= 1U << stream;
    r->changed = true;
}

/* Passes records and waits, and starts the next kernel if it can. Returns whether anything passed
 * that another lane may be waiting for. */
static bool lane_advance(struct run *r, uint32_t stream)
{
    struct lane *lane = &r->lanes[stream];
    bool passed = false;
    lane->blocked_until = INFINITY;
    while (lane->at < lane->issued) {
        const uint32_t i = r->s->queue[lane->at];
        const struct item *item = &r->s->items[i];
        if (r->out->issue_s[i] > r->now) {
            lane->blocked_until = r->out->issue_s[i];
            return passed;
        }
        if (!has_ended(r, item->after)) {
            lane->blocked_until = r->out->end_s[item->after]; /* what the host did may lie ahead */
            return passed;
        }
        lane->at++;
        if (item->kind == ITEM_RUN) {
            start(r, stream, i);
            return passed;
        }
        r->out->begin_s[i] = r->out->end_s[i] = r->now;
        passed |= item->kind == ITEM_RECORD;
    }
    return passed;
}

static void start_all(struct run *r)
{
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t stream = 0; stream < r->s->lane_count; stream++) {
            struct lane *lane = &r->lanes[stream];
            if (lane->item == NEVER && lane->at < lane->issued)
                again |= lane_advance(r, stream);
        }
    }
}

/* Of what is served first, others always get this share all the same. */
#define LEFT_AT_LEAST 0.1F

/* How often more than there is (1 at least) is asked for of what a kernel uses. `left`: of each
 * resource; `asked`: by all that share it. */
static double crowding(const struct cost *cost, const float *asked, const float *left)
{
    float most = 1;
    for (int k = 0; k < RESOURCE_COUNT; k++)
        if (cost->use[k] > 0 && asked[k] > most * left[k])
            most = asked[k] / left[k];
    return (double)most;
}

static void sum_up(const struct run *r, float first[RESOURCE_COUNT], float others[RESOURCE_COUNT])
{
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        const struct lane *lane = &r->lanes[__builtin_ctz(bits)];
        const struct cost *cost = cost_of(r, &r->s->items[lane->item]);
        float *total = cost->first ? first : others;
        for (int k = 0; k < RESOURCE_COUNT; k++)
            total[k] += cost->use[k];
    }
}

static void what_is_left(const float first[RESOURCE_COUNT], float left[RESOURCE_COUNT])
{
    for (int k = 0; k < RESOURCE_COUNT; k++)
        left[k] = 1 - first[k] > LEFT_AT_LEAST ? 1 - first[k] : LEFT_AT_LEAST;
}

/* Each kernel's rate: its part of the resource that it gets the least of. */
static void share_out(struct run *r)
{
    static const float nothing[RESOURCE_COUNT] = {0};
    float first[RESOURCE_COUNT] = {0}, others[RESOURCE_COUNT] = {0}, left[RESOURCE_COUNT];
    float all[RESOURCE_COUNT];
    r->changed = false;
    sum_up(r, first, others);
    what_is_left(first, left);
    what_is_left(nothing, all);
    bool computes = false;
    for (uint32_t bits = r->running; bits; bits &= bits - 1)
        computes |= !r->s->items[r->lanes[__builtin_ctz(bits)].item].collective;
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        struct lane *lane = &r->lanes[__builtin_ctz(bits)];
        const struct cost *cost = cost_of(r, &r->s->items[lane->item]);
        lane->rate = 1 / (cost->first ? crowding(cost, first, all) : crowding(cost, others, left));
        if (computes && cost->slowdown > 1)
            lane->rate /= (double)cost->slowdown;
    }
}

static enum spent spent_on(const struct run *r, bool talks)
{
    const struct lane *compute = &r->lanes[LANE_COMPUTE];
    if (compute->item != NEVER && !r->s->items[compute->item].collective)
        return cost_of(r, &r->s->items[compute->item])->use[RESOURCE_COMPUTE] >= 1 ? SPENT_COMPUTE
                                                                                   : SPENT_MEMORY;
    return talks ? SPENT_NETWORK : r->running ? SPENT_COPY : SPENT_HOST;
}

static void go_to(struct run *r, double next)
{
    const double step = next - r->now;
    bool talks = false;
    for (uint32_t bits = r->running; bits; bits &= bits - 1)
        talks |= r->s->items[r->lanes[__builtin_ctz(bits)].item].collective;
    r->out->spent_s[spent_on(r, talks)] += step;
    if (talks)
        r->out->communication_s += step;
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        struct lane *lane = &r->lanes[__builtin_ctz(bits)];
        lane->left_s -= step * lane->rate;
        if (lane->left_s > 1e-12 && lane->left_s > 1e-12 * next)
            continue;
        r->out->end_s[lane->item] = next;
        lane->item = NEVER;
        r->running &= ~(1U << (lane - r->lanes));
        r->changed = true;
    }
    r->now = next;
}

/* When the next kernel ends or the next issue arrives that a lane waits for; INFINITY: never. */
static double next_moment(const struct run *r)
{
    double next = INFINITY;
    for (uint32_t stream = 0; stream < r->s->lane_count; stream++) {
        const struct lane *lane = &r->lanes[stream];
        const double moment =
            lane->item == NEVER ? lane->blocked_until : r->now + lane->left_s / lane->rate;
        next = moment < next ? moment : next;
    }
    return next;
}

/* When a lane that is not `own` changes by itself: ends its kernel, or has its next one issued. */
static double others_moment(const struct run *r, const struct lane *own)
{
    double moment = INFINITY;
    for (uint32_t stream = 0; stream < r->s->lane_count; stream++) {
        const struct lane *lane = &r->lanes[stream];
        if (lane == own)
            continue;
        const double own_moment =
            lane->item == NEVER ? lane->blocked_until : r->now + lane->left_s / lane->rate;
        moment = own_moment < moment ? own_moment : moment;
    }
    return moment;
}

/* The lane of the only kernel that is not served first; NULL: there are several, or none. */
static struct lane *only_other(struct run *r, bool *talks)
{
    struct lane *found = NULL;
    *talks = false;
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        struct lane *lane = &r->lanes[__builtin_ctz(bits)];
        *talks |= r->s->items[lane->item].collective;
        if (cost_of(r, &r->s->items[lane->item])->first)
            continue;
        if (found)
            return NULL;
        found = lane;
    }
    return found && !r->s->items[found->item].collective ? found : NULL;
}

/* The usual case, made short: kernel follows kernel on one lane while nothing else begins or ends,
 * and what is served first takes no notice of them. Leaves everything as the longer way would. */
static void run_on(struct run *r)
{
    bool talks;
    struct lane *lane = only_other(r, &talks);
    if (!lane)
        return;
    float first[RESOURCE_COUNT] = {0}, ignored[RESOURCE_COUNT] = {0}, left[RESOURCE_COUNT];
    const double begin = r->now, horizon = others_moment(r, lane);
    sum_up(r, first, ignored);
    what_is_left(first, left);
    while (lane->at < lane->issued) {
        const double end = r->now + lane->left_s / lane->rate;
        const uint32_t next = r->s->queue[lane->at];
        const struct item *item = &r->s->items[next];
        const struct cost *cost = cost_of(r, item);
        if (end >= horizon || item->kind != ITEM_RUN || item->after != NEVER || cost->first ||
            r->out->issue_s[next] > end)
            break;
        r->out->spent_s[spent_on(r, talks)] += end - r->now;
        r->out->end_s[lane->item] = r->out->begin_s[next] = r->now = end;
        lane->at++;
        lane->item = next;
        lane->left_s = cost->device_s * r->scale[cost->class];
        lane->rate = 1 / crowding(cost, cost->use, left);
    }
    const double passed = r->now - begin;
    if (talks)
        r->out->communication_s += passed;
    for (uint32_t bits = r->running; bits; bits &= bits - 1) {
        struct lane *other = &r->lanes[__builtin_ctz(bits)];
        if (other != lane)
            other->left_s -= passed * other->rate;
    }
}

void simulate(const struct simulation *s, const struct costs *costs, const double *scale,
              struct timeline *out)
{
    double ones[COST_CLASSES];
    for (int class = 0; class < COST_CLASSES; class ++)
        ones[class] = 1;
    struct run r = {.s = s, .costs = costs, .scale = scale ? scale : ones, .out = out};
    for (uint32_t stream = 0; stream < s->lane_count; stream++)
        r.lanes[stream] = (struct lane){.at = s->first[stream],
                                        .issued = s->first[stream],
                                        .item = NEVER,
                                        .blocked_until = INFINITY};
    out->communication_s = out->host_s = 0;
    memset(out->spent_s, 0, sizeof out->spent_s);
    for (;;) {
        if (r.host < s->count)
            host_issue(&r);
        start_all(&r);
        if (host_can_go_on(&r))
            continue;
        if (r.changed)
            share_out(&r);
        run_on(&r);
        const double next = next_moment(&r);
        if (isinf(next))
            break; /* a verified plan has nothing left then */
        go_to(&r, next);
    }
    if (r.host_s > r.now) { /* the last thing was the host's */
        out->spent_s[SPENT_HOST] += r.host_s - r.now;
        r.now = r.host_s;
    }
    out->step_s = r.now;
    out->compute_s = out->spent_s[SPENT_COMPUTE] + out->spent_s[SPENT_MEMORY];
    out->exposed_s = out->spent_s[SPENT_NETWORK];
}

const char *spent_name(enum spent spent)
{
    static const char *const names[] = {
#define X(name, text) text,
        SPENT_MAP(X)
#undef X
    };
    return names[spent];
}
