/* tweak.h - for explain.c: the numbers of a profile, to be changed one at a time. */
#ifndef SHARDPLAN_TWEAK_H
#define SHARDPLAN_TWEAK_H

#include "job/explain.h"

struct tweak {
    struct explained_number number; /* name, value, spread, source */
    double **at, *was;              /* (count) the copy's, which are one number, and what they were
                                       before it was changed: owned */
    size_t count;
    double most; /* it may be no larger */
};

struct tweaks {
    struct profile profile; /* a copy whose numbers may be changed; strings are lent */
    struct tweak *of;       /* (count) every number that is not 0 */
    uint32_t count, cap;
};

/* The profile is lent for as long as the tweaks, which stay where they are: they point into
 * themselves. The caller calls tweaks_free. */
void tweaks_init(struct tweaks *tweaks, const struct profile *profile);
void tweaks_free(struct tweaks *tweaks);

/* Makes a number a tenth larger or, where it may not be, smaller: returns the relative change. */
double tweak_apply(struct tweak *tweak);
void tweak_undo(struct tweak *tweak);

#endif
