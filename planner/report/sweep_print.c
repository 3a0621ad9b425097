/* sweep_print.c - see sweep_report.h. */
#include "report/compare_print.h"
#include "report/palette.h"
#include "report/result.h"
#include "report/style.h"
#include "report/sweep_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BAR = 12, CELL = 10 };

static double gib(uint64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* ---- rows and measures ---- */

uint32_t sweep_rows(const struct sweep *sweep, const struct sweep_question *q)
{
    return q->searches && !q->axis_count ? sweep->turn.near_count : sweep->count;
}

struct sweep_row sweep_row(const struct sweep *sweep, const struct sweep_question *q, uint32_t i)
{
    if (q->searches && !q->axis_count) {
        const struct turn_trial *trial = &sweep->turn.trials[sweep->turn.near[i]];
        return (struct sweep_row){trial->value, &trial->point};
    }
    return (struct sweep_row){q->axes[0].values[sweep_index(q, i, 0)], &sweep->points[i].point};
}

uint32_t sweep_marked(const struct sweep *sweep, const struct sweep_question *q)
{
    const struct turn *t = &sweep->turn;
    if (!q->searches || q->axis_count)
        return sweep->best;
    for (uint32_t i = 0; i < t->near_count; i++)
        if (t->near[i] == t->answer)
            return i;
    return SWEEP_NONE;
}

const char *sweep_measure_title(enum point_measure measure)
{
    static const char *const titles[MEASURE_COUNT] = {
        [MEASURE_TOKENS] = "tokens/s of a GPU",
        [MEASURE_STEP] = "step, ms",
        [MEASURE_MFU] = "MFU, %",
        [MEASURE_EXPOSED] = "exposed communication, ms",
        [MEASURE_DEVICE] = "device, GiB",
        [MEASURE_RESERVED] = "reserved, GiB",
        [MEASURE_REQUESTED] = "requested, GiB",
    };
    return titles[measure];
}

double sweep_measure_value(const struct point *point, enum point_measure measure)
{
    static const double factors[MEASURE_COUNT] = {
        [MEASURE_TOKENS] = 1,
        [MEASURE_STEP] = 1e3,
        [MEASURE_MFU] = 100,
        [MEASURE_EXPOSED] = 1e3,
        [MEASURE_DEVICE] = 1 / 1073741824.0,
        [MEASURE_RESERVED] = 1 / 1073741824.0,
        [MEASURE_REQUESTED] = 1 / 1073741824.0,
    };
    return factors[measure] * point_value(point, measure);
}

static double most_of(const struct sweep *sweep, const struct sweep_question *q,
                      enum point_measure measure)
{
    double most = 0;
    for (uint32_t i = 0; i < sweep_rows(sweep, q); i++)
        most = fmax(most, point_value(sweep_row(sweep, q, i).point, measure));
    return most;
}

/* ---- the title ---- */

/* The arguments that are not the question's own, and the question. */
static void print_title(FILE *file, const struct style *s, const struct sweep_question *q)
{
    char given[1024];
    fprintf(file, "%s%s%s\n", s->bold, settings_given_text(q->base, given, sizeof given), s->off);
    if (q->searches)
        fprintf(file, "%s %s that fits%s", q->kind == TURN_LARGEST ? "largest" : "fewest",
                q->along.name, q->axis_count ? ", " : "");
    for (uint32_t i = 0; i < q->axis_count; i++)
        fprintf(file, "%s%s", i ? " and " : "over ", q->axes[i].name);
    fputs("\n\n", file);
}

static bool any_after_release(const struct sweep *sweep, const struct sweep_question *q)
{
    for (uint32_t i = 0; i < sweep_rows(sweep, q); i++)
        if (sweep_row(sweep, q, i).point->after_release)
            return true;
    return false;
}

/* ---- tables ---- */

struct columns {
    int value, found; /* widths; found 0: there is no such column */
};

static int width_of(const char *text, int width)
{
    const int length = (int)strlen(text);
    return length > width ? length : width;
}

static struct columns columns_of(const struct sweep *sweep, const struct sweep_question *q)
{
    const char *name = q->axis_count ? q->axes[0].name : q->along.name;
    struct columns c = {width_of(name, 8), 0};
    for (uint32_t i = 0; i < sweep_rows(sweep, q); i++) {
        c.value = width_of(sweep_row(sweep, q, i).value, c.value);
        if (q->searches && q->axis_count)
            c.found = width_of(sweep->points[i].found, width_of(q->along.name, c.found));
    }
    return c;
}

static void print_head(FILE *file, const struct style *s, const struct sweep_question *q,
                       struct columns c)
{
    fprintf(file, "  %s%-*s", s->dim, c.value, q->axis_count ? q->axes[0].name : q->along.name);
    if (c.found)
        fprintf(file, "  %*s", c.found, q->along.name);
    fprintf(file, "  fits  %9s %9s %9s  %9s %9s %6s %9s%s\n", "device", "requested", "reserved",
            "step", "tokens/s", "MFU", "exposed", s->off);
    fprintf(file, "  %s%-*s", s->dim, c.value + (c.found ? c.found + 2 : 0), "");
    fprintf(file, "        %9s %9s %9s  %9s %9s%s\n", "GiB", "GiB", "GiB", "", "a GPU", s->off);
}

static const char *fits_text(const struct point *p)
{
    return p->verdict == POINT_REFUSED ? "-"
           : p->verdict == POINT_FITS  ? (p->after_release ? "yes*" : "yes")
           : p->fits_gpu               ? "host"
                                       : "no";
}

static void print_numbers(FILE *file, const struct point *p)
{
    char step[32], exposed[32], tokens[32];
    fprintf(file, "  %9.2f %9.2f %9.2f  %9s %9s %5.1f%% %9s", gib(p->device_bytes),
            gib(p->requested_bytes), gib(p->reserved_bytes), compare_seconds(p->step_s, step),
            style_grouped((uint64_t)(p->tokens_per_s + 0.5), tokens), 100 * p->mfu,
            compare_seconds(p->exposed_s, exposed));
}

static void print_row(FILE *file, const struct style *s, const struct sweep *sweep,
                      const struct sweep_question *q, struct columns c, uint32_t i, double most)
{
    const struct sweep_row row = sweep_row(sweep, q, i);
    const struct point *p = row.point;
    const bool marked =
        i == sweep_marked(sweep, q) && (q->searches || (!sweep->same_step && sweep->fits > 1));
    const enum point_measure show = (enum point_measure)q->base->sweep.show;
    fprintf(file, "  %s%-*s%s", marked ? s->bold : "", c.value, row.value, s->off);
    if (c.found)
        fprintf(file, "  %*s", c.found, sweep->points[i].found[0] ? sweep->points[i].found : "-");
    fprintf(file, "  %s%-4s%s", p->verdict == POINT_FITS ? s->good : s->bad, fits_text(p), s->off);
    if (p->verdict == POINT_REFUSED) {
        fprintf(file, "  refused: %s\n", p->reason);
        return;
    }
    print_numbers(file, p);
    style_bar(file, most > 0 ? point_value(p, show) / most : 0, BAR);
    if (marked)
        fprintf(file, " %s%s%s", s->good, q->searches && !q->axis_count ? "answer" : "best",
                s->off);
    fputc('\n', file);
}

static bool has_float8(const struct sweep_question *q)
{
    bool varied = false;
    for (uint32_t i = 0; i < q->axis_count; i++)
        varied = varied || strcmp(q->axes[i].name, "float8") == 0;
    return varied || q->base->job.model.float8 != FLOAT8_NONE;
}

static void print_table(FILE *file, const struct style *s, const struct sweep *sweep,
                        const struct sweep_question *q)
{
    const struct columns c = columns_of(sweep, q);
    const double most = most_of(sweep, q, (enum point_measure)q->base->sweep.show);
    print_head(file, s, q, c);
    for (uint32_t i = 0; i < sweep_rows(sweep, q); i++)
        print_row(file, s, sweep, q, c, i, most);
    if (has_float8(q))
        fputs("\n  MFU: of the peak of what products return (bf16), which those in float8 go "
              "beyond\n",
              file);
}

/* ---- heat maps ---- */

/* Behind a number: of columns that end alike, one is what most have. */
static const char *mark_of(const struct point *p, bool best)
{
    return p->after_release ? (best ? "~*" : "~") : best ? "*" : " ";
}

/* "7,567", "(80.94)", "-": what does not fit in parentheses, what is refused a dash. */
static void print_cell(FILE *file, const struct style *s, const struct sweep_point *at,
                       enum point_measure show, bool marked, bool searches)
{
    char number[32], text[64];
    const struct point *p = &at->point;
    const double value = sweep_measure_value(p, show);
    if (p->verdict == POINT_REFUSED || (searches && !at->found[0]))
        snprintf(text, sizeof text, "-");
    else if (searches)
        snprintf(text, sizeof text, "%s", at->found);
    else if (p->verdict == POINT_TOO_LARGE && show == MEASURE_TOKENS)
        snprintf(text, sizeof text, "(%s)", style_grouped((uint64_t)(value + 0.5), number));
    else if (p->verdict == POINT_TOO_LARGE)
        snprintf(text, sizeof text, "(%.2f)", value);
    else if (show == MEASURE_TOKENS)
        snprintf(text, sizeof text, "%s%s", style_grouped((uint64_t)(value + 0.5), number),
                 mark_of(p, marked));
    else
        snprintf(text, sizeof text, "%.2f%s", value, mark_of(p, marked));
    fprintf(file, " %s%*s%s",
            marked                          ? s->good
            : p->verdict == POINT_FITS      ? ""
            : p->verdict == POINT_TOO_LARGE ? s->bad
                                            : s->dim,
            CELL, text, s->off);
}

static void print_map(FILE *file, const struct style *s, const struct sweep *sweep,
                      const struct sweep_question *q)
{
    const struct axis *down = &q->axes[0], *across = &q->axes[1];
    const enum point_measure show = (enum point_measure)q->base->sweep.show;
    int width = width_of(down->name, 8);
    for (uint32_t i = 0; i < down->count; i++)
        width = width_of(down->values[i], width);
    fprintf(file, "  %s%-*s   %s%s\n", s->dim, width, "", across->name, s->off);
    fprintf(file, "  %s%-*s", s->dim, width, down->name);
    for (uint32_t k = 0; k < across->count; k++)
        fprintf(file, " %*s", CELL, across->values[k]);
    fprintf(file, "   %s%s\n", q->searches ? q->along.name : sweep_measure_title(show), s->off);
    for (uint32_t i = 0; i < down->count; i++) {
        fprintf(file, "  %-*s", width, down->values[i]);
        for (uint32_t k = 0; k < across->count; k++) {
            const uint32_t n = i * across->count + k;
            print_cell(file, s, &sweep->points[n], show, sweep_is_best(q, sweep, n), q->searches);
        }
        fputc('\n', file);
    }
    if (q->searches)
        return;
    const bool some_not = sweep->fits + sweep->refused < sweep->count;
    const bool some_late = any_after_release(sweep, q);
    if (some_not || some_late)
        fprintf(file, "\n  *: the best%s%s\n",
                some_late ? "; ~: fits only by giving cached memory back, expect slow steps" : "",
                some_not ? "; (in parentheses): does not fit" : "");
}

/* Each reason once, with the first pair it holds for. */
static void print_reasons(FILE *file, const struct sweep *sweep, const struct sweep_question *q)
{
    for (uint32_t i = 0; i < sweep->count; i++) {
        const struct point *p = &sweep->points[i].point;
        uint32_t alike = 0;
        bool seen = p->verdict != POINT_REFUSED;
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = strcmp(sweep->points[k].point.reason, p->reason) == 0;
        for (uint32_t k = i; k < sweep->count && !seen; k++)
            alike += sweep->points[k].point.verdict == POINT_REFUSED &&
                     strcmp(sweep->points[k].point.reason, p->reason) == 0;
        if (!seen)
            fprintf(file, "  -: %s (%s %s, %s %s%s)\n", p->reason, q->axes[0].name,
                    q->axes[0].values[sweep_index(q, i, 0)], q->axes[1].name,
                    q->axes[1].values[sweep_index(q, i, 1)], alike > 1 ? " and others" : "");
    }
}

/* ---- what there is to say ---- */

/* What is exposed, and in which collectives most of it. */
static void print_exposures(FILE *file, const struct point *p)
{
    char exposed[32], total[32];
    if (p->communication_s <= 0) {
        fputs("  there is no communication\n", file);
        return;
    }
    fprintf(file, "  %s of %s of communication is exposed, %.1f %% of the step%s\n",
            compare_seconds(p->exposed_s, exposed), compare_seconds(p->communication_s, total),
            100 * p->exposed_s / p->step_s, p->exposure_count ? ", most of it in" : "");
    for (uint32_t i = 0; i < p->exposure_count; i++)
        fprintf(file, "    %10s  %s\n", compare_seconds(p->exposures[i].seconds, exposed),
                p->exposures[i].what);
}

/* Of values that change nothing, why: what there is to gain. */
static void print_same(FILE *file, const struct sweep *sweep, const struct sweep_question *q)
{
    uint32_t i = 0;
    if (!sweep->same_step || q->searches)
        return;
    while (sweep->points[i].point.verdict == POINT_REFUSED)
        i++;
    fprintf(file, "\n  every value takes the same time (within %.3f %%)%s:\n",
            100 * (sweep->most_s / sweep->least_s - 1),
            sweep->same_memory ? " and the same memory" : "");
    print_exposures(file, &sweep->points[i].point);
}

static void print_values(FILE *file, const struct sweep_question *q, uint32_t point)
{
    for (uint32_t i = 0; i < q->axis_count; i++)
        fprintf(file, "%s%s %s", i ? ", " : "", q->axes[i].name,
                q->axes[i].values[sweep_index(q, point, i)]);
}

/* What the best is set beside: the first that fits or, where that is the best, the next best. Where
 * the best need not give cached memory back, neither does that; SWEEP_NONE: there is none. */
static uint32_t rival_of(const struct sweep *sweep)
{
    const bool late = sweep->points[sweep->best].point.after_release;
    uint32_t first = SWEEP_NONE, next = SWEEP_NONE;
    for (uint32_t i = sweep->count; i-- > 0;) {
        const struct point *p = &sweep->points[i].point;
        if (p->verdict != POINT_FITS || (p->after_release && !late))
            continue;
        first = i;
        if (i != sweep->best &&
            (next == SWEEP_NONE || p->tokens_per_s >= sweep->points[next].point.tokens_per_s))
            next = i;
    }
    return first == sweep->best ? next : first;
}

static void print_best(FILE *file, const struct sweep *sweep, const struct sweep_question *q)
{
    if (sweep->best == SWEEP_NONE || q->searches || sweep->fits < 2 || sweep->same_step)
        return;
    for (uint32_t i = 0; i < q->axis_count; i++)
        if (!sweep_is_choice(&q->axes[i])) {
            fprintf(file, "\n  *: best for its %s\n", q->axes[i].name);
            return;
        }
    const uint32_t rival = rival_of(sweep);
    fputs("\n  best: ", file);
    print_values(file, q, sweep->best);
    if (rival == SWEEP_NONE) {
        fputs(": the only one that fits without giving cached memory back\n", file);
        return;
    }
    const struct point *p = &sweep->points[sweep->best].point, *r = &sweep->points[rival].point;
    fprintf(file, ": %.1f %% more tokens/s of a GPU than ",
            100 * (p->tokens_per_s / r->tokens_per_s - 1));
    print_values(file, q, rival);
    fprintf(file, ", %+.2f GiB\n", gib(p->device_bytes) - gib(r->device_bytes));
}

/* Where nothing fits: what takes least, and most of what. */
static void print_least(FILE *file, const struct turn *t)
{
    if (t->least != TURN_NONE) {
        const struct turn_trial *least = &t->trials[t->least];
        int most = 0;
        for (int i = 0; i < CATEGORY_COUNT; i++)
            if (least->point.categories[i] > least->point.categories[most])
                most = i;
        fprintf(file, "; %s takes least: %.2f GiB, %.2f of it %s", least->value,
                gib(least->point.device_bytes), gib(least->point.categories[most]),
                palette_category((enum category)most).name);
    }
    fputc('\n', file);
}

static void print_neighbour(FILE *file, const struct turn_trial *trial)
{
    const struct point *p = &trial->point;
    if (p->fits_gpu)
        fprintf(file, "%s does not fit the host (%.2f of %.2f GiB)", trial->value,
                gib(p->host_needed_bytes), gib(p->host_capacity_bytes));
    else
        fprintf(file, "%s does not fit (%.2f GiB)", trial->value, gib(p->device_bytes));
}

/* What lies beyond the answer: the proof. */
static void print_answer(FILE *file, const struct style *s, const struct sweep *sweep,
                         const struct sweep_question *q)
{
    const struct turn *t = &sweep->turn;
    const uint32_t next = t->answer + (q->kind == TURN_LARGEST ? 1 : UINT32_MAX);
    const char *name = q->along.name, *kind = q->kind == TURN_LARGEST ? "largest" : "fewest";
    if (t->answer == TURN_NONE) {
        fprintf(file, "\n  %sno %s fits%s; %" PRIu32 " tried", s->bad, name, s->off, t->count);
        print_least(file, t);
        return;
    }
    fprintf(file, "\n  %s%s %s: %s%s; ", s->good, kind, name, t->trials[t->answer].value, s->off);
    if (t->neighbour == TURN_NONE)
        fprintf(file, "no %s one is possible", q->kind == TURN_LARGEST ? "larger" : "smaller");
    else
        print_neighbour(file, &t->trials[t->neighbour]);
    if (t->neighbours > 1)
        fprintf(file, ", nor do the %" PRIu32 " %s it", t->neighbours - 1,
                q->kind == TURN_LARGEST ? "after" : "before");
    fprintf(file, "; %" PRIu32 " tried%s\n", t->count,
            t->jumped ? " (memory is not monotone here)" : "");
    if (next < t->count && t->trials[next].point.verdict == POINT_REFUSED)
        fprintf(file, "  %s is refused: %s\n", t->trials[next].value, t->trials[next].point.reason);
}

/* Of those that do not fit a host, the one that needs most of it; NULL: all fit. */
static const struct point *beyond_host(const struct sweep *sweep, const struct sweep_question *q)
{
    const struct point *most = NULL;
    for (uint32_t i = 0; i < sweep_rows(sweep, q); i++) {
        const struct point *p = sweep_row(sweep, q, i).point;
        if (p->verdict == POINT_TOO_LARGE && !p->fits_host &&
            (!most || p->host_needed_bytes > most->host_needed_bytes))
            most = p;
    }
    return most;
}

void sweep_print(FILE *file, const struct sweep_question *question, const struct sweep *sweep)
{
    const struct style s = style_of(file);
    print_title(file, &s, question);
    if (question->axis_count < 2) {
        print_table(file, &s, sweep, question);
    } else {
        print_map(file, &s, sweep, question);
        print_reasons(file, sweep, question);
    }
    if (question->axis_count < 2 && any_after_release(sweep, question))
        fputs("\n  * fits only by giving cached memory back: expect slow steps\n", file);
    const struct point *beyond = beyond_host(sweep, question);
    if (beyond)
        fprintf(file, "\n  host: what does not fit there needs up to %.2f GiB of %.2f\n",
                gib(beyond->host_needed_bytes), gib(beyond->host_capacity_bytes));
    if (question->searches && !question->axis_count)
        print_answer(file, &s, sweep, question);
    print_same(file, sweep, question);
    print_best(file, sweep, question);
    result_print_unplanned(file, question->base);
}
