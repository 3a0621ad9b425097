/* space_said.h - what of a space can be said to who is to be told the answer (space_refuses): for
 * the files of the space only.
 *
 *     a value that cannot be said         leaves its axis
 *     a setting that nobody gave          becomes what the reader would make of it, and is noted
 *     what was given and cannot be said   ends the system's grid */
#ifndef SHARDPLAN_SPACE_SAID_H
#define SHARDPLAN_SPACE_SAID_H

#include "search/space.h"

/* Index of the value on the axis; its count: there is none. */
uint32_t axis_find(const struct grid_axis *axis, const char *text);

/* Points of the axes from `from` to before `to`. */
uint64_t grid_count_points(const struct grid *grid, uint32_t from, uint32_t to);

/* The system to begin with where none was given: one that can be said. */
enum err_code said_system(const struct space_options *options, struct settings *base,
                          struct err *err);

/* Whether the grid's system can be said, some way. */
bool said_at_all(const struct grid *grid, const struct space_options *options, struct err *err);

/* Leaves out the values of an axis that cannot be said, whatever the others are. */
void said_keep(struct space *space, const struct space_options *options, struct grid_axis *axis);

/* Whether the first point can be said: what no axis chooses, and the first value of each. What
 * nobody gave is settled by the reader. `list`: what of it cannot. */
bool said_settled(struct space *space, struct grid *grid, const struct space_options *options,
                  char *list, size_t size, struct err *err);

/* Notes a system that cannot be said; `list`: for what, "": at all. */
void said_note_system(struct space *space, enum system_kind system, const char *list);

#endif
