/* aten.c - see aten.h. */
#include "base/aten.h"

const char *aten_name(enum aten aten)
{
    static const char *const names[] = {
#define X(name, text) text,
        ATEN_MAP(X)
#undef X
    };
    return names[aten];
}
