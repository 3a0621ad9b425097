/* estimate.c - see estimate.h. */
#include "job/estimate.h"

#include "cost/cost.h"
#include "job/predict.h"
#include "lower/outline.h"
#include "memory/allocator.h"
#include "simulate/sequence.h"
#include "simulate/simulate.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Seconds are sums of thousands of kernels' times: two equal ones differ by their rounding. */
#define PERIOD_TOLERANCE 1e-11

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

/* ---- accumulation ---- */

/* Micro-batches between the first and the last issue the same instructions, and each finds memory
 * as the one before found it (struct outlined is equal for them): a peak comes from a step of so
 * many. Its time, too, where the compute stream began the last three of them equally far apart. */
enum { MICRO_BATCHES = 4 };

/* Of the micro-batches: when the compute stream begins each. */
static void begins(const struct plan *plan, const struct simulation *simulation,
                   const struct timeline *timeline, double begin_s[MICRO_BATCHES])
{
    const uint32_t tasks = simulation_tasks(simulation);
    uint32_t count = 0;
    for (uint32_t t = 0; t < tasks && count < MICRO_BATCHES; t++) {
        const struct plan_instruction *in =
            &plan->instructions[simulation_instruction(simulation, t)];
        if ((in->flags & PLAN_SPAN) && in->arg == 0) /* a stream's first kernel */
            begin_s[count++] = timeline->begin_s[t];
    }
    assert(count == MICRO_BATCHES);
}

/* What one more micro-batch takes; 0: they are not alike yet. */
static double period(const double begin_s[MICRO_BATCHES])
{
    const double second = begin_s[2] - begin_s[1], third = begin_s[3] - begin_s[2];
    return fabs(third - second) <= PERIOD_TOLERANCE * third ? third : 0;
}

/* The outlined plan's step, and where it has so many micro-batches what one more takes. */
static enum err_code take_time(struct estimator *e, bool repeats, double *step_s, double *more_s,
                               struct err *err)
{
    const struct machine *machine = e->machine;
    const struct plan *plan = e->outlined.plan;
    e->costs.sequence = sequence_of(e, plan->world);
    TRY(costs_of_outline(plan, &machine->profile, machine->gpus_per_node, e->collectives, &e->costs,
                         err));
    struct simulation *simulation = simulation_new(plan, NULL, 0);
    struct timeline timeline = timeline_new(simulation);
    double begin_s[MICRO_BATCHES];
    simulate(simulation, &e->costs, NULL, &timeline);
    *step_s = timeline.step_s;
    if (repeats) {
        begins(plan, simulation, &timeline, begin_s);
        *more_s = period(begin_s);
    }
    timeline_free(&timeline);
    simulation_free(simulation);
    return ERR_OK;
}

static enum err_code estimate_all(struct estimator *e, const struct strategy *strategy,
                                  bool repeats, double *more_s, struct estimate *out,
                                  struct err *err)
{
    const struct outlined *outlined = &e->outlined;
    *out = (struct estimate){.step_s = 0};
    TRY(lower_outline(e->graph, e->outline, strategy, &e->outlined, err));
    out->requested_bytes = outlined->requested_bytes;
    out->outside_bytes = machine_outside_bytes(outlined->plan, e->machine);
    out->least_bytes = out->outside_bytes + outlined->rounded_bytes;
    return take_time(e, repeats, &out->step_s, more_s, err);
}

enum err_code estimate(struct estimator *e, const struct strategy *strategy, struct estimate *out,
                       struct err *err)
{
    const bool repeats = strategy->accumulate > MICRO_BATCHES;
    struct strategy few = *strategy;
    double more_s = 0;
    if (repeats)
        few.accumulate = MICRO_BATCHES;
    TRY(estimate_all(e, &few, repeats, &more_s, out, err));
    if (repeats && !(more_s > 0)) /* ranks that drift, a host that falls behind: all of them */
        return estimate_all(e, strategy, false, NULL, out, err);
    if (repeats)
        out->step_s += more_s * (strategy->accumulate - MICRO_BATCHES);
    return ERR_OK;
}
