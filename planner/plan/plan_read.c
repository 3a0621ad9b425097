/* plan_read.c - reading plan.json; see plan_json.h.
 *
 * jansson reads the text; here each object is taken apart member by member. A member is asked for
 * by the kind of value it must be, and what is missing, of another kind, out of range or left over
 * is an error that says where: "plan.json: instructions[12].in[0].dtype: ...". What indices mean
 * together is for plan_verify, which every plan read here has passed.
 *
 *     text --jansson--> tree --take_...--> tables --plan_verify--> plan
 *
 * Every instruction gets a kernel of its own, with absolute buffers: the file has no bases. */
#include "base/file.h"
#include "base/json_file.h"
#include "base/layout.h"
#include "base/vocabulary.h"
#include "plan/plan_json.h"
#include "plan/plan_read_parts.h"
#include "plan/repeat.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names by number ---- */

static void add_name(struct names *names, const char *text)
{
    if (!json_object_get(names->numbers, text))
        json_object_set_new(names->numbers, text, json_integer(names->count));
    ARRAY_GROW(names->texts, names->count, names->cap);
    names->texts[names->count++] = text;
}

/* The number of a text, which is added when new; the arena keeps it. */
static uint32_t number_of(struct names *names, struct arena *arena, const char *text)
{
    const json_t *number = json_object_get(names->numbers, text);
    if (number)
        return (uint32_t)json_integer_value(number);
    add_name(names, arena_strdup(arena, text));
    return names->count - 1;
}

/* Hands the texts to the plan's arena. */
static const char *const *keep_texts(struct names *names, struct arena *arena)
{
    const char **texts = arena_alloc(arena, names->count * sizeof *texts);
    memcpy(texts, names->texts, names->count * sizeof *texts);
    free(names->texts);
    json_decref(names->numbers);
    return texts;
}

static void fill_vocabulary(struct vocabulary *v)
{
    for (int i = 0; i < PLAN_OP_COUNT; i++)
        v->ops[i] = plan_op_name((enum plan_op)i);
    for (int i = 0; i < PLAN_MARK_COUNT; i++)
        v->marks[i] = plan_mark_name((enum plan_mark)i);
    for (int i = 0; i < DTYPE_COUNT; i++)
        v->dtypes[i] = dtype_name((enum dtype)i);
    for (int i = 0; i < CATEGORY_COUNT; i++)
        v->categories[i] = category_name((enum category)i);
    for (int i = PLAN_FORWARD; i <= PLAN_STEP; i++)
        v->phases[i] = plan_phase_name((enum plan_phase)i);
    for (int i = 0; i < PLACEMENT_KINDS; i++)
        v->placements[i] = placement_name((enum placement_kind)i);
    for (int i = 0; i < PIECE_ROLES; i++)
        v->roles[i] = plan_role_name((enum piece_role)i);
    for (int i = 0; i < GROUP_ROLES; i++)
        v->group_roles[i] = plan_group_role_name((enum group_role)i);
}

/* ---- tables ---- */

static enum err_code take_kept_text(struct object *o, const char *key, const char **out)
{
    TRY(take_text(o, key, out));
    *out = arena_strdup(&o->r->plan->arena, *out);
    return ERR_OK;
}

/* The first two are those of every plan. */
static enum err_code read_lanes(struct object *top)
{
    struct plan *plan = top->r->plan;
    json_t *list;
    TRY(take_list(top, "lanes", &list));
    const size_t count = json_array_size(list);
    if (count < plan->lane_count || count > LANES_MOST)
        return wrong(top, "lanes", "it has %zu items: allowed are %u ... %d", count,
                     plan->lane_count, LANES_MOST);
    for (uint32_t i = 0; i < count; i++) {
        struct object o;
        const char *name;
        bool urgent;
        TRY(open_item(top->r, "lanes", list, i, &o));
        TRY(take_kept_text(&o, "name", &name));
        TRY(take_bool(&o, "urgent", &urgent));
        TRY(finish(&o, "name urgent"));
        if (i > LANE_HOST)
            plan_add_lane(plan, name, urgent);
        else if (strcmp(name, plan->lanes[i].name) != 0)
            return wrong(&o, "name", "\"%.64s\": lane %u is \"%s\"", name, i, plan->lanes[i].name);
    }
    return ERR_OK;
}

