/* tape_calls.c - where modules are called, down to the smallest (tape_options.call_hooks; calls.h).
 *
 * `open` has the modules that the pass is in, outermost first. Before an operator that uses a
 * module's parameters, that module and those around it are entered; behind it, all are left that
 * the next such operator is not in. Blocks are entered and left where the script says. Backward is
 * the same from behind. A recomputed block is called again, within the hooks of backward. */
#include "graph/tape_calls.h"

#include <assert.h>

static enum step_kind enter_kind(const struct tape *tape)
{
    return tape->backward && !tape->recomputing ? STEP_CALL_BACKWARD : STEP_CALL_FORWARD;
}

static uint32_t top(const struct tape *tape)
{
    return tape->open.at[tape->open.depth - 1];
}

static void push(struct tape *tape, uint32_t call)
{
    assert(tape->open.depth < CALLS_DEEP);
    tape->open.at[tape->open.depth++] = call;
    tape_step(tape, enter_kind(tape), call);
}

/* In backward a hook behind a module needs an input whose gradient passes it. */
static void pop(struct tape *tape)
{
    const uint32_t call = tape->open.at[--tape->open.depth];
    if (enter_kind(tape) == STEP_CALL_FORWARD)
        tape_step(tape, STEP_RETURN_FORWARD, call);
    else if (tape->calls->at[call].input_grad)
        tape_step(tape, STEP_RETURN_BACKWARD, call);
}

void tape_enter_call(struct tape *tape, uint32_t call)
{
    uint32_t chain[CALLS_DEEP], deep = 0;
    while (tape->open.depth > 0 && !graph_call_within(tape->calls, call, top(tape)))
        pop(tape);
    for (uint32_t c = call; c != GRAPH_NONE && (tape->open.depth == 0 || c != top(tape));
         c = tape->calls->at[c].parent) {
        assert(deep < CALLS_DEEP);
        chain[deep++] = c;
    }
    while (deep-- > 0)
        push(tape, chain[deep]);
}

void tape_leave_call(struct tape *tape, uint32_t call)
{
    while (tape->open.depth > 0 && graph_call_within(tape->calls, top(tape), call))
        pop(tape);
}

void tape_enter_op(struct tape *tape, uint32_t op)
{
    if (tape->calls && tape->calls->of_op[op] != GRAPH_NONE)
        tape_enter_call(tape, tape->calls->of_op[op]);
}

/* Whether a storage came of an op of the call, or of one in it. */
static bool is_made_in(const struct tape *tape, uint32_t tensor, uint32_t call)
{
    const struct graph_storage *s = &tape->graph->storages[tape->graph->tensors[tensor].storage];
    return s->kind == STORAGE_ACTIVATION && call != GRAPH_NONE &&
           graph_call_within(tape->calls, tape->calls->of_op[s->index], call);
}

/* Whether the innermost call is left behind an op: the next one is not in it, nor is it a block. */
static bool is_left(const struct tape *tape, uint32_t op)
{
    const uint32_t next =
        enter_kind(tape) == STEP_CALL_FORWARD ? tape->calls->next[op] : tape->calls->last[op];
    return tape->open.depth > 0 && top(tape) > tape->calls->model &&
           top(tape) != tape->calls->beside && !tape->calls->at[top(tape)].bordered &&
           (next == GRAPH_NONE || !graph_call_within(tape->calls, next, top(tape)));
}

/* Behind an op: out of all that the next one is not in, up to a module that lets go of a tensor of
 * its own (or GRAPH_NONE) when it returns, in which this stays. Whether it does. */
static bool leave(struct tape *tape, uint32_t op, uint32_t dropped)
{
    if (enter_kind(tape) == STEP_CALL_FORWARD && tape->calls->returns[op])
        tape_leave_call(tape, tape->calls->of_op[op]);
    while (is_left(tape, op)) {
        if (dropped != GRAPH_NONE && is_made_in(tape, dropped, top(tape)))
            return true;
        pop(tape);
    }
    return false;
}

