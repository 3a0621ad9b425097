/* test_collective.c - NCCL's tuning model and the time of collectives on the wall.
 *
 * Latencies and bandwidths marked "sheet" were worked out by hand from NCCL's sources, apart from
 * this code; everything published is in tests/data/published. */
#include "tests/support/published.h"

#include "tests/support/small_fabrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define KIB(x) ((uint64_t)(x) << 10)
#define MIB(x) ((uint64_t)(x) << 20)
#define GIB(x) ((uint64_t)(x) << 30)

static void near(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g", found, expected);
}

static void way_is(const struct nccl_tuning_model *m, enum nccl_algorithm a, enum nccl_protocol p,
                   double latency_us, double gbs)
{
    /* the sheet has three digits: within half of the last */
    const double digit = gbs >= 100 ? .5 : .05;
    near(m->ways[a][p].latency_us, latency_us, .051);
    near(m->ways[a][p].gbs, gbs, digit + 1e-6);
}

static struct nccl_tuning_model node_of_8(struct fabric fabric, enum collective collective)
{
    return nccl_tuning_build(&fabric, collective, 8, 1);
}

static void tuning_of_8_h200_is_nccls(void **state)
{
    (void)state;
    const struct nccl_tuning_model ar = node_of_8(h100_node(), COLLECTIVE_ALL_REDUCE);
    way_is(&ar, NCCL_RING, NCCL_LL, 15.0, 80.6);
    way_is(&ar, NCCL_RING, NCCL_LL128, 40.6, 189);
    way_is(&ar, NCCL_RING, NCCL_SIMPLE, 56.0, 206);
    way_is(&ar, NCCL_TREE, NCCL_LL, 15.2, 43.6);
    way_is(&ar, NCCL_TREE, NCCL_LL128, 31.5, 129);
    way_is(&ar, NCCL_NVLS, NCCL_SIMPLE, 25, 272);
    for (enum collective c = COLLECTIVE_ALL_GATHER; c <= COLLECTIVE_REDUCE_SCATTER; c++) {
        const struct nccl_tuning_model ag = node_of_8(h100_node(), c);
        way_is(&ag, NCCL_RING, NCCL_LL, 10.8, 161);
        way_is(&ag, NCCL_RING, NCCL_LL128, 27.3, 379);
        way_is(&ag, NCCL_RING, NCCL_SIMPLE, 32.2, 411);
        way_is(&ag, NCCL_NVLS, NCCL_SIMPLE, 25, 208);
        assert_true(ag.ways[NCCL_TREE][NCCL_LL].gbs == 0);
    }
}

static void tuning_of_8_a100_is_nccls(void **state)
{
    (void)state;
    const struct nccl_tuning_model ar = node_of_8(a100_node(), COLLECTIVE_ALL_REDUCE);
    way_is(&ar, NCCL_RING, NCCL_LL, 15.0, 50.1);
    way_is(&ar, NCCL_RING, NCCL_LL128, 40.6, 126);
    way_is(&ar, NCCL_RING, NCCL_SIMPLE, 56.0, 137);
    way_is(&ar, NCCL_TREE, NCCL_LL, 15.2, 29.1);
    way_is(&ar, NCCL_TREE, NCCL_LL128, 31.5, 85.9);
    assert_true(ar.ways[NCCL_NVLS][NCCL_SIMPLE].gbs == 0);
    const struct nccl_tuning_model ag = node_of_8(a100_node(), COLLECTIVE_ALL_GATHER);
    way_is(&ag, NCCL_RING, NCCL_LL, 10.8, 100);
    way_is(&ag, NCCL_RING, NCCL_LL128, 27.3, 252);
    way_is(&ag, NCCL_RING, NCCL_SIMPLE, 32.2, 274);
}

static void tuning_of_8_b200_is_nccls(void **state)
{
    (void)state;
    const struct nccl_tuning_model ar = node_of_8(b200_node(), COLLECTIVE_ALL_REDUCE);
    way_is(&ar, NCCL_RING, NCCL_LL, 15.0, 161);
    way_is(&ar, NCCL_RING, NCCL_LL128, 40.6, 379);
    way_is(&ar, NCCL_RING, NCCL_SIMPLE, 56.0, 411);
    way_is(&ar, NCCL_TREE, NCCL_LL, 15.2, 87.2); /* 720 x .92 / 3.8 / 2 */
    way_is(&ar, NCCL_TREE, NCCL_LL128, 31.5, 258);
    way_is(&ar, NCCL_NVLS, NCCL_SIMPLE, 25, 411);
    const struct nccl_tuning_model ag = node_of_8(b200_node(), COLLECTIVE_ALL_GATHER);
    way_is(&ag, NCCL_RING, NCCL_LL, 10.8, 322);
    way_is(&ag, NCCL_RING, NCCL_LL128, 27.3, 757);
    way_is(&ag, NCCL_RING, NCCL_SIMPLE, 32.2, 823);
    way_is(&ag, NCCL_NVLS, NCCL_SIMPLE, 25, 363);
}

