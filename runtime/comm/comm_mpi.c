/* comm_mpi.c - comm.h over MPI.
 *
 * MPI carries bytes; what is sent to whom, and the order of every sum, is decided here. A
 * collective is one or two rounds in which ranks of the group send a slice to every other:
 *
 *     all_gather        my slice -> everyone
 *     reduce_scatter    my part of slice p -> rank p; then each sums its slice, rank 0 first
 *     all_reduce        reduce_scatter over equal slices, then all_gather
 *     broadcast         the root's bytes -> everyone
 *
 * MPI's own reductions would be shorter, but their order of summation, and so the last bit of the
 * result, depends on the algorithm it picks; and they do not sum bf16 in fp32. Long messages go in
 * pieces, so that the scratch memory for the parts of others stays small.
 *
 * Turns, messages and time-outs are in comm_link.c, the arithmetic in comm_sum.c. */
#include "base/arena.h"
#include "base/ending_signals.h"
#include "runtime/comm/comm_link.h"
#include "runtime/comm/comm_sum.h"
#include "runtime/device/clock.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE_ELEMENTS = 1 << 20 }; /* of a slice in a sum: what scratch memory is for */

static struct mpi_comm *mpi_of(struct comm *comm)
{
    return (struct mpi_comm *)comm;
}

/* ---- the rounds ---- */

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Slice p of `data` is `bytes` bytes at data + p·pitch: everyone's own goes to all. */
static enum err_code gather_slices(const struct call *call, char *data, uint64_t pitch,
                                   uint64_t bytes, struct err *err)
{
    struct group *group = call->group;
    for (uint64_t at = 0; at < bytes; at += LINK_PIECE_BYTES) {
        const uint64_t n = least(LINK_PIECE_BYTES, bytes - at);
        for (uint32_t k = 1; k < group->ranks; k++)
            TRY(link_receive(group, link_peer(group, k), data + link_peer(group, k) * pitch + at, n,
                             err));
        for (uint32_t k = 1; k < group->ranks; k++)
            TRY(link_send(group, link_peer(group, k), data + group->rank * pitch + at, n, err));
        TRY(link_finish(call, err));
    }
    return ERR_OK;
}

/* `count` elements of slice p are at in + p·pitch: sums this rank's slice over the group. */
static enum err_code reduce_slices(const struct call *call, const char *in, uint64_t pitch,
                                   char *out, uint64_t count, enum dtype dtype, bool average,
                                   struct err *err)
{
    struct group *group = call->group;
    const uint64_t size = dtype_bytes(dtype);
    for (uint64_t at = 0; at < count; at += PIECE_ELEMENTS) {
        const uint64_t n = least(PIECE_ELEMENTS, count - at), bytes = n * size;
        char *others = link_scratch(group, group->ranks * bytes);
        for (uint32_t k = 1; k < group->ranks; k++) {
            const uint32_t p = link_peer(group, k);
            group->part[p] = others + p * bytes;
            TRY(link_receive(group, p, others + p * bytes, bytes, err));
        }
        for (uint32_t k = 1; k < group->ranks; k++)
            TRY(link_send(group, link_peer(group, k), in + link_peer(group, k) * pitch + at * size,
                          bytes, err));
        group->part[group->rank] = in + group->rank * pitch + at * size;
        TRY(link_finish(call, err));
        comm_sum(group->part, group->ranks, n, dtype, average, out + at * size);
    }
    return ERR_OK;
}

/* What is left when a vector does not divide: every rank sums all of it. */
static enum err_code reduce_rest(const struct call *call, const char *in, char *out, uint64_t count,
                                 enum dtype dtype, bool average, struct err *err)
{
    struct group *group = call->group;
    const uint64_t bytes = count * dtype_bytes(dtype);
    char *all = link_scratch(group, group->ranks * bytes);
    memcpy(all + group->rank * bytes, in, bytes);
    TRY(gather_slices(call, all, bytes, bytes, err));
    for (uint32_t p = 0; p < group->ranks; p++)
        group->part[p] = all + p * bytes;
    comm_sum(group->part, group->ranks, count, dtype, average, out);
    return ERR_OK;
}

