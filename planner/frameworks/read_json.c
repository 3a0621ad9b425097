/* read_json.c - JSON as a document.
 *
 * jansson reads the file and keeps no lines. It does keep members in the file's order and was told
 * to refuse a key that comes twice, so the keys of the tree are, in order, the strings of the text
 * that a colon follows: one cursor over the text gives every key its line. */
#include "frameworks/read_parts.h"

#include "base/json_file.h"
#include "base/number.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct cursor {
    const char *at;
    uint32_t line;
};

/* Moves behind the next string; true when it was a key. The text is valid JSON. */
static bool pass_string(struct cursor *cursor)
{
    while (*cursor->at && *cursor->at != '"')
        cursor->line += *cursor->at++ == '\n';
    if (*cursor->at)
        cursor->at++;
    while (*cursor->at && *cursor->at != '"')
        cursor->at += *cursor->at == '\\' ? 2 : 1;
    if (!*cursor->at)
        return true; /* cannot be: there are as many keys as the tree has */
    const char *next = ++cursor->at;
    next += strspn(next, " \t\r\n");
    return *next == ':';
}

static uint32_t next_key_line(struct cursor *cursor)
{
    while (!pass_string(cursor))
        ;
    return cursor->line;
}

/* The node of a value; `cursor` is behind its key, and behind the last key of it afterwards. */
static void add_value(struct document *document, struct node *node, const json_t *value,
                      struct cursor *cursor)
{
    char number[NUMBER_TEXT];
    const char *key;
    json_t *child;
    size_t i;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        node->kind = NODE_TABLE;
        json_object_foreach((json_t *)(uintptr_t)value, key, child)
        {
            const uint32_t line = next_key_line(cursor);
            add_value(document, node_add(document, node, key, NODE_NULL, NULL, line), child,
                      cursor);
        }
        return;
    case JSON_ARRAY:
        node->kind = NODE_LIST;
        json_array_foreach(value, i, child)
        {
            struct node *item = node_add(document, node, NULL, NODE_NULL, NULL, node->line);
            add_value(document, item, child, cursor);
        }
        return;
    case JSON_STRING:
        node->kind = NODE_TEXT;
        node->text = arena_strdup(&document->arena, json_string_value(value));
        return;
    case JSON_INTEGER:
        node->kind = NODE_INTEGER;
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        node->text = arena_strdup(&document->arena, number);
        return;
    case JSON_REAL:
        node->kind = NODE_REAL;
        node->text =
            arena_strdup(&document->arena, number_real_text(json_real_value(value), false, number));
        return;
    case JSON_NULL:
        node->kind = NODE_NULL;
        node->text = "null";
        return;
    default:
        node->kind = NODE_BOOL;
        node->text = json_is_true(value) ? "true" : "false";
    }
}

enum err_code read_json(struct document *document, const char *text, struct err *err)
{
    json_error_t error;
    json_t *json = json_text_read(text, strlen(text), JSON_REJECT_DUPLICATES, &error);
    if (!json)
        return err_set(err, ERR_INVALID, "%s:%d: %s", document->path, error.line, error.text);
    enum err_code rc = ERR_OK;
    if (!json_is_object(json)) {
        rc = err_set(err, ERR_INVALID, "%s: it is no object of keys", document->path);
    } else {
        struct cursor cursor = {text, 1};
        add_value(document, document->root, json, &cursor);
    }
    json_decref(json);
    return rc;
}
