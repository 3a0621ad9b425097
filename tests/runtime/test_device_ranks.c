/* test_device_ranks.c - the host device among several ranks: collectives on streams, and what
 * happens to them when something fails (see ranks.h for how ranks are started). */
#include "runtime/host/host_device.h"
#include "tests/support/lanes.h"
#include "tests/support/ranks.h"

#include <string.h>

enum { BUSY = 3 << 20 }; /* elements: a fill of them takes longer than queueing some launches */

/* ---- a rank ---- */

struct rig {
    struct comm *comm;
    struct device *dev;
    float *memory;
    uint32_t ranks;
};

static struct rig open_rig(uint32_t ranks)
{
    const struct comm_group world = {.ranks = ranks, .stride = 1};
    struct rig rig = {.comm = open_comm(&world, 1, 60), .ranks = ranks};
    REQUIRE_OK(device_open_host(16 << 20, 8, test_lanes, rig.comm, &rig.dev, &err));
    rig.memory = (float *)(uintptr_t)device_segment_new(rig.dev, BUSY * sizeof(float));
    return rig;
}

static enum err_code collect_from(struct rig *rig, uint8_t stream, enum work_kind kind, uint32_t id,
                                  float *in, uint32_t in_count, float *out, uint32_t out_count,
                                  uint32_t root, struct err *err)
{
    const struct work_operand operand[] = {
        {.data = in, .shape = SHAPE(in_count), .dtype = DTYPE_FP32},
        {.data = out, .shape = SHAPE(out_count), .dtype = DTYPE_FP32}};
    const struct work work = {.kind = kind,
                              .instruction = id,
                              .ins = 1,
                              .outs = 1,
                              .operand = operand,
                              .attr.dim = root,
                              .rank = comm_rank(rig->comm),
                              .ranks = rig->ranks};
    return device_launch(rig->dev, stream, &work, err);
}

static enum err_code collect(struct rig *rig, uint8_t stream, enum work_kind kind, uint32_t id,
                             float *in, uint32_t in_count, float *out, uint32_t out_count,
                             struct err *err)
{
    return collect_from(rig, stream, kind, id, in, in_count, out, out_count, 0, err);
}

/* A step as FSDP2 does it: gather on one stream, reduce on another, the same group. */
static void rank_device(uint32_t ranks)
{
    enum { COUNT = 1000 };
    struct rig rig = open_rig(ranks);
    const uint32_t rank = comm_rank(rig.comm), all = COUNT * ranks;
    float *gathered = rig.memory, *reduced = gathered + all;
    for (uint32_t step = 0; step < 20; step++) {
        for (uint32_t i = 0; i < COUNT; i++)
            gathered[rank * COUNT + i] = (float)(rank + i + step);
        REQUIRE_OK(
            collect(&rig, ALL_GATHER_LANE, WORK_ALL_GATHER, 1, gathered, all, gathered, all, &err));
        REQUIRE_OK(device_record(rig.dev, ALL_GATHER_LANE, 0, &err));
        REQUIRE_OK(device_wait(rig.dev, REDUCE_SCATTER_LANE, 0, &err));
        REQUIRE_OK(collect(&rig, REDUCE_SCATTER_LANE, WORK_REDUCE_SCATTER_AVG, 2, gathered, all,
                           reduced, COUNT, &err));
        REQUIRE_OK(collect(&rig, REDUCE_SCATTER_LANE, WORK_ALL_REDUCE_AVG, 3, reduced, COUNT,
                           reduced, COUNT, &err));
        REQUIRE_OK(device_sync(rig.dev, &err));
        for (uint32_t i = 0, owner = 0; i < all; i++, owner = i / COUNT)
            REQUIRE(gathered[i] == (float)(i % COUNT + step) + (float)owner);
        for (uint32_t i = 0; i < COUNT; i++) /* the average of 0 ... ranks - 1 is (ranks - 1) / 2 */
            REQUIRE(reduced[i] == 0.5F * (float)(ranks - 1) + (float)(i + step));
        for (uint32_t i = 0; i < COUNT; i++)
            reduced[i] = (float)(rank + i + step);
        memset(gathered, 0, all * sizeof *gathered);
        REQUIRE_OK(collect(&rig, ALL_GATHER_LANE, WORK_ALL_GATHER, 5, reduced, COUNT, gathered, all,
                           &err));
        REQUIRE_OK(device_sync(rig.dev, &err));
        for (uint32_t i = 0, owner = 0; i < all; i++, owner = i / COUNT) /* as in place */
            REQUIRE(gathered[i] == (float)(i % COUNT + step) + (float)owner);
        REQUIRE_OK(collect(&rig, REDUCE_SCATTER_LANE, WORK_REDUCE_SCATTER_SUM, 6, gathered, all,
                           reduced, COUNT, &err));
        REQUIRE_OK(device_sync(rig.dev, &err));
        for (uint32_t i = 0; i < COUNT; i++)
            REQUIRE(reduced[i] == (float)(ranks * (rank + i + step)));
        REQUIRE_OK(device_record(rig.dev, REDUCE_SCATTER_LANE, 0, &err));
        memset(reduced, 0, COUNT * sizeof *reduced);
        REQUIRE_OK(collect(&rig, REDUCE_SCATTER_LANE, WORK_REDUCE_SCATTER_SUM, 7, gathered, all,
                           reduced, COUNT, &err));
        REQUIRE_OK(device_record(rig.dev, REDUCE_SCATTER_LANE, 0, &err));
        REQUIRE_OK(device_hold(rig.dev, 0, &err)); /* the host may look at it then */
        REQUIRE(reduced[0] == (float)(ranks * (rank + step)));
        const uint32_t root = step % ranks;
        for (uint32_t i = 0; i < COUNT; i++)
            reduced[i] = (float)(1000 * rank + i);
        REQUIRE_OK(collect_from(&rig, ALL_REDUCE_LANE, WORK_BROADCAST, 4, reduced, COUNT, reduced,
                                COUNT, root, &err));
        REQUIRE_OK(device_sync(rig.dev, &err));
        for (uint32_t i = 0; i < COUNT; i++)
            REQUIRE(reduced[i] == (float)(1000 * root + i));
    }
    device_close(rig.dev);
    comm_close(rig.comm);
}

