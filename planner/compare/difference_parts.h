/* difference_parts.h - for the files of struct difference. */
#ifndef SHARDPLAN_DIFFERENCE_PARTS_H
#define SHARDPLAN_DIFFERENCE_PARTS_H

#include "compare/difference.h"

/* Predicted seconds of an instruction; 0 where there are none. */
double difference_seconds(const struct difference_side *side, uint32_t id);

/* Sets units and groups of *out. */
void difference_units(const struct difference_side side[SIDES], struct difference *out);

#endif
