/* fusion.c - which functions run in one kernel (program.h).
 *
 * As Scheduler.fuse_nodes: pairs that share memory, the most of it first, as long as both run over
 * the same elements and nothing between them has to run in between. Rows of a reduction and what is
 * elementwise over them, or over their sums, run together; sums over columns run with others of
 * their kind, and with what is elementwise in as many loops as long. */
#include "base/arena.h"
#include "compile/act_graph.h"
#include "compile/program_parts.h"

#include <stdlib.h>
#include <string.h>

void draft_free(struct draft *draft)
{
    for (uint32_t i = 0; i < draft->part_count; i++) {
        free(draft->parts[i].reads.of);
        free(draft->parts[i].writes.of);
        free(draft->parts[i].moved.of);
        free(draft->parts[i].whole.of);
    }
    free(draft->parts);
    free(draft->reads.of);
    free(draft->writes.of);
    *draft = (struct draft){.gone = true};
}

/* ---- what each runs over ---- */

enum { UNROLLED = 8 }; /* torch/_inductor/config.py: unroll_reductions_threshold */

bool is_reduction(const struct joint *joint, uint32_t node)
{
    const struct joint_node *n = joint_at(joint, node);
    if (!joint_is_over_dim(n))
        return false;
    const uint64_t all = shape_elements(&joint_at(joint, n->arg[0])->shape);
    return all >= UNROLLED * shape_elements(&n->shape);
}

/* Whether elements that lie one after the other are of one column: those of a transposed matrix,
 * and what is elementwise of them. */
static bool is_turned(const struct joint *joint, uint32_t node)
{
    for (;;) {
        const struct joint_node *n = joint_at(joint, node);
        const enum joint_way way = joint_way(n);
        if (n->name == JOINT_PERMUTE && n->detail == JOINT_TRANSPOSED)
            return true;
        if (n->name == JOINT_CLONE || n->args == 0 || (way != WAY_ELEMENT && way != WAY_VIEW))
            return false;
        const bool first =
            shape_elements(&joint_at(joint, n->arg[0])->shape) == shape_elements(&n->shape);
        node = n->arg[first || n->args == 1 ? 0 : 1];
    }
}

static struct shape without_ones(struct shape shape)
{
    struct shape out = {.rank = 0};
    for (uint32_t d = 0; d < shape.rank; d++)
        if (shape.dim[d] != 1)
            out.dim[out.rank++] = shape.dim[d];
    return out;
}

struct shape loops_of_parts(uint64_t rows, uint32_t parts, uint64_t columns)
{
    return without_ones(SHAPE(parts, (uint32_t)((rows + parts - 1) / parts), (uint32_t)columns));
}

struct span span_of(const struct joint *joint, uint32_t node)
{
    const struct joint_node *n = joint_at(joint, node);
    const uint64_t kept = shape_elements(&n->shape);
    if (n->name == JOINT_CALL || n->name == JOINT_CALL_OWN || n->name == JOINT_CALL_MANY ||
        n->name == JOINT_RUNNING || n->dtype == DTYPE_COMPLEX64)
        return (struct span){.kind = SPAN_CALL};
    if (n->name == JOINT_PUT_ROWS) { /* as many as rows are added */
        const struct shape *rows = &joint_at(joint, n->arg[1])->shape;
        return (struct span){SPAN_POINTS, shape_elements(rows), 0, without_ones(*rows)};
    }
    if (!is_reduction(joint, node))
        return (struct span){SPAN_POINTS, kept, 0, without_ones(n->shape)};
    const uint64_t all = shape_elements(&joint_at(joint, n->arg[0])->shape);
    const bool last = n->shape.rank > 0 && n->shape.dim[n->shape.rank - 1] == 1;
    const bool rows = kept == 1 || last != is_turned(joint, n->arg[0]);
    return (struct span){rows ? SPAN_ROWS : SPAN_COLUMNS, all, kept,
                         without_ones(joint_at(joint, n->arg[0])->shape)};
}

/* "reorder_loops_by_dep_pair": loops change places, but neither how many nor how long they are. */
static bool same_loops(const struct shape *x, const struct shape *y)
{
    bool same = x->rank == y->rank;
    for (uint32_t d = 0; same && d < x->rank; d++)
        same = x->dim[d] == y->dim[d];
    return same;
}

