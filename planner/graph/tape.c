/* tape.c - see tape.h.
 *
 * One struct `held` per live buffer counts its holders: Python's variable, nodes that saved it,
 * gradient slots, the selective-checkpoint cache. `where[storage]` is the buffer a storage lives
 * in now; recomputation gives a storage a second buffer in its block's backward.
 *
 * A checkpointed block, in time:
 *
 *     forward   births ... each dies with Python's reference; the block's inputs are held
 *     backward  first node that needs something saved -> the script runs again, now holding what
 *               nodes save, and stops early where the last saved tensor would be packed
 *               nodes run; the inputs are let go with the last node that saved anything */
#include "graph/tape.h"

#include "graph/ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NO_BUFFER GRAPH_NONE

struct region {           /* one checkpointed module */
    uint32_t first, last; /* items between its ENTER and EXIT */
    uint32_t stop;        /* item whose packing ends the recomputation early */
    uint32_t holders;     /* nodes that still have saved tensors */
    bool recomputed;
};

struct pending { /* a gradient on its way to an input */
    uint32_t tensor;
    struct operand gradient;
    bool broadcast; /* to be summed to the tensor's shape first */
};

struct tape {
    const struct graph *graph;
    struct stream *stream;
    enum checkpointing checkpointing;
    bool no_early_stop;
    uint16_t *holds; /* (buffers) holders */
    uint32_t holds_cap;
    uint32_t *where;      /* (storages) buffer of each activation, NO_BUFFER */
    uint8_t *python;      /* (storages) whether Python refers to it */
    uint32_t *slot;       /* (tensors) buffer of the gradient so far, by root */
    uint8_t *cached;      /* (storages) kept by the selective policy until recomputation */
    uint16_t *param_uses; /* (params) gradients still to come */
    uint32_t *op_region;  /* (ops) region of each op, GRAPH_NONE outside */
    struct region *regions;
    uint32_t region_count;
    struct pending pending[GRAPH_OPERANDS];
    uint32_t pending_count;
    uint32_t current_op;
    uint32_t matmuls; /* counted by the selective policy, per region */
    bool backward, recomputing;
};

/* ---- emitting ---- */

static void emit(struct tape *tape, enum step_kind kind, uint32_t arg)
{
    struct stream *s = tape->stream;
    ARRAY_GROW(s->steps, s->step_count, s->step_cap);
    s->steps[s->step_count++] = (struct stream_step){.kind = kind & 0xfU, .arg = arg & 0xfffffffU};
}

static uint32_t birth(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape,
                      uint64_t bytes)
{
    struct stream *s = tape->stream;
    ARRAY_GROW(s->buffers, s->buffer_count, s->buffer_cap);
    ARRAY_GROW(tape->holds, s->buffer_count, tape->holds_cap);
    const uint32_t buffer = s->buffer_count++;
    s->buffers[buffer] = (struct buffer){
        .bytes = bytes,
        .label = (uint16_t)aten,
        .dtype = (uint8_t)dtype,
        .category = tape->backward ? CATEGORY_BACKWARD : CATEGORY_ACTIVATION,
        .pool = LANE_COMPUTE,
        .shape = shape,
    };
    tape->holds[buffer] = 1;
    emit(tape, STEP_BIRTH, buffer);
    return buffer;
}

static void hold(struct tape *tape, uint32_t buffer)
{
    assert(tape->holds);
    tape->holds[buffer]++;
}

static void release(struct tape *tape, uint32_t buffer)
{
    assert(tape->holds && tape->holds[buffer] > 0);
    if (--tape->holds[buffer] == 0)
        emit(tape, STEP_DEATH, buffer);
}

static bool is_activation(const struct tape *tape, uint32_t tensor)
{
    return tape->graph->storages[tape->graph->tensors[tensor].storage].kind == STORAGE_ACTIVATION;
}

static void drop_python(struct tape *tape, uint32_t storage)
{
    if (tape->python[storage]) {
        tape->python[storage] = 0;
        release(tape, tape->where[storage]);
    }
}

