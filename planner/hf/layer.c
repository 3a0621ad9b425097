/* layer.c - a layer of a decoder of Llama's kind, as Hugging Face's transformers write them: see
 * decoder.h.
 *
 *     h = x + after(o_proj(attention(rope(q y), rope(k y), v y)))     y = before(x)
 *     z = h + after(down(act(gate y) · up y))                         y = before(h)
 *
 * Nothing is fused but attention: norms and RoPE are Python arithmetic. */
#include "hf/decoder.h"
#include "model/experts.h"
#include "model/lora_kernels.h"

#include <math.h>
#include <string.h>

uint32_t hf_decoder_normed(struct graph *graph, const struct hf_decoder *way, uint32_t x,
                           struct norm norm)
{
    if (norm.bare)
        graph_call_begin(graph, "%s", norm.bare);
    else
        hf_call(graph, norm.weight);
    const struct liger_norm liger = {norm.eps, graph->liger.offset, graph->liger.apart};
    const uint32_t out = graph->liger.rms_norm && !norm.bare
                             ? op_liger_rms_norm(graph, x, norm.weight, &liger)
                             : way->norm(graph, x, norm);
    graph_call_end(graph);
    return out;
}

/* x through a norm, which takes its place. */
static uint32_t normed(struct graph *graph, const struct hf_block *block, uint32_t x,
                       struct norm norm)
{
    const uint32_t out = hf_decoder_normed(graph, block->way, x, norm);
    graph_drop(graph, x);
    return out;
}

/* Heads x (b, s, a, d) as PyTorch has them, (b, a, s, d), and back. */
static uint32_t transposed(struct graph *graph, uint32_t x)
{
    return graph_transpose(graph, x, 1, 2);
}

struct heads { /* of q, k and v: (b, s, a or k, d) */
    uint32_t q, k, v;
    uint32_t gate;                /* of the output (b, s, a d); GRAPH_NONE: there is none */
    uint32_t held[4], held_count; /* what else is Python's until attention returns */
};

/* q and k are cut first, both; then each is turned and joined. */
static void turn_parts(struct graph *graph, const struct model_config *c, struct hf_rope rope,
                       struct heads *heads)
{
    const struct hf_cut q = hf_cut_heads(graph, transposed(graph, heads->q), c->rotary_dim);
    const struct hf_cut k = hf_cut_heads(graph, transposed(graph, heads->k), c->rotary_dim);
    heads->q = transposed(graph, hf_join_heads(graph, hf_rotate(graph, q.turned, rope), q.passed));
    heads->k = transposed(graph, hf_join_heads(graph, hf_rotate(graph, k.turned, rope), k.passed));
}

/* The same of neighbours, and both are turned before they are joined. */
static void turn_pairs(struct graph *graph, const struct model_config *c,
                       const struct hf_decoder *way, struct hf_rope rope, struct heads *heads)
{
    const bool as_they_are = way->grids == HF_GRIDS_NEIGHBOURS; /* tables */
    const struct hf_rope pairs = as_they_are ? rope : hf_rope_interleaved(graph, rope);
    const struct hf_cut q = hf_cut_heads(graph, transposed(graph, heads->q), c->rotary_dim);
    const struct hf_cut k = hf_cut_heads(graph, transposed(graph, heads->k), c->rotary_dim);
    const uint32_t q_turned = hf_rotate_pairs(graph, q.turned, pairs);
    const uint32_t k_turned = hf_rotate_pairs(graph, k.turned, pairs);
    heads->q = transposed(graph, hf_join_heads(graph, q_turned, q.passed));
    heads->k = transposed(graph, hf_join_heads(graph, k_turned, k.passed));
    if (as_they_are)
        return;
    graph_drop(graph, pairs.cos);
    graph_drop(graph, pairs.sin);
}

/* The same of numbers half a head away. */
static void turn_both(struct graph *graph, const struct model_config *c, struct hf_rope rope,
                      struct heads *heads)
{
    const struct hf_cut q = hf_cut_heads(graph, transposed(graph, heads->q), c->rotary_dim);
    const struct hf_cut k = hf_cut_heads(graph, transposed(graph, heads->k), c->rotary_dim);
    const uint32_t q_turned = hf_rotate(graph, q.turned, rope);
    const uint32_t k_turned = hf_rotate(graph, k.turned, rope);
    heads->q = transposed(graph, hf_join_heads(graph, q_turned, q.passed));
    heads->k = transposed(graph, hf_join_heads(graph, k_turned, k.passed));
}

