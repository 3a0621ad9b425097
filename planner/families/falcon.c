/* falcon.c - Falcon as Hugging Face's transformers writes it.
 *
 *     z = x + attention(norm x) + mlp(norm x)           7B: one norm, one head of k and v for all
 *     z = x + attention(norm_1 x) + mlp(norm_2 x)       40B: groups of queries share a head
 *     h = x + attention(norm x), z = h + mlp(norm_2 h)  where attention is not parallel
 *
 * q, k and v come in one product. k and v are taken out of it by lists of indices, which copies;
 * the groups' heads are stretched to those of the queries and copied, while one head alone is left
 * to single ops, because no fused kernel broadcasts. There is always a mask, which has ALiBi in it
 * where there is no RoPE. Linear layers are written as products with a transposed weight: autocast
 * keeps no cast of that. */
#include "base/layout.h"
#include "families/llama.h"
#include "graph/autocast.h"
#include "hf/decoder.h"
#include "model/count.h"

struct block {
    struct linear qkv, dense, up, down;
    struct norm norm, second; /* the second is not there where attention is parallel, mostly */
};

static bool has_two_norms(const struct model_config *c)
{
    return c->grouped_qkv && c->parallel_norms != 1;
}

static struct block declare(struct graph *graph, const struct model_config *c, const char *prefix)
{
    const uint32_t h = c->hidden, h_qkv = (c->heads + 2 * c->kv_heads) * c->head_dim;
    const bool biased = c->attention_bias;
    struct block block = {
        .qkv = build_linear(graph, prefix, ".self_attention.query_key_value", h_qkv, h, biased),
        .dense = build_linear(graph, prefix, ".self_attention.dense", h, h, biased),
        .up = build_linear(graph, prefix, ".mlp.dense_h_to_4h", c->ffn, h, biased),
        .down = build_linear(graph, prefix, ".mlp.dense_4h_to_h", h, c->ffn, biased),
    };
    if (!c->parallel_residual)
        block.second = build_norm(graph, prefix, ".post_attention_layernorm", h, true, c->norm_eps);
    block.norm = build_norm(graph, prefix, has_two_norms(c) ? ".ln_attn" : ".input_layernorm", h,
                            true, c->norm_eps);
    if (has_two_norms(c))
        block.second = build_norm(graph, prefix, ".ln_mlp", h, true, c->norm_eps);
    return block;
}

/* x @ weight.T: what autocast casts is the transposed weight, a view, of which it keeps nothing. */
static uint32_t product(struct graph *graph, uint32_t x, uint32_t weight)
{
    uint32_t in[2] = {x, graph_transpose(graph, weight, 0, 1)};
    if (!graph->autocast.on || graph->lora.rank) {
        const uint32_t view = graph_view(graph, weight, graph->tensors[weight].shape);
        return apply_linear(graph, x, (struct linear){view, GRAPH_NONE});
    }
    autocast_arguments(graph, OP_LINEAR, 2, in);
    return op_linear(graph, in[0], graph_transpose(graph, in[1], 0, 1), GRAPH_NONE);
}

/* FalconLinear: the bias is added to the product. */
static uint32_t apply(struct graph *graph, uint32_t x, struct linear linear)
{
    hf_call(graph, linear.weight);
    const uint32_t y = product(graph, x, linear.weight);
    uint32_t out = y;
    if (linear.bias != GRAPH_NONE) {
        out = op_add(graph, y, linear.bias);
        graph_drop(graph, y);
    }
    graph_call_end(graph);
    return out;
}

struct heads { /* (b, s, a or k, d) */
    uint32_t q, k, v;
    bool copied; /* q and k are tensors of their own */
};

/* x (b, s, g, r, d) as (b, s, g r, d), which is a copy where no strides say that. */
static uint32_t flattened(struct graph *graph, uint32_t x, bool *copied)
{
    const struct shape s = graph->tensors[x].shape;
    const struct shape flat = SHAPE(s.dim[0], s.dim[1], s.dim[2] * s.dim[3], s.dim[4]);
    const struct strides own = graph_strides(graph, x);
    struct strides seen;
    *copied = !layout_view(&s, &own, &flat, &seen);
    return graph_view(graph, *copied ? op_unary(graph, OP_CLONE, x) : x, flat);
}

/* Behind the queries of each group are its key and its value. */
static struct heads split_groups(struct graph *graph, const struct model_config *c,
                                 const struct model_job *job, uint32_t qkv)
{
    const uint32_t b = job->batch, s = job->seq, g = c->kv_heads, d = c->head_dim;
    const uint32_t r = c->heads / g;
    const struct shape wide = SHAPE(b, s, g, r, d);
    const uint32_t groups = graph_view(graph, qkv, SHAPE(b, s, g, r + 2, d));
    const uint32_t q = op_slice_dim(graph, groups, 3, 0, r);
    const uint32_t k = op_pick(graph, groups, 3, r), v = op_pick(graph, groups, 3, r + 1);
    const uint32_t k_wide = op_expand(graph, k, wide), v_wide = op_expand(graph, v, wide);
    bool q_copied, k_copied, v_copied;
    const struct heads heads = {
        .q = flattened(graph, q, &q_copied),
        .k = flattened(graph, k_wide, &k_copied),
        .v = flattened(graph, v_wide, &v_copied),
        .copied = q_copied,
    };
    if (k_copied)
        graph_drop(graph, k);
    if (v_copied)
        graph_drop(graph, v);
    return heads;
}

