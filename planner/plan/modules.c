/* modules.c - see modules.h. */
#include "plan/modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct name { /* the first `length` bytes of text */
    const char *text;
    size_t length;
};

struct walk {
    const struct plan *plan;
    struct name *span;   /* (instructions) the innermost module that was entered */
    uint32_t *number;    /* (instructions) of its span: two of one name are two */
    struct name *anchor; /* (instructions) module of the parameter that is read; text NULL: none */
    struct name *name;   /* (instructions) the answer */
};

/* ---- what was entered ---- */

static void note_spans(const struct walk *w)
{
    const struct plan *plan = w->plan;
    struct name now = {"", 0};
    bool loss = false;
    uint32_t span = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        for (; span < plan->module_span_count && plan->module_spans[span].first == i; span++) {
            now =
                (struct name){plan->module_spans[span].name, strlen(plan->module_spans[span].name)};
            loss = loss && in->phase == PLAN_FORWARD;
        }
        if (in->op == PLAN_MARK)
            loss = in->arg == PLAN_MARK_AFTER_LOGITS || (loss && in->arg != PLAN_MARK_MICRO_BATCH);
        w->number[i] = span;
        const uint32_t unit = plan_scope_unit(plan, in);
        if (unit != PLAN_NO_UNIT) { /* gathered ahead, perhaps, of where the host is */
            w->span[i] = (struct name){plan->units[unit].name, strlen(plan->units[unit].name)};
            continue;
        }
        w->span[i] = in->phase == PLAN_STEP ? (struct name){"optimizer", 9}
                     : loss && !now.length  ? (struct name){"loss", 4}
                                            : now;
    }
}

/* ---- what parameters say ---- */

static bool is_within(struct name inner, struct name outer)
{
    return outer.length == 0 ||
           (inner.length >= outer.length && memcmp(inner.text, outer.text, outer.length) == 0 &&
            (inner.length == outer.length || inner.text[outer.length] == '.'));
}

static struct name module_of(const char *param)
{
    const char *dot = strrchr(param, '.');
    return (struct name){param, dot ? (size_t)(dot - param) : 0};
}

static bool is_kernel(const struct plan_instruction *in)
{
    return in->op == PLAN_COMPUTE && in->lane == LANE_COMPUTE;
}

static struct name anchor_of(const struct plan *plan, const struct plan_instruction *in,
                             struct name span)
{
    if (!is_kernel(in) || in->phase == PLAN_STEP)
        return (struct name){NULL, 0};
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    for (uint32_t i = 0; i < kernel->ins; i++) {
        const uint32_t place = kernel->operands[i].place;
        if ((place & PLACE_MASK) != PLACE_PARAM)
            continue;
        const struct name module = module_of(plan->params[place & ~PLACE_MASK].name);
        if (is_within(module, span))
            return module;
    }
    return (struct name){NULL, 0};
}

/* The module around both: whole components that they share. */
static struct name around(struct name x, struct name y)
{
    size_t shared = 0;
    for (size_t i = 0; i <= x.length && i <= y.length; i++) {
        const bool x_ends = i == x.length || x.text[i] == '.';
        const bool y_ends = i == y.length || y.text[i] == '.';
        if (x_ends && y_ends)
            shared = i;
        if (i == x.length || i == y.length || x.text[i] != y.text[i])
            break;
    }
    return (struct name){x.text, shared};
}

/* Kernels: those between anchors `before` and `after` of one span are of what is around both. */
static void name_between(const struct walk *w, uint32_t before, uint32_t after)
{
    const struct name both = around(w->anchor[before], w->anchor[after]);
    for (uint32_t i = before + 1; i < after; i++)
        if (is_within(both, w->span[i]))
            w->name[i] = both;
}

static void name_kernels(const struct walk *w)
{
    uint32_t before = UINT32_MAX;
    for (uint32_t i = 0; i < w->plan->instruction_count; i++) {
        w->name[i] = w->span[i];
        if (!w->anchor[i].text)
            continue;
        if (before != UINT32_MAX && w->number[before] == w->number[i])
            name_between(w, before, i);
        w->name[i] = w->anchor[i];
        before = i;
    }
}

/* ---- memory ---- */

static void name_allocs(const struct walk *w)
{
    uint32_t next = UINT32_MAX, before = UINT32_MAX;
    for (uint32_t i = w->plan->instruction_count; i-- > 0;) {
        const struct plan_instruction *in = &w->plan->instructions[i];
        if (is_kernel(in))
            next = i;
        else if (in->op == PLAN_ALLOC && next != UINT32_MAX && w->number[next] == w->number[i] &&
                 in->scope == 0)
            w->name[i] = w->name[next];
    }
    for (uint32_t i = 0; i < w->plan->instruction_count; i++) {
        const struct plan_instruction *in = &w->plan->instructions[i];
        if (is_kernel(in))
            before = i;
        else if (in->op == PLAN_FREE && before != UINT32_MAX && w->number[before] == w->number[i] &&
                 in->scope == 0)
            w->name[i] = w->name[before];
    }
}

/* ---- the whole ---- */

static struct walk walk_plan(const struct plan *plan)
{
    const size_t count = plan->instruction_count + 1;
    struct walk w = {
        .plan = plan,
        .span = xmalloc(count * sizeof *w.span),
        .number = xmalloc(count * sizeof *w.number),
        .anchor = xmalloc(count * sizeof *w.anchor),
        .name = xmalloc(count * sizeof *w.name),
    };
    note_spans(&w);
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        w.anchor[i] = anchor_of(plan, &plan->instructions[i], w.span[i]);
    name_kernels(&w);
    name_allocs(&w);
    return w;
}

static void free_walk(struct walk *w)
{
    free(w->span);
    free(w->number);
    free(w->anchor);
    free(w->name);
}

static const char *copied(struct name name, struct arena *arena)
{
    char *text = arena_alloc(arena, name.length + 1);
    memcpy(text, name.text, name.length);
    return text; /* the arena's memory is zero */
}

/* A file's spans, each instruction's own. */
static const char **known_names(const struct plan *plan, struct arena *arena)
{
    const char **names = arena_alloc(arena, (plan->instruction_count + 1) * sizeof *names);
    const char *now = "";
    uint32_t span = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        for (; span < plan->module_span_count && plan->module_spans[span].first <= i; span++)
            now = plan->module_spans[span].name;
        names[i] = now;
    }
    return names;
}

const char **plan_module_names(const struct plan *plan, struct arena *arena)
{
    if (plan->modules_known)
        return known_names(plan, arena);
    struct walk w = walk_plan(plan);
    const char **names = arena_alloc(arena, (plan->instruction_count + 1) * sizeof *names);
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const bool same = i > 0 && w.name[i].length == w.name[i - 1].length &&
                          memcmp(w.name[i].text, w.name[i - 1].text, w.name[i].length) == 0;
        names[i] = same ? names[i - 1] : copied(w.name[i], arena);
    }
    free_walk(&w);
    return names;
}

const char *plan_module_text(const struct plan *plan, uint32_t instruction, char *text, size_t size)
{
    if (plan->modules_known) {
        struct arena arena = {0};
        snprintf(text, size, "%s", known_names(plan, &arena)[instruction]);
        arena_free(&arena);
        return text;
    }
    struct walk w = walk_plan(plan);
    snprintf(text, size, "%.*s", (int)w.name[instruction].length, w.name[instruction].text);
    free_walk(&w);
    return text;
}
