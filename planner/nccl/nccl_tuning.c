/* nccl_tuning.c - see nccl_tuning.h. Names of the tables are those of tuning.cc. */
#include "nccl/nccl_tuning.h"

#include "base/names.h"

#include <assert.h>
#include <math.h>

enum { HW_NVLINK, HW_PCI, HW_NET };

/* Microseconds, LL / LL128 / Simple. */
static const double base_latency[NCCL_ALGORITHMS][NCCL_PROTOCOLS] = {
    [NCCL_TREE] = {6.8, 14, 8.4},
    [NCCL_RING] = {6.6, 14, 8.4},
    [NCCL_PAT] = {8, 8, 8},
};
static const double hw_latency[3][NCCL_ALGORITHMS][NCCL_PROTOCOLS] = {
    [HW_NVLINK] = {[NCCL_TREE] = {.6, 1.25, 4},
                   [NCCL_RING] = {.6, 1.9, 3.4},
                   [NCCL_NVLS] = {0, 0, 25},
                   [NCCL_NVLS_TREE] = {0, 0, 25},
                   [NCCL_PAT] = {0, 0, 4}},
    [HW_PCI] = {[NCCL_TREE] = {1, 1.9, 4}, [NCCL_RING] = {1, 2.5, 5.7}, [NCCL_PAT] = {0, 0, 4}},
    [HW_NET] = {[NCCL_TREE] = {5, 8.5, 14},
                [NCCL_RING] = {2.7, 4, 14},
                [NCCL_NVLS] = {0, 0, 18},
                [NCCL_NVLS_TREE] = {0, 0, 20.9},
                [NCCL_PAT] = {0, 0, 14}},
};
#define NVLS_TREE_NET_2_27 14.0

/* GB/s; one node / two / more. Rows: Volta, Ampere, Hopper, Blackwell. */
static const double ll_max[4][3] = {{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}};
struct caps { /* of one channel */
    double ring_ll128[3], tree_ll128[3], tree[3], nvls_tree[3];
};
static const struct caps caps_2_28[4] = {
    {{20, 20, 20}, {20, 20, 20}, {26.5, 18.5, 10}, {26.5, 18.5, 10}},
    {{20, 20, 20}, {20, 20, 20}, {24, 23.6, 17.8}, {24, 23.6, 17.8}},
    {{36.7, 36.7, 36.7}, {36.7, 36.7, 29}, {38.7, 41.4, 36}, {0, 57.7, 45.5}},
    {{73.4, 34.6, 73.4}, {55.6, 31.67, 20}, {70, 42.8, 24}, {0, 96, 43.8}},
};
static const struct caps blackwell_2_27 = {
    {73.4, 73.4, 73.4}, {73.4, 73.4, 58}, {77.4, 82.8, 72}, {0, 0, 0}};

static const double nvls_efficiency[4] = {0, 0, .85, .74};

static const double tree_correction[NCCL_PROTOCOLS][23] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}};

ENUM_NAME(nccl_algorithm_name, enum nccl_algorithm, NCCL_ALGORITHM_MAP)

const char *nccl_protocol_name(enum nccl_protocol protocol)
{
    static const char *const names[] = {"LL", "LL128", "Simple"};
    return names[protocol];
}

/* Row of the tables by compute capability; RCCL's own tables are not modelled: Ampere's stand in.
 */
static int generation_row(enum gpu_generation generation)
{
    switch (generation) {
    case GENERATION_VOLTA:
        return 0;
    case GENERATION_HOPPER:
        return 2;
    case GENERATION_BLACKWELL:
        return 3;
    default:
        return 1;
    }
}

static int log2_floor(uint64_t x)
{
    return x == 0 ? -1 : 63 - __builtin_clzll(x);
}

struct builder {
    const struct fabric *fabric;
    struct nccl_tuning_model *model;
    const struct caps *caps;
    int row, column, hw_intra;
    double per_node, steps, ll_max;
};

static bool gathers(enum collective c)
{
    return c == COLLECTIVE_ALL_GATHER || c == COLLECTIVE_REDUCE_SCATTER;
}

/* What plug-ins or the environment given out with them switch off. For TCPXO
 * NCCL_PROTO=Simple,LL128 and NCCL_NVLS_ENABLE=0 (nccl-env-profile.sh of gpudirect-tcpxo), for TCPX
 * NCCL_ALGO=Ring and NCCL_PROTO=Simple. AWS's plug-in sets NCCL_PROTO=simple where sends do not
 * arrive in order by 128 bytes (aws-ofi-nccl, platform-aws.cpp), as on P4d (its issue 715 has that
 * log; issue 76). */
