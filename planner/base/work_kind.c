/* work_kind.c - see work_kind.h. */
#include "base/work_kind.h"

#include <string.h>

static const struct {
    const char *name, *meaning;
} works[] = {
#define X(name, text, meaning) {text, meaning},
    WORK_MAP(X)
#undef X
};

const char *work_name(enum work_kind kind)
{
    return (unsigned)kind < WORK_KIND_COUNT ? works[kind].name : "?";
}

const char *work_meaning(enum work_kind kind)
{
    return (unsigned)kind < WORK_KIND_COUNT ? works[kind].meaning : "?";
}

enum work_kind work_named(const char *name)
{
    for (unsigned kind = WORK_NONE + 1; kind < WORK_KIND_COUNT; kind++)
        if (strcmp(works[kind].name, name) == 0)
            return (enum work_kind)kind;
    return WORK_NONE;
}
