/* work.h - one piece of work for a device: what an instruction of a plan asks to be computed.
 *
 * Which computation it is, and what its operands are, says base/vocabulary.h. Operands are tensors
 * in device memory, row-major; `pitch` is the distance between rows of the last dims of a chunk of
 * a wider tensor (0: contiguous), and where that is not how they lie `layout` has the strides.
 * Arithmetic is in fp32 whatever the storage dtype; 16-bit results are rounded to nearest even when
 * stored. */
#ifndef SHARDPLAN_WORK_H
#define SHARDPLAN_WORK_H

#include "base/err.h"
#include "base/kernel.h"

struct work_operand {
    void *data; /* device address of the first element (offset applied) */
    struct shape shape;
    uint32_t pitch;               /* elements */
    uint8_t dtype;                /* enum dtype */
    const struct strides *layout; /* lent; NULL: as shape and pitch say */
};

struct work { /* lent to the device until the stream has passed it */
    enum work_kind kind;
    uint32_t instruction; /* id, for messages and records */
    uint32_t ins, outs;
    const struct work_operand *operand; /* ins, then outs */
    struct kernel_attr attr;
    uint32_t rank, ranks; /* COPY_IN, COPY_OUT, CHUNK_CAT: place in the shard group */
    int group;            /* collectives: index of the communicator */
    const char *label;    /* the plan's name for it, for profilers; NULL: none */
    void *workspace;      /* the plan's memory for a kernel that wants some; NULL: none */
    uint64_t workspace_bytes;
    double wait_s; /* of a rehearsal: what a collective without its peers is to take, or WORK_NONE,
                      which has no operands and is nothing but time that passes */
    struct {       /* ADAMW, SGD */
        float lr, beta1, beta2, eps, weight_decay;
        uint32_t step; /* from 1 */
    } update;
};

/* The work under which backends have a kernel for `kind` with so many operands in: itself, or one
 * that computes the same from the same operands. */
enum work_kind work_to_run(enum work_kind kind, uint32_t ins);

/* Where nobody looks at what comes out (a rehearsal): makes of a collective that no backend has one
 * that sends each rank as many bytes. All-to-all of x -> y: a gather of each rank's first slice
 * of x, as slices are all alike long; the largest of x: a sum. Others are left as they are.
 * `operand` is work's. */
void work_stand_in(struct work *work, struct work_operand *operand);

#endif
