/* placeholders.c - tokens that stand for a picture, in a class around a text model (hf.h). */
#include "hf/hf.h"

/* Which tokens are the one that has this number. What numbers they are changes nothing. */
static uint32_t are(struct graph *graph, uint32_t tokens, float number)
{
    return op_number(graph, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL, graph->tensors[tokens].shape,
                     tokens, number);
}

struct hf_placeholders hf_without_placeholders(struct graph *graph, uint32_t tokens)
{
    const struct shape shape = graph->tensors[tokens].shape;
    const uint32_t which[] = {are(graph, tokens, -1.0F), are(graph, tokens, -2.0F)};
    struct hf_placeholders out = {
        .mask = op_no_grad(graph, WORK_OR, ATEN_BITWISE_OR, DTYPE_BOOL, shape, 2, which)};
    graph_drop(graph, which[0]);
    graph_drop(graph, which[1]);
    out.tokens = op_no_grad(graph, WORK_COPY, ATEN_CLONE, DTYPE_INT64, shape, 1, &tokens);
    /* of text there are none to be put there: that kernel, in place, is not in the time */
    const uint32_t zero =
        op_fill(graph, ATEN_LIFT_FRESH, DTYPE_INT64, (struct shape){.rank = 0}, 0);
    graph_drop(graph, zero);
    return out;
}
