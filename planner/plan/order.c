/* order.c - see order.h.
 *
 * A lane counts its kernels. Its clock says how many of each other lane's are over when it comes to
 * its next one; a record keeps the clock, a wait takes what was kept. Of every buffer we remember
 * who reached which bytes last: what a later write covers is forgotten, because whoever comes
 * behind that write comes behind what was before it. */
#include "plan/order.h"

#include "base/layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, TEXT = 256 };

#define NONE UINT32_MAX

struct clock {
    uint32_t over[LANES_MOST];
};

struct access {
    uint64_t begin, end; /* bytes of the buffer */
    uint32_t next;       /* of the same buffer; NONE: the last */
    uint32_t place;      /* among its lane's kernels, from 1 on */
    uint32_t instruction;
    uint8_t lane;
    bool writes;
    bool inherited; /* of a buffer that had its memory before */
};

struct left { /* of what was freed: the last kernel of a lane that reached it */
    uint32_t place, instruction;
};

struct order {
    const struct plan *plan;
    struct err *err;
    struct clock lanes[LANES_MOST];
    struct clock host;                        /* what is over for all that is issued from now on */
    struct clock *events;                     /* (event_count) */
    struct clock *groups;                     /* (group_count) behind the last collective of each */
    uint32_t *first;                          /* (buffers) of its accesses */
    struct left left[LANES_MOST][LANES_MOST]; /* by pool and lane */
    struct access *accesses;
    uint32_t count, cap, unused; /* unused: the first of those to be used again */
};

static void join(struct clock *into, const struct clock *from, uint32_t lanes)
{
    for (uint32_t i = 0; i < lanes; i++)
        if (from->over[i] > into->over[i])
            into->over[i] = from->over[i];
}

/* ---- what is remembered of a buffer ---- */

static void forget(struct order *o, uint32_t *link)
{
    const uint32_t gone = *link;
    *link = o->accesses[gone].next;
    o->accesses[gone].next = o->unused;
    o->unused = gone;
}

static void remember(struct order *o, uint32_t buffer, const struct access *access)
{
    uint32_t at = o->unused;
    if (at == NONE) {
        ARRAY_GROW(o->accesses, o->count, o->cap);
        at = o->count++;
    } else {
        o->unused = o->accesses[at].next;
    }
    o->accesses[at] = *access;
    o->accesses[at].next = o->first[buffer];
    o->first[buffer] = at;
}

/* Whether the later of two says all that the earlier one does. */
static bool covers(const struct access *later, const struct access *earlier)
{
    return later->begin <= earlier->begin && later->end >= earlier->end &&
           (later->writes || (!earlier->writes && later->lane == earlier->lane));
}

/* ---- what is wrong ---- */

static const char *lane_name(const struct order *o, uint8_t lane)
{
    return o->plan->lanes[lane].name;
}

static enum err_code clash(const struct order *o, const struct access *access, uint32_t buffer,
                           const struct access *with)
{
    char what[TEXT], scope[TEXT];
    const struct plan_instruction *instruction = &o->plan->instructions[access->instruction];
    return err_set(o->err, ERR_INTERNAL,
                   "instruction %u, %s on \"%s\" in %s: it %s buffer %u, %s, %s instruction %u on "
                   "\"%s\" %s: nothing keeps them in order",
                   access->instruction, plan_op_name((enum plan_op)instruction->op),
                   lane_name(o, access->lane),
                   plan_scope_text(o->plan, instruction, scope, sizeof scope),
                   access->writes ? "writes" : "reads", buffer,
                   plan_buffer_text(o->plan, &o->plan->buffers[buffer], what, sizeof what),
                   with->inherited ? "whose memory may be what" : "which", with->instruction,
                   lane_name(o, with->lane),
                   with->inherited ? "uses"
                   : with->writes  ? "writes"
                                   : "reads");
}

/* ---- instructions ---- */

/* `lane` is at its next kernel, or at an allocation from its pool. */
static enum err_code reach(struct order *o, uint32_t buffer, const struct access *access)
{
    const struct clock *now = &o->lanes[access->lane];
    for (uint32_t *link = &o->first[buffer]; *link != NONE;) {
        const struct access *before = &o->accesses[*link];
        const bool meet = before->begin < access->end && access->begin < before->end;
        if (meet && (access->writes || before->writes) && before->lane != access->lane &&
            now->over[before->lane] < before->place)
            return clash(o, access, buffer, before);
        if (covers(access, before))
            forget(o, link);
        else
            link = &o->accesses[*link].next;
    }
    remember(o, buffer, access);
    return ERR_OK;
}

/* Bytes that an operand of an instruction reaches; those of a view that is expanded are fewer. */
static struct access access_of(const struct order *o, const struct plan_place *place,
                               const struct operand *operand)
{
    const uint64_t bytes = o->plan->buffers[place->buffer].bytes;
    const uint32_t element = dtype_bytes((enum dtype)operand->dtype);
    uint64_t elements;
    struct access access = {.begin = place->offset * element, .end = bytes};
    if (operand_reach(operand, &elements) && elements <= (bytes - access.begin) / element)
        access.end = access.begin + elements * element;
    return access;
}

