/* several.c - see several.h. */
#include "cli/several.h"

#include "base/arena.h"
#include "cli/commands.h"
#include "report/files.h"
#include "report/report.h"
#include "report/systems_result.h"
#include "search/sweep.h"

#include <stdio.h>
#include <stdlib.h>

static const struct settings *first_of(const struct settings_list *list)
{
    return &list->of[0];
}

/* The folder of -o where it was given; NULL. */
static const char *folder_of(const struct settings *s)
{
    const struct setting *row = settings_find(s, "output", NULL);
    return row && settings_is_given(s, row) && !s->no_files ? s->output : NULL;
}

/* What is of one step, or of one file. */
static enum err_code check(const struct settings *s, struct err *err)
{
    const char *of_one = s->explain    ? "explain"
                         : s->goodput  ? "goodput"
                         : s->start_up ? "start-up"
                         : s->events   ? "events"
                                       : NULL;
    return of_one ? err_set(err, ERR_INVALID, "--%s is of one system: --strategy names several",
                            of_one)
                  : ERR_OK;
}

/* "ddp+autocast=bf16"; '/' cannot be in a file's name. */
static void folder_name(const char *dir, const char *name, char *text, size_t size)
{
    const int used = snprintf(text, size, "%s/", dir);
    snprintf(text + used, size - (size_t)used, "%s", name);
    for (char *c = text + used; *c; c++)
        if (*c == '/')
            *c = '_';
}

static enum err_code write_one(void *context, const struct settings *settings, const char *name,
                               const struct job *job, const struct machine *machine,
                               const struct prediction *prediction, const struct step_time *time,
                               struct err *err)
{
    char folder[4096];
    const char *dir = context, *note;
    struct settings its = *settings;
    if (snprintf(NULL, 0, "%s/%s", dir, name) >= (int)sizeof folder)
        return err_set(err, ERR_INVALID, "-o %.100s...: too long", dir);
    folder_name(dir, name, folder, sizeof folder);
    int hold;
    its.output = folder;
    TRY(files_take_folder(folder, &hold, err));
    const enum err_code rc = report_write(&its, job, machine, prediction, time, false, &note, err);
    files_give_folder(hold);
    return rc;
}

/* Where none was accepted, the first refusal is the error. */
static enum err_code check_any(const struct systems *systems, struct err *err)
{
    return systems->refused < systems->count
               ? ERR_OK
               : err_set(err, ERR_INVALID, "%s", systems->of[0].point.reason);
}

static enum err_code show(const struct systems *systems, const struct settings *s, const char *dir,
                          struct err *err)
{
    if (dir)
        TRY(files_write_json(dir, "systems.json", systems_json(systems), err));
    if (s->json)
        report_json(systems_json(systems));
    else if (!s->quiet)
        systems_print(stdout, systems);
    if (dir && !s->json && !s->quiet)
        printf("\n  %s/: systems.json, and of each system plan.json%s\n", dir,
               s->plan_alone ? "" : ", trace.json, report.html");
    return ERR_OK;
}

static enum err_code run_all(const struct settings_list *list, const char *dir,
                             struct systems *systems, struct err *err)
{
    TRY(systems_run(list, dir ? STEP_TIME_DRAWS : 0, dir ? write_one : NULL, (void *)(uintptr_t)dir,
                    systems, err));
    TRY(check_any(systems, err));
    return show(systems, first_of(list), dir, err);
}

/* The table is of the plans that lie beside it: the folder is held until all are there. */
static enum err_code answer(const struct settings_list *list, struct systems *systems,
                            struct err *err)
{
    const char *dir = folder_of(first_of(list));
    int hold = -1;
    TRY(check(first_of(list), err));
    if (dir)
        TRY(files_take_folder(dir, &hold, err));
    const enum err_code rc = run_all(list, dir, systems, err);
    files_give_folder(hold);
    return rc;
}

int several_answer(const struct settings_list *list)
{
    struct systems *systems = xmalloc(sizeof *systems); /* of some stacks it is most */
    struct err err = {0};
    const int status = answer(list, systems, &err) != ERR_OK ? report_error(&err)
                       : systems->best == SWEEP_NONE         ? EXIT_NO_FIT
                                                             : EXIT_DONE;
    free(systems);
    return status;
}
