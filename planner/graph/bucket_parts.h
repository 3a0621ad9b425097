/* bucket_parts.h - where DDPOptimizer splits a graph that torch.compile has captured within DDP's
 * forward (torch/_dynamo/backends/distributed.py of PyTorch 2.14, optimize_ddp = True).
 *
 *     ... | norm linear linear rope | linear attention linear add norm | linear silu linear mul ...
 *
 * Calls of the script are gone through from behind, and the parameters that they are given
 * counted. Once that is a bucket's bytes (a MiB for the last part), what is before is another
 * part: so all parts but the first begin with a call that has parameters. A checkpointed block is
 * one call. What has no parameters before all others stays with what follows. */
#ifndef SHARDPLAN_BUCKET_PARTS_H
#define SHARDPLAN_BUCKET_PARTS_H

#include "graph/graph.h"
#include "graph/tape_options.h"

/* Items [first, end) of the script are one graph. cuts (room for end - first): the items at which
 * parts begin, but the first part, ascending; returns how many: 0 where options->bucket_bytes is.
 */
uint32_t bucket_parts(const struct graph *graph, const struct tape_options *options, uint32_t first,
                      uint32_t end, uint32_t *cuts);

/* What the calls of items [first, end) are given, in order, as arguments of the graph that they
 * are: each tensor, by its root (`root` of tensors), where it comes first. Autocast's casts are
 * within calls. out: room for all tensors; returns how many. */
uint32_t bucket_arguments(const struct graph *graph, uint32_t first, uint32_t end, uint32_t *out);

#endif
