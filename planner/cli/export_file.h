/* export_file.h - a plan.json as a framework's file: what `export` and `tune --to` write. */
#ifndef SHARDPLAN_EXPORT_FILE_H
#define SHARDPLAN_EXPORT_FILE_H

#include "frameworks/export.h"

/* "torchtitan"; its file in a folder: "torchtitan.toml". */
const char *export_target_name(enum export_target target);
const char *export_target_file(enum export_target target);

/* Makes the file of a plan.json. Errors are those of plan_read_json and export_plan; ERR_INVALID,
 * too: the plan does not say what it was made with. The caller owns *out: export_free. */
enum err_code export_read(const char *plan, enum export_target to, struct exported *out,
                          struct err *err);

/* Writes it to a path, and makes the folder that this lies in; NULL: to standard output.
 * ERR_INVALID: import would not know it by this name. */
enum err_code export_write(const struct exported *exported, const char *path, struct err *err);

/* Lists on standard error what the training script has to say itself. */
void export_list_script(const struct exported *exported);

#endif
