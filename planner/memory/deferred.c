/* deferred.c - see deferred.h.
 *
 * A lane is behind what it has waited for, and so behind what those lanes were behind when they
 * recorded the events. So each lane and each event has a row: for every lane, the last record or
 * collective on it that it is behind. A record copies its lane's row, a wait takes the larger of
 * both. A collective does both with the row of its group.
 *
 *                        compute  gather  reduce
 *     record e1, gather                             e1      (-, 7, -)
 *     wait e1, compute                              compute (-, 7, -)
 *     record e2, compute                            e2      (9, 7, -)
 *     wait e2, reduce                               reduce  (9, 7, -): behind gather, too
 *
 * Rows are kept from the first deferred free of a step on; what came before it is looked up then.
 * So is the last kernel that a lane had before a free. */
#include "memory/deferred.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct row {
    uint32_t of[LANES_MOST]; /* id + 1 of the last one; 0: none */
};

struct pending {
    struct allocator_block *block;
    struct row after; /* of each lane that is waited for, its last kernel that used the block */
    double done_s;    /* by the clock, where there is one */
    uint8_t pool;
};

struct named { /* by a `use`, until the buffer is freed */
    uint32_t buffer;
    uint8_t lane;
};

struct deferred {
    const struct plan *plan;
    struct allocator *allocator;
    const struct deferred_clock *clock; /* NULL: waits show what is over */
    struct pending *pending;            /* in the order of their frees */
    uint32_t count, cap;
    struct named *named;
    uint32_t named_count, named_cap;
    bool following;                  /* rows are those of this step */
    struct row lane[LANES_MOST];     /* what each lane is behind */
    struct row *event;               /* (events) NULL: never needed */
    struct row group[PLAN_NO_GROUP]; /* what the group's next collective is behind */
};

struct deferred *deferred_new(const struct plan *plan, struct allocator *allocator,
                              const struct deferred_clock *clock)
{
    struct deferred *d = xmalloc(sizeof *d);
    *d = (struct deferred){.plan = plan, .allocator = allocator, .clock = clock};
    return d;
}

void deferred_close(struct deferred *d)
{
    if (!d)
        return;
    free(d->event);
    free(d->named);
    free(d->pending);
    free(d);
}

/* ---- which lane is behind which ---- */

/* `row` is behind what `other` is. */
static void join(struct row *row, const struct row *other)
{
    for (int l = 0; l < LANES_MOST; l++)
        row->of[l] = row->of[l] > other->of[l] ? row->of[l] : other->of[l];
}

static void follow_wait(struct deferred *d, uint8_t lane, const struct row *event)
{
    for (uint32_t l = 0; l < LANES_MOST; l++)
        if (l == lane || lane == LANE_HOST) /* what the host issues from now on */
            join(&d->lane[l], event);
}

static bool is_followed(const struct plan_instruction *in)
{
    return in->op == PLAN_RECORD || in->op == PLAN_WAIT ||
           plan_op_is_collective((enum plan_op)in->op);
}

static void follow(struct deferred *d, uint32_t id)
{
    const struct plan_instruction *in = &d->plan->instructions[id];
    struct row *lane = &d->lane[in->lane];
    if (in->op == PLAN_WAIT) {
        follow_wait(d, in->lane, &d->event[in->arg]);
        return;
    }
    if (plan_op_is_collective((enum plan_op)in->op))
        join(lane, &d->group[in->group]);
    struct row *to = in->op == PLAN_RECORD ? &d->event[in->arg] : &d->group[in->group];
    *to = *lane;
    to->of[in->lane] = id + 1;
}

/* Rows of the step so far, in which `id` is the next instruction. */
static void follow_to(struct deferred *d, uint32_t id, bool first_step)
{
    if (!d->event)
        d->event = xmalloc((d->plan->event_count + 1U) * sizeof *d->event);
    memset(d->event, 0, (d->plan->event_count + 1U) * sizeof *d->event);
    memset(d->lane, 0, sizeof d->lane);
    memset(d->group, 0, sizeof d->group);
    d->following = true;
    for (uint32_t i = 0; i < id; i++) {
        const struct plan_instruction *in = &d->plan->instructions[i];
        if (is_followed(in) && plan_is_issued(in, first_step))
            follow(d, i);
    }
}

/* A lane that has had no kernel with the buffer in this step is done with it. */
static bool is_over(const struct deferred *d, const struct pending *p)
{
    bool over = true;
    for (int l = 0; l < LANES_MOST; l++)
        over &= d->lane[p->pool].of[l] >= p->after.of[l];
    return over;
}

