/* read_python.c - a Python configuration as a document: read, never run.
 *
 * What is understood is what a plain configuration is made of: literals, tuples, lists, dicts,
 * calls with keyword arguments (a call is a table), integers with arithmetic between them, names
 * bound once to such values, and functions of the same file that return them:
 *
 *     def llama3_8b() -> Trainer.Config:          config = llama3_8b()
 *         return Trainer.Config(                  config.training.steps = 10
 *             training=TrainingConfig(...))       return config
 *
 * Everything else is kept as its source text (NODE_OTHER): who reads the key says that it could not
 * be read. Statements that are not bindings or returns (if, for, with, import, assert) are passed
 * over, and so are their bodies. */
#include "frameworks/read_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function may call others, and those others, each time anew. */
enum { MOST_RUNS = 1000 };

struct python {
    struct document *document;
    const char *text, *at;
    const char *fallback; /* the file's one function that returns a configuration */
    int depth;            /* of brackets */
    int calls;            /* of functions, from the outermost one */
    int runs;             /* of functions, all of them */
    struct node *names;   /* bound so far in the function that is read */
    const char *counted; /* up to where ends of lines were counted, and how many there were; NULL */
    uint32_t lines;
    struct err *err;
};

static uint32_t line_of(struct python *p)
{
    if (!p->counted || p->counted > p->at) {
        p->counted = p->text;
        p->lines = 0;
    }
    for (; p->counted < p->at; p->counted++)
        p->lines += *p->counted == '\n';
    return p->lines + 1;
}

