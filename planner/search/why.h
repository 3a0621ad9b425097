/* why.h - what each setting of a choice is worth, and the simplest that is about as fast.
 *
 *     chosen     --units torchtitan --keep-unsharded 3 --optimizer-impl fused     9.502 s
 *     simpler    --units torchtitan                                               9.577 s, +0.8 %
 *
 * Settings are put back to the framework's default one after the other, each time the one that
 * costs least, as long as what is left fits and is within SIMPLER_WITHIN of the choice. */
#ifndef SHARDPLAN_WHY_H
#define SHARDPLAN_WHY_H

#include "search/search.h"

struct tuned_setting {                /* one that is not at the framework's default */
    const char *name, *value, *usual; /* lent by the space; usual "": none */
    bool possible;                    /* with the default instead, all else as chosen; if so: */
    bool fits;
    bool after_release; /* no: only by giving cached segments back */
    bool fits_host;
    uint32_t holds_whole; /* it has so many micro-batches, and gradients that are reduced after the
                             last are whole between them; 0: not so */
    double step_s;
    uint64_t device_bytes, host_needed_bytes;
};

#define SIMPLER_WITHIN 1.01 /* less than steps have been predicted to differ in the wrong order */

struct simpler {
    struct found found;  /* weight: with the units that it keeps, as the choice's */
    bool is_there;       /* one setting at least can be put back */
    bool keeps_units;    /* those of the choice */
    struct settings own; /* its settings, those off their defaults given */
};

struct tuned;

/* Fills in out->reasons and out->simpler of what is chosen. Same result whatever the number of
 * threads. */
void why_ask(struct tuned *out, struct pool *pool);

#endif
