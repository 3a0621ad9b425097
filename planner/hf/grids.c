/* grids.c - RoPE's tables of models that see (hf.h): each token has a place in time, in height and
 * in width, and each pair of a head's numbers turns by one of the three. Of text the three are
 * alike, so the first is read for all. */
#include "hf/hf.h"

/* Positions of all three grids times frequencies: (3, b, s, d/2). */
static uint32_t angles_of(struct graph *graph, struct hf_angles of, uint32_t batch)
{
    const uint32_t s = graph->tensors[of.positions].shape.dim[0];
    const uint32_t pairs = graph->tensors[of.frequencies].shape.dim[0];
    const struct shape column = SHAPE(HF_GRIDS, batch, s, 1),
                       all = SHAPE(HF_GRIDS, batch, s, pairs);
    const uint32_t rows =
        graph_expand(graph, graph_view(graph, of.positions, SHAPE(1, 1, s, 1)), column);
    const uint32_t cast = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, column, 1, &rows);
    const uint32_t angles = op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, all, 2,
                                       (uint32_t[]){cast, of.frequencies});
    graph_drop(graph, cast);
    return angles;
}

/* The first of three grids (3, b, s, d/2): (b, s, d/2) */
static uint32_t first_grid(struct graph *graph, uint32_t grids)
{
    const struct shape all = graph->tensors[grids].shape;
    const uint32_t count = all.dim[1] * all.dim[2] * all.dim[3];
    const uint32_t row = graph_view(graph, grids, SHAPE(HF_GRIDS * count));
    return graph_view(graph, graph_slice(graph, row, 0, count),
                      SHAPE(all.dim[1], all.dim[2], all.dim[3]));
}

/* Grids of height and width into places of the first: traced, each is a function of all three,
 * select_scatter, which may not run again. */
static uint32_t put_together(struct graph *graph, const uint32_t *sections, uint32_t grids)
{
    const struct shape all = graph->tensors[grids].shape;
    const uint32_t count = all.dim[1] * all.dim[2] * all.dim[3];
    uint32_t row = graph_view(graph, grids, SHAPE(HF_GRIDS * count));
    for (uint32_t i = 1; i < HF_GRIDS; i++)
        row = op_put_slice(graph, row, graph_slice(graph, row, i * count, sections[i]), 0,
                           HF_GRIDS * count);
    return graph_view(graph, row, all);
}

/* Each angle again: of a table (b, s, d/2), behind all others or next to itself: (b, s, d) */
static uint32_t twice(struct graph *graph, uint32_t half, enum hf_grids_way way)
{
    struct shape shape = graph->tensors[half].shape;
    const struct shape pairs = SHAPE(shape.dim[0], shape.dim[1], shape.dim[2], 2);
    shape.dim[2] *= 2;
    if (way != HF_GRIDS_NEIGHBOURS)
        return op_no_grad(graph, WORK_CAT, ATEN_CAT, DTYPE_FP32, shape, 1, &half);
    const uint32_t doubled = op_no_grad(graph, WORK_INTERLEAVE, ATEN_CLONE, DTYPE_FP32, pairs, 2,
                                        (uint32_t[]){half, half});
    return graph_view(graph, doubled, shape);
}

/* A table (3, b, s, d/2) as (b, s, d), which takes its place: parts of the grids one behind the
 * other, and all of them again; or two grids copied into places of the first, which births nothing.
 */
static uint32_t joined(struct graph *graph, const uint32_t *sections, enum hf_grids_way way,
                       bool traced, uint32_t grids)
{
    if (traced && way == HF_GRIDS_WOVEN)
        grids = put_together(graph, sections, grids);
    const uint32_t first = first_grid(graph, grids);
    const struct shape shape = graph->tensors[first].shape;
    uint32_t half = first;
    if (way != HF_GRIDS_WOVEN) {
        uint32_t part[HF_GRIDS], at = 0;
        for (int i = 0; i < HF_GRIDS; at += sections[i++])
            part[i] = graph_slice(graph, first, at, sections[i]);
        half = op_no_grad(graph, WORK_CAT, ATEN_CAT, DTYPE_FP32, shape, HF_GRIDS, part);
    }
    const uint32_t whole = twice(graph, half, way);
    if (half != first)
        graph_drop(graph, half);
    graph_drop(graph, grids);
    return whole;
}

struct hf_rope hf_rope_grids(struct graph *graph, const struct model_config *c,
                             const struct model_job *job, struct hf_angles of,
                             enum hf_grids_way way)
{
    const uint32_t angles = angles_of(graph, of, job->batch);
    const float factor = c->rope.attention_factor;
    const uint32_t cosines = hf_rope_table(graph, WORK_COS, ATEN_COS, angles, factor);
    const uint32_t sines = hf_rope_table(graph, WORK_SIN, ATEN_SIN, angles, factor);
    const uint32_t sin = joined(graph, c->rope_sections, way, job->traced, sines);
    const uint32_t cos = joined(graph, c->rope_sections, way, job->traced, cosines);
    const struct hf_rope rope = {.cos = op_to(graph, cos, graph->compute),
                                 .sin = op_to(graph, sin, graph->compute)};
    graph_drop(graph, angles);
    if (rope.cos != cos) {
        graph_drop(graph, cos);
        graph_drop(graph, sin);
    }
    return rope;
}