static void tuning_across_nodes_is_nccls(void **state)
{
    (void)state;
    static const struct {
        uint32_t nodes;
        double gather_us, gather_gbs, tree_us; /* sheet */
    } expected[] = {{2, 70, 410, 92}, {4, 146, 396, 120}, {8, 297, 390, 148}, {16, 599, 387, 176}};
    const struct fabric fabric = h100_node();
    for (size_t i = 0; i < 4; i++) {
        const struct nccl_tuning_model ag =
            nccl_tuning_build(&fabric, COLLECTIVE_ALL_GATHER, 8, expected[i].nodes);
        const struct nccl_way *ring = &ag.ways[NCCL_RING][NCCL_SIMPLE];
        near(ring->latency_us, expected[i].gather_us, .51);
        near(ring->gbs, expected[i].gather_gbs, .51);
        const struct nccl_tuning_model ar =
            nccl_tuning_build(&fabric, COLLECTIVE_ALL_REDUCE, 8, expected[i].nodes);
        near(ar.ways[NCCL_TREE][NCCL_SIMPLE].latency_us, expected[i].tree_us, .51);
    }
}

static void graph_is(struct fabric f, uint32_t ranks, uint32_t nodes, uint32_t searched,
                     double speed, uint32_t channels)
{
    const struct nccl_graphs g = nccl_graph_search(&f, ranks, nodes);
    assert_int_equal(g.ring.channels, searched);
    near(g.ring.intra, speed, 1e-6);
    assert_int_equal(g.channels, channels);
}

static void graphs_have_the_channels_nccl_reports(void **state)
{
    (void)state;
    graph_is(a100_node(), 8, 1, 12, 20, 24);
    graph_is(h100_node(), 8, 1, 12, 30, 24);
    graph_is(b200_node(), 8, 1, 16, 45, 32);
    graph_is(h100_node(), 8, 4, 8, 48, 16);
    graph_is(pcie_node(LINK_PCIE), 2, 1, 1, 20, 2);
    struct fabric socket = h100_node();
    socket.network = NETWORK_SOCKET;
    socket.nics_per_node = 1;
    socket.nic_bytes_per_s = 1.25e9;
    graph_is(socket, 1, 4, 1, 1.2, 2);
}

/* The published 8 x H200 sweep: Ring LL up to 1 MiB, NVLS from 2 MiB on. */
static void all_reduce_on_h200_changes_to_nvls_between_1_and_2_mib(void **state)
{
    (void)state;
    for (enum nccl_tuning t = NCCL_TUNING_2_27; t <= NCCL_TUNING_2_28; t++) {
        struct fabric fabric = h100_node();
        fabric.tuning = t;
        const struct nccl_tuning_model m = node_of_8(fabric, COLLECTIVE_ALL_REDUCE);
        enum nccl_algorithm a;
        enum nccl_protocol p;
        nccl_tuning_choose(&m, MIB(1), &a, &p);
        assert_int_equal(a, NCCL_RING);
        assert_int_equal(p, NCCL_LL);
        nccl_tuning_choose(&m, MIB(2), &a, &p);
        assert_int_equal(a, NCCL_NVLS);
    }
}

/* Published with NCCL 2.27.7: which algorithm ran an all_reduce of 8 GiB on 4 to 8 GPUs. */
/* search.cc: 32 heads at most, each of whose links takes 33 shares of 20 GB/s, not of 24;
 * tuning.cc: 5/6 of 640 GB/s beside the ring's 720 x 72/142. enqueue.cc: no gathers of more ranks
 * than heads. */
static void a_rack_of_72_is_one_node_of_32_heads(void **state)
{
    (void)state;
    struct fabric rack = b200_node();
    rack.gpus_per_node = rack.nics_per_node = 72;
    rack.tuning = NCCL_TUNING_2_27;
    const struct nccl_tuning_model ar = nccl_tuning_build(&rack, COLLECTIVE_ALL_REDUCE, 72, 1);
    enum nccl_algorithm algorithm;
    enum nccl_protocol protocol;
    assert_int_equal(ar.graphs.nvls.channels, 32);
    way_is(&ar, NCCL_NVLS, NCCL_SIMPLE, 25, 533);
    nccl_tuning_choose(&ar, GIB(1), &algorithm, &protocol);
    assert_int_equal(algorithm, NCCL_NVLS);
    for (uint32_t ranks = 32; ranks <= 33; ranks++) {
        const struct nccl_tuning_model ag =
            nccl_tuning_build(&rack, COLLECTIVE_ALL_GATHER, ranks, 1);
        assert_int_equal(ag.ways[NCCL_NVLS][NCCL_SIMPLE].gbs > 0, ranks == 32);
    }
}

