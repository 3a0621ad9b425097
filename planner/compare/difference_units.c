/* difference_units.c - two plans unit by unit; see difference.h. */
#include "compare/difference_parts.h"
#include "plan/repeat.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

double difference_seconds(const struct difference_side *side, uint32_t id)
{
    const json_t *value = json_array_get(json_object_get(side->time, "instruction_s"), id);
    return json_is_number(value) ? json_number_value(value) : 0;
}

/* ---- which units there are ---- */

struct named {
    const char *name;
    uint32_t at; /* among the units of A, and then those of B */
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Of each unit of both sides, the first of all with its name. */
static uint32_t *first_of_names(const struct difference_side side[SIDES], struct arena *arena)
{
    const uint32_t of_a = side[0].plan->unit_count, count = of_a + side[1].plan->unit_count;
    struct named *sorted = xmalloc(count * sizeof *sorted);
    uint32_t *first = arena_alloc(arena, count * sizeof *first);
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = (struct named){
            i < of_a ? side[0].plan->units[i].name : side[1].plan->units[i - of_a].name, i};
    qsort(sorted, count, sizeof *sorted, by_name);
    for (uint32_t i = 0, begin = 0; i < count; i++) {
        begin = strcmp(sorted[i].name, sorted[begin].name) == 0 ? begin : i;
        first[sorted[i].at] = sorted[begin].at;
    }
    free(sorted);
    return first;
}

/* Returns, of each unit of both sides, ours. */
static struct difference_unit **match_units(const struct difference_side side[SIDES],
                                            struct difference *d)
{
    const uint32_t of_a = side[0].plan->unit_count, count = of_a + side[1].plan->unit_count;
    const uint32_t *first = first_of_names(side, &d->arena);
    struct difference_unit **ours =
        arena_alloc(&d->arena, count * sizeof(struct difference_unit *));
    d->units = arena_alloc(&d->arena, count * sizeof *d->units);
    for (uint32_t i = 0; i < count; i++) {
        ours[i] = first[i] == i ? &d->units[d->unit_count++] : ours[first[i]];
        ours[i]->name = i < of_a ? side[0].plan->units[i].name : side[1].plan->units[i - of_a].name;
        ours[i]->there[i >= of_a] = true;
    }
    return ours;
}

/* ---- what a step does for each ---- */

struct walk {
    const struct difference_side *side;
    int s;
    struct difference_unit **unit; /* (plan.unit_count) ours of the plan's */
    struct difference_unit **born; /* (buffer_count) of each buffer that is alive; NULL: none */
    uint32_t *whose; /* (buffer_count) the plan's unit whose parameters it holds; PLAN_NO_UNIT */
    uint32_t last;   /* the plan's unit whose parameter was used last */
    uint32_t forward_end; /* the last instruction that says so; 0: none does */
};

static uint64_t operands_bytes(const struct operand *operands, uint32_t count)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += shape_bytes(&operands[i].shape, (enum dtype)operands[i].dtype);
    return bytes;
}

static uint64_t message_bytes(const struct kernel *kernel)
{
    const uint64_t in = operands_bytes(kernel->operands, kernel->ins);
    const uint64_t out = operands_bytes(kernel->operands + kernel->ins, kernel->outs);
    return in > out ? in : out;
}

/* Of every buffer with pieces of parameters: a plan that was read names them as buffers. */
static uint32_t *units_of_buffers(const struct plan *plan, struct arena *arena)
{
    uint32_t *whose = arena_alloc(arena, plan->buffer_count * sizeof *whose);
    for (uint32_t i = 0; i < plan->buffer_count; i++)
        whose[i] = PLAN_NO_UNIT;
    for (uint32_t i = 0; i < plan->piece_count; i++)
        whose[plan->pieces[i].buffer] = plan->params[plan->pieces[i].param].unit;
    return whose;
}

/* The unit of the first parameter among a kernel's operands; else the last. */
static uint32_t unit_of_kernel(const struct walk *w, const struct plan_instruction *instruction)
{
    const struct plan *plan = w->side->plan;
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const uint32_t buffer = plan_operand_place(plan, instruction, &kernel->operands[i]).buffer;
        if (buffer < plan->buffer_count && w->whose[buffer] != PLAN_NO_UNIT)
            return w->whose[buffer];
    }
    return w->last;
}

static uint32_t unit_of(struct walk *w, const struct plan_instruction *instruction)
{
    if (instruction->op == PLAN_COMPUTE && instruction->scope == 0)
        w->last = unit_of_kernel(w, instruction);
    const uint32_t named = plan_scope_unit(w->side->plan, instruction);
    return named != PLAN_NO_UNIT ? named : w->last;
}

static void count_kernel(const struct walk *w, uint32_t id, struct difference_unit *unit)
{
    const struct plan *plan = w->side->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const uint32_t times = plan_times(plan, id);
    const double seconds = times * difference_seconds(w->side, id);
    if (plan_op_is_collective((enum plan_op)instruction->op)) {
        unit->work[w->s][instruction->op].bytes +=
            times * message_bytes(plan_kernel(plan, instruction->arg));
        unit->communication_s[w->s] += seconds;
    } else if (instruction->op == PLAN_COMPUTE) {
        unit->compute_s[w->s] += seconds;
    }
}

static bool is_mark(const struct plan_instruction *instruction, enum plan_mark mark)
{
    return instruction->op == PLAN_MARK && instruction->arg == (uint32_t)mark;
}

