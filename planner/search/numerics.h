/* numerics.h - what a change of settings changes of what is trained, and not only of how.
 *
 * Two systems have different settings for the same thing (FSDP2's --param-dtype, DDP's --autocast,
 * ZeRO's gradients, which are reduced in the dtype they are computed in): so the dtypes that the
 * two jobs come to are compared, and then the settings that change numerics besides. How a step's
 * tokens are split into micro-batches is none of it. */
#ifndef SHARDPLAN_NUMERICS_H
#define SHARDPLAN_NUMERICS_H

#include "settings/settings.h"

enum { NUMERICS_TEXT = 192, NUMERICS_MOST = 12 };

struct numerics {             /* what differs */
    char text[NUMERICS_TEXT]; /* "reduces in bf16 instead of fp32, stores bf16 instead of fp32" */
    const char *settings[NUMERICS_MOST]; /* (count) names of the settings that are about it: lent */
    uint32_t count;                      /* 0: nothing differs */
};

/* Both are settings of one model, `config`, and jobs are possible of them. */
void numerics_compare(const struct settings *from, const struct settings *to,
                      const struct model_config *config, struct numerics *out);

/* Its text alone, "": nothing. Returns text. */
const char *numerics_difference(const struct settings *from, const struct settings *to,
                                const struct model_config *config, char text[NUMERICS_TEXT]);

/* Whether two jobs of one model train the same thing, dtypes and how many GPUs and tokens there are
 * aside: only then does it say something that one has more tokens a second. */
bool numerics_same_training(const struct settings *a, const struct settings *b);

/* Whether a setting says a dtype that every system's job comes to, be it told or not. */
bool numerics_is_dtype(const struct setting *row);

/* Brings settings that were just given another system as near to `from` in what they train as that
 * system's own settings can: dtypes that nobody gave become those of from's job, and autocast
 * stands for half precision where there is nothing else. */
void numerics_keep(const struct settings *from, const struct model_config *config,
                   struct settings *to);

#endif
