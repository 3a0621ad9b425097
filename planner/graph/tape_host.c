/* tape_host.c - what nodes save waits on the host (tape_options.saved_on; see tape_state.h).
 *
 * Hooks of saved tensors, as TRL's OffloadActivations has them.
 *
 *     forward   A node packs what it saves: inputs before its kernel runs, outputs behind it.
 *               What is small, a parameter, or in the stash already is kept as it is. The rest is
 *               copied to the host; what does not lie row by row is copied on the device first.
 *               With a stream of its own a stash has it while the next STASHED numbers are
 *               given out; then the compute stream waits for the copy.
 *     backward  A node unpacks all that it saved into locals before it does anything else: what
 *               was kept, what is still in the stash, or a new tensor of the copying stream's,
 *               which a second stash has until the next node that unpacked one has run.
 *
 * The head packs nothing: hooks that do nothing are around it. Of a checkpointed region what its
 * block is called with by position is packed, and nothing within it. */
#include "base/layout.h"
#include "graph/op_table.h"
#include "graph/tape_emit.h"
#include "graph/tape_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALLEST = 1024, /* min_offload_size */
    STASHED = 5,     /* max_fwd_stash_size */
};

struct key { /* a view of a storage that has been packed: by where it begins, and its dtype */
    uint32_t offset, owner; /* owner: packed, the latest that is there; GRAPH_NONE: none */
    uint32_t next;          /* of the same storage */
    uint8_t dtype;
};

struct packed {
    uint32_t tensor;
    uint32_t key;    /* GRAPH_NONE: others never ask for it */
    uint32_t buffer; /* that it is in on the device, with one holder: itself (kept), a stash, or a
                        local; NO_BUFFER: none, or it is always there */
    uint32_t host;   /* NO_BUFFER: it was kept, or is back */
    uint32_t copy;   /* the kernel that fills that */
    bool stashed;
    bool local;                   /* of the node that runs: unpacked */
    bool second;                  /* ... and the second stash has it */
    bool lone;                    /* in a tensor of its own, not where its storage is */
    const struct strides *layout; /* lone: how it lies there, in the tensor's shape */
    uint32_t offset;              /* likewise */
};

struct tape_host {
    uint8_t *hooked;   /* (ops) */
    uint32_t *first;   /* (ops) first of its numbers: as many as it saves, in that order */
    uint32_t *numbers; /* index into packed */
    uint32_t *inputs;  /* (regions) its packed; GRAPH_NONE */
    uint32_t *keys;    /* (storages) first key; GRAPH_NONE */
    struct key *key;
    struct packed *packed; /* by number */
    uint32_t *stash;       /* (stash_count) packed, the earliest first */
    uint32_t *second;      /* (second_count) likewise, as they came back */
    uint32_t key_count, key_cap, packed_count, packed_cap, number_count, number_cap;
    uint32_t stash_count, stash_cap, second_count, second_cap;
    uint32_t from, count; /* numbers whose locals there are: of the node that runs */
    uint32_t before;      /* of `second`, those of nodes before; GRAPH_NONE: it has unpacked none */
};

/* ---- what is hooked ---- */

static uint32_t *all_none(uint32_t count)
{
    uint32_t *array = xmalloc((count + 1) * sizeof *array);
    memset(array, 0xff, (count + 1) * sizeof *array);
    return array;
}

/* Of a head that is no module with borders. */
static bool is_of_head(const struct graph_op *op)
{
    return op->call && strcmp(op->call, "lm_head") == 0;
}

/* The heads that get_act_offloading_ctx_manager looks for; that of a class that classifies
 * ("score") is none. */
static bool is_known_head(const struct graph_module *module)
{
    return module->role == ROLE_HEAD && strcmp(module->name, "score") != 0;
}