static enum err_code reach_operands(struct order *o, uint32_t id)
{
    const struct plan_instruction *instruction = &o->plan->instructions[id];
    const struct kernel *kernel = plan_kernel(o->plan, instruction->arg);
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const struct operand *operand = &kernel->operands[i];
        if (shape_elements(&operand->shape) == 0)
            continue;
        const struct plan_place place = plan_operand_place(o->plan, instruction, operand);
        struct access access = access_of(o, &place, operand);
        access.instruction = id;
        access.lane = instruction->lane;
        access.place = o->lanes[access.lane].over[access.lane] + 1;
        access.writes = i >= kernel->ins;
        TRY(reach(o, place.buffer, &access));
    }
    return ERR_OK;
}

static enum err_code run_kernel(struct order *o, uint32_t id)
{
    const struct plan *plan = o->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    struct clock *lane = &o->lanes[instruction->lane];
    const bool collective = plan_op_is_collective((enum plan_op)instruction->op);
    if (collective)
        join(lane, &o->groups[instruction->group], plan->lane_count);
    TRY(reach_operands(o, id));
    lane->over[instruction->lane]++;
    if (collective)
        o->groups[instruction->group] = *lane;
    return ERR_OK;
}

/* The batch is copied in, in the compute lane's order. */
static enum err_code write_inputs(struct order *o, uint32_t id)
{
    const struct plan *plan = o->plan;
    struct clock *compute = &o->lanes[LANE_COMPUTE];
    join(compute, &o->host, plan->lane_count);
    for (uint32_t i = 0; i < plan->input_count; i++) {
        const uint32_t buffer = plan->inputs[i].buffer;
        TRY(reach(o, buffer,
                  &(struct access){.end = plan->buffers[buffer].bytes,
                                   .place = compute->over[LANE_COMPUTE] + 1,
                                   .instruction = id,
                                   .lane = LANE_COMPUTE,
                                   .writes = true}));
    }
    compute->over[LANE_COMPUTE] += plan->input_count > 0;
    return ERR_OK;
}

/* A new buffer may lie where others of its pool were: who still reached those when they were freed
 * has, for all we know, reached this one. So has the pool's own lane. */
static void allocate(struct order *o, uint32_t id, uint32_t buffer)
{
    const struct buffer *of = &o->plan->buffers[buffer];
    const struct left *left = o->left[of->pool];
    if (of->pool == LANE_HOST || of->bytes == 0)
        return;
    for (uint8_t lane = 0; lane < o->plan->lane_count; lane++) {
        const bool own = lane == of->pool;
        const uint32_t place = own ? o->lanes[lane].over[lane] : left[lane].place;
        if (place > 0)
            remember(o, buffer,
                     &(struct access){.end = of->bytes,
                                      .place = place,
                                      .instruction = own ? id : left[lane].instruction,
                                      .lane = lane,
                                      .writes = true,
                                      .inherited = true});
    }
}

/* The pool has the memory back with whoever still reaches it; but for a lane that is named, and
 * what that one has waited for (memory/deferred.h). */
static void release(struct order *o, uint32_t id, uint32_t buffer)
{
    const uint8_t pool = o->plan->buffers[buffer].pool, last = o->plan->instructions[id].lane;
    const bool deferred = last != pool;
    for (; o->first[buffer] != NONE; forget(o, &o->first[buffer])) {
        const struct access *access = &o->accesses[o->first[buffer]];
        struct left *left = &o->left[pool][access->lane];
        if (deferred &&
            (access->lane == last || o->lanes[last].over[access->lane] >= access->place))
            continue;
        if (access->place > left->place)
            *left = (struct left){access->place, access->instruction};
    }
}

static enum err_code run_instruction(struct order *o, uint32_t id)
{
    const struct plan *plan = o->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    struct clock *lane = instruction->op == PLAN_WAIT && instruction->lane == LANE_HOST
                             ? &o->host
                             : &o->lanes[instruction->lane];
    join(lane, &o->host, plan->lane_count);
    switch (instruction->op) {
    case PLAN_ALLOC:
        allocate(o, id, instruction->arg);
        return ERR_OK;
    case PLAN_FREE:
        release(o, id, instruction->arg);
        return ERR_OK;
    case PLAN_RECORD:
        o->events[instruction->arg] = *lane;
        return ERR_OK;
    case PLAN_WAIT:
        join(lane, &o->events[instruction->arg], plan->lane_count);
        return ERR_OK;
    case PLAN_USE: /* nothing is read: what is, has an instruction of its own */
        return ERR_OK;
    case PLAN_MARK:
        return instruction->arg == PLAN_MARK_MICRO_BATCH ? write_inputs(o, id) : ERR_OK;
    default:
        return run_kernel(o, id);
    }
}

enum err_code plan_check_order(const struct plan *plan, struct err *err)
{
    struct order o = {.plan = plan, .err = err, .unused = NONE};
    o.events = xcalloc(plan->event_count + 1, sizeof *o.events);
    o.groups = xcalloc(plan->group_count + 1, sizeof *o.groups);
    o.cap = plan->buffer_count + 1; /* about one a buffer */
    o.accesses = xmalloc(o.cap * sizeof *o.accesses);
    o.first = xmalloc((plan->buffer_count + 1) * sizeof *o.first);
    memset(o.first, 0xff, (plan->buffer_count + 1) * sizeof *o.first);
    enum err_code rc = ERR_OK;
    for (int step = 0; step < STEPS && rc == ERR_OK; step++)
        for (uint32_t i = 0; i < plan->instruction_count && rc == ERR_OK; i++)
            if (plan_is_issued(&plan->instructions[i], step == 0))
                rc = run_instruction(&o, i);
    free(o.events);
    free(o.groups);
    free(o.first);
    free(o.accesses);
    return rc;
}
