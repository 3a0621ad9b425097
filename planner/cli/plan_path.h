/* plan_path.h - which file is meant where a plan is asked for. */
#ifndef SHARDPLAN_PLAN_PATH_H
#define SHARDPLAN_PLAN_PATH_H

#include <stddef.h>

/* A folder that holds a plan.json becomes that, in (size) `room`, which *path then refers to. */
void plan_path(const char **path, char *room, size_t size);

#endif
