/* verify_values.c - see verify_values.h. */
#include "plan/verify_values.h"

#include <math.h>

#define MOST 1e30 /* of a number, or of what is drawn, some of them: a float has both */

static enum err_code check_init(const struct plan *plan, uint32_t p, struct err *err)
{
    const struct param_init *init = &plan->params[p].init;
    const bool random = init->kind == INIT_UNIFORM || init->kind == INIT_NORMAL;
    if (init->kind >= INIT_COUNT)
        return err_set(err, ERR_INTERNAL, "parameter %u: init %u: allowed are 0 ... %d", p,
                       init->kind, INIT_COUNT - 1);
    if (random && !(init->number <= MOST && init->number > 0))
        return err_set(err, ERR_INTERNAL, "parameter %u: init spreads over %g", p, init->number);
    if (init->kind == INIT_NUMBER && !(fabs(init->number) <= MOST))
        return err_set(err, ERR_INTERNAL, "parameter %u: init is %g", p, init->number);
    /* one draw in 13 is then kept, or more */
    if (init->kind == INIT_NORMAL && init->limit != 0 &&
        !(isfinite(init->limit) && init->limit >= 0.1 * init->number))
        return err_set(err, ERR_INTERNAL, "parameter %u: init of std %g is cut at %g", p,
                       init->number, init->limit);
    return ERR_OK;
}

static enum err_code check_input(const struct plan *plan, uint32_t i, struct err *err)
{
    const struct plan_input *input = &plan->inputs[i];
    if (input->buffer >= plan->buffer_count)
        return err_set(err, ERR_INTERNAL, "input %u: buffer %u: allowed are 0 ... %u", i,
                       input->buffer, plan->buffer_count - 1);
    if (input->values.kind == INPUT_UNKNOWN)
        return ERR_OK;
    if (input->values.kind >= INPUT_COUNT || input->values.vocab == 0)
        return err_set(err, ERR_INTERNAL, "input %u: kind %u of %u tokens", i, input->values.kind,
                       input->values.vocab);
    if (input->values.kind != INPUT_CLASSES && plan->buffers[input->buffer].dtype != DTYPE_INT64)
        return err_set(err, ERR_INTERNAL, "input %u: tokens are int64", i);
    return ERR_OK;
}

static enum err_code check_rope(const struct buffer_values *values, const struct buffer *buffer,
                                uint32_t i, struct err *err)
{
    const struct rope *rope = &values->rope;
    const bool complex = values->layout == ROPE_COMPLEX, turns = values->layout == ROPE_TURNS;
    const bool table = turns || values->layout == ROPE_SINES;
    const uint32_t rank = complex ? 4 : table ? 2 : 1;
    const uint32_t last = turns ? 2 * rope->dim : table ? rope->dim : rope->dim / 2;
    const struct shape *shape = &buffer->shape;
    uint32_t count;
    const struct rope_number *numbers = rope_numbers(&count);
    if (values->layout >= ROPE_LAYOUT_COUNT || rope->scaling >= ROPE_SCALING_COUNT)
        return err_set(err, ERR_INTERNAL, "module buffer %u: RoPE of layout %u, scaling %u", i,
                       values->layout, rope->scaling);
    if (!(rope->theta >= 1) || !isfinite(rope->theta) || rope->dim == 0 || rope->dim % 2)
        return err_set(err, ERR_INTERNAL, "module buffer %u: RoPE of theta %g on %u numbers", i,
                       (double)rope->theta, rope->dim);
    if (buffer->dtype != (complex ? DTYPE_COMPLEX64 : DTYPE_FP32) || shape->rank != rank ||
        shape->dim[rank - 1] != last || (complex && (shape->dim[0] != 1 || shape->dim[2] != 1)))
        return err_set(err, ERR_INTERNAL, "module buffer %u: RoPE on %u numbers does not fill it",
                       i, rope->dim);
    if (rope->scaling == ROPE_LONGROPE && rope->dim / 2 > ROPE_PAIRS_MAX)
        return err_set(err, ERR_INTERNAL, "module buffer %u: longrope on more than %d pairs", i,
                       ROPE_PAIRS_MAX);
    for (uint32_t n = 0; n < count; n++) {
        const void *field = (const char *)rope + numbers[n].field;
        const double value =
            numbers[n].whole ? (double)*(const uint32_t *)field : (double)*(const float *)field;
        if (numbers[n].kinds & 1U << rope->scaling &&
            !(value >= numbers[n].min && value <= numbers[n].max))
            return err_set(err, ERR_INTERNAL, "module buffer %u: %s %g: allowed are %g ... %g", i,
                           numbers[n].name, value, numbers[n].min, numbers[n].max);
    }
    return ERR_OK;
}