/* Sheet of enqueue.cc (calcCollChunking): chunks of 128 KiB, or as small as 16 KiB where a message
 * has few, a channel and head: 16 of 8 on H100, 32 of 32 in several racks. Across four nodes 64 KiB
 * at most; 512 KiB where AWS's plug-in says so. */
static void a_turn_of_nvls_is_a_chunk_a_channel_and_head(void **state)
{
    (void)state;
    const struct fabric node = h100_node();
    struct fabric rack = b200_node();
    struct fabric efa = h100_node();
    rack.gpus_per_node = rack.nics_per_node = 72;
    efa.network = NETWORK_EFA;
    const struct {
        const struct fabric *fabric;
        uint32_t per_node, nodes;
        enum nccl_algorithm algorithm;
        uint64_t bytes, loop;
    } cases[] = {
        {&node, 8, 1, NCCL_NVLS, GIB(1), MIB(16)},
        {&node, 8, 1, NCCL_NVLS, GIB(1) - 1, MIB(8)},
        {&node, 8, 1, NCCL_NVLS, MIB(64) - 1, MIB(4)},
        {&node, 8, 1, NCCL_NVLS, MIB(8) - 1, MIB(2)},
        {&node, 8, 2, NCCL_NVLS_TREE, MIB(64), MIB(16)},
        {&node, 8, 2, NCCL_NVLS_TREE, MIB(64) - 1, MIB(8)},
        {&node, 8, 2, NCCL_NVLS_TREE, MIB(8) - 1, MIB(4)},
        {&node, 8, 4, NCCL_NVLS_TREE, GIB(1), MIB(8)},
        {&efa, 8, 4, NCCL_NVLS_TREE, GIB(2), MIB(64)},
        {&efa, 8, 4, NCCL_NVLS_TREE, GIB(2) - 1, MIB(32)},
        {&efa, 8, 2, NCCL_NVLS_TREE, MIB(512) - 1, MIB(16)},
        {&rack, 72, 2, NCCL_NVLS_TREE, MIB(512), MIB(128)},
        {&rack, 72, 2, NCCL_NVLS_TREE, MIB(512) - 1, MIB(64)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct nccl_tuning_model m = nccl_tuning_build(cases[i].fabric, COLLECTIVE_ALL_REDUCE,
                                                             cases[i].per_node, cases[i].nodes);
        near(nccl_tuning_loop_bytes(&m, cases[i].algorithm, (double)cases[i].bytes),
             (double)cases[i].loop, 0);
    }
}

/* NCCL_NVLS_NCHANNELS, and NCCL before 2.27 in one domain of Blackwell. */
static void channels_of_nvls_may_be_given(void **state)
{
    (void)state;
    struct fabric fabric = b200_node();
    assert_int_equal(nccl_graph_search(&fabric, 8, 1).nvls_channels, 24);
    assert_int_equal(nccl_graph_search(&fabric, 8, 2).nvls_channels, 32);
    fabric.nvls_channels = 32;
    assert_int_equal(nccl_graph_search(&fabric, 8, 1).nvls_channels, 32);
}

/* CollNet opens NVLS across nodes, for what reduces to all: tuning.cc, 25 and 18 us, and 5/6 of
 * eight heads of 40 GB/s. */
static void sharp_opens_nvls_across_nodes(void **state)
{
    (void)state;
    struct fabric fabric = h100_node();
    fabric.tuning = NCCL_TUNING_2_27;
    struct nccl_tuning_model ar = nccl_tuning_build(&fabric, COLLECTIVE_ALL_REDUCE, 8, 8);
    assert_true(ar.ways[NCCL_NVLS][NCCL_SIMPLE].gbs == 0);
    fabric.network = NETWORK_INFINIBAND_SHARP;
    ar = nccl_tuning_build(&fabric, COLLECTIVE_ALL_REDUCE, 8, 8);
    way_is(&ar, NCCL_NVLS, NCCL_SIMPLE, 43, 267);
    const struct nccl_tuning_model ag = nccl_tuning_build(&fabric, COLLECTIVE_ALL_GATHER, 8, 8);
    assert_true(ag.ways[NCCL_NVLS][NCCL_SIMPLE].gbs == 0);
}

static void nvls_begins_at_5_h200_and_6_b200(void **state)
{
    (void)state;
    for (uint32_t n = 4; n <= 8; n++)
        for (int blackwell = 0; blackwell < 2; blackwell++) {
            struct fabric fabric = blackwell ? b200_node() : h100_node();
            fabric.tuning = NCCL_TUNING_2_27;
            const struct nccl_tuning_model m =
                nccl_tuning_build(&fabric, COLLECTIVE_ALL_REDUCE, n, 1);
            enum nccl_algorithm a;
            enum nccl_protocol p;
            nccl_tuning_choose(&m, GIB(8), &a, &p);
            assert_int_equal(a, n >= (blackwell ? 6U : 5U) ? NCCL_NVLS : NCCL_RING);
        }
}

/* 2.28 counts NVLS lower: five H200 go back to Ring, six to eight stay (sheet: 187 < 225). */
static void tuning_of_2_28_takes_ring_on_5_h200(void **state)
{
    (void)state;
    const struct fabric fabric = h100_node();
    for (uint32_t n = 5; n <= 8; n++) {
        const struct nccl_tuning_model m = nccl_tuning_build(&fabric, COLLECTIVE_ALL_REDUCE, n, 1);
        enum nccl_algorithm a;
        enum nccl_protocol p;
        nccl_tuning_choose(&m, GIB(8), &a, &p);
        assert_int_equal(a, n >= 6 ? NCCL_NVLS : NCCL_RING);
    }
}

static void channels_follow_size(void **state)
{
    (void)state;
    const struct nccl_tuning_model m = node_of_8(h100_node(), COLLECTIVE_ALL_GATHER);
    /* enqueue.cc: 512 threads x 64 bytes each before another channel joins */
    assert_int_equal(nccl_tuning_channels(&m, NCCL_RING, NCCL_SIMPLE, KIB(64)), 2);
    assert_int_equal(nccl_tuning_channels(&m, NCCL_RING, NCCL_SIMPLE, 1), 1);
    assert_int_equal(nccl_tuning_channels(&m, NCCL_RING, NCCL_SIMPLE, GIB(1)), 24);
    assert_int_equal(nccl_tuning_channels(&m, NCCL_NVLS, NCCL_SIMPLE, GIB(1)), 16);
}

static void pat_is_for_one_rank_a_node(void **state)
{
    (void)state;
    const struct fabric fabric = h100_node();
    const struct nccl_tuning_model one =
        nccl_tuning_build(&fabric, COLLECTIVE_REDUCE_SCATTER, 1, 64);
    assert_true(one.ways[NCCL_PAT][NCCL_SIMPLE].gbs > 0);
    const struct nccl_tuning_model eight =
        nccl_tuning_build(&fabric, COLLECTIVE_REDUCE_SCATTER, 8, 8);
    assert_true(eight.ways[NCCL_PAT][NCCL_SIMPLE].gbs == 0);
}

static void bus_factors_are_those_of_nccl_tests(void **state)
{
    (void)state;
    near(collective_bus_factor(COLLECTIVE_ALL_REDUCE, 8), 1.75, 1e-12);
    near(collective_bus_factor(COLLECTIVE_ALL_GATHER, 8), .875, 1e-12);
    near(collective_bus_factor(COLLECTIVE_REDUCE_SCATTER, 16), .9375, 1e-12);
    near(collective_bus_factor(COLLECTIVE_BROADCAST, 16), 1, 1e-12);
    near(collective_bus_factor(COLLECTIVE_ALL_REDUCE, 1), 0, 0);
}

static struct collective_model model_of(struct fabric fabric, enum collective c, uint32_t per_node,
                                        uint32_t nodes)
{
    struct collective_model model;
    struct err err = {0};
    if (collective_model_build(&fabric, c, per_node, nodes, &model, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return model;
}

static void more_bytes_never_take_less_time(void **state)
{
    (void)state;
    const struct fabric fabrics[] = {a100_node(),           h100_node(),          b200_node(),
                                     pcie_node(LINK_PCIE),  pcie_node(LINK_HOST), mi300x_node(),
                                     pcie_node(LINK_BRIDGE)};
    static const uint32_t per_node[] = {1, 2, 5, 8}, nodes[] = {1, 2, 3, 16, 12500};
    size_t checked = 0;
    for (size_t f = 0; f < sizeof fabrics / sizeof *fabrics; f++)
        for (enum collective c = 0; c < COLLECTIVE_COUNT; c++)
            for (size_t g = 0; g < 20; g++) {
                if (per_node[g % 4] * nodes[g / 4] == 1)
                    continue;
                struct collective_model m = model_of(fabrics[f], c, per_node[g % 4], nodes[g / 4]);
                double before = 0;
                for (int i = 0; i < 347; i++) {
                    const double bytes = pow(1.09, i); /* to 9e12 */
                    const struct collective_cost cost = collective_cost(&m, (uint64_t)bytes);
                    assert_true(isfinite(cost.seconds));
                    assert_true(cost.seconds >= before);
                    assert_true(cost.channels >= 1 && cost.channels <= 64);
                    assert_true(cost.bytes_per_s > 0 && cost.latency_s > 0 && cost.spread > 0);
                    before = cost.seconds;
                    checked++;
                }
                collective_model_free(&m);
            }
    assert_true(checked > 100000);
}

/* Rings get longer: the same bytes over twice the nodes take longer. Not so all_reduce, where NCCL
 * leaves a ring for a tree by its estimate, at other sizes for other numbers of nodes. */
static void more_nodes_never_take_less_time(void **state)
{
    (void)state;
    for (enum collective c = 0; c < COLLECTIVE_COUNT; c++)
        for (uint64_t bytes = KIB(1); bytes <= GIB(16) && c != COLLECTIVE_ALL_REDUCE; bytes *= 4) {
            double before = 0;
            for (uint32_t nodes = 1; nodes <= 8192; nodes *= 2) {
                struct collective_model m = model_of(h100_node(), c, 8, nodes);
                const double seconds = collective_cost(&m, bytes).seconds;
                assert_true(seconds >= before);
                before = seconds;
                collective_model_free(&m);
            }
        }
}

/* No collective beats the bytes its links must carry: bus bandwidth stays below the datasheet's. */
static void bus_bandwidth_stays_below_the_links(void **state)
{
    (void)state;
    const struct fabric h100 = h100_node();
    for (enum collective c = 0; c < COLLECTIVE_COUNT; c++)
        for (uint32_t nodes = 1; nodes <= 64; nodes *= 4) {
            if (c == COLLECTIVE_ALL_REDUCE && nodes == 1)
                continue; /* NVLS adds in the switch: its bus bandwidth is no link's rate */
            struct collective_model m = model_of(h100, c, 8, nodes);
            const double bus =
                collective_cost(&m, GIB(64)).bytes_per_s * collective_bus_factor(c, 8 * nodes);
            assert_true(bus <= (nodes == 1 ? 450e9 : 400e9));
            assert_true(bus >= .7 * (nodes == 1 ? 450e9 : 400e9));
            collective_model_free(&m);
        }
}

static void a_single_rank_and_no_bytes_cost_nothing(void **state)
{
    (void)state;
    struct collective_model one = model_of(h100_node(), COLLECTIVE_ALL_GATHER, 1, 1);
    assert_true(collective_cost(&one, GIB(1)).seconds == 0);
    assert_int_equal(collective_cost(&one, GIB(1)).channels, 0);
    struct collective_model eight = model_of(h100_node(), COLLECTIVE_ALL_GATHER, 8, 1);
    assert_true(collective_cost(&eight, 0).seconds == 0);
    collective_model_free(&one);
    collective_model_free(&eight);
}

/* Simple ring: the peer's write, my read, my write of (n-1)/n of the bytes. */
static void hbm_traffic_of_a_gather_is_three_passes(void **state)
{
    (void)state;
    struct collective_model m = model_of(h100_node(), COLLECTIVE_ALL_GATHER, 8, 1);
    const struct collective_cost cost = collective_cost(&m, GIB(1));
    assert_int_equal(cost.protocol, NCCL_SIMPLE);
    near(cost.hbm_bytes, 3 * .875 * 1073741824.0, 1);
    collective_model_free(&m);
}

/* HSDP's replicate group: one rank a node, and so one of the eight cards; the latency of PAT grows
 * with the logarithm of the nodes and 2.8 us a rank (tuning.cc). */
static void a_rank_a_node_has_one_card(void **state)
{
    (void)state;
    struct collective_model replicas = model_of(h100_node(), COLLECTIVE_ALL_REDUCE, 1, 64);
    const double bus = collective_cost(&replicas, GIB(16)).bytes_per_s *
                       collective_bus_factor(COLLECTIVE_ALL_REDUCE, 64);
    assert_true(bus <= 50e9 && bus > 40e9);
    collective_model_free(&replicas);

    struct collective_model gather = model_of(h100_node(), COLLECTIVE_ALL_GATHER, 1, 64);
    near(gather.tuning.ways[NCCL_PAT][NCCL_SIMPLE].latency_us, 8 + 6 * 14 / 3.5 + 64 * 2.8, 1e-9);
    collective_model_free(&gather);
}

static void a_slower_network_is_slower(void **state)
{
    (void)state;
    double before = 0;
    static const enum fabric_network networks[] = {
        NETWORK_INFINIBAND, NETWORK_ROCE, NETWORK_EFA, NETWORK_TCPXO, NETWORK_EFA_V1, NETWORK_TCPX};
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        struct fabric fabric = h100_node();
        fabric.network = networks[i];
        struct collective_model m = model_of(fabric, COLLECTIVE_ALL_GATHER, 8, 2);
        const double seconds = collective_cost(&m, KIB(64)).seconds;
        assert_true(seconds > before);
        before = seconds;
        collective_model_free(&m);
    }
    struct fabric given = h100_node();
    given.nic_latency_s = 1e-3;
    near(fabric_crossing_s(&given), 1e-3, 0);
}

/* NCCL_PROTO=Simple,LL128 and NCCL_NVLS_ENABLE=0 with TCPXO, and its tuner takes what is fastest;
 * NCCL_ALGO=Ring, NCCL_PROTO=Simple with TCPX; in a node as between nodes. */
static void googles_networks_run_as_google_says(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 4; nodes *= 2)
        for (enum collective c = 0; c < COLLECTIVE_COUNT; c++) {
            struct fabric fabric = h100_node();
            fabric.network = NETWORK_TCPX;
            struct collective_model high = model_of(fabric, c, 8, (uint32_t)nodes);
            fabric.network = NETWORK_TCPXO;
            struct collective_model mega = model_of(fabric, c, 8, (uint32_t)nodes);
            for (uint64_t bytes = 256; bytes <= GIB(8); bytes *= 2) {
                const struct collective_cost x = collective_cost(&high, bytes);
                const struct collective_cost o = collective_cost(&mega, bytes);
                assert_true(x.algorithm == NCCL_RING && x.protocol == NCCL_SIMPLE);
                assert_true(o.protocol != NCCL_LL && o.algorithm != NCCL_NVLS &&
                            o.algorithm != NCCL_NVLS_TREE);
                for (enum nccl_algorithm a = 0; a < NCCL_ALGORITHMS; a++)
                    for (enum nccl_protocol p = 0; p < NCCL_PROTOCOLS; p++)
                        assert_true(o.seconds <=
                                    collective_forced_seconds(&mega, a, p, bytes) * (1 + 1e-9));
            }
            collective_model_free(&high);
            collective_model_free(&mega);
        }
}

/* AWS's plug-in sets NCCL_PROTO=simple with the first EFA: nothing else runs. */
static void the_first_efa_has_one_protocol(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 4; nodes *= 2)
        for (enum collective c = 0; c < COLLECTIVE_COUNT; c++) {
            struct fabric fabric = h100_node();
            fabric.network = NETWORK_EFA_V1;
            struct collective_model m = model_of(fabric, c, 8, (uint32_t)nodes);
            for (uint64_t bytes = 256; bytes <= GIB(8); bytes *= 2)
                assert_int_equal(collective_cost(&m, bytes).protocol, NCCL_SIMPLE);
            collective_model_free(&m);
        }
}

