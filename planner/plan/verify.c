/* verify.c - whether a program means something; see plan_verify in plan.h.
 *
 * Two passes. The first looks at each table and each instruction on its own: every number that
 * will be used as an index is in range, every operand lies within its buffer. After it the second
 * may follow indices without looking: it runs the program as a host would, with one bit a buffer,
 *
 *     first step    residents that are not allocated first are alive, all instructions run
 *     later step    from where the first one ended, without PLAN_FIRST_STEP instructions, with
 *                   PLAN_LATER_STEPS ones
 *
 * because a program that frees in the first step what it allocates in all of them is right once
 * and wrong afterwards. A later step ends as it began, so one of them stands for all. */
#include "base/layout.h"
#include "plan/order.h"
#include "plan/plan.h"
#include "plan/verify_values.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_MARK = PLAN_MARK_COUNT, TEXT = 256 };

#define MOST_BYTES (UINT64_C(1) << 50) /* of a buffer: sums of many of them stay far from 2^64 */

struct check {
    const struct plan *plan;
    struct err *err;
    bool *alive;       /* (buffers) */
    bool *named;       /* (buffers) by a `use`, since it was allocated */
    uint32_t *changed; /* (buffers) the instruction that last allocated or freed it, + 1; 0: none */
    uint32_t *recorded; /* (events) the step it was last recorded in; 0: none */
    uint32_t step;      /* 1: the first, 2: a later one */
    unsigned mark;      /* the last mark passed, or NO_MARK */
};

/* ---- messages ---- */

/* "instruction 12, free in fwd/reshard[layers.0]: ...". The indices of the instruction are known
 * to be in range. */
static enum err_code wrong(const struct check *c, uint32_t id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static enum err_code wrong(const struct check *c, uint32_t id, const char *fmt, ...)
{
    const struct plan_instruction *instruction = &c->plan->instructions[id];
    char scope[TEXT], text[3 * TEXT];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(c->err, ERR_INTERNAL, "instruction %u, %s in %s: %s%s", id,
                   plan_op_name((enum plan_op)instruction->op),
                   plan_scope_text(c->plan, instruction, scope, sizeof scope), text,
                   c->step == 2 ? " (in a later step)" : "");
}

/* "buffer 17, mm [256, 688] bfloat16". */
static const char *buffer_text(const struct check *c, uint32_t buffer, char text[TEXT])
{
    char what[TEXT - 32];
    snprintf(text, TEXT, "buffer %u, %s", buffer,
             plan_buffer_text(c->plan, &c->plan->buffers[buffer], what, sizeof what));
    return text;
}

/* "freed by instruction 9": how a buffer came to be as it is. */
static const char *since_text(const struct check *c, uint32_t buffer, char text[TEXT])
{
    const uint32_t changed = c->changed[buffer];
    if (changed)
        snprintf(text, TEXT, "%s by instruction %u", c->alive[buffer] ? "allocated" : "freed",
                 changed - 1);
    else
        snprintf(text, TEXT, "%s",
                 c->alive[buffer] ? "resident from the start" : "never allocated");
    return text;
}

static enum err_code out_of_range(const struct check *c, const char *table, uint32_t index,
                                  const char *what, uint32_t value, uint32_t count)
{
    if (count == 0)
        return err_set(c->err, ERR_INTERNAL, "%s %u: %s %u: there are none", table, index, what,
                       value);
    return err_set(c->err, ERR_INTERNAL, "%s %u: %s %u: allowed are 0 ... %u", table, index, what,
                   value, count - 1);
}

#define CHECK_INDEX(table, index, what, value, count)                                              \
    do {                                                                                           \
        if ((value) >= (count))                                                                    \
            return out_of_range(c, (table), (index), (what), (value), (uint32_t)(count));          \
    } while (0)

/* ---- each table on its own ---- */

/* Elements of a shape, false when they are more than any memory holds. */
static bool count_elements(const struct shape *shape, uint64_t *elements)
{
    *elements = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(*elements, shape->dim[i], elements))
            return false;
    return *elements <= UINT64_MAX / 16;
}

