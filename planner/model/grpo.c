/* grpo.c - see grpo.h. */
#include "model/grpo.h"

#include "model/logged.h"

static const struct shape SCALAR = {.rank = 0};

/* GRPOConfig's defaults of epsilon (cispo wants 5 for it); plans do not depend on it. */
static const float EPSILON = 0.2F, CISPO_MOST = 5.0F;

/* ---- the batch ---- */

/* What _compute_loss finds in it; GRAPH_NONE: it is not there. */
struct batch {
    uint32_t prompt_ids, prompt_mask, completion_ids, mask, advantages, items;
    uint32_t old, sampling_ratio, reference;
};

uint32_t grpo_generated(const struct model_job *job)
{
    const uint32_t steps = job->grpo.steps ? job->grpo.steps : job->micro_batches;
    return steps ? steps : 1;
}

bool grpo_has_old(const struct model_job *job)
{
    const uint64_t every =
        (uint64_t)grpo_generated(job) * (job->grpo.iterations ? job->grpo.iterations : 1);
    return job->micro_batches % every != 0 || job->grpo.vllm != GRPO_VLLM_OFF;
}

/* The first micro-batch's rows of all that are generated at once. */
static uint32_t column(struct graph *graph, const struct model_job *job, enum dtype dtype,
                       uint32_t width)
{
    const struct input_values unknown = {.kind = INPUT_UNKNOWN};
    const uint32_t all =
        graph_input_of(graph, dtype, SHAPE(job->batch * grpo_generated(job), width), unknown);
    return graph_view(graph, all, SHAPE(job->batch, width));
}

static struct batch batch_of(struct graph *graph, const struct model_job *job)
{
    const struct input_values unknown = {.kind = INPUT_UNKNOWN};
    const uint32_t prompt = job->prompt_tokens, completion = job->seq - prompt;
    const bool vllm = job->grpo.vllm != GRPO_VLLM_OFF;
    struct batch b;
    b.prompt_ids = column(graph, job, DTYPE_INT64, prompt);
    b.prompt_mask = column(graph, job, DTYPE_INT64, prompt);
    b.completion_ids = column(graph, job, DTYPE_INT64, completion);
    b.mask = column(graph, job, DTYPE_INT64, completion);
    b.advantages = column(graph, job, DTYPE_FP32, 1);
    b.items = graph_input_of(graph, DTYPE_INT64, SCALAR, unknown);
    b.old = grpo_has_old(job) ? column(graph, job, DTYPE_FP32, completion) : GRAPH_NONE;
    b.sampling_ratio =
        vllm ? column(graph, job, DTYPE_FP32, job->grpo.vllm == GRPO_VLLM_TOKEN ? completion : 1)
             : GRAPH_NONE;
    if (vllm) /* sampling_per_token_logps, which nothing reads */
        column(graph, job, DTYPE_FP32, completion);
    b.reference = job->grpo.beta != 0 ? column(graph, job, DTYPE_FP32, completion) : GRAPH_NONE;
    return b;
}

static uint32_t joined(struct graph *graph, uint32_t prompt, uint32_t completion)
{
    struct shape s = graph->tensors[prompt].shape;
    s.dim[1] += graph->tensors[completion].shape.dim[1];
    return op_no_grad(graph, WORK_CAT, ATEN_CAT, DTYPE_INT64, s, 2,
                      (uint32_t[]){prompt, completion});
}

/* labels[:, :-logits_to_keep] = -100, behind those of padding. */
static uint32_t labels_of(struct graph *graph, uint32_t ids, uint32_t attention_mask,
                          uint32_t prompt)
{
    const struct shape s = graph->tensors[ids].shape;
    const uint32_t padding =
        op_number(graph, WORK_EQUAL_NUMBER, ATEN_EQ, DTYPE_BOOL, s, attention_mask, 0.0F);
    const uint32_t labels = op_masked_no_grad(graph, ids, padding, -100.0F);
    graph_drop(graph, padding);
    const uint32_t none = op_fill(graph, ATEN_LIFT_FRESH, DTYPE_INT64, SCALAR, -100.0F);
    op_put_slice(graph, labels, graph_expand(graph, none, SHAPE(s.dim[0], prompt)), 0, s.dim[1]);
    graph_drop(graph, none);
    return labels;
}

