/* snapshot.h - records what an allocator does, for PyTorch's memory viewer.
 *
 * The file written is what torch.cuda.memory._dump_snapshot() writes, so pytorch.org/memory_viz
 * and torch.cuda._memory_viz open it: the segments and blocks at the end, and every action on the
 * way there. The viewer goes backwards from the end, so record from the allocator's start; blocks
 * that are older than the record are shown, but without a frame.
 *
 *     struct snapshot *snapshot = snapshot_new();
 *     settings.on_action = snapshot_on_action;
 *     settings.action_context = snapshot;
 *     ... snapshot_set_frame(snapshot, "layers.3.mlp.w1", "plan.json", 412, time_us);
 *     ... allocator_alloc(allocator, ...);
 *     snapshot_write(snapshot, allocator, "rank0.pickle", &err); */
#ifndef SHARDPLAN_SNAPSHOT_H
#define SHARDPLAN_SNAPSHOT_H

#include "base/err.h"
#include "memory/allocator.h"

#include <stddef.h>
#include <stdint.h>

struct snapshot; /* opaque; fields in snapshot.c */

/* An empty record. The caller owns it: snapshot_free. */
struct snapshot *snapshot_new(void);

/* Frees the record. NULL is allowed. */
void snapshot_free(struct snapshot *snapshot);

/* What the following actions are done for, and when (Unix time in microseconds). Strings are
 * UTF-8 and lent until the last snapshot_write; `name` NULL means no frame. The viewer hides
 * frames whose name contains "_start" or "PyObject_", or whose file contains "/Register". */
void snapshot_set_frame(struct snapshot *snapshot, const char *name, const char *filename, int line,
                        uint64_t time_us);

/* Records one action, in about 40 bytes: for allocator_settings.on_action, with the snapshot as
 * action_context. */
void snapshot_on_action(void *snapshot, enum allocator_action action, uint64_t address,
                        uint64_t bytes, int stream);

/* Forgets the oldest actions but for the last `most`, as PyTorch's record does that has a maximum:
 * blocks that are older keep their place in the picture, and lose their frame. */
void snapshot_forget(struct snapshot *snapshot, size_t most);

/* Writes the record and the present state of `allocator`, as device 0. The file appears under
 * `path` only when it is complete; ERR_IO otherwise, and a file already there is kept. */
enum err_code snapshot_write(const struct snapshot *snapshot, const struct allocator *allocator,
                             const char *path, struct err *err);

#endif