static enum err_code check_shape(const struct check *c, const char *table, uint32_t index,
                                 const struct shape *shape)
{
    uint64_t elements;
    if (shape->rank > SHAPE_DIMS)
        return err_set(c->err, ERR_INTERNAL, "%s %u: shape of %u dims: at most %d are allowed",
                       table, index, shape->rank, SHAPE_DIMS);
    if (!count_elements(shape, &elements))
        return err_set(c->err, ERR_INTERNAL, "%s %u: its shape has too many elements", table,
                       index);
    return ERR_OK;
}

static enum err_code check_buffers(const struct check *c)
{
    const struct plan *plan = c->plan;
    if (plan->buffer_count > ~PLACE_MASK)
        return err_set(c->err, ERR_INTERNAL, "%u buffers: at most %u are allowed",
                       plan->buffer_count, ~PLACE_MASK);
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        const struct buffer *buffer = &plan->buffers[i];
        CHECK_INDEX("buffer", i, "label", buffer->label, plan->label_count);
        CHECK_INDEX("buffer", i, "dtype", buffer->dtype, DTYPE_COUNT);
        CHECK_INDEX("buffer", i, "category", buffer->category, CATEGORY_COUNT);
        CHECK_INDEX("buffer", i, "pool", buffer->pool, plan->lane_count);
        if (buffer->local)
            CHECK_INDEX("buffer", i, "local part of parameter", buffer->local - 1,
                        plan->param_count);
        TRY(check_shape(c, "buffer", i, &buffer->shape));
        if (shape_bytes(&buffer->shape, (enum dtype)buffer->dtype) > buffer->bytes) {
            char what[TEXT];
            return err_set(c->err, ERR_INTERNAL, "%s: it has only %" PRIu64 " bytes",
                           buffer_text(c, i, what), buffer->bytes);
        }
        if (buffer->bytes > MOST_BYTES)
            return err_set(c->err, ERR_INTERNAL, "buffer %u: %" PRIu64 " bytes: at most %" PRIu64,
                           i, buffer->bytes, MOST_BYTES);
    }
    return ERR_OK;
}

/* A parameter's pieces: each lies within its buffer, on this rank. */
static enum err_code check_piece(const struct check *c, uint32_t i)
{
    const struct plan *plan = c->plan;
    const struct plan_piece *piece = &plan->pieces[i];
    CHECK_INDEX("piece", i, "parameter", piece->param, plan->param_count);
    CHECK_INDEX("piece", i, "buffer", piece->buffer, plan->buffer_count);
    CHECK_INDEX("piece", i, "role", piece->role, PIECE_ROLES);
    CHECK_INDEX("piece", i, "placement", piece->placement.kind, PLACEMENT_KINDS);
    if (piece->group != PLAN_NO_GROUP)
        CHECK_INDEX("piece", i, "group", piece->group, plan->group_count);
    if (plan->params[piece->param].piece[piece->role] != i)
        return err_set(c->err, ERR_INTERNAL, "piece %u: parameter %u has another one of its role",
                       i, piece->param);
    const struct buffer *buffer = &plan->buffers[piece->buffer];
    const struct part part = plan_part(plan, piece, plan->rank);
    const uint64_t room = buffer->bytes / dtype_bytes((enum dtype)buffer->dtype);
    uint64_t end = part_elements(&part);
    if (__builtin_add_overflow(end, piece->offset, &end) ||
        __builtin_add_overflow(end, part.offset, &end) || (part_elements(&part) && end > room))
        return err_set(c->err, ERR_INTERNAL,
                       "piece %u, %s of parameter %u: it reaches beyond the %" PRIu64
                       " bytes of buffer %u",
                       i, plan_role_name((enum piece_role)piece->role), piece->param, buffer->bytes,
                       piece->buffer);
    return ERR_OK;
}

/* Optimizer states are element by element those of what is updated. */
static enum err_code check_states(const struct check *c, uint32_t param)
{
    const struct plan *plan = c->plan;
    const struct part updated = plan_part(plan, plan_updated_piece(plan, param), plan->rank);
    for (int role = PIECE_EXP_AVG; role <= PIECE_EXP_AVG_SQ; role++) {
        const struct plan_piece *piece = plan_piece(plan, param, (enum piece_role)role);
        if (!piece)
            continue;
        const struct part part = plan_part(plan, piece, plan->rank);
        if (part.first != updated.first || part_elements(&part) != part_elements(&updated))
            return err_set(c->err, ERR_INTERNAL,
                           "parameter %u: %s is of other elements than what is updated", param,
                           plan_role_name((enum piece_role)role));
    }
    return ERR_OK;
}

