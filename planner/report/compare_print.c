/* compare_print.c - see compare_print.h. The object for programs is in compare_json.c. */
#include "report/compare_print.h"

#include "report/style.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KINDS_SHOWN = 16, GAPS_SHOWN = 5, BAR = 24, NAME = 34 };

/* ---- words and numbers ---- */

const char *compare_what(const struct plan *plan, uint32_t instruction, char *text, size_t size)
{
    char what[160], scope[256];
    if (instruction == COMPARE_NONE) {
        snprintf(text, size, "the host");
        return text;
    }
    const struct plan_instruction *i = &plan->instructions[instruction];
    const char *op = plan_op_name((enum plan_op)i->op);
    plan_scope_text(plan, i, scope, sizeof scope);
    if (i->op == PLAN_ALLOC || i->op == PLAN_FREE || i->op == PLAN_USE)
        snprintf(text, size, "%s of %s, in %s", op,
                 plan_buffer_text(plan, &plan->buffers[i->arg], what, sizeof what), scope);
    else if (i->op == PLAN_MARK)
        snprintf(text, size, "mark %s", plan_mark_name((enum plan_mark)i->arg));
    else if (i->op == PLAN_COMPUTE || i->op == PLAN_OPTIMIZER)
        snprintf(text, size, "%s, in %s", plan->labels[plan_kernel(plan, i->arg)->label], scope);
    else
        snprintf(text, size, "%s, in %s", op, scope);
    return text;
}

const char *compare_seconds(double seconds, char text[32])
{
    static const struct {
        double least, factor;
        const char *unit;
    } units[] = {{1.0, 1.0, "s"}, {1e-3, 1e3, "ms"}, {0, 1e6, "us"}};
    if (isnan(seconds)) {
        snprintf(text, 32, "-");
        return text;
    }
    int u = 0;
    while (fabs(seconds) < units[u].least)
        u++;
    const double value = seconds * units[u].factor;
    snprintf(text, 32, "%.*f %s",
             fabs(value) < 10    ? 2
             : fabs(value) < 100 ? 1
                                 : 0,
             value, units[u].unit);
    return text;
}

/* Predicted over recorded, as "+3.2 %". */
static const char *error_text(double predicted, double recorded, char text[32])
{
    if (isnan(predicted) || recorded <= 0)
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, "%+.1f %%", 100.0 * (predicted / recorded - 1.0));
    return text;
}

/* ---- memory ---- */

static const char *const quantity_names[COMPARE_QUANTITIES] = {"allocated", "reserved"};

static void print_peak(FILE *file, const struct style *s, const char *name,
                       const struct compare_difference *d)
{
    char predicted[32], recorded[32];
    fprintf(file, "  %-24s %18s %18s   ", name, style_grouped(d->predicted_peak, predicted),
            style_grouped(d->recorded_peak, recorded));
    if (d->points)
        fprintf(file, "%sdiffers at %" PRIu32 "%s\n", s->bad, d->points, s->off);
    else
        fprintf(file, "%sequal%s\n", s->good, s->off);
}

static void print_place(FILE *file, const struct plan *plan, const char *label, uint32_t id)
{
    char what[512];
    fprintf(file, "    %-8s %6" PRIu32 "  %s\n", label, id,
            compare_what(plan, id, what, sizeof what));
}

static void print_difference(FILE *file, const struct plan *plan, const char *name,
                             const struct compare_difference *d)
{
    char bytes[32];
    if (d->points == 0)
        return;
    fprintf(file, "  %s: up to %s bytes too %s predicted\n", name,
            style_grouped((uint64_t)llabs(d->largest_bytes), bytes),
            d->largest_bytes > 0 ? "many" : "few");
    if (d->first != d->largest)
        print_place(file, plan, "first at", d->first);
    print_place(file, plan, d->points > 1 ? "most at" : "at", d->largest);
}

