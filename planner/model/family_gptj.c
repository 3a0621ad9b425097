/* family_gptj.c - GPT-J as Hugging Face's transformers writes it.
 *
 *     z = x + attention(ln x) + mlp(ln x)
 *
 * Attention is in single ops whatever the kernel is asked for: scores in fp32, which each block
 * returns beside its output, so that they live until the next block has returned. Each block reads
 * its RoPE out of a table of its own; a number's partner is the next one. */
#include "model/build_hf.h"
#include "model/count.h"
#include "model/family.h"

#include <math.h>

struct block {
    struct norm ln;
    struct linear q, k, v, out, fc_in, fc_out;
    uint32_t table; /* (n, r) */
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const struct model_job *job, const char *prefix)
{
    const uint32_t h = c->hidden;
    struct block block = {.ln = build_norm(graph, prefix, ".ln_1", h, true, c->norm_eps)};
    block.table = build_rope(graph, c, job, ROPE_SINES, c->rotary_dim);
    block.k = build_linear(graph, prefix, ".attn.k_proj", h, h, false);
    block.v = build_linear(graph, prefix, ".attn.v_proj", h, h, false);
    block.q = build_linear(graph, prefix, ".attn.q_proj", h, h, false);
    block.out = build_linear(graph, prefix, ".attn.out_proj", h, h, false);
    block.fc_in = build_linear(graph, prefix, ".mlp.fc_in", c->ffn, h, true);
    block.fc_out = build_linear(graph, prefix, ".mlp.fc_out", h, c->ffn, true);
    return block;
}

struct sincos {
    uint32_t table, ids, rows; /* Python's until attention returns */
};

/* Rows (1, s, r) of the table, in a dtype: gathered by positions that are repeated for it. */
static struct sincos look_up(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t positions, enum dtype dtype)
{
    const uint32_t n = c->max_positions, r = c->rotary_dim;
    const uint32_t s = graph->tensors[positions].shape.dim[0];
    struct sincos at;
    at.table =
        op_no_grad(graph, WORK_COPY, ATEN_REPEAT, DTYPE_FP32, SHAPE(1, n, r), 1, &block->table);
    at.ids = op_repeat_no_grad(graph, ATEN_REPEAT, graph_view(graph, positions, SHAPE(1, s)),
                               SHAPE(1, s, r), 2);
    const uint32_t gathered =
        op_no_grad(graph, WORK_EMBEDDING, ATEN_GATHER, DTYPE_FP32, SHAPE(1, s, r), 2,
                   (uint32_t[]){graph_view(graph, positions, SHAPE(1, s)),
                                graph_view(graph, at.table, SHAPE(n, r))});
    at.rows = op_to(graph, gathered, dtype);
    if (at.rows != gathered)
        graph_drop(graph, gathered);
    return at;
}

/* Each number twice, of half of the rows (1, s, r): (1, s, 1, r). */
static uint32_t doubled(struct graph *graph, uint32_t rows, bool second)
{
    const struct graph_tensor t = graph->tensors[rows];
    const uint32_t s = t.shape.dim[1], half = t.shape.dim[2] / 2;
    const uint32_t part = graph_slice(graph, rows, second ? half : 0, half);
    const uint32_t pairs = op_no_grad(graph, WORK_INTERLEAVE, ATEN_CLONE, (enum dtype)t.dtype,
                                      SHAPE(1, s, 1, half, 2), 2, (uint32_t[]){part, part});
    return graph_view(graph, pairs, SHAPE(1, s, 1, 2 * half));
}

/* x cos + rotate_every_two(x) sin, of x (b, s, a, r). */
static uint32_t rotated(struct graph *graph, uint32_t x, uint32_t rows)
{
    const uint32_t sin = doubled(graph, rows, false), cos = doubled(graph, rows, true);
    const uint32_t straight = op_mul(graph, x, cos);
    const uint32_t even = op_stride_last(graph, x, 0, 2), odd = op_stride_last(graph, x, 1, 2);
    const uint32_t minus = op_unary(graph, OP_NEG, odd);
    const uint32_t turned = op_interleave(graph, minus, even);
    graph_drop(graph, minus);
    const uint32_t crossed = op_mul(graph, turned, sin);
    graph_drop(graph, turned);
    const uint32_t out = op_add(graph, straight, crossed);
    graph_drop(graph, straight);
    graph_drop(graph, crossed);
    graph_drop(graph, sin);
    graph_drop(graph, cos);
    return out;
}

/* _attn of heads (b, a, s, d): softmax(q kᵀ / root d + mask) v, (b, a, s, d); *weights is
 * Python's. */
