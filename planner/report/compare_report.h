/* compare_report.h - the files that `shardplan compare -o DIR` leaves in its folder. */
#ifndef SHARDPLAN_COMPARE_REPORT_H
#define SHARDPLAN_COMPARE_REPORT_H

#include "report/compare_print.h"

/* Writes into a folder that is held (report/files.h), each file under a temporary name first:
 *   compare.json         the object of --json, and "curve": both memory curves, all points
 *   memory-compare.svg   both memory curves, by gnuplot
 *   timeline.svg         the recorded lanes, and what communication was exposed
 *   compare.html         one page: tables and pictures
 * `model`, of which the plan is, is named in the pictures; NULL: not told.
 * Without gnuplot there are no pictures; *note then receives a lent sentence, else NULL. */
enum err_code compare_report_write(const struct plan *plan, const struct comparison *comparison,
                                   const struct compare_verdict *verdict, const char *model,
                                   const char *dir, const char **note, struct err *err);

#endif
