/* bert.c - BERT and RoBERTa with their masked language model heads, as Hugging Face transformers
 * writes them (bert.h).
 *
 *     x = norm(words + types + positions)
 *     h = norm(dense(attention(q x, k x, v x)) + x)        norms follow the residual
 *     z = norm(output(gelu(intermediate h)) + h)
 *     logits = words · norm(gelu(dense z)) + bias          the head shares the word embedding
 *
 * The loss is inside the model and stays in the compute dtype: logits are not upcast. Token types
 * are not given, so zeros are gathered from a buffer. The head's bias belongs to a module that
 * also has a child, which is why it comes before the child's parameters in parameters() and after
 * them in FSDP's group (group_order in graph.h). */
#include "hf/bert.h"

#include "graph/autocast.h"
#include "hf/hf.h"

#include <stdio.h>

struct bert_block {
    struct linear query, key, value, dense, intermediate, output;
    struct norm attention_norm, output_norm;
};

static struct bert_block declare_block(struct graph *graph, const struct model_config *c,
                                       const char *prefix)
{
    const uint32_t h = c->hidden;
    struct bert_block block;
    block.query = build_linear(graph, prefix, ".attention.self.query", h, h, true);
    block.key = build_linear(graph, prefix, ".attention.self.key", h, h, true);
    block.value = build_linear(graph, prefix, ".attention.self.value", h, h, true);
    block.dense = build_linear(graph, prefix, ".attention.output.dense", h, h, true);
    block.attention_norm =
        build_norm(graph, prefix, ".attention.output.LayerNorm", h, true, c->norm_eps);
    block.intermediate = build_linear(graph, prefix, ".intermediate.dense", c->ffn, h, true);
    block.output = build_linear(graph, prefix, ".output.dense", h, c->ffn, true);
    block.output_norm = build_norm(graph, prefix, ".output.LayerNorm", h, true, c->norm_eps);
    return block;
}

/* A number of each token from another, which goes. */
static uint32_t next(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                     uint32_t x, float number)
{
    const struct shape shape = graph->tensors[x].shape;
    const uint32_t out = op_number(graph, work, aten, dtype, shape, x, number);
    graph_drop(graph, x);
    return out;
}

/* create_position_ids_from_input_ids: (b, s), which counts the tokens that pad nothing. */
static uint32_t count_positions(struct graph *graph, const struct model_config *c, uint32_t tokens)
{
    const struct shape shape = graph->tensors[tokens].shape;
    const uint32_t pad = c->padding - 1;
    const uint32_t differs =
        op_number(graph, WORK_NOT_EQUAL_NUMBER, ATEN_NE, DTYPE_BOOL, shape, tokens, (float)pad);
    const uint32_t mask = next(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_INT32, differs, 0);
    const uint32_t sums = op_no_grad(graph, WORK_CUMULATIVE_SUM, ATEN_CUMSUM, DTYPE_INT64, shape, 1,
                                     (uint32_t[]){mask});
    const uint32_t narrow = next(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_INT32, sums, 0);
    const uint32_t shifted = next(graph, WORK_ADD_NUMBER, ATEN_ADD, DTYPE_INT32, narrow, 0);
    const uint32_t counts =
        op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_INT32, shape, 2, (uint32_t[]){shifted, mask});
    graph_drop(graph, shifted);
    const uint32_t wide =
        op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_INT64, shape, 1, (uint32_t[]){counts});
    const uint32_t out = next(graph, WORK_ADD_NUMBER, ATEN_ADD, DTYPE_INT64, wide, (float)pad);
    graph_drop(graph, mask);
    graph_drop(graph, counts);
    return out;
}

struct embedding {
    uint32_t words, positions, types;
    struct norm norm;
};

/* How wide the embedding is. */
static uint32_t width(const struct model_config *c)
{
    return c->word_embed ? c->word_embed : c->hidden;
}

static uint32_t declare_table(struct graph *graph, const struct model_config *c, uint32_t rows,
                              const char *root, const char *name)
{
    return graph_param(graph, PARAM_WEIGHT, SHAPE(rows, width(c)), "%s.embeddings.%s.weight", root,
                       name);
}

