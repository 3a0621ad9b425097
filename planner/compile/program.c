/* program.c - see program.h: which functions are kernels, and what they read. Which of them are one
 * kernel is in fusion.c, their order in order_acts.c, their memory in place_acts.c. */
#include "compile/program.h"

#include "base/arena.h"
#include "compile/program_parts.h"
#include "compile/triples.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory of nodes ---- */

static const struct joint_node *at(const struct building *b, uint32_t node)
{
    return joint_at(b->joint, node);
}

/* A kernel of its own: a library's, or one of eager PyTorch (complex numbers). */
static bool is_call(const struct building *b, uint32_t node)
{
    const struct joint_node *n = at(b, node);
    return n->name == JOINT_CALL || n->name == JOINT_CALL_OWN || n->name == JOINT_CALL_MANY ||
           (n->dtype == DTYPE_COMPLEX64 && (n->name == JOINT_MUL || n->name == JOINT_CLONE));
}

static bool is_result(const struct building *b, uint32_t node)
{
    return at(b, node)->name == JOINT_RESULT;
}

static uint32_t new_memory(struct building *b, struct program_memory memory)
{
    struct program *p = b->program;
    ARRAY_GROW(p->memory, p->memory_count, b->memory_cap);
    p->memory[p->memory_count] = memory;
    return p->memory_count++;
}

static uint32_t memory_of(struct building *b, uint32_t node)
{
    const bool outside = b->there[node];
    const uint32_t home = outside ? program_home(b->joint, node) : node;
    if (b->memory[home] == JOINT_NONE)
        b->memory[home] = new_memory(
            b, (struct program_memory){.node = home, .only = JOINT_NONE, .outside = outside});
    return b->memory[home];
}

/* The copy of a node's value that a call reads by itself; JOINT_NONE: it has none. */
static uint32_t copy_for(const struct building *b, uint32_t call, uint32_t node)
{
    for (uint32_t i = b->program->memory_count; i-- > 0;)
        if (b->program->memory[i].only == call && b->program->memory[i].node == node)
            return i;
    return JOINT_NONE;
}

/* ---- what is needed, and what of it is in memory ---- */

static void mark_needed(struct building *b, const uint32_t *nodes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i] != JOINT_NONE)
            b->needed[nodes[i]] = true;
}

static void find_needed(struct building *b)
{
    for (uint32_t i = joint_count(b->joint); i-- > 0;) {
        if (!b->needed[i] || b->there[i])
            continue;
        for (uint32_t a = 0; a < at(b, i)->args; a++) {
            b->needed[at(b, i)->arg[a]] = true;
            b->users[at(b, i)->arg[a]]++;
        }
        /* Its readers are behind it: of a view, they read what it shows. */
        uint32_t *shown = joint_is_seen_through(at(b, i)) ? &b->users[at(b, i)->arg[0]] : NULL;
        if (shown && b->users[i] > *shown)
            *shown = b->users[i];
    }
}

static int in_order(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void want(struct building *b, uint32_t node, uint32_t *count)
{
    if (b->rank[node] != JOINT_NONE)
        return;
    b->rank[node] = 0; /* for now; who has one, for whom it needs has one, too */
    b->stack[(*count)++] = node;
}

/* A node, behind those that it needs and that have no place yet, these as the joint graph has them.
 */
static void give_rank(struct building *b, uint32_t node, uint32_t *next)
{
    uint32_t count = 0;
    want(b, node, &count);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t a = 0; !b->there[b->stack[i]] && a < at(b, b->stack[i])->args; a++)
            want(b, at(b, b->stack[i])->arg[a], &count);
    if (count > 1)
        qsort(b->stack, count, sizeof *b->stack, in_order);
    for (uint32_t i = 0; i < count; i++)
        b->rank[b->stack[i]] = (*next)++;
}

/* Forward is as it was traced. Backward ("reordering_to_mimic_autograd_engine") is, too, and what
 * runs again there does so where it is first needed. */
