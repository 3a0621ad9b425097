/* clocked.c - see clocked.h. */
#include "job/clocked.h"

#include "base/arena.h"
#include "cost/cost.h"
#include "job/ranks.h"

#include <stdlib.h>

struct clocking {
    const struct plan *plan;
    const struct simulation *simulation;
    const struct timeline *timeline;
    double *host_s, *done_s;                    /* (instructions) */
    uint64_t *used;                             /* (buffers) bits: lanes that a `use` named */
    double begin_s[LANES_MOST][LAUNCHES_AHEAD]; /* of the last kernels of each lane */
    double end_s[LANES_MOST];                   /* of the last that the lane was given */
    uint32_t launched[LANES_MOST];
    double host, delay; /* by how much launches that waited for room have held the host up */
};

static void issue(struct clocking *c, uint32_t task)
{
    const uint32_t id = simulation_instruction(c->simulation, task);
    const struct plan_instruction *in = &c->plan->instructions[id];
    const double issued_s = c->timeline->issue_s[task];
    if (in->lane != LANE_HOST && plan_op_is_kernel((enum plan_op)in->op)) {
        const uint32_t n = c->launched[in->lane]++;
        double *room_s = &c->begin_s[in->lane][n % LAUNCHES_AHEAD];
        if (n >= LAUNCHES_AHEAD && *room_s > issued_s + c->delay)
            c->delay = *room_s - issued_s;
        *room_s = c->timeline->begin_s[task];
    }
    c->host = issued_s + c->delay;
    if (c->timeline->end_s[task] > c->end_s[in->lane])
        c->end_s[in->lane] = c->timeline->end_s[task];
}

/* The events that a free puts on all lanes that use the buffer. */
static double done_s(struct clocking *c, const struct plan_instruction *in)
{
    double most = c->end_s[in->lane];
    for (uint32_t l = 0; l < LANES_MOST; l++)
        if (c->used[in->arg] >> l & 1 && c->end_s[l] > most)
            most = c->end_s[l];
    c->used[in->arg] = 0;
    return most;
}

static void fill(struct clocking *c)
{
    const uint32_t tasks = simulation_tasks(c->simulation);
    uint32_t task = 0;
    for (uint32_t i = 0; i < c->plan->instruction_count; i++) {
        const struct plan_instruction *in = &c->plan->instructions[i];
        for (; task < tasks && simulation_instruction(c->simulation, task) <= i; task++)
            issue(c, task);
        c->host_s[i] = c->host;
        if (in->op == PLAN_USE)
            c->used[in->arg] |= UINT64_C(1) << in->lane;
        if (in->op == PLAN_FREE && plan_free_is_deferred(c->plan, in))
            c->done_s[i] = done_s(c, in);
    }
}

bool clocked_any(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op == PLAN_FREE && plan_free_is_deferred(plan, in) &&
            plan->buffers[in->arg].pool != LANE_HOST)
            return true;
    }
    return false;
}

enum err_code clocked_moments(const struct plan *plan, const struct machine *machine,
                              struct deferred_clock *out, struct err *err)
{
    struct costs costs;
    double periods_s[2]; /* which nobody asks for */
    *out = (struct deferred_clock){NULL, NULL};
    TRY(costs_of_plan(plan, &machine->profile, machine->gpus_per_node, &costs, err));
    struct simulation *simulation = simulation_new(plan, NULL, 0);
    struct timeline timeline = timeline_new(simulation);
    (void)ranks_mean(simulation, &costs, 0, &timeline, periods_s);
    struct clocking *c = xcalloc(1, sizeof *c);
    c->plan = plan;
    c->simulation = simulation;
    c->timeline = &timeline;
    c->host_s = xcalloc(plan->instruction_count + 1, sizeof *c->host_s);
    c->done_s = xcalloc(plan->instruction_count + 1, sizeof *c->done_s);
    c->used = xcalloc(plan->buffer_count + 1, sizeof *c->used);
    fill(c);
    *out = (struct deferred_clock){c->host_s, c->done_s};
    free(c->used);
    free(c);
    timeline_free(&timeline);
    simulation_free(simulation);
    costs_free(&costs);
    return ERR_OK;
}

void clocked_free(struct deferred_clock *clock)
{
    free(clock->host_s);
    free(clock->done_s);
    *clock = (struct deferred_clock){NULL, NULL};
}
