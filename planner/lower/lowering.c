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
    *plan_push_instruction(low->plan) = (struct plan_instruction){
        .op = PLAN_COMPUTE,
        .lane = LANE_COMPUTE,
        .group = PLAN_NO_GROUP,
        .flags = PLAN_SPAN,
        .arg = tally->at,
        .base = tally->pending,
    };
    tally->at += tally->pending;
    tally->pending = 0;
}

static void emit(struct lowering *low, enum plan_op op, uint8_t lane, uint32_t arg, uint8_t group)
{
    if (low->tally && low->tally->pending)
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
    if (low->tally)
        tally_alloc(low, buffer);
    else
        emit(low, PLAN_ALLOC, low->plan->buffers[buffer].pool, buffer, PLAN_NO_GROUP);
}

void emit_free(struct lowering *low, uint32_t buffer)
{
    emit_free_after(low, buffer, low->plan->buffers[buffer].pool);
}

struct bundle bundle_of(const struct lowering *low, uint32_t count, const uint32_t *buffers)
{
    struct bundle bundle = {.count = count, .buffers = buffers};
    if (outline_is_short(low))
        bundle.bytes = tally_bytes(low, count, buffers);
    return bundle;
}

void emit_alloc_all(struct lowering *low, const struct bundle *bundle)
{
    if (outline_is_short(low) && !(low->here.flags & PLAN_FIRST_STEP)) {
        tally_alloc_all(low, bundle);
        return;
    }
    for (uint32_t i = 0; i < bundle->count; i++)
        emit_alloc(low, bundle->buffers[i]);
}

void emit_free_all(struct lowering *low, const struct bundle *bundle)
{
    if (outline_is_short(low)) {
        tally_free_all(low, bundle);
        return;
    }
    for (uint32_t i = 0; i < bundle->count; i++)
        emit_free(low, bundle->buffers[i]);
}

void emit_free_after(struct lowering *low, uint32_t buffer, uint8_t lane)
{
    if (low->tally)
        tally_free(low, buffer, lane);
    else
        emit(low, PLAN_FREE, lane, buffer, PLAN_NO_GROUP);
}

void emit_use(struct lowering *low, uint32_t buffer, uint8_t lane)
{
    if (!low->tally && lane != low->plan->buffers[buffer].pool)
        emit(low, PLAN_USE, lane, buffer, PLAN_NO_GROUP);
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
    if (low->tally)
        tally_mark(low, mark);
    else
        emit(low, PLAN_MARK, LANE_HOST, mark, PLAN_NO_GROUP);
}

void emit_kernel(struct lowering *low, enum plan_op op, uint8_t lane, uint32_t kernel,
                 uint8_t group)
{
    emit(low, op, lane, kernel, group);
}

bool emit_again(struct lowering *low, enum plan_op op, uint8_t lane, uint8_t group,
                const uint32_t *kernel)
{
    if (!low->tally || *kernel == NONE)
        return false;
    emit(low, op, lane, *kernel, group);
    return true;
}

void sums_add_in(struct sums *sums, const struct operand *operand)
{
    if (sums->ins++ == 0)
        sums->first[0] = *operand;
    sums->in_bytes += (double)shape_bytes(&operand->shape, (enum dtype)operand->dtype);
}

void sums_add_out(struct sums *sums, const struct operand *operand)
{
    if (sums->outs++ == 0)
        sums->first[1] = *operand;
    sums->out_bytes += (double)shape_bytes(&operand->shape, (enum dtype)operand->dtype);
}

struct sums begin_sums(struct lowering *low)
{
    return (struct sums){.first = plan_push_operands(low->plan, 2)};
}

uint32_t emit_sums(struct lowering *low, enum plan_op op, uint8_t lane, enum work_kind work,
                   enum aten label, uint8_t group, const struct sums *sums)
{
    assert(low->tally && work_is_of_lists(work));
    const uint32_t ins = sums->ins > 0, outs = sums->outs > 0;
    const uint32_t index =
        plan_push_kernel(low->plan, work, label, ins, outs, ins ? sums->first : sums->first + 1);
    struct kernel *kernel = plan_own_kernel(low->plan, index);
    kernel->summed = true;
    kernel->tensors = sums->ins > sums->outs ? sums->ins : sums->outs;
    kernel->in_bytes = sums->in_bytes;
    kernel->bytes = sums->in_bytes + sums->out_bytes;
    emit(low, op, lane, index, group);
    return index;
}

static double bytes_of_all(const struct plan *plan, uint32_t count, const uint32_t *buffers)
{
    double bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct buffer *b = &plan->buffers[buffers[i]];
        bytes += (double)shape_bytes(&b->shape, (enum dtype)b->dtype);
    }
    return bytes;
}

static uint32_t emit_sums_of(struct lowering *low, enum plan_op op, uint8_t lane,
                             enum work_kind work, enum aten label, uint8_t group, uint32_t ins,
                             const uint32_t *in, uint32_t outs, const uint32_t *out)
{
    struct sums sums = begin_sums(low);
    sums.ins = ins;
    sums.outs = outs;
    sums.in_bytes = bytes_of_all(low->plan, ins, in);
    sums.out_bytes = bytes_of_all(low->plan, outs, out);
    if (ins)
        plan_set_whole_buffer(low->plan, in[0], &sums.first[0]);
    if (outs)
        plan_set_whole_buffer(low->plan, out[0], &sums.first[1]);
    return emit_sums(low, op, lane, work, label, group, &sums);
}

