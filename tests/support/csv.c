/* csv.c - see csv.h. */
#include "tests/support/csv.h"

#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    exit(2);
}

/* Cuts one cell out of the text in place; *at moves past its separator. Returns whether the row
 * ends with it. */
static int next_cell(char **at, const char **cell)
{
    char *from = *at, *to = *at;
    *cell = to;
    if (*from == '"') {
        for (from++; *from && !(from[0] == '"' && from[1] != '"'); from++) {
            from += from[0] == '"';
            *to++ = *from;
        }
        from += *from == '"';
    } else {
        while (*from && *from != ',' && *from != '\n' && *from != '\r')
            *to++ = *from++;
    }
    const int ends = *from != ',';
    while (*from == '\r')
        from++;
    *at = from + (*from != '\0');
    *to = '\0';
    return ends;
}

struct csv csv_read(const char *path)
{
    struct csv csv = {0};
    size_t count = 0, cap = 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        fail(path, "cannot be opened");
    size_t size = 0, room = 1 << 20;
    csv.text = xmalloc(room + 1);
    while ((size += fread(csv.text + size, 1, room - size, file)) == room)
        csv.text = xrealloc(csv.text, (room *= 2) + 1);
    fclose(file);
    csv.text[size] = '\0';
    for (char *at = csv.text; *at;) {
        const size_t row_start = count;
        int ends;
        do {
            ARRAY_GROW(csv.cells, count, cap);
            ends = next_cell(&at, &csv.cells[count++]);
        } while (!ends);
        if (csv.columns == 0)
            csv.columns = count;
        if (count - row_start != csv.columns)
            fail(path, "a row has another number of cells than the header");
    }
    if (count == 0)
        fail(path, "is empty");
    csv.rows = count / csv.columns - 1;
    return csv;
}

void csv_free(struct csv *csv)
{
    free(csv->cells);
    free(csv->text);
    *csv = (struct csv){0};
}

const char *csv_text(const struct csv *csv, size_t row, const char *column)
{
    for (size_t i = 0; i < csv->columns; i++)
        if (strcmp(csv->cells[i], column) == 0)
            return csv->cells[(row + 1) * csv->columns + i];
    fail(column, "no such column");
    return "";
}

double csv_number(const struct csv *csv, size_t row, const char *column)
{
    return strtod(csv_text(csv, row, column), NULL);
}
