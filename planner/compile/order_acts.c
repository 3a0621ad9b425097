/* order_acts.c - in which order kernels run (program.h).
 *
 * torch/_inductor/memory.py, reorder_for_peak_memory: the order of the graph, that of the least
 * memory first, a breadth-first and a depth-first one are tried, and the lowest peak is taken. The
 * names in quotes are its. Parameters and arguments are not counted there, nor are gradients that
 * backward is given ("is_nonfreeable_buffers"); what was saved is.
 *
 * There are steps that are no acts: what shows complex numbers as real ones, or the other way
 * round, is a call, whose result is counted as memory of its own; and each result of a call with
 * several is taken out of what that gives. */
#include "base/arena.h"
#include "compile/program_parts.h"

#include <stdlib.h>
#include <string.h>

struct step {     /* an act, or a view that is called */
    uint32_t act; /* of the building; JOINT_NONE: a view, or one of a call's results */
    bool is_result;
    struct list reads, writes;
};

struct ordering {
    const struct building *b;
    struct step *steps;                 /* (acts) */
    uint32_t acts, memories;            /* those of views, too */
    uint64_t *bytes;                    /* (memories) counted */
    uint32_t *readers;                  /* (memories) acts that read it */
    uint32_t *order;                    /* (acts) the one that is tried */
    uint32_t *best;                     /* (acts) */
    uint32_t *first_before, *before;    /* (acts + 1) where those begin in `before` that an act
                                           depends on: each once, in the order of the acts */
    uint32_t *first_behind, *behind;    /* likewise those that depend on it */
    uint32_t *came;                     /* as `before`: places of those that have run, in order */
    uint32_t *waits;                    /* (acts) that have to run before it and have not */
    uint32_t *place;                    /* (acts) in `order`; UINT32_MAX: not yet */
    uint64_t *size;                     /* (acts) bytes of what it writes, inner ones too */
    uint64_t *inner;                    /* (acts) of them, what only it reads, and no memory has */
    uint64_t *timeline, *best_timeline; /* (acts + 1) bytes in memory while each runs */
    uint64_t best_peak;
};

static const struct step *act(const struct ordering *o, uint32_t i)
{
    return &o->steps[i];
}

static bool is_kept(const struct ordering *o, uint32_t memory)
{
    return memory < o->b->program->memory_count && o->b->program->memory[memory].kept;
}

static bool is_outside(const struct ordering *o, uint32_t memory)
{
    return memory < o->b->program->memory_count && o->b->program->memory[memory].outside;
}

/* "size_free": bytes that leave when nobody needs them any more; 0: they are not the program's to
 * free. */
static uint64_t freed_bytes(const struct building *b, uint32_t memory)
{
    const struct program_memory *m = &b->program->memory[memory];
    const struct joint_node *node = joint_at(b->joint, m->node);
    if (node->name == JOINT_ZEROS) /* with what is put in them */
        return 0;
    if (!m->outside && !b->needed[m->node]) /* a call's result that nobody asks for */
        return 0;
    const bool freed = !m->outside || (node->name != JOINT_INPUT && !m->lent);
    return freed ? program_bytes(b->joint, b->program, memory) : 0;
}

/* "size_alloc": what is put into memory that is there is no new memory. */
static uint64_t born_bytes(const struct building *b, uint32_t memory)
{
    const struct joint_node *node = joint_at(b->joint, b->program->memory[memory].node);
    return node->name == JOINT_PUT_ROWS ? 0
           : node->name == JOINT_ZEROS  ? program_bytes(b->joint, b->program, memory)
                                        : freed_bytes(b, memory);
}

/* What was written for others that are in the same kernel now: Inductor counts it while that runs,
 * as if it were there ("only used by its defining op"). */
static uint64_t inner_bytes(const struct building *b, const struct draft *act)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; act->call == JOINT_NONE && i < act->part_count; i++)
        for (uint32_t w = 0; w < act->parts[i].writes.count; w++)
            if (!list_has(&act->writes, act->parts[i].writes.of[w]))
                bytes += program_bytes(b->joint, b->program, act->parts[i].writes.of[w]);
    return bytes;
}

/* ---- the peak of an order ---- */

