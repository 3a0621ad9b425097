/* nccl_graph.h - the channels NCCL's search finds on a fabric, and the speed it gives each.
 *
 * NCCL walks the machine's topology (search.cc). On the regular machines a fabric describes, the
 * walk ends where arithmetic does: as many channels as fit through a GPU's links and a node's
 * cards, at the candidate speed whose product is largest. Source: NCCL 2.28.9, src/graph/search.cc
 * (speed tables, ncclTopoCompute, ncclTopoDupChannels), topo.h (bandwidth of a link), connect.cc
 * (ncclTopoPostset doubles the channels). Speeds are GB/s a channel, as there. */
#ifndef SHARDPLAN_NCCL_GRAPH_H
#define SHARDPLAN_NCCL_GRAPH_H

#include "machine/fabric.h"

struct nccl_graph {
    uint32_t channels; /* as searched, before the doubling; 0: the algorithm is not there */
    double intra, inter;
};

struct nccl_graphs {
    struct nccl_graph ring, tree, nvls;
    uint32_t channels;      /* of the communicator: CTAs that Ring and Tree may take */
    uint32_t nvls_channels; /* CTAs of NVLS and NVLSTree */
    bool nvlink;            /* the ranks of a node see each other over NVLink (or xGMI) */
    bool ll128;             /* LL128 is allowed on this group's paths */
    double link_gbs;        /* what NCCL takes one GPU's links for */
    double beyond;          /* how much faster they are than the fastest of the generation's parts,
                               which is what is searched with: NCCL's tables are of those; >= 1 */
    double nics_gbs; /* of the cards this group's ranks of one node use, as on the datasheet */
};

/* Heads that NVLS has at most: GPUs that reduce and send on for the others of their node, be it a
 * rack of 72 (NCCL_MAX_NVLS_ARITY; MNNVL makes a rack one node). */
enum { NVLS_HEADS_MOST = 32 };

/* The fabric has passed fabric_check for this group, which has at least two ranks. */
struct nccl_graphs nccl_graph_search(const struct fabric *fabric, uint32_t ranks_per_node,
                                     uint32_t nodes);

#endif
