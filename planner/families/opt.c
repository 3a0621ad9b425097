/* opt.c - OPT as Hugging Face's transformers writes it.
 *
 *     h = x + out(attention(scale q y, k y, v y))     y = norm(x)
 *     z = h + fc2(relu(fc1 y))                        y = norm(h)
 *
 * Norms come first but in OPT-350m, where they come after the sums and the embedding is narrower
 * than the blocks. Positions are a running sum over a mask of ones, in fp32, and the rows of the
 * position table start at 2. */
#include "families/family.h"
#include "hf/classify.h"
#include "hf/hf.h"
#include "model/count.h"

#include <math.h>
#include <stdio.h>

struct block {
    struct linear k, v, q, out, fc1, fc2;
    struct norm attention_norm, final_norm;
    uint32_t positions; /* (b, s) */
};

static struct block declare_block(struct graph *graph, const struct model_config *c,
                                  const char *prefix)
{
    char attention[96];
    snprintf(attention, sizeof attention, "%s.self_attn.", prefix);
    const uint32_t h = c->hidden;
    const bool biased = c->attention_bias;
    struct block block = {.k = build_linear(graph, attention, "k_proj", h, h, biased)};
    block.v = build_linear(graph, attention, "v_proj", h, h, biased);
    block.q = build_linear(graph, attention, "q_proj", h, h, biased);
    block.out = build_linear(graph, attention, "out_proj", h, h, biased);
    block.attention_norm = build_norm(graph, prefix, ".self_attn_layer_norm", h, true, c->norm_eps);
    block.fc1 = build_linear(graph, prefix, ".fc1", c->ffn, h, c->mlp_bias);
    block.fc2 = build_linear(graph, prefix, ".fc2", h, c->ffn, c->mlp_bias);
    block.final_norm = build_norm(graph, prefix, ".final_layer_norm", h, true, c->norm_eps);
    return block;
}

static uint32_t attention(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t mask,
                          uint32_t y)
{
    const struct shape heads = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    const uint32_t unscaled = apply_linear(graph, y, block->q);
    const uint32_t q = op_scalar(graph, OP_MUL_SCALAR, unscaled, 1.0F / sqrtf((float)c->head_dim));
    graph_drop(graph, unscaled);
    const bool copied = hf_copies_gradients(graph, c, mask != GRAPH_NONE);
    const uint32_t q_heads = hf_heads(graph, q, heads, copied);
    const uint32_t k = apply_linear(graph, y, block->k), v = apply_linear(graph, y, block->v);
    const uint32_t o = hf_attention(graph, &(struct hf_attention){
                                               .q = q_heads,
                                               .k = hf_heads(graph, k, heads, copied),
                                               .v = hf_heads(graph, v, heads, copied),
                                               .mask = mask,
                                               .dropout = c->attention_dropout,
                                               .scale = 1, /* q has it already */
                                               .positions = block->positions,
                                           });
    const uint32_t out = apply_linear(graph, o, block->out);
    graph_drop(graph, o);
    graph_drop(graph, q);
    graph_drop(graph, k);
    graph_drop(graph, v);
    return out;
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct block *block, uint32_t mask,
                          uint32_t x)
{
    const struct shape shape = graph->tensors[x].shape;
    const uint32_t y1 = c->post_norm ? x : apply_norm(graph, x, block->attention_norm);
    uint32_t attended = attention(graph, c, job, block, mask, y1);
    if (y1 != x)
        graph_drop(graph, y1);
    attended = hf_dropout(graph, attended, c->dropout);
    uint32_t h = op_add(graph, x, attended);
    graph_drop(graph, attended);
    if (c->post_norm) {
        const uint32_t normed = apply_norm(graph, h, block->attention_norm);
        graph_drop(graph, h);
        h = normed;
    }
    const uint32_t flat = graph_view(graph, h, SHAPE(job->batch * job->seq, c->hidden));
    const uint32_t y2 = c->post_norm ? flat : apply_norm(graph, flat, block->final_norm);
    const uint32_t fc = apply_linear(graph, y2, block->fc1);
    if (y2 != flat)
        graph_drop(graph, y2);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, fc, block->fc1.weight, "activation_fn");
    graph_drop(graph, fc);
    const uint32_t projected = apply_linear(graph, active, block->fc2);
    graph_drop(graph, active);
    const uint32_t fed = hf_dropout(graph, projected, c->dropout);
    uint32_t z = graph_view(graph, op_add(graph, flat, fed), shape);
    graph_drop(graph, fed);
    if (c->post_norm) {
        const uint32_t normed = apply_norm(graph, z, block->final_norm);
        graph_drop(graph, z);
        z = normed;
    }
    graph_drop(graph, h);
    return z;
}

