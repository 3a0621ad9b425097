/* tape_backward.c - autograd's engine (see tape.h, tape_state.h): nodes run in reverse order of
 * creation, gradients are added up where they arrive. */
#include "base/layout.h"
#include "base/torch.h"
#include "graph/op_table.h"
#include "graph/ready_queue.h"
#include "graph/tape_calls.h"

#include <assert.h>
#include <string.h>

/* ---- where gradients arrive ---- */

/* A parameter's gradient is complete with the last use of the parameter. */
static void give_out(struct tape *tape, uint32_t param, uint32_t *slot)
{
    struct stream *s = tape->stream;
    ARRAY_GROW(s->grads, s->grad_count, s->grad_cap);
    s->grads[s->grad_count] = (struct stream_grad){param, *slot, GRAD_AS_IT_IS, false};
    tape_step(tape, STEP_GRAD, s->grad_count++);
    *slot = NO_BUFFER; /* now .grad: the strategy's */
}

static bool same_shape(const struct shape *x, const struct shape *y)
{
    return x->rank == y->rank && memcmp(x->dim, y->dim, x->rank * sizeof *x->dim) == 0;
}

static bool is_view_of(const struct graph *graph, uint32_t tensor, uint32_t base)
{
    while (tensor != base && graph->tensors[tensor].base != tensor)
        tensor = graph->tensors[tensor].base;
    return tensor == base;
}

/* Whether the engine may add what reaches `tensor` into the gradient that it has. As
 * can_accumulate_inplace asks (torch/csrc/autograd/input_buffer.cpp): nobody else holds the tensor
 * or its storage, and its elements are one after the other. A view's storage has its base, too,
 * which it keeps (as_view in VariableTypeUtils.h, also without grad mode): what is there is one
 * where it came to a view of the tensor at which the two meet. */
static bool may_add_in_place(const struct tape *tape, uint32_t tensor, uint32_t root)
{
    const struct slice *part = &tape->part[root];
    const struct shape *shape = &tape->graph->tensors[tensor].shape;
    const bool viewed =
        part->viewed || (!is_view_of(tape->graph, tensor, part->tensor) && !part->direct);
    const bool one_row = shape->rank == 0 || shape_elements(shape) == shape->dim[shape->rank - 1];
    return tape->graph->autograd == AUTOGRAD_GPU && tape->holds[tape->slot[root]] == 1 &&
           !part->expanded && !viewed && (part->pitch == 0 || one_row);
}

/* Where the gradient of `tensor` meets the one that is there: a tensor's and that of a view of it
 * meet at the tensor. Of elements that do not lie one after the other, in the shape that came. */
static uint32_t meets_at(const struct tape *tape, uint32_t tensor, const struct slice *part,
                         const struct operand *gradient)
{
    const struct graph_tensor *tensors = tape->graph->tensors;
    const bool dense = !gradient->layout && !gradient->pitch && !part->layout && !part->pitch &&
                       !tensors[tensor].layout && !tensors[part->tensor].layout;
    return dense && !part->mixed && is_view_of(tape->graph, tensor, part->tensor) ? part->tensor
                                                                                  : tensor;
}

/* Adds a second gradient to the one in the root's slot, and lets go of that one but for the result;
 * the second is its node's until all that the node gives has arrived. */
static void add_up(struct tape *tape, uint32_t tensor, uint32_t root,
                   const struct operand *gradient, struct stream_given *given)
{
    const uint32_t before = tape->slot[root];
    struct slice *part = &tape->part[root];
    const uint32_t met = meets_at(tape, tensor, part, gradient);
    const struct graph_tensor *t = &tape->graph->tensors[met];
    struct operand in[2] = {tape_grad_as(tape, met), *gradient};
    in[1].shape = t->shape;
    if (may_add_in_place(tape, tensor, root)) {
        tape_kernel(tape, WORK_ADD_IN_PLACE, ATEN_ADD_, -1.0, 1, &in[1], 1, &in[0]);
    } else {
        const struct operand sum =
            tape_call(tape, WORK_ADD, ATEN_ADD, (enum dtype)t->dtype, t->shape, -1.0, 2, in);
        if (tape_is_handed_root(tape, root)) /* in the shape in which others are given it */
            tape->stream->buffers[sum.place].shape = tape->graph->tensors[root].shape;
        tape_release(tape, tape->slot[root]);
        tape->slot[root] = sum.place;
        const bool mixed = part->mixed || (part->tensor != tensor && part->tensor != root);
        *part = (struct slice){.layout = sum.layout,
                               .seen_as = met,
                               .tensor = part->tensor == tensor ? tensor : root,
                               .mixed = mixed};
    }
    if (given) {
        given->before = before;
        given->sum = tape->slot[root];
        given->kernel = tape->stream->kernels->kernel_count - 1;
    }
}