/* ---- what operators may do (tape.h) ---- */

bool tape_needs(const struct tape *tape, const struct graph_op *op, uint32_t i)
{
    return i < op->ins && op->in[i] != GRAPH_NONE && tape->graph->tensors[op->in[i]].requires_grad;
}

struct operand tape_tensor(const struct tape *tape, uint32_t tensor)
{
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    const struct graph_storage *s = &tape->graph->storages[t->storage];
    static const uint32_t kinds[] = {
        [STORAGE_ACTIVATION] = PLACE_BUFFER,
        [STORAGE_PARAM] = PLACE_PARAM,
        [STORAGE_INPUT] = PLACE_INPUT,
        [STORAGE_BUFFER] = PLACE_MODULE_BUFFER,
    };
    const uint32_t index = s->kind == STORAGE_ACTIVATION ? tape->where[t->storage] : s->index;
    return (struct operand){
        .place = kinds[s->kind] | index,
        .offset = t->offset,
        .pitch = t->pitch,
        .dtype = t->dtype,
        .shape = t->shape,
    };
}

struct operand tape_grad(const struct tape *tape, const struct graph_op *op, uint32_t i)
{
    const struct graph_tensor *t = &tape->graph->tensors[op->out[i]];
    return (struct operand){
        .place = tape->slot[t->root],
        .dtype = t->dtype,
        .shape = t->shape,
    };
}

struct operand tape_birth(struct tape *tape, enum aten aten, enum dtype dtype, struct shape shape)
{
    return (struct operand){
        .place = birth(tape, aten, dtype, shape, shape_bytes(&shape, dtype)),
        .dtype = (uint8_t)dtype,
        .shape = shape,
    };
}

struct operand tape_birth_pitched(struct tape *tape, enum aten aten, enum dtype dtype,
                                  struct shape shape, uint32_t pitch)
{
    const uint64_t last = shape.dim[shape.rank - 1], rows = shape_elements(&shape) / last;
    return (struct operand){
        .place = birth(tape, aten, dtype, shape, ((rows - 1) * pitch + last) * dtype_bytes(dtype)),
        .pitch = pitch == last ? 0 : pitch,
        .dtype = (uint8_t)dtype,
        .shape = shape,
    };
}

static double operand_bytes(const struct operand *operand)
{
    return (double)shape_bytes(&operand->shape, (enum dtype)operand->dtype);
}

void tape_kernel(struct tape *tape, enum work_kind work, enum aten aten, double flops, uint32_t ins,
                 const struct operand *in, uint32_t outs, const struct operand *out)
{
    struct kernel_table *table = tape->stream->kernels;
    assert(work != WORK_NONE);
    struct kernel kernel = {
        .label = (uint16_t)aten,
        .backward = tape->backward,
        .recomputed = tape->recomputing,
        .work = (uint8_t)work,
        .flops = flops,
    };
    if (tape->current_op != GRAPH_NONE) {
        kernel.op = tape->graph->ops[tape->current_op].kind;
        kernel.attr = tape->graph->ops[tape->current_op].attr;
    }
    for (uint32_t i = 0; i < ins; i++) {
        if (in[i].place == GRAPH_NONE)
            continue;
        kernel_table_operand(table, &in[i]);
        kernel.bytes += operand_bytes(&in[i]);
        kernel.ins++;
    }
    for (uint32_t i = 0; i < outs; i++) {
        kernel_table_operand(table, &out[i]);
        kernel.bytes += operand_bytes(&out[i]);
        kernel.outs++;
        if (flops < 0 && i == 0)
            kernel.flops = (double)shape_elements(&out[i].shape);
    }
    emit(tape, STEP_KERNEL, kernel_table_add(table, &kernel));
}

void tape_number(struct tape *tape, float number)
{
    struct kernel_table *table = tape->stream->kernels;
    table->kernels[table->kernel_count - 1].attr.p = number;
}