/* The same where the turned parts live until both are joined. */
static void turn_last(struct graph *graph, const struct model_config *c, struct hf_rope rope,
                      struct heads *heads)
{
    const struct hf_cut q = hf_cut_heads(graph, transposed(graph, heads->q), c->rotary_dim);
    const struct hf_cut k = hf_cut_heads(graph, transposed(graph, heads->k), c->rotary_dim);
    const uint32_t q_turned = hf_rotate(graph, q.turned, rope);
    const uint32_t k_turned = hf_rotate(graph, k.turned, rope);
    heads->q = transposed(graph, op_cat_last(graph, q_turned, q.passed));
    heads->k = transposed(graph, op_cat_last(graph, k_turned, k.passed));
    graph_drop(graph, q_turned);
    graph_drop(graph, k_turned);
}

/* x (b, s, a, d), by tables (1, s, d/2) */
static uint32_t turned_halves(struct graph *graph, uint32_t x, struct hf_rope rope)
{
    uint32_t part[2];
    op_chunk(graph, transposed(graph, x), 2, part);
    return transposed(graph, hf_rotate_pair(graph, part[0], part[1], rope, false));
}

/* The same of numbers half a head away, whose parts have names: the turned ones, and views of what
 * was projected. */
static void turn_open(struct graph *graph, const struct model_config *c, struct hf_rope rope,
                      struct heads *heads)
{
    const struct hf_cut q = hf_cut_heads(graph, transposed(graph, heads->q), c->rotary_dim);
    const struct hf_cut k = hf_cut_heads(graph, transposed(graph, heads->k), c->rotary_dim);
    const uint32_t held[] = {hf_rotate(graph, q.turned, rope), heads->q,
                             hf_rotate(graph, k.turned, rope), heads->k};
    heads->q = transposed(graph, op_cat_last(graph, held[0], q.passed));
    heads->k = transposed(graph, op_cat_last(graph, held[2], k.passed));
    heads->held_count = sizeof held / sizeof *held;
    memcpy(heads->held, held, sizeof held);
}

/* Heads in fp32 as they were before; the products are let go when both are. */
static void cast_back(struct graph *graph, enum dtype dtype, struct heads *heads)
{
    const uint32_t q = heads->q, k = heads->k;
    if ((enum dtype)graph->tensors[q].dtype == dtype)
        return;
    heads->q = transposed(graph, op_to(graph, transposed(graph, q), dtype));
    heads->k = transposed(graph, op_to(graph, transposed(graph, k), dtype));
    graph_drop(graph, q);
    graph_drop(graph, k);
}

/* Whole heads of neighbours, one of three ways to write it. */
static void turn_neighbours(struct graph *graph, enum hf_rotary rotary, struct hf_rope rope,
                            struct heads *heads)
{
    uint32_t qk[2] = {transposed(graph, heads->q), transposed(graph, heads->k)};
    if (rotary == HF_ROTARY_NEIGHBOURS_CAST)
        hf_turn_neighbours_cast(graph, rope, qk);
    else if (rotary == HF_ROTARY_NEIGHBOURS_WIDE)
        hf_turn_neighbours_wide(graph, rope, qk);
    else
        hf_turn_neighbours(graph, rope, qk);
    heads->q = transposed(graph, qk[0]);
    heads->k = transposed(graph, qk[1]);
}

/* The name of `before` goes to what was made of it: that may be where it was. Of what is a part of
 * a wider product the others have names. */
static void drop_unless_same(struct graph *graph, uint32_t before, uint32_t after)
{
    const struct graph_tensor *t = &graph->tensors[before];
    if (t->storage != graph->tensors[after].storage && !t->pitch)
        graph_drop(graph, before);
}

