/* collective.c - see collective.h.
 *
 * What is calibrated here, all on published sweeps (tests/data/published), none on single rows:
 *   fillings            the sweeps named there, three pairs for all generations
 *   link_sustained      the large end of the same sweeps, one number a GPU generation
 *   NIC_SUSTAINED       median over the sweeps that the cards bound
 *   TCPX_SUSTAINED      the large end of 16 x H100 A3 High
 *   NVLS_BEYOND_HEADS   one rack of 72 x GB200
 *   SHARP_SUSTAINED     64 x H100 with SHARP
 *   call_s              the small end of the A100 sweep; the H100 sweep needs none */
#include "nccl/collective.h"

#include "base/arena.h"
#include "stats/fit.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* How often a Simple pipeline pays its latency again, and over how many latencies of transfer. A
 * tree has only the second: tree_fill_s has what it waits for. */
enum { FILLING_RING_ONCE, FILLING_REDUCE, FILLING_SWITCH };
static const struct filling {
    double fill, span;
} fillings[] = {
    [FILLING_RING_ONCE] = {2.2, 10}, /* all_gather, reduce_scatter: 8 x H100, 16 x H200 */
    [FILLING_REDUCE] = {2.2, 3},     /* all_reduce by ring or tree: 8 x A100, a ring */
    [FILLING_SWITCH] = {2.5, 1.7},   /* NVLS: 8 x H100, H200, B200; NVLSTree: 16 x H100, B200 */
};

/* What goes through a switch is copied in, reduced and sent back, and copied out by three groups of
 * warps, each a turn of the loop behind the one before it (all_reduce.h): the last turn ends two
 * turns after the first group has ended. Where turns are long, as in a rack, that is the longer
 * fill. */
#define SWITCH_TURNS 2

#define LARGE (16U << 20)

/* What Tree moves at once in a channel by Simple: an eighth of a buffer of 4 MiB (enqueue.cc,
 * calcCollChunking: buffSizes over NCCL_STEPS; up to 2.19 less where a message had few chunks). */
#define TREE_CHUNK 524288.0

/* Between two passes over the same size of the published nccl-tests tables (out of place and in
 * place): the middle difference is 1 %, one in twenty is above 10 %. */
#define MEASURED_SPREAD .04

/* Of the cards' datasheet rate, what large messages reach: 32 x H200 EFA .91, 32 x B200 EFA .95,
 * 16 x H100 TCPXO .94, 16 x B200 .91 to .94, 16 x H200 RoCE .84, 64 x H100 InfiniBand .96. */
#define NIC_SUSTAINED .92

/* ... of TCPX: 16 x H100 A3 High gain 76.5 GB/s of bytes from 256 to 512 MiB, 71.7 of 100 on the
 * bus. (Another setup of the same instances has .50.) */
#define TCPX_SUSTAINED .72

/* Sockets are bound by the processor, whatever the card: 1 to 8 GB/s were seen on loopback. */
#define SOCKET_GBS 8

/* Of RCCL's mesh: 2 x MI300X 47.7 of 64 GB/s (.745), 8 x MI300X 312.9 of 448 (.70), all_reduce. */
#define MESH_SUSTAINED .72

/* Through host memory each byte crosses it twice; 5 to 12 GB/s were seen where the slot gives 24.
 */
#define HOST_SUSTAINED .4

/* Ring bandwidth over NVLink, of what NCCL's graph promises: 8 x A100 234 of 240, 8 x H200 361 to
 * 366 of 360, 8 x B200 682 of 720 GB/s. Volta and Ada have no sweep: Ampere's. */
static double link_sustained(enum gpu_generation generation)
{
    switch (generation) {
    case GENERATION_HOPPER:
        return 1.01;
    case GENERATION_BLACKWELL:
        return .95;
    default:
        return .98;
    }
}

/* Of the link's rate, in a rack whose ranks are more than NVLS's heads: one number to the 5 rows of
 * 72 x GB200 (residuals 8 % rms, -15 % at 512 MiB); the 6 rows of 144 in two racks, which it was
 * not fitted to, are within 8 %. */