static enum err_code read_groups(struct object *top)
{
    struct plan *plan = top->r->plan;
    json_t *list;
    TRY(take_list(top, "groups", &list));
    if (json_array_size(list) >= PLAN_NO_GROUP)
        return wrong(top, "groups", "it has %zu items: at most %d are allowed",
                     json_array_size(list), PLAN_NO_GROUP - 1);
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        struct object o;
        const char *name;
        uint8_t role;
        uint32_t ranks, stride;
        TRY(open_item(top->r, "groups", list, i, &o));
        TRY(take_kept_text(&o, "name", &name));
        TRY(TAKE_CHOICE(&o, "role", top->r->allowed.group_roles, &role));
        TRY(take_uint(&o, "ranks", plan->world, &ranks));
        TRY(take_uint(&o, "stride", plan->world, &stride));
        TRY(finish(&o, "name role ranks stride"));
        if (ranks == 0 || stride == 0)
            return wrong(&o, "", "it has %u ranks with stride %u", ranks, stride);
        plan_add_group(plan, name, (enum group_role)role, ranks, stride);
    }
    return ERR_OK;
}

static enum err_code read_scopes(struct object *top)
{
    struct plan *plan = top->r->plan;
    json_t *list;
    TRY(take_list(top, "scopes", &list));
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        struct object o;
        const char *text;
        uint32_t unit = PLAN_NO_UNIT;
        TRY(open_item(top->r, "scopes", list, i, &o));
        TRY(take_kept_text(&o, "text", &text));
        TRY(take_optional(&o, "unit", plan->unit_count ? plan->unit_count - 1 : 0, &unit));
        TRY(finish(&o, "text unit"));
        if (i > 0)
            plan_add_scope(plan, text, unit);
        else if (text[0] || unit != PLAN_NO_UNIT)
            return wrong(&o, "text", "the first scope is \"\", the model's own code");
    }
    return ERR_OK;
}

static enum err_code read_units(struct object *top, json_t *list)
{
    struct plan *plan = top->r->plan;
    plan->units = arena_alloc(&plan->arena, plan->unit_count * sizeof *plan->units);
    plan->unit_params = arena_alloc(&plan->arena, plan->param_count * sizeof(uint32_t));
    uint32_t used = 0;
    for (uint32_t i = 0; i < plan->unit_count; i++) {
        struct plan_unit *unit = &plan->units[i];
        struct object o;
        uint32_t *params;
        TRY(open_item(top->r, "units", list, i, &o));
        TRY(take_kept_text(&o, "name", &unit->name));
        TRY(take_indices(&o, "params", plan->param_count, &params, &unit->params));
        TRY(finish(&o, "name params"));
        if (unit->params > plan->param_count - used)
            return wrong(&o, "params", "units hold more parameters than there are");
        unit->first_param = used;
        for (uint32_t p = 0; p < unit->params; p++)
            plan->unit_params[used++] = params[p];
    }
    return ERR_OK;
}

static enum err_code take_group(struct object *o, const char *key, uint8_t *out)
{
    const struct plan *plan = o->r->plan;
    const char *names[PLAN_NO_GROUP];
    for (uint32_t i = 0; i < plan->group_count; i++)
        names[i] = plan->groups[i].name;
    return take_choice(o, key, names, plan->group_count, out);
}

