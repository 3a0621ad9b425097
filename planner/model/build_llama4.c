/* build_llama4.c - Llama 4 as torchtitan writes it where attention is
 * scaled_dot_product_attention's (flavors without "irope"): titan.h's decoder, with RoPE in complex
 * fp32 in every layer, and experts whose rows are weighted before they compute. */
#include "model/builder.h"
#include "model/titan.h"

static struct titan_attention declare(struct graph *graph, const struct model_config *c,
                                      const char *prefix, struct param_init last)
{
    struct titan_attention a = {.wq = {0, 0}};
    const uint32_t h_q = c->heads * c->head_dim, h_kv = c->kv_heads * c->head_dim;
    a.wq = build_linear(graph, prefix, "wq", h_q, c->hidden, false);
    a.wk = build_linear(graph, prefix, "wk", h_kv, c->hidden, false);
    a.wv = build_linear(graph, prefix, "wv", h_kv, c->hidden, false);
    a.wo = build_linear(graph, prefix, "wo", c->hidden, h_q, false);
    graph_init_param(graph, a.wo.weight, last);
    return a;
}

/* q and k (b, s, a, d), each step of both. */
static void rotate(struct graph *graph, uint32_t freqs, uint32_t qk[2])
{
    uint32_t wide[2], product[2];
    struct graph_tensor t[2];
    for (int i = 0; i < 2; i++) {
        t[i] = graph->tensors[qk[i]];
        wide[i] = op_to(graph, qk[i], DTYPE_FP32);
    }
    for (int i = 0; i < 2; i++) {
        const struct shape s = t[i].shape;
        const struct shape pairs = SHAPE(s.dim[0], s.dim[1], s.dim[2], s.dim[3] / 2);
        product[i] =
            op_mul_constant(graph, graph_view_dtype(graph, wide[i], DTYPE_COMPLEX64, pairs), freqs);
    }
    for (int i = 0; i < 2; i++)
        qk[i] = op_to(graph, graph_view_dtype(graph, product[i], DTYPE_FP32, t[i].shape),
                      (enum dtype)t[i].dtype);
    for (int i = 0; i < 2; i++)
        graph_drop(graph, wide[i]);
    for (int i = 0; i < 2; i++)
        graph_drop(graph, product[i]);
}

static uint32_t attend(struct graph *graph, const struct model_config *c,
                       const struct model_job *job, const struct titan_attention *a, uint32_t y,
                       uint32_t table)
{
    const struct shape q_shape = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    const struct shape kv_shape = SHAPE(job->batch, job->seq, c->kv_heads, c->head_dim);
    const uint32_t q0 = graph_view(graph, apply_linear(graph, y, a->wq), q_shape);
    const uint32_t k0 = graph_view(graph, apply_linear(graph, y, a->wk), kv_shape);
    const uint32_t v = graph_view(graph, apply_linear(graph, y, a->wv), kv_shape);
    uint32_t qk[2] = {q0, k0};
    rotate(graph, table, qk);
    graph_drop(graph, q0);
    graph_drop(graph, k0);
    const uint32_t o = op_attention(graph, qk[0], qk[1], v, true, 0);
    const uint32_t out = apply_linear(
        graph, graph_view(graph, o, SHAPE(job->batch, job->seq, c->heads * c->head_dim)), a->wo);
    graph_drop(graph, qk[0]);
    graph_drop(graph, qk[1]);
    graph_drop(graph, v);
    graph_drop(graph, o);
    return out;
}

static uint32_t make_table(struct graph *graph, const struct model_config *c,
                           const struct model_job *job)
{
    return build_rope(graph, c, job, ROPE_COMPLEX, c->head_dim);
}

void build_llama4(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    static const struct titan_way way = {.scores = {.sigmoid = true, .before = true},
                                         .table = make_table,
                                         .declare = declare,
                                         .attend = attend};
    titan_build(graph, c, job, &way);
}