static void turn(struct graph *graph, const struct model_config *c, const struct hf_block *block,
                 struct hf_rope rope, struct heads *heads)
{
    const uint32_t q = heads->q, k = heads->k;
    if (graph->liger.rope) {
        uint32_t qk[2] = {q, k};
        op_liger_rope(graph, qk, rope.cos, rope.sin);
        heads->q = qk[0];
        heads->k = qk[1];
        drop_unless_same(graph, q, qk[0]);
        drop_unless_same(graph, k, qk[1]);
        return;
    }
    switch (block->way->rotary) {
    case HF_ROTARY_WHOLE:
        heads->q = transposed(graph, hf_rotate(graph, transposed(graph, q), rope));
        heads->k = transposed(graph, hf_rotate(graph, transposed(graph, k), rope));
        break;
    case HF_ROTARY_PARTS:
        turn_parts(graph, c, rope, heads);
        break;
    case HF_ROTARY_PAIRS:
        turn_pairs(graph, c, block->way, rope, heads);
        break;
    case HF_ROTARY_BOTH:
        turn_both(graph, c, rope, heads);
        break;
    case HF_ROTARY_LAST:
        turn_last(graph, c, rope, heads);
        break;
    case HF_ROTARY_OPEN:
        turn_open(graph, c, rope, heads);
        return;
    case HF_ROTARY_HALVES:
        heads->q = turned_halves(graph, q, rope);
        heads->k = turned_halves(graph, k, rope);
        break;
    case HF_ROTARY_COMPLEX: {
        uint32_t qk[2] = {q, k};
        hf_turn_complex(graph, rope.cos, qk);
        heads->q = qk[0];
        heads->k = qk[1];
        break;
    }
    default:
        turn_neighbours(graph, block->way->rotary, rope, heads);
        break;
    }
    if (block->way->fp32_tables && block->way->rotary != HF_ROTARY_NEIGHBOURS_WIDE)
        cast_back(graph, (enum dtype)graph->tensors[q].dtype, heads);
    if (block->way->fused_qkv)
        return; /* they are views of what v views, too */
    graph_drop(graph, q);
    graph_drop(graph, k);
}

/* The order of memory in which the gradients of heads come: RoPE's cat and slices leave those of q
 * and k in (b, a, s, d). */
struct orders {
    struct shape q, kv;
    bool q_copied, k_copied, v_copied;
};

static struct orders orders_of(struct graph *graph, const struct model_config *c,
                               const struct model_job *job, const struct hf_decoder *way,
                               bool turned, bool masked)
{
    struct orders orders = {
        .q = SHAPE(job->batch, job->seq, c->heads, c->head_dim),
        .kv = SHAPE(job->batch, job->seq, c->kv_heads, c->head_dim),
        .q_copied = hf_copies_query_gradient(graph, c, masked),
        .k_copied = hf_copies_gradients(graph, c, masked),
        .v_copied = hf_copies_gradients(graph, c, masked),
    };
    /* complex numbers are seen as real ones before */
    if (turned)
        orders.q_copied = orders.k_copied = way->rotary != HF_ROTARY_COMPLEX && !graph->liger.rope;
    /* Liger's kernels give what is contiguous in the shape that they are called with */
    if (graph->liger.rms_norm && c->qk_norm)
        orders.q_copied = orders.k_copied = way->qk == HF_QK_TURNED;
    return orders;
}

/* Heads of y (b, s, h), by one product. */
static struct heads project_fused(struct graph *graph, const struct model_config *c,
                                  const struct hf_block *block, uint32_t y,
                                  const struct orders *orders)
{
    const uint32_t h_q = c->heads * c->head_dim, h_kv = c->kv_heads * c->head_dim;
    const uint32_t all = apply_linear(graph, y, block->q);
    const uint32_t q = op_slice_last(graph, all, 0, h_q);
    const uint32_t k = op_slice_last(graph, all, h_q, h_kv);
    const uint32_t v = op_slice_last(graph, all, h_q + h_kv, h_kv);
    return (struct heads){
        .gate = GRAPH_NONE,
        .q = hf_heads(graph, q, orders->q, orders->q_copied),
        .k = hf_heads(graph, k, orders->kv, orders->k_copied),
        .v = hf_heads(graph, v, orders->kv, orders->v_copied),
    };
}

/* The same by three products, perhaps with a norm over all heads of q and of k; they are heads when
 * all are projected. */
static struct heads project_wide(struct graph *graph, const struct hf_block *block, uint32_t y,
                                 const struct orders *orders)
{
    const bool norms = block->way->qk == HF_QK_WIDE;
    const uint32_t q0 = apply_linear(graph, y, block->q);
    const uint32_t q = norms ? normed(graph, block, q0, block->q_norm) : q0;
    const uint32_t k0 = apply_linear(graph, y, block->k);
    const uint32_t k = norms ? normed(graph, block, k0, block->k_norm) : k0;
    const uint32_t v = apply_linear(graph, y, block->v);
    return (struct heads){
        .gate = GRAPH_NONE,
        .q = hf_heads(graph, q, orders->q, orders->q_copied),
        .k = hf_heads(graph, k, orders->kv, orders->k_copied),
        .v = hf_heads(graph, v, orders->kv, orders->v_copied),
    };
}