static void make_inputs(struct graph *graph, const struct model_job *job, const struct batch *b)
{
    struct graph_preferences *of = &graph->preferences;
    of->tokens = joined(graph, b->prompt_ids, b->completion_ids);
    graph->attention_mask = joined(graph, b->prompt_mask, b->mask);
    of->labels = labels_of(graph, of->tokens, graph->attention_mask, job->prompt_tokens);
    graph_mark(graph, MARK_ROOT_ENTER);
}

uint32_t grpo_input(struct graph *graph, enum input_kind kind)
{
    return kind == INPUT_TOKENS ? graph->preferences.tokens : graph->preferences.labels;
}

/* ---- the loss ---- */

/* What has a name until the function returns. */
struct steps {
    uint32_t log_probs, entropies; /* (b, c) */
    uint32_t log_ratio, ratio, divergence, per_token, clipped, gain, clipped_gain;
    uint32_t normalizer, policy_loss;
};

/* outputs.log_probs[:, -logits_to_keep:], joined of all chunks: there is one. */
static uint32_t of_completions(struct graph *graph, uint32_t x, uint32_t count, bool gradient)
{
    const uint32_t first = graph->tensors[x].shape.dim[1] - count;
    if (gradient)
        return op_cat_alone(graph, op_slice_last(graph, x, first, count));
    const uint32_t part = graph_slice(graph, x, first, count);
    return op_no_grad(graph, WORK_COPY, ATEN_CAT, DTYPE_FP32, graph->tensors[part].shape, 1, &part);
}

/* (exp(ref - p) - (ref - p) - 1) times the ratio (use_bias_correction_kl). */
static uint32_t divergence_of(struct graph *graph, uint32_t log_probs, uint32_t reference,
                              uint32_t policy_ratio)
{
    const uint32_t lost = op_sub(graph, reference, log_probs);
    const uint32_t ratio = op_unary(graph, OP_EXP, lost);
    graph_drop(graph, lost);
    const uint32_t again = op_sub(graph, reference, log_probs);
    const uint32_t more = op_sub(graph, ratio, again);
    graph_drop(graph, ratio);
    graph_drop(graph, again);
    const uint32_t plain = op_scalar(graph, OP_SUB_SCALAR, more, 1.0F);
    graph_drop(graph, more);
    const uint32_t corrected = op_mul(graph, plain, policy_ratio);
    graph_drop(graph, plain);
    return corrected;
}

/* The name goes from x to y. */
static uint32_t instead(struct graph *graph, uint32_t x, uint32_t y)
{
    graph_drop(graph, x);
    return y;
}

static void clip(struct graph *graph, const struct batch *b, struct steps *s)
{
    s->clipped = op_clip(graph, s->ratio, 1 - EPSILON, 1 + EPSILON);
    s->gain = op_mul_constant(graph, s->ratio, b->advantages);
    s->clipped_gain = op_mul_constant(graph, s->clipped, b->advantages);
    const uint32_t least = op_minimum(graph, s->gain, s->clipped_gain);
    s->per_token = instead(graph, least, op_unary(graph, OP_NEG, least));
}

/* CISPO: the ratio, at most so much, is a weight without a gradient. */
static void weigh(struct graph *graph, const struct batch *b, struct steps *s)
{
    const struct shape shape = graph->tensors[s->log_probs].shape;
    s->clipped =
        op_number(graph, WORK_AT_MOST, ATEN_CLAMP, DTYPE_FP32, shape, s->ratio, CISPO_MOST);
    const uint32_t minus = op_no_grad(graph, WORK_NEG, ATEN_NEG, DTYPE_FP32, shape, 1, &s->clipped);
    const uint32_t weight = instead(
        graph, minus, logged_both(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, minus, b->advantages));
    s->per_token = instead(graph, weight, op_mul_constant(graph, s->log_probs, weight));
}

static void find_ratio(struct graph *graph, uint32_t old, struct steps *s)
{
    s->log_ratio = op_sub(graph, s->log_probs, old);
    s->ratio = op_unary(graph, OP_EXP, s->log_ratio);
}

/* The same where nothing of the loss has a gradient by it. */
static void find_ratio_idle(struct graph *graph, uint32_t old, struct steps *s)
{
    const struct shape shape = graph->tensors[old].shape;
    s->log_ratio = logged_both(graph, WORK_SUB, ATEN_SUB, DTYPE_FP32, s->log_probs, old);
    s->ratio = op_no_grad(graph, WORK_EXP, ATEN_EXP, DTYPE_FP32, shape, 1, &s->log_ratio);
}