static void find_ranks(struct building *b, bool backward)
{
    const uint32_t count = joint_count(b->joint);
    uint32_t next = 0;
    memset(b->rank, 0xff, (count + 1) * sizeof *b->rank);
    for (uint32_t i = 0; i < count; i++)
        if (b->needed[i] && !b->there[i] && (!backward || at(b, i)->in_backward))
            give_rank(b, i, &next);
}

static void realize(struct building *b, uint32_t node)
{
    b->realized[found_at(b, node)] = true;
}

/* torch/_inductor/config.py: realize_reads_threshold and realize_opcount_threshold, of what several
 * read; realize_acc_reads_threshold. */
enum { READS_MOST = 4, READS_ALWAYS = 8, FUNCTIONS_MOST = 30 };

/* Whether a function gives elements at other places than it is given them. */
static bool moves(const struct building *b, uint32_t node)
{
    const uint8_t name = at(b, node)->name;
    return name == JOINT_SLICE || name == JOINT_PART || name == JOINT_CAT ||
           name == JOINT_PUT_SLICE || name == JOINT_EXPAND || name == JOINT_PICK ||
           name == JOINT_PAD || name == JOINT_PLACES;
}

/* ---- what a function reads ---- */

struct reading { /* of one function's arguments: on which way their elements come, and whose pick */
    uint32_t node, way, gather, next; /* next: the argument that is looked at next; of a sum that is
                                         written out, the element */
    uint32_t sum, outer; /* the sum that it is written out for, JOINT_NONE: none, and the way of
                            what is equal for all of its elements */
};

struct readings {
    struct triples ways;  /* (the way before it, what moves, as its which argument): 0 is the way
                             of what is not moved */
    struct triples seen;  /* (node, way, gather): by any of several ways it reads the same */
    struct triples loads; /* (way, memory) */
    struct reading *stack;
    uint32_t count, cap;
};

/* How many elements a sum adds that is no reduction, but written out; of what is none: 0. */
static uint32_t written_out(const struct building *b, uint32_t node)
{
    const struct joint_node *n = at(b, node);
    if (!joint_is_over_dim(n) || joint_is_many(n) || is_reduction(b->joint, node))
        return 0;
    return (uint32_t)(shape_elements(&at(b, n->arg[0])->shape) / shape_elements(&n->shape));
}

/* Whether what is found has one element for all that a sum adds. */
static bool is_equal_for_all(const struct building *b, uint32_t sum, uint32_t found)
{
    const struct shape *all = &at(b, at(b, sum)->arg[0])->shape, *own = &at(b, found)->shape;
    const struct shape *kept = &at(b, sum)->shape;
    uint32_t d = 0;
    while (d < kept->rank && d < all->rank && kept->dim[d] == all->dim[d])
        d++;
    return own->rank == all->rank && d < all->rank && own->dim[d] < all->dim[d];
}

/* The way that elements come on: `way`, and what moves them between an argument of a node (its
 * a-th) and where that is found. */
static uint32_t way_of(const struct building *b, struct readings *r, const struct reading *at_node,
                       uint32_t a, uint32_t found)
{
    uint32_t way = at_node->way;
    if (at_node->sum != JOINT_NONE && is_equal_for_all(b, at_node->sum, found))
        way = at_node->outer;
    if (moves(b, at_node->node))
        way = triples_number(&r->ways, (struct triple){way, at_node->node, a + 1}, NULL);
    for (uint32_t from = at(b, at_node->node)->arg[a]; from != found; from = at(b, from)->arg[0])
        if (moves(b, from))
            way = triples_number(&r->ways, (struct triple){way, from, 0}, NULL);
    return way;
}

/* Whether a node's value is in memory when a reader of it is lowered. What is made of nothing is
 * made again for each ("Inline constants and index_expressions", ir.py), but for calls. */
static bool is_in_memory(const struct building *b, uint32_t node, uint32_t reader)
{
    const uint8_t name = at(b, node)->name;
    if ((name == JOINT_IOTA || name == JOINT_FULL) && !is_call(b, reader))
        return false;
    const uint32_t call = b->waits[node];
    return b->realized[node] && (call == JOINT_NONE || b->rank[reader] >= b->rank[call]);
}

