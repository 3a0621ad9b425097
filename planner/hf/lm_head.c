/* lm_head.c - the head of a decoder that has it as a module of its own; and the loss of a model
 * that TRL (1.16.0) has given its fused LM head: what add_fused_lm_head's forward does behind the
 * model's backbone (trainer/utils.py), and SFTTrainer.compute_loss with what that returns, unless
 * it is DPOTrainer's (model/dpo.h) or GRPOTrainer's (model/grpo.h).
 *
 * Each token but the last of a sequence has a target, unless that is of a prompt or padding. The
 * output has a loss of its own, which SFTTrainer takes no notice of; what the trainer logs
 * (entropy, accuracy) is not planned. */
#include "graph/ops.h"
#include "hf/hf.h"

static const struct shape SCALAR = {.rank = 0};

/* How many tokens of the mask have a target, at least one: (). */
static uint32_t count_targets(struct graph *graph, uint32_t mask)
{
    const uint32_t sum =
        op_no_grad(graph, WORK_SUM, ATEN_SUM, DTYPE_INT64, SCALAR, 1, (uint32_t[]){mask});
    const uint32_t count =
        op_number(graph, WORK_AT_LEAST, ATEN_CLAMP, DTYPE_INT64, SCALAR, sum, 1.0F);
    graph_drop(graph, sum);
    return count;
}

/* What the output has beside log-probabilities, whose backward nobody calls. */
static uint32_t spread(struct graph *graph, uint32_t x, uint32_t mask)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    const struct shape shape = graph->tensors[mask].shape;
    const uint32_t zeros = op_fill(graph, ATEN_NEW_ZEROS, dtype, shape, 0);
    const uint32_t all = op_no_grad(graph, WORK_OTHER, ATEN_MASKED_SCATTER, dtype, shape, 3,
                                    (uint32_t[]){zeros, mask, x});
    graph_drop(graph, zeros);
    return all;
}

/* The output's: nobody calls its backward, so it is written without. Its node keeps *count. */
static uint32_t output_loss(struct graph *graph, uint32_t log_probs, uint32_t mask, uint32_t *count)
{
    const uint32_t sum =
        op_no_grad(graph, WORK_SUM, ATEN_SUM, DTYPE_FP32, SCALAR, 1, (uint32_t[]){log_probs});
    const uint32_t negative =
        op_no_grad(graph, WORK_NEG, ATEN_NEG, DTYPE_FP32, SCALAR, 1, (uint32_t[]){sum});
    graph_drop(graph, sum);
    *count = count_targets(graph, mask);
    const uint32_t loss = op_no_grad(graph, WORK_DIV, ATEN_DIV, DTYPE_FP32, SCALAR, 2,
                                     (uint32_t[]){negative, *count});
    graph_drop(graph, negative);
    return loss;
}

/* SFTTrainer's. */
static uint32_t trainer_loss(struct graph *graph, uint32_t log_probs, uint32_t mask)
{
    uint32_t negative;
    const uint32_t sum = op_negative_sum(graph, log_probs, &negative);
    const uint32_t count = count_targets(graph, mask);
    const uint32_t loss = op_div_count(graph, sum, count);
    graph_drop(graph, sum);
    graph_drop(graph, count);
    graph_drop(graph, negative);
    return loss;
}

/* What the model's fused head finds, spread over the tokens again; *count is its loss's. */
static struct graph_scores score(struct graph *graph, const struct log_probs *of, uint32_t mask)
{
    struct graph_scores s = {
        .mask = mask, .entropy = GRAPH_NONE, .mean_logits = GRAPH_NONE, .is_top1 = GRAPH_NONE};
    const struct log_probs_found found = op_log_probs(graph, of);
    graph_read_by_model(graph, of->weight);
    graph_drop(graph, of->rows);
    graph_drop(graph, of->targets);
    s.log_probs = op_masked_scatter(graph, found.log_probs, mask);
    if (of->wanted & WANTS_ENTROPY)
        s.entropy = spread(graph, found.entropy, mask);
    if (of->wanted & WANTS_MEAN_LOGITS)
        s.mean_logits = spread(graph, found.mean_logits, mask);
    if (of->wanted & WANTS_IS_TOP1)
        s.is_top1 = spread(graph, found.is_top1, mask);
    if (of->wanted & WANTS_MEAN_LOGITS)
        graph_drop(graph, found.mean_logits);
    if (of->wanted & WANTS_ENTROPY)
        graph_drop(graph, found.entropy);
    graph_drop(graph, found.log_probs);
    if (of->wanted & WANTS_IS_TOP1)
        graph_drop(graph, found.is_top1);
    s.loss = output_loss(graph, s.log_probs, mask, &s.count);
    if (graph->again.on) /* no node has it */
        graph_drop(graph, s.count);
    return s;
}

