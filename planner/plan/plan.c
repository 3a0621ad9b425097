/* plan.c - building and naming; see plan.h. */
#include "plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plan *plan_new(void)
{
    struct plan *plan = xmalloc(sizeof *plan);
    *plan = (struct plan){0};
    return plan;
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    free(plan->buffers);
    free(plan->instructions);
    free(plan->kernels);
    free(plan->operands);
    arena_free(&plan->arena);
    free(plan);
}

void plan_reserve_buffers(struct plan *plan, uint32_t buffers)
{
    if (plan->buffer_cap - plan->buffer_count >= buffers)
        return;
    plan->buffer_cap = plan->buffer_count + buffers;
    plan->buffers = xrealloc(plan->buffers, plan->buffer_cap * sizeof *plan->buffers);
}

void plan_reserve_instructions(struct plan *plan, uint32_t instructions)
{
    if (plan->instruction_cap - plan->instruction_count >= instructions)
        return;
    plan->instruction_cap = plan->instruction_count + instructions;
    plan->instructions =
        xrealloc(plan->instructions, plan->instruction_cap * sizeof *plan->instructions);
}

uint32_t plan_add_buffer(struct plan *plan, const struct buffer *buffer)
{
    ARRAY_GROW(plan->buffers, plan->buffer_count, plan->buffer_cap);
    plan->buffers[plan->buffer_count] = *buffer;
    return plan->buffer_count++;
}

uint32_t plan_add_instruction(struct plan *plan, const struct plan_instruction *instruction)
{
    ARRAY_GROW(plan->instructions, plan->instruction_count, plan->instruction_cap);
    plan->instructions[plan->instruction_count] = *instruction;
    return plan->instruction_count++;
}

struct operand plan_whole_buffer(const struct plan *plan, uint32_t buffer)
{
    const struct buffer *b = &plan->buffers[buffer];
    return (struct operand){.place = PLACE_BUFFER | buffer, .dtype = b->dtype, .shape = b->shape};
}

uint32_t plan_add_kernel(struct plan *plan, unsigned label, uint32_t ins, const struct operand *in,
                         uint32_t outs, const struct operand *out)
{
    struct kernel kernel = {
        .label = (uint16_t)label,
        .ins = (uint16_t)ins,
        .outs = (uint16_t)outs,
        .first = plan->operand_count,
    };
    for (uint32_t i = 0; i < ins + outs; i++) {
        const struct operand *operand = i < ins ? &in[i] : &out[i - ins];
        ARRAY_GROW(plan->operands, plan->operand_count, plan->operand_cap);
        plan->operands[plan->operand_count++] = *operand;
        kernel.bytes += (double)shape_bytes(&operand->shape, (enum dtype)operand->dtype);
    }
    ARRAY_GROW(plan->kernels, plan->kernel_count, plan->kernel_cap);
    plan->kernels[plan->kernel_count] = kernel;
    return plan->kernel_count++;
}

uint32_t plan_operand_buffer(const struct plan *plan, const struct plan_instruction *instruction,
                             const struct operand *operand)
{
    const uint32_t index = operand->place & ~PLACE_MASK;
    switch (operand->place & PLACE_MASK) {
    case PLACE_PARAM:
        return plan->params[index].unsharded_buffer;
    case PLACE_INPUT:
        return plan->inputs[index].buffer;
    case PLACE_MODULE_BUFFER:
        return plan->module_buffers[index].buffer;
    default:
        return instruction->base + index;
    }
}

const struct plan_input *plan_input_of(const struct plan *plan, enum input_kind kind)
{
    for (uint32_t i = 0; i < plan->input_count; i++)
        if (plan->inputs[i].values.kind == kind)
            return &plan->inputs[i];
    return NULL;
}

const char *plan_op_name(enum plan_op op)
{
    static const char *const names[] = {
#define X(name, text) text,
        PLAN_OP_MAP(X)
#undef X
    };
    return names[op];
}

const char *plan_mark_name(enum plan_mark mark)
{
    static const char *const names[] = {
#define X(name, text) text,
        PLAN_MARK_MAP(X)
#undef X
    };
    return names[mark];
}

const char *plan_phase_name(enum plan_phase phase)
{
    static const char *const names[] = {"fwd", "bwd", "opt"};
    return names[phase];
}

const char *plan_site_name(enum plan_site site)
{
    static const char *const names[] = {"", "unshard", "wait_for_unshard", "reshard",
                                        "foreach_reduce"};
    return names[site];
}

const char *plan_outer_name(enum plan_outer outer)
{
    static const char *const names[] = {"", "pre_backward", "post_backward"};
    return names[outer];
}

static const char *unit_name(const struct plan *plan, uint16_t unit)
{
    const char *name = plan->units[unit].name;
    return name[0] ? name : "root";
}

const char *plan_site_text(const struct plan *plan, const struct plan_instruction *instruction,
                           char *text, size_t size)
{
    const struct plan_instruction *i = instruction;
    const char *outer = plan_outer_name((enum plan_outer)i->outer);
    const char *inner = plan_site_name((enum plan_site)i->site);
    int used = snprintf(text, size, "%s", plan_phase_name((enum plan_phase)i->phase));
    if (i->outer != OUTER_NONE && (size_t)used < size)
        used += snprintf(text + used, size - (size_t)used, "/%s[%s]", outer,
                         unit_name(plan, i->outer_unit));
    if (i->site == SITE_REDUCE && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "/%s", inner);
    else if (i->site != SITE_NONE && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "/%s[%s]", inner, unit_name(plan, i->unit));
    return text;
}

const char *plan_buffer_text(const struct plan *plan, const struct buffer *buffer, char *text,
                             size_t size)
{
    char dims[96] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < buffer->shape.rank; i++)
        used += (size_t)snprintf(dims + used, sizeof dims - used, "%s%u", i ? ", " : "",
                                 buffer->shape.dim[i]);
    snprintf(text, size, "%s [%s] %s", plan->labels[buffer->label], dims,
             dtype_name((enum dtype)buffer->dtype));
    return text;
}
