/* export.h - the settings of a plan as a framework's configuration file.
 *
 * A file is made from the framework's rows and then read back (import.h): what the framework cannot
 * say is what comes back otherwise. Such settings are refused, not rounded. Settings that a
 * framework leaves to the user's own script, and those of the cluster, are no fault of the file:
 * they are listed, and stand in it as options of ours, so that `--from` gives the same plan:
 *
 *     # shardplan: --gpu h100-sxm --seq 8192
 *
 * (in JSON, which has no comments, under the key "shardplan"). */
#ifndef SHARDPLAN_EXPORT_H
#define SHARDPLAN_EXPORT_H

#include "frameworks/framework.h"
#include "plan/plan.h"

struct exported { /* zero-initialise; export_free */
    char *text;   /* of the file: owned */
    size_t length;
    enum document_syntax syntax; /* ... which its name's end has to say, if it is to be read back */
    const char *versions;        /* of the framework that it is for */
    struct arena arena;
    const char **script; /* a line each: what the user's script has to say; in the arena */
    uint32_t script_count;
};

/* Writes what `settings` (of COMMAND_PLAN) and, for fsdp2, the plan's units say (`plan` may be NULL
 * for the others), for "fsdp2", "torchtitan", "accelerate" or "deepspeed". ERR_INVALID: there is no
 * such framework; ERR_UNSUPPORTED: it cannot run the system or cannot say a setting, with each
 * named. On any return the caller owns *out: export_free. */
enum err_code export_plan(const struct settings *settings, const struct plan *plan, const char *to,
                          struct exported *out, struct err *err);

/* Which settings export_plan would refuse: a bit a row of the table in `rows`, and each by name in
 * `list`, as "--clip off (it would be 1)". In `idle` those that no key says, but that have no
 * effect beside the others (checkpointed blocks without checkpointing): they stand in the file as
 * options of ours. Errors are those of export_plan that no single setting is to blame for: such as
 * a system that it cannot run. */
enum err_code export_refused(const struct settings *settings, const char *to,
                             uint64_t rows[SETTINGS_ROW_WORDS], uint64_t idle[SETTINGS_ROW_WORDS],
                             char *list, size_t size, struct err *err);

/* The same settings with what the framework would make of each that is refused. Texts are in the
 * arena, or those of `settings`. */
enum err_code export_would(const struct settings *settings, const char *to, struct settings *would,
                           struct arena *arena, struct err *err);

void export_free(struct exported *exported);

/* ---- for the writers of this folder ---- */

struct text_file { /* what a file is made of, besides its keys */
    const struct framework *framework;
    const struct settings *settings;
    const struct document *document; /* NULL for fsdp2 */
    const struct plan *plan;
    const char *options;       /* "--gpu h100-sxm", or "" */
    const char *const *script; /* lent */
    uint32_t script_count;
};

/* Each writes a whole file to a stream. */
void write_toml(FILE *file, const struct text_file *from);
void write_yaml(FILE *file, const struct text_file *from);
void write_json(FILE *file, const struct text_file *from);
void write_fsdp2(FILE *file, const struct text_file *from);

#endif
