/* build_deepseek_v3.c - DeepSeek-V2 and -V3 as torchtitan writes them, one model: titan.h's decoder
 * with latent attention.
 *
 *     q = (wq_b norm wq_a, or wq) y          its last r numbers of a head turned
 *     c, k' = wkv_a y                        k' turned, one for all heads
 *     k, v = wkv_b norm c                    k with k' behind it
 *
 * RoPE multiplies in complex fp32. Values are narrower than keys, which flash attention has not. */
#include "model/builder.h"
#include "model/titan.h"

static struct titan_attention declare(struct graph *graph, const struct model_config *c,
                                      const char *prefix, struct param_init last)
{
    struct titan_attention a = {.wq = {0, 0}};
    const uint32_t h = c->hidden, d = c->nope_dim + c->rotary_dim;
    if (c->q_lora) {
        a.wq_a = build_linear(graph, prefix, "wq_a", c->q_lora, h, false);
        a.q_norm = build_norm(graph, prefix, "q_norm", c->q_lora, false, c->norm_eps);
        a.wq_b = build_linear(graph, prefix, "wq_b", c->heads * d, c->q_lora, false);
    } else {
        a.wq = build_linear(graph, prefix, "wq", c->heads * d, h, false);
    }
    a.wkv_a = build_linear(graph, prefix, "wkv_a", c->kv_lora + c->rotary_dim, h, false);
    a.kv_norm = build_norm(graph, prefix, "kv_norm", c->kv_lora, false, c->norm_eps);
    a.wkv_b = build_linear(graph, prefix, "wkv_b", c->heads * (c->nope_dim + c->v_dim), c->kv_lora,
                           false);
    a.wo = build_linear(graph, prefix, "wo", h, c->heads * c->v_dim, false);
    graph_init_param(graph, a.wo.weight, last);
    return a;
}

static uint32_t make_q(struct graph *graph, const struct model_config *c,
                       const struct titan_attention *a, uint32_t y)
{
    if (!c->q_lora)
        return apply_linear(graph, y, a->wq);
    const uint32_t latent = apply_linear(graph, y, a->wq_a);
    const uint32_t normed = apply_norm(graph, latent, a->q_norm);
    const uint32_t q = apply_linear(graph, normed, a->wq_b);
    graph_drop(graph, normed);
    graph_drop(graph, latent);
    return q;
}

/* x (b, s, a, r) as complex numbers times the table's, in x's dtype. */
static uint32_t rotate(struct graph *graph, uint32_t x, uint32_t freqs)
{
    const struct graph_tensor t = graph->tensors[x];
    const struct shape s = t.shape, pairs = SHAPE(s.dim[0], s.dim[1], s.dim[2], s.dim[3] / 2);
    const uint32_t wide = op_to(graph, x, DTYPE_FP32);
    const uint32_t complex = graph_view_dtype(graph, wide, DTYPE_COMPLEX64, pairs);
    const uint32_t product = op_mul_constant(graph, complex, freqs);
    const uint32_t out =
        op_to(graph, graph_view_dtype(graph, product, DTYPE_FP32, s), (enum dtype)t.dtype);
    if (wide != x)
        graph_drop(graph, wide);
    if (graph->tensors[out].storage != graph->tensors[product].storage)
        graph_drop(graph, product);
    return out;
}

static uint32_t attend(struct graph *graph, const struct model_config *c,
                       const struct model_job *job, const struct titan_attention *a, uint32_t y,
                       uint32_t table)
{
    const uint32_t b = job->batch, s = job->seq, n = c->nope_dim, r = c->rotary_dim;
    uint32_t q_part[2], latent[2], kv_part[2];
    const uint32_t q0 = make_q(graph, c, a, y);
    op_split(graph, graph_view(graph, q0, SHAPE(b, s, c->heads, n + r)), n, q_part);
    const uint32_t q_turned = rotate(graph, q_part[1], table);
    const uint32_t q = op_cat_last(graph, q_part[0], q_turned);

    const uint32_t compressed = apply_linear(graph, y, a->wkv_a);
    op_split(graph, compressed, c->kv_lora, latent);
    const uint32_t k_turned = rotate(graph, graph_view(graph, latent[1], SHAPE(b, s, 1, r)), table);
    const uint32_t normed = apply_norm(graph, latent[0], a->kv_norm);
    const uint32_t kv = apply_linear(graph, normed, a->wkv_b);
    graph_drop(graph, normed);
    graph_drop(graph, compressed);
    op_split(graph, graph_view(graph, kv, SHAPE(b, s, c->heads, n + c->v_dim)), n, kv_part);
    const uint32_t k =
        op_cat_last(graph, kv_part[0], op_expand(graph, k_turned, SHAPE(b, s, c->heads, r)));
    const uint32_t o = op_efficient_attention(graph, q, k, kv_part[1], GRAPH_NONE, true, 0);
    const uint32_t out =
        apply_linear(graph, graph_view(graph, o, SHAPE(b, s, c->heads * c->v_dim)), a->wo);
    const uint32_t locals[] = {q, q0, q_turned, k_turned, kv, k, o};
    for (size_t i = 0; i < sizeof locals / sizeof locals[0]; i++)
        graph_drop(graph, locals[i]);
    return out;
}

static uint32_t make_table(struct graph *graph, const struct model_config *c,
                           const struct model_job *job)
{
    return build_rope(graph, c, job, ROPE_COMPLEX, c->rotary_dim);
}

void build_deepseek_v3(struct graph *graph, const struct model_config *c,
                       const struct model_job *job)
{
    const bool third = c->arch == ARCH_DEEPSEEK_V3;
    const struct titan_way way = {
        .scores = {.sigmoid = third, .limited = c->groups > 1 && (third || c->limited_groups)},
        .norms_first = true,
        .table = make_table,
        .declare = declare,
        .attend = attend};
    titan_build(graph, c, job, &way);
}
