/* comm_link.c - see comm_link.h.
 *
 * Waiting is polling with pauses that grow to a millisecond: ranks may be more than cores, and a
 * thread that spins inside MPI would take the core from the rank it waits for. It is also what
 * makes time-outs possible: MPI itself never gives up.
 *
 * Turns. The host thread takes tickets in issue order; each stream's thread comes when it comes:
 *
 *     ticket     0     1     2     3          serving = 1: the threads with 2 and 3 sleep
 *     stream    AG    RS    AG    AG
 *              done  runs     not yet here
 */
#include "runtime/comm/comm_link.h"

#include "base/arena.h"
#include "runtime/device/clock.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- time and failure ---- */

void link_abort(struct mpi_comm *comm, int status, const char *message)
{
    while (atomic_flag_test_and_set(&comm->aborting))
        pause(); /* another thread is at it: one message */
    fprintf(stderr, "%s\n", message);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}

static bool of_world(const struct call *call)
{
    return call->number == (int)call->comm->group_count;
}

static void time_out(const struct call *call)
{
    char where[64], text[256];
    if (!of_world(call))
        snprintf(where, sizeof where, "instruction %u: %s on group %d", call->instruction,
                 call->name, call->number);
    else
        snprintf(where, sizeof where, "%s", call->name);
    snprintf(text, sizeof text,
             "shardrun: rank %u: %s (rank %u of %u) has waited %.3g s for the others; giving up",
             call->comm->comm.rank, where, call->group->rank, call->group->ranks,
             call->comm->timeout_s);
    link_abort(call->comm, EXIT_TIMEOUT, text);
}

enum err_code link_check(int rc, const char *what, struct err *err)
{
    if (rc == MPI_SUCCESS)
        return ERR_OK;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(rc, text, &length);
    return err_set(err, ERR_DEVICE, "%s: %s", what, text);
}

/* ---- turns ---- */

uint64_t link_ticket(struct group *group)
{
    struct turn *turn = &group->turn;
    pthread_mutex_lock(&turn->lock);
    const uint64_t ticket = turn->issued++;
    pthread_mutex_unlock(&turn->lock);
    return ticket;
}

static void await_turn(const struct call *call, uint64_t ticket)
{
    struct turn *turn = &call->group->turn;
    const double whole = floor(call->deadline_s);
    const struct timespec at = {.tv_sec = (time_t)whole,
                                .tv_nsec = (long)(1e9 * (call->deadline_s - whole))};
    int rc = 0;
    pthread_mutex_lock(&turn->lock);
    while (turn->serving != ticket && rc != ETIMEDOUT) {
        if (call->deadline_s > 0.0)
            rc = pthread_cond_timedwait(&turn->moved, &turn->lock, &at);
        else
            pthread_cond_wait(&turn->moved, &turn->lock);
    }
    const bool mine = turn->serving == ticket;
    pthread_mutex_unlock(&turn->lock);
    if (!mine)
        time_out(call);
}

struct call link_begin(struct mpi_comm *comm, int group, uint64_t ticket, const char *name,
                       uint32_t instruction)
{
    assert(group >= 0 && group <= (int)comm->group_count);
    const struct call call = {
        .comm = comm,
        .group = &comm->groups[group],
        .number = group,
        .name = name,
        .instruction = instruction,
        .deadline_s = comm->timeout_s > 0.0 ? clock_now_s() + comm->timeout_s : 0.0,
    };
    await_turn(&call, ticket);
    return call;
}

enum err_code link_end(const struct call *call, enum err_code rc, struct err *err)
{
    struct turn *turn = &call->group->turn;
    if (rc != ERR_OK)
        call->group->broken = true;
    pthread_mutex_lock(&turn->lock);
    turn->serving++;
    pthread_cond_broadcast(&turn->moved);
    pthread_mutex_unlock(&turn->lock);
    if (rc == ERR_DEVICE && of_world(call))
        err_context(err, "%s", call->name);
    else if (rc == ERR_DEVICE)
        err_context(err, "instruction %u: %s", call->instruction, call->name);
    return rc;
}

/* ---- messages ---- */

