/* export_file.c - see export_file.h. */
#include "cli/export_file.h"

#include "base/file.h"
#include "frameworks/document.h"
#include "plan/plan_json.h"
#include "report/files.h"

static const struct {
    const char *name, *file;
} targets[] = {
    [EXPORT_FSDP2] = {"fsdp2", "fsdp2.py"},
    [EXPORT_TORCHTITAN] = {"torchtitan", "torchtitan.toml"},
    [EXPORT_ACCELERATE] = {"accelerate", "accelerate.yaml"},
    [EXPORT_DEEPSPEED] = {"deepspeed", "deepspeed.json"},
};

const char *export_target_name(enum export_target target)
{
    return targets[target].name;
}

const char *export_target_file(enum export_target target)
{
    return targets[target].file;
}

enum err_code export_read(const char *path, enum export_target to, struct exported *out,
                          struct err *err)
{
    struct plan *plan;
    struct plan_json_extra extra;
    struct settings planned;
    struct arena arena = {0};
    TRY(plan_read_json_extra(path, &plan, &extra, err));
    settings_defaults(&planned, COMMAND_PLAN);
    enum err_code rc = extra.settings
                           ? settings_take_echo(&planned, extra.settings, &arena, err)
                           : err_set(err, ERR_INVALID, "%s: it has no \"settings\"", path);
    if (rc != ERR_OK && extra.settings)
        err_context(err, "%s: \"settings\"", path);
    if (rc == ERR_OK)
        rc = export_plan(&planned, plan, export_target_name(to), out, err);
    plan_json_extra_free(&extra);
    plan_free(plan);
    arena_free(&arena);
    return rc;
}

enum err_code export_write(const struct exported *exported, const char *path, struct err *err)
{
    struct file_writer to;
    if (!path)
        return fwrite(exported->text, 1, exported->length, stdout) == exported->length &&
                       fflush(stdout) == 0
                   ? ERR_OK
                   : err_set(err, ERR_IO, "standard output could not be written");
    char ends[DOCUMENT_ENDS];
    if (document_syntax_of(path) != exported->syntax)
        return err_set(err, ERR_INVALID, "-o %s: --from knows a file for %s by its name's end: %s",
                       path, exported->versions, document_ends(exported->syntax, ends));
    TRY(files_make_parent(path, err));
    TRY(file_create(path, &to, err));
    fwrite(exported->text, 1, exported->length, to.file); /* file_commit looks at the stream */
    return file_commit(&to, ERR_OK, err);
}

void export_list_script(const struct exported *exported)
{
    if (exported->script_count)
        fprintf(stderr, "shardplan: for %s; the training script has to say:\n", exported->versions);
    for (uint32_t i = 0; i < exported->script_count; i++)
        fprintf(stderr, "  %s\n", exported->script[i]);
}
