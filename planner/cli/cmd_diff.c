/* cmd_diff.c - shardplan diff: two plans, two models, or a job and changes to it. */
#include "base/file.h"
#include "cli/commands.h"
#include "plan/plan_json.h"
#include "report/difference_report.h"
#include "report/files.h"
#include "report/model_notes.h"
#include "report/result.h"
#include "report/time_result.h"
#include "search/axis.h"
#include "settings/settings_parse.h"
#include "settings/settings_resolve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct side {
    struct plan *plan; /* owned, as the next */
    struct plan_json_extra extra;
    char label[256];
};

static void side_free(struct side *side)
{
    plan_free(side->plan);
    plan_json_extra_free(&side->extra);
}

/* ---- what A and B are ---- */

static bool is_there(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

/* A config.json is a file, too: a plan has instructions. A folder is a model's if it has one. */
static bool is_plan(const char *given)
{
    char path[4096];
    size_t length;
    struct stat status;
    snprintf(path, sizeof path, "%s/config.json", given);
    if (is_there(path) || stat(plan_json_path(given, path, sizeof path), &status) != 0 ||
        !S_ISREG(status.st_mode))
        return false;
    char *text = file_read(path, &length, NULL);
    const bool plan =
        !text || memmem(text, length, "\"instructions\"", 14); /* the reader says why */
    free(text);
    return plan;
}

static bool is_changes(const char *text)
{
    return strchr(text, '=') && !is_there(text);
}

/* ---- sides ---- */

static enum err_code read_side(const char *path, struct side *out, struct err *err)
{
    snprintf(out->label, sizeof out->label, "%s", path);
    return plan_read_json_extra(path, &out->plan, &out->extra, err);
}

/* Plans and times a job as `plan` does. */
static enum err_code make_side(const struct choice *choice, struct side *out, struct err *err)
{
    struct settings settings = choice->settings;
    struct job job;
    struct machine machine;
    struct prediction p = {.plan = NULL};
    struct step_time t = {.simulation = NULL};
    TRY(settings_resolve(&settings, &job, &machine, err));
    model_notes_print(stderr, "shardplan: ", &job);
    enum err_code rc = choice_set_numbers(choice, &machine.profile, err);
    if (rc == ERR_OK)
        rc = predict_few(&job, &machine, &p, err);
    if (rc == ERR_OK)
        rc = step_time(&p, &job, &machine, STEP_TIME_DRAWS, &t, err);
    if (rc == ERR_OK) {
        out->extra.memory = result_json(&settings, &job, &machine, &p, NULL, 0);
        out->extra.settings = json_incref(json_object_get(out->extra.memory, "settings"));
        out->extra.time = time_plan_json(&t, p.plan);
        out->plan = p.plan;
        p.plan = NULL;
    }
    step_time_free(&t);
    prediction_free(&p);
    settings_release(&job, &machine);
    return rc;
}

/* Options as of `plan`, whose rows they are. */
static struct settings of_model(const struct settings *s, const char *model)
{
    struct settings settings = *s;
    settings.command = COMMAND_PLAN;
    settings.model = model;
    return settings;
}

/* The settings that a plan.json was made with; texts are in the arena. */
static enum err_code of_plan(const json_t *echo, struct arena *arena, struct settings *out,
                             struct err *err)
{
    settings_defaults(out, COMMAND_PLAN);
    return settings_take_echo(out, echo, arena, err);
}

/* "reshard=never,micro-batch=2" put into the base; a value ends where the next name begins. */
static enum err_code change(const struct settings *base, const char *text, struct arena *arena,
                            struct choice *out, struct err *err)
{
    struct axis axes[CHOICE_NUMBERS];
    const char *values[CHOICE_NUMBERS];
    char *list = arena_strdup(arena, text), *rest = NULL;
    uint32_t count = 0;
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (count == CHOICE_NUMBERS)
            return err_set(err, ERR_INVALID, "%s: at most %d changes", text, CHOICE_NUMBERS);
        if (!strchr(one, '='))
            return err_set(err, ERR_INVALID, "%s: expected SETTING=VALUE,...", text);
        TRY(axis_read(base, one, arena, &axes[count], err));
        values[count] = axes[count].values[0];
        count++;
    }
    return axis_choose(base, axes, values, count, out, err);
}