/* `words`: as of declare_head. */
static struct embedding declare_embedding(struct graph *graph, const struct model_config *c,
                                          const struct bert_way *way, uint32_t words)
{
    const char *root = way->root;
    const bool last = way->counted_positions;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.embeddings.", root);
    struct embedding e = {.words = words};
    if (words == GRAPH_NONE)
        e.words = declare_table(graph, c, c->vocab, root, "word_embeddings");
    if (!last)
        e.positions = declare_table(graph, c, c->max_positions, root, "position_embeddings");
    e.types = declare_table(graph, c, c->type_vocab, root, "token_type_embeddings");
    e.norm = build_norm(graph, prefix, "LayerNorm", width(c), true, c->norm_eps);
    if (last)
        e.positions = declare_table(graph, c, c->max_positions, root, "position_embeddings");
    return e;
}

static uint32_t embed(struct graph *graph, const struct model_config *c,
                      const struct model_job *job, const struct bert_way *way,
                      const struct embedding *e, uint32_t tokens)
{
    const uint32_t b = job->batch, s = job->seq, rows = way->counted_positions ? b : 1;
    const struct shape ids_shape = SHAPE(1, c->max_positions);
    const struct buffer_values range = {.kind = VALUES_RANGE}, zeros = {.kind = VALUES_ZEROS};
    const uint32_t position_ids = graph_buffer(graph, DTYPE_INT64, ids_shape, &range);
    const uint32_t type_ids = graph_buffer(graph, DTYPE_INT64, ids_shape, &zeros);
    graph_call_begin(graph, "%s.embeddings", way->root);
    graph_mark(graph, MARK_FRAME);
    const uint32_t ids = way->counted_positions ? count_positions(graph, c, tokens)
                                                : graph_view(graph, position_ids, SHAPE(1, s));
    const uint32_t types =
        rows > 1 ? graph_expand(graph, type_ids, SHAPE(rows, c->max_positions)) : type_ids;
    const uint32_t type = op_no_grad(graph, WORK_GATHER, ATEN_GATHER, DTYPE_INT64, SHAPE(rows, s),
                                     2, (uint32_t[]){types, ids});
    const uint32_t word = op_embedding(graph, tokens, e->words);
    op_embedding_padding(graph, word, c->padding);
    const uint32_t kind =
        op_embedding(graph, rows == b ? type : graph_expand(graph, type, SHAPE(b, s)), e->types);
    const uint32_t typed = op_add(graph, word, kind);
    const uint32_t place = op_embedding(graph, ids, e->positions);
    if (way->counted_positions)
        op_embedding_padding(graph, place, c->padding);
    const uint32_t sum = op_add(graph, typed, place);
    graph_drop(graph, typed);
    const uint32_t normed = apply_norm(graph, sum, e->norm);
    graph_drop(graph, sum);
    const uint32_t x = hf_dropout_beside(graph, normed, c->dropout, e->norm.weight, "dropout");
    graph_call_end(graph);
    if (way->counted_positions)
        graph_drop(graph, ids);
    graph_drop(graph, word); /* inputs_embeds, an argument */
    graph_drop(graph, type);
    graph_drop(graph, kind);
    graph_drop(graph, place);
    graph_mark(graph, MARK_FRAME_END);
    return x;
}

/* The embedding as wide as the layers are: x, or what takes its place. */
static uint32_t project(struct graph *graph, const struct model_config *c,
                        const struct bert_way *way, uint32_t x)
{
    char prefix[64];
    if (!way->projection || width(c) == c->hidden)
        return x;
    snprintf(prefix, sizeof prefix, "%s.", way->root);
    const struct linear linear =
        build_linear(graph, prefix, way->projection, c->hidden, width(c), true);
    const uint32_t out = apply_linear(graph, x, linear);
    graph_drop(graph, x);
    return out;
}

/* norm(dropout(dense(y)) + residual) */
static uint32_t dense_add_norm(struct graph *graph, const struct model_config *c, uint32_t y,
                               struct linear dense, struct norm norm, uint32_t residual)
{
    const uint32_t projected = apply_linear(graph, y, dense);
    const uint32_t dropped =
        hf_dropout_beside(graph, projected, c->dropout, dense.weight, "dropout");
    const uint32_t sum = op_add(graph, dropped, residual);
    const uint32_t out = apply_norm(graph, sum, norm);
    graph_drop(graph, sum);
    graph_drop(graph, dropped);
    return out;
}

