/* calibration_report.h - a calibration for people: a table, and a page with a picture. */
#ifndef SHARDPLAN_CALIBRATION_REPORT_H
#define SHARDPLAN_CALIBRATION_REPORT_H

#include "calibrate/calibrate.h"

#include <stdio.h>

/* Fitted values and residuals of each kind of kernel, collectives by size, the host's costs. */
void calibration_print(FILE *file, const struct calibration *calibration);

/* The same for programs: {"profile", "device", "ranks", "kernels": [...], "numbers": {...},
 * "collectives": [...]}. The caller owns the object. */
json_t *calibration_json(const struct calibration *calibration, const char *profile_path);

/* Writes calibration.svg (gnuplot) and calibration.html into `dir`. `note` receives a lent sentence
 * when there is no picture, else NULL. */
enum err_code calibration_page(const struct calibration *calibration, const char *dir,
                               const char **note, struct err *err);

#endif