static enum err_code check_params(const struct check *c)
{
    const struct plan *plan = c->plan;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const struct plan_param *param = &plan->params[i];
        CHECK_INDEX("parameter", i, "unit", param->unit, plan->unit_count);
        for (int role = 0; role < PIECE_ROLES; role++)
            if (param->piece[role] != PLACE_NONE)
                CHECK_INDEX("parameter", i, "piece", param->piece[role], plan->piece_count);
        TRY(check_shape(c, "parameter", i, &param->shape));
        if (param->step_buffer != PLACE_NONE)
            CHECK_INDEX("parameter", i, "step buffer", param->step_buffer, plan->buffer_count);
        if (!plan_piece(plan, i, PIECE_STORE))
            return err_set(c->err, ERR_INTERNAL, "parameter %u: it is stored nowhere", i);
        if (plan_piece(plan, i, PIECE_EXP_AVG_SQ) && !plan_piece(plan, i, PIECE_EXP_AVG))
            return err_set(c->err, ERR_INTERNAL, "parameter %u: a second state without a first", i);
    }
    for (uint32_t i = 0; i < plan->piece_count; i++)
        TRY(check_piece(c, i));
    for (uint32_t i = 0; i < plan->param_count; i++)
        TRY(check_states(c, i));
    return ERR_OK;
}

static enum err_code check_scopes(const struct check *c)
{
    const struct plan *plan = c->plan;
    if (plan->scope_count == 0 || plan->lane_count <= LANE_HOST || plan->lane_count > LANES_MOST)
        return err_set(c->err, ERR_INTERNAL, "%u scopes and %u lanes: at least 1 and 2 are needed",
                       plan->scope_count, plan->lane_count);
    for (uint32_t i = 0; i < plan->scope_count; i++)
        if (plan->scopes[i].unit != PLAN_NO_UNIT)
            CHECK_INDEX("scope", i, "unit", plan->scopes[i].unit, plan->unit_count);
    return ERR_OK;
}

static enum err_code check_units(const struct check *c)
{
    const struct plan *plan = c->plan;
    for (uint32_t i = 0; i < plan->unit_count; i++) {
        const struct plan_unit *unit = &plan->units[i];
        if (unit->first_param > plan->param_count ||
            unit->params > plan->param_count - unit->first_param)
            return err_set(c->err, ERR_INTERNAL,
                           "unit %u: %u parameters from place %u on: the list has %u", i,
                           unit->params, unit->first_param, plan->param_count);
        for (uint32_t p = 0; p < unit->params; p++) {
            const uint32_t param = plan->unit_params[unit->first_param + p];
            CHECK_INDEX("unit", i, "parameter", param, plan->param_count);
            if (plan->params[param].unit != i)
                return err_set(c->err, ERR_INTERNAL, "unit %u: parameter %u is in unit %u", i,
                               param, plan->params[param].unit);
        }
    }
    return ERR_OK;
}

static enum err_code check_groups(const struct check *c)
{
    const struct plan *plan = c->plan;
    if (plan->rank >= plan->world)
        return err_set(c->err, ERR_INTERNAL, "rank %u of %u ranks", plan->rank, plan->world);
    for (uint32_t i = 0; i < plan->group_count; i++) {
        const struct plan_group *group = &plan->groups[i];
        if (group->ranks == 0 || group->stride == 0 ||
            plan->world % ((uint64_t)group->ranks * group->stride) != 0)
            return err_set(c->err, ERR_INTERNAL,
                           "group %u, %s: %u ranks with stride %u do not divide a world of %u", i,
                           group->name, group->ranks, group->stride, plan->world);
        for (uint32_t other = 0; other < i; other++)
            if (strcmp(group->name, plan->groups[other].name) == 0)
                return err_set(c->err, ERR_INTERNAL, "groups %u and %u are both named \"%s\"",
                               other, i, group->name);
    }
    return ERR_OK;
}

