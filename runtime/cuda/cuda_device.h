/* cuda_device.h - for the files of the cuda backend only: what they share.
 *
 *     cuda_device.c      the table of device.h: memory, streams, events, failures
 *     cuda_wait.c        the host's waits; cuda_watch.c: a thread that looks at collectives
 *     cuda_timer.c       when work began and ended, from pairs of timed events
 *     cuda_ops.c         from a piece of work to a launch; cuda_pieces.c: the copies among them
 *     cuda_passes.c      passes over operands of any layout; products of many matrices
 *     cuda_fused.c       chains of kernels as one
 *     cuda_matmul.c      cuBLASLt; cuda_matmul_choice.c: which of its kernels
 *     cuda_attention.c   cuDNN's attention or our own; cuda_dnn.c: cuDNN's graphs
 *     cuda_nccl.c        communicators and collectives
 *     kernel_*.cu        our kernels
 *
 * Outside the caching allocator, and so in no plan, are: the context, what cuBLAS, cuDNN and NCCL
 * take for themselves, scratch memory of each stream (CUDA_SCRATCH_BYTES), and a workspace for
 * cuDNN where the plan's own is too small. */
#ifndef SHARDPLAN_CUDA_DEVICE_H
#define SHARDPLAN_CUDA_DEVICE_H

#include "base/arena.h"
#include "runtime/cuda/backend.h"
#include "runtime/cuda/kernels.h"
#include "runtime/device/device.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>

/* Of each stream: for partial sums (kernel_norm.cu, kernel_norms.cu, kernel_attention_backward.cu).
 * PyTorch takes such memory from its allocator for a moment; no plan lists it. */
#define CUDA_SCRATCH_BYTES ((uint64_t)8 << 20)

/* Of what is queued on a stream, every so many calls have a mark behind them, and so many marks may
 * be ahead of the device: 384 calls, one to three launches each, below the driver's own bound. */
enum { CUDA_MARK_EVERY = 64, CUDA_MARKS = 6 };

struct cuda_timer;
struct cuda_watch;
struct cuda_matmuls;
struct cuda_attention;
struct cuda_nccl;

struct host_range {
    char *begin;
    uint64_t bytes;
};

struct lane_queue {
    uint32_t calls, next;         /* since the last mark; the mark that is used next */
    cudaEvent_t mark[CUDA_MARKS]; /* made when they are first needed */
};

struct cuda_device {
    struct device device; /* first */
    struct cuda_settings settings;
    int ordinal;
    struct lane_info lane[LANES_MOST];
    cudaStream_t stream[LANES_MOST];
    struct lane_queue queue[LANES_MOST];
    cudaEvent_t *events; /* (settings.events) */
    void *scratch[LANES_MOST];
    struct kernel_fault *fault; /* pinned: kernels write it, the host reads it */
    uint64_t segment_bytes;     /* handed out */
    struct host_range *ranges;  /* host memory that was handed out */
    uint32_t range_count, range_cap;
    struct kernel_site issued; /* the work that was launched last */
    bool failed;
    struct err failure;      /* the first one: every later call reports it */
    atomic_bool host_failed; /* host_failure holds what a host function met; then written no more */
    struct err host_failure;
    struct cuda_timer *timer;
    struct cuda_matmuls *matmuls;
    struct cuda_attention *attention;
    struct cuda_nccl *nccl;
    struct cuda_watch *watch; /* NULL: without NCCL */
};

/* ERR_DEVICE with the text of the call that failed. */
enum err_code cuda_check(cudaError_t rc, const char *what, struct err *err);
#define TRY_CUDA(err, call) TRY(cuda_check((call), #call, (err)))

/* ---- cuda_wait.c ---- */

/* Whether an event has passed: cudaSuccess, cudaErrorNotReady, or a failure. */
cudaError_t cuda_ask_event(cudaEvent_t event);

/* Until stream `id` is empty, or (not NULL) an event on it has passed; ERR_DEVICE also when the
 * watch has found a failure. */
enum err_code cuda_await(struct cuda_device *cuda, uint8_t id, cudaEvent_t event, struct err *err);

/* Before each call that queues something on the stream: waits while too much is queued. */
enum err_code cuda_make_room(struct cuda_device *cuda, uint8_t id, struct err *err);

/* ---- cuda_device.c ---- */

struct kernel_scratch cuda_scratch(const struct cuda_device *cuda, uint8_t stream);

/* Whether all operands that are there lie in host memory that the device handed out. */
bool cuda_is_on_host(const struct cuda_device *cuda, const struct work *work);

/* Queues work that work_check has passed; collectives and work on host memory are not for it. */
enum err_code cuda_launch(struct cuda_device *cuda, uint8_t stream, const struct work *work,
                          struct err *err);

/* As kernels take an operand. */
struct kernel_tensor cuda_tensor(const struct work_operand *x);
struct kernel_index cuda_index(const struct work_operand *x);
struct kernel_site cuda_site(const struct work *work);
/* Shapes of a z and of an x and y that are spread over it. */
struct kernel_spread cuda_spread(const struct shape *x, const struct shape *y,
                                 const struct shape *z);
enum kernel_dtype cuda_dtype(const struct work_operand *x);

/* "instruction 12: MATMUL_NT: ..." of a launch that was refused. */
enum err_code cuda_launched(const struct work *work, cudaError_t rc, struct err *err);

/* ---- cuda_fused.c ---- */

cudaError_t cuda_fused(struct cuda_device *cuda, const struct work *work,
                       struct kernel_scratch scratch, cudaStream_t stream);

/* ---- cuda_passes.c ---- */

/* Work that work_has_passes, and products in batches and groups. */
cudaError_t cuda_passes(const struct cuda_device *cuda, const struct work *work,
                        struct kernel_scratch scratch, cudaStream_t stream);
cudaError_t cuda_products(const struct cuda_device *cuda, const struct work *work,
                          cudaStream_t stream);

/* ---- cuda_pieces.c: pack, cat, repeat, copy, copy-in, copy-out, chunk_cat, stack ---- */

enum err_code cuda_copy_pieces(const struct work *work, cudaStream_t stream, struct err *err);

/* Makes a piece of elements of `size` bytes, which are not cast, one of the widest units that its
 * addresses, width and pitches are multiples of. */
void cuda_use_units(struct kernel_piece *piece, uint64_t size);

/* ---- cuda_matmul.c ---- */

enum err_code cuda_matmuls_open(struct cuda_matmuls **out, struct err *err);
void cuda_matmuls_close(struct cuda_matmuls *matmuls); /* NULL is allowed */
enum err_code cuda_matmul(struct cuda_matmuls *matmuls, const struct work *work,
                          cudaStream_t stream, struct err *err);
/* As device_prepare, of products of matrices. */
enum err_code cuda_matmuls_prepare(struct cuda_device *cuda, const struct work *works,
                                   uint32_t count, struct err *err);

/* ---- cuda_attention.c ---- */

/* Both as in struct cuda_settings. cuDNN is loaded at the first attention that it could do. */
struct cuda_attention *cuda_attention_new(enum attention_kernel kernel, bool deterministic);
void cuda_attention_close(struct cuda_attention *attention); /* NULL is allowed */
/* As device.attention; it changes as attention runs. */
const char *cuda_attention_about(const struct cuda_attention *attention);
enum err_code cuda_attention_run(struct cuda_attention *attention, const struct work *work,
                                 struct kernel_scratch scratch, cudaStream_t stream,
                                 struct err *err);

#endif