static enum err_code read_piece(struct object *o, struct plan_piece *piece)
{
    const struct vocabulary *allowed = &o->r->allowed;
    struct plan *plan = o->r->plan;
    const struct plan_param *param = &plan->params[piece->param];
    uint64_t first = 0, elements = 0;
    TRY(TAKE_CHOICE(o, "role", allowed->roles, &piece->role));
    TRY(take_index(o, "buffer", plan->buffer_count, "buffers", &piece->buffer));
    TRY(TAKE_CHOICE(o, "placement", allowed->placements, &piece->placement.kind));
    if (json_object_get(o->json, "group"))
        TRY(take_group(o, "group", &piece->group));
    if (json_object_get(o->json, "offset"))
        TRY(take_number(o, "offset", MOST_ELEMENTS, &piece->offset));
    if (json_object_get(o->json, "at"))
        TRY(take_number(o, "at", MOST_ELEMENTS, &piece->placement.at));
    if (json_object_get(o->json, "total"))
        TRY(take_number(o, "total", MOST_ELEMENTS, &piece->placement.total));
    TRY(take_number(o, "first", MOST_ELEMENTS, &first));
    TRY(take_number(o, "elements", MOST_ELEMENTS, &elements));
    if (param->piece[piece->role] != PLACE_NONE)
        return wrong(o, "role", "%s has two pieces of this role", param->name);
    const struct part part = plan_part(plan, piece, plan->rank);
    if (part.first != first || part_elements(&part) != elements)
        return wrong(o, "", "by its placement rank %u has %" PRIu64 " elements from %" PRIu64 " on",
                     plan->rank, part_elements(&part), part.first);
    return finish(o, "role buffer offset placement group at total first elements");
}

static enum err_code take_pieces(struct object *o, uint32_t index)
{
    json_t *list;
    TRY(take_list(o, "pieces", &list));
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        struct plan_piece piece = {.param = index, .group = PLAN_NO_GROUP};
        struct object item = *o;
        item.json = json_array_get(list, i);
        item.list = "pieces";
        item.position = i;
        item.taken = 0;
        if (!json_is_object(item.json))
            return wrong(&item, "", "it is %s: an object is expected", kind_of(item.json));
        TRY(read_piece(&item, &piece));
        plan_add_piece(o->r->plan, &piece);
    }
    return ERR_OK;
}

enum { PACKED_MOST = 8 }; /* of 4 bits in 32 */

static enum err_code read_param(struct object *o, uint32_t index)
{
    struct plan *plan = o->r->plan;
    struct plan_param *param = &plan->params[index];
    memset(param->piece, 0xff, sizeof param->piece);
    TRY(take_kept_text(o, "name", &param->name));
    TRY(take_shape(o, "shape", &param->shape));
    TRY(take_bool(o, "trainable", &param->trainable));
    TRY(take_bool(o, "beside", &param->beside));
    TRY(take_optional(o, "packed", PACKED_MOST, &param->packed));
    TRY(take_index(o, "unit", plan->unit_count, "units", &param->unit));
    TRY(take_pieces(o, index));
    param->step_buffer = PLACE_NONE;
    TRY(take_optional(o, "step", plan->buffer_count ? plan->buffer_count - 1 : 0,
                      &param->step_buffer));
    TRY(read_param_init(o, &param->init));
    return finish(o, "name shape trainable beside packed unit pieces step init");
}

static enum err_code read_params(struct object *top, json_t *list)
{
    struct plan *plan = top->r->plan;
    plan->params = arena_alloc(&plan->arena, plan->param_count * sizeof *plan->params);
    for (uint32_t i = 0; i < plan->param_count; i++) {
        struct object o;
        TRY(open_item(top->r, "params", list, i, &o));
        TRY(read_param(&o, i));
    }
    return ERR_OK;
}

/* A label: a known operator keeps its number of vocabulary.h, others get further ones. */
static enum err_code take_name(struct object *o, const char *key, struct names *names,
                               uint16_t *out)
{
    const char *text;
    TRY(take_text(o, key, &text));
    const uint32_t number = number_of(names, &o->r->plan->arena, text);
    if (number > UINT16_MAX)
        return wrong(o, key, "more than %d different names", UINT16_MAX + 1);
    *out = (uint16_t)number;
    return ERR_OK;
}

static enum err_code take_lane(struct object *o, const char *key, uint8_t *out)
{
    const struct plan *plan = o->r->plan;
    const char *names[LANES_MOST];
    for (uint32_t i = 0; i < plan->lane_count; i++)
        names[i] = plan->lanes[i].name;
    return take_choice(o, key, names, plan->lane_count, out);
}

