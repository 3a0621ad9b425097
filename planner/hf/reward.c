/* reward.c - a step of TRL's trainer of rewards (classify.h): -log sigmoid of what chosen has over
 * rejected, and what it logs, number by number, each of which the host waits for. What ranks gather
 * for the log stays on each. */
#include "hf/classify.h"
#include "model/logged.h"
#include "model/padded.h"

enum { CHOSEN, REJECTED, SIDES };

static void log_tokens(struct graph *graph, uint32_t attention_mask)
{
    logged_read(graph, logged_summed(graph, logged_sum(graph, attention_mask)));
}

static void log_accuracy(struct graph *graph, const uint32_t of[SIDES])
{
    const uint32_t right =
        logged_both(graph, WORK_GREATER, ATEN_GT_TENSOR, DTYPE_BOOL, of[CHOSEN], of[REJECTED]);
    const uint32_t wide = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32,
                                     graph->tensors[right].shape, 1, &right);
    graph_drop(graph, right);
    const uint32_t mean = logged_number(graph, WORK_MEAN, ATEN_MEAN_ALL, wide);
    graph_drop(graph, wide);
    logged_mean(graph, mean);
    graph_drop(graph, mean);
}

/* Its mean over all ranks, which has a name until the function returns. */
static uint32_t log_margin(struct graph *graph, const uint32_t of[SIDES])
{
    const uint32_t margins =
        logged_both(graph, WORK_SUB, ATEN_SUB, (enum dtype)graph->tensors[of[CHOSEN]].dtype,
                    of[CHOSEN], of[REJECTED]);
    const uint32_t own = logged_number(graph, WORK_MEAN, ATEN_MEAN_ALL, margins);
    graph_drop(graph, margins);
    const uint32_t all = logged_number(graph, WORK_MEAN, ATEN_MEAN_ALL, own);
    graph_drop(graph, own);
    op_read(graph, all);
    return all;
}

void hf_reward(struct graph *graph, const struct model_job *job, uint32_t rewards)
{
    uint32_t of[SIDES];
    const uint32_t attention_mask = padded_pairs_mask(graph, job);
    op_chunk(graph, graph_view(graph, rewards, SHAPE(job->batch)), SIDES, of);
    const uint32_t over = op_sub(graph, of[CHOSEN], of[REJECTED]);
    const uint32_t log = op_log_sigmoid(graph, over);
    graph_drop(graph, over);
    const uint32_t mean = op_mean_all(graph, log);
    graph_drop(graph, log);
    graph->loss = op_unary(graph, OP_NEG, mean);
    graph_drop(graph, mean);
    log_tokens(graph, attention_mask);
    logged_read(graph, logged_number(graph, WORK_OTHER, ATEN_MIN, rewards));
    logged_mean(graph, rewards);
    logged_read(graph, logged_number(graph, WORK_MAXIMUM, ATEN_MAX, rewards));
    log_accuracy(graph, of);
    const uint32_t margin = log_margin(graph, of);
    graph_drop(graph, rewards);
    graph_drop(graph, margin);
    graph_mark(graph, MARK_LOSS);
}
