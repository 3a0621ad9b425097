/* import_files.c - the files of one job as its settings: who starts it, and what is started. */
#include "families/families.h"
#include "frameworks/framework.h"
#include "frameworks/import.h"
#include "frameworks/import_parts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* In the order in which they are read. */
enum file_part { PART_DEEPSPEED, PART_LAUNCHER, PART_TRAINER, PARTS };

struct files {
    struct document of[PARTS];
    bool has[PARTS];
};

static void free_files(struct files *files)
{
    for (int part = 0; part < PARTS; part++)
        if (files->has[part])
            document_free(&files->of[part]);
}

static const char *about(const struct document *document)
{
    const struct framework *framework = framework_of(document);
    return !framework              ? "no configuration that is known"
           : framework->about_file ? framework->about_file(document)
                                   : framework->about;
}

static enum file_part part_of(const struct document *document)
{
    const struct framework *framework = framework_of(document);
    return framework == &framework_deepspeed      ? PART_DEEPSPEED
           : framework == &framework_accelerate   ? PART_LAUNCHER
           : framework == &framework_transformers ? PART_TRAINER
                                                  : PARTS;
}

static enum err_code read_files(struct files *files, const char *const *paths, uint32_t count,
                                struct err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        struct document document;
        const enum err_code rc = document_read(paths[i], &document, err);
        const enum file_part part = rc == ERR_OK ? part_of(&document) : PARTS;
        if (rc == ERR_OK && part < PARTS && !files->has[part]) {
            files->of[part] = document;
            files->has[part] = true;
            continue;
        }
        if (rc == ERR_OK)
            err_set(
                err, ERR_INVALID,
                "--from %s: %s, %s; of a job there may be accelerate's file or DeepSpeed's, and "
                "one of what it starts (TRL, axolotl, LLaMA-Factory, TrainingArguments)",
                paths[i], about(&document),
                part < PARTS ? "as another one is" : "which is read alone");
        document_free(&document);
        return err_recorded(err);
    }
    return ERR_OK;
}

/* Whether what `by` names is that file, by any path: looked for as import.c does, as it stands and
 * beside `by`. */
