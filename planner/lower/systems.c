/* systems.c - the sharding systems by name, and those that have a lowering; see lower.h. */
#include "lower/lower.h"

const char *system_name(enum system_kind kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        SYSTEM_MAP(X)
#undef X
    };
    return names[kind];
}

bool system_is_planned(enum system_kind kind)
{
    static const bool planned[SYSTEM_COUNT] = {[SYSTEM_FSDP2] = true};
    return planned[kind];
}
