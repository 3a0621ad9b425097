/* auto_wrap.h - the units of FSDP as accelerate 1.15 makes them, for its own files and for what
 * transformers' Trainer passes on to it.
 *
 * TRANSFORMER_BASED_WRAP: fsdp2_prepare_model wraps the blocks, the embeddings, and the
 * last norm with the head, which is --units torchtitan; FSDP1's transformer_auto_wrap_policy wraps
 * the blocks. */
#ifndef SHARDPLAN_AUTO_WRAP_H
#define SHARDPLAN_AUTO_WRAP_H

#include "frameworks/framework.h"

#define TRANSFORMER_WRAP "TRANSFORMER_BASED_WRAP"

/* Sets --units, if `policy` is TRANSFORMER_BASED_WRAP, and says so in *known; another one is left
 * alone. `classes` is the path of transformer_layer_cls_to_wrap, in which FSDP1 has embeddings of
 * their own. Of a recorded model FSDP2's other units are listed: its blocks are all that is known
 * of it. */
enum err_code auto_wrap_set(struct import *import, const char *policy, const char *classes,
                            const struct key_row *row, const struct node *node, bool *known,
                            struct err *err);

/* The reader of transformer_layer_cls_to_wrap, once the model is known; `by_class`: the policy is
 * TRANSFORMER_BASED_WRAP, without which the key has no effect. Classes that are not the blocks' are
 * listed; ERR_INVALID: the model has no module of one, where accelerate stops. */
enum err_code auto_wrap_classes(struct import *import, const struct key_row *row,
                                const struct node *node, bool by_class, struct err *err);

#endif
