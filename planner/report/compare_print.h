/* compare_print.h - a comparison for people and for programs. */
#ifndef SHARDPLAN_COMPARE_PRINT_H
#define SHARDPLAN_COMPARE_PRINT_H

#include "compare/compare.h"

#include <stdio.h>

struct compare_verdict { /* what the exit status is made of */
    bool memory_equal;
    bool time_checked, time_within;
    double tolerance_percent;
};

/* Tables. Colour only when `file` is a terminal. */
void compare_print(FILE *file, const struct plan *plan, const struct comparison *comparison,
                   const struct compare_verdict *verdict);

/* The object of `compare --json`: everything but the curves. The caller owns it. */
json_t *compare_json(const struct plan *plan, const struct comparison *comparison,
                     const struct compare_verdict *verdict);

/* What an instruction does, in words: "free of mm [256, 688] bfloat16, in bwd"; "the host" for
 * COMPARE_NONE. Writes into text and returns it. */
const char *compare_what(const struct plan *plan, uint32_t instruction, char *text, size_t size);

/* "98.1 us", "1.20 ms"; "-" for a time that is not a number. Likewise. */
const char *compare_seconds(double seconds, char text[32]);

#endif
