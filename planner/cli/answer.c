/* answer.c - see answer.h. */
#include "cli/answer.h"

#include "base/arena.h"
#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/several.h"
#include "plan/repeat.h"
#include "report/explain_result.h"
#include "report/idle_notes.h"
#include "report/result.h"
#include "report/start_up_result.h"
#include "report/time_result.h"
#include "report/verdict.h"
#include "report/version_notes.h"
#include "settings/settings_resolve.h"

#include <stdlib.h>

static enum err_code make_time(struct answer *a, struct err *err)
{
    TRY(step_time(&a->prediction, &a->job, &a->machine, STEP_TIME_DRAWS, &a->time, err));
    a->is_timed = true;
    if (a->settings.goodput)
        TRY(long_run(a->prediction.plan, &a->machine, &a->time, &a->run, err));
    if (a->settings.explain)
        TRY(explain(&a->prediction, &a->machine, &a->time, &a->explanation, err));
    return ERR_OK;
}

/* A step of more instructions is written as few micro-batches that repeat: files of some hundred
 * megabytes would be gigabytes of the same. */
enum { WRITTEN_MOST = 1 << 20 };

/* What is to be written, of which every instruction is wanted; of very many micro-batches, few. */
static enum err_code predict_written(struct answer *a, struct err *err)
{
    TRY(predict_few(&a->job, &a->machine, &a->prediction, err));
    const struct plan *plan = a->prediction.plan;
    if (plan->repeats == 0 || a->settings.no_files ||
        plan_instructions_of_step(plan) > WRITTEN_MOST)
        return ERR_OK;
    prediction_free(&a->prediction);
    return predict(&a->job, &a->machine, &a->prediction, err);
}

enum err_code answer_make(struct answer *a, bool timed, struct err *err)
{
    struct settings *s = &a->settings;
    TRY(settings_resolve(s, &a->job, &a->machine, err));
    /* For sums few micro-batches do; every instruction is wanted of what is explained. */
    const bool whole = s->events || s->explain || s->start_up;
    TRY((whole   ? predict(&a->job, &a->machine, &a->prediction, err)
         : timed ? predict_written(a, err)
                 : predict_few(&a->job, &a->machine, &a->prediction, err)));
    TRY(predict_clocked(&a->prediction, &a->machine, err));
    if (s->start_up)
        TRY(start_up(&a->prediction, &a->job, &a->machine, &a->start_up, err));
    return timed || s->time || s->explain || s->goodput ? make_time(a, err) : ERR_OK;
}

void answer_free(struct answer *a)
{
    explanation_free(&a->explanation);
    step_time_free(&a->time);
    prediction_free(&a->prediction);
    settings_release(&a->job, &a->machine);
    import_free(&a->import);
}

/* Of a whole configuration, which --from would have read. NULL: none was given as --zero. */
static json_t *passed_over(const struct answer *a)
{
    const bool asked = a->settings.zero && !a->import.framework;
    json_t *names = asked ? zero_passed_over(a->settings.zero) : NULL;
    if (json_array_size(names) > 0)
        return names;
    json_decref(names);
    return NULL;
}

static void print_passed_over(FILE *file, const struct answer *a)
{
    json_t *names = passed_over(a), *name;
    size_t i;
    if (!names)
        return;
    fprintf(file,
            "\n  --zero reads zero_optimization alone; of %s these were passed over (--from "
            "reads them):\n   ",
            a->settings.zero);
    json_array_foreach(names, i, name)
    {
        fprintf(file, " %s%s", json_string_value(name),
                i + 1 < json_array_size(names) ? "," : "\n");
    }
    json_decref(names);
}

static json_t *show_start_up(const struct answer *a)
{
    json_t *object = start_up_json(&a->start_up, &a->machine);
    json_object_set_new(object, "not_recorded", version_notes_start_up(&a->job));
    return object;
}

/* With what the allocator reserves by the clock, of which this is a part. */
static json_t *show_time(const struct answer *a)
{
    json_t *object = time_json(&a->time);
    if (a->prediction.clocked_bytes)
        json_object_set_new(object, "reserved_bytes",
                            json_integer((json_int_t)a->prediction.clocked_bytes));
    return object;
}

