/* classify.c - see classify.h. */
#include "hf/classify.h"

#include "model/lora.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- labels ---- */

static bool is_of_numbers(const struct model_job *job)
{
    return job->problem == PROBLEM_REGRESSION || job->problem == PROBLEM_MULTI_LABEL;
}

uint32_t hf_targets(struct graph *graph, const struct model_config *c, const struct model_job *job,
                    enum input_kind kind, struct shape shape)
{
    const struct input_values classes = {.kind = INPUT_CLASSES, .vocab = job->labels};
    if (job->task == TASK_LANGUAGE_MODEL)
        return build_input(graph, c, kind, shape);
    if (job->loss == CROSS_ENTROPY_REWARD)
        return GRAPH_NONE;
    if (!is_of_numbers(job))
        return graph_input(graph, SHAPE(job->batch), classes);
    const uint32_t labels = graph_input_of(
        graph, DTYPE_FP32, job->labels > 1 ? SHAPE(job->batch, job->labels) : SHAPE(job->batch),
        classes);
    const uint32_t own = job->casts_root ? op_to(graph, labels, graph->compute) : labels;
    if (own != labels)
        graph_mark(graph, MARK_ROOT_ENTER);
    graph->casts_first = own != labels;
    return own;
}

/* ---- the loss ---- */

/* As squeeze() leaves what there is one of. */
static uint32_t squeezed(struct graph *graph, uint32_t x)
{
    const uint32_t b = graph->tensors[x].shape.dim[0];
    return graph_view(graph, x, b > 1 ? SHAPE(b) : (struct shape){.rank = 0});
}

static uint32_t loss_of(struct graph *graph, const struct model_job *job, uint32_t logits,
                        uint32_t labels)
{
    if (job->problem == PROBLEM_MULTI_LABEL)
        return op_bce_loss(graph, logits, labels);
    if (job->problem == PROBLEM_REGRESSION && job->labels > 1)
        return op_mse_loss(graph, logits, labels);
    return job->problem == PROBLEM_REGRESSION
               ? op_mse_loss(graph, squeezed(graph, logits), squeezed(graph, labels))
               : op_cross_entropy(graph, logits, labels);
}

/* The root module's forward returns the loss and logits (b, n); what it was called with goes then.
 */
static void leave(struct graph *graph, const struct model_job *job, uint32_t logits,
                  uint32_t labels)
{
    if (job->loss == CROSS_ENTROPY_REWARD) {
        hf_leave(graph, 1, &logits);
        graph_mark(graph, MARK_LOGITS);
        hf_reward(graph, job, logits);
        return;
    }
    const bool cast = graph->storages[graph->tensors[labels].storage].kind == STORAGE_ACTIVATION;
    hf_return_from(graph, logits, GRAPH_NONE, cast ? labels : GRAPH_NONE);
}

static void find_loss(struct graph *graph, const struct model_job *job, uint32_t logits,
                      uint32_t labels)
{
    if (job->loss != CROSS_ENTROPY_REWARD)
        graph->loss = loss_of(graph, job, logits, labels);
}

/* ---- decoders ---- */

/* The last token of each sequence that pads nothing, by comparisons; *held are Python's. */
static uint32_t last_tokens(struct graph *graph, const struct model_job *job, uint32_t tokens,
                            uint32_t pad, uint32_t held[2])
{
    const struct shape shape = graph->tensors[tokens].shape;
    const uint32_t differs =
        op_number(graph, WORK_NOT_EQUAL_NUMBER, ATEN_NE, DTYPE_BOOL, shape, tokens, (float)pad);
    held[0] = op_no_grad(graph, WORK_CAST, ATEN_TO_COPY, DTYPE_INT32, shape, 1, &differs);
    graph_drop(graph, differs);
    held[1] = op_arange_of(graph, DTYPE_INT32, job->seq);
    const uint32_t places = op_no_grad(graph, WORK_MUL, ATEN_MUL, DTYPE_INT32, shape, 2,
                                       (uint32_t[]){held[1], held[0]});
    const uint32_t last = op_argmax_no_grad(graph, places);
    graph_drop(graph, places);
    return last;
}

