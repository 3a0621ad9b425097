/* tape_reentrant.c - reentrant checkpoints: backward within backward (torch.utils.checkpoint's
 * CheckpointFunction; see tape_state.h).
 *
 * Such a block, in time:
 *
 *     forward   without grad mode: what nodes would save dies with Python's names. The checkpoint's
 *               own node saves what the block is called with by position (the first input); what it
 *               is called with by name is the checkpointed function's, and goes with the graph
 *     backward  the gradient of the output arrives -> the script runs again to its end, from
 *               detached inputs, holding what nodes save, and a backward of its own begins: nodes
 *               run as those of any graph do. What the block returned and its gradient are the
 *               outer node's until that has ended; then the inputs' gradients go outside
 *
 * A block may return more than others ask of it (attention's weights beside the hidden states). The
 * outer node is handed zeros as the gradient of that (materialize_grads in
 * torch/csrc/autograd/python_function.cpp), from which the block's own backward begins, too.
 *
 * What needs a gradient though nothing before it does (graph_need_input_gradients) is a leaf: it
 * and its gradient go with the graph, too. */
#include "base/layout.h"
#include "graph/op_table.h"
#include "graph/tape_emit.h"
#include "graph/tape_state.h"

#include <assert.h>

static const struct graph_module *module_of(const struct tape *tape, const struct region *region)
{
    return &tape->graph->modules[tape->graph->items[region->first].arg];
}

static struct region *region_of(struct tape *tape, uint32_t module)
{
    for (uint32_t r = 0; r < tape->region_count; r++)
        if (tape->graph->items[tape->regions[r].first].arg == module)
            return &tape->regions[r];
    return NULL;
}

static bool takes_gradient(const struct tape *tape, const struct graph_module *m, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) /* one tensor may be several arguments */
        if (tape->root[m->input[k]] == tape->root[m->input[i]])
            return false;
    return tape_is_activation(tape, m->input[i]) && tape->graph->tensors[m->input[i]].requires_grad;
}

/* Gradients that others of the outer graph have given are not the inner one's. */
static void put_aside(struct tape *tape, const struct graph_module *m)
{
    for (uint32_t i = 0; i < MODULE_INPUTS; i++) {
        tape->outside[i] = (struct outside){.buffer = NO_BUFFER};
        if (i >= m->inputs || !takes_gradient(tape, m, i))
            continue;
        const uint32_t root = tape->root[m->input[i]];
        tape->outside[i] = (struct outside){.buffer = tape->slot[root], .part = tape->part[root]};
        tape->slot[root] = NO_BUFFER;
    }
}

/* ---- leaves under autocast ---- */

/* What a module within the block is called with is the tensor that it is called with. */
static uint32_t as_called(const struct graph *graph, const struct region *region, uint32_t x)
{
    for (uint32_t i = region->first; i < region->last; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        if (graph->items[i].kind == ITEM_OP && op->kind == OP_ALIAS && op->of_call &&
            op->out[0] == x)
            return op->in[0];
    }
    return x;
}

/* What the block is called with again is a leaf, as a parameter is: autocast keeps what it casts
 * of it while its region lasts, and casts it once (cached_cast in aten/src/ATen/autocast_mode.cpp).
 */
static bool is_cast_of_leaf(const struct tape *tape, const struct region *region,
                            const struct graph_op *op)
{
    const struct graph_module *m = module_of(tape, region);
    if (!op->of_autocast || tape->graph->tensors[op->in[0]].dtype != DTYPE_FP32)
        return false;
    const uint32_t x = as_called(tape->graph, region, op->in[0]);
    for (uint32_t i = 0; i < m->inputs; i++)
        if (m->input[i] == x && takes_gradient(tape, m, i))
            return true;
    return false;
}

/* From here on, what a second cast returned is what the first one has. */
static void repeat(struct tape *tape, uint32_t op, uint32_t first)
{
    const struct graph *graph = tape->graph;
    const uint32_t again = graph->ops[op].out[0], made = graph->ops[first].out[0];
    tape->repeats[op] = 1;
    tape->same[again] = made;
    for (uint32_t t = 0; t < graph->tensor_count; t++)
        if (tape->root[t] == again)
            tape->root[t] = tape->root[made];
}

static void find_casts(struct tape *tape, const struct region *region)
{
    const struct graph *graph = tape->graph;
    for (uint32_t i = region->first; i < region->last; i++) {
        const uint32_t op = graph->items[i].arg;
        if (graph->items[i].kind != ITEM_OP || !is_cast_of_leaf(tape, region, &graph->ops[op]))
            continue;
        uint32_t first = op;
        for (uint32_t k = region->first; k < i && first == op; k++) {
            const struct graph_op *before = &graph->ops[graph->items[k].arg];
            if (graph->items[k].kind == ITEM_OP && is_cast_of_leaf(tape, region, before) &&
                before->in[0] == graph->ops[op].in[0])
                first = graph->items[k].arg;
        }
        if (first == op)
            tape->kept_casts[graph->tensors[graph->ops[op].out[0]].storage] = 1;
        else
            repeat(tape, op, first);
    }
}

/* ---- what it returns besides ---- */

