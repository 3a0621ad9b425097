/* dpo.c - see dpo.h. */
#include "model/dpo.h"

#include "model/logged.h"
#include "model/padded.h"

static const struct shape SCALAR = {.rank = 0};

/* DPOConfig's default; plans do not depend on it. */
static const float BETA = 0.1F;

/* Of chosen and rejected, in this order. */
enum { CHOSEN, REJECTED, SIDES };

/* ---- the batch ---- */

uint32_t dpo_input(struct graph *graph, enum input_kind kind, uint32_t input)
{
    struct graph_preferences *of = &graph->preferences;
    if (kind == INPUT_TOKENS && !graph->again.on)
        of->tokens = input;
    if (kind != INPUT_LABELS)
        return input;
    if (!graph->again.on) {
        const struct shape shape = graph->tensors[input].shape;
        of->mask = input; /* completion_mask */
        const uint32_t prompt =
            op_number(graph, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL, shape, input, 0.0F);
        of->labels = op_masked_no_grad(graph, of->tokens, prompt, -100.0F);
        graph_drop(graph, prompt);
    }
    graph_mark(graph, MARK_ROOT_ENTER);
    return of->labels;
}

/* ---- what is a number, or a few, outside autograd ---- */

/* Whether a count is above 0, as an if asks. */
static void ask(struct graph *graph, uint32_t count)
{
    logged_read(graph,
                op_number(graph, WORK_GREATER_NUMBER, ATEN_GT, DTYPE_BOOL, SCALAR, count, 0));
}

static void log_quotient(struct graph *graph, uint32_t x, uint32_t count)
{
    logged_read(graph, logged_both(graph, WORK_DIV, ATEN_DIV, DTYPE_FP32, x, count));
}

/* ---- the loss ---- */

struct sides {
    uint32_t log_probs; /* (b): each sequence's */
    uint32_t of[SIDES]; /* views of it */
};

static struct sides sides_of(struct graph *graph, uint32_t log_probs)
{
    struct sides s;
    const uint32_t tokens = graph->tensors[log_probs].shape.dim[1];
    s.log_probs = op_sum_tokens(graph, op_slice_last(graph, log_probs, 0, tokens));
    op_chunk(graph, s.log_probs, SIDES, s.of);
    return s;
}

struct gains {
    uint32_t of[SIDES], delta, per_pair;
};

static struct gains loss_of(struct graph *graph, const struct sides *policy,
                            const uint32_t *reference)
{
    struct gains g;
    for (uint32_t i = 0; i < SIDES; i++)
        g.of[i] = op_sub(graph, policy->of[i], reference[i]);
    g.delta = op_sub(graph, g.of[CHOSEN], g.of[REJECTED]);
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, g.delta, BETA);
    const uint32_t log = op_log_sigmoid(graph, scaled);
    graph_drop(graph, scaled);
    g.per_pair = op_unary(graph, OP_NEG, log);
    graph_drop(graph, log);
    const uint32_t mean = op_mean_all(graph, g.per_pair);
    const uint32_t weighted = op_scalar(graph, OP_MUL_SCALAR, mean, 1.0F);
    graph_drop(graph, mean);
    graph->loss = op_scalar(graph, OP_ADD_SCALAR, weighted, 0.0F);
    graph_drop(graph, weighted);
    return g;
}

/* ---- what is logged ---- */

/* What has a name until the function returns. */
struct logged {
    uint32_t entropy, tokens, correct, correct_tokens, all_tokens;
    uint32_t rewards[SIDES], right, margins;
};

/* A half of x (b, s): rows that are one behind the other. */
static uint32_t half_of(struct graph *graph, uint32_t x)
{
    const struct shape s = graph->tensors[x].shape;
    return graph_view(graph, x, SHAPE(s.dim[0] / SIDES, s.dim[1]));
}

static uint32_t half_shape_mask(struct graph *graph, uint32_t mask)
{
    const struct shape s = graph->tensors[mask].shape;
    return op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_BOOL, SHAPE(s.dim[0] / SIDES, s.dim[1]),
                      1, &mask);
}