/* Logits (b, n) of one token of each sequence; *held as above, GRAPH_NONE where there is none. */
static uint32_t pick(struct graph *graph, const struct model_config *c, const struct model_job *job,
                     uint32_t logits, uint32_t tokens, uint32_t held[2])
{
    const uint32_t pad = hf_pad_token(c, job);
    held[0] = held[1] = GRAPH_NONE;
    if (!pad) { /* of a single sequence, whose last token is the one: [arange(1), -1] */
        const uint32_t last = op_select(graph, logits, 1, job->seq - 1);
        const uint32_t row = op_arange(graph, 1);
        const uint32_t out =
            op_index(graph, graph_view(graph, last, SHAPE(job->batch, job->labels)), row);
        graph_drop(graph, row);
        return out;
    }
    const uint32_t last = last_tokens(graph, job, tokens, pad - 1, held);
    const uint32_t rows = op_arange(graph, job->batch);
    const uint32_t out = op_index_pair(graph, logits, rows, last);
    graph_drop(graph, rows);
    graph_drop(graph, last);
    return out;
}

/* ---- Linears of a head, as peft has them ---- */

/* A Linear within a module of the head, "" for that itself. */
struct part {
    const char *name;
    uint32_t out, in;
    bool biased;
};

/* PeftModelForSequenceClassification's modules_to_save, by what their names end with. */
static bool is_saved(const struct graph *graph, const char *module)
{
    const size_t length = strlen(module);
    for (int i = 0; i < 2 && graph->lora.rank; i++) {
        const char *name = (const char *[]){"classifier", "score"}[i];
        const size_t size = strlen(name);
        if (length >= size && strcmp(module + length - size, name) == 0)
            return true;
    }
    return false;
}

static void declare_plain(struct graph *graph, const char *module, uint32_t count,
                          const struct part *parts, struct linear *out)
{
    char name[128];
    for (uint32_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s%s", module, parts[i].name);
        out[i] = build_linear(graph, "", name, parts[i].out, parts[i].in, parts[i].biased);
    }
}

/* Whether adapters are wanted of what is saved, too, of which peft would copy the adapters. */
static bool is_adapted(const struct graph *graph, const char *module, const struct part *part)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", module, part->name);
    const bool alone = strcmp(name, "classifier") == 0 || strcmp(name, "score") == 0;
    return lora_wants(graph, "", name) && !(alone && !graph->lora.targets);
}

/* The Linears of a module: of one that is saved the copy that is trained, behind the original,
 * which nobody calls. */
static void declare_parts(struct graph *graph, const char *module, uint32_t count,
                          const struct part *parts, struct linear *out)
{
    static const char *const ways[] = {".original_module", ".modules_to_save.default"};
    char name[128];
    if (!is_saved(graph, module)) {
        declare_plain(graph, module, count, parts, out);
        return;
    }
    for (int copy = 0; copy < 2; copy++) {
        graph->all_frozen = copy == 0;
        for (uint32_t i = 0; i < count; i++) {
            snprintf(name, sizeof name, "%s%s%s", module, ways[copy], parts[i].name);
            out[i] = build_weights(graph, "", name, SHAPE(parts[i].out, parts[i].in),
                                   parts[i].biased ? parts[i].out : 0);
            graph->saved_adapted = graph->saved_adapted || is_adapted(graph, module, &parts[i]);
        }
    }
    graph->all_frozen = true;
}

void hf_score(struct graph *graph, const struct model_config *c, const struct model_job *job,
              uint32_t hidden, uint32_t tokens, uint32_t labels)
{
    uint32_t held[2];
    const uint32_t width = graph->tensors[hidden].shape.dim[2];
    graph_mark(graph, MARK_FRAME); /* the rest of the root module's forward, behind its model's */
    const uint32_t module = graph_module(graph, ROLE_HEAD, "score");
    struct linear score;
    declare_parts(graph, "score", 1, &(struct part){"", job->labels, width, false}, &score);
    graph_enter(graph, module, hidden);
    graph_call_begin(graph, "score");
    const uint32_t all = apply_linear(graph, hidden, score);
    graph_call_end(graph);
    graph_exit(graph, module, all);
    const uint32_t logits = pick(graph, c, job, all, tokens, held);
    find_loss(graph, job, logits, labels);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, hidden);
    graph_drop(graph, all);
    for (int i = 0; i < 2; i++)
        if (held[i] != GRAPH_NONE)
            graph_drop(graph, held[i]);
    leave(graph, job, logits, labels);
}

