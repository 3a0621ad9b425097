/* recording_graph.c - what a recording says of its model beside the steps: parameters, units, the
 * batch, module buffers. The graph has no operators: those ran already. */
#include "graph/ops.h"
#include "recorded/recording_parts.h"

#include <stdlib.h>
#include <string.h>

/* What units and the loss return needs a gradient: nobody asks more of it. */
static void add_outputs(struct graph *graph)
{
    const uint32_t op = graph_op_new(graph, OP_NO_GRAD);
    const struct shape scalar = {.rank = 0};
    const uint32_t output = graph_op_birth(graph, op, ATEN_NONE, graph->compute, scalar);
    graph->tensors[output].requires_grad = true;
    graph->loss = output;
    for (uint32_t m = 0; m < graph->module_count; m++)
        graph->modules[m].output = output;
}

static enum err_code add_modules(const struct recording *r, struct graph *graph, struct err *err)
{
    size_t i;
    const json_t *name;
    json_array_foreach(json_object_get(r->header, "modules"), i, name)
    {
        if (!json_is_string(name))
            return err_set(err, ERR_INVALID, "%s: line 1: \"modules\"[%zu] is no name", r->path, i);
        graph_module(graph, ROLE_BLOCK, "%s", json_string_value(name));
    }
    graph->current_module = GRAPH_NONE;
    add_outputs(graph);
    return ERR_OK;
}

static enum err_code add_params(const struct recording *r, struct graph *graph, struct err *err)
{
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(r->header, "parameters"), i, row)
    {
        struct shape shape;
        const char *name = json_string_value(json_array_get(row, 0));
        const json_int_t owner = json_integer_value(json_array_get(row, 3));
        if (json_array_size(row) != 4 || !name || !recorded_shape(json_array_get(row, 1), &shape) ||
            owner < -1 || owner >= (json_int_t)graph->module_count)
            return err_set(err, ERR_INVALID,
                           "%s: line 1: \"parameters\"[%zu] is not [name, shape, trained, unit]",
                           r->path, i);
        graph->current_module = owner < 0 ? GRAPH_NONE : (uint32_t)owner;
        const uint32_t tensor = graph_param(graph, PARAM_WEIGHT, shape, "%s", name);
        struct graph_param *param = &graph->params[graph->param_count - 1];
        param->trainable = param->trainable && json_is_true(json_array_get(row, 2));
        graph->tensors[tensor].requires_grad = param->trainable;
    }
    graph->current_module = GRAPH_NONE;
    return graph->param_count ? ERR_OK
                              : err_set(err, ERR_INVALID, "%s: line 1: no parameters", r->path);
}

/* Hooks find each parameter in a module. */
static enum err_code check_called(const struct recording *r, const struct graph *graph,
                                  struct err *err)
{
    enum err_code rc = ERR_OK;
    bool *owned = xcalloc(graph->param_count + 1UL, sizeof *owned);
    for (uint32_t c = 0; c < graph->called_count; c++)
        for (uint32_t i = 0; i < graph->called[c].own; i++)
            owned[graph->called[c].params[i]] = true;
    for (uint32_t p = 0; p < graph->param_count && rc == ERR_OK; p++)
        if (!owned[p])
            rc = err_set(err, ERR_INVALID, "%s: line 1: \"called\": no module has %s of its own",
                         r->path, graph->params[p].name);
    free(owned);
    return rc;
}

/* Every module with its own parameters, for systems with hooks on all of them; all that are in it
 * where it is fetched as one (`class_name`). */
