/* test_device.c - what every device must do, written against device.h alone.
 *
 * Each test runs on every backend of tests/support/backends.h. Numbers are small
 * integers in fp32, so that every check is equality. Streams are kept busy with fills of random
 * sizes, so that an order that nobody asked for is seldom the order one happens to get. */
#include "runtime/device/clock.h"
#include "tests/support/backends.h"
#include "tests/support/lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1048576)

enum {
    CELLS = 12,
    EVENTS = 64,
    BUSY = 1 << 18,      /* elements of a stream's own array for keeping busy */
    DEADLOCK_AFTER = 240 /* s: then SIGALRM ends the test program */
};

struct fixture {
    struct device *dev;
    uint64_t cells; /* (CELLS) numbers, then (TEST_LANES, BUSY) */
    uint64_t random;
};

/* ---- helpers ---- */

static uint32_t below(struct fixture *f, uint32_t bound)
{
    f->random = f->random * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((f->random >> 33) % bound);
}

static uint64_t cell(const struct fixture *f, uint32_t i)
{
    return f->cells + i * sizeof(float);
}

static struct work_operand at(uint64_t address, uint32_t elements)
{
    return (struct work_operand){
        .data = (void *)(uintptr_t)address, .shape = SHAPE(elements), .dtype = DTYPE_FP32};
}

static enum err_code try_launch(struct fixture *f, uint8_t stream, enum work_kind kind, uint32_t id,
                                struct work_operand in, struct work_operand out, float scale,
                                struct err *err)
{
    struct work_operand operand[] = {in, out};
    struct work work = {.kind = kind,
                        .instruction = id,
                        .ins = 1,
                        .outs = 1,
                        .operand = operand,
                        .ranks = 1,
                        .attr.p = scale};
    if (kind == WORK_FILL) {
        work.ins = 0;
        work.operand = &operand[1];
    }
    const enum err_code rc = device_launch(f->dev, stream, &work, err);
    memset(operand, 0xff, sizeof operand); /* the device has its own copy */
    memset(&work, 0xff, sizeof work);
    return rc;
}

