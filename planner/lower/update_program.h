/* update_program.h - the program that torch.compile makes of one update of torchao's
 * (single_param_adam in torchao/optim/adam.py), as Inductor writes it for a GPU of 132
 * multiprocessors: recorded in tests/data/truth (compile_optimizers.jsonl).
 *
 * States that are numbers or codes of 8 bits are read, updated and written by one kernel, which
 * allocates nothing. Codes of 4 bits lie two in a byte, and what is written to a byte has to be
 * there first: values in fp32, and places in a table in int64, of all of both states. */
#ifndef SHARDPLAN_UPDATE_PROGRAM_H
#define SHARDPLAN_UPDATE_PROGRAM_H

#include "lower/states.h"

/* Memory of a program, of each state one after the other. */
enum program_buffer {
    PROGRAM_PARTS,      /* of few blocks: the largest of each half of a block */
    PROGRAM_RANGES = 2, /* the largest of each block */
    PROGRAM_VALUES = 4, /* every element, divided by its block's largest */
    PROGRAM_PLACES = 6, /* where that is in the table */
    PROGRAM_BUFFERS = 8
};

enum program_kernel {
    PROGRAM_UPDATE, /* gradient, parameter, states -> parameter, and the states or what they are
                       made of */
    PROGRAM_HALVES, /* gradient, states -> both parts */
    PROGRAM_BLOCKS, /* parts -> ranges, of a state */
    PROGRAM_CODE,   /* values, places -> codes, likewise */
    PROGRAM_SCALE,  /* ranges -> scales, likewise */
};

enum program_what { PROGRAM_BIRTH, PROGRAM_DEATH, PROGRAM_RUN };

struct program_event {
    uint8_t what;  /* enum program_what */
    uint8_t of;    /* enum program_buffer and which state's; enum program_kernel */
    uint8_t state; /* of a kernel: which state's */
};

struct update_program {
    const struct program_event *events; /* static */
    uint32_t count;
};

/* Of a tensor of `elements`; `bits` of its codes, 0: states are numbers. */
struct update_program update_program(uint32_t bits, uint64_t elements);

/* Elements of a buffer of the program, and their dtype. */
uint64_t update_program_elements(uint32_t buffer, uint64_t elements);
enum dtype update_program_dtype(uint32_t buffer);

#endif