uint32_t emit_work_on(struct lowering *low, enum plan_op op, uint8_t lane, enum work_kind work,
                      enum aten label, uint8_t group, uint32_t ins, const struct operand *in,
                      uint32_t outs, const struct operand *out)
{
    if (low->tally && work_is_of_lists(work)) {
        struct sums sums = begin_sums(low);
        for (uint32_t i = 0; i < ins; i++)
            sums_add_in(&sums, &in[i]);
        for (uint32_t i = 0; i < outs; i++)
            sums_add_out(&sums, &out[i]);
        return emit_sums(low, op, lane, work, label, group, &sums);
    }
    const uint32_t kernel = plan_add_kernel(low->plan, work, label, ins, in, outs, out);
    emit(low, op, lane, kernel, group);
    return kernel;
}

void forget_issued(struct lowering *low)
{
    for (uint32_t i = 0; i < WORK_KIND_COUNT && low->last; i++)
        low->last[i].kernel = NONE;
}

static struct issued issued_as(const struct lowering *low, enum plan_op op, uint8_t lane,
                               uint8_t group)
{
    return (struct issued){NONE, (uint8_t)op, lane, group, low->here.phase, low->here.scope != 0};
}

static bool is_like(const struct operand *operand, const struct buffer *buffer)
{
    return operand->dtype == buffer->dtype &&
           memcmp(&operand->shape, &buffer->shape, sizeof buffer->shape) == 0;
}

/* Whether `last` is what is to be issued now, on buffers of the same shapes. */
static bool serves_again(const struct lowering *low, const struct issued *last, struct issued now,
                         enum aten label, uint32_t ins, const uint32_t *in, uint32_t outs,
                         const uint32_t *out)
{
    const struct plan *plan = low->plan;
    if (last->kernel == NONE || last->op != now.op || last->lane != now.lane ||
        last->group != now.group || last->phase != now.phase || last->own != now.own)
        return false;
    const struct kernel *kernel = plan_kernel(plan, last->kernel);
    if (kernel->label != label || kernel->ins != ins || kernel->outs != outs)
        return false;
    for (uint32_t i = 0; i < ins + outs; i++)
        if (!is_like(&kernel->operands[i], &plan->buffers[i < ins ? in[i] : out[i - ins]]))
            return false;
    return true;
}

uint32_t emit_work(struct lowering *low, enum plan_op op, uint8_t lane, enum work_kind work,
                   enum aten label, uint8_t group, uint32_t ins, const uint32_t *in, uint32_t outs,
                   const uint32_t *out)
{
    if (low->tally && work_is_of_lists(work))
        return emit_sums_of(low, op, lane, work, label, group, ins, in, outs, out);
    struct issued *last = low->last ? &low->last[work] : NULL;
    struct issued now = issued_as(low, op, lane, group);
    if (last && serves_again(low, last, now, label, ins, in, outs, out)) {
        emit(low, op, lane, last->kernel, group);
        return last->kernel;
    }
    struct operand *operands = plan_push_operands(low->plan, ins + outs);
    for (uint32_t i = 0; i < ins + outs; i++)
        plan_set_whole_buffer(low->plan, i < ins ? in[i] : out[i - ins], &operands[i]);
    now.kernel = plan_push_kernel(low->plan, work, label, ins, outs, operands);
    emit(low, op, lane, now.kernel, group);
    if (last)
        *last = now;
    return now.kernel;
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
    if (low->nameless) { /* that it is not the model's own code is all that counts */
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

uint32_t alloc_buffer(struct lowering *low, enum category category, uint8_t pool, enum aten label,
                      enum dtype dtype, struct shape shape)
{
    const uint32_t buffer = new_buffer(low, category, pool, label, dtype, shape);
    emit_alloc(low, buffer);
    return buffer;
}

uint32_t *none_array(struct lowering *low, uint32_t count)
{
    uint32_t *array = arena_lend(&low->scratch, (count + 1) * sizeof *array);
    return memset(array, 0xff, (count + 1) * sizeof *array);
}

/* (params): whether a gradient reaches them. The caller owns it. */
static bool *find_given(const struct graph *graph, const struct stream *stream)
{
    bool *given = xcalloc(graph->param_count + 1, sizeof *given);
    for (uint32_t i = 0; i < stream->grad_count; i++)
        given[stream->grads[i].param] = true;
    return given;
}

uint32_t find_unused(const struct graph *graph, const struct stream *stream)
{
    bool *given = find_given(graph, stream);
    uint32_t found = NONE;
    for (uint32_t p = graph->param_count; p-- > 0;)
        if (graph->params[p].trainable && !given[p])
            found = p;
    free(given);
    return found;
}

void leave_out_unused(struct lowering *low)
{
    bool *given = find_given(low->graph, low->stream);
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        low->plan->params[p].trainable &= given[p];
    free(given);
}