static enum err_code add_called(const struct recording *r, struct graph *graph, struct err *err)
{
    size_t i, j;
    const json_t *row, *param, *rows = json_object_get(r->header, "called");
    struct graph_called *called =
        arena_alloc(&graph->arena, (json_array_size(rows) + 1) * sizeof *called);
    json_array_foreach(rows, i, row)
    {
        const char *name = json_string_value(json_array_get(row, 0));
        const char *class_name = json_string_value(json_array_get(row, 3));
        const json_t *lists[] = {json_array_get(row, 1), json_array_get(row, 2)};
        const size_t most = json_array_size(lists[0]) + json_array_size(lists[1]);
        uint32_t *params = arena_alloc(&graph->arena, (most + 1) * sizeof *params), count = 0;
        for (int of = 0; of < 2; of++)
            json_array_foreach(lists[of], j, param)
            {
                const json_int_t p = json_is_integer(param) ? json_integer_value(param) : -1;
                if (p < 0 || p >= (json_int_t)graph->param_count)
                    name = NULL;
                params[count++] = (uint32_t)p;
            }
        if (!name || !json_is_array(lists[0]) || !json_is_array(lists[1]) ||
            (json_array_size(row) > 3 && !class_name))
            return err_set(err, ERR_INVALID,
                           "%s: line 1: \"called\"[%zu] is not [name, [parameters], [parameters]], "
                           "or that and a leaf module's class",
                           r->path, i);
        if (class_name)
            graph_leaf(graph, arena_strdup(&graph->arena, class_name), "%s", name);
        called[i] = (struct graph_called){arena_strdup(&graph->arena, name), params,
                                          (uint32_t)json_array_size(lists[0]), count};
    }
    graph->called = called;
    graph->called_count = (uint32_t)i;
    return check_called(r, graph, err);
}

/* In the order in which fully_shard lists them. */
static enum err_code add_order(const struct recording *r, struct graph *graph, struct err *err)
{
    const json_t *rows = json_object_get(r->header, "order");
    uint32_t *order = arena_alloc(&graph->arena, graph->param_count * sizeof *order);
    bool *seen = arena_alloc(&graph->arena, graph->param_count * sizeof *seen);
    for (uint32_t i = 0; i < graph->param_count; i++) {
        const json_int_t p = json_integer_value(json_array_get(rows, i));
        if (json_array_size(rows) != graph->param_count || p < 0 ||
            p >= (json_int_t)graph->param_count || seen[p])
            return err_set(err, ERR_INVALID, "%s: line 1: \"order\" does not list each parameter",
                           r->path);
        seen[p] = true;
        order[i] = (uint32_t)p;
    }
    graph->group_order = order;
    return ERR_OK;
}

/* Rows [dtype, shape, bytes] of what was there before: inputs or module buffers. */
static enum err_code add_given(const struct recording *r, uint32_t line, const json_t *rows,
                               bool inputs, struct graph *graph, struct err *err)
{
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row)
    {
        enum dtype dtype;
        struct shape shape;
        if (json_array_size(row) != 3 ||
            !recorded_dtype(json_string_value(json_array_get(row, 0)), &dtype) ||
            !recorded_shape(json_array_get(row, 1), &shape))
            return err_set(err, ERR_INVALID,
                           "%s: line %u: \"%s\"[%zu] is not [dtype, shape, bytes]", r->path, line,
                           inputs ? "inputs" : "constants", i);
        const struct buffer_values values = {0};
        const struct input_values batch = {.kind = INPUT_UNKNOWN};
        const uint32_t tensor =
            inputs ? graph_input(graph, shape, batch) : graph_buffer(graph, dtype, shape, &values);
        struct graph_storage *storage = &graph->storages[graph->tensors[tensor].storage];
        storage->dtype = graph->tensors[tensor].dtype = (uint8_t)dtype;
        storage->bytes = shape_bytes(&shape, dtype);
    }
    return ERR_OK;
}

static enum err_code fill(const struct recording *r, const struct recorded_variant *variant,
                          const json_t *line, struct graph *graph, struct err *err)
{
    TRY(add_modules(r, graph, err));
    TRY(add_params(r, graph, err));
    TRY(add_order(r, graph, err));
    if (variant->module_hooks)
        TRY(add_called(r, graph, err));
    TRY(add_given(r, variant->number, json_object_get(line, "inputs"), true, graph, err));
    return add_given(r, variant->number, json_object_get(line, "constants"), false, graph, err);
}

enum err_code recording_graph(const struct recording *r, const struct recording_choice *choice,
                              struct graph **out, struct err *err)
{
    const struct recorded_variant *variant;
    json_t *line;
    *out = NULL;
    TRY(recording_choose(r, choice, &variant, err));
    TRY(recording_line(r, variant, &line, err));
    struct graph *graph = graph_new(choice->compute, choice->frozen);
    graph->is_recording = true;
    graph->autograd = choice->autograd;
    graph->attention = choice->attention;
    graph->attention_gpu = choice->attention_gpu;
    graph->torch = choice->torch;
    const enum err_code rc = fill(r, variant, line, graph, err);
    json_decref(line);
    if (rc == ERR_OK)
        *out = graph;
    else
        graph_free(graph);
    return rc;
}
