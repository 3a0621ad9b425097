/* graph.c - see graph.h. */
#include "graph/graph.h"

#include "base/layout.h"
#include "base/names.h"
#include "graph/op_table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct graph *graph_new(enum dtype compute, const char *frozen)
{
    struct graph *graph = xmalloc(sizeof *graph);
    *graph = (struct graph){
        .compute = compute,
        .loss = GRAPH_NONE,
        .embedded = GRAPH_NONE,
        .attention_mask = GRAPH_NONE,
        .current_module = GRAPH_NONE,
        .beside = {GRAPH_NONE, GRAPH_NONE},
        .frozen = frozen,
    };
    return graph;
}

void graph_autocast(struct graph *graph, enum dtype dtype)
{
    graph->autocast = (struct graph_autocast){.on = true, .dtype = dtype};
}

void graph_free(struct graph *graph)
{
    if (!graph)
        return;
    free(graph->storages);
    free(graph->tensors);
    free(graph->ops);
    free(graph->items);
    free(graph->params);
    free(graph->modules);
    free(graph->autocast.kept);
    free(graph->layouts);
    free(graph->inputs);
    free(graph->buffers);
    free(graph->given);
    arena_free(&graph->arena);
    free(graph);
}

static uint32_t add_storage(struct graph *graph, enum storage_kind kind, uint32_t index,
                            enum aten aten, enum dtype dtype, struct shape shape)
{
    ARRAY_GROW(graph->storages, graph->storage_count, graph->storage_cap);
    graph->storages[graph->storage_count] = (struct graph_storage){
        .bytes = shape_bytes(&shape, dtype),
        .index = index,
        .aten = (uint16_t)aten,
        .kind = (uint8_t)kind,
        .dtype = (uint8_t)dtype,
        .before = GRAPH_NONE,
        .keeps = GRAPH_NONE,
        .kept_by = GRAPH_NONE,
        .kept_for = GRAPH_NONE,
        .shape = shape,
    };
    return graph->storage_count++;
}

static uint32_t add_tensor(struct graph *graph, uint32_t storage, enum dtype dtype,
                           struct shape shape)
{
    ARRAY_GROW(graph->tensors, graph->tensor_count, graph->tensor_cap);
    graph->tensors[graph->tensor_count] = (struct graph_tensor){
        .storage = storage,
        .root = graph->tensor_count,
        .base = graph->tensor_count,
        .shape = shape,
        .dtype = (uint8_t)dtype,
    };
    return graph->tensor_count++;
}

static void add_item(struct graph *graph, enum item_kind kind, uint32_t arg)
{
    if (graph->again.on && kind >= ITEM_ENTER)
        kind += ITEM_ENTER_AGAIN - ITEM_ENTER;
    ARRAY_GROW(graph->items, graph->item_count, graph->item_cap);
    graph->items[graph->item_count++] =
        (struct graph_item){.kind = kind & 0xfU, .arg = arg & 0xfffffffU};
}

static struct param_init first_values(const struct graph *graph, enum param_role role)
{
    static const struct param_init inits[PARAM_ROLES] = {
        [PARAM_WEIGHT] = {.kind = INIT_UNIFORM, .number = 0.1},
        [PARAM_BIAS] = {.kind = INIT_ZEROS},
        [PARAM_NORM] = {.kind = INIT_ONES},
    };
    return role == PARAM_WEIGHT && graph->own_init ? graph->weights : inits[role];
}

/* ---- another model ---- */

static const char BESIDE[] = "reference";

/* A name without what those of another model begin with: builders make names of names. */
static const char *own_name(const char *name)
{
    const size_t length = sizeof BESIDE - 1;
    return strncmp(name, BESIDE, length) == 0 && name[length] == '.' ? name + length + 1 : name;
}

static const char *beside_name(struct graph *graph, const char *name)
{
    return arena_printf(&graph->arena, "%s.%s", BESIDE, own_name(name));
}

/* Whether what is declared is what the first call declared, and so there. */
static bool is_repeated(const struct graph *graph)
{
    return graph->again.on && !graph->again.other;
}

