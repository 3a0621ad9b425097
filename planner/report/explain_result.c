/* explain_result.c - see explain_result.h. */
#include "report/explain_result.h"

#include "report/compare_print.h"
#include "report/style.h"
#include "report/time_result.h"

#include <math.h>

enum { KERNELS_SHOWN = 4, NUMBERS_SHOWN = 12, SHAPE_SHOWN = 48, LEAST_KNOWN_SHOWN = 4 };

/* ---- JSON ---- */

static json_t *text_json(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *kernel_json(const struct explanation *e, const struct explained_kernel *k)
{
    json_t *numbers = json_array();
    for (uint32_t i = 0; i < k->number_count; i++)
        json_array_append_new(numbers, json_string(e->numbers[k->numbers[i]].name));
    return json_pack("{s:o, s:o, s:i, s:f, s:f, s:f, s:o}", "kernel", text_json(k->name), "shape",
                     text_json(k->shape), "count", (int)k->count, "seconds", k->seconds, "share",
                     k->seconds / e->step_s, "alone_s", k->alone_s, "numbers", numbers);
}

static json_t *number_json(const struct explained_number *n)
{
    return json_pack("{s:s, s:f, s:f, s:o, s:f, s:f, s:f}", "number", n->name, "value", n->value,
                     "spread", n->spread, "source", text_json(n->source), "change", n->change,
                     "step_change", n->step_change, "step_uncertainty", n->uncertainty);
}

json_t *explanation_json(const struct explanation *e)
{
    json_t *spent = json_object(), *numbers = json_array();
    for (int kind = 0; kind < SPENT_COUNT; kind++) {
        json_t *kernels = json_array();
        for (uint32_t i = 0; i < e->kernel_count; i++)
            if (e->kernels[i].spent == (enum spent)kind)
                json_array_append_new(kernels, kernel_json(e, &e->kernels[i]));
        json_object_set_new(spent, spent_name((enum spent)kind),
                            json_pack("{s:f, s:f, s:o}", "seconds", e->spent_s[kind], "share",
                                      e->spent_s[kind] / e->step_s, "kernels", kernels));
    }
    for (uint32_t i = 0; i < e->number_count; i++)
        json_array_append_new(numbers, number_json(&e->numbers[i]));
    return json_pack("{s:f, s:o, s:o}", "step_s", e->step_s, "spent", spent, "numbers", numbers);
}

/* ---- tables ---- */

static void print_kernel(FILE *file, const struct style *s, const struct explanation *e,
                         const struct explained_kernel *k)
{
    char time[32];
    fprintf(file, "    %5.1f %% %9s  ", 100 * k->seconds / e->step_s,
            compare_seconds(k->seconds, time));
    if (!k->name) {
        fprintf(file, "the end of the step\n");
        return;
    }
    fprintf(file, "%5u x %s  %s%.*s%s", k->count, k->name, s->dim, SHAPE_SHOWN, k->shape, s->off);
    for (uint32_t i = 0; i < k->number_count; i++)
        fprintf(file, "%s%s", i ? ", " : "\n                        on ",
                e->numbers[k->numbers[i]].name);
    fprintf(file,
            k->number_count ? "\n" : "\n                        on no number of the profile\n");
}

static void print_spent(FILE *file, const struct style *s, const struct explanation *e,
                        enum spent spent)
{
    char time[32];
    uint32_t shown = 0;
    if (e->spent_s[spent] < 0.0005 * e->step_s)
        return;
    fprintf(file, "\n  %s%-24s %9s%s\n", s->bold, time_title(spent),
            compare_seconds(e->spent_s[spent], time), s->off);
    for (uint32_t i = 0; i < e->kernel_count && shown < KERNELS_SHOWN; i++)
        if (e->kernels[i].spent == spent) {
            print_kernel(file, s, e, &e->kernels[i]);
            shown++;
        }
}

/* The numbers whose own spread matters most to the step. */
static void print_least_known(FILE *file, const struct explanation *e)
{
    uint32_t shown[LEAST_KNOWN_SHOWN] = {0}, count = 0;
    for (; count < LEAST_KNOWN_SHOWN; count++) {
        uint32_t best = e->number_count;
        for (uint32_t i = 0; i < e->number_count; i++) {
            bool is_taken = false;
            for (uint32_t k = 0; k < count; k++)
                is_taken |= shown[k] == i;
            if (!is_taken && e->numbers[i].uncertainty > 0.001 &&
                (best == e->number_count ||
                 e->numbers[i].uncertainty > e->numbers[best].uncertainty))
                best = i;
        }
        if (best == e->number_count)
            break;
        shown[count] = best;
        fprintf(file, "%s%s (%.1f %%)", count ? ", " : "\n  the step is known least by ",
                e->numbers[best].name, 100 * e->numbers[best].uncertainty);
    }
    if (count)
        fputs(": worth a measurement\n", file);
}

static void print_numbers(FILE *file, const struct style *s, const struct explanation *e)
{
    fprintf(file, "\n  %swhat 10 %% of a number changes of the step, and its own spread%s\n",
            s->bold, s->off);
    for (uint32_t i = 0; i < e->number_count && i < NUMBERS_SHOWN; i++) {
        const struct explained_number *n = &e->numbers[i];
        fprintf(file, "  %+6.2f %%  %-32s %10.4g %s", 100 * n->step_change, n->name, n->value,
                n->change < 0 ? "(-10 %) " : "");
        if (n->spread > 0)
            fprintf(file, "+- %.0f %%: %.2f %% of the step", 100 * n->spread, 100 * n->uncertainty);
        fprintf(file, "\n            %s%s%s\n", s->dim, n->source ? n->source : "no source",
                s->off);
    }
    if (e->number_count > NUMBERS_SHOWN)
        fprintf(file, "  and %u numbers more, each of which changes less (--json)\n",
                e->number_count - NUMBERS_SHOWN);
    print_least_known(file, e);
}

void explanation_print(FILE *file, const struct explanation *e)
{
    const struct style s = style_of(file);
    for (int spent = 0; spent < SPENT_COUNT; spent++)
        print_spent(file, &s, e, (enum spent)spent);
    print_numbers(file, &s, e);
}