/* Whether all of a memory is read where `gather` (JOINT_NONE: none) picks. */
static bool reads_all(const struct building *b, uint32_t gather, uint32_t memory)
{
    const uint32_t node = b->program->memory[memory].node;
    return gather == JOINT_NONE ||
           shape_elements(&at(b, node)->shape) <= shape_elements(&at(b, gather)->shape);
}

static void enter(const struct building *b, struct readings *r, struct reading by, uint32_t node,
                  uint32_t way)
{
    uint32_t gather = by.gather;
    bool is_new;
    if (at(b, node)->name == JOINT_GATHER || at(b, node)->name == JOINT_ROWS ||
        at(b, node)->name == JOINT_PICK)
        gather = node;
    triples_number(&r->seen, (struct triple){node, way, gather}, &is_new);
    if (!is_new)
        return;
    ARRAY_GROW(r->stack, r->count, r->cap);
    r->stack[r->count++] = (struct reading){
        .node = node, .way = way, .gather = gather, .sum = by.sum, .outer = by.outer};
}

static void add_load(struct part *part, struct readings *r, uint32_t way, uint32_t memory)
{
    bool is_new;
    triples_number(&r->loads, (struct triple){way, memory, 0}, &is_new);
    part->loads += is_new;
}

static void read_memory(struct building *b, const struct reading *by, uint32_t memory, bool moved,
                        struct part *part)
{
    list_add_once(&part->reads, memory);
    if (reads_all(b, by->gather, memory))
        list_add_once(&part->whole, memory);
    else
        part->gather = by->gather;
    if (moved)
        list_add_once(&part->moved, memory);
}

static void read_argument(struct building *b, struct readings *r, struct reading by, uint32_t a,
                          struct part *part)
{
    const uint32_t found = found_at(b, at(b, by.node)->arg[a]);
    const uint32_t way = way_of(b, r, &by, a, found);
    const uint32_t copy = is_call(b, by.node) ? copy_for(b, by.node, found) : JOINT_NONE;
    if (copy != JOINT_NONE) {
        list_add_once(&part->reads, copy);
        list_add_once(&part->whole, copy);
        add_load(part, r, 0, copy);
    } else if (!b->there[found] && !is_in_memory(b, found, by.node) && !is_result(b, found)) {
        enter(b, r, by, found, way);
    } else {
        const uint32_t memory = memory_of(b, found);
        read_memory(b, &by, memory, way > 0, part);
        add_load(part, r, way, memory);
    }
}

/* How the next element is read of a sum that is written out. */
static struct reading element_of(struct readings *r, struct reading sum, uint32_t element)
{
    sum.outer = sum.way;
    sum.sum = sum.node;
    sum.way = triples_number(&r->ways, (struct triple){sum.way, sum.node, element + 1}, NULL);
    return sum;
}

/* Of a node's function and those that are computed where it is, as they are read one after the
 * other: each argument down to memory before the next one. */
static void find_reads(struct building *b, uint32_t node, struct part *part)
{
    struct readings r = {.count = 0};
    enter(b, &r, (struct reading){.gather = JOINT_NONE, .sum = JOINT_NONE}, node, 0);
    while (r.count) {
        struct reading *top = &r.stack[r.count - 1];
        const uint32_t elements = written_out(b, top->node);
        if (top->next == (elements ? elements : at(b, top->node)->args)) {
            r.count--;
            continue;
        }
        const uint32_t next = top->next++;
        if (elements)
            read_argument(b, &r, element_of(&r, *top, next), 0, part);
        else
            read_argument(b, &r, *top, next, part);
    }
    triples_free(&r.ways);
    triples_free(&r.seen);
    triples_free(&r.loads);
    free(r.stack);
}

static bool is_scaled_mm(const struct building *b, uint32_t node)
{
    const struct joint_node *n = at(b, node);
    const uint8_t dtype = n->args ? at(b, n->arg[0])->dtype : n->dtype;
    return n->name == JOINT_CALL && (dtype == DTYPE_FLOAT8_E4M3 || dtype == DTYPE_FLOAT8_E5M2);
}