static uint64_t peak_of(const struct ordering *o, uint64_t *timeline)
{
    uint32_t *left = xmalloc((o->memories + 1) * sizeof *left);
    uint64_t live = 0, peak = 0;
    for (uint32_t m = 0; m < o->memories; m++) {
        left[m] = o->readers[m] + is_kept(o, m);
        live += is_outside(o, m) && left[m] ? o->bytes[m] : 0;
    }
    for (uint32_t i = 0; i < o->acts; i++) {
        const struct step *a = act(o, o->order[i]);
        live += o->size[o->order[i]];
        peak = live > peak ? live : peak;
        timeline[i] = live;
        for (uint32_t r = 0; r < a->reads.count; r++)
            live -= --left[a->reads.of[r]] == 0 ? o->bytes[a->reads.of[r]] : 0;
        for (uint32_t w = 0; w < a->writes.count; w++)
            live -= left[a->writes.of[w]] == 0 ? o->bytes[a->writes.of[w]] : 0;
        live -= o->inner[o->order[i]];
    }
    timeline[o->acts] = live;
    free(left);
    return peak;
}

static void try_order(struct ordering *o)
{
    const uint64_t peak = peak_of(o, o->timeline);
    if (peak >= o->best_peak)
        return;
    o->best_peak = peak;
    memcpy(o->best, o->order, o->acts * sizeof *o->best);
    memcpy(o->best_timeline, o->timeline, (o->acts + 1) * sizeof *o->timeline);
}

/* ---- orders ---- */

static void start(struct ordering *o)
{
    for (uint32_t i = 0; i < o->acts; i++) {
        o->waits[i] = o->first_before[i + 1] - o->first_before[i];
        o->place[i] = UINT32_MAX;
    }
}

static void run(struct ordering *o, uint32_t index, uint32_t at)
{
    o->order[at] = index;
    o->place[index] = at;
    for (uint32_t i = o->first_behind[index]; i < o->first_behind[index + 1]; i++) {
        const uint32_t next = o->behind[i];
        o->came[o->first_before[next + 1] - o->waits[next]--] = at;
    }
}

static bool is_ready(const struct ordering *o, uint32_t index)
{
    return o->place[index] == UINT32_MAX && o->waits[index] == 0;
}

/* What an act's end frees, when `left` readers are left of each memory. */
static uint64_t freed_by(const struct ordering *o, uint32_t index, const uint32_t *left)
{
    const struct step *a = act(o, index);
    uint64_t bytes = o->inner[index];
    for (uint32_t r = 0; r < a->reads.count; r++)
        bytes += left[a->reads.of[r]] == 1 ? o->bytes[a->reads.of[r]] : 0;
    for (uint32_t w = 0; w < a->writes.count; w++)
        bytes += left[a->writes.of[w]] == 0 ? o->bytes[a->writes.of[w]] : 0;
    return bytes;
}

/* "topological_sort_lpmf" */
static void least_memory_first(struct ordering *o)
{
    uint32_t *left = xmalloc((o->memories + 1) * sizeof *left);
    uint64_t live = 0, kept = 0;
    start(o);
    for (uint32_t m = 0; m < o->memories; m++) {
        left[m] = o->readers[m] + is_kept(o, m);
        live += is_outside(o, m) && left[m] ? o->bytes[m] : 0;
        kept += is_kept(o, m) ? o->bytes[m] : 0;
    }
    uint64_t most = live > kept ? live : kept;
    for (uint32_t n = 0; n < o->acts; n++) {
        const uint64_t gap = most - live;
        uint32_t chosen = UINT32_MAX;
        uint64_t chosen_above = 0;
        int64_t chosen_net = 0;
        for (uint32_t i = 0; i < o->acts; i++) {
            if (!is_ready(o, i))
                continue;
            const uint64_t above = o->size[i] > gap ? o->size[i] : 0;
            const int64_t net = (int64_t)o->size[i] - (int64_t)freed_by(o, i, left);
            if (chosen != UINT32_MAX &&
                (above > chosen_above || (above == chosen_above && net >= chosen_net)))
                continue;
            chosen = i;
            chosen_above = above;
            chosen_net = net;
        }
        live += o->size[chosen];
        most = live > most ? live : most;
        live -= freed_by(o, chosen, left);
        for (uint32_t r = 0; r < act(o, chosen)->reads.count; r++)
            left[act(o, chosen)->reads.of[r]]--;
        run(o, chosen, n);
    }
    free(left);
}