/* ---- encoders ---- */

static bool are_one(const struct graph *graph, uint32_t x, uint32_t y)
{
    return graph->tensors[x].storage == graph->tensors[y].storage;
}

/* y takes x's place, which goes unless it is the hidden states, or y is it. */
static uint32_t in_place_of(struct graph *graph, uint32_t x, uint32_t y, uint32_t hidden)
{
    if (!are_one(graph, x, y) && !are_one(graph, x, hidden))
        graph_drop(graph, x);
    return y;
}

/* The head's module is called, or what peft has in its place. */
static void begin_head(struct graph *graph, const struct hf_classifier *way)
{
    graph_call_begin(graph, "%s%s", way->head,
                     is_saved(graph, way->head) ? ".modules_to_save.default" : "");
}

/* A module of it, or of the model itself, is called. */
static void begin_within(struct graph *graph, const struct hf_classifier *way, bool within,
                         const char *name)
{
    const char *head = within && way->head ? way->head : "";
    const bool saved = *head && is_saved(graph, head);
    graph_call_begin(graph, "%s%s%s%s", head, saved ? ".modules_to_save.default" : "",
                     *head ? "." : "", name);
}

/* The mean of tokens that the batch's mask chooses, or where it has none one of ones. */
static uint32_t masked_mean(struct graph *graph, uint32_t hidden)
{
    const struct shape s = graph->tensors[hidden].shape, all = SHAPE(s.dim[0], s.dim[1]);
    const bool padded = graph->attention_mask != GRAPH_NONE;
    const uint32_t mask =
        padded ? graph->attention_mask : op_fill(graph, ATEN_ONES, DTYPE_BOOL, all, 1.0F);
    const uint32_t chosen =
        op_mul_constant(graph, hidden, graph_view(graph, mask, SHAPE(s.dim[0], s.dim[1], 1)));
    const uint32_t sum = op_sum_tokens(graph, chosen);
    graph_drop(graph, chosen);
    const uint32_t count =
        op_no_grad(graph, WORK_SUM_DIM, ATEN_SUM_DIM, DTYPE_INT64, SHAPE(s.dim[0], 1), 1, &mask);
    const uint32_t mean = op_div_count(graph, sum, count);
    graph_drop(graph, sum);
    graph_drop(graph, count);
    if (!padded)
        graph_drop(graph, mask); /* its node has it */
    return mean;
}

/* The first token's (b, h), or all (b, s, h). */
static uint32_t first_of(struct graph *graph, const struct model_config *c,
                         const struct hf_classifier *way, uint32_t hidden)
{
    const struct shape shape = graph->tensors[hidden].shape;
    if (c->pools_late)
        return hidden;
    if (c->pools_mean)
        return way->masks ? masked_mean(graph, hidden) : op_mean_tokens(graph, hidden);
    return graph_view(graph, op_select(graph, hidden, 1, 0), SHAPE(shape.dim[0], shape.dim[2]));
}

static uint32_t drop_out(struct graph *graph, const struct model_config *c,
                         const struct hf_classifier *way, uint32_t x, uint32_t hidden)
{
    begin_within(graph, way, way->whole, way->dropout);
    const uint32_t out =
        c->class_dropout > 0 ? op_dropout(graph, x, c->class_dropout) : op_called_alone(graph, x);
    graph_call_end(graph);
    return in_place_of(graph, x, out, hidden);
}

