/* layout.c - see layout.h. */
#include "base/layout.h"

#include <string.h>

const struct strides layout_unknown = {{UINT64_MAX}};

struct strides layout_of_rows(const struct shape *shape, uint32_t pitch)
{
    struct strides out = {{0}};
    const uint64_t row = shape_row(shape, pitch);
    uint64_t inside = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        out.of[i] = pitch && row && inside >= row ? inside / row * pitch : inside;
        inside *= shape->dim[i];
    }
    return out;
}

struct strides layout_of(const struct shape *shape, uint32_t pitch, const struct strides *layout)
{
    return layout ? *layout : layout_of_rows(shape, pitch);
}

bool layout_same(const struct shape *shape, const struct strides *x, const struct strides *y)
{
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dim[i] != 1 && x->of[i] != y->of[i])
            return false;
    return true;
}

bool layout_view(const struct shape *from, const struct strides *layout, const struct shape *to,
                 struct strides *out)
{
    uint64_t run = 1, seen = 1, step = from->rank ? layout->of[from->rank - 1] : 1;
    uint32_t next = to->rank; /* dims from here on are done */
    *out = (struct strides){{0}};
    for (uint32_t i = from->rank; i-- > 0;) {
        run *= from->dim[i];
        /* a run of dims ends where the next one out is not just behind it */
        if (i > 0 && (from->dim[i - 1] == 1 || layout->of[i - 1] == run * step))
            continue;
        while (next > 0 && (seen < run || to->dim[next - 1] == 1)) {
            next--;
            out->of[next] = seen * step;
            seen *= to->dim[next];
        }
        if (seen != run)
            return false;
        if (i > 0)
            step = layout->of[i - 1];
        run = seen = 1;
    }
    return next == 0 || shape_elements(to) == 1;
}

bool layout_expand(const struct shape *from, const struct strides *layout, const struct shape *to,
                   struct strides *out)
{
    *out = (struct strides){{0}};
    for (uint32_t i = 1; i <= from->rank; i++) { /* i-th dim from the right */
        const uint32_t dim = from->dim[from->rank - i];
        if (dim == 1)
            continue;
        if (i > to->rank || to->dim[to->rank - i] != dim)
            return false;
        out->of[to->rank - i] = layout->of[from->rank - i];
    }
    return true;
}

struct strides layout_align(const struct shape *from, const struct strides *layout,
                            const struct shape *to)
{
    struct strides out = {{0}};
    for (uint32_t i = 1; i <= from->rank && i <= to->rank; i++)
        if (from->dim[from->rank - i] > 1 && to->dim[to->rank - i] == from->dim[from->rank - i])
            out.of[to->rank - i] = layout->of[from->rank - i];
    return out;
}

/* Whether dim `a` is to be inside of dim `b`: below 0 yes, above no, 0 nobody says. */
static int inside_of(const struct shape *shape, uint32_t count, const struct strides *others,
                     uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t of_a = others[i].of[a], of_b = others[i].of[b];
        if (of_a == 0 || of_b == 0)
            continue;
        if (of_a != of_b)
            return of_a < of_b ? -1 : 1;
        if (shape->dim[a] > shape->dim[b])
            return 1;
    }
    return 0;
}

struct strides layout_like(const struct shape *shape, uint32_t count, const struct strides *others)
{
    uint32_t order[SHAPE_DIMS] = {0}; /* innermost first */
    struct strides out = {{0}};
    for (uint32_t i = 0; i < shape->rank; i++)
        order[i] = shape->rank - 1 - i;
    for (uint32_t i = 1; i < shape->rank; i++) {
        uint32_t at = i;
        for (uint32_t below = i; below-- > 0;) {
            const int says = inside_of(shape, count, others, order[below], order[at]);
            if (says < 0)
                break;
            if (says == 0)
                continue;
            const uint32_t moved = order[below];
            order[below] = order[at];
            order[at] = moved;
            at = below;
        }
    }
    uint64_t inside = 1;
    for (uint32_t i = 0; i < shape->rank; i++) {
        out.of[order[i]] = inside;
        inside *= shape->dim[order[i]];
    }
    return out;
}

/* Of a step through memory of `step` elements, repeated `times` times: along which dim of x it
 * goes. The innermost one that it fits into. */
static uint32_t dim_of_step(const struct shape *x, const struct strides *layout, uint64_t step)
{
    uint32_t best = SHAPE_DIMS;
    for (uint32_t i = 0; i < x->rank; i++) {
        const uint64_t own = layout->of[i];
        if (x->dim[i] == 1 || own == 0 || step % own != 0 || step / own >= x->dim[i])
            continue;
        if (best == SHAPE_DIMS || own > layout->of[best])
            best = i;
    }
    return best;
}

/* Of what is read `times` times from the same place: the one dim of x that is repeated so. */
static uint32_t repeated_dim(const struct shape *x, const struct strides *layout, uint64_t times)
{
    uint32_t found = SHAPE_DIMS;
    for (uint32_t i = 0; i < x->rank; i++) {
        if (x->dim[i] != times || layout->of[i] != 0)
            continue;
        if (found != SHAPE_DIMS)
            return SHAPE_DIMS;
        found = i;
    }
    return found;
}

bool layout_follow(const struct shape *x, const struct strides *x_layout,
                   const struct strides *moved, const struct shape *y,
                   const struct strides *y_layout, struct strides *out)
{
    *out = (struct strides){{0}};
    for (uint32_t i = 0; i < y->rank; i++) {
        if (y->dim[i] == 1)
            continue;
        uint64_t step = y_layout->of[i], left = y->dim[i];
        uint32_t at = step ? dim_of_step(x, x_layout, step) : repeated_dim(x, x_layout, left);
        if (at == SHAPE_DIMS)
            return false;
        if (step == 0) {
            out->of[i] = moved->of[at];
            continue;
        }
        const uint64_t first = step / x_layout->of[at] * moved->of[at];
        out->of[i] = first;
        /* where it goes on over the next dims of x, the tensor must do so, too */
        for (uint64_t done = 1; left > 1;) {
            const uint64_t jump = step / x_layout->of[at], inside = x->dim[at] / jump;
            if (moved->of[at] * jump != first * done)
                return false;
            if (left <= inside)
                break;
            if (x->dim[at] % jump != 0 || left % inside != 0)
                return false;
            left /= inside;
            done *= inside;
            step *= inside;
            at = dim_of_step(x, x_layout, step);
            if (at == SHAPE_DIMS)
                return false;
        }
    }
    return true;
}

bool layout_reach(const struct shape *shape, const struct strides *layout, uint64_t *elements)
{
    uint64_t last = 0, way;
    *elements = 0;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dim[i] == 0)
            return true;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(layout->of[i], (uint64_t)shape->dim[i] - 1, &way) ||
            __builtin_add_overflow(last, way, &last))
            return false;
    return !__builtin_add_overflow(last, UINT64_C(1), elements);
}

bool operand_reach(const struct operand *operand, uint64_t *elements)
{
    return operand->layout ? layout_reach(&operand->shape, operand->layout, elements)
                           : shape_reach(&operand->shape, operand->pitch, elements);
}
