/* lower.h - a strategy turns a compute stream into a program.
 *
 * One driver walks the stream once a micro-batch and passes births, deaths and kernels through; a
 * system (lowering.h) is what happens at the hooks between them: gathers, copies, reductions,
 * frees, in the host order of that system's source code. */
#ifndef SHARDPLAN_LOWER_H
#define SHARDPLAN_LOWER_H

#include "graph/stream.h"
#include "graph/tape_options.h"
#include "lower/zero_options.h"
#include "plan/plan.h"

/* X(name, text on the command line, the `struct system` system_... that lowers it) */
#define SYSTEM_MAP(X)                                                                              \
    X(FSDP2, "fsdp2", fsdp2)                                                                       \
    X(FSDP1, "fsdp1", fsdp1)                                                                       \
    X(DDP, "ddp", ddp)                                                                             \
    X(ZERO1, "zero1", zero1)                                                                       \
    X(ZERO2, "zero2", zero2)                                                                       \
    X(ZERO3, "zero3", zero3)                                                                       \
    X(SINGLE, "single", single)

enum system_kind {
#define X(name, text, of) SYSTEM_##name,
    SYSTEM_MAP(X)
#undef X
        SYSTEM_COUNT
};

/* "fsdp2" */
const char *system_name(enum system_kind kind);

/* Whether there is a lowering for it. What can be chosen is what can be planned. */
bool system_is_planned(enum system_kind kind);

/* Whether it is what one GPU does by itself: a world of more has none of it. */
bool system_is_alone(enum system_kind kind);

enum units_kind {
    UNITS_BLOCKS,     /* `per_unit` blocks a unit; the rest is the root's */
    UNITS_TORCHTITAN, /* embedding; each block; [norm, output] together */
    UNITS_BYTES,      /* consecutive blocks until a unit holds `unit_bytes` of the store dtype */
    UNITS_NONE,       /* the root has everything */
    UNITS_EMBEDDINGS, /* each embedding and each block */
    UNITS_ELEMENTS,   /* size_based_auto_wrap_policy: from the leaves up, what has `unit_elements`
                         parameters that nothing below it took */
    UNITS_TRAINED,    /* peft's fsdp_auto_wrap_policy: each block, and each module that is trained
                         and has none in it */
};

enum sharding { /* FSDP1's ShardingStrategy */
                SHARDING_FULL,
                SHARDING_GRAD_OP,
                SHARDING_NONE,
                SHARDING_HYBRID,
                SHARDING_HYBRID_ZERO2,
};

enum backward_prefetch { PREFETCH_PRE, PREFETCH_POST, PREFETCH_NONE };

enum reshard_kind {
    RESHARD_DEFAULT, /* None: true for units, false for the root (and torchtitan's tail) */
    RESHARD_ALWAYS,
    RESHARD_NEVER,
    RESHARD_INT, /* to groups of reshard_ranks */
};

enum optimizer_kind {
    OPTIMIZER_ADAMW,
    OPTIMIZER_SGD,
    OPTIMIZER_BNB_8BIT, /* bitsandbytes' AdamW: optim_bits=8, also with is_paged=True; of 32 paged
                         */
    OPTIMIZER_BNB_PAGED_8BIT,
    OPTIMIZER_BNB_PAGED,
    OPTIMIZER_AO_8BIT, /* torchao.optim.AdamW8bit, AdamW4bit */
    OPTIMIZER_AO_4BIT,
};
enum optimizer_impl { IMPL_FOREACH, IMPL_FUSED, IMPL_LOOP };

/* torch's hooks of that name: allreduce_hook, bf16_compress_hook, fp16_compress_hook. */
enum comm_hook { COMM_HOOK_NONE, COMM_HOOK_ALLREDUCE, COMM_HOOK_BF16, COMM_HOOK_FP16 };

enum zero_redundancy { /* ZeroRedundancyOptimizer: each state on one rank only */
                       ZERO_REDUNDANCY_NONE,
                       ZERO_REDUNDANCY_PLAIN,
                       ZERO_REDUNDANCY_VIEW, /* parameters_as_bucket_view: one tensor an owner */
};