/* A parameter of whose updated part something has the shape, + 1. */
static enum err_code take_local(struct object *o, uint32_t *out)
{
    uint32_t param = 0;
    *out = 0;
    if (!json_object_get(o->json, "local"))
        return ERR_OK;
    TRY(take_index(o, "local", o->r->plan->param_count, "parameters", &param));
    *out = param + 1;
    return ERR_OK;
}

static enum err_code read_buffer(struct object *o, struct buffer *buffer)
{
    const struct vocabulary *allowed = &o->r->allowed;
    TRY(take_id(o));
    TRY(take_number(o, "bytes", INT64_MAX, &buffer->bytes));
    TRY(TAKE_CHOICE(o, "dtype", allowed->dtypes, &buffer->dtype));
    TRY(take_shape(o, "shape", &buffer->shape));
    TRY(TAKE_CHOICE(o, "category", allowed->categories, &buffer->category));
    TRY(take_lane(o, "pool", &buffer->pool));
    TRY(take_name(o, "what", &o->r->labels, &buffer->label));
    TRY(take_bool(o, "resident", &buffer->resident));
    TRY(take_bool(o, "carried", &buffer->carried));
    TRY(take_bool(o, "scratch", &buffer->scratch));
    TRY(take_bool(o, "pinned", &buffer->pinned));
    TRY(take_bool(o, "paged", &buffer->paged));
    TRY(take_local(o, &buffer->local));
    return finish(o, "id bytes dtype shape category pool what resident carried scratch pinned "
                     "paged local");
}

static enum err_code read_buffers(struct object *top)
{
    json_t *list;
    TRY(take_list(top, "buffers", &list));
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        struct object o;
        struct buffer buffer = {0};
        TRY(open_item(top->r, "buffers", list, i, &o));
        TRY(read_buffer(&o, &buffer));
        plan_add_buffer(top->r->plan, &buffer);
    }
    return ERR_OK;
}

/* ---- instructions ---- */

/* As many as the shape has dims; none: nobody knows them. */
static enum err_code take_strides(struct object *o, struct operand *operand)
{
    json_t *list;
    TRY(take_list(o, "strides", &list));
    if (json_array_size(list) == 0) {
        operand->layout = &layout_unknown;
        return ERR_OK;
    }
    if (json_array_size(list) != operand->shape.rank)
        return wrong(o, "strides", "it has %zu items: the shape has %u", json_array_size(list),
                     operand->shape.rank);
    struct strides *strides = arena_alloc(&o->r->plan->arena, sizeof *strides);
    *strides = (struct strides){{0}};
    for (uint32_t i = 0; i < operand->shape.rank; i++)
        TRY(number_in(o, "strides", json_array_get(list, i), MOST_ELEMENTS, &strides->of[i]));
    operand->layout = strides;
    return ERR_OK;
}

/* A buffer as it is, or an object that says how it is looked at. */
static enum err_code read_operand(struct object *o, json_t *value, struct operand *operand)
{
    const struct plan *plan = o->r->plan;
    const struct buffer *buffer;
    o->json = value;
    o->taken = 0;
    if (json_is_object(value)) {
        TRY(take_index(o, "buffer", plan->buffer_count, "buffers", &operand->place));
    } else {
        uint64_t number = 0;
        if (!json_is_integer(value) || plan->buffer_count == 0)
            return wrong(o, "", "it is %s: a buffer or an object is expected", kind_of(value));
        TRY(number_in(o, "", value, plan->buffer_count - 1, &number));
        operand->place = (uint32_t)number;
    }
    buffer = &plan->buffers[operand->place];
    operand->dtype = buffer->dtype;
    operand->shape = buffer->shape;
    if (!json_is_object(value)) {
        operand->local = buffer->local;
        return ERR_OK;
    }
    if (json_object_get(value, "dtype"))
        TRY(TAKE_CHOICE(o, "dtype", o->r->allowed.dtypes, &operand->dtype));
    if (json_object_get(value, "shape"))
        TRY(take_shape(o, "shape", &operand->shape));
    if (json_object_get(o->json, "offset"))
        TRY(take_number(o, "offset", MOST_ELEMENTS, &operand->offset));
    TRY(take_optional(o, "pitch", UINT32_MAX, &operand->pitch));
    if (json_object_get(o->json, "strides"))
        TRY(take_strides(o, operand));
    TRY(take_local(o, &operand->local));
    if (json_object_get(o->json, "chunk")) {
        TRY(take_group(o, "chunk", &operand->chunk));
        operand->chunk++;
    }
    return finish(o, "buffer dtype shape offset pitch strides local chunk");
}

