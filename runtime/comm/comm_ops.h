/* comm_ops.h - what a way for ranks to talk must do; comm.c passes comm.h's calls on to it. */
#ifndef SHARDPLAN_COMM_OPS_H
#define SHARDPLAN_COMM_OPS_H

#include "runtime/comm/comm.h"

struct comm_ops { /* each as the function of comm.h with its name */
    void (*close)(struct comm *comm);
    uint64_t (*ticket)(struct comm *comm, int group);
    enum err_code (*all_gather)(struct comm *comm, int group, uint64_t ticket, void *data,
                                uint64_t count, enum dtype dtype, uint32_t instruction,
                                struct err *err);
    enum err_code (*reduce_scatter)(struct comm *comm, int group, uint64_t ticket, const void *in,
                                    void *out, uint64_t count, enum dtype dtype, bool average,
                                    uint32_t instruction, struct err *err);
    enum err_code (*all_reduce)(struct comm *comm, int group, uint64_t ticket, const void *in,
                                void *out, uint64_t count, enum dtype dtype, bool average,
                                uint32_t instruction, struct err *err);
    enum err_code (*group_broadcast)(struct comm *comm, int group, uint64_t ticket, void *data,
                                     uint64_t count, enum dtype dtype, uint32_t root,
                                     uint32_t instruction, struct err *err);
    void (*skip)(struct comm *comm, int group, uint64_t ticket, uint32_t instruction);
    enum err_code (*broadcast)(struct comm *comm, void *data, uint64_t bytes, uint32_t root,
                               struct err *err);
    enum err_code (*gather)(struct comm *comm, const void *in, uint64_t bytes, void *out,
                            uint32_t root, struct err *err);
    enum err_code (*barrier)(struct comm *comm, struct err *err);
    enum err_code (*check_whole)(struct comm *comm, struct err *err);
    void (*abort)(struct comm *comm, int status, const char *message);
};

struct comm { /* first member of each way's own struct */
    const struct comm_ops *ops;
    uint32_t rank, ranks;
};

#endif