/* Behind all queries are one key and one value. */
static struct heads split_one(struct graph *graph, const struct model_config *c,
                              const struct model_job *job, uint32_t qkv)
{
    const uint32_t a = c->heads;
    const struct shape shape = SHAPE(job->batch, job->seq, a + 2, c->head_dim);
    const uint32_t all = graph_view(graph, qkv, shape);
    const uint32_t q = op_slice_dim(graph, all, 2, 0, a);
    const uint32_t k = op_pick(graph, all, 2, a);
    return (struct heads){.q = q, .k = k, .v = op_pick(graph, all, 2, a + 1)};
}

/* Each head's q, k and v are beside each other. */
static struct heads split_heads(struct graph *graph, const struct model_config *c,
                                const struct model_job *job, uint32_t qkv)
{
    const uint32_t b = job->batch, s = job->seq, a = c->heads, d = c->head_dim;
    const uint32_t all = graph_view(graph, qkv, SHAPE(b, s, a, 3, d));
    uint32_t part[3];
    for (uint32_t i = 0; i < 3; i++)
        part[i] = graph_view(graph, op_select(graph, all, 3, i), SHAPE(b, s, a, d));
    return (struct heads){.q = part[0], .k = part[1], .v = part[2]};
}

static uint32_t rotated(struct graph *graph, uint32_t x, struct hf_rope rope)
{
    return graph_transpose(graph, hf_rotate(graph, graph_transpose(graph, x, 1, 2), rope), 1, 2);
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          uint32_t mask, struct hf_rope rope)
{
    const uint32_t qkv = apply(graph, y, block->qkv);
    const struct heads heads = c->grouped_qkv   ? split_groups(graph, c, job, qkv)
                               : c->one_kv_head ? split_one(graph, c, job, qkv)
                                                : split_heads(graph, c, job, qkv);
    const bool k_copied = graph->tensors[heads.k].storage != graph->tensors[qkv].storage;
    uint32_t q = heads.q, k = heads.k;
    if (!c->alibi) {
        q = rotated(graph, heads.q, rope);
        k = rotated(graph, heads.k, rope);
        if (heads.copied)
            graph_drop(graph, heads.q);
        if (k_copied)
            graph_drop(graph, heads.k);
    }
    const uint32_t o = hf_attention(graph, &(struct hf_attention){
                                               .q = q,
                                               .k = k,
                                               .v = heads.v,
                                               .mask = mask,
                                               .broadcast = c->one_kv_head && !c->grouped_qkv,
                                               .dropout = c->alibi ? c->attention_dropout : 0,
                                               .positions = rope.positions,
                                               .sample = rope.sample,
                                           });
    const uint32_t out = apply(graph, o, block->dense);
    graph_drop(graph, o);
    const bool v_copied = graph->tensors[heads.v].storage != graph->tensors[qkv].storage;
    if (v_copied)
        graph_drop(graph, qkv);
    if (!c->alibi || heads.copied)
        graph_drop(graph, q);
    if (!c->alibi || k_copied)
        graph_drop(graph, k);
    graph_drop(graph, v_copied ? heads.v : qkv); /* of which v is a view */
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t y)
{
    const uint32_t up = apply(graph, y, block->up);
    const uint32_t active = hf_activation_beside(graph, c->activation, up, block->up.weight, "act");
    graph_drop(graph, up);
    const uint32_t out = apply(graph, active, block->down);
    graph_drop(graph, active);
    return out;
}

/* residual + x behind dropout, which is a function; x stays the caller's. */
static uint32_t dropped_sum(struct graph *graph, uint32_t x, uint32_t residual, float p)
{
    const uint32_t kept = op_dropout(graph, x, p);
    const uint32_t sum = op_add(graph, residual, kept);
    if (kept != x)
        graph_drop(graph, kept);
    return sum;
}

