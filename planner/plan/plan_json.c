/* plan_json.c - writing plan.json; see plan_json.h. Reading is in plan_read.c.
 *
 * A tree of JSON values for 15,000 instructions would take longer to build than the plan itself,
 * so the text is put together by hand in one block of memory that goes to the file when full.
 * Nothing is checked on the way: a failed fwrite stays in ferror(), which is looked at once. */
#include "plan/plan_json.h"

#include "base/file.h"
#include "base/layout.h"
#include "plan/modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 18, LONGEST_PIECE = 64 };

struct writer {
    const struct plan *plan;
    FILE *file;
    char *block;
    size_t used;
};

/* ---- pieces of text ---- */

static void flush_block(struct writer *w)
{
    fwrite(w->block, 1, w->used, w->file);
    w->used = 0;
}

/* Room for a short piece, to be added to w->used by whoever fills it. */
static char *make_room(struct writer *w)
{
    if (BLOCK_BYTES - w->used < LONGEST_PIECE)
        flush_block(w);
    return w->block + w->used;
}

static void put_bytes(struct writer *w, const char *text, size_t length)
{
    if (BLOCK_BYTES - w->used < length)
        flush_block(w);
    if (length > BLOCK_BYTES) {
        fwrite(text, 1, length, w->file);
        return;
    }
    memcpy(w->block + w->used, text, length);
    w->used += length;
}

static void put(struct writer *w, const char *text)
{
    put_bytes(w, text, strlen(text));
}

static void put_uint(struct writer *w, uint64_t value)
{
    char digits[24], *first = digits + sizeof digits;
    do
        *--first = (char)('0' + value % 10);
    while (value /= 10);
    put_bytes(w, first, (size_t)(digits + sizeof digits - first));
}

/* The shortest text that reads back as the same double (or, if `single`, float). */
static void put_real(struct writer *w, double value, bool single)
{
    if (value >= 0 && value < 9007199254740992.0 && value == (double)(uint64_t)value) {
        put_uint(w, (uint64_t)value);
        return;
    }
    char *text = make_room(w);
    const int most = single ? 9 : 17; /* digits that are always enough */
    int length = 0;
    for (int digits = most - 3; digits <= most; digits++) {
        length = snprintf(text, LONGEST_PIECE, "%.*g", digits, value);
        const double again = single ? (double)strtof(text, NULL) : strtod(text, NULL);
        if (!(again < value) && !(again > value))
            break;
    }
    w->used += (size_t)length;
}

static void put_string(struct writer *w, const char *text)
{
    put(w, "\"");
    for (const char *rest = text;;) {
        size_t plain = 0;
        while ((unsigned char)rest[plain] >= ' ' && rest[plain] != '"' && rest[plain] != '\\')
            plain++;
        put_bytes(w, rest, plain);
        rest += plain;
        if (!*rest)
            break;
        w->used += (size_t)snprintf(make_room(w), LONGEST_PIECE,
                                    *rest == '"' || *rest == '\\' ? "\\%c" : "\\u%04x", *rest);
        rest++;
    }
    put(w, "\"");
}

/* ---- members; each begins with a comma, so `id` or `name` goes first ---- */

static void put_key(struct writer *w, const char *key)
{
    put(w, ", \"");
    put(w, key);
    put(w, "\": ");
}

static void member_uint(struct writer *w, const char *key, uint64_t value)
{
    put_key(w, key);
    put_uint(w, value);
}

static void member_nonzero(struct writer *w, const char *key, uint64_t value)
{
    if (value)
        member_uint(w, key, value);
}

static void member_real(struct writer *w, const char *key, double value, bool single)
{
    put_key(w, key);
    put_real(w, value, single);
}

static void member_string(struct writer *w, const char *key, const char *text)
{
    put_key(w, key);
    put_string(w, text);
}

static void member_true(struct writer *w, const char *key, bool value)
{
    if (value) {
        put_key(w, key);
        put(w, "true");
    }
}

static void put_uints(struct writer *w, const uint32_t *values, uint32_t count)
{
    put(w, "[");
    for (uint32_t i = 0; i < count; i++) {
        put(w, i ? ", " : "");
        put_uint(w, values[i]);
    }
    put(w, "]");
}

static void member_shape(struct writer *w, const char *key, const struct shape *shape)
{
    put_key(w, key);
    put_uints(w, shape->dim, shape->rank);
}