struct operand tape_call(struct tape *tape, enum work_kind work, enum aten aten, enum dtype dtype,
                         struct shape shape, double flops, uint32_t ins, const struct operand *in)
{
    const struct operand out = tape_birth(tape, aten, dtype, shape);
    tape_kernel(tape, work, aten, flops, ins, in, 1, &out);
    return out;
}

void tape_death(struct tape *tape, struct operand transient)
{
    release(tape, transient.place);
}

struct operand tape_scratch(struct tape *tape, uint64_t bytes)
{
    const struct shape shape = SHAPE((uint32_t)((bytes + 1023) / 1024), 256);
    const uint32_t buffer = birth(tape, ATEN_WORKSPACE, DTYPE_FP32, shape, bytes);
    tape->stream->buffers[buffer].scratch = true;
    tape->stream->buffers[buffer].category = CATEGORY_WORKSPACE;
    return (struct operand){.place = buffer, .dtype = DTYPE_FP32, .shape = shape};
}

void tape_give(struct tape *tape, const struct graph_op *op, uint32_t i, struct operand gradient)
{
    assert(tape->pending_count < GRAPH_OPERANDS);
    tape->pending[tape->pending_count++] =
        (struct pending){.tensor = op->in[i], .gradient = gradient};
}

void tape_give_summed(struct tape *tape, const struct graph_op *op, uint32_t i,
                      struct operand gradient)
{
    tape_give(tape, op, i, gradient);
    tape->pending[tape->pending_count - 1].broadcast = true;
}

/* ---- forward ---- */

static uint32_t saved_of(const struct tape *tape, const struct graph_op *op,
                         uint32_t saved[GRAPH_OPERANDS + GRAPH_OUTPUTS])
{
    const struct op_class *class = op_class(op);
    return op->requires_grad && class->saved ? class->saved(tape->graph, op, saved) : 0;
}

static bool policy_keeps(struct tape *tape, const struct op_class *class)
{
    if (tape->checkpointing != CHECKPOINTING_SELECTIVE)
        return false;
    if (class->keep == KEEP_EVERY_SECOND)
        return ++tape->matmuls % 2 == 1;
    return class->keep == KEEP_ALWAYS;
}

static void run_forward_kernel(struct tape *tape, const struct graph_op *op)
{
    const struct op_class *class = op_class(op);
    struct operand in[GRAPH_OPERANDS] = {{0}}, out[GRAPH_OUTPUTS] = {{0}};
    for (uint32_t i = 0; i < op->ins; i++) {
        in[i] = (struct operand){.place = PLACE_NONE};
        if (op->in[i] != GRAPH_NONE)
            in[i] = tape_tensor(tape, op->in[i]);
    }
    for (uint32_t i = 0; i < op->outs; i++)
        out[i] = tape_tensor(tape, op->out[i]);
    const enum aten kernel =
        class->kernel != ATEN_NONE
            ? class->kernel
            : (enum aten)tape->graph->storages[tape->graph->tensors[op->out[0]].storage].aten;
    const enum work_kind work = op->work ? (enum work_kind)op->work : class->work;
    tape_kernel(tape, work, kernel, class->flops ? class->flops(tape->graph, op) : -1.0, op->ins,
                in, op->outs, out);
}

