/* tape.c - see tape.h: the script of a graph, forward, then backward. tape_state.h says which file
 * does what. */
#include "graph/tape.h"

#include "base/checked.h"
#include "graph/tape_calls.h"
#include "graph/tape_emit.h"
#include "graph/tape_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- forward ---- */

/* An engine that scales the loss has not done with it; so what is kept of the step before is not
 * this one's, and 4 bytes more live until backward has run. */
static bool is_read_again(const struct tape *tape, uint32_t storage)
{
    return tape->options->scaled_loss && storage == tape->graph->tensors[tape->graph->loss].storage;
}

/* Checkpoints are wrappers, but that a block calls its own forward by a reentrant one. */
static bool is_wrapped(const struct tape *tape, uint32_t module)
{
    return tape_is_checkpointed(tape, module) && !tape->options->reentrant;
}

/* `root`: MODULE_ROOT, or that of another model. */
static void enter_root(struct tape *tape, uint32_t root)
{
    tape_step(tape, STEP_PRE_FORWARD, root);
    if (tape->calls)
        tape_enter_call(tape, root == MODULE_ROOT ? tape->calls->model : tape->calls->beside);
}

static void leave_root(struct tape *tape, uint32_t root)
{
    if (tape->calls)
        tape_leave_call(tape, root == MODULE_ROOT ? CALL_ROOT : tape->calls->beside);
    tape_step(tape, STEP_POST_FORWARD, root);
}

/* The model's second call, or another's, without gradients: hooks see its modules, and nothing else
 * does. */
static void again_item(struct tape *tape, struct graph_item item)
{
    const uint32_t other = tape->graph->beside.module;
    const uint32_t root = other == GRAPH_NONE ? MODULE_ROOT : other;
    if (item.kind == ITEM_ENTER_AGAIN) {
        tape_step(tape, STEP_PRE_FORWARD, item.arg);
        tape_enter_module(tape, item.arg, is_wrapped(tape, item.arg));
    } else if (item.kind == ITEM_EXIT_AGAIN) {
        tape_step(tape, STEP_POST_FORWARD, item.arg);
        tape_leave_module(tape, item.arg, is_wrapped(tape, item.arg));
    } else if (item.arg == MARK_ROOT_ENTER) {
        tape->without_grad = true;
        tape_step(tape, STEP_NO_GRAD, true);
        enter_root(tape, root);
    } else if (item.arg == MARK_ROOT_EXIT) {
        leave_root(tape, root);
        tape_step(tape, STEP_NO_GRAD, false);
        tape->without_grad = false;
    }
}

void tape_forward_item(struct tape *tape, struct graph_item item)
{
    static const enum stream_mark marks[] = {
        [MARK_LOGITS] = STREAM_AFTER_LOGITS,
        [MARK_LOSS] = STREAM_AFTER_FORWARD,
    };
    tape_return_before(tape, &item);
    switch (item.kind) {
    case ITEM_OP:
        tape_enter_op(tape, item.arg);
        tape_op(tape, item.arg, tape->entered == GRAPH_NONE);
        tape_return_from_op(tape, item.arg);
        break;
    case ITEM_DROP:
        if (!tape_is_handed(tape, tape->graph->tensors[item.arg].storage) &&
            !is_read_again(tape, tape->graph->tensors[item.arg].storage))
            tape_drop(tape, tape->graph->tensors[item.arg].storage);
        break;
    case ITEM_ENTER: /* a strategy's pre-forward runs before checkpoint() sees the inputs */
        tape_step(tape, STEP_PRE_FORWARD, item.arg);
        tape_enter_module(tape, item.arg, is_wrapped(tape, item.arg));
        if (tape_is_checkpointed(tape, item.arg))
            tape_enter_region(tape);
        break;
    case ITEM_EXIT: /* checkpoint() has returned before a strategy's post-forward */
        if (tape_is_checkpointed(tape, item.arg))
            tape_leave_region(tape);
        tape_step(tape, STEP_POST_FORWARD, item.arg);
        tape_leave_module(tape, item.arg, is_wrapped(tape, item.arg));
        break;
    case ITEM_ENTER_AGAIN:
    case ITEM_EXIT_AGAIN:
    case ITEM_MARK_AGAIN:
        again_item(tape, item);
        break;
    default:
        if (item.arg == MARK_ROOT_ENTER)
            enter_root(tape, MODULE_ROOT);
        else if (item.arg == MARK_ROOT_EXIT)
            leave_root(tape, MODULE_ROOT);
        else if (item.arg == MARK_LOGITS || item.arg == MARK_LOSS)
            tape_step(tape, STEP_MARK, marks[item.arg]);
        break;
    }
}

