/* cuda_device.c - the cuda backend of device.h.
 *
 *     host thread     launch, record, wait: queued and gone       waits only where too much is
 * queued streams         [ compute ] [ copy_in ] [ all_gather ] ...  one CUDA stream each
 *
 * Streams are non-blocking ones. Copy-in, all-gather and reduce-scatter have priority -1, the
 * others the default, as FSDP2's have (FSDPCommContext): when both could start, what other ranks
 * wait for goes first. Events are untimed; times come from pairs of their own (cuda_timer.c).
 *
 * Every wait of the host is a loop (cuda_wait.c), and a thread looks at NCCL (cuda_watch.c), so
 * that a rank that died elsewhere ends this one, too.
 *
 * Work on the host's stream whose operands are in host memory (an offloaded optimizer) is done by
 * the host's kernels, in a host function of that stream. */
#include "runtime/cuda/cuda_device.h"

#include "runtime/cuda/cuda_nccl.h"
#include "runtime/cuda/cuda_timer.h"
#include "runtime/cuda/cuda_watch.h"
#include "runtime/work/operand.h"

#include <assert.h>
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRANULE ((uint64_t)2 << 20)

static struct cuda_device *cuda_of(struct device *dev)
{
    return (struct cuda_device *)dev;
}

static void *pointer(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

/* ---- failures ---- */

enum err_code cuda_check(cudaError_t rc, const char *what, struct err *err)
{
    if (rc == cudaSuccess)
        return ERR_OK;
    const char *end = strchr(what, '('); /* of the call's text: its name */
    return err_set(err, rc == cudaErrorMemoryAllocation ? ERR_NOMEM : ERR_DEVICE, "%.*s: %s",
                   end ? (int)(end - what) : (int)strlen(what), what, cudaGetErrorString(rc));
}

/* What a kernel does wrong is found by a later call, whichever comes first. Then every call fails
 * with it, so the last error is it. */
static bool is_of_earlier_work(cudaError_t rc)
{
    switch (rc) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
        return true;
    default:
        return false;
    }
}

/* Keeps the first failure, for every call that follows. */
static enum err_code keep(struct cuda_device *cuda, enum err_code rc, struct err *err)
{
    if (rc == ERR_OK)
        return ERR_OK;
    const cudaError_t last = cudaPeekAtLastError();
    if (!cuda->failed && is_of_earlier_work(last)) {
        *err = (struct err){0}; /* which call found it says nothing */
        err_set(err, ERR_DEVICE, "at or before instruction %u: %s: %s", cuda->issued.instruction,
                work_name((enum work_kind)cuda->issued.kind), cudaGetErrorString(last));
    }
    if (!cuda->failed) {
        cuda->failed = true;
        cuda->failure = *err;
    }
    return rc;
}

/* Keeps it and tells it. */
static enum err_code kept(struct cuda_device *cuda, enum err_code rc, struct err *own,
                          struct err *err)
{
    keep(cuda, rc, own);
    return rc == ERR_OK ? ERR_OK : err_set(err, own->code, "%s", own->text);
}

/* What kernels and host functions have left. */
static enum err_code find_fault(struct cuda_device *cuda, struct err *err)
{
    const volatile struct kernel_fault *fault = cuda->fault;
    if (atomic_load(&cuda->host_failed))
        return err_set(err, cuda->host_failure.code, "%s", cuda->host_failure.text);
    if (fault->raised != KERNEL_FAULT_WHOLE)
        return ERR_OK;
    return err_set(err, ERR_INVALID, "instruction %u: %s: index %lld is not below %llu",
                   fault->site.instruction, work_name((enum work_kind)fault->site.kind),
                   (long long)fault->value, (unsigned long long)fault->bound);
}

static enum err_code failure(struct cuda_device *cuda, struct err *err)
{
    struct err fault = {0};
    if (!cuda->failed)
        keep(cuda, find_fault(cuda, &fault), &fault);
    if (!cuda->failed)
        keep(cuda, cuda_watch_check(cuda->watch, &fault), &fault);
    return cuda->failed ? err_set(err, cuda->failure.code, "%s", cuda->failure.text) : ERR_OK;
}