static void a_bridge_serves_pairs_only(void **state)
{
    (void)state;
    struct collective_model two = model_of(pcie_node(LINK_BRIDGE), COLLECTIVE_ALL_GATHER, 2, 1);
    struct collective_model four = model_of(pcie_node(LINK_BRIDGE), COLLECTIVE_ALL_GATHER, 4, 1);
    struct collective_model none = model_of(pcie_node(LINK_PCIE), COLLECTIVE_ALL_GATHER, 4, 1);
    assert_true(collective_cost(&two, GIB(1)).bytes_per_s > 2 * 200e9);
    assert_true(collective_cost(&four, GIB(1)).seconds == collective_cost(&none, GIB(1)).seconds);
    collective_model_free(&two);
    collective_model_free(&four);
    collective_model_free(&none);
}

static void measured_points_stand_in_their_layout(void **state)
{
    (void)state;
    const struct collective_point points[] = {
        {COLLECTIVE_ALL_GATHER, 8, 1, MIB(1), 45.43e-6},
        {COLLECTIVE_ALL_GATHER, 8, 1, MIB(64), 208.6e-6},
        {COLLECTIVE_ALL_GATHER, 8, 1, MIB(16), 70.13e-6},
        {COLLECTIVE_ALL_GATHER, 8, 1, GIB(1), 2707.8e-6},
        {COLLECTIVE_ALL_REDUCE, 8, 1, MIB(16), 1},
    };
    const struct collective_table table = {points, 5};
    struct fabric fabric = h100_node();
    fabric.measured = &table;
    struct collective_model m = model_of(fabric, COLLECTIVE_ALL_GATHER, 8, 1);
    for (size_t i = 0; i < 4; i++) {
        const struct collective_cost cost = collective_cost(&m, points[i].bytes);
        assert_true(cost.measured);
        near(cost.seconds, points[i].seconds, 1e-9 * points[i].seconds);
    }
    double before = 0;
    for (int i = 0; i < 566; i++) {
        const double bytes = pow(1.05, i); /* to 9e11 */
        const double seconds = collective_cost(&m, (uint64_t)bytes).seconds;
        assert_true(seconds >= before);
        before = seconds;
    }
    collective_model_free(&m);

    struct collective_model other = model_of(fabric, COLLECTIVE_ALL_GATHER, 8, 2);
    struct collective_model reduce = model_of(fabric, COLLECTIVE_ALL_REDUCE, 8, 1);
    assert_false(collective_cost(&other, MIB(16)).measured);
    assert_false(collective_cost(&reduce, MIB(16)).measured); /* one point is no curve */
    collective_model_free(&other);
    collective_model_free(&reduce);
}