/* How many tokens of a side (b / 2, s) have a target. */
static uint32_t count_targets(const struct graph *graph, struct shape s, uint32_t side)
{
    const uint32_t b = s.dim[0];
    return b * s.dim[1] - padded_among(graph->padded, SIDES * b, side * b, b);
}

/* The mean logit of one side: its sum, and how many tokens that is of. */
static void sum_logits(struct graph *graph, uint32_t mean_logits, uint32_t mask, uint32_t side,
                       uint32_t *sum, uint32_t *count)
{
    const uint32_t chosen = half_shape_mask(graph, mask);
    const struct shape s = graph->tensors[chosen].shape;
    const uint32_t values =
        op_no_grad(graph, WORK_OTHER, ATEN_INDEX, DTYPE_FP32, SHAPE(count_targets(graph, s, side)),
                   2, (uint32_t[]){half_of(graph, mean_logits), chosen});
    graph_drop(graph, chosen);
    *sum = logged_sum(graph, values);
    graph_drop(graph, values);
    *count = logged_sum(graph, half_of(graph, mask));
}

static void read_sum(struct graph *graph, uint32_t x)
{
    logged_read(graph, logged_sum(graph, x));
    graph_drop(graph, x);
}

static void log_logits(struct graph *graph, uint32_t mean_logits, uint32_t mask)
{
    uint32_t sum[SIDES], count[SIDES];
    for (uint32_t i = 0; i < SIDES; i++)
        sum_logits(graph, mean_logits, mask, i, &sum[i], &count[i]);
    for (uint32_t i = 0; i < SIDES; i++) {
        read_sum(graph, sum[i]);
        read_sum(graph, count[i]);
    }
}

/* Of chosen tokens the share that were the likeliest; `before` is what tokens were counted before.
 */
static void log_accuracy(struct graph *graph, uint32_t is_top1, uint32_t mask, uint32_t before,
                         struct logged *l)
{
    const uint32_t chosen = half_shape_mask(graph, mask);
    l->correct = logged_both(graph, WORK_AND, ATEN_BITWISE_AND, DTYPE_BOOL, chosen, is_top1);
    graph_drop(graph, chosen);
    l->tokens = logged_sum(graph, half_of(graph, mask));
    graph_drop(graph, before);
    l->correct_tokens = logged_sum(graph, l->correct);
    l->all_tokens = logged_sum(graph, l->tokens);
    ask(graph, l->all_tokens);
    const uint32_t correct = logged_sum(graph, l->correct_tokens);
    const uint32_t share =
        logged_both(graph, WORK_DIV, ATEN_DIV, DTYPE_FP32, correct, l->all_tokens);
    graph_drop(graph, correct);
    logged_read(graph, share);
}

static void log_rewards(struct graph *graph, const struct gains *gains, struct logged *l)
{
    for (uint32_t i = 0; i < SIDES; i++)
        l->rewards[i] = op_number(graph, WORK_MUL_NUMBER, ATEN_MUL, DTYPE_FP32,
                                  graph->tensors[gains->of[i]].shape, gains->of[i], BETA);
    for (uint32_t i = 0; i < SIDES; i++)
        logged_mean(graph, l->rewards[i]);
    const uint32_t right = logged_both(graph, WORK_GREATER, ATEN_GT_TENSOR, DTYPE_BOOL,
                                       l->rewards[CHOSEN], l->rewards[REJECTED]);
    l->right = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, graph->tensors[right].shape,
                          1, &right);
    graph_drop(graph, right);
    logged_mean(graph, l->right);
    l->margins = logged_both(graph, WORK_SUB, ATEN_SUB, DTYPE_FP32, l->rewards[CHOSEN],
                             l->rewards[REJECTED]);
    logged_mean(graph, l->margins);
}

