/* write_keys.c - a document as TOML, YAML or JSON; see export.h. */
#include "frameworks/export.h"

#include <string.h>

/* What stands at the head of a file, as comments. */
static void write_head(FILE *file, const struct text_file *from)
{
    fprintf(file, "# Written by shardplan " SHARDPLAN_VERSION ", for %s.\n",
            from->framework->versions);
    if (from->script_count)
        fprintf(file, "# What these keys do not say, the training script has to:\n");
    for (uint32_t i = 0; i < from->script_count; i++)
        fprintf(file, "#   %s\n", from->script[i]);
    if (*from->options)
        fprintf(file, "# `shardplan fit --from` reads the next line:\n# shardplan: %s\n",
                from->options);
}

/* A text in double quotes, as all three have them. */
static void write_quoted(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, file);
    fputc('"', file);
}

static void write_scalar(FILE *file, const struct node *node)
{
    if (node->kind == NODE_TEXT)
        write_quoted(file, node->text);
    else
        fputs(node->text, file);
}

/* A scalar, or a list of such in brackets. */
static void write_value(FILE *file, const struct node *node)
{
    if (node->kind != NODE_LIST) {
        write_scalar(file, node);
        return;
    }
    fputc('[', file);
    for (const struct node *n = node->first; n; n = n->next) {
        write_scalar(file, n);
        fputs(n->next ? ", " : "", file);
    }
    fputc(']', file);
}

/* ---- TOML ---- */

static void write_toml_table(FILE *file, const struct node *table, const char *path)
{
    char own[256];
    if (*path)
        fprintf(file, "\n[%s]\n", path);
    for (const struct node *n = table->first; n; n = n->next)
        if (n->kind != NODE_TABLE) {
            fprintf(file, "%s = ", n->key);
            write_value(file, n);
            fputc('\n', file);
        }
    for (const struct node *n = table->first; n; n = n->next)
        if (n->kind == NODE_TABLE) {
            snprintf(own, sizeof own, "%s%s%s", path, *path ? "." : "", n->key);
            write_toml_table(file, n, own);
        }
}

void write_toml(FILE *file, const struct text_file *from)
{
    write_head(file, from);
    write_toml_table(file, from->document->root, "");
}

/* ---- YAML ---- */

static void write_yaml_table(FILE *file, const struct node *table, int indent)
{
    for (const struct node *n = table->first; n; n = n->next) {
        fprintf(file, "%*s%s:", indent, "", n->key);
        if (n->kind == NODE_TABLE) {
            fputc('\n', file);
            write_yaml_table(file, n, indent + 2);
            continue;
        }
        fputc(' ', file);
        write_scalar(file, n);
        fputc('\n', file);
    }
}

void write_yaml(FILE *file, const struct text_file *from)
{
    write_head(file, from);
    write_yaml_table(file, from->document->root, 0);
}

/* ---- JSON ---- */

static void write_json_value(FILE *file, const struct node *node, int indent)
{
    const bool table = node->kind == NODE_TABLE;
    if (!table && node->kind != NODE_LIST) {
        write_scalar(file, node);
        return;
    }
    fputs(table ? "{" : "[", file);
    for (const struct node *n = node->first; n; n = n->next) {
        fprintf(file, "\n%*s", indent + 2, "");
        if (table) {
            write_quoted(file, n->key);
            fputs(": ", file);
        }
        write_json_value(file, n, indent + 2);
        fputs(n->next ? "," : "", file);
    }
    fprintf(file, "\n%*s%s", indent, "", table ? "}" : "]");
}

/* A key of ours holds what elsewhere are comments: DeepSpeed passes over keys that it does not know
 * at the top. */
void write_json(FILE *file, const struct text_file *from)
{
    fputs("{\n  \"shardplan\": {\n    \"written_for\": ", file);
    write_quoted(file, from->framework->versions);
    fputs(",\n    \"script\": [", file);
    for (uint32_t i = 0; i < from->script_count; i++) {
        fputs(i ? ",\n      " : "\n      ", file);
        write_quoted(file, from->script[i]);
    }
    fputs(from->script_count ? "\n    ],\n    \"options\": " : "],\n    \"options\": ", file);
    write_quoted(file, from->options);
    fputs("\n  }", file);
    for (const struct node *n = from->document->root->first; n; n = n->next) {
        fputs(",\n  ", file);
        write_quoted(file, n->key);
        fputs(": ", file);
        write_json_value(file, n, 2);
    }
    fputs("\n}\n", file);
}
