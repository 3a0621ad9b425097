/* operand_parts.c - see operand_parts.h. */
#include "compile/operand_parts.h"

#include "base/layout.h"

#include <stddef.h>

uint64_t part_row(const struct operand *operand)
{
    const struct shape *shape = &operand->shape;
    const struct strides *layout = operand->layout;
    if (shape->rank == 5)
        return (uint64_t)shape->dim[3] * shape->dim[4];
    const bool last = shape->rank == 4 && layout && !layout_is_unknown(layout) &&
                      layout->of[2] == operand->pitch && layout->of[3] == 1;
    return last ? shape->dim[3] : shape_row(shape, operand->pitch);
}

bool part_whole(const struct operand *operand, uint64_t row, struct shape *out)
{
    const struct shape *shape = &operand->shape;
    *out = *shape;
    if (shape->rank > 0 && row == shape->dim[shape->rank - 1]) {
        out->dim[out->rank - 1] = operand->pitch;
        return true;
    }
    if (shape->rank < 4 ||
        row != (uint64_t)shape->dim[shape->rank - 2] * shape->dim[shape->rank - 1])
        return false;
    out->dim[--out->rank - 1] = operand->pitch;
    return true;
}

bool part_heads(const struct operand *operand, struct operand *part, uint32_t *width)
{
    const struct shape *s = &operand->shape;
    const struct strides *layout = operand->layout;
    if (s->rank != 4 || !layout || layout_is_unknown(layout) || layout->of[3] != 1 ||
        layout->of[1] == 0 || layout->of[1] >= layout->of[2] ||
        (operand->pitch != layout->of[1] && operand->pitch != layout->of[2]))
        return false;
    *width = (uint32_t)layout->of[1];
    *part = *operand;
    part->pitch = (uint32_t)layout->of[2];
    part->layout = NULL;
    part->offset -= operand->offset % *width;
    part->shape = SHAPE(s->dim[0], s->dim[2], s->dim[1] * *width);
    return true;
}

uint32_t part_step(const struct operand *operand)
{
    const struct strides *layout = operand->layout;
    const struct shape *s = &operand->shape;
    if (!layout || layout_is_unknown(layout) || s->rank < 2)
        return 1;
    const uint64_t own = (uint64_t)layout->of[s->rank - 1];
    if (s->rank == 2 && own >= layout->of[0]) /* columns one after the other */
        return 1;
    uint64_t inner = 1;
    for (uint32_t d = 0; d + 1 < s->rank; d++)
        if (layout->of[d] > 0 && (uint64_t)layout->of[d] < own)
            inner *= s->dim[d];
    return (uint32_t)(own % inner == 0 ? own / inner : own);
}

uint32_t part_pitch(const struct operand *operand, uint64_t all)
{
    const struct strides *layout = operand->layout;
    const struct shape *s = &operand->shape;
    if (!layout || layout_is_unknown(layout) || s->rank < 2 || layout->of[s->rank - 1] != 1)
        return 0;
    const bool heads = s->rank == 5 && layout->of[3] == s->dim[4]; /* all that row_of has of them */
    const uint64_t pitch = layout->of[s->rank - (heads ? 3 : 2)];
    const uint64_t row = heads ? (uint64_t)s->dim[3] * s->dim[4] : s->dim[s->rank - 1];
    return pitch > row && shape_elements(s) / row * pitch == all ? (uint32_t)pitch : 0;
}

bool part_is_one_sequence(const struct operand *operand, struct operand *heads,
                          struct strides *strides)
{
    const struct strides *layout = operand->layout;
    const struct shape *s = &operand->shape;
    if (s->rank != 3 || !layout || layout_is_unknown(layout))
        return false;
    const uint32_t row = layout->of[1] == 1 ? 2 : 1, own = 3 - row;
    if (layout->of[own] != 1 || layout->of[0] < s->dim[own] || layout->of[0] >= layout->of[row] ||
        (uint64_t)s->dim[0] * s->dim[own] >= layout->of[row])
        return false;
    *strides = (struct strides){{s->dim[row] * layout->of[row], layout->of[0], layout->of[row], 1}};
    *heads = *operand;
    heads->shape = SHAPE(1, s->dim[0], s->dim[row], s->dim[own]);
    heads->pitch = (uint32_t)layout->of[row];
    heads->layout = strides;
    return true;
}

bool part_is_one_head(const struct operand *operand, struct operand *one)
{
    const struct strides *layout = operand->layout;
    *one = *operand;
    if (operand->shape.rank != 4 || !layout || layout_is_unknown(layout) || !operand->pitch ||
        operand->shape.dim[2] == 1 || layout->of[2] != 0)
        return false;
    one->shape.dim[2] = 1;
    const struct strides rows = layout_of_rows(&one->shape, one->pitch);
    one->layout = NULL;
    return layout_same(&one->shape, layout, &rows);
}