/* x (b, s, a, d) through a norm of heads, perhaps as PyTorch has them: (b, a, s, d). */
static uint32_t normed_heads(struct graph *graph, const struct hf_block *block, uint32_t x,
                             struct norm norm)
{
    if (block->way->qk == HF_QK_LAST)
        return normed(graph, block, x, norm);
    return transposed(graph, normed(graph, block, transposed(graph, x), norm));
}

/* The same with a norm on each head of q and of k. */
static struct heads project_then_norm(struct graph *graph, const struct hf_block *block, uint32_t y,
                                      const struct orders *orders)
{
    struct heads heads = {.gate = GRAPH_NONE};
    heads.q = hf_heads(graph, apply_linear(graph, y, block->q), orders->q, orders->q_copied);
    heads.k = hf_heads(graph, apply_linear(graph, y, block->k), orders->kv, orders->k_copied);
    heads.v = hf_heads(graph, apply_linear(graph, y, block->v), orders->kv, orders->v_copied);
    if (block->way->gate_output)
        heads.gate = apply_linear(graph, y, block->gate);
    heads.q = normed_heads(graph, block, heads.q, block->q_norm);
    heads.k = normed_heads(graph, block, heads.k, block->k_norm);
    return heads;
}

/* q behind its norm, and what its product has beside it for the output: of each head d numbers,
 * then d. They are gathered in a copy; of a single head they are a view. */
static void project_gated(struct graph *graph, const struct model_config *c,
                          const struct hf_block *block, uint32_t y, const struct orders *orders,
                          struct heads *heads)
{
    const struct shape q = orders->q;
    uint32_t half[2];
    const uint32_t both = apply_linear(graph, y, block->q);
    op_chunk(graph, graph_view(graph, both, SHAPE(q.dim[0], q.dim[1], q.dim[2], 2 * q.dim[3])), 2,
             half);
    const uint32_t gate = c->heads > 1 ? op_unary(graph, OP_CLONE, half[1]) : half[1];
    heads->gate = graph_view(graph, gate, SHAPE(q.dim[0], q.dim[1], c->heads * c->head_dim));
    heads->q = hf_decoder_normed(graph, block->way, half[0], block->q_norm);
    if (c->heads > 1)
        graph_drop(graph, both);
}

/* All three as axolotl's attention has them before it looks at any, by its kernel or not. */
static struct heads project_at_once(struct graph *graph, const struct model_config *c,
                                    const struct hf_block *block, uint32_t y,
                                    const struct orders *orders)
{
    const enum hf_qk_norm qk = block->way->qk;
    const bool norms = c->qk_norm && qk != HF_QK_AFTER && qk != HF_QK_BARE && qk != HF_QK_NONE,
               at_once = norms && qk == HF_QK_HEADS;
    struct heads heads = {.gate = GRAPH_NONE};
    uint32_t out[3];
    lora_kernel_qkv(graph, y, block->q, block->k, block->v, out);
    heads.q = hf_heads(graph, out[0], orders->q, orders->q_copied);
    if (at_once)
        heads.q = normed(graph, block, heads.q, block->q_norm);
    heads.k = hf_heads(graph, out[1], orders->kv, orders->k_copied);
    if (at_once)
        heads.k = normed(graph, block, heads.k, block->k_norm);
    heads.v = hf_heads(graph, out[2], orders->kv, orders->v_copied);
    if (norms && !at_once) {
        heads.q = normed_heads(graph, block, heads.q, block->q_norm);
        heads.k = normed_heads(graph, block, heads.k, block->k_norm);
    }
    return heads;
}

static struct heads project(struct graph *graph, const struct model_config *c,
                            const struct hf_block *block, uint32_t y, const struct orders *orders)
{
    if (lora_kernels_attend(graph))
        return project_at_once(graph, c, block, y, orders);
    if (block->way->fused_qkv)
        return project_fused(graph, c, block, y, orders);
    const enum hf_qk_norm qk = block->way->qk;
    const bool at_once = qk == HF_QK_HEADS && c->qk_norm;
    if (qk == HF_QK_WIDE || qk == HF_QK_NONE)
        return project_wide(graph, block, y, orders);
    if (qk != HF_QK_HEADS && qk != HF_QK_AFTER && qk != HF_QK_BARE && c->qk_norm)
        return project_then_norm(graph, block, y, orders);
    struct heads heads = {.gate = GRAPH_NONE};
    if (c->gated_output)
        project_gated(graph, c, block, y, orders, &heads);
    else
        heads.q = hf_heads(graph, apply_linear(graph, y, block->q), orders->q, orders->q_copied);
    if (at_once && !c->gated_output)
        heads.q = normed(graph, block, heads.q, block->q_norm);
    heads.k = hf_heads(graph, apply_linear(graph, y, block->k), orders->kv, orders->k_copied);
    if (at_once)
        heads.k = normed(graph, block, heads.k, block->k_norm);
    heads.v = hf_heads(graph, apply_linear(graph, y, block->v), orders->kv, orders->v_copied);
    return heads;
}

