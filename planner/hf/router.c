/* router.c - which experts a token goes to, and with what weights: see moe.h. */
#include "hf/hf.h"
#include "hf/moe.h"

#include <float.h>

struct softmax_way {
    bool cast_back; /* weights are in the dtype of the logits */
    bool one_name;  /* probabilities have the name that the best of them take */
    bool as_is;     /* the router takes rows as they are, and casts weights as it returns them */
};

/* Ends the call of a module that has begun. */
static struct hf_routing route_softmax(struct graph *graph, const struct model_config *c,
                                       const struct hf_moe *moe, uint32_t rows,
                                       struct softmax_way way)
{
    struct hf_routing r = {.in_place = false};
    /* Most routers flatten their input once more: a node between the product's and the sum of the
     * gradients of `rows`. */
    r.logits = apply_linear(graph, way.as_is ? rows : op_alias(graph, rows), moe->router);
    const uint32_t upcast = op_to(graph, r.logits, DTYPE_FP32);
    const uint32_t probabilities = op_softmax(graph, upcast);
    if (upcast != r.logits)
        graph_drop(graph, upcast);
    uint32_t best = op_topk(graph, probabilities, c->experts_per_token, &r.experts);
    if (way.one_name)
        graph_drop(graph, probabilities);
    if (c->norm_topk) {
        const uint32_t sum = op_sum_last(graph, best);
        best = op_div_inplace(graph, best, sum);
        graph_drop(graph, sum);
    }
    const enum dtype dtype = (enum dtype)graph->tensors[way.cast_back ? r.logits : best].dtype;
    r.weights = op_to(graph, best, dtype);
    if (way.as_is)
        graph_drop(graph, probabilities);
    if (r.weights != best)
        graph_rebind(graph, best, r.weights);
    if (!way.one_name && !way.as_is)
        graph_drop(graph, probabilities);
    graph_call_end(graph);
    return r;
}

struct hf_routing hf_route_mixtral(struct graph *graph, const struct model_config *c,
                                   const struct hf_moe *moe, uint32_t rows)
{
    hf_call(graph, moe->router.weight);
    return route_softmax(graph, c, moe, rows, (struct softmax_way){.cast_back = false});
}

struct hf_routing hf_route_qwen(struct graph *graph, const struct model_config *c,
                                const struct hf_moe *moe, uint32_t rows)
{
    hf_call(graph, moe->router.weight);
    return route_softmax(graph, c, moe, rows, (struct softmax_way){.cast_back = true});
}

struct hf_routing hf_route_jamba(struct graph *graph, const struct model_config *c,
                                 const struct hf_moe *moe, uint32_t rows)
{
    hf_call(graph, moe->router.weight);
    return route_softmax(graph, c, moe, rows,
                         (struct softmax_way){.cast_back = true, .as_is = true});
}

struct hf_routing hf_route_hunyuan(struct graph *graph, const struct model_config *c,
                                   const struct hf_moe *moe, uint32_t rows)
{
    hf_call_outer(graph, moe->router.weight);
    return route_softmax(graph, c, moe, rows,
                         (struct softmax_way){.cast_back = true, .one_name = true});
}

/* What experts are chosen by: scores plus what they are corrected by, in the wider dtype of both.
 */
static uint32_t corrected(struct graph *graph, uint32_t scores, uint32_t correction)
{
    const struct graph_tensor *s = &graph->tensors[scores], *c = &graph->tensors[correction];
    const enum dtype dtype = s->dtype == c->dtype ? (enum dtype)s->dtype : DTYPE_FP32;
    return op_no_grad(graph, WORK_ADD, ATEN_ADD, dtype, s->shape, 2,
                      (uint32_t[]){scores, correction});
}

