/* csv.h - tables in comma-separated values (RFC 4180), as people have them: a header, quoted cells
 * with commas, quotes and line ends in them, lines that end with or without a carriage return. */
#ifndef SHARDPLAN_CSV_H
#define SHARDPLAN_CSV_H

#include "base/err.h"

#include <stdint.h>
#include <stdio.h>

struct csv_table {      /* opaque in spirit: read it with the functions below */
    char *text;         /* owns every cell */
    const char **cells; /* (rows + 1, columns), the header's first */
    uint32_t *lines;    /* (rows + 1): where each begins in the file */
    uint32_t rows, columns;
};

/* Takes `text` apart (owned by the table from here on, even on failure) and names `where` in
 * errors. ERR_INVALID, with the line: it is empty, a quote is not closed, something stands after a
 * closing quote, or a row has another number of cells than the header. Empty lines are skipped. On
 * ERR_OK the caller owns what is in *out: csv_table_free. */
enum err_code csv_table_parse(const char *where, char *text, struct csv_table *out,
                              struct err *err);

/* The same of a file. ERR_INVALID, too: it cannot be read. */
enum err_code csv_table_read(const char *path, struct csv_table *out, struct err *err);
void csv_table_free(struct csv_table *table);

/* The column of a name, or UINT32_MAX: there is none. */
uint32_t csv_table_column(const struct csv_table *table, const char *name);

/* A cell of a row (from 0): lent. */
const char *csv_table_cell(const struct csv_table *table, uint32_t row, uint32_t column);

/* Writes a cell, quoted where it must be. */
void csv_write(FILE *file, const char *cell);

#endif
