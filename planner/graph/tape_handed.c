/* tape_handed.c - what blocks put into a dictionary that all of them are called with (see
 * tape_state.h, graph_hand_on).
 *
 * Frames of checkpointed blocks hold the dictionary, and so what is in it. A block that runs again
 * puts another tensor in the place of the first, which dies; the new one has its graph, whose nodes
 * hold what they saved until the dictionary goes with the last of those frames. */
#include "graph/tape_state.h"

#include <stdlib.h>

static uint32_t storage_of(const struct tape *tape, uint32_t g, uint32_t i)
{
    return tape->graph->tensors[tape->graph->handed[g].tensor[i]].storage;
}

void tape_find_handed(struct tape *tape)
{
    for (uint32_t g = 0; g < tape->graph->handed_count && tape->region_count > 0; g++)
        for (uint32_t i = 0; i < HANDED_PAIR; i++)
            tape->handed[storage_of(tape, g, i)] = 1;
}

bool tape_is_handed_root(const struct tape *tape, uint32_t tensor)
{
    bool is_one = false;
    for (uint32_t g = 0; g < tape->graph->handed_count; g++)
        for (uint32_t i = 0; i < HANDED_PAIR; i++)
            is_one = is_one || tape->graph->handed[g].tensor[i] == tensor;
    return is_one;
}

static bool any_frame(const struct tape *tape)
{
    for (uint32_t r = 0; r < tape->region_count; r++)
        if (tape->regions[r].holds_inputs)
            return true;
    return false;
}

bool tape_is_handed(const struct tape *tape, uint32_t storage)
{
    return tape->handed[storage] && any_frame(tape);
}

static bool hands_on(const struct tape *tape, uint32_t g, const struct region *region)
{
    return tape->op_region[tape->graph->handed[g].op] == (uint32_t)(region - tape->regions);
}

void tape_before_handing(struct tape *tape, const struct region *region)
{
    for (uint32_t g = 0; g < tape->graph->handed_count; g++)
        for (uint32_t i = 0; i < HANDED_PAIR && hands_on(tape, g, region); i++) {
            const uint32_t storage = storage_of(tape, g, i);
            tape->before[g][i] = tape->where[storage];
            tape->python[storage] = 0;
        }
}

/* Whether a node is on the way to a marked tensor; then its inputs are marked, too. */
static bool leads_to(const struct tape *tape, const struct graph_op *op, bool *marked)
{
    bool any = false;
    for (uint32_t o = 0; o < op->outs; o++)
        any = any || marked[tape->root[op->out[o]]];
    for (uint32_t i = 0; any && i < op->ins; i++)
        if (op->in[i] != GRAPH_NONE && tape->graph->tensors[op->in[i]].requires_grad)
            marked[tape->root[op->in[i]]] = true;
    return any;
}

static void add_held(struct tape *tape, struct held held)
{
    ARRAY_GROW(tape->held, tape->held_count, tape->held_cap);
    tape->held[tape->held_count++] = held;
}

static void hold_saved(struct tape *tape, uint32_t op)
{
    uint32_t saved[SAVED_MOST];
    const uint32_t count = tape_saved(tape, &tape->graph->ops[op], saved);
    for (uint32_t i = 0; i < count; i++) {
        if (tape_is_activation(tape, saved[i])) {
            add_held(tape, (struct held){.op = op, .buffer = tape_buffer(tape, saved[i])});
            tape_hold(tape, tape_buffer(tape, saved[i]));
        } else if (tape_saves_memory(tape, op, saved[i])) {
            const uint32_t param = tape_param_index(tape, saved[i]);
            add_held(tape, (struct held){.op = op, .buffer = NO_BUFFER, .param = param});
            tape_step(tape, STEP_SAVED, param);
        }
    }
}

static void release_saved(struct tape *tape, uint32_t op)
{
    for (uint32_t i = 0; i < tape->held_count; i++) {
        const struct held held = tape->held[i];
        if (held.op == op && held.buffer != NO_BUFFER)
            tape_release(tape, held.buffer);
        else if (held.op == op)
            tape_step(tape, STEP_UNSAVED, held.param);
    }
    tape->handed_by[op] = 0;
}

/* The graph of what pair `g` has at `i`, within its region. */
static void hold_graph(struct tape *tape, uint32_t g, uint32_t i)
{
    const struct graph_handed *handed = &tape->graph->handed[g];
    const uint32_t region = tape->op_region[handed->op];
    bool *marked = xcalloc(tape->graph->tensor_count + 1, sizeof *marked);
    marked[tape->root[handed->tensor[i]]] = true;
    for (uint32_t op = handed->op + 1; op-- > 0 && tape->op_region[op] == region;) {
        if (!leads_to(tape, &tape->graph->ops[op], marked))
            continue;
        if (!tape->handed_by[op])
            hold_saved(tape, op);
        tape->handed_by[op] = (uint8_t)(1 + g * HANDED_PAIR + i); /* the last to let go of it */
    }
    free(marked);
}

void tape_hand_on(struct tape *tape, uint32_t op)
{
    for (uint32_t g = 0; g < tape->graph->handed_count; g++)
        for (uint32_t i = 0; i < HANDED_PAIR && tape->graph->handed[g].op == op; i++) {
            tape_release(tape, tape->before[g][i]);
            tape->before[g][i] = NO_BUFFER;
            hold_graph(tape, g, i);
        }
}

void tape_after_handing(struct tape *tape, const struct region *region)
{
    for (uint32_t g = 0; g < tape->graph->handed_count; g++)
        for (uint32_t i = 0; i < HANDED_PAIR && hands_on(tape, g, region); i++) {
            const uint32_t storage = storage_of(tape, g, i);
            if (tape->before[g][i] == NO_BUFFER)
                continue;
            tape_drop(tape, storage); /* the exception came before it was put there */
            tape->where[storage] = tape->before[g][i];
            tape->python[storage] = 1;
            tape->before[g][i] = NO_BUFFER;
        }
}

void tape_release_handed(struct tape *tape)
{
    if (!tape->backward || any_frame(tape))
        return;
    for (uint32_t g = 0; g < tape->graph->handed_count; g++)
        for (uint32_t i = 0; i < HANDED_PAIR; i++) {
            for (uint32_t op = tape->graph->op_count; op-- > 0;)
                if (tape->handed_by[op] == 1 + g * HANDED_PAIR + i)
                    release_saved(tape, op);
            tape_drop(tape, storage_of(tape, g, i));
        }
}