static enum err_code check_operands(const struct check *c, uint32_t i)
{
    const struct plan *plan = c->plan;
    const struct kernel *kernel = plan_kernel(plan, i);
    for (uint32_t o = 0; o < (uint32_t)kernel->ins + kernel->outs; o++) {
        const struct operand *operand = &kernel->operands[o];
        const uint32_t index = operand->place & ~PLACE_MASK;
        switch (operand->place & PLACE_MASK) {
        case PLACE_PARAM:
            CHECK_INDEX("an operand of kernel", i, "parameter", index, plan->param_count);
            break;
        case PLACE_INPUT:
            CHECK_INDEX("an operand of kernel", i, "input", index, plan->input_count);
            break;
        case PLACE_MODULE_BUFFER:
            CHECK_INDEX("an operand of kernel", i, "module buffer", index,
                        plan->module_buffer_count);
            break;
        default: /* relative to an instruction's base: checked there */
            break;
        }
        CHECK_INDEX("an operand of kernel", i, "dtype", operand->dtype, DTYPE_COUNT);
        if (operand->local)
            CHECK_INDEX("an operand of kernel", i, "local part of parameter", operand->local - 1,
                        plan->param_count);
        if (operand->chunk)
            CHECK_INDEX("an operand of kernel", i, "chunk of group", operand->chunk - 1U,
                        plan->group_count);
        TRY(check_shape(c, "an operand of kernel", i, &operand->shape));
    }
    return ERR_OK;
}

static bool is_amount(double value)
{
    return isfinite(value) && value >= 0;
}

static enum err_code check_kernels(const struct check *c)
{
    const struct plan *plan = c->plan;
    for (uint32_t i = 0; i < plan->kernel_count; i++) {
        const struct kernel *kernel = plan_kernel(plan, i);
        CHECK_INDEX("kernel", i, "label", kernel->label, plan->label_count);
        CHECK_INDEX("kernel", i, "work", kernel->work, WORK_KIND_COUNT);
        if (kernel->work == WORK_NONE)
            return err_set(c->err, ERR_INTERNAL, "kernel %u: nobody said what it computes", i);
        if (kernel->op != 0)
            CHECK_INDEX("kernel", i, "kind", kernel->op, plan->kind_count);
        if (!is_amount(kernel->flops) || !is_amount(kernel->bytes))
            return err_set(c->err, ERR_INTERNAL, "kernel %u: %g operations, %g bytes", i,
                           kernel->flops, kernel->bytes);
        if (!isfinite(kernel->attr.p) || !isfinite(kernel->attr.eps) ||
            !is_amount((double)kernel->attr.scale))
            return err_set(c->err, ERR_INTERNAL, "kernel %u: p = %g, eps = %g", i,
                           (double)kernel->attr.p, (double)kernel->attr.eps);
        TRY(check_operands(c, i));
    }
    return ERR_OK;
}

/* ---- each instruction on its own ---- */

/* Whether a shape lies within so many elements of memory, from `offset` on. */
static bool is_there(const struct operand *operand, const struct shape *shape, uint64_t offset,
                     uint64_t elements)
{
    uint64_t reach;
    return shape_reach(shape, operand->pitch, &reach) &&
           (reach == 0 || (offset <= elements && reach <= elements - offset));
}

/* Whether something is written several times: in a dim that takes no memory. */
static bool is_written_over(const struct operand *operand)
{
    for (uint32_t i = 0; i < operand->shape.rank; i++)
        if (operand->shape.dim[i] > 1 && operand->layout->of[i] == 0)
            return true;
    return false;
}

/* Whether an operand lies within `elements` of memory. What is read may be expanded along some of
 * its dims, which then take no memory. */
static bool is_within(const struct operand *operand, uint64_t offset, uint64_t elements, bool is_in)
{
    uint64_t reach;
    if (layout_is_unknown(
            operand->layout)) /* nobody can compute with it; it is a view of a whole */
        return true;
    if (operand->layout)
        return operand_reach(operand, &reach) && (is_in || !is_written_over(operand)) &&
               (reach == 0 || (offset <= elements && reach <= elements - offset));
    if (is_there(operand, &operand->shape, offset, elements))
        return true;
    for (uint32_t dims = 1; is_in && dims < 1U << operand->shape.rank; dims++) {
        struct shape narrow = operand->shape;
        for (uint32_t i = 0; i < narrow.rank; i++)
            if (dims >> i & 1U)
                narrow.dim[i] = 1;
        if (is_there(operand, &narrow, offset, elements))
            return true;
    }
    return false;
}

