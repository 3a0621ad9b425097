/* compare_time.c - what the recorded step spent its time on.
 *
 *     compute     |==mm==|      |==mm==|==mm==|
 *     all_gather      |===gather===|              communication |------------|
 *                                                 exposed           |--|
 *
 * Communication is the time in which at least one collective runs: two at once count once. It is
 * exposed where the compute lane does not work meanwhile. A collective that is itself on the
 * compute lane is communication, not work. The copies around collectives are neither. */
#include "compare/compare_parts.h"
#include "plan/profiled.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- intervals ---- */

#define CLOCK_S 0.5e-9 /* files keep nanoseconds: less than half of one is rounding */

static int by_begin(const void *a, const void *b)
{
    const struct compare_interval *x = a, *y = b;
    return (x->begin_s > y->begin_s) - (x->begin_s < y->begin_s);
}

uint32_t intervals_merge(struct compare_interval *intervals, uint32_t count)
{
    uint32_t kept = 0;
    qsort(intervals, count, sizeof *intervals, by_begin);
    for (uint32_t i = 0; i < count; i++) {
        if (kept && intervals[i].begin_s <= intervals[kept - 1].end_s + CLOCK_S)
            intervals[kept - 1].end_s = fmax(intervals[kept - 1].end_s, intervals[i].end_s);
        else
            intervals[kept++] = intervals[i];
    }
    return kept;
}

static double total(const struct compare_interval *intervals, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += intervals[i].end_s - intervals[i].begin_s;
    return sum;
}

/* What of `a` is in no interval of `b`, both merged. There are at most a + b such pieces. */
static uint32_t subtract(const struct compare_interval *a, uint32_t a_count,
                         const struct compare_interval *b, uint32_t b_count,
                         struct compare_interval *out)
{
    uint32_t count = 0, k = 0;
    for (uint32_t i = 0; i < a_count; i++) {
        double from = a[i].begin_s;
        while (k < b_count && b[k].end_s <= from)
            k++;
        for (uint32_t n = k; n < b_count && b[n].begin_s < a[i].end_s; n++) {
            if (b[n].begin_s > from)
                out[count++] = (struct compare_interval){from, b[n].begin_s};
            from = b[n].end_s;
        }
        if (from < a[i].end_s)
            out[count++] = (struct compare_interval){from, a[i].end_s};
    }
    return count;
}

static bool is_communication(const struct plan_instruction *instruction)
{
    return plan_op_is_collective((enum plan_op)instruction->op);
}

static bool is_compute(const struct plan_instruction *instruction)
{
    return instruction->lane == LANE_COMPUTE && !is_communication(instruction);
}

static uint32_t collect(const struct plan *plan, const struct compare_interval *spans,
                        bool (*wanted)(const struct plan_instruction *),
                        struct compare_interval *out)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (!isnan(spans[i].begin_s) && wanted(&plan->instructions[i]))
            out[count++] = spans[i];
    return intervals_merge(out, count);
}

void compare_overlap(const struct plan *plan, const struct compare_interval *spans,
                     struct arena *arena, struct compare_time *out)
{
    const size_t room = (size_t)plan->instruction_count + 1;
    struct compare_interval *work = arena_alloc(arena, room * sizeof *work);
    struct compare_interval *talk = arena_alloc(arena, room * sizeof *talk);
    struct compare_interval *exposed = arena_alloc(arena, 2 * room * sizeof *exposed);
    const uint32_t works = collect(plan, spans, is_compute, work);
    const uint32_t talks = collect(plan, spans, is_communication, talk);
    out->exposed_count = subtract(talk, talks, work, works, exposed);
    out->exposed = exposed;
    out->compute_s = total(work, works);
    out->communication_s = total(talk, talks);
    out->exposed_s = total(exposed, out->exposed_count);
}

/* ---- kinds ---- */

const char *compare_kind_of(const struct plan *plan, const struct plan_instruction *instruction)
{
    if (instruction->op == PLAN_COMPUTE || instruction->op == PLAN_OPTIMIZER)
        return plan->labels[plan_kernel(plan, instruction->arg)->label];
    return plan_op_name((enum plan_op)instruction->op);
}

struct kinds {
    struct compare_kind *items;
    uint32_t count, cap;
    uint32_t *of; /* (instruction_count) kind of each recorded kernel */
};

static uint32_t find_kind(struct kinds *kinds, const char *name)
{
    for (uint32_t k = 0; k < kinds->count; k++)
        if (strcmp(kinds->items[k].name, name) == 0)
            return k;
    ARRAY_GROW(kinds->items, kinds->count, kinds->cap);
    kinds->items[kinds->count] = (struct compare_kind){.name = name};
    return kinds->count++;
}

