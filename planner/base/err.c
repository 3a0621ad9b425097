/* err.c - see err.h. */
#include "base/err.h"

#include "base/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum err_code err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    if (!err || err->code != ERR_OK)
        return err ? err->code : code;

    char whole[8 * sizeof err->text];
    va_list args;
    va_start(args, fmt);
    err->code = code;
    vsnprintf(whole, sizeof whole, fmt, args);
    va_end(args);
    /* Of what is too long the middle goes: paths are long, and the reason stands behind them. */
    const size_t length = strlen(whole), room = sizeof err->text - 1, end = room / 4;
    if (length <= room)
        memcpy(err->text, whole, length + 1);
    else
        snprintf(err->text, sizeof err->text, "%.*s...%s", (int)(room - end - 3), whole,
                 whole + length - end);
    return code;
}

enum err_code err_context(struct err *err, const char *fmt, ...)
{
    if (!err)
        return ERR_INTERNAL;

    char context[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(context, sizeof context, fmt, args);
    va_end(args);

    /* What does not fit is cut from the end: the context names the place, which matters more. */
    char joined[2 * sizeof err->text + 2];
    snprintf(joined, sizeof joined, "%s: %s", context, err->text);
    memcpy(err->text, joined, sizeof err->text - 1);
    err->text[sizeof err->text - 1] = '\0';
    return err->code;
}

ENUM_NAME(err_name, enum err_code, ERR_MAP)