/* What _scaled_mm is given as a view of a function's result that is not in memory is computed for
 * that call alone (ir.py, ExternKernel.realize_input: copy_input), and so are scales of rows; mm's
 * are in "needs_realized_inputs". */
static bool is_copied_for(const struct building *b, uint32_t call, uint32_t a)
{
    const struct joint_node *arg = at(b, at(b, call)->arg[a]);
    return is_scaled_mm(b, call) && (joint_is_seen_through(arg) || (a >= 2 && arg->shape.rank > 0));
}

/* Whether a number is one of a function's operands. */
static bool has_number(const struct joint_node *node)
{
    switch ((enum joint_name)node->name) {
    case JOINT_MEAN: /* in memory is the sum */
    case JOINT_AT_LEAST:
    case JOINT_AT_MOST:
        return true;
    case JOINT_ADD:
    case JOINT_SUB:
    case JOINT_MUL:
    case JOINT_DIV:
        return node->args == 1;
    default:
        return false;
    }
}

static bool is_counted(const struct joint_node *node)
{
    const bool element = joint_way(node) == WAY_ELEMENT && node->name != JOINT_CLONE;
    return element || node->name == JOINT_MEAN;
}

/* The functions that are computed where `node` is, itself among them, as Inductor counts them
 * (ops_handler.py, OpCounterCSE): and their numbers, each once. */
static uint32_t count_functions(const struct building *b, uint32_t node)
{
    bool *inside = xcalloc((size_t)node + 1, sizeof *inside);
    float *numbers = xcalloc((size_t)node + 1, sizeof *numbers);
    uint32_t count = 0, number_count = 0;
    inside[node] = true;
    for (uint32_t i = node + 1; i-- > 0;) {
        if (!inside[i])
            continue;
        const bool made = b->there[i] || (i != node && b->realized[i]);
        const bool counts = !made || at(b, i)->name == JOINT_MEAN;
        count += counts && is_counted(at(b, i));
        bool known = !counts || !has_number(at(b, i));
        for (uint32_t k = 0; !known && k < number_count; k++)
            known = numbers[k] == at(b, i)->number;
        if (!known)
            numbers[number_count++] = at(b, i)->number;
        for (uint32_t a = 0; !made && !is_result(b, i) && a < at(b, i)->args; a++)
            inside[at(b, i)->arg[a]] = true;
    }
    free(inside);
    free(numbers);
    return count + number_count;
}

/* What a function is realized for at once, by how much it reads and computes. */
static bool is_too_much(struct building *b, uint32_t node)
{
    struct part part = {0};
    uint32_t large = 0; /* reads of more than one number */
    find_reads(b, node, &part);
    for (uint32_t i = 0; i < part.reads.count; i++) {
        const struct operand operand = program_operand(b->joint, b->program, part.reads.of[i]);
        large += shape_elements(&operand.shape) > 1;
    }
    const bool many = part.loads + count_functions(b, node) > FUNCTIONS_MOST;
    const bool much = (b->users[node] > 1 && (many || part.loads > READS_MOST)) ||
                      (large > 1 && (many || part.loads > READS_ALWAYS));
    free(part.reads.of);
    free(part.moved.of);
    free(part.whole.of);
    return much;
}

static bool needs_call(const struct building *b, uint32_t node)
{
    return b->needed[node] && !b->there[node] && at(b, node)->name == JOINT_CALL;
}

/* What a call is given, if a function makes it and nothing else puts it in memory. */
static bool is_for_call(struct building *b, uint32_t arg)
{
    return !b->there[arg] && joint_way(at(b, arg)) == WAY_ELEMENT && !is_result(b, arg) &&
           !is_call(b, arg) && !is_too_much(b, arg);
}

/* An argument of a product is put in memory when that is lowered, and not before; of several, for
 * the first of them. But mm's are in "needs_realized_inputs": what others read, too, is put in
 * memory where it is. */
