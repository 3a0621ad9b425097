/* estimate.c - see estimate.h. */
#include "job/estimate.h"

#include "cost/cost.h"
#include "job/predict.h"
#include "lower/outline.h"
#include "memory/allocator.h"
#include "simulate/sequence.h"
#include "simulate/simulate.h"

#include <stdlib.h>

/* The stream's kernels on the slowest of so many ranks. */
struct paced {
    struct sequence *sequence;
    uint32_t ranks;
};

enum { PACED_KEPT = 8 };

struct estimator {
    const struct graph *graph;
    const struct stream *stream;
    const struct machine *machine;
    struct outline *outline;
    struct paced paced[PACED_KEPT]; /* the first paced_count; a search has one number of ranks */
    uint32_t paced_count, paced_oldest;
    struct collective_models *collectives;
    struct outlined outlined; /* of the strategy before, for its memory; costs likewise */
    struct costs costs;
};

struct estimator *estimator_new(const struct graph *graph, const struct stream *stream,
                                const struct machine *machine)
{
    struct estimator *e = xmalloc(sizeof *e);
    struct outline *outline = outline_new(stream, allocator_round);
    *e = (struct estimator){
        .graph = graph,
        .machine = machine,
        .outline = outline,
        .stream = stream,
        .collectives = collective_models_new(),
    };
    return e;
}

/* A job of other ranks has another slowest one. */
static struct sequence *sequence_of(struct estimator *e, uint32_t ranks)
{
    const struct outline *o = e->outline;
    const struct profile *profile = &e->machine->profile;
    for (uint32_t i = 0; i < e->paced_count; i++)
        if (e->paced[i].ranks == ranks)
            return e->paced[i].sequence;
    uint32_t at = e->paced_count;
    if (at < PACED_KEPT) {
        e->paced_count++;
    } else {
        at = e->paced_oldest++ % PACED_KEPT;
        sequence_free(e->paced[at].sequence);
    }
    e->paced[at].ranks = ranks;
    e->paced[at].sequence =
        sequence_new(e->stream->kernels, o->kernels, o->kernel_count, o->forward_count, profile,
                     slowest_of(profile, ranks).factor);
    return e->paced[at].sequence;
}

void estimator_free(struct estimator *e)
{
    if (!e)
        return;
    outline_free(e->outline);
    for (uint32_t i = 0; i < e->paced_count; i++)
        sequence_free(e->paced[i].sequence);
    collective_models_free(e->collectives);
    plan_free(e->outlined.plan);
    costs_free(&e->costs);
    free(e);
}

static enum err_code take_time(struct estimator *e, const struct plan *plan, struct estimate *out,
                               struct err *err)
{
    const struct machine *machine = e->machine;
    e->costs.sequence = sequence_of(e, plan->world);
    TRY(costs_of_outline(plan, &machine->profile, machine->gpus_per_node, e->collectives, &e->costs,
                         err));
    struct simulation *simulation = simulation_new(plan, NULL, 0);
    struct timeline timeline = timeline_new(simulation);
    simulate(simulation, &e->costs, NULL, &timeline);
    out->step_s = timeline.step_s;
    timeline_free(&timeline);
    simulation_free(simulation);
    return ERR_OK;
}

enum err_code estimate(struct estimator *e, const struct strategy *strategy, struct estimate *out,
                       struct err *err)
{
    struct outlined *outlined = &e->outlined;
    *out = (struct estimate){.step_s = 0};
    TRY(lower_outline(e->graph, e->outline, strategy, outlined, err));
    out->requested_bytes = outlined->requested_bytes;
    out->outside_bytes = machine_outside_bytes(outlined->plan, e->machine);
    out->least_bytes = out->outside_bytes + outlined->rounded_bytes;
    return take_time(e, outlined->plan, out, err);
}