struct hf_routing hf_route_minimax_m2(struct graph *graph, const struct model_config *c,
                                      const struct hf_moe *moe, uint32_t rows)
{
    struct hf_routing r = {.in_place = false};
    hf_call(graph, moe->router.weight);
    r.logits = apply_linear(graph, op_alias(graph, rows), moe->router);
    const uint32_t upcast = op_to(graph, r.logits, DTYPE_FP32);
    const uint32_t scores = op_unary(graph, OP_SIGMOID, upcast);
    if (upcast != r.logits)
        graph_drop(graph, upcast);
    const uint32_t choice = corrected(graph, scores, moe->correction);
    const uint32_t best = op_topk_no_grad(graph, choice, c->experts_per_token, &r.experts);
    const uint32_t chosen = op_gather(graph, scores, r.experts);
    const uint32_t sum = op_sum_last(graph, chosen);
    r.weights = op_div_inplace(graph, chosen, sum);
    graph_drop(graph, sum);
    graph_drop(graph, scores);
    graph_drop(graph, choice);
    graph_drop(graph, best);
    graph_call_end(graph);
    return r;
}

struct hf_routing hf_route_gpt_oss(struct graph *graph, const struct model_config *c,
                                   const struct hf_moe *moe, uint32_t rows)
{
    hf_call(graph, moe->router.weight);
    struct hf_routing r = {.logits = apply_linear(graph, rows, moe->router)};
    const uint32_t best = op_topk(graph, r.logits, c->experts_per_token, &r.experts);
    r.weights = op_softmax_as_is(graph, best);
    graph_drop(graph, best);
    graph_call_end(graph);
    return r;
}

struct hf_routing hf_route_cohere(struct graph *graph, const struct model_config *c,
                                  const struct hf_moe *moe, uint32_t rows)
{
    hf_call(graph, moe->router.weight);
    struct hf_routing r = {.logits = apply_linear(graph, rows, moe->router)};
    uint32_t best = op_topk(graph, r.logits, c->experts_per_token, &r.experts), shares;
    if (c->sigmoid_scores) {
        shares = op_unary(graph, OP_SIGMOID, best);
    } else {
        const uint32_t upcast = op_to(graph, best, DTYPE_FP32);
        shares = op_softmax(graph, upcast);
        if (upcast != best)
            graph_drop(graph, upcast);
    }
    graph_rebind(graph, best, shares);
    if (c->sigmoid_scores && c->norm_topk) {
        const uint32_t sum = op_sum_last(graph, shares);
        best = op_div(graph, shares, sum);
        graph_drop(graph, sum);
        graph_rebind(graph, shares, best);
        shares = best;
    }
    r.weights = op_to(graph, shares, (enum dtype)graph->tensors[rows].dtype);
    if (r.weights != shares)
        graph_rebind(graph, shares, r.weights);
    graph_call_end(graph);
    return r;
}

struct hf_routing hf_route_granite(struct graph *graph, const struct model_config *c,
                                   const struct hf_moe *moe, uint32_t rows)
{
    struct hf_routing r = {.in_place = false};
    hf_call(graph, moe->router.weight);
    const uint32_t product = apply_linear(graph, rows, moe->router);
    r.logits = op_to(graph, product, DTYPE_FP32);
    if (r.logits != product)
        graph_drop(graph, product);
    const uint32_t best = op_topk(graph, r.logits, c->experts_per_token, &r.experts);
    const uint32_t share = op_softmax_as_is(graph, best);
    r.weights = op_to(graph, share, (enum dtype)graph->tensors[rows].dtype);
    if (r.weights != share)
        graph_drop(graph, share);
    graph_drop(graph, best);
    graph_call_end(graph);
    return r;
}

/* ---- groups ---- */

/* Groups of experts are chosen outside of what has a gradient, though autograd has nodes for it:
 * they keep what they save until Python lets go of what they lead to. */
struct grouped {
    uint32_t scores, best, mask, experts; /* (t, G), (t, g), (t, G), (t, E): Python's */
    uint32_t others;                      /* (t, E) bool: experts of groups that are not the best */
};

static uint32_t no_grad1(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                         struct shape shape, uint32_t x)
{
    return op_no_grad(graph, work, aten, dtype, shape, 1, &x);
}

/* Where the logits have a gradient: by the router's weight, or by what it is given. */
static void keep(struct graph *graph, uint32_t logits, uint32_t tensor, uint32_t kept)
{
    graph_keeps(graph, tensor, kept, logits);
}

