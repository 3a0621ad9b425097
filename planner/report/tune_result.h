/* tune_result.h - what a search found, for people and for programs. */
#ifndef SHARDPLAN_TUNE_RESULT_H
#define SHARDPLAN_TUNE_RESULT_H

#include "search/tune.h"

#include <stdio.h>

/* The object of `tune --json`: every number. The caller owns it. */
json_t *tune_json(const struct tuned *tuned);

/* The same as tables. Colour only when `file` is a terminal. */
void tune_print(FILE *file, const struct tuned *tuned);

/* Writes into a folder that is held (report/files.h): tune.json, pareto.svg (by gnuplot; without it
 * a note in *note, lent), and of the choice what report_write leaves. Something fits. */
enum err_code tune_write(const struct tuned *tuned, const char *dir, const char **note,
                         struct err *err);

#endif
