/* lowering.c - see lowering.h: instructions, scopes, buffers. */
#include "lower/lowering.h"
#include "lower/tally.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- instructions ---- */

void emit_span(struct lowering *low)
{
    struct tally *tally = low->tally;
    if (!tally->pending)
        return;
    const struct plan_instruction instruction = {
        .op = PLAN_COMPUTE,
        .lane = LANE_COMPUTE,
        .group = PLAN_NO_GROUP,
        .flags = PLAN_SPAN,
        .arg = tally->at,
        .base = tally->pending,
    };
    plan_add_instruction(low->plan, &instruction);
    tally->at += tally->pending;
    tally->pending = 0;
}

static void emit(struct lowering *low, enum plan_op op, uint8_t lane, uint32_t arg, uint8_t group)
{
    if (low->tally)
        emit_span(low);
    struct plan_instruction *instruction = plan_push_instruction(low->plan);
    *instruction = low->here;
    instruction->op = (uint8_t)op;
    instruction->lane = lane;
    instruction->arg = arg;
    instruction->group = group;
}

void emit_alloc(struct lowering *low, uint32_t buffer)
{
    if (low->tally && !(low->here.flags & PLAN_FIRST_STEP))
        tally_alloc(low->tally, &low->plan->buffers[buffer]);
    if (!low->tally)
        emit(low, PLAN_ALLOC, low->plan->buffers[buffer].pool, buffer, PLAN_NO_GROUP);
}

void emit_free(struct lowering *low, uint32_t buffer)
{
    emit_free_after(low, buffer, low->plan->buffers[buffer].pool);
}

void emit_free_after(struct lowering *low, uint32_t buffer, uint8_t lane)
{
    if (low->tally)
        tally_free(low->tally, &low->plan->buffers[buffer]);
    else
        emit(low, PLAN_FREE, lane, buffer, PLAN_NO_GROUP);
}

uint32_t emit_record(struct lowering *low, uint8_t lane)
{
    const uint32_t event = low->plan->event_count++;
    emit(low, PLAN_RECORD, lane, event, PLAN_NO_GROUP);
    return event;
}

void emit_wait(struct lowering *low, uint8_t lane, uint32_t event)
{
    emit(low, PLAN_WAIT, lane, event, PLAN_NO_GROUP);
}

void emit_sync(struct lowering *low, uint8_t lane, uint8_t of)
{
    emit_wait(low, lane, emit_record(low, of));
}

void emit_mark(struct lowering *low, enum plan_mark mark)
{
    if (!low->tally)
        emit(low, PLAN_MARK, LANE_HOST, mark, PLAN_NO_GROUP);
}

void emit_kernel(struct lowering *low, enum plan_op op, uint8_t lane, uint32_t kernel,
                 uint8_t group)
{
    emit(low, op, lane, kernel, group);
}

uint32_t emit_work_on(struct lowering *low, enum plan_op op, uint8_t lane, enum work_kind work,
                      enum aten label, uint8_t group, uint32_t ins, const struct operand *in,
                      uint32_t outs, const struct operand *out)
{
    const uint32_t kernel = plan_add_kernel(low->plan, work, label, ins, in, outs, out);
    emit(low, op, lane, kernel, group);
    return kernel;
}

uint32_t emit_work(struct lowering *low, enum plan_op op, uint8_t lane, enum work_kind work,
                   enum aten label, uint8_t group, uint32_t ins, const uint32_t *in, uint32_t outs,
                   const uint32_t *out)
{
    struct operand *operands = plan_push_operands(low->plan, ins + outs);
    for (uint32_t i = 0; i < ins + outs; i++)
        plan_set_whole_buffer(low->plan, i < ins ? in[i] : out[i - ins], &operands[i]);
    const uint32_t kernel = plan_push_kernel(low->plan, work, label, ins, outs, operands);
    emit(low, op, lane, kernel, group);
    return kernel;
}

uint32_t emit_unary(struct lowering *low, uint8_t lane, enum work_kind work, enum aten label,
                    uint32_t in, uint32_t out)
{
    return emit_work(low, PLAN_COMPUTE, lane, work, label, PLAN_NO_GROUP, 1, &in, 1, &out);
}

/* ---- scopes ---- */

struct scope_entry {
    const char *call; /* by address: names are literals. NULL: a free slot */
    const char *name; /* likewise; NULL: the unit's, or none */
    uint32_t parent, unit, scope;
};

static uint32_t slot_of(const struct scope_entry *slots, uint32_t count,
                        const struct scope_entry *entry)
{
    uint64_t hash = (uintptr_t)entry->call ^ (uintptr_t)entry->name << 20 ^
                    ((uint64_t)entry->parent << 32 | entry->unit);
    hash *= 0x9e3779b97f4a7c15U; /* Knuth's multiplicative hashing */
    for (uint32_t i = (uint32_t)(hash >> 32);; i++) {
        const struct scope_entry *slot = &slots[i & (count - 1)];
        if (!slot->call || (slot->call == entry->call && slot->name == entry->name &&
                            slot->parent == entry->parent && slot->unit == entry->unit))
            return i & (count - 1);
    }
}