/* What lives for a unit when forward ends: of the last micro-batch, as every mark. */
static void sum_held(const struct walk *w)
{
    for (uint32_t i = 0; i < w->side->plan->buffer_count; i++)
        if (w->born[i])
            w->born[i]->held_bytes[w->s] += w->side->plan->buffers[i].bytes;
}

static void take(struct walk *w, uint32_t id)
{
    const struct plan *plan = w->side->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const enum plan_op op = (enum plan_op)instruction->op;
    if (id == w->forward_end)
        sum_held(w);
    if (op == PLAN_FREE)
        w->born[instruction->arg] = NULL;
    if (op == PLAN_FREE || op == PLAN_USE || op == PLAN_MARK || op == PLAN_RECORD ||
        op == PLAN_WAIT)
        return;
    const uint32_t at = unit_of(w, instruction);
    if (at == PLAN_NO_UNIT || op == PLAN_OPTIMIZER)
        return;
    struct difference_unit *unit = w->unit[at];
    const uint32_t times = plan_times(plan, id);
    unit->work[w->s][op].count += times;
    if (op == PLAN_ALLOC) {
        unit->work[w->s][op].bytes += times * plan->buffers[instruction->arg].bytes;
        w->born[instruction->arg] = unit;
    } else {
        count_kernel(w, id, unit);
    }
}

/* `unit`: ours of the plan's. */
static void walk_side(const struct difference_side *side, int s, struct difference_unit **unit,
                      struct difference *d)
{
    const struct plan *plan = side->plan;
    struct walk w = {.side = side, .s = s, .unit = unit, .last = PLAN_NO_UNIT};
    w.whose = units_of_buffers(plan, &d->arena);
    w.born = arena_alloc(&d->arena, plan->buffer_count * sizeof(struct difference_unit *));
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (is_mark(&plan->instructions[i], PLAN_MARK_AFTER_FORWARD))
            w.forward_end = i;
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (!(plan->instructions[i].flags & PLAN_FIRST_STEP))
            take(&w, i);
}

/* ---- what changed alike ---- */

static int64_t change(uint64_t a, uint64_t b)
{
    return (int64_t)b - (int64_t)a;
}

static bool is_changed(const struct difference_unit *unit)
{
    bool changed = unit->there[0] != unit->there[1] || unit->held_bytes[0] != unit->held_bytes[1];
    for (int op = 0; op < PLAN_OP_COUNT; op++)
        changed = changed || unit->work[0][op].count != unit->work[1][op].count ||
                  unit->work[0][op].bytes != unit->work[1][op].bytes;
    return changed;
}

struct traits {         /* units that agree in these are a group; no byte of it is left unset */
    uint64_t one_side;  /* 1: of A alone, 2: of B alone: a group each side, whatever they do */
    int64_t held_bytes; /* what changed: 0 where it is of one side */
    int64_t count[PLAN_OP_COUNT], bytes[PLAN_OP_COUNT];
    uint64_t at; /* the unit */
};

static struct traits traits_of(const struct difference_unit *unit, uint32_t at)
{
    struct traits t;
    memset(&t, 0, sizeof t);
    t.at = at;
    if (unit->there[0] != unit->there[1]) {
        t.one_side = unit->there[0] ? 1 : 2;
        return t;
    }
    t.held_bytes = change(unit->held_bytes[0], unit->held_bytes[1]);
    for (int op = 0; op < PLAN_OP_COUNT; op++) {
        t.count[op] = change(unit->work[0][op].count, unit->work[1][op].count);
        t.bytes[op] = change(unit->work[0][op].bytes, unit->work[1][op].bytes);
    }
    return t;
}

static int compare_traits(const struct traits *x, const struct traits *y)
{
    return memcmp(x, y, offsetof(struct traits, at));
}

static int by_traits(const void *a, const void *b)
{
    const struct traits *x = a, *y = b;
    const int order = compare_traits(x, y);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Sorted, so that those alike stand together; groups are then numbered by their first units. */
static void group_units(struct difference *d)
{
    struct traits *sorted = xmalloc(d->unit_count * sizeof *sorted);
    uint32_t *first = xmalloc(d->unit_count * sizeof *first);
    for (uint32_t i = 0; i < d->unit_count; i++)
        sorted[i] = traits_of(&d->units[i], i);
    qsort(sorted, d->unit_count, sizeof *sorted, by_traits);
    for (uint32_t i = 0, begin = 0; i < d->unit_count; i++) {
        begin = compare_traits(&sorted[i], &sorted[begin]) == 0 ? begin : i;
        first[sorted[i].at] = (uint32_t)sorted[begin].at;
    }
    d->groups = arena_alloc(&d->arena, d->unit_count * sizeof *d->groups);
    for (uint32_t i = 0; i < d->unit_count; i++) {
        if (first[i] == i) {
            d->groups[d->group_count] = (struct difference_group){i, 0, is_changed(&d->units[i])};
            d->units[i].group = d->group_count++;
        }
        d->units[i].group = d->units[first[i]].group;
        d->groups[d->units[i].group].count++;
    }
    free(sorted);
    free(first);
}

void difference_units(const struct difference_side side[SIDES], struct difference *out)
{
    struct difference_unit **units = match_units(side, out);
    walk_side(&side[0], 0, units, out);
    walk_side(&side[1], 1, units + side[0].plan->unit_count, out);
    group_units(out);
}