static void refused(struct fabric fabric, uint32_t per_node, uint32_t nodes, const char *word)
{
    struct collective_model model;
    struct err err = {0};
    assert_int_equal(
        collective_model_build(&fabric, COLLECTIVE_ALL_GATHER, per_node, nodes, &model, &err),
        ERR_INVALID);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not name %s", err.text, word);
}

static void impossible_groups_are_refused_by_name(void **state)
{
    (void)state;
    refused(h100_node(), 16, 1, "at most 8");
    refused(h100_node(), 0, 1, "1 or more");
    refused(h100_node(), 8, 0, "1 or more");
    refused(h100_node(), 8, UINT32_MAX, "at most");
    struct fabric fabric = h100_node();
    fabric.nics_per_node = 0;
    refused(fabric, 8, 2, "nics_per_node");
    fabric = h100_node();
    fabric.link_bytes_per_s = 0;
    refused(fabric, 8, 1, "link_bytes_per_s");
    fabric = pcie_node(LINK_PCIE);
    fabric.pcie_bytes_per_s = NAN;
    refused(fabric, 8, 1, "pcie_bytes_per_s");
    fabric = h100_node();
    fabric.nic_latency_s = -1;
    refused(fabric, 8, 2, "nic_latency_s");
}

static void a_table_with_a_time_of_zero_is_refused(void **state)
{
    (void)state;
    const struct collective_point points[] = {{COLLECTIVE_ALL_GATHER, 8, 1, 1, 1e-6},
                                              {COLLECTIVE_ALL_GATHER, 8, 1, 2, 0},
                                              {COLLECTIVE_ALL_GATHER, 8, 1, 4, 1e-6}};
    const struct collective_table table = {points, 3};
    struct fabric fabric = h100_node();
    fabric.measured = &table;
    refused(fabric, 8, 1, "all_gather of 8 ranks on 1 nodes");
}

