/* ops_index.c - operators that look up, choose and sort. */
#include "graph/op_class.h"

#include <assert.h>
#include <string.h>

uint32_t op_arange(struct graph *graph, uint32_t count)
{
    return simple(graph, OP_ARANGE, 0, NULL, ATEN_ARANGE, DTYPE_INT64, SHAPE(count));
}

OP_CLASS(arange) = {.label = ATEN_ARANGE, .work = WORK_ARANGE};

static uint32_t look_up(struct graph *graph, uint32_t ids, uint32_t weight)
{
    struct shape shape = *shape_of(graph, ids);
    assert(shape.rank < SHAPE_DIMS);
    shape.dim[shape.rank++] = shape_of(graph, weight)->dim[1];
    return simple(graph, OP_EMBEDDING, 2, (uint32_t[]){ids, weight}, ATEN_EMBEDDING,
                  dtype_of(graph, weight), shape);
}

/* A table outside of all modules is one itself: nn.Embedding. */
uint32_t op_embedding(struct graph *graph, uint32_t ids, uint32_t weight)
{
    struct graph_param *table =
        &graph->params[graph->storages[graph->tensors[weight].storage].index];
    const char *dot = strrchr(table->name, '.');
    const bool own = table->module == GRAPH_NONE || table->module == graph->beside.module ||
                     /* this has made it one before */
                     (graph->again.on && graph->modules[table->module].role == ROLE_TABLE);
    if (!own || !dot)
        return look_up(graph, ids, weight);
    const uint32_t module =
        graph_module(graph, ROLE_TABLE, "%.*s", (int)(dot - table->name), table->name);
    table->module = module;
    graph_enter(graph, module, ids);
    const uint32_t rows = look_up(graph, ids, weight);
    graph_exit(graph, module, rows);
    return rows;
}

void op_embedding_padding(struct graph *graph, uint32_t embedded, uint32_t padding)
{
    const struct graph_storage *born = &graph->storages[graph->tensors[embedded].storage];
    graph->ops[born->index].attr.first = padding;
}

OP_BACKWARD(embedding)
{
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[0])};
    if (tape_needs(tape, op, 1))
        tape_give(tape, op, 1,
                  tape_call(tape, WORK_EMBEDDING_BACKWARD, ATEN_EMBEDDING_DENSE_BACKWARD,
                            dtype_of(graph, op->in[1]), *shape_of(graph, op->in[1]), -1.0, 2, in));
}

OP_CLASS(embedding) = {
    .label = ATEN_EMBEDDING,
    .work = WORK_EMBEDDING,
    .saved = save_input,
    .backward = embedding_backward,
};

/* ---- rows to experts and back ---- */

/* The gradient of what was taken from `x` by index, put into zeros of x's shape: in place, but for
 * tensors that autograd takes for subclasses (index_backward and value_selecting_reduction_backward
 * ask areAnyTensorSubclassLike: pytorch FunctionsManual.cpp, TensorUtils). */
static void give_put(struct tape *tape, const struct graph *graph, const struct graph_op *op,
                     enum work_kind work, uint32_t indices)
{
    /* of one place an element, or of rows; those of gather and of topk differ in name only */
    static const enum aten labels[3][2] = {{ATEN_INDEX_PUT, ATEN_INDEX_PUT_},
                                           {ATEN_SCATTER, ATEN_SCATTER_},
                                           {ATEN_SCATTER_ADD, ATEN_SCATTER_ADD_}};
    const int which = work != WORK_SCATTER ? 0 : op->kind == OP_GATHER ? 2 : 1;
    const enum dtype dtype = dtype_of(graph, op->in[0]);
    const struct shape shape = *shape_of(graph, op->in[0]);
    const struct operand zeros = tape_birth(tape, ATEN_NEW_ZEROS, dtype, shape);
    tape_kernel(tape, WORK_FILL, ATEN_NEW_ZEROS, -1.0, 0, NULL, 1, &zeros);
    const struct operand in[3] = {zeros, tape_tensor(tape, indices), tape_grad(tape, op, 0)};
    if (graph->autograd == AUTOGRAD_GPU) {
        tape_kernel(tape, work, labels[which][1], -1.0, 3, in, 1, &zeros);
        tape_give(tape, op, 0, zeros);
    } else {
        tape_give(tape, op, 0, tape_call(tape, work, labels[which][0], dtype, shape, -1.0, 3, in));
        tape_death(tape, zeros);
    }
}