/* cumsum(mask) · mask - 1 as integers, of a mask that is given or of ones: what the root keeps
 * until it returns. */
struct positions {
    uint32_t ones, ids; /* GRAPH_NONE: they are given */
};

static struct positions make_positions(struct graph *graph, const struct model_job *job)
{
    const struct shape shape = SHAPE(job->batch, job->seq);
    const bool padded = graph->attention_mask != GRAPH_NONE;
    const enum dtype dtype = padded ? DTYPE_INT64 : DTYPE_FP32;
    const uint32_t mask =
        padded ? graph->attention_mask : op_fill(graph, ATEN_ONES, dtype, shape, 1.0F);
    struct positions p = {.ones = padded ? GRAPH_NONE : mask};
    const uint32_t sum =
        op_no_grad(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, dtype, shape, 1, &mask);
    const uint32_t product =
        op_no_grad(graph, WORK_MUL, ATEN_MUL, dtype, shape, 2, (uint32_t[]){sum, mask});
    const uint32_t less = op_number(graph, WORK_ADD_NUMBER, ATEN_SUB, dtype, shape, product, -1.0F);
    graph_drop(graph, product);
    p.ids = less;
    if (!padded) { /* .long() */
        p.ids = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_INT64, shape, 1, &less);
        graph_drop(graph, less);
    }
    graph_drop(graph, sum);
    return p;
}

static void build_hf_opt(struct graph *graph, const struct model_config *c,
                         const struct model_job *job)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels = hf_targets(graph, c, job, INPUT_LABELS, SHAPE(job->batch, job->seq));
    const bool projected = c->word_embed != c->hidden;
    const char *prefix = "model.decoder.";
    if (job->task == TASK_LANGUAGE_MODEL)
        graph->uncalled = "model"; /* OPTForCausalLM calls its decoder */
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const uint32_t table = graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->word_embed),
                                       "%sembed_tokens.weight", prefix);
    const uint32_t rows = graph_param(graph, PARAM_WEIGHT, SHAPE(c->max_positions + 2, c->hidden),
                                      "%sembed_positions.weight", prefix);
    struct linear out = {GRAPH_NONE, GRAPH_NONE}, in = {GRAPH_NONE, GRAPH_NONE};
    if (projected) {
        out = build_linear(graph, prefix, "project_out", c->word_embed, c->hidden, false);
        in = build_linear(graph, prefix, "project_in", c->hidden, c->word_embed, false);
    }
    struct norm final = {.weight = GRAPH_NONE, .bias = GRAPH_NONE};
    if (!c->post_norm)
        final = build_norm(graph, prefix, "final_layer_norm", c->hidden, true, c->norm_eps);

    uint32_t embedded = op_embedding(graph, tokens, table);
    op_embedding_padding(graph, embedded, c->padding);
    const struct positions positions = make_positions(graph, job);
    const uint32_t mask = graph->attention_mask != GRAPH_NONE
                              ? hf_padded_mask(graph, job, HF_NO_WINDOW, HF_MASK_ASKED)
                              : GRAPH_NONE;
    hf_call(graph, rows);
    graph_mark(graph, MARK_FRAME); /* OPTLearnedPositionalEmbedding's own */
    const uint32_t shifted = op_number(graph, WORK_ADD_NUMBER, ATEN_ADD, DTYPE_INT64,
                                       SHAPE(job->batch, job->seq), positions.ids, 2.0F);
    const uint32_t position = op_embedding(graph, shifted, rows);
    graph_call_end(graph);
    graph_drop(graph, shifted);
    graph_mark(graph, MARK_FRAME_END);
    if (projected) {
        const uint32_t wide = apply_linear(graph, embedded, in);
        graph_drop(graph, embedded);
        embedded = wide;
    }
    uint32_t x = op_add(graph, embedded, position);

    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "%slayers.%u", prefix, i);
        struct block block = declare_block(graph, c, graph->modules[module].name);
        block.positions = positions.ids;
        graph_enter(graph, module, x);
        graph_also_input(graph, module, positions.ids);
        if (mask != GRAPH_NONE)
            graph_also_input(graph, module, mask);
        const uint32_t z = run_block(graph, c, job, &block, mask, x);
        graph_exit(graph, module, z);
        graph_drop(graph, x);
        x = z;
    }
    if (!c->post_norm) {
        const uint32_t normed = apply_norm(graph, x, final);
        graph_drop(graph, x);
        x = normed;
    }
    if (projected) {
        const uint32_t narrow = apply_linear(graph, x, out);
        graph_drop(graph, x);
        x = narrow;
    }
    graph_drop(graph, embedded);
    graph_drop(graph, positions.ids);
    if (positions.ones != GRAPH_NONE)
        graph_drop(graph, positions.ones);
    if (mask != GRAPH_NONE)
        graph_drop(graph, mask);
    graph_drop(graph, position);
    if (job->task == TASK_SEQUENCE_CLASSIFICATION) {
        hf_score(graph, c, job, x, tokens, labels);
        return;
    }
    struct linear head = {table, GRAPH_NONE};
    if (!c->tied)
        head = build_linear(graph, "", "lm_head", c->vocab, c->word_embed, false);
    if (loss_is_of_trl(graph->cross_entropy)) {
        hf_lm_head_loss(graph, x, head.weight, head.bias, labels);
        return;
    }
    graph_call_begin(graph, "lm_head");
    const uint32_t logits = apply_linear(graph, hf_logits_kept(graph, x), head);
    graph_call_end(graph);
    hf_loss(graph, x, logits, labels);
}

