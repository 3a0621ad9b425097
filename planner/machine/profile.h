/* profile.h - what a machine is to the planner: memory, arithmetic, bandwidths, links, host.
 *
 * A profile is a flat JSON object. Every number stands alone or with its source and its spread:
 *
 *     {"name": "mine", "gpu": "h100-sxm",
 *      "gemm_efficiency": {"value": 0.71, "spread": 0.02, "source": "calibrate, 2026-11-20"},
 *      "host_op_s": 5e-6,
 *      "kernels": {"matmul_nt": {"latency_s": 2e-6, "seconds_per_byte": 1e-10, "spread": 0.05},
 *                  "silu": [{"dtype": "bfloat16", "seconds_per_byte": 2e-12},
 *                           {"seconds_per_byte": 1e-12}]},
 *      "attention": [{"kernel": "flash", "head": 128, "forward": 0.35, "backward": 0.27,
 *                     "start_tokens": 350, "backward_tokens": 450, "source": "..."}],
 *      "collectives": [{"collective": "all_gather", "ranks": 8, "nodes": 1,
 *                       "bytes": 1048576, "seconds": 4.4e-5}]}
 *
 * "generation" is one of volta, ampere, ada, hopper, blackwell, amd, cpu; "link" (in a node) one
 * of nvswitch, bridge, pcie, host, mesh; "network" (between nodes) one of infiniband,
 * infiniband-sharp, roce, efa,
 * efa-v1, tcpxo, tcpx, socket. "gpu" names the built-in profile it starts from: where that is of
 * another generation, what was measured there gets the spread that carrying over has shown.
 * "aliases" are other names that people have for it. A node type (planner/machine/nodes) is the
 * same thing with only the keys of links, NICs and the host. The built-in ones are files of this
 * form too, in planner/machine/profiles, and travel inside the program. */
#ifndef SHARDPLAN_PROFILE_H
#define SHARDPLAN_PROFILE_H

