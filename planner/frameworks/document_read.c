/* document_read.c - which reader a file is for; see document.h. */
#include "base/file.h"
#include "frameworks/document.h"
#include "frameworks/read_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *end;
    enum document_syntax syntax;
} ends[] = {
    {".toml", SYNTAX_TOML}, {".yaml", SYNTAX_YAML}, {".yml", SYNTAX_YAML},
    {".json", SYNTAX_JSON}, {".py", SYNTAX_PYTHON},
};

enum document_syntax document_syntax_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof ends / sizeof ends[0]; i++)
        if (strcmp(dot, ends[i].end) == 0)
            return ends[i].syntax;
    return SYNTAX_COUNT;
}

const char *document_ends(enum document_syntax syntax, char text[DOCUMENT_ENDS])
{
    text[0] = '\0';
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (syntax == SYNTAX_COUNT || ends[i].syntax == syntax) {
            const size_t length = strlen(text);
            snprintf(text + length, DOCUMENT_ENDS - length, "%s%s", length ? ", " : "",
                     ends[i].end);
        }
    return text;
}

/* "# shardplan: --seq 8192": the options of a file whose format has no words for them. */
static const char *options_comment(struct document *document, const char *text)
{
    static const char begin[] = "# shardplan:";
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, begin, sizeof begin - 1) == 0) {
            line += sizeof begin - 1;
            return arena_printf(&document->arena, "%.*s", (int)strcspn(line, "\r\n"), line);
        }
    return NULL;
}

static enum err_code read_syntax(struct document *document, const char *text, const char *name,
                                 struct err *err)
{
    switch (document->syntax) {
    case SYNTAX_TOML:
        return read_toml(document, text, err);
    case SYNTAX_YAML:
        return read_yaml(document, text, err);
    case SYNTAX_JSON:
        return read_json(document, text, err);
    default:
        return read_python(document, text, name, err);
    }
}

enum err_code document_parse(const char *path, enum document_syntax syntax, const char *text,
                             const char *name, struct document *out, struct err *err)
{
    *out = (struct document){.path = path, .syntax = syntax};
    out->root = arena_alloc(&out->arena, sizeof *out->root);
    out->root->kind = NODE_TABLE;
    if (strlen(text) > DOCUMENT_BYTES)
        return err_set(err, ERR_INVALID, "%s: more than %d bytes: no configuration has so many",
                       path, DOCUMENT_BYTES);
    out->options = options_comment(out, text);
    TRY(read_syntax(out, text, name, err));
    if (out->node_count > DOCUMENT_MOST)
        return err_set(err, ERR_INVALID, "%s: more than %d values: no configuration has so many",
                       path, DOCUMENT_MOST);
    return ERR_OK;
}

/* The file as a text. The caller owns it; NULL on an error. */
static char *read_text(const char *file, const char *path, struct err *err)
{
    size_t length;
    char *text = file_read(file, &length, err);
    if (!text)
        return NULL;
    if (memchr(text, '\0', length)) {
        err_set(err, ERR_INVALID, "%s: it is no text: a byte is 0", path);
        free(text);
        return NULL;
    }
    text = xrealloc(text, length + 1);
    text[length] = '\0';
    return text;
}

enum err_code document_read(const char *path, struct document *out, struct err *err)
{
    char known[DOCUMENT_ENDS];
    enum err_code rc = ERR_INVALID;
    *out = (struct document){.path = path};
    const char *colon = strrchr(path, ':'); /* "registry.py:llama3_8b" */
    const bool named = colon && colon - path > 3 && strncmp(colon - 3, ".py", 3) == 0;
    const char *file = named ? arena_printf(&out->arena, "%.*s", (int)(colon - path), path) : path;
    const enum document_syntax syntax = document_syntax_of(file);
    if (syntax == SYNTAX_COUNT)
        return err_set(err, ERR_INVALID,
                       "%s: what it is written in follows from its name's end: %s", path,
                       document_ends(syntax, known));
    char *text = read_text(file, path, err);
    document_free(out);
    if (text)
        rc = document_parse(path, syntax, text, named ? colon + 1 : NULL, out, err);
    else if (err)
        rc = err->code;
    free(text);
    return rc;
}
