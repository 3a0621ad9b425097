/* execute.h - walks a plan and does what it says, on any device.
 *
 * The executor knows instructions, not models or strategies: memory goes through the planner's own
 * allocator over the device's segments, kernels are launched on the stream they name, events order
 * the streams. It never blocks inside a step. */
#ifndef SHARDPLAN_EXECUTE_H
#define SHARDPLAN_EXECUTE_H

#include "memory/allocator.h"
#include "memory/snapshot_frames.h"
#include "plan/plan.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"
#include "runtime/execution/data.h"
#include "runtime/execution/fuse.h"

struct run_settings {
    float lr, beta1, beta2, eps, weight_decay;
    struct allocator_settings allocator; /* its segment functions are filled in here */
    const double *wait_s; /* (instructions) a rehearsal: what each piece of work that is not done
                             is to take, seconds, lent until execution_close; NULL: nothing */
    bool waits;  /* a rehearsal whose kernels are waits: memory, copies, collectives, streams and
                    events are as in any run, and nothing is computed, of which anything of a model
                    could be read. Memory is zero at first; what there is before the first step, the
                    losses and the norms stay nobody's */
    bool poison; /* for tests: memory that may be another buffer's by now is overwritten
                    (execute_poison.c); not with `fuse`, whose chains reach what was freed */
    struct snapshot_frames *frames; /* lent until execution_close: told what memory is for, for the
                                       snapshot that allocator.on_action writes to; NULL: none */
    bool fuse;                      /* chains of kernels run as one: runtime/execution/fuse.h */
};

struct step_result {
    double loss;      /* mean over micro-batches and ranks; NAN: nothing is computed */
    double grad_norm; /* of all parameters, before clipping; likewise */
    double
        seconds; /* of the whole step, by the host's clock, until the device has done all of it */
};

/* What happened at an instruction of the last step. Memory is bytes after it, 0 where it does not
 * change memory; times are 0 where it ran nothing. */
struct step_record {
    double begin_s, end_s;             /* on the device; all from the step's start on */
    double issue_begin_s, issue_end_s; /* on the host's thread */
    uint64_t allocated, reserved;
    uint32_t fused_into; /* 1 + the instruction that it ran as a part of; 0: by itself */
};

struct execution; /* opaque */

/* Checks that every kernel can be run, allocates what is there before the first step and fills
 * parameters with their initial values. `plan`, `device`, `comm` (NULL: one rank) and `data` are
 * lent until execution_close. ERR_UNSUPPORTED: a kernel this device lacks; ERR_NOMEM: names the
 * instruction, bytes asked, live and reserved, and the largest holders. */
enum err_code execution_open(const struct plan *plan, struct device *device, struct comm *comm,
                             struct data *data, const struct run_settings *settings,
                             struct execution **out, struct err *err);
void execution_close(struct execution *execution); /* NULL is allowed */

/* Whether the steps that follow are timed piece by piece; at first they are. That costs a GPU two
 * events a kernel, so a step's own `seconds` are those of training only where it is not recorded.
 * Memory is recorded in any case. */
void execution_record(struct execution *execution, bool on);

/* Runs one step (numbered from 0) to its end. */
enum err_code execution_step(struct execution *execution, uint32_t step, struct step_result *result,
                             struct err *err);

/* The last step, by instruction id: (instruction_count) records, lent until the next step. */
const struct step_record *execution_records(const struct execution *execution);

/* The chain of kernels that an instruction belongs to; NULL: none. */
const struct fuse_chain *execution_chain(const struct execution *execution, uint32_t instruction);

/* Its memory as it is now: lent. */
const struct allocator *execution_memory(const struct execution *execution);

/* Micro-batches a step. */
uint32_t execution_micro_batches(const struct execution *execution);

/* 2-norms of the parameters' gradients in the last step, before clipping: (param_count), lent. */
const double *execution_param_norms(const struct execution *execution);

enum {
    EXECUTION_GATHERED = -3,
    EXECUTION_STORE,
    EXECUTION_PARAM,
    EXECUTION_EXP_AVG,
    EXECUTION_EXP_AVG_SQ
};

/* The piece that holds parameter p as the optimizer updates it (`state` EXECUTION_PARAM), one of
 * its states, or the parameter as it is stored, which may be another, or a gathered copy that is
 * kept between steps. NULL: there is no such state. */
const struct plan_piece *execution_piece(const struct plan *plan, uint32_t p, int state);

/* The elements of that piece on this rank, as fp32: copies the part's elements out of (read) or
 * into (write) device memory; a state that the first step would make is made by a write. */
enum err_code execution_read(struct execution *execution, uint32_t p, int state, float *values,
                             struct err *err);
enum err_code execution_write(struct execution *execution, uint32_t p, int state,
                              const float *values, struct err *err);

#endif
