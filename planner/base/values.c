/* values.c - names of the enums in values.h. */
#include "base/values.h"

const char *init_name(enum init_kind kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        INIT_MAP(X)
#undef X
    };
    return names[kind];
}

const char *buffer_values_name(enum buffer_values_kind kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        BUFFER_VALUES_MAP(X)
#undef X
    };
    return names[kind];
}

const char *input_name(enum input_kind kind)
{
    static const char *const names[] = {
#define X(name, text) text,
        INPUT_MAP(X)
#undef X
    };
    return names[kind];
}