struct strategy {
    enum system_kind system;
    uint32_t world, rank;       /* ranks in all, and whose program this is */
    uint32_t replicate;         /* HSDP replicas: the mesh is replicate × world/replicate */
    uint32_t experts_replicate; /* the same of experts, which are units of their own within their
                                   blocks; 0: they are of their block's unit */
    enum units_kind units;
    uint32_t per_unit;
    uint64_t unit_bytes;
    uint32_t unit_elements;
    enum reshard_kind reshard;
    uint32_t reshard_ranks;
    uint32_t
        keep_last; /* the last units of blocks that are not resharded, whatever `reshard` says */
    const char *keep_units; /* ... nor are those whose first modules these patterns name (names_in),
                               the root aside; lent; NULL: none */
    uint32_t forward_prefetch, backward_prefetch; /* 0: implicit; n: explicit lists of n units */
    enum dtype store, compute, reduce;            /* o, p, r of reference formulas */
    bool names_compute;  /* param_dtype is given, whichever it is: modules cast what they are called
                            with also where nothing stored is cast */
    bool frozen_low;     /* what is not trained is stored as `compute` */
    uint32_t accumulate; /* micro-batches a step */
    bool accumulate_sync; /* reduce after each micro-batch, not only the last */
    enum optimizer_kind optimizer;
    enum optimizer_impl impl;
    bool coded_embeddings; /* of bitsandbytes' 8 bits: embeddings' states, too, which transformers'
                              Trainer has in 32 (GlobalOptimManager.register_module_override) */
    float max_norm;        /* clip_grad_norm_ to this; 0: no clipping */
    bool offload;          /* sharded parameters, gradients and states on the CPU */
    /* fully_shard's set_is_last_backward, set_requires_all_reduce, set_reshard_after_backward: true
     * for the last micro-batch only; else for each */
    bool finalize_last, all_reduce_last, reshard_last;
    uint32_t reduce_buffers; /* set_reduce_scatter_max_input_buffers; 0: 1 */
    const char *ignore; /* globs of parameters that are in no unit (fully_shard's ignored_params,
                           FullyShardedDataParallel's ignored_states): each rank has them whole, and
                           nobody reduces their gradients; NULL */
    bool adapter_units; /* each module of peft's adapters that is trained is a unit, within those of
                           `units` */
    bool columns;       /* shard_placement_fn: Shard(1) of what has a dim 1 */
    const char *not_in_backward; /* globs of modules with set_unshard_in_backward(False); NULL */
    /* DistributedDataParallel's */
    float bucket_cap_mb; /* MiB of every bucket; 0: 25, and 1 for the first */
    bool bucket_view;    /* gradient_as_bucket_view */
    bool static_graph;
    bool find_unused;  /* find_unused_parameters; of no effect with static_graph */
    bool keep_buffers; /* broadcast_buffers off */
    enum comm_hook comm_hook;
    enum zero_redundancy zero_redundancy;
    /* FullyShardedDataParallel's (forward_prefetch is 0 or 1) */
    enum sharding sharding;
    enum backward_prefetch prefetch;
    bool use_orig_params, unlimited_gathers /* limit_all_gathers off */, keep_low_precision_grads;
    /* DeepSpeed's */
    struct zero_options zero;
    bool grad_accum_fp32; /* data_types.grad_accum_dtype: fp32, beside parameters of 16 bits */
};

/* Whether parts of parameters, gradients or states are on the host. */
static inline bool strategy_offloads(const struct strategy *s)
{
    return s->offload || s->zero.optimizer.on || s->zero.param.on;
}

/* Whether modules that are in blocks may be units of their own, which then get borders. */
static inline bool strategy_wraps_inside(const struct strategy *s)
{
    return s->units == UNITS_ELEMENTS || s->units == UNITS_TRAINED || s->adapter_units;
}

/* The program of one step: `stream` (lent, as `graph` is) under a strategy, for one rank. Its
 * kernels are shared, so that one stream serves every strategy: the plan holds them as long as it
 * needs. ERR_INVALID: an option does not go with the mesh or the model; ERR_UNSUPPORTED: no
 * lowering for the strategy's system. The caller owns *out: plan_free. */
enum err_code lower_plan(const struct graph *graph, const struct stream *stream,
                         const struct strategy *strategy, struct plan **out, struct err *err);