/* Keeps at least half of the slots free. */
static void grow_scopes(struct lowering *low)
{
    if (low->scope_slots >= 2 * (low->plan->scope_count + 1))
        return;
    const uint32_t count = low->scope_slots ? 2 * low->scope_slots : 256;
    struct scope_entry *slots = arena_alloc(&low->scratch, count * sizeof *slots);
    for (uint32_t i = 0; i < low->scope_slots; i++) {
        const struct scope_entry *old = &low->scopes[i];
        if (old->call)
            slots[slot_of(slots, count, old)] = *old;
    }
    low->scopes = slots;
    low->scope_slots = count;
}

static uint32_t new_scope(struct lowering *low, const char *call, const char *name, uint32_t unit)
{
    struct plan *plan = low->plan;
    const char *outer = plan->scopes[low->here.scope].text, *slash = outer[0] ? "/" : "";
    const char *text =
        name ? arena_printf(&plan->arena, "%s%s%s[%s]", outer, slash, call, name[0] ? name : "root")
             : arena_printf(&plan->arena, "%s%s%s", outer, slash, call);
    return plan_add_scope(plan, text, unit);
}

static uint32_t enter(struct lowering *low, const char *call, const char *name, uint32_t unit)
{
    const struct scope_entry entry = {call, name, low->here.scope, unit, 0};
    if (low->tally) { /* that it is not the model's own code is all that counts */
        low->here.scope = 1;
        return entry.parent;
    }
    grow_scopes(low);
    struct scope_entry *slot = &low->scopes[slot_of(low->scopes, low->scope_slots, &entry)];
    if (!slot->call) {
        *slot = entry;
        slot->scope = new_scope(low, call, name, unit);
    }
    low->here.scope = slot->scope;
    return entry.parent;
}

uint32_t enter_scope(struct lowering *low, const char *call, uint32_t unit, bool named)
{
    return enter(low, call, named ? low->plan->units[unit].name : NULL, unit);
}

uint32_t enter_named_scope(struct lowering *low, const char *call, const char *name)
{
    return enter(low, call, name, PLAN_NO_UNIT);
}

void leave_scope(struct lowering *low, uint32_t before)
{
    low->here.scope = before;
}

/* ---- buffers and pieces ---- */

uint32_t new_buffer(struct lowering *low, enum category category, uint8_t pool, enum aten label,
                    enum dtype dtype, struct shape shape)
{
    *plan_push_buffer(low->plan) = (struct buffer){
        .bytes = shape_bytes(&shape, dtype),
        .label = (uint16_t)label,
        .dtype = (uint8_t)dtype,
        .category = (uint8_t)category,
        .pool = pool,
        .shape = shape,
    };
    return low->plan->buffer_count - 1;
}

uint32_t new_resident(struct lowering *low, enum category category, uint8_t pool, enum aten label,
                      enum dtype dtype, struct shape shape)
{
    const uint32_t buffer = new_buffer(low, category, pool, label, dtype, shape);
    low->plan->buffers[buffer].resident = true;
    return buffer;
}

uint32_t alloc_buffer(struct lowering *low, enum category category, uint8_t pool, enum aten label,
                      enum dtype dtype, struct shape shape)
{
    const uint32_t buffer = new_buffer(low, category, pool, label, dtype, shape);
    emit_alloc(low, buffer);
    return buffer;
}

void new_piece(struct lowering *low, uint32_t param, enum piece_role role, uint32_t buffer,
               uint64_t offset, struct placement placement, uint8_t group)
{
    *plan_push_piece(low->plan, param, role) = (struct plan_piece){
        .param = param,
        .buffer = buffer,
        .offset = offset,
        .placement = placement,
        .role = (uint8_t)role,
        .group = placement.kind == PLACEMENT_WHOLE ? PLAN_NO_GROUP : group,
    };
}

uint32_t *none_array(struct lowering *low, uint32_t count)
{
    uint32_t *array = arena_alloc(&low->scratch, (count + 1) * sizeof *array);
    memset(array, 0xff, (count + 1) * sizeof *array);
    return array;
}

uint32_t find_unused(const struct graph *graph, const struct stream *stream)
{
    bool *given = xcalloc(graph->param_count + 1, sizeof *given);
    uint32_t found = NONE;
    for (uint32_t i = 0; i < stream->grad_count; i++)
        given[stream->grads[i].param] = true;
    for (uint32_t p = graph->param_count; p-- > 0;)
        if (graph->params[p].trainable && !given[p])
            found = p;
    free(given);
    return found;
}
