/* published.c - see published.h.
 *
 * Rates are of one direction. NVLink 3, 4, 5: 300, 450, 900 GB/s a GPU. Where a source gives no
 * rate of the cards, the instance type's own is taken and remarked. No source before 2.28 used its
 * tables: all rows are predicted by those of 2.27. */
#include "tests/support/published.h"

#include "tests/support/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE(generation_, gbs, slot)                                                               \
    .generation = GENERATION_##generation_, .link = LINK_NVSWITCH, .gpus_per_node = 8,             \
    .link_bytes_per_s = (gbs)*1e9, .pcie_bytes_per_s = (slot)*1e9
#define A100 NODE(AMPERE, 300, 31.5)
#define H100 NODE(HOPPER, 450, 63)
#define B200 NODE(BLACKWELL, 900, 63)
#define CARDS(network_, count, gbs)                                                                \
    .network = NETWORK_##network_, .nics_per_node = (count), .nic_bytes_per_s = (gbs)*1e9
#define RACK                                                                                       \
    .generation = GENERATION_BLACKWELL, .link = LINK_NVSWITCH, .gpus_per_node = 72,                \
    .link_bytes_per_s = 900e9, .pcie_bytes_per_s = 63e9, CARDS(INFINIBAND, 72, 50),                \
    .nvls_channels = 32 /* of NCCL 2.26.2 */

#define PARTITION(count)                                                                           \
    .generation = GENERATION_BLACKWELL, .link = LINK_NVSWITCH, .gpus_per_node = (count),           \
    .link_bytes_per_s = 900e9, .pcie_bytes_per_s = 63e9, CARDS(INFINIBAND, count, 50)

#define USUAL_RATE "rate of the cards not stated: 8 x 400 Gb/s taken, the instance's usual"
#define RACK_REMARK                                                                                \
    "a rack of 72 is one node; the example beside the table of 20 racks switches NVLS off"

#define PARTITION_REMARK "parts of three racks, without NVLS; a card of 400 Gb/s a GPU taken"

static const struct published_machine machines[] = {
    {"a100x8", {A100}, false, NULL, NULL},
    {"h200x8", {H100}, true, NULL, NULL},
    {"H200_", {H100}, true, NULL, NULL},
    {"b200x8", {B200}, true, NULL, NULL},
    {"B200_", {B200}, true, NULL, NULL},
    {"b200x32", {B200, CARDS(EFA, 8, 50)}, true, NULL, NULL},
    {"h200x32", {H100, CARDS(EFA, 16, 25)}, true, "cards of p5en: 16 x 200 Gb/s taken", NULL},
    {"mi300x",
     {.generation = GENERATION_AMD,
      .link = LINK_MESH,
      .gpus_per_node = 8,
      .link_bytes_per_s = 448e9,
      .pcie_bytes_per_s = 63e9},
     false,
     NULL,
     NULL},
    {"bench_readme", {A100}, false, NULL, "hardware not stated"},
    {"nccl1229", {H100}, false, NULL, "size and fabric not stated, rounded numbers"},
    {"nccl1281", {H100}, false, NULL, "size not stated"},
    {"nccl1218", {H100}, false, NULL, "rate of the cards not stated, one iteration, rounded"},
    {"infiniccl", {A100}, false, NULL, "interconnect not stated"},
    {"gcp_a3mega", {H100, CARDS(TCPXO, 8, 25)}, false, NULL, NULL},
    {"gcp_a3ultra", {H100, CARDS(ROCE, 8, 50)}, false, NULL, NULL},
    {"gcp_a3high", {H100, CARDS(TCPX, 4, 25)}, false, NULL, NULL},
    {"dstack_gcp_a4", {B200, CARDS(ROCE, 8, 50)}, false, NULL, NULL},
    {"dstack_gcp_a3mega", {H100, CARDS(TCPXO, 8, 25)}, false, NULL, NULL},
    {"dstack_gcp_a3high",
     {H100, CARDS(TCPX, 4, 25)},
     false,
     "the same instance type elsewhere reaches 1.4 times this bandwidth",
     NULL},
    {"dstack_lambda_b200", {B200, CARDS(INFINIBAND, 8, 50)}, false, USUAL_RATE, NULL},
    {"dstack_nebius", {H100, CARDS(INFINIBAND, 8, 50)}, false, USUAL_RATE, NULL},
    {"aws_p4de", {A100, CARDS(EFA_V1, 4, 12.5)}, false, NULL, NULL},
    {"aws_p5_2n",
     {H100, CARDS(EFA, 32, 12.5)},
     false,
     "AWS's plugin has a tuner of its own, for more nodes",
     NULL},
    {"aws_p5_2n_ar_eks",
     {H100, CARDS(EFA, 32, 12.5)},
     false,
     "NCCL 2.18.5 and AWS's plugin of 2023: half the bandwidth of aws_p5_2n_ar",
     NULL},
    {"aws_p5_1n", {H100}, false, NULL, NULL},
    {"oci_h100", {H100, CARDS(ROCE, 8, 50)}, false, USUAL_RATE, NULL},
    {"coreweave_h100", {H100, CARDS(INFINIBAND_SHARP, 8, 50)}, false, USUAL_RATE, NULL},
    {"coreweave_gb200", {RACK}, false, RACK_REMARK, NULL},
    {"simumax_h100", {H100}, false, NULL, NULL},
    {"gb200_3xnvl4", {PARTITION(4)}, false, PARTITION_REMARK, NULL},
    {"gb200_3xnvl8", {PARTITION(8)}, false, PARTITION_REMARK, NULL},
};

