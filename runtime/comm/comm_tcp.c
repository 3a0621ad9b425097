/* comm_tcp.c - comm.h over TCP, through rank 0.
 *
 *     1 ---.                       every collective is one exchange: each rank sends its part to
 *     2 ----+---- 0                rank 0, which sends each what it is to have
 *     3 ---'
 *
 * Nothing is fast here and nothing has to be: see comm_open_tcp. Collectives of all groups are one
 * sequence, in the order in which the host issued them, which is the same on every rank; each
 * message says where in it the sender is. */
#include "base/arena.h"
#include "runtime/comm/comm_ops.h"
#include "runtime/comm/comm_sum.h"
#include "runtime/comm/tcp_join.h"
#include "runtime/comm/tcp_socket.h"
#include "runtime/device/clock.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct header { /* before each part */
    uint64_t sequence, bytes;
};

struct tcp_comm {
    struct comm comm; /* first */
    double timeout_s;
    struct comm_group *groups;
    uint32_t group_count;
    int *socket; /* (ranks) rank 0: to each other one; others: [0] only */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t issued, serving; /* turns */
    bool broken;
};

static struct tcp_comm *tcp_of(struct comm *comm)
{
    return (struct tcp_comm *)comm;
}

static void abort_run(struct comm *comm, int status, const char *message)
{
    (void)comm; /* its end of each connection closes with it: the others notice */
    fprintf(stderr, "%s\n", message);
    fflush(stderr);
    _exit(status);
}

/* ---- turns ---- */

static uint64_t take_ticket(struct comm *base, int group)
{
    struct tcp_comm *comm = tcp_of(base);
    (void)group;
    pthread_mutex_lock(&comm->lock);
    const uint64_t ticket = comm->issued++;
    pthread_mutex_unlock(&comm->lock);
    return ticket;
}