#define NVLS_BEYOND_HEADS .59

/* Of what NVLS sustains in a node, where the network's switches reduce the nodes' results (SHARP):
 * one number to the 5 rows of 64 x H100 (residuals 3 % rms). */
#define SHARP_SUSTAINED .70

/* How often a node's cards send each byte of an all_reduce by two trees, half the bytes by each: to
 * its parent and two children in one and to its parent in the other, once to the only other node.
 * Of three, two neighbours and one: checked, 3 x 4 and 3 x 8 GB200 are 8 and 9 % off, with two 45.
 */
static double tree_sends(uint32_t nodes)
{
    return nodes <= 2 ? 1 : nodes == 3 ? 1.5 : 2;
}

/* Ranks of a node that are no heads wait for those that are. */
static bool heads_set_the_pace(const struct nccl_tuning_model *t)
{
    return t->ranks / t->nodes > t->graphs.nvls.channels;
}

/* The switch's multicast and reduction. A head sends its own share twice, so each link carries
 * 1 + 1/heads of an all_reduce's bytes; of the link's rate .85 and .74 pass (tuning.cc,
 * nvlsEfficiency). Checked: 5 to 8 H200 and 6 to 8 B200 within 3 %. */
static double nvls_gbs(const struct nccl_tuning_model *t)
{
    const double heads = t->graphs.nvls.channels;
    const double passed = heads_set_the_pace(t)                   ? NVLS_BEYOND_HEADS
                          : t->generation == GENERATION_BLACKWELL ? .74
                                                                  : .85;
    const double carried = t->collective == COLLECTIVE_ALL_REDUCE ? 1 + 1 / heads : 1;
    return t->graphs.link_gbs * t->graphs.beyond * passed / carried;
}

/* tuning.cc, perChMaxNVLSTreeBws: a channel's rate, measured by NCCL's authors; the 2.27 tables
 * have none, the hardware is the same. Columns: two nodes, more. */
static double nvls_tree_bus(const struct nccl_tuning_model *t)
{
    static const double hopper[] = {57.7, 45.5}, blackwell[] = {96, 43.8};
    const double *caps = t->generation == GENERATION_BLACKWELL ? blackwell : hopper;
    return t->graphs.nvls.channels * caps[t->nodes > 2];
}

/* Of NVLS's rate inside a node, what is left in trees of nodes whose heads set the pace, which then
 * send each byte twice, as tuning.cc has it (bwInter / 2). Not fitted; checked: from one size to
 * the next two racks of GB200 gain 429 GB/s in the end, and 20 racks 215. */
static double nvls_tree_gbs(const struct nccl_tuning_model *t)
{
    return heads_set_the_pace(t) ? nvls_gbs(t) / tree_sends(t->nodes) : nvls_gbs(t);
}

static double slot_share(const struct fabric *f)
{
    return f->pcie_share > 0 ? f->pcie_share : 1;
}

/* GB/s of bus bandwidth that the ring's links sustain inside a node. */
static double ring_inside(const struct fabric *f, const struct nccl_tuning_model *t)
{
    const struct nccl_graphs *g = &t->graphs;
    if (t->ranks == t->nodes)
        return f->pcie_bytes_per_s > 0 ? f->pcie_bytes_per_s * 1e-9 : INFINITY;
    if (f->link == LINK_MESH)
        return MESH_SUSTAINED * f->link_bytes_per_s * 1e-9 * ((double)t->ranks / t->nodes - 1) /
               fmax(1, f->gpus_per_node - 1.0);
    if (!g->nvlink && f->link == LINK_HOST)
        return HOST_SUSTAINED * slot_share(f) * g->link_gbs;
    /* Across nodes the graph follows the cards: what the links would give alone is one node's. */
    const struct nccl_graph ring =
        t->nodes == 1 ? g->ring : nccl_graph_search(f, t->ranks / t->nodes, 1).ring;
    const double promised = ring.channels * ring.intra * g->beyond;
    return (g->nvlink ? link_sustained(f->generation) : slot_share(f)) * promised;
}

