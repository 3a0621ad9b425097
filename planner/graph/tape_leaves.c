/* tape_leaves.c - tensors that need a gradient though nothing before them does, and what a forward
 * without grad mode, or under autocast, makes of leaves (see tape_reentrant.c, tape_state.h). */
#include "graph/tape_emit.h"
#include "graph/tape_state.h"

bool tape_is_without_grad(const struct tape *tape)
{
    return tape->without_grad || (tape->options->reentrant && tape->entered != GRAPH_NONE);
}

bool tape_repeats(struct tape *tape, uint32_t op)
{
    const struct graph_tensor *tensors = tape->graph->tensors;
    if (!tape->repeats[op])
        return false;
    const uint32_t again = tape->graph->ops[op].out[0];
    tape->where[tensors[again].storage] = tape->where[tensors[tape->same[again]].storage];
    return true;
}

static bool is_leaf(const struct graph *graph, uint32_t root)
{
    const struct graph_storage *s = &graph->storages[graph->tensors[root].storage];
    return graph->tensors[root].requires_grad && s->kind == STORAGE_ACTIVATION &&
           !graph->ops[s->index].requires_grad;
}

void tape_hold_leaf(struct tape *tape, uint32_t tensor)
{
    const uint32_t root = tape->root[tensor], storage = tape->graph->tensors[root].storage;
    if (!is_leaf(tape->graph, root) || tape->leaves[storage])
        return;
    tape->leaves[storage] = 1;
    tape_hold(tape, tape->where[storage]);
}

static void end_leaf(struct tape *tape, uint32_t root)
{
    const uint32_t storage = tape->graph->tensors[root].storage;
    if (tape->root[root] != root || !tape->leaves[storage] || !is_leaf(tape->graph, root))
        return;
    if (tape->slot[root] != NO_BUFFER)
        tape_release(tape, tape->slot[root]);
    tape->slot[root] = NO_BUFFER;
    tape->leaves[storage] = 0;
    tape_release(tape, tape->where[storage]);
}

void tape_end_leaves(struct tape *tape)
{
    for (uint32_t t = 0; tape->graph->has_leaves && t < tape->graph->tensor_count; t++)
        end_leaf(tape, t);
}