/* What a node hands on, in the shape of the tensor whose gradient it is: a view of it, or, of fewer
 * elements, stretched. What lies one row after the other does so in any shape. */
static void see_in_shape(struct tape *tape, const struct shape *shape, struct operand *gradient)
{
    if (shape_elements(&gradient->shape) < shape_elements(shape)) {
        const struct strides narrow =
            layout_of(&gradient->shape, gradient->pitch, gradient->layout);
        struct strides wide = layout_unknown;
        const bool fits = !layout_is_unknown(gradient->layout) &&
                          layout_expand(&gradient->shape, &narrow, shape, &wide);
        gradient->shape = *shape;
        tape_lay_out(tape, gradient, fits ? &wide : &layout_unknown);
    } else if (!same_shape(&gradient->shape, shape)) {
        tape_view(tape, gradient, *shape);
    }
}

static void accumulate(struct tape *tape, struct pending *pending)
{
    const struct graph *graph = tape->graph;
    const uint32_t tensor = tape->same[pending->tensor];
    const struct shape *shape = &graph->tensors[tensor].shape;
    const struct operand as_given = pending->gradient, *gradient = &as_given;
    struct operand seen = as_given;
    const uint32_t root = tape->root[tensor];
    const bool direct = !same_shape(&gradient->shape, shape) &&
                        same_shape(&gradient->shape, &graph->tensors[root].shape);
    see_in_shape(tape, shape, &seen);
    uint32_t *slot = &tape->slot[root];
    if (*slot == NO_BUFFER) {
        *slot = gradient->place;
        tape->part[root] = (struct slice){
            .offset = (uint32_t)gradient->offset,
            .pitch = gradient->pitch,
            .layout = seen.layout,
            .seen_as = tensor,
            .tensor = tensor,
            .expanded = shape_elements(&gradient->shape) < shape_elements(shape),
            .viewed = pending->viewed || (!same_shape(&gradient->shape, shape) && !direct),
            .direct = direct,
        };
    } else {
        struct stream_given *given = tape->stream->given;
        add_up(tape, tensor, root, &seen,
               pending->given == GRAPH_NONE ? NULL : &given[pending->given]);
        pending->added = true;
    }
}

bool tape_accumulate(struct tape *tape, uint32_t tensor, uint32_t buffer)
{
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    struct pending pending = {
        .tensor = tensor,
        .gradient = {.place = buffer, .dtype = t->dtype, .shape = t->shape},
    };
    accumulate(tape, &pending);
    return pending.added;
}

void tape_zero_gradients(struct tape *tape, uint32_t count, const uint32_t *tensors)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++)
        any |= tape->slot[tape->root[tensors[i]]] != NO_BUFFER;
    for (uint32_t i = 0; any && i < count; i++) {
        const struct graph_tensor *t = &tape->graph->tensors[tensors[i]];
        if (!t->requires_grad || tape->slot[tape->root[tensors[i]]] != NO_BUFFER)
            continue;
        const uint32_t zeros =
            tape_call(tape, WORK_FILL, ATEN_ZEROS, (enum dtype)t->dtype, t->shape, -1.0, 0, NULL)
                .place;
        tape_accumulate(tape, tensors[i], zeros);
    }
}

void tape_give_out(struct tape *tape, uint32_t param)
{
    give_out(tape, param, &tape->slot[tape->root[tape->graph->params[param].tensor]]);
}

