/* tune_settings.c - see tune_settings.h. */
#include "tests/support/tune_settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct settings tune_settings_of(const char *const *pairs)
{
    struct settings settings;
    struct err err = {0};
    settings_defaults(&settings, COMMAND_TUNE);
    for (; pairs[0]; pairs += 2)
        if (settings_set(&settings, pairs[0], pairs[1], &err) != ERR_OK)
            fail_msg("%s", err.text);
    return settings;
}