/* A member of the outermost object, on a line of its own. */
static void put_table(struct writer *w, const char *key)
{
    put(w, ",\n\"");
    put(w, key);
    put(w, "\": ");
}

static void put_list(struct writer *w, const char *key)
{
    put_table(w, key);
    put(w, "[");
}

/* An item on a line of its own. */
static void put_item(struct writer *w, uint32_t index, const char *first_key)
{
    put(w, index ? ",\n{\"" : "\n{\"");
    put(w, first_key);
    put(w, "\": ");
}

/* ---- tables ---- */

static void put_repeats(struct writer *w)
{
    const struct plan *plan = w->plan;
    if (!plan->repeats)
        return;
    member_uint(w, "repeats", plan->repeats);
    put_list(w, "micro_batches");
    for (uint32_t i = 0; i < plan->micro_batch_count; i++) {
        put_item(w, i, "instruction");
        put_uint(w, plan->micro_batches[i].instruction);
        member_uint(w, "buffer", plan->micro_batches[i].buffer);
        member_uint(w, "event", plan->micro_batches[i].event);
        put(w, "}");
    }
    put(w, "]");
}

static void put_groups(struct writer *w)
{
    put_list(w, "groups");
    for (uint32_t i = 0; i < w->plan->group_count; i++) {
        const struct plan_group *group = &w->plan->groups[i];
        put_item(w, i, "name");
        put_string(w, group->name);
        member_string(w, "role", plan_group_role_name((enum group_role)group->role));
        member_uint(w, "ranks", group->ranks);
        member_uint(w, "stride", group->stride);
        put(w, "}");
    }
    put(w, "]");
}

static void put_units(struct writer *w)
{
    put_list(w, "units");
    for (uint32_t i = 0; i < w->plan->unit_count; i++) {
        const struct plan_unit *unit = &w->plan->units[i];
        put_item(w, i, "name");
        put_string(w, unit->name);
        put_key(w, "params");
        put_uints(w, w->plan->unit_params + unit->first_param, unit->params);
        put(w, "}");
    }
    put(w, "]");
}

static void put_lanes(struct writer *w)
{
    put_list(w, "lanes");
    for (uint32_t i = 0; i < w->plan->lane_count; i++) {
        put_item(w, i, "name");
        put_string(w, w->plan->lanes[i].name);
        member_true(w, "urgent", w->plan->lanes[i].urgent);
        put(w, "}");
    }
    put(w, "]");
}

static void put_scopes(struct writer *w)
{
    put_list(w, "scopes");
    for (uint32_t i = 0; i < w->plan->scope_count; i++) {
        const struct plan_scope *scope = &w->plan->scopes[i];
        put_item(w, i, "text");
        put_string(w, scope->text);
        if (scope->unit != PLAN_NO_UNIT)
            member_uint(w, "unit", scope->unit);
        put(w, "}");
    }
    put(w, "]");
}

/* Which elements a piece has follows from its placement; they are written all the same, for those
 * who read no further. */
static void put_piece(struct writer *w, const struct plan_piece *piece)
{
    const struct part part = plan_part(w->plan, piece, w->plan->rank);
    put(w, "{\"role\": ");
    put_string(w, plan_role_name((enum piece_role)piece->role));
    member_uint(w, "buffer", piece->buffer);
    member_nonzero(w, "offset", piece->offset);
    member_string(w, "placement", placement_name((enum placement_kind)piece->placement.kind));
    if (piece->group != PLAN_NO_GROUP)
        member_string(w, "group", w->plan->groups[piece->group].name);
    member_nonzero(w, "at", piece->placement.at);
    member_nonzero(w, "total", piece->placement.total);
    member_uint(w, "first", part.first);
    member_uint(w, "elements", part_elements(&part));
    put(w, "}");
}

static void member_pieces(struct writer *w, const struct plan_param *param)
{
    bool first = true;
    put_key(w, "pieces");
    put(w, "[");
    for (int role = 0; role < PIECE_ROLES; role++) {
        if (param->piece[role] == PLACE_NONE)
            continue;
        put(w, first ? "" : ", ");
        put_piece(w, &w->plan->pieces[param->piece[role]]);
        first = false;
    }
    put(w, "]");
}

/* ---- what memory holds at first: base/values.h ---- */