static bool is_param(const struct tape *tape, uint32_t tensor)
{
    const struct graph_tensor *t = &tape->graph->tensors[tape->root[tensor]];
    return tape->graph->storages[t->storage].kind == STORAGE_PARAM;
}

/* ---- one node ---- */

static void release_one(struct tape *tape, uint32_t op, uint32_t tensor)
{
    if (tape_host_has(tape, op))
        tape_host_end_local(tape, tensor);
    else if (tape_is_activation(tape, tensor))
        tape_release(tape, tape_buffer(tape, tensor));
    else if (tape_saves_memory(tape, op, tensor))
        tape_step(tape, STEP_UNSAVED, tape_param_index(tape, tensor));
}

static void release_saved(struct tape *tape, uint32_t op, const uint32_t *saved, uint32_t count,
                          bool reversed)
{
    for (uint32_t i = 0; i < count; i++)
        release_one(tape, op, saved[reversed ? count - 1 - i : i]);
    tape->node_holds[op] = false;
}

/* Whether hooks unpack what it saved into locals of its function. */
static bool has_locals(const struct tape *tape, uint32_t op)
{
    return tape->op_region[op] != GRAPH_NONE || tape_host_has(tape, op);
}

void tape_end_frame(struct tape *tape, const struct graph_op *op)
{
    const uint32_t index = (uint32_t)(op - tape->graph->ops);
    uint32_t saved[SAVED_MOST];
    const uint32_t count = tape_saved(tape, op, saved);
    if (has_locals(tape, index) && tape->node_holds[index])
        release_saved(tape, index, saved, count, !op_class(op)->in_python);
}

void tape_end_locals(struct tape *tape, const struct graph_op *op, uint32_t count,
                     const uint32_t *tensors, bool last)
{
    const uint32_t index = (uint32_t)(op - tape->graph->ops);
    if (!has_locals(tape, index) || !tape->node_holds[index])
        return;
    for (uint32_t i = 0; i < count; i++)
        if (tensors[i] != GRAPH_NONE)
            release_one(tape, index, tensors[i]);
    tape->node_holds[index] = !last;
}

/* The shape that sum_to_size gives before its last view: as the gradient, with ones. */
static struct shape sum_shape(const struct shape *gradient, const struct shape *target)
{
    struct shape summed = *gradient;
    for (uint32_t i = 0; i < gradient->rank; i++)
        if (i + target->rank < gradient->rank ||
            target->dim[i + target->rank - gradient->rank] == 1)
            summed.dim[i] = 1;
    return summed;
}

/* What a use of a parameter gives may be cast from here on. */
static void note_given(struct tape *tape, struct pending *pending)
{
    struct stream *s = tape->stream;
    const bool shared = tape->holds[pending->gradient.place] != 1;
    if (shared && tape->slot[tape->root[pending->tensor]] == NO_BUFFER)
        return;
    ARRAY_GROW(s->given, s->given_count, s->given_cap);
    s->given[s->given_count] =
        (struct stream_given){.param = tape_param_index(tape, pending->tensor),
                              .buffer = pending->gradient.place,
                              .before = NO_BUFFER,
                              .sum = NO_BUFFER,
                              .shared = shared};
    tape_step(tape, STEP_GIVEN, s->given_count);
    pending->given = s->given_count++;
}

/* Whether a gradient's dtype, and where it is given, are the system's business. */
static bool notes_given(const struct tape *tape, const struct pending *pending)
{
    return tape->options->grad_dtypes && torch_does(tape->graph->torch, TORCH_GRADIENTS_CAST) &&
           is_param(tape, pending->tensor);
}

/* Whether nobody but this use gives the parameter a gradient. */
static bool gives_alone(const struct tape *tape, const struct pending *pending)
{
    return tape->param_uses[tape_param_index(tape, pending->tensor)] == 1 &&
           tape->slot[tape->root[pending->tensor]] == NO_BUFFER;
}

/* A view that one of several uses gives: its bytes are its own only behind the node. */
static void note_given_view(struct tape *tape, struct pending *pending)
{
    if (notes_given(tape, pending) && pending->given == GRAPH_NONE && !gives_alone(tape, pending))
        note_given(tape, pending);
}

