/* estimate.c - see estimate.h. */
#include "job/estimate.h"

#include "cost/cost.h"
#include "job/clocked.h"
#include "job/predict.h"
#include "lower/outline.h"
#include "lower/states.h"
#include "memory/placer.h"
#include "plan/repeat.h"
#include "simulate/sequence.h"
#include "simulate/simulate.h"

#include <stdlib.h>
#include <string.h>

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
    bool pages_move;            /* of that strategy, with its states in managed memory */
    struct ledger ledger;       /* likewise */
    uint32_t ledger_accumulate; /* of so many micro-batches */
    struct placer *placer;
    struct plan *program;        /* likewise: of the longer way */
    uint32_t program_accumulate; /* of `strategy`, with so many micro-batches; 0: of none */
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

/* ---- accumulation ----
 *
 * Micro-batches between the first and the last issue the same instructions. One of them stands for
 * the rest (plan/repeat.h) where it comes one period after the one before it, or finds the memory
 * that that one found. Where it does not, yet, twice as many are tried, and all of them at last. */
enum { TIMED_FEW = 4 };

/* When the compute stream has done all that comes before the optimizer's update, which it begins
 * then. 0: there is no update, or it is not the stream's, or others work beside it or behind it:
 * what they take of the device may be before it, too. */
static double begin_of_update(const struct plan *plan, const struct simulation *simulation,
                              const struct timeline *timeline)
{
    uint32_t task = simulation_tasks(simulation), update = task;
    while (task-- > 0) {
        const struct plan_instruction *in =
            &plan->instructions[simulation_instruction(simulation, task)];
        if (in->phase != PLAN_STEP)
            break;
        if (in->op == PLAN_OPTIMIZER)
            update = task;
    }
    if (update == simulation_tasks(simulation))
        return 0;
    for (task = update; task < simulation_tasks(simulation); task++) {
        const struct plan_instruction *in =
            &plan->instructions[simulation_instruction(simulation, task)];
        if (plan_op_is_kernel((enum plan_op)in->op) && in->lane != LANE_COMPUTE)
            return 0;
    }
    for (task = update; task-- > 0;)
        if (plan->instructions[simulation_instruction(simulation, task)].lane == LANE_COMPUTE)
            return timeline->end_s[task];
    return 0;
}

/* The outlined plan's step, with `passes` of the micro-batch that repeats. *steady: more of them
 * take as much longer each. */
static void take_passes(const struct estimator *e, uint32_t passes, struct estimate *out,
                        bool *steady)
{
    const struct plan *plan = e->outlined.plan;
    const uint32_t left = plan->repeats + 1 - passes;
    double period_s = 0;
    struct simulation *simulation =
        passes > 1 ? simulation_of_passes(plan, NULL, 0, passes) : simulation_new(plan, NULL, 0);
    struct timeline timeline = timeline_new(simulation);
    simulate(simulation, &e->costs, NULL, &timeline);
    *steady = left == 0 || simulation_is_steady(simulation, &timeline, &period_s);
    out->step_s = timeline.step_s + left * period_s;
    out->update_s = begin_of_update(plan, simulation, &timeline);
    out->update_s += out->update_s > 0 ? left * period_s : 0;
    timeline_free(&timeline);
    simulation_free(simulation);
}

static uint32_t at_most(uint32_t count, uint32_t most)
{
    return count < most ? count : most;
}

/* The outlined plan's step. Where the batches that were lowered are not steady yet, twice as many
 * are tried: without lowering them, if those that are lowered say what they do. */
static enum err_code take_time(struct estimator *e, struct estimate *out, bool *steady,
                               struct err *err)
{
    const struct machine *machine = e->machine;
    const struct plan *plan = e->outlined.plan;
    const uint32_t lowered = out->timed_batches;
    e->costs.sequence = sequence_of(e, plan->world);
    TRY(costs_of_own(plan, &machine->profile, machine->gpus_per_node, e->collectives, &e->costs,
                     err));
    take_passes(e, 1, out, steady);
    if (*steady || !plan_passes(plan))
        return ERR_OK;
    while (!*steady) {
        out->timed_batches = at_most(2 * out->timed_batches, lowered + plan->repeats);
        take_passes(e, 1 + out->timed_batches - lowered, out, steady);
    }
    return ERR_OK;
}

/* Lowers so many micro-batches of it. */
static enum err_code begin(struct estimator *e, const struct strategy *strategy, uint32_t count,
                           bool ledger, struct estimate *out, struct err *err)
{
    struct outlined *outlined = &e->outlined;
    struct strategy few = *strategy;
    few.accumulate = count;
    outlined->ledger = ledger ? &e->ledger : NULL;
    TRY(lower_outline(e->graph, e->outline, &few, outlined, err));
    outlined->plan->repeats = strategy->accumulate - count;
    outlined->plan->pages_move = e->pages_move;
    out->requested_bytes = outlined->requested_bytes;
    out->outside_bytes = machine_outside_bytes(outlined->plan, e->machine);
    out->least_bytes = out->outside_bytes + outlined->rounded_bytes;
    return ERR_OK;
}

