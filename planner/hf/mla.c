/* mla.c - see mla.h. */
#include "hf/mla.h"

#include <math.h>

#define LATENT_EPS 1e-6F /* the norm's own, whatever the config says of the others */

struct hf_mla hf_mla_declare(struct graph *graph, const struct model_config *c, uint32_t layer,
                             const char *prefix)
{
    const uint32_t h = c->hidden, a = c->heads, n = c->nope_dim, r = c->rotary_dim, v = c->v_dim;
    struct hf_mla mla = {.q = {GRAPH_NONE, GRAPH_NONE}, .indexer = {.q = {GRAPH_NONE, GRAPH_NONE}}};
    if (c->q_lora) {
        mla.q_a = build_linear(graph, prefix, "q_a_proj", c->q_lora, h, c->attention_bias);
        mla.q_norm = build_norm(graph, prefix, "q_a_layernorm", c->q_lora, false, LATENT_EPS);
        mla.q_b = build_linear(graph, prefix, "q_b_proj", a * (n + r), c->q_lora, false);
    } else {
        mla.q = build_linear(graph, prefix, "q_proj", a * (n + r), h, false);
    }
    mla.kv_a =
        build_linear(graph, prefix, "kv_a_proj_with_mqa", c->kv_lora + r, h, c->attention_bias);
    mla.kv_norm = build_norm(graph, prefix, "kv_a_layernorm", c->kv_lora, false, LATENT_EPS);
    mla.kv_b = build_linear(graph, prefix, "kv_b_proj", a * (n + v), c->kv_lora, false);
    mla.o = build_linear(graph, prefix, "o_proj", h, a * v, c->attention_bias);
    if (c->index_heads && !layer_listed(&c->reused_index, layer))
        mla.indexer = hf_indexer_declare(graph, c, prefix);
    return mla;
}

/* *resid: the latent that q is a product of, where an indexer reads it, too: the caller's. */
static uint32_t make_q(struct graph *graph, const struct model_config *c, const struct hf_mla *mla,
                       uint32_t y, uint32_t *resid)
{
    *resid = GRAPH_NONE;
    if (!c->q_lora)
        return apply_linear(graph, y, mla->q);
    const uint32_t latent = apply_linear(graph, y, mla->q_a);
    const uint32_t normed = hf_rms_norm_called(graph, latent, mla->q_norm);
    graph_drop(graph, latent);
    const uint32_t q = apply_linear(graph, normed, mla->q_b);
    if (c->index_heads)
        *resid = normed;
    else
        graph_drop(graph, normed);
    return q;
}

static uint32_t in_heads(struct graph *graph, uint32_t x, uint32_t b, uint32_t s, uint32_t heads,
                         uint32_t d)
{
    const uint32_t split = hf_heads(graph, x, SHAPE(b, s, heads, d), true);
    return graph_transpose(graph, split, 1, 2);
}

void hf_mla_rotate_v3(struct graph *graph, const struct model_config *c, struct hf_rope rope,
                      uint32_t *q, uint32_t *k)
{
    if (!c->rope_interleave) {
        *q = hf_rotate(graph, *q, rope);
        *k = hf_rotate(graph, *k, rope);
        return;
    }
    /* each angle is there twice: the first half of both tables */
    const struct hf_rope half = {.cos = op_slice_last(graph, rope.cos, 0, c->rotary_dim / 2),
                                 .sin = op_slice_last(graph, rope.sin, 0, c->rotary_dim / 2)};
    const uint32_t *const both[] = {q, k};
    uint32_t part[2][2];
    for (int i = 0; i < 2; i++)
        for (uint32_t first = 0; first < 2; first++)
            part[i][first] = op_stride_last(graph, *both[i], first, 2);
    *q = hf_rotate_pair(graph, part[0][0], part[0][1], half, true);
    *k = hf_rotate_pair(graph, part[1][0], part[1][1], half, true);
}

/* x (b, a, s, r) in fp32, as complex numbers, times the table's; then in `dtype`. Where the
 * gradient comes in the order (b, s, a, r) it is copied, of several heads and tokens: it is wanted
 * as complex numbers, whose parts have to be neighbours. */
static uint32_t turned(struct graph *graph, uint32_t upcast, uint32_t table, enum dtype dtype,
                       bool by_token)
{
    const struct shape s = graph->tensors[upcast].shape;
    const uint32_t pairs = s.dim[3] / 2;
    const struct shape complex = SHAPE(s.dim[0], s.dim[1], s.dim[2], pairs);
    const struct shape real = SHAPE(s.dim[0], s.dim[1], s.dim[2], pairs, 2);
    const uint32_t product =
        op_mul_constant(graph, graph_view_dtype(graph, upcast, DTYPE_COMPLEX64, complex),
                        graph_view(graph, table, SHAPE(1, 1, s.dim[2], pairs)));
    const uint32_t flat = graph_view_dtype(graph, product, DTYPE_FP32, s);
    const uint32_t split = by_token && s.dim[1] > 1 && s.dim[2] > 1
                               ? op_view_copied(graph, flat, real)
                               : graph_view(graph, flat, real);
    const uint32_t out = op_to(graph, graph_view(graph, split, s), dtype);
    if (dtype != DTYPE_FP32)
        graph_drop(graph, product);
    return out;
}