struct hf_classifier_parts hf_classifier_declare(struct graph *graph, const struct model_config *c,
                                                 const struct hf_classifier *way, uint32_t labels)
{
    const uint32_t h = c->hidden;
    char prefix[96], inner[2][64];
    struct hf_classifier_parts d = {.norm = {.weight = GRAPH_NONE, .bias = GRAPH_NONE}};
    struct linear linears[2];
    snprintf(prefix, sizeof prefix, "%s.", way->head ? way->head : "");
    snprintf(inner[0], sizeof inner[0], ".%s", way->dense);
    snprintf(inner[1], sizeof inner[1], ".%s", way->out);
    const struct part parts[2] = {{inner[0], h, h, !way->norm || c->dense_bias},
                                  {inner[1], labels, h, true}};
    const struct part alone = {"", h, h, true};
    if (way->head)
        declare_parts(graph, way->head, way->whole ? 2 : 1, parts, linears);
    else
        declare_parts(graph, way->dense, 1, &alone, linears);
    d.dense = linears[0];
    d.out = way->whole ? linears[1] : (struct linear){GRAPH_NONE, GRAPH_NONE};
    if (way->norm)
        d.norm = build_norm(graph, prefix, way->norm, h, c->norm_bias, c->norm_eps);
    return d;
}

/* The first Linear, the activation and perhaps a norm, in x's place, unless that has a name of its
 * own. */
static uint32_t transform(struct graph *graph, const struct hf_classifier *way,
                          const struct hf_classifier_parts *d, uint32_t x, uint32_t hidden)
{
    uint32_t y = apply_linear(graph, x, d->dense);
    if (!way->masks)
        in_place_of(graph, x, y, hidden);
    if (way->act)
        begin_within(graph, way, true, way->act);
    y = in_place_of(graph, y, op_unary(graph, way->activation, y), hidden);
    if (way->act)
        graph_call_end(graph);
    if (!way->norm)
        return y;
    return in_place_of(graph, y, op_layer_norm(graph, y, d->norm.weight, d->norm.bias, d->norm.eps),
                       hidden);
}

uint32_t hf_classifier_pool(struct graph *graph, const struct model_config *c,
                            const struct hf_classifier *way, uint32_t hidden)
{
    if (!way->returned)
        return GRAPH_NONE;
    const struct hf_classifier_parts d = hf_classifier_declare(graph, c, way, 0);
    begin_head(graph, way);
    const uint32_t pooled = transform(graph, way, &d, first_of(graph, c, way, hidden), hidden);
    graph_call_end(graph);
    return pooled;
}

void hf_classify(struct graph *graph, const struct model_config *c, const struct model_job *job,
                 const struct hf_classifier *way, const struct hf_classifier_parts *parts,
                 uint32_t hidden, uint32_t pooled, uint32_t labels)
{
    struct hf_classifier_parts d = {.out = {GRAPH_NONE, GRAPH_NONE}};
    uint32_t x = pooled, first = GRAPH_NONE;
    graph_mark(graph, MARK_FRAME); /* the rest of the root module's forward, behind its model's */
    if (pooled == GRAPH_NONE) {
        d = parts ? *parts : hf_classifier_declare(graph, c, way, job->labels);
        if (way->whole)
            begin_head(graph, way);
        x = first_of(graph, c, way, hidden);
        first = way->masks && !are_one(graph, x, hidden) ? x : GRAPH_NONE;
        if (way->drops_first)
            x = drop_out(graph, c, way, x, hidden);
        if (way->head && !way->whole)
            begin_head(graph, way);
        x = transform(graph, way, &d, x, hidden);
        if (way->head && !way->whole)
            graph_call_end(graph);
    }
    if (way->dropout)
        x = drop_out(graph, c, way, x, pooled == GRAPH_NONE ? hidden : pooled);
    if (!way->whole)
        declare_parts(graph, way->out, 1, &(struct part){"", job->labels, c->hidden, true}, &d.out);
    uint32_t logits = apply_linear(graph, x, d.out);
    if (way->whole) { /* its function returns */
        graph_call_end(graph);
        graph_drop(graph, x);
    }
    if (c->pools_late)
        logits = in_place_of(graph, logits, op_mean_tokens(graph, logits), hidden);
    find_loss(graph, job, logits, labels);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, hidden);
    if (pooled != GRAPH_NONE && !are_one(graph, pooled, x))
        graph_drop(graph, pooled);
    if (first != GRAPH_NONE)
        graph_drop(graph, first);
    if (!way->whole)
        graph_drop(graph, x);
    leave(graph, job, logits, labels);
}
