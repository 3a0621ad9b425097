/* kernel.c - see kernel.h. */
#include "base/kernel.h"

#include "base/names.h"

struct shape shape_column(uint64_t elements)
{
    uint64_t row = elements / UINT32_MAX + (elements % UINT32_MAX != 0);
    while (row > 1 && elements % row != 0)
        row++;
    return row > 1 ? SHAPE((uint32_t)(elements / row), (uint32_t)row)
                   : SHAPE((uint32_t)elements, 1);
}

uint64_t shape_row(const struct shape *shape, uint32_t pitch)
{
    const uint32_t *dim = shape->dim;
    if (!pitch)
        return shape_elements(shape);
    if (shape->rank == 4 && (uint64_t)dim[2] * dim[3] <= pitch)
        return (uint64_t)dim[2] * dim[3];
    return shape->rank ? dim[shape->rank - 1] : 1;
}

bool shape_reach(const struct shape *shape, uint32_t pitch, uint64_t *elements)
{
    uint64_t all = 1;
    *elements = 0;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dim[i] == 0)
            return true; /* nothing is at no place */
    for (uint32_t i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(all, shape->dim[i], &all))
            return false;
    const uint64_t row = shape_row(shape, pitch);
    return !__builtin_mul_overflow(all / row - 1, (uint64_t)pitch, elements) &&
           !__builtin_add_overflow(*elements, row, elements);
}

ENUM_NAME(category_name, enum category, CATEGORY_MAP)
