/* closed_form.c - see closed_form.h. */
#include "job/closed_form.h"

#include <string.h>

enum { HALF = 2, STATES = 12, ESTIMATOR = 18, SINGLE_ADAM = 16 }; /* bytes of an element */

uint64_t closed_form_paper(uint32_t stage, uint64_t parameters, uint64_t trained, uint32_t ranks)
{
    const uint64_t gradients = HALF * trained, states = STATES * trained;
    return HALF * parameters / (stage >= 3 ? ranks : 1) + gradients / (stage >= 2 ? ranks : 1) +
           states / (stage >= 1 ? ranks : 1);
}

uint64_t closed_form_zero2(uint64_t parameters, uint32_t ranks, const struct zero_options *options)
{
    return HALF * parameters + (options->optimizer.on ? 0 : ESTIMATOR * parameters / ranks);
}

uint64_t closed_form_zero3(uint64_t parameters, uint64_t largest_module, uint32_t ranks,
                           const struct zero_options *options)
{
    const uint64_t states = options->param.on       ? 0
                            : options->optimizer.on ? HALF * parameters / ranks
                                                    : ESTIMATOR * parameters / ranks;
    return 2 * HALF * largest_module + states;
}

uint64_t closed_form_accelerate(uint64_t parameters)
{
    return SINGLE_ADAM * parameters;
}

/* The stage whose formula it is: what is whole on each rank while backward runs. */
static uint32_t stage_of(const struct strategy *s)
{
    switch (s->system) {
    case SYSTEM_DDP:
    case SYSTEM_SINGLE:
        return 0;
    case SYSTEM_ZERO1:
        return 1;
    case SYSTEM_ZERO2:
        return 2;
    case SYSTEM_FSDP1:
        if (s->sharding == SHARDING_NONE)
            return 0;
        return s->sharding == SHARDING_GRAD_OP || s->sharding == SHARDING_HYBRID_ZERO2 ? 2 : 3;
    case SYSTEM_FSDP2:
        return s->reshard == RESHARD_NEVER ? 2 : 3;
    default:
        return 3;
    }
}

/* Whether two parameters belong to one module itself: "layers.0.attention.wq." of both names. */
static bool is_of_one_module(const char *a, const char *b)
{
    const char *end = strrchr(a, '.'), *other = strrchr(b, '.');
    const size_t length = end ? (size_t)(end - a) : 0;
    return length == (other ? (size_t)(other - b) : 0) && strncmp(a, b, length) == 0;
}

/* Parameters of a module follow each other in model.parameters(). */
static uint64_t largest_module(const struct plan *plan)
{
    uint64_t largest = 0, sum = 0;
    for (uint32_t i = 0; i < plan_own_params(plan); i++) {
        const uint64_t elements = plan_param_elements(plan, i);
        const bool goes_on = i && is_of_one_module(plan->params[i].name, plan->params[i - 1].name);
        sum = elements + (goes_on ? sum : 0);
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

struct closed_form closed_form_of(const struct plan *plan, const struct strategy *strategy)
{
    const uint32_t ranks = strategy->world / (strategy->replicate ? strategy->replicate : 1);
    struct closed_form form = {.stage = stage_of(strategy)};
    uint64_t parameters = 0, trained = 0;
    for (uint32_t i = 0; i < plan_own_params(plan); i++) {
        const uint64_t elements = plan_param_elements(plan, i);
        parameters += elements;
        trained += plan->params[i].trainable ? elements : 0;
    }
    form.paper_bytes = closed_form_paper(form.stage, parameters, trained, ranks);
    switch (strategy->system) {
    case SYSTEM_DDP:
    case SYSTEM_SINGLE:
        form.estimator = "accelerate estimate-memory, float32";
        form.estimator_bytes = closed_form_accelerate(parameters);
        break;
    case SYSTEM_ZERO2:
        form.estimator = "deepspeed's estimate_zero2_model_states_mem_needs";
        form.estimator_bytes = closed_form_zero2(parameters, ranks, &strategy->zero);
        break;
    case SYSTEM_ZERO3:
        form.estimator = "deepspeed's estimate_zero3_model_states_mem_needs";
        form.estimator_bytes =
            closed_form_zero3(parameters, largest_module(plan), ranks, &strategy->zero);
        break;
    default:
        break;
    }
    return form;
}
