/* profiler_row.c - see profiler_row.h. */
#include "kernels/profiler_row.h"

#include "base/json_file.h"
#include <stdlib.h>
#include <string.h>

enum { OP, DIMS, TYPES, STRIDES, CONCRETE };

static enum dtype dtype_of(const char *text)
{
    static const struct {
        const char *text;
        enum dtype dtype;
    } known[] = {
        {"c10::BFloat16", DTYPE_BF16},
        {"c10::Half", DTYPE_FP16},
        {"float", DTYPE_FP32},
        {"long int", DTYPE_INT64},
        {"long", DTYPE_INT64},
        {"int", DTYPE_INT32},
        {"bool", DTYPE_BOOL},
        {"c10::complex<float>", DTYPE_COMPLEX64},
        {"unsigned long", DTYPE_UINT64},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(text, known[i].text) == 0)
            return known[i].dtype;
    return DTYPE_COUNT;
}

static enum err_code read_array(const char *where, const char *cell, json_t **out, struct err *err)
{
    json_error_t at;
    *out = *cell ? json_text_read(cell, strlen(cell), 0, &at) : json_array();
    if (!*out)
        return err_set(err, ERR_INVALID, "%s: \"%.60s\" is no JSON: %s", where, cell, at.text);
    if (json_is_array(*out))
        return ERR_OK;
    json_decref(*out);
    *out = NULL;
    return err_set(err, ERR_INVALID, "%s: \"%.60s\" is no array", where, cell);
}

/* Dims and strides of one tensor; one of more dims than a shape has is not known. */
static void add_tensor(struct profiler_row *row, const json_t *dims, const json_t *strides,
                       enum dtype dtype, uint32_t input)
{
    const size_t rank = json_array_size(dims);
    if (row->count == PROFILER_TENSORS || rank > SHAPE_DIMS || dtype == DTYPE_COUNT) {
        row->known = false;
        return;
    }
    struct aten_tensor *t = &row->tensors[row->count++];
    *t = (struct aten_tensor){.dtype = dtype, .input = input, .place = PLACE_NONE};
    uint64_t dense = 1;
    t->shape.rank = (uint32_t)rank;
    for (size_t i = rank; i-- > 0;) {
        const json_int_t dim = json_integer_value(json_array_get(dims, i));
        const json_t *stride = json_array_get(strides, i);
        if (dim < 0 || dim > UINT32_MAX)
            row->known = false;
        t->shape.dim[i] = (uint32_t)dim;
        t->strides.of[i] = stride ? (uint64_t)json_integer_value(stride) : dense;
        dense *= t->shape.dim[i];
    }
}

static void add_argument(struct profiler_row *row, const json_t *dims, const json_t *strides,
                         const char *type, uint32_t input)
{
    size_t i;
    const json_t *part;
    if (json_array_size(dims) == 0)
        return;
    if (!json_is_array(json_array_get(dims, 0))) {
        add_tensor(row, dims, strides, dtype_of(type), input);
        return;
    }
    /* A list of tensors does not say its dtype; that of 16-bit numbers is the rule. */
    json_array_foreach(dims, i, part) if (json_array_size(part) > 0)
        add_tensor(row, part, json_array_get(strides, i), DTYPE_BF16, input);
}

enum err_code profiler_row_read(const char *where, const char *const cells[5], const char *kernel,
                                struct profiler_row *out, struct err *err)
{
    json_t *dims = NULL, *types = NULL, *strides = NULL;
    const char *colons = strstr(cells[OP], "aten::");
    *out = (struct profiler_row){
        .op = colons == cells[OP] ? cells[OP] + 6 : cells[OP], .kernel = kernel, .known = true};
    enum err_code rc = read_array(where, cells[DIMS], &dims, err);
    if (rc == ERR_OK)
        rc = read_array(where, cells[TYPES], &types, err);
    if (rc == ERR_OK)
        rc = read_array(where, cells[STRIDES], &strides, err);
    if (rc == ERR_OK)
        rc = read_array(where, cells[CONCRETE], &out->concrete, err);
    for (uint32_t i = 0; rc == ERR_OK && i < json_array_size(dims); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        add_argument(out, json_array_get(dims, i), json_array_get(strides, i), type ? type : "", i);
    }
    json_decref(dims);
    json_decref(types);
    json_decref(strides);
    return rc;
}

void profiler_row_free(struct profiler_row *row)
{
    json_decref(row->concrete);
    *row = (struct profiler_row){0};
}

static const char *value_at(const void *context, uint32_t input)
{
    const struct profiler_row *row = context;
    const char *text = json_string_value(json_array_get(row->concrete, input));
    return text ? text : "";
}

struct aten_call profiler_row_call(struct profiler_row *row)
{
    return (struct aten_call){
        .op = row->op,
        .tensors = row->tensors,
        .count = row->count,
        .value = value_at,
        .context = row,
        .traced = row->kernel,
    };
}