void tape_host_open(struct tape *tape)
{
    const struct graph *graph = tape->graph;
    if (tape->options->saved_on == SAVED_ON_DEVICE)
        return;
    struct tape_host *host = xcalloc(1, sizeof *host);
    host->hooked = xcalloc(graph->op_count + 1, 1);
    host->first = all_none(graph->op_count);
    host->inputs = all_none(tape->region_count);
    host->keys = all_none(graph->storage_count);
    host->before = GRAPH_NONE;
    bool in_head = false;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        const bool border = item.kind == ITEM_ENTER || item.kind == ITEM_EXIT;
        if (border && is_known_head(&graph->modules[item.arg]))
            in_head = item.kind == ITEM_ENTER;
        else if (item.kind == ITEM_OP)
            host->hooked[item.arg] = !in_head && !is_of_head(&graph->ops[item.arg]) &&
                                     tape->op_region[item.arg] == GRAPH_NONE;
    }
    tape->host = host;
}

void tape_host_close(struct tape *tape)
{
    struct tape_host *host = tape->host;
    if (!host)
        return;
    free(host->hooked);
    free(host->first);
    free(host->numbers);
    free(host->inputs);
    free(host->keys);
    free(host->key);
    free(host->packed);
    free(host->stash);
    free(host->second);
    free(host);
}

bool tape_host_has(const struct tape *tape, uint32_t op)
{
    return tape->host && tape->host->hooked[op];
}

static bool has_stream(const struct tape *tape)
{
    return saved_aside(tape->options->saved_on);
}

/* ---- what a node saves, as PyTorch has it ---- */

/* Attention's bias or mask, which is saved as it is stretched over sequences and heads. */
static bool is_bias(const struct graph_op *op, uint32_t tensor)
{
    return op_class(op)->turns_heads && op->ins > 3 && tensor == op->in[3];
}

/* The first of the two dims that change places in the view of a tensor that is saved, of a weight
 * or of heads; GRAPH_NONE: none do. */
static uint32_t turned_dim(const struct tape *tape, uint32_t index, uint32_t tensor)
{
    if (index == GRAPH_NONE)
        return GRAPH_NONE;
    const struct graph_op *op = &tape->graph->ops[index];
    const uint32_t rank = tape->graph->tensors[tensor].shape.rank;
    if (op_class(op)->turns_weight && tensor == op->in[1] && rank >= 2)
        return rank - 2;
    return op_class(op)->turns_heads && rank == 4 && !is_bias(op, tensor) ? 1 : GRAPH_NONE;
}

/* That view, and how it lies. Linear layers, and functions that fold their inputs' dims into rows,
 * save these; what flash attention returns lies as its queries do. */
static struct shape saved_view(const struct tape *tape, uint32_t index, uint32_t tensor,
                               struct strides *strides)
{
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    const struct graph_op *op = index == GRAPH_NONE ? NULL : &tape->graph->ops[index];
    struct shape shape = t->shape;
    const bool as_queries = op && op->kind == OP_FLASH_ATTENTION && tensor == op->out[0];
    const struct graph_tensor *lies = as_queries ? &tape->graph->tensors[op->in[0]] : t;
    *strides = layout_of(&shape, as_queries && !lies->layout ? 0 : lies->pitch, lies->layout);
    const uint32_t at = turned_dim(tape, index, tensor);
    if (at != GRAPH_NONE) {
        const uint32_t dim = shape.dim[at];
        const uint64_t stride = strides->of[at];
        shape.dim[at] = shape.dim[at + 1];
        shape.dim[at + 1] = dim;
        strides->of[at] = strides->of[at + 1];
        strides->of[at + 1] = stride;
    } else if (op && is_bias(op, tensor) && shape.rank == 4) {
        const struct shape *q = &tape->graph->tensors[op->in[0]].shape;
        const uint32_t wide[2] = {q->dim[0], q->dim[2]};
        for (uint32_t i = 0; i < 2; i++)
            if (shape.dim[i] < wide[i]) {
                shape.dim[i] = wide[i];
                strides->of[i] = 0;
            }
    } else if (op && op_class(op)->saves_rows && shape.rank > 2 && !t->layout && !t->pitch) {
        shape = SHAPE(rows_of(&shape), last_dim(&shape));
        *strides = layout_of_rows(&shape, 0);
    }
    return shape;
}