/* Whether x is elementwise over what y sums down columns. */
static bool is_over_sums(struct span x, struct span y)
{
    return x.kind == SPAN_POINTS && y.kind == SPAN_COLUMNS && x.all == y.kept;
}

static bool run_together(struct span x, struct span y)
{
    if (x.kind == SPAN_CALL || y.kind == SPAN_CALL)
        return false;
    if (x.kind == y.kind)
        return x.all == y.all && x.kept == y.kept;
    if (is_over_sums(x, y) || is_over_sums(y, x))
        return true;
    if (x.kind == SPAN_COLUMNS || y.kind == SPAN_COLUMNS)
        return x.kind != SPAN_ROWS && y.kind != SPAN_ROWS && same_loops(&x.loops, &y.loops);
    const struct span rows = x.kind == SPAN_ROWS ? x : y, points = x.kind == SPAN_ROWS ? y : x;
    return points.all == rows.all || points.all == rows.kept;
}

/* ---- fusing ---- */

static uint64_t bytes_of(const struct building *b, uint32_t memory)
{
    return program_bytes(b->joint, b->program, memory);
}

static uint64_t shared_bytes(const struct building *b, const struct draft *x, const struct draft *y)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < x->reads.count; i++)
        if (list_has(&y->reads, x->reads.of[i]) || list_has(&y->writes, x->reads.of[i]))
            bytes += bytes_of(b, x->reads.of[i]);
    for (uint32_t i = 0; i < x->writes.count; i++)
        if (list_has(&y->reads, x->writes.of[i]))
            bytes += bytes_of(b, x->writes.of[i]);
    return bytes;
}

static bool is_read_elsewhere(const struct building *b, struct act_graph *graph, uint32_t memory,
                              uint32_t by)
{
    for (uint32_t i = graph->first[memory]; i < graph->first[memory + 1]; i++)
        if (act_graph_now(graph, graph->readers[i]) != by)
            return true;
    return b->program->memory[memory].kept;
}

static void drop(struct list *list, uint32_t value)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < list->count; i++)
        if (list->of[i] != value)
            list->of[left++] = list->of[i];
    list->count = left;
}

/* In the order of the graph. */
static void join_parts(struct draft *to, struct draft *from)
{
    const uint32_t count = to->part_count + from->part_count;
    struct part *parts = xcalloc(count, sizeof *parts);
    for (uint32_t i = 0, x = 0, y = 0; i < count; i++)
        parts[i] =
            y == from->part_count || (x < to->part_count && to->parts[x].rank < from->parts[y].rank)
                ? to->parts[x++]
                : from->parts[y++];
    free(to->parts);
    free(from->parts);
    to->parts = parts;
    to->part_count = count;
    from->parts = NULL;
    from->part_count = 0;
}

static void fuse(struct building *b, struct act_graph *graph, uint32_t x, uint32_t y)
{
    struct draft *to = &b->acts[x], *from = &b->acts[y];
    for (uint32_t i = 0; i < from->reads.count; i++)
        list_add_once(&to->reads, from->reads.of[i]);
    for (uint32_t i = 0; i < from->writes.count; i++)
        list_add_once(&to->writes, from->writes.of[i]);
    if (from->span.kind == SPAN_ROWS || from->span.kind == SPAN_COLUMNS ||
        (to->span.kind == SPAN_POINTS && from->span.all > to->span.all))
        to->span = from->span;
    join_parts(to, from);
    draft_free(from);
    act_graph_join(graph, x, y);
    for (uint32_t i = to->writes.count; i-- > 0;) {
        const uint32_t memory = to->writes.of[i];
        drop(&to->reads, memory);
        if (!is_read_elsewhere(b, graph, memory, x))
            drop(&to->writes, memory);
    }
}

static uint32_t apart(uint32_t x, uint32_t y)
{
    return x > y ? x - y : y - x;
}

/* How far two acts are from each other in the graph ("proximity_score"): between whose memory is
 * equal, the nearer ones are fused. */
static uint32_t distance(const struct draft *x, const struct draft *y)
{
    const uint32_t one = apart(x->parts[0].rank, y->parts[y->part_count - 1].rank);
    const uint32_t other = apart(y->parts[0].rank, x->parts[x->part_count - 1].rank);
    return one > other ? one : other;
}

