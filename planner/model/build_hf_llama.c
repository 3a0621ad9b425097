/* build_hf_llama.c - Llama, Mistral, Qwen2 and Qwen3 as Hugging Face's transformers write them, and
 * what Mixtral has in common with them.
 *
 *     h = x + o_proj(attention(rope(q y), rope(k y), v y))     y = rms_norm(x)
 *     z = h + down(silu(gate y) · up y)                        y = rms_norm(h)
 *
 * Nothing is fused but attention: RMSNorm and RoPE are Python arithmetic. Qwen2 adds biases to q,
 * k, v; Qwen3 an RMSNorm to each head of q and k; Mistral and Qwen2 may look at a window only,
 * which takes a mask where the sequence is longer than it. */
#include "model/build_hf.h"
#include "model/family_llama.h"

#include <stdio.h>

struct block {
    struct linear q, k, v, o, gate, up, down;
    struct hf_moe moe; /* Mixtral's in place of gate, up, down */
    struct norm q_norm, k_norm, input_norm, post_norm;
};

struct way {             /* by model file */
    bool masks_by_layer; /* Qwen: a mask for each type of layer, asked for where any has a window */
    bool positions_first; /* Mistral: position_ids come before the tables in the call of a block */
};

struct inputs { /* the same for every block */
    struct way way;
    uint32_t positions, mask, window_mask;
    struct hf_rope rope;
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const char *prefix)
{
    char attention[96], mlp[96];
    snprintf(attention, sizeof attention, "%s.self_attn.", prefix);
    snprintf(mlp, sizeof mlp, "%s.mlp.", prefix);
    const uint32_t h = c->hidden, h_q = c->heads * c->head_dim, h_kv = c->kv_heads * c->head_dim;
    struct block block = {.q = build_linear(graph, attention, "q_proj", h_q, h, c->attention_bias)};
    block.k = build_linear(graph, attention, "k_proj", h_kv, h, c->attention_bias);
    block.v = build_linear(graph, attention, "v_proj", h_kv, h, c->attention_bias);
    block.o = build_linear(graph, attention, "o_proj", h, h_q, c->output_bias);
    if (c->qk_norm) {
        block.q_norm = build_norm(graph, attention, "q_norm", c->head_dim, false, c->norm_eps);
        block.k_norm = build_norm(graph, attention, "k_norm", c->head_dim, false, c->norm_eps);
    }
    if (c->experts > 0) {
        block.moe = hf_moe_declare(graph, c, mlp);
    } else {
        block.gate = build_linear(graph, mlp, "gate_proj", c->ffn, h, c->mlp_bias);
        block.up = build_linear(graph, mlp, "up_proj", c->ffn, h, c->mlp_bias);
        block.down = build_linear(graph, mlp, "down_proj", h, c->ffn, c->mlp_bias);
    }
    block.input_norm = build_norm(graph, prefix, ".input_layernorm", h, false, c->norm_eps);
    block.post_norm = build_norm(graph, prefix, ".post_attention_layernorm", h, false, c->norm_eps);
    return block;
}

static uint32_t normed_heads(struct graph *graph, uint32_t x, struct norm norm)
{
    const uint32_t out = hf_rms_norm(graph, x, norm);
    graph_drop(graph, x);
    return out;
}

static uint32_t rotated(struct graph *graph, uint32_t x, struct hf_rope rope) /* x (b, s, a, d) */
{
    const struct shape s = graph->tensors[x].shape;
    const uint32_t out =
        hf_rotate(graph, graph_view(graph, x, SHAPE(s.dim[0], s.dim[2], s.dim[1], s.dim[3])), rope);
    return graph_view(graph, out, s);
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          uint32_t mask, struct hf_rope rope)
{
    const struct shape q_shape = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    const struct shape kv_shape = SHAPE(job->batch, job->seq, c->kv_heads, c->head_dim);
    const bool copied = hf_copies_gradients(graph, c, mask != GRAPH_NONE);
    /* RoPE's cat and slices leave the gradients of q and k in the order (b, a, s, d) */
    uint32_t q0 = hf_heads(graph, apply_linear(graph, y, block->q), q_shape, true);
    if (c->qk_norm)
        q0 = normed_heads(graph, q0, block->q_norm);
    uint32_t k0 = hf_heads(graph, apply_linear(graph, y, block->k), kv_shape, true);
    if (c->qk_norm)
        k0 = normed_heads(graph, k0, block->k_norm);
    const uint32_t v = hf_heads(graph, apply_linear(graph, y, block->v), kv_shape, copied);
    const uint32_t q = rotated(graph, q0, rope), k = rotated(graph, k0, rope);
    graph_drop(graph, q0);
    graph_drop(graph, k0);
    const uint32_t o = hf_attention(graph, &(struct hf_attention){
                                               .q = q,
                                               .k = k,
                                               .v = v,
                                               .mask = mask,
                                               .dropout = c->attention_dropout,
                                           });
    const uint32_t out = apply_linear(graph, o, block->o);
    graph_drop(graph, o);
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v);
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t y)
{
    if (c->experts > 0)
        return hf_moe(graph, c, &block->moe, y);
    const uint32_t gate = apply_linear(graph, y, block->gate);
    const uint32_t active = hf_activation(graph, c->activation, gate);
    graph_drop(graph, gate);
    const uint32_t up = apply_linear(graph, y, block->up);
    const uint32_t product = op_mul(graph, active, up);
    graph_drop(graph, active);
    graph_drop(graph, up);
    const uint32_t out = apply_linear(graph, product, block->down);
    graph_drop(graph, product);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t x,
                          uint32_t mask, struct hf_rope rope)
{
    const uint32_t y1 = hf_rms_norm(graph, x, block->input_norm);
    const uint32_t attended = attention(graph, c, job, block, y1, mask, rope);
    graph_drop(graph, y1);
    const uint32_t h = op_add(graph, x, attended);
    graph_drop(graph, attended);
    const uint32_t y2 = hf_rms_norm(graph, h, block->post_norm);
    const uint32_t fed = feed_forward(graph, c, block, y2);
    graph_drop(graph, y2);
    const uint32_t z = op_add(graph, h, fed);
    graph_drop(graph, fed);
    graph_drop(graph, h);
    return z;
}