static enum err_code check_operand(const struct check *c, uint32_t id, uint32_t position)
{
    const struct plan *plan = c->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    const struct operand *operand = &kernel->operands[position];
    const bool is_in = position < kernel->ins;
    const uint32_t number = is_in ? position : position - kernel->ins;
    if ((operand->place & PLACE_MASK) == PLACE_BUFFER &&
        (uint64_t)instruction->base + operand->place >= plan->buffer_count)
        return wrong(c, id, "%s[%u]: buffer %" PRIu64 ": allowed are 0 ... %u",
                     is_in ? "in" : "out", number, (uint64_t)instruction->base + operand->place,
                     plan->buffer_count - 1);

    const struct plan_place place = plan_operand_place(plan, instruction, operand);
    const uint32_t element = dtype_bytes((enum dtype)operand->dtype);
    const uint64_t bytes = plan->buffers[place.buffer].bytes;
    char what[TEXT];
    if (!is_within(operand, place.offset, bytes / element, is_in))
        return wrong(c, id, "%s[%u] reaches beyond the %" PRIu64 " bytes of %s",
                     is_in ? "in" : "out", number, bytes, buffer_text(c, place.buffer, what));
    return ERR_OK;
}

static enum err_code check_group(const struct check *c, uint32_t id)
{
    const struct plan *plan = c->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const enum plan_op op = (enum plan_op)instruction->op;
    const uint8_t group = instruction->group;
    if (group == PLAN_NO_GROUP && !plan_op_is_collective(op))
        return ERR_OK;
    if (!plan_op_may_have_group(op))
        return wrong(c, id, "group %u: it takes none", group);
    if (group >= plan->group_count)
        return wrong(c, id, "group %u of %u", group, plan->group_count);
    return ERR_OK;
}

/* What wrong() needs in order to name an instruction. */
static enum err_code check_names(const struct check *c, uint32_t id)
{
    const struct plan *plan = c->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    CHECK_INDEX("instruction", id, "op", instruction->op, PLAN_OP_COUNT);
    CHECK_INDEX("instruction", id, "phase", instruction->phase, PLAN_STEP + 1);
    CHECK_INDEX("instruction", id, "scope", instruction->scope, plan->scope_count);
    return ERR_OK;
}

static enum err_code check_instruction(const struct check *c, uint32_t id)
{
    const struct plan *plan = c->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    TRY(check_names(c, id));
    CHECK_INDEX("instruction", id, "lane", instruction->lane, plan->lane_count);
    if (instruction->flags != 0 && instruction->flags != PLAN_FIRST_STEP &&
        instruction->flags != PLAN_LATER_STEPS)
        return wrong(c, id, "flags %u: allowed are 0, %u and %u", instruction->flags,
                     PLAN_FIRST_STEP, PLAN_LATER_STEPS);
    TRY(check_group(c, id));
    switch (instruction->op) {
    case PLAN_ALLOC:
    case PLAN_FREE:
    case PLAN_USE:
        CHECK_INDEX("instruction", id, "buffer", instruction->arg, plan->buffer_count);
        return ERR_OK;
    case PLAN_RECORD:
    case PLAN_WAIT:
        CHECK_INDEX("instruction", id, "event", instruction->arg, plan->event_count);
        return ERR_OK;
    case PLAN_MARK:
        CHECK_INDEX("instruction", id, "mark", instruction->arg, PLAN_MARK_COUNT);
        return instruction->flags ? wrong(c, id, "marks are in every step") : ERR_OK;
    default:
        break;
    }
    CHECK_INDEX("instruction", id, "kernel", instruction->arg, plan->kernel_count);
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
        TRY(check_operand(c, id, i));
    return ERR_OK;
}

static enum err_code check_tables(const struct check *c)
{
    TRY(check_groups(c));
    TRY(check_scopes(c));
    TRY(check_buffers(c));
    TRY(check_params(c));
    TRY(check_units(c));
    TRY(verify_values(c->plan, c->err));
    TRY(check_kernels(c));
    if (c->plan->event_count > c->plan->instruction_count)
        return err_set(c->err, ERR_INTERNAL, "%u events, but only %u instructions to record them",
                       c->plan->event_count, c->plan->instruction_count);
    for (uint32_t i = 0; i < c->plan->instruction_count; i++)
        TRY(check_instruction(c, i));
    return ERR_OK;
}