static enum err_code take_operand_list(struct object *o, const char *key, json_t **list,
                                       uint16_t *count)
{
    TRY(take_list(o, key, list));
    if (json_array_size(*list) > UINT16_MAX)
        return wrong(o, key, "it has %zu items: at most %d are allowed", json_array_size(*list),
                     UINT16_MAX);
    *count = (uint16_t)json_array_size(*list);
    return ERR_OK;
}

static enum err_code read_operands(const struct object *o, const char *key, json_t *list,
                                   struct operand *out)
{
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        struct object item = *o;
        item.list = key;
        item.position = i;
        TRY(read_operand(&item, json_array_get(list, i), &out[i]));
    }
    return ERR_OK;
}

static enum err_code take_work(struct object *o, uint8_t *out)
{
    const char *text;
    TRY(take_text(o, "work", &text));
    *out = (uint8_t)work_named(text);
    if (*out == WORK_NONE)
        return wrong(o, "work", "no computation is called \"%.64s\"; the nearest is %s", text,
                     work_name(work_nearest(text)));
    return ERR_OK;
}

static enum err_code read_kernel(struct object *o, struct plan_instruction *instruction)
{
    struct plan *plan = o->r->plan;
    struct kernel kernel = {.ins = 0};
    json_t *in, *out;
    const enum plan_op op = (enum plan_op)instruction->op;
    if (plan_op_is_collective(op) ||
        (plan_op_may_have_group(op) && json_object_get(o->json, "group")))
        TRY(take_group(o, "group", &instruction->group));
    TRY(take_work(o, &kernel.work));
    TRY(take_name(o, "kernel", &o->r->labels, &kernel.label));
    if (json_object_get(o->json, "kind"))
        TRY(take_name(o, "kind", &o->r->kinds, &kernel.op));
    TRY(take_bool(o, "backward", &kernel.backward));
    TRY(take_bool(o, "recomputed", &kernel.recomputed));
    TRY(take_bool(o, "compiled", &kernel.compiled));
    TRY(take_optional(o, "dim", UINT32_MAX, &kernel.attr.dim));
    TRY(take_optional(o, "first", UINT32_MAX, &kernel.attr.first));
    TRY(take_float(o, "p", &kernel.attr.p));
    TRY(take_float(o, "eps", &kernel.attr.eps));
    TRY(take_float(o, "scale", &kernel.attr.scale));
    TRY(take_bool(o, "causal", &kernel.attr.causal));
    TRY(take_optional(o, "window", UINT32_MAX, &kernel.attr.window));
    TRY(take_optional(o, "sample", UINT32_MAX, &kernel.attr.sample));
    TRY(take_float(o, "softcap", &kernel.attr.softcap));
    TRY(take_real(o, "flops", &kernel.flops));
    TRY(take_real(o, "bytes", &kernel.bytes));
    TRY(take_operand_list(o, "in", &in, &kernel.ins));
    TRY(take_operand_list(o, "out", &out, &kernel.outs));
    kernel.operands =
        arena_alloc(&plan->arena, ((size_t)kernel.ins + kernel.outs) * sizeof *kernel.operands);
    TRY(read_operands(o, "in", in, kernel.operands));
    TRY(read_operands(o, "out", out, kernel.operands + kernel.ins));
    instruction->arg = plan->kernel_count;
    ARRAY_GROW(plan->kernels, plan->kernel_count, plan->kernel_cap);
    plan->kernels[plan->kernel_count++] = kernel;
    return finish(o,
                  "id op stream phase scope first_step later_steps group work kernel kind backward "
                  "recomputed compiled dim first p eps scale causal window sample softcap flops "
                  "bytes in out");
}