static enum err_code make_changed(const struct settings *s, bool plan_a, const struct side *a,
                                  struct arena *arena, struct side *b, struct err *err)
{
    struct settings base = of_model(s, s->a);
    struct choice choice;
    snprintf(b->label, sizeof b->label, "A with %s", s->b);
    if (plan_a)
        TRY(of_plan(a->extra.settings, arena, &base, err));
    TRY(change(&base, s->b, arena, &choice, err));
    return make_side(&choice, b, err);
}

static enum err_code make_or_read(const struct settings *s, const char *text, bool plan,
                                  struct side *out, struct err *err)
{
    if (plan)
        return read_side(text, out, err);
    const struct choice choice = {.settings = of_model(s, text)};
    snprintf(out->label, sizeof out->label, "%s", text);
    return make_side(&choice, out, err);
}

/* "llama-3.1-8b --gpus 64": with the options that hold for both. */
static void label_options(const struct settings *s, struct side *side)
{
    char given[1024];
    const struct settings settings = of_model(s, side->label);
    const size_t used = strlen(side->label);
    settings_given_text(&settings, given, sizeof given);
    snprintf(side->label + used, sizeof side->label - used, "%s%s", given[0] ? " " : "", given);
}

/* Options describe a model: where there is none they would be lost. */
static enum err_code check_options(const struct settings *s, struct err *err)
{
    char given[1024];
    const struct settings settings = of_model(s, s->a);
    if (!settings_given_text(&settings, given, sizeof given)[0])
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%.200s: options are for a model; %s is a plan.json: write B as changes to it, "
                   "such as gpus=16",
                   given, s->a);
}

static enum err_code make_sides(const struct settings *s, struct arena *arena, struct side *a,
                                struct side *b, struct err *err)
{
    const bool changes = is_changes(s->b);
    if (is_changes(s->a))
        return err_set(err, ERR_INVALID, "%s: A is a model or a plan.json; changes come second",
                       s->a);
    const bool plan_a = is_plan(s->a), plan_b = !changes && is_plan(s->b);
    if (plan_a && (changes || plan_b))
        TRY(check_options(s, err));
    TRY(make_or_read(s, s->a, plan_a, a, err));
    TRY(changes ? make_changed(s, plan_a, a, arena, b, err)
                : make_or_read(s, s->b, plan_b, b, err));
    if (!plan_a)
        label_options(s, a);
    if (!changes && !plan_b)
        label_options(s, b);
    return ERR_OK;
}

/* ---- the command ---- */

static enum err_code write_files(const struct settings *s, const struct difference_report *report,
                                 const char **note, struct err *err)
{
    int hold;
    if (!s->output)
        return ERR_OK;
    TRY(files_take_folder(s->output, &hold, err));
    const enum err_code rc = difference_report_write(report, s->output, note, err);
    files_give_folder(hold);
    return rc;
}

static enum err_code show(const struct settings *s, const struct difference_report *report,
                          struct err *err)
{
    const char *note = NULL;
    TRY(write_files(s, report, &note, err));
    if (s->json) {
        report_json(difference_json(report));
    } else if (!s->quiet) {
        difference_print(stdout, report);
        if (s->output)
            printf("\n  %s/: diff.json%s\n", s->output, note ? "" : ", diff.svg");
    }
    if (note)
        fprintf(stderr, "shardplan: %s\n", note);
    return ERR_OK;
}

static enum err_code compare(const struct settings *s, const struct side *a, const struct side *b,
                             struct err *err)
{
    struct difference difference;
    struct difference_report report = {
        .label = {a->label, b->label},
        .side = {{a->plan, a->extra.settings, a->extra.time},
                 {b->plan, b->extra.settings, b->extra.time}},
        .memory = {a->extra.memory, b->extra.memory},
        .difference = &difference,
    };
    difference_of(report.side, &difference);
    const enum err_code rc = show(s, &report, err);
    difference_free(&difference);
    return rc;
}

int command_diff(int argc, char **argv)
{
    struct settings settings;
    struct side a = {.plan = NULL}, b = {.plan = NULL};
    struct arena arena = {0};
    struct err err = {0};
    settings_parse(COMMAND_DIFF, argc, argv, &settings);
    enum err_code rc = make_sides(&settings, &arena, &a, &b, &err);
    if (rc == ERR_OK)
        rc = compare(&settings, &a, &b, &err);
    const int status = rc == ERR_OK ? EXIT_DONE : report_error(&err);
    side_free(&a);
    side_free(&b);
    arena_free(&arena);
    return status;
}