/* What _compute_loss has of each token. */
static struct steps tokens_of(struct graph *graph, const struct model_job *job,
                              const struct batch *b)
{
    const struct graph_scores *scores = &graph->preferences.scores;
    const uint32_t count = graph->tensors[b->mask].shape.dim[1];
    struct steps s = {.divergence = GRAPH_NONE, .gain = GRAPH_NONE, .clipped_gain = GRAPH_NONE};
    s.log_probs = of_completions(graph, scores->log_probs, count, true);
    s.entropies = of_completions(graph, scores->entropy, count, false);
    const uint32_t gone[] = {graph->preferences.labels, scores->count,   scores->loss,
                             scores->log_probs,         scores->entropy, scores->mask};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        graph_drop(graph, gone[i]);
    const uint32_t old = b->old != GRAPH_NONE ? b->old : graph_slice(graph, s.log_probs, 0, count);
    if (job->grpo.loss == GRPO_CISPO && b->reference == GRAPH_NONE)
        find_ratio_idle(graph, old, &s);
    else
        find_ratio(graph, old, &s);
    if (b->reference != GRAPH_NONE)
        s.divergence = divergence_of(graph, s.log_probs, b->reference, s.ratio);
    if (job->grpo.loss == GRPO_CISPO)
        weigh(graph, b, &s);
    else
        clip(graph, b, &s);
    if (b->sampling_ratio != GRAPH_NONE)
        s.per_token =
            instead(graph, s.per_token, op_mul_constant(graph, s.per_token, b->sampling_ratio));
    if (b->reference != GRAPH_NONE) {
        const uint32_t weighted = op_scalar(graph, OP_MUL_SCALAR, s.divergence, job->grpo.beta);
        const uint32_t sum = op_add(graph, s.per_token, weighted);
        graph_drop(graph, weighted);
        s.per_token = instead(graph, s.per_token, sum);
    }
    return s;
}

/* num_items_in_batch, of all ranks and all that is generated, as a micro-batch's share of an
 * optimizer step. */
static uint32_t share_of_items(struct graph *graph, const struct model_job *job,
                               const struct batch *b)
{
    const uint32_t items =
        op_number(graph, WORK_AT_LEAST, ATEN_CLAMP, DTYPE_FP32, SCALAR, b->items, 1.0F);
    const uint32_t own = instead(
        graph, items,
        op_number(graph, WORK_DIV_NUMBER, ATEN_DIV, DTYPE_FP32, SCALAR, items, (float)job->ranks));
    const uint32_t all = op_number(graph, WORK_MUL_NUMBER, ATEN_MUL, DTYPE_FP32, SCALAR, own,
                                   (float)job->micro_batches);
    const uint32_t share = op_number(graph, WORK_DIV_NUMBER, ATEN_DIV, DTYPE_FP32, SCALAR, all,
                                     (float)grpo_generated(job));
    graph_drop(graph, all);
    graph_drop(graph, own);
    return share;
}

/* Of each sequence (b), or of all (): how many tokens count, at least one. */
static uint32_t count_tokens(struct graph *graph, const struct batch *b, bool each)
{
    const struct shape shape = each ? SHAPE(graph->tensors[b->mask].shape.dim[0]) : SCALAR;
    const uint32_t sum = each ? op_sum_last_no_grad(graph, b->mask) : logged_sum(graph, b->mask);
    return instead(graph, sum,
                   op_number(graph, WORK_AT_LEAST, ATEN_CLAMP, DTYPE_FP32, shape, sum, 1.0F));
}

/* The sum of what counts over how many these are, by sequences or all at once; or over a number. */
static uint32_t mean_of(struct graph *graph, const struct model_job *job, const struct batch *b,
                        uint32_t per_token)
{
    const bool each = job->grpo.loss == GRPO_GRPO;
    const uint32_t masked = op_mul_constant(graph, per_token, b->mask);
    uint32_t sum = each ? op_sum_tokens(graph, masked) : op_sum_all(graph, masked);
    graph_drop(graph, masked);
    if (job->grpo.loss == GRPO_DR_GRPO)
        return instead(graph, sum,
                       op_scalar(graph, OP_DIV_SCALAR, sum,
                                 (float)shape_elements(&graph->tensors[b->mask].shape)));
    const uint32_t count = count_tokens(graph, b, each);
    const uint32_t mean = op_div_count(graph, sum, count);
    graph_drop(graph, sum);
    graph_drop(graph, count);
    return each ? instead(graph, mean, op_mean_all(graph, mean)) : mean;
}