uint32_t tape_left_by(const struct tape *tape, uint32_t op)
{
    return is_left(tape, op) ? top(tape) : GRAPH_NONE;
}

void tape_return_from_op(struct tape *tape, uint32_t op)
{
    if (tape->calls)
        tape->returning = op;
}

void tape_return_before(struct tape *tape, const struct graph_item *next)
{
    const uint32_t op = tape->returning;
    if (op == GRAPH_NONE)
        return;
    const bool drops = next && next->kind == ITEM_DROP;
    if (drops && is_made_in(tape, next->arg, tape->calls->of_op[op]))
        return;
    if (tape->calls->of_op[op] == GRAPH_NONE || !leave(tape, op, drops ? next->arg : GRAPH_NONE))
        tape->returning = GRAPH_NONE;
}

static bool takes(const struct tape *tape, const struct graph_op *op, uint32_t root)
{
    for (uint32_t i = 0; i < op->ins; i++)
        if (op->in[i] != GRAPH_NONE && tape->root[op->in[i]] == root)
            return true;
    return false;
}

/* Of an op that uses no parameters only its neighbours say where it is. */
static bool is_or_may_be_in(const struct tape *tape, uint32_t op, uint32_t call)
{
    const uint32_t own = tape->calls->of_op[op];
    return own == GRAPH_NONE || graph_call_within(tape->calls, own, call);
}

bool tape_is_inner(const struct tape *tape, uint32_t op)
{
    const uint32_t call = tape->calls->of_op[op];
    return tape->calls->at[call].leaf && tape->calls->last[op] == call;
}

bool tape_adds_within(const struct tape *tape, uint32_t op, uint32_t tensor, uint32_t call)
{
    const struct graph *graph = tape->graph;
    const uint32_t *of_op = tape->calls->of_op, root = tape->root[tensor];
    for (uint32_t i = op + 1; i < graph->op_count && is_or_may_be_in(tape, i, call); i++)
        if (of_op[i] != GRAPH_NONE && takes(tape, &graph->ops[i], root))
            return true;
    for (uint32_t i = op; i-- > 0 && is_or_may_be_in(tape, i, call);)
        if (of_op[i] != GRAPH_NONE && takes(tape, &graph->ops[i], root))
            return true;
    return false;
}

void tape_enter_module(struct tape *tape, uint32_t module, bool wrapped)
{
    if (!tape->calls || tape->calls->of_module[module] == GRAPH_NONE)
        return;
    const uint32_t call = tape->calls->of_module[module];
    tape_enter_call(tape, call);
    if (wrapped) /* the checkpoint's wrapper is a module, too */
        tape_step(tape, enter_kind(tape), call);
}

void tape_leave_module(struct tape *tape, uint32_t module, bool wrapped)
{
    if (!tape->calls || tape->calls->of_module[module] == GRAPH_NONE)
        return;
    const uint32_t call = tape->calls->of_module[module];
    tape_leave_call(tape, call);
    if (wrapped && enter_kind(tape) == STEP_CALL_FORWARD)
        tape_step(tape, STEP_RETURN_FORWARD, call);
    else if (wrapped && tape->calls->at[call].input_grad)
        tape_step(tape, STEP_RETURN_BACKWARD, call);
}

struct open_calls tape_call_again(struct tape *tape, uint32_t module)
{
    const struct open_calls before = tape->open;
    if (!tape->calls || tape->calls->of_module[module] == GRAPH_NONE)
        return before;
    const uint32_t call = tape->calls->of_module[module];
    tape->open.depth = tape->calls->at[call].depth; /* what is around it is not called again */
    uint32_t outer = call;
    for (uint32_t d = tape->open.depth; d-- > 0;)
        tape->open.at[d] = outer = tape->calls->at[outer].parent;
    tape_enter_call(tape, call);
    return before;
}