static bool is_switched_off(enum fabric_network network, enum nccl_algorithm a,
                            enum nccl_protocol p)
{
    const bool switched = a == NCCL_NVLS || a == NCCL_NVLS_TREE;
    if (network == NETWORK_EFA_V1)
        return p != NCCL_SIMPLE;
    if (network == NETWORK_TCPXO)
        return switched || p == NCCL_LL;
    return network == NETWORK_TCPX && (a != NCCL_RING || p != NCCL_SIMPLE);
}

/* Which ways exist, before bandwidths rule more of them out. */
static bool is_open(const struct builder *b, enum nccl_algorithm a, enum nccl_protocol p)
{
    const struct nccl_tuning_model *m = b->model;
    if ((p == NCCL_LL128 && !m->graphs.ll128) || is_switched_off(b->fabric->network, a, p))
        return false;
    switch (a) {
    case NCCL_RING:
        return true;
    case NCCL_TREE:
        return m->collective == COLLECTIVE_ALL_REDUCE;
    case NCCL_NVLS: /* across nodes only with CollNet; what gathers needs every rank as a head */
        return p == NCCL_SIMPLE && m->graphs.nvls.channels >= 2 &&
               (m->collective == COLLECTIVE_ALL_REDUCE
                    ? m->nodes == 1 || b->fabric->network == NETWORK_INFINIBAND_SHARP
                    : gathers(m->collective) && m->nodes == 1 && m->ranks <= NVLS_HEADS_MOST);
    case NCCL_NVLS_TREE:
        return p == NCCL_SIMPLE && m->nodes > 1 && m->graphs.nvls.channels >= 2 &&
               m->collective == COLLECTIVE_ALL_REDUCE;
    default: /* PAT: one rank a node */
        return p == NCCL_SIMPLE && m->nodes == m->ranks && gathers(m->collective);
    }
}

static double nvls_bus(const struct builder *b, enum nccl_algorithm a)
{
    const struct nccl_tuning_model *m = b->model;
    const struct nccl_graph *g = &m->graphs.nvls;
    const bool reduce_all = m->collective == COLLECTIVE_ALL_REDUCE;
    const bool tree = a == NCCL_NVLS_TREE;
    if (b->fabric->tuning == NCCL_TUNING_2_27) {
        if (tree)
            return g->channels * fmin(g->intra, m->nodes <= 2 ? g->inter : g->inter / 2);
        if (reduce_all)
            return g->channels * fmin(g->intra, g->inter);
        return g->channels * fmin(g->intra * (b->per_node - 1) / b->per_node, .9 * g->inter);
    }
    double intra = g->intra * nvls_efficiency[b->row] * (g->channels - 1) / g->channels;
    intra *= reduce_all ? 2 : (b->per_node - 1) / b->per_node;
    double bus = fmin(intra, g->inter * (tree && m->nodes <= 2 ? 2 : 1));
    if (tree)
        bus = fmin(bus, b->caps->nvls_tree[b->column]);
    return g->channels * bus;
}

static double bus_bandwidth(const struct builder *b, enum nccl_algorithm a, enum nccl_protocol p)
{
    const struct nccl_tuning_model *m = b->model;
    if (a == NCCL_NVLS || a == NCCL_NVLS_TREE)
        return nvls_bus(b, a);
    const struct nccl_graph *g = a == NCCL_TREE ? &m->graphs.tree : &m->graphs.ring;
    double bus = g->channels * (m->nodes <= 2 ? g->intra : g->inter);
    if (a == NCCL_PAT)
        return .75 * bus;
    if (a == NCCL_RING)
        return p == NCCL_LL      ? fmin(b->ll_max, .5 * bus)
               : p == NCCL_LL128 ? fmin(.92 * bus, g->channels * b->caps->ring_ll128[b->column])
                                 : bus;
    bus = fmin(.92 * bus, g->channels * b->caps->tree[b->column]);
    if (p == NCCL_LL)
        bus = fmin(bus / 3.8, b->ll_max);
    if (p == NCCL_LL128)
        bus = fmin(bus * (m->nodes == 1 ? 7.0 / 9 : 120.0 / 128),
                   g->channels * b->caps->tree_ll128[b->column]);
    return bus;
}

