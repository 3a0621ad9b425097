/* difference_print.c - tables of two plans side by side; see difference_report.h. */
#include "base/arena.h"
#include "report/compare_print.h"
#include "report/difference_report.h"
#include "report/palette.h"
#include "report/style.h"
#include "report/time_result.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 26, KINDS_SHOWN = 10, GROUPS_SHOWN = 8 };

#define ROUNDING_S 1e-9   /* of sums in another order */
#define MOST_TIMES 10     /* beyond that a percentage says nothing */
#define LEAST_SHOWN 0.005 /* of a unit of bytes: two digits are shown */

double difference_number(const json_t *object, const char *path)
{
    char first[64];
    const char *dot = strchr(path, '.');
    if (dot) {
        snprintf(first, sizeof first, "%.*s", (int)(dot - path), path);
        return difference_number(json_object_get(object, first), dot + 1);
    }
    const json_t *value = json_object_get(object, path);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

/* ---- rows ---- */

/* "settings   A   B": what stands in the columns of the rows below. */
static void print_heading(FILE *file, const struct style *s, const char *name, const char *apart,
                          const char *share)
{
    fprintf(file, "  %s%-*s %12s %12s%s%*s%s%*s%s\n", s->dim, NAME, name, "A", "B",
            *apart ? " " : "", *apart ? 12 : 0, apart, *share ? " " : "", *share ? 9 : 0, share,
            s->off);
}

/* What B has more of (NULL: as much), its share of A, and a remark. */
static void print_row(FILE *file, const char *name, const char *a, const char *b, const char *apart,
                      double share, const char *remark)
{
    char percent[32] = "";
    if (isfinite(share) && share < MOST_TIMES && fabs(share - 1) >= 0.0005)
        snprintf(percent, sizeof percent, "%+.1f %%", 100 * (share - 1));
    fprintf(file, "  %-*s %12s %12s", NAME, name, a, b);
    if (*remark)
        fprintf(file, " %12s %9s  %s", apart ? apart : "", percent, remark);
    else if (*percent)
        fprintf(file, " %12s %9s", apart ? apart : "", percent);
    else if (apart)
        fprintf(file, " %12s", apart);
    fputc('\n', file);
}

/* ---- settings ---- */

static const char *value_text(const json_t *value, char text[96])
{
    if (!value || json_is_null(value)) {
        snprintf(text, 96, "-");
    } else if (json_is_string(value)) {
        snprintf(text, 96, "%.95s", json_string_value(value));
    } else {
        char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        snprintf(text, 96, "%.95s", dump ? dump : "");
        free(dump);
    }
    return text;
}

static void print_settings(FILE *file, const struct style *s, const struct difference_report *r)
{
    const struct difference *d = r->difference;
    char a[96], b[96];
    print_heading(file, s, "settings", "", "");
    for (uint32_t i = 0; i < d->setting_count; i++)
        print_row(file, d->settings[i].name, value_text(d->settings[i].value[0], a),
                  value_text(d->settings[i].value[1], b), NULL, (double)NAN, "");
    if (!d->setting_count)
        fputs("  the same\n", file);
}

/* ---- bytes ---- */

struct unit {
    double bytes;
    const char *name;
};

/* The one in which the larger side has some digits. */
static struct unit unit_of(const struct difference_report *r)
{
    const double device = fmax(difference_number(r->memory[0], "peak.device_bytes"),
                               difference_number(r->memory[1], "peak.device_bytes"));
    return device >= 0x1p32 ? (struct unit){0x1p30, "GiB"} : (struct unit){0x1p20, "MiB"};
}

static void print_size(FILE *file, const char *name, double a, double b, struct unit unit)
{
    char texts[SIDES][32], apart[32];
    const double of_a = isnan(a) ? 0 : a / unit.bytes, of_b = isnan(b) ? 0 : b / unit.bytes;
    if (of_a < LEAST_SHOWN && of_b < LEAST_SHOWN)
        return;
    snprintf(texts[0], sizeof texts[0], "%.2f", of_a);
    snprintf(texts[1], sizeof texts[1], "%.2f", of_b);
    snprintf(apart, sizeof apart, "%+.2f", of_b - of_a);
    const bool differs = fabs(of_b - of_a) >= LEAST_SHOWN;
    print_row(file, name, texts[0], texts[1], differs ? apart : NULL,
              differs && of_a > 0 ? of_b / of_a : (double)NAN, "");
}

/* As the other commands call what the file calls "sharded_param"; else the file's own words. */
static const char *title_of(const char *name, char text[64])
{
    for (int c = 0; c < CATEGORY_COUNT; c++)
        if (strcmp(category_name((enum category)c), name) == 0)
            return palette_category((enum category)c).name;
    snprintf(text, 64, "%s", name);
    for (char *c = text; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    return text;
}

/* The numbers of a member of "memory", in the order of the file. */
static void print_members(FILE *file, const struct difference_report *r, const char *member)
{
    const json_t *a = json_object_get(r->memory[0], member);
    const json_t *b = json_object_get(r->memory[1], member);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)a, name, value)
    {
        char text[64];
        print_size(file, title_of(name, text), json_number_value(value), difference_number(b, name),
                   unit_of(r));
    }
}

