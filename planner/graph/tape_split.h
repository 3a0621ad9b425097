/* tape_split.h - where DDPOptimizer cuts what is compiled (torch/_dynamo/backends/distributed.py):
 * calls are gone through from the last to the first, and a part ends with the call whose parameters
 * fill a bucket: 1 MiB first, then DDP's bucket_cap_mb. A call counts the parameters that it is
 * given, each time; a checkpointed block is one call. */
#ifndef SHARDPLAN_TAPE_SPLIT_H
#define SHARDPLAN_TAPE_SPLIT_H

#include "graph/graph.h"
#include "graph/tape_options.h"

/* Where parts of the script's [first, end) begin, in order, `first` among them: items; room for
 * (end - first + 1). Returns how many. `block`: how many blocks come before it. */
uint32_t tape_split(const struct graph *graph, const struct tape_options *options, uint32_t first,
                    uint32_t end, uint32_t block, uint32_t *begins);

#endif
