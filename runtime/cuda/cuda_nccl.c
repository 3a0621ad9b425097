/* cuda_nccl.c - see cuda_nccl.h.
 *
 *     world   ncclCommInitRankConfig, its id from rank 0           0 1 2 3 4 5 6 7
 *     groups  ncclCommSplit of the world, colours as in comm.h     0 1 2 3 | 4 5 6 7
 *
 * A group of all ranks is the world itself. Split communicators share nothing with the world: NCCL
 * orders all launches of communicators that share, as if they were on one stream, and the
 * all-reduce among replicas must overlap with the shard group's. */
#include "runtime/cuda/cuda_nccl.h"

#include "base/arena.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/device/clock.h"

#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct registered {
    uint64_t address;
    void **handle; /* of each communicator */
};

struct flight { /* a collective that was queued, and the events before and behind it */
    cudaEvent_t begun, ended;
    uint32_t instruction;
};

struct cuda_nccl {
    uint32_t rank, ranks;
    double timeout_s;
    ncclComm_t *comm; /* the groups, then the world; a group of all ranks has none of its own */
    uint32_t count;   /* groups + 1 */
    struct registered *memory;
    uint32_t memory_count, memory_cap;
    pthread_mutex_t lock;   /* of the flights, for the thread that watches them */
    struct flight *flights; /* the first flight_made have events; those from flight_first (which the
                               thread that watches moves on) to flight_count are queued */
    uint32_t flight_first, flight_count, flight_made, flight_cap;
};

static enum err_code refuse(const struct cuda_nccl *nccl, ncclComm_t comm, ncclResult_t rc,
                            const char *what, struct err *err)
{
    const char *last = ncclGetLastError(comm);
    return err_set(err, ERR_DEVICE, "rank %u of %u: %s: %s%s%s", nccl->rank, nccl->ranks, what,
                   ncclGetErrorString(rc), last && *last ? ": " : "", last ? last : "");
}

/* Waits until a call on a non-blocking communicator is through. NCCL does the call on a thread of
 * its own and says "in progress" even of what takes microseconds; so at first nothing sleeps, as a
 * sleep of any length takes tens of them. */
static enum err_code settle(const struct cuda_nccl *nccl, ncclComm_t comm, ncclResult_t rc,
                            const char *what, struct err *err)
{
    const double start = clock_now_s(), awake_s = 300e-6;
    const struct timespec rest = {.tv_nsec = 20000};
    while (rc == ncclInProgress) {
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &rc);
        if (asked != ncclSuccess)
            return refuse(nccl, comm, asked, what, err);
        if (rc == ncclInProgress && nccl->timeout_s > 0 && clock_now_s() - start > nccl->timeout_s)
            return err_set(err, ERR_DEVICE,
                           "rank %u of %u: %s has waited %.3g s for the other ranks; giving up",
                           nccl->rank, nccl->ranks, what, nccl->timeout_s);
        if (rc == ncclInProgress && clock_now_s() - start < awake_s)
            sched_yield();
        else if (rc == ncclInProgress)
            nanosleep(&rest, NULL);
    }
    return rc == ncclSuccess ? ERR_OK : refuse(nccl, comm, rc, what, err);
}

/* ---- opening and closing ---- */

static enum err_code open_world(struct cuda_nccl *nccl, const struct cuda_settings *settings,
                                struct err *err)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    ncclResult_t rc = nccl->rank == 0 ? ncclGetUniqueId(&id) : ncclSuccess;
    if (rc != ncclSuccess)
        return refuse(nccl, NULL, rc, "ncclGetUniqueId", err);
    TRY(settings->host.broadcast(settings->comm, &id, sizeof id, 0, err));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t *world = &nccl->comm[nccl->count - 1];
    rc = ncclCommInitRankConfig(world, (int)nccl->ranks, id, (int)nccl->rank, &config);
    return settle(nccl, *world, rc, "joining the NCCL communicator of all ranks", err);
}

