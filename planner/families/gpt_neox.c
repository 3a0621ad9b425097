/* gpt_neox.c - GPT-NeoX (Pythia) as Hugging Face's transformers writes it.
 *
 *     z = x + attention(norm_1 x) + mlp(norm_2 x)               parallel residual
 *     h = x + attention(norm_1 x), z = h + mlp(norm_2 h)        else
 *
 * q, k and v come in one product, interleaved by heads, and RoPE turns the first numbers of each
 * head only: q and k are cut, turned and concatenated, which makes new tensors in the order
 * (b, a, s, d) of memory; flash attention answers in the same, and its output has to be copied. */
#include "families/family.h"
#include "hf/classify.h"
#include "hf/hf.h"
#include "model/count.h"

#include <stdio.h>

struct block {
    struct norm input_norm, post_norm;
    struct linear qkv, dense, up, down;
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const char *prefix)
{
    const uint32_t h = c->hidden;
    const bool biased = c->attention_bias;
    struct block block = {.input_norm =
                              build_norm(graph, prefix, ".input_layernorm", h, true, c->norm_eps)};
    block.post_norm = build_norm(graph, prefix, ".post_attention_layernorm", h, true, c->norm_eps);
    block.qkv = build_linear(graph, prefix, ".attention.query_key_value", 3 * h, h, biased);
    block.dense = build_linear(graph, prefix, ".attention.dense", h, h, biased);
    block.up = build_linear(graph, prefix, ".mlp.dense_h_to_4h", c->ffn, h, true);
    block.down = build_linear(graph, prefix, ".mlp.dense_4h_to_h", h, c->ffn, true);
    return block;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t y,
                          struct hf_rope rope, uint32_t mask)
{
    const uint32_t b = job->batch, s = job->seq, a = c->heads, d = c->head_dim;
    const uint32_t qkv = apply_linear(graph, y, block->qkv);
    uint32_t part[3];
    const uint32_t heads = hf_heads(graph, qkv, SHAPE(b, s, a, 3 * d), true);
    op_chunk(graph, graph_transpose(graph, heads, 1, 2), 3, part);
    const struct hf_cut q_cut = hf_cut_heads(graph, part[0], c->rotary_dim);
    const struct hf_cut k_cut = hf_cut_heads(graph, part[1], c->rotary_dim);
    const uint32_t q_turned = hf_rotate(graph, q_cut.turned, rope);
    const uint32_t k_turned = hf_rotate(graph, k_cut.turned, rope);
    const uint32_t q = hf_join_heads(graph, q_turned, q_cut.passed);
    const uint32_t k = hf_join_heads(graph, k_turned, k_cut.passed);
    const uint32_t o = hf_attention(graph, &(struct hf_attention){
                                               .q = graph_transpose(graph, q, 1, 2),
                                               .k = graph_transpose(graph, k, 1, 2),
                                               .v = graph_transpose(graph, part[2], 1, 2),
                                               .mask = mask,
                                               .q_contiguous = true,
                                               .dropout = c->attention_dropout,
                                               .positions = rope.positions,
                                           });
    const uint32_t out = apply_linear(graph, o, block->dense);
    graph_drop(graph, o);
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, qkv); /* v is a view of it */
    return out;
}

static uint32_t feed_forward(struct graph *graph, const struct model_config *c,
                             const struct block *block, uint32_t x)
{
    const uint32_t y = apply_norm(graph, x, block->post_norm);
    const uint32_t up = apply_linear(graph, y, block->up);
    const uint32_t active = hf_activation_beside(graph, c->activation, up, block->up.weight, "act");
    graph_drop(graph, up);
    const uint32_t down = apply_linear(graph, active, block->down);
    graph_drop(graph, active);
    graph_drop(graph, y); /* an argument: the caller's until the call returns */
    return hf_dropout_beside(graph, down, c->dropout, block->input_norm.weight, "post_mlp_dropout");
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t x,
                          struct hf_rope rope, uint32_t mask)
{
    const uint32_t y = apply_norm(graph, x, block->input_norm);
    const uint32_t projected = attention(graph, c, job, block, y, rope, mask);
    graph_drop(graph, y);
    uint32_t attended = hf_dropout_beside(graph, projected, c->dropout, block->input_norm.weight,
                                          "post_attention_dropout");
    uint32_t z, fed;
    if (c->parallel_residual) {
        fed = feed_forward(graph, c, block, x);
        const uint32_t sum = op_add(graph, fed, attended);
        z = op_add(graph, sum, x);
        graph_drop(graph, sum);
    } else {
        const uint32_t h = op_add(graph, attended, x);
        graph_drop(graph, attended);
        attended = h;
        fed = feed_forward(graph, c, block, h);
        z = op_add(graph, fed, h);
    }
    graph_drop(graph, attended);
    graph_drop(graph, fed);
    return z;
}