static void divide(struct graph *graph, const struct model_job *job, const struct batch *b,
                   struct steps *s)
{
    s->normalizer = s->policy_loss = GRAPH_NONE;
    if (job->grpo.loss != GRPO_DAPO && job->grpo.loss != GRPO_CISPO) {
        s->policy_loss = mean_of(graph, job, b, s->per_token);
        graph->loss = op_scalar(graph, OP_DIV_SCALAR, s->policy_loss, (float)job->micro_batches);
        return;
    }
    s->normalizer = share_of_items(graph, job, b);
    const uint32_t masked = op_mul_constant(graph, s->per_token, b->mask);
    const uint32_t sum = instead(graph, masked, op_sum_all(graph, masked));
    graph->loss = instead(graph, sum, op_div_count(graph, sum, s->normalizer));
}

/* ---- what is logged ---- */

/* global_masked_mean: the sum of what counts of x (b, c) and how many these are, as ranks would
 * reduce both at once. `goes`: x was made for it. */
static void log_mean(struct graph *graph, uint32_t x, uint32_t mask, bool goes)
{
    const uint32_t masked = logged_both(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, x, mask);
    const uint32_t sum = instead(graph, masked, logged_sum(graph, masked));
    const uint32_t tokens = logged_sum(graph, mask);
    const uint32_t count = instead(
        graph, tokens, op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, SCALAR, 1, &tokens));
    const uint32_t totals = op_no_grad(graph, WORK_STACK, ATEN_STACK, DTYPE_FP32, SHAPE(2), 2,
                                       (uint32_t[]){sum, count});
    const uint32_t least =
        op_number(graph, WORK_AT_LEAST, ATEN_CLAMP, DTYPE_FP32, SCALAR,
                  graph_view(graph, graph_slice(graph, totals, 1, 1), SCALAR), 1.0F);
    const uint32_t total = graph_view(graph, graph_slice(graph, totals, 0, 1), SCALAR);
    logged_read(graph, instead(graph, least,
                               logged_both(graph, WORK_DIV, ATEN_DIV, DTYPE_FP32, total, least)));
    if (goes)
        graph_drop(graph, x);
    graph_drop(graph, sum);
    graph_drop(graph, count);
    graph_drop(graph, totals);
}

/* Bools (b, c) as numbers. */
static uint32_t as_numbers(struct graph *graph, uint32_t x)
{
    return op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, graph->tensors[x].shape, 1, &x);
}

/* Where the ratio is beyond a limit, and the advantage has that sign (b, c). */
static uint32_t beyond(struct graph *graph, uint32_t ratio, uint32_t advantages, bool above,
                       float limit)
{
    const enum work_kind work = above ? WORK_GREATER_NUMBER : WORK_LESS_NUMBER;
    const enum aten aten = above ? ATEN_GT : ATEN_LT;
    const uint32_t far =
        op_number(graph, work, aten, DTYPE_BOOL, graph->tensors[ratio].shape, ratio, limit);
    const uint32_t sign = op_number(graph, work, aten, DTYPE_BOOL, graph->tensors[advantages].shape,
                                    advantages, 0.0F);
    const uint32_t out = logged_both(graph, WORK_AND, ATEN_BITWISE_AND, DTYPE_BOOL, far, sign);
    graph_drop(graph, far);
    graph_drop(graph, sign);
    return out;
}

/* masked_seq_mean of bools: which share of each sequence's tokens are true (b). */
static uint32_t share_of_each(struct graph *graph, uint32_t x, uint32_t mask)
{
    const uint32_t numbers = as_numbers(graph, x);
    const uint32_t masked = logged_both(graph, WORK_MUL, ATEN_MUL, DTYPE_FP32, numbers, mask);
    const uint32_t sum = instead(graph, masked, op_sum_last_no_grad(graph, masked));
    const uint32_t tokens = op_sum_last_no_grad(graph, mask);
    const uint32_t share = logged_both(graph, WORK_DIV, ATEN_DIV, DTYPE_FP32, sum, tokens);
    graph_drop(graph, sum);
    graph_drop(graph, tokens);
    graph_drop(graph, numbers);
    return share;
}