/* q by its positions, in its place. */
static void scale_query(struct graph *graph, const struct model_config *c, uint32_t positions,
                        struct heads *heads)
{
    const uint32_t q = heads->q;
    heads->q = transposed(graph, hf_scale_by_position(graph, transposed(graph, q), positions,
                                                      c->position_beta, c->position_step));
    graph_drop(graph, q);
}

/* What RoPE has turned through norms that have no parameters; where there is none, q by its
 * positions. */
static void finish_bare(struct graph *graph, const struct model_config *c,
                        const struct hf_block *block, bool turned, struct heads *heads)
{
    if (turned && c->qk_norm) {
        heads->q = normed(graph, block, heads->q, block->q_norm);
        heads->k = normed(graph, block, heads->k, block->k_norm);
    }
    if (turned || !c->position_step)
        return;
    const uint32_t q = heads->q;
    heads->q = hf_scale_by_own_position(graph, q, c->position_beta, c->position_step, heads->held);
    heads->held_count = 2;
    graph_drop(graph, q);
}

static float scale_of(const struct model_config *c)
{
    return c->query_scalar > 0 ? 1 / sqrtf(c->query_scalar) : c->attention_multiplier;
}

static uint32_t attend(struct graph *graph, const struct model_config *c,
                       const struct hf_block *block, const struct hf_attention *a,
                       uint32_t *weights)
{
    if (hf_is_eager(graph, block->way))
        return hf_eager_attention(graph, a, c->attention_softcap, weights);
    if (!c->sinks)
        return hf_attention(graph, a);
    const struct hf_sinks sinks = {a->q, a->k, a->v, a->mask, block->sinks, a->dropout};
    return hf_sink_attention(graph, &sinks, weights);
}

/* x · sigmoid(gate), which takes x's place. */
static uint32_t gated(struct graph *graph, uint32_t x, uint32_t gate)
{
    const uint32_t share = op_unary(graph, OP_SIGMOID, gate);
    const uint32_t out = op_mul(graph, x, share);
    graph_drop(graph, share);
    graph_drop(graph, x);
    return out;
}

/* Dropout as the last of what attention or the feed-forward does, whose last product is of that
 * weight. */
static uint32_t own_dropout(struct graph *graph, const struct model_config *c, uint32_t x,
                            uint32_t weight)
{
    hf_call_outer(graph, weight);
    const uint32_t out = hf_dropout(graph, x, c->dropout);
    graph_call_end(graph);
    return out;
}

/* Whether q lies in memory as PyTorch has it, (b, a, s, d): what was joined does, and what one of
 * Liger's norms made of it in that shape. */
static bool is_turned(const struct graph *graph, const struct model_config *c,
                      const struct hf_block *block, uint32_t q)
{
    const enum hf_rotary rotary = block->way->rotary;
    if (graph->liger.rope || graph->liger.rms_norm)
        return graph->tensors[q].layout && graph->liger.rms_norm;
    return rotary != HF_ROTARY_WHOLE && rotary < HF_ROTARY_NEIGHBOURS &&
           !(graph->compiled && c->rotary_dim == c->head_dim); /* hf_join_heads */
}

