/* loss.c - ForCausalLMLoss and its kin (hf.h), and in their place the loss of LLaMA-Factory v1's
 * SFTTrainer (v1/core/base_trainer.py, compute_log_probs; v1/trainers/sft_trainer.py, August 2026).
 *
 * The model is called with labels, and so has a loss of its own, whose backward nobody calls: what
 * its nodes keep, as much as the logits in fp32, is there until what the model returned goes. The
 * trainer's is of another copy of them: cross-entropy of each token but a sequence's last, times
 * weights that the data has, by their sum, and then times numbers that make it the mean over all
 * ranks and micro-batches. */
#include "graph/ops.h"
#include "hf/hf.h"

#include <assert.h>

static const struct shape SCALAR = {.rank = 0};

/* What the model's own loss keeps until what it returned goes. */
struct own {
    uint32_t loss;
    uint32_t kept[3], count; /* by its nodes, in the order in which they go */
};

static uint32_t as_rows(struct graph *graph, uint32_t logits)
{
    const struct shape shape = graph->tensors[logits].shape;
    return graph_view(graph, logits, SHAPE(shape.dim[0] * shape.dim[1], shape.dim[2]));
}

static struct own own_loss(struct graph *graph, uint32_t logits, uint32_t labels)
{
    const bool narrow = graph->tensors[logits].dtype != DTYPE_FP32;
    const uint32_t wide = narrow ? op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32,
                                              graph->tensors[logits].shape, 1, (uint32_t[]){logits})
                                 : logits;
    const struct hf_shifted targets = hf_shift(graph, labels);
    if (graph->cross_entropy == CROSS_ENTROPY_PER_TOKEN_LIGER) { /* has the gradient there */
        assert(narrow);                                          /* families/liger.c */
        const uint32_t loss = op_liger_cross_entropy(graph, as_rows(graph, wide), targets.flat);
        hf_drop_shifted(graph, targets);
        return (struct own){loss, {wide}, 1};
    }
    const struct idle_loss idle = op_cross_entropy_idle(graph, as_rows(graph, wide), targets.flat);
    if (narrow)
        graph_drop(graph, wide);
    const bool copied =
        graph->tensors[targets.flat].storage != graph->tensors[targets.padded].storage;
    if (copied)
        graph_drop(graph, targets.padded);
    return (struct own){
        idle.loss,
        {copied ? targets.flat : targets.padded, idle.log_probabilities, idle.weight},
        3};
}

/* What the model returned goes: behind what its loss's nodes keep first where these are Python's,
 * or nodes of the system's follow. */
static void drop_own(struct graph *graph, const struct own *own)
{
    const bool liger = graph->cross_entropy == CROSS_ENTROPY_PER_TOKEN_LIGER;
    const uint32_t before = liger || graph->returns_nodes ? 1 : 0;
    for (uint32_t i = 0; i < before; i++)
        graph_drop(graph, own->kept[i]);
    graph_drop(graph, own->loss);
    for (uint32_t i = before; i < own->count; i++)
        graph_drop(graph, own->kept[i]);
}

/* Without the last token of each sequence, or without the first: contiguous as it is where there is
 * one. */
static uint32_t without(struct graph *graph, uint32_t x, uint32_t first)
{
    const struct shape shape = graph->tensors[x].shape;
    const uint32_t part = op_slice_dim(graph, x, 1, first, shape.dim[1] - 1);
    return shape.dim[0] == 1 ? part : op_unary(graph, OP_CLONE, part);
}

/* The log-probability of each target: (b, s - 1). */
static uint32_t log_probs(struct graph *graph, uint32_t logits, uint32_t labels,
                          const struct own *own)
{
    const struct shape shape = graph->tensors[logits].shape;
    const uint32_t rows = shape.dim[0] * (shape.dim[1] - 1);
    const uint32_t wide = op_to(graph, logits, DTYPE_FP32);
    const uint32_t targets = without(graph, labels, 1), scores = without(graph, wide, 0);
    const uint32_t flat = graph_view(graph, scores, SHAPE(rows, shape.dim[2])),
                   of = graph_view(graph, targets, SHAPE(rows));
    const uint32_t losses = graph->cross_entropy == CROSS_ENTROPY_PER_TOKEN_LIGER
                                ? op_liger_cross_entropies(graph, flat, of)
                                : op_cross_entropies(graph, flat, of);
    const uint32_t found =
        op_unary(graph, OP_NEG, graph_view(graph, losses, SHAPE(shape.dim[0], shape.dim[1] - 1)));
    graph_drop(graph, losses);
    drop_own(graph, own);
    graph_drop(graph, logits);
    if (wide != logits)
        graph_drop(graph, wide);
    if (shape.dim[0] > 1) {
        graph_drop(graph, targets);
        graph_drop(graph, scores);
    }
    return found;
}

