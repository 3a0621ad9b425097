/* page.h - what report.html has besides tables and pictures: the verdict, and a script without a
 * network that reads values under the pointer and zooms. */
#ifndef SHARDPLAN_PAGE_H
#define SHARDPLAN_PAGE_H

#include "job/step_time.h"
#include "settings/settings.h"

#include <stdio.h>

/* One sentence: whether it fits, how much is free, how long a step is. */
void page_verdict(FILE *to, const struct settings *settings, const struct prediction *prediction,
                  const struct profile *profile, const struct step_time *time);

/* What the pictures' plot areas are, as reports/memory.gp and timeline.gp set them: shares of the
 * picture's width. */
#define PAGE_MEMORY_LEFT 0.07
#define PAGE_MEMORY_RIGHT 0.76
#define PAGE_TIMELINE_LEFT 0.12
#define PAGE_TIMELINE_RIGHT 0.79

/* A picture to be read: until page_picture_end, its SVG and one <script type="application/json">
 * with rows [x, text], in the order of x; `from` and `to_x` are the borders of the plot area. */
void page_picture_begin(FILE *to, double left, double right, double from, double to_x);
void page_picture_end(FILE *to);

/* What the words in pictures of memory mean. */
void page_terms(FILE *to);

/* A string of JSON inside a script: without quotes, backslashes and end tags of its own. */
void page_put_text(FILE *to, const char *text);

/* The script, once, behind all pictures. */
void page_script(FILE *to);

#endif