/* ---- backward ---- */

static bool inputs_require_grad(const struct tape *tape, uint32_t module)
{
    const struct graph_module *m = &tape->graph->modules[module];
    for (uint32_t i = 0; i < m->inputs; i++)
        if (tape->graph->tensors[m->input[i]].requires_grad)
            return true;
    return false;
}

static bool is_nested(const struct tape *tape, uint32_t module)
{
    return tape->options->reentrant && tape_is_checkpointed(tape, module);
}

void tape_backward_item(struct tape *tape, struct graph_item item)
{
    const struct graph *graph = tape->graph;
    switch (item.kind) {
    case ITEM_OP:
        tape_node(tape, item.arg);
        break;
    case ITEM_EXIT: /* no gradient, no hook */
        if (!graph->tensors[graph->modules[item.arg].output].requires_grad)
            break;
        if (!tape->in_blocks && graph->modules[item.arg].role == ROLE_BLOCK) {
            tape->in_blocks = true;
            tape_step(tape, STEP_MARK, STREAM_BACKWARD_BLOCKS);
        }
        tape_step(tape, STEP_PRE_BACKWARD, item.arg);
        tape_enter_module(tape, item.arg, is_wrapped(tape, item.arg));
        if (is_nested(tape, item.arg))
            tape_begin_nested(tape, item.arg);
        break;
    case ITEM_ENTER:
        if (is_nested(tape, item.arg))
            tape_end_nested(tape, item.arg);
        tape_leave_module(tape, item.arg, is_wrapped(tape, item.arg));
        tape_step(tape, inputs_require_grad(tape, item.arg) ? STEP_POST_BACKWARD : STEP_BACK,
                  item.arg);
        break;
    case ITEM_MARK:
        if (item.arg == MARK_ROOT_EXIT)
            tape_step(tape, STEP_PRE_BACKWARD, MODULE_ROOT);
        if (item.arg == MARK_ROOT_EXIT && tape->calls)
            tape_enter_call(tape, tape->calls->model);
        break;
    default:
        break;
    }
}

/* ---- all of it ---- */

/* Room for what a step usually takes, so that arrays are not copied as they grow: forward, backward
 * and perhaps recomputation of each op. */
static void reserve(struct tape *tape)
{
    struct stream *s = tape->stream;
    const uint32_t ops = tape->graph->op_count + 16;
    s->step_cap = 16 * ops;
    s->buffer_cap = tape->holds_cap = 5 * ops;
    s->steps = xmalloc(s->step_cap * sizeof *s->steps);
    s->buffers = xmalloc(s->buffer_cap * sizeof *s->buffers);
    s->kernels = kernel_table_new(5 * ops, 18 * ops);
    tape->holds = xmalloc(tape->holds_cap * sizeof *tape->holds);
}

static uint32_t *none_array(uint32_t count)
{
    uint32_t *array = xmalloc((count + 1) * sizeof *array);
    memset(array, 0xff, (count + 1) * sizeof *array);
    return array;
}

/* As the graph has them; what an absent op would have given is what it would have been given. */
static void find_roots(struct tape *tape)
{
    const struct graph *graph = tape->graph;
    for (uint32_t t = 0; t < graph->tensor_count; t++)
        tape->root[t] = graph->tensors[t].root;
    for (uint32_t t = 0; t < graph->tensor_count; t++)
        tape->same[t] = t;
    for (uint32_t i = 0; i < graph->op_count; i++) {
        const struct graph_op *op = &graph->ops[i];
        if (tape_has(tape, op))
            continue;
        tape->root[op->out[0]] = tape->root[graph->tensors[op->in[0]].root];
        tape->same[op->out[0]] = tape->same[op->in[0]];
    }
    for (uint32_t t = 0; t < graph->tensor_count; t++)
        tape->root[t] = tape->root[graph->tensors[t].root];
}

