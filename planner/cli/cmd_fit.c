/* cmd_fit.c - shardplan fit: bytes per GPU and the verdict. */
#include "base/file.h"
#include "cli/commands.h"
#include "frameworks/import.h"
#include "report/result.h"
#include "settings/settings_parse.h"
#include "settings/settings_resolve.h"

/* One event of --events: [±bytes, category, where, unit or null, what]. Events are the allocs and
 * frees of tensors in the steady-state step, in host order. */
static void write_event(FILE *file, const struct plan *plan, const struct plan_instruction *i)
{
    char scope[256], what[160];
    const struct buffer *b = &plan->buffers[i->arg];
    const uint32_t index = plan_scope_unit(plan, i);
    const char *unit = index == PLAN_NO_UNIT ? NULL : plan->units[index].name;
    fprintf(file, "[%s%llu, \"%s\", \"%s\", ", i->op == PLAN_FREE ? "-" : "",
            (unsigned long long)b->bytes, category_name((enum category)b->category),
            plan_scope_text(plan, i, scope, sizeof scope));
    if (unit)
        fprintf(file, "\"%s\", ", unit[0] ? unit : "root");
    else
        fprintf(file, "null, ");
    fprintf(file, "\"%s\"]\n", plan_buffer_text(plan, b, what, sizeof what));
}

static enum err_code write_events(const struct plan *plan, const char *path, struct err *err)
{
    struct file_writer to;
    TRY(file_create(path, &to, err));
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if ((i->op != PLAN_ALLOC && i->op != PLAN_FREE) || (i->flags & PLAN_FIRST_STEP))
            continue;
        if (!plan->buffers[i->arg].scratch && plan->buffers[i->arg].bytes > 0)
            write_event(to.file, plan, i);
    }
    return file_commit(&to, ERR_OK, err);
}

static int finish(const struct settings *settings, const struct import *import,
                  const struct job *job, const struct machine *machine,
                  const struct prediction *prediction)
{
    struct remedy remedies[REMEDIES];
    const uint32_t count =
        prediction->fits ? 0 : remedies_find(settings, &job->config, machine, remedies);
    if (settings->json) {
        json_t *result = result_json(settings, job, machine, prediction, remedies, count);
        json_object_set_new(result, "from", import_json(import));
        json_dumpf(result, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(result);
    } else if (!settings->quiet) {
        result_print(stdout, settings, job, machine, prediction, remedies, count);
        import_print(stdout, import);
    }
    return prediction->fits ? EXIT_DONE : EXIT_NO_FIT;
}

static int fit(struct settings *settings, const struct import *import)
{
    struct job job;
    struct machine machine;
    struct prediction prediction;
    struct err err = {0};
    int status;
    if (settings_resolve(settings, &job, &machine, &err) != ERR_OK)
        return report_error(&err);
    if (predict(&job, &machine, &prediction, &err) != ERR_OK) {
        settings_release(&job, &machine);
        return report_error(&err);
    }
    if (settings->events && write_events(prediction.plan, settings->events, &err) != ERR_OK)
        status = report_error(&err);
    else
        status = finish(settings, import, &job, &machine, &prediction);
    prediction_free(&prediction);
    settings_release(&job, &machine);
    return status;
}

int command_fit(int argc, char **argv)
{
    struct settings settings;
    struct import import = {.framework = NULL};
    settings_parse_from(COMMAND_FIT, argc, argv, import_file, &import, &settings);
    const int status = fit(&settings, &import);
    import_free(&import);
    return status;
}
