/* prompts.h - of which sequences the first tokens are planned as a prompt (`--prompt-tokens`). */
#ifndef SHARDPLAN_FAMILIES_PROMPTS_H
#define SHARDPLAN_FAMILIES_PROMPTS_H

#include "families/family.h"

/* ERR_INVALID: there are no such sequences, or nobody says how many tokens; ERR_UNSUPPORTED: what
 * the loss makes of them is not planned. */
enum err_code prompts_check(const struct family *family, const struct model_job *job,
                            struct err *err);

#endif