uint32_t op_topk(struct graph *graph, uint32_t x, uint32_t k, uint32_t *indices)
{
    const struct shape shape = with_last(*shape_of(graph, x), k);
    const uint32_t op = begin(graph, OP_TOPK, 1, &x);
    const uint32_t values = graph_op_birth(graph, op, ATEN_TOPK, dtype_of(graph, x), shape);
    *indices = graph_op_birth(graph, op, ATEN_TOPK, DTYPE_INT64, shape);
    graph_op_done(graph, op);
    return values;
}

OP_SAVED(topk)
{
    (void)graph;
    saved[0] = op->out[1];
    return 1;
}

OP_BACKWARD(topk)
{
    give_put(tape, graph, op, WORK_SCATTER, op->out[1]);
}

OP_CLASS(topk) = {
    .label = ATEN_TOPK,
    .work = WORK_TOPK,
    .saved = topk_saved,
    .backward = topk_backward,
};

uint32_t op_max_last(struct graph *graph, uint32_t x)
{
    const struct shape shape = with_last(*shape_of(graph, x), 1);
    const uint32_t op = begin(graph, OP_MAX_LAST, 1, &x);
    const uint32_t values = graph_op_birth(graph, op, ATEN_MAX_DIM, dtype_of(graph, x), shape);
    graph_op_birth(graph, op, ATEN_MAX_DIM, DTYPE_INT64, shape);
    graph->ops[op].hidden = 1;
    graph_op_done(graph, op);
    return values;
}

OP_CLASS(max_last) = {
    .label = ATEN_MAX_DIM,
    .work = WORK_TOPK,
    .saved = topk_saved,
    .backward = topk_backward,
};

uint32_t op_index(struct graph *graph, uint32_t x, uint32_t indices)
{
    struct shape shape = *shape_of(graph, x);
    const struct shape *places = shape_of(graph, indices);
    assert(places->rank == 1 || shape.rank == 1);
    if (shape.rank == 1)
        shape = *places;
    else
        shape.dim[0] = places->dim[0];
    return simple(graph, OP_INDEX, 2, (uint32_t[]){x, indices}, ATEN_INDEX, dtype_of(graph, x),
                  shape);
}

uint32_t op_masked(struct graph *graph, uint32_t x, uint32_t mask)
{
    const struct shape all = *shape_of(graph, mask), shape = *shape_of(graph, x);
    const uint32_t n = (uint32_t)shape_elements(&all) - graph_unlabelled(graph, all.dim[0]);
    return simple(graph, OP_INDEX, 2, (uint32_t[]){x, mask}, ATEN_INDEX, dtype_of(graph, x),
                  shape.rank > all.rank ? SHAPE(n, last_dim(&shape)) : SHAPE(n));
}

/* A mask becomes an index of each of its dims first (expandTensors of IndexingUtils.h). */
static uint64_t index_scratch(const struct graph *graph, const struct graph_op *op)
{
    const struct shape *mask = shape_of(graph, op->in[1]);
    return dtype_of(graph, op->in[1]) == DTYPE_BOOL
               ? dtype_bytes(DTYPE_INT64) * mask->rank * shape_elements(mask)
               : 0;
}

OP_BACKWARD(index)
{
    give_put(tape, graph, op, WORK_INDEX_PUT, op->in[1]);
}

OP_CLASS(index) = {
    .label = ATEN_INDEX,
    .work = WORK_INDEX,
    .saved = save_second,
    .backward = index_backward,
    .scratch = index_scratch,
};

uint32_t op_gather(struct graph *graph, uint32_t x, uint32_t indices)
{
    return simple(graph, OP_GATHER, 2, (uint32_t[]){x, indices}, ATEN_GATHER, dtype_of(graph, x),
                  *shape_of(graph, indices));
}

OP_BACKWARD(gather)
{
    give_put(tape, graph, op, WORK_SCATTER, op->in[1]);
}