static double to_algorithm(const struct builder *b, enum nccl_algorithm a, double bus)
{
    const struct nccl_tuning_model *m = b->model;
    if (a != NCCL_RING && gathers(m->collective))
        return bus;
    if ((a == NCCL_NVLS || a == NCCL_NVLS_TREE) && b->fabric->tuning == NCCL_TUNING_2_27)
        return bus * 5 / 6;
    return a == NCCL_TREE ? .5 * bus : bus * m->ranks / b->steps;
}

static void latency(const struct builder *b, enum nccl_algorithm a, enum nccl_protocol p,
                    struct nccl_way *way)
{
    const struct nccl_tuning_model *m = b->model;
    const double intra = hw_latency[b->hw_intra][a][p];
    double inter = hw_latency[HW_NET][b->per_node == 1 ? NCCL_TREE : a][p];
    if (a == NCCL_NVLS_TREE && b->fabric->tuning == NCCL_TUNING_2_27)
        inter = NVLS_TREE_NET_2_27;
    const uint32_t levels = (uint32_t)log2_floor(m->nodes);
    way->latency_us = base_latency[a][p];
    switch (a) {
    case NCCL_RING:
        if (m->collective == COLLECTIVE_BROADCAST) {
            /* Channels of a broadcast are alike on these machines: one hop's latency, pipelined. */
            way->latency_us += hw_latency[m->nodes > 1 ? HW_NET : b->hw_intra][a][p];
            way->crossings = m->nodes - 1;
            return;
        }
        /* getNetOverhead: 1 us on Intel and others, 2 on AMD; Simple pays it three times */
        const double post =
            m->nodes == 1 ? 0 : (b->fabric->amd_cpu ? 2.0 : 1.0) * (p == NCCL_SIMPLE ? 3 : 1);
        way->crossings = (m->nodes - 1) * (m->collective == COLLECTIVE_ALL_REDUCE ? 2 : 1);
        way->latency_us += (b->steps - way->crossings) * fmax(intra, post) + way->crossings * inter;
        return;
    case NCCL_TREE:
        way->crossings = 2 * levels;
        way->latency_us += 2 * (b->per_node - 1) * intra + way->crossings * inter;
        return;
    case NCCL_NVLS:
        way->crossings = m->nodes > 1;
        way->latency_us = intra + way->crossings * inter;
        return;
    case NCCL_NVLS_TREE:
        way->crossings = 2 * levels;
        way->latency_us += intra + way->crossings * inter;
        return;
    default: /* PAT */
        way->crossings = levels;
        way->latency_us += levels * inter / 3.5 + m->ranks * 2.8;
    }
}

struct nccl_tuning_model nccl_tuning_build(const struct fabric *fabric, enum collective collective,
                                           uint32_t ranks_per_node, uint32_t nodes)
{
    struct nccl_tuning_model model = {
        .collective = collective,
        .ranks = ranks_per_node * nodes,
        .nodes = nodes,
        .generation = fabric->generation,
        .graphs = nccl_graph_search(fabric, ranks_per_node, nodes),
        .large_chunks = fabric->network == NETWORK_EFA,
    };
    const int row = generation_row(fabric->generation);
    const int column = nodes <= 2 ? (int)nodes - 1 : 2;
    struct builder b = {
        .fabric = fabric,
        .model = &model,
        .caps = row == 3 && fabric->tuning == NCCL_TUNING_2_27 ? &blackwell_2_27 : &caps_2_28[row],
        .row = row,
        .column = column,
        .hw_intra = model.graphs.nvlink ? HW_NVLINK : HW_PCI,
        .per_node = ranks_per_node,
        .steps = collective == COLLECTIVE_ALL_REDUCE ? 2 * (model.ranks - 1.0)
                 : gathers(collective)               ? model.ranks - 1.0
                                                     : model.ranks,
        /* one node: the GPU's row; more: the processor's, Ampere's row standing for AMD */
        .ll_max = ll_max[nodes == 1        ? row
                         : fabric->amd_cpu ? 1
                                           : 0][column],
    };
    model.tree_channel_gbs = b.caps->tree[column];
    for (enum nccl_algorithm a = 0; a < NCCL_ALGORITHMS; a++)
        for (enum nccl_protocol p = 0; p < NCCL_PROTOCOLS; p++)
            if (is_open(&b, a, p)) {
                model.ways[a][p].gbs = to_algorithm(&b, a, bus_bandwidth(&b, a, p));
                latency(&b, a, p, &model.ways[a][p]);
            }
    assert(model.ways[NCCL_RING][NCCL_SIMPLE].gbs > 0); /* there is always one way */
    return model;
}

