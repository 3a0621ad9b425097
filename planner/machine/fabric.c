/* fabric.c - see fabric.h.
 *
 * Crossing latencies: the smallest messages of published sweeps over two nodes
 * (tests/data/published) less NCCL's own latency for the algorithm it chooses there, divided by the
 * crossings on the way.
 *
 *     all_reduce, Tree LL, 25.2 us by NCCL, 2 crossings:
 *       8 x H100 InfiniBand 29.4 us and 8 x B200 InfiniBand 36 us     2 to 5 us   (3 taken)
 *       p5 (EFA) 69.2 us                                              22 us
 *     all_reduce, Tree Simple (all that AWS's plug-in leaves), 92.4 us by NCCL, 2 crossings:
 *       p4de (first EFA) 161 to 165 us                                35 us
 *     all_gather, Ring LL, 23.3 us by NCCL, 1 crossing:
 *       A3 Ultra (RoCE in a virtual network) 54 to 57 us; over B200 RoCE 15 us   (20 taken)
 *     all_gather, where Google's environment leaves other ways (nccl/nccl_tuning.c):
 *       A3 Mega (TCPXO) 84 us, of which Ring LL128 45 by NCCL         40 us
 *       A3 High (TCPX) 940 us, of which Ring Simple 70                870 us
 *     sockets: 30 to 100 us a hop                                     60 us */
#include "machine/fabric.h"

#include "base/names.h"

#include <math.h>

static const double crossing_s[] = {
    [NETWORK_INFINIBAND] = 3e-6, [NETWORK_INFINIBAND_SHARP] = 3e-6, [NETWORK_ROCE] = 20e-6,
    [NETWORK_EFA] = 22e-6,       [NETWORK_EFA_V1] = 35e-6,          [NETWORK_TCPXO] = 40e-6,
    [NETWORK_TCPX] = 870e-6,     [NETWORK_SOCKET] = 60e-6,
};

static bool is_rate(double x)
{
    return isfinite(x) && x > 0;
}

static enum err_code check_link(const struct fabric *f, uint32_t ranks_per_node, struct err *err)
{
    const bool own_links =
        f->link == LINK_NVSWITCH || f->link == LINK_BRIDGE || f->link == LINK_MESH;
    if (own_links && !is_rate(f->link_bytes_per_s))
        return err_set(err, ERR_INVALID,
                       "link_bytes_per_s is %g: bytes per second of one direction, above 0",
                       f->link_bytes_per_s);
    const bool pcie = !own_links || (f->link == LINK_BRIDGE && ranks_per_node > 2);
    if (pcie && !is_rate(f->pcie_bytes_per_s))
        return err_set(err, ERR_INVALID,
                       "pcie_bytes_per_s is %g: bytes per second of one direction, above 0 (x16: "
                       "15.75e9, 31.5e9, 63e9 for generation 3, 4, 5)",
                       f->pcie_bytes_per_s);
    return ERR_OK;
}

enum err_code fabric_check(const struct fabric *f, uint32_t ranks_per_node, uint32_t nodes,
                           struct err *err)
{
    if (ranks_per_node == 0 || nodes == 0)
        return err_set(err, ERR_INVALID,
                       "a group of %u ranks a node on %u nodes: both are 1 or more", ranks_per_node,
                       nodes);
    if (ranks_per_node > f->gpus_per_node)
        return err_set(err, ERR_INVALID, "%u ranks a node on nodes of %u GPUs: at most %u",
                       ranks_per_node, f->gpus_per_node, f->gpus_per_node);
    if ((uint64_t)ranks_per_node * nodes > UINT32_MAX / 4)
        return err_set(err, ERR_INVALID, "%u ranks a node on %u nodes: at most %u ranks",
                       ranks_per_node, nodes, UINT32_MAX / 4);
    if (ranks_per_node > 1)
        TRY(check_link(f, ranks_per_node, err));
    if (nodes > 1 && (f->nics_per_node == 0 || !is_rate(f->nic_bytes_per_s)))
        return err_set(err, ERR_INVALID,
                       "%u nodes, but nics_per_node is %u and nic_bytes_per_s is %g: both above 0",
                       nodes, f->nics_per_node, f->nic_bytes_per_s);
    if (!(f->nic_latency_s >= 0) || !isfinite(f->nic_latency_s))
        return err_set(err, ERR_INVALID, "nic_latency_s is %g: seconds, 0 or more",
                       f->nic_latency_s);
    return ERR_OK;
}

double fabric_crossing_s(const struct fabric *fabric)
{
    return fabric->nic_latency_s > 0 ? fabric->nic_latency_s : crossing_s[fabric->network];
}

ENUM_NAME(collective_name, enum collective, COLLECTIVE_MAP)

double collective_bus_factor(enum collective collective, uint32_t ranks)
{
    if (ranks <= 1)
        return 0;
    const double share = (ranks - 1.0) / ranks;
    switch (collective) {
    case COLLECTIVE_ALL_REDUCE:
        return 2 * share;
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER:
        return share;
    default:
        return 1;
    }
}
