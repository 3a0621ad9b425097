/* place_acts.c - which memory a kernel's results take (program.h).
 *
 * In place: a function of a fused kernel writes where the last of its operands was that nobody else
 * still reads (SchedulerNode.decide_inplace_update). Again: memory that has died is kept for the
 * next result of its dtype and size, if the estimated peak stays as it is (codegen/wrapper.py,
 * AllocateLine.should_reuse_buffer); else it is freed where it died. */
#include "base/arena.h"
#include "compile/program_parts.h"

#include <stdlib.h>
#include <string.h>

struct freed { /* memory whose last reader has run, in the order of death */
    uint32_t memory, act;
    bool taken;
};

struct placing {
    struct building *b;
    const struct estimate *estimate;
    uint64_t peak;
    uint32_t *left;  /* (memory) parts of acts that are still to read it, and whoever keeps it */
    bool *taken;     /* (memory) something else is there now */
    uint32_t *inner; /* (memory) of what only its kernel uses: where it is in place; JOINT_NONE */
    struct freed *freed;
    uint32_t freed_count, freed_cap;
};

static const struct joint_node *node_of(const struct placing *p, uint32_t memory)
{
    return joint_at(p->b->joint, p->b->program->memory[memory].node);
}

static bool is_alike(const struct placing *p, uint32_t x, uint32_t y)
{
    const struct operand a = program_operand(p->b->joint, p->b->program, x);
    const struct operand b = program_operand(p->b->joint, p->b->program, y);
    return a.dtype == b.dtype && shape_elements(&a.shape) == shape_elements(&b.shape);
}

/* ---- in place ---- */

/* Parts of the act, other than `part` and those that it is made of, that read the memory. */
static uint32_t other_readers(const struct draft *act, uint32_t part, uint32_t memory)
{
    bool *before = xcalloc(act->part_count + 1, sizeof *before);
    uint32_t count = 0;
    before[part] = true;
    for (uint32_t i = part; i-- > 0;) /* they are in the order of the graph */
        for (uint32_t k = i + 1; k <= part; k++)
            before[i] |= before[k] && lists_meet(&act->parts[i].writes, &act->parts[k].reads);
    for (uint32_t i = 0; i < act->part_count; i++)
        count += !before[i] && list_has(&act->parts[i].reads, memory);
    free(before);
    return count;
}

static uint32_t readers(const struct draft *act, uint32_t memory)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < act->part_count; i++)
        count += list_has(&act->parts[i].reads, memory);
    return count;
}

static uint32_t in_place(const struct placing *p, const struct draft *act, uint32_t index,
                         uint32_t write)
{
    const struct part *part = &act->parts[index];
    for (uint32_t i = 0; i < part->reads.count; i++) {
        const uint32_t memory = part->reads.of[i];
        const bool there = list_has(&act->reads, memory) || p->inner[memory] != JOINT_NONE;
        if (!p->taken[memory] && is_alike(p, memory, write) && there &&
            node_of(p, memory)->name != JOINT_INPUT && !p->b->program->memory[memory].lent &&
            !list_has(&part->moved, memory) && p->left[memory] == readers(act, memory) &&
            other_readers(act, index, memory) == 0)
            return memory;
    }
    return JOINT_NONE;
}

/* ---- again ---- */

static uint64_t most_between(const struct placing *p, uint32_t first, uint32_t end)
{
    uint64_t most = 0;
    for (uint32_t i = first; i < end; i++)
        most = p->estimate->bytes[i] > most ? p->estimate->bytes[i] : most;
    return most;
}

/* The last that died of its kind, unless keeping it would cost more than the peak. */
static uint32_t again(struct placing *p, uint32_t act, uint32_t write)
{
    const uint64_t bytes = program_bytes(p->b->joint, p->b->program, write);
    for (uint32_t i = p->freed_count; i-- > 0;) {
        struct freed *f = &p->freed[i];
        if (f->taken || !is_alike(p, f->memory, write))
            continue;
        const uint32_t first = p->estimate->at[f->act] + 1, end = p->estimate->at[act];
        if (first != end && bytes + most_between(p, first, end) > p->peak)
            return JOINT_NONE;
        for (uint32_t k = first; k < end; k++)
            p->estimate->bytes[k] += bytes;
        f->taken = true;
        return f->memory;
    }
    return JOINT_NONE;
}

/* Whether what dies may be kept for others: the program's own, and no complex number's. */
static bool may_be_kept(const struct placing *p, uint32_t memory)
{
    return !p->b->program->memory[memory].outside && node_of(p, memory)->dtype != DTYPE_COMPLEX64;
}

/* ---- one act ---- */

static uint32_t place_of_write(const struct draft *act, uint32_t memory)
{
    for (uint32_t w = 0; w < act->writes.count; w++)
        if (act->writes.of[w] == memory)
            return w;
    return JOINT_NONE;
}

/* Where a part's result is in place: in memory from outside of the act, perhaps by way of a result
 * that only the act uses, which is in place itself. */
static uint32_t take_place(struct placing *p, const struct draft *act, uint32_t part,
                           uint32_t result)
{
    const uint32_t memory = in_place(p, act, part, result);
    if (memory == JOINT_NONE)
        return JOINT_NONE;
    p->taken[memory] = true;
    const uint32_t behind = p->inner[memory];
    p->inner[memory] = JOINT_NONE;
    return behind == JOINT_NONE ? memory : behind;
}

