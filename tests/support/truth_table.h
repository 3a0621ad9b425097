/* truth_table.h - tables of what was checked, made from what was checked: the one at the head of
 * README.md, and the whole one in reports/validation.
 *
 * A template is a table with places to fill in:
 *
 *     {rows fsdp2}     recordings of a system in tests/data/truth that are planned
 *     {events fsdp2}   of those, the ones with a whole event list
 *     {left fsdp2}     recordings that are not planned
 *     {off fsdp2, ...} how far reports/validation/memory-fsdp2.md says they are off
 *     {lines F}        rows of tests/data/truth/F.jsonl, each version of PyTorch counted
 *     {cell F|R|C}     of the first row of a table in reports/validation/F.md whose first cell
 *                      begins with R, the cell C, the first being 0
 *     {sum P, P, ...}  what such places of numbers make together */
#ifndef SHARDPLAN_TRUTH_TABLE_H
#define SHARDPLAN_TRUTH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TRUTH_TABLES = 2 };

struct truth_table {
    const char *page, *template; /* paths; the page has a line that names the template */
};

extern const struct truth_table truth_tables[TRUTH_TABLES];

/* Writes the table. False, with a printed reason: a place cannot be filled in, or a report is not
 * of the recordings that are there. */
bool truth_table_write(const struct truth_table *table, FILE *to);

/* What is between the markers in its page; the caller frees it. NULL: no markers. */
char *truth_table_of_page(const struct truth_table *table);

/* Puts the table between its page's markers. */
bool truth_table_put(const struct truth_table *table);

#endif
