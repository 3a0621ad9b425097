/* shown.c - see shown.h. */
#include "model/shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shown shown_of(const json_t *value)
{
    struct shown shown = {"nothing"};
    if (json_is_real(value) && json_real_value(value) >= SHOWN_INFINITY) {
        snprintf(shown.text, sizeof shown.text, "Infinity");
        return shown;
    }
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    if (text)
        snprintf(shown.text, sizeof shown.text, strlen(text) > 40 ? "%.40s..." : "%.40s", text);
    free(text);
    return shown;
}