/* Positions, masks and RoPE tables. */
static struct inputs make_inputs(struct graph *graph, const struct model_config *c,
                                 const struct model_job *job, struct way way)
{
    struct inputs in = {.way = way, .mask = GRAPH_NONE, .window_mask = GRAPH_NONE};
    const bool windows = c->sliding_window && c->full_layers < c->layers;
    in.positions = hf_positions(graph, job);
    hf_packed_test(graph, job, in.positions);
    if (windows && way.masks_by_layer)
        hf_packed_test(graph, job, in.positions);
    if (windows && job->seq >= c->sliding_window)
        in.window_mask = hf_window_mask(graph, job, c->sliding_window);
    in.rope = hf_rope_tables(graph, c, job, c->head_dim);
    return in;
}

static uint32_t enter_block(struct graph *graph, const struct model_config *c,
                            const struct model_job *job, uint32_t index, uint32_t x,
                            const struct inputs *in)
{
    const uint32_t module = graph_module(graph, ROLE_BLOCK, "model.layers.%u", index);
    const struct block block = declare_block(graph, c, graph->modules[module].name);
    const uint32_t mask = index >= c->full_layers ? in->window_mask : in->mask;
    graph_enter(graph, module, x);
    if (!in->way.positions_first)
        graph_also_input(graph, module, in->positions);
    graph_also_input(graph, module, in->rope.sin);
    graph_also_input(graph, module, in->rope.cos);
    if (in->way.positions_first)
        graph_also_input(graph, module, in->positions);
    if (mask != GRAPH_NONE)
        graph_also_input(graph, module, mask);
    const uint32_t z = run_block(graph, c, job, &block, x, mask, in->rope);
    graph_exit(graph, module, z);
    return z;
}

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job,
                  struct way way)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = build_input(graph, c, INPUT_LABELS, SHAPE(job->batch, job->seq));
    build_rope(graph, c, job, ROPE_FREQUENCIES, c->head_dim); /* inv_freq */
    build_rope(graph, c, job, ROPE_FREQUENCIES, c->head_dim); /* original_inv_freq */

    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t embeddings = graph_module(graph, ROLE_EMBEDDING, "model.embed_tokens");
    const uint32_t table =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "model.embed_tokens.weight");
    graph_enter(graph, embeddings, tokens);
    const uint32_t embedded = op_embedding(graph, tokens, table);
    graph_exit(graph, embeddings, embedded);
    const struct inputs in = make_inputs(graph, c, job, way);
    uint32_t x = embedded;
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t z = enter_block(graph, c, job, i, x, &in);
        if (i > 0)
            graph_drop(graph, x); /* the first one is inputs_embeds too */
        x = z;
    }
    const uint32_t last = graph_module(graph, ROLE_NORM, "model.norm");
    const struct norm norm = build_norm(graph, "model.", "norm", c->hidden, false, c->norm_eps);
    graph_enter(graph, last, x);
    const uint32_t normed = hf_rms_norm(graph, x, norm);
    graph_exit(graph, last, normed);
    graph_drop(graph, x);
    /* Where masks go by layer, the arguments of the functions that make them (inputs_embeds,
     * position_ids, ...) are also in a dict, which lets go last. */
    if (way.masks_by_layer && in.window_mask != GRAPH_NONE)
        graph_drop(graph, in.window_mask);
    graph_drop(graph, way.masks_by_layer ? embedded : in.positions);
    graph_drop(graph, way.masks_by_layer ? in.positions : embedded);
    if (!way.masks_by_layer && in.window_mask != GRAPH_NONE)
        graph_drop(graph, in.window_mask);
    graph_drop(graph, in.rope.cos);
    graph_drop(graph, in.rope.sin);
    const uint32_t module = graph_module(graph, ROLE_HEAD, "lm_head");
    const struct linear head = c->tied
                                   ? (struct linear){table, GRAPH_NONE}
                                   : build_linear(graph, "", "lm_head", c->vocab, c->hidden, false);
    graph_enter(graph, module, normed);
    const uint32_t logits = apply_linear(graph, normed, head);
    graph_exit(graph, module, logits);
    hf_loss(graph, normed, logits, labels);
}

void build_hf_llama(struct graph *graph, const struct model_config *config,
                    const struct model_job *job)
{
    build(graph, config, job, (struct way){0});
}

void build_hf_mistral(struct graph *graph, const struct model_config *config,
                      const struct model_job *job)
{
    build(graph, config, job, (struct way){.positions_first = true});
}

void build_hf_qwen(struct graph *graph, const struct model_config *config,
                   const struct model_job *job)
{
    build(graph, config, job, (struct way){.masks_by_layer = true});
}
