/* json_file.h - a JSON document from a file that may be anything. */
#ifndef SHARDPLAN_JSON_FILE_H
#define SHARDPLAN_JSON_FILE_H

#include "base/err.h"

#include <jansson.h>

/* Deepest nesting that is read: files of ours and of others have six levels or so, and what follows
 * them, jansson first, has a stack that is not endless. */
enum { JSON_DEEPEST = 64 };

/* json_loadb of a text that somebody else wrote: NULL, with what is wrong in *at, too, where it is
 * nested deeper. The caller owns what it gets. */
json_t *json_text_read(const char *text, size_t length, size_t flags, json_error_t *at);

/* The document, without duplicate members: the caller's (json_decref). NULL: ERR_INVALID or
 * ERR_NOMEM as file_read's, ERR_INVALID "file:line:column: ...". */
json_t *json_file_read(const char *path, struct err *err);

#endif