static uint32_t attend(struct graph *graph, const struct model_config *c, const struct block *block,
                       uint32_t q, uint32_t k, uint32_t v, uint32_t mask, uint32_t *weights)
{
    const uint32_t q_wide = op_to(graph, q, DTYPE_FP32), k_wide = op_to(graph, k, DTYPE_FP32);
    const uint32_t product = op_matmul(graph, q_wide, graph_transpose(graph, k_wide, 2, 3));
    const uint32_t scores = op_scalar(graph, OP_DIV_SCALAR, product, sqrtf((float)c->head_dim));
    graph_drop(graph, product);
    const uint32_t masked = op_add(graph, scores, mask);
    graph_drop(graph, scores);
    const uint32_t wide = op_softmax(graph, masked);
    graph_drop(graph, masked);
    const uint32_t narrow = op_to(graph, wide, (enum dtype)graph->tensors[v].dtype);
    if (narrow != wide)
        graph_drop(graph, wide);
    *weights =
        hf_dropout_beside(graph, narrow, c->attention_dropout, block->k.weight, "attn_dropout");
    const uint32_t out = op_matmul(graph, *weights, v);
    if (q_wide != q) {
        graph_drop(graph, q_wide);
        graph_drop(graph, k_wide);
    }
    return out;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          uint32_t mask, uint32_t positions, uint32_t *weights)
{
    const uint32_t b = job->batch, s = job->seq, r = c->rotary_dim;
    const struct shape heads = SHAPE(b, s, c->heads, c->head_dim);
    const uint32_t q0 = apply_linear(graph, y, block->q);
    const uint32_t k0 = apply_linear(graph, y, block->k);
    const uint32_t v0 = apply_linear(graph, y, block->v);
    const uint32_t q1 = op_reshape(graph, q0, heads), k1 = op_reshape(graph, k0, heads);
    const uint32_t v = op_reshape(graph, v0, heads);
    const struct sincos at =
        look_up(graph, c, block, positions, (enum dtype)graph->tensors[k0].dtype);
    const struct hf_cut k_cut = hf_cut_heads(graph, k1, r), q_cut = hf_cut_heads(graph, q1, r);
    const uint32_t k_turned = rotated(graph, k_cut.turned, at.rows);
    const uint32_t q_turned = rotated(graph, q_cut.turned, at.rows);
    const uint32_t k = op_cat_last(graph, k_turned, k_cut.passed);
    const uint32_t q = op_cat_last(graph, q_turned, q_cut.passed);
    const uint32_t o =
        attend(graph, c, block, graph_transpose(graph, q, 1, 2), graph_transpose(graph, k, 1, 2),
               graph_transpose(graph, v, 1, 2), mask, weights);
    uint32_t merged = graph_transpose(graph, o, 1, 2);
    if (c->heads > 1 && s > 1) { /* contiguous() */
        merged = op_unary(graph, OP_CLONE, merged);
        graph_drop(graph, o);
    }
    const uint32_t projected =
        apply_linear(graph, graph_view(graph, merged, SHAPE(b, s, c->hidden)), block->out);
    graph_drop(graph, merged);
    const uint32_t out =
        hf_dropout_beside(graph, projected, c->dropout, block->k.weight, "resid_dropout");
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v0);
    graph_drop(graph, at.table);
    graph_drop(graph, at.ids);
    graph_drop(graph, at.rows);
    graph_drop(graph, k_turned);
    graph_drop(graph, k0);
    graph_drop(graph, q_turned);
    graph_drop(graph, q0);
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t y)
{
    const uint32_t up = apply_linear(graph, y, block->fc_in);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, up, block->fc_in.weight, "act");
    graph_drop(graph, up);
    const uint32_t down = apply_linear(graph, active, block->fc_out);
    graph_drop(graph, active);
    return hf_dropout_beside(graph, down, c->dropout, block->fc_in.weight, "dropout");
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t x,
                          uint32_t mask, uint32_t positions, uint32_t *weights)
{
    const uint32_t y = apply_norm(graph, x, block->ln);
    const uint32_t attended = attention(graph, c, job, block, y, mask, positions, weights);
    const uint32_t fed = feed_forward(graph, c, block, y);
    const uint32_t sum = op_add(graph, attended, fed);
    const uint32_t z = op_add(graph, sum, x);
    graph_drop(graph, sum);
    graph_drop(graph, y);
    graph_drop(graph, attended);
    graph_drop(graph, fed);
    return z;
}

struct inputs { /* of every block */
    uint32_t mask, positions;
    bool dropped; /* the first is called with what dropout returned */
};

