/* cmd_plan.c - shardplan plan: the step, written to a folder. */
#include "cli/answer.h"
#include "cli/commands.h"
#include "plan/repeat.h"
#include "report/files.h"
#include "report/report.h"

#include <inttypes.h>
#include <stdio.h>

/* Pictures are drawn into a folder that was asked for: gnuplot takes longer than all the rest. */
static bool draws_pictures(const struct settings *s)
{
    return !s->plan_alone && settings_is_given(s, settings_find(s, "output", NULL));
}

/* ", plan-1.json to plan-7.json (the other ranks)" */
static const char *other_plans(const struct answer *a, char text[96])
{
    const unsigned last = report_last_rank(a->prediction.plan);
    text[0] = '\0';
    if (last == 1)
        snprintf(text, 96, ", plan-1.json (the other rank's)");
    else if (last)
        snprintf(text, 96, ", plan-1.json to plan-%u.json (the other ranks')", last);
    return text;
}

/* Of a step that is too long to be written. */
static void say_what_repeats(const struct plan *plan, const char *dir)
{
    const uint32_t few = plan->micro_batch_count;
    printf("  %s/ has %" PRIu32 " of the step's %" PRIu64 " micro-batches: number %" PRIu32
           " stands for %" PRIu32 " (\"repeats\" in plan.json, which diff and export read, and "
           "no run)\n",
           dir, few, plan_micro_batches_of_step(plan), few - 1, 1 + plan->repeats);
}

static void list_files(const struct answer *a, const char *note)
{
    const struct settings *s = &a->settings;
    char others[96];
    if (!s->json && !s->quiet && !s->no_files && s->plan_alone)
        printf("\n  %s/: plan.json%s\n", s->output, other_plans(a, others));
    else if (!s->json && !s->quiet && !s->no_files)
        printf("\n  %s/: plan.json%s, trace.json (Perfetto), snapshot.pickle (memory_viz), "
               "%sreport.html%s\n",
               s->output, other_plans(a, others),
               draws_pictures(s) && !note ? "memory.svg, memory-time.svg, timeline.svg, " : "",
               draws_pictures(s) ? "" : "; -o DIR: pictures, too");
    if (!s->json && !s->quiet && !s->no_files && a->prediction.plan->repeats)
        say_what_repeats(a->prediction.plan, s->output);
    if (note)
        fprintf(stderr, "shardplan: %s\n", note);
}

static enum err_code write_files(const struct answer *a, const char **note, struct err *err)
{
    int hold;
    if (a->settings.no_files)
        return ERR_OK;
    TRY(files_take_folder(a->settings.output, &hold, err));
    const enum err_code rc = report_write(&a->settings, &a->job, &a->machine, &a->prediction,
                                          &a->time, draws_pictures(&a->settings), note, err);
    files_give_folder(hold);
    return rc;
}

static enum err_code plan(struct answer *a, struct err *err)
{
    const char *note = NULL;
    TRY(answer_make(a, true, err));
    TRY(write_files(a, &note, err));
    answer_show(a);
    list_files(a, note);
    return ERR_OK;
}

int command_plan(int argc, char **argv)
{
    return answer_command(COMMAND_PLAN, argc, argv, plan);
}
