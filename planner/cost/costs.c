/* costs.c - the costs of a whole plan: see cost.h. */
#include "cost/cost.h"
#include "cost/plan_collectives.h"
#include "plan/repeat.h"

#include <math.h>
#include <stdlib.h>

/* ---- host ---- */

/* What the host pays for an instruction: a number, and one more for each tensor it names. */
static enum profile_key host_key(const struct plan_instruction *in, const struct kernel *kernel)
{
    if (plan_op_is_collective((enum plan_op)in->op))
        return PROFILE_HOST_COLLECTIVE;
    if (in->op == PLAN_OPTIMIZER || in->scope != 0)
        return PROFILE_HOST_HOOK;
    /* A compiled program's kernels are not nodes of autograd. */
    return in->phase == PLAN_BACKWARD && !kernel->compiled ? PROFILE_HOST_BACKWARD
                                                           : PROFILE_HOST_OP;
}

static double host_seconds(const struct plan_instruction *in, const struct kernel *kernel,
                           const struct profile *profile)
{
    const enum profile_key key = host_key(in, kernel);
    const uint32_t longer = kernel->ins > kernel->outs ? kernel->ins : kernel->outs;
    const uint32_t tensors = kernel->summed ? kernel->tensors : longer;
    return profile_value(profile, key) +
           (key == PROFILE_HOST_HOOK ? tensors * profile_value(profile, PROFILE_HOST_TENSOR) : 0);
}

/* ---- what the kernels of a plan are used for ---- */

static void copy_of(const struct kernel *kernel, enum plan_op op, const struct profile *profile,
                    struct cost *out)
{
    /* `bytes` counts reading on one side and writing on the other. */
    out->class = COST_COPY;
    out->device_s = profile_value(profile, PROFILE_LATENCY) +
                    kernel->bytes / 2 / profile_value(profile, PROFILE_PCIE);
    out->spread = (float)profile->of[PROFILE_PCIE].spread;
    out->use[op == PLAN_HOST_TO_DEVICE ? RESOURCE_FROM_HOST : RESOURCE_TO_HOST] = 1;
}

/* An update reads the pages of its states, of which none are there: what was used before them, in a
 * cycle over more than there is room for, has taken their place, and they that of what was used
 * longest ago. What goes was written. One after the other, as a fault is served. */
static void add_pages(const struct plan *plan, const struct kernel *kernel,
                      const struct profile *profile, struct cost *out)
{
    double bytes = 0;
    for (uint32_t i = 0; i < kernel->ins && !kernel->summed; i++) {
        const uint32_t place = kernel->operands[i].place;
        if ((place & PLACE_MASK) == PLACE_BUFFER && plan->buffers[place & ~PLACE_MASK].paged)
            bytes += (double)plan->buffers[place & ~PLACE_MASK].bytes;
    }
    if (bytes <= 0)
        return;
    const double paged_s = 2 * bytes / profile_value(profile, PROFILE_PCIE);
    const double own = out->device_s / (out->device_s + paged_s);
    for (int i = 0; i < RESOURCE_COUNT; i++)
        out->use[i] *= (float)own;
    out->use[RESOURCE_FROM_HOST] = out->use[RESOURCE_TO_HOST] = (float)((1 - own) / 2);
    out->device_s += paged_s;
    out->class = COST_COPY;
    out->spread = (float)profile->of[PROFILE_PCIE].spread;
}

static enum err_code cost_of(const struct plan_collectives *collectives,
                             const struct plan_instruction *in, struct cost *out, struct err *err)
{
    const struct plan *plan = collectives->plan;
    const struct profile *profile = collectives->profile;
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    *out = (struct cost){0};
    if (plan_op_is_collective((enum plan_op)in->op)) {
        TRY(plan_collective_cost(collectives, in, out, err));
    } else if (in->op == PLAN_HOST_TO_DEVICE || in->op == PLAN_DEVICE_TO_HOST) {
        copy_of(kernel, (enum plan_op)in->op, profile, out);
    } else if (in->lane == LANE_HOST) {
        /* All ranks of a host do the same at the same time, on its memory. */
        const uint32_t ranks = profile_host_ranks(profile, plan->world, collectives->gpus_per_node);
        out->class = COST_HOST;
        out->spread = (float)profile->of[PROFILE_HOST_MEMORY].spread;
        out->device_s =
            kernel_traffic(kernel) * ranks / profile_value(profile, PROFILE_HOST_MEMORY);
    } else {
        kernel_cost(kernel, profile, out);
        if (plan->pages_move && in->op == PLAN_OPTIMIZER)
            add_pages(plan, kernel, profile, out);
    }
    out->host_s = host_seconds(in, kernel, profile);
    return ERR_OK;
}