static enum err_code check_whole(const struct group *group, struct err *err)
{
    if (!group->broken)
        return ERR_OK;
    return err_set(err, ERR_DEVICE, "an earlier collective of its group failed");
}

enum err_code link_send(struct group *group, uint32_t to, const char *data, uint64_t bytes,
                        struct err *err)
{
    TRY(check_whole(group, err));
    assert(bytes <= LINK_PIECE_BYTES);
    if (bytes > 0)
        TRY_MPI(err, MPI_Isend(data, (int)bytes, MPI_BYTE, (int)to, 0, group->mpi,
                               &group->requests[group->pending++]));
    return ERR_OK;
}

enum err_code link_receive(struct group *group, uint32_t from, char *data, uint64_t bytes,
                           struct err *err)
{
    TRY(check_whole(group, err));
    assert(bytes <= LINK_PIECE_BYTES);
    if (bytes > 0)
        TRY_MPI(err, MPI_Irecv(data, (int)bytes, MPI_BYTE, (int)from, 0, group->mpi,
                               &group->requests[group->pending++]));
    return ERR_OK;
}

/* Yields first, for short messages between ranks that run now; then sleeps, longer each time. */
static void rest(unsigned tries)
{
    enum { YIELDS = 32, LEAST_NS = 10000, MOST_NS = 1000000 };
    if (tries < YIELDS) {
        sched_yield();
        return;
    }
    const long ns = LEAST_NS * (1L + (long)(tries - YIELDS) / 8);
    const struct timespec pause_for = {.tv_nsec = ns < MOST_NS ? ns : MOST_NS};
    nanosleep(&pause_for, NULL);
}

/* Waits for all messages posted. */
enum err_code link_finish(const struct call *call, struct err *err)
{
    struct group *group = call->group;
    for (unsigned tries = 0;; tries++) {
        int done = 0;
        TRY_MPI(err, MPI_Testall(group->pending, group->requests, &done, MPI_STATUSES_IGNORE));
        if (done)
            break;
        if (call->deadline_s > 0.0 && clock_now_s() > call->deadline_s)
            time_out(call);
        rest(tries);
    }
    group->pending = 0;
    return ERR_OK;
}

char *link_scratch(struct group *group, size_t bytes)
{
    if (bytes > group->scratch_bytes) {
        free(group->scratch);
        group->scratch = xmalloc(bytes);
        group->scratch_bytes = bytes;
    }
    return group->scratch;
}

/* ---- opening and closing ---- */

void link_init(struct group *group)
{
    *group = (struct group){.mpi = MPI_COMM_NULL};
    struct turn *turn = &group->turn;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&turn->lock, NULL);
    pthread_cond_init(&turn->moved, &attr);
    pthread_condattr_destroy(&attr);
}

enum err_code link_open(const struct mpi_comm *comm, const struct comm_group *shape,
                        struct group *group, struct err *err)
{
    const uint32_t span = shape->ranks * shape->stride;
    if (span == 0 || comm->comm.ranks % span != 0)
        return err_set(err, ERR_INVALID,
                       "groups of %u ranks at stride %u do not divide the %u ranks of this run; "
                       "start as many as the plan is for",
                       shape->ranks, shape->stride, comm->comm.ranks);
    const int color =
        (int)(comm->comm.rank / span * shape->stride + comm->comm.rank % shape->stride);
    TRY_MPI(err, MPI_Comm_split(MPI_COMM_WORLD, color, (int)comm->comm.rank, &group->mpi));
    group->rank = comm->comm.rank % span / shape->stride;
    group->ranks = shape->ranks;
    group->requests = xmalloc(2 * group->ranks * sizeof(MPI_Request));
    group->part = xmalloc(group->ranks * sizeof *group->part);
    return ERR_OK;
}

void link_close(struct group *group)
{
    if (group->mpi != MPI_COMM_NULL)
        MPI_Comm_free(&group->mpi);
    pthread_cond_destroy(&group->turn.moved);
    pthread_mutex_destroy(&group->turn.lock);
    free(group->requests);
    free((void *)group->part);
    free(group->scratch);
}