#include "base/attention.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/vocabulary.h"
#include "machine/fabric.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* X(name, key, least, most, what it is) */
#define PROFILE_MAP(X)                                                                             \
    X(CAPACITY, "capacity_bytes", 1, 0x1p43, "what cudaMemGetInfo reports as total")               \
    X(CONTEXT, "context_bytes", 0, 0x1p50, "CUDA context and loaded kernels of a process")         \
    X(CUBLAS_WORKSPACE, "cublas_workspace_bytes", 0, 0x1p36, "per thread, in the allocator")       \
    X(NCCL_INIT, "nccl_init_bytes", 0, 0x1p50, "per communicator: channels, device structures")    \
    X(NCCL_RING, "nccl_ring_bytes", 0, 0x1p50, "per communicator in a node: connections")          \
    X(NCCL_NET, "nccl_net_bytes", 0, 0x1p50, "per communicator across nodes: connections")         \
    X(FP32, "fp32_flops", 1e9, 1e17, "peak of fp32 matmuls (TF32 off)")                            \
    X(BF16, "bf16_flops", 1e9, 1e17, "peak of bf16 matmuls, dense")                                \
    X(FP16, "fp16_flops", 1e9, 1e17, "peak of fp16 matmuls, dense")                                \
    X(TF32, "tf32_flops", 0, 1e17, "peak of fp32 matmuls with TF32 on; 0: there is none")          \
    X(FP8, "fp8_flops", 0, 1e17, "peak of float8 matmuls, dense; 0: there are none")               \
    X(FP8_SPEED, "fp8_speed", 0.01, 1, "share of it that they reach, beside bf16's of its own")    \
    X(CLOCK, "clock_hz", 0, 1e11, "at which the peaks hold; 0: they hold as they are")             \
    X(BOOST_CLOCK, "boost_clock_hz", 0, 1e11, "the highest clock, which a short burst runs at")    \
    X(POWER, "power_w", 0, 1e5, "limit under which the clock is kept; 0: no limit")                \
    X(IDLE_POWER, "idle_w", 0, 1e5, "drawn at full clocks with nothing to do")                     \
    X(STREAM_POWER, "stream_w", 0, 1e5, "that a kernel which waits for memory adds")               \
    X(MATRIX_POWER, "matrix_w", 0, 1e5, "that matrix units at their peak, at boost, would add")    \
    X(GEMM, "gemm_efficiency", 0.01, 1, "share of the peak at its clock of a large full GEMM")     \
    X(GEMM_START, "gemm_start_s", 0, 1, "a GEMM beyond the shortest kernel")                       \
    X(GEMM_TILE, "gemm_tile_s", 0, 1, "begin and end of a tile, once a wave")                      \
    X(GEMM_FEED, "gemm_feed_bytes_per_s", 0, 1e16,                                                 \
      "what tiles can read, without clusters; 0: all")                                             \
    X(GEMM_UNALIGNED, "gemm_unaligned", 0.01, 1,                                                   \
      "speed of a GEMM whose rows do not begin at 16 "                                             \
      "bytes, beside others")                                                                      \
    X(SMS, "sms", 0, 4096, "multiprocessors; 0: no tiles and waves (a CPU)")                       \
    X(ATTENTION, "attention_efficiency", 0.001, 1, "share of the peak, forward, long sequences")   \
    X(ATTENTION_BACKWARD, "attention_backward_efficiency", 0.001, 1, "the same, backward")         \
    X(ATTENTION_START, "attention_start_tokens", 0, 1e6,                                           \
      "keys that begin and end of a block cost")                                                   \
    X(MEMORY, "memory_bytes_per_s", 1e6, 1e15, "peak memory bandwidth")                            \
    X(STREAM, "stream_efficiency", 0.01, 1, "share of it that elementwise kernels reach")          \
    X(REDUCE, "reduce_efficiency", 0.01, 1, "the same: norms, softmax, sums")                      \
    X(INDEX, "index_efficiency", 0.01, 1, "the same: embedding, gather, scatter, sort")            \
    X(STRIDED, "strided_cycles", 0, 1e4,                                                           \
      "kernels that are not vectorised: cycles of a "                                              \
      "multiprocessor beside Hopper's; 0: no such thing")                                          \
    X(L2, "l2_bytes", 0, 1e12, "second level cache")                                               \
    X(L2_RATE, "l2_bytes_per_s", 0, 1e15, "what is read from it; 0: as from memory")               \
    X(L2_HELD, "l2_held_bytes", 0, 1e12, "what is read again and again and stays in it")           \
    X(LATENCY, "kernel_latency_s", 0, 1, "shortest kernel, with the gap to the next")              \
    X(GAP, "kernel_gap_s", 0, 1, "of that, the gap: no part of the kernel")                        \
    X(HOST_OP, "host_op_s", 0, 1, "host: one operator of the forward pass")                        \
    X(HOST_BACKWARD, "host_backward_s", 0, 1, "host: one operator of the backward pass")           \
    X(HOST_HOOK, "host_hook_s", 0, 1, "host: one copy that sharding makes, without its tensors")   \
    X(HOST_TENSOR, "host_tensor_s", 0, 1, "host: each tensor of such a copy, or of a foreach")     \
    X(HOST_COLLECTIVE, "host_collective_s", 0, 1, "host: issuing one collective")                  \
    X(HOST_EVENT, "host_event_s", 0, 1, "host: one event recorded or waited for")                  \
    X(HOST_MALLOC, "host_malloc_s", 0, 1, "host: one cudaMalloc")                                  \
    X(HOST_FREE, "host_free_s", 0, 1, "host: one cudaFree, the device being idle")                 \
    X(LINK, "link_bytes_per_s", 0, 1e13, "one GPU to the others of its node, each direction")      \
    X(OVERLAP, "overlap_use", 0, 10, "share of the compute units a collective takes; 0: its CTAs") \
    X(OVERLAP_SLOWDOWN, "overlap_slowdown", 1, 1000, "a collective beside compute, times slower")  \
    X(HOST_MEMORY, "host_bytes_per_s", 1e6, 1e13, "a host's memory, for optimizers on the CPU")    \
    X(HOST_CAPACITY, "host_capacity_bytes", 0, 0x1p50, "memory of one host; 0: not known")         \
    X(HOST_GPUS, "host_gpus", 0, 1024, "GPUs of one host; 0: all of a node")                       \
    X(NODE_GPUS, "node_gpus", 1, 1024, "GPUs of a node, whose links join them all")                \
    X(PCIE, "pcie_bytes_per_s", 1e6, 1e13, "between host and device, pinned, each direction")      \
    X(NICS, "nics", 0, 1024, "network ports a node")                                               \
    X(NIC, "nic_bytes_per_s", 0, 1e13, "each, each direction")                                     \
    X(NIC_LATENCY, "nic_latency_s", 0, 1, "a crossing beyond NCCL's figures; 0: the network's")    \
    X(STORE, "checkpoint_bytes_per_s", 1, 1e13, "checkpoints to storage, a node")                  \
    X(RESTART, "restart_s", 0, 1e7, "from a failure until training goes on")                       \
    X(RANK_SPREAD, "rank_spread", 0, 1, "standard deviation of cards' arithmetic over the mean")   \
    X(JITTER, "step_jitter", 0, 1, "the same of one card's, from step to step")                    \
    X(STEPS, "step_spread", 0, 1,                                                                  \
      "standard deviation of steps of training over simulated ones, on this card or the one of "   \
      "its generation that it begins with; 0: none known")                                         \
    X(MTBF, "mtbf_s", 1, 1e12, "mean time between failures of one GPU and its share of a node")

enum profile_key {
#define X(name, key, least, most, what) PROFILE_##name,
    PROFILE_MAP(X)
#undef X
        PROFILE_KEYS
};

struct quantity {
    double value;
    double spread;      /* relative standard deviation */
    const char *source; /* lent by the profile */
};

