/* emulated_nccl.c - the functions of NCCL that the cuda backend calls, among processes of one
 * machine.
 *
 *     folder   made with the unique id, in SHARDRUN_EMULATED_FOLDER or shared memory
 *     join     COMM-join-RANK: a rank is there; of a split also its colour and key
 *     data     COMM-NUMBER-RANK: what a rank gives to the communicator's NUMBERth collective
 *
 * Communicators are non-blocking: each call says "in progress" first, and what it is to queue is
 * queued when the communicator has been asked twice. Collectives of one communicator run one at a
 * time in the order of their calls, whatever their streams, and end when all ranks have come: a
 * rank that is stopped, or gone, holds the others up for good, as with NCCL.
 *
 * SHARDRUN_EMULATED_NCCL names faults of a rank of the world at its collective of a number:
 *
 *     error 1 5     from there on the communicator reports a remote error, and nothing ends
 *     stop 1 5      the process is stopped (SIGSTOP)
 *     block 1 5     the call never returns, as a launch into a queue that is full and stays so */
#include "runtime/work/half.h"
#include "tests/emulate/emulated_stream.h"

#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 256 };

enum kind { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, BROADCAST };

struct collective {
    struct ncclComm *comm;
    cudaStream_t stream;
    uint64_t number;
    enum kind kind;
    const void *in;
    void *out;
    size_t count;
    ncclDataType_t type;
    bool average, posted;
    int root;
};

struct ncclComm { /* never freed: work may be queued for it */
    char folder[128], name[64];
    int rank, ranks, world_rank, color, key;
    struct ncclComm *parent; /* of a split that has not joined */
    bool joined, aborted, failed;
    int asked;                  /* since the last call */
    struct collective *waiting; /* called, not queued yet */
    uint64_t called, ended, splits;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- files ---- */

static void path_of(const struct ncclComm *comm, const char *what, int rank, char out[PATH])
{
    snprintf(out, PATH, "%s/%s-%s-%d", comm->folder, comm->name, what, rank);
}

static void numbered(const struct ncclComm *comm, uint64_t number, int rank, char out[PATH])
{
    char what[24];
    snprintf(what, sizeof what, "%llu", (unsigned long long)number);
    path_of(comm, what, rank, out);
}

/* Others see it when all of it is there. */
static void post(const char *path, const void *data, size_t bytes)
{
    char part[PATH + 8];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0 ||
        rename(part, path) != 0)
        abort();
}

static bool all_are_there(const struct ncclComm *comm, uint64_t number)
{
    char path[PATH];
    for (int r = 0; r < comm->ranks; r++) {
        numbered(comm, number, r, path);
        if (access(path, R_OK) != 0)
            return false;
    }
    return true;
}

/* `bytes` bytes from `at` of what rank r gave. */
static void fetch(const struct collective *c, int r, size_t at, void *out, size_t bytes)
{
    char path[PATH];
    numbered(c->comm, c->number, r, path);
    FILE *file = fopen(path, "r");
    if (!file || fseek(file, (long)at, SEEK_SET) != 0 || fread(out, 1, bytes, file) != bytes)
        abort();
    fclose(file);
}

/* ---- numbers ---- */

static size_t size_of(ncclDataType_t type)
{
    return type == ncclFloat32 || type == ncclInt32      ? 4
           : type == ncclInt64 || type == ncclUint64     ? 8
           : type == ncclBfloat16 || type == ncclFloat16 ? 2
                                                         : 1;
}

static float number_at(const void *data, ncclDataType_t type, size_t i)
{
    switch (type) {
    case ncclFloat32:
        return ((const float *)data)[i];
    case ncclBfloat16:
        return float_from_bf16(((const uint16_t *)data)[i]);
    case ncclFloat16:
        return float_from_fp16(((const uint16_t *)data)[i]);
    default:
        return (float)((const uint8_t *)data)[i];
    }
}

static void put_number(void *data, ncclDataType_t type, size_t i, float value)
{
    switch (type) {
    case ncclFloat32:
        ((float *)data)[i] = value;
        break;
    case ncclBfloat16:
        ((uint16_t *)data)[i] = bf16_from_float(value);
        break;
    case ncclFloat16:
        ((uint16_t *)data)[i] = fp16_from_float(value);
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)(int)value;
        break;
    }
}

