/* csv.c - see csv.h. Cells are cut out of the text in place. */
#include "base/csv.h"

#include "base/arena.h"
#include "base/file.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *where;
    char *at;
    uint32_t line;
    struct err *err;
};

/* What stands after a cell: a comma, a line end or the end. */
static bool is_separator(char c)
{
    return c == ',' || c == '\n' || c == '\r' || c == '\0';
}

static enum err_code quoted_cell(struct reader *r, char **end)
{
    const uint32_t from_line = r->line;
    char *to = r->at;
    for (r->at++;; r->at++) {
        if (*r->at == '\0')
            return err_set(r->err, ERR_INVALID, "%s:%u: a quote is not closed", r->where,
                           from_line);
        if (*r->at == '"' && r->at[1] != '"')
            break;
        r->at += *r->at == '"';
        r->line += *r->at == '\n';
        *to++ = *r->at;
    }
    r->at++;
    if (!is_separator(*r->at))
        return err_set(r->err, ERR_INVALID, "%s:%u: \"%c\" after a closing quote: a comma is due",
                       r->where, r->line, *r->at);
    *end = to;
    return ERR_OK;
}

/* One cell; r->at is behind its separator then. *last: the row ends with it. */
static enum err_code next_cell(struct reader *r, const char **cell, bool *last)
{
    char *end = r->at;
    *cell = r->at;
    if (*r->at == '"') {
        TRY(quoted_cell(r, &end));
    } else {
        while (!is_separator(*r->at))
            r->at++;
        end = r->at;
    }
    *last = *r->at != ',';
    if (*r->at == '\r' && r->at[1] == '\n')
        r->at++;
    r->line += *r->at == '\n' || *r->at == '\r';
    r->at += *r->at != '\0';
    *end = '\0';
    return ERR_OK;
}

static void skip_empty_lines(struct reader *r)
{
    for (; *r->at == '\n' || *r->at == '\r'; r->at++)
        r->line += *r->at == '\n';
}

static enum err_code read_row(struct reader *r, struct csv_table *table, uint32_t *count,
                              uint32_t *cap)
{
    const uint32_t first = *count, line = r->line;
    bool last = false;
    while (!last) {
        ARRAY_GROW(table->cells, *count, *cap);
        TRY(next_cell(r, &table->cells[(*count)++], &last));
    }
    if (table->columns == 0)
        table->columns = *count;
    if (*count - first != table->columns)
        return err_set(r->err, ERR_INVALID, "%s:%u: %u cells, where the header has %u", r->where,
                       line, *count - first, table->columns);
    return ERR_OK;
}

enum err_code csv_table_parse(const char *where, char *text, struct csv_table *out, struct err *err)
{
    uint32_t count = 0, cap = 0, lines = 0, line_cap = 0;
    *out = (struct csv_table){.text = text};
    const bool marked = strncmp(text, "\xef\xbb\xbf", 3) == 0; /* a byte order mark */
    struct reader r = {.where = where, .at = text + (marked ? 3 : 0), .line = 1, .err = err};
    enum err_code rc = ERR_OK;
    for (skip_empty_lines(&r); *r.at && rc == ERR_OK; skip_empty_lines(&r)) {
        ARRAY_GROW(out->lines, lines, line_cap);
        out->lines[lines++] = r.line;
        rc = read_row(&r, out, &count, &cap);
    }
    if (rc == ERR_OK && lines == 0)
        rc = err_set(err, ERR_INVALID, "%s: it is empty: a header is due", where);
    out->rows = lines ? lines - 1 : 0;
    if (rc != ERR_OK)
        csv_table_free(out);
    return rc;
}

enum err_code csv_table_read(const char *path, struct csv_table *out, struct err *err)
{
    size_t length;
    char *text = file_read(path, &length, err);
    *out = (struct csv_table){0};
    if (!text)
        return err->code;
    text = xrealloc(text, length + 1);
    text[length] = '\0';
    if (strlen(text) != length) {
        free(text);
        return err_set(err, ERR_INVALID, "%s: it has a zero byte: no text", path);
    }
    return csv_table_parse(path, text, out, err);
}

void csv_table_free(struct csv_table *table)
{
    free(table->cells);
    free(table->lines);
    free(table->text);
    *table = (struct csv_table){0};
}

uint32_t csv_table_column(const struct csv_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->columns; i++)
        if (strcmp(table->cells[i], name) == 0)
            return i;
    return UINT32_MAX;
}

const char *csv_table_cell(const struct csv_table *table, uint32_t row, uint32_t column)
{
    return table->cells[(size_t)(row + 1) * table->columns + column];
}

void csv_write(FILE *file, const char *cell)
{
    if (!strpbrk(cell, ",\"\r\n")) {
        fputs(cell, file);
        return;
    }
    fputc('"', file);
    for (; *cell; cell++) {
        if (*cell == '"')
            fputc('"', file);
        fputc(*cell, file);
    }
    fputc('"', file);
}