static struct logged log_all(struct graph *graph, const struct graph_scores *scores,
                             const struct sides *policy, const struct gains *gains,
                             uint32_t attention_mask)
{
    struct logged l;
    const struct shape whole = graph->tensors[graph->preferences.mask].shape;
    const uint32_t mask = graph_slice(graph, graph->preferences.mask, 1, whole.dim[1] - 1);
    const uint32_t counted =
        logged_both(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, scores->entropy, mask);
    const uint32_t entropy = logged_sum(graph, counted);
    graph_drop(graph, counted);
    const uint32_t tokens = logged_sum(graph, mask);
    l.entropy = logged_summed(graph, entropy);
    const uint32_t all = logged_summed(graph, tokens);
    ask(graph, all);
    log_quotient(graph, l.entropy, all);
    logged_read(graph, logged_summed(graph, logged_sum(graph, attention_mask)));
    log_logits(graph, scores->mean_logits, mask);
    log_accuracy(graph, scores->is_top1, mask, all, &l);
    log_rewards(graph, gains, &l);
    for (uint32_t i = 0; i < SIDES; i++)
        logged_mean(graph, policy->of[i]);
    return l;
}

/* ---- all of it ---- */

static void drop_all(struct graph *graph, uint32_t count, const uint32_t *tensors)
{
    for (uint32_t i = 0; i < count; i++)
        if (tensors[i] != GRAPH_NONE)
            graph_drop(graph, tensors[i]);
}
#define DROP(...)                                                                                  \
    drop_all(graph, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (uint32_t[]){__VA_ARGS__})

/* The function returns: its names go in the order in which they were given first. What others are
 * views of goes with the last of these. */
static void let_go(struct graph *graph, const struct graph_scores *policy,
                   const struct sides *sides, const struct gains *gains, const struct logged *l,
                   const struct graph_scores *reference, const struct sides *its)
{
    DROP(graph->preferences.labels, policy->count, policy->loss, policy->mask, policy->log_probs,
         sides->log_probs);
    if (reference)
        DROP(reference->loss, reference->entropy, reference->mean_logits, reference->is_top1,
             reference->mask, reference->log_probs, its->log_probs);
    DROP(gains->of[CHOSEN], gains->of[REJECTED], gains->delta, gains->per_pair, policy->entropy,
         l->entropy, l->tokens, policy->mean_logits, policy->is_top1, l->correct, l->correct_tokens,
         l->all_tokens, l->rewards[CHOSEN], l->rewards[REJECTED], l->right, l->margins);
}

void dpo_build(struct graph *graph, model_builder *builder, const struct model_config *config,
               const struct model_job *job)
{
    const struct input_values unknown = {.kind = INPUT_UNKNOWN};
    struct graph_scores reference;
    struct sides its = {.log_probs = GRAPH_NONE};
    padded_call(graph, builder, config, job);
    const struct graph_scores policy = graph->preferences.scores;
    const struct shape pairs = SHAPE(job->batch / SIDES);
    const struct sides sides = sides_of(graph, policy.log_probs);
    if (!job->precomputed) {
        const bool other = job->lora == NULL, bare = other && job->bare_reference;
        graph_begin_again(graph, other);
        graph->autocast.on = job->autocast && !bare;
        graph->outputs_fp32 = job->outputs_fp32 && !bare;
        padded_call(graph, builder, config, job);
        graph->outputs_fp32 = job->outputs_fp32;
        reference = graph->preferences.scores;
        its = sides_of(graph, reference.log_probs);
        graph_end_again(graph);
    }
    const uint32_t attention_mask = padded_pairs_mask(graph, job);
    for (uint32_t i = 0; job->precomputed && i < SIDES; i++)
        its.of[i] = graph_input_of(graph, DTYPE_FP32, pairs, unknown);
    const struct gains gains = loss_of(graph, &sides, its.of);
    const struct logged l = log_all(graph, &policy, &sides, &gains, attention_mask);
    let_go(graph, &policy, &sides, &gains, &l, job->precomputed ? NULL : &reference, &its);
    graph_mark(graph, MARK_LOSS);
}