static enum err_code read_instruction(struct object *o, struct plan_instruction *instruction)
{
    static const char known[] = "id op stream phase scope first_step later_steps buffer event mark";
    const struct plan *plan = o->r->plan;
    const struct vocabulary *allowed = &o->r->allowed;
    bool first_step, later_steps;
    uint8_t mark = 0;
    *instruction = (struct plan_instruction){.group = PLAN_NO_GROUP};
    TRY(take_id(o));
    TRY(TAKE_CHOICE(o, "op", allowed->ops, &instruction->op));
    TRY(take_lane(o, "stream", &instruction->lane));
    TRY(TAKE_CHOICE(o, "phase", allowed->phases, &instruction->phase));
    TRY(take_optional(o, "scope", plan->scope_count - 1, &instruction->scope));
    TRY(take_bool(o, "first_step", &first_step));
    TRY(take_bool(o, "later_steps", &later_steps));
    instruction->flags =
        (uint8_t)((first_step ? PLAN_FIRST_STEP : 0) | (later_steps ? PLAN_LATER_STEPS : 0));
    switch (instruction->op) {
    case PLAN_ALLOC:
    case PLAN_FREE:
    case PLAN_USE:
        TRY(take_index(o, "buffer", plan->buffer_count, "buffers", &instruction->arg));
        return finish(o, known);
    case PLAN_RECORD:
    case PLAN_WAIT:
        TRY(take_index(o, "event", plan->event_count, "events", &instruction->arg));
        return finish(o, known);
    case PLAN_MARK:
        TRY(TAKE_CHOICE(o, "mark", allowed->marks, &mark));
        instruction->arg = mark;
        return finish(o, known);
    default:
        return read_kernel(o, instruction);
    }
}

static enum err_code read_instructions(struct object *top)
{
    json_t *list;
    TRY(take_list(top, "instructions", &list));
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        struct object o;
        struct plan_instruction instruction;
        TRY(open_item(top->r, "instructions", list, i, &o));
        TRY(read_instruction(&o, &instruction));
        plan_add_instruction(top->r->plan, &instruction);
    }
    return ERR_OK;
}

static enum err_code read_module(struct object *o, struct plan *plan)
{
    const struct plan_module_span *before =
        plan->module_span_count ? &plan->module_spans[plan->module_span_count - 1] : NULL;
    struct plan_module_span span;
    TRY(take_index(o, "first", plan->instruction_count, "instructions", &span.first));
    TRY(take_kept_text(o, "name", &span.name));
    if (before && span.first <= before->first)
        return wrong(o, "first", "%u: the module before it begins at %u", span.first,
                     before->first);
    plan_add_module_span(plan, span.name);
    plan->module_spans[plan->module_span_count - 1].first = span.first;
    return finish(o, "first name");
}

/* Names for people: a plan without them runs as well. */
static enum err_code read_modules(struct object *top)
{
    struct plan *plan = top->r->plan;
    json_t *list;
    if (!json_object_get(top->json, "modules"))
        return ERR_OK;
    TRY(take_list(top, "modules", &list));
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        struct object o;
        TRY(open_item(top->r, "modules", list, i, &o));
        TRY(read_module(&o, plan));
    }
    plan->modules_known = true;
    return ERR_OK;
}

