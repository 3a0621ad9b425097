/* json_file.c - see json_file.h. */
#include "base/json_file.h"

#include "base/file.h"

#include <stdlib.h>

json_t *json_file_read(const char *path, struct err *err)
{
    json_error_t at;
    size_t length;
    char *text = file_read(path, &length, err);
    if (!text)
        return NULL;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!root)
        err_set(err, ERR_INVALID, "%s:%d:%d: %s", path, at.line, at.column, at.text);
    return root;
}
