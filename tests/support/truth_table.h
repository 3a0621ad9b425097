/* truth_table.h - README's table of what was checked, made from what was checked.
 *
 * tests/validation/truth_table.md is the table with places to fill in:
 *
 *     {rows fsdp2}     recordings of a system in tests/data/truth that are planned
 *     {events fsdp2}   of those, the ones with a whole event list
 *     {left fsdp2}     recordings that are not planned
 *     {off fsdp2}      how far reports/validation/memory-fsdp2.md says they are off
 *     {lines F}        rows of tests/data/truth/F.jsonl, each version of PyTorch counted
 *     {cell F|R|C}     of the first row of a table in reports/validation/F.md whose first cell
 * begins with R, the cell C, the first being 0 {sentence F|N|B} the number N (from 0) of the first
 * line of F.md that begins with B */
#ifndef SHARDPLAN_TRUTH_TABLE_H
#define SHARDPLAN_TRUTH_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes the table. False, with a printed reason: a place cannot be filled in, or a report is not
 * of the recordings that are there. */
bool truth_table_write(FILE *to);

/* What is between the markers in README.md; the caller frees it. NULL: no markers. */
char *truth_table_of_readme(void);

/* Puts the table between README.md's markers. */
bool truth_table_put(void);

#endif
