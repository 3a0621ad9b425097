/* scored.c - see scored.h. */
#include "hf/scored.h"

#include <stdio.h>
#include <string.h>

uint32_t hf_scored_mask(struct graph *graph, const struct model_job *job, uint32_t positions)
{
    if (job->traced)
        return hf_traced_mask(graph, job, positions, HF_NO_WINDOW, true);
    if (graph->attention_mask == GRAPH_NONE)
        hf_packed_test(graph, job, positions);
    return hf_added_mask(graph, job);
}

uint32_t hf_scored_normed(struct graph *graph, uint32_t x, struct norm norm)
{
    return op_layer_norm(graph, x, norm.weight, norm.bias, norm.eps);
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct hf_scored *way, uint32_t index,
                          const struct hf_scored_inputs *in, uint32_t x, uint32_t *weights)
{
    const uint32_t module = graph_module(graph, ROLE_BLOCK, "%s.%u", way->blocks, index);
    struct hf_scored_inputs own = *in;
    if (in->bias != GRAPH_NONE && job->casts_inputs)
        own.bias = op_to(graph, in->bias, graph->compute);
    graph_enter(graph, module, x);
    if (own.positions != GRAPH_NONE)
        graph_also_input(graph, module, own.positions);
    if (own.bias != GRAPH_NONE)
        graph_also_input(graph, module, own.bias);
    graph_also_input(graph, module, own.mask);
    const uint32_t z =
        way->block(graph, c, job, index, graph->modules[module].name, x, &own, weights);
    graph_exit(graph, module, z);
    if (own.bias != in->bias)
        graph_drop(graph, own.bias);
    return z;
}

/* The last norm, a module beside the list of blocks. */
static uint32_t last_norm(struct graph *graph, const struct model_config *c,
                          const struct hf_scored *way, bool biased, uint32_t x)
{
    char prefix[64];
    const char *dot = strrchr(way->blocks, '.');
    snprintf(prefix, sizeof prefix, "%.*s", (int)(dot + 1 - way->blocks), way->blocks);
    const uint32_t module = graph_module(graph, ROLE_NORM, "%s%s", prefix, way->norm);
    const struct norm norm = build_norm(graph, prefix, way->norm, c->hidden, biased, c->norm_eps);
    graph_enter(graph, module, x);
    const uint32_t normed = hf_scored_normed(graph, x, norm);
    graph_exit(graph, module, normed);
    return normed;
}

uint32_t hf_scored_run(struct graph *graph, const struct model_config *c,
                       const struct model_job *job, const struct hf_scored *way,
                       const struct hf_scored_inputs *in, uint32_t x, uint32_t last[2])
{
    uint32_t weights = GRAPH_NONE;
    for (uint32_t i = 0; i < c->layers; i++) {
        uint32_t scores;
        const uint32_t z = run_block(graph, c, job, way, i, in, x, &scores);
        if (weights != GRAPH_NONE)
            graph_drop(graph, weights);
        if (i > 0 || !way->keeps_first)
            graph_drop(graph, x);
        x = z;
        weights = scores;
    }
    last[0] = x;
    last[1] = weights;
    return last_norm(graph, c, way, !way->bare_bias, x);
}

uint32_t hf_scored_weights(struct graph *graph, uint32_t scores, enum dtype dtype, float dropout,
                           uint32_t param)
{
    const uint32_t wide = op_softmax(graph, scores);
    graph_drop(graph, scores);
    const uint32_t narrow = op_to(graph, wide, dtype);
    if (narrow != wide)
        graph_drop(graph, wide);
    return hf_dropout_beside(graph, narrow, dropout, param, "attn_dropout");
}

uint32_t hf_scored_merged(struct graph *graph, uint32_t o)
{
    const struct shape shape = graph->tensors[o].shape;
    const uint32_t b = shape.dim[0], a = shape.dim[1], s = shape.dim[2], d = shape.dim[3];
    uint32_t merged = graph_transpose(graph, o, 1, 2);
    if (a > 1 && s > 1) { /* contiguous() */
        merged = op_unary(graph, OP_CLONE, merged);
        graph_drop(graph, o);
    }
    return graph_view(graph, merged, SHAPE(b, s, a * d));
}

