/* fabric.h - what joins the ranks of a group: links inside a node, network cards between nodes.
 *
 * A fabric holds datasheet figures and what NCCL looks at when it chooses an algorithm. Bandwidths
 * are of one direction, in bytes per second. */
#ifndef SHARDPLAN_FABRIC_H
#define SHARDPLAN_FABRIC_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rows of NCCL's tuning tables, and the speeds its search tries (compute capability). */
enum gpu_generation {
    GENERATION_VOLTA,     /* 7.0, 7.5 */
    GENERATION_AMPERE,    /* 8.0: A100, A30 */
    GENERATION_ADA,       /* 8.6, 8.9: RTX 3090, A10, A40; RTX 4090, L4, L40S */
    GENERATION_HOPPER,    /* 9.0 */
    GENERATION_BLACKWELL, /* 10.0 and newer, RTX 5090 too */
    GENERATION_AMD,       /* CDNA: RCCL */
    GENERATION_CPU,       /* the host backend: MPI, known by measured times alone */
};

enum fabric_link {
    LINK_NVSWITCH, /* NVLink, any GPU to any other at full rate; also the cube mesh of V100 */
    LINK_BRIDGE,   /* NVLink between pairs; a larger group goes over PCIe */
    LINK_PCIE,     /* peer to peer over PCIe */
    LINK_HOST,     /* no peer to peer: through host memory */
    LINK_MESH,     /* xGMI: one link to each other GPU of the node */
};

/* What carries a message between nodes; it decides the latency of a crossing. */
enum fabric_network {
    NETWORK_INFINIBAND,
    NETWORK_INFINIBAND_SHARP, /* ... whose switches reduce, NCCL being told so: its SHARP plug-in
                                 and NCCL_COLLNET_ENABLE=1 */
    NETWORK_ROCE,
    NETWORK_EFA, /* AWS, second generation and later */
    NETWORK_EFA_V1,
    NETWORK_TCPXO, /* Google A3 Mega */
    NETWORK_TCPX,  /* Google A3 High */
    NETWORK_SOCKET,
};

/* Whose tuning tables: 2.28 changed those of NVLS and Blackwell. */
enum nccl_tuning { NCCL_TUNING_2_27, NCCL_TUNING_2_28 };

#define COLLECTIVE_MAP(X)                                                                          \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(BROADCAST, "broadcast")

enum collective {
#define X(name, text) COLLECTIVE_##name,
    COLLECTIVE_MAP(X)
#undef X
        COLLECTIVE_COUNT
};

/* What a measured point may be. */
#define POINT_RANKS_MOST 1e6 /* nodes, too */
#define POINT_BYTES_MOST 1e15
#define POINT_SECONDS_LEAST 1e-9
#define POINT_SECONDS_MOST 1e6

/* One measured time. `bytes` is nccl-tests' size: of all ranks' parts together for all_gather and
 * reduce_scatter, of one rank's buffer for the others. */
struct collective_point {
    enum collective collective;
    uint32_t ranks, nodes;
    uint64_t bytes;
    double seconds;
};

struct collective_table {
    const struct collective_point *points; /* lent, in any order */
    size_t count;
};

struct fabric {
    enum gpu_generation generation;
    enum fabric_link link;
    uint32_t gpus_per_node;
    double link_bytes_per_s; /* all NVLink or xGMI links of one GPU; 0 for PCIe and host */
    double pcie_bytes_per_s; /* of the slot: 15.75e9, 31.5e9, 63e9 for x16 of generation 3, 4, 5 */
    double pcie_share; /* of what copies usually reach through such a slot, what they reach through
                          this one; 0: all of it */
    enum fabric_network network;
    uint32_t nics_per_node; /* 0: the node stands alone */
    double nic_bytes_per_s;
    double nic_latency_s; /* of one crossing beyond NCCL's own constants; 0: the network's usual */
    bool amd_cpu;         /* of the host: NCCL reads another row for LL between nodes */
    enum nccl_tuning tuning;
    uint32_t nvls_channels; /* NCCL_NVLS_NCHANNELS; 0: as NCCL has them from 2.27 on */
    const struct collective_table *measured; /* lent; NULL when nothing was measured */
};

/* Whether every figure a group of `ranks_per_node` x `nodes` needs is there and possible.
 * ERR_INVALID names the field and what it may be. */
enum err_code fabric_check(const struct fabric *fabric, uint32_t ranks_per_node, uint32_t nodes,
                           struct err *err);

/* Seconds of one crossing of the network beyond NCCL's constants: nic_latency_s, or what the
 * smallest messages of published sweeps took (sources in fabric.c). */
double fabric_crossing_s(const struct fabric *fabric);

/* "all_gather"; never NULL. */
const char *collective_name(enum collective collective);

/* How many times the bytes of §1 of nccl-tests' PERFORMANCE.md pass the busiest link: bus bandwidth
 * is this factor times bytes / seconds. 0 for a single rank. */
double collective_bus_factor(enum collective collective, uint32_t ranks);

#endif
