/* frame.c - see frame.h. */
#include "search/frame.h"

#include "job/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GRAIN = 2 << 20 }; /* bytes: segments are multiples of that, allocator.h */

/* Shares of resources are floats, and sums may come out in another order. */
#define ROUNDING 1e-6

/* ---- time ---- */

/* A kernel of the strategy's, in every step. */
static bool is_own(const struct plan *plan, const struct plan_instruction *in)
{
    return plan_op_is_kernel((enum plan_op)in->op) && in->arg >= plan->shared_count &&
           !(in->flags & PLAN_FIRST_STEP);
}

static const struct cost *cost_of(const struct costs *costs, const struct plan_instruction *in)
{
    return &costs->kernels[in->arg - costs->first];
}

/* What the host pays for records and waits is left out: how many there are may depend on how far
 * ahead things are fetched. */
static void add_instruction(const struct plan *plan, const struct costs *costs,
                            const struct plan_instruction *in, struct busy *busy)
{
    if (!is_own(plan, in))
        return;
    struct cost cost = *cost_of(costs, in);
    if (in->lane == LANE_HOST)
        cost.host_s = 0; /* the host runs it instead of issuing it */
    busy_add(busy, in->lane, &cost);
    if (plan_op_is_collective((enum plan_op)in->op) && in->group < LANES_MOST)
        busy->group_s[in->group] += cost.device_s;
}

static void served_most(struct served *most, const struct cost *cost)
{
    const float compute = cost->use[RESOURCE_COMPUTE], memory = cost->use[RESOURCE_MEMORY];
    const float slowdown = fmaxf(1, cost->slowdown);
    for (int k = 0; k < RESOURCE_COUNT; k++)
        most->use[k] = fmaxf(most->use[k], cost->use[k]);
    most->joint = fmaxf(most->joint, slowdown * fminf(compute, memory));
    most->held = fmaxf(most->held, slowdown * compute);
    most->excess = fmaxf(most->excess, compute - memory);
}

static struct served served_together(const struct served *of, uint32_t count)
{
    struct served all = {.joint = 0};
    for (uint32_t i = 0; i < count; i++) {
        for (int k = 0; k < RESOURCE_COUNT; k++)
            all.use[k] += of[i].use[k];
        all.joint += of[i].joint;
        all.held += of[i].held;
        all.excess += of[i].excess;
    }
    return all;
}

static struct served served_least(const struct served *a, const struct served *b)
{
    struct served least = {.joint = fminf(a->joint, b->joint),
                           .held = fminf(a->held, b->held),
                           .excess = fminf(a->excess, b->excess)};
    for (int k = 0; k < RESOURCE_COUNT; k++)
        least.use[k] = fminf(a->use[k], b->use[k]);
    return least;
}

struct slowing {                  /* of a kernel beside the strategy's, at most */
    float first[RESOURCE_COUNT];  /* what those that are served first ask for */
    float others[RESOURCE_COUNT]; /* ... and the rest of other lanes than the compute stream's */
};

/* Of a resource that is served first so much is left to others: a tenth at least (simulate.c). */
static double left(double first)
{
    return fmax(0.1, 1 - first);
}

/* Of the rest one kernel runs on each lane at a time, too. */
static struct slowing find_slowing(const struct plan *plan, const struct costs *costs,
                                   const struct served *served)
{
    struct slowing slowing = {.first = {0}};
    float most[LANES_MOST][RESOURCE_COUNT] = {{0}};
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (!is_own(plan, in) || in->lane <= LANE_HOST || cost_of(costs, in)->first)
            continue;
        for (int k = 0; k < RESOURCE_COUNT; k++)
            most[in->lane][k] = fmaxf(most[in->lane][k], cost_of(costs, in)->use[k]);
    }
    for (int k = 0; k < RESOURCE_COUNT; k++) {
        slowing.first[k] = served->use[k];
        for (uint32_t lane = 0; lane < plan->lane_count; lane++)
            slowing.others[k] += most[lane][k];
    }
    return slowing;
}

