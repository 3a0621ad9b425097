/* cmd_sweep.c - shardplan sweep: a job over one or two axes. */
#include "cli/commands.h"
#include "cli/progress.h"
#include "families/families.h"
#include "frameworks/import.h"
#include "report/files.h"
#include "report/model_notes.h"
#include "report/result.h"
#include "report/sweep_report.h"
#include "settings/settings_parse.h"
#include "settings/settings_resolve.h"

#include <string.h>

static enum err_code read_search(const struct settings *s, struct arena *arena,
                                 struct sweep_question *q, struct err *err)
{
    const char *text = s->sweep.largest ? s->sweep.largest : s->sweep.fewest;
    if (s->sweep.largest && s->sweep.fewest)
        return err_set(err, ERR_INVALID, "--largest and --fewest: one of them");
    if (!text)
        return ERR_OK;
    q->searches = true;
    q->kind = s->sweep.largest ? TURN_LARGEST : TURN_FEWEST;
    TRY(axis_read(s, text, arena, &q->along, err));
    if (!strchr(text, '='))
        q->along.count = 0; /* every integer, not the few that are worth a search */
    return ERR_OK;
}

static bool is_same(const struct axis *a, const struct axis *b)
{
    return a->row == b->row && a->key == b->key;
}

static enum err_code read_question(const struct settings *s, struct arena *arena,
                                   struct sweep_question *q, struct err *err)
{
    *q = (struct sweep_question){.base = s};
    if (s->sweep.over.count > SWEEP_AXES)
        return err_set(err, ERR_INVALID, "--over: at most %d axes", SWEEP_AXES);
    for (uint32_t i = 0; i < s->sweep.over.count; i++)
        TRY(axis_read(s, s->sweep.over.at[i], arena, &q->axes[q->axis_count++], err));
    TRY(read_search(s, arena, q, err));
    for (uint32_t i = 0; i < q->axis_count; i++)
        if ((i && is_same(&q->axes[i], &q->axes[0])) ||
            (q->searches && is_same(&q->axes[i], &q->along)))
            return err_set(err, ERR_INVALID, "%s: one axis only", q->axes[i].name);
    if (!q->axis_count && !q->searches)
        return err_set(err, ERR_INVALID, "--over AXIS, --largest AXIS or --fewest AXIS is needed");
    return ERR_OK;
}

/* Where nothing was accepted, the first refusal is the error. */
static enum err_code check_any(const struct sweep *sweep, struct err *err)
{
    for (uint32_t i = 0; i < sweep->count; i++)
        if (sweep->points[i].point.verdict != POINT_REFUSED)
            return ERR_OK;
    return err_set(err, ERR_INVALID, "%s", sweep->points[0].point.reason);
}

static enum err_code write_files(const struct sweep_question *q, const struct sweep *sweep,
                                 const char **note, struct err *err)
{
    int hold;
    if (!q->base->output)
        return ERR_OK;
    TRY(files_take_folder(q->base->output, &hold, err));
    const enum err_code rc = sweep_report_write(q, sweep, q->base->output, note, err);
    files_give_folder(hold);
    return rc;
}

/* ---- a search that found none ---- */

struct way_out {       /* what would make the value that takes least fit, as `fit` says it */
    const char *value; /* NULL: it was not looked for */
    struct settings settings;
    struct remedy remedies[REMEDIES];
    uint32_t count;
};

static bool has_no_answer(const struct sweep_question *q, const struct sweep *sweep)
{
    return q->searches && !q->axis_count && sweep->turn.answer == TURN_NONE &&
           sweep->turn.least != TURN_NONE && !q->base->no_remedies;
}

static enum err_code find_way_out(const struct sweep_question *q, const struct sweep *sweep,
                                  struct way_out *out, struct err *err)
{
    struct choice choice;
    struct job job;
    struct machine machine;
    const char *value = sweep->turn.trials[sweep->turn.least].value;
    TRY(axis_choose(q->base, &q->along, &value, 1, &choice, err));
    out->settings = choice.settings;
    out->settings.command = COMMAND_FIT;
    TRY(settings_resolve(&out->settings, &job, &machine, err));
    const enum err_code rc = choice_set_numbers(&choice, &machine.profile, err);
    if (rc == ERR_OK) {
        struct progress progress = progress_begin(!q->base->quiet);
        const struct remedy_progress watch = {progress_name, &progress};
        out->count = remedies_find(&out->settings, &job.config, &machine, watch, out->remedies);
        progress_end(&progress);
        out->value = value;
    }
    settings_release(&job, &machine);
    return rc;
}

static void print_way_out(const struct sweep_question *q, const struct way_out *out)
{
    if (!out->value)
        return;
    printf("\n  with %s %s:", q->along.name, out->value);
    result_print_remedies(stdout, &out->settings, out->remedies, out->count);
}

static void set_way_out(json_t *object, const struct way_out *out)
{
    if (!out->value)
        return;
    json_object_set_new(object, "remedies_of", json_string(out->value));
    json_object_set_new(object, "remedies", remedies_json(out->remedies, out->count));
}

/* ---- the command ---- */

static enum err_code show(const struct sweep_question *q, const struct sweep *sweep,
                          const struct import *import, struct err *err)
{
    const struct settings *s = q->base;
    const char *note = NULL;
    struct way_out out = {.value = NULL};
    TRY(write_files(q, sweep, &note, err));
    if (!s->json && !s->quiet) { /* before a search that may take seconds */
        sweep_print(stdout, q, sweep);
        fflush(stdout);
    }
    if ((s->json || !s->quiet) && has_no_answer(q, sweep))
        TRY(find_way_out(q, sweep, &out, err));
    if (s->json) {
        json_t *object = sweep_json(q, sweep);
        set_way_out(object, &out);
        json_object_set_new(object, "from", import_json(import));
        report_json(object);
    } else if (!s->quiet) {
        print_way_out(q, &out);
        import_print(stdout, import);
        if (s->output)
            printf("\n  %s/: sweep.json%s\n", s->output, note ? "" : ", sweep.svg");
    }
    if (note)
        fprintf(stderr, "shardplan: %s\n", note);
    return ERR_OK;
}

/* What the model's file says and no point follows; whether it can be read is said by the points. */
static void say_notes(const struct settings *settings)
{
    struct settings copy = *settings;
    struct job job;
    struct machine machine;
    if (settings_resolve(&copy, &job, &machine, NULL) != ERR_OK)
        return;
    model_notes_print(stderr, "shardplan: ", &job);
    settings_release(&job, &machine);
}

int command_sweep(int argc, char **argv)
{
    struct settings settings;
    struct sweep_question question;
    struct sweep sweep = {.points = NULL};
    struct import import = {.framework = NULL};
    struct arena arena = {0};
    struct err err = {0};
    settings_parse_from(COMMAND_SWEEP, argc, argv, import_files, &import, &settings);
    struct progress progress = progress_begin(!settings.quiet);
    enum err_code rc = read_question(&settings, &arena, &question, &err);
    if (rc == ERR_OK)
        say_notes(&settings);
    if (rc == ERR_OK && settings.output)
        rc = files_check_folder(settings.output, &err);
    if (rc == ERR_OK)
        rc = sweep_run(&question, progress_show, &progress, &sweep, &err);
    if (rc == ERR_OK)
        rc = check_any(&sweep, &err);
    if (rc == ERR_OK)
        rc = show(&question, &sweep, &import, &err);
    const int status = rc != ERR_OK ? report_error(&err) : sweep.fits ? EXIT_DONE : EXIT_NO_FIT;
    sweep_free(&sweep);
    import_free(&import);
    arena_free(&arena);
    return status;
}