void stream_kernel_cost(const struct kernel *kernel, bool backward, const struct profile *profile,
                        struct cost *out)
{
    const struct plan_instruction own = {.op = PLAN_COMPUTE,
                                         .phase = backward ? PLAN_BACKWARD : PLAN_FORWARD};
    *out = (struct cost){0};
    kernel_cost(kernel, profile, out);
    out->host_s = host_seconds(&own, kernel, profile);
}

/* MFU counts a causal attention in full and its backward twice the forward (PaLM, arXiv
 * 2204.02311, appendix B; torchtitan does the same). */
static double counted_flops(const struct kernel *kernel, const struct cost *cost)
{
    if (cost->class != COST_ATTENTION)
        return kernel->flops;
    return kernel->flops * (kernel->attr.causal ? 2 : 1) *
           (kernel->backward && !kernel->recomputed ? 2 / 2.5 : 1);
}

/* Means by seconds: of each class on the device, and of what the host issues. */
struct spreads {
    double weighted[COST_CLASSES], seconds[COST_CLASSES];
};

static void add_spread(struct spreads *spreads, enum cost_class class, double spread,
                       double seconds)
{
    spreads->weighted[class] += spread * seconds;
    spreads->seconds[class] += seconds;
}

static void add_spreads(struct spreads *spreads, const struct plan_instruction *in,
                        const struct kernel *kernel, const struct cost *cost,
                        const struct profile *profile, double times)
{
    add_spread(spreads, (enum cost_class)cost->class, (double)cost->spread, times * cost->device_s);
    add_spread(spreads, COST_HOST, profile->of[host_key(in, kernel)].spread, times * cost->host_s);
}

static enum err_code check_nodes(const struct plan *plan, uint32_t gpus_per_node, struct err *err)
{
    if (plan->world > gpus_per_node && plan->world % gpus_per_node)
        return err_set(err, ERR_INVALID,
                       "%u ranks do not fill nodes of %u GPUs: --gpus is a multiple of "
                       "--gpus-per-node, or at most that",
                       plan->world, gpus_per_node);
    return ERR_OK;
}

/* Whether it is a kernel that costs in a later step and has costs of its own. */
static bool is_costed(const struct plan_instruction *in)
{
    return plan_op_is_kernel((enum plan_op)in->op) && !(in->flags & (PLAN_FIRST_STEP | PLAN_SPAN));
}

static void count_flops(const struct kernel *kernel, const struct cost *cost,
                        const struct profile *profile, double times, struct costs *out)
{
    if (!cost_class_is_arithmetic((enum cost_class)cost->class))
        return;
    out->hardware_flops += times * counted_flops(kernel, cost);
    out->model_flops += kernel->recomputed ? 0 : times * counted_flops(kernel, cost);
    out->peak_flops = fmax(out->peak_flops, peak_flops(profile, kernel_result_dtype(kernel)));
}

/* Whether it is the stream's, as other plans of the stream have it, too; of a plan that shares
 * none, whether it computes. */
static bool is_of_stream(const struct plan *plan, const struct plan_instruction *in)
{
    return is_costed(in) && in->op == PLAN_COMPUTE && in->lane == LANE_COMPUTE &&
           (plan->shared_count == 0 || in->arg < plan->shared_count ||
            plan_kernel(plan, in->arg)->placed);
}

