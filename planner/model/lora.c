/* lora.c - see lora.h. */
#include "model/lora.h"

#include "base/pattern.h"
#include "graph/ops.h"
#include "model/bits4.h"
#include "model/bits8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Whether a path ends with ".target", or is it. */
static bool ends_with(const char *path, size_t length, const char *target, size_t size)
{
    return length >= size && strncmp(path + length - size, target, size) == 0 &&
           (length == size || path[length - size - 1] == '.');
}

/* Whether one of the targets, by commas, is what a path ends with. */
static bool names(const char *targets, const char *path)
{
    const size_t length = strlen(path);
    for (const char *at = targets; *at;) {
        const size_t size = strcspn(at, ",");
        if (size && ends_with(path, length, at, size))
            return true;
        at += size + (at[size] == ',');
    }
    return false;
}

/* Whether a path is like the pattern. A model of text that is part of one that sees is planned by
 * itself, and patterns are written for the whole, where its layers are model.language_model's. */
static bool is_like(const struct graph_lora *lora, const char *path)
{
    static const char alone[] = "model.";
    char whole[320];
    if (pattern_matches(lora->pattern, path))
        return true;
    if (lora->beside || strncmp(path, alone, sizeof alone - 1) != 0)
        return false;
    snprintf(whole, sizeof whole, "model.language_model.%s", path + sizeof alone - 1);
    return pattern_matches(lora->pattern, whole);
}

void lora_begin(struct graph *graph, const struct graph_lora *lora)
{
    graph->lora = *lora;
    graph->all_frozen = lora->rank > 0;
}

bool lora_wants(const struct graph *graph, const char *prefix, const char *name)
{
    char path[256];
    const uint32_t module = graph->current_module;
    if (!graph->lora.rank)
        return false;
    if (!graph->lora.targets)
        return module == GRAPH_NONE || graph->modules[module].role != ROLE_HEAD;
    snprintf(path, sizeof path, "%s%s", prefix, name);
    return graph->lora.pattern ? is_like(&graph->lora, path) : names(graph->lora.targets, path);
}

bool lora_kernel_takes(const struct graph *graph, const char *prefix, const char *name)
{
    static const char *const groups[][3] = {{"gate_proj", "up_proj", "down_proj"},
                                            {"q_proj", "k_proj", "v_proj"},
                                            {"o_proj", "o_proj", "o_proj"}};
    const bool has[] = {graph->lora.mlp, graph->lora.qkv, graph->lora.o};
    const char *point = strrchr(name, '.'), *last = point ? point + 1 : name;
    for (int g = 0; g < 3; g++) {
        bool in_it = false, all = has[g];
        for (int i = 0; i < 3 && has[g]; i++) {
            char path[128];
            snprintf(path, sizeof path, "%.*s%s", (int)(last - name), name, groups[g][i]);
            in_it = in_it || strcmp(last, groups[g][i]) == 0;
            all = all && lora_wants(graph, prefix, path);
        }
        if (in_it)
            return all;
    }
    return false;
}

void lora_declare(struct graph *graph, const char *prefix, const char *name, uint32_t weight,
                  uint32_t out, uint32_t in)
{
    const uint32_t r = graph->lora.rank;
    graph->all_frozen = false;
    const uint32_t a =
        graph_param(graph, PARAM_WEIGHT, SHAPE(r, in), "%s%s.lora_A.default.weight", prefix, name);
    const uint32_t b =
        graph_param(graph, PARAM_WEIGHT, SHAPE(out, r), "%s%s.lora_B.default.weight", prefix, name);
    graph->all_frozen = true;
    graph_init_param(graph, a, init_uniform(1 / sqrt((double)in))); /* kaiming_uniform_(a=sqrt 5) */
    graph_init_param(graph, b, (struct param_init){.kind = INIT_ZEROS});
    graph->params[graph->storages[graph->tensors[weight].storage].index].adapter =
        graph->storages[graph->tensors[a].storage].index;
}

static enum dtype dtype_of(const struct graph *graph, uint32_t tensor)
{
    return (enum dtype)graph->tensors[tensor].dtype;
}

/* Of a layer that applies one: under PeftModel.disable_adapter none does. */
static uint32_t adapter_of(const struct graph *graph, uint32_t weight)
{
    if (graph->again.on || !graph->lora.rank)
        return GRAPH_NONE;
    return graph->params[graph->storages[graph->tensors[weight].storage].index].adapter;
}

/* The last op is called by the layer that has the adapter, or by something in it. */
static void called_by(struct graph *graph, uint32_t adapter, const char *in_it)
{
    const char *name = graph->params[adapter].name;
    graph->ops[graph->op_count - 1].call =
        arena_printf(&graph->arena, "%.*s%s", (int)(strstr(name, ".lora_A.") - name), name, in_it);
}