void hf_mla_rotate_v2(struct graph *graph, const struct model_config *c, struct hf_rope rope,
                      uint32_t *q, uint32_t *k)
{
    const enum dtype dtype = (enum dtype)graph->tensors[*q].dtype;
    const struct attention_asks asks = {
        .head = c->nope_dim + c->rotary_dim, .width = c->v_dim, .dropout = c->attention_dropout};
    const bool as_q = hf_is_flash(graph, false, asks.head, asks.width) ||
                      op_attention_kernel(graph, &asks) == ATTENTION_CUDNN;
    const bool by_token = rope.sample > 0 || !as_q; /* q is copied */
    const uint32_t wide_q = op_to(graph, *q, DTYPE_FP32), wide_k = op_to(graph, *k, DTYPE_FP32);
    *q = turned(graph, wide_q, rope.cos, dtype, by_token);
    *k = turned(graph, wide_k, rope.cos, dtype, by_token);
    if (dtype != DTYPE_FP32) {
        graph_drop(graph, wide_q);
        graph_drop(graph, wide_k);
    }
}

/* expand_kv: `latent` (b, 1, s, kv_lora) to keys and values of all heads. */
static void expand_kv(struct graph *graph, const struct model_config *c, const struct hf_mla *mla,
                      uint32_t latent, uint32_t k_turned, uint32_t *k, uint32_t *v)
{
    const struct shape shape = graph->tensors[latent].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[2], n = c->nope_dim, r = c->rotary_dim;
    uint32_t part[2];
    const uint32_t kv = apply_linear(graph, latent, mla->kv_b);
    op_split(graph, in_heads(graph, kv, b, s, c->heads, n + c->v_dim), n, part);
    const uint32_t shared = op_expand(graph, k_turned, SHAPE(b, c->heads, s, r));
    const uint32_t begun = op_put_slice(graph, GRAPH_NONE, part[0], 0, n + r);
    *k = op_put_slice(graph, begun, shared, n, n + r);
    *v = part[1];
}

/* (b, a, s, d) as (b, s, a, d). */
static uint32_t by_token(struct graph *graph, uint32_t x)
{
    return graph_transpose(graph, x, 1, 2);
}

/* yarn_apply_mscale, of 1 / the root of a head's numbers; 0: nothing grows. */
static float scale_of(const struct model_config *c)
{
    const float factor = c->rope.factor;
    if (c->rope.scaling == ROPE_DEFAULT || !(c->mscale_all > 0) || !(factor > 1))
        return 0;
    const float growth = 0.1F * c->mscale_all * logf(factor) + 1;
    return growth * growth / sqrtf((float)(c->nope_dim + c->rotary_dim));
}

uint32_t hf_mla(struct graph *graph, const struct model_config *c, const struct hf_mla *mla,
                struct hf_mla_way way, struct hf_rope rope, uint32_t y, uint32_t mask,
                uint32_t *places)
{
    const struct shape shape = graph->tensors[y].shape;
    const uint32_t b = shape.dim[0], s = shape.dim[1], n = c->nope_dim, r = c->rotary_dim;
    uint32_t q_part[2], kv_part[2], k, v, resid, others;
    const uint32_t q0 = make_q(graph, c, mla, y, &resid);
    op_split(graph, in_heads(graph, q0, b, s, c->heads, n + r), n, q_part);
    const uint32_t compressed = apply_linear(graph, y, mla->kv_a);
    op_split(graph, compressed, c->kv_lora, kv_part);
    const uint32_t normed = hf_rms_norm_called(graph, kv_part[0], mla->kv_norm);
    const uint32_t latent = graph_view(graph, normed, SHAPE(b, 1, s, c->kv_lora));
    uint32_t q_turned = q_part[1], k_turned = graph_view(graph, kv_part[1], SHAPE(b, 1, s, r));
    way.rotate(graph, c, rope, &q_turned, &k_turned);
    uint32_t q = op_cat_last(graph, q_part[0], q_turned);
    if (c->position_beta > 0) {
        const uint32_t scaled =
            hf_scale_by_position(graph, q, rope.positions, c->position_beta, c->position_step);
        graph_rebind(graph, q, scaled);
        q = scaled;
    }
    expand_kv(graph, c, mla, latent, k_turned, &k, &v);
    if (mla->indexer.q.weight != GRAPH_NONE) {
        const struct hf_indexed of = {y, resid, mask, rope, way.index_neighbours};
        *places = hf_indexer(graph, c, &mla->indexer, &of);
    }
    if (c->index_heads)
        mask = hf_indexed_mask(graph, mask, *places, &others);
    const uint32_t o = hf_attention(graph, &(struct hf_attention){.q = by_token(graph, q),
                                                                  .k = by_token(graph, k),
                                                                  .v = by_token(graph, v),
                                                                  .mask = mask,
                                                                  .q_contiguous = true,
                                                                  .dropout = c->attention_dropout,
                                                                  .positions = rope.positions,
                                                                  .sample = rope.sample,
                                                                  .scale = scale_of(c)});
    const uint32_t out = apply_linear(graph, o, mla->o);
    graph_drop(graph, o);
    if (c->index_heads) {
        graph_drop(graph, mask);
        graph_drop(graph, resid);
    }
    const uint32_t locals[] = {q0,
                               q_turned,
                               compressed,
                               way.key_first ? k_turned : latent,
                               way.key_first ? latent : k_turned,
                               q,
                               k,
                               v};
    for (size_t i = 0; i < sizeof locals / sizeof locals[0]; i++)
        graph_drop(graph, locals[i]);
    if (c->index_heads) {
        if (!way.hands_on)
            graph_drop(graph, *places);
        graph_drop(graph, others);
    }
    return out;
}