static uint32_t is_nan(struct graph *graph, uint32_t x)
{
    return op_no_grad(graph, WORK_OTHER, ATEN_ISNAN, DTYPE_BOOL, graph->tensors[x].shape, 1, &x);
}

/* nanmin or nanmax of x (b), of which all are numbers. */
static void log_extreme(struct graph *graph, uint32_t x, enum aten aten)
{
    const struct shape shape = graph->tensors[x].shape;
    const uint32_t none = is_nan(graph, x);
    logged_read(
        graph,
        instead(graph, none, op_no_grad(graph, WORK_ALL, ATEN_ALL, DTYPE_BOOL, SCALAR, 1, &none)));
    const uint32_t again = is_nan(graph, x);
    const uint32_t there =
        instead(graph, again,
                op_no_grad(graph, WORK_OTHER, ATEN_BITWISE_NOT, DTYPE_BOOL, shape, 1, &again));
    const uint32_t values = instead(
        graph, there,
        op_no_grad(graph, WORK_OTHER, ATEN_INDEX, DTYPE_FP32, shape, 2, (uint32_t[]){x, there}));
    logged_read(graph,
                instead(graph, values,
                        op_no_grad(graph, WORK_OTHER, aten, DTYPE_FP32, SCALAR, 1, &values)));
}

/* What was clipped: below, above, either; and of which sequences least and most. */
static void log_clipped(struct graph *graph, const struct batch *b, const struct steps *s,
                        uint32_t named[5])
{
    named[0] = beyond(graph, s->ratio, b->advantages, false, 1 - EPSILON);
    named[1] = beyond(graph, s->ratio, b->advantages, true, 1 + EPSILON);
    named[2] = logged_both(graph, WORK_OR, ATEN_BITWISE_OR, DTYPE_BOOL, named[0], named[1]);
    for (uint32_t i = 0; i < 3; i++)
        log_mean(graph, as_numbers(graph, named[i]), b->mask, true);
    for (uint32_t i = 0; i < 2; i++) {
        named[3 + i] = share_of_each(graph, named[i], b->mask);
        log_extreme(graph, named[3 + i], i == 0 ? ATEN_MIN : ATEN_MAX);
    }
}

/* ---- all of it ---- */

static void drop(struct graph *graph, uint32_t x)
{
    if (x != GRAPH_NONE)
        graph_drop(graph, x);
}

void grpo_build(struct graph *graph, model_builder *builder, const struct model_config *config,
                const struct model_job *job)
{
    uint32_t named[5] = {GRAPH_NONE, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE, GRAPH_NONE};
    const struct batch b = batch_of(graph, job);
    make_inputs(graph, job, &b);
    graph->autocast.around = graph->autocast.on;
    builder(graph, config, job);
    graph->autocast.around = false;
    graph_leave_autocast(graph);
    struct steps s = tokens_of(graph, job, &b);
    divide(graph, job, &b, &s);
    if (s.divergence != GRAPH_NONE)
        log_mean(graph, s.divergence, b.mask, false);
    log_mean(graph, s.entropies, b.mask, false);
    if (job->grpo.loss == GRPO_CISPO) {
        named[0] = beyond(graph, s.ratio, b.advantages, true, CISPO_MOST);
        log_mean(graph, as_numbers(graph, named[0]), b.mask, true);
    } else {
        log_clipped(graph, &b, &s, named);
    }
    /* The function returns: its names go in the order in which they were given first. */
    const bool cispo = job->grpo.loss == GRPO_CISPO; /* which has what is clipped named earlier */
    const uint32_t gone[] = {graph->preferences.tokens,
                             graph->attention_mask,
                             s.entropies,
                             s.log_probs,
                             s.log_ratio,
                             s.ratio,
                             s.divergence,
                             cispo ? s.clipped : GRAPH_NONE,
                             s.per_token,
                             cispo ? GRAPH_NONE : s.clipped,
                             s.gain,
                             s.clipped_gain,
                             s.normalizer,
                             s.policy_loss,
                             named[0],
                             named[1],
                             named[2],
                             named[3],
                             named[4]};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        drop(graph, gone[i]);
    graph_mark(graph, MARK_LOSS);
}