/* ---- waiting ---- */

static enum err_code sync_all(struct device *dev, struct err *err)
{
    struct cuda_device *cuda = cuda_of(dev);
    struct err own = {0};
    enum err_code rc = failure(cuda, &own);
    for (uint32_t s = 0; s < cuda->settings.lanes.count && rc == ERR_OK; s++)
        rc = cuda_await(cuda, (uint8_t)s, NULL, &own);
    uint32_t oldest;
    if (rc == ERR_OK && cuda->nccl) /* also forgets the collectives that have ended */
        rc = cuda_nccl_watch(cuda->nccl, &oldest, &own);
    if (rc == ERR_OK)
        rc = find_fault(cuda, &own);
    return kept(cuda, rc, &own, err);
}

/* ---- work of the host ---- */

struct host_job {
    struct cuda_device *cuda;
    struct work work;
    struct work_operand operand[];
};

/* On a thread of CUDA's; calls no CUDA function. The first failure is left for the host's thread.
 */
static void run_job(void *context)
{
    struct host_job *job = context;
    struct cuda_device *cuda = job->cuda;
    struct err err = {0};
    if (cuda->settings.host.run_on_host(&job->work, &err) != ERR_OK &&
        !atomic_load(&cuda->host_failed)) {
        cuda->host_failure = err;
        atomic_store(&cuda->host_failed, true);
    }
    free(job);
}

static enum err_code launch_on_host(struct cuda_device *cuda, uint8_t stream,
                                    const struct work *work, struct err *err)
{
    const size_t bytes = (work->ins + work->outs) * sizeof *work->operand;
    struct host_job *job = xmalloc(sizeof *job + bytes);
    job->cuda = cuda;
    job->work = *work;
    memcpy(job->operand, work->operand, bytes);
    job->work.operand = job->operand;
    const enum err_code rc = cuda_check(cudaLaunchHostFunc(cuda->stream[stream], run_job, job),
                                        "cudaLaunchHostFunc", err);
    if (rc != ERR_OK)
        free(job);
    return rc;
}

bool cuda_is_on_host(const struct cuda_device *cuda, const struct work *work)
{
    for (uint32_t i = 0; i < work->ins + work->outs; i++) {
        const char *at = work->operand[i].data;
        bool inside = !at;
        for (uint32_t r = 0; r < cuda->range_count && !inside; r++)
            inside =
                at >= cuda->ranges[r].begin && at < cuda->ranges[r].begin + cuda->ranges[r].bytes;
        if (!inside)
            return false;
    }
    return work->ins + work->outs > 0;
}

/* ---- collectives ---- */

/* One rank's slice to those of the others: before it and after it, each in one launch. */
static cudaError_t spread_slice(const struct work *work, const char *slice, uint64_t bytes,
                                cudaStream_t stream)
{
    char *out = work_out(work, 0)->data;
    struct kernel_piece others[] = {
        {.from = slice, .to = out, .times = work->rank},
        {.from = slice,
         .to = out + (work->rank + 1) * bytes,
         .times = work->ranks - work->rank - 1},
    };
    for (int i = 0; i < 2; i++) {
        others[i].rows = 1;
        others[i].width = others[i].to_pitch = bytes;
        cuda_use_units(&others[i], 1);
    }
    return kernel_pieces(others, 2, stream);
}

/* One rank, or a rehearsal: this rank's own slice stands for everyone's. What is copied is part of
 * the time that the collective is to take. */
