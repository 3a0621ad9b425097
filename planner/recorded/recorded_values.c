/* recorded_values.c - dtypes and shapes as a recording writes them; see recording_parts.h. */
#include "recorded/recording_parts.h"

#include <string.h>

bool recorded_dtype(const char *name, enum dtype *out)
{
    for (enum dtype dtype = 0; name && dtype < DTYPE_COUNT; dtype++)
        if (strcmp(name, dtype_brief(dtype)) == 0 || strcmp(name, dtype_name(dtype)) == 0) {
            *out = dtype;
            return true;
        }
    return false;
}

bool recorded_shape(const json_t *sizes, struct shape *out)
{
    const size_t rank = json_array_size(sizes);
    const size_t joined = rank > SHAPE_DIMS ? rank - SHAPE_DIMS : 0;
    *out = (struct shape){.rank = (uint32_t)(rank - joined)};
    uint64_t outer = 1;
    if (!json_is_array(sizes))
        return false;
    for (size_t i = 0; i < rank; i++) {
        const json_t *size = json_array_get(sizes, i);
        const json_int_t dim = json_integer_value(size);
        if (!json_is_integer(size) || dim < 0 || dim > UINT32_MAX)
            return false;
        outer *= (uint64_t)dim;
        if (outer > UINT32_MAX)
            return false;
        if (i >= joined) {
            out->dim[i - joined] = (uint32_t)outer;
            outer = 1;
        }
    }
    return true;
}