static void find_waits(struct building *b)
{
    const uint32_t count = joint_count(b->joint);
    bool *early = xcalloc(count + 1, sizeof *early);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t a = 0; needs_call(b, i) && a < at(b, i)->args; a++)
            early[found_at(b, at(b, i)->arg[a])] |=
                !is_scaled_mm(b, i) && at(b, i)->args == 2 && b->users[at(b, i)->arg[a]] > 1;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t a = 0; needs_call(b, i) && a < at(b, i)->args; a++) {
            const uint32_t arg = found_at(b, at(b, i)->arg[a]);
            if (!early[arg] && b->waits[arg] == JOINT_NONE && !is_copied_for(b, i, a) &&
                is_for_call(b, arg))
                b->waits[arg] = i;
        }
    free(early);
}

/* Memory that is written to more than once, and sums so far. */
static bool is_written_whole(const struct joint_node *node)
{
    return node->name == JOINT_ZEROS || node->name == JOINT_PUT_ROWS ||
           node->name == JOINT_PLACES || node->name == JOINT_RUNNING;
}

static void find_realized(struct building *b, const struct program_wants *wants)
{
    const uint32_t count = joint_count(b->joint);
    for (uint32_t i = 0; i < wants->result_count; i++)
        if (wants->results[i] != JOINT_NONE)
            realize(b, wants->results[i]);
    for (uint32_t i = 0; !wants->backward && i < wants->saved_count; i++)
        realize(b, wants->saved[i]);
    for (uint32_t i = 0; i < count; i++) {
        if (!b->needed[i] || b->there[i])
            continue;
        const bool call = is_call(b, i);
        b->realized[i] |= call || is_reduction(b->joint, i) || is_written_whole(at(b, i));
        for (uint32_t a = 0; call && a < at(b, i)->args; a++)
            if (!is_copied_for(b, i, a))
                realize(b, at(b, i)->arg[a]);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (b->needed[i] && !b->there[i] && !b->realized[i] && !joint_is_seen_through(at(b, i)) &&
            !is_result(b, i))
            b->realized[i] = is_too_much(b, i);
    }
    find_waits(b);
}

/* ---- acts ---- */

static void add_writes(struct building *b, struct part *part, uint32_t node)
{
    if (!joint_is_many(at(b, node))) {
        list_add_once(&part->writes, memory_of(b, node));
        return;
    }
    for (uint32_t i = 0; i < joint_count(b->joint); i++)
        if (is_result(b, i) && at(b, i)->arg[0] == node &&
            (b->needed[i] || at(b, node)->name == JOINT_CALL_MANY))
            list_add_once(&part->writes, memory_of(b, i));
}

static struct draft *new_act(struct building *b, uint32_t call, struct span span)
{
    ARRAY_GROW(b->acts, b->act_count, b->act_cap);
    struct draft *act = &b->acts[b->act_count++];
    *act = (struct draft){
        .call = call, .span = span, .parts = xcalloc(1, sizeof *act->parts), .part_count = 1};
    act->parts[0].rank = b->act_count - 1;
    act->parts[0].gather = JOINT_NONE;
    act->parts[0].sums = span.kind == SPAN_ROWS;
    return act;
}

static void list_memory(struct draft *act)
{
    struct part *part = &act->parts[0];
    for (uint32_t i = 0; i < part->reads.count; i++)
        list_add_once(&act->reads, part->reads.of[i]);
    for (uint32_t i = 0; i < part->writes.count; i++)
        list_add_once(&act->writes, part->writes.of[i]);
}

/* A node's value computed into a memory. */
static void add_points(struct building *b, uint32_t node, uint32_t memory)
{
    struct draft *act = new_act(b, JOINT_NONE, span_of(b->joint, node));
    find_reads(b, node, &act->parts[0]);
    list_add_once(&act->parts[0].writes, memory);
    list_memory(act);
}