/* (t, E) as (t, G, E / G). */
static uint32_t in_groups(struct graph *graph, const struct model_config *c, uint32_t x)
{
    const uint32_t t = graph->tensors[x].shape.dim[0];
    return graph_view(graph, x, SHAPE(t, c->groups, c->experts / c->groups));
}

static struct grouped choose_groups(struct graph *graph, const struct model_config *c,
                                    uint32_t scores)
{
    const struct shape groups = graph->tensors[scores].shape;
    const struct shape all = SHAPE(groups.dim[0], c->experts);
    const enum dtype dtype = (enum dtype)graph->tensors[scores].dtype;
    struct grouped g = {.scores = scores, .experts = GRAPH_NONE};
    graph_drop(graph, op_topk_no_grad(graph, scores, c->topk_groups, &g.best));
    uint32_t wide = g.mask = op_fill(graph, ATEN_ZEROS_LIKE, dtype, groups, 0.0F);
    op_put_number(graph, g.mask, g.best, 1.0F);
    if (c->groups > 1) { /* one, expanded, reshapes without a copy */
        g.experts = op_repeat_no_grad(graph, ATEN_CLONE, g.mask,
                                      SHAPE(all.dim[0], c->groups, c->experts / c->groups), 2);
        wide = graph_view(graph, g.experts, all);
    }
    const uint32_t chosen = no_grad1(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_BOOL, all, wide);
    g.others = op_number(graph, WORK_EQUAL_NUMBER, ATEN_BITWISE_NOT, DTYPE_BOOL, all, chosen, 0.0F);
    graph_drop(graph, chosen);
    return g;
}

static void drop_groups(struct graph *graph, const struct grouped *g)
{
    graph_drop(graph, g->scores);
    graph_drop(graph, g->best);
    graph_drop(graph, g->mask);
    if (g->experts != GRAPH_NONE)
        graph_drop(graph, g->experts);
}

/* The product in fp32, whatever rows (t, h) and the weight are in. */
static uint32_t wide_product(struct graph *graph, const struct hf_moe *moe, uint32_t rows)
{
    const uint32_t x = op_to(graph, rows, DTYPE_FP32);
    const uint32_t weight = op_to(graph, moe->router.weight, DTYPE_FP32);
    const uint32_t logits = op_linear(graph, x, weight, GRAPH_NONE);
    if (x != rows)
        graph_drop(graph, x);
    if (weight != moe->router.weight)
        graph_drop(graph, weight);
    return logits;
}

/* The same of y (b, s, h). */
static uint32_t wide_logits(struct graph *graph, const struct hf_moe *moe, uint32_t y)
{
    const struct shape s = graph->tensors[y].shape;
    return wide_product(graph, moe, op_view_node(graph, y, SHAPE(s.dim[0] * s.dim[1], s.dim[2])));
}

struct hf_routing hf_route_ernie(struct graph *graph, const struct model_config *c,
                                 const struct hf_moe *moe, uint32_t rows)
{
    hf_call(graph, moe->router.weight);
    struct hf_routing r = {.logits = wide_product(graph, moe, rows)};
    const uint32_t scores = op_softmax_as_is(graph, r.logits);
    const uint32_t choice =
        corrected(graph, scores, graph_view(graph, moe->correction, SHAPE(c->experts)));
    const uint32_t best = op_topk_no_grad(graph, choice, c->experts_per_token, &r.experts);
    graph_drop(graph, choice);
    const uint32_t chosen = op_gather(graph, scores, r.experts);
    graph_drop(graph, scores);
    const uint32_t sum = op_sum_last(graph, chosen);
    const uint32_t least = op_at_least(graph, sum, c->router_least);
    graph_drop(graph, sum);
    const uint32_t shares = op_div(graph, chosen, least);
    graph_drop(graph, least);
    graph_rebind(graph, chosen, shares);
    r.weights = op_to(graph, shares, (enum dtype)graph->tensors[rows].dtype);
    if (r.weights != shares)
        graph_rebind(graph, shares, r.weights);
    graph_drop(graph, best);
    graph_call_end(graph);
    return r;
}