/* Whether i's predecessors ran earlier than k's, compared as sorted lists: the shorter list, where
 * one is the other's beginning, is the lesser. */
static bool ran_earlier(const struct ordering *o, uint32_t i, uint32_t k)
{
    const uint32_t *of_i = o->came + o->first_before[i], *of_k = o->came + o->first_before[k];
    const uint32_t *end_i = o->came + o->first_before[i + 1];
    const uint32_t *end_k = o->came + o->first_before[k + 1];
    while (of_i < end_i && of_k < end_k && *of_i == *of_k) {
        of_i++;
        of_k++;
    }
    return of_k < end_k && (of_i == end_i || *of_i < *of_k);
}

/* "topological_sort_bfs" */
static void earliest_first(struct ordering *o)
{
    start(o);
    for (uint32_t n = 0; n < o->acts; n++) {
        uint32_t chosen = UINT32_MAX;
        for (uint32_t i = 0; i < o->acts; i++)
            if (is_ready(o, i) && (chosen == UINT32_MAX || ran_earlier(o, i, chosen)))
                chosen = i;
        run(o, chosen, n);
    }
}

static uint64_t size_with_reads(const struct ordering *o, uint32_t index)
{
    uint64_t bytes = o->size[index];
    for (uint32_t r = 0; r < act(o, index)->reads.count; r++)
        bytes += o->bytes[act(o, index)->reads.of[r]];
    return bytes;
}

/* An act behind all that it depends on: of these, as of all, the smallest first, or (by_size false)
 * as the graph has them. */
static void visit(struct ordering *o, uint32_t index, bool by_size, uint32_t *done) // NOLINT
{
    for (;;) {
        uint32_t next = UINT32_MAX;
        for (uint32_t i = o->first_before[index]; i < o->first_before[index + 1]; i++) {
            const uint32_t k = o->before[i];
            if (o->place[k] == UINT32_MAX &&
                (next == UINT32_MAX ||
                 (by_size && size_with_reads(o, k) < size_with_reads(o, next))))
                next = k;
        }
        if (next == UINT32_MAX)
            break;
        visit(o, next, by_size, done);
    }
    o->place[index] = *done;
    o->order[(*done)++] = index;
}

/* "topological_sort_dfs", and the scheduler's own order. */
static void depth_first(struct ordering *o, bool by_size)
{
    uint32_t done = 0;
    memset(o->place, 0xff, o->acts * sizeof *o->place);
    while (done < o->acts) {
        uint32_t next = UINT32_MAX;
        for (uint32_t i = 0; i < o->acts; i++)
            if (o->place[i] == UINT32_MAX &&
                (next == UINT32_MAX ||
                 (by_size && size_with_reads(o, i) < size_with_reads(o, next))))
                next = i;
        visit(o, next, by_size, &done);
    }
}

/* ---- all of it ---- */

/* Who reads what whom wrote: `before` of each act, and with it `behind` of each. */
static void find_edges(struct ordering *o)
{
    uint32_t *writer = xmalloc((o->memories + 1) * sizeof *writer), count = 0, cap = 0;
    memset(writer, 0xff, (o->memories + 1) * sizeof *writer);
    for (uint32_t i = 0; i < o->acts; i++)
        for (uint32_t w = 0; w < act(o, i)->writes.count; w++)
            writer[act(o, i)->writes.of[w]] = i;
    o->first_before = xcalloc(o->acts + 1, sizeof *o->first_before);
    o->first_behind = xcalloc((size_t)o->acts + 2, sizeof *o->first_behind);
    for (uint32_t i = 0; i < o->acts; i++) {
        const uint32_t first = o->first_before[i] = count;
        for (uint32_t r = 0; r < act(o, i)->reads.count; r++) {
            const uint32_t by = writer[act(o, i)->reads.of[r]];
            uint32_t at = count; /* where it goes among those that are there */
            while (at > first && by != JOINT_NONE && o->before[at - 1] > by)
                at--;
            if (by == JOINT_NONE || by == i || (at > first && o->before[at - 1] == by))
                continue;
            ARRAY_GROW(o->before, count, cap);
            memmove(o->before + at + 1, o->before + at, (count++ - at) * sizeof *o->before);
            o->before[at] = by;
            o->first_behind[by + 2]++;
        }
    }
    o->first_before[o->acts] = count;
    o->came = xcalloc((size_t)count + 1, sizeof *o->came);
    o->behind = xcalloc((size_t)count + 1, sizeof *o->behind);
    for (uint32_t i = 2; i < o->acts + 2; i++)
        o->first_behind[i] += o->first_behind[i - 1];
    for (uint32_t i = 0; i < o->acts; i++) /* first_behind[k + 1] grows to be the end of k's */
        for (uint32_t k = o->first_before[i]; k < o->first_before[i + 1]; k++)
            o->behind[o->first_behind[o->before[k] + 1]++] = i;
    free(writer);
}

