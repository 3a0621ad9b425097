/* json_file.c - see json_file.h. */
#include "base/json_file.h"

#include "base/file.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How deep brackets go, which jansson follows with its stack. What is no JSON is counted, too. */
static bool is_too_deep(const char *text, size_t length, int *line)
{
    uint32_t depth = 0;
    bool quoted = false;
    *line = 1;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        *line += c == '\n';
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DEEPEST)
                return true;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return false;
}

json_t *json_text_read(const char *text, size_t length, size_t flags, json_error_t *at)
{
    int line;
    if (!is_too_deep(text, length, &line)) {
        json_t *root = json_loadb(text, length, flags, at);
        if (!root && json_error_code(at) == json_error_null_character)
            snprintf(at->text, sizeof at->text,
                     "a text holds a NUL (\\u0000), which is not allowed");
        return root;
    }
    *at = (json_error_t){.line = line, .column = 1};
    snprintf(at->text, sizeof at->text, "it is nested deeper than %d", JSON_DEEPEST);
    return NULL;
}

json_t *json_file_read(const char *path, struct err *err)
{
    json_error_t at;
    size_t length;
    char *text = file_read(path, &length, err);
    if (!text)
        return NULL;
    json_t *root = json_text_read(text, length, JSON_REJECT_DUPLICATES, &at);
    free(text);
    if (!root)
        err_set(err, ERR_INVALID, "%s:%d:%d: %s", path, at.line, at.column, at.text);
    return root;
}
