/* read_toml.c - TOML 1.0 as a document.
 *
 * Debian has TOML in C++ only, and a message about a key needs its line, which the usual C
 * libraries do not keep. The language is small: lines of `[table]`, `[[array of tables]]` and `key
 * = value`. Dates are kept as they are written (NODE_OTHER). */
#include "frameworks/read_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct toml {
    struct document *document;
    const char *at;
    uint32_t line;
    struct node *table; /* where keys go */
    struct err *err;
};

static enum err_code fail(const struct toml *t, const char *what)
{
    return err_set(t->err, ERR_INVALID, "%s:%u: %s", t->document->path, t->line, what);
}

static void skip_blanks(struct toml *t)
{
    t->at += strspn(t->at, " \t");
}

static bool at_line_end(const char *at)
{
    return *at == '\n' || *at == '\0' || (at[0] == '\r' && at[1] == '\n');
}

static void skip_comment(struct toml *t)
{
    skip_blanks(t);
    if (*t->at == '#')
        t->at += strcspn(t->at, "\n");
    t->at += *t->at == '\r';
}

/* Over blanks, comments and ends of lines. */
static void skip_lines(struct toml *t)
{
    for (skip_comment(t); *t->at == '\n'; skip_comment(t)) {
        t->at++;
        t->line++;
    }
}

/* ---- strings ---- */

