/* evaluate.c - see evaluate.h. */
#include "search/evaluate.h"

#include "job/step_time.h"

#include <stdlib.h>

struct evaluator {
    double *room; /* of a timeline */
    size_t cap;   /* tasks that it has room for */
};

struct evaluator *evaluator_new(void)
{
    struct evaluator *e = xmalloc(sizeof *e);
    *e = (struct evaluator){.room = NULL};
    return e;
}

void evaluator_free(struct evaluator *e)
{
    if (!e)
        return;
    free(e->room);
    free(e);
}

static struct timeline room_for(struct evaluator *e, const struct simulation *simulation)
{
    const size_t tasks = simulation_tasks(simulation);
    if (tasks > e->cap) {
        free(e->room);
        e->cap = tasks;
        e->room = xmalloc(3 * tasks * sizeof *e->room);
    }
    return (struct timeline){
        .issue_s = e->room, .begin_s = e->room + tasks, .end_s = e->room + 2 * tasks};
}

static enum err_code simulate_plan(struct evaluator *e, const struct plan *plan,
                                   const struct machine *machine, uint32_t draws, double *steps_s,
                                   struct err *err)
{
    struct costs costs;
    TRY(costs_of_plan(plan, &machine->profile, machine->gpus_per_node, &costs, err));
    struct simulation *simulation = simulation_new(plan, NULL, 0);
    struct timeline timeline = room_for(e, simulation);
    if (draws) {
        step_draws(simulation, &costs, draws, steps_s, &timeline);
    } else {
        simulate(simulation, &costs, NULL, &timeline);
        *steps_s = timeline.step_s;
    }
    simulation_free(simulation);
    costs_free(&costs);
    return ERR_OK;
}

enum err_code evaluate_fast(struct evaluator *e, const struct stream_class *c,
                            const struct strategy *strategy, const struct machine *machine,
                            struct evaluation *out, struct err *err)
{
    struct plan *plan;
    TRY(lower_plan(c->graph, c->stream, strategy, &plan, err));
    const enum err_code rc = simulate_plan(e, plan, machine, 0, &out->step_s, err);
    out->device_floor = plan_device_floor(plan, c->workspace, machine);
    plan_free(plan);
    return rc;
}

enum err_code evaluate_draws(struct evaluator *e, const struct stream_class *c,
                             const struct strategy *strategy, const struct machine *machine,
                             uint32_t draws, double *steps_s, struct err *err)
{
    struct plan *plan;
    TRY(lower_plan(c->graph, c->stream, strategy, &plan, err));
    const enum err_code rc = simulate_plan(e, plan, machine, draws, steps_s, err);
    plan_free(plan);
    return rc;
}

enum err_code evaluate_full(struct evaluator *e, const struct stream_class *c,
                            const struct strategy *strategy, const struct machine *machine,
                            uint64_t *device_bytes, struct err *err)
{
    struct plan *plan;
    struct memory memory;
    const struct memory_options options = machine_memory(machine);
    (void)e;
    TRY(lower_plan(c->graph, c->stream, strategy, &plan, err));
    const enum err_code rc = memory_replay(plan, &options, NULL, NULL, &memory, err);
    *device_bytes = memory.reserved_bytes + machine_outside_bytes(plan, machine);
    plan_free(plan);
    return rc;
}