static void print_peak(FILE *file, const char *of, const char *phase, const char *what)
{
    struct arena arena = {0};
    style_wrapped(file, 2, arena_printf(&arena, "peak of %s: %s: %s", of, phase, what));
    arena_free(&arena);
}

static const char *peak_text(const json_t *memory, const char *name)
{
    const char *text = json_string_value(json_object_get(json_object_get(memory, "peak"), name));
    return text ? text : "";
}

static void print_peak_phase(FILE *file, const struct difference_report *r)
{
    const bool same =
        strcmp(peak_text(r->memory[0], "phase"), peak_text(r->memory[1], "phase")) == 0 &&
        strcmp(peak_text(r->memory[0], "what"), peak_text(r->memory[1], "what")) == 0;
    for (int s = 0; s < (same ? 1 : SIDES); s++)
        if (*peak_text(r->memory[s], "phase") && *peak_text(r->memory[s], "what"))
            print_peak(file,
                       same ? "both"
                       : s  ? "B"
                            : "A",
                       peak_text(r->memory[s], "phase"), peak_text(r->memory[s], "what"));
}

static void print_memory(FILE *file, const struct style *s, const struct difference_report *r)
{
    static const char *const totals[] = {"requested", "allocated", "reserved", "device"};
    if (!r->memory[0] || !r->memory[1])
        return;
    char heading[32];
    snprintf(heading, sizeof heading, "at the peak, %s", unit_of(r).name);
    fputc('\n', file);
    print_heading(file, s, heading, "B - A", "of A");
    print_members(file, r, "categories");
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "peak.%s_bytes", totals[i]);
        fprintf(file, "%s", s->bold);
        print_size(file, totals[i], difference_number(r->memory[0], path),
                   difference_number(r->memory[1], path), unit_of(r));
        fprintf(file, "%s", s->off);
    }
    print_size(file, "a host, by its ranks", difference_number(r->memory[0], "host.needed_bytes"),
               difference_number(r->memory[1], "host.needed_bytes"), unit_of(r));
    fprintf(file, "\n  %shighest requested in%s\n", s->dim, s->off);
    print_members(file, r, "segment_peaks");
    print_peak_phase(file, r);
}

/* ---- time ---- */

static void print_seconds(FILE *file, const char *name, double a, double b, const char *remark)
{
    char of_a[32], of_b[32], apart[32] = "+";
    const bool differs = fabs(b - a) >= ROUNDING_S;
    compare_seconds(b - a, apart + (b > a));
    print_row(file, name, compare_seconds(a, of_a), compare_seconds(b, of_b),
              differs ? apart : NULL, differs && a > 0 ? b / a : (double)NAN, remark);
}

static void print_member_seconds(FILE *file, const struct difference_report *r, const char *name,
                                 const char *path)
{
    const double a = difference_number(r->side[0].time, path);
    const double b = difference_number(r->side[1].time, path);
    if (a != 0 || b != 0)
        print_seconds(file, name, a, b, "");
}