static void put_param_init(struct writer *w, const struct param_init *init)
{
    put(w, "{\"kind\": ");
    put_string(w, init_name((enum init_kind)init->kind));
    if (init->kind == INIT_UNIFORM)
        member_real(w, "bound", init->number, false);
    if (init->kind == INIT_NUMBER)
        member_real(w, "number", init->number, false);
    if (init->kind == INIT_NORMAL)
        member_real(w, "std", init->number, false);
    if (init->kind == INIT_NORMAL && init->limit > 0)
        member_real(w, "limit", init->limit, false);
    put(w, "}");
}

static void member_reals(struct writer *w, const char *key, const float *values, uint32_t count)
{
    put_key(w, key);
    put(w, "[");
    for (uint32_t i = 0; i < count; i++) {
        put(w, i ? ", " : "");
        put_real(w, (double)values[i], true);
    }
    put(w, "]");
}

static void member_rope(struct writer *w, const struct rope *rope)
{
    uint32_t count;
    const struct rope_number *numbers = rope_numbers(&count);
    member_uint(w, "dim", rope->dim);
    member_real(w, "theta", (double)rope->theta, true);
    member_string(w, "scaling", rope_scaling_name((enum rope_scaling)rope->scaling));
    for (uint32_t i = 0; i < count; i++) {
        const void *field = (const char *)rope + numbers[i].field;
        if (!(numbers[i].kinds & 1U << rope->scaling))
            continue;
        if (numbers[i].whole)
            member_uint(w, numbers[i].name, *(const uint32_t *)field);
        else
            member_real(w, numbers[i].name, (double)*(const float *)field, true);
    }
    if (rope->scaling == ROPE_YARN)
        member_true(w, "truncate", rope->truncate);
    if (rope->scaling == ROPE_LONGROPE) {
        member_reals(w, "short_factor", rope->short_factor, rope->dim / 2);
        member_reals(w, "long_factor", rope->long_factor, rope->dim / 2);
    }
}

static void put_inputs(struct writer *w)
{
    put_list(w, "inputs");
    for (uint32_t i = 0; i < w->plan->input_count; i++) {
        const struct plan_input *input = &w->plan->inputs[i];
        put_item(w, i, "buffer");
        put_uint(w, input->buffer);
        member_string(w, "what", input_name((enum input_kind)input->values.kind));
        member_uint(w, "vocab", input->values.vocab);
        if (input->values.padded)
            member_uint(w, "padded", input->values.padded);
        if (input->values.prompt)
            member_uint(w, "prompt", input->values.prompt);
        put(w, "}");
    }
    put(w, "]");
}

static void put_module_buffers(struct writer *w)
{
    put_list(w, "module_buffers");
    for (uint32_t i = 0; i < w->plan->module_buffer_count; i++) {
        const struct plan_module_buffer *row = &w->plan->module_buffers[i];
        put_item(w, i, "buffer");
        put_uint(w, row->buffer);
        put(w, ", \"init\": {\"kind\": ");
        put_string(w, buffer_values_name((enum buffer_values_kind)row->values.kind));
        if (row->values.kind == VALUES_NUMBER || row->values.kind == VALUES_WINDOW)
            member_real(w, "number", (double)row->values.number, true);
        if (row->values.kind == VALUES_PARTS) {
            put_key(w, "widths");
            put_uints(w, row->values.widths, row->values.parts);
            member_reals(w, "numbers", row->values.numbers, row->values.parts);
        }
        if (row->values.kind == VALUES_ROPE) {
            member_string(w, "layout", rope_layout_name((enum rope_layout)row->values.layout));
            member_rope(w, &row->values.rope);
        }
        put(w, "}}");
    }
    put(w, "]");
}

/* ---- parameters and buffers ---- */

static void put_params(struct writer *w)
{
    put_list(w, "params");
    for (uint32_t i = 0; i < w->plan->param_count; i++) {
        const struct plan_param *param = &w->plan->params[i];
        put_item(w, i, "name");
        put_string(w, param->name);
        member_shape(w, "shape", &param->shape);
        member_true(w, "trainable", param->trainable);
        member_true(w, "beside", param->beside);
        if (param->packed)
            member_uint(w, "packed", param->packed);
        member_uint(w, "unit", param->unit);
        member_pieces(w, param);
        if (param->step_buffer != PLACE_NONE)
            member_uint(w, "step", param->step_buffer);
        put_key(w, "init");
        put_param_init(w, &param->init);
        put(w, "}");
    }
    put(w, "]");
}

