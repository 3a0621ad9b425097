/* json_file.h - a JSON document from a file that may be anything. */
#ifndef SHARDPLAN_JSON_FILE_H
#define SHARDPLAN_JSON_FILE_H

#include "base/err.h"

#include <jansson.h>

/* The document, without duplicate members: the caller's (json_decref). NULL: ERR_INVALID or
 * ERR_NOMEM as file_read's, ERR_INVALID "file:line:column: ...". */
json_t *json_file_read(const char *path, struct err *err);

#endif