/* Runs op; `holding` is whether autograd keeps what the node saves (not in a checkpoint). */
static void run_op(struct tape *tape, uint32_t index, bool holding, bool in_region)
{
    const struct graph *graph = tape->graph;
    const struct graph_op *op = &graph->ops[index];
    const struct op_class *class = op_class(op);
    tape->current_op = index;

    bool births = false;
    const bool kept = in_region && policy_keeps(tape, class);
    for (uint32_t i = 0; i < op->outs; i++) {
        const uint32_t storage = graph->tensors[op->out[i]].storage;
        const struct graph_storage *s = &graph->storages[storage];
        if (s->kind != STORAGE_ACTIVATION || s->index != index)
            continue; /* a view */
        if (tape->recomputing && kept && tape->cached[storage]) {
            tape->cached[storage] = 0; /* the cache's reference becomes Python's */
        } else {
            tape->where[storage] =
                birth(tape, (enum aten)s->aten, (enum dtype)s->dtype, s->shape, s->bytes);
            births = true;
        }
        tape->python[storage] = 1;
    }
    if (births)
        run_forward_kernel(tape, op);

    if (holding) {
        uint32_t saved[GRAPH_OPERANDS + GRAPH_OUTPUTS];
        const uint32_t count = saved_of(tape, op, saved);
        for (uint32_t i = 0; i < count; i++)
            if (is_activation(tape, saved[i]))
                hold(tape, tape->where[graph->tensors[saved[i]].storage]);
    }
    if (kept && !tape->recomputing) {
        for (uint32_t i = 0; i < op->outs; i++) {
            const uint32_t storage = graph->tensors[op->out[i]].storage;
            hold(tape, tape->where[storage]);
            tape->cached[storage] = 1;
        }
    }
    for (uint32_t i = op->outs; i-- > (uint32_t)(op->outs - op->hidden);)
        drop_python(tape, graph->tensors[op->out[i]].storage);
}

static bool is_checkpointed(const struct tape *tape, uint32_t module)
{
    return tape->checkpointing != CHECKPOINTING_NONE &&
           tape->graph->modules[module].role == ROLE_BLOCK;
}

/* Finds the checkpointed regions and where each recomputation may stop. */
static void find_regions(struct tape *tape)
{
    const struct graph *graph = tape->graph;
    tape->regions = xmalloc((graph->module_count + 1) * sizeof *tape->regions);
    uint32_t region = GRAPH_NONE;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        if (item.kind == ITEM_ENTER && is_checkpointed(tape, item.arg)) {
            region = tape->region_count++;
            tape->regions[region] = (struct region){.first = i, .stop = i};
        } else if (item.kind == ITEM_EXIT && region != GRAPH_NONE &&
                   is_checkpointed(tape, item.arg)) {
            tape->regions[region].last = i;
            region = GRAPH_NONE;
        } else if (item.kind == ITEM_OP) {
            tape->op_region[item.arg] = region;
            uint32_t saved[GRAPH_OPERANDS + GRAPH_OUTPUTS];
            if (region != GRAPH_NONE && saved_of(tape, &graph->ops[item.arg], saved)) {
                tape->regions[region].stop = i;
                tape->regions[region].holders++;
            }
        }
    }
}

static void hold_inputs(struct tape *tape, uint32_t module, int change)
{
    const struct graph_module *m = &tape->graph->modules[module];
    for (uint32_t n = 0; n < m->inputs; n++) { /* arguments die last to first */
        const uint32_t i = change > 0 ? n : m->inputs - 1 - n;
        if (!is_activation(tape, m->input[i]))
            continue;
        const uint32_t buffer = tape->where[tape->graph->tensors[m->input[i]].storage];
        if (change > 0)
            hold(tape, buffer);
        else
            release(tape, buffer);
    }
}

static void forward(struct tape *tape)
{
    static const enum stream_mark marks[] = {
        [MARK_LOGITS] = STREAM_AFTER_LOGITS,
        [MARK_LOSS] = STREAM_AFTER_FORWARD,
    };
    const struct graph *graph = tape->graph;
    bool in_region = false;
    emit(tape, STEP_PRE_FORWARD, MODULE_ROOT);
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        switch (item.kind) {
        case ITEM_OP:
            run_op(tape, item.arg, !in_region, in_region);
            break;
        case ITEM_DROP:
            drop_python(tape, graph->tensors[item.arg].storage);
            break;
        case ITEM_ENTER:
            emit(tape, STEP_PRE_FORWARD, item.arg);
            if (is_checkpointed(tape, item.arg)) {
                in_region = true;
                tape->matmuls = 0;
                hold_inputs(tape, item.arg, 1);
            }
            break;
        case ITEM_EXIT:
            emit(tape, STEP_POST_FORWARD, item.arg);
            if (is_checkpointed(tape, item.arg))
                in_region = false;
            break;
        default:
            if (item.arg == MARK_ROOT_EXIT)
                emit(tape, STEP_POST_FORWARD, MODULE_ROOT);
            else
                emit(tape, STEP_MARK, marks[item.arg]);
            break;
        }
    }
}