/* Of what is served first one kernel runs on each lane at a time, and one of each group. */
static void note_first(const struct plan *plan, const struct costs *costs, struct frame *frame)
{
    struct served lanes[LANES_MOST], groups[PLAN_NO_GROUP + 1];
    memset(lanes, 0, sizeof lanes);
    memset(groups, 0, (plan->group_count + 1) * sizeof *groups); /* the last: of those of none */
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (!is_own(plan, in))
            continue;
        const struct cost *cost = cost_of(costs, in);
        if (!cost->first)
            continue;
        served_most(&lanes[in->lane], cost);
        served_most(&groups[in->group < plan->group_count ? in->group : plan->group_count], cost);
    }
    const struct served by_lanes = served_together(lanes, plan->lane_count);
    const struct served by_groups = served_together(groups, plan->group_count + 1);
    frame->served = served_least(&by_lanes, &by_groups);
}

/* ---- what the compute stream must wait for ---- */

/* Clocks of what is known to come after some moment; -INFINITY: nothing is. */
struct clocks {
    double lane_s[LANES_MOST], group_s[LANES_MOST], host_s;
    double busy_s; /* of the compute stream */
};

struct chain {
    const struct plan *plan;
    const struct costs *costs;
    const struct slowing *slowing;
    double *event_s; /* (events) */
    uint32_t *known; /* (events) the part of the step that event_s is of */
    uint8_t *by;     /* (events) lane that recorded it */
    uint32_t part;
    struct clocks now;
    double passed_s;     /* within a part: seconds that clocks were set back by */
    uint32_t reductions; /* bits: lanes whose collectives all reduce */
};

static void chain_begin(struct chain *c)
{
    for (uint32_t i = 0; i < LANES_MOST; i++)
        c->now.lane_s[i] = c->now.group_s[i] = -INFINITY;
    c->now.host_s = -INFINITY;
    c->now.lane_s[LANE_COMPUTE] = c->now.busy_s = 0;
    c->passed_s = 0;
    c->part++;
}

static double event_of(const struct chain *c, uint32_t event)
{
    return c->known[event] == c->part ? c->event_s[event] - c->passed_s : -INFINITY;
}

static void note_event(struct chain *c, const struct plan_instruction *in, double at_s)
{
    c->event_s[in->arg] = at_s + c->passed_s;
    c->known[in->arg] = c->part;
    c->by[in->arg] = in->lane;
}

static void chain_kernel(struct chain *c, const struct plan_instruction *in)
{
    struct clocks *now = &c->now;
    const struct cost *cost = cost_of(c->costs, in);
    if (in->lane == LANE_HOST) {
        now->host_s += cost->device_s;
        return;
    }
    now->host_s += cost->host_s;
    double *lane_s = &now->lane_s[in->lane];
    double begin_s = fmax(*lane_s, now->host_s);
    if (plan_op_is_collective((enum plan_op)in->op) && in->group < LANES_MOST) {
        begin_s = fmax(begin_s, now->group_s[in->group]);
        now->group_s[in->group] = begin_s + cost->device_s;
    }
    *lane_s = begin_s + cost->device_s;
    if (in->lane == LANE_COMPUTE)
        now->busy_s += cost->device_s;
}

static void chain_pass(struct chain *c, const struct plan_instruction *in)
{
    struct clocks *now = &c->now;
    double *clock_s = in->lane == LANE_HOST ? &now->host_s : &now->lane_s[in->lane];
    if (is_own(c->plan, in)) {
        chain_kernel(c, in);
    } else if (in->op == PLAN_RECORD || in->op == PLAN_WAIT) {
        if (in->op == PLAN_WAIT)
            *clock_s = fmax(*clock_s, event_of(c, in->arg));
        if (in->lane != LANE_HOST)
            *clock_s = fmax(*clock_s, now->host_s);
        if (in->op == PLAN_RECORD)
            note_event(c, in, *clock_s);
    }
}