/* ---- the program run ---- */

static enum err_code run_alloc(struct check *c, uint32_t id, uint32_t buffer)
{
    char what[TEXT], since[TEXT];
    if (c->alive[buffer])
        return wrong(c, id, "%s is alive already: %s", buffer_text(c, buffer, what),
                     since_text(c, buffer, since));
    c->alive[buffer] = true;
    c->changed[buffer] = id + 1;
    return ERR_OK;
}

static enum err_code run_free(struct check *c, uint32_t id, uint32_t buffer)
{
    char what[TEXT], since[TEXT];
    if (!c->alive[buffer])
        return wrong(c, id, "%s is not alive: %s", buffer_text(c, buffer, what),
                     since_text(c, buffer, since));
    if (plan_free_is_deferred(c->plan, &c->plan->instructions[id]) &&
        c->plan->buffers[buffer].pool == LANE_HOST)
        return wrong(c, id, "%s is host memory, which no stream keeps: it is freed on \"%s\"",
                     buffer_text(c, buffer, what),
                     c->plan->lanes[c->plan->instructions[id].lane].name);
    if (c->named[buffer] && !plan_free_is_deferred(c->plan, &c->plan->instructions[id]))
        return wrong(c, id, "%s is freed as if no other stream used it, and a \"use\" named one",
                     buffer_text(c, buffer, what));
    c->alive[buffer] = c->named[buffer] = false;
    c->changed[buffer] = id + 1;
    return ERR_OK;
}

static enum err_code run_use(struct check *c, uint32_t id, uint32_t buffer)
{
    char what[TEXT], since[TEXT];
    if (!c->alive[buffer])
        return wrong(c, id, "%s is not alive: %s", buffer_text(c, buffer, what),
                     since_text(c, buffer, since));
    if (c->plan->buffers[buffer].pool == LANE_HOST)
        return wrong(c, id, "%s is host memory, which no stream keeps",
                     buffer_text(c, buffer, what));
    c->named[buffer] |= c->plan->instructions[id].lane != c->plan->buffers[buffer].pool;
    return ERR_OK;
}

static enum err_code run_kernel(const struct check *c, uint32_t id)
{
    const struct plan *plan = c->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    char what[TEXT], since[TEXT];
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const uint32_t buffer = plan_operand_place(plan, instruction, &kernel->operands[i]).buffer;
        if (!c->alive[buffer])
            return wrong(c, id, "%s %s %s, which is not alive: %s", plan->labels[kernel->label],
                         i < kernel->ins ? "reads" : "writes", buffer_text(c, buffer, what),
                         since_text(c, buffer, since));
    }
    return ERR_OK;
}

static enum err_code run_wait(const struct check *c, uint32_t id, uint32_t event)
{
    if (c->recorded[event] != c->step)
        return wrong(c, id, "stream %s waits for event %u, which has not been recorded",
                     c->plan->lanes[c->plan->instructions[id].lane].name, event);
    return ERR_OK;
}

#define AFTER(mark) (1U << PLAN_MARK_##mark)

/* Marks that each mark may follow; a step is one START ... END, with one or more micro-batches. */
static const unsigned may_follow[] = {
    [PLAN_MARK_START] = 1U << NO_MARK,
    [PLAN_MARK_MICRO_BATCH] = AFTER(START) | AFTER(AFTER_BACKWARD),
    [PLAN_MARK_AFTER_LOGITS] = AFTER(MICRO_BATCH),
    [PLAN_MARK_AFTER_FORWARD] = AFTER(MICRO_BATCH) | AFTER(AFTER_LOGITS),
    [PLAN_MARK_BACKWARD_BLOCKS] = AFTER(AFTER_FORWARD),
    [PLAN_MARK_AFTER_BACKWARD] = AFTER(AFTER_FORWARD) | AFTER(BACKWARD_BLOCKS),
    [PLAN_MARK_OPTIMIZER] = AFTER(AFTER_BACKWARD),
    [PLAN_MARK_AFTER_STEP] = AFTER(OPTIMIZER),
    [PLAN_MARK_END] = AFTER(AFTER_STEP),
};

