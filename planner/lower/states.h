/* states.h - what an optimizer keeps of a tensor that it updates: which buffers, of which sizes, in
 * the order in which its first step makes them.
 *
 *     torch.optim.AdamW          the step counter; two states in the tensor's dtype
 *     bitsandbytes.optim.AdamW   of 8 bits: two states of codes, of each a scale a block, and two
 *                                tables of what codes stand for, which all tensors share; of small
 *                                tensors, and with 32 bits, two states in fp32
 *     torchao.optim.AdamW8bit    the step counter; two states of codes, each with its scales and a
 *                                table of its own; of small tensors, and where blocks do not
 *                                divide it, two in the tensor's dtype
 *     torchao.optim.AdamW4bit    the same, with two codes in a byte
 *
 * These are init_state and get_state_buffer of bitsandbytes/optim/optimizer.py (0.50) and
 * _new_buffer of torchao/optim/adam.py (0.18). */
#ifndef SHARDPLAN_STATES_H
#define SHARDPLAN_STATES_H

#include "lower/lowering.h"

enum optimizer_library { LIBRARY_TORCH, LIBRARY_BITSANDBYTES, LIBRARY_TORCHAO };

struct optimizer_rule {
    const char *name; /* its class, with its library */
    enum optimizer_library library;
    bool has_states; /* else all below is nothing */
    uint8_t bits;    /* of a code; 0: states are numbers */
    bool paged;      /* large states are managed memory */
};

enum { STATES_BLOCK = 256 }; /* elements of a scale; torchao's, as TrainingArguments have them */

const struct optimizer_rule *optimizer_rule(enum optimizer_kind kind);

/* ERR_UNSUPPORTED or ERR_INVALID, with a sentence: the optimizer does not go with the system. */
enum err_code check_optimizer(const struct system *system, const struct strategy *strategy,
                              struct err *err);

/* Whether ranks may have states of other kinds than each other: their parts of a parameter differ,
 * and by their sizes states have codes or pages, or have not. */
bool states_differ_by_rank(const struct lowering *low);

/* Whether an element of a state is an element of its buffer: of a rule's states that are codes. */
static inline bool codes_are_bytes(const struct optimizer_rule *rule)
{
    return rule->bits != 4;
}

/* The buffer that has a state of parameters as a piece; NONE: none has, or has it packed. */
uint32_t state_piece(const struct lowering *low, const struct optimized *o, uint32_t state);

/* Whether each tensor is updated by a kernel of its own: bitsandbytes', for which the host waits,
 * or the program that torch.compile makes of torchao's single_param_adam. */
static inline bool updates_each(const struct optimizer_rule *rule)
{
    return rule->library != LIBRARY_TORCH;
}

/* Updated by DeepSpeedCPUAdam: in one pass. */
static inline bool is_cpu_adam(const struct lowering *low, const struct optimized *o)
{
    return o->on_host && !low->strategy->offload;
}

/* Whether there is something of it on a rank that is like this one. Of flat parameters, which are
 * cut anywhere, some rank has something of each. */
bool optimized_has_elements(const struct lowering *low, const struct optimized *o);

/* The buffers of a tensor, in the order in which they are made; returns their number. */
enum { STATE_BUFFERS = 7 };
uint32_t state_buffers(const struct lowering *low, const struct optimized *o,
                       uint32_t buffers[STATE_BUFFERS]);

#endif
