/* dynamo.h - torch.compile as accelerate 1.15 and transformers' Trainer ask for it.
 *
 * Accelerator.prepare_model (DDP, one GPU, FSDP1) compiles what it has wrapped,
 * DistributedDataParallel and FullyShardedDataParallel, too; _prepare_fsdp2 compiles before
 * fully_shard; _prepare_deepspeed calls engine.compile. Under mixed precision autocast and the cast
 * of what is returned (native_amp.h) are inside of what is compiled: one graph, which returns
 * logits in fp32. What each of them compiles was recorded
 * (tests/data/truth/compile_steps_accelerate.jsonl). */
#ifndef SHARDPLAN_DYNAMO_H
#define SHARDPLAN_DYNAMO_H

#include "frameworks/framework.h"

struct dynamo {            /* nodes of keys: NULL: absent */
    const char *path;      /* of the key that says so */
    const struct node *on; /* ... which is there */
    const struct node *backend, *mode, *dynamic;
    const char *backend_path, *mode_path, *dynamic_path;
    bool regional; /* use_regional_compilation */
};

/* Sets --compile, behind what mixed precision sets; what cannot be planned so is listed with its
 * reason, and planned eager. */
enum err_code dynamo_set(struct import *import, const struct key_row *row,
                         const struct dynamo *dynamo, struct err *err);

#endif