/* "are_long_distant_nodes" */
enum { FAR_APART = 64 };

/* torch/_inductor/config.py, score_fusion_memory_threshold: bytes that have to be shared. */
enum { SHARED_LEAST = 10 };

/* "can_fuse_horizontal": what only reads the same. */
static bool is_worth(const struct draft *x, const struct draft *y, uint64_t shared)
{
    if (lists_meet(&x->writes, &y->reads) || lists_meet(&y->writes, &x->reads))
        return true;
    return shared >= SHARED_LEAST && distance(x, y) <= FAR_APART;
}

/* What adds to memory at places that it reads: all of it is written before and read behind. */
static bool meet_by_index(const struct building *b, const struct draft *x, const struct draft *y)
{
    for (uint32_t i = 0; i < x->writes.count; i++) {
        const uint8_t name = joint_at(b->joint, b->program->memory[x->writes.of[i]].node)->name;
        if ((name == JOINT_ZEROS || name == JOINT_PUT_ROWS || name == JOINT_PLACES) &&
            list_has(&y->reads, x->writes.of[i]))
            return true;
    }
    return false;
}

/* Memory of the program's own that this act alone reads, and that it could write over: the i-th of
 * what it reads, or JOINT_NONE. */
static uint32_t read_alone(const struct building *b, const struct act_graph *graph,
                           const struct draft *act, uint32_t i)
{
    const uint32_t memory = act->reads.of[i];
    const bool alone = graph->first[memory + 1] - graph->first[memory] == 1;
    return alone && graph->writer[memory] != JOINT_NONE && !b->program->memory[memory].kept
               ? memory
               : JOINT_NONE;
}

/* Elements of memory of as many elements and the dtype of `memory` that the act reads alone; 0. */
static uint64_t alike_elements(const struct building *b, const struct act_graph *graph,
                               const struct draft *act, uint32_t end, const struct operand *like)
{
    for (uint32_t i = 0; i < end; i++) {
        const uint32_t memory = read_alone(b, graph, act, i);
        if (memory == JOINT_NONE)
            continue;
        const struct operand own = program_operand(b->joint, b->program, memory);
        if (own.dtype == like->dtype && shape_elements(&own.shape) == shape_elements(&like->shape))
            return shape_elements(&own.shape);
    }
    return 0;
}

enum { WORTH = 32 }; /* "quite arbitrary" */

/* "can_fusion_increase_peak_memory": whether each act could write over memory that it reads alone
 * if the other ran by itself, and more of it than sharing what they read is worth. Each kind of
 * memory counts once, in elements. */
static bool takes_memory(const struct building *b, const struct act_graph *graph,
                         const struct draft *x, const struct draft *y, uint64_t shared)
{
    uint64_t over = 0;
    for (uint32_t i = 0; i < x->reads.count; i++) {
        const uint32_t memory = read_alone(b, graph, x, i);
        if (memory == JOINT_NONE)
            continue;
        const struct operand own = program_operand(b->joint, b->program, memory);
        if (!alike_elements(b, graph, x, i, &own))
            over += alike_elements(b, graph, y, y->reads.count, &own);
    }
    return over > WORTH * shared;
}

static bool may_fuse(const struct building *b, struct act_graph *graph, uint32_t x, uint32_t y,
                     uint64_t shared)
{
    return !meet_by_index(b, &b->acts[x], &b->acts[y]) &&
           !meet_by_index(b, &b->acts[y], &b->acts[x]) &&
           is_worth(&b->acts[x], &b->acts[y], shared) &&
           run_together(b->acts[x].span, b->acts[y].span) &&
           !takes_memory(b, graph, &b->acts[x], &b->acts[y], shared) &&
           !act_graph_has_between(graph, b, x, y) && !act_graph_has_between(graph, b, y, x);
}

/* Whether loops would have to change places: what is elementwise goes along rows, a sum over
 * columns down them, and so they share nothing at first ("shared_data_after_reordering_loop"). */
static bool needs_turning(const struct draft *x, const struct draft *y)
{
    return (x->span.kind == SPAN_COLUMNS) != (y->span.kind == SPAN_COLUMNS) &&
           !is_over_sums(x->span, y->span) && !is_over_sums(y->span, x->span);
}