/* How a copy of it whose elements lie one after the other lies in the tensor's own shape. */
static struct strides seen_in(const struct tape *tape, uint32_t index, uint32_t tensor)
{
    const struct shape *shape = &tape->graph->tensors[tensor].shape;
    struct strides rows = layout_of_rows(shape, 0);
    const uint32_t at = turned_dim(tape, index, tensor);
    if (at != GRAPH_NONE) {
        const uint64_t inner = rows.of[at + 1];
        rows.of[at + 1] = inner * shape->dim[at];
        rows.of[at] = inner;
    }
    return rows;
}

static bool is_broadcast(const struct shape *shape, const struct strides *strides)
{
    bool broadcast = false;
    for (uint32_t i = 0; i < shape->rank; i++)
        broadcast |= strides->of[i] == 0 && shape->dim[i] > 1;
    return broadcast && !layout_is_unknown(strides);
}

static bool lies_in_rows(const struct shape *shape, const struct strides *strides)
{
    const struct strides rows = layout_of_rows(shape, 0);
    return !layout_is_unknown(strides) && layout_same(shape, strides, &rows);
}

/* ---- forward ---- */

static uint32_t find_key(struct tape *tape, uint32_t tensor)
{
    struct tape_host *host = tape->host;
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    for (uint32_t k = host->keys[t->storage]; k != GRAPH_NONE; k = host->key[k].next)
        if (host->key[k].offset == t->offset && host->key[k].dtype == t->dtype)
            return k;
    ARRAY_GROW(host->key, host->key_count, host->key_cap);
    host->key[host->key_count] =
        (struct key){t->offset, GRAPH_NONE, host->keys[t->storage], t->dtype};
    host->keys[t->storage] = host->key_count;
    return host->key_count++;
}

static void forget(struct tape_host *host, uint32_t number)
{
    const uint32_t key = host->packed[number].key;
    if (key != GRAPH_NONE && host->key[key].owner == number)
        host->key[key].owner = GRAPH_NONE;
    host->packed[number].key = GRAPH_NONE;
}

static void let_go(struct tape *tape, uint32_t buffer)
{
    if (buffer != NO_BUFFER)
        tape_release(tape, buffer);
}

static void hold(struct tape *tape, uint32_t buffer)
{
    if (buffer != NO_BUFFER)
        tape_hold(tape, buffer);
}

static void keep(struct tape *tape, struct packed *p)
{
    if (!tape_is_activation(tape, p->tensor))
        return;
    p->buffer = tape_buffer(tape, p->tensor);
    tape_hold(tape, p->buffer);
}

/* The compute stream waits for the copy of the earliest in the stash, which goes. The loop's
 * variable has it until the next one, or the end of its function. */
static void leave_stash(struct tape *tape, uint32_t *left)
{
    struct tape_host *host = tape->host;
    const uint32_t number = host->stash[0];
    struct packed *p = &host->packed[number];
    memmove(host->stash, host->stash + 1, --host->stash_count * sizeof *host->stash);
    tape_step(tape, STEP_AWAIT_COPY, p->copy);
    let_go(tape, *left);
    *left = p->buffer;
    p->stashed = false;
    if (!p->local)
        p->buffer = NO_BUFFER;
    forget(host, number);
}

/* A tensor of the host's, and the copy. */
static void copy_out(struct tape *tape, uint32_t number, struct operand from, enum aten label)
{
    const uint32_t there = tape_new_buffer(tape, label, (enum dtype)from.dtype, from.shape,
                                           shape_bytes(&from.shape, (enum dtype)from.dtype));
    struct buffer *buffer = &tape->stream->buffers[there];
    buffer->pool = LANE_HOST;
    buffer->pinned = true;
    struct operand to = from;
    to.place = there;
    to.offset = 0;
    tape->host->packed[number].host = there;
    tape->host->packed[number].copy = tape_copy(tape, STEP_TO_HOST, from, to);
}