/* The sum, in rank order, of elements from `first` of what each gave. */
static void reduce(const struct collective *c, size_t first)
{
    const size_t size = size_of(c->type);
    float *sum = calloc(c->count + 1, sizeof *sum);
    char *part = malloc(c->count * size + 1);
    for (int r = 0; r < c->comm->ranks; r++) {
        fetch(c, r, first * size, part, c->count * size);
        for (size_t i = 0; i < c->count; i++)
            sum[i] += number_at(part, c->type, i);
    }
    for (size_t i = 0; i < c->count; i++)
        put_number(c->out, c->type, i, c->average ? sum[i] / (float)c->comm->ranks : sum[i]);
    free(part);
    free(sum);
}

/* ---- a collective on its stream ---- */

static void give(const struct collective *c)
{
    char path[PATH];
    size_t bytes = c->count * size_of(c->type);
    if (c->kind == REDUCE_SCATTER)
        bytes *= (size_t)c->comm->ranks;
    if (c->kind == BROADCAST && c->root != c->comm->rank)
        bytes = 0;
    numbered(c->comm, c->number, c->comm->rank, path);
    post(path, c->in, bytes);
}

static void take(const struct collective *c)
{
    const size_t bytes = c->count * size_of(c->type);
    if (c->kind == ALL_GATHER)
        for (int r = 0; r < c->comm->ranks; r++)
            fetch(c, r, 0, (char *)c->out + (size_t)r * bytes, bytes);
    else if (c->kind == BROADCAST)
        fetch(c, c->root, 0, c->out, bytes);
    else
        reduce(c, c->kind == REDUCE_SCATTER ? (size_t)c->comm->rank * c->count : 0);
}

static int run(void *context)
{
    struct collective *c = context;
    char old[PATH];
    if (c->comm->aborted)
        return 1; /* its kernel ends */
    if (c->comm->failed || c->comm->ended != c->number)
        return 0;
    if (!c->posted)
        give(c);
    c->posted = true;
    if (!all_are_there(c->comm, c->number))
        return 0;
    take(c);
    c->comm->ended++;
    if (c->number > 0) { /* whoever is here has ended that one */
        numbered(c->comm, c->number - 1, c->comm->rank, old);
        unlink(old);
    }
    return 1;
}

/* ---- calls ---- */

/* Of faults beside each other, as "stop 0 3 block 1 5". */
static bool is_fault(const struct ncclComm *comm, const char *name)
{
    const char *fault = getenv("SHARDRUN_EMULATED_NCCL");
    char kind[16];
    int rank, length;
    unsigned long long number;
    for (; fault && sscanf(fault, "%15s %d %llu%n", kind, &rank, &number, &length) == 3;
         fault += length)
        if (strcmp(kind, name) == 0 && rank == comm->world_rank && comm->called >= number)
            return true;
    return false;
}

static ncclResult_t call(struct ncclComm *comm, cudaStream_t stream, const struct collective *from)
{
    if (cudaPeekAtLastError() != cudaSuccess) /* taken for its own launch's, as the library does */
        return ncclUnhandledCudaError;
    pthread_mutex_lock(&lock);
    const bool blocks = is_fault(comm, "block");
    comm->failed |= is_fault(comm, "error");
    struct collective *c = malloc(sizeof *c);
    *c = *from;
    c->comm = comm;
    c->stream = stream;
    c->number = comm->called++;
    comm->waiting = c;
    comm->asked = 0;
    pthread_mutex_unlock(&lock);
    if (is_fault(comm, "stop"))
        raise(SIGSTOP);
    if (blocks)
        for (;;)
            pause();
    return ncclInProgress;
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                &(struct collective){
                    .kind = ALL_GATHER, .in = in, .out = out, .count = count, .type = type});
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                &(struct collective){.kind = REDUCE_SCATTER,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .average = op == ncclAvg});
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return call(comm, stream,
                &(struct collective){.kind = ALL_REDUCE,
                                     .in = in,
                                     .out = out,
                                     .count = count,
                                     .type = type,
                                     .average = op == ncclAvg});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return call(
        comm, stream,
        &(struct collective){
            .kind = BROADCAST, .in = in, .out = out, .count = count, .type = type, .root = root});
}