/* All blocks; what the last returned stays, and so do its scores: *last[2]. */
static uint32_t run_blocks(struct graph *graph, const struct model_config *c,
                           const struct model_job *job, const struct inputs *in, uint32_t x,
                           uint32_t last[2])
{
    uint32_t weights = GRAPH_NONE;
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "transformer.h.%u", i);
        const struct block block = declare_block(graph, c, job, graph->modules[module].name);
        uint32_t scores;
        graph_enter(graph, module, x);
        graph_also_input(graph, module, in->positions);
        graph_also_input(graph, module, in->mask);
        const uint32_t z = run_block(graph, c, job, &block, x, in->mask, in->positions, &scores);
        graph_exit(graph, module, z);
        if (weights != GRAPH_NONE)
            graph_drop(graph, weights);
        if (i > 0 || in->dropped)
            graph_drop(graph, x); /* the first one may be inputs_embeds too */
        x = z;
        weights = scores;
    }
    last[0] = x;
    last[1] = weights;
    return x;
}

static void build(struct graph *graph, const struct model_config *c, const struct model_job *job)
{
    uint32_t last[2];
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = build_input(graph, c, INPUT_LABELS, SHAPE(job->batch, job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    uint32_t wte;
    const uint32_t embedded = hf_wte(graph, c, tokens, &wte);
    struct inputs in = {.positions = hf_positions(graph, job), .dropped = c->embedding_dropout > 0};
    hf_packed_test(graph, job, in.positions);
    in.mask = hf_eager_mask(graph, job, hf_window_mask(graph, job, HF_NO_WINDOW));
    graph_call_begin(graph, "transformer.drop");
    const uint32_t first = in.dropped ? op_dropout(graph, embedded, c->embedding_dropout)
                                      : op_called_alone(graph, embedded);
    graph_call_end(graph);
    run_blocks(graph, c, job, &in, first, last);
    const uint32_t module = graph_module(graph, ROLE_NORM, "transformer.ln_f");
    const struct norm norm =
        build_norm(graph, "transformer.", "ln_f", c->hidden, true, c->norm_eps);
    graph_enter(graph, module, last[0]);
    const uint32_t normed = apply_norm(graph, last[0], norm);
    graph_exit(graph, module, normed);
    graph_drop(graph, in.positions);
    graph_drop(graph, embedded);
    graph_drop(graph, in.mask);
    graph_drop(graph, last[0]);
    graph_drop(graph, last[1]);
    const uint32_t head_module = graph_module(graph, ROLE_HEAD, "lm_head");
    struct linear head = {wte, GRAPH_NONE};
    if (c->tied)
        head.bias = graph_param(graph, PARAM_BIAS, SHAPE(c->vocab), "lm_head.bias");
    else
        head = build_linear(graph, "", "lm_head", c->vocab, c->hidden, true);
    hf_head(graph, head_module, normed, head, labels);
}

static const struct key keys[] = {
    {SIZE("vocab_size", vocab, VOCAB_MAX)},
    {SIZE("n_embd", hidden, HIDDEN_MAX), .other = "hidden_size"},
    {SIZE("n_layer", layers, LAYERS_MAX), .other = "num_hidden_layers"},
    {SIZE("n_head", heads, HEADS_MAX), .other = "num_attention_heads"},
    PLAIN_HEADS,
    {DERIVED("n_inner", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},
    {POSITIONS("n_positions", 2048), .other = "max_position_embeddings"},
    {COUNT("rotary_dim", rotary_dim, 64, HEAD_DIM_MAX)},
    EPS("layer_norm_epsilon", 1e-5),
    STD("initializer_range", 0.02),
    {NUMBER("theta", rope.theta, 1e4, 1, 1e12), .fixed = true},
    TIED(false),
    {CHOICE("activation_function", gated, "gelu_new", key_activations)},
    DROPOUT("resid_pdrop", dropout, 0),
    DROPOUT("embd_pdrop", embedding_dropout, 0),
    DROPOUT("attn_pdrop", attention_dropout, 0),
    {ALWAYS("mlp_bias", mlp_bias)},
};

/* EleutherAI/gpt-j-6b. GPTJForCausalLM. */
static const struct model_preset presets[] = {
    {"gpt-j-6b",
     6050882784,
     {.arch = ARCH_GPTJ,
      .hidden = 4096,
      .layers = 28,
      .heads = 16,
      .kv_heads = 16,
      .head_dim = 256,
      .ffn = 16384,
      .vocab = 50400,
      .max_positions = 2048,
      .rotary_dim = 64,
      .mlp_bias = true,
      .activation = "gelu_new",
      .norm_eps = 1e-5F,
      .init_std = 0.02F,
      .rope.theta = 1e4F,
      .rope.attention_factor = 1}},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab;
    return c->layers *
               (4 * h * h + count_linear(c->ffn, h, true) + count_linear(h, c->ffn, true) + 2 * h) +
           (c->tied ? 1 : 2) * v * h + v + 2 * h;
}

const struct family family_gptj = {
    .name = "gptj",
    .class_name = "GPTJForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};
