/* plan.c - building and naming; see plan.h. */
#include "plan/plan.h"

#include "base/names.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void begin(struct plan *plan)
{
    plan_add_lane(plan, "compute", false);
    plan_add_lane(plan, "host", false);
    plan_add_scope(plan, "", PLAN_NO_UNIT);
}

struct plan *plan_new(void)
{
    struct plan *plan = xmalloc(sizeof *plan);
    *plan = (struct plan){.system = ""};
    begin(plan);
    return plan;
}

void plan_clear(struct plan *plan)
{
    const struct plan old = *plan;
    kernel_table_release(old.shared);
    *plan = (struct plan){
        .system = "",
        .arena = old.arena,
        .buffers = old.buffers,
        .buffer_cap = old.buffer_cap,
        .instructions = old.instructions,
        .instruction_cap = old.instruction_cap,
        .kernels = old.kernels,
        .kernel_cap = old.kernel_cap,
        .pieces = old.pieces,
        .piece_cap = old.piece_cap,
        .groups = old.groups,
        .group_cap = old.group_cap,
        .scopes = old.scopes,
        .scope_cap = old.scope_cap,
        .module_spans = old.module_spans,
        .module_span_cap = old.module_span_cap,
        .micro_batches = old.micro_batches,
        .micro_batch_cap = old.micro_batch_cap,
    };
    arena_reset(&plan->arena);
    begin(plan);
}

void plan_free(struct plan *plan)
{
    if (!plan)
        return;
    kernel_table_release(plan->shared);
    free(plan->buffers);
    free(plan->instructions);
    free(plan->kernels);
    free(plan->pieces);
    free(plan->groups);
    free(plan->scopes);
    free(plan->module_spans);
    free(plan->micro_batches);
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
    *plan_push_buffer(plan) = *buffer;
    return plan->buffer_count - 1;
}

uint32_t plan_add_instruction(struct plan *plan, const struct plan_instruction *instruction)
{
    *plan_push_instruction(plan) = *instruction;
    return plan->instruction_count - 1;
}

uint8_t plan_add_lane(struct plan *plan, const char *name, bool urgent)
{
    assert(plan->lane_count < LANES_MOST);
    plan->lanes[plan->lane_count] = (struct lane_info){name, urgent};
    return (uint8_t)plan->lane_count++;
}

uint8_t plan_add_group(struct plan *plan, const char *name, enum group_role role, uint32_t ranks,
                       uint32_t stride)
{
    assert(plan->group_count < PLAN_NO_GROUP);
    ARRAY_GROW(plan->groups, plan->group_count, plan->group_cap);
    plan->groups[plan->group_count] =
        (struct plan_group){.name = name, .role = (uint8_t)role, .ranks = ranks, .stride = stride};
    return (uint8_t)plan->group_count++;
}

void plan_note_micro_batch(struct plan *plan)
{
    ARRAY_GROW(plan->micro_batches, plan->micro_batch_count, plan->micro_batch_cap);
    plan->micro_batches[plan->micro_batch_count++] =
        (struct plan_micro_batch){plan->instruction_count, plan->buffer_count, plan->event_count};
}

void plan_add_module_span(struct plan *plan, const char *name)
{
    ARRAY_GROW(plan->module_spans, plan->module_span_count, plan->module_span_cap);
    plan->module_spans[plan->module_span_count++] =
        (struct plan_module_span){plan->instruction_count, name};
}

uint32_t plan_add_scope(struct plan *plan, const char *text, uint32_t unit)
{
    ARRAY_GROW(plan->scopes, plan->scope_count, plan->scope_cap);
    plan->scopes[plan->scope_count] = (struct plan_scope){text, unit};
    return plan->scope_count++;
}

struct plan_piece *plan_push_piece(struct plan *plan, uint32_t param, enum piece_role role)
{
    assert(plan->params[param].piece[role] == PLACE_NONE);
    ARRAY_GROW(plan->pieces, plan->piece_count, plan->piece_cap);
    plan->params[param].piece[role] = plan->piece_count;
    return &plan->pieces[plan->piece_count++];
}

