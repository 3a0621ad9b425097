/* estimate.c - see estimate.h. */
#include "job/estimate.h"

#include "cost/cost.h"
#include "job/predict.h"
#include "lower/outline.h"
#include "memory/placer.h"
#include "simulate/sequence.h"
#include "simulate/simulate.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    struct outlined outlined; /* of the strategy before: for its memory; costs likewise */
    struct strategy strategy; /* ... which it is, if `wanted` says what is known of it */
    struct estimate before;
    unsigned wanted;
    struct costs costs;
    struct ledger ledger; /* likewise */
    struct placer *placer;
    struct plan *program; /* likewise: of the longer way */
};

struct estimator *estimator_new(const struct graph *graph, const struct stream *stream,
                                const struct machine *machine)
{
    struct estimator *e = xmalloc(sizeof *e);
    const struct memory_options memory = machine_memory(machine);
    struct outline *outline = outline_new(stream, memory.workspace_bytes);
    *e = (struct estimator){
        .graph = graph,
        .machine = machine,
        .outline = outline,
        .stream = stream,
        .collectives = collective_models_new(),
        .placer = placer_new(),
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
    ledger_free(&e->ledger);
    placer_free(e->placer);
    plan_free(e->program);
    free(e);
}

/* ---- accumulation ---- */

/* Micro-batches between the first and the last issue the same instructions, and each finds memory
 * as the one before found it (struct outlined is equal for them): a peak comes from a step of so
 * many. Its time, too, where the compute stream began the last three of them equally far apart. */
enum { MICRO_BATCHES = 4 };

/* Of the micro-batches: when the compute stream begins each, and when the host issued that. */
static void begins(const struct plan *plan, const struct simulation *simulation,
                   const struct timeline *timeline, double begin_s[MICRO_BATCHES],
                   double issue_s[MICRO_BATCHES])
{
    const uint32_t tasks = simulation_tasks(simulation);
    uint32_t count = 0;
    for (uint32_t t = 0; t < tasks && count < MICRO_BATCHES; t++) {
        const struct plan_instruction *in =
            &plan->instructions[simulation_instruction(simulation, t)];
        if ((in->flags & PLAN_SPAN) && in->arg == 0) { /* a stream's first kernel */
            begin_s[count] = timeline->begin_s[t];
            issue_s[count++] = timeline->issue_s[t];
        }
    }
    assert(count == MICRO_BATCHES);
}

/* What one more micro-batch takes; 0: they are not alike yet, or the host, which is ahead now,
 * takes longer for each and is going to be waited for. */
static double period(const double begin_s[MICRO_BATCHES], const double issue_s[MICRO_BATCHES])
{
    const double second = begin_s[2] - begin_s[1], third = begin_s[3] - begin_s[2];
    const double host = issue_s[3] - issue_s[2];
    return fabs(third - second) <= PERIOD_TOLERANCE * third &&
                   host <= third * (1 + PERIOD_TOLERANCE)
               ? third
               : 0;
}

/* The outlined plan's step, and where it has so many micro-batches what one more takes. */
static enum err_code take_time(struct estimator *e, bool repeats, double *step_s, double *more_s,
                               struct err *err)
{
    const struct machine *machine = e->machine;
    const struct plan *plan = e->outlined.plan;
    e->costs.sequence = sequence_of(e, plan->world);
    TRY(costs_of_own(plan, &machine->profile, machine->gpus_per_node, e->collectives, &e->costs,
                     err));
    struct simulation *simulation = simulation_new(plan, NULL, 0);
    struct timeline timeline = timeline_new(simulation);
    double begin_s[MICRO_BATCHES], issue_s[MICRO_BATCHES];
    simulate(simulation, &e->costs, NULL, &timeline);
    *step_s = timeline.step_s;
    if (repeats) {
        begins(plan, simulation, &timeline, begin_s, issue_s);
        *more_s = period(begin_s, issue_s);
    }
    timeline_free(&timeline);
    simulation_free(simulation);
    return ERR_OK;
}

/* ---- what the allocator makes of it ---- */

/* The longer way: the program itself, through the allocator. */
static enum err_code replay(struct estimator *e, const struct strategy *strategy,
                            const struct estimate_options *wish, struct estimate *out,
                            struct err *err)
{
    struct memory memory;
    struct memory_options options = machine_memory(e->machine);
    const uint64_t enough = wish->enough, outside = out->outside_bytes;
    options.allocator.expandable_segments = wish->expandable_segments;
    options.enough_bytes = enough > outside ? enough - outside : enough > 0;
    TRY(lower_nameless(e->graph, e->stream, strategy, &e->program, err));
    TRY(memory_replay(e->program, &options, NULL, NULL, &memory, err));
    out->replayed = true;
    out->device_bytes = memory.out_of_memory ? UINT64_MAX : memory.reserved_bytes + outside;
    return ERR_OK;
}

/* False: it takes the longer way. */
static bool add_pools(const struct estimator *e, const struct estimate_options *wish,
                      struct estimate *out)
{
    const struct memory_options memory = machine_memory(e->machine);
    const struct placer_options options = {.expandable_segments = wish->expandable_segments,
                                           .device_bytes = memory.allocator.device_bytes};
    out->device_bytes = out->outside_bytes;
    for (uint32_t i = 0; i < LEDGER_POOLS && !e->ledger.broken; i++) {
        const struct ledger_pool *pool = &e->ledger.pools[i];
        uint64_t bytes = 0;
        if ((pool->before.count || pool->step.count) &&
            !placer_pool(e->placer, pool, i % 2, &options, &bytes))
            return false;
        out->device_bytes += bytes;
    }
    if (wish->enough && out->device_bytes > wish->enough)
        out->device_bytes = UINT64_MAX;
    return !e->ledger.broken;
}

/* ---- the whole ---- */

/* Lowers it. */
static enum err_code begin(struct estimator *e, const struct strategy *strategy, bool ledger,
                           struct estimate *out, struct err *err)
{
    struct outlined *outlined = &e->outlined;
    outlined->ledger = ledger ? &e->ledger : NULL;
    TRY(lower_outline(e->graph, e->outline, strategy, outlined, err));
    out->requested_bytes = outlined->requested_bytes;
    out->outside_bytes = machine_outside_bytes(outlined->plan, e->machine);
    out->least_bytes = out->outside_bytes + outlined->rounded_bytes;
    return ERR_OK;
}

static enum err_code estimate_few(struct estimator *e, const struct strategy *strategy,
                                  struct estimate *out, struct err *err)
{
    struct strategy few = *strategy;
    double more_s = 0;
    few.accumulate = MICRO_BATCHES;
    TRY(begin(e, &few, false, out, err));
    TRY(take_time(e, true, &out->step_s, &more_s, err));
    if (more_s > 0) {
        out->step_s += more_s * (strategy->accumulate - MICRO_BATCHES);
        return ERR_OK;
    }
    /* ranks that drift, a host that falls behind: all of them */
    TRY(begin(e, strategy, false, out, err));
    return take_time(e, false, &out->step_s, NULL, err);
}

/* Of a device the ledger of all micro-batches is wanted: the allocator may hold more with each. */
static enum err_code estimate_anew(struct estimator *e, const struct strategy *strategy,
                                   unsigned wanted, struct estimate *out, struct err *err)
{
    const bool time = wanted & ESTIMATE_TIME, device = wanted & ESTIMATE_DEVICE;
    const bool repeats = strategy->accumulate > MICRO_BATCHES;
    *out = (struct estimate){.step_s = 0};
    if (time && repeats)
        TRY(estimate_few(e, strategy, out, err));
    if (device || !repeats)
        TRY(begin(e, strategy, device, out, err));
    if (time && !repeats)
        TRY(take_time(e, false, &out->step_s, NULL, err));
    return ERR_OK;
}

/* By bytes: equal ones may be told apart, which costs time and nothing else. */
static bool is_before(const struct estimator *e, const struct strategy *strategy)
{
    const unsigned char *before = (const unsigned char *)&e->strategy;
    return memcmp(before, (const unsigned char *)strategy, sizeof *strategy) == 0;
}

/* The strategy before may be asked for again: with other settings of the allocator, or as one that
 * comes to the same. */
enum err_code estimate_with(struct estimator *e, const struct strategy *strategy,
                            const struct estimate_options *options, struct estimate *out,
                            struct err *err)
{
    const bool again = (e->wanted & options->wanted) == options->wanted && is_before(e, strategy);
    if (!again) {
        e->wanted = 0;
        TRY(estimate_anew(e, strategy, options->wanted, &e->before, err));
        e->strategy = *strategy;
        e->wanted = options->wanted;
    }
    *out = e->before;
    if (options->wanted & ESTIMATE_DEVICE && !add_pools(e, options, out))
        return replay(e, strategy, options, out, err);
    return ERR_OK;
}

enum err_code estimate(struct estimator *e, const struct strategy *strategy, struct estimate *out,
                       struct err *err)
{
    const struct estimate_options options = {.wanted = ESTIMATE_TIME};
    return estimate_with(e, strategy, &options, out, err);
}
