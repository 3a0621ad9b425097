/* nccl_tuning.h - NCCL's own estimate of a collective, by which it chooses how to run it.
 *
 *     microseconds = latency + bytes / (1000 x GB/s)
 *
 * for each algorithm and protocol; the least one runs. Source: NCCL 2.28.9 and 2.27.7,
 * src/graph/tuning.cc (ncclTopoTuneModel, ncclTopoGetAlgoTime) and enqueue.cc (topoGetAlgoInfo).
 * Of CollNet (SHARP in the network, off unless asked for) only NVLS across nodes is here: where
 * there is NVLS, CollNetDirect and CollNetChain are estimated slower at every size. Left out is
 * what CollNetDirect may gather and scatter. */
#ifndef SHARDPLAN_NCCL_TUNING_H
#define SHARDPLAN_NCCL_TUNING_H

#include "nccl/nccl_graph.h"

#define NCCL_ALGORITHM_MAP(X)                                                                      \
    X(TREE, "Tree")                                                                                \
    X(RING, "Ring")                                                                                \
    X(NVLS, "NVLS")                                                                                \
    X(NVLS_TREE, "NVLSTree")                                                                       \
    X(PAT, "PAT")

enum nccl_algorithm {
#define X(name, text) NCCL_##name,
    NCCL_ALGORITHM_MAP(X)
#undef X
        NCCL_ALGORITHMS
};

enum nccl_protocol { NCCL_LL, NCCL_LL128, NCCL_SIMPLE, NCCL_PROTOCOLS };

/* "NVLSTree", "LL128": never NULL. */
const char *nccl_algorithm_name(enum nccl_algorithm algorithm);
const char *nccl_protocol_name(enum nccl_protocol protocol);

struct nccl_way {
    double latency_us;
    double gbs;         /* of the collective's bytes; 0: this way is not open */
    uint32_t crossings; /* of the network, one after the other, in latency_us */
};

struct nccl_tuning_model {
    enum collective collective;
    uint32_t ranks, nodes;
    enum gpu_generation generation;
    struct nccl_graphs graphs;
    bool large_chunks; /* the plug-in sets NCCL_NVLS_CHUNKSIZE and NCCL_NVLSTREE_MAX_CHUNKSIZE to
                          512 KiB: AWS's, from p5 on (aws-ofi-nccl, platform-aws.cpp) */
    double tree_channel_gbs; /* perChMaxTreeBws: of one searched channel by Simple, bus bandwidth */
    struct nccl_way ways[NCCL_ALGORITHMS][NCCL_PROTOCOLS];
};

/* The estimate of every way for one collective of one group. The fabric has passed fabric_check;
 * the group has at least two ranks. */
struct nccl_tuning_model nccl_tuning_build(const struct fabric *fabric, enum collective collective,
                                           uint32_t ranks_per_node, uint32_t nodes);

/* NCCL's estimate in seconds, or INFINITY where the way is not open. */
double nccl_tuning_seconds(const struct nccl_tuning_model *model, enum nccl_algorithm algorithm,
                           enum nccl_protocol protocol, uint64_t bytes);

/* The way NCCL takes for `bytes`. */
void nccl_tuning_choose(const struct nccl_tuning_model *model, uint64_t bytes,
                        enum nccl_algorithm *algorithm, enum nccl_protocol *protocol);

/* The channels, each one CTA on an SM of its own, that run `bytes` that way. */
uint32_t nccl_tuning_channels(const struct nccl_tuning_model *model, enum nccl_algorithm algorithm,
                              enum nccl_protocol protocol, uint64_t bytes);

/* What all channels move of `bytes` in one turn of the kernel's loop by NVLS or NVLSTree, a chunk a
 * channel and head: chunks are smaller where a message has few of them. Source: NCCL 2.26.2 to
 * 2.30.7, enqueue.cc (calcCollChunking), nvls.cc (NCCL_NVLS_CHUNKSIZE). */
double nccl_tuning_loop_bytes(const struct nccl_tuning_model *model, enum nccl_algorithm algorithm,
                              double bytes);

/* What NCCL multiplies Tree's bandwidth by at this size, between its table's powers of two
 * linearly in log2: the table itself would make a larger message faster. */
double nccl_tree_correction(enum nccl_protocol protocol, double bytes);

#endif