/* `best` times the scaling factor, which takes its name. */
static uint32_t scaled(struct graph *graph, const struct model_config *c, uint32_t best)
{
    const uint32_t weights = op_scalar(graph, OP_MUL_SCALAR, best, c->routed_scaling);
    graph_rebind(graph, best, weights);
    return weights;
}

/* `x` divided by the sum of each row and a least number, which takes its name. */
static uint32_t divided(struct graph *graph, uint32_t x, float least)
{
    const uint32_t bare = op_sum_last(graph, x);
    const uint32_t sum = op_scalar(graph, OP_ADD_SCALAR, bare, least);
    graph_drop(graph, bare);
    const uint32_t shares = op_div(graph, x, sum);
    graph_drop(graph, sum);
    graph_rebind(graph, x, shares);
    return shares;
}

struct hf_routing hf_route_hy_v3(struct graph *graph, const struct model_config *c,
                                 const struct hf_moe *moe, uint32_t rows)
{
    hf_call(graph, moe->router.weight);
    struct hf_routing r = {.logits = wide_product(graph, moe, op_alias(graph, rows))};
    const uint32_t scores = op_unary(graph, OP_SIGMOID, r.logits);
    const uint32_t choice = corrected(graph, scores, moe->correction);
    const uint32_t best = op_topk_no_grad(graph, choice, c->experts_per_token, &r.experts);
    const uint32_t chosen = op_gather(graph, scores, r.experts);
    r.weights = scaled(graph, c, divided(graph, chosen, 1e-20F));
    graph_drop(graph, scores);
    graph_drop(graph, choice);
    graph_drop(graph, best);
    graph_call_end(graph);
    return r;
}