/* By hand, beside trees.cc and all_reduce.h: 16 GPUs of two nodes are a chain of 7 steps, an edge
 * and 7 steps less one back: 2 x (7 + 1) chunks of 512 KiB at half of 23.6 GB/s. What is beyond
 * latency and transfer at 4 GiB is that. */
static void a_tree_by_simple_stores_and_forwards_chunks(void **state)
{
    (void)state;
    struct fabric fabric = a100_node();
    struct collective_model m = model_of(fabric, COLLECTIVE_ALL_REDUCE, 8, 2);
    const struct collective_way *way = &m.way[NCCL_TREE][NCCL_SIMPLE];
    const double fill = 16 * 524288 / 11.8e9;
    near(collective_forced_seconds(&m, NCCL_TREE, NCCL_SIMPLE, GIB(4)) - way->latency_s -
             (double)GIB(4) / way->bytes_per_s,
         fill, 1e-3 * fill);
    collective_model_free(&m);
}

/* With TCPX the wait of a small message and the transfer of a large one hide each other. */
static void with_tcpx_a_large_message_waits_for_little(void **state)
{
    (void)state;
    struct fabric fabric = h100_node();
    fabric.network = NETWORK_TCPX;
    fabric.nics_per_node = 4;
    fabric.nic_bytes_per_s = 25e9;
    struct collective_model m = model_of(fabric, COLLECTIVE_ALL_GATHER, 8, 2);
    const struct collective_way *way = &m.way[NCCL_RING][NCCL_SIMPLE];
    const double large = (double)GIB(8) / way->bytes_per_s;
    assert_true(collective_forced_seconds(&m, NCCL_RING, NCCL_SIMPLE, 1) >= way->latency_s);
    near(collective_forced_seconds(&m, NCCL_RING, NCCL_SIMPLE, GIB(8)), large, 1e-4 * large);
    near(1e-9 * way->bytes_per_s, .72 * 100 * 16 / 15, 1e-6); /* bus bandwidth is 15/16 of it */
    collective_model_free(&m);
}

