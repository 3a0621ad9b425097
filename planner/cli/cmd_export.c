/* cmd_export.c - shardplan export: a plan's settings as a framework's configuration. */
#include "cli/commands.h"
#include "cli/export_file.h"
#include "settings/settings_parse.h"

static void print_json(const struct exported *exported, const struct settings *s)
{
    json_t *object = json_object(), *script = json_array();
    for (uint32_t i = 0; i < exported->script_count; i++)
        json_array_append_new(script, json_string(exported->script[i]));
    json_object_set_new(object, "framework", json_string(export_target_name(s->to)));
    json_object_set_new(object, "written_for", json_string(exported->versions));
    json_object_set_new(object, "output", s->output ? json_string(s->output) : json_null());
    json_object_set_new(object, "text", json_string(exported->text));
    json_object_set_new(object, "script", script);
    report_json(object);
}

int command_export(int argc, char **argv)
{
    struct settings settings;
    struct exported exported = {.text = NULL};
    struct err err = {0};
    settings_parse(COMMAND_EXPORT, argc, argv, &settings);
    enum err_code rc = export_read(settings.plan, settings.to, &exported, &err);
    if (rc == ERR_OK && (settings.output || !settings.json))
        rc = export_write(&exported, settings.output, &err);
    if (rc == ERR_OK && settings.json)
        print_json(&exported, &settings);
    else if (rc == ERR_OK && !settings.quiet)
        export_list_script(&exported);
    const int status = rc == ERR_OK ? EXIT_DONE : report_error(&err);
    export_free(&exported);
    return status;
}
