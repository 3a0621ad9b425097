/* mimo.c - see mimo.h.
 *
 *     h = x + o_proj(attention(rope(q y), rope(k y), v y · scale))     y = rms_norm(x)
 *     z = h + mlp(y), or experts(y)                                    y = rms_norm(h)
 *
 * Attention is in Python: keys are wider than values, and each row's largest score is subtracted
 * before the softmax. Layers with a window have twice the heads of k and v, and sinks. */
#include "hf/mimo.h"

#include "model/experts.h"

#include <math.h>
#include <stdio.h>

uint32_t mimo_kv_heads(const struct model_config *c, uint32_t index)
{
    return model_has_window(c, index) ? 2 * c->kv_heads : c->kv_heads;
}

static const struct hf_moe_way moe_way = HF_DEEPSEEK_V3_MOE(HF_CORRECTION_AS_MADE);

struct block {
    uint32_t sinks; /* (a), or GRAPH_NONE */
    struct linear q, k, v, o;
    struct hf_mlp mlp;
    struct hf_moe moe;
    struct norm input, post_attention;
    uint32_t kv_heads;
    bool mixed;
};

static struct block declare(struct graph *graph, const struct model_config *c, uint32_t index,
                            const char *layer)
{
    const uint32_t h = c->hidden, a = c->heads, d = c->head_dim, k = mimo_kv_heads(c, index);
    struct block block = {.sinks = GRAPH_NONE, .kv_heads = k, .mixed = experts_in(c, index)};
    char attention[96], mlp[96];
    snprintf(attention, sizeof attention, "%s.self_attn.", layer);
    snprintf(mlp, sizeof mlp, "%s.mlp.", layer);
    graph->by_name = ".self_attn"; /* which has parameters of its own */
    if (model_has_window(c, index))
        block.sinks = graph_param(graph, PARAM_WEIGHT, SHAPE(a), "%ssinks", attention);
    block.q = build_linear(graph, attention, "q_proj", a * d, h, c->attention_bias);
    block.k = build_linear(graph, attention, "k_proj", k * d, h, c->attention_bias);
    block.v = build_linear(graph, attention, "v_proj", k * c->v_dim, h, c->attention_bias);
    block.o = build_linear(graph, attention, "o_proj", h, a * c->v_dim, false);
    if (block.mixed)
        block.moe = hf_moe_declare(graph, c, &moe_way, mlp);
    else
        block.mlp = hf_mlp_declare(graph, c, mlp, c->ffn);
    block.input = build_norm(graph, layer, ".input_layernorm", h, false, c->norm_eps);
    block.post_attention =
        build_norm(graph, layer, ".post_attention_layernorm", h, false, c->norm_eps);
    return block;
}

/* Scores (b, a, s, s), masked, and the sinks beside them: less each row's largest. */
static uint32_t logits_of(struct graph *graph, const struct model_config *c,
                          const struct block *block, uint32_t q, uint32_t k, uint32_t mask)
{
    const struct shape shape = graph->tensors[q].shape; /* (b, a, s, d) */
    const uint32_t product = op_matmul(graph, q, graph_transpose(graph, k, 2, 3));
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, product, 1 / sqrtf((float)c->head_dim));
    graph_drop(graph, product);
    uint32_t scores = op_add(graph, scaled, mask);
    graph_drop(graph, scaled);
    if (block->sinks != GRAPH_NONE) {
        const uint32_t sinks =
            op_expand(graph, graph_view(graph, block->sinks, SHAPE(1, c->heads, 1, 1)),
                      SHAPE(shape.dim[0], c->heads, shape.dim[2], 1));
        const uint32_t combined = op_cat_last(graph, scores, sinks);
        graph_drop(graph, scores);
        scores = combined;
    }
    const uint32_t largest = op_max_last(graph, scores);
    const uint32_t logits = op_sub(graph, scores, largest);
    graph_drop(graph, largest);
    graph_drop(graph, scores);
    return logits;
}

/* Attention of q (b, s, a, d), k and v (b, s, k, .): (b, s, a · v_dim). *weights (b, a, s, s) is
 * Python's, too. */
