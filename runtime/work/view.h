/* view.h - where the elements of operands are, and how several of them are gone through together.
 *
 * A view is an operand's elements in the order of a shape, each dim with a step through memory. It
 * can be cut, turned into another shape of as many elements, and stretched. A walk is a list of
 * dims with the steps of several views along each: dims along which all of them go on as they do
 * along the next one are one dim, and dims of size 1 are none, so that whatever lies without gaps
 * is one dim. A backend that computes over walks needs no kernel of its own for slices, joins,
 * repetitions and changes of order. */
#ifndef SHARDPLAN_VIEW_H
#define SHARDPLAN_VIEW_H

#include "runtime/work/work.h"

#include <stdbool.h>
#include <stdint.h>

struct view {
    void *data; /* of its first element */
    struct shape shape;
    struct strides at; /* steps in elements */
    uint8_t dtype;     /* enum dtype */
};

struct view view_of(const struct work_operand *x);

/* Elements first, first + step, ... of the last dim, `count` of them. */
struct view view_cut(const struct view *x, uint64_t first, uint64_t count, uint64_t step);

/* Of each row of the last dim the first element: without that dim. A number is a row. */
struct view view_rows(const struct view *x);

/* In `shape`, which has as many elements, or to which it is stretched: dims aligned at the last,
 * those of size 1 repeated. `out` may be x. False: no steps say that. */
bool view_as(const struct view *x, const struct shape *shape, struct view *out);

/* complex64 as pairs of fp32: the real parts, or the imaginary ones. */
struct view view_part(const struct view *x, bool imaginary);

/* ---- several ---- */

enum { WALK_VIEWS = 5, WALK_DIMS = 5 };

struct walk {
    uint64_t count; /* of elements: the product of dims */
    uint32_t rank;
    uint32_t dim[WALK_DIMS]; /* outermost first */
    uint64_t step[WALK_VIEWS][WALK_DIMS];
};

/* Over the elements of the first view, its innermost ones first: which go with which is said by the
 * order of its shape, to which the others are turned or stretched; or, where no steps say that, it
 * to one of theirs that has as many elements. False: they do not fit together, or need more dims.
 */
bool walk_over(uint32_t count, const struct view *views, struct walk *out);

/* The same with the last dim of the first view's shape innermost, and so on: element i of the walk
 * is element i of its list. */
bool walk_in_order(uint32_t count, const struct view *views, struct walk *out);

#endif
