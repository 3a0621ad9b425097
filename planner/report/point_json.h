/* point_json.h - a point as members of a JSON object. */
#ifndef SHARDPLAN_POINT_JSON_H
#define SHARDPLAN_POINT_JSON_H

#include "search/point.h"

#include <jansson.h>

/* "fits", "too large", "refused". */
const char *point_verdict_text(enum point_verdict verdict);

/* Into `object`: verdict, bytes and seconds under the names that fit and plan have for them; of a
 * point that is refused, the reason. */
void point_set(json_t *object, const struct point *point);

#endif