static uint32_t attend(struct graph *graph, const struct model_config *c, const struct block *block,
                       const uint32_t qkv[3], uint32_t mask, uint32_t *weights)
{
    const struct shape shape = graph->tensors[qkv[0]].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[1], a = c->heads;
    const uint32_t k = hf_repeat_heads(graph, qkv[1], a), v = hf_repeat_heads(graph, qkv[2], a);
    const uint32_t logits =
        logits_of(graph, c, block, graph_transpose(graph, qkv[0], 1, 2), k, mask);
    const uint32_t p = op_softmax_as_is(graph, logits);
    const uint32_t cut = block->sinks == GRAPH_NONE ? p : op_slice_last(graph, p, 0, s);
    const uint32_t kept = op_dropout(graph, cut, c->attention_dropout);
    *weights = op_to(graph, kept, (enum dtype)graph->tensors[v].dtype);
    if (kept != cut && kept != *weights)
        graph_drop(graph, kept);
    graph_drop(graph, logits);
    const uint32_t mixed = op_matmul(graph, *weights, v);
    uint32_t out = graph_transpose(graph, mixed, 1, 2);
    if (a > 1 && s > 1) { /* contiguous() */
        out = op_unary(graph, OP_CLONE, out);
        graph_drop(graph, mixed);
    }
    if (graph->tensors[k].storage != graph->tensors[qkv[1]].storage) {
        graph_drop(graph, k);
        graph_drop(graph, v);
    }
    if (graph->tensors[*weights].storage != graph->tensors[p].storage)
        graph_drop(graph, p);
    return graph_view(graph, out, SHAPE(b, s, a * c->v_dim));
}

/* RoPE on a part of the heads of q and k, which it takes the place of. */
static void turn(struct graph *graph, const struct model_config *c, struct hf_rope rope,
                 uint32_t qk[2])
{
    struct hf_cut cut[2];
    uint32_t turned[2];
    for (int i = 0; i < 2; i++)
        cut[i] = hf_cut_heads(graph, graph_transpose(graph, qk[i], 1, 2), c->rotary_dim);
    for (int i = 0; i < 2; i++)
        turned[i] = hf_rotate(graph, cut[i].turned, rope);
    for (int i = 0; i < 2; i++) {
        const uint32_t joined = hf_join_heads(graph, turned[i], cut[i].passed);
        turned[i] = graph_transpose(graph, joined, 1, 2);
    }
    for (int i = 0; i < 2; i++) {
        graph_drop(graph, qk[i]);
        qk[i] = turned[i];
    }
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct block *block, const struct hf_layer_call *call, uint32_t y,
                          uint32_t *weights)
{
    const struct shape in = graph->tensors[y].shape;
    const uint32_t b = in.dim[0], s = in.dim[1], k = block->kv_heads, d = c->head_dim;
    uint32_t qkv[3];
    if (block->sinks != GRAPH_NONE) /* a parameter of the module's own */
        hf_call(graph, block->sinks);
    qkv[0] = hf_heads(graph, apply_linear(graph, y, block->q), SHAPE(b, s, c->heads, d), true);
    qkv[1] = hf_heads(graph, apply_linear(graph, y, block->k), SHAPE(b, s, k, d), true);
    const uint32_t values =
        hf_heads(graph, apply_linear(graph, y, block->v), SHAPE(b, s, k, c->v_dim), true);
    const uint32_t scaled =
        op_scalar(graph, OP_MUL_SCALAR, graph_transpose(graph, values, 1, 2), c->value_scale);
    qkv[2] = graph_transpose(graph, scaled, 1, 2);
    graph_drop(graph, values);
    turn(graph, c, call->rope, qkv);
    const uint32_t o = attend(graph, c, block, qkv, call->mask, weights);
    const uint32_t out = apply_linear(graph, o, block->o);
    graph_drop(graph, o);
    for (int i = 0; i < 3; i++)
        graph_drop(graph, qkv[i]);
    if (block->sinks != GRAPH_NONE)
        graph_call_end(graph);
    return out;
}

uint32_t mimo_layer(struct graph *graph, const struct model_config *c, const struct model_job *job,
                    const struct hf_layer_call *call)
{
    const struct block block = declare(graph, c, call->index, call->prefix);
    uint32_t weights, none;
    (void)job;
    const uint32_t y1 = hf_rms_norm_called(graph, call->x, block.input);
    const uint32_t attended = attention(graph, c, &block, call, y1, &weights);
    graph_drop(graph, y1);
    const uint32_t h = op_add(graph, call->x, attended);
    graph_drop(graph, attended);
    const uint32_t y2 = hf_rms_norm_called(graph, h, block.post_attention);
    const uint32_t fed = block.mixed ? hf_moe(graph, c, &moe_way, &block.moe, y2, &none)
                                     : hf_mlp(graph, c, &block.mlp, y2);
    graph_drop(graph, y2);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, fed);
    graph_drop(graph, h);
    graph_drop(graph, weights);
    return z;
}