static enum err_code estimate_time(struct estimator *e, const struct strategy *strategy,
                                   struct estimate *out, struct err *err)
{
    bool steady = false;
    for (uint32_t count = TIMED_FEW; !steady; count *= 2) {
        out->timed_batches = at_most(count, strategy->accumulate);
        TRY(begin(e, strategy, out->timed_batches, false, out, err));
        TRY(take_time(e, out, &steady, err));
    }
    return ERR_OK;
}

/* A ledger of so many micro-batches, or of more, which may stand for all of them. */
static enum err_code note_ledger(struct estimator *e, const struct strategy *strategy,
                                 uint32_t count, struct estimate *out, struct err *err)
{
    for (;; count *= 2) {
        e->ledger_accumulate = at_most(count, strategy->accumulate);
        TRY(begin(e, strategy, e->ledger_accumulate, true, out, err));
        if (e->ledger_accumulate == strategy->accumulate || e->ledger.broken ||
            ledger_repeats(&e->ledger))
            return ERR_OK;
    }
}

/* ---- what the allocator makes of it ---- */

/* The program of so many micro-batches, which may be there from another setting of the allocator.
 */
static enum err_code lower_program(struct estimator *e, const struct strategy *strategy,
                                   uint32_t count, struct err *err)
{
    struct strategy few = *strategy;
    few.accumulate = count;
    if (e->program_accumulate == count)
        return ERR_OK;
    e->program_accumulate = 0;
    TRY(lower_nameless(e->graph, e->stream, &few, &e->program, err));
    e->program_accumulate = count;
    return ERR_OK;
}

/* Blocks that another stream uses, by the machine's clock where they are too many as waits show
 * them: predict.h. */
static enum err_code replay_clocked(const struct estimator *e, const struct memory_options *options,
                                    struct memory *memory, struct err *err)
{
    struct deferred_clock clock;
    struct memory_options clocked = *options;
    TRY(clocked_moments(e->program, e->machine, &clock, err));
    clocked.clock = &clock;
    const enum err_code rc = memory_replay(e->program, &clocked, NULL, NULL, memory, err);
    clocked_free(&clock);
    return rc;
}

static uint64_t held_bytes(const struct memory *memory, const struct estimate *out)
{
    return memory->out_of_memory ? UINT64_MAX : memory->reserved_bytes + out->outside_bytes;
}

/* The longer way: the program itself, through the allocator. What is enough is asked of the last
 * replay alone: whether a device has room decides which one that is. */
static enum err_code replay(struct estimator *e, const struct strategy *strategy,
                            const struct estimate_options *wish, struct estimate *out,
                            struct err *err)
{
    struct memory memory = {.repeats = false};
    struct machine machine = *e->machine;
    machine.expandable_segments = wish->expandable_segments;
    struct memory_options options = machine_memory(&machine);
    const uint64_t capacity = profile_bytes(&e->machine->profile, PROFILE_CAPACITY),
                   outside = out->outside_bytes;
    uint32_t lowered = 0;
    if (wish->enough)
        options.enough_bytes = (wish->enough > capacity ? wish->enough : capacity) - outside;
    for (uint32_t count = REPEAT_FEW; lowered < strategy->accumulate && !memory.repeats;
         count *= 2) {
        lowered = at_most(count, strategy->accumulate);
        TRY(lower_program(e, strategy, lowered, err));
        e->program->repeats = strategy->accumulate - lowered;
        if (e->program->repeats > 0 && !plan_repeats(e->program))
            continue;
        TRY(memory_replay(e->program, &options, NULL, NULL, &memory, err));
    }
    out->replayed = true;
    out->device_bytes = held_bytes(&memory, out);
    if (out->device_bytes > capacity && clocked_any(e->program)) {
        options.enough_bytes = capacity - outside;
        TRY(replay_clocked(e, &options, &memory, err));
        const uint64_t clocked = held_bytes(&memory, out);
        if (clocked != UINT64_MAX && clocked + machine_page_over(&machine) <= capacity)
            out->device_bytes = clocked;
    }
    if (wish->enough && out->device_bytes > wish->enough)
        out->device_bytes = UINT64_MAX;
    return ERR_OK;
}

enum placed {
    PLACED,
    PLACED_NOT_YET, /* micro-batches still find other memory than the one before */
    PLACED_NOT_HERE /* it takes the longer way */
};