/* Two neighbours and one in the two trees of three nodes: 4/3 of what four nodes have. */
static void three_nodes_send_less_than_four(void **state)
{
    (void)state;
    struct fabric fabric = a100_node();
    struct collective_model three = model_of(fabric, COLLECTIVE_ALL_REDUCE, 8, 3);
    struct collective_model four = model_of(fabric, COLLECTIVE_ALL_REDUCE, 8, 4);
    near(three.way[NCCL_TREE][NCCL_SIMPLE].bytes_per_s /
             four.way[NCCL_TREE][NCCL_SIMPLE].bytes_per_s,
         4. / 3, 1e-9);
    collective_model_free(&three);
    collective_model_free(&four);
}

/* Twenty racks: five edges to the root, so eight heads with children on the way there and back,
 * each a turn of 64 MiB at half of what two racks have. */
static void heads_of_many_racks_hold_a_turn_each(void **state)
{
    (void)state;
    struct fabric rack = b200_node();
    rack.gpus_per_node = rack.nics_per_node = 72;
    struct collective_model two = model_of(rack, COLLECTIVE_ALL_REDUCE, 72, 2);
    struct collective_model twenty = model_of(rack, COLLECTIVE_ALL_REDUCE, 72, 20);
    const struct collective_way *way = &twenty.way[NCCL_NVLS_TREE][NCCL_SIMPLE];
    near(two.way[NCCL_NVLS_TREE][NCCL_SIMPLE].bytes_per_s / way->bytes_per_s, 2, 1e-9);
    near(collective_forced_seconds(&twenty, NCCL_NVLS_TREE, NCCL_SIMPLE, GIB(1)) - way->latency_s -
             (double)GIB(1) / way->bytes_per_s,
         10 * (double)MIB(64) / way->bytes_per_s, 1e-9);
    collective_model_free(&two);
    collective_model_free(&twenty);
}

