/* bits8.c - see bits8.h. */
#include "model/bits8.h"

#include "graph/ops.h"
#include "model/bits4.h"

#include <stdio.h>

/* What is no nn.Linear is as of 4 bits. Of an input of four dims, as kv_b_proj has, bitsandbytes
 * fails. cuBLAS multiplies integers where 4 divides their number; else bitsandbytes multiplies in
 * fp32. */
const char *bits8_unplanned(const struct model_config *config)
{
    enum { WHOLE = 4 };
    const uint32_t inputs[] = {config->hidden, config->ffn, config->heads * config->head_dim};
    const char *unplanned = bits4_unplanned(config);
    if (!unplanned && config->kv_lora)
        unplanned = "latent attention (kv_b_proj: \"Only two or three dimensional matrices are "
                    "supported for argument A\")";
    for (size_t i = 0; !unplanned && i < sizeof inputs / sizeof *inputs; i++)
        if (inputs[i] % WHOLE)
            unplanned = "layers whose inputs 4 does not divide";
    return unplanned;
}

bool bits8_wants(const struct graph *graph, const char *prefix, const char *name)
{
    return graph->bits8 && bits4_converts(graph, prefix, name);
}

uint32_t bits8_declare(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                       uint32_t in, bool biased, uint32_t *bias)
{
    char path[160];
    snprintf(path, sizeof path, "%s%s.weight", prefix, name);
    const uint32_t weight = graph_in_8bit(graph, out, in, path);
    *bias =
        biased ? graph_param(graph, PARAM_BIAS, SHAPE(out), "%s%s.bias", prefix, name) : GRAPH_NONE;
    return weight;
}

bool bits8_is(const struct graph *graph, uint32_t weight)
{
    return graph->bits8 && graph_param_of(graph, weight) &&
           graph_param_of(graph, weight)->whole.rank > 0;
}

uint32_t bits8_apply(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    if (bias != GRAPH_NONE && graph->tensors[bias].dtype != dtype)
        graph_own_dtype(graph, bias, dtype);
    return op_linear_8bit(graph, x, weight, bias);
}