static enum err_code open_group(struct cuda_nccl *nccl, const struct comm_group *group, uint32_t i,
                                struct err *err)
{
    const uint32_t span = group->ranks * group->stride;
    ncclComm_t world = nccl->comm[nccl->count - 1];
    if (group->ranks == nccl->ranks)
        return ERR_OK;
    if (span == 0 || nccl->ranks % span != 0)
        return err_set(err, ERR_INVALID,
                       "groups of %u ranks at stride %u do not divide the %u ranks of this run",
                       group->ranks, group->stride, nccl->ranks);
    const int color = (int)(nccl->rank / span * group->stride + nccl->rank % group->stride);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 0;
    char what[80];
    snprintf(what, sizeof what, "ncclCommSplit of group %u (%u ranks)", i, group->ranks);
    const ncclResult_t rc = ncclCommSplit(world, color, (int)nccl->rank, &nccl->comm[i], &config);
    TRY(settle(nccl, world, rc, what, err)); /* the parent says when the child may be asked */
    return settle(nccl, nccl->comm[i], ncclInProgress, what, err);
}

enum err_code cuda_nccl_open(const struct cuda_settings *settings, struct cuda_nccl **out,
                             struct err *err)
{
    struct cuda_nccl *nccl = xmalloc(sizeof *nccl);
    *nccl = (struct cuda_nccl){.rank = settings->rank,
                               .ranks = settings->ranks,
                               .timeout_s = settings->timeout_s,
                               .count = settings->group_count + 1,
                               .lock = PTHREAD_MUTEX_INITIALIZER};
    nccl->comm = xcalloc(nccl->count, sizeof(ncclComm_t));
    if (settings->share_gpu) {
        /* NCCL refuses two ranks on one GPU of one host; so each rank calls itself another host,
         * and they talk through sockets; what hosts of one NVLink fabric share does not count. */
        char id[64];
        snprintf(id, sizeof id, "shardplan-rank-%u", settings->rank);
        setenv("NCCL_HOSTID", id, 1);
        setenv("NCCL_SOCKET_IFNAME", "lo", 0);
        setenv("NCCL_NET", "Socket", 0);
        setenv("NCCL_IB_DISABLE", "1", 0);
        setenv("NCCL_MNNVL_ENABLE", "0", 0);
        setenv("NCCL_NVLS_ENABLE", "0", 0);
    }
    enum err_code rc = open_world(nccl, settings, err);
    for (uint32_t i = 0; i < settings->group_count && rc == ERR_OK; i++)
        rc = open_group(nccl, &settings->groups[i], i, err);
    if (rc != ERR_OK) {
        cuda_nccl_close(nccl, true);
        nccl = NULL;
    }
    *out = nccl;
    return rc;
}

static void drop_events(const struct flight *flight)
{
    cudaEventDestroy(flight->begun);
    cudaEventDestroy(flight->ended);
}

void cuda_nccl_close(struct cuda_nccl *nccl, bool failed)
{
    if (!nccl)
        return;
    while (nccl->memory_count > 0)
        cuda_nccl_memory_drop(nccl, nccl->memory[nccl->memory_count - 1].address);
    for (uint32_t i = 0; i < nccl->count; i++) { /* the groups before the world */
        if (!nccl->comm[i])
            continue;
        ncclResult_t rc = ncclSuccess;
        if (!failed)
            rc = ncclCommFinalize(nccl->comm[i]);
        if (failed || settle(nccl, nccl->comm[i], rc, "ncclCommFinalize", NULL) != ERR_OK)
            ncclCommAbort(nccl->comm[i]);
        else
            ncclCommDestroy(nccl->comm[i]);
    }
    for (uint32_t i = 0; i < nccl->flight_made; i++)
        drop_events(&nccl->flights[i]);
    pthread_mutex_destroy(&nccl->lock);
    free(nccl->flights);
    free(nccl->memory);
    free(nccl->comm);
    free(nccl);
}

/* ---- collectives ---- */

static ncclDataType_t data_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_FP32:
        return ncclFloat32;
    case DTYPE_BF16:
        return ncclBfloat16;
    case DTYPE_FP16:
        return ncclFloat16;
    case DTYPE_INT64:
        return ncclInt64;
    case DTYPE_INT32:
        return ncclInt32;
    case DTYPE_UINT64:
    case DTYPE_COMPLEX64: /* moved only */
        return ncclUint64;
    default:
        return ncclUint8;
    }
}

