/* auto_wrap.h - the units of FSDP as accelerate 1.15 makes them, for its own files and for what
 * transformers' Trainer passes on to it.
 *
 * TRANSFORMER_BASED_WRAP: fsdp2_prepare_model wraps the blocks, the embeddings, and the
 * last norm with the head, which is --units torchtitan; FSDP1's transformer_auto_wrap_policy wraps
 * the blocks. */
#ifndef SHARDPLAN_AUTO_WRAP_H
#define SHARDPLAN_AUTO_WRAP_H

#include "frameworks/framework.h"

/* Sets --units, if `policy` is TRANSFORMER_BASED_WRAP, and says so in *known; another one is left
 * alone. Of a recorded model FSDP2's other units are listed: its blocks are all that is known of
 * it. */
enum err_code auto_wrap_set(struct import *import, const char *policy, const struct key_row *row,
                            const struct node *node, bool *known, struct err *err);

#endif
