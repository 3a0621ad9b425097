/* least.h - where nothing fits: what takes least of all, and what would fit all the same.
 *
 * A search asks for room beside what a job reserves when it never gives a cached segment back.
 * PyTorch gives them back before it gives up, and the room is for errors of prediction: what takes
 * the least may fit as `fit` judges, tight. */
#ifndef SHARDPLAN_LEAST_H
#define SHARDPLAN_LEAST_H

#include "search/search.h"

struct least {
    struct found found; /* device_bytes 0: none could be worked out */
    uint64_t bound;     /* all that were not worked out, and do not come after one that was, take
                           at least so much; UINT64_MAX: there are none */
};

struct tight_fit { /* of a configuration as `fit` judges it */
    struct found found;
    bool fits;
    bool after_release; /* only by giving cached segments back */
    bool by_clock;      /* as blocks come back by the machine's clock (predict.h) */
    uint64_t device_bytes;
    uint32_t mallocs, frees; /* a step, once it has settled */
    double step_s;
};

struct tuned;

/* Fills in out->least and out->tight, of candidates of which none fits. `like`: who stops it and
 * hears how far it is. */
void least_find(struct tuned *out, const struct search_options *like, struct pool *pool);

/* Whether nothing of the space takes less. */
bool least_is_known(const struct least *least);

#endif
