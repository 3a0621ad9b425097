/* cmd_tune.c - shardplan tune: the fastest settings that fit, and why. */
#include "cli/commands.h"
#include "cli/export_file.h"
#include "cli/progress.h"
#include "frameworks/import.h"
#include "report/files.h"
#include "report/tune_result.h"
#include "settings/settings_parse.h"

#include <signal.h>

/* A handler has nothing else that it could write to. */
static volatile int interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static void show(const struct tuned *t, const struct settings *settings, const char *note)
{
    if (settings->json) {
        report_json(tune_json(t));
    } else if (!settings->quiet) {
        tune_print(stdout, t);
        if (settings->output && t->search.front_count)
            printf("\n  %s/: tune.json, %splan.json and what else `shardplan plan` writes\n",
                   settings->output, note ? "" : "pareto.svg, ");
    }
    if (note)
        fprintf(stderr, "shardplan: %s\n", note);
}

/* The first interrupt ends the search, the second the program. */
static void catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
}

/* Writes the choice as the framework's file, beside its plan.json. */
static enum err_code export_choice(const struct settings *settings, struct err *err)
{
    char plan[4096], path[4096];
    struct exported exported = {.text = NULL};
    files_path(settings->output, "plan.json", plan, sizeof plan);
    files_path(settings->output, export_target_file(settings->to), path, sizeof path);
    enum err_code rc = export_read(plan, settings->to, &exported, err);
    if (rc == ERR_OK)
        rc = export_write(&exported, path, err);
    if (rc == ERR_OK && !settings->json && !settings->quiet) {
        printf("  %s: for %s\n", path, export_target_name(settings->to));
        fflush(stdout);
        export_list_script(&exported);
    }
    export_free(&exported);
    return rc == ERR_OK ? rc : err_context(err, "%s is there, but not %s", plan, path);
}

/* What the framework of --to cannot say, of settings of this command. */
static enum err_code refuses(void *context, const struct settings *settings,
                             uint64_t rows[SETTINGS_ROW_WORDS], uint64_t idle[SETTINGS_ROW_WORDS],
                             char *list, size_t size, struct err *err)
{
    const enum export_target *to = context;
    struct settings planned = *settings;
    planned.command = COMMAND_PLAN;
    return export_refused(&planned, export_target_name(*to), rows, idle, list, size, err);
}

static enum err_code would(void *context, const struct settings *settings, struct settings *out,
                           struct arena *arena, struct err *err)
{
    const enum export_target *to = context;
    struct settings planned = *settings;
    planned.command = COMMAND_PLAN;
    const enum err_code rc = export_would(&planned, export_target_name(*to), out, arena, err);
    out->command = settings->command;
    return rc;
}

/* What is found, written and shown; the export is of the plan.json that was written. */
static enum err_code leave(const struct tuned *tuned, const struct settings *settings,
                           struct err *err)
{
    const bool writes = tuned->search.front_count > 0 && settings->output;
    const char *note = NULL;
    enum err_code rc = ERR_OK;
    int hold = -1;
    if (writes)
        TRY(files_take_folder(settings->output, &hold, err));
    if (writes)
        rc = tune_write(tuned, settings->output, &note, err);
    if (rc == ERR_OK)
        show(tuned, settings, note);
    if (rc == ERR_OK && writes && settings->to != EXPORT_NONE)
        rc = export_choice(settings, err);
    files_give_folder(hold);
    return rc;
}

static int search(const struct settings *settings)
{
    enum export_target to = settings->to;
    struct err err = {0};
    if (settings->to != EXPORT_NONE && !settings->output) {
        err_set(&err, ERR_INVALID, "--to: in which folder? Give -o, too");
        return report_error(&err);
    }
    if (settings->output && files_check_folder(settings->output, &err) != ERR_OK)
        return report_error(&err);
    struct progress progress = progress_begin(!settings->quiet);
    const struct tune_options options = {
        .stop = &interrupted,
        .progress = progress_name,
        .context = &progress,
        .refuses = to == EXPORT_NONE ? NULL : refuses,
        .would = to == EXPORT_NONE ? NULL : would,
        .refuses_context = &to,
        .reader = to == EXPORT_NONE ? NULL : export_target_name(to),
    };
    struct tuned *tuned = xmalloc(sizeof *tuned); /* no small part of a stack */
    catch_interrupt();
    enum err_code rc = tune(settings, &options, tuned, &err);
    bool fits = false;
    progress_end(&progress);
    if (rc == ERR_OK) {
        fits = tuned->search.front_count > 0;
        rc = leave(tuned, settings, &err);
        tune_free(tuned);
    }
    free(tuned);
    return rc != ERR_OK ? report_error(&err) : fits ? EXIT_DONE : EXIT_NO_FIT;
}

int command_tune(int argc, char **argv)
{
    struct settings settings;
    struct import import = {.framework = NULL};
    settings_parse_from(COMMAND_TUNE, argc, argv, import_files, &import, &settings);
    if (settings.from && !settings.json && !settings.quiet)
        import_print(stdout, &import);
    const int status = search(&settings);
    import_free(&import);
    return status;
}
