/* lower.h - a strategy turns a compute stream into a program.
 *
 * One file per system. A lowering walks the stream once per micro-batch, passes births, deaths
 * and kernels through, and puts what its system does at the hooks: gathers, copies, reductions,
 * frees, in the host order of that system's source code. */
#ifndef SHARDPLAN_LOWER_H
#define SHARDPLAN_LOWER_H

#include "graph/stream.h"
#include "plan/plan.h"

enum units_kind {
    UNITS_BLOCKS,     /* `per_unit` blocks a unit; the rest is the root's */
    UNITS_TORCHTITAN, /* embedding; each block; [norm, output] together */
    UNITS_BYTES,      /* consecutive blocks until a unit holds `unit_bytes` of the store dtype */
};

enum reshard_kind {
    RESHARD_DEFAULT, /* None: true for units, false for the root (and torchtitan's tail) */
    RESHARD_ALWAYS,
    RESHARD_NEVER,
    RESHARD_INT, /* to groups of reshard_ranks */
};

enum optimizer_kind { OPTIMIZER_ADAMW, OPTIMIZER_SGD };
enum optimizer_impl { IMPL_FOREACH, IMPL_FUSED, IMPL_LOOP };

struct strategy {
    uint32_t world, rank; /* ranks in all, and whose program this is */
    uint32_t replicate;   /* HSDP replicas: the mesh is replicate × world/replicate */
    enum units_kind units;
    uint32_t per_unit;
    uint64_t unit_bytes;
    enum reshard_kind reshard;
    uint32_t reshard_ranks;
    uint32_t forward_prefetch, backward_prefetch; /* 0: implicit; n: explicit lists of n units */
    enum dtype store, compute, reduce;            /* o, p, r of reference formulas */
    uint32_t accumulate;                          /* micro-batches a step */
    bool accumulate_sync; /* reduce after each micro-batch, not only the last */
    enum optimizer_kind optimizer;
    enum optimizer_impl impl;
    float max_norm; /* clip_grad_norm_ to this; 0: no clipping */
    bool offload;   /* sharded parameters, gradients and states on the CPU */
};

/* FSDP2's fully_shard on every unit and the root (torch 2.14). `graph` and `stream` are lent; the
 * stream's kernels and operands move into the plan. ERR_INVALID: an option does not go with the
 * mesh or the model. The caller owns *out: plan_free. */
enum err_code lower_fsdp2(const struct graph *graph, struct stream *stream,
                          const struct strategy *strategy, struct plan **out, struct err *err);

/* ---- bytes without a program, for searches ---- */

struct tally_result {
    uint64_t requested_bytes;                /* peak of the steady-state step, as struct memory's */
    uint64_t rounded_bytes;                  /* the same with each request rounded up to 512 */
    uint64_t segment_bytes[PLAN_MARK_COUNT]; /* requested peak after each mark that starts a
                                                segment: MICRO_BATCH (forward), AFTER_LOGITS (loss),
                                                AFTER_FORWARD, BACKWARD_BLOCKS, OPTIMIZER */
};

/* The peaks of the program that lower_fsdp2 would make, without making it: the same walk over the
 * same hooks, with the stretches between them summed up once per shape. `graph` must have the
 * strategy's compute dtype. */
enum err_code tally_fsdp2(const struct graph *graph, const struct stream_summary *summary,
                          const struct strategy *strategy, struct tally_result *out,
                          struct err *err);

#endif