/* validate_outputs() in the engine, after the node's function has returned: gradients of broadcast
 * inputs are summed to their shape, then cast to their dtype. */
static void validate_pending(struct tape *tape)
{
    for (uint32_t i = 0; i < tape->pending_count; i++) {
        struct pending *pending = &tape->pending[i];
        const struct graph_tensor *t = &tape->graph->tensors[pending->tensor];
        struct operand grad = pending->gradient;
        if (pending->broadcast) {
            pending->gradient = tape_call(tape, WORK_SUM, ATEN_SUM_DIM, (enum dtype)grad.dtype,
                                          sum_shape(&grad.shape, &t->shape),
                                          (double)shape_elements(&grad.shape), 1, &grad);
            tape_release(tape, grad.place);
            grad = pending->gradient;
            tape_view(tape, &grad, t->shape);
        }
        const bool asked = notes_given(tape, pending);
        if (grad.dtype != t->dtype && !(asked && gives_alone(tape, pending))) {
            pending->gradient = tape_call(tape, WORK_CAST, ATEN_TO_COPY, (enum dtype)t->dtype,
                                          grad.shape, -1.0, 1, &grad);
            tape_release(tape, grad.place);
        }
        if (asked && (!pending->viewed || pending->broadcast))
            note_given(tape, pending);
    }
}

/* The outputs of an op whose gradients have arrived; returns how many. */
static uint32_t gradients_given(const struct tape *tape, const struct graph_op *op,
                                uint32_t given[GRAPH_OUTPUTS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < op->outs; i++)
        if (tape->slot[tape->root[op->out[i]]] != NO_BUFFER)
            given[count++] = op->out[i];
    return count;
}

/* A gradient that the node handed on as it was has one more holder: the slot that it goes to. It is
 * a view still if it is one here, or if it came through a view of the node's output. */
static void hold_passed_on(struct tape *tape, const uint32_t *given, uint32_t count)
{
    for (uint32_t i = 0; i < tape->pending_count; i++)
        for (uint32_t o = 0; o < count; o++) {
            const uint32_t root = tape->root[given[o]];
            struct pending *pending = &tape->pending[i];
            if (pending->gradient.place != tape->slot[root])
                continue;
            tape_hold(tape, pending->gradient.place);
            pending->viewed |= tape->part[root].viewed || tape->part[root].tensor != given[o];
            break;
        }
}

/* What was added to others: the engine's list of a node's outputs has it to the node's end. */
static void release_added(struct tape *tape)
{
    for (uint32_t i = 0; i < tape->pending_count; i++) {
        if (tape->pending[i].added)
            tape_release(tape, tape->pending[i].gradient.place);
        tape->pending[i].added = false;
    }
}

/* One of the uses of a parameter has given its gradient, perhaps the last. */
static void count_down(struct tape *tape, uint32_t tensor)
{
    const uint32_t param = tape_param_index(tape, tensor);
    assert(tape->param_uses[param] > 0);
    if (--tape->param_uses[param] == 0)
        give_out(tape, param, &tape->slot[tape->root[tensor]]);
}

/* Gradients that a node hands on: of parameters; of what others in a module that it is in take,
 * too; all that are left. */
enum which { OF_PARAMS, OF_SHARED, OF_ALL };

static bool is_wanted(const struct tape *tape, const struct pending *pending, enum which which,
                      uint32_t call)
{
    return !pending->handed &&
           (which == OF_ALL || (which == OF_PARAMS && is_param(tape, pending->tensor)) ||
            (which == OF_SHARED && !is_param(tape, pending->tensor) &&
             tape_adds_within(tape, tape->current_op, pending->tensor, call)));
}

/* What nobody wants: the list of a node's outputs has it until all others are handed on. */
static void release_unasked(struct tape *tape)
{
    for (uint32_t i = 0; i < tape->unasked_count; i++)
        tape_release(tape, tape->unasked[i]);
    tape->unasked_count = 0;
}

