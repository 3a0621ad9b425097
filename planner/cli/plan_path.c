/* plan_path.c - see plan_path.h. */
#include "cli/plan_path.h"

#include <stdio.h>
#include <sys/stat.h>

void plan_path(const char **path, char *room, size_t size)
{
    struct stat status;
    const int length = snprintf(room, size, "%s/plan.json", *path);
    if (length >= 0 && (size_t)length < size && stat(room, &status) == 0)
        *path = room;
}