static uint32_t weighted_mean(struct graph *graph, uint32_t found, uint32_t weights)
{
    const uint32_t part = op_slice_dim(graph, weights, 1, 1, graph->tensors[found].shape.dim[1]);
    const uint32_t negative = op_unary(graph, OP_NEG, found);
    const uint32_t weighted = op_mul_constant(graph, negative, part);
    graph_drop(graph, negative);
    const uint32_t sum = op_sum_all(graph, weighted);
    graph_drop(graph, weighted);
    const uint32_t whole =
        op_no_grad(graph, WORK_SUM, ATEN_SUM, DTYPE_FP32, SCALAR, 1, (uint32_t[]){part});
    const uint32_t by =
        op_number(graph, WORK_ADD_NUMBER, ATEN_ADD, DTYPE_FP32, SCALAR, whole, 1e-6F);
    graph_drop(graph, whole);
    const uint32_t mean = op_div_count(graph, sum, by);
    graph_drop(graph, by);
    graph_drop(graph, sum);
    graph_drop(graph, weights);
    graph_drop(graph, found);
    return mean;
}

/* The tokens of this micro-batch, the ranks, and the tokens of all: numbers in Python. */
static uint32_t over_all_ranks(struct graph *graph, uint32_t mean, float tokens)
{
    const uint32_t sum = op_scalar(graph, OP_MUL_SCALAR, mean, tokens);
    const uint32_t ranks = op_scalar(graph, OP_MUL_SCALAR, sum, 1.0F);
    graph_drop(graph, sum);
    const uint32_t loss = op_scalar(graph, OP_DIV_SCALAR, ranks, tokens);
    graph_drop(graph, ranks);
    graph_drop(graph, mean);
    return loss;
}

static void per_token_loss(struct graph *graph, uint32_t hidden, uint32_t scaled, uint32_t logits,
                           uint32_t labels)
{
    const struct shape shape = graph->tensors[labels].shape;
    struct own own = own_loss(graph, logits, labels);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, hidden);
    if (scaled != hidden)
        graph_drop(graph, scaled);
    uint32_t fields[] = {own.loss, logits};
    hf_leave(graph, 2, fields);
    own.loss = fields[0];
    graph_mark(graph, MARK_LOGITS);

    const uint32_t weights = op_fill(graph, ATEN_ONES, DTYPE_FP32, shape, 1.0F);
    const uint32_t found = log_probs(graph, fields[1], labels, &own);
    const uint32_t mean = weighted_mean(graph, found, weights);
    graph->loss = over_all_ranks(graph, mean, (float)shape_elements(&shape));
    graph_mark(graph, MARK_LOSS);
}

/* ---- transformers' own ---- */

void hf_loss(struct graph *graph, uint32_t hidden, uint32_t logits, uint32_t labels)
{
    hf_loss_scaled(graph, hidden, hidden, logits, labels);
}

void hf_loss_scaled(struct graph *graph, uint32_t hidden, uint32_t scaled, uint32_t logits,
                    uint32_t labels)
{
    const struct shape shape = graph->tensors[logits].shape;
    const uint32_t rows = shape.dim[0] * shape.dim[1], v = shape.dim[2];
    if (loss_is_per_token(graph->cross_entropy)) {
        per_token_loss(graph, hidden, scaled, logits, labels);
        return;
    }
    if (graph->loss_breaks)
        graph_mark(graph, MARK_BREAK);
    const uint32_t upcast = build_upcast(graph, logits);
    const struct hf_shifted targets = hf_shift(graph, labels);
    graph->loss =
        build_cross_entropy(graph, graph_view(graph, upcast, SHAPE(rows, v)), targets.flat);
    if (upcast != logits)
        graph_drop(graph, upcast);
    hf_drop_shifted(graph, targets);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, hidden);
    if (scaled != hidden)
        graph_drop(graph, scaled);
    hf_return(graph, logits, GRAPH_NONE);
}

void hf_loss_in_class(struct graph *graph, uint32_t hidden, uint32_t logits, uint32_t labels)
{
    const struct shape shape = graph->tensors[logits].shape;
    const uint32_t rows = shape.dim[0] * (shape.dim[1] - 1);
    const uint32_t scores = without(graph, logits, 0), targets = without(graph, labels, 1);
    graph->loss = build_cross_entropy(graph, graph_view(graph, scores, SHAPE(rows, shape.dim[2])),
                                      graph_view(graph, targets, SHAPE(rows)));
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, hidden);
    if (shape.dim[0] > 1) { /* else they are the logits and labels themselves */
        graph_drop(graph, scores);
        graph_drop(graph, targets);
    }
    hf_return(graph, logits, GRAPH_NONE);
}

void hf_masked_loss(struct graph *graph, uint32_t hidden, uint32_t logits, uint32_t targets)
{
    const struct shape shape = graph->tensors[logits].shape;
    const uint32_t rows = shape.dim[0] * shape.dim[1];
    const uint32_t upcast = build_upcast(graph, logits);
    graph->loss =
        build_cross_entropy(graph, graph_view(graph, upcast, SHAPE(rows, shape.dim[2])), targets);
    if (upcast != logits)
        graph_drop(graph, upcast);
    graph_drop(graph, hidden);
    hf_return(graph, logits, GRAPH_NONE);
}
