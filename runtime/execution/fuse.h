/* fuse.h - chains of a plan's kernels that run as one.
 *
 *     plan     alloc a | cast x -> a | alloc b | mul a f -> b | alloc y | cast b -> y | free b, a
 *     run      alloc a |             | alloc b |              | alloc y | rotate x f -> y | free
 * ...
 *
 * Memory is the plan's, to the byte: every buffer is allocated and freed where the plan says it,
 * some only stay unwritten. A chain is put off until its last kernel is issued; then it is launched
 * as one work (runtime/work/fused.h). What makes that the same program:
 *
 *     one lane     its kernels follow each other on it. One that does not belong may lie between
 *                  only where it neither writes what the chain reads nor touches what it writes,
 *                  and the chain's memory is there until the end.
 *     no border    between them the lane records no event and waits for none, no micro-batch begins
 *     unwritten    is only what the chain alone reads, before it is freed, and what registers hold
 *                  as memory would: fp32, or rounded on its way
 *     overlap      memory that was freed on the way may be an output's by now. Chains that read an
 *                  element before they write it may have their output exactly there; otherwise, and
 *                  where a segment goes back to the device, its kernels are launched one by one,
 *                  late and in order, which is always right.
 *
 * Which chains there are is a table of patterns in fuse.c. */
#ifndef SHARDPLAN_FUSE_H
#define SHARDPLAN_FUSE_H

#include "plan/plan.h"
#include "runtime/work/operand.h"

/* Operands of a chain's work: at most so many, or one more than its first kernel reads. */
enum { FUSE_MEMBERS = 4, FUSE_OPERANDS = 8 };

#define FUSE_NONE UINT32_MAX

struct fuse_place { /* an operand of one of the chain's kernels */
    uint8_t member;
    bool written;     /* of an output: not only on its way */
    uint16_t operand; /* ins, then outs */
};

struct fuse_chain {
    enum work_kind kind;
    struct kernel_attr attr;
    uint32_t rank, ranks;                   /* of the last one's group */
    uint32_t members, member[FUSE_MEMBERS]; /* instructions, in order */
    uint32_t ins, outs;
    struct fuse_place *places; /* (ins + outs) */
    bool in_place;             /* an output may be exactly where an input is */
};

struct fusion {
    struct arena arena;
    struct fuse_chain *chains;
    uint32_t count, cap;
    uint32_t *chain_of; /* (instructions) its chain; FUSE_NONE */
};

/* Every chain of a plan that plan_check_runnable accepts, of operands without strides of their own;
 * no instruction is in two. The caller owns it: fusion_close. Lends nothing of the plan. */
struct fusion *fusion_find(const struct plan *plan, enum work_backend backend);
void fusion_close(struct fusion *fusion); /* NULL is allowed */

/* The chain that an instruction belongs to; NULL: none, or `fusion` is NULL. */
static inline const struct fuse_chain *fusion_chain(const struct fusion *fusion, uint32_t id)
{
    return fusion && fusion->chain_of[id] != FUSE_NONE ? &fusion->chains[fusion->chain_of[id]]
                                                       : NULL;
}

/* The chain's work on operands that lie where `operands` says: (members) lists, each of one
 * kernel's ins and outs. `out` has room for the chain's ins and outs and is lent to the result. */
struct work fuse_work(const struct fuse_chain *chain, const struct work_operand *const *operands,
                      struct work_operand *out);

/* Whether none of its outputs lies over an input or another output, but exactly, where it may. */
bool fuse_fits(const struct fuse_chain *chain, const struct work *work);

#endif