/* Parts share out the last dim of floating-point numbers. */
static bool parts_fit(const struct buffer_values *values, const struct buffer *buffer)
{
    uint64_t width = 0;
    for (uint32_t i = 0; i < values->parts; i++)
        width += values->widths[i];
    return buffer->shape.rank && width == buffer->shape.dim[buffer->shape.rank - 1] &&
           (buffer->dtype == DTYPE_FP32 || buffer->dtype == DTYPE_BF16 ||
            buffer->dtype == DTYPE_FP16);
}

static enum err_code check_module_buffer(const struct plan *plan, uint32_t i, struct err *err)
{
    const struct plan_module_buffer *row = &plan->module_buffers[i];
    if (row->buffer >= plan->buffer_count)
        return err_set(err, ERR_INTERNAL, "module buffer %u: buffer %u: allowed are 0 ... %u", i,
                       row->buffer, plan->buffer_count - 1);
    const struct buffer *buffer = &plan->buffers[row->buffer];
    if (row->values.kind >= VALUES_COUNT)
        return err_set(err, ERR_INTERNAL, "module buffer %u: kind %u: allowed are 0 ... %d", i,
                       row->values.kind, VALUES_COUNT - 1);
    if (row->values.kind == VALUES_RANGE && buffer->dtype != DTYPE_INT64)
        return err_set(err, ERR_INTERNAL, "module buffer %u: a range is int64", i);
    if (row->values.kind == VALUES_NUMBER && buffer->dtype != DTYPE_FP32 &&
        buffer->dtype != DTYPE_BF16 && buffer->dtype != DTYPE_FP16 && buffer->dtype != DTYPE_INT64)
        return err_set(err, ERR_INTERNAL, "module buffer %u: a number is fp32, bf16, fp16 or int64",
                       i);
    const uint32_t rank = buffer->shape.rank;
    if (row->values.kind == VALUES_WINDOW &&
        (buffer->dtype != DTYPE_BOOL || rank < 2 || !(row->values.number >= 0) ||
         buffer->shape.dim[rank - 1] != buffer->shape.dim[rank - 2]))
        return err_set(err, ERR_INTERNAL, "module buffer %u: a window is of bools, and square", i);
    if (row->values.kind == VALUES_PARTS &&
        (row->values.parts > VALUES_PARTS_MOST || !parts_fit(&row->values, buffer)))
        return err_set(err, ERR_INTERNAL,
                       "module buffer %u: parts are of fp32, bf16 or fp16, and as wide as a row",
                       i);
    return row->values.kind == VALUES_ROPE ? check_rope(&row->values, buffer, i, err) : ERR_OK;
}

enum err_code verify_values(const struct plan *plan, struct err *err)
{
    for (uint32_t p = 0; p < plan->param_count; p++)
        TRY(check_init(plan, p, err));
    for (uint32_t i = 0; i < plan->input_count; i++)
        TRY(check_input(plan, i, err));
    for (uint32_t i = 0; i < plan->module_buffer_count; i++)
        TRY(check_module_buffer(plan, i, err));
    return ERR_OK;
}