/* ---- views that are called ---- */

static bool is_complex(const struct building *b, uint32_t memory)
{
    return joint_at(b->joint, b->program->memory[memory].node)->dtype == DTYPE_COMPLEX64;
}

/* Whether an act reads a memory by way of such a view: products of complex numbers read real ones,
 * everything else but these reads complex ones; a copy reads a conjugate. */
static bool reads_view(const struct building *b, const struct draft *draft, uint32_t memory)
{
    const struct program_memory *m = &b->program->memory[memory];
    const struct joint_node *call =
        draft->call == JOINT_NONE ? NULL : joint_at(b->joint, draft->call);
    if (m->outside && joint_at(b->joint, m->node)->name != JOINT_INPUT)
        return false; /* saved, as it is shown */
    if (!call || call->dtype != DTYPE_COMPLEX64)
        return is_complex(b, memory);
    return call->name == JOINT_CLONE || !is_complex(b, memory);
}

static void add_step(struct ordering *o, struct step step)
{
    o->steps[o->acts++] = step;
}

/* The memory that the view of another is counted as, once; before its first reader. */
static uint32_t view_of(struct ordering *o, uint32_t *views, uint32_t memory)
{
    if (views[memory] != JOINT_NONE)
        return views[memory];
    views[memory] = o->memories++;
    struct step step = {.act = JOINT_NONE};
    list_add_once(&step.reads, memory);
    list_add_once(&step.writes, views[memory]);
    add_step(o, step);
    return views[memory];
}

/* A call with several results ("MultiOutputLayout") writes them as one, of which each that is asked
 * for is taken ("MultiOutput"): steps without bytes of their own. */
static void add_results(struct ordering *o, const struct draft *draft, struct step *call)
{
    const uint32_t all = o->memories++;
    list_add_once(&call->writes, all);
    add_step(o, *call);
    for (uint32_t w = 0; w < draft->writes.count; w++) {
        struct step step = {.act = JOINT_NONE, .is_result = true};
        if (!o->b->needed[o->b->program->memory[draft->writes.of[w]].node])
            continue;
        list_add_once(&step.reads, all);
        list_add_once(&step.writes, draft->writes.of[w]);
        add_step(o, step);
    }
}

static bool has_results(const struct building *b, const struct draft *draft)
{
    return draft->call != JOINT_NONE && joint_at(b->joint, draft->call)->name == JOINT_CALL_MANY;
}

/* All acts as steps, each behind the views that it is the first to read. */
static void add_steps(struct ordering *o)
{
    const struct building *b = o->b;
    const uint32_t memories = b->program->memory_count;
    uint32_t *views = xmalloc((memories + 1) * sizeof *views);
    memset(views, 0xff, (memories + 1) * sizeof *views);
    o->steps = xcalloc(b->act_count + 2UL * memories + 1, sizeof *o->steps);
    o->memories = memories;
    for (uint32_t i = 0; i < b->act_count; i++) {
        const struct draft *draft = &b->acts[i];
        struct step step = {.act = i};
        for (uint32_t r = 0; r < draft->reads.count; r++) {
            const uint32_t memory = draft->reads.of[r];
            list_add_once(&step.reads,
                          reads_view(b, draft, memory) ? view_of(o, views, memory) : memory);
        }
        if (has_results(b, draft)) {
            add_results(o, draft, &step);
            continue;
        }
        for (uint32_t w = 0; w < draft->writes.count; w++)
            list_add_once(&step.writes, draft->writes.of[w]);
        add_step(o, step);
    }
    free(views);
}