/* ---- communicators ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    const char *folder = getenv("SHARDRUN_EMULATED_FOLDER");
    snprintf(id->internal, sizeof id->internal, "%s/emulated_nccl.XXXXXX",
             folder ? folder : "/dev/shm");
    return mkdtemp(id->internal) ? ncclSuccess : ncclSystemError;
}

static void announce(const struct ncclComm *comm)
{
    char path[PATH];
    const int said[2] = {comm->color, comm->key};
    path_of(comm, "join", comm->parent ? comm->parent->rank : comm->rank, path);
    post(path, said, sizeof said);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    (void)config;
    snprintf(comm->folder, sizeof comm->folder, "%s", id.internal);
    snprintf(comm->name, sizeof comm->name, "world");
    comm->rank = comm->world_rank = rank;
    comm->ranks = ranks;
    announce(comm);
    *out = comm;
    return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    (void)config;
    memcpy(comm->folder, parent->folder, sizeof comm->folder);
    snprintf(comm->name, sizeof comm->name, "%.40s.%llu", parent->name,
             (unsigned long long)parent->splits++);
    comm->parent = parent;
    comm->world_rank = parent->world_rank;
    comm->color = color;
    comm->key = key;
    announce(comm);
    parent->asked = 0;
    *out = comm;
    return ncclInProgress;
}

/* Whether all ranks that are to come have; then a split knows who has its colour. */
static bool join(struct ncclComm *comm)
{
    const int all = comm->parent ? comm->parent->ranks : comm->ranks;
    int before = 0, members = 0;
    for (int r = 0; r < all; r++) {
        char path[PATH];
        int said[2];
        path_of(comm, "join", r, path);
        FILE *file = fopen(path, "r");
        if (!file)
            return false;
        const bool whole = fread(said, sizeof said, 1, file) == 1;
        fclose(file);
        if (!whole)
            return false;
        members += said[0] == comm->color;
        before += said[0] == comm->color && said[1] < comm->key;
    }
    if (comm->parent) {
        comm->rank = before;
        comm->ranks = members;
        snprintf(comm->name + strlen(comm->name), sizeof comm->name - strlen(comm->name), "c%d",
                 comm->color);
    }
    return true;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    struct collective *queue = NULL;
    pthread_mutex_lock(&lock);
    if (!comm->joined)
        comm->joined = join(comm);
    if (comm->joined && ++comm->asked >= 2) {
        queue = comm->waiting;
        comm->waiting = NULL;
    }
    *state = comm->failed                       ? ncclRemoteError
             : comm->joined && comm->asked >= 2 ? ncclSuccess
                                                : ncclInProgress;
    if (queue) /* before anyone is told that it is through */
        emulated_queue(queue->stream, run, free, queue);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    comm->asked = 0;
    return ncclInProgress;
}

/* What communicators know of: a registration ends before its memory and its communicator do. */
enum { MOST_REGISTERED = 256 };

static struct registration {
    ncclComm_t comm;
    void *memory;
} registered[MOST_REGISTERED];
static unsigned registered_count;

static void end_with(const char *what)
{
    fprintf(stderr, "emulated NCCL: %s\n", what);
    abort();
}

static bool is_registered(ncclComm_t comm, const void *memory)
{
    for (unsigned i = 0; i < registered_count; i++)
        if ((comm && registered[i].comm == comm) || (memory && registered[i].memory == memory))
            return true;
    return false;
}

/* Leaves nothing of this rank's; the last one takes the folder. */
static void leave(struct ncclComm *comm)
{
    char path[PATH];
    if (comm->called > 0) {
        numbered(comm, comm->called - 1, comm->rank, path);
        unlink(path);
    }
    if (strcmp(comm->name, "world") != 0)
        return;
    char command[400];
    path_of(comm, "join", comm->rank, path);
    unlink(path);
    snprintf(command, sizeof command, "ls %s/world-join-* >/dev/null 2>&1 || rm -rf %s",
             comm->folder, comm->folder);
    if (system(command) != 0)
        return; /* others are there */
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->aborted = true;
    leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (is_registered(comm, NULL))
        end_with("a communicator ends that has registered memory");
    leave(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "an error of the emulated NCCL";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return comm && comm->failed ? "a rank of the emulated NCCL has failed" : "";
}

/* ---- memory ---- */

ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
    return cudaMalloc(memory, bytes) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclMemFree(void *memory)
{
    if (is_registered(NULL, memory))
        end_with("memory is freed that a communicator has registered");
    return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void *memory, size_t bytes, void **handle)
{
    if (registered_count == MOST_REGISTERED || bytes == 0)
        end_with("too much is registered, or nothing");
    registered[registered_count++] = (struct registration){comm, memory};
    *handle = memory;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void *handle)
{
    for (unsigned i = 0; i < registered_count; i++)
        if (registered[i].comm == comm && registered[i].memory == handle) {
            registered[i] = registered[--registered_count];
            return ncclSuccess;
        }
    end_with("something is deregistered that is not registered");
    return ncclInvalidArgument;
}
