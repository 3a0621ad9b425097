/* picture.h - pictures in a folder, drawn by gnuplot. */
#ifndef SHARDPLAN_PICTURE_H
#define SHARDPLAN_PICTURE_H

#include "compare/compare.h"

#include <stdio.h>

struct picture {
    const char *svg;    /* file name in the folder */
    const char *script; /* gnuplot: reads `data`, writes `out` */
    void (*data)(FILE *file, const void *context);
    void (*settings)(FILE *file, const void *context); /* variables in front of the script */
};

/* Draws a picture into a folder; *drawn tells whether gnuplot did. Nothing half-written is left.
 * ERR_IO names the file that cannot be written. */
enum err_code picture_draw(const struct picture *picture, const void *context, const char *dir,
                           bool *drawn, struct err *err);

/* How many of an axis's units a second has, where the axis is a step's time: "ms" of short ones,
 * "s" of others. */
double picture_seconds(double step_s, const char **unit);

/* What a step's streams did, lane by lane, with the exposed communication below. */
struct timeline_picture {
    const struct plan *plan;
    const struct compare_time *time;     /* spans, exposed, step_s */
    const double *done_s;                /* (instructions) of a collective: its own part is done,
                                            and it waits for slower ranks; NULL: not known */
    const struct compare_interval *host; /* (host_count) the host issues; NULL: not known */
    uint32_t host_count;
    const char *title;
};

enum err_code timeline_draw(const struct timeline_picture *timeline, const char *dir, bool *drawn,
                            struct err *err);

#define TIMELINE_SVG "timeline.svg"

#endif
