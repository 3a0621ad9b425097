/* program.h - what Inductor makes of one graph, forward or backward: kernels in order, and the
 * memory that they read and write.
 *
 *     nodes --what must be in memory--> acts --fusion--> fewer acts --the order of least memory-->
 *
 * By the rules of PyTorch 2.14: what is given out, saved, reduced, or read by a kernel of a library
 * is in memory, what is elementwise else is computed where it is used (lowering), unless that is
 * much; much that is reduced to little is so in two kernels (split.c); kernels over the same
 * elements that share memory are one (torch/_inductor/scheduler.py); of several orders that with
 * the lowest peak is taken (memory.py); a result takes the memory of what dies with its kernel
 * where both are as large. Memory used again later is not told from memory freed and allocated:
 * Inductor does the former only where the peak stays as it is (codegen/wrapper.py,
 * should_reuse_buffer). */
#ifndef SHARDPLAN_PROGRAM_H
#define SHARDPLAN_PROGRAM_H

#include "compile/joint.h"

struct program_memory {
    uint32_t node;  /* whose result is there first; of outside: an input, or what was saved */
    uint32_t parts; /* so many partial results for each of the node's, which is reduced in two
                       kernels; 0: the result itself */
    uint32_t only;  /* a copy that this call alone reads, a node; JOINT_NONE: it is everybody's */
    bool outside;   /* there before the program runs */
    bool kept;      /* still needed behind it */
    bool lent; /* outside, and others have it, too: it is not written over, nor the program's to
                  free ("donated buffers", torch/_functorch/_aot_autograd) */
};

struct program_act {          /* one kernel */
    uint32_t call;            /* node of a call; JOINT_NONE: fused functions */
    bool reduces;             /* fused, and a sum over rows or columns is among them */
    uint32_t *reads, *writes; /* memory */
    uint32_t *picks; /* (read_count) the GATHER that picks the elements it reads; JOINT_NONE: all */
    uint32_t read_count, write_count;
    uint32_t *over; /* (write_count) memory that dies with it and that the write takes over;
                       JOINT_NONE: none */
    uint32_t *dies; /* memory that nobody reads any more behind it and nobody takes over */
    uint32_t die_count;
};

struct program {
    struct program_memory *memory;
    struct program_act *acts; /* in order */
    uint32_t memory_count, act_count;
};

struct program_wants {
    const uint32_t *saved; /* nodes: forward gives them out, backward has them */
    uint32_t saved_count;
    const uint32_t *results; /* nodes that are given out; JOINT_NONE: none */
    uint32_t result_count;
    const uint32_t *held; /* backward: nodes that forward gave out; JOINT_NONE: none */
    uint32_t held_count;
    bool backward;
};

/* The caller owns the result: program_free. */
struct program *program_of(const struct joint *joint, const struct program_wants *wants);
void program_free(struct program *program); /* NULL is allowed */

/* What lies in a memory of the program: `place` is its number. */
struct operand program_operand(const struct joint *joint, const struct program *program,
                               uint32_t memory);
uint64_t program_bytes(const struct joint *joint, const struct program *program, uint32_t memory);

/* The node that the memory of a node's result has the name of: behind all views. */
uint32_t program_home(const struct joint *joint, uint32_t node);

/* Highest bytes of its own memory while it runs, with what of `saved` it frees counted as there
 * before; what comes from outside else is not counted, nor what a call gives and nobody asks for,
 * which Inductor has no name for. */
uint64_t program_peak(const struct joint *joint, const struct program *program);

#endif