/* How long the compute stream stood still on its way to this moment. */
static double idle_of(const struct chain *c)
{
    return fmax(0, fmax(c->now.lane_s[LANE_COMPUTE], c->now.host_s) - c->now.busy_s);
}

/* ---- ... within a micro-batch ----
 *
 * Fetches may come sooner than in a frame, and so may all that waits for them. What comes no sooner
 * is the stream's kernels, the reductions of their gradients, and a host that waits for these: it
 * issues nothing meanwhile, and the compute stream, done with what it was given, stands still. One
 * kernel of that stream after the other, then, from its end on:
 *
 *     compute   |== span ==|copy_in|      stands still      |copy_out|  still  |== span ==|
 *     reduce               |       |== reduce ==|= to host =|
 *     host                                      |   waits   |=== adds ===|
 *                                  0 ---------------------> at most 0 ->
 *
 * So nothing that runs beside the compute stream's work can have shortened it. */

/* How much longer than alone a kernel may take, whatever of the strategy's runs beside it. */
static double slowest_pace(const struct slowing *slowing, const struct cost *cost)
{
    double most = 1;
    for (int k = 0; k < RESOURCE_COUNT; k++) {
        const double first = (double)slowing->first[k], use = (double)cost->use[k];
        if (use > 0)
            most =
                fmax(most, cost->first ? first : (use + (double)slowing->others[k]) / left(first));
    }
    return most * fmax(1, (double)cost->slowdown);
}

/* The compute stream runs a kernel: from now on clocks are against its end. Returns how long the
 * stream stood still before it. Kernels of the model's are not known here, nor how long they take.
 */
static double chain_work(struct chain *c, const struct plan_instruction *in)
{
    struct clocks *now = &c->now;
    const double idle_s = fmax(0, fmax(now->lane_s[LANE_COMPUTE], now->host_s));
    if (in->flags & PLAN_SPAN) {
        chain_begin(c);
        return idle_s;
    }
    const struct cost *cost = cost_of(c->costs, in);
    const double back_s = idle_s + cost->device_s * slowest_pace(c->slowing, cost);
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        now->lane_s[lane] -= back_s;
    now->lane_s[LANE_COMPUTE] = 0;
    now->host_s -= back_s;
    c->passed_s += back_s;
    return idle_s;
}

static bool comes_no_sooner(const struct chain *c, uint32_t lane)
{
    return c->reductions >> lane & 1;
}

/* The host waits for reductions alone: how far ahead fetches may be is a setting of its own. */
static double wait_within(const struct chain *c, const struct plan_instruction *in)
{
    if (in->op != PLAN_WAIT || (in->lane == LANE_HOST && !comes_no_sooner(c, c->by[in->arg])))
        return -INFINITY;
    return event_of(c, in->arg);
}

/* Returns how long the compute stream stood still before it, if that has work there. */
static double chain_pass_within(struct chain *c, const struct plan_instruction *in)
{
    struct clocks *now = &c->now;
    const bool kernel = is_own(c->plan, in);
    if (in->lane == LANE_COMPUTE && (kernel || in->flags & PLAN_SPAN))
        return chain_work(c, in);
    double *clock_s = in->lane == LANE_HOST ? &now->host_s : &now->lane_s[in->lane];
    const bool event = in->op == PLAN_RECORD || in->op == PLAN_WAIT;
    if (in->lane > LANE_HOST && !comes_no_sooner(c, in->lane)) {
        if (in->op == PLAN_RECORD)
            c->known[in->arg] = 0;
    } else if (kernel || event) {
        *clock_s = fmax(fmax(*clock_s, now->host_s), wait_within(c, in));
        *clock_s += kernel ? cost_of(c->costs, in)->device_s : 0;
        if (in->op == PLAN_RECORD)
            note_event(c, in, *clock_s);
    }
    return 0;
}

