/* tape_op.c - one op of the script, run as eager PyTorch runs it: births, its kernel, what autograd
 * saves, what nobody but autograd ever has (see tape_state.h). */
#include "graph/op_table.h"
#include "graph/tape_state.h"

#include <assert.h>

/* A checkpoint's hooks detach what needs a gradient (torch.utils.checkpoint, _recomputation_hook):
 * that is another tensor of the same memory, as a view is. Else a parameter itself is saved by
 * reference, and its memory may be exchanged. */
bool tape_saves_memory(const struct tape *tape, uint32_t index, uint32_t tensor)
{
    const struct graph *graph = tape->graph;
    const struct graph_op *op = &graph->ops[index];
    const struct graph_tensor *t = &graph->tensors[tensor];
    if (!tape->calls || graph->storages[t->storage].kind != STORAGE_PARAM)
        return false;
    return (tape->op_region[index] != GRAPH_NONE && t->requires_grad) || t->base != tensor ||
           (op_class(op)->turns_weight && tensor == op->in[1] && !tape_is_own_linear(tape, op));
}

void tape_save(struct tape *tape, uint32_t op)
{
    if (tape_host_has(tape, op)) {
        tape_host_pack_outputs(tape, op);
        return;
    }
    uint32_t saved[SAVED_MOST];
    const uint32_t count = tape_saved(tape, &tape->graph->ops[op], saved);
    for (uint32_t i = 0; i < count; i++)
        if (tape_is_activation(tape, saved[i]))
            tape_hold(tape, tape_buffer(tape, saved[i]));
        else if (tape_saves_memory(tape, op, saved[i]))
            tape_step(tape, STEP_SAVED, tape_param_index(tape, saved[i]));
    tape->node_holds[op] = count > 0;
}

/* Whether it calls a plain product, to which a bias is added: of matrices, addmm has both. */
static bool is_own_product(const struct tape *tape, const struct graph_op *op)
{
    return (tape_is_own_linear(tape, op) && tape->graph->tensors[op->in[0]].shape.rank > 2) ||
           (op->kind == OP_MAMBA2_BIAS && tape->options->own_linear);
}

/* Whether the selective policy keeps the op's outputs. It is asked in the same order when the
 * region runs again, and so gives the same answers. */
static bool policy_keeps(struct tape *tape, const struct graph_op *op)
{
    const enum op_keep keep = is_own_product(tape, op) ? KEEP_EVERY_SECOND : op_class(op)->keep;
    if (tape->options->checkpointing != CHECKPOINTING_SELECTIVE)
        return false;
    if (op->kind == OP_BMM && tape->graph->keeps_mm_alone)
        return false;
    if (keep == KEEP_EVERY_SECOND)
        return ++tape->matmuls % 2 == 1;
    return keep == KEEP_ALWAYS;
}

/* What births an output: the script's call, or the product of a function in its place. */
static enum aten birth_label(const struct tape *tape, const struct graph_op *op,
                             const struct graph_storage *storage)
{
    const enum aten own = (enum aten)storage->aten;
    return own == ATEN_ADDMM && is_own_product(tape, op) ? ATEN_MM : own;
}

/* Whether backward may ask for what attention makes for it. Not when the graph is built: what needs
 * a gradient may change when it is complete. */
static bool is_asked(const struct tape *tape, const struct graph_op *op)
{
    bool asked = false;
    for (uint32_t i = 0; i < 3; i++) /* q, k, v */
        asked |= tape->graph->tensors[op->in[i]].requires_grad;
    return asked && !tape_is_without_grad(tape);
}

/* Whether a storage, as things are, is one that nobody asks for (op_class). */
static bool is_unasked(const struct tape *tape, const struct graph_op *op, uint32_t storage)
{
    const uint32_t output = op_class(op)->for_backward;
    const struct graph *graph = tape->graph;
    return output && graph->tensors[op->out[output - 1]].storage == storage &&
           graph->storages[storage].aten != ATEN_FLASH_ATTENTION && !is_asked(tape, op);
}

static struct shape empty(struct shape shape)
{
    shape.dim[shape.rank - 1] = 0;
    return shape;
}

static void birth_storage(struct tape *tape, const struct graph_op *op, uint32_t storage)
{
    const struct graph_storage *s = &tape->graph->storages[storage];
    const bool unasked = is_unasked(tape, op, storage);
    assert(!tape->python[storage]);
    tape->where[storage] =
        tape_new_buffer(tape, birth_label(tape, op, s), (enum dtype)s->dtype,
                        unasked ? empty(s->shape) : s->shape, unasked ? 0 : s->bytes);
    tape->python[storage] = 1;
}

struct operand tape_birth_output(struct tape *tape, const struct graph_op *op, uint32_t o)
{
    birth_storage(tape, op, tape->graph->tensors[op->out[o]].storage);
    return tape_tensor(tape, op->out[o]);
}

bool tape_takes_output(struct tape *tape, const struct graph_op *op, uint32_t o)
{
    const uint32_t storage = tape->graph->tensors[op->out[o]].storage;
    if (!tape->recomputing || !tape->kept || !tape->cached[storage])
        return false;
    tape->cached[storage] = 0; /* the cache's reference becomes Python's */
    tape->python[storage] = 1;
    return true;
}

/* Where the next call within the current op is kept; NULL: the policy keeps nothing here. */
static uint32_t *kept_call(struct tape *tape)
{
    if (tape->options->checkpointing != CHECKPOINTING_SELECTIVE ||
        (tape->entered == GRAPH_NONE && !tape->recomputing))
        return NULL;
    assert(tape->kept_count < KEPT_MOST);
    return &tape->kept_calls[tape->current_op * KEPT_MOST + tape->kept_count++];
}

