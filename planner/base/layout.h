/* layout.h - where the elements of a tensor are: the arithmetic of views.
 *
 * An operand that lies one row after the other says so by its shape and pitch. Any other order, as
 * that of a transposed or an expanded view, is said by strides: elements between neighbours of each
 * dim, 0 where one element is read again and again. A dim of size 1 may have any.
 *
 * The rules are PyTorch's: computeStride (ATen/TensorUtils.cpp) for views, TensorIterator
 * (ATen/TensorIterator.cpp, reorder_dimensions) for the order in which a new tensor is born. */
#ifndef SHARDPLAN_LAYOUT_H
#define SHARDPLAN_LAYOUT_H

#include "base/kernel.h"

/* The strides of a view of which nothing is known but its shape: nobody can compute with it. */
extern const struct strides layout_unknown;

static inline bool layout_is_unknown(const struct strides *layout)
{
    return layout && layout->of[0] == UINT64_MAX;
}

/* Strides of rows that lie one after the other, `pitch` elements apart (0: without a gap). */
struct strides layout_of_rows(const struct shape *shape, uint32_t pitch);

/* Those, or what `layout` says where it is not NULL. */
struct strides layout_of(const struct shape *shape, uint32_t pitch, const struct strides *layout);

/* Whether two mean the same places. */
bool layout_same(const struct shape *shape, const struct strides *x, const struct strides *y);

/* The same elements in another shape of as many; false: no strides say that. */
bool layout_view(const struct shape *from, const struct strides *layout, const struct shape *to,
                 struct strides *out);

/* `from` stretched to `to`: dims aligned at the last, those of size 1 repeated. False: they do not
 * fit. */
bool layout_expand(const struct shape *from, const struct strides *layout, const struct shape *to,
                   struct strides *out);

/* What an operand says of the order of `to`'s dims: its own strides, dims aligned at the last; 0
 * where either has 1 or another number. */
struct strides layout_align(const struct shape *from, const struct strides *layout,
                            const struct shape *to);

/* A new tensor without gaps whose dims are in the order of memory of `count` others, each aligned
 * to its shape: of each two dims, the first operand that has both of them decides. */
struct strides layout_like(const struct shape *shape, uint32_t count, const struct strides *others);

/* Two views of the same elements, x and y; and a tensor in the shape of x, elsewhere in memory,
 * whose strides are `moved`. The strides of it seen as y; false: no strides say that. */
bool layout_follow(const struct shape *x, const struct strides *x_layout,
                   const struct strides *moved, const struct shape *y,
                   const struct strides *y_layout, struct strides *out);

/* How many elements of memory it takes, from its first to behind its last. False: more than any
 * number holds. */
bool layout_reach(const struct shape *shape, const struct strides *layout, uint64_t *elements);

/* shape_reach of an operand, however it lies. */
bool operand_reach(const struct operand *operand, uint64_t *elements);

#endif
