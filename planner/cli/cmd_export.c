/* cmd_export.c - shardplan export: a plan's settings as a framework's configuration. */
#include "base/file.h"
#include "cli/commands.h"
#include "frameworks/export.h"
#include "plan/plan_json.h"
#include "report/files.h"
#include "settings/settings_parse.h"

static const char *target_name(enum export_target target)
{
    static const char *const names[] = {
        [EXPORT_FSDP2] = "fsdp2",
        [EXPORT_TORCHTITAN] = "torchtitan",
        [EXPORT_ACCELERATE] = "accelerate",
        [EXPORT_DEEPSPEED] = "deepspeed",
    };
    return names[target];
}

static enum err_code write_out(const struct exported *exported, const char *path, struct err *err)
{
    struct file_writer to;
    if (!path)
        return fwrite(exported->text, 1, exported->length, stdout) == exported->length &&
                       fflush(stdout) == 0
                   ? ERR_OK
                   : err_set(err, ERR_IO, "standard output could not be written");
    TRY(files_make_parent(path, err));
    TRY(file_create(path, &to, err));
    fwrite(exported->text, 1, exported->length, to.file); /* file_commit looks at the stream */
    return file_commit(&to, ERR_OK, err);
}

static void print_json(const struct exported *exported, const struct settings *s)
{
    json_t *object = json_object(), *script = json_array();
    for (uint32_t i = 0; i < exported->script_count; i++)
        json_array_append_new(script, json_string(exported->script[i]));
    json_object_set_new(object, "framework", json_string(target_name(s->to)));
    json_object_set_new(object, "written_for", json_string(exported->versions));
    json_object_set_new(object, "output", s->output ? json_string(s->output) : json_null());
    json_object_set_new(object, "text", json_string(exported->text));
    json_object_set_new(object, "script", script);
    report_json(object);
}

static void list_script(const struct exported *exported)
{
    if (exported->script_count)
        fprintf(stderr, "shardplan: for %s; the training script has to say:\n", exported->versions);
    for (uint32_t i = 0; i < exported->script_count; i++)
        fprintf(stderr, "  %s\n", exported->script[i]);
}

static enum err_code export_file(const struct settings *s, struct arena *arena,
                                 struct exported *exported, struct err *err)
{
    struct plan *plan;
    struct plan_json_extra extra;
    struct settings planned;
    TRY(plan_read_json_extra(s->plan, &plan, &extra, err));
    settings_defaults(&planned, COMMAND_PLAN);
    enum err_code rc = extra.settings
                           ? settings_take_echo(&planned, extra.settings, arena, err)
                           : err_set(err, ERR_INVALID, "%s: it has no \"settings\"", s->plan);
    if (rc != ERR_OK && extra.settings)
        err_context(err, "%s: \"settings\"", s->plan);
    if (rc == ERR_OK)
        rc = export_plan(&planned, plan, target_name(s->to), exported, err);
    plan_json_extra_free(&extra);
    plan_free(plan);
    return rc;
}

int command_export(int argc, char **argv)
{
    struct settings settings;
    struct exported exported = {.text = NULL};
    struct arena arena = {0};
    struct err err = {0};
    settings_parse(COMMAND_EXPORT, argc, argv, &settings);
    enum err_code rc = export_file(&settings, &arena, &exported, &err);
    if (rc == ERR_OK && (settings.output || !settings.json))
        rc = write_out(&exported, settings.output, &err);
    if (rc == ERR_OK && settings.json)
        print_json(&exported, &settings);
    else if (rc == ERR_OK && !settings.quiet)
        list_script(&exported);
    const int status = rc == ERR_OK ? EXIT_DONE : report_error(&err);
    export_free(&exported);
    arena_free(&arena);
    return status;
}
