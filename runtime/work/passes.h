/* passes.h - work as passes over views: what a backend has to compute that goes through operands of
 * any layout (view.h) by a few kernels rather than by one for each kind of work.
 *
 * Slices, joins, repetitions and changes of order are copies between cut views; sums, means and
 * truths of everything are one reduction; looking up rows and elements is one kernel. So a pass is
 * one of PASS_MAP ... PASS_SORT, and what is said of it below is all that its kernel has to do.
 * Nothing is computed here: work_passes says the same for a backend that asks what it would have to
 * do as for one that does it. */
#ifndef SHARDPLAN_PASSES_H
#define SHARDPLAN_PASSES_H

#include "runtime/work/view.h"

enum pass_form {
    PASS_MAP,    /* view 0 = the function `kind` of the others, element by element: CAST copies */
    PASS_REDUCE, /* view 0 = SUM, MEAN, MAXIMUM, ALL or ANY of view 1, over `inner`'s dims */
    PASS_ROWS,   /* rows `length` long with steps of their own: softmax, and so on, TOPK */
    PASS_TAKE,   /* view 0 = view 1 at its place and the index of view 2 */
    PASS_PUT,    /* rows: view 0 at its place and the index of view 1 = view 2, or p without it */
    PASS_ADD,   /* row by row of view 0: view 1's, and those of view 2 with its number, by view 3 */
    PASS_COUNT, /* view 0 = how many of view 1 are 0, 1, ... */
    PASS_INVERT, /* view 0 at the index of view 1 = the place of that */
    PASS_SORT    /* views 0, 1 = view 2 in order, where it was */
};

/* Of PASS_SORT, so that its lists fit into a backend's scratch memory. */
enum { PASS_SORT_MOST = 1 << 19 };

struct pass {
    enum pass_form form;
    enum work_kind kind;
    float p;        /* attr.p */
    bool imaginary; /* of POLAR: this part */
    uint32_t views; /* those at the end that are not there have data NULL and no elements */
    struct view view[WALK_VIEWS];
    struct walk walk;  /* over view 0, or where its rows begin; COUNT, INVERT: of view 1 */
    struct walk inner; /* REDUCE: terms of view 1; ADD: elements of a row; COUNT: of view 0 */
    uint64_t length;   /* of rows; ADD: how many of them; TOPK: of view 2's */
    uint64_t step[WALK_VIEWS]; /* from one element of a row to the next; ADD: from row to row */
    uint64_t index_step;       /* through memory, of an index that is 1 more */
    uint64_t bound;            /* indices are below it */
    uint64_t pads;             /* ADD: the index that counts for nothing; UINT64_MAX: none */
    uint64_t most;             /* TOPK */
};

/* Calls take(context, pass) for each in order, which may be NULL. False: the operands' layouts do
 * not go together, or no passes compute such work. */
bool work_passes(const struct work *work, void (*take)(void *context, const struct pass *pass),
                 void *context);

/* Whether that is how such work is computed at all. */
bool work_has_passes(enum work_kind kind);

#endif
