/* number.c - see number.h. */
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Longest suffixes first: "KiB" ends in "B", too. */
static const struct {
    const char *suffix;
    uint64_t bytes;
} units[] = {
    {"TiB", (uint64_t)1 << 40}, {"TB", 1000000000000}, {"GiB", 1 << 30},
    {"GB", 1000000000},         {"MiB", 1 << 20},      {"MB", 1000000},
    {"KiB", 1 << 10},           {"KB", 1000},          {"B", 1},
};
enum { UNITS = sizeof units / sizeof units[0] };

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

bool number_integer(const char *text, uint64_t *out)
{
    const size_t length = digits(text);
    if (length == 0 || text[length])
        return false;
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0;
}

bool number_kilo(const char *text, uint64_t *out)
{
    char count[NUMBER_TEXT];
    const size_t length = strlen(text);
    if (length < 2 || length >= sizeof count || tolower((unsigned char)text[length - 1]) != 'k')
        return false;
    snprintf(count, sizeof count, "%.*s", (int)length - 1, text);
    if (!number_integer(count, out) || *out > UINT64_MAX / 1024)
        return false;
    *out *= 1024;
    return true;
}

/* [+-] digits [. digits] [e [+-] digits] is the whole text. strtod takes more than that. */
static bool is_decimal(const char *text)
{
    text += *text == '-' || *text == '+';
    size_t count = digits(text);
    text += count;
    if (*text == '.') {
        const size_t fraction = digits(++text);
        count += fraction;
        text += fraction;
    }
    if (count > 0 && (*text == 'e' || *text == 'E')) {
        text++;
        text += *text == '-' || *text == '+';
        count = digits(text);
        text += count;
    }
    return count > 0 && *text == '\0';
}

bool number_real(const char *text, double *out)
{
    if (!is_decimal(text))
        return false;
    *out = strtod(text, NULL);
    return isfinite(*out);
}

bool number_bytes(const char *text, uint64_t *out)
{
    const uint64_t most = INT64_MAX;
    char count[NUMBER_TEXT];
    const size_t length = strlen(text);
    uint64_t unit = 0;
    double value;
    if (length == 0 || length >= sizeof count)
        return false;
    memcpy(count, text, length + 1);
    for (int i = 0; i < UNITS && !unit; i++) {
        const size_t suffix = strlen(units[i].suffix);
        if (length > suffix && strcasecmp(text + length - suffix, units[i].suffix) == 0) {
            count[length - suffix] = '\0';
            unit = units[i].bytes;
        }
    }
    if (number_integer(count, out)) { /* exact beyond a double's 2^53 */
        const bool fits = *out <= most / (unit ? unit : 1);
        *out *= unit ? unit : 1;
        return fits;
    }
    if (!unit || !number_real(count, &value) || value < 0 || value * (double)unit >= (double)most)
        return false;
    *out = (uint64_t)(value * (double)unit);
    return true;
}

const char *number_real_text(double value, bool single, char text[NUMBER_TEXT])
{
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(text, NUMBER_TEXT, "%.*g", precision, value);
        const double again = strtod(text, NULL);
        if (single ? (float)again == (float)value : again == value)
            break;
    }
    return text;
}

const char *number_bytes_text(uint64_t bytes, char text[NUMBER_TEXT])
{
    int i = 0;
    while (i < UNITS - 1 && (bytes == 0 || bytes % units[i].bytes != 0))
        i++;
    snprintf(text, NUMBER_TEXT, "%" PRIu64 "%s", bytes / units[i].bytes, units[i].suffix);
    return text;
}