static cudaError_t run_alone(const struct work *work, struct kernel_scratch scratch,
                             cudaStream_t stream)
{
    const struct work_operand *in = work_in(work, 0), *out = work_out(work, 0);
    uint64_t bytes = shape_bytes(&out->shape, (enum dtype)out->dtype);
    const char *from = in->data;
    char *to = out->data;
    uint64_t *begin = scratch.data;
    cudaError_t rc = cudaSuccess;
    if (work->wait_s > 0)
        rc = kernel_clock(begin, stream);
    if (work->kind == WORK_ALL_GATHER) {
        bytes /= work->ranks;
        to += work->rank * bytes;
        from = in->data == out->data ? to : from;
        rc = rc == cudaSuccess ? spread_slice(work, from, bytes, stream) : rc;
    }
    if (work->kind == WORK_REDUCE_SCATTER_AVG || work->kind == WORK_REDUCE_SCATTER_SUM)
        from += work->rank * bytes;
    if (from != to && bytes > 0 && rc == cudaSuccess)
        rc = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    if (work->wait_s > 0 && rc == cudaSuccess)
        rc = kernel_wait(begin, (uint64_t)(work->wait_s * 1e9), stream);
    return rc;
}

/* A kernel of a rehearsal: time that passes on the stream. */
static cudaError_t pass_time(const struct work *work, struct kernel_scratch scratch,
                             cudaStream_t stream)
{
    const cudaError_t rc = kernel_clock(scratch.data, stream);
    return rc == cudaSuccess ? kernel_wait(scratch.data, (uint64_t)(work->wait_s * 1e9), stream)
                             : rc;
}

/* ---- queues and events ---- */

static enum err_code launch_checked(struct cuda_device *cuda, uint8_t id, const struct work *work,
                                    struct err *err)
{
    if (work->kind == WORK_NONE)
        return cuda_launched(work, pass_time(work, cuda_scratch(cuda, id), cuda->stream[id]), err);
    TRY(work_check(work, WORK_ON_CUDA, err));
    if (work_is_collective(work->kind) && cuda->nccl)
        return cuda_nccl_launch(cuda->nccl, work, cuda->stream[id], err);
    if (work_is_collective(work->kind))
        return cuda_launched(work, run_alone(work, cuda_scratch(cuda, id), cuda->stream[id]), err);
    if (id == LANE_HOST && cuda_is_on_host(cuda, work))
        return launch_on_host(cuda, id, work, err);
    return cuda_launch(cuda, id, work, err);
}

static enum err_code launch(struct device *dev, uint8_t id, const struct work *work,
                            struct err *err)
{
    struct cuda_device *cuda = cuda_of(dev);
    struct err own = {0};
    TRY(failure(cuda, err));
    nvtxRangePushA(work->label ? work->label : work_name(work->kind));
    cuda->issued = (struct kernel_site){work->instruction, (uint32_t)work->kind};
    enum err_code rc = cuda_make_room(cuda, id, &own);
    if (rc == ERR_OK)
        rc = cuda_timer_begin(cuda->timer, id, cuda->stream[id], work->instruction, &own);
    if (rc == ERR_OK)
        rc = launch_checked(cuda, id, work, &own);
    if (rc == ERR_OK)
        rc = cuda_timer_end(cuda->timer, cuda->stream[id], &own);
    nvtxRangePop();
    return kept(cuda, rc, &own, err);
}

/* Queues something that has no time of its own: `call` says what came of it. */
static enum err_code queued(struct cuda_device *cuda, uint8_t stream, cudaError_t call,
                            const char *what, struct err *err)
{
    struct err own = {0};
    enum err_code rc = cuda_check(call, what, &own);
    if (rc == ERR_OK)
        rc = cuda_make_room(cuda, stream, &own);
    return kept(cuda, rc, &own, err);
}

static enum err_code record(struct device *dev, uint8_t stream, uint32_t event, struct err *err)
{
    struct cuda_device *cuda = cuda_of(dev);
    assert(event < cuda->settings.events);
    TRY(failure(cuda, err));
    return queued(cuda, stream, cudaEventRecord(cuda->events[event], cuda->stream[stream]),
                  "cudaEventRecord", err);
}

static enum err_code wait(struct device *dev, uint8_t stream, uint32_t event, struct err *err)
{
    struct cuda_device *cuda = cuda_of(dev);
    assert(event < cuda->settings.events);
    TRY(failure(cuda, err));
    return queued(cuda, stream, cudaStreamWaitEvent(cuda->stream[stream], cuda->events[event], 0),
                  "cudaStreamWaitEvent", err);
}