/* Kernels by their work, as measured: seconds = latency + flops·a + bytes·b. In the file a work has
 * one such object or a list of them, each for the kernels that it names with "backward" (false: the
 * forward pass, recomputed or not), "dtype" (of the first operand) and "to" (of the first result:
 * casts and copies go by one name); what it leaves out, it stands for all of. The first that fits a
 * kernel holds. */
struct profile_kernel {
    enum work_kind work;
    double latency_s, seconds_per_flop, seconds_per_byte, spread;
    int8_t backward, dtype, to; /* 0, 1; enum dtype, twice; PROFILE_ANY */
    const char *source;         /* lent by the profile; NULL: none given */
};

enum { PROFILE_ANY = -1 };

/* How fast a kernel of attention is on this kind of GPU, for heads of up to `head`: shares of the
 * peak at the clock it runs at, for long sequences; and what begin and end of a block of queries
 * cost, as keys that it would get through meanwhile. */
struct profile_attention {
    enum attention_kernel kernel;
    uint32_t head;
    bool deterministic;
    double forward, backward;             /* 0: it has none */
    double start_tokens, backward_tokens; /* of a block, forward and backward */
    double draw; /* power an operation, beside a GEMM's of the newest instructions */
    double spread;
    const char *source; /* lent by the profile */
};

/* Training runs for hours at the limit of power; a benchmark, a trace of a few steps or of
 * inference does not get there. */
enum clock { CLOCK_SUSTAINED, CLOCK_BURST };

struct profile { /* filled by profile_find or profile_read; the strings live as long as it does */
    char name[64], title[64];
    const char
        *begun_with; /* "gpu" of what was read last; NULL: that is on top of what was there */
    enum gpu_generation generation;
    enum fabric_link link;
    enum fabric_network network;
    struct quantity of[PROFILE_KEYS];
    struct profile_kernel *kernels;
    struct collective_point *points; /* measured collectives */
    struct profile_attention *attentions;
    uint32_t kernel_count, point_count, attention_count;
    /* How it is used, which no file says: what a user chose, else zero. */
    enum clock clock;
    double clock_share; /* of the boost clock, of all kernels (cost.h: profile_under); 0: each has
                           its own */
    enum attention_kernel attention;
    json_t **texts; /* what the strings are lent from */
    uint32_t text_count;
};

/* Looks a built-in GPU up by any of its names (machine/builtin.h). ERR_INVALID lists the known
 * names and says which is nearest. On ERR_OK the caller owns what is in *out: profile_free. */
enum err_code profile_find(const char *name, struct profile *out, struct err *err);

/* GPUs of a node type, or where it is NULL of a GPU's usual node; 0: no such name. */
uint32_t profile_node_gpus(const char *gpu, const char *node);

/* Puts the keys of a node type on top of a profile. ERR_INVALID as profile_find's. */
enum err_code profile_set_node(const char *name, struct profile *profile, struct err *err);

/* Puts the keys of a file on top of a profile; with "gpu", of that GPU's profile instead. Errors
 * name file, key and allowed values; *profile is as before then. */
enum err_code profile_read(const char *path, struct profile *profile, struct err *err);

/* Whether what was read last has the key. */
bool profile_says(const struct profile *profile, const char *key);

void profile_free(struct profile *profile);

static inline double profile_value(const struct profile *profile, enum profile_key key)
{
    return profile->of[key].value;
}

static inline uint64_t profile_bytes(const struct profile *profile, enum profile_key key)
{
    return (uint64_t)profile->of[key].value;
}

/* Ranks of `world` that share the memory of one host: those of a node, or of the first of the hosts
 * that a node consists of (NVL72). */
static inline uint32_t profile_host_ranks(const struct profile *profile, uint32_t world,
                                          uint32_t gpus_per_node)
{
    const uint32_t of_host = (uint32_t)profile->of[PROFILE_HOST_GPUS].value;
    const uint32_t most = of_host && of_host < gpus_per_node ? of_host : gpus_per_node;
    return world < most ? world : most;
}

const char *profile_key_name(enum profile_key key);
double profile_key_most(enum profile_key key); /* the largest value that it may have */

/* The key of a name, where '-' may stand for '_'; PROFILE_KEYS with ERR_INVALID: none is called
 * so, and the sentence names the nearest. */
enum profile_key profile_key_named(const char *name, struct err *err);

/* Puts a number in place of the profile's, in the unit of its name; its spread stays what it is.
 * ERR_INVALID: it is beyond what the key may be; nothing is changed then. */
enum err_code profile_set_number(struct profile *profile, enum profile_key key, double value,
                                 struct err *err);

/* Bytes that one communicator of `ranks` ranks takes on each GPU when `across_nodes` or not;
 * 0 for a single rank. */
uint64_t profile_communicator_bytes(const struct profile *profile, uint32_t ranks,
                                    bool across_nodes);

#endif