/* Lanes with reductions and no other collectives, and what is copied from there. */
static uint32_t reductions_of(const struct plan *plan)
{
    uint32_t reductions = 0, fetches = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op == PLAN_REDUCE_SCATTER || in->op == PLAN_ALL_REDUCE)
            reductions |= 1U << in->lane;
        else if (plan_op_is_collective((enum plan_op)in->op) || in->op == PLAN_HOST_TO_DEVICE)
            fetches |= 1U << in->lane;
    }
    return reductions & ~fetches & ~(1U << LANE_COMPUTE | 1U << LANE_HOST);
}

/* ---- ... in a step ---- */

/* Whether the stream passes a gap of it. */
static bool has_gap(const struct plan_instruction *in, uint32_t gap)
{
    return in->flags & PLAN_SPAN && gap >= in->arg && gap - in->arg < in->base;
}

static struct chain chain_of(const struct plan *plan, const struct costs *costs,
                             const struct slowing *slowing)
{
    return (struct chain){.plan = plan,
                          .costs = costs,
                          .slowing = slowing,
                          .event_s = xmalloc((plan->event_count + 1) * sizeof(double)),
                          .known = xcalloc(plan->event_count + 1, sizeof(uint32_t)),
                          .by = xcalloc(plan->event_count + 1, sizeof(uint8_t)),
                          .reductions = reductions_of(plan)};
}

static void chain_free(struct chain *c)
{
    free(c->event_s);
    free(c->known);
    free(c->by);
}

/* Between the last kernel of a micro-batch and the first of the next, before and after all of them,
 * nothing depends on how far ahead anything is fetched: what a micro-batch begins with has nothing
 * before it to be fetched in. */
static void find_idle(const struct stream_class *class, const struct plan *plan,
                      const struct costs *costs, const struct slowing *slowing, struct frame *frame)
{
    struct chain c = chain_of(plan, costs, slowing);
    bool apart = true; /* from a micro-batch's kernels */
    uint32_t batch = 0;
    double between_s = 0, within_s = 0; /* of the micro-batch in the middle */
    chain_begin(&c);
    c.now.host_s = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->flags & PLAN_FIRST_STEP)
            continue;
        if (has_gap(in, class->first_gap) && apart) {
            between_s = idle_of(&c);
            frame->idle_s += between_s;
            apart = false;
            batch++;
            chain_begin(&c);
        }
        if (!apart) {
            const double idle_s = chain_pass_within(&c, in);
            frame->idle_s += idle_s;
            within_s += batch == FRAME_BATCHES - 1 ? idle_s : 0;
        }
        if (has_gap(in, class->last_gap)) {
            chain_begin(&c);
            apart = true;
        }
        if (apart)
            chain_pass(&c, in);
    }
    double end_s = idle_of(&c);
    for (uint32_t lane = 0; lane < plan->lane_count; lane++)
        end_s = fmax(end_s, c.now.lane_s[lane] - c.now.busy_s);
    frame->idle_s += end_s;
    frame->middle_idle_s = between_s + within_s;
    chain_free(&c);
}

/* How long the compute stream works from the optimizer's update on. */
static double update_seconds(const struct plan *plan, const struct costs *costs)
{
    double sum_s = 0;
    bool updates = false;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        updates = updates || in->op == PLAN_OPTIMIZER;
        if (updates && in->lane == LANE_COMPUTE && is_own(plan, in))
            sum_s += cost_of(costs, in)->device_s;
    }
    return sum_s;
}

