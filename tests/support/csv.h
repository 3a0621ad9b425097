/* csv.h - a table of published measurements: comma-separated, quoted where needed, header first. */
#ifndef SHARDPLAN_TESTS_CSV_H
#define SHARDPLAN_TESTS_CSV_H

#include <stddef.h>

struct csv {
    char *text;         /* owns every cell */
    const char **cells; /* (rows + 1) x columns, the header's first */
    size_t rows, columns;
};

/* Reads a file; ends the test program with a message when it is not there or not regular. */
struct csv csv_read(const char *path);
void csv_free(struct csv *csv);

/* The cell of a data row (from 0) under a named column: "" when empty. */
const char *csv_text(const struct csv *csv, size_t row, const char *column);
double csv_number(const struct csv *csv, size_t row, const char *column);

#endif
