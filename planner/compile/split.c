/* split.c - which reductions run in two kernels: partial results first (program.h).
 *
 * torch/_inductor/ir.py, Reduction.num_splits, and choices.py, reduction_split_factor, of
 * PyTorch 2.14. They ask how many multiprocessors there are: an H100's are taken. Of another GPU's
 * partial results there are other numbers, but a reduction that is split here is there, too. */
#include "base/arena.h"
#include "compile/program_parts.h"

#include <stdlib.h>

enum {
    MULTIPROCESSORS = 132,
    THREADS_PER_MULTIPROCESSOR = 2048,
    THREADS = 256, /* of a block: 8 warps */
    LEAST_PER_THREAD = 32,
    MOST_PER_THREAD = 512,
    UNSPLIT_INNER = 8192, /* compute capability 9; 32768 and more from 10 on */
    WIDTH = 128,          /* columns of a block */
    ROWS_PER_THREAD = 4,
};

static uint64_t divided_up(uint64_t x, uint64_t by)
{
    return (x + by - 1) / by;
}

/* The divisor of n next to x (> 0), if it is less than `apart` away: even splits are preferred. */
static uint64_t near_divisor(uint64_t n, uint64_t x, uint64_t apart)
{
    for (uint64_t d = 0; d < apart; d++) {
        const uint64_t below = x > d ? x - d : 1, above = below + 2 * d;
        if (x > d && n % below == 0)
            return below;
        if (x > d && n % above == 0)
            return above;
    }
    return 0;
}

static uint64_t at_least(uint64_t x, uint64_t least)
{
    return x > least ? x : least;
}

/* How many elements a thread takes of n, of `all` of the reduction, where `blocks` are wanted that
 * take `step` at once. */
static uint64_t size_of_split(uint64_t n, uint64_t all, uint64_t blocks, uint64_t step,
                              uint64_t apart)
{
    const uint64_t device = (uint64_t)MULTIPROCESSORS * THREADS_PER_MULTIPROCESSOR;
    if (all < LEAST_PER_THREAD * device)
        return LEAST_PER_THREAD;
    if (all >= MOST_PER_THREAD * device) {
        const uint64_t even = near_divisor(n, MOST_PER_THREAD, 50);
        return even ? even : MOST_PER_THREAD;
    }
    const uint64_t size = divided_up(n, step * blocks), even = near_divisor(n, size, apart);
    return even ? at_least(even, LEAST_PER_THREAD) : size;
}

/* Elements that lie one after the other. */
static uint64_t parts_of_rows(uint64_t n, uint64_t kept)
{
    const uint64_t target = MULTIPROCESSORS * THREADS_PER_MULTIPROCESSOR / (2 * THREADS);
    if (kept >= 2 * MULTIPROCESSORS || n <= UNSPLIT_INNER)
        return 1;
    const uint64_t size = size_of_split(n, n * kept, divided_up(target, kept), THREADS, 30);
    return divided_up(n, size * THREADS);
}

static uint64_t parts_of_columns(uint64_t n, uint64_t kept)
{
    const uint64_t target = MULTIPROCESSORS * THREADS_PER_MULTIPROCESSOR / THREADS;
    const uint64_t blocks = divided_up(target, divided_up(kept, WIDTH));
    if (n <= LEAST_PER_THREAD || kept >= (uint64_t)MULTIPROCESSORS * 2 * 32)
        return 1;
    const uint64_t size = size_of_split(n, n * kept, blocks, ROWS_PER_THREAD, 20);
    return divided_up(n, size * ROWS_PER_THREAD);
}

/* ---- as what it reads was reduced ---- */

struct search { /* of sources, as deep as functions are that are computed where they are used */
    bool *seen; /* (nodes) */
    uint32_t *stack; /* (nodes) */
};

/* What is in memory of what a node is made of, and made here. */
static void find_sources(const struct building *b, const struct search *s, uint32_t node,
                         struct list *out)
{
    uint32_t count = 0;
    s->stack[count++] = node;
    while (count) {
        const struct joint_node *n = joint_at(b->joint, s->stack[--count]);
        for (uint32_t a = 0; a < n->args; a++) {
            const uint32_t found = found_at(b, n->arg[a]);
            if (b->there[found] || s->seen[found])
                continue;
            s->seen[found] = true;
            if (b->realized[found])
                list_add_once(out, found);
            else
                s->stack[count++] = found;
        }
    }
}

/* "extract_input_node_reduction_ranges": a reduction of all elements of what was made of reductions
 * over its rows takes those rows for its parts. 0: there are none, or not alike. */
static uint64_t rows_of_sources(const struct building *b, uint32_t node)
{
    const uint64_t all = span_of(b->joint, node).all;
    struct list level = {0};
    uint64_t kept = 0, seen = 0;
    bool alike = true;
    const uint32_t nodes = joint_count(b->joint);
    const struct search search = {xcalloc(nodes + 1, sizeof *search.seen),
                                  xmalloc((nodes + 1) * sizeof *search.stack)};
    find_sources(b, &search, node, &level);
    while (level.count && !seen) {
        struct list next = {0};
        for (uint32_t i = 0; i < level.count; i++) {
            const struct span span = span_of(b->joint, level.of[i]);
            if (is_reduction(b->joint, level.of[i])) {
                alike &= !seen || (span.kept == kept && span.all == seen);
                kept = span.kept;
                seen = span.all;
            } else if (span.kind != SPAN_CALL) {
                find_sources(b, &search, level.of[i], &next);
            }
        }
        free(level.of);
        level = next;
    }
    free(level.of);
    free(search.seen);
    free(search.stack);
    return alike && seen == all ? kept : 0;
}

uint32_t parts_of(const struct building *b, uint32_t node)
{
    const struct span span = span_of(b->joint, node);
    if (!is_reduction(b->joint, node) || joint_is_many(joint_at(b->joint, node)))
        return 1;
    const uint64_t n = span.all / span.kept;
    if (span.kind == SPAN_COLUMNS)
        return (uint32_t)parts_of_columns(n, span.kept);
    const uint64_t parts = parts_of_rows(n, span.kept);
    const uint64_t rows = parts > 1 && span.kept == 1 ? rows_of_sources(b, node) : 0;
    return (uint32_t)(rows ? rows : parts);
}