static enum err_code fail(struct python *p, const char *what)
{
    return err_set(p->err, ERR_INVALID, "%s:%u: %s", p->document->path, line_of(p), what);
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Over blanks and comments; inside brackets also over ends of lines. */
static void skip(struct python *p, bool lines)
{
    for (;;) {
        p->at += strspn(p->at, lines ? " \t\r\n\f" : " \t\r\f");
        if (p->at[0] == '\\' && p->at[1] == '\n')
            p->at += 2;
        else if (*p->at == '#')
            p->at += strcspn(p->at, "\n");
        else
            return;
    }
}

/* ---- strings ---- */

/* Letters that may stand before a string's quotes; NULL: there is no string. */
static const char *string_quote(const char *at)
{
    const char *quote = at + strspn(at, "rRbBuUfF");
    return quote - at <= 2 && (*quote == '"' || *quote == '\'') ? quote : NULL;
}

/* Behind the string that begins with `quote`; NULL: it does not end. */
static const char *string_end(const char *quote)
{
    const char three[] = {*quote, *quote, *quote, '\0'};
    const size_t many = strncmp(quote, three, 3) == 0 ? 3 : 1;
    for (const char *c = quote + many; *c; c++) {
        if (strncmp(c, three, many) == 0)
            return c + many;
        if (*c == '\\' && c[1])
            c++;
        else if (*c == '\n' && many == 1)
            return NULL;
    }
    return NULL;
}

static void add_escaped(const char **at, struct growing_text *out)
{
    static const char names[] = "abfnrtv\\'\"", values[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = **at;
    const char *name = c ? strchr(names, c) : NULL;
    const char *digits = *at + 1;
    uint32_t code;
    if (name) {
        text_add(out, values[name - names]);
        (*at)++;
    } else if ((c == 'x' || c == 'u' || c == 'U') &&
               take_hex(&digits,
                        c == 'x'   ? 2
                        : c == 'u' ? 4
                                   : 8,
                        &code) &&
               text_add_code(out, code)) {
        *at = digits;
    } else if (c == '\n') {
        (*at)++;
    } else {
        text_add(out, '\\');
    }
}

/* Strings that stand side by side are one. An f-string is an expression. */
static enum err_code take_strings(struct python *p, struct node *node)
{
    struct growing_text text = {NULL, 0, 0};
    const char *quote;
    bool plain = true;
    enum err_code rc = ERR_OK;
    while (rc == ERR_OK && (quote = string_quote(p->at)) != NULL) {
        const char *end = string_end(quote);
        const bool raw = memchr(p->at, 'r', (size_t)(quote - p->at)) != NULL;
        plain = plain && !memchr(p->at, 'f', (size_t)(quote - p->at));
        if (!end) {
            rc = fail(p, "a string does not end");
            break;
        }
        const size_t many = end - quote >= 6 && quote[1] == *quote && quote[2] == *quote ? 3 : 1;
        for (const char *c = quote + many; c < end - many;) {
            if (*c == '\\' && !raw) {
                c++;
                add_escaped(&c, &text);
            } else {
                text_add(&text, *c++);
            }
        }
        p->at = end;
        skip(p, p->depth > 0);
    }
    node->kind = plain ? NODE_TEXT : NODE_OTHER;
    node->text =
        arena_printf(&p->document->arena, "%.*s", (int)text.count, text.bytes ? text.bytes : "");
    free(text.bytes);
    return rc;
}

/* ---- expressions ---- */

static enum err_code take_expression(struct python *p, struct node *node);

/* Behind the expression at p->at: a comma, a closing bracket or the line's end outside of
 * brackets and strings; for the text of what is not understood. */
static void pass_expression(struct python *p)
{
    int open = 0;
    for (; *p->at; p->at++) {
        const char *quote = string_quote(p->at);
        const bool starts = p->at == p->text || !is_name(p->at[-1]);
        const char *end = quote && starts ? string_end(quote) : NULL;
        if (end) {
            p->at = end - 1;
            continue;
        }
        const bool closes = strchr(")]}", *p->at) != NULL;
        const bool stops = *p->at == ',' || *p->at == '#' || (*p->at == '\n' && !p->depth);
        if (open == 0 && (closes || stops))
            return;
        open += strchr("([{", *p->at) ? 1 : closes ? -1 : 0;
    }
}

static bool at_expression_end(const struct python *p)
{
    return !*p->at || strchr(",)]}\n#;:", *p->at);
}

static void keep_source(struct python *p, struct node *node, const char *from)
{
    p->at = from;
    pass_expression(p);
    size_t length = (size_t)(p->at - from);
    while (length > 0 && isspace((unsigned char)from[length - 1]))
        length--;
    node->kind = NODE_OTHER;
    node->first = node->last = NULL;
    node->text = arena_printf(&p->document->arena, "%.*s", (int)length, from);
}

/* "key=" of a call's argument, in the arena; NULL: it has none. */
static const char *take_keyword(struct python *p)
{
    const char *end = p->at;
    while (is_name(*end))
        end++;
    const char *equals = end + strspn(end, " \t\r\n");
    if (end == p->at || *equals != '=' || equals[1] == '=')
        return NULL;
    const char *key = arena_printf(&p->document->arena, "%.*s", (int)(end - p->at), p->at);
    p->at = equals + 1;
    skip(p, true);
    return key;
}

/* Arguments of a call up to ')', list or tuple items, or a dict's pairs. */
static enum err_code take_items(struct python *p, struct node *node, char close, bool call)
{
    uint32_t position = 0;
    if (++p->depth > DOCUMENT_DEEPEST)
        return fail(p, "it is nested too deep");
    p->at++;
    for (skip(p, true); *p->at != close; skip(p, true)) {
        if (p->document->node_count > DOCUMENT_MOST)
            return fail(p, "it is too large");
        const char *key = NULL;
        struct node child = {.kind = NODE_NULL};
        const uint32_t line = line_of(p);
        if (call) {
            key = take_keyword(p);
            if (!key)
                key = arena_printf(&p->document->arena, "%u", position++);
        } else if (close == '}') {
            TRY(take_expression(p, &child));
            skip(p, true);
            if (*p->at != ':')
                return fail(p, "here should be ':'");
            key = child.text ? child.text : "";
            p->at++;
            skip(p, true);
        }
        TRY(take_expression(p, node_add(p->document, node, key, NODE_NULL, NULL, line)));
        skip(p, true);
        if (*p->at != ',' && *p->at != close)
            return fail(p, "here should be ',' or a bracket");
        p->at += *p->at == ',';
    }
    p->at++;
    p->depth--;
    return ERR_OK;
}

/* Integers with + - * // between them: "8 * 2048"; else the number that stands there. */
static bool take_arithmetic(struct python *p, struct node *node)
{
    long long value = 0, product = 1;
    char operation = '+', *end;
    int sign = 1;
    for (;;) {
        char number[32];
        size_t used = 0;
        const bool minus = *p->at == '-';
        for (p->at += minus; isdigit((unsigned char)*p->at) || *p->at == '_'; p->at++)
            if (*p->at != '_' && used + 1 < sizeof number)
                number[used++] = *p->at;
        number[used] = '\0';
        if (!used || used > 15)
            return false;
        const long long operand = (minus ? -1 : 1) * strtoll(number, &end, 10);
        if (operation == '/' && operand == 0)
            return false;
        if (operation == '*' ? __builtin_mul_overflow(product, operand, &product) : false)
            return false;
        if (operation == '/')
            product /= operand;
        else if (operation != '*')
            product = operand;
        skip(p, p->depth > 0);
        const bool times = p->at[0] == '*' && p->at[1] != '*';
        const bool over = p->at[0] == '/' && p->at[1] == '/';
        if (times || over) {
            operation = *p->at;
            p->at += over ? 2 : 1;
        } else {
            if (__builtin_add_overflow(value, sign * product, &value))
                return false;
            if (*p->at != '+' && *p->at != '-')
                break;
            operation = '+';
            sign = *p->at == '-' ? -1 : 1;
            p->at++;
        }
        skip(p, p->depth > 0);
    }
    node->kind = NODE_INTEGER;
    node->text = arena_printf(&p->document->arena, "%lld", value);
    return at_expression_end(p);
}

static void take_number(struct python *p, struct node *node)
{
    char text[64];
    const char *from = p->at;
    const size_t length = strspn(from, "+-0123456789._eE");
    size_t used = 0;
    if (take_arithmetic(p, node))
        return;
    for (size_t i = 0; i < length && used + 1 < sizeof text; i++)
        if (from[i] != '_')
            text[used++] = from[i];
    text[used] = '\0';
    p->at = from + length;
    skip(p, p->depth > 0);
    node->kind = node_number_kind(text);
    node->text = arena_strdup(&p->document->arena, text);
    if (node->kind == NODE_TEXT || !at_expression_end(p))
        keep_source(p, node, from);
}

static enum err_code run_function(struct python *p, const char *name, struct node *out,
                                  bool *found);

static void copy_value(struct node *to, const struct node *from)
{
    to->kind = from->kind;
    to->text = from->text;
    to->first = from->first;
    to->last = from->last;
}

/* A name: of a constant, of what was bound to it, or of what is called. */
static enum err_code take_named(struct python *p, struct node *node)
{
    static const struct {
        const char *name;
        enum node_kind kind;
        const char *text;
    } constants[] = {
        {"True", NODE_BOOL, "true"}, {"False", NODE_BOOL, "false"}, {"None", NODE_NULL, "null"}};
    const char *from = p->at;
    while (is_name(*p->at) || (*p->at == '.' && is_name(p->at[1])))
        p->at++;
    const char *name = arena_printf(&p->document->arena, "%.*s", (int)(p->at - from), from);
    skip(p, p->depth > 0);
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (strcmp(name, constants[i].name) == 0) {
            node->kind = constants[i].kind;
            node->text = constants[i].text;
            return ERR_OK;
        }
    const struct node *bound = p->names ? node_child(p->names, name) : NULL;
    if (bound && *p->at != '(') {
        copy_value(node, bound);
        return ERR_OK;
    }
    if (*p->at == '(') {
        bool found = false;
        if (p->at[1] == ')' && !strchr(name, '.')) {
            TRY(run_function(p, name, node, &found));
            p->at += found ? 2 : 0;
        }
        if (found)
            return ERR_OK;
        node->kind = NODE_TABLE;
        node->text = name;
        return take_items(p, node, ')', true);
    }
    keep_source(p, node, from);
    return ERR_OK;
}

static enum err_code take_expression(struct python *p, struct node *node)
{
    const char *from = p->at;
    enum err_code rc = ERR_OK;
    if (string_quote(p->at)) {
        rc = take_strings(p, node);
    } else if (isdigit((unsigned char)*p->at) || *p->at == '-' || *p->at == '.') {
        take_number(p, node);
    } else if (*p->at == '[') {
        node->kind = NODE_LIST;
        rc = take_items(p, node, ']', false);
    } else if (*p->at == '(') { /* a tuple, or a value in brackets */
        node->kind = NODE_LIST;
        rc = take_items(p, node, ')', false);
    } else if (*p->at == '{') {
        node->kind = NODE_TABLE;
        rc = take_items(p, node, '}', false);
    } else if (is_name(*p->at)) {
        rc = take_named(p, node);
    } else {
        keep_source(p, node, from);
    }
    if (rc != ERR_OK)
        return rc;
    skip(p, p->depth > 0);
    if (!at_expression_end(p)) { /* an operator follows */
        keep_source(p, node, from);
        if (p->at == from)
            return fail(p, "here should be a value");
    }
    return ERR_OK;
}

/* ---- statements ---- */

/* Moves behind the logical line: brackets and strings may hold ends of lines. */
static void pass_line(struct python *p)
{
    while (*p->at && *p->at != '\n') {
        pass_expression(p);
        if (*p->at == '#')
            p->at += strcspn(p->at, "\n");
        else if (*p->at && *p->at != '\n')
            p->at++;
    }
    p->at += *p->at == '\n';
}

static size_t indent_of(const char *line)
{
    return strspn(line, " \t");
}

static bool is_blank(const char *line)
{
    const char *c = line + strspn(line, " \t\r");
    return *c == '\n' || *c == '#' || *c == '\0';
}

static bool takes_word(const char *at, const char *word)
{
    return strncmp(at, word, strlen(word)) == 0 && !is_name(at[strlen(word)]);
}

/* "a.b.c = value" with a known `a`, and "a = value". */
static enum err_code take_binding(struct python *p)
{
    const char *from = p->at;
    while (is_name(*p->at) || (*p->at == '.' && is_name(p->at[1])))
        p->at++;
    const size_t length = (size_t)(p->at - from);
    skip(p, false);
    if (*p->at == ':' && length > 0) { /* an annotation */
        p->at += strcspn(p->at, "=\n");
    }
    if (length == 0 || *p->at != '=' || p->at[1] == '=') {
        p->at = from;
        pass_line(p);
        return ERR_OK;
    }
    p->at++;
    skip(p, false);
    if (p->document->node_count > DOCUMENT_MOST)
        return fail(p, "it is too large");
    struct node *at = p->names;
    const char *path = arena_printf(&p->document->arena, "%.*s", (int)length, from);
    for (const char *rest = path; *rest;) {
        const size_t part = strcspn(rest, ".");
        const char *key = arena_printf(&p->document->arena, "%.*s", (int)part, rest);
        struct node *child = node_child(at, key);
        at = child ? child : node_add(p->document, at, key, NODE_TABLE, NULL, line_of(p));
        rest += part + (rest[part] == '.');
    }
    at->kind = NODE_NULL;
    at->text = NULL;
    at->first = at->last = NULL;
    at->line = line_of(p);
    TRY(take_expression(p, at));
    pass_line(p);
    return ERR_OK;
}

/* The statements of one block, from p->at on, at `indent`: bindings, and the first return. */
static enum err_code run_block(struct python *p, size_t indent, struct node *out, bool *returned)
{
    while (*p->at) {
        if (is_blank(p->at)) {
            p->at += strcspn(p->at, "\n");
            p->at += *p->at == '\n';
            continue;
        }
        const size_t here = indent_of(p->at);
        if (here < indent)
            return ERR_OK;
        p->at += here;
        if (here > indent || takes_word(p->at, "def") || takes_word(p->at, "class") ||
            takes_word(p->at, "if") || takes_word(p->at, "for") || takes_word(p->at, "assert") ||
            *p->at == '@' || string_quote(p->at)) {
            pass_line(p);
            continue;
        }
        if (takes_word(p->at, "return") && out) {
            p->at += 6;
            skip(p, false);
            *returned = true;
            return take_expression(p, out);
        }
        TRY(take_binding(p));
    }
    return ERR_OK;
}

/* The line behind "def NAME(...):", or NULL. */
static const char *function_body(struct python *p, const char *name)
{
    const size_t length = strlen(name);
    for (const char *line = p->text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (takes_word(line, "def") && strncmp(line + 4, name, length) == 0 &&
            line[4 + length] == '(') {
            p->at = line;
            pass_line(p);
            return p->at;
        }
    return NULL;
}

static enum err_code run_function(struct python *p, const char *name, struct node *out, bool *found)
{
    const char *back = p->at;
    const int depth = p->depth;
    struct node *names = p->names;
    p->depth = 0;
    *found = false;
    if (++p->runs > MOST_RUNS)
        return fail(p, "it calls its own functions too often");
    const char *body = function_body(p, name);
    enum err_code rc = ERR_OK;
    if (body && ++p->calls < DOCUMENT_DEEPEST) {
        const char *first = body;
        while (*first && is_blank(first)) {
            first += strcspn(first, "\n");
            first += *first == '\n';
        }
        p->at = body;
        p->names = arena_alloc(&p->document->arena, sizeof *p->names);
        p->names->kind = NODE_TABLE;
        rc = indent_of(first) ? run_block(p, indent_of(first), out, found) : ERR_OK;
    }
    p->calls -= body != NULL;
    p->at = back;
    p->depth = depth;
    p->names = names;
    return rc;
}

/* Names of the file's functions that return calls: "llama3_8b, llama3_70b"; *count of them. */
static const char *list_functions(struct python *p, uint32_t *count)
{
    const char *list = "";
    *count = 0;
    for (const char *line = p->text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (!takes_word(line, "def") || !line[3])
            continue;
        const size_t length = strcspn(line + 4, "( \n");
        const char *name = arena_printf(&p->document->arena, "%.*s", (int)length, line + 4);
        struct node value = {.kind = NODE_NULL};
        bool returned = false;
        struct err *err = p->err;
        p->err = NULL;
        const bool good = run_function(p, name, &value, &returned) == ERR_OK && returned;
        p->err = err;
        if (!good || value.kind != NODE_TABLE)
            continue;
        if (*count < 40)
            list = arena_printf(&p->document->arena, "%s%s%s", list, *list ? ", " : "", name);
        p->fallback = name;
        ++*count;
    }
    return list;
}

enum err_code read_python(struct document *document, const char *text, const char *name,
                          struct err *err)
{
    struct python p = {.document = document, .text = text, .at = text, .err = err};
    struct node module = {.kind = NODE_TABLE}, value = {.kind = NODE_NULL};
    bool found = false;
    uint32_t count = 0;
    p.names = &module;
    TRY(run_block(&p, 0, NULL, &found));
    if (!name) {
        if (node_child(&module, "SETTINGS")) { /* a file of `shardplan export` */
            copy_value(document->root, &module);
            return ERR_OK;
        }
        const char *list = list_functions(&p, &count);
        if (count != 1)
            return err_set(err, ERR_INVALID,
                           count ? "%s: which configuration? Write FILE.py:NAME; there are %.600s"
                                 : "%s: no function of it returns a configuration that can be read "
                                   "without running it%.0s",
                           document->path, list);
        name = p.fallback;
    }
    const struct node *bound = node_child(&module, name);
    if (bound)
        value = *bound;
    else
        TRY(run_function(&p, name, &value, &found));
    if (value.kind != NODE_TABLE)
        return err_set(err, ERR_INVALID,
                       "%s: \"%.100s\" is no configuration that can be read without running it",
                       document->path, name);
    copy_value(document->root, &value);
    return ERR_OK;
}
