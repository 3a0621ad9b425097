/* comm_link.h - turns and messages within one group of ranks; for comm_mpi.c only.
 *
 * A collective is: link_begin (waits for its turn), then rounds of link_send and link_receive each
 * ended by link_finish, then link_end. Only who has the turn touches what a group holds; turns and
 * aborting aside, nothing else changes between opening and closing.
 *
 * A collective that fails or is skipped on one rank breaks the group there: the next one would meet
 * the failed one on other ranks, which would take its data for what they wait for. */
#ifndef SHARDPLAN_COMM_LINK_H
#define SHARDPLAN_COMM_LINK_H

#include "base/err.h"
#include "runtime/comm/comm_ops.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

enum { LINK_PIECE_BYTES = 1 << 30 }; /* the longest message */
enum { EXIT_TIMEOUT = 3 };

struct turn {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t issued, serving;
};

struct group {
    MPI_Comm mpi;
    uint32_t rank, ranks; /* in the group */
    struct turn turn;
    MPI_Request *requests; /* (2 ranks) */
    int pending;           /* of them */
    bool broken;
    const char **part; /* (ranks) of a sum: where each rank's numbers are */
    char *scratch;
    size_t scratch_bytes;
};

struct mpi_comm {
    struct comm comm; /* first */
    double timeout_s;
    uint32_t group_count;
    atomic_flag aborting;
    struct group *groups; /* (group_count + 1) the last is the whole world, for set-up */
};

struct call { /* one collective, on the thread that makes it */
    struct mpi_comm *comm;
    struct group *group;
    int number; /* of the group; group_count: the world */
    const char *name;
    uint32_t instruction;
    double deadline_s; /* 0: none */
};

/* Returns MPI's failure with the text of the call that failed. */
enum err_code link_check(int rc, const char *what, struct err *err);
#define TRY_MPI(err, call) TRY(link_check((call), #call, (err)))

/* Prepares the group so that link_close may follow; link_open then joins the others. */
void link_init(struct group *group);
enum err_code link_open(const struct mpi_comm *comm, const struct comm_group *shape,
                        struct group *group, struct err *err);
void link_close(struct group *group);

/* comm_abort of MPI. */
void link_abort(struct mpi_comm *comm, int status, const char *message);

uint64_t link_ticket(struct group *group);
struct call link_begin(struct mpi_comm *comm, int group, uint64_t ticket, const char *name,
                       uint32_t instruction);
/* Passes the turn on, puts the call in front of MPI's failure and returns rc. */
enum err_code link_end(const struct call *call, enum err_code rc, struct err *err);

/* Up to LINK_PIECE_BYTES each, to or from each rank of the group once a round; 0 bytes: none. */
enum err_code link_send(struct group *group, uint32_t to, const char *data, uint64_t bytes,
                        struct err *err);
enum err_code link_receive(struct group *group, uint32_t from, char *data, uint64_t bytes,
                           struct err *err);
/* Waits for the messages of this round; a time-out ends the run. */
enum err_code link_finish(const struct call *call, struct err *err);

/* The k-th other rank, from the next one on: so that not all begin with rank 0. */
static inline uint32_t link_peer(const struct group *group, uint32_t k)
{
    return (group->rank + k) % group->ranks;
}

/* Lent until asked again. */
char *link_scratch(struct group *group, size_t bytes);

#endif