uint32_t bert_attention(struct graph *graph, const struct model_config *c,
                        const struct model_job *job, uint32_t mask, uint32_t q, uint32_t k,
                        uint32_t v)
{
    if (mask != GRAPH_NONE && graph->attention != ATTENTION_FLASH_ATTN)
        return hf_attention(graph, &(struct hf_attention){.q = q,
                                                          .k = k,
                                                          .v = v,
                                                          .mask = mask,
                                                          .both_ways = true,
                                                          .dropout = c->attention_dropout});
    const uint32_t o =
        graph->attention == ATTENTION_FLASH_ATTN
            ? hf_flash_attn(graph, &(struct hf_attention){.q = q,
                                                          .k = k,
                                                          .v = v,
                                                          .mask = mask,
                                                          .both_ways = true,
                                                          .dropout = c->attention_dropout})
        : autocast_product(graph) == DTYPE_FP32 && graph->attention != ATTENTION_MATH
            ? op_efficient_attention(graph, q, k, v, GRAPH_NONE, false, c->attention_dropout)
            : op_attention(graph, q, k, v, false, c->attention_dropout);
    return graph_view(graph, o, SHAPE(job->batch, job->seq, c->hidden));
}

static uint32_t run_block(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct bert_block *block,
                          uint32_t mask, uint32_t x)
{
    const struct shape heads = SHAPE(job->batch, job->seq, c->heads, c->head_dim);
    const uint32_t y = op_call_input(graph, x);
    const uint32_t q = build_heads(graph, apply_linear(graph, y, block->query), heads);
    const uint32_t k = build_heads(graph, apply_linear(graph, y, block->key), heads);
    const uint32_t v = build_heads(graph, apply_linear(graph, y, block->value), heads);
    const uint32_t attended = bert_attention(graph, c, job, mask, q, k, v);
    graph_drop(graph, v);
    graph_drop(graph, k);
    graph_drop(graph, q);
    const uint32_t h = dense_add_norm(graph, c, attended, block->dense, block->attention_norm, x);
    graph_drop(graph, attended);

    const uint32_t wide = apply_linear(graph, h, block->intermediate);
    const uint32_t active = hf_activation_beside(graph, c->activation, wide,
                                                 block->intermediate.weight, "intermediate_act_fn");
    graph_drop(graph, wide);
    const uint32_t z = dense_add_norm(graph, c, active, block->output, block->output_norm, h);
    graph_drop(graph, active);
    graph_drop(graph, h);
    return z;
}

/* The head's activation, of what its Linear gave. */
static uint32_t activate(struct graph *graph, const struct model_config *c,
                         const struct bert_way *way, uint32_t dense, uint32_t y)
{
    const char *activation = way->decoder ? "gelu" : c->activation;
    return way->act ? hf_activation_beside(graph, activation, y, dense, way->act)
                    : apply_activation(graph, "gelu", y);
}

struct head {
    struct linear dense, decoder;
    struct norm norm;
};

/* The same where the decoder is a module beside it. */
static struct head declare_apart(struct graph *graph, const struct model_config *c,
                                 const struct bert_way *way, uint32_t words)
{
    char prefix[64];
    struct head head;
    snprintf(prefix, sizeof prefix, "%s.", way->head);
    head.norm = build_norm(graph, prefix, way->norm, width(c), true, c->norm_eps);
    head.dense = build_linear(graph, prefix, way->dense, width(c), c->hidden, true);
    head.decoder = (struct linear){.weight = words};
    if (!c->tied)
        head.decoder = build_linear(graph, "", way->decoder, c->vocab, width(c), true);
    else
        head.decoder.bias =
            graph_param(graph, PARAM_BIAS, SHAPE(c->vocab), "%s.bias", way->decoder);
    return head;
}

/* `words`: the table of the embedding, which the decoder shares; GRAPH_NONE: it is declared here.
 */
