/* build_qwen3.c - Qwen3 as torchtitan writes it: titan.h's decoder with a norm on each head of q
 * and k, RoPE by halves in the compute dtype, and grouped heads left to the kernel. */
#include "model/builder.h"
#include "model/titan.h"

static struct titan_attention declare(struct graph *graph, const struct model_config *c,
                                      const char *prefix, struct param_init last)
{
    struct titan_attention a = {.wq = {0, 0}};
    const uint32_t h_q = c->heads * c->head_dim, h_kv = c->kv_heads * c->head_dim;
    a.q_norm = build_norm(graph, prefix, "q_norm", c->head_dim, false, c->norm_eps);
    a.k_norm = build_norm(graph, prefix, "k_norm", c->head_dim, false, c->norm_eps);
    a.wq = build_linear(graph, prefix, "wq", h_q, c->hidden, false);
    a.wk = build_linear(graph, prefix, "wk", h_kv, c->hidden, false);
    a.wv = build_linear(graph, prefix, "wv", h_kv, c->hidden, false);
    a.wo = build_linear(graph, prefix, "wo", c->hidden, h_q, false);
    graph_init_param(graph, a.wo.weight, last);
    return a;
}

/* x cos + (-high x, low x) sin; x (b, s, a, d), cos and sin (1, s, 1, d). */
static uint32_t rotate(struct graph *graph, uint32_t x, uint32_t cos, uint32_t sin)
{
    const uint32_t half = graph->tensors[x].shape.dim[3] / 2;
    const uint32_t straight = op_mul(graph, x, cos);
    const uint32_t low = op_slice_last(graph, x, 0, half);
    const uint32_t minus = op_unary(graph, OP_NEG, op_slice_last(graph, x, half, half));
    const uint32_t turned = op_cat_last(graph, minus, low);
    graph_drop(graph, minus);
    const uint32_t crossed = op_mul(graph, turned, sin);
    graph_drop(graph, turned);
    const uint32_t out = op_add(graph, straight, crossed);
    graph_drop(graph, straight);
    graph_drop(graph, crossed);
    return out;
}

static uint32_t attend(struct graph *graph, const struct model_config *c,
                       const struct model_job *job, const struct titan_attention *a, uint32_t y,
                       uint32_t table)
{
    const uint32_t d = c->head_dim;
    const struct shape q_shape = SHAPE(job->batch, job->seq, c->heads, d);
    const struct shape kv_shape = SHAPE(job->batch, job->seq, c->kv_heads, d);
    const uint32_t q0 = graph_view(graph, apply_linear(graph, y, a->wq), q_shape);
    const uint32_t k0 = graph_view(graph, apply_linear(graph, y, a->wk), kv_shape);
    const uint32_t v = build_heads(graph, apply_linear(graph, y, a->wv), kv_shape);
    const uint32_t q1 = apply_norm(graph, q0, a->q_norm);
    graph_drop(graph, q0);
    const uint32_t k1 = apply_norm(graph, k0, a->k_norm);
    graph_drop(graph, k0);
    const uint32_t rows = graph_view(graph, table, SHAPE(1, job->seq, 1, 2 * d));
    const enum dtype dtype = (enum dtype)graph->tensors[q1].dtype;
    const uint32_t cos = op_to(graph, graph_slice(graph, rows, 0, d), dtype);
    const uint32_t sin = op_to(graph, graph_slice(graph, rows, d, d), dtype);
    const uint32_t q = rotate(graph, q1, cos, sin);
    const uint32_t k = rotate(graph, k1, cos, sin);
    if (graph->tensors[cos].storage != graph->tensors[table].storage) {
        graph_drop(graph, cos);
        graph_drop(graph, sin);
    }
    graph_drop(graph, q1);
    graph_drop(graph, k1);
    const uint32_t o = op_attention(graph, q, k, v, true, 0);
    const uint32_t out =
        apply_linear(graph, graph_view(graph, o, SHAPE(job->batch, job->seq, c->heads * d)), a->wo);
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v);
    graph_drop(graph, o);
    return out;
}

static uint32_t make_table(struct graph *graph, const struct model_config *c,
                           const struct model_job *job)
{
    return build_rope(graph, c, job, ROPE_TURNS, c->head_dim);
}

void build_qwen3(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    static const struct titan_way way = {.table = make_table, .declare = declare, .attend = attend};
    titan_build(graph, c, job, &way);
}