/* ---- backward ---- */

/* A name goes out of scope: what it means dies, and that may still be its earlier value. */
static void drop_name(struct tape *tape, uint32_t storage)
{
    const struct graph_storage *s = &tape->graph->storages[storage];
    if (s->renamed)
        return; /* the name is its successor's */
    for (uint32_t before = s->before; before != GRAPH_NONE;
         before = tape->graph->storages[before].before)
        drop_python(tape, before);
    drop_python(tape, storage);
}

static void recompute(struct tape *tape, struct region *region)
{
    const struct graph *graph = tape->graph;
    const uint32_t op_now = tape->current_op;
    region->recomputed = true;
    tape->recomputing = true;
    tape->matmuls = 0;
    const uint32_t end = tape->no_early_stop ? region->last - 1 : region->stop;
    for (uint32_t i = region->first + 1; i <= end; i++) {
        const struct graph_item item = graph->items[i];
        if (item.kind == ITEM_DROP) {
            drop_python(tape, graph->tensors[item.arg].storage);
            continue;
        }
        if (item.kind != ITEM_OP)
            continue;
        const struct graph_op *op = &graph->ops[item.arg];
        uint32_t saved[GRAPH_OPERANDS + GRAPH_OUTPUTS];
        const uint32_t count = saved_of(tape, op, saved);
        bool saves_output = false;
        for (uint32_t s = 0; s < count; s++)
            for (uint32_t o = 0; o < op->outs; o++)
                saves_output |= saved[s] == op->out[o];
        if (i == region->stop && !saves_output && !tape->no_early_stop) {
            /* Packing its inputs raises before the kernel runs. */
            for (uint32_t s = 0; s < count; s++)
                if (is_activation(tape, saved[s]))
                    hold(tape, tape->where[graph->tensors[saved[s]].storage]);
            break;
        }
        run_op(tape, item.arg, true, true);
    }
    /* The exception unwinds: first the call that raised, whose outputs Python never got, then the
     * block's frames. What only they held dies. */
    if (!tape->no_early_stop && graph->items[region->stop].kind == ITEM_OP) {
        const struct graph_op *op = &graph->ops[graph->items[region->stop].arg];
        for (uint32_t o = 0; o < op->outs; o++)
            drop_python(tape, graph->tensors[op->out[o]].storage);
    }
    /* Inner frames before outer ones: the order in which the rest of the script would have let go.
     */
    for (uint32_t i = end + 1; i < region->last; i++)
        if (graph->items[i].kind == ITEM_DROP)
            drop_name(tape, graph->tensors[graph->items[i].arg].storage);
    for (uint32_t i = region->first + 1; i <= end; i++) {
        const struct graph_item item = graph->items[i];
        for (uint32_t o = 0; item.kind == ITEM_OP && o < graph->ops[item.arg].outs; o++)
            drop_python(tape, graph->tensors[graph->ops[item.arg].out[o]].storage);
    }
    tape->recomputing = false;
    tape->current_op = op_now;
}

/* The last node of a checkpointed block lets go of its frame: outputs that the selective policy
 * kept and an early stop left unused, and the block's inputs. */
static void end_region(struct tape *tape, const struct region *region)
{
    const struct graph *graph = tape->graph;
    for (uint32_t i = region->first; i < region->last; i++) {
        if (graph->items[i].kind != ITEM_OP)
            continue;
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t o = 0; o < op->outs; o++) {
            const uint32_t storage = graph->tensors[op->out[o]].storage;
            if (tape->cached[storage])
                release(tape, tape->where[storage]);
            tape->cached[storage] = 0;
        }
    }
    hold_inputs(tape, graph->items[region->first].arg, -1);
}