static void await_turn(struct tcp_comm *comm, uint64_t ticket)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->serving != ticket)
        pthread_cond_wait(&comm->moved, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

static void pass_turn(struct tcp_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->serving++;
    pthread_cond_broadcast(&comm->moved);
    pthread_mutex_unlock(&comm->lock);
}

/* ---- an exchange ---- */

struct exchange {
    struct tcp_comm *comm;
    const char *name;
    uint32_t instruction;
    uint64_t sequence;
    double deadline_s;
};

static enum err_code gone(const struct exchange *x, uint32_t rank, struct err *err)
{
    err_context(err, "instruction %u: %s: rank %u", x->instruction, x->name, rank);
    return ERR_DEVICE;
}

static enum err_code send_to(const struct exchange *x, uint32_t rank, const void *data,
                             uint64_t bytes, struct err *err)
{
    const int fd = x->comm->socket[x->comm->comm.rank == 0 ? rank : 0];
    const struct header header = {x->sequence, bytes};
    if (tcp_send(fd, &header, sizeof header, x->deadline_s, err) != ERR_OK ||
        tcp_send(fd, data, bytes, x->deadline_s, err) != ERR_OK)
        return gone(x, rank, err);
    return ERR_OK;
}

static enum err_code receive_from(const struct exchange *x, uint32_t rank, void *data,
                                  uint64_t bytes, struct err *err)
{
    const int fd = x->comm->socket[x->comm->comm.rank == 0 ? rank : 0];
    struct header header;
    if (tcp_receive(fd, &header, sizeof header, x->deadline_s, err) != ERR_OK)
        return gone(x, rank, err);
    if (header.sequence != x->sequence || header.bytes != bytes) {
        err_set(err, ERR_DEVICE, "is at collective %llu with %llu bytes instead of %llu with %llu",
                (unsigned long long)header.sequence, (unsigned long long)header.bytes,
                (unsigned long long)x->sequence, (unsigned long long)bytes);
        return gone(x, rank, err);
    }
    if (tcp_receive(fd, data, bytes, x->deadline_s, err) != ERR_OK)
        return gone(x, rank, err);
    return ERR_OK;
}

/* Rank 0 gets everyone's `bytes` bytes into `all` (ranks parts); NULL on the others. */
static enum err_code collect(const struct exchange *x, const void *own, uint64_t bytes, char *all,
                             struct err *err)
{
    const struct comm *comm = &x->comm->comm;
    if (comm->rank > 0)
        return send_to(x, 0, own, bytes, err);
    if (bytes > 0)
        memcpy(all, own, bytes);
    for (uint32_t r = 1; r < comm->ranks; r++)
        TRY(receive_from(x, r, all + r * bytes, bytes, err));
    return ERR_OK;
}

/* What failed once has left ranks at different places of the sequence. */
static enum err_code check_unbroken(const struct exchange *x, struct err *err)
{
    if (!x->comm->broken)
        return ERR_OK;
    return err_set(err, ERR_DEVICE, "instruction %u: %s: an earlier collective failed",
                   x->instruction, x->name);
}

/* ---- collectives of a group ---- */

/* The group of `rank`: its first member; the k-th is first + k · stride. */
static uint32_t first_of(const struct comm_group *group, uint32_t rank)
{
    const uint32_t span = group->ranks * group->stride;
    return rank / span * span + rank % group->stride;
}

struct part { /* what a rank is to have, made by rank 0 from what all sent */
    const struct comm_group *group;
    const char *all;
    uint64_t in_bytes, out_count;
    enum dtype dtype;
    bool average;
    uint32_t root;        /* of a broadcast: its place in the group */
    const char **members; /* (group ranks) scratch */
};

typedef void make_part(const struct part *part, uint32_t rank, char *out);

static void make_gathered(const struct part *part, uint32_t rank, char *out)
{
    const uint32_t first = first_of(part->group, rank);
    for (uint32_t k = 0; k < part->group->ranks; k++)
        memcpy(out + k * part->in_bytes,
               part->all + (first + k * part->group->stride) * part->in_bytes, part->in_bytes);
}

/* Of each member's numbers, those from `at` on. */
static void sum_members(const struct part *part, uint32_t rank, uint64_t at, char *out)
{
    const uint32_t first = first_of(part->group, rank);
    for (uint32_t k = 0; k < part->group->ranks; k++)
        part->members[k] = part->all + (first + k * part->group->stride) * part->in_bytes +
                           at * dtype_bytes(part->dtype);
    comm_sum(part->members, part->group->ranks, part->out_count, part->dtype, part->average, out);
}

static void make_reduced(const struct part *part, uint32_t rank, char *out)
{
    sum_members(part, rank, 0, out);
}

static void make_scattered(const struct part *part, uint32_t rank, char *out)
{
    const uint32_t place = (rank - first_of(part->group, rank)) / part->group->stride;
    sum_members(part, rank, place * part->out_count, out);
}

static void make_broadcast(const struct part *part, uint32_t rank, char *out)
{
    const uint32_t root = first_of(part->group, rank) + part->root * part->group->stride;
    memcpy(out, part->all + root * part->in_bytes, part->in_bytes);
}

/* Everyone sends `part->in_bytes` of `in` and gets what `make` makes for it, in `out`. */
static enum err_code exchange_parts(const struct exchange *x, struct part *part, make_part *make,
                                    const void *in, void *out, struct err *err)
{
    const struct comm *comm = &x->comm->comm;
    const uint64_t out_bytes = part->out_count * dtype_bytes(part->dtype);
    if (comm->rank > 0) {
        TRY(collect(x, in, part->in_bytes, NULL, err));
        return receive_from(x, 0, out, out_bytes, err);
    }
    char *all = xmalloc(comm->ranks * part->in_bytes + 1), *made = xmalloc(out_bytes + 1);
    part->members = xmalloc(part->group->ranks * sizeof *part->members);
    part->all = all;
    enum err_code rc = collect(x, in, part->in_bytes, all, err);
    for (uint32_t r = comm->ranks; r-- > 0 && rc == ERR_OK;) { /* its own last: in may be out */
        make(part, r, r > 0 ? made : out);
        if (r > 0)
            rc = send_to(x, r, made, out_bytes, err);
    }
    free((void *)part->members);
    free(made);
    free(all);
    return rc;
}

static enum err_code run_part(struct comm *base, int group, uint64_t ticket, const char *name,
                              uint32_t instruction, struct part *part, make_part *make,
                              const void *in, void *out, struct err *err)
{
    struct tcp_comm *comm = tcp_of(base);
    assert(group >= 0 && group < (int)comm->group_count);
    await_turn(comm, ticket);
    const struct exchange x = {comm, name, instruction, ticket,
                               comm->timeout_s > 0 ? clock_now_s() + comm->timeout_s : 0};
    part->group = &comm->groups[group];
    enum err_code rc = check_unbroken(&x, err);
    if (rc == ERR_OK)
        rc = exchange_parts(&x, part, make, in, out, err);
    comm->broken = comm->broken || rc != ERR_OK;
    pass_turn(comm);
    return rc;
}

static enum err_code all_gather(struct comm *base, int group, uint64_t ticket, void *data,
                                uint64_t count, enum dtype dtype, uint32_t instruction,
                                struct err *err)
{
    const struct comm_group *of = &tcp_of(base)->groups[group];
    const uint64_t bytes = count * dtype_bytes(dtype);
    const uint32_t place = (base->rank - first_of(of, base->rank)) / of->stride;
    struct part part = {.in_bytes = bytes, .out_count = count * of->ranks, .dtype = dtype};
    return run_part(base, group, ticket, "all_gather", instruction, &part, make_gathered,
                    (char *)data + place * bytes, data, err);
}

static enum err_code reduce_scatter(struct comm *base, int group, uint64_t ticket, const void *in,
                                    void *out, uint64_t count, enum dtype dtype, bool average,
                                    uint32_t instruction, struct err *err)
{
    const struct comm_group *of = &tcp_of(base)->groups[group];
    struct part part = {.in_bytes = of->ranks * count * dtype_bytes(dtype),
                        .out_count = count,
                        .dtype = dtype,
                        .average = average};
    TRY(comm_sum_check(dtype, instruction, err));
    return run_part(base, group, ticket, "reduce_scatter", instruction, &part, make_scattered, in,
                    out, err);
}

static enum err_code all_reduce(struct comm *base, int group, uint64_t ticket, const void *in,
                                void *out, uint64_t count, enum dtype dtype, bool average,
                                uint32_t instruction, struct err *err)
{
    struct part part = {.in_bytes = count * dtype_bytes(dtype),
                        .out_count = count,
                        .dtype = dtype,
                        .average = average};
    TRY(comm_sum_check(dtype, instruction, err));
    return run_part(base, group, ticket, "all_reduce", instruction, &part, make_reduced, in, out,
                    err);
}

static enum err_code group_broadcast(struct comm *base, int group, uint64_t ticket, void *data,
                                     uint64_t count, enum dtype dtype, uint32_t root,
                                     uint32_t instruction, struct err *err)
{
    struct part part = {
        .in_bytes = count * dtype_bytes(dtype), .out_count = count, .dtype = dtype, .root = root};
    assert(root < tcp_of(base)->groups[group].ranks);
    return run_part(base, group, ticket, "broadcast", instruction, &part, make_broadcast, data,
                    data, err);
}

static void skip(struct comm *base, int group, uint64_t ticket, uint32_t instruction)
{
    struct tcp_comm *comm = tcp_of(base);
    (void)group;
    (void)instruction;
    await_turn(comm, ticket);
    comm->broken = true; /* rank 0 would take the next part for this one */
    pass_turn(comm);
}

/* ---- among all ranks ---- */

static struct exchange begin(struct comm *base, const char *name)
{
    struct tcp_comm *comm = tcp_of(base);
    const uint64_t ticket = take_ticket(base, 0);
    await_turn(comm, ticket);
    return (struct exchange){comm, name, 0, ticket,
                             comm->timeout_s > 0 ? clock_now_s() + comm->timeout_s : 0};
}

static enum err_code end(const struct exchange *x, enum err_code rc)
{
    x->comm->broken = x->comm->broken || rc != ERR_OK;
    pass_turn(x->comm);
    return rc;
}

static enum err_code pass_on(const struct exchange *x, void *data, uint64_t bytes, uint32_t root,
                             struct err *err)
{
    const struct comm *comm = &x->comm->comm;
    TRY(check_unbroken(x, err));
    if (comm->rank > 0 && comm->rank == root)
        return send_to(x, 0, data, bytes, err);
    if (comm->rank > 0)
        return receive_from(x, 0, data, bytes, err);
    if (root > 0)
        TRY(receive_from(x, root, data, bytes, err));
    for (uint32_t r = 1; r < comm->ranks; r++)
        if (r != root)
            TRY(send_to(x, r, data, bytes, err));
    return ERR_OK;
}

static enum err_code broadcast(struct comm *base, void *data, uint64_t bytes, uint32_t root,
                               struct err *err)
{
    assert(root < base->ranks);
    const struct exchange x = begin(base, "broadcast");
    return end(&x, pass_on(&x, data, bytes, root, err));
}

static enum err_code gather_at(const struct exchange *x, const void *in, uint64_t bytes, void *out,
                               uint32_t root, struct err *err)
{
    const struct comm *comm = &x->comm->comm;
    const uint64_t whole = bytes * comm->ranks;
    TRY(check_unbroken(x, err));
    char *all = comm->rank == 0 && root > 0 ? xmalloc(whole + 1) : out;
    enum err_code rc = collect(x, in, bytes, all, err);
    if (rc == ERR_OK && root > 0 && comm->rank == 0)
        rc = send_to(x, root, all, whole, err);
    if (rc == ERR_OK && root > 0 && comm->rank == root)
        rc = receive_from(x, 0, out, whole, err);
    if (all != out)
        free(all);
    return rc;
}

static enum err_code gather(struct comm *base, const void *in, uint64_t bytes, void *out,
                            uint32_t root, struct err *err)
{
    assert(root < base->ranks);
    const struct exchange x = begin(base, "gather");
    return end(&x, gather_at(&x, in, bytes, out, root, err));
}

static enum err_code barrier(struct comm *base, struct err *err)
{
    const struct exchange x = begin(base, "barrier");
    char byte = 0, *all = xmalloc(base->ranks);
    enum err_code rc = check_unbroken(&x, err);
    if (rc == ERR_OK)
        rc = collect(&x, &byte, 1, all, err);
    if (rc == ERR_OK)
        rc = pass_on(&x, &byte, 1, 0, err);
    free(all);
    return end(&x, rc);
}

static enum err_code check_whole(struct comm *base, struct err *err)
{
    const struct tcp_comm *comm = tcp_of(base);
    for (uint32_t r = 0; r < base->ranks; r++)
        if (comm->socket[r] >= 0 && tcp_is_closed(comm->socket[r]))
            return err_set(err, ERR_DEVICE, "rank %u: its process has ended", r);
    return ERR_OK;
}

/* ---- opening and closing ---- */

static void close_tcp(struct comm *base)
{
    struct tcp_comm *comm = tcp_of(base);
    for (uint32_t r = 0; r < base->ranks; r++)
        if (comm->socket[r] >= 0)
            close(comm->socket[r]);
    pthread_mutex_destroy(&comm->lock);
    pthread_cond_destroy(&comm->moved);
    free(comm->socket);
    free(comm->groups);
    free(comm);
}

enum err_code comm_open_tcp(const struct comm_meeting *at, uint32_t rank, uint32_t ranks,
                            const struct comm_group *groups, uint32_t group_count, double timeout_s,
                            struct comm **out, struct err *err)
{
    static const struct comm_ops ops = {
        .close = close_tcp,
        .ticket = take_ticket,
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
    *out = NULL;
    if (rank >= ranks)
        return err_set(err, ERR_INVALID, "rank %u of %u: there is none", rank, ranks);
    for (uint32_t i = 0; i < group_count; i++)
        if (groups[i].ranks * groups[i].stride == 0 ||
            ranks % (groups[i].ranks * groups[i].stride) != 0)
            return err_set(err, ERR_INVALID,
                           "groups of %u ranks at stride %u do not divide the %u ranks of this "
                           "run; start as many as the plan is for",
                           groups[i].ranks, groups[i].stride, ranks);
    struct tcp_comm *comm = xcalloc(1, sizeof *comm);
    comm->comm = (struct comm){&ops, rank, ranks};
    comm->timeout_s = timeout_s;
    comm->group_count = group_count;
    comm->groups = xmalloc((group_count + 1) * sizeof *groups);
    if (group_count > 0)
        memcpy(comm->groups, groups, group_count * sizeof *groups);
    comm->socket = xmalloc(ranks * sizeof *comm->socket);
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->moved, NULL);
    const enum err_code rc = tcp_join(at, rank, ranks, timeout_s, comm->socket, err);
    if (rc == ERR_OK) {
        *out = &comm->comm;
        return ERR_OK;
    }
    err_context(err, "rank %u: joining the other ranks at %s:%u", rank, at->host, at->port);
    close_tcp(&comm->comm);
    return rc;
}