static bool only_params_from(const struct tape *tape, uint32_t first)
{
    for (uint32_t i = first; i < tape->pending_count; i++)
        if (!is_param(tape, tape->pending[i].tensor))
            return false;
    return true;
}

/* Hands on those that are wanted, `call` being the module of OF_SHARED. That of a parameter goes to
 * a node of its own, before which the one that made it has ended. */
static void hand_on(struct tape *tape, enum which which, uint32_t call)
{
    for (uint32_t i = 0; i < tape->pending_count; i++) {
        struct pending *pending = &tape->pending[i];
        const bool of_param = is_param(tape, pending->tensor);
        if (!is_wanted(tape, pending, which, call))
            continue;
        pending->handed = true;
        if (of_param) {
            release_added(tape);
            if (only_params_from(tape, i))
                release_unasked(tape);
            note_given_view(tape, pending);
        }
        accumulate(tape, pending);
        if (!of_param)
            continue;
        release_added(tape);
        count_down(tape, pending->tensor);
    }
    release_added(tape);
}

/* Parameters' gradients arrive in the order in which the engine's queue has their nodes run. Of
 * what else the node gives to, the last is in the queue with them: what was made of the others,
 * which wait for it. */
static void queue_params(struct tape *tape)
{
    uint32_t numbers[GRAPH_OPERANDS] = {0}, order[GRAPH_OPERANDS], at = 0, count = 0;
    struct pending given[GRAPH_OPERANDS];
    memcpy(given, tape->pending, tape->pending_count * sizeof *given);
    while (at < tape->pending_count && !is_param(tape, given[at].tensor))
        at++;
    const uint32_t first = at > 0 ? at - 1 : 0;
    for (uint32_t i = first; i < tape->pending_count; i++)
        numbers[count++] = i < at ? 0 : READY_QUEUE_PARAM;
    ready_queue_order(count, numbers, order);
    for (uint32_t i = 0, place = at; i < count; i++)
        if (numbers[order[i]] == READY_QUEUE_PARAM)
            tape->pending[place++] = given[first + order[i]];
}

/* Between a module's node and those before it is one of the system: parameters' gradients arrive
 * first; then module by module, from within, what others in it gave is added up, and its hook
 * runs. */
static void return_gradients(struct tape *tape, uint32_t op)
{
    uint32_t call;
    if (!tape_is_inner(tape, op)) {
        hand_on(tape, OF_PARAMS, GRAPH_NONE);
        while ((call = tape_left_by(tape, op)) != GRAPH_NONE) {
            hand_on(tape, OF_SHARED, call);
            tape_leave_call(tape, call);
        }
    }
    hand_on(tape, OF_ALL, GRAPH_NONE);
}

/* Whether a node runs to which no gradient came: one behind it ran and had none to give
 * (is_partial). Once. */
static bool was_reached(struct tape *tape, const struct graph_op *op)
{
    bool reached = false;
    for (uint32_t o = 0; o < op->outs; o++) {
        uint8_t *of_output = &tape->reached[tape->root[op->out[o]]];
        reached |= *of_output;
        *of_output = 0;
    }
    return reached;
}

/* The engine runs what a node leads to, whether the node gave it a gradient or none. */
static void reach_inputs(struct tape *tape, const struct graph_op *op)
{
    for (uint32_t i = 0; i < op->ins; i++)
        if (tape_needs(tape, op, i)) {
            assert(!is_param(tape, op->in[i]));
            tape->reached[tape->root[op->in[i]]] = 1;
        }
}

/* Lets go of the gradients that the node was called with; a tuple of them from its end. */
static void release_given(struct tape *tape, const uint32_t *given, uint32_t count, bool tuple)
{
    for (uint32_t o = 0; o < count; o++) {
        uint32_t *slot = &tape->slot[tape->root[given[tuple ? count - 1 - o : o]]];
        const uint32_t buffer = *slot;
        *slot = NO_BUFFER;
        tape_release(tape, buffer);
    }
}

/* The nodes of views of what the op returned, which are none of the script, have run before. */
static void unpack(struct tape *tape, uint32_t index)
{
    tape_grad_in_rows(tape, &tape->graph->ops[index]);
    tape_host_unpack(tape, index);
}

