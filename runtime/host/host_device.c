/* host_device.c - the host backend of device.h: the reference that others are tested against.
 *
 *     host thread      launch, record, wait                            never blocks
 *                          |
 *     streams          [ copy_in ] [ compute ] [ all_gather ] ...      host_stream.c
 *                          |            |            |
 *     each thread      host_run     host_run     comm_all_gather       kernels, or MPI
 *
 * Memory is one mapping, reserved and not touched, so that a big arena costs address space only. It
 * is handed out first-fit in granules of 2 MiB, the allocator's own; a byte per granule says
 * whether it is taken:
 *
 *     base   |####|####|    |####|    |    |  ...      next segment of 2 MiB -> granule 2,
 *     taken    1    1    0    1    0    0              of 4 MiB -> granule 4
 *
 * Dropping a segment waits for all streams, as cudaFree does: queued work may still use it.
 *
 * An event is a host_mark: see host_stream.h. A wait for an event that was never recorded holds
 * for nothing, as in CUDA.
 *
 * A collective takes its turn on its group when it is launched. Whatever happens later, its thread
 * uses up that turn, with comm_skip when the work is skipped; otherwise collectives of the same
 * group on other streams would wait for it for ever. */
#include "runtime/host/host_device.h"

#include "base/arena.h"
#include "runtime/device/clock.h"
#include "runtime/host/host_ops.h"
#include "runtime/host/host_stream.h"
#include "runtime/work/operand.h"

#include <assert.h>
#include <cblas.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define GRANULE ((uint64_t)2 << 20)

/* How long closing waits for a collective whose other ranks may be gone. */
static const double CLOSE_GRACE_S = 30.0;

struct host_device {
    struct device device; /* first */
    struct comm *comm;
    struct host_streams *streams;
    struct host_mark *marks; /* (events) the last record of each */
    uint32_t events;
    void *map;
    uint64_t map_bytes;
    uint64_t base;  /* of granule 0 */
    uint8_t *taken; /* (granules) */
    uint64_t granules;
    uint64_t lowest; /* no granule below it is free */
};

static struct host_device *host_of(struct device *dev)
{
    return (struct host_device *)dev;
}

/* ---- collectives ---- */

/* So late is who sleeps, for all that host_stream.c asks (p90 of 2,000 sleeps of 5 to 80 us). */
static const double SLEEPS_LATE_S = 8e-6;