static void put_buffers(struct writer *w)
{
    put_list(w, "buffers");
    for (uint32_t i = 0; i < w->plan->buffer_count; i++) {
        const struct buffer *buffer = &w->plan->buffers[i];
        put_item(w, i, "id");
        put_uint(w, i);
        member_uint(w, "bytes", buffer->bytes);
        member_string(w, "dtype", dtype_name((enum dtype)buffer->dtype));
        member_shape(w, "shape", &buffer->shape);
        member_string(w, "category", category_name((enum category)buffer->category));
        member_string(w, "pool", w->plan->lanes[buffer->pool].name);
        member_string(w, "what", w->plan->labels[buffer->label]);
        member_true(w, "resident", buffer->resident);
        member_true(w, "carried", buffer->carried);
        member_true(w, "scratch", buffer->scratch);
        member_true(w, "pinned", buffer->pinned);
        member_true(w, "paged", buffer->paged);
        if (buffer->local)
            member_uint(w, "local", buffer->local - 1);
        put(w, "}");
    }
    put(w, "]");
}

/* ---- instructions ---- */

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

static void member_strides(struct writer *w, const struct operand *operand)
{
    const bool known = !layout_is_unknown(operand->layout);
    put_key(w, "strides");
    put(w, "[");
    for (uint32_t i = 0; known && i < operand->shape.rank; i++) {
        put(w, i ? ", " : "");
        put_uint(w, operand->layout->of[i]);
    }
    put(w, "]");
}

static void put_operand(struct writer *w, const struct plan_instruction *instruction,
                        const struct operand *operand)
{
    const struct plan_place place = plan_operand_place(w->plan, instruction, operand);
    const struct buffer *buffer = &w->plan->buffers[place.buffer];
    const bool other_dtype = operand->dtype != buffer->dtype;
    const bool other_shape = !same_shape(&operand->shape, &buffer->shape);
    const bool other_local = operand->local != buffer->local;
    if (!other_dtype && !other_shape && !other_local && !place.offset && !operand->pitch &&
        !operand->layout && !operand->chunk) {
        put_uint(w, place.buffer);
        return;
    }
    put(w, "{\"buffer\": ");
    put_uint(w, place.buffer);
    if (other_dtype)
        member_string(w, "dtype", dtype_name((enum dtype)operand->dtype));
    if (other_shape)
        member_shape(w, "shape", &operand->shape);
    member_nonzero(w, "offset", place.offset);
    member_nonzero(w, "pitch", operand->pitch);
    if (operand->layout)
        member_strides(w, operand);
    if (operand->local)
        member_uint(w, "local", operand->local - 1);
    if (operand->chunk)
        member_string(w, "chunk", w->plan->groups[operand->chunk - 1].name);
    put(w, "}");
}

static void member_operands(struct writer *w, const char *key,
                            const struct plan_instruction *instruction,
                            const struct operand *operands, uint32_t count)
{
    put_key(w, key);
    put(w, "[");
    for (uint32_t i = 0; i < count; i++) {
        put(w, i ? ", " : "");
        put_operand(w, instruction, &operands[i]);
    }
    put(w, "]");
}

static void member_attr(struct writer *w, const struct kernel_attr *attr)
{
    member_nonzero(w, "dim", attr->dim);
    member_nonzero(w, "first", attr->first);
    if (attr->p < 0 || attr->p > 0) {
        put_key(w, "p");
        put_real(w, (double)attr->p, true);
    }
    if (attr->eps < 0 || attr->eps > 0) {
        put_key(w, "eps");
        put_real(w, (double)attr->eps, true);
    }
    if (attr->scale > 0) {
        put_key(w, "scale");
        put_real(w, (double)attr->scale, true);
    }
    member_true(w, "causal", attr->causal);
    member_nonzero(w, "window", attr->window);
    member_nonzero(w, "sample", attr->sample);
    if (attr->softcap > 0) {
        put_key(w, "softcap");
        put_real(w, (double)attr->softcap, true);
    }
}

static void member_kernel(struct writer *w, const struct plan_instruction *instruction)
{
    const struct kernel *kernel = plan_kernel(w->plan, instruction->arg);
    if (instruction->group != PLAN_NO_GROUP)
        member_string(w, "group", w->plan->groups[instruction->group].name);
    member_string(w, "work", work_name((enum work_kind)kernel->work));
    member_string(w, "kernel", w->plan->labels[kernel->label]);
    if (kernel->op)
        member_string(w, "kind", w->plan->kinds[kernel->op]);
    member_true(w, "backward", kernel->backward);
    member_true(w, "recomputed", kernel->recomputed);
    member_true(w, "compiled", kernel->compiled);
    member_attr(w, &kernel->attr);
    put_key(w, "flops");
    put_real(w, kernel->flops, false);
    put_key(w, "bytes");
    put_real(w, kernel->bytes, false);
    member_operands(w, "in", instruction, kernel->operands, kernel->ins);
    member_operands(w, "out", instruction, kernel->operands + kernel->ins, kernel->outs);
}

