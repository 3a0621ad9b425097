/* comm.h - collectives among the ranks of a run, over groups of them.
 *
 * Two implementations: MPI (Open MPI), started by mpirun, and TCP through rank 0, for launchers
 * that only set variables; a run of one rank has none (NULL). Collectives of one group run one at a
 * time, in the order in which the host issued them, whatever stream they are on, as on an NCCL
 * communicator: comm_ticket is called at issue, and the call waits for its turn. */
#ifndef SHARDPLAN_COMM_H
#define SHARDPLAN_COMM_H

#include "base/dtype.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct comm;

struct comm_group { /* as struct plan_group */
    uint32_t ranks, stride;
};

/* Joins the world of mpirun (MPI_THREAD_MULTIPLE) and makes one communicator a group: rank r is in
 * the group of the ranks (r / (ranks·stride))·ranks·stride + r % stride + k·stride, k < ranks.
 * `timeout_s`: a collective that takes longer fails the run, naming the instruction; 0: never. So
 * does joining that takes longer, and longer than half a minute.
 * The caller owns *out: comm_close. */
enum err_code comm_open_mpi(const struct comm_group *groups, uint32_t group_count, double timeout_s,
                            struct comm **out, struct err *err);

/* Where ranks meet. The token is the job's: whoever does not say it is no rank of it. One that
 * nobody can guess keeps strangers out, any other keeps two jobs apart; "" is one, too. */
#define COMM_TOKEN_VARIABLE "SHARDPLAN_TOKEN"
enum { COMM_TOKEN_BYTES = 64 }; /* with its end */
struct comm_meeting {
    const char *host;
    uint16_t port;
    const char *token;
};

/* The same over TCP: ranks 1 ... ranks - 1 connect to rank 0 there and every collective goes
 * through it. That is enough for what a GPU run says on the host (ids, losses, norms, checkpoints);
 * the host backend's own collectives work, and are slow. A rank that never comes, or goes away,
 * ends the run as `timeout_s` and comm_abort say. */
enum err_code comm_open_tcp(const struct comm_meeting *at, uint32_t rank, uint32_t ranks,
                            const struct comm_group *groups, uint32_t group_count, double timeout_s,
                            struct comm **out, struct err *err);
void comm_close(struct comm *comm); /* NULL is allowed; every rank must call it */

/* This process's rank and how many there are. */
uint32_t comm_rank(const struct comm *comm);
uint32_t comm_ranks(const struct comm *comm);

/* At issue: the turn of the next collective on the group. */
uint64_t comm_ticket(struct comm *comm, int group);

/* Each blocks its thread until done. Buffers are host memory; counts are elements. `instruction`
 * is for messages. all_gather: `data` holds ranks·count elements, own slice filled. reduce_scatter:
 * `in` has ranks·count elements, `out` count. Sums are in fp32 for 16-bit dtypes, rounded once;
 * `average` divides by the ranks. */
enum err_code comm_all_gather(struct comm *comm, int group, uint64_t ticket, void *data,
                              uint64_t count, enum dtype dtype, uint32_t instruction,
                              struct err *err);
enum err_code comm_reduce_scatter(struct comm *comm, int group, uint64_t ticket, const void *in,
                                  void *out, uint64_t count, enum dtype dtype, bool average,
                                  uint32_t instruction, struct err *err);
enum err_code comm_all_reduce(struct comm *comm, int group, uint64_t ticket, const void *in,
                              void *out, uint64_t count, enum dtype dtype, bool average,
                              uint32_t instruction, struct err *err);
/* In place, the elements of the group's rank `root` to all of it; of any dtype. */
enum err_code comm_group_broadcast(struct comm *comm, int group, uint64_t ticket, void *data,
                                   uint64_t count, enum dtype dtype, uint32_t root,
                                   uint32_t instruction, struct err *err);

/* Uses up a turn whose collective is not going to run, because something failed. Collectives of the
 * group that come after it fail on this rank, so that no other rank takes their data for this
 * one's. */
void comm_skip(struct comm *comm, int group, uint64_t ticket, uint32_t instruction);

/* Among all ranks, outside any group: for set-up, checks and checkpoints. */
enum err_code comm_broadcast(struct comm *comm, void *data, uint64_t bytes, uint32_t root,
                             struct err *err);
enum err_code comm_gather(struct comm *comm, const void *in, uint64_t bytes, void *out,
                          uint32_t root, struct err *err);
enum err_code comm_barrier(struct comm *comm, struct err *err);

/* ERR_DEVICE when it can be told at once, without a message to anyone, that a rank is gone: over
 * TCP, by its closed connection. MPI ends the run itself. Not while a collective is under way. */
enum err_code comm_check_whole(struct comm *comm, struct err *err);

/* Ends the whole run at once with this exit status, after `message` was printed by this rank. It
 * begins with "shardrun: ", by which `shardplan run` knows it among mpirun's. */
void comm_abort(struct comm *comm, int status, const char *message);

#endif