/* Gathers and broadcasts move any dtype; the others add. */
static bool can_run(enum work_kind kind, enum dtype dtype)
{
    return kind == WORK_ALL_GATHER || kind == WORK_BROADCAST || dtype == DTYPE_FP32 ||
           dtype == DTYPE_BF16 || dtype == DTYPE_FP16 || dtype == DTYPE_INT32 ||
           dtype == DTYPE_UINT8;
}

/* Makes the events of the next flight, the first time that so many are needed. */
static enum err_code make_flight(struct cuda_nccl *nccl, struct err *err)
{
    if (nccl->flight_count < nccl->flight_made)
        return ERR_OK;
    ARRAY_GROW(nccl->flights, nccl->flight_made, nccl->flight_cap);
    struct flight *flight = &nccl->flights[nccl->flight_made];
    TRY_CUDA(err, cudaEventCreateWithFlags(&flight->begun, cudaEventDisableTiming));
    const enum err_code rc =
        cuda_check(cudaEventCreateWithFlags(&flight->ended, cudaEventDisableTiming),
                   "cudaEventCreateWithFlags", err);
    if (rc == ERR_OK)
        nccl->flight_made++;
    else
        cudaEventDestroy(flight->begun);
    return rc;
}

/* Puts an event before the collective that is queued next on the stream. Nothing is queued with the
 * lock held: a call that blocks in the driver must not stop the thread that watches. */
static enum err_code precede(struct cuda_nccl *nccl, cudaStream_t stream, struct err *err)
{
    cudaEvent_t begun = NULL;
    pthread_mutex_lock(&nccl->lock);
    if (nccl->flight_first == nccl->flight_count)
        nccl->flight_first = nccl->flight_count = 0;
    const enum err_code rc = make_flight(nccl, err);
    if (rc == ERR_OK)
        begun = nccl->flights[nccl->flight_count].begun;
    pthread_mutex_unlock(&nccl->lock);
    TRY(rc);
    TRY_CUDA(err, cudaEventRecord(begun, stream));
    return ERR_OK;
}

/* And one behind it: from then on it is watched. Only this thread changes flight_count. */
static enum err_code follow(struct cuda_nccl *nccl, uint32_t instruction, cudaStream_t stream,
                            struct err *err)
{
    struct flight *flight = &nccl->flights[nccl->flight_count];
    flight->instruction = instruction;
    TRY_CUDA(err, cudaEventRecord(flight->ended, stream));
    pthread_mutex_lock(&nccl->lock);
    nccl->flight_count++;
    pthread_mutex_unlock(&nccl->lock);
    return ERR_OK;
}

enum err_code cuda_nccl_launch(struct cuda_nccl *nccl, const struct work *work, cudaStream_t stream,
                               struct err *err)
{
    const struct work_operand *in = &work->operand[0], *out = &work->operand[1];
    const uint64_t count = shape_elements(&out->shape);
    const enum dtype dtype = (enum dtype)out->dtype;
    const ncclDataType_t type = data_type(dtype);
    if (work->group < 0 || (uint32_t)work->group + 1 >= nccl->count)
        return err_set(err, ERR_INVALID, "instruction %u: %s on group %d: there is none",
                       work->instruction, work_name(work->kind), work->group);
    if (!can_run(work->kind, dtype))
        return err_set(err, ERR_UNSUPPORTED,
                       "instruction %u: sums of %s among ranks are not supported; use float32, "
                       "bfloat16, float16, int32 or uint8",
                       work->instruction, dtype_name(dtype));
    ncclComm_t comm = nccl->comm[work->group];
    if (!comm)
        comm = nccl->comm[nccl->count - 1];
    ncclResult_t rc;
    TRY(precede(nccl, stream, err));
    if (work->kind == WORK_ALL_GATHER) {
        const uint64_t slice = count / work->ranks;
        const char *own = (const char *)in->data;
        if (in->data == out->data)
            own += work->rank * slice * dtype_bytes(dtype);
        rc = ncclAllGather(own, out->data, slice, type, comm, stream);
    } else if (work->kind == WORK_REDUCE_SCATTER_AVG || work->kind == WORK_REDUCE_SCATTER_SUM) {
        rc = ncclReduceScatter(in->data, out->data, count, type,
                               work->kind == WORK_REDUCE_SCATTER_SUM ? ncclSum : ncclAvg, comm,
                               stream);
    } else if (work->kind == WORK_BROADCAST) {
        rc = ncclBroadcast(out->data, out->data, count, type, (int)work->attr.dim, comm, stream);
    } else {
        rc = ncclAllReduce(in->data, out->data, count, type,
                           work->kind == WORK_ALL_REDUCE_SUM ? ncclSum : ncclAvg, comm, stream);
    }
    /* The event that follows must come after it in the stream: so it is queued before we go on. */
    const enum err_code done = settle(nccl, comm, rc, work_name(work->kind), err);
    if (done == ERR_OK)
        return follow(nccl, work->instruction, stream, err);
    err_context(err, "instruction %u", work->instruction);
    return done;
}