double nccl_tuning_seconds(const struct nccl_tuning_model *model, enum nccl_algorithm algorithm,
                           enum nccl_protocol protocol, uint64_t bytes)
{
    const struct nccl_way *way = &model->ways[algorithm][protocol];
    if (way->gbs <= 0)
        return INFINITY;
    double gbs = way->gbs, microseconds = way->latency_us;
    const int power = log2_floor(bytes >> 6);
    if (algorithm == NCCL_TREE && power >= 0 && power < 23)
        gbs *= tree_correction[protocol][power];
    if (algorithm == NCCL_RING && protocol == NCCL_SIMPLE && model->nodes > 1 &&
        model->collective == COLLECTIVE_ALL_REDUCE &&
        bytes / ((uint64_t)model->graphs.channels * model->ranks) >= 64)
        microseconds *= model->generation == GENERATION_VOLTA ? 1.9 : 1.4;
    return 1e-6 * microseconds + (double)bytes / (1e9 * gbs);
}

void nccl_tuning_choose(const struct nccl_tuning_model *model, uint64_t bytes,
                        enum nccl_algorithm *algorithm, enum nccl_protocol *protocol)
{
    double least = INFINITY;
    *algorithm = NCCL_RING;
    *protocol = NCCL_SIMPLE;
    for (enum nccl_algorithm a = 0; a < NCCL_ALGORITHMS; a++)
        for (enum nccl_protocol p = 0; p < NCCL_PROTOCOLS; p++) {
            const double seconds = nccl_tuning_seconds(model, a, p, bytes);
            if (seconds < least) {
                least = seconds;
                *algorithm = a;
                *protocol = p;
            }
        }
    assert(least >= 0 && isfinite(least));
}

uint32_t nccl_tuning_channels(const struct nccl_tuning_model *model, enum nccl_algorithm algorithm,
                              enum nccl_protocol protocol, uint64_t bytes)
{
    const struct nccl_graphs *g = &model->graphs;
    if (algorithm == NCCL_NVLS || algorithm == NCCL_NVLS_TREE)
        return g->nvls_channels;
    /* device.h: threads of a channel, and the bytes each should have before another joins */
    uint64_t threads = protocol == NCCL_LL128 ? 640 : 512;
    if (algorithm == NCCL_RING && protocol == NCCL_SIMPLE && g->ring.intra * g->ring.channels <= 12)
        threads = 256;
    uint64_t threshold = protocol == NCCL_SIMPLE ? 64 : 8;
    if (algorithm == NCCL_RING && protocol == NCCL_LL)
        threshold *= model->ranks;
    const uint64_t wanted = bytes / (threads * threshold);
    return wanted < 1 ? 1 : wanted < g->channels ? (uint32_t)wanted : g->channels;
}

double nccl_tuning_loop_bytes(const struct nccl_tuning_model *model, enum nccl_algorithm algorithm,
                              double bytes)
{
    /* Below `turns` turns of the loop, chunks have at most so many bytes. */
    static const struct {
        double turns, chunk;
    } nvls[] = {{64, 65536}, {8, 32768}, {2, 16384}},
      tree[] = {{32, 262144}, {16, 131072}, {4, 65536}, {1, 32768}};
    const bool is_tree = algorithm == NCCL_NVLS_TREE;
    const double at_once = (double)model->graphs.nvls_channels * model->graphs.nvls.channels;
    double chunk = model->large_chunks ? 524288 : is_tree && model->nodes >= 4 ? 65536 : 131072;
    assert(is_tree || algorithm == NCCL_NVLS);
    for (size_t i = 0; i < (is_tree ? sizeof tree / sizeof *tree : sizeof nvls / sizeof *nvls); i++)
        if (bytes < (is_tree ? tree : nvls)[i].turns * at_once * chunk)
            chunk = fmin(chunk, (is_tree ? tree : nvls)[i].chunk);
    return at_once * chunk;
}

double nccl_tree_correction(enum nccl_protocol protocol, double bytes)
{
    const double at = log2(fmax(bytes, 64) / 64);
    if (at >= 23)
        return 1;
    const int i = (int)at;
    const double next = i < 22 ? tree_correction[protocol][i + 1] : 1;
    const double here = tree_correction[protocol][i];
    return here + (next - here) * (at - i);
}