static void print_total(FILE *file, const struct difference_total *t)
{
    char name[64];
    const size_t length = strlen(t->name);
    snprintf(name, sizeof name, "%s%s", length > NAME - 2 ? ".." : "",
             length > NAME - 2 ? t->name + length - (NAME - 4) : t->name);
    char calls[48] = "";
    if (t->count[0] != t->count[1])
        snprintf(calls, sizeof calls, "%" PRIu32 " -> %" PRIu32 " calls", t->count[0], t->count[1]);
    print_seconds(file, name, t->seconds[0], t->seconds[1], calls);
}

static bool is_alike(const struct difference_total *t)
{
    return t->count[0] == t->count[1] && fabs(t->seconds[1] - t->seconds[0]) < ROUNDING_S;
}

static void print_totals(FILE *file, const struct style *s, const char *title,
                         const struct difference_total *totals, uint32_t count, uint32_t most)
{
    uint32_t alike = 0, shown = 0;
    fprintf(file, "\n  %s%s%s\n", s->dim, title, s->off);
    for (uint32_t i = 0; i < count; i++) {
        alike += is_alike(&totals[i]);
        if (is_alike(&totals[i]) || shown == most)
            continue;
        print_total(file, &totals[i]);
        shown++;
    }
    if (count > alike + shown)
        fprintf(file, "  %" PRIu32 " others differ less\n", count - alike - shown);
    if (alike)
        fprintf(file, "  %" PRIu32 " %s the same\n", alike, alike == 1 ? "is" : "are");
}

static void print_rates(FILE *file, const struct difference_report *r)
{
    char rate[SIDES][32], mfu[SIDES][32];
    double tokens[SIDES];
    for (int k = 0; k < SIDES; k++) {
        tokens[k] = difference_number(r->side[k].time, "tokens_per_s_per_gpu");
        style_grouped((uint64_t)(tokens[k] + 0.5), rate[k]);
        snprintf(mfu[k], sizeof mfu[k], "%.1f %%", 100 * difference_number(r->side[k].time, "mfu"));
    }
    print_row(file, "tokens/s of a GPU", rate[0], rate[1], NULL, tokens[1] / tokens[0], "");
    print_row(file, "MFU", mfu[0], mfu[1], NULL, (double)NAN, "");
}

