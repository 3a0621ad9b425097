/* memory_picture.h - the memory of one step: categories stacked, what the allocator makes of them,
 * the device's capacity, the host's bytes apart.
 *
 *     memory.svg        over instructions, in host order: every part of the step is as wide as its
 *                       program is long
 *     memory-time.svg   over the time of the step on the device: up to its end */
#ifndef SHARDPLAN_MEMORY_PICTURE_H
#define SHARDPLAN_MEMORY_PICTURE_H

#include "job/step_time.h"
#include "report/title.h"

#include <stdio.h>

enum memory_axis { MEMORY_OVER_INSTRUCTIONS, MEMORY_OVER_TIME, MEMORY_AXES };

struct memory_picture {                  /* all lent */
    const char *job;                     /* title_job */
    const struct prediction *prediction; /* with its plan */
    const struct machine *machine;
    const struct step_time *time;
};

/* Draws it into a folder: picture_draw. */
enum err_code memory_picture_draw(const struct memory_picture *picture, enum memory_axis axis,
                                  const char *dir, bool *drawn, struct err *err);

/* The picture that was drawn into a folder, and what its script reads: page_picture_begin.
 * `modules`: plan_module_names. */
void memory_picture_put(const struct memory_picture *picture, enum memory_axis axis,
                        const char **modules, const char *dir, FILE *to);

#endif