/* The profile at the clock that a step's forward and backward pass leave. */
static struct profile at_load_of(const struct plan *plan, const struct profile *profile)
{
    struct load load = {0};
    uint32_t *times = xcalloc(plan->kernel_count + 1, sizeof *times);
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (is_of_stream(plan, &plan->instructions[i]))
            times[plan->instructions[i].arg] += plan_times(plan, i);
    for (uint32_t k = 0; k < plan->kernel_count; k++)
        if (times[k])
            load_add(&load, plan_kernel(plan, k), profile, times[k]);
    free(times);
    return profile_under(profile, &load);
}

enum err_code costs_check(const struct plan *plan, const struct profile *profile,
                          uint32_t gpus_per_node, struct err *err)
{
    const struct plan_collectives collectives = {
        .plan = plan,
        .profile = profile,
        .gpus_per_node = gpus_per_node,
        .models = collective_models_new(),
    };
    enum err_code rc = check_nodes(plan, gpus_per_node, err);
    for (uint32_t i = 0; i < plan->instruction_count && rc == ERR_OK; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (is_costed(in) && plan_op_is_collective((enum plan_op)in->op))
            rc = plan_collective_check(&collectives, in, err);
    }
    collective_models_free(collectives.models);
    return rc;
}

enum err_code costs_of_plan(const struct plan *plan, const struct profile *profile,
                            uint32_t gpus_per_node, struct costs *out, struct err *err)
{
    const struct profile used = at_load_of(plan, profile);
    *out = (struct costs){.event_s = profile_value(profile, PROFILE_HOST_EVENT),
                          .slowest = slowest_of(profile, plan->world)};
    TRY(check_nodes(plan, gpus_per_node, err));
    out->kernels = xmalloc((plan->kernel_count + 1) * sizeof *out->kernels);
    const struct plan_collectives collectives = {
        .plan = plan,
        .profile = &used,
        .gpus_per_node = gpus_per_node,
        .models = collective_models_new(),
    };
    struct spreads spreads = {.weighted = {0}};
    enum err_code rc = ERR_OK;
    bool *done = xcalloc(plan->kernel_count + 1, 1);
    for (uint32_t i = 0; i < plan->instruction_count && rc == ERR_OK; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (!is_costed(in))
            continue;
        struct cost *cost = &out->kernels[in->arg];
        if (!done[in->arg])
            rc = cost_of(&collectives, in, cost, err);
        if (rc != ERR_OK)
            break;
        done[in->arg] = true;
        const double times = plan_times(plan, i);
        add_spreads(&spreads, in, plan_kernel(plan, in->arg), cost, profile, times);
        count_flops(plan_kernel(plan, in->arg), cost, profile, times, out);
    }
    free(done);
    const double steps = profile_value(profile, PROFILE_STEPS);
    out->together = steps > 0;
    for (int class = 0; class < COST_CLASSES; class ++) {
        out->spread[class] =
            spreads.seconds[class] > 0 ? spreads.weighted[class] / spreads.seconds[class] : 0;
        if (out->together && cost_class_is_of_kernels((enum cost_class) class))
            out->spread[class] = steps;
    }
    collective_models_free(collectives.models);
    if (rc != ERR_OK)
        costs_free(out);
    return rc;
}

enum err_code costs_of_own(const struct plan *plan, const struct profile *profile,
                           uint32_t gpus_per_node, struct collective_models *models,
                           struct costs *out, struct err *err)
{
    const struct plan_collectives collectives = {
        .plan = plan, .profile = profile, .gpus_per_node = gpus_per_node, .models = models};
    const uint32_t count = plan->kernel_count - plan->shared_count;
    TRY(check_nodes(plan, gpus_per_node, err));
    out->event_s = profile_value(profile, PROFILE_HOST_EVENT);
    out->first = plan->shared_count;
    while (out->cap < count)
        ARRAY_GROW(out->kernels, out->cap, out->cap);
    for (uint32_t k = 0; k < count; k++)
        out->kernels[k].class = COST_CLASSES; /* not known yet: an outline issues some again */
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (!is_costed(in) || in->arg < out->first)
            continue;
        struct cost *cost = &out->kernels[in->arg - out->first];
        if (cost->class == COST_CLASSES)
            TRY(cost_of(&collectives, in, cost, err));
    }
    return ERR_OK;
}

void costs_free(struct costs *costs)
{
    free(costs->kernels);
    *costs = (struct costs){0};
}
