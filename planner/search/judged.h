/* judged.h - settings judged as `fit` does.
 *
 * A search counts what a job reserves when it gives nothing back, and has no clock. Where nothing
 * fits by that, those with the fewest changes may all the same. */
#ifndef SHARDPLAN_JUDGED_H
#define SHARDPLAN_JUDGED_H

#include "search/search.h"

struct judged {
    struct settings settings;
    struct found found;  /* its bytes of a device and its step */
    uint64_t host_bytes; /* of a rank */
    bool fits, after_release;
};

/* Fills in all but the settings, which are of the model's `config`: whether they fit, within
 * `limit_bytes` of a device, and where they do the rest. */
void judge(struct judged *judged, const struct model_config *config, const struct machine *machine,
           uint64_t limit_bytes);

/* Whether so much of a device leaves less free than predictions have been off by, as `fit` calls
 * it. */
bool device_is_tight(const struct machine *machine, uint64_t device_bytes);

/* Whether `fit` calls these settings tight, by that or as blocks may come back later than they are
 * counted (predict_clocked). */
bool judge_is_tight(const struct settings *settings, const struct model_config *config,
                    const struct machine *machine);

enum { JUDGED = 12 };

/* Of candidates those that change least of what was asked for, of these the ones whose steps are
 * bounded lowest, each judged: up to JUDGED of them, in `out`. Returns their number. */
uint32_t judge_nearest(const struct candidates *candidates, uint64_t limit_bytes, struct pool *pool,
                       struct judged *out);

#endif