static enum err_code hold(struct device *dev, uint32_t event, struct err *err)
{
    struct cuda_device *cuda = cuda_of(dev);
    assert(event < cuda->settings.events);
    TRY(failure(cuda, err));
    struct err own = {0};
    const enum err_code rc = cuda_await(cuda, LANE_HOST, cuda->events[event], &own);
    return kept(cuda, rc, &own, err);
}

static enum err_code prepare(struct device *dev, const struct work *works, uint32_t count,
                             struct err *err)
{
    struct cuda_device *cuda = cuda_of(dev);
    struct err own = {0};
    enum err_code rc = failure(cuda, &own);
    if (rc == ERR_OK)
        rc = cuda_matmuls_prepare(cuda, works, count, &own);
    return kept(cuda, rc, &own, err);
}

static void time_work(struct device *dev, bool on)
{
    cuda_timer_turn(cuda_of(dev)->timer, on);
}

static void take_times(struct device *dev,
                       void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                    double begin_s, double end_s),
                       void *context)
{
    cuda_timer_take(cuda_of(dev)->timer, take, context);
}

struct kernel_scratch cuda_scratch(const struct cuda_device *cuda, uint8_t stream)
{
    return (struct kernel_scratch){cuda->scratch[stream], CUDA_SCRATCH_BYTES};
}

/* ---- memory ---- */

/* cudaMalloc hands out whole granules of 2 MiB; the limit counts them. */
static uint64_t whole_granules(uint64_t bytes)
{
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static uint64_t segment_new(struct device *dev, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(dev);
    const uint64_t whole = whole_granules(bytes), limit = cuda->settings.memory_bytes;
    void *memory = NULL;
    if (limit && cuda->segment_bytes + whole > limit)
        return 0;
    if (cuda->nccl && cuda->settings.register_buffers) {
        memory = pointer(cuda_nccl_memory_new(cuda->nccl, bytes));
    } else if (cudaMalloc(&memory, bytes) != cudaSuccess) {
        cudaGetLastError(); /* no error of a later launch */
        memory = NULL;
    }
    if (memory)
        cuda->segment_bytes += whole;
    return (uint64_t)(uintptr_t)memory;
}

/* After a failure a collective may be under way that never ends, and freeing memory waits for all
 * work: such memory is left to the end of the process, which is near. */
static bool may_never_end(const struct cuda_device *cuda)
{
    return cuda->failed && cuda->nccl;
}

static void segment_drop(struct device *dev, uint64_t address, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(dev);
    sync_all(dev, NULL); /* a failure is for the next call that can fail */
    if (may_never_end(cuda))
        return;
    if (cuda->nccl && cuda->settings.register_buffers)
        cuda_nccl_memory_drop(cuda->nccl, address);
    else
        cudaFree(pointer(address));
    cuda->segment_bytes -= whole_granules(bytes);
}

/* Pinned, so that copies need no buffer between and do not hold up the host. */
static void *host_new(struct device *dev, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(dev);
    void *memory = NULL;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    memset(memory, 0, bytes);
    ARRAY_GROW(cuda->ranges, cuda->range_count, cuda->range_cap);
    cuda->ranges[cuda->range_count++] = (struct host_range){memory, bytes};
    return memory;
}

static void host_drop(struct device *dev, void *memory, uint64_t bytes)
{
    struct cuda_device *cuda = cuda_of(dev);
    (void)bytes;
    sync_all(dev, NULL);
    if (may_never_end(cuda))
        return;
    for (uint32_t i = 0; i < cuda->range_count; i++)
        if (cuda->ranges[i].begin == memory) {
            cuda->ranges[i] = cuda->ranges[--cuda->range_count];
            break;
        }
    cudaFreeHost(memory);
}

/* On a stream of ours and waited for: cudaMemcpy from pageable memory may return before the device
 * has the bytes, and our streams do not wait for its stream. */
static enum err_code copy_now(struct cuda_device *cuda, void *to, const void *from, uint64_t bytes,
                              struct err *err)
{
    cudaStream_t stream = cuda->stream[LANE_COMPUTE];
    struct err own = {0};
    enum err_code rc = cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
                                  "cudaMemcpyAsync", &own);
    if (rc == ERR_OK)
        rc = cuda_await(cuda, LANE_COMPUTE, NULL, &own);
    return kept(cuda, rc, &own, err);
}

