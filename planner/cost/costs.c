/* costs.c - the costs of a whole plan: see cost.h. */
#include "cost/cost.h"
#include "cost/plan_collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- host ---- */

static double host_seconds(const struct plan_instruction *in, const struct kernel *kernel,
                           const struct profile *profile)
{
    const double tensors = profile_value(profile, PROFILE_HOST_TENSOR) *
                           (kernel->ins > kernel->outs ? kernel->ins : kernel->outs);
    if (plan_op_is_collective((enum plan_op)in->op))
        return profile_value(profile, PROFILE_HOST_COLLECTIVE);
    if (in->op == PLAN_OPTIMIZER || in->site != SITE_NONE)
        return profile_value(profile, PROFILE_HOST_HOOK) + tensors;
    return profile_value(profile,
                         in->phase == PLAN_BACKWARD ? PROFILE_HOST_BACKWARD : PROFILE_HOST_OP);
}

/* ---- what the kernels of a plan are used for ---- */

static void copy_of(const struct kernel *kernel, const struct profile *profile, struct cost *out)
{
    /* `bytes` counts reading on one side and writing on the other. */
    out->class = COST_COPY;
    out->device_s = profile_value(profile, PROFILE_LATENCY) +
                    kernel->bytes / 2 / profile_value(profile, PROFILE_PCIE);
    out->use[RESOURCE_PCIE] = 1;
}

static enum err_code cost_of(struct plan_collectives *collectives,
                             const struct plan_instruction *in, struct cost *out, struct err *err)
{
    const struct plan *plan = collectives->plan;
    const struct profile *profile = collectives->profile;
    const struct kernel *kernel = &plan->kernels[in->arg];
    *out = (struct cost){0};
    if (plan_op_is_collective((enum plan_op)in->op)) {
        TRY(plan_collective_cost(collectives, in, out, err));
    } else if (in->op == PLAN_HOST_TO_DEVICE || in->op == PLAN_DEVICE_TO_HOST) {
        copy_of(kernel, profile, out);
    } else if (in->stream == STREAM_HOST) {
        out->class = COST_HOST;
        out->device_s = kernel->bytes / profile_value(profile, PROFILE_HOST_MEMORY);
    } else {
        kernel_cost(plan, kernel, (enum plan_op)in->op, profile, out);
    }
    out->host_s = host_seconds(in, kernel, profile);
    return ERR_OK;
}

static bool is_matmul(const struct cost *cost)
{
    return cost->class == COST_GEMM || cost->class == COST_ATTENTION;
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

static double peak_flops(const struct plan *plan, const struct kernel *kernel,
                         const struct profile *profile)
{
    const enum dtype dtype = (enum dtype)plan->operands[kernel->first + kernel->ins].dtype;
    return profile_value(profile, dtype == DTYPE_BF16   ? PROFILE_BF16
                                  : dtype == DTYPE_FP16 ? PROFILE_FP16
                                                        : PROFILE_FP32);
}

static void set_spreads(const struct profile *profile, const struct plan_collectives *collectives,
                        struct costs *out)
{
    const struct quantity *q = profile->of;
    const double memory =
        hypot(q[PROFILE_STREAM].spread, q[PROFILE_REDUCE].spread / 2); /* streams move most */
    out->spread[COST_GEMM] = q[PROFILE_GEMM].spread;
    out->spread[COST_ATTENTION] =
        hypot(q[PROFILE_ATTENTION].spread, q[PROFILE_ATTENTION_BACKWARD].spread) / 1.4142;
    out->spread[COST_MEMORY] = memory;
    out->spread[COST_COLLECTIVE] =
        collectives->weight > 0 ? collectives->weighted_spread / collectives->weight : 0;
    out->spread[COST_COPY] = q[PROFILE_PCIE].spread;
    out->spread[COST_HOST] = q[PROFILE_HOST_OP].spread;
}

enum err_code costs_of_plan(const struct plan *plan, const struct profile *profile,
                            uint32_t gpus_per_node, struct costs *out, struct err *err)
{
    if (plan->world > gpus_per_node && plan->world % gpus_per_node)
        return err_set(err, ERR_INVALID,
                       "%u ranks do not fill nodes of %u GPUs: --gpus is a multiple of "
                       "--gpus-per-node, or at most that",
                       plan->world, gpus_per_node);
    *out = (struct costs){.event_s = profile_value(profile, PROFILE_HOST_EVENT)};
    out->kernels = xmalloc((plan->kernel_count + 1) * sizeof *out->kernels);
    struct plan_collectives collectives = {
        .plan = plan, .profile = profile, .gpus_per_node = gpus_per_node};
    enum err_code rc = ERR_OK;
    bool *done = xmalloc(plan->kernel_count + 1);
    memset(done, 0, plan->kernel_count + 1);
    for (uint32_t i = 0; i < plan->instruction_count && rc == ERR_OK; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (!plan_op_is_kernel((enum plan_op)in->op) || in->flags & PLAN_FIRST_STEP)
            continue;
        struct cost *cost = &out->kernels[in->arg];
        const struct kernel *kernel = &plan->kernels[in->arg];
        if (!done[in->arg])
            rc = cost_of(&collectives, in, cost, err);
        done[in->arg] = true;
        if (!is_matmul(cost))
            continue;
        out->hardware_flops += counted_flops(kernel, cost);
        out->model_flops += kernel->recomputed ? 0 : counted_flops(kernel, cost);
        out->peak_flops = fmax(out->peak_flops, peak_flops(plan, kernel, profile));
    }
    free(done);
    set_spreads(profile, &collectives, out);
    plan_collectives_free(&collectives);
    if (rc != ERR_OK)
        costs_free(out);
    return rc;
}

void costs_free(struct costs *costs)
{
    free(costs->kernels);
    *costs = (struct costs){0};
}

const char *resource_name(enum resource resource)
{
    static const char *const names[] = {
#define X(name, text) text,
        RESOURCE_MAP(X)
#undef X
    };
    return names[resource];
}

const char *cost_class_name(enum cost_class class)
{
    static const char *const names[] = {
#define X(name, text) text,
        COST_CLASS_MAP(X)
#undef X
    };
    return names[class];
}