/* Of a plan that repeats: where its micro-batches begin. That they repeat is looked at. */
static enum err_code read_repeats(struct object *top)
{
    struct plan *plan = top->r->plan;
    json_t *list;
    TRY(take_optional(top, "repeats", MICRO_BATCHES_MOST, &plan->repeats));
    if (plan->repeats == 0)
        return ERR_OK;
    TRY(take_list(top, "micro_batches", &list));
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        struct object o;
        struct plan_micro_batch at;
        TRY(open_item(top->r, "micro_batches", list, i, &o));
        TRY(take_index(&o, "instruction", plan->instruction_count, "instructions",
                       &at.instruction));
        TRY(take_uint(&o, "buffer", plan->buffer_count, &at.buffer));
        TRY(take_uint(&o, "event", plan->event_count, &at.event));
        TRY(finish(&o, "instruction buffer event"));
        const struct plan_micro_batch *before = i ? &plan->micro_batches[i - 1] : NULL;
        if (before && (at.instruction <= before->instruction || at.buffer < before->buffer ||
                       at.event < before->event))
            return wrong(top, "micro_batches", "number %u begins before the one before it", i);
        plan_note_micro_batch(plan);
        plan->micro_batches[i] = at;
    }
    if (plan->micro_batch_count < REPEAT_FEW)
        return wrong(top, "micro_batches", "%u of them: a plan that repeats has %d",
                     plan->micro_batch_count, REPEAT_FEW);
    if (!plan_repeats(plan))
        return wrong(top, "repeats", "the micro-batch before the last is not the one before it");
    return plan_instructions_of_step(plan) <= UINT32_MAX
               ? ERR_OK
               : wrong(top, "repeats", "the step has more than %" PRIu32 " instructions",
                       UINT32_MAX);
}

/* ---- the file ---- */

static enum err_code take_extra(struct object *top, const char *key, json_t **out)
{
    json_t *value = take(top, key);
    if (value && !json_is_object(value))
        return wrong(top, key, "it is %s: an object is expected", kind_of(value));
    if (out)
        *out = json_incref(value);
    return ERR_OK;
}

static enum err_code read_top(struct object *top)
{
    struct plan *plan = top->r->plan;
    json_t *units, *params;
    TRY(take_kept_text(top, "system", &plan->system));
    TRY(take_uint(top, "world", UINT32_MAX, &plan->world));
    TRY(take_uint(top, "rank", UINT32_MAX, &plan->rank));
    TRY(take_bool(top, "own_programs", &plan->own_programs));
    TRY(take_uint(top, "events", UINT32_MAX, &plan->event_count));
    TRY(take_list(top, "units", &units));
    TRY(take_list(top, "params", &params));
    if (plan->rank >= plan->world)
        return wrong(top, "rank", "%u: allowed are 0 ... %u", plan->rank,
                     plan->world ? plan->world - 1 : 0);
    plan->unit_count = (uint32_t)json_array_size(units);
    plan->param_count = (uint32_t)json_array_size(params);
    TRY(read_lanes(top));
    TRY(read_groups(top));
    TRY(read_scopes(top));
    TRY(read_buffers(top));
    TRY(read_params(top, params));
    TRY(read_units(top, units));
    TRY(read_inputs(top));
    TRY(read_module_buffers(top));
    TRY(read_instructions(top));
    TRY(read_modules(top));
    TRY(read_repeats(top));
    return finish(top,
                  "version settings memory time system world rank events repeats micro_batches "
                  "lanes groups units scopes params inputs module_buffers buffers "
                  "instructions modules");
}

static enum err_code read_version(struct object *top)
{
    json_t *version = take(top, "version");
    if (!json_is_integer(version))
        return wrong(top, "version", "it is %s: this is not a plan, or not of version %d",
                     kind_of(version), PLAN_JSON_VERSION);
    if (json_integer_value(version) < PLAN_JSON_VERSION)
        return wrong(top, "version",
                     "%" JSON_INTEGER_FORMAT ": a plan of an earlier shardplan, which does not say "
                     "all that version %d does; make it again with `shardplan plan`",
                     json_integer_value(version), PLAN_JSON_VERSION);
    if (json_integer_value(version) != PLAN_JSON_VERSION)
        return wrong(top, "version",
                     "%" JSON_INTEGER_FORMAT ": only version %d can be read; plan it again",
                     json_integer_value(version), PLAN_JSON_VERSION);
    return ERR_OK;
}

static enum err_code read_tree(struct reader *r, json_t *tree, struct plan_json_extra *extra)
{
    struct object top = {.r = r, .json = tree};
    if (!json_is_object(tree))
        return err_set(r->err, ERR_INVALID, "%s: it is %s: an object is expected", r->path,
                       kind_of(tree));
    TRY(read_version(&top));
    TRY(take_extra(&top, "settings", extra ? &extra->settings : NULL));
    TRY(take_extra(&top, "memory", extra ? &extra->memory : NULL));
    TRY(take_extra(&top, "time", extra ? &extra->time : NULL));
    return read_top(&top);
}