/* All of a storage, as one row, or as few as have room for it. */
static struct operand whole_storage(const struct tape *tape, uint32_t tensor)
{
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    struct operand all = tape_tensor(tape, tensor);
    const uint64_t bytes = tape->graph->storages[t->storage].bytes;
    all.shape = shape_column(bytes / dtype_bytes((enum dtype)t->dtype));
    if (last_dim(&all.shape) == 1)
        all.shape.rank = 1;
    all.offset = 0;
    all.pitch = 0;
    all.layout = NULL;
    return all;
}

static struct operand as_saved(struct tape *tape, uint32_t op, uint32_t number, enum aten *label)
{
    struct packed *p = &tape->host->packed[number];
    struct operand from = tape_tensor(tape, p->tensor);
    struct strides strides;
    *label = ATEN_EMPTY_LIKE;
    from.shape = saved_view(tape, op, p->tensor, &strides);
    if (is_broadcast(&from.shape, &strides)) {
        *label = ATEN_EMPTY;
        p->layout = from.layout;
        p->offset = (uint32_t)from.offset;
        keep(tape, p);
        return whole_storage(tape, p->tensor);
    }
    if (lies_in_rows(&from.shape, &strides) && from.offset == 0) {
        from.pitch = 0;
        from.layout = NULL;
        keep(tape, p);
        return from;
    }
    tape_lay_out(tape, &from, &strides);
    from.pitch = 0;
    struct operand copy = tape_birth(tape, ATEN_CLONE, (enum dtype)from.dtype, from.shape);
    tape_kernel(tape, WORK_REORDER, ATEN_CLONE, -1.0, 1, &from, 1, &copy);
    p = &tape->host->packed[number];
    p->buffer = copy.place;
    p->lone = true;
    return copy;
}

/* Whether it is a parameter, or in the memory of one. */
static bool is_param(const struct tape *tape, uint32_t op, uint32_t tensor)
{
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    const bool view = turned_dim(tape, op, tensor) != GRAPH_NONE || t->base != tensor;
    const enum saved_on on = tape->options->saved_on;
    const bool all =
        tape->options->saves_weights || on == SAVED_ON_HOST_ASIDE_ALL || on == SAVED_ON_HOST_ALL;
    return tape->graph->storages[t->storage].kind == STORAGE_PARAM && !(view && all);
}

static uint32_t pack(struct tape *tape, uint32_t op, uint32_t tensor)
{
    struct tape_host *host = tape->host;
    const struct graph_tensor *t = &tape->graph->tensors[tensor];
    const uint32_t key = has_stream(tape) ? find_key(tape, tensor) : GRAPH_NONE;
    ARRAY_GROW(host->packed, host->packed_count, host->packed_cap);
    const uint32_t number = host->packed_count++;
    struct packed *p = &host->packed[number];
    *p = (struct packed){.tensor = tensor,
                         .key = GRAPH_NONE,
                         .buffer = NO_BUFFER,
                         .host = NO_BUFFER,
                         .copy = GRAPH_NONE};
    const bool again = key != GRAPH_NONE && host->key[key].owner != GRAPH_NONE;
    struct strides lies;
    const struct shape shape = saved_view(tape, op, tensor, &lies);
    if (again || shape_bytes(&shape, (enum dtype)t->dtype) < SMALLEST ||
        is_param(tape, op, tensor)) {
        keep(tape, p);
        if (again)
            host->key[p->key = key].owner = number;
        return number;
    }
    enum aten label;
    const struct strides rows = seen_in(tape, op, tensor);
    const struct operand from = as_saved(tape, op, number, &label);
    struct operand seen = tape_tensor(tape, tensor);
    tape_lay_out(tape, &seen, &rows);
    if (label == ATEN_EMPTY_LIKE)
        host->packed[number].layout = seen.layout;
    uint32_t left = NO_BUFFER;
    while (has_stream(tape) && host->stash_count && host->stash[0] + STASHED <= number)
        leave_stash(tape, &left);
    copy_out(tape, number, from, label);
    let_go(tape, left);
    p = &host->packed[number];
    if (!has_stream(tape)) {
        let_go(tape, p->buffer);
        p->buffer = NO_BUFFER;
        return number;
    }
    ARRAY_GROW(host->stash, host->stash_count, host->stash_cap);
    host->stash[host->stash_count++] = number;
    p->stashed = true;
    host->key[p->key = key].owner = number;
    return number;
}

