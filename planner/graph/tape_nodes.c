/* tape_nodes.c - how long autograd's nodes live, for what their contexts have (see tape_state.h).
 *
 * What a node saves it lets go of when it has run, or a checkpoint never lets it have; what a
 * torch.autograd.Function keeps as an attribute of its context lives as long as the node does
 * (op_class.attribute). A node lives while a tensor that it made has a name, or a node that was
 * given one lives: after backward, until the loss goes. Nodes of a region that runs again are
 * others, which go when its frames do.
 *
 * They die in the order in which PyTorch deletes them: one takes its inputs' nodes off, in order,
 * and those that nobody else has are next, the last first (torch/csrc/autograd/function.cpp,
 * deleteNode). */
#include "graph/op_table.h"
#include "graph/tape_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ONCE, AGAIN, PASSES };

struct node { /* one for each op, in each pass */
    uint32_t refs;
    uint32_t kept;  /* buffer that its context has; NO_BUFFER */
    uint32_t param; /* ... or whose memory; GRAPH_NONE: no parameter's, or nobody asks */
    uint16_t named; /* a bit for each output whose storage has a name */
    bool made;
};

struct tape_nodes {
    struct node *of[PASSES]; /* (ops) */
    uint32_t *maker;         /* (tensors) the op that has it as an output; GRAPH_NONE */
    uint32_t *first;         /* (storages) output that is in it, op * GRAPH_OUTPUTS + output */
    uint32_t *next;          /* (ops * GRAPH_OUTPUTS) another of the same storage */
    uint32_t *dying;         /* (ops) a stack */
};

static bool any_keeps(const struct graph *graph)
{
    for (uint32_t i = 0; i < graph->op_count; i++)
        if (op_class(&graph->ops[i])->attribute)
            return true;
    return false;
}

static uint32_t *all_none(size_t count)
{
    uint32_t *array = xmalloc((count + 1) * sizeof *array);
    memset(array, 0xff, (count + 1) * sizeof *array);
    return array;
}

static void note_outputs(struct tape_nodes *nodes, const struct graph *graph, uint32_t index)
{
    const struct graph_op *op = &graph->ops[index];
    for (uint32_t o = 0; o < op->outs; o++) {
        const uint32_t storage = graph->tensors[op->out[o]].storage;
        const uint32_t output = index * GRAPH_OUTPUTS + o;
        nodes->maker[op->out[o]] = index;
        nodes->next[output] = nodes->first[storage];
        nodes->first[storage] = output;
    }
}

struct tape_nodes *tape_nodes_new(const struct graph *graph)
{
    if (!any_keeps(graph))
        return NULL;
    struct tape_nodes *nodes = xcalloc(1, sizeof *nodes);
    for (int pass = 0; pass < PASSES; pass++)
        nodes->of[pass] = xcalloc(graph->op_count + 1, sizeof(struct node));
    nodes->maker = all_none(graph->tensor_count);
    nodes->first = all_none(graph->storage_count);
    nodes->next = all_none((size_t)graph->op_count * GRAPH_OUTPUTS);
    nodes->dying = all_none(graph->op_count);
    for (uint32_t i = 0; i < graph->op_count; i++)
        note_outputs(nodes, graph, i);
    return nodes;
}

void tape_nodes_free(struct tape_nodes *nodes)
{
    if (!nodes)
        return;
    for (int pass = 0; pass < PASSES; pass++)
        free(nodes->of[pass]);
    free(nodes->maker);
    free(nodes->first);
    free(nodes->next);
    free(nodes->dying);
    free(nodes);
}

static int pass_of(const struct tape *tape)
{
    return tape->recomputing ? AGAIN : ONCE;
}

/* The node of what input i of an op is; NULL: that is a leaf, or it was detached where a region
 * that runs again begins. */
static struct node *made_by(const struct tape *tape, int pass, uint32_t op, uint32_t i,
                            uint32_t *maker)
{
    const struct graph_op *user = &tape->graph->ops[op];
    if (!tape_needs(tape, user, i))
        return NULL;
    *maker = tape->nodes->maker[tape->root[tape->same[user->in[i]]]];
    if (*maker == GRAPH_NONE)
        return NULL;
    struct node *node = &tape->nodes->of[pass][*maker];
    return node->made ? node : NULL;
}