static uint32_t layer(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, const struct hf_layer_call *call)
{
    const struct block block = declare(graph, c, call->prefix);
    const uint32_t x = call->x;
    const uint32_t y = apply_norm(graph, x, block.norm);
    uint32_t y2 = has_two_norms(c) ? apply_norm(graph, x, block.second) : y, residual = x;
    const uint32_t attended = attention(graph, c, job, &block, y, call->mask, call->rope);
    if (!c->parallel_residual) {
        residual = dropped_sum(graph, attended, x, c->attention_dropout);
        y2 = apply_norm(graph, residual, block.second);
    }
    uint32_t fed = feed_forward(graph, c, &block, y2);
    if (c->parallel_residual)
        fed = op_add_in_place(graph, fed, attended);
    const uint32_t z = dropped_sum(graph, fed, residual, c->dropout);
    if (residual != x)
        graph_drop(graph, residual);
    graph_drop(graph, y);
    if (y2 != y)
        graph_drop(graph, y2);
    graph_drop(graph, attended);
    graph_drop(graph, fed);
    return z;
}

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = apply_norm,
        .biased_norms = true,
        .model = "transformer",
        .embedding = "word_embeddings",
        .layers = "h",
        .last_norm = "ln_f",
        .last_named = true,
        .layer = layer,
        .masked = true,
        .unasked = true,
        .positions_first = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SHAPE_KEYS,
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    {DERIVED("num_kv_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)},
    {DERIVED("ffn_hidden_size", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},
    {POSITIONS("max_position_embeddings", 2048)},
    EPS("layer_norm_epsilon", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e4),
    TIED(true),
    {CHOICE("activation", gated, "gelu", key_activations)},
    DROPOUT("hidden_dropout", dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("bias", attention_bias, false)},
    {FLAG("bias", mlp_bias, false)},
    {FLAG("multi_query", one_kv_head, true)},
    {FLAG("new_decoder_architecture", grouped_qkv, false)},
    {FLAG("parallel_attn", parallel_residual, true)},
    {.name = "num_ln_in_parallel_attn",
     .type = KEY_INT,
     .min = 0,
     .max = 2,
     AT(parallel_norms),
     .absent = RULE_NONE,
     .null = RULE_NONE},
    {FLAG("alibi", alibi, false)},
};

/* num_kv_heads counts where heads are grouped alone. */
static void settle(struct model_config *c)
{
    if (!c->grouped_qkv)
        c->kv_heads = c->one_kv_head ? 1 : c->heads;
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    (void)table;
    if (c->grouped_qkv && !c->parallel_residual)
        return err_set(err, ERR_INVALID,
                       "%s: \"parallel_attn\": false, where \"new_decoder_architecture\" has "
                       "attention and feed-forward beside each other: expected true",
                       where);
    if (c->alibi && (c->heads & (c->heads - 1)))
        return err_set(err, ERR_INVALID,
                       "%s: \"num_attention_heads\": %u with \"alibi\": expected a power of 2 "
                       "(nothing else is planned for)",
                       where, c->heads);
    if (!c->grouped_qkv && c->parallel_norms == 2)
        return err_set(err, ERR_INVALID,
                       "%s: \"num_ln_in_parallel_attn\": 2, and without "
                       "\"new_decoder_architecture\" layers call one: expected null or 1",
                       where);
    if (c->rope.scaling == ROPE_DYNAMIC)
        return err_set(err, ERR_INVALID,
                       "%s: \"rope_type\": \"dynamic\": falcon's is asked for anew in every step, "
                       "which is not planned",
                       where);
    return ERR_OK;
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, f = c->ffn, v = c->vocab;
    const double qkv = ((double)c->heads + 2.0 * c->kv_heads) * c->head_dim;
    const bool biased = c->attention_bias;
    const double block = count_linear(qkv, h, biased) + count_linear(h, h, biased) +
                         count_linear(f, h, biased) + count_linear(h, f, biased);
    const double norms = !c->parallel_residual || has_two_norms(c) ? 2 : 1;
    return c->layers * (block + norms * 2 * h) + (c->tied ? 1 : 2) * v * h + 2 * h;
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* tiiuae/falcon-7b, falcon-11B, falcon-40b, falcon-rw-1b, falcon-rw-7b. FalconForCausalLM. */
#define FALCON(title, count, h, l, a, k, f, v, positions, base, ...)                               \
    {title, count,                                                                                 \
     {DECODER(ARCH_FALCON, h, l, a, k, h / a, f, v, positions, 1e-5F, base),                       \
      .activation = "gelu", __VA_ARGS__}}
#define PARALLEL .parallel_residual = true, .one_kv_head = true
#define WEB .tied = true, .attention_bias = true, .mlp_bias = true, .alibi = true

static const struct model_preset presets[] = {
    FALCON("falcon-7b",    6921720704,  4544, 32, 71,  1,  18176, 65024, 2048, 1e4F, PARALLEL,
           .tied = true),
    FALCON("falcon-11b",   11102822400, 4096, 60, 32,  8,  16384, 65024, 8192, 500042.0F, PARALLEL,
           .grouped_qkv = true, .parallel_norms = 1),
    FALCON("falcon-40b",   41303293952, 8192, 60, 128, 8,  32768, 65024, 2048, 1e4F, PARALLEL,
           .grouped_qkv = true, .tied = true),
    FALCON("falcon-rw-1b", 1311625216,  2048, 24, 32,  32, 8192,  50304, 2048, 1e4F, WEB),
    FALCON("falcon-rw-7b", 7516020736,  4096, 36, 64,  64, 16384, 65024, 2048, 1e4F, WEB),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_falcon = {
    .name = "falcon",
    .class_name = "FalconForCausalLM",
    .classifier = "FalconForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .rope = true,
    .parameters = parameters,
    .settle = settle,
    .check = check,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
