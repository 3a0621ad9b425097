/* document.c - the tree, and what its readers share; see document.h. */
#include "frameworks/document.h"

#include "frameworks/read_parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the tree ---- */

struct node *node_child(const struct node *table, const char *key)
{
    for (struct node *n = table->first; n; n = n->next)
        if (n->key && !n->meant && strcmp(n->key, key) == 0)
            return n;
    return NULL;
}

struct node *node_add(struct document *document, struct node *parent, const char *key,
                      enum node_kind kind, const char *text, uint32_t line)
{
    struct node *node = arena_alloc(&document->arena, sizeof *node);
    document->node_count++;
    *node = (struct node){
        .key = key ? arena_strdup(&document->arena, key) : NULL,
        .kind = kind,
        .text = text ? arena_strdup(&document->arena, text) : NULL,
        .line = line,
    };
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    return parent->last = node;
}

/* The first of a path's keys, copied into the arena; *path is moved behind it and its dot. */
static const char *next_key(struct arena *arena, const char **path)
{
    const size_t length = strcspn(*path, ".");
    const char *key = arena_printf(arena, "%.*s", (int)length, *path);
    *path += length + ((*path)[length] == '.');
    return key;
}

struct node *document_find(const struct document *document, const char *path)
{
    struct arena arena = {0};
    struct node *node = document->root;
    while (node && *path)
        node = node_child(node, next_key(&arena, &path));
    arena_free(&arena);
    return node;
}

bool document_aside(const struct document *document, const char *key)
{
    for (const struct node *n = document->root->first; n; n = n->next)
        if (n->meant && strcmp(n->key, key) == 0)
            return true;
    return false;
}

struct node *document_put(struct document *document, const char *path, enum node_kind kind,
                          const char *text)
{
    struct node *node = document->root;
    while (*path) {
        const char *key = next_key(&document->arena, &path);
        struct node *child = node_child(node, key);
        if (node->kind == NODE_NULL) /* "section:" with nothing below it */
            node->kind = NODE_TABLE;
        node = child ? child : node_add(document, node, key, NODE_TABLE, NULL, 0);
    }
    node->kind = kind;
    if (kind == NODE_LIST)
        node_add(document, node, NULL, NODE_TEXT, text, 0);
    else
        node->text = arena_strdup(&document->arena, text);
    return node;
}

void document_say(struct document *document, struct node *was, const char *was_path,
                  const char *path, enum node_kind kind, const char *text)
{
    const char *name = arena_printf(&document->arena, "%.*s", (int)strcspn(path, "."), path);
    const struct node *section = strchr(path, '.') ? node_child(document->root, name) : NULL;
    if (document_find(document, path) ||
        (section && section->kind != NODE_TABLE && section->kind != NODE_NULL))
        return;
    struct node *node = document_put(document, path, kind, text);
    node->line = was->line;
    node->was = was->was ? was->was : was_path;
    node->said = node_said(was);
    was->read = true;
}

void document_copy(struct document *document, struct node *into, const struct node *from)
{
    for (const struct node *n = from->first; n; n = n->next) {
        struct node *own = n->key ? node_child(into, n->key) : NULL;
        if (!own)
            own = node_add(document, into, n->key, n->kind, n->text, n->line);
        if (own->kind == n->kind && (n->kind == NODE_TABLE || n->kind == NODE_LIST))
            document_copy(document, own, n);
    }
}

const char *node_said(const struct node *node)
{
    return node->said ? node->said : node->text;
}

const char *node_kind_name(enum node_kind kind)
{
    static const char *const names[] = {
        [NODE_NULL] = "null",     [NODE_BOOL] = "a boolean",      [NODE_INTEGER] = "an integer",
        [NODE_REAL] = "a real",   [NODE_TEXT] = "a text",         [NODE_LIST] = "a list",
        [NODE_TABLE] = "a table", [NODE_OTHER] = "an expression",
    };
    return names[kind];
}

bool node_loose_bool(const char *text, const char **out)
{
    static const char *const yes[] = {"true", "yes", "1", "on", "y", "t"};
    static const char *const no[] = {"false", "no", "0", "off", "n", "f"};
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) {
        if (strcasecmp(text, yes[i]) == 0)
            *out = "true";
        else if (strcasecmp(text, no[i]) == 0)
            *out = "false";
        else
            continue;
        return true;
    }
    return false;
}

bool node_is_true(const struct node *node)
{
    const char *text = node && node->kind != NODE_NULL ? node->text : NULL;
    return text && (!node_loose_bool(text, &text) || strcmp(text, "true") == 0);
}

enum node_kind node_number_kind(const char *text)
{
    const char *at = text + (*text == '-' || *text == '+');
    const size_t whole = strspn(at, "0123456789");
    size_t digits = whole;
    at += whole;
    if (!*at)
        return whole ? NODE_INTEGER : NODE_TEXT;
    if (*at == '.') {
        const size_t part = strspn(++at, "0123456789");
        digits += part;
        at += part;
    }
    if (digits && (*at == 'e' || *at == 'E')) {
        at++;
        at += *at == '-' || *at == '+';
        const size_t part = strspn(at, "0123456789");
        if (!part)
            return NODE_TEXT;
        at += part;
    }
    return digits && !*at ? NODE_REAL : NODE_TEXT;
}

/* ---- texts ---- */

void text_add(struct growing_text *text, char c)
{
    ARRAY_GROW(text->bytes, text->count, text->cap);
    text->bytes[text->count++] = c;
}

bool text_add_code(struct growing_text *text, uint32_t code)
{
    if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return false;
    if (code < 0x80) {
        text_add(text, (char)code);
        return true;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint32_t first[] = {0, 0xc0, 0xe0, 0xf0};
    text_add(text, (char)(first[more] | code >> (6 * more)));
    for (int i = more - 1; i >= 0; i--)
        text_add(text, (char)(0x80 | (code >> (6 * i) & 0x3f)));
    return true;
}

bool take_hex(const char **at, int digits, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < digits; i++) {
        static const char hex[] = "0123456789abcdef";
        const char c = **at;
        const char *digit = c ? strchr(hex, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
        if (!digit)
            return false;
        value = value << 4 | (uint32_t)(digit - hex);
        (*at)++;
    }
    *out = value;
    return true;
}

void document_free(struct document *document)
{
    arena_free(&document->arena);
    document->root = NULL;
}