uint32_t plan_add_piece(struct plan *plan, const struct plan_piece *piece)
{
    *plan_push_piece(plan, piece->param, (enum piece_role)piece->role) = *piece;
    return plan->piece_count - 1;
}

uint32_t plan_add_kernel(struct plan *plan, enum work_kind work, unsigned label, uint32_t ins,
                         const struct operand *in, uint32_t outs, const struct operand *out)
{
    struct operand *operands = plan_push_operands(plan, ins + outs);
    for (uint32_t i = 0; i < ins + outs; i++)
        operands[i] = i < ins ? in[i] : out[i - ins];
    return plan_push_kernel(plan, work, label, ins, outs, operands);
}

struct operand *plan_push_operands(struct plan *plan, uint32_t count)
{
    return arena_lend(&plan->arena, count * sizeof(struct operand));
}

uint32_t plan_push_kernel(struct plan *plan, enum work_kind work, unsigned label, uint32_t ins,
                          uint32_t outs, struct operand *operands)
{
    double bytes = 0;
    for (uint32_t i = 0; i < ins + outs; i++)
        bytes += (double)shape_bytes(&operands[i].shape, (enum dtype)operands[i].dtype);
    ARRAY_GROW(plan->kernels, plan->kernel_count - plan->shared_count, plan->kernel_cap);
    plan->kernels[plan->kernel_count - plan->shared_count] = (struct kernel){
        .label = (uint16_t)label,
        .work = (uint8_t)work,
        .ins = (uint16_t)ins,
        .outs = (uint16_t)outs,
        .operands = operands,
        .bytes = bytes,
    };
    return plan->kernel_count++;
}

void plan_share_kernels(struct plan *plan, struct kernel_table *table)
{
    assert(plan->kernel_count == 0 && !plan->shared);
    plan->shared = kernel_table_hold(table);
    plan->shared_count = plan->kernel_count = table->kernel_count;
}

struct kernel *plan_own_kernel(struct plan *plan, uint32_t index)
{
    assert(index >= plan->shared_count && index < plan->kernel_count);
    return &plan->kernels[index - plan->shared_count];
}

struct operand plan_whole_buffer(const struct plan *plan, uint32_t buffer)
{
    struct operand operand;
    plan_set_whole_buffer(plan, buffer, &operand);
    return operand;
}

/* ---- where things are ---- */

struct plan_place plan_operand_place(const struct plan *plan,
                                     const struct plan_instruction *instruction,
                                     const struct operand *operand)
{
    const uint32_t index = operand->place & ~PLACE_MASK;
    const struct plan_piece *piece;
    switch (operand->place & PLACE_MASK) {
    case PLACE_PARAM:
        piece = plan_piece(plan, index, PIECE_GATHERED);
        piece = piece ? piece : plan_piece(plan, index, PIECE_STORE);
        return (struct plan_place){piece->buffer, piece->offset + operand->offset};
    case PLACE_INPUT:
        return (struct plan_place){plan->inputs[index].buffer, operand->offset};
    case PLACE_MODULE_BUFFER:
        return (struct plan_place){plan->module_buffers[index].buffer, operand->offset};
    default:
        return (struct plan_place){instruction->base + index, operand->offset};
    }
}

const struct plan_piece *plan_updated_piece(const struct plan *plan, uint32_t param)
{
    const struct plan_piece *master = plan_piece(plan, param, PIECE_MASTER);
    return master ? master : plan_piece(plan, param, PIECE_STORE);
}

struct part plan_part(const struct plan *plan, const struct plan_piece *piece, uint32_t rank)
{
    return placement_part(piece->placement, &plan->params[piece->param].shape,
                          plan_group_ranks(plan, piece->group),
                          plan_group_rank(plan, piece->group, rank));
}

struct operand plan_piece_operand(const struct plan *plan, const struct plan_piece *piece)
{
    const struct part part = plan_part(plan, piece, plan->rank);
    return (struct operand){
        .place = PLACE_BUFFER | piece->buffer,
        .offset = piece->offset + part.offset,
        .dtype = plan->buffers[piece->buffer].dtype,
        .local = piece->placement.kind == PLACEMENT_WHOLE ? 0 : piece->param + 1,
        .shape = part.shape,
    };
}

