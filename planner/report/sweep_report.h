/* sweep_report.h - a sweep for people and for programs: tables, heat maps, JSON, a picture. */
#ifndef SHARDPLAN_SWEEP_REPORT_H
#define SHARDPLAN_SWEEP_REPORT_H

#include "search/sweep.h"

#include <jansson.h>
#include <stdio.h>

/* A table (one axis, or what a search tried near its answer), or a heat map of question->base's
 * `show` (two), then what was refused and why, the best and what the points have in common. Colour
 * only when `file` is a terminal. */
void sweep_print(FILE *file, const struct sweep_question *question, const struct sweep *sweep);

/* The object of `sweep --json`: every number of every point. The caller owns it. */
json_t *sweep_json(const struct sweep_question *question, const struct sweep *sweep);

/* Writes sweep.json and, by gnuplot, sweep.svg into a folder that is held (report/files.h). Without
 * gnuplot *note receives a lent sentence, else NULL. */
enum err_code sweep_report_write(const struct sweep_question *question, const struct sweep *sweep,
                                 const char *dir, const char **note, struct err *err);

/* ---- for the files of this report ---- */

/* A row of a sweep's table: a value and its point. */
struct sweep_row {
    const char *value;
    const struct point *point;
};

/* The rows of a table: of one axis all, of a search those near its answer; row i of them. */
uint32_t sweep_rows(const struct sweep *sweep, const struct sweep_question *question);
struct sweep_row sweep_row(const struct sweep *sweep, const struct sweep_question *question,
                           uint32_t i);

/* Which row is to be marked, the best or the answer; SWEEP_NONE. */
uint32_t sweep_marked(const struct sweep *sweep, const struct sweep_question *question);

/* "tokens/s of a GPU", "device, GiB": what a measure is called, and its values in that unit. */
const char *sweep_measure_title(enum point_measure measure);
double sweep_measure_value(const struct point *point, enum point_measure measure);

#endif