/* The same for those who only add up, and do so again and again: all calls of the system are one
 * scope, and the graph is lent until plan_free. *plan is NULL, or one of the time before, whose
 * memory is used again; the caller owns it also after an error. */
enum err_code lower_nameless(const struct graph *graph, const struct stream *stream,
                             const struct strategy *strategy, struct plan **plan, struct err *err);

/* Whether lower_plan would take it, by its errors. */
enum err_code lower_check(const struct graph *graph, const struct stream *stream,
                          const struct strategy *strategy, struct err *err);

/* Whether parameters are views of larger ones under a system: model_job.views. */
bool system_has_views(enum system_kind kind);

/* Whether its hooks are of AccumulateGrad's nodes: recording_choice.node_hooks. */
bool system_has_node_hooks(enum system_kind kind);

/* Whether parameters, and so their gradients, are computed with in the dtype that they are stored
 * in. */
bool system_computes_as_stored(enum system_kind kind);

/* Its stage of DeepSpeed's ZeRO; 0: it is another's. */
uint32_t system_zero_stage(enum system_kind kind);

/* Whether strategies that differ by how far ahead they fetch take the same of the compute stream's
 * segments. */
bool system_fetches_apart(enum system_kind kind);
/* The dtype of numbers that a model keeps of those it was made with: model_job.made. */
enum dtype system_made(const struct strategy *strategy);
/* Whether what is trained is in fp32 where the rest of the model is in 16 bits:
 * model_job.wide_trained. */
bool system_trains_wide(const struct strategy *strategy);

/* Adapters of how many elements are units of their own, which are cast when they are gathered; 0:
 * none are. */
uint64_t system_parts_adapters(const struct strategy *strategy);
/* Whether their shards, in the stored dtype, are what is seen of them before they are called:
 * model_job.adapters_apart. */
bool system_shows_shards(const struct strategy *strategy);

/* Whether modules cast what they are called with to the dtype in which they compute:
 * model_job.casts_inputs. */
bool system_casts_inputs(const struct strategy *strategy);

/* Whether what the model is called with, and nothing else, is cast so:
 * recording_choice.root_casts. */
bool system_casts_root(const struct strategy *strategy);

/* Whether what the model returns is copied before its caller gets it: model_job.copies_outputs. */
bool system_copies_outputs(const struct strategy *strategy);

/* What the strategy's system makes of a graph before it is run: more parameters need a gradient,
 * perhaps. */
void system_prepare(const struct strategy *strategy, struct graph *graph);

/* The dtype in which gradients are reduced where nothing says another, of 2.`torch`. */
enum dtype strategy_own_reduce(const struct strategy *strategy, uint32_t torch);

/* Puts in the simplest strategy that comes to the same program, for a model of `blocks` blocks. Two
 * strategies that it makes equal have one program; those that it leaves different may, too. */
void strategy_simplify(struct strategy *strategy, uint32_t blocks);

/* Goes further for one stream: puts in a strategy whose program on it is the same but for names of
 * scopes. `blocks_follow`: what the stream says of itself. */
void strategy_unify(struct strategy *strategy, bool blocks_follow);
/* The same for all strategies that do the same until the optimizer's update: how it is done is told
 * from nothing before it, but for where its states are. */
void strategy_until_update(struct strategy *strategy);

/* Whether forward comes to each block once, in their order and with no other module between them,
 * and backward once at most, last block first; and each has parameters. */
bool stream_blocks_follow(const struct graph *graph, const struct stream *stream);

/* Adds to a tape's options what a system does to the graph: of the streams that it is given. */
void system_tape(const struct strategy *strategy, struct tape_options *options);

struct system; /* lowering.h */

/* The same under a system of one's own, whatever strategy->system says. */
enum err_code lower_check_with(const struct system *system, const struct graph *graph,
                               const struct stream *stream, const struct strategy *strategy,
                               struct err *err);
enum err_code lower_with(const struct system *system, const struct graph *graph,
                         const struct stream *stream, const struct strategy *strategy,
                         struct plan **out, struct err *err);
enum err_code lower_nameless_with(const struct system *system, const struct graph *graph,
                                  const struct stream *stream, const struct strategy *strategy,
                                  struct plan **plan, struct err *err);

#endif