static enum err_code fill(struct rig *rig, uint8_t stream, uint32_t id, struct err *err)
{
    const struct work_operand y = {.data = rig->memory, .shape = SHAPE(BUSY), .dtype = DTYPE_FP32};
    const struct work work = {
        .kind = WORK_FILL, .instruction = id, .outs = 1, .operand = &y, .attr.p = 1};
    return device_launch(rig->dev, stream, &work, err);
}

/* Work that fails when it runs: its two operands do not fit together. */
static enum err_code add_wrong(struct rig *rig, uint8_t stream, uint32_t id, struct err *err)
{
    const struct work_operand operand[] = {
        {.data = rig->memory, .shape = SHAPE(3), .dtype = DTYPE_FP32},
        {.data = rig->memory + 8, .shape = SHAPE(2), .dtype = DTYPE_FP32}};
    const struct work work = {
        .kind = WORK_ADD_IN_PLACE, .instruction = id, .ins = 1, .outs = 1, .operand = operand};
    return device_launch(rig->dev, stream, &work, err);
}

/* Turns of one group are taken on two streams. One stream fails before its turn, so that the other
 * waits for work that is skipped; it must go on, and closing must end. */
static void rank_failure(uint32_t ranks)
{
    struct rig rig = open_rig(ranks);
    struct err failure = {0};
    float *x = rig.memory + 64;
    REQUIRE_OK(fill(&rig, ALL_GATHER_LANE, 19, &err));
    REQUIRE_OK(add_wrong(&rig, ALL_GATHER_LANE, 20, &err));
    enum err_code rc = ERR_OK;
    for (uint32_t i = 21; i < 41 && rc == ERR_OK; i++) {
        const uint8_t stream = i % 2 ? ALL_GATHER_LANE : REDUCE_SCATTER_LANE;
        rc = collect(&rig, stream, WORK_ALL_REDUCE_AVG, i, x, 64, x, 64, &failure);
    }
    if (rc == ERR_OK)
        rc = device_sync(rig.dev, &failure);
    REQUIRE(rc == ERR_INVALID && strstr(failure.text, "instruction 20"));
    device_close(rig.dev);
    comm_close(rig.comm);
}

/* One rank fails and ends the run, as an executor does; the others are in a collective. */
static void rank_alone(uint32_t ranks)
{
    struct rig rig = open_rig(ranks);
    struct err failure = {0};
    if (comm_rank(rig.comm) == ranks - 1)
        REQUIRE_OK(add_wrong(&rig, LANE_COMPUTE, 30, &err));
    else
        REQUIRE_OK(collect(&rig, ALL_REDUCE_LANE, WORK_ALL_REDUCE_AVG, 31, rig.memory, 4,
                           rig.memory, 4, &err));
    REQUIRE(device_sync(rig.dev, &failure) == ERR_INVALID);
    comm_abort(rig.comm, 1, failure.text);
}

static const struct rank_check checks[] = {
    {"device", rank_device}, {"failure", rank_failure}, {"alone", rank_alone}, {NULL, NULL}};

/* ---- the tests ---- */

static void collectives_run_on_streams(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        if (ranks == 2 || ranks == 3)
            among_forked(&checks[0], ranks);
        else
            among(ranks, "device");
}

static void skipped_collectives_keep_nobody_waiting(void **state)
{
    (void)state;
    among(1, "failure");
}

static void a_failure_of_one_rank_ends_the_run(void **state)
{
    (void)state;
    expect_end("alone", 3, 1, "instruction 30");
}

int main(void)
{
    const char *check = getenv(RANK_VARIABLE);
    if (check)
        return run_as_rank(checks, check);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_run_on_streams),
        cmocka_unit_test(skipped_collectives_keep_nobody_waiting),
        cmocka_unit_test(a_failure_of_one_rank_ends_the_run),
    };
    return cmocka_run_group_tests_name("device_ranks", tests, NULL, NULL);
}