static void accumulate(struct tape *tape, uint32_t tensor, uint32_t buffer)
{
    const struct graph *graph = tape->graph;
    const uint32_t root = graph->tensors[tensor].root;
    uint32_t *slot = &tape->slot[root];
    if (*slot == NO_BUFFER) {
        *slot = buffer;
    } else {
        const struct graph_tensor *t = &graph->tensors[tensor];
        struct operand in[2] = {
            {.place = *slot, .dtype = t->dtype, .shape = t->shape},
            {.place = buffer, .dtype = t->dtype, .shape = t->shape},
        };
        const struct operand sum =
            tape_call(tape, WORK_ADD, ATEN_ADD, (enum dtype)t->dtype, t->shape, -1.0, 2, in);
        release(tape, *slot);
        release(tape, buffer);
        *slot = sum.place;
    }
    const struct graph_storage *storage = &graph->storages[graph->tensors[root].storage];
    if (storage->kind == STORAGE_PARAM && --tape->param_uses[storage->index] == 0) {
        struct stream *s = tape->stream;
        ARRAY_GROW(s->grads, s->grad_count, s->grad_cap);
        s->grads[s->grad_count] = (struct stream_grad){storage->index, *slot};
        emit(tape, STEP_GRAD, s->grad_count++);
        *slot = NO_BUFFER; /* now .grad: the strategy's */
    }
}

static void release_saved(struct tape *tape, const uint32_t *saved, uint32_t count, bool reversed)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t tensor = saved[reversed ? count - 1 - i : i];
        if (is_activation(tape, tensor))
            release(tape, tape->where[tape->graph->tensors[tensor].storage]);
    }
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
            release(tape, grad.place);
            grad = pending->gradient;
        }
        if (grad.dtype != t->dtype) {
            pending->gradient = tape_call(tape, WORK_CAST, ATEN_TO_COPY, (enum dtype)t->dtype,
                                          grad.shape, -1.0, 1, &grad);
            release(tape, grad.place);
        }
    }
}

static void run_node(struct tape *tape, uint32_t index)
{
    const struct graph *graph = tape->graph;
    const struct graph_op *op = &graph->ops[index];
    uint32_t given[GRAPH_OUTPUTS], given_count = 0;
    for (uint32_t i = 0; i < op->outs; i++)
        if (tape->slot[graph->tensors[op->out[i]].root] != NO_BUFFER)
            given[given_count++] = op->out[i];
    if (!op->requires_grad || given_count == 0)
        return;

    tape->current_op = index;
    uint32_t saved[GRAPH_OPERANDS + GRAPH_OUTPUTS];
    const uint32_t saved_count = saved_of(tape, op, saved);
    struct region *region =
        tape->op_region[index] == GRAPH_NONE ? NULL : &tape->regions[tape->op_region[index]];
    if (region && saved_count && !region->recomputed)
        recompute(tape, region);

    tape->pending_count = 0;
    op_class(op)->backward(tape, graph, op);
    for (uint32_t i = 0; i < tape->pending_count; i++)
        for (uint32_t o = 0; o < given_count; o++)
            if (tape->pending[i].gradient.place == tape->slot[graph->tensors[given[o]].root])
                hold(tape, tape->pending[i].gradient.place); /* passed on, not made here */

    /* Checkpointed nodes unpack into locals of the backward function, which die first and in
     * reverse; otherwise the gradients given die first, then release_variables() runs. */
    if (region)
        release_saved(tape, saved, saved_count, true);
    validate_pending(tape);
    for (uint32_t o = 0; o < given_count; o++) {
        uint32_t *slot = &tape->slot[graph->tensors[given[o]].root];
        const uint32_t buffer = *slot;
        *slot = NO_BUFFER;
        release(tape, buffer);
    }
    if (!region)
        release_saved(tape, saved, saved_count, false);
    else if (saved_count && --region->holders == 0)
        end_region(tape, region);

    for (uint32_t i = 0; i < tape->pending_count; i++)
        accumulate(tape, tape->pending[i].tensor, tape->pending[i].gradient.place);
}

static bool inputs_require_grad(const struct tape *tape, uint32_t module)
{
    const struct graph_module *m = &tape->graph->modules[module];
    for (uint32_t i = 0; i < m->inputs; i++)
        if (tape->graph->tensors[m->input[i]].requires_grad)
            return true;
    return false;
}