/* *weights: what Python keeps until the layer returns; GRAPH_NONE: nothing. */
static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct hf_block *block, uint32_t y,
                          uint32_t mask, struct hf_rope rope, uint32_t *weights)
{
    const bool turned = rope.cos != GRAPH_NONE,
               eager = block->way->eager && hf_is_eager(graph, block->way);
    *weights = GRAPH_NONE;
    if (block->mixes)
        return block->way->mixer->run(graph, c, &block->mixing, y);
    if (c->kv_lora)
        return hf_mla(graph, c, &block->mla, block->way->mla, rope, y, mask, block->places);
    struct orders orders = orders_of(graph, c, job, block->way, turned, mask != GRAPH_NONE);
    orders.v_copied |= eager || c->sinks;
    struct heads heads = project(graph, c, block, y, &orders);
    if (turned)
        turn(graph, c, block, rope, &heads);
    if (block->way->qk == HF_QK_AFTER) {
        heads.q = normed_heads(graph, block, heads.q, block->q_norm);
        heads.k = normed_heads(graph, block, heads.k, block->k_norm);
    }
    if (block->way->qk == HF_QK_BARE)
        finish_bare(graph, c, block, turned, &heads);
    else if (c->position_beta > 0)
        scale_query(graph, c, rope.positions, &heads);
    const struct hf_attention arguments = {
        .q = heads.q,
        .k = heads.k,
        .v = heads.v,
        .mask = mask,
        .q_contiguous = is_turned(graph, c, block, heads.q),
        .both_ways = block->way->encoder,
        .dropout = c->attention_dropout,
        .scale = scale_of(c),
        .positions = rope.positions,
        .sample = rope.sample,
        .window = block->window,
        .softcap = c->attention_softcap,
    };
    const uint32_t attended = attend(graph, c, block, &arguments, weights);
    const uint32_t o = heads.gate == GRAPH_NONE ? attended : gated(graph, attended, heads.gate);
    uint32_t out = lora_kernel_o(graph, o, block->o);
    if (!block->way->output_last)
        graph_drop(graph, o);
    if (block->way->own_dropout)
        out = own_dropout(graph, c, out, block->o.weight);
    graph_drop(graph, heads.q);
    if (heads.gate != GRAPH_NONE && !block->way->gate_output)
        graph_drop(graph, heads.gate);
    graph_drop(graph, heads.k);
    graph_drop(graph, heads.v);
    if (block->way->gate_output)
        graph_drop(graph, heads.gate);
    for (uint32_t i = 0; i < heads.held_count; i++)
        graph_drop(graph, heads.held[i]);
    if (block->way->output_last)
        graph_drop(graph, o);
    return out;
}

/* down(up · act(gate)), up and gate halves of one product; or act(gate) · up */
static uint32_t fused_feed_forward(struct graph *graph, const struct model_config *c,
                                   const struct hf_block *block, uint32_t y)
{
    uint32_t half[2];
    const bool gate_first = block->beside || block->way->halves;
    const uint32_t both = apply_linear(graph, y, block->mlp.gate);
    op_chunk(graph, both, 2, half);
    if (graph->liger.glu) {
        const uint32_t product = hf_liger_glu(graph, half[0], half[1]);
        const uint32_t out = apply_linear(graph, product, block->mlp.down);
        graph_drop(graph, product);
        graph_drop(graph, both);
        return out;
    }
    const uint32_t active =
        hf_activation_beside(graph, c->activation, half[0], block->mlp.gate.weight,
                             gate_first ? "activation" : "activation_fn");
    const uint32_t product =
        gate_first ? op_mul(graph, active, half[1]) : op_mul(graph, half[1], active);
    graph_drop(graph, active);
    const uint32_t out = apply_linear(graph, product, block->mlp.down);
    graph_drop(graph, product);
    graph_drop(graph, both);
    return out;
}

/* down(act(up y)) */
static uint32_t plain_feed_forward(struct graph *graph, const struct model_config *c,
                                   const struct hf_block *block, uint32_t y)
{
    const uint32_t up = apply_linear(graph, y, block->mlp.up);
    const uint32_t active =
        block->way->xielu ? hf_xielu(graph, &block->xielu, up)
                          : hf_activation_beside(graph, c->activation, up, block->mlp.up.weight,
                                                 block->way->act ? block->way->act : "act_fn");
    graph_drop(graph, up);
    const uint32_t out = apply_linear(graph, active, block->mlp.down);
    graph_drop(graph, active);
    return out;
}

/* Experts, and what all tokens pass beside them, if there is anything; *routed is Python's until
 * the layer returns. */
static uint32_t feed_beside(struct graph *graph, const struct model_config *c,
                            const struct hf_block *block, uint32_t y, uint32_t *routed)
{
    uint32_t none;
    *routed = hf_moe(graph, c, &block->way->moe, &block->moe, y, &none);
    if (!experts_shared_width(c))
        return *routed;
    const uint32_t shared = fused_feed_forward(graph, c, block, y);
    const uint32_t sum = op_add(graph, *routed, shared);
    graph_drop(graph, shared);
    return sum;
}

