/* evaluate.c - see evaluate.h. */
#include "search/evaluate.h"

#include "job/estimate.h"
#include "job/step_time.h"
#include "plan/repeat.h"

#include <math.h>
#include <stdlib.h>

struct of_class {
    const struct stream_class *stream_class;
    struct estimator *estimator;
};

struct evaluator {
    const struct machine *machine;
    struct framer *framer;
    struct of_class *classes; /* (count) met so far, the last one first */
    uint32_t count, cap;
};

struct evaluator *evaluator_new(const struct machine *machine)
{
    struct evaluator *e = xmalloc(sizeof *e);
    *e = (struct evaluator){.machine = machine, .framer = framer_new(machine)};
    return e;
}

struct framer *evaluator_framer(struct evaluator *e)
{
    return e->framer;
}

void evaluator_free(struct evaluator *e)
{
    if (!e)
        return;
    for (uint32_t i = 0; i < e->count; i++)
        estimator_free(e->classes[i].estimator);
    framer_free(e->framer);
    free(e->classes);
    free(e);
}

/* Neighbours in a search are mostly of one class. */
static struct estimator *estimator_of(struct evaluator *e, const struct stream_class *c)
{
    uint32_t i = 0;
    while (i < e->count && e->classes[i].stream_class != c)
        i++;
    if (i == e->count) {
        ARRAY_GROW(e->classes, e->count, e->cap);
        e->classes[e->count++] =
            (struct of_class){c, estimator_new(c->graph, c->stream, e->machine)};
    }
    const struct of_class found = e->classes[i];
    e->classes[i] = e->classes[0];
    e->classes[0] = found;
    return found.estimator;
}

/* One strategy stands for all that come to the same. */
static enum err_code estimate_unified(struct evaluator *e, const struct stream_class *c,
                                      const struct strategy *strategy,
                                      const struct estimate_options *options, struct estimate *out,
                                      struct err *err)
{
    struct strategy same = *strategy;
    strategy_unify(&same, c->blocks_follow);
    return estimate_with(estimator_of(e, c), &same, options, out, err);
}

/* Steps are sums of thousands of times, and two that are as long may differ by their roundings.
 * Here they come out equal, so that what prefers one of them is not chance. */
static double without_rounding(double seconds)
{
    enum { BITS = 36 };
    int exponent;
    const double mantissa = frexp(seconds, &exponent);
    return ldexp(nearbyint(ldexp(mantissa, BITS)), exponent - BITS);
}

enum err_code evaluate_fast(struct evaluator *e, const struct stream_class *c,
                            const struct strategy *strategy, struct evaluation *out,
                            struct err *err)
{
    struct estimate estimated;
    const struct estimate_options options = {.wanted = ESTIMATE_TIME};
    TRY(estimate_unified(e, c, strategy, &options, &estimated, err));
    *out = (struct evaluation){.step_s = without_rounding(estimated.step_s),
                               .update_s = estimated.update_s,
                               .device_floor = estimated.least_bytes};
    return ERR_OK;
}

static enum err_code draw(const struct plan *plan, const struct machine *machine, uint32_t draws,
                          double *steps_s, struct err *err)
{
    struct costs costs;
    TRY(costs_of_plan(plan, &machine->profile, machine->gpus_per_node, &costs, err));
    step_draws(plan, &costs, draws, steps_s);
    costs_free(&costs);
    return ERR_OK;
}

/* The step as few micro-batches where one of them repeats; else all of them. */
static enum err_code lower_few(const struct stream_class *c, const struct strategy *strategy,
                               struct plan **out, struct err *err)
{
    struct strategy few = *strategy;
    for (uint32_t count = PASSES_FEW; count < strategy->accumulate; count *= 2) {
        few.accumulate = count;
        TRY(lower_plan(c->graph, c->stream, &few, out, err));
        if (plan_passes(*out)) {
            (*out)->repeats = strategy->accumulate - count;
            return ERR_OK;
        }
        plan_free(*out);
    }
    return lower_plan(c->graph, c->stream, strategy, out, err);
}

enum err_code evaluate_draws(struct evaluator *e, const struct stream_class *c,
                             const struct strategy *strategy, uint32_t draws, double *steps_s,
                             struct err *err)
{
    struct plan *plan;
    TRY(lower_few(c, strategy, &plan, err));
    const enum err_code rc = draw(plan, e->machine, draws, steps_s, err);
    plan_free(plan);
    return rc;
}

static enum err_code device_bytes_of(struct evaluator *e, const struct stream_class *c,
                                     const struct strategy *strategy,
                                     const struct estimate_options *options, uint64_t *bytes,
                                     struct err *err)
{
    struct estimate estimated;
    TRY(estimate_unified(e, c, strategy, options, &estimated, err));
    *bytes = estimated.device_bytes;
    return ERR_OK;
}

enum err_code evaluate_full(struct evaluator *e, const struct stream_class *c,
                            const struct strategy *strategy, bool expandable_segments,
                            uint64_t enough, uint64_t *device_bytes, struct err *err)
{
    const struct estimate_options options = {
        .wanted = ESTIMATE_DEVICE, .expandable_segments = expandable_segments, .enough = enough};
    return device_bytes_of(e, c, strategy, &options, device_bytes, err);
}

enum err_code evaluate_pools(struct evaluator *e, const struct stream_class *c,
                             const struct strategy *strategy, bool expandable_segments,
                             uint64_t enough, uint64_t *device_bytes, struct err *err)
{
    const struct estimate_options options = {.wanted = ESTIMATE_DEVICE,
                                             .expandable_segments = expandable_segments,
                                             .enough = enough,
                                             .compute_alone = true};
    return device_bytes_of(e, c, strategy, &options, device_bytes, err);
}
