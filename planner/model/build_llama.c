/* build_llama.c - the Llama family as torchtitan writes it.
 *
 *     h = x + wo(attention(rope(wq y), rope(wk y), wv y))     y = rms_norm(x)
 *     z = h + w2(silu(w1 y) · w3 y)                           y = rms_norm(h)
 *
 * RoPE multiplies in complex fp32 (two casts and one product for q and for k); key/value heads are
 * repeated by expand and reshape; q, k, v stay Python's until attention returns. Mistral is the
 * same; Qwen2 adds biases to q, k, v; Qwen3 adds an RMSNorm to each head of q and k. */
#include "model/build.h"
#include "model/builder.h"

#include <math.h>
#include <stdio.h>

struct llama_block {
    struct linear wq, wk, wv, wo, w1, w2, w3;
    struct norm q_norm, k_norm, attention_norm, ffn_norm;
};

/* torchtitan's init_weights cuts its draws at 2, and those of the head at three deviations. */
static struct param_init drawn(double std)
{
    return init_normal(std, 2);
}

static struct llama_block declare_block(struct graph *graph, const struct model_config *c,
                                        const struct model_job *job, const char *prefix,
                                        uint32_t index)
{
    char attention[96], feed_forward[96];
    snprintf(attention, sizeof attention, "%s.%s", prefix, job->flat ? "" : "attention.");
    snprintf(feed_forward, sizeof feed_forward, "%s.%s", prefix, job->flat ? "" : "feed_forward.");
    struct llama_block block = {.wq = {0, 0}};
    const uint32_t h_q = c->heads * c->head_dim, h_kv = c->kv_heads * c->head_dim;
    block.wq = build_linear(graph, attention, "wq", h_q, c->hidden, c->attention_bias);
    block.wk = build_linear(graph, attention, "wk", h_kv, c->hidden, c->attention_bias);
    block.wv = build_linear(graph, attention, "wv", h_kv, c->hidden, c->attention_bias);
    block.wo = build_linear(graph, attention, "wo", c->hidden, h_q, c->output_bias);
    if (c->qk_norm) {
        block.q_norm = build_norm(graph, attention, "q_norm", c->head_dim, false, c->norm_eps);
        block.k_norm = build_norm(graph, attention, "k_norm", c->head_dim, false, c->norm_eps);
    }
    block.w1 = build_linear(graph, feed_forward, "w1", c->ffn, c->hidden, c->mlp_bias);
    block.w2 = build_linear(graph, feed_forward, "w2", c->hidden, c->ffn, c->mlp_bias);
    block.w3 = build_linear(graph, feed_forward, "w3", c->ffn, c->hidden, c->mlp_bias);
    block.attention_norm =
        build_norm(graph, prefix, ".attention_norm", c->hidden, false, c->norm_eps);
    const struct param_init last = drawn(0.02 / sqrt(2.0 * (index + 1)));
    graph_init_param(graph, block.wo.weight, last);
    graph_init_param(graph, block.w2.weight, last);
    graph_init_param(graph, block.w3.weight, last);
    block.ffn_norm = build_norm(graph, prefix, ".ffn_norm", c->hidden, false, c->norm_eps);
    return block;
}

/* view_as_real(view_as_complex(x.float()) * freqs).type_as(x); x (b, s, a, d). In fp32 the casts
 * are x itself. */
static uint32_t rotate(struct graph *graph, uint32_t x, uint32_t freqs)
{
    const struct shape shape = graph->tensors[x].shape;
    const struct shape pairs = SHAPE(shape.dim[0], shape.dim[1], shape.dim[2], shape.dim[3] / 2);
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    const uint32_t upcast = op_to(graph, x, DTYPE_FP32);
    const uint32_t complex = graph_view_dtype(graph, upcast, DTYPE_COMPLEX64, pairs);
    const uint32_t product = op_mul_constant(graph, complex, freqs);
    const struct shape parts = SHAPE(shape.dim[0], shape.dim[1], shape.dim[2], shape.dim[3] / 2, 2);
    uint32_t real = graph_view_dtype(graph, product, DTYPE_FP32, parts);
    if (graph->attention == ATTENTION_MATH) /* others' gradients lie as it wants them */
        real = op_real(graph, real);
    real = graph_view(graph, real, shape);
    if (dtype == DTYPE_FP32)
        return real;
    const uint32_t out = op_to(graph, real, dtype);
    graph_drop(graph, product);
    graph_drop(graph, upcast);
    return out;
}