static double cards(const struct fabric *f, const struct nccl_tuning_model *t)
{
    const double sustained = f->network == NETWORK_TCPX ? TCPX_SUSTAINED : NIC_SUSTAINED;
    const double gbs = sustained * t->graphs.nics_gbs;
    return f->network == NETWORK_SOCKET ? fmin(gbs, SOCKET_GBS) : gbs;
}

/* GB/s of the collective's bytes at endless size. */
static double sustained(const struct fabric *f, const struct nccl_tuning_model *t,
                        enum nccl_algorithm a, enum nccl_protocol p)
{
    const double promised = t->ways[a][p].gbs;
    const double inside = ring_inside(f, t);
    const double nics = t->nodes > 1 ? cards(f, t) : INFINITY;
    const double to_bytes = 1 / collective_bus_factor(t->collective, t->ranks);
    const double tree_nics = nics / tree_sends(t->nodes);
    if (a == NCCL_TREE) {
        const double counted = t->nodes > 2 ? 2 : 1; /* sends, by tuning.cc: half of bwInter */
        return fmin(fmin(promised * counted / tree_sends(t->nodes), inside * .5), tree_nics);
    }
    if (p != NCCL_SIMPLE)
        return fmin(promised, fmin(inside, nics) * to_bytes);
    switch (a) {
    case NCCL_NVLS: /* each card sends and receives once what its GPU is the head of */
        return t->nodes == 1 ? nvls_gbs(t) : fmin(SHARP_SUSTAINED * nvls_gbs(t), nics);
    case NCCL_NVLS_TREE:
        return fmin(fmin(nvls_tree_gbs(t), nvls_tree_bus(t) * to_bytes), tree_nics);
    case NCCL_PAT:
        return fmin(promised, nics * to_bytes);
    default:
        return fmin(inside, nics) * to_bytes;
    }
}

/* What a call adds to NCCL's latency on this generation: 28 us at 32 and 64 KiB on 8 x A100, 0 up
 * to 1 MiB on 8 x H100 (both nccl-tests). */
static double call_s(enum gpu_generation generation)
{
    return generation == GENERATION_HOPPER || generation == GENERATION_BLACKWELL ? 0 : 28e-6;
}

/* Edges between the deepest node and the root of NCCL's binary trees (trees.cc, ncclGetBtree). */
static uint32_t tree_edges(uint32_t nodes)
{
    uint32_t edges = 0;
    while (edges < 31 && UINT32_C(1) << edges < nodes)
        edges++;
    return edges;
}

/* By Simple a rank of a tree has a whole chunk before it sends that on, along the chain of each
 * node and from node to node: the first chunk climbs while nothing goes down yet, the last goes
 * down when nothing climbs any more, each with all that its channel can move or its share of the
 * links. The first is half of what NCCL's authors measured of a channel, as theirs is bus
 * bandwidth, up and down together. Not fitted; checked: the 11 rows of 2 MiB and more on 2 x 8 x
 * A100 (p4de) are within 12 %, which were up to 28 % too fast with a multiple of NCCL's latency and
 * NCCL's own correction of the bandwidth in its place. */
static double tree_fill_s(const struct fabric *f, const struct nccl_tuning_model *t)
{
    const double moved = t->tree_channel_gbs / 2;
    const double linked = fmin(moved, ring_inside(f, t) / t->graphs.channels);
    const uint32_t per_node = t->ranks / t->nodes;
    const double chain = 2.0 * (per_node - 1), edges = 2.0 * tree_edges(t->nodes);
    return 1e-9 * TREE_CHUNK * (chain / linked + edges / moved);
}