struct hf_routing hf_route_afmoe(struct graph *graph, const struct model_config *c,
                                 const struct hf_moe *moe, uint32_t y)
{
    const struct shape s = graph->tensors[y].shape;
    struct hf_routing r = {.in_place = false};
    hf_call_outer(graph, moe->router.weight);
    const uint32_t rows = op_view_node(graph, y, SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
    const uint32_t product = apply_linear(graph, rows, moe->router);
    r.logits = op_to(graph, product, DTYPE_FP32);
    if (r.logits != product)
        graph_drop(graph, product);
    const uint32_t scores = op_unary(graph, OP_SIGMOID, r.logits);
    const uint32_t choice = corrected(graph, scores, moe->correction);
    const uint32_t best = op_topk_no_grad(graph, choice, c->experts_per_token, &r.experts);
    graph_drop(graph, choice);
    const uint32_t chosen = op_gather(graph, scores, r.experts);
    const uint32_t bare = op_sum_last(graph, chosen);
    const uint32_t sum = op_scalar(graph, OP_ADD_SCALAR, bare, 1e-20F);
    graph_drop(graph, bare);
    const uint32_t shares = op_div(graph, chosen, sum);
    graph_rebind(graph, chosen, shares);
    r.weights = scaled(graph, c, shares);
    graph_drop(graph, best);
    graph_drop(graph, scores);
    graph_drop(graph, sum);
    graph_call_end(graph);
    return r;
}

struct hf_routing hf_route_lfm2(struct graph *graph, const struct model_config *c,
                                const struct hf_moe *moe, uint32_t rows)
{
    hf_call(graph, moe->router.weight);
    struct hf_routing r = {.logits = apply_linear(graph, rows, moe->router)};
    const uint32_t scores = op_unary(graph, OP_SIGMOID, r.logits);
    const uint32_t choice = corrected(graph, scores, moe->correction);
    const uint32_t best = op_topk_no_grad(graph, choice, c->experts_per_token, &r.experts);
    const uint32_t chosen = op_gather(graph, scores, r.experts);
    graph_rebind(graph, scores, chosen);
    r.weights = scaled(graph, c, c->norm_topk ? divided(graph, chosen, 1e-6F) : chosen);
    graph_drop(graph, choice);
    graph_drop(graph, best);
    graph_call_end(graph);
    return r;
}

/* Of scores (t, E), which go, the experts chosen by `choice`, which may be those: in groups that
 * are the best by the sum of their two best, of which the others are lowered. Ends the call of a
 * module that has begun. */
static void route_in_groups(struct graph *graph, const struct model_config *c, uint32_t scores,
                            uint32_t choice, float least, struct hf_routing *r)
{
    uint32_t places;
    const uint32_t two = op_topk_no_grad(graph, in_groups(graph, c, choice), 2, &places);
    graph_drop(graph, places);
    const uint32_t sums = op_sum_last_no_grad(graph, two);
    keep(graph, r->logits, sums, places);
    graph_drop(graph, two);
    const struct grouped g = choose_groups(graph, c, sums);
    const uint32_t lowered = op_masked_no_grad(graph, choice, g.others, least);
    keep(graph, r->logits, lowered, g.others);
    graph_drop(graph, g.others);
    if (choice != scores)
        graph_drop(graph, choice);
    graph_drop(graph, op_topk_no_grad(graph, lowered, c->experts_per_token, &r->experts));
    uint32_t weights = op_gather(graph, scores, r->experts), sum = GRAPH_NONE;
    if (c->norm_topk) {
        const uint32_t bare = op_sum_last(graph, weights);
        sum = op_scalar(graph, OP_ADD_SCALAR, bare, 1e-20F);
        graph_drop(graph, bare);
        weights = op_div_inplace(graph, weights, sum);
    }
    r->weights = scaled(graph, c, weights);
    graph_drop(graph, scores);
    if (choice != scores) /* it has a name before groups have theirs */
        graph_drop(graph, lowered);
    drop_groups(graph, &g);
    if (choice == scores)
        graph_drop(graph, lowered);
    if (sum != GRAPH_NONE)
        graph_drop(graph, sum);
    graph_call_end(graph);
}

struct hf_routing hf_route_deepseek_v3(struct graph *graph, const struct model_config *c,
                                       const struct hf_moe *moe, uint32_t y)
{
    hf_call(graph, moe->router.weight);
    struct hf_routing r = {.logits = wide_logits(graph, moe, y)};
    const uint32_t scores = op_unary(graph, OP_SIGMOID, r.logits);
    const uint32_t choice = corrected(graph, scores, moe->correction);
    /* minus infinity in Python: no number is below this one either */
    route_in_groups(graph, c, scores, choice, -FLT_MAX, &r);
    return r;
}

struct hf_routing hf_route_mistral4(struct graph *graph, const struct model_config *c,
                                    const struct hf_moe *moe, uint32_t y)
{
    const struct shape s = graph->tensors[y].shape;
    hf_call(graph, moe->router.weight);
    const uint32_t rows = op_view_node(graph, y, SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
    struct hf_routing r = {.logits = apply_linear(graph, rows, moe->router)};
    const uint32_t scores = op_softmax(graph, r.logits);
    route_in_groups(graph, c, scores, scores, 0, &r);
    return r;
}

struct hf_routing hf_route_deepseek_v2(struct graph *graph, const struct model_config *c,
                                       const struct hf_moe *moe, uint32_t y)
{
    hf_call(graph, moe->router.weight);
    struct hf_routing r = {.logits = wide_logits(graph, moe, y)};
    const uint32_t upcast = op_to(graph, r.logits, DTYPE_FP32);
    uint32_t scores = op_softmax_as_is(graph, upcast), places;
    struct grouped g = {.scores = GRAPH_NONE};
    if (upcast != r.logits)
        graph_drop(graph, upcast);
    if (c->limited_groups) {
        const uint32_t largest = op_max_no_grad(graph, in_groups(graph, c, scores), &places);
        keep(graph, r.logits, largest, places);
        graph_drop(graph, places);
        g = choose_groups(graph, c, largest);
        const uint32_t masked = op_masked_zero(graph, scores, g.others);
        graph_drop(graph, g.others);
        graph_rebind(graph, scores, masked);
        scores = masked;
    }
    const uint32_t best = op_topk(graph, scores, c->experts_per_token, &r.experts);
    r.weights = scaled(graph, c, best);
    graph_drop(graph, scores);
    if (c->limited_groups)
        drop_groups(graph, &g);
    graph_call_end(graph);
    return r;
}
