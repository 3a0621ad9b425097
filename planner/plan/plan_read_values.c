/* plan_read_values.c - what memory holds at first, from plan.json: base/values.h. */
#include "plan/plan_read_parts.h"

#include <math.h>

enum { VOCAB_MOST = 1 << 30, DIM_MOST = 1 << 20 };

/* Member `key` of `outer`, an object. */
static enum err_code open_member(struct object *outer, const char *key, struct object *out)
{
    *out = *outer;
    out->json = take(outer, key);
    out->taken = 0;
    if (!json_is_object(out->json))
        return wrong(outer, key, "it is %s: an object is expected", kind_of(out->json));
    out->list = key;
    out->position = NO_POSITION;
    return ERR_OK;
}

static enum err_code take_positive(struct object *o, const char *key, double *out)
{
    TRY(take_real(o, key, out));
    return isfinite(*out) && *out > 0 ? ERR_OK : wrong(o, key, "%g: it must be positive", *out);
}

static enum err_code take_single(struct object *o, const char *key, float *out)
{
    double value = 0;
    TRY(take_real(o, key, &value));
    *out = (float)value;
    return ERR_OK;
}

/* ---- parameters ---- */

enum err_code read_param_init(struct object *param, struct param_init *init)
{
    const char *kinds[INIT_COUNT];
    struct object o;
    *init = (struct param_init){0};
    for (int i = 0; i < INIT_COUNT; i++)
        kinds[i] = init_name((enum init_kind)i);
    TRY(open_member(param, "init", &o));
    TRY(TAKE_CHOICE(&o, "kind", kinds, &init->kind));
    if (init->kind == INIT_UNIFORM)
        TRY(take_positive(&o, "bound", &init->number));
    if (init->kind == INIT_NUMBER)
        TRY(take_real(&o, "number", &init->number));
    if (init->kind == INIT_NORMAL)
        TRY(take_positive(&o, "std", &init->number));
    if (init->kind == INIT_NORMAL && json_object_get(o.json, "limit"))
        TRY(take_positive(&o, "limit", &init->limit));
    return finish(&o, "kind bound number std limit");
}

/* ---- inputs ---- */

static enum err_code read_input(struct object *o, struct plan_input *input)
{
    const char *kinds[INPUT_COUNT];
    for (int i = 0; i < INPUT_COUNT; i++)
        kinds[i] = input_name((enum input_kind)i);
    TRY(take_index(o, "buffer", o->r->plan->buffer_count, "buffers", &input->buffer));
    TRY(TAKE_CHOICE(o, "what", kinds, &input->values.kind));
    TRY(take_uint(o, "vocab", VOCAB_MOST, &input->values.vocab));
    if (json_object_get(o->json, "padded"))
        TRY(take_uint(o, "padded", UINT32_MAX, &input->values.padded));
    if (json_object_get(o->json, "prompt"))
        TRY(take_uint(o, "prompt", UINT32_MAX, &input->values.prompt));
    return finish(o, "buffer what vocab padded prompt");
}

enum err_code read_inputs(struct object *top)
{
    struct plan *plan = top->r->plan;
    json_t *list;
    TRY(take_list(top, "inputs", &list));
    plan->input_count = (uint32_t)json_array_size(list);
    plan->inputs = arena_alloc(&plan->arena, plan->input_count * sizeof *plan->inputs);
    for (uint32_t i = 0; i < plan->input_count; i++) {
        struct object o;
        plan->inputs[i] = (struct plan_input){0};
        TRY(open_item(top->r, "inputs", list, i, &o));
        TRY(read_input(&o, &plan->inputs[i]));
    }
    return ERR_OK;
}

/* ---- module buffers ---- */

static enum err_code read_numbers(struct object *o, const char *key, const json_t *list, float *out)
{
    for (uint32_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value))
            return wrong(o, key, "item %u is %s: a number is expected", i, kind_of(value));
        out[i] = (float)json_number_value(value);
    }
    return ERR_OK;
}

static enum err_code read_factors(struct object *o, const char *key, uint32_t count, float *out)
{
    json_t *list;
    TRY(take_list(o, key, &list));
    if (count > ROPE_PAIRS_MAX || json_array_size(list) != count)
        return wrong(o, key, "it has %zu items: half of \"dim\", at most %d, are expected",
                     json_array_size(list), ROPE_PAIRS_MAX);
    return read_numbers(o, key, list, out);
}