/* What is put in memory for a call, or copied for it. */
static void add_arguments(struct building *b, uint32_t call)
{
    for (uint32_t a = 0; a < at(b, call)->args; a++) {
        const uint32_t found = found_at(b, at(b, call)->arg[a]);
        if (b->waits[found] == call && !b->put[found]) {
            b->put[found] = true;
            add_points(b, found, memory_of(b, found));
        } else if (is_copied_for(b, call, a) && !b->there[found] && !b->realized[found] &&
                   !is_result(b, found)) {
            add_points(b, found,
                       new_memory(b, (struct program_memory){.node = found, .only = call}));
        }
    }
}

/* Two kernels: partial results, and those of them. */
static void add_split(struct building *b, uint32_t node, uint32_t parts)
{
    const struct span span = span_of(b->joint, node);
    const uint32_t between =
        new_memory(b, (struct program_memory){.node = node, .parts = parts, .only = JOINT_NONE});
    struct draft *act =
        new_act(b, JOINT_NONE,
                (struct span){span.kind, span.all, parts * span.kept,
                              loops_of_parts(span.all / span.kept, parts, span.kept)});
    find_reads(b, node, &act->parts[0]);
    list_add_once(&act->parts[0].writes, between);
    list_memory(act);
    act = new_act(b, JOINT_NONE,
                  (struct span){.kind = SPAN_ROWS, .all = parts * span.kept, .kept = span.kept});
    list_add_once(&act->parts[0].reads, between);
    list_add_once(&act->parts[0].whole, between);
    act->parts[0].loads = 1;
    add_writes(b, &act->parts[0], node);
    list_memory(act);
}

static void add_act(struct building *b, uint32_t node)
{
    const bool call = is_call(b, node);
    const uint32_t parts = call ? 1 : parts_of(b, node);
    if (parts > 1) {
        add_split(b, node, parts);
        return;
    }
    if (call)
        add_arguments(b, node);
    struct draft *act = new_act(b, call ? node : JOINT_NONE, span_of(b->joint, node));
    find_reads(b, node, &act->parts[0]);
    add_writes(b, &act->parts[0], node);
    list_memory(act);
}

static void add_acts(struct building *b)
{
    const uint32_t count = joint_count(b->joint);
    uint32_t *in_order = xmalloc((count + 1) * sizeof *in_order);
    memset(in_order, 0xff, (count + 1) * sizeof *in_order);
    for (uint32_t i = 0; i < count; i++)
        if (b->needed[i] && !b->there[i] && b->realized[i] && !is_result(b, i) &&
            b->waits[i] == JOINT_NONE)
            in_order[b->rank[i]] = i;
    for (uint32_t i = 0; i < count; i++)
        if (in_order[i] != JOINT_NONE)
            add_act(b, in_order[i]);
    free(in_order);
}

static void mark_kept(struct building *b, const uint32_t *nodes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i] == JOINT_NONE)
            continue;
        const uint32_t memory = memory_of(b, found_at(b, nodes[i])); /* first: it may move them */
        b->program->memory[memory].kept = true;
    }
}

/* What is saved and given out by forward, too, is its caller's. */
static void mark_lent(struct building *b, const struct program_wants *wants)
{
    for (uint32_t i = 0; i < wants->held_count; i++) {
        const uint32_t held = wants->held[i];
        const uint32_t memory =
            held == JOINT_NONE ? JOINT_NONE : b->memory[program_home(b->joint, held)];
        if (memory != JOINT_NONE && b->program->memory[memory].outside)
            b->program->memory[memory].lent = true;
    }
}

static void open_building(struct building *b, const struct joint *joint,
                          const struct program_wants *wants)
{
    const uint32_t count = joint_count(joint);
    *b = (struct building){.joint = joint, .program = xcalloc(1, sizeof *b->program)};
    b->there = xcalloc(count + 1, sizeof *b->there);
    b->needed = xcalloc(count + 1, sizeof *b->needed);
    b->realized = xcalloc(count + 1, sizeof *b->realized);
    b->users = xcalloc(count + 1, sizeof *b->users);
    b->rank = xmalloc((count + 1) * sizeof *b->rank);
    b->stack = xmalloc((count + 1) * sizeof *b->stack);
    b->put = xcalloc(count + 1, sizeof *b->put);
    b->waits = xmalloc((count + 1) * sizeof *b->waits);
    memset(b->waits, 0xff, (count + 1) * sizeof *b->waits);
    b->memory = xmalloc((count + 1) * sizeof *b->memory);
    memset(b->memory, 0xff, (count + 1) * sizeof *b->memory);
    for (uint32_t i = 0; i < count; i++)
        b->there[i] = joint_at(joint, i)->name == JOINT_INPUT;
    for (uint32_t i = 0; wants->backward && i < wants->saved_count; i++)
        b->there[wants->saved[i]] = true;
}