/* in may be out: a slice is overwritten only when everyone has what they need of it. */
static enum err_code reduce_all(const struct call *call, const char *in, char *out, uint64_t count,
                                enum dtype dtype, bool average, struct err *err)
{
    const struct group *group = call->group;
    const uint64_t slice = count / group->ranks, bytes = slice * dtype_bytes(dtype);
    const uint64_t rest_count = count - slice * group->ranks, done = bytes * group->ranks;
    TRY(reduce_slices(call, in, bytes, out + group->rank * bytes, slice, dtype, average, err));
    TRY(gather_slices(call, out, bytes, bytes, err));
    if (rest_count > 0)
        TRY(reduce_rest(call, in + done, out + done, rest_count, dtype, average, err));
    return ERR_OK;
}

/* The root's bytes to everyone. */
static enum err_code broadcast_bytes(const struct call *call, char *data, uint64_t bytes,
                                     uint32_t root, struct err *err)
{
    struct group *group = call->group;
    for (uint64_t at = 0; at < bytes; at += LINK_PIECE_BYTES) {
        const uint64_t n = least(LINK_PIECE_BYTES, bytes - at);
        if (group->rank != root)
            TRY(link_receive(group, root, data + at, n, err));
        for (uint32_t k = 1; k < group->ranks && group->rank == root; k++)
            TRY(link_send(group, link_peer(group, k), data + at, n, err));
        TRY(link_finish(call, err));
    }
    return ERR_OK;
}

/* ---- collectives of a group ---- */

static uint64_t ticket_of(struct comm *base, int group)
{
    struct mpi_comm *comm = mpi_of(base);
    assert(group >= 0 && group < (int)comm->group_count);
    return link_ticket(&comm->groups[group]);
}

static enum err_code all_gather(struct comm *base, int group, uint64_t ticket, void *data,
                                uint64_t count, enum dtype dtype, uint32_t instruction,
                                struct err *err)
{
    const struct call call = link_begin(mpi_of(base), group, ticket, "all_gather", instruction);
    const uint64_t bytes = count * dtype_bytes(dtype);
    return link_end(&call, gather_slices(&call, data, bytes, bytes, err), err);
}

static enum err_code reduce_scatter(struct comm *base, int group, uint64_t ticket, const void *in,
                                    void *out, uint64_t count, enum dtype dtype, bool average,
                                    uint32_t instruction, struct err *err)
{
    const struct call call = link_begin(mpi_of(base), group, ticket, "reduce_scatter", instruction);
    enum err_code rc = comm_sum_check(dtype, instruction, err);
    if (rc == ERR_OK)
        rc = reduce_slices(&call, in, count * dtype_bytes(dtype), out, count, dtype, average, err);
    return link_end(&call, rc, err);
}

static enum err_code all_reduce(struct comm *base, int group, uint64_t ticket, const void *in,
                                void *out, uint64_t count, enum dtype dtype, bool average,
                                uint32_t instruction, struct err *err)
{
    const struct call call = link_begin(mpi_of(base), group, ticket, "all_reduce", instruction);
    enum err_code rc = comm_sum_check(dtype, instruction, err);
    if (rc == ERR_OK)
        rc = reduce_all(&call, in, out, count, dtype, average, err);
    return link_end(&call, rc, err);
}

static enum err_code group_broadcast(struct comm *base, int group, uint64_t ticket, void *data,
                                     uint64_t count, enum dtype dtype, uint32_t root,
                                     uint32_t instruction, struct err *err)
{
    const struct call call = link_begin(mpi_of(base), group, ticket, "broadcast", instruction);
    assert(root < call.group->ranks);
    return link_end(&call, broadcast_bytes(&call, data, count * dtype_bytes(dtype), root, err),
                    err);
}

static void skip(struct comm *base, int group, uint64_t ticket, uint32_t instruction)
{
    const struct call call =
        link_begin(mpi_of(base), group, ticket, "skipped collective", instruction);
    call.group->broken = true;
    link_end(&call, ERR_OK, NULL);
}

