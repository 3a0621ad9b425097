/* view.c - see view.h. */
#include "runtime/work/view.h"

#include "base/layout.h"
#include "runtime/work/operand.h"

#include <assert.h>

struct view view_of(const struct work_operand *x)
{
    return (struct view){
        .data = x->data,
        .shape = x->shape,
        .at = layout_of(&x->shape, x->pitch, x->layout),
        .dtype = x->dtype,
    };
}

/* The address of an operand that is only checked may be any number. */
static void *behind(const struct view *x, uint64_t elements)
{
    return (void *)((uintptr_t)x->data + elements * dtype_bytes((enum dtype)x->dtype));
}

struct view view_cut(const struct view *x, uint64_t first, uint64_t count, uint64_t step)
{
    struct view cut = *x;
    assert(x->shape.rank > 0);
    uint64_t *const last = &cut.at.of[x->shape.rank - 1];
    cut.data = behind(x, first * *last);
    cut.shape.dim[x->shape.rank - 1] = (uint32_t)count;
    *last *= step;
    return cut;
}

struct view view_rows(const struct view *x)
{
    struct view rows = *x;
    rows.shape.rank -= rows.shape.rank > 0;
    return rows;
}

bool view_as(const struct view *x, const struct shape *shape, struct view *out)
{
    struct view seen = *x; /* `out` may be x */
    seen.shape = *shape;
    if (shape_elements(&x->shape) != shape_elements(shape)) {
        if (!layout_expand(&x->shape, &x->at, shape, &seen.at))
            return false;
    } else if (shape_elements(shape) == 0) { /* nothing is anywhere */
        seen.at = layout_of_rows(shape, 0);
    } else if (!layout_view(&x->shape, &x->at, shape, &seen.at)) {
        return false;
    }
    *out = seen;
    return true;
}

struct view view_part(const struct view *x, bool imaginary)
{
    struct view part = *x;
    assert(x->dtype == DTYPE_COMPLEX64);
    part.dtype = DTYPE_FP32;
    for (uint32_t i = 0; i < x->shape.rank; i++)
        part.at.of[i] *= 2;
    part.data = behind(&part, imaginary ? 1 : 0);
    return part;
}

/* ---- several ---- */

/* Whether all views go on along the outer dim as they do along the dim that is inside of it. */
static bool goes_on(const struct walk *walk, uint32_t views, const uint64_t *outer_step,
                    uint32_t inside, uint32_t size)
{
    if ((uint64_t)walk->dim[inside] * size > UINT32_MAX)
        return false;
    for (uint32_t i = 0; i < views; i++)
        if (outer_step[i] != walk->dim[inside] * walk->step[i][inside])
            return false;
    return true;
}

/* Dims of more than one element, innermost first: those of the shape, or, with `by`, in the order
 * of that view's memory. */
static uint32_t order_dims(const struct shape *shape, const struct view *by,
                           uint32_t order[SHAPE_DIMS])
{
    uint32_t count = 0;
    for (uint32_t d = shape->rank; d-- > 0;) {
        uint32_t at = count;
        if (shape->dim[d] == 1)
            continue;
        for (; by && at > 0 && by->at.of[order[at - 1]] > by->at.of[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
        count++;
    }
    return count;
}

/* Dims from the innermost on: `walk` has them in the reverse order until it is whole. */
static bool add_dims(const struct shape *shape, bool in_order, uint32_t count,
                     const struct view *views, struct walk *walk)
{
    uint32_t order[SHAPE_DIMS];
    const uint32_t dims = order_dims(shape, in_order ? NULL : &views[0], order);
    for (uint32_t k = 0; k < dims; k++) {
        const uint32_t d = order[k];
        uint64_t step[WALK_VIEWS];
        for (uint32_t i = 0; i < count; i++)
            step[i] = views[i].at.of[d];
        if (walk->rank > 0 && goes_on(walk, count, step, walk->rank - 1, shape->dim[d])) {
            walk->dim[walk->rank - 1] *= shape->dim[d];
            continue;
        }
        if (walk->rank == WALK_DIMS)
            return false;
        for (uint32_t i = 0; i < count; i++)
            walk->step[i][walk->rank] = step[i];
        walk->dim[walk->rank++] = shape->dim[d];
    }
    return true;
}

static void turn_round(struct walk *walk, uint32_t count)
{
    for (uint32_t a = 0, b = walk->rank; a + 1 < b--; a++) {
        const uint32_t dim = walk->dim[a];
        walk->dim[a] = walk->dim[b];
        walk->dim[b] = dim;
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t step = walk->step[i][a];
            walk->step[i][a] = walk->step[i][b];
            walk->step[i][b] = step;
        }
    }
}

static bool walk_in_shape(const struct shape *shape, bool in_order, uint32_t count,
                          const struct view *views, struct walk *out)
{
    struct view seen[WALK_VIEWS];
    *out = (struct walk){.count = shape_elements(shape)};
    for (uint32_t i = 0; i < count; i++)
        if (!view_as(&views[i], shape, &seen[i]))
            return false;
    if (!add_dims(shape, in_order, count, seen, out))
        return false;
    turn_round(out, count);
    return true;
}

static bool find_walk(bool in_order, uint32_t count, const struct view *views, struct walk *out)
{
    const uint64_t elements = shape_elements(&views[0].shape);
    assert(count > 0 && count <= WALK_VIEWS);
    for (uint32_t i = 0; i < count; i++)
        if (shape_elements(&views[i].shape) == elements &&
            walk_in_shape(&views[i].shape, in_order, count, views, out))
            return true;
    return false;
}

bool walk_over(uint32_t count, const struct view *views, struct walk *out)
{
    return find_walk(false, count, views, out);
}

bool walk_in_order(uint32_t count, const struct view *views, struct walk *out)
{
    return find_walk(true, count, views, out);
}
