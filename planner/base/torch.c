/* torch.c - see torch.h. */
#include "base/torch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint32_t torch_minor(const char *version)
{
    const unsigned long minor = strncmp(version, "2.", 2) == 0 ? strtoul(version + 2, NULL, 10) : 0;
    return minor >= TORCH_OLDEST && minor <= TORCH_NEWEST ? (uint32_t)minor : 0;
}

const struct torch_row *torch_row(enum torch_change change)
{
    static const struct torch_row rows[] = {
#define X(NAME, from, until, whose, now, then, source)                                             \
    {from, until, TORCH_OF_##whose, now, then, source},
        TORCH_MAP(X)
#undef X
    };
    assert(change < TORCH_CHANGES);
    return &rows[change];
}