static void print_memory(FILE *file, const struct style *s, const struct plan *plan,
                         const struct compare_memory *m)
{
    char points[32], count[32];
    fprintf(file, "  %s%-24s %18s %18s%s\n", s->dim, "bytes", "predicted", "recorded", s->off);
    print_peak(file, s, "allocated, peak", &m->of[COMPARE_ALLOCATED]);
    print_peak(file, s, "reserved, peak", &m->of[COMPARE_RESERVED]);
    fputc('\n', file);
    style_grouped(m->point_count, points);
    if (m->differing == 0 && m->missing == 0)
        fprintf(file, "  %smemory is equal%s to the byte at all %s allocs, frees and marks\n",
                s->good, s->off, points);
    if (m->differing)
        fprintf(file, "  %smemory differs%s at %s of %s allocs, frees and marks%s\n", s->bad,
                s->off, style_grouped(m->differing, count), points,
                m->differing == m->point_count
                    ? ": at all of them: is the trace this plan's (its --seq, its "
                      "batch)?"
                    : "");
    if (m->missing)
        fprintf(file, "  %smemory was not recorded%s at %s of %s allocs, frees and marks\n", s->bad,
                s->off, style_grouped(m->missing, count), points);
    for (int q = 0; q < COMPARE_QUANTITIES; q++)
        print_difference(file, plan, quantity_names[q], &m->of[q]);
}

/* ---- time ---- */

/* Of long names the end tells them apart: "..dot_product_flash_attention_backward". */
static const char *short_name(const char *name, char text[NAME + 1])
{
    const size_t length = strlen(name);
    if (length <= NAME)
        return name;
    snprintf(text, NAME + 1, "..%s", name + length - (NAME - 2));
    return text;
}

static void print_kind(FILE *file, const struct compare_kind *kind, double most)
{
    char name[NAME + 1], predicted[32], recorded[32], median[32], p90[32], off[32];
    fprintf(file, "  %-34s %6" PRIu32 " %10s %10s %10s %10s %9s", short_name(kind->name, name),
            kind->count, compare_seconds(kind->predicted_s, predicted),
            compare_seconds(kind->recorded_s, recorded), compare_seconds(kind->median_s, median),
            compare_seconds(kind->p90_s, p90),
            error_text(kind->predicted_s, kind->recorded_s, off));
    style_bar(file, most > 0 ? kind->recorded_s / most : 0, BAR);
    fputc('\n', file);
}

static void print_kinds(FILE *file, const struct style *s, const struct compare_time *t)
{
    char rest_text[32];
    double rest = 0;
    fprintf(file, "\n  %s%-34s %6s %10s %10s %10s %10s %9s%s\n", s->dim, "time by kind", "count",
            "predicted", "recorded", "median", "p90", "error", s->off);
    for (uint32_t k = 0; k < t->kind_count; k++) {
        if (k < KINDS_SHOWN)
            print_kind(file, &t->kinds[k], t->kinds[0].recorded_s);
        else
            rest += t->kinds[k].recorded_s;
    }
    if (t->kind_count > KINDS_SHOWN)
        fprintf(file, "  %s%-34s %6s %10s %10s%s\n", s->dim, "the rest", "", "",
                compare_seconds(rest, rest_text), s->off);
}

static void print_total(FILE *file, const char *name, double predicted, double recorded)
{
    char a[32], b[32], off[32];
    fprintf(file, "  %-34s %6s %10s %10s %21s %9s", name, "", compare_seconds(predicted, a),
            compare_seconds(recorded, b), "", error_text(predicted, recorded, off));
}

/* The median of the steps that were not recorded, and whether something else ran beside them. */
static void print_steps(FILE *file, const struct style *s, const struct compare_time *t)
{
    static const char *const said[] = {
        [BUSY_NOW] = "this machine is busy",
        [BUSY_AT_CALIBRATION] = "this machine was busy while it was calibrated",
    };
    char name[40];
    if (t->steps.count == 0)
        return;
    snprintf(name, sizeof name, "step, median of %" PRIu32, t->steps.count);
    fputs(s->bold, file);
    print_total(file, name, t->predicted_step_s, t->steps.median_s);
    fprintf(file, "%s  +- %.0f %%\n", s->off, 100 * t->steps.spread);
    if (t->busy != BUSY_NO)
        fprintf(file,
                "  %s%s%s: calibration and run disagree by more than their spreads, kernels each "
                "alone, too\n",
                s->bad, said[t->busy], s->off);
}