/* Forgets what has ended. What has not begun waits for this rank's own work, or for a collective
 * queued before it. */
static uint32_t find_oldest(struct cuda_nccl *nccl)
{
    while (nccl->flight_first < nccl->flight_count &&
           cuda_ask_event(nccl->flights[nccl->flight_first].ended) == cudaSuccess)
        nccl->flight_first++;
    if (nccl->flight_first == nccl->flight_count)
        return UINT32_MAX;
    const struct flight *flight = &nccl->flights[nccl->flight_first];
    return cuda_ask_event(flight->begun) == cudaSuccess ? flight->instruction : UINT32_MAX;
}

enum err_code cuda_nccl_watch(struct cuda_nccl *nccl, uint32_t *oldest, struct err *err)
{
    for (uint32_t i = 0; i < nccl->count; i++) {
        ncclResult_t state = ncclSuccess;
        if (!nccl->comm[i])
            continue;
        const ncclResult_t rc = ncclCommGetAsyncError(nccl->comm[i], &state);
        if (rc != ncclSuccess)
            state = rc;
        if (state != ncclSuccess && state != ncclInProgress)
            return refuse(nccl, nccl->comm[i], state, "a collective failed", err);
    }
    pthread_mutex_lock(&nccl->lock);
    *oldest = find_oldest(nccl);
    pthread_mutex_unlock(&nccl->lock);
    return ERR_OK;
}

/* ---- registered memory ---- */

uint64_t cuda_nccl_memory_new(struct cuda_nccl *nccl, uint64_t bytes)
{
    void *memory = NULL;
    if (ncclMemAlloc(&memory, bytes) != ncclSuccess)
        return 0;
    struct registered entry = {.address = (uint64_t)(uintptr_t)memory,
                               .handle = xcalloc(nccl->count, sizeof(void *))};
    for (uint32_t i = 0; i < nccl->count; i++) /* without it, NCCL copies: slower, not wrong */
        if (nccl->comm[i] &&
            ncclCommRegister(nccl->comm[i], memory, bytes, &entry.handle[i]) != ncclSuccess)
            entry.handle[i] = NULL;
    ARRAY_GROW(nccl->memory, nccl->memory_count, nccl->memory_cap);
    nccl->memory[nccl->memory_count++] = entry;
    return entry.address;
}

void cuda_nccl_memory_drop(struct cuda_nccl *nccl, uint64_t address)
{
    for (uint32_t m = 0; m < nccl->memory_count; m++) {
        if (nccl->memory[m].address != address)
            continue;
        const struct registered gone = nccl->memory[m];
        nccl->memory[m] = nccl->memory[--nccl->memory_count];
        for (uint32_t i = 0; i < nccl->count; i++)
            if (gone.handle[i])
                ncclCommDeregister(nccl->comm[i], gone.handle[i]);
        free(gone.handle);
        ncclMemFree((void *)(uintptr_t)address);
        return;
    }
}
