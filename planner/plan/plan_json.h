/* plan_json.h - plan.json: the program as a file, complete enough to execute.
 *
 *     {"version": 2, "settings": {...}, "memory": {...}, "time": {...}, "system": "fsdp2",
 *      "world": 8, "rank": 0, "events": 412,
 *      "lanes": [{"name": "compute"}, {"name": "host"}, {"name": "all_gather", "urgent": true}],
 *      "groups": [{"name": "shard", "role": "shard", "ranks": 8, "stride": 1}],
 *      "units": [{"name": "layers.0", "params": [1, 2, 3]}],
 *      "scopes": [{"text": ""}, {"text": "unshard[layers.0]", "unit": 1}],
 *      "params": [{"name", "shape", "trainable", "beside", "unit",
 *                  "pieces": [{"role": "store", "buffer": 3, "placement": "rows",
 *                              "group": "shard", "first": 0, "elements": 32768}],
 *                  "step", "init": {"kind": "uniform", "bound": 0.1}}],
 *      "inputs": [{"buffer": 14, "what": "tokens", "vocab": 256}],
 *      "module_buffers": [{"buffer": 16, "init": {"kind": "rope", "layout": "complex", "dim": 64,
 *                                                 "theta": 10000, "scaling": "default"}}],
 *      "buffers": [{"id", "bytes", "dtype", "shape", "category", "pool", "what", "resident",
 *                   "carried", "scratch", "local"}],
 *      "instructions": [
 *        {"id": 7, "op": "alloc", "stream": "compute", "phase": "fwd", "buffer": 17},
 *        {"id": 8, "op": "compute", ..., "work": "matmul_nt", "kernel": "mm", "kind": "linear",
 *         "flops", "bytes",
 *         "in": [16, {"buffer": 3, "shape": [256, 688]}], "out": [17]}],
 *      "modules": [{"first": 7, "name": "layers.0.attention.wq"}]}
 *
 * Ids are positions. An instruction has "buffer" (alloc, free, use), "event" (record, wait),
 * "mark", or a kernel: "work" (what it computes: base/vocabulary.h), "kernel" and "kind" (names for
 * people), "backward", "recomputed", "compiled", attributes ("dim", "first", "p", "eps", "scale",
 * "causal", "window", "sample", "softcap"), "flops", "bytes", "in" and "out". "stream" is a lane:
 * of an alloc the buffer's pool, and of a free, too, unless another lane still uses the memory, and
 * of a use a lane of which its free is to know; "scope" an index into scopes, where the host is;
 * "first_step": done only then, "later_steps": only after it; "group" names the ranks of a
 * collective and of the copies around it. An operand is a buffer, or an object with what differs
 * from that buffer: "dtype", "shape", "offset", "pitch" and "strides" (in elements; strides of
 * none: what that operand is, is not known to be anywhere). "init" and "what" are base/values.h's,
 * with the numbers that the kind has ("bound"; "std", "limit"; base/rope.h's). Members that would
 * be false, zero or none are left out. From "first" on instructions are of that module (modules.h),
 * for people: a plan may come without them. One item a line; the same plan gives the same bytes.
 *
 * Of a step of very many micro-batches the file has few (repeat.h): "repeats" says how often again
 * the one before the last is issued, "micro_batches" where each begins: [{"instruction": 51,
 * "buffer": 310, "event": 0}, ...]. Such a plan is diffed and exported, and not run.
 *
 * Other ranks' programs follow from this one, unless "own_programs" (plan_rank.h). What is not
 * alike on all of them says so: a buffer or operand with "local" has the shape of that parameter's
 * part on the rank, and an operand with "chunk" lies as many times its elements into its buffer as
 * the rank's place in that group. Where a piece lies for every rank is placement.h's rule; "first"
 * and "elements" say it for this one. */
#ifndef SHARDPLAN_PLAN_JSON_H
#define SHARDPLAN_PLAN_JSON_H

#include "plan/plan.h"

#include <jansson.h>

enum { PLAN_JSON_VERSION = 2 };

struct plan_json_extra { /* JSON objects that the program does not need; each may be NULL */
    json_t *settings, *memory, *time;
};

/* Writes a plan that plan_verify accepts; `extra` is lent and may be NULL. The file appears under
 * `path` only when it is complete: on ERR_IO a file already there is kept. */
enum err_code plan_write_json(const struct plan *plan, const struct plan_json_extra *extra,
                              const char *path, struct err *err);

/* The file that a path means where a plan is asked for: of a folder its plan.json, as `plan -o` and
 * `tune -o` write it. Returns `text`. */
char *plan_json_path(const char *path, char *text, size_t size);

/* Reads and verifies, for those who walk all of a step. ERR_INVALID names file, member and allowed
 * values; ERR_UNSUPPORTED: the plan repeats. On ERR_OK the caller owns *out: plan_free; else *out
 * is NULL. */
enum err_code plan_read_json(const char *path, struct plan **out, struct err *err);

/* The same of a text in memory; `name` is for messages. */
enum err_code plan_parse_json(const char *name, const char *text, size_t length, struct plan **out,
                              struct err *err);

/* As plan_read_json, of plans that repeat, too, and with the settings, memory and time of the file
 * in *extra (NULL where it has none). The caller owns them: plan_json_extra_free. */
enum err_code plan_read_json_extra(const char *path, struct plan **out,
                                   struct plan_json_extra *extra, struct err *err);
void plan_json_extra_free(struct plan_json_extra *extra);
/* ERR_UNSUPPORTED: a plan of that file repeats, and every instruction is wanted. */
enum err_code plan_check_whole(const struct plan *plan, const char *path, struct err *err);

#endif
