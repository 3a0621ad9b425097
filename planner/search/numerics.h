/* numerics.h - what a change of settings changes of what is trained, and not only of how.
 *
 * Two systems have different settings for the same thing (FSDP2's --param-dtype, DDP's --autocast,
 * ZeRO's gradients, which are reduced in the dtype they are computed in): so the dtypes that the
 * two jobs come to are compared, and then the settings that change numerics besides. How a step's
 * tokens are split into micro-batches is none of it. */
#ifndef SHARDPLAN_NUMERICS_H
#define SHARDPLAN_NUMERICS_H

#include "settings/settings.h"

enum { NUMERICS_TEXT = 192 };

/* Writes it into text: "reduces in bf16 instead of fp32, stores bf16 instead of fp32"; "": nothing.
 * Both are settings of one model, `config`, and jobs are possible of them. Returns text. */
const char *numerics_difference(const struct settings *from, const struct settings *to,
                                const struct model_config *config, char text[NUMERICS_TEXT]);

#endif
