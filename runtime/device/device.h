/* device.h - one interface over every place a plan can run.
 *
 *     host/   streams are threads, memory is an arena, GEMM is OpenBLAS, collectives are MPI;
 *             opened by host/host_device.h
 *     cuda/   CUDA streams, cuBLAS, cuDNN, kernels of our own, NCCL; a shared object that is
 *             loaded only when it is asked for, by loader/cuda_load.h
 *
 * This header knows neither. What a backend opens, its caller owns: device_close.
 *
 * For all members: pointers are not NULL, sizes > 0. Work is queued on a stream and runs in that
 * stream's order; its operands are lent until the stream has passed it. `record` and `wait` order
 * streams as CUDA events do: a wait holds for the record that came before it in host order. Only
 * device_hold, device_sync and device_read/device_write block the host. A failure on a stream is
 * reported by the next call that can fail, and names the instruction.
 *
 * Callers use the thin functions below, never the table: they assert, and they are where launches
 * are counted. */
#ifndef SHARDPLAN_DEVICE_H
#define SHARDPLAN_DEVICE_H

#include "base/err.h"
#include "runtime/work/work.h"

#include <stdbool.h>
#include <stdint.h>

enum { DEVICE_OPS_VERSION = 7 };

struct device;

struct device_ops {
    const char *name; /* "host" */
    unsigned version; /* DEVICE_OPS_VERSION: checked by device_check */
    void (*close)(struct device *dev);
    /* Segments for the caching allocator: an address, or 0 when the device has no more memory. */
    uint64_t (*segment_new)(struct device *dev, uint64_t bytes);
    void (*segment_drop)(struct device *dev, uint64_t address, uint64_t bytes);
    /* Memory of the host that work may have as operands: zeroed; NULL when there is none left. */
    void *(*host_new)(struct device *dev, uint64_t bytes);
    void (*host_drop)(struct device *dev, void *memory, uint64_t bytes);
    /* Copies between host memory and device memory; waits until `stream` has done so. */
    enum err_code (*write)(struct device *dev, uint64_t to, const void *from, uint64_t bytes,
                           struct err *err);
    enum err_code (*read)(struct device *dev, void *to, uint64_t from, uint64_t bytes,
                          struct err *err);
    /* NULL: there is nothing to choose. */
    enum err_code (*prepare)(struct device *dev, const struct work *works, uint32_t count,
                             struct err *err);
    enum err_code (*launch)(struct device *dev, uint8_t stream, const struct work *work,
                            struct err *err);
    enum err_code (*record)(struct device *dev, uint8_t stream, uint32_t event, struct err *err);
    enum err_code (*wait)(struct device *dev, uint8_t stream, uint32_t event, struct err *err);
    /* The host waits for an event, as a stream does. */
    enum err_code (*hold)(struct device *dev, uint32_t event, struct err *err);
    /* Waits until every stream has done what was queued. */
    enum err_code (*sync)(struct device *dev, struct err *err);
    /* Whether work that is launched from now on is timed, which costs a GPU two events each; at
     * first it is. NULL: times cost nothing and are always taken. */
    void (*time_work)(struct device *dev, bool on);
    /* Begin and end of a piece of timed work that ran since the last call, seconds on clock.h's
     * clock, as the host sees when it issues what; called for each after a sync. */
    void (*take_times)(struct device *dev,
                       void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                    double begin_s, double end_s),
                       void *context);
};

struct device { /* first member of each backend's own struct */
    const struct device_ops *ops;
    uint64_t launches;        /* counted by device_launch */
    uint64_t workspace_bytes; /* what each thread's matrix products want as work.workspace, from the
                                 first of them on; 0: they need none */
    const char *attention;    /* where attention has run so far, for the trace: "cuDNN 91002", "own
                                 kernels: ..." and why; empty or NULL: nothing to say */
};

/* Stops all streams (work not begun is dropped) and frees everything. NULL is allowed. */
void device_close(struct device *dev);

uint64_t device_segment_new(struct device *dev, uint64_t bytes);
void device_segment_drop(struct device *dev, uint64_t address, uint64_t bytes);
void *device_host_new(struct device *dev, uint64_t bytes);
void device_host_drop(struct device *dev, void *memory, uint64_t bytes); /* NULL is allowed */
enum err_code device_write(struct device *dev, uint64_t to, const void *from, uint64_t bytes,
                           struct err *err);
enum err_code device_read(struct device *dev, void *to, uint64_t from, uint64_t bytes,
                          struct err *err);

/* Before the first step, by all ranks at the same time: the matrix products that are to come, each
 * at least once, with addresses that say nothing but how operands are aligned (16 bytes at most).
 * A backend that has several kernels for one may measure them, on memory that it gives back; all
 * ranks then have the same. */
enum err_code device_prepare(struct device *dev, const struct work *works, uint32_t count,
                             struct err *err);
enum err_code device_launch(struct device *dev, uint8_t stream, const struct work *work,
                            struct err *err);
enum err_code device_record(struct device *dev, uint8_t stream, uint32_t event, struct err *err);
enum err_code device_wait(struct device *dev, uint8_t stream, uint32_t event, struct err *err);
enum err_code device_hold(struct device *dev, uint32_t event, struct err *err);
enum err_code device_sync(struct device *dev, struct err *err);
void device_time_work(struct device *dev, bool on);

#endif