/* ---- frees ---- */

static bool uses(const struct plan *plan, const struct plan_instruction *in, uint32_t buffer)
{
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
        if (plan_operand_place(plan, in, &kernel->operands[i]).buffer == buffer)
            return true;
    return false;
}

/* One more than the last kernel on a lane before the free `id` that has its buffer for an operand;
 * 0: none since the buffer was allocated. */
static uint32_t after_last_use(const struct plan *plan, uint32_t id, uint8_t lane, bool first_step)
{
    const uint32_t buffer = plan->instructions[id].arg;
    for (; id > 0; id--) {
        const struct plan_instruction *in = &plan->instructions[id - 1];
        if (in->op == PLAN_ALLOC && in->arg == buffer)
            return 0;
        if (in->lane == lane && plan_op_is_kernel((enum plan_op)in->op) &&
            plan_is_issued(in, first_step) && uses(plan, in, buffer))
            return id;
    }
    return 0;
}

/* The pool's own lane is no other: what takes the block next there is behind its work. */
static void name_user(struct deferred *d, const struct plan_instruction *in)
{
    if (in->lane == d->plan->buffers[in->arg].pool)
        return;
    for (uint32_t i = 0; i < d->named_count; i++)
        if (d->named[i].buffer == in->arg && d->named[i].lane == in->lane)
            return;
    ARRAY_GROW(d->named, d->named_count, d->named_cap);
    d->named[d->named_count++] = (struct named){in->arg, in->lane};
}

/* What the free `id` waits for, of lanes that were named before. */
static void add_named(struct deferred *d, uint32_t id, bool first_step, struct row *after)
{
    const uint32_t buffer = d->plan->instructions[id].arg;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->named_count; i++) {
        const struct named named = d->named[i];
        if (named.buffer == buffer)
            after->of[named.lane] = after_last_use(d->plan, id, named.lane, first_step);
        else
            d->named[kept++] = named;
    }
    d->named_count = kept;
}

static void add_pending(struct deferred *d, const struct pending *pending)
{
    ARRAY_GROW(d->pending, d->count, d->cap);
    d->pending[d->count++] = *pending;
}

void deferred_free(struct deferred *d, uint32_t id, bool first_step, struct allocator_block *block)
{
    const struct plan_instruction *in = &d->plan->instructions[id];
    struct pending pending = {.block = block, .pool = d->plan->buffers[in->arg].pool};
    if (d->clock) {
        pending.done_s = d->clock->done_s[id];
        allocator_request_free(d->allocator, block);
        add_pending(d, &pending);
        return;
    }
    if (!d->following)
        follow_to(d, id, first_step);
    pending.after.of[in->lane] = after_last_use(d->plan, id, in->lane, first_step);
    add_named(d, id, first_step, &pending.after);
    allocator_request_free(d->allocator, block);
    if (is_over(d, &pending)) {
        allocator_complete_free(d->allocator, block);
        return;
    }
    add_pending(d, &pending);
}

void deferred_reach(struct deferred *d, uint32_t id)
{
    uint32_t kept = 0;
    assert(d->clock);
    for (uint32_t i = 0; i < d->count; i++)
        if (d->pending[i].done_s <= d->clock->host_s[id])
            allocator_complete_free(d->allocator, d->pending[i].block);
        else if (kept++ != i)
            d->pending[kept - 1] = d->pending[i];
    d->count = kept;
}

void deferred_pass(struct deferred *d, uint32_t id)
{
    const struct plan_instruction *in = &d->plan->instructions[id];
    uint32_t kept = 0;
    if (d->clock)
        return;
    if (in->op == PLAN_USE) {
        name_user(d, in);
        return;
    }
    if (!d->following)
        return;
    follow(d, id);
    if (in->op == PLAN_RECORD) /* no lane is behind more than before it */
        return;
    for (uint32_t i = 0; i < d->count; i++) {
        const struct pending *pending = &d->pending[i];
        const bool is_ahead = in->lane == pending->pool || in->lane == LANE_HOST;
        if (is_ahead && is_over(d, pending))
            allocator_complete_free(d->allocator, pending->block);
        else if (kept++ != i)
            d->pending[kept - 1] = *pending;
    }
    d->count = kept;
}

void deferred_complete(struct deferred *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        allocator_complete_free(d->allocator, d->pending[i].block);
    d->count = 0;
}

void deferred_end_step(struct deferred *d)
{
    deferred_complete(d);
    d->following = false;
}