/* What the prediction leaves open: where that is much, a hit or a miss says little. */
static void print_range(FILE *file, const struct compare_time *t)
{
    const double step_s = t->steps.count ? t->steps.median_s : t->step_s;
    char low[32], high[32];
    if (isnan(t->predicted_low_s) || isnan(t->predicted_high_s))
        return;
    fprintf(file, "  %-34s %s to %s: the %s is %s\n", "  predicted range",
            compare_seconds(t->predicted_low_s, low), compare_seconds(t->predicted_high_s, high),
            t->steps.count ? "median" : "step",
            step_s < t->predicted_low_s || step_s > t->predicted_high_s ? "outside" : "inside");
}

static void print_totals(FILE *file, const struct style *s, const struct compare_time *t)
{
    char busy[32];
    fputc('\n', file);
    fputs(s->bold, file);
    print_total(file, t->steps.count ? "the recorded step" : "step", t->predicted_step_s,
                t->step_s);
    fprintf(file, "%s\n", s->off);
    print_steps(file, s, t);
    print_range(file, t);
    print_total(file, "compute lane busy", NAN, t->compute_s);
    fprintf(file, "  %.1f %% of the step\n", t->step_s > 0 ? 100 * t->compute_s / t->step_s : 0.0);
    print_total(file, "exposed communication", t->predicted_exposed_s, t->exposed_s);
    if (t->communication_s > 0)
        fprintf(file, "  of %s, %.1f %% overlapped\n", compare_seconds(t->communication_s, busy),
                100 * (1 - t->exposed_s / t->communication_s));
    else
        fputs("  no communication\n", file);
    if (t->missing)
        fprintf(file, "  %s%" PRIu32 " of %" PRIu32 " kernels were not recorded%s\n", s->bad,
                t->missing, t->missing + t->span_count, s->off);
    if (t->profile)
        fprintf(file, "  %stimes were predicted for %s%s\n", s->dim, t->profile, s->off);
}

static void print_gaps(FILE *file, const struct style *s, const struct plan *plan,
                       const struct compare_time *t)
{
    char what[512], text[32];
    if (t->gap_count == 0)
        return;
    fprintf(file, "\n  %scompute stood still longest%s\n", s->dim, s->off);
    for (uint32_t i = 0; i < t->gap_count && i < GAPS_SHOWN; i++) {
        const struct compare_gap *gap = &t->gaps[i];
        fprintf(file, "  %10s  before %" PRIu32 " %s\n",
                compare_seconds(gap->when.end_s - gap->when.begin_s, text), gap->next,
                compare_what(plan, gap->next, what, sizeof what));
        fprintf(file, "  %10s  %sfor ", "", s->dim);
        if (gap->waited_for != COMPARE_NONE)
            fprintf(file, "%" PRIu32 " ", gap->waited_for);
        fprintf(file, "%s%s\n", compare_what(plan, gap->waited_for, what, sizeof what), s->off);
    }
}

/* ---- all ---- */

static void print_title(FILE *file, const struct style *s, const struct plan *plan,
                        const struct comparison *c)
{
    char number[32];
    fprintf(file, "%spredicted beside recorded%s: rank %" PRIu32 " of %" PRIu32, s->bold, s->off,
            c->rank, plan->world);
    if (c->rank != plan->rank)
        fprintf(file, " (the plan is rank %" PRIu32 "'s)", plan->rank);
    if (c->step)
        fprintf(file, ", step %s", c->step);
    fprintf(file, ", %s instructions\n\n", style_grouped(plan->instruction_count, number));
}

void compare_print(FILE *file, const struct plan *plan, const struct comparison *comparison,
                   const struct compare_verdict *verdict)
{
    const struct style s = style_of(file);
    print_title(file, &s, plan, comparison);
    print_memory(file, &s, plan, &comparison->memory);
    print_kinds(file, &s, &comparison->time);
    print_totals(file, &s, &comparison->time);
    if (comparison->kernels)
        fprintf(file, "  %skernels were %s%s\n", s.dim, comparison->kernels, s.off);
    print_gaps(file, &s, plan, &comparison->time);
    if (verdict->time_checked)
        fprintf(file, "\n  %sstep time is %s%s %g %% of the recorded one\n",
                verdict->time_within ? s.good : s.bad,
                verdict->time_within ? "within" : "not within", s.off, verdict->tolerance_percent);
}
