/* autocast.c - see autocast.h. */
#include "graph/autocast.h"

#include <assert.h>

#include "graph/op_class.h"

/* What autocast does with the floating arguments of an operator. */
enum autocast_rule {
    AUTOCAST_NONE, /* they are taken as they come */
    AUTOCAST_LOWER,
    AUTOCAST_FP32,
};

static bool is_floating(enum dtype dtype)
{
    return dtype == DTYPE_FP32 || dtype == DTYPE_BF16 || dtype == DTYPE_FP16;
}

/* The place where the cast of a leaf parameter is kept; NULL: the tensor is none (parameters that
 * are views are not), or a frozen one, whose casts are not kept (as all are that a second call of
 * the model has: adapters are disabled; those of another model are kept). */
static uint32_t *kept_cast(struct graph *graph, uint32_t tensor)
{
    const struct graph_storage *storage = &graph->storages[graph->tensors[tensor].storage];
    if (storage->kind != STORAGE_PARAM || graph->views)
        return NULL;
    struct graph_param *param = &graph->params[storage->index];
    const bool needs_gradient =
        graph->again.on ? storage->index >= graph_own_params(graph) : param->trainable;
    return param->tensor == tensor && needs_gradient ? &param->cast : NULL;
}

static void keep_cast(struct graph *graph, uint32_t cast)
{
    struct graph_autocast *region = &graph->autocast;
    ARRAY_GROW(region->kept, region->kept_count, region->kept_cap);
    region->kept[region->kept_count++] = cast;
}

uint32_t autocast_kept(struct graph *graph, uint32_t op, uint32_t tensor)
{
    const enum dtype dtype = graph->autocast.dtype, now = dtype_of(graph, tensor);
    uint32_t *kept = kept_cast(graph, tensor);
    if (!graph->autocast.on || !kept || !is_floating(now) || now == dtype)
        return GRAPH_NONE;
    if (*kept == GRAPH_NONE) {
        *kept = graph_op_birth(graph, op, ATEN_TO_COPY, dtype, *shape_of(graph, tensor));
        keep_cast(graph, *kept);
    }
    return *kept;
}

/* `tensor` as an argument in `dtype`; `*passing`: it goes with the call. */
static uint32_t cast(struct graph *graph, uint32_t tensor, enum dtype dtype, bool *passing)
{
    uint32_t *kept = dtype == graph->autocast.dtype ? kept_cast(graph, tensor) : NULL;
    if (kept && *kept != GRAPH_NONE)
        return *kept;
    const uint32_t made =
        simple(graph, OP_TO_COPY, 1, &tensor, ATEN_TO_COPY, dtype, *shape_of(graph, tensor));
    graph->ops[graph->op_count - 1].of_autocast = true;
    *passing = !kept;
    if (kept)
        keep_cast(graph, *kept = made);
    return made;
}

void autocast_arguments(struct graph *graph, enum op_kind kind, uint32_t count, uint32_t *in)
{
    static const enum autocast_rule rules[OP_KIND_COUNT] = {
#define X(KIND, name, autocast) [OP_##KIND] = AUTOCAST_##autocast,
        OP_MAP(X)
#undef X
    };
    if (!graph->autocast.on || rules[kind] == AUTOCAST_NONE)
        return;
    const enum dtype dtype = rules[kind] == AUTOCAST_LOWER ? graph->autocast.dtype : DTYPE_FP32;
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
            /* calls do not nest: what the one before passed is gone with it */
            assert(graph->autocast.passing_count == 0 || graph->autocast.kind == (int)kind);
            graph->autocast.kind = (int)kind;
            graph->autocast.passing[graph->autocast.passing_count++] = in[i];
        }
    }
}

void autocast_attention_arguments(struct graph *graph, enum op_kind kind, uint32_t count,
                                  uint32_t *in)
{
    const uint32_t first = graph->storage_count;
    autocast_arguments(graph, kind, count, in);
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t storage = graph->tensors[in[i]].storage;
        const struct shape *s = shape_of(graph, in[i]);
        if (storage >= first) /* a cast of (b, a, s, d), as attention has them */
            graph->storages[storage].shape = SHAPE(s->dim[0], s->dim[2], s->dim[1], s->dim[3]);
    }
}

enum dtype autocast_product(const struct graph *graph)
{
    return graph->autocast.on ? graph->autocast.dtype : graph->compute;
}