static void sum_up(const struct plan *plan, const struct costs *costs, struct frame *frame)
{
    const struct plan_micro_batch *batches = plan->micro_batches;
    const bool whole = plan->micro_batch_count == FRAME_BATCHES;
    const uint32_t first = whole ? batches[FRAME_BATCHES - 2].instruction : 0;
    const uint32_t end = whole ? batches[FRAME_BATCHES - 1].instruction : 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->flags & PLAN_FIRST_STEP)
            continue;
        add_instruction(plan, costs, in, &frame->busy);
        if (i >= first && i < end)
            add_instruction(plan, costs, in, &frame->middle);
    }
    note_first(plan, costs, frame);
    frame->update_s = update_seconds(plan, costs);
}

/* ---- memory ----
 *
 * A segment belongs to the stream that it was asked for on, so what each stream's blocks come to at
 * most is there all the time. */

static void raise(uint64_t *most, uint64_t bytes)
{
    *most = bytes > *most ? bytes : *most;
}

/* Segments of other streams than the compute stream. */
static uint64_t pools_beside(const struct outline_gaps *gaps, uint32_t lanes)
{
    uint64_t bytes = 0;
    for (uint32_t lane = 0; lane < lanes; lane++)
        if (lane != LANE_COMPUTE)
            bytes += (gaps->most[lane] + GRAIN - 1) / GRAIN * GRAIN;
    return bytes;
}

/* ---- frames ---- */

struct strategy frame_strategy(const struct strategy *strategy)
{
    struct strategy few = *strategy;
    if (few.accumulate > FRAME_BATCHES)
        few.accumulate = FRAME_BATCHES;
    return few;
}

struct framer {
    const struct machine *machine;
    struct plan *plan; /* an outline of the time before: for its memory */
    struct costs costs;
    struct collective_models *collectives;
    uint64_t *gaps;  /* (2 * gap_cap) */
    int64_t *limits; /* (2 * gap_cap) */
    uint32_t gap_cap;
};

struct framer *framer_new(const struct machine *machine)
{
    struct framer *framer = xmalloc(sizeof *framer);
    *framer = (struct framer){.machine = machine, .collectives = collective_models_new()};
    return framer;
}

void framer_free(struct framer *framer)
{
    if (!framer)
        return;
    plan_free(framer->plan);
    costs_free(&framer->costs);
    collective_models_free(framer->collectives);
    free(framer->gaps);
    free(framer->limits);
    free(framer);
}

/* Room for what is between so many hooks. */
static struct outline_gaps gaps_in(struct framer *framer, uint32_t spans)
{
    if (framer->gap_cap < spans) {
        framer->gap_cap = spans;
        framer->gaps = xrealloc(framer->gaps, 2 * (size_t)spans * sizeof *framer->gaps);
        framer->limits = xrealloc(framer->limits, 2 * (size_t)spans * sizeof *framer->limits);
    }
    return (struct outline_gaps){.during = framer->gaps, .after = framer->gaps + spans};
}

static struct frame *frame_of(const struct stream_class *c)
{
    struct frame *frame = xmalloc(sizeof *frame);
    *frame = (struct frame){
        .during = xcalloc(2 * (size_t)c->gap_count + 1, sizeof *frame->during),
        .gap_count = c->gap_count,
    };
    frame->after = frame->during + c->gap_count;
    return frame;
}

static bool is_beyond(const struct frame *frame, const struct frame_limit *limit)
{
    for (uint32_t i = 0; i < limit->class_count; i++)
        if (limit->of[i / 64] >> i % 64 & 1 &&
            frame_device_floor(frame, limit->classes[i]) <= limit->bytes)
            return false;
    return true;
}

static void lower_to(int64_t *least, uint64_t bytes)
{
    *least = (int64_t)bytes < *least ? (int64_t)bytes : *least;
}

/* What a strategy may have beside that class which leaves it the most: of all that the floor of a
 * frame adds up, less is asked here. */