/* Until a time of clock_now_s: asleep, and the last of it looking at the clock. */
static void pause_until(double time_s)
{
    const double wake_s = time_s - SLEEPS_LATE_S, whole = floor(wake_s);
    const struct timespec at = {(time_t)whole, (long)(1e9 * (wake_s - whole))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ; /* the rest */
    while (clock_now_s() < time_s)
        ;
}

static bool is_reduce_scatter(enum work_kind kind)
{
    return kind == WORK_REDUCE_SCATTER_AVG || kind == WORK_REDUCE_SCATTER_SUM;
}

/* One rank, or a rehearsal: this rank's own slice stands for everyone's. What is copied is part of
 * the time that the collective is to take. */
static void run_alone(const struct work *work)
{
    const double begin_s = work->wait_s > 0 ? clock_now_s() : 0.0;
    const struct work_operand *out = &work->operand[1];
    const uint64_t bytes = shape_bytes(&out->shape, (enum dtype)out->dtype);
    const char *from = work->operand[0].data;
    if (work->kind == WORK_ALL_GATHER) {
        const uint64_t slice = bytes / work->ranks;
        const char *own = from == out->data ? from + work->rank * slice : from;
        for (uint32_t r = 0; r < work->ranks; r++)
            if (slice > 0 && (char *)out->data + r * slice != own)
                memcpy((char *)out->data + r * slice, own, slice);
    } else if (is_reduce_scatter(work->kind) && bytes > 0) {
        memcpy(out->data, from + work->rank * bytes, bytes);
    } else if (from != out->data && bytes > 0) {
        memcpy(out->data, from, bytes);
    }
    if (work->wait_s > 0)
        pause_until(begin_s + work->wait_s);
}

/* Onto the rank's own slice of the input: by way of other memory, as the slice is read, too. */
static enum err_code reduce_scatter(struct comm *comm, const struct work *work, uint64_t ticket,
                                    struct err *err)
{
    const struct work_operand *in = work_in(work, 0), *out = work_out(work, 0);
    const uint64_t count = operand_count(out), bytes = count * dtype_bytes((enum dtype)out->dtype);
    const bool in_place = operand_is_own_slice(work, in, out);
    void *to = in_place ? xmalloc(bytes) : out->data;
    const enum err_code rc =
        comm_reduce_scatter(comm, work->group, ticket, in->data, to, count, (enum dtype)out->dtype,
                            work->kind == WORK_REDUCE_SCATTER_AVG, work->instruction, err);
    if (in_place) {
        memcpy(out->data, to, bytes);
        free(to);
    }
    return rc;
}

/* This rank's slice of what is gathered, where it lies elsewhere. */
static void fill_slice(const struct work *work)
{
    const struct work_operand *in = &work->operand[0], *out = &work->operand[1];
    const uint64_t slice = shape_bytes(&out->shape, (enum dtype)out->dtype) / work->ranks;
    if (in->data != out->data && slice > 0)
        memcpy((char *)out->data + work->rank * slice, in->data, slice);
}

static enum err_code run_collective(struct comm *comm, const struct work *work, uint64_t ticket,
                                    struct err *err)
{
    const void *in = work->operand[0].data;
    const struct work_operand *out = &work->operand[1];
    const uint64_t count = shape_elements(&out->shape);
    const enum dtype dtype = (enum dtype)out->dtype;
    const uint32_t id = work->instruction;
    switch (work->kind) {
    case WORK_ALL_GATHER:
        fill_slice(work);
        return comm_all_gather(comm, work->group, ticket, out->data, count / work->ranks, dtype, id,
                               err);
    case WORK_REDUCE_SCATTER_AVG:
    case WORK_REDUCE_SCATTER_SUM:
        return reduce_scatter(comm, work, ticket, err);
    case WORK_BROADCAST:
        return comm_group_broadcast(comm, work->group, ticket, out->data, count, dtype,
                                    work->attr.dim, id, err);
    default:
        return comm_all_reduce(comm, work->group, ticket, in, out->data, count, dtype,
                               work->kind == WORK_ALL_REDUCE_AVG, id, err);
    }
}

/* All but collectives. */
static enum err_code run_kernel(const struct work *work, struct err *err)
{
    if (work->kind != WORK_NONE)
        return host_run(work, err);
    pause_until(clock_now_s() + work->wait_s);
    return ERR_OK;
}

enum err_code host_run_alone(const struct work *work, struct err *err)
{
    if (!work_is_collective(work->kind))
        return run_kernel(work, err);
    TRY(work_check(work, WORK_ON_HOST, err));
    run_alone(work);
    return ERR_OK;
}

static enum err_code run(void *context, const struct work *work, uint64_t ticket, struct err *err)
{
    const struct host_device *host = context;
    if (!work_is_collective(work->kind))
        return run_kernel(work, err);
    if (host->comm)
        return run_collective(host->comm, work, ticket, err);
    run_alone(work);
    return ERR_OK;
}

static void skip(void *context, const struct work *work, uint64_t ticket)
{
    const struct host_device *host = context;
    if (host->comm && work_is_collective(work->kind))
        comm_skip(host->comm, work->group, ticket, work->instruction);
}

/* ---- queues and events ---- */

static enum err_code launch(struct device *dev, uint8_t stream, const struct work *work,
                            struct err *err)
{
    struct host_device *host = host_of(dev);
    uint64_t ticket = 0;
    TRY(host_streams_check(host->streams, err));
    if (work_is_collective(work->kind)) {
        TRY(work_check(work, WORK_ON_HOST,
                       err)); /* before a turn is taken, so that wrong work costs none */
        if (host->comm)
            ticket = comm_ticket(host->comm, work->group);
    }
    host_streams_push(host->streams, stream, work, ticket);
    return ERR_OK;
}

static enum err_code record(struct device *dev, uint8_t stream, uint32_t event, struct err *err)
{
    struct host_device *host = host_of(dev);
    assert(event < host->events);
    host->marks[event] = host_streams_mark(host->streams, stream);
    return host_streams_check(host->streams, err);
}

static enum err_code wait(struct device *dev, uint8_t stream, uint32_t event, struct err *err)
{
    struct host_device *host = host_of(dev);
    assert(event < host->events);
    TRY(host_streams_check(host->streams, err));
    host_streams_wait(host->streams, stream, host->marks[event]);
    return ERR_OK;
}

static enum err_code hold(struct device *dev, uint32_t event, struct err *err)
{
    struct host_device *host = host_of(dev);
    assert(event < host->events);
    return host_streams_hold(host->streams, host->marks[event], err);
}

static enum err_code sync_all(struct device *dev, struct err *err)
{
    return host_streams_sync(host_of(dev)->streams, err);
}

static void take_times(struct device *dev,
                       void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                    double begin_s, double end_s),
                       void *context)
{
    host_streams_take_times(host_of(dev)->streams, take, context);
}

/* ---- memory ---- */

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static uint64_t granules_of(uint64_t bytes)
{
    return bytes / GRANULE + (bytes % GRANULE != 0);
}

/* Free granules from `first` on, `most` at most. */
static uint64_t free_run(const struct host_device *host, uint64_t first, uint64_t most)
{
    uint64_t n = 0;
    while (n < most && first + n < host->granules && !host->taken[first + n])
        n++;
    return n;
}

static uint64_t segment_new(struct device *dev, uint64_t bytes)
{
    struct host_device *host = host_of(dev);
    const uint64_t need = granules_of(bytes);
    while (host->lowest < host->granules && host->taken[host->lowest])
        host->lowest++;
    for (uint64_t at = host->lowest; at + need <= host->granules;) {
        const uint64_t run_length = free_run(host, at, need);
        if (run_length == need) {
            memset(host->taken + at, 1, need);
            return host->base + at * GRANULE;
        }
        at += run_length + 1; /* the granule after the run is taken */
    }
    return 0;
}

