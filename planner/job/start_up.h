/* start_up.h - what a job needs besides its steps: to make or load its model, and to save it.
 *
 * Each way is a program, as a step is (plan.h): what one rank's host allocates, moves, gathers and
 * frees, in the order of PyTorch's source. Memory is the replay of that program through the
 * allocator, seconds are the plan's costs of its copies and collectives, one after the other, and
 * bytes of storage over the profile's rate. Computing the first values is in no way's time.
 *
 *     fully_shard, to_empty        torch/distributed/fsdp/_fully_shard
 *     set_, get_model_state_dict   torch/distributed/_state_dict_utils.py
 *     save, async_save             torch/distributed/checkpoint
 *     FullyShardedDataParallel     torch/distributed/fsdp/_init_utils.py, _state_dict_utils.py
 *     its optimizer's states       torch/distributed/fsdp/_optim_utils.py
 *     DistributedDataParallel      torch/nn/parallel/distributed.py, torch/serialization.py
 *     DeepSpeed's engine           deepspeed/runtime/engine.py, zero/
 *
 * tests/data/truth/start_up.jsonl, start_up_systems.jsonl and checkpoints.jsonl hold what PyTorch
 * 2.14.1 and DeepSpeed 0.19.8 do. */
#ifndef SHARDPLAN_START_UP_H
#define SHARDPLAN_START_UP_H

#include "job/predict.h"

/* X(name, text) */
#define START_UP_MAP(X)                                                                            \
    X(META, "meta")                                                                                \
    X(ZERO_INIT, "zero_init")                                                                      \
    X(CPU, "cpu")                                                                                  \
    X(GPU, "gpu")                                                                                  \
    X(BROADCAST, "broadcast")                                                                      \
    X(SHARDED, "sharded")                                                                          \
    X(SHARDED_OPTIMIZER, "sharded_optimizer")                                                      \
    X(ASYNC, "async")                                                                              \
    X(SAVE, "save")                                                                                \
    X(FULL, "full")                                                                                \
    X(FULL_GPU, "full_gpu")                                                                        \
    X(FULL_OPTIMIZER, "full_optimizer")                                                            \
    X(GATHER_16BIT, "gather_16bit")                                                                \
    X(LOAD, "load")                                                                                \
    X(RESHARD, "reshard")

enum start_up_way {
#define X(name, text) START_UP_##name,
    START_UP_MAP(X)
#undef X
        START_UP_WAYS
};

/* Initialisations come first. */
static inline bool start_up_is_checkpoint(enum start_up_way way)
{
    return way >= START_UP_SHARDED;
}

struct start_up_row {
    const char *title;       /* "rank 0 reads it, ..."; NULL: the job's system has no such way */
    uint64_t gpu_bytes;      /* peak of tensors on the plan's rank: requested */
    uint64_t resident_bytes; /* of those, there before: parameters and states of a checkpoint */
    uint64_t device_bytes;   /* with the allocator's segments, and what is outside it */
    uint64_t host_rank0_bytes, host_other_bytes; /* peak of tensors on the host: of rank 0, of each
                                                    other rank */
    uint64_t host_node_bytes;                    /* of the first host's ranks together */
    uint64_t host_needed_bytes, host_capacity_bytes; /* ... as it is held (plan/host_held.h); what a
                                                        host has, 0: not known */
    uint64_t rank_bytes, node_bytes, bytes; /* read or written: by one rank (the first of those that
                                               share the work), by one node, in all */
    double blocking_s;                      /* for which training stands still */
    double seconds;                         /* until all is done */
    bool fits_gpu, fits_host; /* the second also where it is not known what a host has */
};

struct start_up {
    struct start_up_row rows[START_UP_WAYS];
};

/* Of a predicted job. ERR_UNSUPPORTED: of its system or setting it is not known. Others are those
 * of costs_of_plan. */
enum err_code start_up(const struct prediction *prediction, const struct job *job,
                       const struct machine *machine, struct start_up *out, struct err *err);

struct start_up_job {
    const struct plan *plan; /* of a step; lent */
    const struct strategy *strategy;
    bool tied;            /* the model's state dict names the token embedding twice */
    bool flatten_on_host; /* ZeRO-1 and 2: the device has no room for parameters and a flat copy */
};

/* The memory of one way that the job's system has, on the plan's rank or as rank 0 (`first`) has
 * it: for who holds the program to recordings. */
void start_up_memory(const struct start_up_job *job, enum start_up_way way, bool first,
                     struct memory *out);

const char *start_up_name(enum start_up_way way); /* "broadcast" */

#endif