static void launch(struct fixture *f, uint8_t stream, enum work_kind kind, uint32_t id,
                   struct work_operand in, struct work_operand out, float scale)
{
    struct err err = {0};
    if (try_launch(f, stream, kind, id, in, out, scale, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static void fill(struct fixture *f, uint8_t stream, uint32_t to, float value)
{
    launch(f, stream, WORK_FILL, 1, at(0, 1), at(cell(f, to), 1), value);
}

static void add(struct fixture *f, uint8_t stream, uint32_t from, uint32_t to)
{
    launch(f, stream, WORK_ADD_IN_PLACE, 2, at(cell(f, from), 1), at(cell(f, to), 1), 0);
}

static void keep_busy(struct fixture *f, uint8_t stream, uint32_t elements)
{
    const uint64_t own = cell(f, CELLS) + (uint64_t)stream * BUSY * sizeof(float);
    launch(f, stream, WORK_FILL, 3, at(0, 1), at(own, elements), 1);
}

static void record(struct fixture *f, uint8_t stream, uint32_t event)
{
    assert_int_equal(device_record(f->dev, stream, event, NULL), ERR_OK);
}

static void wait(struct fixture *f, uint8_t stream, uint32_t event)
{
    assert_int_equal(device_wait(f->dev, stream, event, NULL), ERR_OK);
}

static void sync_all(struct fixture *f)
{
    struct err err = {0};
    if (device_sync(f->dev, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static float value_of(struct fixture *f, uint32_t i)
{
    float value = -1;
    assert_int_equal(device_read(f->dev, &value, cell(f, i), sizeof value, NULL), ERR_OK);
    return value;
}

static void expect_cell(struct fixture *f, uint32_t i, float expected)
{
    assert_int_equal((int)value_of(f, i), (int)expected);
}

/* An ADD_IN_PLACE of operands that do not fit together: it fails when it runs, or at once. */
static void launch_wrong(struct fixture *f, uint8_t stream, uint32_t id)
{
    const enum err_code rc =
        try_launch(f, stream, WORK_ADD_IN_PLACE, id, at(cell(f, 0), 3), at(cell(f, 4), 2), 0, NULL);
    assert_true(rc == ERR_OK || rc == ERR_INVALID);
}

static int set_up(void **state)
{
    const struct backend *backend = *state;
    struct fixture *f = xmalloc(sizeof *f);
    f->random = 1;
    alarm(DEADLOCK_AFTER);
    assert_int_equal(backend->open(64 * MIB, EVENTS, test_lanes, NULL, &f->dev, NULL), ERR_OK);
    f->cells = device_segment_new(f->dev, cell(&(struct fixture){0}, CELLS) +
                                              (uint64_t)TEST_LANES * BUSY * sizeof(float));
    assert_true(f->cells != 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    device_close(f->dev);
    free(f);
    alarm(0);
    return 0;
}

/* ---- memory ---- */

static void what_is_written_is_read_back(void **state)
{
    struct fixture *f = *state;
    char sent[1000], received[1000] = {0};
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = (char)(i * 7);
    assert_int_equal(device_write(f->dev, f->cells + 5, sent, sizeof sent, NULL), ERR_OK);
    assert_int_equal(device_read(f->dev, received, f->cells + 5, sizeof received, NULL), ERR_OK);
    assert_memory_equal(received, sent, sizeof sent);
}

static void reads_and_writes_wait_for_what_was_queued(void **state)
{
    struct fixture *f = *state;
    for (int i = 1; i < 50; i++) {
        const float value = (float)i;
        keep_busy(f, COPY_IN_LANE, BUSY);
        fill(f, COPY_IN_LANE, 0, value);
        expect_cell(f, 0, value);
        keep_busy(f, COPY_IN_LANE, BUSY);
        launch(f, COPY_IN_LANE, WORK_COPY, 4, at(cell(f, 0), 1), at(cell(f, 1), 1), 0);
        const float other = -value;
        assert_int_equal(device_write(f->dev, cell(f, 0), &other, sizeof other, NULL), ERR_OK);
        expect_cell(f, 1, value);
        expect_cell(f, 0, other);
    }
}

static void segments_do_not_overlap_and_a_full_device_gives_none(void **state)
{
    const struct backend *backend = *state;
    struct device *dev;
    assert_int_equal(backend->open(8 * MIB, 1, test_lanes, NULL, &dev, NULL), ERR_OK);
    uint64_t segment[4];
    for (uint32_t i = 0; i < 4; i++) {
        segment[i] = device_segment_new(dev, 2 * MIB - i); /* a part of a granule takes it whole */
        assert_true(segment[i] != 0 && segment[i] % 512 == 0);
        for (uint32_t j = 0; j < i; j++)
            assert_true(segment[j] + 2 * MIB <= segment[i] || segment[i] + 2 * MIB <= segment[j]);
        assert_int_equal(device_write(dev, segment[i] + MIB, "12345678", 8, NULL), ERR_OK);
    }
    assert_true(device_segment_new(dev, 1) == 0);
    device_segment_drop(dev, segment[1], 2 * MIB - 1);
    device_segment_drop(dev, segment[3], 2 * MIB - 3);
    assert_true(device_segment_new(dev, 8 * MIB) == 0);
    device_close(dev);
}

static void dropped_segments_are_used_again(void **state)
{
    const struct backend *backend = *state;
    struct device *dev;
    assert_int_equal(backend->open(8 * MIB, 1, test_lanes, NULL, &dev, NULL), ERR_OK);
    for (int round = 0; round < 100; round++) {
        const uint64_t a = device_segment_new(dev, 4 * MIB), b = device_segment_new(dev, 4 * MIB);
        assert_true(a != 0 && b != 0);
        device_segment_drop(dev, a, 4 * MIB);
        device_segment_drop(dev, b, 4 * MIB);
        const uint64_t whole = device_segment_new(dev, 8 * MIB); /* neighbours join */
        assert_true(whole != 0);
        device_segment_drop(dev, whole, 8 * MIB);
    }
    device_close(dev);
}

static void a_big_device_opens_at_once(void **state)
{
    const struct backend *backend = *state;
    struct device *dev;
    if (strcmp(backend->name, "host") != 0)
        skip(); /* no GPU has to have 80 GiB */
    assert_int_equal(backend->open(80 * 1024 * MIB, 1, test_lanes, NULL, &dev, NULL), ERR_OK);
    uint32_t segments = 0;
    for (uint64_t address; (address = device_segment_new(dev, 20 * MIB)) != 0; segments++)
        if (segments % 512 == 0)
            assert_int_equal(device_write(dev, address, "x", 1, NULL), ERR_OK);
    assert_int_equal(segments, 4096);
    device_close(dev);
}

/* ---- order ---- */

static void work_on_one_stream_runs_in_order(void **state)
{
    struct fixture *f = *state;
    for (uint32_t s = 0; s < TEST_LANES; s++) {
        const uint8_t stream = (uint8_t)s;
        fill(f, stream, 0, 1);
        fill(f, stream, 1, 0);
        for (uint32_t i = 0; i < 200; i++) { /* 1 <- 1 + 1, 0 <- 2, then 0 <- 1 again, and so on */
            add(f, stream, 0, 1);
            fill(f, stream, 0, 2);
            keep_busy(f, stream, 1 + below(f, 4096));
            fill(f, stream, 0, 1);
        }
        expect_cell(f, 1, 200);
    }
}

static void a_wait_orders_two_streams(void **state)
{
    struct fixture *f = *state;
    for (int i = 1; i < 100; i++) {
        const float value = (float)i;
        keep_busy(f, COPY_IN_LANE, 1 + below(f, BUSY));
        fill(f, COPY_IN_LANE, 0, value);
        record(f, COPY_IN_LANE, 0);
        wait(f, ALL_GATHER_LANE, 0);
        launch(f, ALL_GATHER_LANE, WORK_COPY, 5, at(cell(f, 0), 1), at(cell(f, 1), 1), 0);
        record(f, ALL_GATHER_LANE, 1);
        wait(f, LANE_HOST, 1);
        launch(f, LANE_HOST, WORK_COPY, 6, at(cell(f, 1), 1), at(cell(f, 2), 1), 0);
        expect_cell(f, 2, value);
    }
}

/* Every cell has an event, recorded again by each stream that touches the cell. */
static void random_waits_give_the_result_of_host_order(void **state)
{
    struct fixture *f = *state;
    float expected[CELLS] = {0};
    assert_int_equal(device_write(f->dev, f->cells, expected, sizeof expected, NULL), ERR_OK);
    for (uint32_t i = 0; i < 4000; i++) {
        const uint8_t stream = (uint8_t)below(f, TEST_LANES);
        const uint32_t a = below(f, CELLS), b = (a + 1 + below(f, CELLS - 1)) % CELLS;
        if (below(f, 4) == 0)
            keep_busy(f, stream, 1 + below(f, 20000));
        wait(f, stream, a);
        wait(f, stream, b);
        if (expected[a] + expected[b] > 1e6F || below(f, 3) == 0) {
            expected[b] = (float)below(f, 100);
            fill(f, stream, b, expected[b]);
        } else {
            expected[b] += expected[a];
            add(f, stream, a, b);
        }
        record(f, stream, a);
        record(f, stream, b);
        if (i % 1000 == 999)
            sync_all(f);
    }
    for (uint32_t i = 0; i < CELLS; i++)
        expect_cell(f, i, expected[i]);
}

/* If a wait looked at the event when it runs, it would wait for the record that follows it. */
static void a_wait_holds_for_the_record_before_it(void **state)
{
    struct fixture *f = *state;
    fill(f, LANE_COMPUTE, 0, 0);
    fill(f, LANE_COMPUTE, 1, 1);
    for (uint32_t step = 0; step < 500; step++) {
        const uint8_t from = step % 2 ? LANE_COMPUTE : COPY_IN_LANE;
        const uint8_t to = step % 2 ? COPY_IN_LANE : LANE_COMPUTE;
        wait(f, from, 7); /* before its first record: holds for nothing */
        keep_busy(f, from, 1 + below(f, 2000));
        record(f, LANE_COMPUTE, 9);
        wait(f, from, 9);
        add(f, from, 1, 0);
        record(f, from, 7);
        wait(f, to, 7);
        record(f, to, 7);
    }
    expect_cell(f, 0, 500);
}

static void the_host_runs_ahead_by_thousands(void **state)
{
    struct fixture *f = *state;
    const uint64_t before = f->dev->launches;
    fill(f, LANE_COMPUTE, 0, 1);
    fill(f, LANE_COMPUTE, 1, 0);
    keep_busy(f, LANE_COMPUTE, BUSY);
    for (uint32_t i = 0; i < 20000; i++)
        add(f, LANE_COMPUTE, 0, 1);
    expect_cell(f, 1, 20000);
    assert_int_equal(f->dev->launches - before, 20003);
}

/* ---- one rank's collectives ---- */

static void collectives_of_one_rank_are_copies(void **state)
{
    struct fixture *f = *state;
    const float sent[] = {1, 2, 3, 4};
    float received[8] = {0};
    const struct work_operand x = at(cell(f, 0), 4), y = at(cell(f, 4), 4);
    assert_int_equal(device_write(f->dev, f->cells, sent, sizeof sent, NULL), ERR_OK);
    launch(f, ALL_GATHER_LANE, WORK_ALL_GATHER, 10, x, x, 0);
    launch(f, ALL_GATHER_LANE, WORK_REDUCE_SCATTER_AVG, 11, x, y, 0);
    launch(f, ALL_GATHER_LANE, WORK_ALL_REDUCE_AVG, 12, y, y, 0);
    launch(f, ALL_GATHER_LANE, WORK_BROADCAST, 13, y, y, 0);
    assert_int_equal(device_read(f->dev, received, f->cells, sizeof received, NULL), ERR_OK);
    assert_memory_equal(received, sent, sizeof sent);
    assert_memory_equal(received + 4, sent, sizeof sent);
}

static void a_collective_whose_operands_do_not_fit_is_refused(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    enum err_code rc = try_launch(f, REDUCE_SCATTER_LANE, WORK_REDUCE_SCATTER_AVG, 77,
                                  at(cell(f, 0), 3), at(cell(f, 4), 2), 0, &err);
    if (rc == ERR_OK)
        rc = device_sync(f->dev, &err);
    assert_int_equal(rc, ERR_INVALID);
    assert_non_null(strstr(err.text, "instruction 77"));
}

/* A broadcast of four numbers as rank 2 of 8, whose peers are absent. */
static enum err_code try_broadcast(struct fixture *f, uint32_t root, double wait_s, struct err *err)
{
    const struct work_operand x[] = {at(f->cells, 4), at(f->cells, 4)};
    const struct work work = {.kind = WORK_BROADCAST,
                              .instruction = 78,
                              .ins = 1,
                              .outs = 1,
                              .operand = x,
                              .rank = 2,
                              .ranks = 8,
                              .attr.dim = root,
                              .wait_s = wait_s};
    enum err_code rc = device_launch(f->dev, ALL_GATHER_LANE, &work, err);
    return rc == ERR_OK ? device_sync(f->dev, err) : rc;
}

static void add_seconds(void *context, uint32_t instruction, uint8_t stream, double begin_s,
                        double end_s)
{
    (void)stream;
    if (instruction == 78)
        *(double *)context += end_s - begin_s;
}

static void a_rehearsed_broadcast_only_takes_time(void **state)
{
    struct fixture *f = *state;
    const float sent[] = {5, 6, 7, 8};
    float received[4] = {0};
    double seconds = 0;
    assert_int_equal(device_write(f->dev, f->cells, sent, sizeof sent, NULL), ERR_OK);
    assert_int_equal(try_broadcast(f, 7, 0.02, NULL), ERR_OK);
    f->dev->ops->take_times(f->dev, add_seconds, &seconds);
    assert_true(seconds >= 0.0199 && seconds < 10); /* a clock of its own says so */
    assert_int_equal(device_read(f->dev, received, f->cells, sizeof received, NULL), ERR_OK);
    assert_memory_equal(received, sent, sizeof sent);
}

/* A kernel of a rehearsal has no operands: what follows it on its stream comes later. */
static void a_kernel_that_is_a_wait_only_takes_time(void **state)
{
    struct fixture *f = *state;
    const struct work work = {.kind = WORK_NONE, .instruction = 78, .group = -1, .wait_s = 0.01};
    const float sent[] = {5, 6, 7, 8};
    float received[4] = {0};
    double seconds = 0;
    assert_int_equal(device_write(f->dev, f->cells, sent, sizeof sent, NULL), ERR_OK);
    for (int lane = 0; lane <= ALL_GATHER_LANE; lane++)
        assert_int_equal(device_launch(f->dev, (uint8_t)lane, &work, NULL), ERR_OK);
    assert_int_equal(device_sync(f->dev, NULL), ERR_OK);
    f->dev->ops->take_times(f->dev, add_seconds, &seconds);
    assert_true(seconds >= 0.0099 * (ALL_GATHER_LANE + 1));
    assert_int_equal(device_read(f->dev, received, f->cells, sizeof received, NULL), ERR_OK);
    assert_memory_equal(received, sent, sizeof sent);
}

static void a_broadcast_is_from_a_rank_of_its_group(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    assert_int_equal(try_broadcast(f, 8, 0, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "instruction 78"));
}

/* ---- failures ---- */

static void a_failure_is_reported_with_its_instruction_and_stays(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    keep_busy(f, LANE_COMPUTE, BUSY);
    launch_wrong(f, LANE_COMPUTE, 4242);
    assert_int_equal(device_sync(f->dev, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "instruction 4242"));

    struct err again = {0};
    float value;
    assert_int_equal(device_read(f->dev, &value, f->cells, sizeof value, &again), ERR_INVALID);
    assert_string_equal(again.text, err.text);
    assert_int_equal(device_record(f->dev, LANE_COMPUTE, 0, NULL), ERR_INVALID);
    assert_int_equal(device_wait(f->dev, LANE_COMPUTE, 0, NULL), ERR_INVALID);
    assert_int_equal(try_launch(f, LANE_HOST, WORK_FILL, 1, at(0, 1), at(f->cells, 1), 1, NULL),
                     ERR_INVALID);
}

static void a_failure_leaves_nothing_waiting(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    enum err_code rc = ERR_OK;
    for (uint32_t i = 0; i < 2000 && rc == ERR_OK; i++) {
        const uint8_t from = (uint8_t)(i % TEST_LANES);
        const uint8_t to = (uint8_t)((i + 1) % TEST_LANES);
        const uint32_t wrong = i == 700 ? 1 : 0; /* one element too many */
        rc = try_launch(f, from, WORK_ADD_IN_PLACE, i, at(cell(f, 0), 2 + wrong), at(cell(f, 4), 2),
                        0, &err);
        if (rc == ERR_OK)
            rc = device_record(f->dev, from, i % EVENTS, &err);
        if (rc == ERR_OK)
            rc = device_wait(f->dev, to, i % EVENTS, &err);
    }
    if (rc == ERR_OK)
        rc = device_sync(f->dev, &err);
    assert_int_equal(rc, ERR_INVALID);
    assert_non_null(strstr(err.text, "instruction 700"));
    device_segment_drop(f->dev, device_segment_new(f->dev, MIB), MIB); /* waits, and returns */
}

static void closing_drops_what_is_pending(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 3000; i++) {
        const uint8_t stream = (uint8_t)below(f, TEST_LANES);
        wait(f, stream, below(f, EVENTS));
        keep_busy(f, stream, BUSY);
        record(f, stream, below(f, EVENTS));
    } /* tear_down closes: all of it would take minutes */
}

/* ---- times ---- */

struct times {
    uint32_t count, last[TEST_LANES];
    double launched_s, synced_s; /* on the host's clock: the first, and all of it */
    double end_s[TEST_LANES];
};

static void take_time(void *context, uint32_t instruction, uint8_t stream, double begin_s,
                      double end_s)
{
    struct times *times = context;
    assert_true(begin_s >= times->end_s[stream] && end_s >= begin_s);
    assert_true(begin_s >= times->launched_s && end_s <= times->synced_s);
    assert_int_equal(instruction, times->last[stream] + 1);
    times->last[stream] = instruction;
    times->end_s[stream] = end_s;
    times->count++;
}

static void every_piece_of_work_has_its_time_once(void **state)
{
    struct fixture *f = *state;
    struct times times = {0};
    for (uint32_t step = 0; step < 3; step++) {
        times.launched_s = clock_now_s();
        for (uint32_t i = 0; i < 300; i++)
            launch(f, (uint8_t)(i % 3), WORK_FILL, step * 100 + i / 3 + 1, at(0, 1),
                   at(cell(f, i % 3), 1), 1);
        sync_all(f);
        times.synced_s = clock_now_s();
        f->dev->ops->take_times(f->dev, take_time, &times);
        assert_int_equal(times.count, 300 * (step + 1));
        f->dev->ops->take_times(f->dev, take_time, &times);
        assert_int_equal(times.count, 300 * (step + 1));
    }
}

/* ---- which GPU ---- */

/* The fourth process of a machine with one GPU is one too many, unless its launcher hid the others'
 * from it. */
static void a_bound_process_takes_the_one_gpu_it_sees(void **state)
{
    const struct backend *backend = *state;
    struct device *dev = NULL;
    struct err err = {0};
    char kept[4096];
    const char *file = getenv("SHARDRUN_EMULATED"), *before = getenv(CUDA_BACKEND_VARIABLE);
    if (strcmp(backend->name, "cuda, emulated") != 0 || !file) {
        skip(); /* which GPUs there are is known of the emulation only */
        return;
    }
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    const struct cuda_settings settings = {.events = 1, .rank = 11, .ranks = 1, .local_rank = 3};
    setenv(CUDA_BACKEND_VARIABLE, file, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(device_open_cuda(&settings, &dev, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "rank 11 is the 4. of this machine, which has 1 GPUs"));
    setenv("SLURM_STEP_GPUS", "5", 1);
    assert_int_equal(device_open_cuda(&settings, &dev, NULL), ERR_OK);
    device_close(dev);
    unsetenv("SLURM_STEP_GPUS");
    if (before)
        setenv(CUDA_BACKEND_VARIABLE, kept, 1);
    else
        unsetenv(CUDA_BACKEND_VARIABLE);
}

/* ---- the table ---- */

#define TEST(function)                                                                             \
    {                                                                                              \
#function, function, NULL, NULL, NULL                                                      \
    }
#define WITH_DEVICE(function)                                                                      \
    {                                                                                              \
#function, function, set_up, tear_down, NULL                                               \
    }

static const struct CMUnitTest suite[] = {
    TEST(the_backend_is_there), /* first: the only one for a backend that is missing */
    TEST(segments_do_not_overlap_and_a_full_device_gives_none),
    TEST(dropped_segments_are_used_again),
    TEST(a_big_device_opens_at_once),
    TEST(a_bound_process_takes_the_one_gpu_it_sees),
    WITH_DEVICE(what_is_written_is_read_back),
    WITH_DEVICE(reads_and_writes_wait_for_what_was_queued),
    WITH_DEVICE(work_on_one_stream_runs_in_order),
    WITH_DEVICE(a_wait_orders_two_streams),
    WITH_DEVICE(random_waits_give_the_result_of_host_order),
    WITH_DEVICE(a_wait_holds_for_the_record_before_it),
    WITH_DEVICE(the_host_runs_ahead_by_thousands),
    WITH_DEVICE(collectives_of_one_rank_are_copies),
    WITH_DEVICE(a_collective_whose_operands_do_not_fit_is_refused),
    WITH_DEVICE(a_rehearsed_broadcast_only_takes_time),
    WITH_DEVICE(a_kernel_that_is_a_wait_only_takes_time),
    WITH_DEVICE(a_broadcast_is_from_a_rank_of_its_group),
    WITH_DEVICE(a_failure_is_reported_with_its_instruction_and_stays),
    WITH_DEVICE(a_failure_leaves_nothing_waiting),
    WITH_DEVICE(closing_drops_what_is_pending),
    WITH_DEVICE(every_piece_of_work_has_its_time_once),
};

enum { SUITE = sizeof suite / sizeof suite[0] };

int main(void)
{
    struct CMUnitTest tests[BACKENDS * SUITE];
    char names[BACKENDS * SUITE][96];
    size_t count = 0;
    for (size_t b = 0; b < BACKENDS; b++) {
        const struct backend *backend = &all_backends()[b];
        for (size_t i = 0; i < (backend->missing ? 1 : SUITE); i++, count++) {
            tests[count] = suite[i];
            snprintf(names[count], sizeof names[count], "%s: %s", backend->name, suite[i].name);
            tests[count].name = names[count];
            tests[count].initial_state = (void *)(uintptr_t)backend;
        }
    }
    return _cmocka_run_group_tests("device", tests, count, NULL, NULL);
}