/* What was in place only for the act, and nothing behind it was, is as it would be without. */
static void leave_inner(struct placing *p, const struct draft *act)
{
    for (uint32_t i = 0; i < act->part_count; i++)
        for (uint32_t w = 0; w < act->parts[i].writes.count; w++) {
            uint32_t *inner = &p->inner[act->parts[i].writes.of[w]];
            if (*inner != JOINT_NONE)
                p->taken[*inner] = false;
            *inner = JOINT_NONE;
        }
}

static void run_parts(struct placing *p, const struct draft *act, struct program_act *out)
{
    for (uint32_t i = 0; act->call == JOINT_NONE && i < act->part_count; i++) {
        const struct part *part = &act->parts[i];
        if (part->writes.count != 1)
            continue;
        const uint32_t result = part->writes.of[0], w = place_of_write(act, result);
        const uint32_t place = take_place(p, act, i, result);
        if (w != JOINT_NONE)
            out->over[w] = place;
        else
            p->inner[result] = place;
    }
    leave_inner(p, act);
    for (uint32_t i = 0; i < act->part_count; i++)
        for (uint32_t r = 0; r < act->parts[i].reads.count; r++)
            p->left[act->parts[i].reads.of[r]]--;
}

static uint32_t *copied(const struct list *list)
{
    uint32_t *copy = xmalloc((list->count + 1) * sizeof *copy);
    for (uint32_t i = 0; i < list->count; i++)
        copy[i] = list->of[i];
    return copy;
}

/* The GATHER by which alone the act reads a memory. */
static uint32_t pick_of(const struct draft *act, uint32_t memory)
{
    uint32_t gather = JOINT_NONE;
    for (uint32_t i = 0; i < act->part_count; i++) {
        if (list_has(&act->parts[i].whole, memory))
            return JOINT_NONE;
        if (list_has(&act->parts[i].reads, memory))
            gather = act->parts[i].gather;
    }
    return gather;
}

static void open_act(const struct draft *from, struct program_act *to)
{
    *to = (struct program_act){
        .call = from->call,
        .reduces = from->span.kind == SPAN_ROWS || from->span.kind == SPAN_COLUMNS,
        .reads = copied(&from->reads),
        .picks = xmalloc((from->reads.count + 1) * sizeof *to->picks),
        .writes = copied(&from->writes),
        .over = xmalloc((from->writes.count + 1) * sizeof *to->over),
        .dies = xmalloc((from->reads.count + from->writes.count + 1) * sizeof *to->dies),
        .read_count = from->reads.count,
        .write_count = from->writes.count,
    };
    for (uint32_t r = 0; r < to->read_count; r++)
        to->picks[r] = pick_of(from, to->reads[r]);
    for (uint32_t w = 0; w < to->write_count; w++)
        to->over[w] = JOINT_NONE;
}

/* Fallback kernels allocate what they give themselves. */
static bool allocates_itself(const struct placing *p, const struct program_act *act)
{
    return act->call != JOINT_NONE && joint_at(p->b->joint, act->call)->name != JOINT_CALL;
}

static void note_dead(struct placing *p, uint32_t memory, uint32_t act)
{
    ARRAY_GROW(p->freed, p->freed_count, p->freed_cap);
    p->freed[p->freed_count++] =
        (struct freed){.memory = memory, .act = act, .taken = !may_be_kept(p, memory)};
}

static void place(struct placing *p, uint32_t index)
{
    const struct draft *from = &p->b->acts[index];
    struct program_act *to = &p->b->program->acts[index];
    open_act(from, to);
    run_parts(p, from, to);
    for (uint32_t w = 0; w < to->write_count && !allocates_itself(p, to); w++)
        if (to->over[w] == JOINT_NONE) {
            to->over[w] = again(p, index, to->writes[w]);
            if (to->over[w] != JOINT_NONE)
                p->taken[to->over[w]] = true;
        }
    for (uint32_t r = 0; r < to->read_count; r++)
        if (p->left[to->reads[r]] == 0 && !p->taken[to->reads[r]])
            note_dead(p, to->reads[r], index);
    for (uint32_t w = 0; w < to->write_count; w++)
        if (p->left[to->writes[w]] == 0)
            note_dead(p, to->writes[w], index);
}

static void add_deaths(struct placing *p)
{
    for (uint32_t i = 0; i < p->freed_count; i++) {
        struct program_act *act = &p->b->program->acts[p->freed[i].act];
        if (!p->taken[p->freed[i].memory])
            act->dies[act->die_count++] = p->freed[i].memory;
    }
}

void place_acts(struct building *b, const struct estimate *estimate)
{
    struct program *program = b->program;
    struct placing p = {.b = b, .estimate = estimate};
    p.left = xcalloc(program->memory_count + 1, sizeof *p.left);
    p.taken = xcalloc(program->memory_count + 1, sizeof *p.taken);
    p.inner = xmalloc((program->memory_count + 1) * sizeof *p.inner);
    memset(p.inner, 0xff, (program->memory_count + 1) * sizeof *p.inner);
    program->acts = xcalloc(b->act_count + 1, sizeof *program->acts);
    program->act_count = b->act_count;
    p.peak = most_between(&p, 0, estimate->steps + 1);
    for (uint32_t m = 0; m < program->memory_count; m++)
        p.left[m] = program->memory[m].kept;
    for (uint32_t i = 0; i < b->act_count; i++)
        for (uint32_t k = 0; k < b->acts[i].part_count; k++)
            for (uint32_t r = 0; r < b->acts[i].parts[k].reads.count; r++)
                p.left[b->acts[i].parts[k].reads.of[r]]++;
    for (uint32_t i = 0; i < b->act_count; i++)
        place(&p, i);
    add_deaths(&p);
    free(p.left);
    free(p.taken);
    free(p.inner);
    free(p.freed);
}
