/* plan_json.h - plan.json: the program as a file, complete enough to execute.
 *
 *     {"version": 2, "settings": {...}, "memory": {...}, "time": {...}, "world": 8, "rank": 0,
 *      "events": 412, "loss_scale": 1,
 *      "groups": [{"name": "shard", "ranks": 8, "stride": 1}],
 *      "units": [{"name": "layers.0", "params": [1, 2, 3]}],
 *      "params": [{"name", "shape", "local", "trainable", "unit", "shard", "unsharded", "states",
 *                  "step", "init": {"kind": "uniform", "bound": 0.1}}],
 *      "inputs": [{"buffer": 14, "what": "tokens", "vocab": 256}],
 *      "module_buffers": [{"buffer": 16, "init": {"kind": "rope", "layout": "complex", "dim": 64,
 *                                                 "theta": 10000, "scaling": "default"}}],
 *      "buffers": [{"id", "bytes", "dtype", "shape", "category", "pool", "what", "resident",
 *                   "scratch"}],
 *      "instructions": [
 *        {"id": 7, "op": "alloc", "stream": "compute", "phase": "fwd", "buffer": 17},
 *        {"id": 8, "op": "compute", ..., "kernel": "mm", "kind": "linear", "flops", "bytes",
 *         "in": [16, {"buffer": 3, "shape": [256, 688]}], "out": [17]}]}
 *
 * Ids are positions. An instruction has "buffer" (alloc, free), "event" (record, wait), "mark", or
 * a kernel: "kernel", "kind", "backward", "recomputed", "matmul", attributes ("dim", "heads", "p",
 * "eps", "causal"), "flops", "bytes", "in" and "out". "site" with "unit" and "outer" with
 * "outer_unit" say where the host is; "first_step" that it is done only then; "group" names the
 * ranks of a collective and of the copies around it. An operand is a buffer, or an object with what
 * differs from that buffer: "dtype", "shape", "offset", "pitch" (in elements). "init" and "what"
 * are base/values.h's, with the numbers that the kind has ("bound"; "std", "limit"; base/rope.h's).
 * "loss_scale" is what backward starts from in each micro-batch. Members that would
 * be false, zero or none are left out. One item a line; the same plan gives the same bytes. */
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

/* Reads and verifies. ERR_INVALID names file, member and allowed values. On ERR_OK the caller owns
 * *out: plan_free; else *out is NULL. */
enum err_code plan_read_json(const char *path, struct plan **out, struct err *err);

/* As plan_read_json, with the settings, memory and time of the file in *extra (NULL where it has
 * none). The caller owns them: plan_json_extra_free. */
enum err_code plan_read_json_extra(const char *path, struct plan **out,
                                   struct plan_json_extra *extra, struct err *err);
void plan_json_extra_free(struct plan_json_extra *extra);

#endif
