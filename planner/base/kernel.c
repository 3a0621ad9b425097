/* kernel.c - names of the enums in kernel.h. */
#include "base/kernel.h"

const char *category_name(enum category category)
{
    static const char *const names[] = {
#define X(name, text) text,
        CATEGORY_MAP(X)
#undef X
    };
    return names[category];
}
