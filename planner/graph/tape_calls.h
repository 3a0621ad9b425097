/* tape_calls.h - steps where modules are called (calls.h): for the files tape*.c only. All do
 * nothing without tape_options.call_hooks. */
#ifndef SHARDPLAN_TAPE_CALLS_H
#define SHARDPLAN_TAPE_CALLS_H

#include "graph/tape_state.h"

/* A call is entered, with what is around it; what it is not in is left first. It is left, with
 * what is within it. */
void tape_enter_call(struct tape *tape, uint32_t call);
void tape_leave_call(struct tape *tape, uint32_t call);

/* Before an op, or its node. Behind it: the innermost call, where that is left; GRAPH_NONE. */
void tape_enter_op(struct tape *tape, uint32_t op);
uint32_t tape_left_by(const struct tape *tape, uint32_t op);

/* The same of forward, where what the op was last in has names of its own, which die before it
 * returns: it has with the first item of the script that is no such drop (`next`; NULL: none). */
void tape_return_from_op(struct tape *tape, uint32_t op);
void tape_return_before(struct tape *tape, const struct graph_item *next);

/* Whether the op is in a leaf module and not the last of it in backward. */
bool tape_is_inner(const struct tape *tape, uint32_t op);
/* Whether the op, which is in `call`, shares its input with others in that: gradients of such are
 * added up before the module returns. */
bool tape_adds_within(const struct tape *tape, uint32_t op, uint32_t tensor, uint32_t call);

/* At the borders of a module of the graph. `wrapped`: in a checkpoint's wrapper. */
void tape_enter_module(struct tape *tape, uint32_t module, bool wrapped);
void tape_leave_module(struct tape *tape, uint32_t module, bool wrapped);

/* A checkpointed module's forward runs again. Returns what was open, to be put back behind it. */
struct open_calls tape_call_again(struct tape *tape, uint32_t module);

#endif
