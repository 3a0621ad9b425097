/* native_amp.h - mixed precision as Accelerator.prepare_model of accelerate 1.15 makes it, whatever
 * wraps the model behind it: DistributedDataParallel, FullyShardedDataParallel, or nothing.
 *
 * `native_amp`: torch.autocast and convert_outputs_to_fp32 are put around the model's own forward,
 * beside FSDP1's MixedPrecision, too; transformers' Trainer, and who uses that, get it from there.
 * _prepare_fsdp2 and _prepare_deepspeed do not. What a step then allocates was recorded
 * (tests/data/truth/accelerate_events.jsonl). */
#ifndef SHARDPLAN_NATIVE_AMP_H
#define SHARDPLAN_NATIVE_AMP_H

#include "frameworks/framework.h"

/* Whether mixed_precision, as far as it was read, is that dtype ("bf16", "fp16"), in which FSDP1
 * has its parameters, too. */
bool native_amp_is(const struct import *import, const char *dtype);

/* Behind --param-dtype: sets --autocast under FSDP1, and --outputs where the forward is under
 * autocast; fp16 is listed. `path` is the key that says the precision, `node` what it holds. */
enum err_code native_amp_set(struct import *import, const struct key_row *row, const char *path,
                             const struct node *node, struct err *err);

#endif
