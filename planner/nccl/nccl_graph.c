/* nccl_graph.c - see nccl_graph.h. */
#include "nccl/nccl_graph.h"

#include <assert.h>
#include <math.h>

#define MAX_CHANNELS 64U /* NCCL's MAXCHANNELS; the search stops at half, as Postset doubles */

/* search.cc: speedArrayIntra, speedArrayInter and their sm90 and sm100 forms; 0 ends a row. */
static const double intra_speeds[3][16] = {
    {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3},
    {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3},
    {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18},
};
static const double inter_speeds[3][24] = {
    {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, .24, .12},
    {48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12},
    {96, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, .24, .12},
};

static int speed_row(enum gpu_generation generation)
{
    return generation == GENERATION_BLACKWELL ? 2 : generation == GENERATION_HOPPER ? 1 : 0;
}

/* topo.h: GB/s NCCL gives one NVLink (20, 12, 20.6, 40.1), over the datasheet's (25, 14.06, 25,
 * 50). RCCL's xGMI is taken as NVLink of 8.0. */
static double link_factor(enum gpu_generation generation)
{
    switch (generation) {
    case GENERATION_ADA:
        return 12 / 14.06;
    case GENERATION_HOPPER:
        return 20.6 / 25;
    case GENERATION_BLACKWELL:
        return 40.1 / 50;
    default:
        return 20.0 / 25;
    }
}

/* All links of the fastest part there is, bytes a second each way, from datasheets: V100, A100,
 * RTX 3090 and A40 (a bridge), H100, B200, MI300X. What is tried at higher speeds is not what such
 * a link would have: its NCCL would try others (of Blackwell, a rate that NVLS's table ends at
 * would make a faster link slower). */
static double fastest_link(enum gpu_generation generation)
{
    static const double fastest[] = {
        [GENERATION_VOLTA] = 150e9,  [GENERATION_AMPERE] = 300e9,    [GENERATION_ADA] = 56.25e9,
        [GENERATION_HOPPER] = 450e9, [GENERATION_BLACKWELL] = 900e9, [GENERATION_AMD] = 448e9,
        [GENERATION_CPU] = INFINITY,
    };
    return fastest[generation];
}

/* topo.h: x16 of PCIe 3, 4, 5 is 12, 24, 48 GB/s; the datasheets say 15.75, 31.5, 63. */
static double pcie_gbs(const struct fabric *f)
{
    return f->pcie_bytes_per_s * 1e-9 * (12 / 15.75);
}

/* The largest product of speed and channels; the walk ends below 49 % of the speed found. */
static struct nccl_graph best_speed(const double *speeds, double link, double cards,
                                    double card_gbs, uint32_t most)
{
    struct nccl_graph best = {0};
    for (int i = 0; speeds[i] > 0; i++) {
        if (best.channels > 0 && speeds[i] <= .49 * best.intra)
            break;
        double fit = fmin(floor(link / speeds[i]), most);
        if (cards > 0)
            fit = fmin(fit, cards * floor(card_gbs / speeds[i]));
        if (fit >= 1 && fit * speeds[i] > best.channels * best.intra)
            best = (struct nccl_graph){(uint32_t)fit, speeds[i], speeds[i]};
    }
    return best;
}

/* ncclTopoDupChannels */
static void duplicate(struct nccl_graph *g, enum gpu_generation generation)
{
    const bool newer = speed_row(generation) > 0;
    if (g->intra < 25 || (newer && g->intra < 50 && g->channels > 4) ||
        2 * g->channels > MAX_CHANNELS / 2)
        return;
    g->channels *= 2;
    g->intra /= 2;
    g->inter /= 2;
}

/* A channel a head, which carries its own share twice: speed x (heads + 1) must fit its links. The
 * speed to the switch or the card may then rise alone, up to twice the speed inside (second pass).
 */
static struct nccl_graph search_nvls(const struct fabric *f, double link, uint32_t ranks,
                                     uint32_t nodes, double nics)
{
    const int row = speed_row(f->generation);
    const double *speeds = nodes > 1 ? inter_speeds[row] : intra_speeds[row];
    struct nccl_graph g = {0};
    if (f->link != LINK_NVSWITCH || row == 0 || ranks < 2)
        return g;
    const uint32_t heads = ranks < NVLS_HEADS_MOST ? ranks : NVLS_HEADS_MOST;
    const double card = nodes > 1 ? nics / ranks : INFINITY;
    for (int i = 0; speeds[i] > 0 && g.channels == 0; i++)
        if (speeds[i] * (heads + 1) <= link && speeds[i] <= card) {
            g = (struct nccl_graph){heads, speeds[i], speeds[i]};
            for (int j = i; j > 0 && g.inter < 2 * g.intra && speeds[j - 1] <= card; j--)
                g.inter = speeds[j - 1];
        }
    return g;
}

