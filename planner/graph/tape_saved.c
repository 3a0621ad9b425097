/* tape_saved.c - what the node of an op saves (see tape_state.h). */
#include "graph/op_table.h"
#include "graph/tape_state.h"

bool tape_is_own_linear(const struct tape *tape, const struct graph_op *op)
{
    return (op->kind == OP_LINEAR || op->kind == OP_LINEAR_BIAS) && tape_own_linear(tape, op);
}

uint32_t tape_saved(const struct tape *tape, const struct graph_op *op, uint32_t saved[SAVED_MOST])
{
    const struct op_class *class = op_class(op);
    if (tape_is_own_linear(tape, op) && op->requires_grad) { /* all, and lets go in that order */
        for (uint32_t i = 0; i < op->ins; i++)
            saved[i] = op->in[i];
        return op->ins;
    }
    return op->requires_grad && class->saved ? class->saved(tape->graph, op, saved) : 0;
}
