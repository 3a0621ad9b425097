/* autocast.c - see autocast.h. */
#include "graph/autocast.h"

#include "graph/op_table.h"

static bool is_floating(enum dtype dtype)
{
    return dtype == DTYPE_FP32 || dtype == DTYPE_BF16 || dtype == DTYPE_FP16;
}

/* The place where the cast of a leaf parameter is kept; NULL: the tensor is none, or a frozen one,
 * whose casts are not kept. */
static uint32_t *kept_cast(struct graph *graph, uint32_t tensor)
{
    const struct graph_storage *storage = &graph->storages[graph->tensors[tensor].storage];
    if (storage->kind != STORAGE_PARAM)
        return NULL;
    struct graph_param *param = &graph->params[storage->index];
    return param->tensor == tensor && param->trainable ? &param->cast : NULL;
}

/* `tensor` as an argument in `dtype`; `*passing`: it goes with the call. */
static uint32_t cast(struct graph *graph, uint32_t tensor, enum dtype dtype, bool *passing)
{
    uint32_t *kept = dtype == graph->autocast.dtype ? kept_cast(graph, tensor) : NULL;
    if (kept && *kept != GRAPH_NONE)
        return *kept;
    const uint32_t made = op_to(graph, tensor, dtype);
    if (kept)
        *kept = made;
    *passing = !kept;
    return made;
}

void autocast_arguments(struct graph *graph, int kind, uint32_t count, uint32_t *in)
{
    if (!graph->autocast.on)
        return;
    const enum autocast_rule rule = op_class(&(struct graph_op){.kind = (uint16_t)kind})->autocast;
    if (rule == AUTOCAST_NONE)
        return;
    const enum dtype dtype = rule == AUTOCAST_LOWER ? graph->autocast.dtype : DTYPE_FP32;
    bool passing[GRAPH_OPERANDS] = {false};
    for (uint32_t i = count; i-- > 0;) {
        if (in[i] == GRAPH_NONE)
            continue;
        const enum dtype now = (enum dtype)graph->tensors[in[i]].dtype;
        if (is_floating(now) && now != dtype)
            in[i] = cast(graph, in[i], dtype, &passing[i]);
    }
    /* Arguments die first to last: the reverse of the order in which they were evaluated. */
    for (uint32_t i = 0; i < count; i++) {
        if (passing[i]) {
            graph->autocast.kind = kind;
            graph->autocast.passing[graph->autocast.passing_count++] = in[i];
        }
    }
}

void autocast_end_call(struct graph *graph, int kind)
{
    struct graph_autocast *autocast = &graph->autocast;
    if (autocast->kind != kind)
        return;
    for (uint32_t i = 0; i < autocast->passing_count; i++)
        graph_drop(graph, autocast->passing[i]);
    autocast->passing_count = 0;
}

/* The cache is a hash table of pointers, so the true order differs from run to run; recorded was
 * that of birth, which is that of tensors. */
void autocast_end_region(struct graph *graph)
{
    if (!graph->autocast.on)
        return;
    for (uint32_t op = 0; op < graph->op_count; op++) {
        if (graph->ops[op].kind != OP_TO_COPY)
            continue;
        const uint32_t *kept = kept_cast(graph, graph->ops[op].in[0]);
        if (kept && *kept == graph->ops[op].out[0])
            graph_drop(graph, *kept);
    }
    graph->autocast.on = false;
}

enum dtype autocast_product(const struct graph *graph)
{
    return graph->autocast.on ? graph->autocast.dtype : graph->compute;
}