static enum err_code write_memory(struct device *dev, uint64_t to, const void *from, uint64_t bytes,
                                  struct err *err)
{
    TRY(sync_all(dev, err));
    return copy_now(cuda_of(dev), pointer(to), from, bytes, err);
}

static enum err_code read_memory(struct device *dev, void *to, uint64_t from, uint64_t bytes,
                                 struct err *err)
{
    TRY(sync_all(dev, err));
    return copy_now(cuda_of(dev), to, pointer(from), bytes, err);
}

/* ---- opening and closing ---- */

static void close_cuda(struct device *dev)
{
    struct cuda_device *cuda = cuda_of(dev);
    sync_all(dev, NULL);
    cuda_watch_close(cuda->watch);
    cuda_nccl_close(cuda->nccl, cuda->failed);
    cuda_attention_close(cuda->attention);
    cuda_matmuls_close(cuda->matmuls);
    cuda_timer_free(cuda->timer);
    for (uint32_t i = 0; cuda->events && i < cuda->settings.events; i++)
        if (cuda->events[i])
            cudaEventDestroy(cuda->events[i]);
    for (uint32_t s = 0; s < cuda->settings.lanes.count; s++) {
        if (cuda->stream[s])
            cudaStreamDestroy(cuda->stream[s]);
        cudaFree(cuda->scratch[s]);
        for (uint32_t m = 0; m < CUDA_MARKS; m++)
            if (cuda->queue[s].mark[m])
                cudaEventDestroy(cuda->queue[s].mark[m]);
    }
    cudaFreeHost(cuda->fault);
    free(cuda->events);
    free(cuda->ranges);
    free(cuda);
}

/* Whether the launcher gave this process its one GPU and hid all others: SLURM does, with
 * --gpus-per-task=1. */
static bool is_bound(int count)
{
    return count == 1 && (getenv("CUDA_VISIBLE_DEVICES") || getenv("SLURM_STEP_GPUS"));
}

/* The GPU of this rank: one each, or with share_gpu as many ranks as there are to a GPU. */
static enum err_code pick_gpu(struct cuda_device *cuda, struct err *err)
{
    int count = 0;
    const cudaError_t rc = cudaGetDeviceCount(&count);
    if (rc == cudaErrorInsufficientDriver)
        return err_set(err, ERR_DEVICE,
                       "--device cuda: no NVIDIA driver on this machine, or one that is older than "
                       "this program's CUDA (cudaGetDeviceCount: %s)",
                       cudaGetErrorString(rc));
    if (rc == cudaErrorNoDevice || (rc == cudaSuccess && count == 0))
        return err_set(err, ERR_DEVICE,
                       "--device cuda: no GPU on this machine (cudaGetDeviceCount: %s)",
                       cudaGetErrorString(cudaErrorNoDevice));
    TRY_CUDA(err, rc);
    if (!cuda->settings.share_gpu && !is_bound(count) &&
        cuda->settings.local_rank >= (uint32_t)count)
        return err_set(err, ERR_INVALID,
                       "rank %u is the %u. of this machine, which has %d GPUs; --share-gpu lets "
                       "several ranks have one, for correctness only",
                       cuda->settings.rank, cuda->settings.local_rank + 1, count);
    cuda->ordinal = (int)(cuda->settings.local_rank % (uint32_t)count);
    TRY_CUDA(err, cudaSetDevice(cuda->ordinal));
    int major = 0;
    TRY_CUDA(err, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->ordinal));
    /* As PyTorch's CublasHandlePool.cpp: 32 MiB from compute capability 9.0 on, before
     * 2 · 4 MiB + 8 · 16 KiB (also in planner/cost/gpu.c). */
    cuda->device.workspace_bytes = major >= 9 ? (uint64_t)32 << 20 : 8519680;
    return ERR_OK;
}