struct operand plan_updated_operand(const struct plan *plan, uint32_t param, enum piece_role role)
{
    const struct plan_piece *piece = plan_piece(plan, param, role);
    const struct plan_piece *updated = plan_updated_piece(plan, param);
    struct operand operand = plan_piece_operand(plan, piece);
    if (piece->placement.kind != PLACEMENT_WHOLE || updated->placement.kind == PLACEMENT_WHOLE)
        return operand;
    const struct part part = plan_part(plan, updated, plan->rank);
    operand.offset += part.first;
    operand.shape = part.shape;
    operand.local = param + 1;
    return operand;
}

struct shape plan_step_shape(const struct plan *plan, uint32_t param)
{
    const struct plan_piece *updated = plan_updated_piece(plan, param);
    const struct shape one = {.rank = 0};
    if (updated->placement.kind != PLACEMENT_OWNED && updated->placement.kind != PLACEMENT_FLAT)
        return one;
    const struct part part = plan_part(plan, updated, plan->rank);
    return part_elements(&part) == 0 ? SHAPE(0) : one;
}

uint32_t plan_group_ranks(const struct plan *plan, uint8_t group)
{
    return group == PLAN_NO_GROUP ? 1 : plan->groups[group].ranks;
}

uint32_t plan_group_rank(const struct plan *plan, uint8_t group, uint32_t rank)
{
    return group == PLAN_NO_GROUP ? 0
                                  : rank / plan->groups[group].stride % plan->groups[group].ranks;
}

uint8_t plan_group_of_role(const struct plan *plan, enum group_role role)
{
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (plan->groups[i].role == role)
            return (uint8_t)i;
    return PLAN_NO_GROUP;
}

uint32_t plan_own_params(const struct plan *plan)
{
    uint32_t count = plan->param_count;
    while (count > 0 && plan->params[count - 1].beside)
        count--;
    return count;
}

uint32_t plan_lane_named(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->lane_count; i++)
        if (strcmp(plan->lanes[i].name, name) == 0)
            return i;
    return LANES_MOST;
}

/* ---- names ---- */

const struct plan_input *plan_input_of(const struct plan *plan, enum input_kind kind)
{
    for (uint32_t i = 0; i < plan->input_count; i++)
        if (plan->inputs[i].values.kind == kind)
            return &plan->inputs[i];
    return NULL;
}

bool *plan_initial_buffers(const struct plan *plan)
{
    bool *initial = xcalloc(plan->buffer_count + 1, sizeof *initial);
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        initial[b] = plan->buffers[b].resident;
    for (uint32_t i = plan->instruction_count; i-- > 0;) { /* what comes first is said last */
        const struct plan_instruction *instruction = &plan->instructions[i];
        if (instruction->op == PLAN_ALLOC)
            initial[instruction->arg] = false;
        else if (instruction->op == PLAN_FREE)
            initial[instruction->arg] = plan->buffers[instruction->arg].resident;
    }
    return initial;
}

ENUM_NAME(plan_op_name, enum plan_op, PLAN_OP_MAP)

ENUM_NAME(plan_mark_name, enum plan_mark, PLAN_MARK_MAP)

const char *plan_phase_name(enum plan_phase phase)
{
    static const char *const names[] = {"fwd", "bwd", "opt"};
    return names[phase];
}

ENUM_NAME(plan_role_name, enum piece_role, PIECE_ROLE_MAP)

ENUM_NAME(plan_group_role_name, enum group_role, GROUP_ROLE_MAP)

const char *plan_scope_text(const struct plan *plan, const struct plan_instruction *instruction,
                            char *text, size_t size)
{
    const char *scope = plan->scopes[instruction->scope].text;
    snprintf(text, size, "%s%s%s", plan_phase_name((enum plan_phase)instruction->phase),
             scope[0] ? "/" : "", scope);
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
