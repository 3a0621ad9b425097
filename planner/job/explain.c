/* explain.c - see explain.h. */
#include "job/explain.h"

#include "job/blame.h"
#include "job/tweak.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- kernels that are alike ---- */

/* What is common to them: an instruction that stands for all, and texts made of it. */
struct alike {
    struct explained_kernel shown;
    uint32_t instruction; /* UINT32_MAX: the end of the step */
};

struct builder {
    const struct plan *plan;
    const struct step_time *time;
    struct alike *of; /* (count) */
    uint32_t count, cap;
};

static void put_operands(FILE *to, const struct operand *operands, uint32_t count)
{
    for (uint32_t i = 0; i < count && i < 4; i++) { /* a foreach has hundreds */
        const struct shape *shape = &operands[i].shape;
        fputs(i ? " " : "", to);
        for (uint32_t d = 0; d < shape->rank; d++)
            fprintf(to, d ? "x%u" : "%u", shape->dim[d]);
        fputs(shape->rank ? "" : "scalar", to);
    }
    if (count > 4)
        fprintf(to, " and %u more", count - 4);
}

static char *shape_of(const struct plan *plan, const struct plan_instruction *in)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    if (plan_op_is_collective((enum plan_op)in->op)) {
        const double mib = kernel->bytes / 1048576;
        fprintf(to, mib >= 1024 ? "%.2f GiB" : "%.3g MiB", mib >= 1024 ? mib / 1024 : mib);
        if (in->group != PLAN_NO_GROUP)
            fprintf(to, " among %u ranks", plan->groups[in->group].ranks);
    } else {
        put_operands(to, kernel->operands, kernel->ins ? kernel->ins : kernel->outs);
        if (kernel->ins + kernel->outs)
            fprintf(to, " %s", dtype_brief((enum dtype)kernel->operands[0].dtype));
    }
    fclose(to);
    return text;
}

