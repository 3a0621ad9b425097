/* report.c - what every command says at its end; see commands.h. */
#include "cli/commands.h"

#include <jansson.h>
#include <stdio.h>

void report_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(value);
}

int report_error(const struct err *err)
{
    fprintf(stderr, "shardplan: %s\n", err->text);
    switch (err->code) {
    case ERR_INVALID:
    case ERR_UNSUPPORTED:
        return EXIT_BAD_INPUT;
    case ERR_INFEASIBLE:
        return EXIT_NO_FIT;
    default:
        return EXIT_FAILED;
    }
}
