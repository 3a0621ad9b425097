/* difference_report.h - two plans side by side, for people and for programs. */
#ifndef SHARDPLAN_DIFFERENCE_REPORT_H
#define SHARDPLAN_DIFFERENCE_REPORT_H

#include "compare/difference.h"

#include <stdio.h>

struct difference_report {    /* lent */
    const char *label[SIDES]; /* what the sides are called */
    struct difference_side side[SIDES];
    const json_t *memory[SIDES]; /* "memory" of plan.json; NULL: not known */
    const struct difference *difference;
};

/* Tables. Colour only when `file` is a terminal. */
void difference_print(FILE *file, const struct difference_report *report);

/* The object of `diff --json`. The caller owns it. */
json_t *difference_json(const struct difference_report *report);

/* Writes diff.json and, by gnuplot, diff.svg into a folder that is held (report/files.h): bytes and
 * time of both sides. Without gnuplot *note receives a lent sentence, else NULL. */
enum err_code difference_report_write(const struct difference_report *report, const char *dir,
                                      const char **note, struct err *err);

/* ---- for the files of this report ---- */

/* Member "a" or "a.b" of an object as a number; NAN: there is none. */
double difference_number(const json_t *object, const char *path);

#endif