/* Trees of two nodes carry more inside a node than between: the second pass raises that speed. In
 * the chain of a node, data goes up and down: a GPU sends to both its neighbours. */
static void raise_tree(struct nccl_graph *tree, const double *speeds, double link, uint32_t ranks)
{
    for (int i = 0; speeds[i] > tree->intra; i++)
        if (speeds[i] <= 2 * tree->inter &&
            2 * speeds[i] * tree->channels * (ranks - 1) / ranks <= link) {
            tree->intra = speeds[i];
            return;
        }
}

/* What a GPU sends to others of its node. */
static void find_link(const struct fabric *f, uint32_t ranks_per_node, struct nccl_graphs *g)
{
    g->nvlink = f->link == LINK_NVSWITCH || f->link == LINK_MESH ||
                (f->link == LINK_BRIDGE && ranks_per_node <= 2) || ranks_per_node == 1;
    g->beyond = 1;
    if (ranks_per_node == 1) {
        g->link_gbs = INFINITY;
    } else if (g->nvlink) {
        g->beyond = fmax(1, f->link_bytes_per_s / fastest_link(f->generation));
        g->link_gbs = f->link_bytes_per_s / g->beyond * 1e-9 * link_factor(f->generation);
    } else {
        g->link_gbs = pcie_gbs(f);
    }
}

static void search_node(const struct fabric *f, struct nccl_graphs *g)
{
    /* Without NVLink one channel takes the slot whole. */
    g->ring = best_speed(intra_speeds[speed_row(f->generation)], g->link_gbs, 0, 0,
                         g->nvlink ? MAX_CHANNELS / 2 : 1);
    if (g->ring.channels == 0) /* slower than the slowest candidate: NCCL's fallback order */
        g->ring = (struct nccl_graph){1, g->link_gbs, g->link_gbs};
    duplicate(&g->ring, f->generation);
    g->tree = g->ring;
}

static void search_nodes(const struct fabric *f, uint32_t ranks_per_node, struct nccl_graphs *g)
{
    const double *speeds = inter_speeds[speed_row(f->generation)];
    /* Several slow cards of one GPU are one to NCCL (EFA's plugin, NIC fusion). A group that uses
     * some of a node's GPUs uses their cards only. */
    const double cards = fmin(f->nics_per_node, f->gpus_per_node);
    const double total = f->nics_per_node * f->nic_bytes_per_s * 1e-9;
    const double used = fmax(1, floor(cards * ranks_per_node / f->gpus_per_node));
    g->nics_gbs = total / cards * used;
    double card = total / cards;
    if (f->pcie_bytes_per_s > 0)
        card = fmin(card, pcie_gbs(f));
    /* A ring leaves each node once: one of its GPUs needs no link for that channel. */
    const double link = g->link_gbs * ranks_per_node / fmax(1, ranks_per_node - 1.0);
    g->ring = best_speed(speeds, link, used, card, MAX_CHANNELS / 2);
    if (g->ring.channels == 0)
        g->ring = (struct nccl_graph){1, fmin(card, link), fmin(card, link)};
    duplicate(&g->ring, f->generation);
    g->tree = g->ring;
    if (ranks_per_node > 1)
        raise_tree(&g->tree, speeds, g->link_gbs, ranks_per_node);
}

struct nccl_graphs nccl_graph_search(const struct fabric *f, uint32_t ranks_per_node,
                                     uint32_t nodes)
{
    struct nccl_graphs g = {0};
    const int row = speed_row(f->generation);
    find_link(f, ranks_per_node, &g);
    if (nodes == 1)
        search_node(f, &g);
    else
        search_nodes(f, ranks_per_node, &g);
    g.nvls = search_nvls(f, g.link_gbs, ranks_per_node, nodes, g.nics_gbs);

    /* ncclTopoPostset */
    g.channels = 2 * g.ring.channels;
    if (row > 0 && nodes > 1 && g.ring.intra > 45 && g.channels < 16)
        g.channels *= 2;
    /* nvls.cc: 16 on Hopper; on Blackwell 24 in one domain (before 2.27 32), 32 across nodes */
    g.nvls_channels = f->nvls_channels ? f->nvls_channels : row == 2 ? (nodes > 1 ? 32 : 24) : 16;
    /* tuning.cc: NVLink inside, and a card not further than a PCIe switch or a peer GPU away */
    g.ll128 = g.nvlink && (nodes == 1 || f->network != NETWORK_SOCKET);
    assert(g.ring.channels > 0 && g.ring.channels <= MAX_CHANNELS);
    return g;
}