static void close_building(struct building *b)
{
    for (uint32_t i = 0; i < b->act_count; i++)
        draft_free(&b->acts[i]);
    free(b->acts);
    free(b->there);
    free(b->needed);
    free(b->realized);
    free(b->users);
    free(b->rank);
    free(b->stack);
    free(b->waits);
    free(b->put);
    free(b->memory);
}

struct program *program_of(const struct joint *joint, const struct program_wants *wants)
{
    struct building b;
    open_building(&b, joint, wants);
    mark_needed(&b, wants->results, wants->result_count);
    if (!wants->backward)
        mark_needed(&b, wants->saved, wants->saved_count);
    find_needed(&b);
    find_ranks(&b, wants->backward);
    find_realized(&b, wants);
    add_acts(&b);
    for (uint32_t i = 0; wants->backward && i < wants->saved_count; i++)
        memory_of(&b, wants->saved[i]);
    mark_lent(&b, wants);
    mark_kept(&b, wants->results, wants->result_count);
    if (!wants->backward)
        mark_kept(&b, wants->saved, wants->saved_count);
    fuse_acts(&b);
    const struct estimate estimate = order_acts(&b);
    keep_between_ways(&b);
    place_acts(&b, &estimate);
    free(estimate.bytes);
    free(estimate.at);
    struct program *program = b.program;
    close_building(&b);
    return program;
}

void program_free(struct program *program)
{
    if (!program)
        return;
    for (uint32_t i = 0; i < program->act_count; i++) {
        free(program->acts[i].reads);
        free(program->acts[i].picks);
        free(program->acts[i].writes);
        free(program->acts[i].over);
        free(program->acts[i].dies);
    }
    free(program->acts);
    free(program->memory);
    free(program);
}

static bool is_in_peak(const struct joint *joint, const struct program *program, uint32_t memory)
{
    return joint_at(joint, program->memory[memory].node)->name != JOINT_INPUT;
}

/* Whether a result outlives the call that gives it, among several. */
static bool is_asked_for(const struct joint *joint, const struct program *program,
                         const struct program_act *act, uint32_t write)
{
    bool dies = false;
    for (uint32_t d = 0; d < act->die_count; d++)
        dies |= act->dies[d] == act->writes[write];
    return !dies || joint_at(joint, program->memory[act->writes[write]].node)->name != JOINT_RESULT;
}

uint64_t program_peak(const struct joint *joint, const struct program *program)
{
    uint64_t live = 0, peak = 0;
    for (uint32_t i = 0; i < program->memory_count; i++)
        if (program->memory[i].outside && is_in_peak(joint, program, i))
            live += program_bytes(joint, program, i);
    peak = live;
    for (uint32_t i = 0; i < program->act_count; i++) {
        const struct program_act *act = &program->acts[i];
        for (uint32_t w = 0; w < act->write_count; w++)
            live += act->over[w] == JOINT_NONE && is_asked_for(joint, program, act, w)
                        ? program_bytes(joint, program, act->writes[w])
                        : 0;
        peak = live > peak ? live : peak;
        for (uint32_t d = 0; d < act->die_count; d++)
            if (is_in_peak(joint, program, act->dies[d]))
                live -= program_bytes(joint, program, act->dies[d]);
        for (uint32_t w = 0; w < act->write_count; w++) /* which came and went */
            live += act->over[w] == JOINT_NONE && !is_asked_for(joint, program, act, w)
                        ? program_bytes(joint, program, act->writes[w])
                        : 0;
    }
    return peak;
}
