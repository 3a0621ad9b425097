/* sampled.c - Phi-MoE's router, which draws experts at random: see moe.h. */
#include "hf/hf.h"
#include "hf/moe.h"

#include <float.h>

static uint32_t elementwise(struct graph *graph, enum work_kind work, enum aten aten,
                            enum dtype dtype, struct shape shape, uint32_t x, uint32_t y)
{
    return op_no_grad(graph, work, aten, dtype, shape, 2, (uint32_t[]){x, y});
}

/* Room for random numbers. */
static uint32_t noise_like(struct graph *graph, uint32_t x, struct shape shape)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    return op_no_grad(graph, WORK_OTHER, ATEN_EMPTY_LIKE, dtype, shape, 0, NULL);
}

/* Which scores (t, E) are too far below the best (t, 1), relative to `factor`: of bools, which take
 * the name of the best. */
static uint32_t too_low(struct graph *graph, const struct model_config *c, uint32_t scores,
                        uint32_t best, uint32_t factor)
{
    const struct shape all = graph->tensors[scores].shape;
    const enum dtype dtype = (enum dtype)graph->tensors[scores].dtype;
    const uint32_t below =
        elementwise(graph, WORK_SUB, ATEN_SUB, dtype, all, graph_expand(graph, best, all), scores);
    const uint32_t share = elementwise(graph, WORK_DIV, ATEN_DIV, dtype, all, below, factor);
    graph_drop(graph, below);
    const uint32_t mask = op_number(graph, WORK_GREATER_NUMBER, ATEN_GT, DTYPE_BOOL, all, share,
                                    2 * c->router_jitter);
    graph_drop(graph, share);
    graph_rebind(graph, best, mask);
    return mask;
}

/* |scores|, at least `best`. */
static uint32_t at_least_best(struct graph *graph, uint32_t scores, uint32_t best)
{
    const struct shape all = graph->tensors[scores].shape;
    const enum dtype dtype = (enum dtype)graph->tensors[scores].dtype;
    const uint32_t size = op_no_grad(graph, WORK_ABS, ATEN_ABS, dtype, all, 1, &scores);
    const uint32_t factor =
        elementwise(graph, WORK_OTHER, ATEN_CLAMP_TENSOR, dtype, all, size, best);
    graph_drop(graph, size);
    return factor;
}

/* Gumbel's sampling: the largest of the scores less the logarithm of random numbers: (t, 1). */
static uint32_t draw(struct graph *graph, uint32_t gates)
{
    const struct shape all = graph->tensors[gates].shape;
    const enum dtype dtype = (enum dtype)graph->tensors[gates].dtype;
    uint32_t drawn;
    const uint32_t noise = noise_like(graph, gates, all);
    uint32_t taken = noise;
    if (graph->autocast.on && dtype != DTYPE_FP32) /* which takes logarithms in fp32 */
        taken = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_FP32, all, 1, &noise);
    const uint32_t log = op_number(graph, WORK_LOG, ATEN_LOG,
                                   (enum dtype)graph->tensors[taken].dtype, all, taken, 0);
    if (taken != noise)
        graph_drop(graph, taken);
    graph_drop(graph, noise);
    const uint32_t disturbed = op_sub(graph, gates, log);
    graph_drop(graph, log);
    const uint32_t largest = op_max_no_grad(graph, disturbed, &drawn);
    graph_drop(graph, disturbed);
    graph_drop(graph, largest);
    return graph_view(graph, drawn, SHAPE(all.dim[0], 1));
}

/* Of a choice; what Python keeps until the router has both. */
struct choice_of {
    uint32_t experts, shares, weights; /* (t, 1) int64, (t, E), (t, 1) */
    uint32_t best, place;              /* the largest share, and where it is: (t, 1) */
    uint32_t factors;                  /* (t, 1) */
    uint32_t weighted;                 /* (t, 1): weights times factors */
};

/* What a name had before: it goes when it is given to another. */
static void let_go(struct graph *graph, uint32_t before)
{
    if (before != GRAPH_NONE)
        graph_drop(graph, before);
}