static void print_time(FILE *file, const struct style *s, const struct difference_report *r)
{
    static const struct {
        const char *name, *path;
    } rows[] = {
        {"communication", "communication_s"},
        {"of it exposed", "exposed_communication_s"},
    };
    if (!r->difference->timed)
        return;
    fputc('\n', file);
    print_heading(file, s, "time", "B - A", "of A");
    fprintf(file, "%s", s->bold);
    print_member_seconds(file, r, "step", "step_s");
    fprintf(file, "%s", s->off);
    for (int i = 0; i < SPENT_COUNT; i++) {
        char path[64];
        snprintf(path, sizeof path, "spent_s.%s", spent_name((enum spent)i));
        print_member_seconds(file, r, time_title((enum spent)i), path);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        print_member_seconds(file, r, rows[i].name, rows[i].path);
    print_rates(file, r);
    print_totals(file, s, "busy, by lane", r->difference->lanes, r->difference->lane_count,
                 UINT32_MAX);
    print_totals(file, s, "by kind, most apart first", r->difference->kinds,
                 r->difference->kind_count, KINDS_SHOWN);
}

/* ---- units ---- */

static const char *unit_text(const struct difference_unit *unit)
{
    return unit->name[0] ? unit->name : "root";
}

/* "+416.0 MiB" */
static void print_bytes(FILE *file, int64_t bytes)
{
    const double size = fabs((double)bytes);
    const bool large = size >= 1073741824.0, middle = size >= 1048576.0;
    fprintf(file, "%+.*f %s", large || middle ? 1 : 0,
            (double)bytes / (large    ? 1073741824.0
                             : middle ? 1048576.0
                                      : 1),
            large    ? "GiB"
            : middle ? "MiB"
                     : "B");
}

/* What the unit does more (+) or less (-) in B. */
static void print_unit_changes(FILE *file, const struct difference_unit *u)
{
    const char *join = "";
    for (int op = 0; op < PLAN_OP_COUNT; op++) {
        const struct difference_work *a = &u->work[0][op], *b = &u->work[1][op];
        const int64_t count = (int64_t)b->count - a->count;
        const int64_t bytes = (int64_t)b->bytes - (int64_t)a->bytes;
        if (!count && !bytes)
            continue;
        fputs(join, file);
        join = ", ";
        if (count)
            fprintf(file, "%+" PRId64 " ", count);
        fputs(plan_op_name((enum plan_op)op), file);
        if (bytes) {
            fputs(count ? " (" : " ", file);
            print_bytes(file, bytes);
            fputs(count ? ")" : "", file);
        }
    }
    if (u->held_bytes[0] != u->held_bytes[1]) {
        fprintf(file, "%sheld after forward ", join);
        print_bytes(file, (int64_t)u->held_bytes[1] - (int64_t)u->held_bytes[0]);
    }
}

static void print_group_time(FILE *file, const struct difference *d, uint32_t g)
{
    double compute = 0, communication = 0;
    char text[32];
    const char *together = d->groups[g].count > 1 ? "together " : "";
    for (uint32_t i = 0; i < d->unit_count; i++)
        if (d->units[i].group == g) {
            compute += d->units[i].compute_s[1] - d->units[i].compute_s[0];
            communication += d->units[i].communication_s[1] - d->units[i].communication_s[0];
        }
    if (fabs(compute) >= 1e-6)
        fprintf(file, "; %scompute %s%s", together, compute > 0 ? "+" : "",
                compare_seconds(compute, text));
    if (fabs(communication) >= 1e-6)
        fprintf(file, "; %scollectives %s%s", together, communication > 0 ? "+" : "",
                compare_seconds(communication, text));
}

static void print_group(FILE *file, const struct difference *d, uint32_t g, uint32_t matched)
{
    const struct difference_group *group = &d->groups[g];
    const struct difference_unit *first = &d->units[group->first];
    const bool one = group->count == 1;
    if (first->there[0] != first->there[1]) {
        fprintf(file, "only %c has %" PRIu32 " unit%s: %s%s", first->there[0] ? 'A' : 'B',
                group->count, one ? "" : "s", unit_text(first), one ? "" : ", ...");
        return;
    }
    if (one)
        fprintf(file, "%s: ", unit_text(first));
    else
        fprintf(file, "%" PRIu32 " of %" PRIu32 " units (%s first)%s: ", group->count, matched,
                unit_text(first), group->changed ? ", each" : "");
    if (!group->changed)
        fputs("the same", file);
    print_unit_changes(file, first);
    if (d->timed)
        print_group_time(file, d, g);
}

static void print_units(FILE *file, const struct style *s, const struct difference *d)
{
    uint32_t matched = 0;
    for (uint32_t i = 0; i < d->unit_count; i++)
        matched += d->units[i].there[0] && d->units[i].there[1];
    fprintf(file, "\n  %sunit by unit%s\n", s->dim, s->off);
    for (uint32_t g = 0; g < d->group_count && g < GROUPS_SHOWN; g++) {
        char *text = NULL;
        size_t size;
        FILE *line = open_memstream(&text, &size);
        if (!line)
            break;
        print_group(line, d, g, matched);
        if (fclose(line) == 0)
            style_wrapped(file, 2, text);
        free(text);
    }
    if (d->group_count > GROUPS_SHOWN)
        fprintf(file, "  ... %" PRIu32 " more ways to differ\n", d->group_count - GROUPS_SHOWN);
}

void difference_print(FILE *file, const struct difference_report *report)
{
    const struct style s = style_of(file);
    fprintf(file, "%sA%s: %s\n%sB%s: %s\n\n", s.bold, s.off, report->label[0], s.bold, s.off,
            report->label[1]);
    print_settings(file, &s, report);
    print_memory(file, &s, report);
    print_time(file, &s, report);
    print_units(file, &s, report->difference);
}