static void segment_drop(struct device *dev, uint64_t address, uint64_t bytes)
{
    struct host_device *host = host_of(dev);
    const uint64_t first = (address - host->base) / GRANULE, count = granules_of(bytes);
    assert(address >= host->base && (address - host->base) % GRANULE == 0);
    assert(first + count <= host->granules);
    host_streams_sync(host->streams, NULL); /* a failure is for the next call that can fail */
    for (uint64_t i = first; i < first + count; i++) {
        assert(host->taken[i]);
        host->taken[i] = 0;
    }
    if (first < host->lowest)
        host->lowest = first;
    madvise(pointer(address), count * GRANULE, MADV_DONTNEED); /* pages go back to the system */
}

static void *host_new(struct device *dev, uint64_t bytes)
{
    (void)dev;
    return calloc(1, bytes);
}

static void host_drop(struct device *dev, void *memory, uint64_t bytes)
{
    (void)bytes;
    host_streams_sync(host_of(dev)->streams, NULL);
    free(memory);
}

static enum err_code write_memory(struct device *dev, uint64_t to, const void *from, uint64_t bytes,
                                  struct err *err)
{
    TRY(sync_all(dev, err));
    memcpy(pointer(to), from, bytes);
    return ERR_OK;
}

static enum err_code read_memory(struct device *dev, void *to, uint64_t from, uint64_t bytes,
                                 struct err *err)
{
    TRY(sync_all(dev, err));
    memcpy(to, pointer(from), bytes);
    return ERR_OK;
}

static enum err_code map_arena(struct host_device *host, uint64_t bytes, struct err *err)
{
    host->granules = bytes / GRANULE;
    host->map_bytes = (host->granules + 1) * GRANULE; /* one more, to align the first */
    void *map = mmap(NULL, host->map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return err_set(err, ERR_NOMEM, "reserve %llu bytes of address space for the arena: %s",
                       (unsigned long long)bytes, strerror(errno));
    host->map = map;
    host->base = ((uint64_t)(uintptr_t)map + GRANULE - 1) / GRANULE * GRANULE;
    host->taken = xcalloc(host->granules + 1, 1);
    return ERR_OK;
}

/* ---- opening and closing ---- */

static void free_host(struct host_device *host)
{
    if (host->map)
        munmap(host->map, host->map_bytes);
    free(host->taken);
    free(host->marks);
    free(host);
}

static void close_host(struct device *dev)
{
    struct host_device *host = host_of(dev);
    uint32_t instruction = 0;
    while (!host_streams_join(host->streams, CLOSE_GRACE_S, &instruction)) {
        if (!host->comm)
            continue; /* a long copy */
        char text[160];
        snprintf(text, sizeof text,
                 "shardrun: rank %u: closing, but the collective of instruction %u still waits for "
                 "other ranks after %.0f s",
                 comm_rank(host->comm), instruction, CLOSE_GRACE_S);
        comm_abort(host->comm, 3, text); /* the thread cannot be stopped in any other way */
    }
    host_streams_free(host->streams);
    free_host(host);
}

/* Kernels on 16-bit operands work on fp32 copies of them. glibc would map each copy of more than
 * 128 KiB anew and touch its pages for the first time: a fifth of a step in bf16. So freed memory
 * stays with the process; 32 MiB is the highest threshold that mallopt takes. */
static void keep_scratch(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

enum err_code device_open_host(uint64_t memory_bytes, uint32_t events, struct lane_list lanes,
                               struct comm *comm, struct device **out, struct err *err)
{
    static const struct device_ops ops = {
        .name = "host",
        .version = DEVICE_OPS_VERSION,
        .close = close_host,
        .segment_new = segment_new,
        .segment_drop = segment_drop,
        .host_new = host_new,
        .host_drop = host_drop,
        .write = write_memory,
        .read = read_memory,
        .launch = launch,
        .record = record,
        .wait = wait,
        .hold = hold,
        .sync = sync_all,
        .take_times = take_times,
    };
    *out = NULL;
    struct host_device *host = xcalloc(1, sizeof *host);
    host->device.ops = &ops;
    host->comm = comm;
    host->events = events;
    host->marks = xcalloc(events + 1U, sizeof *host->marks);
    openblas_set_num_threads(1); /* a stream is one thread; ranks share the cores */
    keep_scratch();

    const struct host_runner runner = {
        .run = run, .skip = skip, .waits_for_others = work_is_collective, .context = host};
    enum err_code rc;
    TRY_GOTO(rc, map_arena(host, memory_bytes, err), fail);
    TRY_GOTO(rc, host_streams_open(&runner, lanes, &host->streams, err), fail);
    *out = &host->device;
    return ERR_OK;
fail:
    free_host(host);
    return rc;
}