/* Each number twice, of half of the rows (1, s, r): (1, s, 1, r). */
static uint32_t doubled(struct graph *graph, uint32_t rows, bool second)
{
    const struct graph_tensor t = graph->tensors[rows];
    const uint32_t s = t.shape.dim[1], half = t.shape.dim[2] / 2;
    const uint32_t part = graph_slice(graph, rows, second ? half : 0, half);
    const uint32_t pairs = op_no_grad(graph, WORK_INTERLEAVE, ATEN_CLONE, (enum dtype)t.dtype,
                                      SHAPE(1, s, 1, half, 2), 2, (uint32_t[]){part, part});
    return graph_view(graph, pairs, SHAPE(1, s, 1, 2 * half));
}

uint32_t hf_scored_rotated(struct graph *graph, uint32_t x, uint32_t rows)
{
    const uint32_t sin = doubled(graph, rows, false), cos = doubled(graph, rows, true);
    const uint32_t straight = op_mul(graph, x, cos);
    const uint32_t even = op_stride_last(graph, x, 0, 2), odd = op_stride_last(graph, x, 1, 2);
    const uint32_t minus = op_unary(graph, OP_NEG, odd);
    const uint32_t turned = op_interleave(graph, minus, even);
    graph_drop(graph, minus);
    const uint32_t crossed = op_mul(graph, turned, sin);
    graph_drop(graph, turned);
    const uint32_t out = op_add(graph, straight, crossed);
    graph_drop(graph, straight);
    graph_drop(graph, crossed);
    graph_drop(graph, sin);
    graph_drop(graph, cos);
    return out;
}

uint32_t hf_scored_mlp(struct graph *graph, const struct model_config *c, struct linear fc_in,
                       struct linear fc_out, uint32_t y)
{
    const uint32_t up = apply_linear(graph, y, fc_in);
    const uint32_t active = hf_activation_beside(graph, c->activation, up, fc_in.weight, "act");
    graph_drop(graph, up);
    const uint32_t down = apply_linear(graph, active, fc_out);
    graph_drop(graph, active);
    return hf_dropout_beside(graph, down, c->dropout, fc_in.weight, "dropout");
}

uint32_t hf_scored_sum(struct graph *graph, uint32_t x, uint32_t y, uint32_t attended, uint32_t fed)
{
    const uint32_t sum = op_add(graph, attended, fed);
    const uint32_t z = op_add(graph, sum, x);
    graph_drop(graph, sum);
    graph_drop(graph, y);
    graph_drop(graph, attended);
    graph_drop(graph, fed);
    return z;
}

void hf_scored_head(struct graph *graph, const struct model_config *c, const struct model_job *job,
                    const struct hf_scored_head *of, uint32_t normed)
{
    if (job->task == TASK_SEQUENCE_CLASSIFICATION) {
        hf_score(graph, c, job, normed, of->tokens, of->labels);
        return;
    }
    const uint32_t module = graph_module(graph, ROLE_HEAD, "lm_head");
    struct linear head = {of->table, GRAPH_NONE};
    if (!c->tied)
        head = build_linear(graph, "", "lm_head", c->vocab, c->hidden, of->biased);
    else if (of->biased)
        head.bias = graph_param(graph, PARAM_BIAS, SHAPE(c->vocab), "lm_head.bias");
    hf_head(graph, module, normed, head, of->labels);
}

void hf_scored_gptj(struct graph *graph, const struct model_config *c, const struct model_job *job,
                    hf_scored_block *block)
{
    uint32_t last[2], wte;
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = hf_targets(graph, c, job, INPUT_LABELS, SHAPE(job->batch, job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t embedded = hf_wte(graph, c, tokens, &wte);
    struct hf_scored_inputs in = {.positions = hf_positions(graph, job), .bias = GRAPH_NONE};
    const struct hf_scored way = {.blocks = "transformer.h",
                                  .norm = "ln_f",
                                  .block = block,
                                  .keeps_first = !(c->embedding_dropout > 0)};
    in.mask = hf_scored_mask(graph, job, in.positions);
    graph_call_begin(graph, "transformer.drop");
    const uint32_t first = way.keeps_first ? op_called_alone(graph, embedded)
                                           : op_dropout(graph, embedded, c->embedding_dropout);
    graph_call_end(graph);
    const uint32_t normed = hf_scored_run(graph, c, job, &way, &in, first, last);
    graph_drop(graph, in.positions);
    graph_drop(graph, embedded);
    graph_drop(graph, in.mask);
    graph_drop(graph, last[1]); /* a tuple of the last block's: its last element goes first */
    graph_drop(graph, last[0]);
    hf_scored_head(graph, c, job, &(struct hf_scored_head){tokens, labels, wte, true}, normed);
}