/* What Python has of a storage when the block has returned; GRAPH_NONE: its name went before. */
static uint32_t outlives(const struct graph *graph, const struct region *region, uint32_t storage)
{
    for (uint32_t i = region->first; i < graph->item_count; i++)
        if (graph->items[i].kind == ITEM_DROP &&
            graph->tensors[graph->items[i].arg].storage == storage)
            return i > region->last ? graph->items[i].arg : GRAPH_NONE;
    return GRAPH_NONE;
}

static void find_results(struct tape *tape, const struct region *region)
{
    const struct graph *graph = tape->graph;
    const uint32_t first = graph->tensors[module_of(tape, region)->output].storage;
    for (uint32_t i = region->first; i < region->last; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t o = 0; graph->items[i].kind == ITEM_OP && o < op->outs; o++) {
            const uint32_t storage = graph->tensors[op->out[o]].storage;
            const struct graph_storage *s = &graph->storages[storage];
            const bool born = s->kind == STORAGE_ACTIVATION && s->index == graph->items[i].arg &&
                              !op->of_autocast; /* its casts of parameters have no name */
            const uint32_t tensor =
                born && storage != first ? outlives(graph, region, storage) : GRAPH_NONE;
            if (tensor == GRAPH_NONE)
                continue;
            assert(tape->result_count < RESULTS_MOST);
            tape->results[tape->result_count++] = (struct result){tensor, NO_BUFFER};
        }
    }
}

/* Their gradients, before the block runs again: two have each, the outer node and the slot. */
static void zero_results(struct tape *tape, const struct region *region)
{
    find_results(tape, region);
    for (uint32_t i = 0; i < tape->result_count; i++) {
        struct result *result = &tape->results[i];
        const struct graph_tensor *t = &tape->graph->tensors[result->tensor];
        result->zeros =
            tape_call(tape, WORK_FILL, ATEN_ZEROS, (enum dtype)t->dtype, t->shape, -1.0, 0, NULL)
                .place;
        if (!t->requires_grad)
            continue;
        tape_hold(tape, result->zeros);
        tape_accumulate(tape, result->tensor, result->zeros);
    }
}

/* Tuples go from their ends. */
static void end_results(struct tape *tape, const struct graph_module *m)
{
    for (uint32_t i = tape->result_count; i-- > 0;)
        tape_drop(tape, tape->graph->tensors[tape->results[i].tensor].storage);
    tape_drop(tape, tape->graph->tensors[m->output].storage);
    while (tape->result_count > 0)
        tape_release(tape, tape->results[--tape->result_count].zeros);
    tape_release(tape, tape->given);
    tape->given = NO_BUFFER;
}

/* ---- running it ---- */

void tape_begin_nested(struct tape *tape, uint32_t module)
{
    struct region *region = region_of(tape, module);
    const struct graph_module *m = module_of(tape, region);
    const uint32_t given = tape->slot[tape->root[m->output]];
    if (given == NO_BUFFER)
        return;
    assert(tape->given == NO_BUFFER);
    put_aside(tape, m);
    find_casts(tape, region);
    tape->given = given; /* the arguments of the outer node's function */
    tape_hold(tape, given);
    zero_results(tape, region);
    tape_recompute(tape, region);
}

/* What AccumulateGrad makes of what has arrived: .grad, which is taken over where nobody else has
 * it and it lies as its tensor does. */
static struct operand own_gradient(struct tape *tape, uint32_t tensor)
{
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    const uint32_t root = tape->root[tensor];
    const struct operand arrived = tape_grad_as(tape, tensor);
    const bool plain = tape->holds[arrived.place] == 1 && !tape->part[root].expanded &&
                       !arrived.layout && !arrived.pitch;
    tape->slot[root] = NO_BUFFER;
    if (plain)
        return arrived;
    const struct operand copy = tape_call(tape, WORK_REORDER, ATEN_CLONE, (enum dtype)t->dtype,
                                          t->shape, -1.0, 1, &arrived);
    tape_release(tape, arrived.place);
    return copy;
}

/* The gradients of the inputs reach the outer graph. */
static void give_inputs(struct tape *tape, const struct graph_module *m,
                        const struct operand *gradient)
{
    for (uint32_t i = 0; i < m->inputs; i++) {
        const uint32_t root = tape->root[m->input[i]];
        if (!takes_gradient(tape, m, i))
            continue;
        tape->slot[root] = tape->outside[i].buffer;
        tape->part[root] = tape->outside[i].part;
        if (gradient[i].place != NO_BUFFER && tape_accumulate(tape, m->input[i], gradient[i].place))
            tape_release(tape, gradient[i].place);
    }
}

void tape_end_nested(struct tape *tape, uint32_t module)
{
    struct region *region = region_of(tape, module);
    const struct graph_module *m = module_of(tape, region);
    struct operand gradient[MODULE_INPUTS];
    if (tape->given == NO_BUFFER)
        return;
    tape_step(tape, STEP_NESTED, module);
    for (uint32_t i = 0; i < m->inputs; i++) {
        gradient[i].place = NO_BUFFER;
        if (takes_gradient(tape, m, i) && tape->slot[tape->root[m->input[i]]] != NO_BUFFER)
            gradient[i] = own_gradient(tape, m->input[i]);
    }
    tape_nodes_end(tape, true); /* with the name of what it returned, before its memory */
    end_results(tape, m);
    tape_end_region(tape, region);
    give_inputs(tape, m, gradient);
}