static struct outline_limit limit_beside(struct framer *framer, const struct frame_limit *limit,
                                         uint64_t host, uint32_t spans)
{
    int64_t resident = INT64_MAX, *during = framer->limits, *after = framer->limits + spans;
    for (uint32_t g = 0; g < 2 * spans; g++)
        framer->limits[g] = INT64_MAX;
    for (uint32_t i = 0; i < limit->class_count; i++) {
        const struct stream_class *c = limit->classes[i];
        if (!(limit->of[i / 64] >> i % 64 & 1))
            continue;
        for (uint32_t g = 0; g < spans; g++) {
            lower_to(&during[g], c->gaps[g].peak + c->workspace);
            lower_to(&after[g], c->gaps[g].live + c->workspace);
        }
        lower_to(&resident, stream_class_device_floor(c));
    }
    for (uint32_t g = 0; g < 2 * spans; g++)
        framer->limits[g] = (int64_t)limit->bytes - framer->limits[g];
    return (struct outline_limit){(int64_t)limit->bytes - resident, during, after, host};
}

enum err_code frame_new(struct framer *framer, const struct stream_class *c,
                        const struct strategy *strategy, struct frame **out, struct err *err)
{
    return frame_new_within(framer, c, strategy, NULL, out, err);
}

enum err_code frame_new_within(struct framer *framer, const struct stream_class *c,
                               const struct strategy *strategy, const struct frame_limit *limit,
                               struct frame **out, struct err *err)
{
    const struct machine *machine = framer->machine;
    const struct strategy few = frame_strategy(strategy);
    struct costs *costs = &framer->costs;
    const struct outline *outline = c->outline;
    struct outline_gaps gaps = gaps_in(framer, outline->span_count);
    struct outlined outlined = {.plan = framer->plan, .gaps = &gaps};
    struct outline_limit beside;
    if (limit && limit->bytes && limit->gives_up) {
        beside = limit_beside(framer, limit, machine_host_limit(machine, strategy->world),
                              outline->span_count);
        outlined.limit = &beside;
    }
    *out = NULL;
    const enum err_code rc = lower_outline(c->graph, outline, &few, &outlined, err);
    const struct plan *plan = framer->plan = outlined.plan;
    TRY(rc);
    struct frame *frame = frame_of(c);
    frame->host_limit = machine_host_limit(machine, plan->world);
    frame->beyond = frame->timeless = outlined.beyond;
    if (frame->beyond) {
        *out = frame;
        return ERR_OK;
    }
    memcpy(frame->during, gaps.during, outline->span_count * sizeof *gaps.during);
    memcpy(frame->after, gaps.after, outline->span_count * sizeof *gaps.after);
    frame->outside = machine_outside_bytes(plan, machine);
    frame->apart = gaps.apart;
    frame->host = gaps.host;
    frame->host_blocks = gaps.host_blocks;
    frame->beside = pools_beside(&gaps, plan->lane_count);
    frame->timeless = limit && limit->bytes && is_beyond(frame, limit);
    if (frame->timeless) {
        *out = frame;
        return ERR_OK;
    }
    const enum err_code costed = costs_of_own(plan, &machine->profile, machine->gpus_per_node,
                                              framer->collectives, costs, err);
    if (costed != ERR_OK) {
        frame_free(frame);
        return costed;
    }
    sum_up(plan, costs, frame);
    const struct slowing slowing = find_slowing(plan, costs, &frame->served);
    find_idle(c, plan, costs, &slowing, frame);
    *out = frame;
    return ERR_OK;
}

void frame_free(struct frame *frame)
{
    if (!frame)
        return;
    free(frame->during);
    free(frame);
}

/* ---- bounds ---- */

uint64_t frame_host(const struct frame *f, const struct stream_class *c)
{
    return f->host + (c->host > f->host_blocks ? c->host - f->host_blocks : 0);
}

uint64_t frame_device_floor(const struct frame *f, const struct stream_class *c)
{
    uint64_t most = f->apart;
    if (f->beyond || frame_host(f, c) > f->host_limit)
        return UINT64_MAX;
    for (uint32_t g = 0; g < f->gap_count; g++) {
        raise(&most, f->during[g] + c->gaps[g].peak);
        raise(&most, f->after[g] + c->gaps[g].live);
    }
    most += c->workspace;
    return f->outside + f->beside + (most + GRAIN - 1) / GRAIN * GRAIN;
}