static bool names_file(struct document *by, const char *named, const char *path)
{
    struct stat one, other;
    const char *slash = strrchr(by->path, '/');
    const char *beside = arena_printf(&by->arena, "%.*s%s", slash ? (int)(slash - by->path) + 1 : 0,
                                      by->path, named);
    if (strcmp(named, path) == 0)
        return true;
    if (stat(named, &one) != 0 && (named[0] == '/' || stat(beside, &one) != 0))
        return false;
    return stat(path, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* DeepSpeed's file is the one that another names; accelerate reads none for another system. */
static enum err_code name_deepspeed(struct files *files, struct err *err)
{
    const struct node *type = files->has[PART_LAUNCHER]
                                  ? document_find(&files->of[PART_LAUNCHER], "distributed_type")
                                  : NULL;
    const bool deepspeed = type && type->text && strcmp(type->text, "DEEPSPEED") == 0;
    const bool by_launcher = !files->has[PART_TRAINER] || deepspeed;
    if (!files->has[PART_TRAINER] && type && type->text && !deepspeed)
        return err_set(err, ERR_INVALID,
                       "--from %s: %s:%u: distributed_type says %s, which reads no file of "
                       "DeepSpeed's: leave one of them out",
                       files->of[PART_DEEPSPEED].path, files->of[PART_LAUNCHER].path, type->line,
                       node_said(type));
    struct document *by = &files->of[by_launcher ? PART_LAUNCHER : PART_TRAINER];
    const char *key = framework_of(by)->named;
    const struct node *named = document_find(by, key);
    const char *path = files->of[PART_DEEPSPEED].path;
    if (named && named->kind != NODE_NULL && !(named->text && names_file(by, named->text, path)))
        return err_set(err, ERR_INVALID, "%s:%u: %s names another file than --from %s", by->path,
                       named->line, key, path);
    if (!named || named->kind == NODE_NULL)
        document_put(by, key, NODE_TEXT, path);
    document_free(&files->of[PART_DEEPSPEED]);
    files->has[PART_DEEPSPEED] = false;
    return ERR_OK;
}

static bool says(const struct document *document, const char *path)
{
    const struct node *node = document_find(document, path);
    return node && node->kind != NODE_NULL && (node->first || node_is_true(node)) &&
           !(node->text && !*node->text);
}

/* Whether a trainer's file says how it is sharded. */
static bool says_system(const struct document *document)
{
    return says(document, "fsdp") || says(document, "fsdp_config") || says(document, "deepspeed");
}

/* Whether the launcher's file says no more than how many processes there are. */
static bool starts_alone(const struct document *document)
{
    const struct node *type = document_find(document, "distributed_type");
    return type && type->text &&
           (strcmp(type->text, "MULTI_GPU") == 0 || strcmp(type->text, "NO") == 0);
}

/* The launcher's keys ask what the model is, which the trainer's file says. */
static enum err_code set_model(struct settings *settings, struct import *trainer, struct err *err)
{
    char name[PRESET_NAME_SIZE];
    const struct node *node = document_find(&trainer->document, "model_name_or_path");
    if (!node)
        node = document_find(&trainer->document, "base_model");
    const bool named = node && node->kind == NODE_TEXT;
    const char *there = named ? import_model_path(trainer, node->text) : NULL;
    if (!there && named && model_preset_of_path(node->text, name))
        there = arena_strdup(&trainer->arena, name);
    return there ? settings_set(settings, "model", there, err) : ERR_OK;
}

/* Both: each document goes to an import. */
static enum err_code take_both(struct import *im, struct settings *settings, struct files *files,
                               const struct setting_given *given, uint32_t given_count,
                               struct err *err)
{
    struct import *launcher = xmalloc(sizeof *launcher);
    *launcher = (struct import){.document = files->of[PART_LAUNCHER]};
    *im = (struct import){.document = files->of[PART_TRAINER], .before = launcher};
    files->has[PART_LAUNCHER] = files->has[PART_TRAINER] = false;
    launcher->above = im->document.path;
    launcher->processes_only = starts_alone(&launcher->document) && says_system(&im->document);
    TRY(set_model(settings, im, err));
    TRY(import_take(launcher, settings, given, given_count, err));
    if (launcher->named.root && says(&im->document, framework_transformers.named))
        return err_set(err, ERR_INVALID, "%s and %s name a file of DeepSpeed's each: leave one out",
                       launcher->document.path, im->document.path);
    im->named = launcher->named;
    im->named_lent = launcher->named.root != NULL;
    return import_take(im, settings, given, given_count, err);
}

static enum err_code take_files(struct import *im, struct settings *settings, struct files *files,
                                const struct setting_given *given, uint32_t given_count,
                                struct err *err)
{
    settings->unplanned = settings->misspelt = NULL;
    if (files->has[PART_DEEPSPEED])
        TRY(name_deepspeed(files, err));
    if (files->has[PART_LAUNCHER] && files->has[PART_TRAINER])
        return take_both(im, settings, files, given, given_count, err);
    const enum file_part part = files->has[PART_LAUNCHER] ? PART_LAUNCHER : PART_TRAINER;
    files->has[part] = false;
    return import_document(im, settings, &files->of[part], given, given_count, err);
}

enum err_code import_files(void *import, struct settings *settings, const char *const *paths,
                           uint32_t path_count, const struct setting_given *given,
                           uint32_t given_count, struct err *err)
{
    struct import *im = import;
    struct files files = {.has = {false}};
    *im = (struct import){.framework = NULL};
    if (path_count == 1)
        return import_file(im, settings, paths[0], given, given_count, err);
    enum err_code rc = read_files(&files, paths, path_count, err);
    if (rc == ERR_OK)
        rc = take_files(im, settings, &files, given, given_count, err);
    free_files(&files);
    return rc;
}