/* *scores: a second result, Python's; GRAPH_NONE: there is none. */
static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct hf_block *block, uint32_t y, uint32_t *scores)
{
    *scores = GRAPH_NONE;
    if (block->beside)
        return feed_beside(graph, c, block, y, scores);
    if (block->mixed)
        return hf_moe(graph, c, &block->way->moe, &block->moe, y, scores);
    if (block->way->fused_gate_up)
        return fused_feed_forward(graph, c, block, y);
    const struct hf_mlp *mlp = &block->mlp;
    const bool plain = block->way->up && !block->way->gate;
    if (!plain && lora_kernel_mlp_is(graph, mlp->gate, mlp->up, mlp->down))
        return lora_kernel_mlp(graph, y, mlp->gate, mlp->up, mlp->down); /* it drops nothing */
    const uint32_t out = plain ? plain_feed_forward(graph, c, block, y) : hf_mlp(graph, c, mlp, y);
    return block->way->own_dropout ? own_dropout(graph, c, out, block->mlp.down.weight) : out;
}

/* x through the norm of a place; x itself where there is none. */
static uint32_t normed_at(struct graph *graph, const struct hf_block *block, enum hf_place place,
                          uint32_t x)
{
    const struct norm norm = block->norms[place];
    const bool is_there = norm.weight != GRAPH_NONE || norm.bare;
    if (!is_there)
        return x;
    const uint32_t in = block->way->normed_cast
                            ? op_to(graph, x, (enum dtype)graph->tensors[norm.weight].dtype)
                            : x;
    const uint32_t out = hf_decoder_normed(graph, block->way, in, norm);
    if (in != x)
        graph_drop(graph, in);
    return out;
}

/* y through the layer's dropout, which may be a module though it drops nothing. */
static uint32_t layer_dropout(struct graph *graph, const struct model_config *c,
                              const struct hf_block *block, enum hf_place after, uint32_t y)
{
    const struct hf_decoder *way = block->way;
    const char *module = after == HF_AFTER_MLP ? way->mlp_dropout : way->attention_dropout;
    if (way->own_dropout)
        return y;
    if (!module)
        return op_dropout(graph, y, c->dropout);
    hf_call_beside(graph, block->norms[HF_BEFORE_ATTENTION].weight, module);
    const uint32_t out =
        c->dropout > 0 ? op_dropout(graph, y, c->dropout) : op_called_alone(graph, y);
    graph_call_end(graph);
    return out;
}

/* residual + after(x), perhaps with dropout or times a number, where x is let go unless it is
 * `held`. */
static uint32_t joined(struct graph *graph, const struct model_config *c,
                       const struct hf_block *block, enum hf_place after, uint32_t residual,
                       uint32_t x, uint32_t held)
{
    const uint32_t y = normed_at(graph, block, after, x);
    if (y != x)
        graph_drop(graph, x);
    const uint32_t kept = layer_dropout(graph, c, block, after, y);
    uint32_t part = kept;
    if (c->residual_multiplier > 0)
        part = op_scalar(graph, OP_MUL_SCALAR, kept, c->residual_multiplier);
    const uint32_t sum = op_add(graph, residual, part);
    if (part != kept)
        graph_drop(graph, part);
    if (graph->tensors[kept].storage != graph->tensors[y].storage)
        graph_drop(graph, kept);
    if (y != held)
        graph_drop(graph, y);
    return sum;
}

/* x + a + b in the order of the file, where a + b is first or last. */
static uint32_t sum_of_three(struct graph *graph, const struct hf_block *block, uint32_t x,
                             uint32_t a, uint32_t b)
{
    const bool x_last = block->way->x_last;
    const uint32_t sum = x_last ? op_add(graph, a, b) : op_add(graph, x, a);
    const uint32_t out = op_add(graph, sum, x_last ? x : b);
    graph_drop(graph, sum);
    return out;
}

/* x behind the layer's dropout, by a module of that name, or a function (NULL): in its place. */
static uint32_t dropped(struct graph *graph, const struct model_config *c,
                        const struct hf_block *block, const char *module, uint32_t x)
{
    return module ? hf_dropout_beside(graph, x, c->dropout,
                                      block->norms[HF_BEFORE_ATTENTION].weight, module)
                  : hf_dropout(graph, x, c->dropout);
}

/* A layer with attention and the feed-forward beside each other, which lets go of what it computed
 * when it returns: x + attention(y) + mlp(y). */