/* ---- among all ranks ---- */

static struct call world_call(struct comm *base, const char *name)
{
    struct mpi_comm *comm = mpi_of(base);
    const int world = (int)comm->group_count;
    return link_begin(comm, world, link_ticket(&comm->groups[world]), name, 0);
}

static enum err_code gather_bytes(const struct call *call, const char *in, uint64_t bytes,
                                  char *out, uint32_t root, struct err *err)
{
    struct group *world = call->group;
    if (world->rank == root)
        memcpy(out + root * bytes, in, bytes);
    for (uint64_t at = 0; at < bytes; at += LINK_PIECE_BYTES) {
        const uint64_t n = least(LINK_PIECE_BYTES, bytes - at);
        if (world->rank != root)
            TRY(link_send(world, root, in + at, n, err));
        for (uint32_t k = 1; k < world->ranks && world->rank == root; k++)
            TRY(link_receive(world, link_peer(world, k), out + link_peer(world, k) * bytes + at, n,
                             err));
        TRY(link_finish(call, err));
    }
    return ERR_OK;
}

static enum err_code broadcast(struct comm *base, void *data, uint64_t bytes, uint32_t root,
                               struct err *err)
{
    assert(root < base->ranks);
    const struct call call = world_call(base, "broadcast");
    return link_end(&call, broadcast_bytes(&call, data, bytes, root, err), err);
}

static enum err_code gather(struct comm *base, const void *in, uint64_t bytes, void *out,
                            uint32_t root, struct err *err)
{
    assert(root < base->ranks);
    const struct call call = world_call(base, "gather");
    return link_end(&call, gather_bytes(&call, in, bytes, out, root, err), err);
}

static enum err_code barrier(struct comm *base, struct err *err)
{
    const struct call call = world_call(base, "barrier");
    char *here = link_scratch(call.group, base->ranks); /* a byte from everyone */
    memset(here, 0, base->ranks);
    return link_end(&call, gather_slices(&call, here, 1, 1, err), err);
}

static enum err_code check_whole(struct comm *base, struct err *err)
{
    (void)base, (void)err; /* mpirun ends every rank when one dies */
    return ERR_OK;
}

static void abort_run(struct comm *base, int status, const char *message)
{
    link_abort(mpi_of(base), status, message);
}

/* ---- opening and closing ---- */

/* MPI has no time-out for a rank that never comes, or stops while it joins: a thread watches. */
struct opening {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool done;
    double timeout_s;
};

/* Processes are started one after the other, and load much before they join. */
static const double LEAST_OPENING_S = 30;

static void *watch_opening(void *context)
{
    struct opening *opening = context;
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const double end_s = clock_now_s() + opening->timeout_s, whole = floor(end_s);
    const struct timespec at = {(time_t)whole, (long)(1e9 * (end_s - whole))};
    int rc = 0;
    pthread_mutex_lock(&opening->lock);
    while (!opening->done && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&opening->moved, &opening->lock, &at);
    if (!opening->done) { /* MPI_Abort may not be called before MPI is open */
        fprintf(stderr, "shardrun: rank %s: joining has waited %.3g s for the others; giving up\n",
                rank ? rank : "?", opening->timeout_s);
        fflush(stderr);
        _exit(EXIT_TIMEOUT);
    }
    pthread_mutex_unlock(&opening->lock);
    return NULL;
}

static enum err_code opening_begin(struct opening *opening, double timeout_s, struct err *err)
{
    pthread_condattr_t attr;
    *opening = (struct opening){.timeout_s = fmax(timeout_s, LEAST_OPENING_S)};
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&opening->lock, NULL);
    pthread_cond_init(&opening->moved, &attr);
    pthread_condattr_destroy(&attr);
    opening->done = timeout_s <= 0; /* the thread ends at once */
    const int rc = ending_signals_thread(&opening->thread, watch_opening, opening);
    return rc == 0 ? ERR_OK : err_set(err, ERR_DEVICE, "pthread_create: %s", strerror(rc));
}

