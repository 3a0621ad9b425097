/* small_fabrics.h - machines of the tests: datasheet figures, tuning of NCCL 2.28. */
#ifndef SHARDPLAN_SMALL_FABRICS_H
#define SHARDPLAN_SMALL_FABRICS_H

#include "machine/fabric.h"

static inline struct fabric nvlink_node(enum gpu_generation generation, double link, double slot)
{
    return (struct fabric){.generation = generation,
                           .link = LINK_NVSWITCH,
                           .gpus_per_node = 8,
                           .link_bytes_per_s = link,
                           .pcie_bytes_per_s = slot,
                           .network = NETWORK_INFINIBAND,
                           .nics_per_node = 8,
                           .nic_bytes_per_s = 50e9,
                           .tuning = NCCL_TUNING_2_28};
}

static inline struct fabric a100_node(void)
{
    return nvlink_node(GENERATION_AMPERE, 300e9, 31.5e9);
}

static inline struct fabric h100_node(void) /* and H200: the same links */
{
    return nvlink_node(GENERATION_HOPPER, 450e9, 63e9);
}

static inline struct fabric b200_node(void)
{
    return nvlink_node(GENERATION_BLACKWELL, 900e9, 63e9);
}

/* A100 PCIe, whose bridge joins pairs at the SXM's rate. */
static inline struct fabric pcie_node(enum fabric_link link)
{
    struct fabric fabric = a100_node();
    fabric.link = link;
    return fabric;
}

static inline struct fabric mi300x_node(void)
{
    struct fabric fabric = nvlink_node(GENERATION_AMD, 448e9, 63e9);
    fabric.link = LINK_MESH;
    return fabric;
}

#endif