static struct head declare_head(struct graph *graph, const struct model_config *c,
                                const struct bert_way *way, uint32_t words)
{
    char prefix[64];
    if (way->decoder)
        return declare_apart(graph, c, way, words);
    snprintf(prefix, sizeof prefix, "%s.", way->head);
    struct head head = {.decoder.weight = words};
    head.decoder.bias = graph_param(graph, PARAM_BIAS, SHAPE(c->vocab), "%sbias", prefix);
    head.dense = build_linear(graph, prefix, way->dense, c->hidden, c->hidden, true);
    head.norm = build_norm(graph, prefix, way->norm, c->hidden, true, c->norm_eps);
    if (!c->tied) { /* of its own; nobody uses the bias above, so it gets no gradient */
        head.decoder = build_linear(graph, prefix, "decoder", c->vocab, c->hidden, true);
    } else if (words == GRAPH_NONE) {
        head.decoder.weight = graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden),
                                          "%sdecoder.weight", prefix);
    }
    return head;
}

static uint32_t run_head(struct graph *graph, const struct model_config *c,
                         const struct bert_way *way, const struct head *head, uint32_t x)
{
    const uint32_t y = apply_linear(graph, x, head->dense);
    const uint32_t active = activate(graph, c, way, head->dense.weight, y);
    graph_drop(graph, y);
    const uint32_t normed = apply_norm(graph, active, head->norm);
    graph_drop(graph, active);
    if (way->decoder)
        graph_call_begin(graph, "%s", way->decoder);
    else
        graph_call_begin(graph, "%s.decoder", way->head);
    const uint32_t logits = apply_linear(graph, normed, head->decoder);
    graph_call_end(graph);
    graph_drop(graph, normed);
    return logits;
}

void bert_build(struct graph *graph, const struct model_config *c, const struct model_job *job,
                const struct bert_way *way)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels =
        hf_targets(graph, c, job, INPUT_MASKED_TARGETS, SHAPE(job->batch * job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    const bool classifies = job->task == TASK_SEQUENCE_CLASSIFICATION;
    struct head head = {.decoder.weight = GRAPH_NONE};
    struct hf_classifier_parts parts;
    if (way->head_first && classifies)
        parts = hf_classifier_declare(graph, c, &way->classifier, job->labels);
    else if (way->head_first)
        head = declare_head(graph, c, way, GRAPH_NONE);
    const struct embedding e =
        declare_embedding(graph, c, way, c->tied ? head.decoder.weight : GRAPH_NONE);
    const uint32_t embedded =
        project(graph, c, way, embed(graph, c, job, way, &e, tokens)); /* until BertModel returns */
    const uint32_t mask = hf_mask_both_ways(graph, job, HF_NO_WINDOW);
    uint32_t x = embedded;
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module =
            graph_module(graph, ROLE_BLOCK, "%s.encoder.layer.%u", way->root, i);
        const struct bert_block block = declare_block(graph, c, graph->modules[module].name);
        graph_enter(graph, module, x);
        if (mask != GRAPH_NONE)
            graph_also_argument(graph, module, mask);
        const uint32_t z = run_block(graph, c, job, &block, mask, x);
        graph_exit(graph, module, z);
        if (x != embedded)
            graph_drop(graph, x);
        x = z;
    }
    const uint32_t pooled =
        classifies ? hf_classifier_pool(graph, c, &way->classifier, x) : GRAPH_NONE;
    if (mask != GRAPH_NONE) /* an argument */
        graph_drop(graph, mask);
    graph_drop(graph, embedded);
    if (classifies) {
        hf_classify(graph, c, job, &way->classifier, way->head_first ? &parts : NULL, x, pooled,
                    labels);
        return;
    }
    if (!way->head_first)
        head = declare_head(graph, c, way, e.words);
    graph_mark(graph, MARK_FRAME); /* the rest of the root module's forward, behind its model's */
    const uint32_t logits = run_head(graph, c, way, &head, x);
    const uint32_t flat = graph_view(graph, logits, SHAPE(job->batch * job->seq, c->vocab));
    graph->loss = build_cross_entropy(graph, flat, labels);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, x);
    hf_return(graph, logits, GRAPH_NONE);
}