static struct collective_way way_of(const struct fabric *f, const struct nccl_tuning_model *t,
                                    enum nccl_algorithm a, enum nccl_protocol p)
{
    const struct nccl_way *way = &t->ways[a][p];
    double pipeline_s = 1e-6 * way->latency_us;
    const struct filling *filling = &fillings[FILLING_REDUCE];
    if (a == NCCL_NVLS || a == NCCL_NVLS_TREE)
        filling = &fillings[FILLING_SWITCH];
    else if (t->collective != COLLECTIVE_ALL_REDUCE)
        filling = &fillings[FILLING_RING_ONCE];
    double fill_s = p == NCCL_SIMPLE ? filling->fill * pipeline_s : 0;
    if (a == NCCL_TREE && p == NCCL_SIMPLE)
        fill_s = tree_fill_s(f, t);
    if (a == NCCL_RING && p == NCCL_SIMPLE && t->nodes > 1 &&
        t->collective == COLLECTIVE_ALL_REDUCE) {
        /* tuning.cc, "plateau effect of ring": NCCL's own term for the same */
        pipeline_s *= t->generation == GENERATION_VOLTA ? 1.9 : 1.4;
        fill_s = 0;
    }
    return (struct collective_way){
        .hides = t->nodes > 1 && f->network == NETWORK_TCPX,
        .latency_s = pipeline_s + way->crossings * fabric_crossing_s(f) + call_s(f->generation),
        .fill_s = fill_s,
        .span_s = filling->span * pipeline_s,
        .bytes_per_s = 1e9 * sustained(f, t, a, p),
    };
}

/* Turns of the loop that a switch's pipeline fills for. Heads that set the pace of a tree of nodes
 * are those with a parent and children: each of them, up to the root and back, holds a turn. */
static double switch_turns(const struct nccl_tuning_model *t, enum nccl_algorithm a)
{
    const bool paced = a == NCCL_NVLS_TREE && t->nodes > 2 && heads_set_the_pace(t);
    return SWITCH_TURNS + (paced ? 2.0 * (tree_edges(t->nodes) - 1) : 0);
}

static double wall_seconds(const struct collective_model *m, enum nccl_algorithm a,
                           enum nccl_protocol p, double bytes)
{
    const struct collective_way *way = &m->way[a][p];
    assert(way->bytes_per_s > 0 && way->latency_s >= 0); /* a way that is open */
    double transfer = bytes / way->bytes_per_s;
    if (a == NCCL_TREE && p != NCCL_SIMPLE) /* of Simple, what it stands for is the fill */
        transfer /= nccl_tree_correction(p, bytes);
    double fill_s = way->fill_s > 0 ? way->fill_s * -expm1(-transfer / way->span_s) : 0;
    if (a == NCCL_NVLS || a == NCCL_NVLS_TREE) {
        const double turn = fmin(bytes, nccl_tuning_loop_bytes(&m->tuning, a, bytes));
        fill_s = fmax(fill_s, switch_turns(&m->tuning, a) * turn / way->bytes_per_s);
    }
    const double wait_s = way->latency_s + fill_s;
    return way->hides ? hypot(wait_s, transfer) : wait_s + transfer;
}

double collective_forced_seconds(const struct collective_model *model,
                                 enum nccl_algorithm algorithm, enum nccl_protocol protocol,
                                 uint64_t bytes)
{
    if (model->way[algorithm][protocol].bytes_per_s <= 0)
        return INFINITY;
    return wall_seconds(model, algorithm, protocol, (double)bytes);
}

/* The way that is taken: NCCL's choice, but for TCPXO, whose plug-in has a tuner with a table of
 * measured times (a3plus_tuner_config.textproto): what is fastest there. */
static void choose(const struct collective_model *m, uint64_t bytes, enum nccl_algorithm *algorithm,
                   enum nccl_protocol *protocol)
{
    double least = INFINITY;
    if (!m->is_tuned) {
        nccl_tuning_choose(&m->tuning, bytes, algorithm, protocol);
        return;
    }
    for (enum nccl_algorithm a = 0; a < NCCL_ALGORITHMS; a++)
        for (enum nccl_protocol p = 0; p < NCCL_PROTOCOLS; p++) {
            const double seconds = collective_forced_seconds(m, a, p, bytes);
            if (seconds < least) {
                least = seconds;
                *algorithm = a;
                *protocol = p;
            }
        }
}

