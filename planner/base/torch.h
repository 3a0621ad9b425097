/* torch.h - what versions of PyTorch do differently to bytes, kernels and streams, in one table.
 *
 * A plan is made as one version runs it: 2.TORCH_OLDEST ... 2.TORCH_NEWEST, each as its last patch
 * release. Up to 2.5 FSDP2 was a prototype of another package (torch.distributed._composable.fsdp).
 * A row is one thing that some of them did otherwise, until a version changed it; whoever
 * does either asks torch_does, and nothing else knows of versions.
 * tests/data/truth/version_events.jsonl and version_streams.jsonl are recordings of the versions
 * themselves. */
#ifndef SHARDPLAN_TORCH_H
#define SHARDPLAN_TORCH_H

#include <stdbool.h>
#include <stdint.h>

/* 2.x. All that is planned was recorded under TORCH_WHOLE, which is the default; what was recorded
 * under some of the others alone is a row of job/recorded_under.c. */
enum { TORCH_OLDEST = 4, TORCH_WHOLE = 14, TORCH_NEWEST = 15 };

/* X(NAME, from 2.x on, until 2.x, whose, what others do, what these did, source): from TORCH_OLDEST
 * on unless a version began it; of one sharding system, or of all jobs. */
#define TORCH_MAP(X)                                                                               \
    X(RMS_NORM_UPCASTS, 4, 6, ALL, "RMSNorm is computed in fp32",                                  \
      "RMSNorm is computed in the dtype of its input, which it does not copy",                     \
      "recorded, 2.5.1 and 2.6.0; rms_norm of native/layer_norm.cpp")                              \
    X(CASTS_TOGETHER, 4, 5, FSDP2,                                                                 \
      "FSDP2 casts the shards of a unit into one buffer, by one kernel",                           \
      "FSDP2 casts each shard into a buffer of its own",                                           \
      "recorded, 2.4.1 and 2.5.1; _fsdp_collectives.py, _get_param_all_gather_inputs")             \
    X(SCATTERS_FROM_CALLER, 4, 5, FSDP2,                                                           \
      "FSDP2 copies gradients into a reduction's input on the compute stream and holds that "      \
      "input until the next one's",                                                                \
      "FSDP2 copies gradients into a reduction's input behind the reduction before, on its "       \
      "stream, for which the compute stream waits",                                                \
      "recorded, 2.4.1 and 2.5.1; _fsdp_collectives.py, foreach_reduce")                           \
    X(CLIP_KEEPS_ZERO, 4, 5, FSDP1,                                                                \
      "FSDP1's clip_grad_norm_ keeps a zero, for ranks without gradients",                         \
      "FSDP1's clip_grad_norm_ makes such a zero where it is needed",                              \
      "recorded, 2.4.1 and 2.5.1; fully_sharded_data_parallel.py, _zero_scalar")                   \
    X(MODULE_LISTS, 4, 5, FSDP2, "fully_shard takes several modules as one unit",                  \
      "fully_shard takes one module", "fully_shard.py of 2.4.1 and 2.5.1")                         \
    X(EXPLICIT_PREFETCH, 4, 5, FSDP2, "modules have set_modules_to_forward_prefetch and its like", \
      "FSDP2 prefetches by itself alone", "fully_shard.py of 2.4.1 and 2.5.1")                     \
    X(SELECTIVE_CHECKPOINTS, 4, 5, ALL, "checkpoints take create_selective_checkpoint_contexts",   \
      "checkpoints have no public policy by operator", "utils/checkpoint.py of 2.4.1 and 2.5.1")   \
    X(ALL_REDUCE_HELD, 4, 6, FSDP2, "HSDP holds what is all-reduced until the backward pass ends", \
      "HSDP lets what is all-reduced go when it is cast",                                          \
      "recorded, 2.5.1 and 2.6.0; _fsdp_param_group.py, AllReduceState")                           \
    X(WAITS_FOR_ITS_LAST, 4, 6, FSDP2,                                                             \
      "a unit's reduction waits for its own of the micro-batch before",                            \
      "a unit's reduction does not wait for its own of the micro-batch before",                    \
      "_fsdp_param_group.py of 2.5.1 and 2.6.0, _wait_for_post_backward")                          \
    X(UNUSED_GATHER_GOES, 4, 6, FSDP2,                                                             \
      "a unit that backward prefetched and did not come to is let go in the end",                  \
      "a unit that backward prefetched and did not come to stays whole, and the next forward "     \
      "reads it",                                                                                  \
      "recorded, 2.5.1 and 2.6.0; _fsdp_param_group.py, finalize_backward")                        \
    X(GRADIENTS_GO, 6, 15, FSDP2, "gradients go when they are copied into the reduction's input",  \
      "the last gradient of a unit lives until its reduction has been issued: a loop variable "    \
      "of foreach_reduce holds it",                                                                \
      "recorded, 2.5.1, 2.6.0, 2.14.1 and 2.15.0; _fsdp_collectives.py, foreach_reduce and "       \
      "_default_reduce_scatter_input_fn")                                                          \
    X(NORMS_GO_FIRST, 4, 6, ALL,                                                                   \
      "clip_grad_norm_ lets the norms of parameters go when it has their total",                   \
      "clip_grad_norm_ holds the norms of parameters until gradients are scaled",                  \
      "recorded, 2.5.1 and 2.6.0; nn/utils/clip_grad.py, _get_total_norm")                         \
    X(SHARD_PLACEMENT, 4, 6, FSDP2, "fully_shard takes shard_placement_fn",                        \
      "fully_shard shards by rows alone", "fully_shard.py of 2.5.1, _fully_shard.py of 2.6.0")     \
    X(UNSHARD_IN_BACKWARD, 4, 6, FSDP2, "modules have set_unshard_in_backward",                    \
      "every unit is gathered in the backward pass",                                               \
      "fully_shard.py of 2.5.1, _fully_shard.py of 2.6.0")                                         \
    X(RMS_NORM_WIDE, 4, 7, ALL, "RMSNorm multiplies by its weight in fp32, then casts back",       \
      "RMSNorm casts back, then multiplies by its weight", "recorded, 2.6.0 and 2.7.1")            \
    X(FLASH_STATE_ON_DEVICE, 4, 7, ALL, "flash attention keeps its generator's state on the GPU",  \
      "flash attention keeps seed and offset on the host",                                         \
      "recorded, 2.6.0 and 2.7.1; mha_fwd of native/transformers/cuda/flash_attn/flash_api.cpp")   \
    X(ROOT_RESHARDS, 4, 8, FSDP2, "FSDP2's root obeys an explicit reshard_after_forward=True",     \
      "FSDP2's root stays unsharded after forward, whatever reshard_after_forward says",           \
      "recorded, 2.7.1 and 2.8.0; _fsdp_state.py, _auto_reshard_after_forward")                    \
    X(NCCL_ON_CALLER, 4, 8, ALL, "collectives run on the stream that calls them",                  \
      "collectives run on NCCL's own stream, in the same order; "                                  \
      "TORCH_NCCL_AVOID_RECORD_STREAMS=1 "                                                         \
      "is assumed, as torchtitan sets it",                                                         \
      "pytorch#148590, pytorch#150398")                                                            \
    X(RMS_NORM_FUSED, 4, 9, ALL, "RMSNorm is one kernel",                                          \
      "RMSNorm is seven small kernels in fp32",                                                    \
      "native_functions.yaml, _fused_rms_norm; recorded, 2.8.0")                                   \
    X(INDEX_OF_ALL, 4, 9, ALL, "x[:] is x", "each : of an index is a node, whose backward copies", \
      "grad_fn of x[:, :, None], 2.8.0 and 2.9.1")                                                 \
    X(OFFLOAD_WAITS, 4, 9, FSDP2, "HSDP's host waits for the copies of offloaded gradients",       \
      "HSDP's host waits for the reduce-scatters before the copies of offloaded gradients, and "   \
      "not for these",                                                                             \
      "_fsdp_collectives.py of 2.6.0, 2.8.0 and 2.9.1, grad_offload_event of foreach_reduce")      \
    X(ALONE_COPIES, 4, 9, FSDP2, "one rank copies its parameters one by one",                      \
      "one rank gathers from itself, as many do",                                                  \
      "recorded, 2.8.0 and 2.9.1; _fsdp_param_group.py, unshard")                                  \
    X(ALONE_REDUCES, 4, 10, FSDP2,                                                                 \
      "one rank copies its gradients in the place of a reduce-scatter",                            \
      "one rank reduce-scatters with itself",                                                      \
      "recorded, 2.9.1 and 2.10.0; _fsdp_collectives.py, foreach_reduce")                          \
    X(CUDNN_ATTENTION, 4, 11, ALL, "attention is cuDNN's on Hopper and Blackwell",                 \
      "attention is FlashAttention-2 on Hopper and Blackwell, too",                                \
      "sdp_utils.cpp, check_prefer_cudnn_attention: cuDNN newer than 9.15, which wheels have "     \
      "since 2.11; opt-in in 2.5.1 to 2.10 (pytorch#138522)")                                      \
    X(EMPTY_GROUP_FREES, 4, 12, FSDP2,                                                             \
      "a unit without gradients lets the input of the reduction before it "                        \
      "go",                                                                                        \
      "a unit without gradients leaves the input of the reduction before it alone",                \
      "recorded, 2.11.0 and 2.12.1; _fsdp_param_group.py, post_backward")                          \
    X(CHECKPOINT_HOLDS_ALL, 4, 12, ALL,                                                            \
      "a checkpoint lets its keyword arguments go (tables of RoPE, masks), then what it is "       \
      "called with by position",                                                                   \
      "a checkpoint lets go what it is called with by position, then its keyword arguments",       \
      "recorded, 2.10.0 and 2.14.1; utils/checkpoint.py of 2.11.0 and 2.12.1, "                    \
      "_NoopSaveInputs and save_inputs")                                                           \
    X(REDUCE_BUFFERS, 4, 13, FSDP2, "modules have set_reduce_scatter_max_input_buffers",           \
      "one reduce-scatter's input is in flight", "_fully_shard.py of 2.12.1 and 2.13.0")           \
    X(INPUT_LET_GO, 12, 13, FSDP2,                                                                 \
      "the input of the reduction before goes before the next is made",                            \
      "the input of the reduction before lives until the next has been issued: a loop variable "   \
      "of "                                                                                        \
      "post_backward holds it",                                                                    \
      "recorded, 2.11.0, 2.12.1 and 2.13.0; _fsdp_param_group.py, "                                \
      "post_backward, rs_state")                                                                   \
    X(ALONE_KEEPS_NORM, 4, 10, FSDP2, "one rank takes the norm of its gradients as the total",     \
      "one rank all-reduces the norm of its gradients with itself",                                \
      "recorded, 2.9.1 and 2.10.0; distributed/tensor/_ops/_math_ops.py, _NormPartial")            \
    X(NORMS_REDUCED, 4, 10, FSDP2, "clip_grad_norm_ all-reduces the norm of each parameter",       \
      "clip_grad_norm_ all-reduces the total norm alone",                                          \
      "recorded, 2.9.1 and 2.10.0; distributed/tensor/_ops/_math_ops.py, stack of partial norms")  \
    X(GATHER_LET_GO, 4, 15, FSDP2,                                                                 \
      "the output of the all-gather before goes before the next is copied out in forward",         \
      "the output of the all-gather before lives until the next is copied out in forward: a "      \
      "local variable of wait_for_unshard holds it",                                               \
      "recorded, 2.14.1 and 2.15.0; _fsdp_param_group.py, "                                        \
      "release_all_gather_state_for_comm_reuse")                                                   \
    X(GRADIENTS_CAST, 4, 15, FSDP2,                                                                \
      "autograd casts gradients to the dtype they are reduced in where that is no wider, and "     \
      "those kept for a later micro-batch as each comes",                                          \
      "gradients are cast as they are reduced, or, kept for a later micro-batch, behind their "    \
      "unit's backward",                                                                           \
      "recorded, 2.14.1 and 2.15.0; _fsdp_param_group.py, _set_unsharded_grad_dtypes")             \
    X(FINALIZES_LAST, 4, 15, FSDP2,                                                                \
      "what a unit holds until backward ends goes when all units are reduced",                     \
      "what a unit holds until backward ends goes before units that backward did not come to are " \
      "reduced",                                                                                   \
      "recorded, 2.14.1 and 2.15.0; _fsdp_state.py, _end_backward_iteration")                      \
    X(NUMBER_FILLS, 4, 15, ALL, "x[i] = number fills x[i]",                                        \
      "x[i] = number copies a tensor that is made of the number", "recorded, 2.14.1 and 2.15.0")   \
    X(EFFICIENT_SHARES_HEADS, 4, 14, ALL,                                                          \
      "the memory-efficient kernel of attention shares heads of keys and values",                  \
      "where heads of keys and values are shared attention is single ops on GPUs before Ampere",   \
      "torch/nn/functional.py of 2.13.0 and 2.14.0, on enable_gqa")                                \
    X(WIDE_CUDNN_ATTENTION, 4, 14, ALL, "attention of heads of 256 is cuDNN's on Blackwell, too",  \
      "attention of heads of 256 is FlashAttention-2 on Blackwell",                                \
      "sdp_utils.cpp, check_cudnn_tensor_shapes and check_cudnn_d256_bprop_head_dim, of which "    \
      "libtorch_cuda.so of 2.14.1 has the sentences, and cuDNN 9.24 beside it")                    \
    X(REDUCES_AS_STORED, 4, 15, FSDP2,                                                             \
      "without a reduce_dtype (--reduce-dtype same) gradients are reduced in the stored dtype",    \
      "without a reduce_dtype (--reduce-dtype same) gradients are reduced in the computed dtype",  \
      "recorded, 2.14.1 and 2.15.0; _fsdp_api.py, MixedPrecisionPolicy")

enum torch_change {
#define X(NAME, from, until, whose, now, then, source) TORCH_##NAME,
    TORCH_MAP(X)
#undef X
        TORCH_CHANGES
};

enum torch_whose { TORCH_OF_ALL, TORCH_OF_FSDP2, TORCH_OF_FSDP1 };

struct torch_row {
    uint32_t from, until; /* 2.x: what versions of this range did, and it ends with `until` */
    enum torch_whose whose;
    const char *now, *then;
    const char *source;
};

/* Lent, one an enum torch_change. */
const struct torch_row *torch_row(enum torch_change change);

/* "2.14.1+cu130" is 14; 0: none that is known. */
uint32_t torch_minor(const char *version);

/* Whether version 2.`minor` does what the newest does; 0 stands for TORCH_WHOLE. */
static inline bool torch_does(uint32_t minor, enum torch_change change)
{
    static const struct {
        uint8_t from, until;
    } ranges[] = {
#define X(NAME, from, until, whose, now, then, source) {from, until},
        TORCH_MAP(X)
#undef X
    };
    const uint32_t version = minor ? minor : TORCH_WHOLE;
    return version < ranges[change].from || version >= ranges[change].until;
}

#endif
