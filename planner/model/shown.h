/* shown.h - a value of a config.json in a message. */
#ifndef SHARDPLAN_SHOWN_H
#define SHARDPLAN_SHOWN_H

#include <jansson.h>

struct shown { /* as it stands in the file, cut to a length that fits a message */
    char text[48];
};
struct shown shown_of(const json_t *value);

#endif