/* 1 where what was drawn is the best or another random number is large, else 1/3. */
static uint32_t heun_factors(struct graph *graph, const struct choice_of *choice)
{
    const struct shape one = graph->tensors[choice->best].shape;
    const enum dtype dtype = (enum dtype)graph->tensors[choice->best].dtype;
    const uint32_t same = elementwise(graph, WORK_EQUAL, ATEN_EQ_TENSOR, DTYPE_BOOL, one,
                                      choice->experts, choice->place);
    const uint32_t noise = op_no_grad(graph, WORK_OTHER, ATEN_RAND_LIKE, dtype, one, 0, NULL);
    const uint32_t large =
        op_number(graph, WORK_GREATER_NUMBER, ATEN_GT, DTYPE_BOOL, one, noise, 0.75F);
    graph_drop(graph, noise);
    const uint32_t either =
        elementwise(graph, WORK_OR, ATEN_LOGICAL_OR, DTYPE_BOOL, one, same, large);
    graph_drop(graph, same);
    graph_drop(graph, large);
    const uint32_t wide =
        op_number(graph, WORK_AT_LEAST, ATEN_ADD, DTYPE_FP32, one, either, 0.3333F);
    uint32_t factors = wide;
    if (dtype != DTYPE_FP32) {
        factors = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, dtype, one, 1, &wide);
        graph_drop(graph, wide);
    }
    graph_drop(graph, either);
    return factors;
}

/* One of those that `mask` leaves of `gates` (t, E), and its weight. `place` and `before` are what
 * names that are given to others have. */
static struct choice_of choose(struct graph *graph, uint32_t scores, uint32_t gates, uint32_t mask,
                               uint32_t place, const struct choice_of *before)
{
    struct choice_of choice = {.factors = GRAPH_NONE};
    const uint32_t near = op_masked_number(graph, gates, mask, -FLT_MAX);
    choice.experts = draw(graph, near);
    choice.shares = op_softmax(graph, near);
    graph_rebind(graph, near, choice.shares);
    choice.weights = op_gather(graph, choice.shares, choice.experts);
    choice.best = op_max_kept_no_grad(graph, choice.shares, &choice.place);
    graph_keeps(graph, choice.best, choice.place, scores);
    let_go(graph, before ? before->best : GRAPH_NONE);
    let_go(graph, place);
    choice.factors = heun_factors(graph, &choice);
    choice.weighted =
        op_sampled_weight(graph, &(struct sampled){scores, choice.weights, choice.experts,
                                                   choice.shares, choice.factors});
    return choice;
}

uint32_t hf_jitter(struct graph *graph, uint32_t x)
{
    const uint32_t noise = noise_like(graph, x, graph->tensors[x].shape);
    const uint32_t out = op_mul_in_place(graph, x, noise);
    graph_drop(graph, noise);
    return out;
}

/* The same of y (b, s, h) seen as rows, which it returns. */
static uint32_t jitter_rows(struct graph *graph, uint32_t y)
{
    const struct shape s = graph->tensors[y].shape;
    const uint32_t noise = noise_like(graph, y, SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
    const uint32_t rows = op_mul_rows_in_place(graph, y, noise);
    graph_drop(graph, noise);
    return rows;
}

struct hf_routing hf_route_phimoe(struct graph *graph, const struct model_config *c,
                                  const struct hf_moe *moe, uint32_t rows)
{
    uint32_t place;
    hf_call(graph, moe->router.weight);
    const bool jitters = c->input_jitter > 0;
    const uint32_t input = jitters ? jitter_rows(graph, rows) : rows;
    struct hf_routing r = {.in_place = jitters, .rows = input};
    r.logits = apply_linear(graph, input, moe->router);
    const uint32_t scores = r.logits;
    const uint32_t best = op_max_kept_no_grad(graph, scores, &place);
    const uint32_t factor = at_least_best(graph, scores, best);
    const uint32_t mask = too_low(graph, c, scores, best, factor);
    const struct choice_of first = choose(graph, scores, scores, mask, place, NULL);

    const uint32_t others = op_scatter_number(graph, scores, first.experts, -FLT_MAX);
    const uint32_t second_best = op_max_kept_no_grad(graph, others, &place);
    graph_rebind(graph, mask, second_best);
    graph_drop(graph, first.place);
    const uint32_t second_factor = at_least_best(graph, scores, second_best);
    graph_drop(graph, factor);
    const uint32_t second_mask = too_low(graph, c, scores, second_best, second_factor);
    const struct choice_of second = choose(graph, scores, others, second_mask, place, &first);

    r.weights = op_cat_last(graph, first.weighted, second.weighted);
    graph_drop(graph, first.weighted);
    const struct shape two = graph->tensors[r.weights].shape;
    r.experts =
        elementwise(graph, WORK_CAT, ATEN_CAT, DTYPE_INT64, two, first.experts, second.experts);
    graph_drop(graph, first.experts);
    graph_drop(graph, second_mask);
    graph_drop(graph, second.place);
    graph_drop(graph, second_factor);
    graph_drop(graph, first.shares);
    graph_drop(graph, first.weights);
    graph_drop(graph, second.best);
    graph_drop(graph, first.factors);
    graph_drop(graph, others);
    graph_drop(graph, second.shares);
    graph_drop(graph, second.experts);
    graph_drop(graph, second.weights);
    graph_drop(graph, second.factors);
    graph_drop(graph, second.weighted);
    graph_call_end(graph);
    return r;
}
