/* title.c - see title.h. */
#include "report/title.h"

#include "plan/repeat.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The last part of a path, without slashes behind it. */
static const char *last_part(char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        path[--end] = '\0';
    char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* "dir/config.json" becomes "dir", "config.json" becomes ".". */
static void leave_config(char *path)
{
    char *name = (char *)(uintptr_t)last_part(path);
    if (strcmp(name, "config.json") != 0)
        return;
    if (name == path)
        memcpy(name, ".", sizeof ".");
    else
        name[name == path + 1 ? 0 : -1] = '\0';
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

const char *title_model(const char *model, char text[TITLE_NAME])
{
    static const char ending[] = ".json";
    char path[PATH_MAX], whole[PATH_MAX];
    snprintf(path, sizeof path, "%s", model);
    leave_config(path);
    const char *name = last_part(path);
    if (is_dots(name) && realpath(path, whole))
        name = last_part(whole);
    size_t length = strlen(name);
    if (length > sizeof ending && strcmp(name + length - (sizeof ending - 1), ending) == 0)
        length -= sizeof ending - 1;
    snprintf(text, TITLE_NAME, "%.*s", (int)length, name);
    return text;
}

const char *title_job(const char *model, const struct job *job, const struct machine *machine,
                      char text[TITLE_LINE])
{
    char name[TITLE_NAME];
    snprintf(text, TITLE_LINE, "%s on %u x %s, %s", title_model(model, name), job->strategy.world,
             machine->profile.title, system_name(job->strategy.system));
    return text;
}

const char *title_step(const struct plan *plan, char text[TITLE_NAME])
{
    snprintf(text, TITLE_NAME, "a step");
    if (plan->repeats)
        snprintf(text, TITLE_NAME, "%" PRIu32 " of %" PRIu64 " micro-batches of a step",
                 plan->micro_batch_count, plan_micro_batches_of_step(plan));
    return text;
}