/* The stretch that begins at `bytes`, unless it runs as the one before it. */
static void add_stretch(struct collective_model *m, uint64_t bytes)
{
    struct collective_stretch next = {.from_bytes = bytes};
    choose(m, bytes, &next.algorithm, &next.protocol);
    if (m->stretches > 0) {
        const struct collective_stretch *last = &m->stretch[m->stretches - 1];
        if (last->algorithm == next.algorithm && last->protocol == next.protocol)
            return;
        assert(bytes > last->from_bytes);
        const double before = wall_seconds(m, last->algorithm, last->protocol, (double)bytes);
        next.least_s = fmax(last->least_s, before);
    }
    if (m->stretches < COLLECTIVE_MAX_STRETCHES)
        m->stretch[m->stretches++] = next;
}

/* NCCL's choice changes a few times from bytes to terabytes: looked for at eight sizes an octave
 * (the tree's table steps by octaves), then by halving. */
static void find_stretches(struct collective_model *m)
{
    uint64_t before = 1;
    add_stretch(m, before);
    for (int i = 1; i <= 8 * 42; i++) {
        const uint64_t at = (uint64_t)exp2(i / 8.0);
        enum nccl_algorithm a;
        enum nccl_protocol p;
        choose(m, at, &a, &p);
        const struct collective_stretch *last = &m->stretch[m->stretches - 1];
        if (a != last->algorithm || p != last->protocol) {
            uint64_t low = before, high = at; /* low still runs as before, high does not */
            while (high - low > 1) {
                const uint64_t middle = low + (high - low) / 2;
                choose(m, middle, &a, &p);
                *(a == last->algorithm && p == last->protocol ? &low : &high) = middle;
            }
            add_stretch(m, high);
        }
        before = at;
    }
}

/* Root mean square of the signed relative error over the published sweeps, racks of GB200 and one
 * table of a broken setup left out (reports/validation/collectives.md): up to 16 MiB and above. Of
 * racks, .06 of one and two (n 11), .09 of twenty (n 6); between nodes' is taken. Links without a
 * sweep get what their few points scatter. */
static void set_spread(const struct fabric *f, struct collective_model *m)
{
    const bool switched = f->link == LINK_NVSWITCH;
    const bool rack = m->tuning.ranks / m->tuning.nodes > NVLS_HEADS_MOST;
    m->spread[0] = switched ? .21 : .40;
    m->spread[1] = rack || m->tuning.nodes > 1 ? .15
                   : switched                  ? .08
                   : f->link == LINK_HOST      ? .50
                                               : .25;
}

/* The measured points of this layout, as a curve; none or fewer than three sizes leave the model.
 */
static enum err_code take_measured(const struct collective_table *table, struct collective_model *m,
                                   struct err *err)
{
    if (!table || table->count == 0)
        return ERR_OK;
    double *bytes = xmalloc(2 * table->count * sizeof *bytes), *seconds = bytes + table->count;
    size_t n = 0, sizes = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct collective_point *p = &table->points[i];
        if (p->collective != m->tuning.collective || p->ranks != m->tuning.ranks ||
            p->nodes != m->tuning.nodes || p->bytes == 0)
            continue;
        size_t seen = 0;
        while (seen < n && bytes[seen] != (double)p->bytes)
            seen++;
        sizes += seen == n;
        bytes[n] = (double)p->bytes;
        seconds[n++] = p->seconds;
    }
    enum err_code rc = ERR_OK;
    if (sizes >= 3)
        rc = fit_curve_new(bytes, seconds, n, &m->curve, err);
    free(bytes);
    if (rc != ERR_OK)
        return err_context(err, "measured %s of %u ranks on %u nodes",
                           collective_name(m->tuning.collective), m->tuning.ranks, m->tuning.nodes);
    return ERR_OK;
}