static uint32_t run_parallel(struct graph *graph, const struct model_config *c,
                             const struct model_job *job, const struct hf_block *block, uint32_t x,
                             uint32_t mask, struct hf_rope rope)
{
    uint32_t weights, scores;
    const uint32_t y = normed_at(graph, block, HF_BEFORE_ATTENTION, x);
    uint32_t attended = attention(graph, c, job, block, y, mask, rope, &weights);
    if (block->way->x_last)
        attended = dropped(graph, c, block, block->way->attention_dropout, attended);
    const uint32_t fed = dropped(graph, c, block, block->way->mlp_dropout,
                                 feed_forward(graph, c, block, y, &scores));
    const uint32_t z = sum_of_three(graph, block, x, attended, fed);
    graph_drop(graph, y);
    graph_drop(graph, attended);
    if (weights != GRAPH_NONE)
        graph_drop(graph, weights);
    graph_drop(graph, fed);
    return z;
}

/* The same with one behind the other. */
static uint32_t run_serial(struct graph *graph, const struct model_config *c,
                           const struct model_job *job, const struct hf_block *block, uint32_t x,
                           uint32_t mask, struct hf_rope rope)
{
    uint32_t weights, scores;
    const uint32_t y = normed_at(graph, block, HF_BEFORE_ATTENTION, x);
    const uint32_t attended = attention(graph, c, job, block, y, mask, rope, &weights);
    const uint32_t h = op_add(graph, x, attended);
    const uint32_t y2 = normed_at(graph, block, HF_BEFORE_MLP, h);
    const uint32_t output = feed_forward(graph, c, block, y2, &scores);
    graph_drop(graph, y2);
    const uint32_t fed = dropped(graph, c, block, block->way->mlp_dropout, output);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, y);
    graph_drop(graph, h);
    graph_drop(graph, attended);
    if (weights != GRAPH_NONE)
        graph_drop(graph, weights);
    graph_drop(graph, fed);
    return z;
}

/* A layer that is one thing: x + that(norm x). */
static uint32_t run_apart(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct hf_block *block, uint32_t x,
                          uint32_t mask, struct hf_rope rope)
{
    uint32_t held = GRAPH_NONE;
    const uint32_t y = normed_at(graph, block, HF_BEFORE_ATTENTION, x);
    const uint32_t out = block->feeds ? feed_forward(graph, c, block, y, &held)
                                      : attention(graph, c, job, block, y, mask, rope, &held);
    graph_drop(graph, y);
    const uint32_t z = op_add(graph, x, out);
    graph_drop(graph, out);
    if (held != GRAPH_NONE)
        graph_drop(graph, held);
    return z;
}

uint32_t hf_block_run(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, const struct hf_block *block, uint32_t x,
                      uint32_t mask, struct hf_rope rope)
{
    if (block->way->apart)
        return run_apart(graph, c, job, block, x, mask, rope);
    if (block->way->locals_last)
        return (c->parallel_residual ? run_parallel : run_serial)(graph, c, job, block, x, mask,
                                                                  rope);
    const uint32_t y1 = normed_at(graph, block, HF_BEFORE_ATTENTION, x);
    uint32_t weights, scores;
    const uint32_t attended = attention(graph, c, job, block, y1, mask, rope, &weights);
    const bool held = block->way->attended_last;
    if (y1 != x && !held)
        graph_drop(graph, y1);
    const uint32_t h =
        joined(graph, c, block, HF_AFTER_ATTENTION, x, attended, held ? attended : GRAPH_NONE);
    if (held)
        graph_drop(graph, y1);
    const uint32_t y2 = normed_at(graph, block, HF_BEFORE_MLP, h);
    /* attention is called by keywords, which hooks do not see */
    const uint32_t to_feed = y2 == h ? op_call_input(graph, h) : y2;
    const uint32_t fed = feed_forward(graph, c, block, to_feed, &scores);
    if (y2 != h)
        graph_drop(graph, y2);
    if (scores != GRAPH_NONE && !block->beside) { /* both are called _ */
        if (weights != GRAPH_NONE)
            graph_drop(graph, weights);
        weights = scores;
    }
    const uint32_t z = joined(graph, c, block, HF_AFTER_MLP, h, fed, scores);
    graph_drop(graph, h);
    if (held)
        graph_drop(graph, attended);
    if (weights != GRAPH_NONE)
        graph_drop(graph, weights);
    if (block->beside)
        graph_drop(graph, scores);
    return z;
}
