/* comm.c - see comm.h: each call goes to the way that the comm was opened by. */
#include "runtime/comm/comm_ops.h"

#include <stddef.h>

void comm_close(struct comm *comm)
{
    if (comm)
        comm->ops->close(comm);
}

uint32_t comm_rank(const struct comm *comm)
{
    return comm->rank;
}

uint32_t comm_ranks(const struct comm *comm)
{
    return comm->ranks;
}

uint64_t comm_ticket(struct comm *comm, int group)
{
    return comm->ops->ticket(comm, group);
}

enum err_code comm_all_gather(struct comm *comm, int group, uint64_t ticket, void *data,
                              uint64_t count, enum dtype dtype, uint32_t instruction,
                              struct err *err)
{
    return comm->ops->all_gather(comm, group, ticket, data, count, dtype, instruction, err);
}

enum err_code comm_reduce_scatter(struct comm *comm, int group, uint64_t ticket, const void *in,
                                  void *out, uint64_t count, enum dtype dtype, bool average,
                                  uint32_t instruction, struct err *err)
{
    return comm->ops->reduce_scatter(comm, group, ticket, in, out, count, dtype, average,
                                     instruction, err);
}

enum err_code comm_all_reduce(struct comm *comm, int group, uint64_t ticket, const void *in,
                              void *out, uint64_t count, enum dtype dtype, bool average,
                              uint32_t instruction, struct err *err)
{
    return comm->ops->all_reduce(comm, group, ticket, in, out, count, dtype, average, instruction,
                                 err);
}

enum err_code comm_group_broadcast(struct comm *comm, int group, uint64_t ticket, void *data,
                                   uint64_t count, enum dtype dtype, uint32_t root,
                                   uint32_t instruction, struct err *err)
{
    return comm->ops->group_broadcast(comm, group, ticket, data, count, dtype, root, instruction,
                                      err);
}

void comm_skip(struct comm *comm, int group, uint64_t ticket, uint32_t instruction)
{
    comm->ops->skip(comm, group, ticket, instruction);
}

enum err_code comm_broadcast(struct comm *comm, void *data, uint64_t bytes, uint32_t root,
                             struct err *err)
{
    return comm->ops->broadcast(comm, data, bytes, root, err);
}

enum err_code comm_gather(struct comm *comm, const void *in, uint64_t bytes, void *out,
                          uint32_t root, struct err *err)
{
    return comm->ops->gather(comm, in, bytes, out, root, err);
}

enum err_code comm_barrier(struct comm *comm, struct err *err)
{
    return comm->ops->barrier(comm, err);
}

enum err_code comm_check_whole(struct comm *comm, struct err *err)
{
    return comm->ops->check_whole(comm, err);
}

void comm_abort(struct comm *comm, int status, const char *message)
{
    comm->ops->abort(comm, status, message);
}