struct tally {
    size_t large, large_in, small, small_in, ends;
};

static void compare(void *context, const struct published_row *row)
{
    struct tally *t = context;
    if (row->unknown)
        return;
    struct collective_cost cost;
    const double ratio = published_predict(row, &cost) / row->seconds;
    if (row->bytes > MIB(16)) {
        t->large++;
        t->large_in += fabs(ratio - 1) <= .10;
    } else {
        t->small++;
        t->small_in += ratio <= 1.5 && ratio >= 1 / 1.5;
    }
    const bool sweep =
        strncmp(row->id, "a100x8_ar", 9) == 0 || strncmp(row->id, "h200x8_ar", 9) == 0;
    if (sweep && row->bytes >= GIB(8)) {
        t->ends++;
        near(ratio, 1, .03);
    }
}

/* reports/validation/collectives.md: of the 23 large misses 12 are two setups that others outdo on
 * the same machines. */
static void published_rows_are_met_as_reported(void **state)
{
    (void)state;
    struct tally t = {0};
    published_each(compare, &t);
    assert_int_equal(t.ends, 4);
    assert_int_equal(t.large, 226);
    assert_int_equal(t.small, 206);
    assert_in_range(t.large_in, 202, 226);
    assert_in_range(t.small_in, 183, 206);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tuning_of_8_h200_is_nccls),
        cmocka_unit_test(tuning_of_8_a100_is_nccls),
        cmocka_unit_test(tuning_of_8_b200_is_nccls),
        cmocka_unit_test(tuning_across_nodes_is_nccls),
        cmocka_unit_test(graphs_have_the_channels_nccl_reports),
        cmocka_unit_test(all_reduce_on_h200_changes_to_nvls_between_1_and_2_mib),
        cmocka_unit_test(a_rack_of_72_is_one_node_of_32_heads),
        cmocka_unit_test(a_turn_of_nvls_is_a_chunk_a_channel_and_head),
        cmocka_unit_test(channels_of_nvls_may_be_given),
        cmocka_unit_test(sharp_opens_nvls_across_nodes),
        cmocka_unit_test(nvls_begins_at_5_h200_and_6_b200),
        cmocka_unit_test(tuning_of_2_28_takes_ring_on_5_h200),
        cmocka_unit_test(channels_follow_size),
        cmocka_unit_test(pat_is_for_one_rank_a_node),
        cmocka_unit_test(bus_factors_are_those_of_nccl_tests),
        cmocka_unit_test(more_bytes_never_take_less_time),
        cmocka_unit_test(more_nodes_never_take_less_time),
        cmocka_unit_test(bus_bandwidth_stays_below_the_links),
        cmocka_unit_test(a_single_rank_and_no_bytes_cost_nothing),
        cmocka_unit_test(hbm_traffic_of_a_gather_is_three_passes),
        cmocka_unit_test(a_rank_a_node_has_one_card),
        cmocka_unit_test(a_slower_network_is_slower),
        cmocka_unit_test(googles_networks_run_as_google_says),
        cmocka_unit_test(the_first_efa_has_one_protocol),
        cmocka_unit_test(a_bridge_serves_pairs_only),
        cmocka_unit_test(measured_points_stand_in_their_layout),
        cmocka_unit_test(impossible_groups_are_refused_by_name),
        cmocka_unit_test(a_table_with_a_time_of_zero_is_refused),
        cmocka_unit_test(a_tree_by_simple_stores_and_forwards_chunks),
        cmocka_unit_test(with_tcpx_a_large_message_waits_for_little),
        cmocka_unit_test(three_nodes_send_less_than_four),
        cmocka_unit_test(heads_of_many_racks_hold_a_turn_each),
        cmocka_unit_test(published_rows_are_met_as_reported),
    };
    return cmocka_run_group_tests_name("collective", tests, NULL, NULL);
}