/* Bytes of a view: as many as of what it shows. */
static uint64_t view_bytes(const struct building *b, const struct step *view)
{
    return program_bytes(b->joint, b->program, view->reads.of[0]);
}

static void open_ordering(struct ordering *o, const struct building *b)
{
    *o = (struct ordering){.b = b, .best_peak = UINT64_MAX};
    add_steps(o);
    o->bytes = xcalloc(o->memories + 1, sizeof *o->bytes);
    o->readers = xcalloc(o->memories + 1, sizeof *o->readers);
    o->order = xcalloc(o->acts + 1, sizeof *o->order);
    o->best = xcalloc(o->acts + 1, sizeof *o->best);
    o->waits = xcalloc(o->acts + 1, sizeof *o->waits);
    o->place = xcalloc(o->acts + 1, sizeof *o->place);
    o->size = xcalloc(o->acts + 1, sizeof *o->size);
    o->inner = xcalloc(o->acts + 1, sizeof *o->inner);
    o->timeline = xcalloc(o->acts + 1, sizeof *o->timeline);
    o->best_timeline = xcalloc(o->acts + 1, sizeof *o->best_timeline);
    for (uint32_t m = 0; m < b->program->memory_count; m++)
        o->bytes[m] = freed_bytes(b, m);
    for (uint32_t i = 0; i < o->acts; i++) {
        const struct step *step = act(o, i);
        for (uint32_t r = 0; r < step->reads.count; r++)
            o->readers[step->reads.of[r]]++;
        if (step->is_result)
            continue;
        if (step->act == JOINT_NONE) {
            o->size[i] = o->bytes[step->writes.of[0]] = view_bytes(b, step);
            continue;
        }
        const struct draft *draft = &b->acts[step->act];
        for (uint32_t w = 0; w < draft->writes.count; w++)
            o->size[i] += born_bytes(b, draft->writes.of[w]);
        o->inner[i] = inner_bytes(b, draft);
        o->size[i] += o->inner[i];
    }
    find_edges(o);
}

/* Acts as they are in an order, and (unless NULL) at which steps. */
static void rearrange(struct building *b, const struct ordering *o, const uint32_t *order,
                      uint32_t *place)
{
    struct draft *acts = xcalloc(b->act_count + 1, sizeof *acts);
    uint32_t count = 0;
    for (uint32_t i = 0; i < o->acts; i++) {
        if (act(o, order[i])->act == JOINT_NONE)
            continue;
        if (place)
            place[count] = i;
        acts[count++] = b->acts[act(o, order[i])->act];
    }
    free(b->acts);
    b->acts = acts;
}

static void close_ordering(struct ordering *o)
{
    for (uint32_t i = 0; i < o->acts; i++) {
        free(o->steps[i].reads.of);
        free(o->steps[i].writes.of);
    }
    free(o->steps);
    free(o->bytes);
    free(o->readers);
    free(o->order);
    free(o->best);
    free(o->first_before);
    free(o->before);
    free(o->first_behind);
    free(o->behind);
    free(o->came);
    free(o->waits);
    free(o->place);
    free(o->size);
    free(o->inner);
    free(o->timeline);
}

struct estimate order_acts(struct building *b)
{
    struct ordering o;
    open_ordering(&o, b); /* between equals the scheduler's own order decides */
    depth_first(&o, false);
    rearrange(b, &o, o.order, NULL);
    free(o.best_timeline);
    close_ordering(&o);
    open_ordering(&o, b);
    for (uint32_t i = 0; i < o.acts; i++)
        o.order[i] = i;
    try_order(&o);
    least_memory_first(&o);
    try_order(&o);
    earliest_first(&o);
    try_order(&o);
    depth_first(&o, true);
    try_order(&o);
    struct estimate out = {.bytes = o.best_timeline, .steps = o.acts};
    out.at = xcalloc(b->act_count + 1, sizeof *out.at);
    rearrange(b, &o, o.best, out.at);
    close_ordering(&o);
    return out;
}