static void member_arg(struct writer *w, const struct plan_instruction *instruction)
{
    switch (instruction->op) {
    case PLAN_ALLOC:
    case PLAN_FREE:
    case PLAN_USE:
        member_uint(w, "buffer", instruction->arg);
        break;
    case PLAN_RECORD:
    case PLAN_WAIT:
        member_uint(w, "event", instruction->arg);
        break;
    case PLAN_MARK:
        member_string(w, "mark", plan_mark_name((enum plan_mark)instruction->arg));
        break;
    default:
        member_kernel(w, instruction);
        break;
    }
}

static void put_instructions(struct writer *w)
{
    put_list(w, "instructions");
    for (uint32_t i = 0; i < w->plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &w->plan->instructions[i];
        put_item(w, i, "id");
        put_uint(w, i);
        member_string(w, "op", plan_op_name((enum plan_op)instruction->op));
        member_string(w, "stream", w->plan->lanes[instruction->lane].name);
        member_string(w, "phase", plan_phase_name((enum plan_phase)instruction->phase));
        member_nonzero(w, "scope", instruction->scope);
        member_true(w, "first_step", instruction->flags & PLAN_FIRST_STEP);
        member_true(w, "later_steps", instruction->flags & PLAN_LATER_STEPS);
        member_arg(w, instruction);
        put(w, "}");
    }
    put(w, "]");
}

/* ---- the file ---- */

static int put_dumped(const char *text, size_t length, void *writer)
{
    put_bytes(writer, text, length);
    return 0;
}

static enum err_code put_extra(struct writer *w, const char *key, const json_t *extra,
                               struct err *err)
{
    put_table(w, key);
    if (!extra)
        put(w, "{}");
    else if (json_dump_callback(extra, put_dumped, w, JSON_REAL_PRECISION(15)) != 0)
        return err_set(err, ERR_INTERNAL, "\"%s\" cannot be written as JSON", key);
    return ERR_OK;
}

/* Which module each instruction is of: where another one begins. */
static void put_modules(struct writer *w)
{
    struct arena arena = {0};
    const char **names = plan_module_names(w->plan, &arena), *now = "";
    uint32_t count = 0;
    put_list(w, "modules");
    for (uint32_t i = 0; i < w->plan->instruction_count; i++) {
        if (strcmp(names[i], now) == 0)
            continue;
        now = names[i];
        put_item(w, count++, "first");
        put_uint(w, i);
        member_string(w, "name", now);
        put(w, "}");
    }
    put(w, "]");
    arena_free(&arena);
}

static enum err_code put_plan(struct writer *w, const struct plan_json_extra *extra,
                              struct err *err)
{
    const struct plan *plan = w->plan;
    put(w, "{\"version\": ");
    put_uint(w, PLAN_JSON_VERSION);
    TRY(put_extra(w, "settings", extra ? extra->settings : NULL, err));
    TRY(put_extra(w, "memory", extra ? extra->memory : NULL, err));
    TRY(put_extra(w, "time", extra ? extra->time : NULL, err));
    put_table(w, "system");
    put_string(w, plan->system);
    put_table(w, "world");
    put_uint(w, plan->world);
    member_uint(w, "rank", plan->rank);
    if (plan->own_programs)
        put(w, ", \"own_programs\": true");
    member_uint(w, "events", plan->event_count);
    put_repeats(w);
    put_lanes(w);
    put_groups(w);
    put_units(w);
    put_scopes(w);
    put_params(w);
    put_inputs(w);
    put_module_buffers(w);
    put_buffers(w);
    put_instructions(w);
    if (plan->module_span_count)
        put_modules(w);
    put(w, "}\n");
    return ERR_OK;
}

enum err_code plan_write_json(const struct plan *plan, const struct plan_json_extra *extra,
                              const char *path, struct err *err)
{
    struct file_writer to;
    TRY(file_create(path, &to, err));
    struct writer w = {.plan = plan, .file = to.file, .block = xmalloc(BLOCK_BYTES)};
    const enum err_code rc = put_plan(&w, extra, err);
    flush_block(&w);
    free(w.block);
    return file_commit(&to, rc, err);
}