void tape_node(struct tape *tape, uint32_t index)
{
    const struct graph *graph = tape->graph;
    const struct graph_op *op = &graph->ops[index];
    uint32_t given[GRAPH_OUTPUTS], saved[SAVED_MOST];
    const uint32_t given_count = gradients_given(tape, op, given);
    const bool reached = was_reached(tape, op), empty = given_count == 0;
    if (!op->requires_grad && !empty && tape_has(tape, op)) /* a leaf's: hooks see it */
        tape_enter_op(tape, index);
    if (!op->requires_grad || (empty && !reached) || !tape_has(tape, op))
        return;

    tape_enter_op(tape, index);
    tape->current_op = index;
    const uint32_t saved_count = tape_saved(tape, op, saved);
    struct region *region =
        tape->op_region[index] == GRAPH_NONE ? NULL : &tape->regions[tape->op_region[index]];
    const bool again = region && saved_count && !region->recomputed;
    if (again)
        tape_recompute(tape, region);
    assert(tape->node_holds[index] == (saved_count > 0));
    tape->pending_count = 0;
    tape->in_op = true;
    if (tape_host_has(tape, index) && !empty)
        unpack(tape, index);
    if (!empty)
        op_class(op)->backward(tape, graph, op);
    if (empty || op_class(op)->is_partial)
        reach_inputs(tape, op);
    tape->in_op = false;
    if (again && op_class(op)->custom_bwd)
        tape_end_kept_casts(tape, region);
    hold_passed_on(tape, given, given_count);

    /* Checkpointed nodes unpack into locals of the backward function, which die first and in
     * reverse; otherwise the gradients given die first, then release_variables() runs. */
    if (has_locals(tape, index) && tape->node_holds[index])
        release_saved(tape, index, saved, saved_count, !tape_is_own_linear(tape, op));
    if (op_class(op)->in_python) /* they went into the tuple of its arguments */
        release_given(tape, given, given_count, true);
    validate_pending(tape);
    tape_host_after_node(tape);
    if (!op_class(op)->in_python)
        release_given(tape, given, given_count, false);
    if (!has_locals(tape, index))
        release_saved(tape, index, saved, saved_count, false);
    else if (region && saved_count && --region->holders == 0)
        tape_end_region(tape, region);

    /* Only now do gradients reach their inputs: what the node held is gone before they are added
     * to others. */
    if (op_class(op)->many_params)
        queue_params(tape);
    if (tape->calls && tape->calls->of_op[index] != GRAPH_NONE)
        return_gradients(tape, index);
    else
        hand_on(tape, OF_ALL, GRAPH_NONE);
    release_unasked(tape);
}

/* ---- the whole pass ---- */

void tape_count_uses(struct tape *tape, uint32_t first, uint32_t end, int by)
{
    const struct graph *graph = tape->graph;
    for (uint32_t i = first; i < end; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        if (graph->items[i].kind != ITEM_OP || !op->requires_grad || !tape_has(tape, op))
            continue;
        for (uint32_t in = 0; in < op->ins; in++) {
            if (!tape_needs(tape, op, in))
                continue;
            const struct graph_storage *s = &graph->storages[graph->tensors[op->in[in]].storage];
            if (s->kind == STORAGE_PARAM)
                tape->param_uses[s->index] = (uint16_t)(tape->param_uses[s->index] + by);
        }
    }
}

/* x by way of a kernel that multiplies by a number. The numbers are the seed's already. */
static uint32_t multiplied(struct tape *tape, enum aten aten, struct operand x)
{
    const struct operand y =
        tape_call(tape, WORK_MUL_NUMBER, aten, (enum dtype)x.dtype, x.shape, -1.0, 1, &x);
    tape_number(tape, 1);
    return y.place;
}

static struct operand like_loss(const struct tape *tape, uint32_t buffer)
{
    struct operand x = tape_tensor(tape, tape->graph->loss);
    x.place = buffer;
    return x;
}