/* It is gone, and what its context had. */
static void let_go(struct tape *tape, struct node *node)
{
    if (node->made && node->kept != NO_BUFFER)
        tape_release(tape, node->kept);
    if (node->made && node->param != GRAPH_NONE)
        tape_step(tape, STEP_UNSAVED, node->param);
    *node = (struct node){.kept = NO_BUFFER, .param = GRAPH_NONE};
}

/* Which it died of is gone: so may be what it was made of. */
static void die(struct tape *tape, int pass, uint32_t op)
{
    struct tape_nodes *nodes = tape->nodes;
    uint32_t count = 0, maker;
    nodes->dying[count++] = op;
    while (count > 0) {
        const uint32_t dead = nodes->dying[--count];
        struct node *node = &nodes->of[pass][dead];
        for (uint32_t i = 0; i < tape->graph->ops[dead].ins; i++) {
            struct node *before = made_by(tape, pass, dead, i, &maker);
            if (before && --before->refs == 0)
                nodes->dying[count++] = maker;
        }
        let_go(tape, node);
    }
}

/* What an attribute is: a buffer that is held, or a parameter's memory, which lowering may ask for
 * (tape_saves_memory). */
static void take(struct tape *tape, struct node *node, uint32_t tensor)
{
    if (tape_is_activation(tape, tensor)) {
        node->kept = tape_buffer(tape, tensor);
        tape_hold(tape, node->kept);
    } else if (tape->calls) {
        node->param = tape_param_index(tape, tensor);
        tape_step(tape, STEP_SAVED, node->param);
    }
}

void tape_node_made(struct tape *tape, uint32_t index)
{
    const struct graph_op *op = &tape->graph->ops[index];
    const int pass = pass_of(tape);
    uint32_t maker;
    if (!tape->nodes || !op->requires_grad || tape_is_without_grad(tape))
        return;
    struct node *node = &tape->nodes->of[pass][index];
    assert(!node->made);
    *node = (struct node){.kept = NO_BUFFER, .param = GRAPH_NONE, .made = true};
    for (uint32_t o = 0; o < op->outs; o++)
        if (tape->python[tape->graph->tensors[op->out[o]].storage]) {
            node->named |= (uint16_t)(1U << o);
            node->refs++;
        }
    for (uint32_t i = 0; i < op->ins; i++) {
        struct node *before = made_by(tape, pass, index, i, &maker);
        if (before)
            before->refs++;
    }
    const uint32_t kept = op_class(op)->attribute ? op_class(op)->attribute(op) : GRAPH_NONE;
    if (kept != GRAPH_NONE)
        take(tape, node, kept);
}

void tape_name_goes(struct tape *tape, uint32_t storage)
{
    const int pass = pass_of(tape);
    if (!tape->nodes)
        return;
    for (uint32_t out = tape->nodes->first[storage]; out != GRAPH_NONE;
         out = tape->nodes->next[out]) {
        struct node *node = &tape->nodes->of[pass][out / GRAPH_OUTPUTS];
        const uint16_t bit = (uint16_t)(1U << out % GRAPH_OUTPUTS);
        if (!(node->named & bit))
            continue;
        node->named &= (uint16_t)~bit;
        if (--node->refs == 0)
            die(tape, pass, out / GRAPH_OUTPUTS);
    }
}

void tape_drop(struct tape *tape, uint32_t storage)
{
    if (tape->python[storage]) {
        assert(tape->where[storage] != NO_BUFFER);
        tape->python[storage] = 0;
        if (tape->keeping[storage])
            tape_release(tape, tape->where[tape->graph->storages[storage].keeps]);
        tape->keeping[storage] = 0;
        tape_name_goes(tape, storage);
        tape_release(tape, tape->where[storage]);
    }
}

void tape_nodes_end(struct tape *tape, bool again)
{
    const int pass = again ? AGAIN : ONCE;
    if (!tape->nodes)
        return;
    for (uint32_t i = tape->graph->op_count; i-- > 0;)
        let_go(tape, &tape->nodes->of[pass][i]);
}

uint32_t tape_node_keeps(const struct tape *tape, uint32_t op, bool again)
{
    if (!tape->nodes)
        return NO_BUFFER;
    const struct node *node = &tape->nodes->of[again ? AGAIN : ONCE][op];
    return node->made ? node->kept : NO_BUFFER;
}