static void build_hf_gpt_neox(struct graph *graph, const struct model_config *c,
                              const struct model_job *job)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = hf_targets(graph, c, job, INPUT_LABELS, SHAPE(job->batch, job->seq));
    const struct hf_frequencies frequencies = hf_rope_buffers(graph, c, job, c->rotary_dim);

    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t embeddings = graph_module(graph, ROLE_EMBEDDING, "gpt_neox.embed_in");
    const uint32_t table =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "gpt_neox.embed_in.weight");
    graph_enter(graph, embeddings, tokens);
    const uint32_t embedded = op_embedding(graph, tokens, table);
    graph_exit(graph, embeddings, embedded);
    const uint32_t positions = hf_positions(graph, job);
    const uint32_t mask = hf_causal_mask(graph, job, positions);
    const bool aliased = !(c->dropout > 0);
    graph_call_begin(graph, "gpt_neox.emb_dropout");
    uint32_t x =
        aliased ? op_called_alone(graph, embedded) : op_dropout(graph, embedded, c->dropout);
    graph_call_end(graph);
    graph_call_begin(graph, "gpt_neox.rotary_emb");
    graph_mark(graph, MARK_FRAME);
    hf_rope_update(graph, &frequencies, positions);
    struct hf_rope rope = hf_rope_tables(
        graph, c, (struct hf_angles){.positions = positions, .frequencies = frequencies.now});
    rope.positions = positions;
    graph_mark(graph, MARK_FRAME_END);
    graph_call_end(graph);

    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "gpt_neox.layers.%u", i);
        const struct block block = declare_block(graph, c, graph->modules[module].name);
        graph_enter(graph, module, x);
        graph_also_input(graph, module, rope.sin);
        graph_also_input(graph, module, rope.cos);
        graph_also_input(graph, module, positions);
        if (mask != GRAPH_NONE)
            graph_also_input(graph, module, mask);
        const uint32_t z = run_block(graph, c, job, &block, x, rope, mask);
        graph_exit(graph, module, z);
        if (i > 0 || !aliased)
            graph_drop(graph, x); /* the first one may be inputs_embeds too */
        x = z;
    }
    const uint32_t last = graph_module(graph, ROLE_NORM, "gpt_neox.final_layer_norm");
    const struct norm final =
        build_norm(graph, "gpt_neox.", "final_layer_norm", c->hidden, true, c->norm_eps);
    graph_enter(graph, last, x);
    const uint32_t normed = apply_norm(graph, x, final);
    graph_exit(graph, last, normed);
    graph_drop(graph, x);
    graph_drop(graph, positions);
    graph_drop(graph, embedded);
    if (mask != GRAPH_NONE)
        graph_drop(graph, mask);
    graph_drop(graph, rope.cos);
    graph_drop(graph, rope.sin);
    if (job->task == TASK_SEQUENCE_CLASSIFICATION) {
        hf_score(graph, c, job, normed, tokens, labels);
        return;
    }
    const uint32_t module = graph_module(graph, ROLE_HEAD, "lm_head");
    const struct linear head = c->tied
                                   ? (struct linear){table, GRAPH_NONE}
                                   : build_linear(graph, "", "lm_head", c->vocab, c->hidden, false);
    if (loss_is_of_trl(graph->cross_entropy)) {
        hf_lm_head_loss(graph, normed, head.weight, head.bias, labels);
        return;
    }
    const uint32_t kept = hf_logits_kept(graph, normed);
    graph_enter(graph, module, kept);
    const uint32_t logits = apply_linear(graph, kept, head);
    graph_exit(graph, module, logits);
    hf_loss(graph, normed, logits, labels);
}