static enum err_code read_parts(struct object *o, struct buffer_values *values)
{
    json_t *widths, *numbers;
    TRY(take_list(o, "widths", &widths));
    TRY(take_list(o, "numbers", &numbers));
    const size_t count = json_array_size(widths);
    if (count > VALUES_PARTS_MOST || json_array_size(numbers) != count)
        return wrong(o, "widths",
                     "it has %zu items, \"numbers\" %zu: as many, at most %d, are expected", count,
                     json_array_size(numbers), VALUES_PARTS_MOST);
    values->parts = (uint8_t)count;
    for (uint32_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(widths, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) > UINT32_MAX)
            return wrong(o, "widths", "item %u is not an integer of 32 bits", i);
        values->widths[i] = (uint32_t)json_integer_value(value);
    }
    return read_numbers(o, "numbers", numbers, values->numbers);
}

static enum err_code read_rope(struct object *o, struct rope *rope)
{
    const char *scalings[ROPE_SCALING_COUNT];
    uint32_t count;
    const struct rope_number *numbers = rope_numbers(&count);
    for (int i = 0; i < ROPE_SCALING_COUNT; i++)
        scalings[i] = rope_scaling_name((enum rope_scaling)i);
    rope->attention_factor = 1.0F;
    TRY(take_uint(o, "dim", DIM_MOST, &rope->dim));
    TRY(take_single(o, "theta", &rope->theta));
    TRY(TAKE_CHOICE(o, "scaling", scalings, &rope->scaling));
    for (uint32_t i = 0; i < count; i++) {
        void *field = (char *)rope + numbers[i].field;
        if (!(numbers[i].kinds & 1U << rope->scaling))
            continue;
        if (numbers[i].whole)
            TRY(take_uint(o, numbers[i].name, UINT32_MAX, field));
        else
            TRY(take_single(o, numbers[i].name, field));
    }
    if (rope->scaling == ROPE_YARN)
        TRY(take_bool(o, "truncate", &rope->truncate));
    if (rope->scaling == ROPE_LONGROPE) {
        TRY(read_factors(o, "short_factor", rope->dim / 2, rope->short_factor));
        TRY(read_factors(o, "long_factor", rope->dim / 2, rope->long_factor));
    }
    return ERR_OK;
}

static enum err_code read_buffer_values(struct object *row, struct buffer_values *values)
{
    const char *kinds[VALUES_COUNT], *layouts[ROPE_LAYOUT_COUNT];
    struct object o;
    for (int i = 0; i < VALUES_COUNT; i++)
        kinds[i] = buffer_values_name((enum buffer_values_kind)i);
    for (int i = 0; i < ROPE_LAYOUT_COUNT; i++)
        layouts[i] = rope_layout_name((enum rope_layout)i);
    TRY(open_member(row, "init", &o));
    TRY(TAKE_CHOICE(&o, "kind", kinds, &values->kind));
    if (values->kind == VALUES_NUMBER || values->kind == VALUES_WINDOW)
        TRY(take_single(&o, "number", &values->number));
    if (values->kind == VALUES_PARTS)
        TRY(read_parts(&o, values));
    if (values->kind == VALUES_ROPE) {
        TRY(TAKE_CHOICE(&o, "layout", layouts, &values->layout));
        TRY(read_rope(&o, &values->rope));
    }
    return finish(&o, "kind number widths numbers layout dim theta scaling factor "
                      "original_max_position_embeddings "
                      "positions attention_factor beta_fast beta_slow truncate low_freq_factor "
                      "high_freq_factor short_factor long_factor");
}

enum err_code read_module_buffers(struct object *top)
{
    struct plan *plan = top->r->plan;
    json_t *list;
    TRY(take_list(top, "module_buffers", &list));
    plan->module_buffer_count = (uint32_t)json_array_size(list);
    plan->module_buffers =
        arena_alloc(&plan->arena, plan->module_buffer_count * sizeof *plan->module_buffers);
    for (uint32_t i = 0; i < plan->module_buffer_count; i++) {
        struct plan_module_buffer *row = &plan->module_buffers[i];
        struct object o;
        *row = (struct plan_module_buffer){0};
        TRY(open_item(top->r, "module_buffers", list, i, &o));
        TRY(take_index(&o, "buffer", plan->buffer_count, "buffers", &row->buffer));
        TRY(read_buffer_values(&o, &row->values));
        TRY(finish(&o, "buffer init"));
    }
    return ERR_OK;
}
