/* lora.c - see lora.h. */
#include "model/lora.h"

#include "base/number.h"
#include "graph/ops.h"
#include "model/bits4.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LORA_ALPHA = 8, MOST_RANK = 65536 };

static const char ALL_LINEAR[] = "all-linear";

/* TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, of the model types that are built here. */
static const char *own_targets(enum arch arch)
{
    static const char *const rows[][2] = {
        {"gpt2", "c_attn"},
        {"opt", "q_proj,v_proj"},
        {"gptj", "q_proj,v_proj"},
        {"gpt_neo", "q_proj,v_proj"},
        {"gpt_bigcode", "c_attn"},
        {"mpt", "Wqkv"},
        {"falcon", "query_key_value"},
        {"mixtral", "q_proj,v_proj"},
        {"codegen", "qkv_proj"},
        {"gpt_neox", "query_key_value"},
        {"llama", "q_proj,v_proj"},
        {"mistral", "q_proj,v_proj"},
        {"stablelm", "q_proj,v_proj"},
        {"phi", "q_proj,v_proj,fc1,fc2"},
        {"gemma", "q_proj,v_proj"},
        {"gemma2", "q_proj,v_proj"},
        {"gemma3_text", "q_proj,v_proj"},
        {"qwen2", "q_proj,v_proj"},
        {"qwen3", "q_proj,v_proj"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i][0], arch_name(arch)) == 0)
            return rows[i][1];
    return NULL;
}

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

/* Layers that a model has, for those who named none that it can adapt. */
static const char *advised(const struct model_config *config)
{
    const bool attends = model_attends(config);
    if (model_has_mamba(config))
        return attends ? "in_proj,q_proj,v_proj" : "in_proj";
    return attends ? "q_proj,v_proj" : model_mixes(config) ? "out_proj" : "up_proj";
}

enum err_code lora_read(const char *text, const struct model_config *config, enum code code,
                        struct arena *arena, struct graph_lora *out, struct err *err)
{
    char *rank = arena_strdup(arena, text), *targets = strchr(rank, ',');
    uint64_t number;
    if (targets)
        *targets++ = '\0';
    if (!number_integer(rank, &number) || number == 0 || number > MOST_RANK)
        return err_set(
            err, ERR_INVALID,
            "--lora %.100s: expected a rank, 1 ... %d, and by commas the names of linear "
            "layers or all-linear",
            text, MOST_RANK);
    if (code != CODE_HF || !model_is_decoder(config))
        return err_set(err, ERR_UNSUPPORTED,
                       "--lora: peft's adapters are planned for transformers' decoders, not for %s "
                       "as %s writes it",
                       arch_name(config->arch), code_name(code));
    *out = (struct graph_lora){
        .rank = (uint32_t)number, .scale = (float)LORA_ALPHA / (float)number, .targets = targets};
    if (!targets)
        out->targets = own_targets(config->arch);
    if (!out->targets)
        return err_set(err, ERR_INVALID,
                       "--lora %s: peft has no targets of its own for %s: name layers "
                       "(--lora %s,%s)%s",
                       text, arch_name(config->arch), rank, advised(config),
                       model_has_mamba(config) || model_has_experts(config) ? ""
                                                                            : ", or all-linear");
    if (strcmp(out->targets, ALL_LINEAR) != 0)
        return ERR_OK;
    if (model_has_experts(config))
        return err_set(err, ERR_UNSUPPORTED,
                       "--lora %s: of a mixture of experts that is their parameters and the "
                       "router's too, which is not planned: name layers",
                       text);
    out->targets = NULL;
    return ERR_OK;
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
    return names(graph->lora.targets, path);
}

void lora_declare(struct graph *graph, const char *prefix, const char *name, uint32_t weight,
                  uint32_t out, uint32_t in)
{
    const uint32_t r = graph->lora.rank, first = graph->param_count;
    graph->all_frozen = false;
    const uint32_t a =
        graph_param(graph, PARAM_WEIGHT, SHAPE(r, in), "%s%s.lora_A.default.weight", prefix, name);
    const uint32_t b =
        graph_param(graph, PARAM_WEIGHT, SHAPE(out, r), "%s%s.lora_B.default.weight", prefix, name);
    graph->all_frozen = true;
    graph_init_param(graph, a, init_uniform(1 / sqrt((double)in))); /* kaiming_uniform_(a=sqrt 5) */
    graph_init_param(graph, b, (struct param_init){.kind = INIT_ZEROS});
    graph->params[graph->storages[graph->tensors[weight].storage].index].adapter = first;
}

static enum dtype dtype_of(const struct graph *graph, uint32_t tensor)
{
    return (enum dtype)graph->tensors[tensor].dtype;
}

static uint32_t adapter_of(const struct graph *graph, uint32_t weight)
{
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

/* B (A dropout(x)) * scale, for x in the dtype that the adapter takes. */
static uint32_t scaled_of(struct graph *graph, uint32_t adapter, uint32_t x)
{
    const uint32_t a = graph->params[adapter].tensor, b = graph->params[adapter + 1].tensor;
    const float p = graph->lora.dropout; /* 0: an Identity, which is called, too */
    const uint32_t dropped = p > 0 ? op_dropout(graph, x, p) : op_called_alone(graph, x);
    called_by(graph, adapter, ".lora_dropout.default");
    const uint32_t low = op_linear(graph, dropped, a, GRAPH_NONE);
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

/* Beside a weight in 4 bits: y is copied first, and dtypes are left to autocast where that is on.
 */
static uint32_t apply_packed(struct graph *graph, uint32_t adapter, uint32_t x, uint32_t y)
{
    const enum dtype asked = dtype_of(graph, graph->params[adapter].tensor);
    const bool casts = !graph->autocast.on;
    const uint32_t copy = called_as(graph, adapter, y, op_unary(graph, OP_CLONE, y));
    graph->ops[graph->op_count - 1].work = WORK_COPY; /* in the order that it has */
    graph_drop(graph, y);
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
        return apply_packed(graph, adapter, x, y);
    const uint64_t apart = graph->lora.apart_from;
    const bool shard = apart && shape_elements(&graph->params[adapter].shape) >= apart;
    const enum dtype asked =
        shard ? graph->lora.apart : dtype_of(graph, graph->params[adapter].tensor);
    const uint32_t cast = op_to(graph, x, asked);
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

enum err_code lora_check(const struct graph *graph, const struct model_config *config,
                         struct err *err)
{
    const char *targets = graph->lora.targets ? graph->lora.targets : ALL_LINEAR;
    bool any = graph->lora.rank == 0;
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const struct graph_param *param = &graph->params[p];
        if (param->adapter == GRAPH_NONE)
            continue;
        any = true;
        if (param->read_around)
            return err_set(err, ERR_UNSUPPORTED,
                           "--lora %u,%s: Mamba-2's kernels read %s past an adapter, which would "
                           "get no gradient: name others (--lora %u,%s)",
                           graph->lora.rank, targets, param->name, graph->lora.rank,
                           advised(config));
    }
    return any ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "--lora %u,%s: no linear layer is called so; parameters are called as %s",
                         graph->lora.rank, targets, graph->params[graph->param_count / 2].name);
}