static void opening_end(struct opening *opening)
{
    pthread_mutex_lock(&opening->lock);
    opening->done = true;
    pthread_cond_signal(&opening->moved);
    pthread_mutex_unlock(&opening->lock);
    pthread_join(opening->thread, NULL);
    pthread_mutex_destroy(&opening->lock);
    pthread_cond_destroy(&opening->moved);
}

static enum err_code init_mpi(struct err *err)
{
    int initialized = 0, finalized = 0, provided = 0;
    sigset_t before;
    TRY_MPI(err, MPI_Finalized(&finalized));
    if (finalized)
        return err_set(err, ERR_DEVICE,
                       "MPI was closed in this process; it cannot be opened again");
    TRY_MPI(err, MPI_Initialized(&initialized));
    if (initialized) {
        TRY_MPI(err, MPI_Query_thread(&provided));
    } else {
        ending_signals_hold(&before); /* which MPI's own threads inherit */
        const int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
        ending_signals_release(&before);
        TRY_MPI(err, rc);
    }
    if (provided < MPI_THREAD_MULTIPLE)
        return err_set(err, ERR_UNSUPPORTED,
                       "this MPI does not allow calls from several threads "
                       "(MPI_THREAD_MULTIPLE); use one that does, such as Debian's Open MPI");
    TRY_MPI(err, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    return ERR_OK;
}

static void close_mpi(struct comm *base)
{
    struct mpi_comm *comm = mpi_of(base);
    for (uint32_t i = 0; i <= comm->group_count; i++)
        link_close(&comm->groups[i]);
    free(comm->groups);
    free(comm);
    MPI_Finalize();
}

static enum err_code open_watched(const struct comm_group *groups, uint32_t group_count,
                                  double timeout_s, struct comm **out, struct err *err)
{
    static const struct comm_ops ops = {
        .close = close_mpi,
        .ticket = ticket_of,
        .all_gather = all_gather,
        .reduce_scatter = reduce_scatter,
        .all_reduce = all_reduce,
        .group_broadcast = group_broadcast,
        .skip = skip,
        .broadcast = broadcast,
        .gather = gather,
        .barrier = barrier,
        .check_whole = check_whole,
        .abort = abort_run,
    };
    TRY(init_mpi(err));
    int rank = 0, ranks = 0;
    TRY_MPI(err, MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    TRY_MPI(err, MPI_Comm_size(MPI_COMM_WORLD, &ranks));

    struct mpi_comm *comm = xmalloc(sizeof *comm);
    *comm = (struct mpi_comm){.comm = {&ops, (uint32_t)rank, (uint32_t)ranks},
                              .timeout_s = timeout_s,
                              .group_count = group_count,
                              .aborting = ATOMIC_FLAG_INIT};
    comm->groups = xmalloc((group_count + 1) * sizeof *comm->groups);
    for (uint32_t i = 0; i <= group_count; i++)
        link_init(&comm->groups[i]);
    const struct comm_group world = {.ranks = comm->comm.ranks, .stride = 1};
    enum err_code rc = ERR_OK;
    for (uint32_t i = 0; i <= group_count && rc == ERR_OK; i++)
        rc = link_open(comm, i < group_count ? &groups[i] : &world, &comm->groups[i], err);
    if (rc == ERR_OK)
        *out = &comm->comm;
    else
        close_mpi(&comm->comm);
    return rc;
}

enum err_code comm_open_mpi(const struct comm_group *groups, uint32_t group_count, double timeout_s,
                            struct comm **out, struct err *err)
{
    struct opening opening;
    *out = NULL;
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0); /* for what blocks in MPI: opening, closing */
    TRY(opening_begin(&opening, timeout_s, err));
    const enum err_code rc = open_watched(groups, group_count, timeout_s, out, err);
    opening_end(&opening);
    return rc;
}

#ifdef __SANITIZE_ADDRESS__
/* Open MPI and OpenBLAS keep what they set up and unload plugins before leaks are looked for, so in
 * programs that use them nothing could be told from that. The planner's programs are not these. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}
#endif