static enum placed add_pools(const struct estimator *e, const struct estimate_options *wish,
                             bool repeats, struct estimate *out)
{
    const struct memory_options memory = machine_memory(e->machine);
    struct placer_options options = {.expandable_segments = wish->expandable_segments,
                                     .device_bytes = memory.allocator.device_bytes,
                                     .repeats = repeats};
    out->device_bytes = out->outside_bytes;
    for (uint32_t i = 0; i < LEDGER_POOLS && !e->ledger.broken; i++) {
        const struct ledger_pool *pool = &e->ledger.pools[i];
        uint64_t bytes = 0;
        if ((pool->before.count == 0 && pool->step.count == 0) ||
            (wish->compute_alone && ledger_lane(i) != LANE_COMPUTE))
            continue;
        if (wish->enough && wish->enough <= out->device_bytes) {
            out->device_bytes = UINT64_MAX; /* a pool takes some */
            return PLACED;
        }
        options.enough_bytes = wish->enough ? wish->enough - out->device_bytes : 0;
        if (!placer_pool(e->placer, pool, i % 2, &options, &bytes))
            return PLACED_NOT_HERE;
        if (bytes == UINT64_MAX) {
            out->device_bytes = UINT64_MAX;
            return PLACED;
        }
        if (repeats && !placer_is_steady(e->placer))
            return PLACED_NOT_YET;
        out->device_bytes += bytes;
    }
    if (wish->enough && out->device_bytes > wish->enough)
        out->device_bytes = UINT64_MAX;
    return e->ledger.broken ? PLACED_NOT_HERE : PLACED;
}

static enum err_code estimate_device(struct estimator *e, const struct strategy *strategy,
                                     const struct estimate_options *options, struct estimate *out,
                                     struct err *err)
{
    for (;;) {
        const bool repeats = e->ledger_accumulate < strategy->accumulate;
        switch (add_pools(e, options, repeats, out)) {
        case PLACED:
            return ERR_OK;
        case PLACED_NOT_HERE:
            if (options->compute_alone) {
                out->device_bytes = 0;
                return ERR_OK;
            }
            return replay(e, strategy, options, out, err);
        case PLACED_NOT_YET:
            TRY(note_ledger(e, strategy, 2 * e->ledger_accumulate, out, err));
        }
    }
}

/* ---- managed memory ---- */

/* Pages find room beside what the allocator reserves, or they move in every update: predict.h. That
 * segments are not expandable is taken for it, whatever they are. */
static enum err_code find_pages(struct estimator *e, const struct strategy *strategy, bool *move,
                                struct err *err)
{
    const uint64_t paged = plan_paged_bytes(e->outlined.plan);
    const struct estimate_options device = {.wanted = ESTIMATE_DEVICE};
    struct estimate found;
    *move = false;
    if (paged == 0)
        return ERR_OK;
    TRY(note_ledger(e, strategy, PASSES_FEW, &found, err));
    TRY(estimate_device(e, strategy, &device, &found, err));
    *move = machine_paged_out(e->machine, paged, found.device_bytes) > 0;
    return ERR_OK;
}

/* ---- the whole ---- */

/* All micro-batches lowered once, for both. */
static enum err_code estimate_both(struct estimator *e, const struct strategy *strategy,
                                   struct estimate *out, struct err *err)
{
    bool steady;
    TRY(note_ledger(e, strategy, strategy->accumulate, out, err));
    out->timed_batches = strategy->accumulate;
    return take_time(e, out, &steady, err);
}

static enum err_code time_with_pages(struct estimator *e, const struct strategy *strategy,
                                     struct estimate *out, struct err *err)
{
    TRY(estimate_time(e, strategy, out, err));
    TRY(find_pages(e, strategy, &e->pages_move, err));
    return e->pages_move ? estimate_time(e, strategy, out, err) : ERR_OK;
}

static enum err_code estimate_anew(struct estimator *e, const struct strategy *strategy,
                                   unsigned wanted, struct estimate *out, struct err *err)
{
    const bool paged = optimizer_rule(strategy->optimizer)->paged;
    *out = (struct estimate){.step_s = 0};
    e->pages_move = false;
    if (wanted == (ESTIMATE_TIME | ESTIMATE_DEVICE) && strategy->accumulate <= TIMED_FEW && !paged)
        return estimate_both(e, strategy, out, err);
    if (wanted & ESTIMATE_TIME)
        TRY((paged ? time_with_pages : estimate_time)(e, strategy, out, err));
    return wanted & ESTIMATE_DEVICE ? note_ledger(e, strategy, PASSES_FEW, out, err) : ERR_OK;
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
        e->program_accumulate = 0;
        TRY(estimate_anew(e, strategy, options->wanted, &e->before, err));
        e->strategy = *strategy;
        e->wanted = options->wanted;
    }
    *out = e->before;
    return options->wanted & ESTIMATE_DEVICE ? estimate_device(e, strategy, options, out, err)
                                             : ERR_OK;
}

enum err_code estimate(struct estimator *e, const struct strategy *strategy, struct estimate *out,
                       struct err *err)
{
    const struct estimate_options options = {.wanted = ESTIMATE_TIME};
    return estimate_with(e, strategy, &options, out, err);
}
