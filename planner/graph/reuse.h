/* reuse.h - what a kernel's operands were touched last before: how much of it a second level cache
 * may still have, which is the profile's to say (cost/traffic.c). */
#ifndef SHARDPLAN_REUSE_H
#define SHARDPLAN_REUSE_H

#include "graph/stream.h"

/* Sets `since` of every operand of the stream's kernels, in the order in which they run; what else
 * runs between them (gathers, copies of a system) is not looked at. Before another holds them. */
void stream_find_reuse(struct stream *stream);

#endif
