/* repeat.c - see repeat.h. */
#include "plan/repeat.h"

/* A micro-batch and the one after it: what belongs to the first, and how far the second is. */
struct pair {
    const struct plan *plan;
    const struct plan_micro_batch *at, *next, *end;
};

/* The micro-batch that repeats, and the next. */
static const struct plan_micro_batch *repeated(const struct plan *plan)
{
    return &plan->micro_batches[plan->micro_batch_count - 2];
}

/* What was there before both, or one micro-batch further. */
static bool is_shifted(uint32_t a, uint32_t b, uint32_t first, uint32_t shift)
{
    return a < first ? a == b || a + shift == b : a + shift == b;
}

static bool same_buffer(const struct pair *p, uint32_t a, uint32_t b)
{
    const struct buffer *x = &p->plan->buffers[a], *y = &p->plan->buffers[b];
    return is_shifted(a, b, p->at->buffer, p->next->buffer - p->at->buffer) &&
           x->bytes == y->bytes && x->pool == y->pool && x->category == y->category &&
           x->scratch == y->scratch;
}

/* Where kernels of the plan's own find their operands: all that tells two of them apart in time. */
static bool same_kernel(const struct plan *plan, uint32_t a, uint32_t b)
{
    const struct kernel *x = plan_kernel(plan, a), *y = plan_kernel(plan, b);
    if (a == b)
        return true;
    if (x->work != y->work || x->label != y->label || x->ins != y->ins || x->outs != y->outs)
        return false;
    for (uint32_t i = 0; i < (uint32_t)x->ins + x->outs; i++)
        if (x->operands[i].dtype != y->operands[i].dtype ||
            shape_elements(&x->operands[i].shape) != shape_elements(&y->operands[i].shape))
            return false;
    return true;
}

static bool same_instruction(const struct pair *p, uint32_t i)
{
    const struct plan_instruction *x = &p->plan->instructions[p->at->instruction + i];
    const struct plan_instruction *y = &p->plan->instructions[p->next->instruction + i];
    if (x->op != y->op || x->lane != y->lane || x->phase != y->phase || x->flags != y->flags ||
        x->group != y->group || x->scope != y->scope)
        return false;
    switch (x->op) {
    case PLAN_ALLOC:
    case PLAN_FREE:
    case PLAN_USE:
        return same_buffer(p, x->arg, y->arg);
    case PLAN_RECORD:
    case PLAN_WAIT:
        return is_shifted(x->arg, y->arg, p->at->event, p->next->event - p->at->event);
    case PLAN_MARK:
        return x->arg == y->arg;
    default:
        return same_kernel(p->plan, x->arg, y->arg);
    }
}

bool plan_passes(const struct plan *plan)
{
    if (plan->micro_batch_count < PASSES_FEW)
        return false;
    const struct plan_micro_batch *next = repeated(plan);
    const struct pair pair = {plan, next - 1, next, next + 1};
    const uint32_t count = next->instruction - pair.at->instruction;
    if (pair.end->instruction - next->instruction != count ||
        pair.end->buffer - next->buffer != next->buffer - pair.at->buffer ||
        pair.end->event - next->event != next->event - pair.at->event)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (!same_instruction(&pair, i))
            return false;
    return true;
}

bool plan_repeats(const struct plan *plan)
{
    return plan->micro_batch_count >= REPEAT_FEW && plan_passes(plan);
}

uint32_t plan_times(const struct plan *plan, uint32_t instruction)
{
    if (!plan->repeats)
        return 1;
    const struct plan_micro_batch *at = repeated(plan);
    const bool repeats = instruction >= at[0].instruction && instruction < at[1].instruction;
    return repeats ? 1 + plan->repeats : 1;
}

uint64_t plan_instructions_of_step(const struct plan *plan)
{
    if (!plan->repeats)
        return plan->instruction_count;
    const struct plan_micro_batch *at = repeated(plan);
    return plan->instruction_count +
           (uint64_t)plan->repeats * (at[1].instruction - at[0].instruction);
}

uint64_t plan_micro_batches_of_step(const struct plan *plan)
{
    return (uint64_t)plan->micro_batch_count + plan->repeats;
}

uint32_t plan_place_in_step(const struct plan *plan, uint32_t instruction)
{
    if (!plan->repeats)
        return instruction;
    const struct plan_micro_batch *at = repeated(plan);
    return instruction < at[1].instruction
               ? instruction
               : instruction + plan->repeats * (at[1].instruction - at[0].instruction);
}