/* "score_fusion": what goes first. */
struct pair {
    uint32_t x, y; /* x before y in building.acts */
    bool alike;    /* both reduce, or neither does */
    uint64_t shared;
    uint32_t apart;
};

static bool reduces(const struct draft *act)
{
    return act->span.kind == SPAN_ROWS || act->span.kind == SPAN_COLUMNS;
}

static int by_place(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->x != y->x)
        return x->x < y->x ? -1 : 1;
    return x->y < y->y ? -1 : 1;
}

enum { MUCH_MORE = 16 };

/* FusionScore.__lt__ (choices.py): pairs that are alike go before others, unless those share much
 * more. */
static bool is_less(const struct pair *x, const struct pair *y)
{
    const uint64_t more = x->shared > y->shared ? x->shared : y->shared;
    const uint64_t less = x->shared > y->shared ? y->shared : x->shared;
    if (more > less * MUCH_MORE)
        return x->shared < y->shared;
    if (x->alike != y->alike)
        return y->alike;
    return x->shared != y->shared ? x->shared < y->shared : x->apart > y->apart;
}

static void reverse(struct pair *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count / 2; i++) {
        const struct pair pair = pairs[i];
        pairs[i] = pairs[count - 1 - i];
        pairs[count - 1 - i] = pair;
    }
}

/* How many at the beginning are in order, once they have been turned round where they fall. */
static uint32_t first_run(struct pair *pairs, uint32_t count)
{
    uint32_t run = 2;
    if (count < 2)
        return count;
    const bool falls = is_less(&pairs[1], &pairs[0]);
    while (run < count && is_less(&pairs[run], &pairs[run - 1]) == falls)
        run++;
    if (falls)
        reverse(pairs, run);
    return run;
}

/* What is less than is no order: x may go before y, y before z and z before x. So which pair goes
 * first depends on how they are sorted, and they are as Python sorts a list backwards: by binary
 * insertion. (It merges sorted parts of lists of more than 64.) */
static void sort_pairs(struct pair *pairs, uint32_t count)
{
    if (count)
        qsort(pairs, count, sizeof *pairs, by_place);
    reverse(pairs, count);
    for (uint32_t i = first_run(pairs, count); i < count; i++) {
        const struct pair pair = pairs[i];
        uint32_t first = 0, end = i;
        while (first < end) {
            const uint32_t middle = first + (end - first) / 2;
            if (is_less(&pair, &pairs[middle]))
                end = middle;
            else
                first = middle + 1;
        }
        memmove(&pairs[first + 1], &pairs[first], (i - first) * sizeof *pairs);
        pairs[first] = pair;
    }
    reverse(pairs, count);
}

struct pairs {
    struct pair *of;
    uint32_t count, cap;
    uint32_t *tried; /* (acts) with which it was last */
};

static void try_pair(struct pairs *pairs, const struct building *b, struct act_graph *graph,
                     uint32_t x, uint32_t y, bool turning)
{
    if (y <= x || pairs->tried[y] == x)
        return;
    pairs->tried[y] = x;
    if (!turning && needs_turning(&b->acts[x], &b->acts[y]))
        return;
    const uint64_t shared = shared_bytes(b, &b->acts[x], &b->acts[y]);
    if (shared == 0 || !may_fuse(b, graph, x, y, shared))
        return;
    ARRAY_GROW(pairs->of, pairs->count, pairs->cap);
    pairs->of[pairs->count++] = (struct pair){x, y, reduces(&b->acts[x]) == reduces(&b->acts[y]),
                                              shared, distance(&b->acts[x], &b->acts[y])};
}

static void try_readers(struct pairs *pairs, const struct building *b, struct act_graph *graph,
                        uint32_t x, uint32_t memory, bool turning)
{
    for (uint32_t i = graph->first[memory]; i < graph->first[memory + 1]; i++)
        try_pair(pairs, b, graph, x, act_graph_now(graph, graph->readers[i]), turning);
}