static char *name_of(const struct plan *plan, const struct plan_instruction *in)
{
    static const char *const passes[] = {"", ", backward", ""};
    char name[160];
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    const bool by_label = in->op == PLAN_COMPUTE || in->op == PLAN_OPTIMIZER;
    snprintf(name, sizeof name, "%s%s",
             by_label ? plan->labels[kernel->label] : plan_op_name((enum plan_op)in->op),
             kernel->recomputed ? ", recomputed" : passes[in->phase]);
    const size_t size = strlen(name) + 1;
    return memcpy(xmalloc(size), name, size);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Kernels of a plan that are one entry of its table are alike; so are those of the same texts. */
static struct alike *alike_of(struct builder *b, const struct blame *blame)
{
    const bool none = blame->task == UINT32_MAX;
    const uint32_t id =
        none ? UINT32_MAX : simulation_instruction(b->time->simulation, blame->task);
    const struct plan_instruction *in = none ? NULL : &b->plan->instructions[id];
    char *name = none ? NULL : name_of(b->plan, in), *shape = none ? NULL : shape_of(b->plan, in);
    for (uint32_t i = 0; i < b->count; i++) {
        struct explained_kernel *k = &b->of[i].shown;
        if (k->spent == blame->spent && same_text(k->name, name) && same_text(k->shape, shape)) {
            free(name);
            free(shape);
            return &b->of[i];
        }
    }
    ARRAY_GROW(b->of, b->count, b->cap);
    b->of[b->count] = (struct alike){.instruction = id};
    b->of[b->count].shown =
        (struct explained_kernel){.spent = blame->spent, .name = name, .shape = shape};
    return &b->of[b->count++];
}

static void add_blame(struct builder *b, const struct blame *blame)
{
    struct alike *alike = alike_of(b, blame);
    const struct costs *costs = &b->time->costs;
    alike->shown.seconds += blame->seconds;
    alike->shown.count++;
    if (alike->instruction != UINT32_MAX)
        alike->shown.alone_s =
            costs->kernels[b->plan->instructions[alike->instruction].arg].device_s;
}

static int by_seconds(const void *x, const void *y)
{
    const struct explained_kernel *a = &((const struct alike *)x)->shown;
    const struct explained_kernel *b = &((const struct alike *)y)->shown;
    if (a->spent != b->spent)
        return a->spent < b->spent ? -1 : 1;
    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

/* ---- what they rest on ---- */

/* What decides an entry's seconds, of those that a number of the profile may change. */
static double decisive(const struct alike *alike, const struct plan *plan,
                       const struct costs *costs)
{
    if (alike->shown.spent == SPENT_RANKS)
        return costs->slowest.factor - 1;
    if (alike->instruction == UINT32_MAX)
        return 0;
    const struct cost *cost = &costs->kernels[plan->instructions[alike->instruction].arg];
    return alike->shown.spent == SPENT_HOST && cost->class != COST_HOST ? cost->host_s
                                                                        : cost->device_s;
}

struct effect {
    uint32_t number;
    double size;
};

/* Keeps the largest, in order. */
static void note_effect(struct effect effects[EXPLAINED_NUMBERS], uint32_t *count,
                        struct effect effect)
{
    if (*count == EXPLAINED_NUMBERS && effects[EXPLAINED_NUMBERS - 1].size >= effect.size)
        return;
    uint32_t at = *count < EXPLAINED_NUMBERS ? (*count)++ : EXPLAINED_NUMBERS - 1;
    for (; at > 0 && effects[at - 1].size < effect.size; at--)
        effects[at] = effects[at - 1];
    effects[at] = effect;
}

/* Below this a change of a time is rounding. */
#define NOTHING 1e-6

static enum err_code try_numbers(struct tweaks *tweaks, struct builder *b,
                                 const struct prediction *prediction, const struct machine *machine,
                                 struct explanation *out, struct err *err)
{
    struct effect(*effects)[EXPLAINED_NUMBERS] = xcalloc(b->count + 1, sizeof *effects);
    const struct costs *usual = &b->time->costs;
    enum err_code rc = ERR_OK;
    out->numbers = xmalloc((tweaks->count + 1) * sizeof *out->numbers);
    for (uint32_t n = 0; n < tweaks->count && rc == ERR_OK; n++) {
        struct costs costs;
        struct explained_number number = tweaks->of[n].number;
        double step_s = 0;
        number.change = tweak_apply(&tweaks->of[n]);
        rc = step_time_with(prediction, &tweaks->profile, machine->gpus_per_node, &costs, &step_s,
                            err);
        tweak_undo(&tweaks->of[n]);
        if (rc != ERR_OK)
            break;
        number.step_change = step_s / out->step_s - 1;
        number.uncertainty = fabs(number.step_change / number.change) * number.spread;
        for (uint32_t i = 0; i < b->count; i++) {
            struct explained_kernel *k = &b->of[i].shown;
            const double was = decisive(&b->of[i], b->plan, usual);
            const double size = was > 0 ? fabs(decisive(&b->of[i], b->plan, &costs) / was - 1) : 0;
            if (size > NOTHING)
                note_effect(effects[i], &k->number_count, (struct effect){out->number_count, size});
        }
        costs_free(&costs);
        out->numbers[out->number_count++] = number;
    }
    for (uint32_t i = 0; i < b->count; i++)
        for (uint32_t e = 0; e < b->of[i].shown.number_count; e++)
            b->of[i].shown.numbers[e] = effects[i][e].number;
    free(effects);
    return rc;
}

/* ---- order ---- */

struct ranked {
    struct explained_number number;
    uint32_t was;
};

static int by_change(const void *x, const void *y)
{
    const struct explained_number *a = &((const struct ranked *)x)->number;
    const struct explained_number *b = &((const struct ranked *)y)->number;
    const double change_a = fabs(a->step_change), change_b = fabs(b->step_change);
    if (change_a != change_b)
        return change_a < change_b ? 1 : -1;
    return strcmp(a->name, b->name);
}

/* Puts numbers in order and leaves out those that change nothing; kernels' indices follow. */
static void order_numbers(struct explanation *e)
{
    struct ranked *ranked = xmalloc((e->number_count + 1) * sizeof *ranked);
    uint32_t *place = xmalloc((e->number_count + 1) * sizeof *place), kept = 0;
    for (uint32_t i = 0; i < e->number_count; i++)
        ranked[i] = (struct ranked){e->numbers[i], i};
    qsort(ranked, e->number_count, sizeof *ranked, by_change);
    for (uint32_t i = 0; i < e->number_count; i++) {
        const bool counts = fabs(ranked[i].number.step_change) > NOTHING;
        place[ranked[i].was] = counts ? kept : UINT32_MAX;
        if (counts)
            e->numbers[kept++] = ranked[i].number;
    }
    e->number_count = kept;
    for (uint32_t k = 0; k < e->kernel_count; k++) {
        struct explained_kernel *kernel = &e->kernels[k];
        uint32_t count = 0;
        for (uint32_t i = 0; i < kernel->number_count; i++)
            if (place[kernel->numbers[i]] != UINT32_MAX)
                kernel->numbers[count++] = place[kernel->numbers[i]];
        kernel->number_count = count;
    }
    free(ranked);
    free(place);
}

enum err_code explain(const struct prediction *prediction, const struct machine *machine,
                      const struct step_time *time, struct explanation *out, struct err *err)
{
    struct builder b = {.plan = prediction->plan, .time = time};
    uint32_t count;
    *out = (struct explanation){.step_s = time->timeline.step_s};
    memcpy(out->spent_s, time->timeline.spent_s, sizeof out->spent_s);
    struct blame *blames = blame_step(prediction->plan, time, &count);
    for (uint32_t i = 0; i < count; i++)
        add_blame(&b, &blames[i]);
    free(blames);
    if (b.count)
        qsort(b.of, b.count, sizeof *b.of, by_seconds);
    struct tweaks tweaks;
    tweaks_init(&tweaks, &machine->profile);
    const enum err_code rc = try_numbers(&tweaks, &b, prediction, machine, out, err);
    tweaks_free(&tweaks);
    out->kernels = xmalloc((b.count + 1) * sizeof *out->kernels);
    out->kernel_count = b.count;
    for (uint32_t i = 0; i < b.count; i++)
        out->kernels[i] = b.of[i].shown;
    free(b.of);
    if (rc == ERR_OK)
        order_numbers(out);
    else
        explanation_free(out);
    return rc;
}

void explanation_free(struct explanation *e)
{
    for (uint32_t i = 0; i < e->kernel_count; i++) {
        free(e->kernels[i].name);
        free(e->kernels[i].shape);
    }
    free(e->kernels);
    free(e->numbers);
    *e = (struct explanation){0};
}