static uint32_t repeat_kv(struct graph *graph, uint32_t x, uint32_t repeats)
{
    if (repeats == 1)
        return x;
    const struct shape s = graph->tensors[x].shape;
    const uint32_t repeated =
        op_repeat(graph, x, SHAPE(s.dim[0], s.dim[1], s.dim[2], repeats, s.dim[3]), 3);
    return graph_view(graph, repeated, SHAPE(s.dim[0], s.dim[1], s.dim[2] * repeats, s.dim[3]));
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct llama_block *block, uint32_t y,
                          uint32_t freqs)
{
    const struct shape q_shape = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    const struct shape kv_shape = SHAPE(job->batch, job->seq, c->kv_heads, c->head_dim);
    uint32_t q0 = graph_view(graph, apply_linear(graph, y, block->wq), q_shape);
    uint32_t k0 = graph_view(graph, apply_linear(graph, y, block->wk), kv_shape);
    const uint32_t v0 = build_heads(graph, apply_linear(graph, y, block->wv), kv_shape);
    if (c->qk_norm) {
        const uint32_t q_normed = apply_norm(graph, q0, block->q_norm);
        graph_drop(graph, q0);
        const uint32_t k_normed = apply_norm(graph, k0, block->k_norm);
        graph_drop(graph, k0);
        q0 = q_normed;
        k0 = k_normed;
    }
    const uint32_t q = rotate(graph, q0, freqs);
    const uint32_t k1 = rotate(graph, k0, freqs);
    graph_drop(graph, k0);
    graph_drop(graph, q0);
    const uint32_t k = repeat_kv(graph, k1, c->heads / c->kv_heads);
    const uint32_t v = repeat_kv(graph, v0, c->heads / c->kv_heads);
    if (graph->tensors[k].storage != graph->tensors[k1].storage) {
        graph_drop(graph, k1);
        graph_drop(graph, v0);
    }
    const uint32_t o = op_attention(graph, q, k, v, true, 0);
    const uint32_t out = apply_linear(
        graph, graph_view(graph, o, SHAPE(job->batch, job->seq, c->heads * c->head_dim)),
        block->wo);
    graph_drop(graph, o);
    graph_drop(graph, v);
    graph_drop(graph, k);
    graph_drop(graph, q);
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct llama_block *block, uint32_t y)
{
    const uint32_t gate = apply_linear(graph, y, block->w1);
    const uint32_t active = apply_activation(graph, c->activation, gate);
    graph_drop(graph, gate);
    const uint32_t up = apply_linear(graph, y, block->w3);
    const uint32_t product = op_mul(graph, active, up);
    graph_drop(graph, active);
    graph_drop(graph, up);
    const uint32_t out = apply_linear(graph, product, block->w2);
    graph_drop(graph, product);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct llama_block *block, uint32_t x,
                          uint32_t freqs)
{
    const uint32_t normed = apply_norm(graph, x, block->attention_norm);
    const uint32_t attended = attention(graph, c, job, block, normed, freqs);
    graph_drop(graph, normed);
    const uint32_t h = op_add(graph, x, attended);
    graph_drop(graph, attended);
    const uint32_t y = apply_norm(graph, h, block->ffn_norm);
    const uint32_t fed = feed_forward(graph, c, block, y);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, fed);
    graph_drop(graph, y);
    graph_drop(graph, h);
    return z;
}

void build_llama(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t targets = build_input(graph, c, INPUT_TARGETS, SHAPE(job->batch * job->seq));
    const uint32_t freqs = build_rope(graph, c, job, ROPE_COMPLEX, c->head_dim);

    const uint32_t embeddings = graph_module(graph, ROLE_EMBEDDING, "tok_embeddings");
    const uint32_t table =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "tok_embeddings.weight");
    graph_init_param(graph, table, init_normal(1, 0));
    graph_init_weights(graph, drawn(0.02));
    graph_enter(graph, embeddings, tokens);
    uint32_t x = op_embedding(graph, tokens, table);
    graph_exit(graph, embeddings, x);

    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "layers.%u", i);
        const struct llama_block block =
            declare_block(graph, c, job, graph->modules[module].name, i);
        graph_enter(graph, module, x);
        const uint32_t z = run_block(graph, c, job, &block, x, freqs);
        graph_exit(graph, module, z);
        graph_drop(graph, x);
        x = z;
    }

    const uint32_t norm = graph_module(graph, ROLE_NORM, "norm");
    const struct norm final = build_norm(graph, "", "norm", c->hidden, false, c->norm_eps);
    graph_enter(graph, norm, x);
    const uint32_t normed = apply_norm(graph, x, final);
    graph_exit(graph, norm, normed);

    const uint32_t head = graph_module(graph, ROLE_HEAD, "output");
    struct linear output = {table, GRAPH_NONE};
    if (!c->tied)
        output = build_linear(graph, "", "output", c->vocab, c->hidden, false);
    const double std = 1 / sqrt(c->hidden);
    graph_init_param(graph, output.weight, init_normal(std, 3 * std));
    build_head(graph, head, normed, x, output, targets);
}