/* What is called with the input is the layer that has both: what the adapter's name says before. */
uint32_t lora_input(struct graph *graph, uint32_t weight, uint32_t x)
{
    const uint32_t adapter = adapter_of(graph, weight);
    if (adapter == GRAPH_NONE)
        return x;
    const uint32_t input = op_call_input(graph, x);
    called_by(graph, adapter, "");
    return input;
}

/* The dtype that a layer sees of lora_A.weight, and casts its input to. */
static enum dtype asked_dtype(const struct graph *graph, uint32_t adapter)
{
    const uint64_t apart = graph->lora.apart_from;
    const bool shard = apart && shape_elements(&graph->params[adapter].shape) >= apart;
    return shard ? graph->lora.apart : dtype_of(graph, graph->params[adapter].tensor);
}

/* B (A dropout(x)) * scale, for x in the dtype that the adapter takes. */
static uint32_t scaled_of(struct graph *graph, uint32_t adapter, uint32_t x)
{
    const uint32_t a = graph->params[adapter].tensor, b = graph->params[adapter + 1].tensor;
    const float p = graph->lora.dropout; /* 0: an Identity, which is called, too */
    const uint32_t dropped = p > 0 ? op_dropout(graph, x, p) : op_called_alone(graph, x);
    called_by(graph, adapter, ".lora_dropout.default");
    /* where a hook casts what the module is called with */
    const uint32_t given = graph->casts_inputs ? op_to(graph, dropped, graph->compute) : dropped;
    const uint32_t low = op_linear(graph, given, a, GRAPH_NONE);
    if (given != dropped)
        graph_drop(graph, given);
    if (p > 0)
        graph_drop(graph, dropped);
    const uint32_t high = op_linear(graph, low, b, GRAPH_NONE);
    graph_drop(graph, low);
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, high, graph->lora.scale);
    called_by(graph, adapter, "");
    graph_drop(graph, high);
    return scaled;
}

/* The last op is the adapted layer's own: its result has the name of the tensor before. */
static uint32_t called_as(struct graph *graph, uint32_t adapter, uint32_t before, uint32_t result)
{
    if (result != before)
        called_by(graph, adapter, "");
    return result;
}

static uint32_t copied(struct graph *graph, uint32_t adapter, uint32_t y)
{
    const uint32_t copy = called_as(graph, adapter, y, op_unary(graph, OP_CLONE, y));
    graph->ops[graph->op_count - 1].work = WORK_COPY; /* in the order that it has */
    graph_drop(graph, y);
    return copy;
}

/* Beside a weight in 4 or 8 bits: dtypes are left to autocast where that is on. Of 4 bits y is
 * copied first. */
static uint32_t apply_packed(struct graph *graph, uint32_t weight, uint32_t adapter, uint32_t x,
                             uint32_t y)
{
    const enum dtype asked = asked_dtype(graph, adapter);
    const bool casts = !graph->autocast.on;
    const uint32_t copy = bits8_is(graph, weight) ? y : copied(graph, adapter, y);
    const uint32_t cast = casts ? called_as(graph, adapter, x, op_to(graph, x, asked)) : x;
    if (cast != x)
        graph_dies_before(graph, cast, copy);
    const uint32_t scaled = scaled_of(graph, adapter, cast);
    const uint32_t output =
        casts ? called_as(graph, adapter, scaled, op_to(graph, scaled, dtype_of(graph, y)))
              : scaled;
    if (output != scaled)
        graph_drop(graph, scaled);
    const uint32_t result = called_as(graph, adapter, copy, op_add(graph, copy, output));
    graph_drop(graph, copy);
    if (cast != x)
        graph_drop(graph, cast);
    graph_drop(graph, output);
    return result;
}

uint32_t lora_apply(struct graph *graph, uint32_t weight, uint32_t x, uint32_t y)
{
    const uint32_t adapter = adapter_of(graph, weight);
    if (adapter == GRAPH_NONE)
        return y;
    if (bits4_is(graph, weight))
        return apply_packed(graph, weight, adapter, x, y);
    const uint32_t cast = op_to(graph, x, asked_dtype(graph, adapter));
    if (cast != x)
        graph_dies_before(graph, cast, y); /* it has the name of the first argument */
    const uint32_t scaled = scaled_of(graph, adapter, cast);
    const uint32_t sum = op_add(graph, y, scaled);
    called_by(graph, adapter, "");
    graph_drop(graph, scaled);
    graph_drop(graph, y);
    const uint32_t result = op_to(graph, sum, dtype_of(graph, y));
    if (result != sum) {
        called_by(graph, adapter, "");
        graph_drop(graph, sum);
    }
    if (cast != x)
        graph_drop(graph, cast);
    return result;
}

uint32_t lora_of_elements(const struct graph *graph, uint64_t least)
{
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const uint32_t adapter = graph->params[p].adapter;
        if (adapter != GRAPH_NONE && shape_elements(&graph->params[adapter].shape) >= least)
            return adapter;
    }
    return GRAPH_NONE;
}