static const struct key keys[] = {
    SIZE_KEYS,
    PLAIN_HEADS,
    {POSITIONS("max_position_embeddings", 2048)},
    EPS("layer_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rotary_emb_base", 1e4),
    {REAL("rotary_pct", KEY_SHARE, rotary_dim, 0.25, 0.001, 1),
     .other = "rope_parameters.partial_rotary_factor"},
    TIED(false),
    {CHOICE("hidden_act", gated, "gelu", key_activations)},
    DROPOUT("hidden_dropout", dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("use_parallel_residual", parallel_residual, true)},
    {FLAG("attention_bias", attention_bias, true)},
    {ALWAYS("mlp_bias", mlp_bias)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* GPT-NeoX: EleutherAI/gpt-neox-20b, pythia-70m ... -12b. GPTNeoXForCausalLM. */
#define NEOX(title, count, h, l, a, v, act)                                                        \
    {title, count,                                                                                 \
     {.arch = ARCH_GPT_NEOX, .hidden = h, .layers = l, .heads = a, .kv_heads = a,                  \
      .head_dim = h / a, .ffn = 4 * h, .vocab = v, .max_positions = 2048, .attention_bias = true,  \
      .mlp_bias = true, .parallel_residual = true, .activation = act, .norm_eps = 1e-5F,           \
      .init_std = 0.02F, .rope.theta = 1e4F, .rope.attention_factor = 1,                           \
      .rotary_dim = h / a / 4}}

static const struct model_preset presets[] = {
    NEOX("gpt-neox-20b", 20554567680, 6144, 44, 64, 50432, "gelu_fast"),
    NEOX("pythia-70m",   70426624,    512,  6,  8,  50304, "gelu"),
    NEOX("pythia-160m",  162322944,   768,  12, 12, 50304, "gelu"),
    NEOX("pythia-410m",  405334016,   1024, 24, 16, 50304, "gelu"),
    NEOX("pythia-1b",    1011781632,  2048, 16, 8,  50304, "gelu"),
    NEOX("pythia-1.4b",  1414647808,  2048, 24, 16, 50304, "gelu"),
    NEOX("pythia-2.8b",  2775208960,  2560, 32, 32, 50304, "gelu"),
    NEOX("pythia-6.9b",  6857302016,  4096, 32, 32, 50432, "gelu"),
    NEOX("pythia-12b",   11846072320, 5120, 36, 40, 50688, "gelu"),
    NEOX("dolly-v2-3b",  2775086080,  2560, 32, 32, 50280, "gelu"),
    NEOX("dolly-v2-7b",  6856056832,  4096, 32, 32, 50280, "gelu"),
    NEOX("dolly-v2-12b", 11841894400, 5120, 36, 40, 50280, "gelu"),
    {"redpajama-incite-3b-v1", 2775864320, /* togethercomputer/RedPajama-INCITE-Base-3B-v1 */
     {.arch = ARCH_GPT_NEOX, .hidden = 2560, .layers = 32, .heads = 32, .kv_heads = 32,
      .head_dim = 80, .ffn = 10240, .vocab = 50432, .max_positions = 2048, .attention_bias = true,
      .mlp_bias = true, .activation = "gelu", .norm_eps = 1e-5F, .init_std = 0.02F,
      .rope.theta = 1e4F, .rope.attention_factor = 1, .rotary_dim = 80}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab;
    return c->layers * count_classic_block(c) + v * h + 2 * h + (c->tied ? 0 : v * h);
}

const struct family family_gpt_neox = {
    .name = "gpt_neox",
    .class_name = "GPTNeoXForCausalLM",
    .classifier = "GPTNeoXForSequenceClassification",
    .block_class = "GPTNeoXLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_gpt_neox},
};
