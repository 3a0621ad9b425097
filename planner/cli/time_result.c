/* time_result.c - see time_result.h. */
#include "cli/time_result.h"

#include "cli/compare_print.h"
#include "cli/style.h"

#include <math.h>

json_t *time_json(const struct step_time *time)
{
    const struct timeline *t = &time->timeline;
    json_t *spent = json_object();
    for (int i = 0; i < SPENT_COUNT; i++)
        json_object_set_new(spent, spent_name((enum spent)i), json_real(t->spent_s[i]));
    json_t *object = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:o}", "step_s", t->step_s,
        "step_low_s", time->low_s, "step_high_s", time->high_s, "tokens_per_s_per_gpu",
        time->tokens_per_s, "mfu", time->mfu, "hfu", time->hfu, "exposed_communication_s",
        t->exposed_s, "communication_s", t->communication_s, "compute_s", t->compute_s, "host_s",
        t->host_s, "bound", spent_name(time->bound), "spent_s", spent);
    return object;
}

static void bar(FILE *file, double share)
{
    for (int i = 0; i < (int)(share * 32 + 0.5); i++)
        fputs("\xe2\x96\x88", file); /* full block */
}

void time_print(FILE *file, const struct step_time *time)
{
    static const char *const titles[SPENT_COUNT] = {
        [SPENT_COMPUTE] = "arithmetic",       [SPENT_MEMORY] = "memory bandwidth",
        [SPENT_NETWORK] = "waiting: network", [SPENT_COPY] = "waiting: copies",
        [SPENT_HOST] = "waiting: host",
    };
    const struct style s = style_of(file);
    const struct timeline *t = &time->timeline;
    char step[32], low[32], high[32], number[32];
    fprintf(file, "\n  %s%-24s %9s%s  (%s to %s), bound by %s\n", s.bold, "step",
            compare_seconds(t->step_s, step), s.off, compare_seconds(time->low_s, low),
            compare_seconds(time->high_s, high), spent_name(time->bound));
    for (int i = 0; i < SPENT_COUNT; i++) {
        if (t->spent_s[i] < 0.0005 * t->step_s)
            continue;
        fprintf(file, "  %-24s %9s  ", titles[i], compare_seconds(t->spent_s[i], step));
        bar(file, t->spent_s[i] / t->step_s);
        fputc('\n', file);
    }
    fprintf(file, "  %-24s %9s  a GPU; MFU %.1f %%, HFU %.1f %%\n", "tokens a second",
            style_grouped((uint64_t)(time->tokens_per_s + 0.5), number), 100 * time->mfu,
            100 * time->hfu);
    if (t->communication_s > 0)
        fprintf(file, "  %-24s %9s  of %s, %.1f %% overlapped\n", "exposed communication",
                compare_seconds(t->exposed_s, step), compare_seconds(t->communication_s, low),
                100 * time->overlapped);
    fprintf(file, "  %-24s %9s  to issue it all\n", "host", compare_seconds(t->host_s, step));
}
