/* proposals.h - changes that are tried by name where a job does not fit.
 *
 * A search changes one setting at a time from what it has values for. These are what notes beside
 * the verdict propose (padding.h, saved_views.h), what nobody chose and few mean, and what takes
 * several settings at once to be possible at all. */
#ifndef SHARDPLAN_PROPOSALS_H
#define SHARDPLAN_PROPOSALS_H

#include "settings/settings.h"

enum { PROPOSALS_MOST = 4 };

/* Fills in the settings with each change, given ones included; returns how many there are. What the
 * system has no setting for is left out of a change. Texts are static or lent by `settings`. */
uint32_t proposals_of(const struct settings *settings, const struct model_config *config,
                      struct settings out[PROPOSALS_MOST]);

#endif