static double predicted_of(const json_t *time, uint32_t id)
{
    const json_t *value = json_array_get(json_object_get(time, "instruction_s"), id);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void add_span(const struct join *join, const json_t *time, struct kinds *kinds, uint32_t id)
{
    const uint32_t into = join->fused_into[id];
    const char *name = into ? join->names[into - 1] : NULL;
    if (name && strncmp(name, PLAN_PROFILED_COPY, sizeof PLAN_PROFILED_COPY - 1) == 0)
        name += sizeof PLAN_PROFILED_COPY - 1;
    const uint32_t k =
        find_kind(kinds, name ? name : compare_kind_of(join->plan, &join->plan->instructions[id]));
    struct compare_kind *kind = &kinds->items[k];
    if (into && into - 1 != id) { /* a part: predicted by itself, and nothing more */
        kind->predicted_s += predicted_of(time, id);
        return;
    }
    kinds->of[id] = k;
    kind->count++;
    kind->recorded_s += join->spans[id].end_s - join->spans[id].begin_s;
    kind->predicted_s += predicted_of(time, id);
}

/* Median and p90 need the durations of a kind side by side, sorted. */
static void add_quantiles(const struct join *join, struct kinds *kinds, double *durations)
{
    for (uint32_t k = 0; k < kinds->count; k++) {
        struct compare_kind *kind = &kinds->items[k];
        size_t n = 0;
        for (uint32_t i = 0; i < join->plan->instruction_count; i++)
            if (kinds->of[i] == k)
                durations[n++] = join->spans[i].end_s - join->spans[i].begin_s;
        gsl_sort(durations, 1, n);
        kind->median_s = gsl_stats_median_from_sorted_data(durations, 1, n);
        kind->p90_s = gsl_stats_quantile_from_sorted_data(durations, 1, n, 0.9);
    }
}

static int by_time(const void *a, const void *b)
{
    const struct compare_kind *x = a, *y = b;
    if (x->recorded_s != y->recorded_s)
        return x->recorded_s < y->recorded_s ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void sum_kinds(const struct join *join, const json_t *time, struct compare_time *out)
{
    const uint32_t instructions = join->plan->instruction_count;
    struct kinds kinds = {.of = arena_alloc(join->arena, instructions * sizeof *kinds.of)};
    for (uint32_t i = 0; i < instructions; i++) {
        kinds.of[i] = COMPARE_NONE;
        if (!isnan(join->spans[i].begin_s))
            add_span(join, time, &kinds, i);
    }
    add_quantiles(join, &kinds, arena_alloc(join->arena, (size_t)out->span_count * sizeof(double)));
    struct compare_kind *kept = arena_alloc(join->arena, kinds.count * sizeof *kept);
    if (kinds.count)
        memcpy(kept, kinds.items, kinds.count * sizeof *kept);
    qsort(kept, kinds.count, sizeof *kept, by_time);
    out->kinds = kept;
    out->kind_count = kinds.count;
    free(kinds.items);
}

/* ---- the step ---- */

/* Counts spans and moves them to the begin of the step. */
static enum err_code take_spans(const struct join *join, struct compare_time *out, struct err *err)
{
    double begin = INFINITY, end = -INFINITY;
    for (uint32_t i = 0; i < join->plan->instruction_count; i++) {
        if (!compare_runs(join->plan, i) ||
            !plan_op_is_kernel((enum plan_op)join->plan->instructions[i].op))
            continue;
        if (isnan(join->spans[i].begin_s)) {
            out->missing++;
            continue;
        }
        out->span_count++;
        begin = fmin(begin, join->spans[i].begin_s);
        end = fmax(end, join->spans[i].end_s);
    }
    if (out->span_count == 0)
        return err_set(err, ERR_INVALID, "no event carries the id of a kernel of the plan");
    for (uint32_t i = 0; i < join->plan->instruction_count; i++) {
        join->spans[i].begin_s -= begin;
        join->spans[i].end_s -= begin;
    }
    out->spans = join->spans;
    out->step_s = end - begin;
    return ERR_OK;
}

static double member(const json_t *time, const char *key)
{
    const json_t *value = json_object_get(time, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Kernels of the compute lane are measured each alone: what they take more, they wait for nobody.
 */
static void judge_steps(const struct join *join, const json_t *time, struct compare_time *out)
{
    struct busy_evidence evidence = {
        .steps = run_steps_read(join->trace),
        .step_s = out->predicted_step_s,
        .low_s = out->predicted_low_s,
        .high_s = out->predicted_high_s,
        .profile = out->profile,
        .device = trace_get_info(join->trace, "device"),
    };
    for (uint32_t i = 0; i < join->plan->instruction_count; i++) {
        const double predicted_s = predicted_of(time, i);
        if (isnan(join->spans[i].begin_s) || isnan(predicted_s) ||
            !is_compute(&join->plan->instructions[i]))
            continue;
        evidence.work_s += join->spans[i].end_s - join->spans[i].begin_s;
        evidence.work_measured_s += predicted_s;
    }
    out->steps = evidence.steps;
    out->busy = busy_of(&evidence);
}

enum err_code compare_time(const struct join *join, const json_t *time, struct compare_time *out,
                           struct err *err)
{
    *out = (struct compare_time){
        .predicted_step_s = member(time, "step_s"),
        .predicted_low_s = member(time, "step_low_s"),
        .predicted_high_s = member(time, "step_high_s"),
        .predicted_exposed_s = member(time, "exposed_communication_s"),
        .profile = json_string_value(json_object_get(time, "profile")),
    };
    TRY(take_spans(join, out, err));
    sum_kinds(join, time, out);
    compare_overlap(join->plan, join->spans, join->arena, out);
    judge_steps(join, time, out);
    compare_gaps(join->plan, join->spans, join->arena, &out->gaps, &out->gap_count);
    return ERR_OK;
}