static enum err_code take_escape(struct toml *t, struct growing_text *out)
{
    static const char names[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    const char c = *t->at;
    const char *name = c ? strchr(names, c) : NULL;
    uint32_t code;
    if (name) {
        t->at++;
        text_add(out, values[name - names]);
        return ERR_OK;
    }
    if (c != 'u' && c != 'U')
        return fail(t, "a backslash that stands for nothing");
    t->at++;
    if (!take_hex(&t->at, c == 'u' ? 4 : 8, &code) || !text_add_code(out, code))
        return fail(t, "an escape that is no character");
    return ERR_OK;
}

/* A backslash at the end of a line takes away all blanks up to the next text. */
static bool take_line_break(struct toml *t)
{
    const char *at = t->at + strspn(t->at, " \t");
    if (!at_line_end(at) || !*at)
        return false;
    for (; *at && strchr(" \t\r\n", *at); at++)
        t->line += *at == '\n';
    t->at = at;
    return true;
}

/* The rest of a string up to its quotes, `many` of them (1 or 3). */
static enum err_code take_string_body(struct toml *t, char quote, size_t many,
                                      struct growing_text *out)
{
    for (;;) {
        const size_t quotes = strspn(t->at, quote == '"' ? "\"" : "'");
        if (quotes >= many) { /* up to two more belong to the text */
            const size_t inside = many == 3 ? (quotes < 5 ? quotes : 5) - 3 : 0;
            for (size_t i = 0; i < inside; i++)
                text_add(out, quote);
            t->at += inside + many;
            return ERR_OK;
        }
        if (!*t->at || (many == 1 && at_line_end(t->at)))
            return fail(t, "a string does not end");
        if (*t->at == '\\' && quote == '"') {
            t->at++;
            if (many == 3 && take_line_break(t))
                continue;
            TRY(take_escape(t, out));
            continue;
        }
        if ((unsigned char)*t->at < ' ' && !strchr("\t\r\n", *t->at))
            return fail(t, "a control character in a string");
        t->line += *t->at == '\n';
        text_add(out, *t->at++);
    }
}

/* The string at t->at, in the arena. */
static enum err_code take_string(struct toml *t, bool key, const char **out)
{
    const char quote = *t->at;
    const char three[] = {quote, quote, quote, '\0'};
    struct growing_text text = {NULL, 0, 0};
    size_t many = strncmp(t->at, three, 3) == 0 && !key ? 3 : 1;
    t->at += many;
    if (many == 3) { /* the first line's end is not part of the text */
        t->at += t->at[0] == '\r' && t->at[1] == '\n';
        t->line += *t->at == '\n';
        t->at += *t->at == '\n';
    }
    const enum err_code rc = take_string_body(t, quote, many, &text);
    *out = arena_printf(&t->document->arena, "%.*s", (int)text.count, text.bytes ? text.bytes : "");
    free(text.bytes);
    return rc;
}

/* ---- keys ---- */

static enum err_code take_key(struct toml *t, const char **out)
{
    static const char bare[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    const size_t length = strspn(t->at, bare);
    if (*t->at == '"' || *t->at == '\'')
        return take_string(t, true, out);
    if (!length)
        return fail(t, "here should be a key");
    *out = arena_printf(&t->document->arena, "%.*s", (int)length, t->at);
    t->at += length;
    return ERR_OK;
}

/* The table of that key, made where it is missing; of an array of tables, its last. */
static enum err_code enter(struct toml *t, struct node *parent, const char *key, struct node **out)
{
    struct node *child = node_child(parent, key);
    if (!child)
        child = node_add(t->document, parent, key, NODE_TABLE, NULL, t->line);
    if (child->kind == NODE_LIST && child->last && child->last->kind == NODE_TABLE)
        child = child->last;
    if (child->kind != NODE_TABLE)
        return fail(t, "a table is wanted where there is a value already");
    *out = child;
    return ERR_OK;
}

/* "a.b.c" from `table` on: enters all but the last, which is *last. */
static enum err_code take_path(struct toml *t, struct node **table, const char **last)
{
    int depth = 0;
    *last = NULL;
    skip_blanks(t);
    TRY(take_key(t, last));
    for (skip_blanks(t); *t->at == '.'; skip_blanks(t)) {
        if (++depth > DOCUMENT_DEEPEST)
            return fail(t, "it is nested too deep");
        TRY(enter(t, *table, *last, table));
        t->at++;
        skip_blanks(t);
        TRY(take_key(t, last));
    }
    return ERR_OK;
}

/* ---- values ---- */

static enum err_code take_value(struct toml *t, struct node *node, int depth);

static enum err_code take_pair(struct toml *t, struct node *table, int depth)
{
    if (t->document->node_count > DOCUMENT_MOST)
        return fail(t, "it is too large");
    const char *key = NULL;
    TRY(take_path(t, &table, &key));
    if (*t->at != '=')
        return fail(t, "here should be '='");
    t->at++;
    skip_blanks(t);
    if (node_child(table, key))
        return err_set(t->err, ERR_INVALID, "%s:%u: \"%.100s\" is there twice", t->document->path,
                       t->line, key);
    return take_value(t, node_add(t->document, table, key, NODE_NULL, NULL, t->line), depth);
}

static enum err_code take_list(struct toml *t, struct node *node, int depth)
{
    node->kind = NODE_LIST;
    for (t->at++, skip_lines(t); *t->at != ']'; skip_lines(t)) {
        TRY(take_value(t, node_add(t->document, node, NULL, NODE_NULL, NULL, t->line), depth + 1));
        skip_lines(t);
        if (*t->at != ',' && *t->at != ']')
            return fail(t, "here should be ',' or ']'");
        t->at += *t->at == ',';
    }
    t->at++;
    return ERR_OK;
}

static enum err_code take_inline_table(struct toml *t, struct node *node, int depth)
{
    node->kind = NODE_TABLE;
    t->at++;
    skip_blanks(t);
    while (*t->at != '}') {
        TRY(take_pair(t, node, depth + 1));
        skip_blanks(t);
        if (*t->at != ',' && *t->at != '}')
            return fail(t, "here should be ',' or '}'");
        if (*t->at == ',') {
            t->at++;
            skip_blanks(t);
            if (*t->at == '}')
                return fail(t, "here should be a key");
        }
    }
    t->at++;
    return ERR_OK;
}

/* "0x1F", "0o17", "0b101" as decimal. */
static bool based_integer(const char *text, char out[32])
{
    const int base = text[1] == 'x' ? 16 : text[1] == 'o' ? 8 : text[1] == 'b' ? 2 : 0;
    char *end;
    if (text[0] != '0' || !base || !text[2] || strchr("+-", text[2]))
        return false;
    const unsigned long long value = strtoull(text + 2, &end, base);
    snprintf(out, 32, "%llu", value);
    return !*end;
}

/* A number or a date: what stands there up to a comma, bracket, comment or the line's end. */
static enum err_code take_plain(struct toml *t, struct node *node)
{
    char text[64] = "", based[32];
    size_t used = 0;
    const size_t length = strcspn(t->at, ",]}#\n\r\t ");
    if (length == 0 || length >= sizeof text)
        return fail(t, "here should be a value");
    for (size_t i = 0; i < length; i++) {
        const bool between = t->at[i] == '_' && i > 0 && t->at[i - 1] != '_' && i + 1 < length;
        if (t->at[i] == '_' && !between)
            return fail(t, "a '_' that is not between digits");
        if (t->at[i] != '_' && !(i == 0 && t->at[i] == '+'))
            text[used++] = t->at[i];
    }
    text[used] = '\0';
    t->at += length;
    node->kind = node_number_kind(text);
    if (node->kind == NODE_TEXT && based_integer(text, based)) {
        node->kind = NODE_INTEGER;
        memcpy(text, based, sizeof based);
    } else if (node->kind == NODE_TEXT && (strstr(text, "inf") || strstr(text, "nan"))) {
        node->kind = NODE_REAL;
    } else if (node->kind == NODE_TEXT) {
        if (!text[0] || !strchr("0123456789", text[0]))
            return err_set(t->err, ERR_INVALID, "%s:%u: %s is no value: texts have quotes",
                           t->document->path, t->line, text);
        node->kind = NODE_OTHER;
    }
    node->text = arena_strdup(&t->document->arena, text);
    return ERR_OK;
}

static bool take_word(struct toml *t, const char *word)
{
    const size_t length = strlen(word);
    if (strncmp(t->at, word, length) != 0 ||
        (t->at[length] && !strchr(",]}# \t\r\n", t->at[length])))
        return false;
    t->at += length;
    return true;
}

static enum err_code take_value(struct toml *t, struct node *node, int depth)
{
    if (depth > DOCUMENT_DEEPEST)
        return fail(t, "it is nested too deep");
    if (*t->at == '"' || *t->at == '\'') {
        node->kind = NODE_TEXT;
        return take_string(t, false, &node->text);
    }
    if (*t->at == '[')
        return take_list(t, node, depth);
    if (*t->at == '{')
        return take_inline_table(t, node, depth);
    for (int yes = 0; yes < 2; yes++)
        if (take_word(t, yes ? "true" : "false")) {
            node->kind = NODE_BOOL;
            node->text = yes ? "true" : "false";
            return ERR_OK;
        }
    return take_plain(t, node);
}

/* ---- lines ---- */

static enum err_code take_header(struct toml *t)
{
    if (t->document->node_count > DOCUMENT_MOST)
        return fail(t, "it is too large");
    const bool array = t->at[1] == '[';
    struct node *parent = t->document->root, *list;
    const char *key = NULL;
    t->at += array ? 2 : 1;
    TRY(take_path(t, &parent, &key));
    if (*t->at != ']' || (array && t->at[1] != ']'))
        return fail(t, "here should be ']'");
    t->at += array ? 2 : 1;
    if (!array)
        return enter(t, parent, key, &t->table);
    list = node_child(parent, key);
    if (!list)
        list = node_add(t->document, parent, key, NODE_LIST, NULL, t->line);
    if (list->kind != NODE_LIST)
        return fail(t, "an array of tables is wanted where there is a value already");
    t->table = node_add(t->document, list, NULL, NODE_TABLE, NULL, t->line);
    return ERR_OK;
}

enum err_code read_toml(struct document *document, const char *text, struct err *err)
{
    struct toml t = {document, text, 1, document->root, err};
    for (skip_lines(&t); *t.at; skip_lines(&t)) {
        if (*t.at == '[')
            TRY(take_header(&t));
        else
            TRY(take_pair(&t, t.table, 0));
        skip_comment(&t);
        if (!at_line_end(t.at))
            return fail(&t, "more stands here than one value");
    }
    return ERR_OK;
}