bool tape_call_kept(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape,
                    struct operand *out)
{
    uint32_t *kept = kept_call(tape);
    if (kept && *kept != NO_BUFFER) {
        *out = (struct operand){.place = *kept, .dtype = (uint8_t)dtype, .shape = shape};
        *kept = NO_BUFFER;
        return true;
    }
    *out = tape_birth(tape, aten, dtype, shape);
    if (kept && !tape->recomputing) {
        *kept = out->place;
        tape_hold(tape, out->place);
    }
    return false;
}

/* Births what the op returns anew. Returns whether there was any: views need no kernel, nor does an
 * output that the selective policy has kept. */
static bool birth_outputs(struct tape *tape, uint32_t index)
{
    const struct graph *graph = tape->graph;
    const struct graph_op *op = &graph->ops[index];
    bool births = false;
    for (uint32_t i = 0; i < op->outs; i++) {
        const uint32_t storage = graph->tensors[op->out[i]].storage;
        const struct graph_storage *s = &graph->storages[storage];
        if (s->kind != STORAGE_ACTIVATION || s->index != index)
            continue; /* a view */
        if (tape_takes_output(tape, op, i))
            continue;
        birth_storage(tape, op, storage);
        births = true;
    }
    return births;
}

static void run_kernel(struct tape *tape, const struct graph_op *op)
{
    const struct graph *graph = tape->graph;
    const struct op_class *class = op_class(op);
    struct operand in[GRAPH_OPERANDS] = {{0}}, out[GRAPH_OUTPUTS] = {{0}};
    for (uint32_t i = 0; i < op->ins; i++) {
        in[i] = (struct operand){.place = PLACE_NONE};
        if (op->in[i] != GRAPH_NONE)
            in[i] = tape_tensor(tape, op->in[i]);
    }
    for (uint32_t i = 0; i < op->outs; i++) {
        out[i] = tape_tensor(tape, op->out[i]);
        if (is_unasked(tape, op, graph->tensors[op->out[i]].storage))
            out[i].shape = empty(out[i].shape);
    }
    const enum aten label =
        class->label != ATEN_NONE
            ? class->label
            : (enum aten)graph->storages[graph->tensors[op->out[0]].storage].aten;
    const enum work_kind work = op->work ? (enum work_kind)op->work : class->work;
    const uint64_t bytes = class->scratch ? class->scratch(graph, op) : 0;
    const struct operand scratch = bytes ? tape_scratch(tape, bytes) : (struct operand){0};
    tape_kernel(tape, work, label, class->flops ? class->flops(graph, op) : -1.0, op->ins, in,
                op->outs, out);
    if (bytes)
        tape_death(tape, scratch);
}

/* Outputs that go with others (graph_keeps). */
static void keep(struct tape *tape, const struct graph_op *op)
{
    for (uint32_t i = 0; i < op->outs; i++) {
        const uint32_t storage = tape->graph->tensors[op->out[i]].storage;
        const uint32_t owner = tape->graph->storages[storage].kept_by;
        const uint32_t asked = tape->graph->storages[storage].kept_for;
        if (owner == GRAPH_NONE || tape->keeping[owner] ||
            (asked != GRAPH_NONE && !tape->graph->tensors[asked].requires_grad))
            continue;
        tape_hold(tape, tape->where[storage]);
        tape->keeping[owner] = 1;
    }
}

/* Python's function has returned: what it did not hand out is autograd's alone. Where its context
 * made no node, the tuple of what it would have saved dies from its end. */
static void drop_hidden(struct tape *tape, const struct graph_op *op)
{
    const bool node = op->requires_grad && !tape_is_without_grad(tape);
    const bool from_end = op_class(op)->in_python && !node;
    for (uint32_t i = 1; i <= op->hidden; i++) {
        const uint32_t out = from_end ? op->outs - op->hidden + i - 1U : op->outs - i;
        tape_drop(tape, tape->graph->tensors[op->out[out]].storage);
    }
}

void tape_op(struct tape *tape, uint32_t index, bool holding)
{
    const struct graph *graph = tape->graph;
    const struct graph_op *op = &graph->ops[index];
    const bool in_region = tape->entered != GRAPH_NONE || tape->recomputing;
    tape->current_op = index;
    tape->kept = in_region && policy_keeps(tape, op);
    tape->kept_count = 0;
    if (holding && tape_host_has(tape, index))
        tape_host_pack_inputs(tape, index);
    tape->in_op = true;
    if (op_class(op)->forward)
        op_class(op)->forward(tape, graph, op);
    else if (birth_outputs(tape, index) || op_class(op)->in_place)
        run_kernel(tape, op);
    tape->in_op = false;
    tape_node_made(tape, index);
    if (holding)
        tape_save(tape, index);
    if (holding)
        keep(tape, op);
    for (uint32_t i = 0; graph->has_leaves && holding && op->requires_grad && i < op->ins; i++)
        if (op->in[i] != GRAPH_NONE)
            tape_hold_leaf(tape, op->in[i]);
    if (tape->kept && !tape->recomputing) {
        const uint32_t count = op_class(op)->keeps_first ? 1 : op->outs;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t storage = graph->tensors[op->out[i]].storage;
            tape_hold(tape, tape->where[storage]);
            tape->cached[storage] = 1;
        }
    }
    drop_hidden(tape, op);
}