static void backward(struct tape *tape)
{
    const struct graph *graph = tape->graph;
    const uint32_t loss = graph->loss;
    bool in_blocks = false;
    tape->backward = true;
    tape->current_op = GRAPH_NONE;
    const struct operand ones =
        tape_call(tape, WORK_SEED, ATEN_ONES_LIKE, (enum dtype)graph->tensors[loss].dtype,
                  graph->tensors[loss].shape, -1.0, 0, NULL);
    hold(tape, ones.place); /* backward()'s own list of root gradients */
    tape->slot[graph->tensors[loss].root] = ones.place;

    for (uint32_t i = graph->item_count; i-- > 0;) {
        const struct graph_item item = graph->items[i];
        switch (item.kind) {
        case ITEM_OP:
            run_node(tape, item.arg);
            break;
        case ITEM_EXIT:
            if (!graph->tensors[graph->modules[item.arg].output].requires_grad)
                break;
            if (!in_blocks && graph->modules[item.arg].role == ROLE_BLOCK) {
                in_blocks = true;
                emit(tape, STEP_MARK, STREAM_BACKWARD_BLOCKS);
            }
            emit(tape, STEP_PRE_BACKWARD, item.arg);
            break;
        case ITEM_ENTER:
            if (inputs_require_grad(tape, item.arg))
                emit(tape, STEP_POST_BACKWARD, item.arg);
            break;
        case ITEM_MARK:
            if (item.arg == MARK_ROOT_EXIT)
                emit(tape, STEP_PRE_BACKWARD, MODULE_ROOT);
            break;
        default:
            break;
        }
    }
    tape->stream->final_step = tape->stream->step_count;
    emit(tape, STEP_FINAL, 0);
    release(tape, ones.place);
    drop_python(tape, graph->tensors[loss].storage);
    emit(tape, STEP_MARK, STREAM_AFTER_BACKWARD);
}

static void count_param_uses(struct tape *tape)
{
    const struct graph *graph = tape->graph;
    for (uint32_t i = 0; i < graph->op_count; i++) {
        const struct graph_op *op = &graph->ops[i];
        for (uint32_t in = 0; in < op->ins; in++) {
            if (!tape_needs(tape, op, in) || !op->requires_grad)
                continue;
            const struct graph_storage *s = &graph->storages[graph->tensors[op->in[in]].storage];
            if (s->kind == STORAGE_PARAM)
                tape->param_uses[s->index]++;
        }
    }
}

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

struct stream *tape_run(const struct graph *graph, const struct tape_options *options)
{
    struct tape tape = {
        .graph = graph,
        .stream = xmalloc(sizeof(struct stream)),
        .checkpointing = options->checkpointing,
        .no_early_stop = options->no_early_stop,
        .where = xmalloc(graph->storage_count * sizeof(uint32_t)),
        .python = calloc(graph->storage_count + 1, 1),
        .cached = calloc(graph->storage_count + 1, 1),
        .slot = xmalloc(graph->tensor_count * sizeof(uint32_t)),
        .param_uses = calloc(graph->param_count + 1, sizeof(uint16_t)),
        .op_region = xmalloc((graph->op_count + 1) * sizeof(uint32_t)),
    };
    *tape.stream = (struct stream){0};
    reserve(&tape);
    memset(tape.where, 0xff, graph->storage_count * sizeof(uint32_t));
    memset(tape.slot, 0xff, graph->tensor_count * sizeof(uint32_t));
    memset(tape.op_region, 0xff, graph->op_count * sizeof(uint32_t));

    count_param_uses(&tape);
    find_regions(&tape);
    forward(&tape);
    backward(&tape);
    kernel_table_close(tape.stream->kernels);

    free(tape.holds);
    free(tape.where);
    free(tape.python);
    free(tape.cached);
    free(tape.slot);
    free(tape.param_uses);
    free(tape.op_region);
    free(tape.regions);
    return tape.stream;
}