static bool is_output(const struct graph_op *op, uint32_t tensor)
{
    for (uint32_t o = 0; o < op->outs; o++)
        if (op->out[o] == tensor)
            return true;
    return false;
}

/* Those of a torch.autograd.Function are packed when it has returned. */
static void pack_some(struct tape *tape, uint32_t index, bool outputs)
{
    struct tape_host *host = tape->host;
    const struct graph_op *op = &tape->graph->ops[index];
    uint32_t saved[SAVED_MOST];
    const uint32_t count = tape_saved(tape, op, saved);
    for (uint32_t i = 0; i < count && !outputs; i++) {
        ARRAY_GROW(host->numbers, host->number_count, host->number_cap);
        if (i == 0)
            host->first[index] = host->number_count;
        host->number_count++;
    }
    for (uint32_t i = 0; i < count; i++)
        if ((op_class(op)->in_python || is_output(op, saved[i])) == outputs) {
            const uint32_t number = pack(tape, index, saved[i]);
            host->numbers[host->first[index] + i] = number;
        }
    if (outputs)
        tape->node_holds[index] = count > 0;
}

void tape_host_pack_inputs(struct tape *tape, uint32_t op)
{
    pack_some(tape, op, false);
}

void tape_host_pack_outputs(struct tape *tape, uint32_t op)
{
    pack_some(tape, op, true);
}

/* ---- backward ---- */

static void bring_back(struct tape *tape, uint32_t number)
{
    struct packed *p = &tape->host->packed[number];
    const struct buffer there = tape->stream->buffers[p->host];
    struct operand from = {.place = p->host, .dtype = there.dtype, .shape = there.shape};
    struct operand to = from;
    to.place =
        tape_new_buffer(tape, ATEN_TO_COPY, (enum dtype)there.dtype, there.shape, there.bytes);
    if (has_stream(tape))
        tape->stream->buffers[to.place].pool = LANE_ASIDE;
    tape_copy(tape, STEP_FROM_HOST, from, to);
    p = &tape->host->packed[number];
    p->buffer = to.place;
    p->lone = true;
    p->second = has_stream(tape);
    if (!p->second)
        return;
    tape_hold(tape, to.place);
    struct tape_host *host = tape->host;
    ARRAY_GROW(host->second, host->second_count, host->second_cap);
    host->second[host->second_count++] = number;
}

/* It is a local from here on. */
static void unpack(struct tape *tape, uint32_t number)
{
    struct tape_host *host = tape->host;
    struct packed *p = &host->packed[number];
    const uint32_t copy = p->host;
    p->local = true;
    if (copy != NO_BUFFER && host->before == GRAPH_NONE)
        host->before = host->second_count;
    if (copy != NO_BUFFER && p->stashed)
        hold(tape, p->buffer);
    else if (copy != NO_BUFFER)
        bring_back(tape, number);
    host->packed[number].host = NO_BUFFER;
    let_go(tape, copy);
    forget(host, number);
}

void tape_host_unpack(struct tape *tape, uint32_t index)
{
    uint32_t saved[SAVED_MOST];
    struct tape_host *host = tape->host;
    host->count = tape_saved(tape, &tape->graph->ops[index], saved);
    host->from = host->first[index];
    for (uint32_t i = 0; i < host->count; i++) {
        const uint32_t number = host->numbers[host->from + i];
        unpack(tape, number);
        const struct packed *p = &host->packed[number];
        if (p->lone && p->buffer != NO_BUFFER)
            tape->seen[tape->seen_count++] =
                (struct seen){p->tensor, p->buffer, p->offset, p->layout};
    }
}

static void end_local(struct tape *tape, struct packed *p)
{
    const uint32_t buffer = p->buffer;
    p->local = false;
    if (!p->stashed && !p->second)
        p->buffer = NO_BUFFER;
    let_go(tape, buffer);
}

