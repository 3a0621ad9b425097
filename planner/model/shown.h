/* shown.h - a value of a config.json in a message. */
#ifndef SHARDPLAN_SHOWN_H
#define SHARDPLAN_SHOWN_H

#include <jansson.h>

/* What readers have in the place of Python's Infinity: shown as that. */
#define SHOWN_INFINITY 1e308

struct shown { /* as it stands in the file, cut to a length that fits a message */
    char text[48];
};
struct shown shown_of(const json_t *value);

#endif