/* A micro-batch begins with its inputs being written. */
static enum err_code need_inputs(const struct check *c, uint32_t id)
{
    char what[TEXT], since[TEXT];
    for (uint32_t i = 0; i < c->plan->input_count; i++) {
        const uint32_t buffer = c->plan->inputs[i].buffer;
        if (!c->alive[buffer])
            return wrong(c, id, "input %u is %s, which is not alive: %s", i,
                         buffer_text(c, buffer, what), since_text(c, buffer, since));
    }
    return ERR_OK;
}

static enum err_code run_mark(struct check *c, uint32_t id, enum plan_mark mark)
{
    if (!(may_follow[mark] >> c->mark & 1))
        return wrong(c, id, "mark \"%s\" may not come %s%s%s", plan_mark_name(mark),
                     c->mark == NO_MARK ? "first" : "after mark \"",
                     c->mark == NO_MARK ? "" : plan_mark_name((enum plan_mark)c->mark),
                     c->mark == NO_MARK ? "" : "\"");
    c->mark = mark;
    return mark == PLAN_MARK_MICRO_BATCH ? need_inputs(c, id) : ERR_OK;
}

static enum err_code run_instruction(struct check *c, uint32_t id)
{
    const struct plan_instruction *instruction = &c->plan->instructions[id];
    if (instruction->op == PLAN_MARK)
        return run_mark(c, id, (enum plan_mark)instruction->arg);
    if (c->mark == NO_MARK || c->mark == PLAN_MARK_END)
        return wrong(c, id, "it stands %s",
                     c->mark == NO_MARK ? "before mark \"start\"" : "after mark \"end\"");
    switch (instruction->op) {
    case PLAN_ALLOC:
        return run_alloc(c, id, instruction->arg);
    case PLAN_FREE:
        return run_free(c, id, instruction->arg);
    case PLAN_USE:
        return run_use(c, id, instruction->arg);
    case PLAN_RECORD:
        c->recorded[instruction->arg] = c->step;
        return ERR_OK;
    case PLAN_WAIT:
        return run_wait(c, id, instruction->arg);
    default:
        return run_kernel(c, id);
    }
}

static enum err_code run_step(struct check *c, uint32_t step)
{
    const struct plan *plan = c->plan;
    char what[TEXT];
    c->step = step;
    c->mark = NO_MARK;
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan_is_issued(&plan->instructions[i], step == 1))
            TRY(run_instruction(c, i));
    if (c->mark != PLAN_MARK_END)
        return err_set(c->err, ERR_INTERNAL, "the program ends without mark \"end\"");
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (c->changed[b] && (c->alive[b] ? !plan->buffers[b].resident && !plan->buffers[b].carried
                                          : plan->buffers[b].resident))
            return wrong(c, c->changed[b] - 1,
                         c->alive[b] ? "%s is not freed by the end of the step"
                                     : "%s is resident and not there at the end of the step",
                         buffer_text(c, b, what));
    return ERR_OK;
}

/* Modules' buffers are filled before the first step. */
static enum err_code check_module_buffers(const struct check *c)
{
    for (uint32_t i = 0; i < c->plan->module_buffer_count; i++)
        if (!c->alive[c->plan->module_buffers[i].buffer])
            return err_set(c->err, ERR_INTERNAL,
                           "module buffer %u: buffer %u is not there before the first step", i,
                           c->plan->module_buffers[i].buffer);
    return ERR_OK;
}

enum err_code plan_verify(const struct plan *plan, struct err *err)
{
    struct check c = {.plan = plan, .err = err};
    TRY(check_tables(&c));
    c.alive = plan_initial_buffers(plan);
    c.named = xcalloc(plan->buffer_count + 1, sizeof *c.named);
    c.changed = xcalloc(plan->buffer_count + 1, sizeof *c.changed);
    c.recorded = xcalloc(plan->event_count + 1, sizeof *c.recorded);
    enum err_code rc = check_module_buffers(&c);
    if (rc == ERR_OK)
        rc = run_step(&c, 1);
    if (rc == ERR_OK)
        rc = run_step(&c, 2);
    free(c.alive);
    free(c.named);
    free(c.changed);
    free(c.recorded);
    return rc == ERR_OK ? plan_check_order(plan, err) : rc;
}