static void show_json(const struct answer *a, const struct remedy *remedies, uint32_t count)
{
    json_t *root = result_json(&a->settings, &a->job, &a->machine, &a->prediction, remedies, count);
    idle_notes_set(root, &a->settings, &a->job, a->prediction.plan);
    result_json_causes(root, &a->settings, &a->job, &a->machine, &a->prediction);
    if (a->is_timed)
        json_object_set_new(root, "time", show_time(a));
    if (a->settings.explain)
        json_object_set_new(root, "explain", explanation_json(&a->explanation));
    if (a->settings.goodput)
        json_object_set_new(root, "goodput", long_run_json(&a->run));
    if (a->settings.start_up)
        json_object_set_new(root, "start_up", show_start_up(a));
    json_object_set_new(root, "from", import_json(&a->import));
    json_object_set_new(root, "zero_passed_over", passed_over(a));
    report_json(root);
}

void answer_show(const struct answer *a)
{
    struct remedy remedies[REMEDIES];
    const struct prediction *p = &a->prediction;
    if (a->settings.quiet && !a->settings.json)
        return;
    if (!a->settings.json) { /* before a search that may take seconds */
        result_print(stdout, &a->settings, &a->job, &a->machine, p);
        fflush(stdout);
    }
    struct progress progress = progress_begin(!a->settings.quiet);
    const struct remedy_progress watch = {progress_name, &progress};
    const bool searches = !p->fits && !a->settings.no_remedies;
    const uint32_t count =
        searches ? remedies_find(&a->settings, &a->job.config, &a->machine, watch, remedies) : 0;
    progress_end(&progress);
    if (a->settings.json) {
        show_json(a, remedies, count);
        return;
    }
    if (searches)
        result_print_remedies(stdout, &a->settings, remedies, count);
    result_print_causes(stdout, &a->settings, &a->job, &a->machine, p);
    verdict_print_late(stdout, p);
    if (a->is_timed && !p->fits)
        fputs("\n  if it fitted:", stdout); /* a line by itself: what follows begins one */
    if (a->is_timed)
        time_print(stdout, &a->time);
    if (a->settings.explain)
        explanation_print(stdout, &a->explanation);
    if (a->settings.goodput)
        long_run_print(stdout, &a->run);
    if (a->settings.start_up) {
        start_up_print(stdout, &a->start_up, &a->machine);
        version_notes_print_start_up(stdout, &a->job);
    }
    import_print(stdout, &a->import);
    print_passed_over(stdout, a);
}

/* What is to be written, and that nothing is. */
static enum err_code check_files(const struct settings *settings, struct err *err)
{
    static const char *const written[] = {"output", "files"};
    for (size_t i = 0; settings->no_files && i < sizeof written / sizeof *written; i++) {
        const struct setting *row = settings_find(settings, written[i], NULL);
        if (row && settings_is_given(settings, row))
            return err_set(err, ERR_INVALID, "--no-files with %s: leave one of them out",
                           row->key ? "-o" : "--files");
    }
    return ERR_OK;
}

int answer_command(enum command command, int argc, char **argv,
                   enum err_code (*run)(struct answer *answer, struct err *err))
{
    struct answer a = {.is_timed = false};
    struct settings_list *list = xmalloc(sizeof *list); /* of some stacks it is most */
    struct err err = {0};
    int status;
    settings_parse_list(command, argc, argv, import_files, &a.import, list);
    if (check_files(&list->of[0], &err) != ERR_OK) {
        status = report_error(&err);
    } else if (list->count > 1) {
        status = several_answer(list);
    } else {
        a.settings = list->of[0];
        status = run(&a, &err) != ERR_OK ? report_error(&err)
                 : a.prediction.fits     ? EXIT_DONE
                                         : EXIT_NO_FIT;
    }
    answer_free(&a);
    settings_list_free(list);
    free(list);
    return status;
}
