/* turn.h - where the values of a number turn from fitting to not: the largest that fits, or the
 * fewest.
 *
 *     values  1    2    4      8      16      32          doubled until it turns ...
 *             fits fits fits   fits   does not
 *                              8  12  16                  ... then halved between the two
 *                                 10 ...
 *
 * Memory mostly grows with a number (or falls, of GPUs), so bisection finds the turn. The caching
 * allocator does not promise it, so some values next to the turn are tried one by one, and where
 * one of them fits after all the search goes on from there. What lies further away is not looked
 * at. A refused value (a world that does not fill its nodes) is passed over. */
#ifndef SHARDPLAN_TURN_H
#define SHARDPLAN_TURN_H

#include "search/point.h"

enum turn_kind {
    TURN_LARGEST, /* the last value that fits: memory grows */
    TURN_FEWEST,  /* the first that fits: memory falls */
};

enum {
    TURN_NEIGHBOURS = 16, /* on the far side of the turn, that are tried one by one */
    TURN_NEAR = 5,        /* trials on each side of an answer that a table shows */
    TURN_REFUSALS = 128,  /* in a row, after which no accepted value is looked for */
};

struct turn_trial {
    uint64_t place; /* among all values, from 0 */
    char value[NUMBER_TEXT];
    struct point point;
};

struct turn {
    struct turn_trial *trials; /* (count) what was tried, by value: owned, turn_free */
    uint32_t count;
    uint32_t answer;     /* index into trials; TURN_NONE: nothing fits */
    uint32_t neighbour;  /* the nearest accepted one that does not fit, beyond the answer (largest)
                            or before it (fewest); TURN_NONE: there is none, every value fits */
    uint32_t neighbours; /* accepted ones on that side that were tried without a gap in between */
    uint32_t least;      /* the accepted one that takes least memory; TURN_NONE: all are refused */
    uint32_t near[2 * TURN_NEAR + 1]; /* (near_count) of the accepted trials those around the
                                         answer, or around the least where there is none */
    uint32_t near_count;
    bool jumped; /* one beyond a value that does not fit did fit: memory is not monotone */
};

#define TURN_NONE UINT32_MAX

/* Searches the values of `along`, in their order, which is to be ascending; where it has none,
 * every integer that its setting allows. The choice is the base with values[i] of axes[i] put in,
 * and along's besides. ERR_INVALID: along is no integer setting. The caller owns what is in *out:
 * turn_free. */
enum err_code turn_find(const struct settings *base, const struct axis *axes,
                        const char *const *values, uint32_t axis_count, const struct axis *along,
                        enum turn_kind kind, struct turn *out, struct err *err);
void turn_free(struct turn *turn);

#endif
