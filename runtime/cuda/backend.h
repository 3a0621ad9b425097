/* backend.h - what shardrun and the cuda backend's shared object say to each other. No CUDA header
 * is needed to read it.
 *
 *     shardrun --- dlopen ---> shardrun_cuda.so
 *              settings  --->  cuda_backend_open  ---> struct device
 *              host      <---  broadcast (NCCL's id), check_whole (is a rank gone?), give_up,
 *                              run_on_host (offloaded updates)
 */
#ifndef SHARDPLAN_CUDA_BACKEND_H
#define SHARDPLAN_CUDA_BACKEND_H

#include "base/attention.h"
#include "base/err.h"
#include "runtime/comm/comm.h"
#include "runtime/work/work.h"

#include <stdint.h>

struct device;

enum { CUDA_BACKEND_VERSION = 5 };
#define CUDA_BACKEND_SYMBOL "cuda_backend_open"
#define CUDA_BACKEND_FILE "shardrun_cuda.so"
#define CUDA_BACKEND_VARIABLE "SHARDRUN_CUDA" /* names the file, for tests and unusual installs */

struct cuda_host { /* functions of the program that the shared object calls back */
    /* From rank 0 to all, as comm_broadcast; for NCCL's id. */
    enum err_code (*broadcast)(struct comm *comm, void *data, uint64_t bytes, uint32_t root,
                               struct err *err);
    /* As comm_check_whole; of any thread, while a collective of the device is under way. */
    enum err_code (*check_whole)(struct comm *comm, struct err *err);
    /* Prints the message and ends the run and this process; of any thread, while the thread that
     * has the device hangs in it. */
    void (*give_up)(struct comm *comm, const char *message);
    /* Runs work whose operands are all in host memory, as host_run. */
    enum err_code (*run_on_host)(const struct work *work, struct err *err);
};

struct cuda_settings {
    uint64_t memory_bytes;  /* segments may not exceed this in all; 0: no limit but the device's */
    uint32_t events;        /* are numbered below this */
    struct lane_list lanes; /* a stream each; the names are lent until close */
    struct comm *comm;      /* NULL: one rank, or a rehearsal */
    uint32_t rank, ranks;   /* of the run */
    uint32_t local_rank;    /* on this machine: which GPU */
    uint32_t group_count;   /* communicators: */
    const struct comm_group *groups;
    double timeout_s;                /* of a collective and of NCCL's start; 0: none */
    bool share_gpu;                  /* several ranks on one GPU: correctness only */
    bool register_buffers;           /* segments from ncclMemAlloc, registered with NCCL */
    enum attention_kernel attention; /* auto: cuDNN's where it takes the shape, else our own; cudnn:
                                        that or an error; own: never cuDNN's */
    bool deterministic;    /* the same bits every time: of cuDNN's attention only what adds without
                              atomics, and no measured choice of products (cuda_matmul.c) */
    const char *products;  /* file of the choices among cuBLASLt's kernels; NULL: none */
    struct cuda_host host; /* filled in by device_open_cuda */
};

/* What cuDNN says of attention on a GPU that need not be here. */
struct cuda_answer {
    char why_not[256];   /* "": one of its engines takes it */
    uint64_t work_bytes; /* the engine's own workspace */
    uint32_t version;    /* of cuDNN: 91002 is 9.10.2 */
};

/* Asks about ATTENTION or ATTENTION_BACKWARD on the GPU of `properties`, cuDNN's JSON of it. Needs
 * cuDNN 9.8 and no GPU. ERR_UNSUPPORTED, ERR_DEVICE: cuDNN is not there, or does not take them. */
typedef enum err_code cuda_ask_function(unsigned version, const char *properties,
                                        bool deterministic, const struct work *work,
                                        struct cuda_answer *answer, struct err *err);
#define CUDA_ASK_SYMBOL "cuda_backend_ask"

/* The type of the function CUDA_BACKEND_SYMBOL. ERR_UNSUPPORTED when `version` is not the shared
 * object's own. */
typedef enum err_code cuda_backend_function(unsigned version, const struct cuda_settings *settings,
                                            struct device **out, struct err *err);

#endif