static const struct published_machine *machine_of(const char *id)
{
    const struct published_machine *best = NULL;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (strncmp(id, machines[i].prefix, strlen(machines[i].prefix)) == 0 &&
            (!best || strlen(machines[i].prefix) > strlen(best->prefix)))
            best = &machines[i];
    return best;
}

static void finish_row(struct published_row *row)
{
    row->machine = machine_of(row->id);
    if (!row->machine) {
        fprintf(stderr, "tests/support/published.c: no machine for %s\n", row->id);
        exit(1);
    }
    row->unknown = row->machine->unknown;
    if (row->machine->fabric.gpus_per_node == 72) /* the sources count hosts of 4 GPUs */
        row->nodes = row->ranks / 72;
    if (strcmp(row->collective, "alltoall") == 0)
        row->unknown = "all-to-all is not planned";
    else if (row->bytes == 0)
        row->unknown = row->unknown ? row->unknown : "no bytes";
    else if (!(row->seconds > 0))
        row->unknown = row->unknown ? row->unknown : "no time";
    const char *id = row->id;
    row->forced = strstr(id, "nvlsoff") || strstr(id, "GiB_") || strstr(id, "forced");
    row->algorithm = strstr(id, "_nvlstree")  ? NCCL_NVLS_TREE
                     : strstr(id, "_NVLS")    ? NCCL_NVLS
                     : strstr(id, "GiB_tree") ? NCCL_TREE
                                              : NCCL_RING;
    row->forced = row->forced && !strstr(id, "default");
}

static struct published_row begin_row(const struct csv *csv, size_t i, const char *id)
{
    struct published_row row = {.bytes = (uint64_t)csv_number(csv, i, "size_bytes"),
                                .ranks = (uint32_t)csv_number(csv, i, "n_gpus"),
                                .nodes = (uint32_t)csv_number(csv, i, "n_nodes")};
    row.nodes = row.nodes ? row.nodes : 1;
    snprintf(row.id, sizeof row.id, "%s", csv_text(csv, i, id));
    snprintf(row.collective, sizeof row.collective, "%s", csv_text(csv, i, "collective"));
    return row;
}

static void each_point(void (*visit)(void *, const struct published_row *), void *context)
{
    struct csv csv = csv_read("tests/data/published/collective_points.csv");
    for (size_t i = 0; i < csv.rows; i++) {
        struct published_row row = begin_row(&csv, i, "point_id");
        const double time_us = csv_number(&csv, i, "time_us");
        const double bus = csv_number(&csv, i, "busbw_GBps");
        const double factor = strcmp(row.collective, "all_reduce") == 0
                                  ? collective_bus_factor(COLLECTIVE_ALL_REDUCE, row.ranks)
                                  : collective_bus_factor(COLLECTIVE_ALL_GATHER, row.ranks);
        /* The finest of what a row gives: busbw has more digits than a derived algbw. */
        if (time_us > 0)
            row.seconds = 1e-6 * time_us;
        else if (bus > 0)
            row.seconds = (double)row.bytes * factor / (1e9 * bus);
        finish_row(&row);
        if (!(time_us > 0) && !row.unknown && *csv_text(&csv, i, "algbw_GBps") && bus < .1)
            row.unknown = "bandwidth given to one digit";
        visit(context, &row);
    }
    csv_free(&csv);
}

static void each_table(void (*visit)(void *, const struct published_row *), void *context)
{
    struct csv csv = csv_read("tests/data/published/nccl_tests_tables.csv");
    for (size_t i = 0; i < csv.rows; i++) {
        struct published_row row = begin_row(&csv, i, "table_id");
        const bool in_place = *csv_text(&csv, i, "ip_time_us") != '\0';
        row.seconds = 1e-6 * csv_number(&csv, i, in_place ? "ip_time_us" : "oop_time_us");
        finish_row(&row);
        visit(context, &row);
    }
    csv_free(&csv);
}

void published_each(void (*visit)(void *context, const struct published_row *row), void *context)
{
    each_table(visit, context);
    each_point(visit, context);
}

static enum collective collective_of(const char *name)
{
    for (enum collective c = 0; c < COLLECTIVE_COUNT; c++)
        if (strcmp(name, collective_name(c)) == 0)
            return c;
    fprintf(stderr, "tests/data/published: unknown collective %s\n", name);
    exit(1);
}

double published_predict(const struct published_row *row, struct collective_cost *cost)
{
    struct collective_model model;
    struct err err = {0};
    if (collective_model_build(&row->machine->fabric, collective_of(row->collective),
                               row->ranks / row->nodes, row->nodes, &model, &err) != ERR_OK) {
        fprintf(stderr, "%s: %s\n", row->id, err.text);
        exit(1);
    }
    *cost = collective_cost(&model, row->bytes);
    if (row->forced) {
        cost->algorithm = row->algorithm;
        cost->protocol = NCCL_SIMPLE;
        cost->seconds = collective_forced_seconds(&model, row->algorithm, NCCL_SIMPLE, row->bytes);
    }
    collective_model_free(&model);
    return cost->seconds + (row->machine->isolated ? COLLECTIVE_ISOLATED_S : 0);
}