static void scale_loss(struct tape *tape)
{
    tape->divided = multiplied(tape, ATEN_DIV, tape_tensor(tape, tape->graph->loss));
    if (!tape->options->divided_loss)
        tape->scaled = multiplied(tape, ATEN_MUL, like_loss(tape, tape->divided));
}

/* The nodes of both: the gradient of the loss itself. */
static uint32_t unscale(struct tape *tape, uint32_t seed)
{
    const bool scaled = tape->scaled != NO_BUFFER;
    const uint32_t product = scaled ? multiplied(tape, ATEN_MUL, like_loss(tape, seed)) : NO_BUFFER;
    const uint32_t quotient = multiplied(tape, ATEN_DIV, like_loss(tape, scaled ? product : seed));
    if (scaled)
        tape_release(tape, product);
    tape_release(tape, seed);
    return quotient;
}

void tape_begin_backward(struct tape *tape)
{
    const struct graph_tensor *loss = &tape->graph->tensors[tape->graph->loss];
    tape_count_uses(tape, 0, tape->graph->item_count, 1);
    tape->backward = true;
    tape->current_op = GRAPH_NONE;
    if (tape->options->scaled_loss)
        scale_loss(tape);
    tape->seed = tape_call(tape, WORK_SEED, ATEN_ONES_LIKE, (enum dtype)loss->dtype, loss->shape,
                           -1.0, 0, NULL)
                     .place;
    tape_hold(tape, tape->seed); /* backward()'s own list of root gradients, beside the slot */
    tape->slot[tape->root[tape->graph->loss]] =
        tape->divided == NO_BUFFER ? tape->seed : unscale(tape, tape->seed);
    tape->part[tape->root[tape->graph->loss]] =
        (struct slice){.seen_as = tape->graph->loss, .tensor = tape->graph->loss};
}

static void release_seed(struct tape *tape)
{
    tape_release(tape, tape->seed);
    tape->seed = NO_BUFFER;
}

static void release_scaled(struct tape *tape)
{
    if (tape->divided == NO_BUFFER)
        return;
    if (tape->scaled != NO_BUFFER)
        tape_release(tape, tape->scaled);
    tape_release(tape, tape->divided);
    tape->scaled = tape->divided = NO_BUFFER;
}

/* Of the loss and what the model returned besides, where that is kept, the last that leads to the
 * graph. */
static uint32_t last_of_graph(const struct graph *graph)
{
    uint32_t last = graph->tensors[graph->loss].storage;
    for (uint32_t i = 0; graph->outputs_kept == OUTPUTS_UNTIL_BACKWARD && i < graph->output_count;
         i++)
        if (graph->tensors[graph->outputs[i]].requires_grad)
            last = graph->tensors[graph->outputs[i]].storage;
    return last;
}

/* A name goes; the graph with the last that leads to it, before that one's memory. */
static void drop_result(struct tape *tape, uint32_t tensor, uint32_t last)
{
    const uint32_t storage = tape->graph->tensors[tensor].storage;
    if (storage == last) {
        tape_name_goes(tape, storage);
        tape_end_called(tape);
        tape_end_leaves(tape);
    }
    tape_drop(tape, storage);
}

void tape_end_backward(struct tape *tape)
{
    const struct graph *graph = tape->graph;
    const bool behind = tape->options->scaled_loss;
    const uint32_t last = last_of_graph(graph);
    if (behind)
        release_seed(tape);
    if (!tape->options->saved_end_last)
        tape_host_end(tape);
    tape->stream->final_step = tape->stream->step_count;
    tape_step(tape, STEP_FINAL, 0);
    tape_host_end(tape);
    if (!behind)
        release_seed(tape);
    release_scaled(tape);
    drop_result(tape, graph->loss, last);
    if (graph->outputs_kept == OUTPUTS_UNTIL_BACKWARD)
        for (uint32_t i = 0; i < graph->output_count; i++)
            drop_result(tape, graph->outputs[i], last);
    tape_nodes_end(tape, false);
    tape_host_clear(tape);
    tape_step(tape, STEP_MARK, STREAM_AFTER_BACKWARD);
}
