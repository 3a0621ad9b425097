/* lora_kernels.c - see lora_kernels.h. */
#include "model/lora_kernels.h"

enum { LAYERS = 3 };

static bool is_adapted(const struct graph *graph, struct linear linear)
{
    return graph->lora.rank && graph_param_of(graph, linear.weight)->adapter != GRAPH_NONE;
}

static bool all_are_adapted(const struct graph *graph, const struct linear layers[LAYERS])
{
    return is_adapted(graph, layers[0]) && is_adapted(graph, layers[1]) &&
           is_adapted(graph, layers[2]);
}

static struct lora_projection projection_of(const struct graph *graph, struct linear linear)
{
    const uint32_t adapter = graph_param_of(graph, linear.weight)->adapter;
    return (struct lora_projection){.weight = linear.weight,
                                    .bias = linear.bias,
                                    .a = graph->params[adapter].tensor,
                                    .b = graph->params[adapter + 1].tensor};
}

/* The dtype of what a weight is as a factor. */
static enum dtype factor_dtype(const struct graph *graph, uint32_t weight)
{
    return graph_param_of(graph, weight)->whole.rank ? graph->bits4.made
                                                     : (enum dtype)graph->tensors[weight].dtype;
}

/* Sums are made in the place of a product, which is in autocast's dtype where that is on: factors
 * in another fail. */
static void note_dtypes(struct graph *graph, uint32_t x, uint32_t weight)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype,
                     made = graph->autocast.on ? graph->autocast.dtype : dtype;
    if (dtype != made || factor_dtype(graph, weight) != dtype)
        graph->lora.mixed = true;
}

static struct lora_input input_of(struct graph *graph, uint32_t x, uint32_t weight)
{
    const float p = graph->lora.dropout;
    note_dtypes(graph, x, weight);
    return (struct lora_input){.x = x, .dropped = p > 0 ? op_dropout(graph, x, p) : GRAPH_NONE};
}

static void input_goes(struct graph *graph, const struct lora_input *input)
{
    if (input->dropped != GRAPH_NONE)
        graph_drop(graph, input->dropped);
}

bool lora_kernel_mlp_is(const struct graph *graph, struct linear gate, struct linear up,
                        struct linear down)
{
    return graph->lora.mlp && all_are_adapted(graph, (struct linear[LAYERS]){gate, up, down});
}

uint32_t lora_kernel_mlp(struct graph *graph, uint32_t x, struct linear gate, struct linear up,
                         struct linear down)
{
    const struct lora_projection projections[LAYERS] = {
        projection_of(graph, gate), projection_of(graph, up), projection_of(graph, down)};
    const struct lora_input input = input_of(graph, x, gate.weight);
    const uint32_t out = op_lora_mlp(graph, &input, graph->lora.gelu, projections);
    input_goes(graph, &input);
    return out;
}

bool lora_kernels_attend(const struct graph *graph)
{
    return graph->lora.qkv || graph->lora.o;
}

void lora_kernel_qkv(struct graph *graph, uint32_t x, struct linear q, struct linear k,
                     struct linear v, uint32_t out[3])
{
    const struct linear layers[LAYERS] = {q, k, v};
    struct lora_projection projections[LAYERS];
    if (!graph->lora.qkv || !all_are_adapted(graph, layers)) {
        for (int i = 0; i < LAYERS; i++)
            out[i] = apply_linear(graph, x, layers[i]);
        return;
    }
    for (int i = 0; i < LAYERS; i++)
        projections[i] = projection_of(graph, layers[i]);
    const struct lora_input input = input_of(graph, x, q.weight);
    op_lora_qkv(graph, &input, projections, out);
    input_goes(graph, &input);
}

uint32_t lora_kernel_o(struct graph *graph, uint32_t x, struct linear o)
{
    if (!graph->lora.o || !is_adapted(graph, o))
        return apply_linear(graph, x, o);
    const struct lora_projection projection = projection_of(graph, o);
    const struct lora_input input = input_of(graph, x, o.weight);
    const uint32_t out = op_lora_o(graph, &input, &projection);
    input_goes(graph, &input);
    return out;
}