static enum err_code build_plan(const char *path, json_t *tree, struct plan_json_extra *extra,
                                struct plan *plan, struct err *err)
{
    struct reader r = {
        .path = path,
        .plan = plan,
        .err = err,
        .labels.numbers = json_object(),
        .kinds.numbers = json_object(),
    };
    fill_vocabulary(&r.allowed);
    for (int i = 0; i < ATEN_COUNT; i++)
        add_name(&r.labels, aten_name((enum aten)i));
    add_name(&r.kinds, "");
    const enum err_code rc = read_tree(&r, tree, extra);
    plan->label_count = r.labels.count;
    plan->kind_count = r.kinds.count;
    plan->labels = keep_texts(&r.labels, &plan->arena);
    plan->kinds = keep_texts(&r.kinds, &plan->arena);
    if (rc != ERR_OK)
        return rc;
    struct err found = {0}; /* in a file it is the file that is wrong, not we */
    if (plan_verify(plan, &found) != ERR_OK)
        return err_set(err, ERR_INVALID, "%s: %s", path, found.text);
    return ERR_OK;
}

static json_t *load(const char *path, const char *text, size_t length, struct err *err)
{
    json_error_t at;
    json_t *tree = json_text_read(text, length, JSON_REJECT_DUPLICATES, &at);
    if (!tree)
        err_set(err, ERR_INVALID, "%s:%d: column %d: %s", path, at.line, at.column, at.text);
    return tree;
}

/* Takes the tree. */
static enum err_code take_tree(const char *path, json_t *tree, struct plan **out,
                               struct plan_json_extra *extra, struct err *err)
{
    *out = NULL;
    if (!tree)
        return ERR_INVALID;
    struct plan *plan = plan_new();
    const enum err_code rc = build_plan(path, tree, extra, plan, err);
    json_decref(tree);
    if (rc == ERR_OK) {
        *out = plan;
        return ERR_OK;
    }
    plan_free(plan);
    if (extra)
        plan_json_extra_free(extra);
    return rc;
}

char *plan_json_path(const char *path, char *text, size_t size)
{
    return file_meant(path, "plan.json", text, size);
}

enum err_code plan_read_json_extra(const char *given, struct plan **out,
                                   struct plan_json_extra *extra, struct err *err)
{
    char path[4096];
    size_t length = 0;
    *out = NULL;
    if (extra)
        *extra = (struct plan_json_extra){0};
    char *text = file_read(plan_json_path(given, path, sizeof path), &length, err);
    if (!text)
        return err_recorded(err);
    json_t *tree = load(path, text, length, err);
    free(text);
    return take_tree(path, tree, out, extra, err);
}

enum err_code plan_check_whole(const struct plan *plan, const char *path, struct err *err)
{
    if (plan->repeats == 0)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: it has %" PRIu32 " of the step's %" PRIu64
                   " micro-batches, of which one repeats: it can be compared with other plans and "
                   "exported; plan fewer (--accumulate)",
                   path, plan->micro_batch_count, plan_micro_batches_of_step(plan));
}

/* Of a plan that was read: only a whole one. */
static enum err_code whole_only(enum err_code rc, const char *path, struct plan **out,
                                struct err *err)
{
    if (*out)
        rc = plan_check_whole(*out, path, err);
    if (rc != ERR_OK) {
        plan_free(*out);
        *out = NULL;
    }
    return rc;
}

enum err_code plan_read_json(const char *path, struct plan **out, struct err *err)
{
    return whole_only(plan_read_json_extra(path, out, NULL, err), path, out, err);
}

enum err_code plan_parse_json(const char *name, const char *text, size_t length, struct plan **out,
                              struct err *err)
{
    return whole_only(take_tree(name, load(name, text, length, err), out, NULL, err), name, out,
                      err);
}

void plan_json_extra_free(struct plan_json_extra *extra)
{
    json_decref(extra->settings);
    json_decref(extra->memory);
    json_decref(extra->time);
    *extra = (struct plan_json_extra){0};
}