/* Others are left a tenth where what is served first asks for all (simulate.c). */
static double there(float first)
{
    return fmax(1, (double)first + 0.1);
}

/* Each moment of a step is worth something: what runs adds its rate times a weight, and the sum
 * over the step is each kernel's time times its weight. So a step lasts at least that sum over what
 * a moment is worth at most; and while the compute stream stands still a moment is worth no more
 * than what is served first. Two choices of weights, of which the better one counts. */
static double weighed(double sum_s, double limit, double first, double idle_s)
{
    limit = fmax(limit, first);
    return (sum_s + (limit - first) * idle_s) / limit;
}

/* What is summed up over a step: micro-batches of the class, and all else. */
struct summed {
    struct busy all;
    const struct stream_class *stream_class;
    double batches;
    double idle_s;
};

/* As if whatever the compute stream runs beside others were bound by what they need less of. What
 * is bound by nothing is worth all that these leave. */
static double either_floor(const struct served *first, const struct summed *sum)
{
    const double limit =
        fmax(there(first->use[RESOURCE_COMPUTE]), there(first->use[RESOURCE_MEMORY]));
    const double raised_s =
        sum->batches * stream_class_raised_s(sum->stream_class, 1 - (double)first->joint);
    return weighed(sum->all.joint_s + raised_s, limit, (double)first->joint, sum->idle_s);
}

/* What is bound by arithmetic loses the multiprocessors that others hold. What is not loses less by
 * them, so that its time is worth less, too: by so much that beside others, who are never better
 * placed than there, it comes to the same. */
static double bound_floor(const struct served *first, const struct summed *sum)
{
    const struct busy *all = &sum->all;
    const double compute = (double)first->use[RESOURCE_COMPUTE];
    const double memory = (double)first->use[RESOURCE_MEMORY];
    if (memory >= 1)
        return 0;
    const double rest = fmax(0, 1 - (double)first->excess / (1 - memory));
    const double raised_s =
        rest > 0 ? sum->batches * stream_class_raised_s(sum->stream_class, (1 - compute) / rest)
                 : 0;
    const double rest_s = fmax(rest * (all->rest_used_s + raised_s), (1 - compute) * all->rest_s);
    return weighed(all->bound_s + rest_s + all->held_s, there(first->use[RESOURCE_COMPUTE]),
                   (double)first->held, sum->idle_s);
}

double frame_step_floor(const struct frame *f, const struct stream_class *c, uint32_t accumulate)
{
    const double more = accumulate > FRAME_BATCHES ? accumulate - FRAME_BATCHES : 0;
    struct summed sum = {f->busy, c, accumulate, f->idle_s + more * f->middle_idle_s};
    struct busy *all = &sum.all;
    busy_add_all(all, &f->middle, more);
    busy_add_all(all, &c->busy, accumulate);
    double most_s =
        fmax(all->host_s + all->lane_s[LANE_HOST], all->lane_s[LANE_COMPUTE] + sum.idle_s);
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        most_s = fmax(most_s, lane == LANE_HOST ? 0 : all->lane_s[lane]);
    for (uint32_t group = 0; group < LANES_MOST; group++)
        most_s = fmax(most_s, all->group_s[group]);
    for (int k = 0; k < RESOURCE_COUNT; k++)
        most_s = fmax(most_s, all->resource_s[k] / there(f->served.use[k]));
    most_s = fmax(most_s, either_floor(&f->served, &sum));
    most_s = fmax(most_s, bound_floor(&f->served, &sum));
    return most_s * (1 - ROUNDING);
}

double frame_floor_behind(const struct frame *f, double update_s)
{
    return update_s > 0 ? (update_s + f->update_s) * (1 - ROUNDING) : 0;
}
