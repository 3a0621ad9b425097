/* packed.c - weights that are stored in 4 bits, or in 8; see graph.h.
 *
 * bitsandbytes' Params4bit: two numbers in each byte of a tensor of bnb_4bit_quant_storage, a scale
 * in fp32 of every 64 of them, and the table of the 16 values that they stand for. Scales that are
 * quantised themselves are of a byte, less their mean, and have one of fp32 for every 256, and a
 * table of 256 values; the one that this is copied from stays, too (bitsandbytes 0.50.2,
 * functional.py: quantize_4bit, quantize_blockwise).
 *
 * Its Int8Params: a number in each byte of an int8 tensor, and the largest of each row in fp32
 * (nn/modules.py). */
#include "graph/graph.h"

enum { BLOCK = 64, SCALES_BLOCK = 256, VALUES = 16, SCALES_VALUES = 256 };

static const struct buffer_values zeros = {.kind = VALUES_ZEROS, .unlisted = true};

static uint32_t blocks_of(uint64_t elements, uint32_t block)
{
    return (uint32_t)((elements + block - 1) / block);
}

uint32_t graph_packed(struct graph *graph, struct shape whole, enum dtype storage, const char *name)
{
    const struct graph_bits4 *bits4 = &graph->bits4;
    const uint64_t elements = shape_elements(&whole);
    const uint32_t blocks = blocks_of(elements, BLOCK);
    const uint32_t packed = 2 * dtype_bytes(storage);
    const uint32_t weight =
        graph_param(graph, PARAM_WEIGHT, shape_column((elements + 1) / packed), "%s", name);
    const uint32_t index = graph->storages[graph->tensors[weight].storage].index;
    graph_own_dtype(graph, weight, storage);
    graph->params[index].packed = packed;
    graph->params[index].whole = whole;
    graph->params[index].scales[0] =
        graph_buffer(graph, bits4->twice ? DTYPE_UINT8 : DTYPE_FP32, SHAPE(blocks), &zeros);
    graph_buffer(graph, DTYPE_FP32, SHAPE(VALUES), &zeros);
    if (!bits4->twice)
        return weight;
    graph->params[index].scales[1] =
        graph_buffer(graph, DTYPE_FP32, SHAPE(blocks_of(blocks, SCALES_BLOCK)), &zeros);
    graph_buffer(graph, DTYPE_FP32, (struct shape){.rank = 0}, &zeros); /* their mean */
    graph_buffer(graph, DTYPE_FP32, SHAPE(SCALES_VALUES), &zeros);
    if (!graph->bits4_table)
        graph_buffer(graph, DTYPE_FP32, SHAPE(SCALES_VALUES), &zeros);
    graph->bits4_table = true;
    return weight;
}

uint32_t graph_in_8bit(struct graph *graph, uint32_t out, uint32_t in, const char *name)
{
    const uint32_t weight = graph_param(graph, PARAM_WEIGHT, SHAPE(out, in), "%s", name);
    const uint32_t index = graph->storages[graph->tensors[weight].storage].index;
    graph_own_dtype(graph, weight, DTYPE_INT8);
    graph->params[index].whole = SHAPE(out, in);
    graph->params[index].scales[0] = graph_buffer(graph, DTYPE_FP32, SHAPE(out), &zeros);
    return weight;
}