static enum err_code make_streams(struct cuda_device *cuda, struct err *err)
{
    int least = 0, greatest = 0; /* greatest priority: a negative number */
    TRY_CUDA(err, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    const int high = greatest < -1 ? -1 : greatest;
    for (uint32_t s = 0; s < cuda->settings.lanes.count; s++) {
        cuda->lane[s] = cuda->settings.lanes.of[s];
        const int priority = cuda->lane[s].urgent ? high : 0;
        TRY_CUDA(err,
                 cudaStreamCreateWithPriority(&cuda->stream[s], cudaStreamNonBlocking, priority));
        TRY_CUDA(err, cudaMalloc(&cuda->scratch[s], CUDA_SCRATCH_BYTES));
    }
    cuda->events = xcalloc(cuda->settings.events + 1U, sizeof(cudaEvent_t));
    for (uint32_t i = 0; i < cuda->settings.events; i++)
        TRY_CUDA(err, cudaEventCreateWithFlags(&cuda->events[i], cudaEventDisableTiming));
    void *fault = NULL;
    TRY_CUDA(err, cudaHostAlloc(&fault, sizeof *cuda->fault, cudaHostAllocMapped));
    cuda->fault = fault;
    memset(cuda->fault, 0, sizeof *cuda->fault);
    return ERR_OK;
}

static enum err_code open_parts(struct cuda_device *cuda, struct err *err)
{
    TRY(pick_gpu(cuda, err));
    TRY(make_streams(cuda, err));
    cuda->timer = cuda_timer_new();
    TRY(cuda_matmuls_open(&cuda->matmuls, err));
    cuda->attention = cuda_attention_new(cuda->settings.attention, cuda->settings.deterministic);
    cuda->device.attention = cuda_attention_about(cuda->attention);
    if (cuda->settings.comm && cuda->settings.ranks > 1)
        TRY(cuda_nccl_open(&cuda->settings, &cuda->nccl, err));
    if (cuda->nccl)
        TRY(cuda_watch_open(&cuda->settings, cuda->nccl, cuda->ordinal, &cuda->watch, err));
    return ERR_OK;
}

__attribute__((visibility("default"))) enum err_code
cuda_backend_open(unsigned version, const struct cuda_settings *settings, struct device **out,
                  struct err *err);

enum err_code cuda_backend_open(unsigned version, const struct cuda_settings *settings,
                                struct device **out, struct err *err)
{
    static const struct device_ops ops = {
        .name = "cuda",
        .version = DEVICE_OPS_VERSION,
        .close = close_cuda,
        .segment_new = segment_new,
        .segment_drop = segment_drop,
        .host_new = host_new,
        .host_drop = host_drop,
        .write = write_memory,
        .read = read_memory,
        .prepare = prepare,
        .launch = launch,
        .record = record,
        .wait = wait,
        .hold = hold,
        .sync = sync_all,
        .time_work = time_work,
        .take_times = take_times,
    };
    *out = NULL;
    if (version != CUDA_BACKEND_VERSION)
        return err_set(err, ERR_UNSUPPORTED,
                       "--device cuda: " CUDA_BACKEND_FILE " is of another version");
    struct cuda_device *cuda = xcalloc(1, sizeof *cuda);
    cuda->device.ops = &ops;
    cuda->settings = *settings;
    struct err own = {0};
    const enum err_code rc = open_parts(cuda, &own);
    if (rc == ERR_OK) {
        *out = &cuda->device;
        return ERR_OK;
    }
    keep(cuda, rc, &own); /* nothing is waited for */
    close_cuda(&cuda->device);
    return err_set(err, own.code, "%s", own.text);
}