enum err_code collective_model_build(const struct fabric *fabric, enum collective collective,
                                     uint32_t ranks_per_node, uint32_t nodes,
                                     struct collective_model *out, struct err *err)
{
    *out = (struct collective_model){0};
    TRY(fabric_check(fabric, ranks_per_node, nodes, err));
    out->tuning.collective = collective;
    out->tuning.ranks = ranks_per_node * nodes;
    out->tuning.nodes = nodes;
    if (out->tuning.ranks == 1)
        return ERR_OK;
    out->tuning = nccl_tuning_build(fabric, collective, ranks_per_node, nodes);
    for (enum nccl_algorithm a = 0; a < NCCL_ALGORITHMS; a++)
        for (enum nccl_protocol p = 0; p < NCCL_PROTOCOLS; p++)
            if (out->tuning.ways[a][p].gbs > 0)
                out->way[a][p] = way_of(fabric, &out->tuning, a, p);
    out->is_tuned = fabric->network == NETWORK_TCPXO;
    set_spread(fabric, out);
    find_stretches(out);
    return take_measured(fabric->measured, out, err);
}

void collective_model_free(struct collective_model *model)
{
    fit_curve_free(model->curve);
    *model = (struct collective_model){0};
}

/* Bytes of this GPU's memory touched, buffers not registered. A ring passes its share through a
 * FIFO: a peer writes it, this GPU reads it, and it is written to the output (gather) or added to
 * what is read of the input (scatter). The lines of LL carry a flag with every word, those of LL128
 * one with every 120 bytes. NVLS stages input and output: each is read and written once, and the
 * switch reads and writes once. */
static double hbm_bytes(const struct nccl_tuning_model *t, enum nccl_algorithm a,
                        enum nccl_protocol p, double bytes)
{
    const double fifo = p == NCCL_LL ? 2 : p == NCCL_LL128 ? 128.0 / 120 : 1;
    const double ring = (2 * fifo + 1) * bytes;
    if (t->collective == COLLECTIVE_BROADCAST)
        return ring;
    if (a == NCCL_NVLS || a == NCCL_NVLS_TREE)
        return (t->collective == COLLECTIVE_ALL_REDUCE ? 6 : 3) * bytes;
    return ring * collective_bus_factor(t->collective, t->ranks);
}

struct collective_cost collective_cost(const struct collective_model *m, uint64_t bytes)
{
    struct collective_cost cost = {0};
    if (m->tuning.ranks <= 1 || bytes == 0)
        return cost;
    uint32_t i = 0;
    while (i + 1 < m->stretches && bytes >= m->stretch[i + 1].from_bytes)
        i++;
    assert(m->stretches > 0 && bytes >= m->stretch[i].from_bytes);
    const struct collective_stretch *s = &m->stretch[i];
    const struct collective_way *way = &m->way[s->algorithm][s->protocol];
    cost.algorithm = s->algorithm;
    cost.protocol = s->protocol;
    cost.channels = nccl_tuning_channels(&m->tuning, s->algorithm, s->protocol, bytes);
    cost.hbm_bytes = hbm_bytes(&m->tuning, s->algorithm, s->protocol, (double)bytes);
    if (m->curve) {
        double size[2], seconds[2];
        fit_curve_ends(m->curve, size, seconds);
        cost.seconds = fit_curve_seconds(m->curve, (double)bytes);
        cost.latency_s = seconds[0];
        cost.bytes_per_s = size[1] / seconds[1];
        cost.spread = MEASURED_SPREAD;
        cost.measured = true;
        return cost;
    }
    cost.seconds = fmax(s->least_s, wall_seconds(m, s->algorithm, s->protocol, (double)bytes));
    cost.latency_s = way->latency_s;
    cost.bytes_per_s = way->bytes_per_s;
    cost.spread = m->spread[bytes >= LARGE];
    return cost;
}