/* One like the first model's parameter of that number. */
static uint32_t other_param(struct graph *graph, uint32_t index)
{
    const struct graph_param like = graph->params[index];
    const enum dtype dtype = (enum dtype)graph->tensors[like.tensor].dtype;
    const uint32_t storage = add_storage(graph, STORAGE_PARAM, graph->param_count, ATEN_EMPTY,
                                         dtype, like.shape),
                   tensor = add_tensor(graph, storage, dtype, like.shape);
    ARRAY_GROW(graph->params, graph->param_count, graph->param_cap);
    struct graph_param *other = &graph->params[graph->param_count++];
    *other = like;
    other->name = beside_name(graph, like.name);
    other->tensor = tensor;
    other->module =
        graph->current_module == GRAPH_NONE ? graph->beside.module : graph->current_module;
    other->cast = GRAPH_NONE;
    other->trainable = other->read_around = other->read_by_outer = other->read_by_model = false;
    return tensor;
}

uint32_t graph_param(struct graph *graph, enum param_role role, struct shape shape, const char *fmt,
                     ...)
{
    char name[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    if (graph->again.on) {
        const uint32_t before = graph->again.param++;
        assert(strcmp(graph->params[before].name, own_name(name)) == 0);
        return graph->again.other ? other_param(graph, before) : graph->params[before].tensor;
    }

    const bool trainable = !graph->all_frozen && !names_match(graph->frozen, name);
    const enum dtype dtype = trainable && graph->wide_trained ? DTYPE_FP32 : graph->compute;
    const uint32_t storage =
        add_storage(graph, STORAGE_PARAM, graph->param_count, ATEN_EMPTY, dtype, shape);
    const uint32_t tensor = add_tensor(graph, storage, dtype, shape);
    graph->tensors[tensor].requires_grad = trainable;
    ARRAY_GROW(graph->params, graph->param_count, graph->param_cap);
    graph->params[graph->param_count++] = (struct graph_param){
        .name = arena_strdup(&graph->arena, name),
        .shape = shape,
        .tensor = tensor,
        .module = graph->current_module,
        .cast = GRAPH_NONE,
        .adapter = GRAPH_NONE,
        .scale = GRAPH_NONE,
        .scales = {GRAPH_NONE, GRAPH_NONE},
        .trainable = trainable,
        .beside_text = graph->lora.beside,
        .init = first_values(graph, role),
    };
    if (!trainable && graph->cast_back && !names_match(graph->cast_back, name))
        graph_own_dtype(graph, tensor, DTYPE_FP32);
    return tensor;
}

const struct graph_param *graph_param_of(const struct graph *graph, uint32_t tensor)
{
    const struct graph_storage *storage = &graph->storages[graph->tensors[tensor].storage];
    return storage->kind == STORAGE_PARAM ? &graph->params[storage->index] : NULL;
}

void graph_own_dtype(struct graph *graph, uint32_t tensor, enum dtype dtype)
{
    struct graph_tensor *t = &graph->tensors[tensor];
    struct graph_storage *storage = &graph->storages[t->storage];
    assert(storage->kind == STORAGE_PARAM && !graph->params[storage->index].trainable);
    t->dtype = (uint8_t)dtype;
    storage->dtype = (uint8_t)dtype;
    storage->bytes = shape_bytes(&t->shape, dtype);
    graph->params[storage->index].own_dtype = true;
}

void graph_init_weights(struct graph *graph, struct param_init init)
{
    graph->weights = init;
}

void graph_init_param(struct graph *graph, uint32_t tensor, struct param_init init)
{
    const struct graph_storage *storage = &graph->storages[graph->tensors[tensor].storage];
    if (graph->own_init && storage->kind == STORAGE_PARAM)
        graph->params[storage->index].init = init;
}

static uint32_t add_module(struct graph *graph, enum module_role role, uint32_t like,
                           const char *name)
{
    ARRAY_GROW(graph->modules, graph->module_count, graph->module_cap);
    graph->modules[graph->module_count] = (struct graph_module){
        .name = arena_strdup(&graph->arena, name),
        .role = role,
        .like = like,
        .output = GRAPH_NONE,
    };
    return graph->module_count++;
}

void graph_begin_again(struct graph *graph, bool other)
{
    assert(!graph->again.on);
    graph->again = (struct graph_again){.on = true, .other = other, .embedded = graph->embedded};
    graph->bits4_table = false;
    if (!other)
        return;
    graph->beside =
        (struct graph_beside){.param = graph->param_count, .module = graph->module_count};
    add_module(graph, ROLE_BESIDE, GRAPH_NONE, BESIDE);
    graph->current_module = GRAPH_NONE;
}

void graph_end_again(struct graph *graph)
{
    assert(graph->again.on && graph->again.param == graph_own_params(graph));
    graph->again.on = false;
    graph->embedded = graph->again.embedded;
}

/* Storages and their first tensors are made together. */
static uint32_t given_before(struct graph *graph, enum storage_kind kind)
{
    while (graph->storages[graph->given[graph->again.given]].kind != kind)
        graph->again.given++;
    const uint32_t storage = graph->given[graph->again.given++];
    uint32_t tensor = 0;
    while (graph->tensors[tensor].storage != storage)
        tensor++;
    return tensor;
}

/* What is there before the step, and after it. */
static uint32_t add_given(struct graph *graph, enum storage_kind kind, uint32_t index,
                          enum dtype dtype, struct shape shape)
{
    ARRAY_GROW(graph->given, graph->given_count, graph->given_cap);
    const uint32_t storage = add_storage(graph, kind, index, ATEN_NONE, dtype, shape);
    graph->given[graph->given_count++] = storage;
    return add_tensor(graph, storage, dtype, shape);
}

uint32_t graph_input(struct graph *graph, struct shape shape, struct input_values values)
{
    return graph_input_of(graph, DTYPE_INT64, shape, values);
}

uint32_t graph_input_of(struct graph *graph, enum dtype dtype, struct shape shape,
                        struct input_values values)
{
    if (graph->again.on)
        return given_before(graph, STORAGE_INPUT);
    ARRAY_GROW(graph->inputs, graph->input_count, graph->input_cap);
    graph->inputs[graph->input_count] = values;
    return add_given(graph, STORAGE_INPUT, graph->input_count++, dtype, shape);
}

uint32_t graph_buffer(struct graph *graph, enum dtype dtype, struct shape shape,
                      const struct buffer_values *values)
{
    struct buffer_values beside = *values;
    if (is_repeated(graph))
        return given_before(graph, STORAGE_BUFFER);
    beside.unlisted |= graph->again.on;
    ARRAY_GROW(graph->buffers, graph->buffer_count, graph->buffer_cap);
    graph->buffers[graph->buffer_count] = beside;
    const uint32_t tensor = add_given(graph, STORAGE_BUFFER, graph->buffer_count++, dtype, shape);
    graph->storages[graph->tensors[tensor].storage].module =
        graph->again.on ? GRAPH_NONE : graph->current_module;
    return tensor;
}

uint32_t graph_op_new(struct graph *graph, int kind)
{
    ARRAY_GROW(graph->ops, graph->op_count, graph->op_cap);
    const uint32_t depth = graph->calling_depth;
    graph->ops[graph->op_count] = (struct graph_op){
        .kind = (uint16_t)kind,
        .no_grad = graph->again.on || graph->without_grad,
        .again = graph->again.on,
        .call = depth ? graph->calling[depth - 1] : NULL,
        .called_again = graph->calling_again,
    };
    graph->calling_again = false;
    return graph->op_count++;
}

uint32_t graph_op_birth(struct graph *graph, uint32_t op, enum aten aten, enum dtype dtype,
                        struct shape shape)
{
    const uint32_t storage = add_storage(graph, STORAGE_ACTIVATION, op, aten, dtype, shape);
    const uint32_t tensor = add_tensor(graph, storage, dtype, shape);
    struct graph_op *o = &graph->ops[op];
    o->out[o->outs++] = tensor;
    return tensor;
}

static bool is_differentiable(enum dtype dtype)
{
    return dtype == DTYPE_FP32 || dtype == DTYPE_BF16 || dtype == DTYPE_FP16 ||
           dtype == DTYPE_COMPLEX64;
}

void graph_call_done(struct graph *graph, int kind)
{
    struct graph_autocast *autocast = &graph->autocast;
    if (autocast->kind != kind)
        return;
    for (uint32_t i = 0; i < autocast->passing_count; i++)
        graph_drop(graph, autocast->passing[i]);
    autocast->passing_count = 0;
}

/* The `with` block ends: its cache lets go of the casts of parameters. The cache is a hash table of
 * pointers, so the true order differs from run to run; recorded was that of birth. */
void graph_leave_autocast(struct graph *graph)
{
    if (graph->autocast.around)
        return;
    for (uint32_t i = 0; i < graph->autocast.kept_count; i++)
        graph_drop(graph, graph->autocast.kept[i]);
    graph->autocast.kept_count = 0;
    graph->autocast.on = false;
}

uint32_t graph_unlabelled(const struct graph *graph, uint32_t batch)
{
    return graph->padded + (graph->prompt > 1 ? batch * (graph->prompt - 1) : 0);
}

/* An op needs a gradient when something that goes into it does. */
static void need_gradient(struct graph *graph, struct graph_op *o)
{
    if (o->no_grad)
        return;
    for (uint32_t i = 0; i < o->ins; i++)
        if (o->in[i] != GRAPH_NONE && graph->tensors[o->in[i]].requires_grad)
            o->requires_grad = true;
    if (!is_differentiable((enum dtype)graph->tensors[o->out[0]].dtype))
        o->requires_grad = false;
    for (uint32_t i = 0; i < o->outs && o->requires_grad; i++) {
        struct graph_tensor *out = &graph->tensors[o->out[i]];
        out->requires_grad = i + o->hidden < o->outs && is_differentiable((enum dtype)out->dtype);
    }
}

/* What an elementwise op births has its dims in the order of memory of its operands. */
static void lay_out(struct graph *graph, uint32_t op)
{
    const struct graph_op *o = &graph->ops[op];
    const enum work_kind work = o->work ? (enum work_kind)o->work : op_class(o)->work;
    struct strides others[GRAPH_OPERANDS];
    bool plain = true;
    if (!work_keeps_order(work))
        return;
    for (uint32_t i = 0; i < o->ins; i++)
        plain = plain && (o->in[i] == GRAPH_NONE || !graph->tensors[o->in[i]].layout);
    if (plain)
        return;
    const struct shape shape = graph->tensors[o->out[0]].shape;
    for (uint32_t i = 0; i < o->ins; i++) {
        others[i] = (struct strides){{0}};
        if (o->in[i] == GRAPH_NONE)
            continue;
        const struct strides own = graph_strides(graph, o->in[i]);
        others[i] = layout_align(&graph->tensors[o->in[i]].shape, &own, &shape);
    }
    for (uint32_t i = 0; i < o->outs; i++) {
        const struct graph_tensor *out = &graph->tensors[o->out[i]];
        const struct graph_storage *s = &graph->storages[out->storage];
        if (s->kind != STORAGE_ACTIVATION || s->index != op)
            continue; /* written in place */
        const struct strides strides = layout_like(&out->shape, o->ins, others);
        graph_set_strides(graph, o->out[i], &strides);
    }
}

void graph_op_done(struct graph *graph, uint32_t op)
{
    struct graph_op *o = &graph->ops[op];
    lay_out(graph, op);
    need_gradient(graph, o);
    add_item(graph, ITEM_OP, op);
    graph_call_done(graph, o->kind);
}

/* A view's gradient is that of what it views. */
static void need_gradients_of_views(struct graph *graph, const struct graph_op *o)
{
    for (uint32_t i = 0; i < o->ins; i++)
        if (o->in[i] != GRAPH_NONE) {
            struct graph_tensor *in = &graph->tensors[o->in[i]];
            in->requires_grad |= graph->tensors[in->root].requires_grad;
        }
}

static void spread_gradients(struct graph *graph)
{
    for (uint32_t i = 0; i < graph->op_count; i++) {
        if (graph->ops[i].kind == OP_NO_GRAD || graph->ops[i].no_grad)
            continue;
        need_gradients_of_views(graph, &graph->ops[i]);
        need_gradient(graph, &graph->ops[i]);
    }
    for (uint32_t t = 0; t < graph->tensor_count; t++)
        graph->tensors[t].requires_grad |= graph->tensors[graph->tensors[t].root].requires_grad;
}

void graph_need_gradients(struct graph *graph, const bool *needs)
{
    for (uint32_t p = 0; p < graph->param_count; p++)
        graph->tensors[graph->params[p].tensor].requires_grad |= needs[p];
    spread_gradients(graph);
}

static uint32_t first_embedding(const struct graph *graph)
{
    for (uint32_t i = 0; i < graph->op_count; i++)
        if (graph->ops[i].kind == OP_EMBEDDING)
            return graph->ops[i].out[0];
    return GRAPH_NONE;
}

void graph_need_input_gradients(struct graph *graph)
{
    const uint32_t embedded =
        graph->embedded == GRAPH_NONE ? first_embedding(graph) : graph->embedded;
    if (embedded == GRAPH_NONE || graph->tensors[embedded].requires_grad)
        return;
    graph->has_leaves = true;
    graph->tensors[embedded].requires_grad = true;
    spread_gradients(graph);
}

/* ---- views ---- */

struct strides graph_strides(const struct graph *graph, uint32_t tensor)
{
    const struct graph_tensor *t = &graph->tensors[tensor];
    return layout_of(&t->shape, t->pitch, t->layout);
}

bool graph_is_contiguous(const struct graph *graph, uint32_t tensor)
{
    const struct shape *shape = &graph->tensors[tensor].shape;
    const struct strides dense = layout_of_rows(shape, 0), is = graph_strides(graph, tensor);
    return layout_same(shape, &is, &dense);
}

/* One copy of each. */
static const struct strides *keep_layout(struct graph *graph, const struct strides *strides)
{
    for (uint32_t i = 0; i < graph->layout_count; i++)
        if (memcmp(graph->layouts[i], strides, sizeof *strides) == 0)
            return graph->layouts[i];
    struct strides *kept = arena_alloc(&graph->arena, sizeof *kept);
    *kept = *strides;
    // NOLINTNEXTLINE(bugprone-sizeof-expression): pointers
    ARRAY_GROW(graph->layouts, graph->layout_count, graph->layout_cap);
    graph->layouts[graph->layout_count++] = kept;
    return kept;
}

void graph_set_strides(struct graph *graph, uint32_t tensor, const struct strides *strides)
{
    struct graph_tensor *t = &graph->tensors[tensor];
    const struct strides rows = layout_of_rows(&t->shape, t->pitch);
    struct strides said = *strides;
    for (uint32_t i = 0; i < SHAPE_DIMS; i++)
        if (i >= t->shape.rank || t->shape.dim[i] == 1)
            said.of[i] = 0;
    if (layout_is_unknown(strides))
        t->layout = &layout_unknown;
    else
        t->layout = layout_same(&t->shape, strides, &rows) ? NULL : keep_layout(graph, &said);
}

uint32_t graph_view(struct graph *graph, uint32_t tensor, struct shape shape)
{
    const struct graph_tensor base = graph->tensors[tensor];
    const uint32_t view = add_tensor(graph, base.storage, (enum dtype)base.dtype, shape);
    struct graph_tensor *t = &graph->tensors[view];
    struct strides strides;
    t->root = base.root;
    t->base = tensor;
    t->offset = base.offset;
    t->pitch = base.pitch;
    t->requires_grad = base.requires_grad;
    t->split = base.split;
    if (!base.layout && !base.pitch)
        return view;
    const struct strides own = layout_of(&base.shape, base.pitch, base.layout);
    if (layout_is_unknown(base.layout) || !layout_view(&base.shape, &own, &shape, &strides))
        strides = layout_unknown;
    graph_set_strides(graph, view, &strides);
    return view;
}

uint32_t graph_transpose(struct graph *graph, uint32_t tensor, uint32_t i, uint32_t j)
{
    struct shape shape = graph->tensors[tensor].shape;
    struct strides strides = graph_strides(graph, tensor);
    const uint64_t step = strides.of[i];
    const uint32_t dim = shape.dim[i];
    shape.dim[i] = shape.dim[j];
    shape.dim[j] = dim;
    strides.of[i] = strides.of[j];
    strides.of[j] = step;
    const struct strides *layout = graph->tensors[tensor].layout;
    graph->tensors[tensor].layout = NULL; /* the view has its own */
    const uint32_t view = graph_view(graph, tensor, shape);
    graph->tensors[tensor].layout = layout;
    graph_set_strides(graph, view, &strides);
    return view;
}

/* A view whose gradient, should it get one, is nobody's. */
static uint32_t view_without_gradient(struct graph *graph, uint32_t tensor, struct shape shape,
                                      const struct strides *strides)
{
    const struct graph_tensor base = graph->tensors[tensor];
    const uint32_t view = add_tensor(graph, base.storage, (enum dtype)base.dtype, shape);
    graph->tensors[view].offset = base.offset;
    graph->tensors[view].pitch = base.pitch;
    graph_set_strides(graph, view, strides);
    return view;
}

uint32_t graph_slice(struct graph *graph, uint32_t tensor, uint32_t first, uint32_t count)
{
    struct shape shape = graph->tensors[tensor].shape;
    const struct strides strides = graph_strides(graph, tensor);
    shape.dim[shape.rank - 1] = count;
    const uint32_t view = view_without_gradient(graph, tensor, shape, &strides);
    graph->tensors[view].offset += (uint32_t)(first * strides.of[shape.rank - 1]);
    return view;
}

uint32_t graph_expand(struct graph *graph, uint32_t tensor, struct shape shape)
{
    const struct strides narrow = graph_strides(graph, tensor);
    struct strides strides;
    if (!layout_expand(&graph->tensors[tensor].shape, &narrow, &shape, &strides))
        strides = layout_unknown;
    return view_without_gradient(graph, tensor, shape, &strides);
}

uint32_t graph_view_dtype(struct graph *graph, uint32_t tensor, enum dtype dtype,
                          struct shape shape)
{
    const uint32_t view = graph_view(graph, tensor, shape);
    struct graph_tensor *t = &graph->tensors[view];
    const uint32_t before = dtype_bytes((enum dtype)t->dtype), now = dtype_bytes(dtype);
    t->offset = (uint32_t)((uint64_t)t->offset * before / now);
    t->pitch = (uint32_t)((uint64_t)t->pitch * before / now);
    t->dtype = (uint8_t)dtype;
    if (graph->tensors[tensor].layout || graph->tensors[tensor].pitch) {
        struct strides strides = graph_strides(graph, tensor);
        bool whole = !layout_is_unknown(graph->tensors[tensor].layout);
        for (uint32_t i = 0; i < shape.rank; i++) {
            whole = whole && (i + 1 == shape.rank || strides.of[i] * before % now == 0);
            strides.of[i] = i + 1 == shape.rank ? 1 : strides.of[i] * before / now;
        }
        graph_set_strides(graph, view, whole ? &strides : &layout_unknown);
    }
    return view;
}

const char *cross_entropy_name(enum cross_entropy loss)
{
    static const char *const names[] = {
        [CROSS_ENTROPY_EAGER] = "eager",
        [CROSS_ENTROPY_DIRECT] = "direct",
        [CROSS_ENTROPY_FUSED] = "fused",
        [CROSS_ENTROPY_CHUNKED] = "chunked",
        [CROSS_ENTROPY_COMPILED] = "compiled",
        [CROSS_ENTROPY_LIGER] = "liger",
        [CROSS_ENTROPY_LIGER_LOGITS] = "liger-cross-entropy",
        [CROSS_ENTROPY_CUT] = "cut-cross-entropy",
        [CROSS_ENTROPY_LM_HEAD] = "fused-lm-head",
        [CROSS_ENTROPY_PER_TOKEN] = "per-token",
        [CROSS_ENTROPY_PER_TOKEN_LIGER] = "per-token-liger",
        [CROSS_ENTROPY_DPO] = "dpo",
        [CROSS_ENTROPY_GRPO] = "grpo",
        [CROSS_ENTROPY_REWARD] = "reward",
    };
    return names[loss];
}

void graph_drop(struct graph *graph, uint32_t tensor)
{
    add_item(graph, ITEM_DROP, tensor);
}

void graph_output(struct graph *graph, uint32_t tensor)
{
    assert(graph->output_count < OUTPUTS_MOST);
    if (graph->outputs_kept != OUTPUTS_DROPPED)
        graph->outputs[graph->output_count++] = tensor;
    if (graph->outputs_kept != OUTPUTS_UNTIL_BACKWARD)
        graph_drop(graph, tensor);
}

void graph_hand_on(struct graph *graph, const uint32_t tensors[HANDED_PAIR])
{
    if (graph->again.on) /* for blocks that run again */
        return;
    assert(graph->handed_count < HANDED_MOST && graph->op_count > 0);
    graph->handed[graph->handed_count++] =
        (struct graph_handed){.op = graph->op_count - 1, .tensor = {tensors[0], tensors[1]}};
}

void graph_keeps(struct graph *graph, uint32_t tensor, uint32_t kept, uint32_t asked)
{
    if (graph->again.on) /* no node saves anything */
        return;
    const uint32_t owner = graph->tensors[tensor].storage, other = graph->tensors[kept].storage;
    graph->storages[owner].keeps = other;
    graph->storages[other].kept_by = owner;
    graph->storages[other].kept_for = asked;
}

void graph_dies_before(struct graph *graph, uint32_t tensor, uint32_t next)
{
    graph->storages[graph->tensors[tensor].storage].renamed = true;
    graph->storages[graph->tensors[next].storage].before = graph->tensors[tensor].storage;
}

void graph_rebind(struct graph *graph, uint32_t tensor, uint32_t next)
{
    graph_dies_before(graph, tensor, next);
    graph_drop(graph, tensor);
}

void graph_call_is(struct graph *graph, uint32_t tensor, const char *fmt, ...)
{
    char name[96];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    const struct graph_storage *storage = &graph->storages[graph->tensors[tensor].storage];
    graph->ops[storage->index].call = arena_strdup(&graph->arena, name);
}

void graph_leaf(struct graph *graph, const char *class_name, const char *fmt, ...)
{
    char name[256];
    va_list args;
    if (is_repeated(graph))
        return;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    struct graph_leaf *leaf = arena_alloc(&graph->arena, sizeof *leaf);
    const char *own =
        graph->again.on ? beside_name(graph, name) : arena_strdup(&graph->arena, name);
    *leaf = (struct graph_leaf){
        .name = own, .class_name = class_name, .length = strlen(own), .before = graph->leaves};
    graph->leaves = leaf;
}

size_t graph_leaf_around(const struct graph *graph, const char *name, size_t length)
{
    size_t shortest = 0;
    for (const struct graph_leaf *leaf = graph->leaves; leaf; leaf = leaf->before) {
        const size_t n = leaf->length;
        if (n <= length && (n == length || name[n] == '.') && memcmp(leaf->name, name, n) == 0 &&
            (shortest == 0 || n < shortest))
            shortest = n;
    }
    return shortest;
}

void graph_call_begin(struct graph *graph, const char *fmt, ...)
{
    char name[96];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    assert(graph->calling_depth < sizeof graph->calling / sizeof *graph->calling);
    graph->calling[graph->calling_depth++] = graph->again.on && graph->again.other
                                                 ? beside_name(graph, name)
                                                 : arena_strdup(&graph->arena, name);
}

void graph_call_end(struct graph *graph)
{
    assert(graph->calling_depth > 0);
    graph->calling_depth--;
}

void graph_call_again(struct graph *graph)
{
    assert(graph->calling_depth > 0);
    graph->calling_again = true;
}

uint32_t graph_module(struct graph *graph, enum module_role role, const char *fmt, ...)
{
    char name[96];
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    const uint32_t before = graph->again.on ? graph->again.module++ : GRAPH_NONE;
    assert(!graph->again.on || strcmp(graph->modules[before].name, own_name(name)) == 0);
    if (is_repeated(graph))
        graph->current_module = before;
    else if (graph->again.on)
        graph->current_module =
            add_module(graph, ROLE_BESIDE, before, beside_name(graph, own_name(name)));
    else
        graph->current_module = add_module(graph, role, GRAPH_NONE, name);
    return graph->current_module;
}

void graph_also_input(struct graph *graph, uint32_t module, uint32_t input)
{
    struct graph_module *m = &graph->modules[module];
    if (!graph->again.on && m->inputs < sizeof m->input / sizeof m->input[0])
        m->input[m->inputs++] = input;
}

void graph_also_argument(struct graph *graph, uint32_t module, uint32_t input)
{
    struct graph_module *m = &graph->modules[module];
    assert(graph->again.on || m->inputs == m->arguments);
    graph_also_input(graph, module, input);
    m->arguments += !graph->again.on;
}

void graph_enter(struct graph *graph, uint32_t module, uint32_t input)
{
    graph_also_argument(graph, module, input);
    add_item(graph, ITEM_ENTER, module);
}

void graph_exit(struct graph *graph, uint32_t module, uint32_t output)
{
    if (!graph->again.on)
        graph->modules[module].output = output;
    graph->current_module = GRAPH_NONE;
    add_item(graph, ITEM_EXIT, module);
}

void graph_leave_module(struct graph *graph)
{
    graph->current_module = GRAPH_NONE;
}

void graph_mark(struct graph *graph, enum graph_mark mark)
{
    if (mark == MARK_ROOT_EXIT)
        graph_leave_autocast(graph);
    graph->enters_root |= mark == MARK_ROOT_ENTER;
    add_item(graph, ITEM_MARK, mark);
}