static const struct key keys[] = {
    SHAPE_KEYS,
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    {SIZE("ffn_dim", ffn, FFN_MAX)},
    PLAIN_HEADS,
    {DERIVED("word_embed_proj_dim", word_embed, RULE_HIDDEN, HIDDEN_MAX)},
    {POSITIONS("max_position_embeddings", 2048)},
    TORCH_EPS,
    STD("init_std", 0.02),
    TIED(true),
    {CHOICE("activation_function", gated, "relu", key_activations)},
    DROPOUT("dropout", dropout, 0.1),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("enable_bias", attention_bias, true)},
    {FLAG("enable_bias", mlp_bias, true)},
    {BOOL("do_layer_norm_before", KEY_NOT, true), AT(post_norm)},
    {ONLY("layer_norm_elementwise_affine", true)},
    {ONLY("_remove_final_layer_norm", false)},
    NEUTRAL("layerdrop", 0),
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* OPT: facebook/opt-125m ... -66b; the 175B from the paper's table 1 (arXiv:2205.01068), as its
 * weights are not on the hub. OPTForCausalLM. The 350M alone has norms after the residual and an
 * embedding of half its width. */
#define OPT(title, count, h, l, a, width, post)                                                    \
    {title, count,                                                                                 \
     {.arch = ARCH_OPT, .hidden = h, .layers = l, .heads = a, .kv_heads = a, .head_dim = h / a,    \
      .ffn = 4 * h, .vocab = 50272, .max_positions = 2048, .word_embed = width, .tied = true,      \
      .attention_bias = true, .mlp_bias = true, .post_norm = post, .activation = "relu",           \
      .dropout = 0.1F, .norm_eps = 1e-5F, .init_std = 0.02F}}

static const struct model_preset presets[] = {
    OPT("opt-125m", 125239296,    768,   12, 12, 768,   false),
    OPT("opt-350m", 331196416,    1024,  24, 16, 512,   true),
    OPT("opt-1.3b", 1315758080,   2048,  24, 32, 2048,  false),
    OPT("opt-2.7b", 2651596800,   2560,  32, 32, 2560,  false),
    OPT("opt-6.7b", 6658473984,   4096,  32, 32, 4096,  false),
    OPT("opt-13b",  12853473280,  5120,  40, 40, 5120,  false),
    OPT("opt-30b",  29974540288,  7168,  48, 56, 7168,  false),
    OPT("opt-66b",  65719701504,  9216,  64, 72, 9216,  false),
    OPT("opt-175b", 174604468224, 12288, 96, 96, 12288, false),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, w = c->word_embed, positions = c->max_positions;
    /* two positions are padding; a narrow embedding has Linears around it */
    return c->layers * count_classic_block(c) + v * w + (positions + 2) * h +
           (c->post_norm ? 0 : 2 * h) + (c->word_embed != c->hidden ? 2 * w * h : 0) +
           (c->tied ? 0 : v * w);
}

const struct family family_opt = {
    .name = "opt",
    .traced = true,
    .class_name = "OPTForCausalLM",
    .classifier = "OPTForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .heads_divide_hidden = true,
    .learned_positions = true,
    .parameters = parameters,
    .padding = 1 + 1,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_opt},
};