OP_CLASS(gather) = {
    .label = ATEN_GATHER,
    .work = WORK_GATHER,
    .saved = save_second,
    .backward = gather_backward,
};

uint32_t op_put(struct graph *graph, uint32_t x, uint32_t ids, uint32_t values)
{
    const uint32_t op = begin(graph, OP_PUT, 3, (uint32_t[]){x, ids, values});
    const uint32_t out = graph_view(graph, x, *shape_of(graph, x));
    graph->tensors[out].root = out;
    graph->ops[op].out[graph->ops[op].outs++] = out;
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(put)
{
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1])};
    tape_give(tape, op, 2,
              tape_call(tape, WORK_GATHER, ATEN_GATHER, dtype_of(graph, op->in[2]),
                        *shape_of(graph, op->in[2]), -1.0, 2, in));
}

OP_CLASS(put) = {
    .label = ATEN_SCATTER_,
    .work = WORK_SCATTER,
    .saved = save_second,
    .backward = put_backward,
    .in_place = true,
};

uint32_t op_put_rows(struct graph *graph, uint32_t x, uint32_t n, uint32_t ids, uint32_t values)
{
    const uint32_t op = begin(graph, OP_PUT_ROWS, 3, (uint32_t[]){x, ids, values});
    struct shape shape = *shape_of(graph, values);
    shape.dim[0] = n;
    uint32_t out;
    if (x == GRAPH_NONE) {
        out = graph_op_birth(graph, op, ATEN_NEW_EMPTY, dtype_of(graph, values), shape);
    } else {
        out = graph_view(graph, x, shape);
        graph->tensors[out].root = out;
        graph->ops[op].out[graph->ops[op].outs++] = out;
    }
    graph_op_done(graph, op);
    return out;
}

OP_BACKWARD(put_rows)
{
    const struct operand in[2] = {tape_grad(tape, op, 0), tape_tensor(tape, op->in[1])};
    tape_give(tape, op, 2,
              tape_call(tape, WORK_INDEX, ATEN_INDEX, dtype_of(graph, op->in[2]),
                        *shape_of(graph, op->in[2]), -1.0, 2, in));
}

OP_CLASS(put_rows) = {
    .label = ATEN_INDEX_PUT_,
    .work = WORK_INDEX_SET,
    .saved = save_second,
    .backward = put_rows_backward,
    .in_place = true,
};

/* Values of x and where they were, outside autograd. */
static uint32_t chosen(struct graph *graph, enum work_kind work, enum aten aten, uint32_t x,
                       struct shape shape, uint32_t *places)
{
    const uint32_t op = begin(graph, OP_NO_GRAD, 1, &x);
    graph->ops[op].work = (uint8_t)work;
    const uint32_t values = graph_op_birth(graph, op, aten, dtype_of(graph, x), shape);
    *places = graph_op_birth(graph, op, aten, DTYPE_INT64, shape);
    graph_op_done(graph, op);
    graph->ops[op].requires_grad = false;
    graph->tensors[values].requires_grad = false;
    return values;
}

uint32_t op_topk_no_grad(struct graph *graph, uint32_t x, uint32_t k, uint32_t *indices)
{
    return chosen(graph, WORK_TOPK, ATEN_TOPK, x, with_last(*shape_of(graph, x), k), indices);
}

uint32_t op_max_no_grad(struct graph *graph, uint32_t x, uint32_t *indices)
{
    struct shape shape = *shape_of(graph, x);
    shape.rank--;
    return chosen(graph, WORK_TOPK, ATEN_MAX_DIM, x, shape, indices);
}

uint32_t op_max_kept_no_grad(struct graph *graph, uint32_t x, uint32_t *indices)
{
    return chosen(graph, WORK_TOPK, ATEN_MAX_DIM, x, with_last(*shape_of(graph, x), 1), indices);
}

uint32_t op_sort(struct graph *graph, uint32_t x, uint32_t *permutation)
{
    return chosen(graph, WORK_SORT, ATEN_SORT, x, *shape_of(graph, x), permutation);
}

uint32_t op_sort_stable(struct graph *graph, uint32_t x, uint32_t *permutation)
{
    return chosen(graph, WORK_SORT, ATEN_SORT_STABLE, x, *shape_of(graph, x), permutation);
}
