/* checked.h - structures that check themselves.
 *
 * A structure with invariants beyond what an assert can say has a checker,
 *
 *     enum err_code thing_check(const struct thing *thing, struct err *err);
 *
 * which looks at all of it: ERR_INTERNAL, and the sentence names what is broken. Tests call it
 * after each operation. So does the structure itself in builds with -DSHARDPLAN_CHECKED (`make
 * checked`): every operation ends with CHECKED(thing_check, thing), which stops the program as an
 * assert does. Elsewhere CHECKED is nothing: a check of everything costs far more than the
 * operation. */
#ifndef SHARDPLAN_CHECKED_H
#define SHARDPLAN_CHECKED_H

#include "base/err.h"

#ifdef SHARDPLAN_CHECKED

#include <stdio.h>
#include <stdlib.h>

#define CHECKED(check, thing)                                                                      \
    do {                                                                                           \
        struct err checked_err_ = {ERR_OK, ""};                                                    \
        if (check((thing), &checked_err_) != ERR_OK) {                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #check, checked_err_.text);     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#else

#define CHECKED(check, thing) ((void)0)

#endif

#endif