/* "get_possible_fusions": of those that have a memory in common. The caller frees it. */
static struct pair *find_pairs(const struct building *b, struct act_graph *graph, bool turning,
                               uint32_t *count)
{
    struct pairs pairs = {.tried = xmalloc((b->act_count + 1) * sizeof *pairs.tried)};
    memset(pairs.tried, 0xff, (b->act_count + 1) * sizeof *pairs.tried);
    for (uint32_t x = 0; x < b->act_count; x++) {
        const struct draft *act = &b->acts[x]; /* one that is gone reads and writes nothing */
        for (uint32_t r = 0; r < act->reads.count; r++) {
            const uint32_t writer = graph->writer[act->reads.of[r]];
            if (writer != JOINT_NONE)
                try_pair(&pairs, b, graph, x, act_graph_now(graph, writer), turning);
            try_readers(&pairs, b, graph, x, act->reads.of[r], turning);
        }
        for (uint32_t w = 0; w < act->writes.count; w++)
            try_readers(&pairs, b, graph, x, act->writes.of[w], turning);
    }
    free(pairs.tried);
    sort_pairs(pairs.of, pairs.count);
    *count = pairs.count;
    return pairs.of;
}

/* "fuse_nodes_once": all pairs that may, the best first; each as it is when its turn comes. */
static bool fuse_once(struct building *b, struct act_graph *graph, bool turning)
{
    uint32_t count, fused = 0;
    struct pair *pairs = find_pairs(b, graph, turning, &count);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t x = act_graph_now(graph, pairs[i].x), y = act_graph_now(graph, pairs[i].y);
        const uint32_t first = x < y ? x : y, second = x < y ? y : x;
        if (x == y || (!turning && needs_turning(&b->acts[x], &b->acts[y])))
            continue;
        const uint64_t shared = shared_bytes(b, &b->acts[first], &b->acts[second]);
        if (shared == 0 || !may_fuse(b, graph, first, second, shared))
            continue;
        fuse(b, graph, first, second);
        fused++;
    }
    free(pairs);
    return fused > 0;
}

enum { ROUNDS_MOST = 10 };

void fuse_acts(struct building *b)
{
    struct act_graph graph;
    act_graph_open(&graph, b);
    for (int i = 0; i < ROUNDS_MOST && fuse_once(b, &graph, false); i++)
        ;
    fuse_once(b, &graph, true);
    act_graph_close(&graph);
    uint32_t left = 0;
    for (uint32_t i = 0; i < b->act_count; i++) {
        if (!b->acts[i].gone)
            b->acts[left++] = b->acts[i];
    }
    b->act_count = left;
}

/* ---- rows that are gone over more than once ---- */

/* torch/_inductor/choices.py, should_use_persistent_reduction: longer rows are not held in
 * registers. */
enum { ROW_HELD = 1024 };

/* On which way over its row each part runs: behind the sums that it is made of. */
static uint32_t *find_ways(const struct draft *act)
{
    uint32_t *way = xcalloc(act->part_count + 1, sizeof *way);
    for (uint32_t turn = 0; turn < act->part_count; turn++)
        for (uint32_t i = 0; i < act->part_count; i++)
            for (uint32_t k = 0; k < act->part_count; k++) {
                const uint32_t behind = way[k] + act->parts[k].sums;
                if (k != i && way[i] < behind &&
                    lists_meet(&act->parts[k].writes, &act->parts[i].reads))
                    way[i] = behind;
            }
    return way;
}

static void keep_of_act(const struct building *b, struct draft *act)
{
    uint32_t *way = find_ways(act);
    for (uint32_t i = 0; i < act->part_count; i++) {
        const struct part *part = &act->parts[i];
        for (uint32_t w = 0; w < part->writes.count; w++) {
            const struct operand operand =
                program_operand(b->joint, b->program, part->writes.of[w]);
            if (shape_elements(&operand.shape) != act->span.all)
                continue;
            for (uint32_t k = 0; k < act->part_count; k++)
                if (way[k] > way[i] && list_has(&act->parts[k].reads, part->writes.of[w]))
                    list_add_once(&act->writes, part->writes.of[w]);
        }
    }
    free(way);
}

void keep_between_ways(struct building *b)
{
    for (uint32_t i = 0; i < b->act_count; i++) {
        const struct span *span = &b->acts[i].span;
        if (span->kind == SPAN_ROWS && span->all / span->kept > ROW_HELD)
            keep_of_act(b, &b->acts[i]);
    }
}