void tape_host_end_local(struct tape *tape, uint32_t tensor)
{
    struct tape_host *host = tape->host;
    for (uint32_t i = host->count; i-- > 0;) {
        struct packed *p = &host->packed[host->numbers[host->from + i]];
        if (p->tensor != tensor || !p->local)
            continue;
        end_local(tape, p);
        return;
    }
}

/* Of the second stash one goes. What others have besides (a region that ran again, whoever a view
 * was handed to) they keep, and the compute stream is what its memory waits for (record_stream). */
static void leave_to_others(struct tape *tape, uint32_t at)
{
    struct tape_host *host = tape->host;
    struct packed *p = &host->packed[host->second[at]];
    const uint32_t buffer = p->buffer;
    memmove(host->second + at, host->second + at + 1,
            (--host->second_count - at) * sizeof *host->second);
    p->second = false;
    p->buffer = NO_BUFFER;
    tape_release(tape, buffer);
}

/* The first goes, once the copying stream has waited for who used it. */
static void leave_second(struct tape *tape)
{
    const struct tape_host *host = tape->host;
    tape_step(tape, STEP_ASIDE_AWAITS, host->packed[host->second[0]].buffer);
    leave_to_others(tape, 0);
}

void tape_host_after_node(struct tape *tape)
{
    struct tape_host *host = tape->host;
    if (!host)
        return;
    host->count = tape->seen_count = 0;
    if (host->before == GRAPH_NONE)
        return;
    const uint32_t before = host->before;
    host->before = GRAPH_NONE;
    if (!has_stream(tape))
        return;
    for (uint32_t at = before; at < host->second_count;) {
        const uint32_t buffer = host->packed[host->second[at]].buffer;
        if (tape->holds[buffer] > 1)
            leave_to_others(tape, at);
        else
            tape_step(tape, STEP_USED, host->packed[host->second[at++]].buffer);
    }
    uint32_t left = NO_BUFFER;
    while (host->stash_count)
        leave_stash(tape, &left);
    for (uint32_t i = 0; i < before; i++)
        leave_second(tape);
    let_go(tape, left);
}

/* ---- regions ---- */

void tape_host_enter(struct tape *tape, uint32_t region, uint32_t tensor)
{
    tape->host->inputs[region] = pack(tape, GRAPH_NONE, tensor);
}

uint32_t tape_host_begin_again(struct tape *tape, uint32_t region)
{
    const uint32_t number = tape->host ? tape->host->inputs[region] : GRAPH_NONE;
    if (number == GRAPH_NONE)
        return number;
    tape->host->inputs[region] = GRAPH_NONE;
    unpack(tape, number);
    const struct packed *p = &tape->host->packed[number];
    if (p->lone && tape_is_activation(tape, p->tensor))
        tape->where[tape->graph->tensors[p->tensor].storage] = p->buffer;
    return number;
}

void tape_host_end_again(struct tape *tape, uint32_t number)
{
    if (number != GRAPH_NONE)
        end_local(tape, &tape->host->packed[number]);
}

/* ---- the end ---- */

void tape_host_end(struct tape *tape)
{
    struct tape_host *host = tape->host;
    while (host && host->second_count)
        leave_second(tape);
}

void tape_host_clear(struct tape *tape)
{
    struct tape_host *host = tape->host;
    if (host)
        host->stash_count = 0;
    for (uint32_t i = 0; host && i < host->packed_count; i++) {
        struct packed *p = &host->packed[i];
        let_go(tape, p->buffer);
        let_go(tape, p->host);
        p->buffer = p->host = NO_BUFFER;
    }
    if (host && has_stream(tape))
        tape_step(tape, STEP_ASIDE_ENDS, 0);
}

uint32_t tape_host_holds(const struct tape *tape, uint32_t at, uint32_t buffers[2])
{
    const struct packed *p = &tape->host->packed[at];
    buffers[0] = p->buffer;
    buffers[1] = p->host;
    return at + 1 < tape->host->packed_count ? at + 1 : GRAPH_NONE;
}

bool tape_host_any(const struct tape *tape)
{
    return tape->host && tape->host->packed_count > 0;
}
