/* read_parts.h - for the readers of this folder only: what document_read.c calls, and what they
 * share.
 */
#ifndef SHARDPLAN_READ_PARTS_H
#define SHARDPLAN_READ_PARTS_H

#include "frameworks/document.h"

/* Each fills document->root, which is an empty table. ERR_INVALID names file and line. */
enum err_code read_toml(struct document *document, const char *text, struct err *err);
enum err_code read_yaml(struct document *document, const char *text, struct err *err);
enum err_code read_json(struct document *document, const char *text, struct err *err);
enum err_code read_python(struct document *document, const char *text, const char *name,
                          struct err *err);

/* ---- quoted text of TOML and Python ---- */

struct growing_text { /* owned: free(bytes) */
    char *bytes;
    size_t count, cap;
};

void text_add(struct growing_text *text, char c);

/* Adds a code point as UTF-8; false: it is none. */
bool text_add_code(struct growing_text *text, uint32_t code);

/* Takes `digits` hexadecimal digits at *at; false: they are not there. */
bool take_hex(const char **at, int digits, uint32_t *out);

#endif
