/* require.h - for processes of tests that have no cmocka: ranks. */
#ifndef SHARDPLAN_TESTS_REQUIRE_H
#define SHARDPLAN_TESTS_REQUIRE_H

#include "base/err.h"

#include <stdio.h>
#include <unistd.h>

/* Says what does not hold and ends the process with status 1. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* The same of a call, which is given &err. */
#define REQUIRE_OK(call)                                                                           \
    do {                                                                                           \
        struct err err = {0};                                                                      \
        if ((call) != ERR_OK) {                                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, err.text);                          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

#endif