/* The root module's forward returns these, as fields of its output. */
static void leave(struct graph *graph, struct graph_scores *s)
{
    uint32_t *const all[HF_FIELDS] = {&s->loss,        &s->log_probs, &s->entropy,
                                      &s->mean_logits, &s->is_top1,   &s->mask};
    uint32_t fields[HF_FIELDS], count = 0;
    for (uint32_t i = 0; i < HF_FIELDS; i++)
        if (*all[i] != GRAPH_NONE)
            fields[count++] = *all[i];
    hf_leave(graph, count, fields);
    for (uint32_t i = HF_FIELDS; i-- > 0;)
        if (*all[i] != GRAPH_NONE)
            *all[i] = fields[--count];
}

static void answers_loss(struct graph *graph, const struct graph_scores *s)
{
    graph_mark(graph, MARK_LOGITS);
    graph->loss = trainer_loss(graph, s->log_probs, s->mask);
    graph_drop(graph, s->count);
    graph_drop(graph, s->loss);
    graph_drop(graph, s->log_probs);
    graph_drop(graph, s->entropy);
    graph_drop(graph, s->is_top1);
    graph_drop(graph, s->mask);
    graph_mark(graph, MARK_LOSS);
}

/* What the trainer asks the head for (add_fused_lm_head's outputs); of a second model that is
 * never trained, nothing. */
static uint32_t wanted(const struct graph *graph)
{
    if (graph->again.on && graph->again.other)
        return 0;
    switch (graph->cross_entropy) {
    case CROSS_ENTROPY_DPO:
        return WANTS_ENTROPY | WANTS_IS_TOP1 | WANTS_MEAN_LOGITS;
    case CROSS_ENTROPY_GRPO:
        return WANTS_ENTROPY;
    default:
        return WANTS_ENTROPY | WANTS_IS_TOP1;
    }
}

void hf_lm_head_loss(struct graph *graph, uint32_t hidden, uint32_t weight, uint32_t bias,
                     uint32_t labels)
{
    const struct shape s = graph->tensors[labels].shape;
    graph_mark(graph, MARK_FRAME); /* the rest of the root module's forward, behind its model's */
    const uint32_t next = op_slice_dim(graph, labels, 1, 1, s.dim[1] - 1),
                   x = op_slice_dim(graph, hidden, 1, 0, s.dim[1] - 1);
    const uint32_t mask = op_number(graph, WORK_NOT_EQUAL_NUMBER, ATEN_NE, DTYPE_BOOL,
                                    graph->tensors[next].shape, next, -100.0F);
    const struct log_probs of = {.rows = op_masked(graph, x, mask),
                                 .weight = weight,
                                 .bias = bias,
                                 .targets = op_masked(graph, next, mask),
                                 .wanted = wanted(graph)};
    const struct graph_scores scores = score(graph, &of, mask);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, hidden);
    graph->preferences.scores = scores;
    leave(graph, &graph->preferences.scores);
    if (graph->cross_entropy == CROSS_ENTROPY_LM_HEAD)
        answers_loss(graph, &graph->preferences.scores);
}

void hf_head(struct graph *graph, uint32_t module, uint32_t hidden, struct linear head,
             uint32_t labels)
{
    if (loss_is_of_trl(graph->cross_entropy)) {
        hf_lm_head_loss(graph, hidden, head.weight, head.bias, labels);
        return;
    }
    const uint32_t kept = hf_logits_kept(graph, hidden);
    graph_enter(graph, module, kept);
    graph_call_begin(graph, "%s", graph->modules[module].name);
    const uint32_t logits = apply_linear(graph, kept, head);
    graph_call_end(graph);
    graph_exit(graph, module, logits);
    hf_loss(graph, hidden, logits, labels);
}