void tape_open_parts(struct tape *tape, const struct graph *graph,
                     const struct tape_options *options, const struct tape_parts *parts)
{
    *tape = (struct tape){
        .graph = graph,
        .options = options,
        .stream = xmalloc(sizeof(struct stream)),
        .where = none_array(graph->storage_count),
        .python = xcalloc(graph->storage_count + 1, 1),
        .reached = xcalloc(graph->tensor_count + 1, 1),
        .keeping = xcalloc(graph->storage_count + 1, 1),
        .leaves = xcalloc(graph->storage_count + 1, 1),
        .repeats = xcalloc(graph->op_count + 1, 1),
        .kept_casts = xcalloc(graph->storage_count + 1, 1),
        .cached = xcalloc(graph->storage_count + 1, 1),
        .kept_calls = none_array(graph->op_count * KEPT_MOST),
        .root = none_array(graph->tensor_count),
        .same = none_array(graph->tensor_count),
        .slot = none_array(graph->tensor_count),
        .part = xcalloc(graph->tensor_count + 1, sizeof(struct slice)),
        .param_uses = xcalloc(graph->param_count + 1, sizeof(uint16_t)),
        .node_holds = xcalloc(graph->op_count + 1, 1),
        .nodes = tape_nodes_new(graph),
        .handed = xcalloc(graph->storage_count + 1, 1),
        .handed_by = xcalloc(graph->op_count + 1, 1),
        .op_region = none_array(graph->op_count),
        .part_region = none_array(parts ? parts->count : 0),
        .current_op = GRAPH_NONE,
        .entered = GRAPH_NONE,
        .returning = GRAPH_NONE,
        .seed = NO_BUFFER,
        .given = NO_BUFFER,
        .divided = NO_BUFFER,
        .scaled = NO_BUFFER,
    };
    if (parts)
        tape->parts = *parts;
    *tape->stream = (struct stream){0};
    tape->stream->aside = saved_aside(options->saved_on);
    reserve(tape);
    find_roots(tape);
    memset(tape->before, 0xff, sizeof tape->before);
    tape_find_regions(tape);
    tape_host_open(tape);
    tape_find_handed(tape);
    if (options->call_hooks)
        tape->calls = graph_calls_new(graph);
    if (!graph->enters_root)
        enter_root(tape, MODULE_ROOT);
}

void tape_open(struct tape *tape, const struct graph *graph, const struct tape_options *options)
{
    tape_open_parts(tape, graph, options, NULL);
}

struct stream *tape_close(struct tape *tape)
{
    kernel_table_close(tape->stream->kernels);
    free(tape->layouts);
    free(tape->holds);
    free(tape->where);
    free(tape->python);
    free(tape->reached);
    free(tape->keeping);
    free(tape->leaves);
    free(tape->repeats);
    free(tape->kept_casts);
    free(tape->cached);
    free(tape->kept_calls);
    free(tape->root);
    free(tape->same);
    free(tape->slot);
    free(tape->part);
    free(tape->param_uses);
    free(tape->node_holds);
    tape_nodes_free(tape->nodes);
    tape_host_close(tape);
    free(tape->handed);
    free(tape->handed_by);
    free(tape->held);
    free(tape->op_region);
    free(tape->part_region);
    free(tape->regions);
    free(tape->checkpointed);
    graph_calls_free(tape->calls);
    return tape->stream;
}

struct stream *tape_run(const struct graph *graph, const struct tape_options *options)
{
    struct tape tape;
    tape_open(&tape, graph, options);
    for (uint32_t i = 0; i < graph->item_count; i++) {
        tape_forward_item(&tape, graph->items[i]);
        CHECKED(tape_check, &tape);
    }
    tape_begin_backward(&tape);
    for (uint32_t i = graph->item_count; i-- > 0;) {
        tape_backward_item(&tape, graph->items[i]);
        CHECKED(tape_check, &tape);
    }
    tape_end_backward(&tape);
    CHECKED(tape_check, &tape);
    return tape_close(&tape);
}
