/* vocabulary.c - see vocabulary.h. */
#include "base/vocabulary.h"

#include "base/names.h"

#include <string.h>

static const char *const atens[] = {NAMES_OF(ATEN_MAP)};

const char *aten_name(enum aten aten)
{
    return atens[aten];
}

const char *const *aten_names(void)
{
    return atens;
}

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

enum work_kind work_nearest(const char *name)
{
    unsigned nearest = WORK_NONE + 1;
    for (unsigned kind = nearest; kind < WORK_KIND_COUNT; kind++)
        if (names_nearer(name, works[kind].name, works[nearest].name))
            nearest = kind;
    return (enum work_kind)nearest;
}
