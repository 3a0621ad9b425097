/* llama.c - Llama, Mistral, Qwen2 and Qwen3 as Hugging Face's transformers write them, and what
 * others have in common with them (decoder.h).
 *
 *     h = x + o_proj(attention(rope(q y), rope(k y), v y))     y = rms_norm(x)
 *     z = h + down(silu(gate y) · up y)                        y = rms_norm(h)
 *
 * Nothing is fused but attention: RMSNorm and RoPE are Python arithmetic. Qwen2 adds biases to q,
 * k, v; Qwen3 an RMSNorm to each head of q and k; Mistral and Qwen2 may look at a window only,
 * which takes a mask where the sequence is longer than it. */
#include "hf/llama.h"
#include "hf/decoder.h"

#include <math.h>
#include <stdio.h>

/* The module that has the layers. */
static const char *model_of(const struct hf_decoder *way)
{
    return way->model ? way->model : "model";
}

/* A module of that one. */
static const char *embedding_of(const struct hf_decoder *way)
{
    return way->embedding ? way->embedding : "embed_tokens";
}

struct inputs { /* the same for every block */
    const struct hf_decoder *way;
    uint32_t first; /* hidden_states of the first layer (b, s, h) */
    uint32_t positions, mask, window_mask;
    uint32_t embeds;                  /* inputs_embeds */
    uint32_t outer;                   /* ... as they are where it is called, if it is nested */
    struct hf_alibi alibi;            /* GRAPH_NONE: there is none */
    uint32_t output;                  /* what the last layer returned; GRAPH_NONE: it is gone */
    struct hf_rope rope, window_rope; /* of layers with a window: often the same */
    struct hf_ahead *ahead;           /* NULL: nothing is declared ahead */
    uint32_t places;                  /* what the last layer returned beside; GRAPH_NONE: nothing */
};

/* How many of a head's numbers turn. */
static uint32_t turned_of(const struct model_config *c, const struct hf_decoder *way)
{
    const bool whole = way->rotary == HF_ROTARY_WHOLE || way->rotary >= HF_ROTARY_HALVES;
    return whole ? c->head_dim : c->rotary_dim;
}

/* Whether any layer has a window, or has none. */
static bool any_layer(const struct model_config *c, bool window)
{
    for (uint32_t i = 0; i < c->layers; i++)
        if (model_has_window(c, i) == window)
            return true;
    return false;
}

/* RoPE where there is a window; with a theta of its own it is never scaled. */
static struct model_config windowed(const struct model_config *c)
{
    struct model_config windowed = *c;
    windowed.rope = (struct rope){.theta = c->window_theta, .attention_factor = 1};
    return windowed;
}

struct frequencies { /* of layers without a window, and of those with one */
    struct hf_frequencies full, window;
};

/* The buffers of every RoPE that the model has; those of layers without a window first. */
static struct frequencies make_frequencies(struct graph *graph, const struct model_config *c,
                                           const struct model_job *job,
                                           const struct hf_decoder *way)
{
    const uint32_t d = turned_of(c, way);
    struct frequencies f = {.full.longer = GRAPH_NONE};
    if (c->unturned)
        return f;
    if (!way->tables_by_layer || any_layer(c, false))
        f.full = hf_rope_buffers(graph, c, job, c->full_head_dim ? c->full_head_dim : d);
    if (way->tables_by_layer && any_layer(c, true)) {
        const struct model_config window = windowed(c);
        f.window = hf_rope_buffers(graph, &window, job, d);
    }
    return f;
}

/* What cos and sin are times. */
static float rope_factor(const struct model_config *c, const struct model_job *job,
                         const struct hf_decoder *way)
{
    if (!way->rope_remade || c->rope.scaling == ROPE_DEFAULT)
        return c->rope.attention_factor;
    return job->seq > c->rope.original_positions ? c->long_mscale : c->short_mscale;
}

/* RoPE's tables, of each type that the model has. */
static void make_tables(struct graph *graph, const struct model_config *c,
                        const struct model_job *job, const struct frequencies *frequencies,
                        struct inputs *in)
{
    const struct hf_decoder *way = in->way;
    const enum dtype dtype = way->fp32_tables ? DTYPE_FP32
                             : way->spread    ? (enum dtype)graph->tensors[in->first].dtype
                                              : graph->compute;
    const struct hf_rope none = {.cos = GRAPH_NONE, .sin = GRAPH_NONE};
    const enum hf_table table = way->rotary == HF_ROTARY_HALVES            ? HF_TABLE_HALF
                                : way->rotary == HF_ROTARY_NEIGHBOURS_CAST ? HF_TABLE_NEIGHBOURS
                                                                           : HF_TABLE_WHOLE;
    const struct hf_angles full = {.positions = in->positions,
                                   .frequencies = frequencies->full.now};
    const struct hf_angles window = {.positions = in->positions,
                                     .frequencies = frequencies->window.now};
    in->rope = in->window_rope = none;
    if (c->unturned)
        return;
    if (way->complex_table) {
        graph_mark(graph, MARK_FRAME);
        in->rope.cos = in->window_rope.cos = hf_complex_rope_table(graph, c, full);
        graph_mark(graph, MARK_FRAME_END);
        return;
    }
    if (way->grids != HF_GRIDS_NONE) {
        graph_mark(graph, MARK_FRAME);
        hf_rope_update(graph, &frequencies->full, in->positions);
        in->rope = in->window_rope = hf_rope_grids(graph, c, job, full, way->grids);
        graph_mark(graph, MARK_FRAME_END);
        return;
    }
    if (!way->tables_by_layer || any_layer(c, false)) {
        graph_mark(graph, MARK_FRAME); /* a call of its own for each type */
        hf_rope_update(graph, &frequencies->full, in->positions);
        const struct hf_angles angles =
            way->rope_remade ? hf_rope_remade(graph, c, in->positions, turned_of(c, way)) : full;
        in->rope = hf_rope_tables_in(graph, dtype, rope_factor(c, job, way), angles, table);
        graph_mark(graph, MARK_FRAME_END);
    }
    in->rope.back = way->turns_back;
    if (!way->tables_by_layer) {
        in->window_rope = in->rope;
    } else if (any_layer(c, true)) {
        if (any_layer(c, false))
            graph_call_again(graph);
        graph_mark(graph, MARK_FRAME);
        in->window_rope = hf_rope_tables_in(graph, dtype, 1, window, table);
        graph_mark(graph, MARK_FRAME_END);
    }
}

/* A mask that is not left out: traced, what it is of is not known, and padding it is needed for. */
static uint32_t mask_made(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct inputs *in, uint32_t window)
{
    const bool added = hf_is_eager(graph, in->way) || c->sinks;
    if (job->traced)
        return hf_traced_mask(graph, job, in->positions, window, added);
    graph_mark(graph, MARK_FRAME);
    const enum hf_mask how = added ? HF_MASK_ADDED : in->way->masked ? HF_MASK_MADE : HF_MASK_ASKED;
    const uint32_t mask = hf_padded_mask(graph, job, window, how);
    graph_mark(graph, MARK_FRAME_END);
    return mask;
}

static void make_all_masks(struct graph *graph, const struct model_config *c,
                           const struct model_job *job, struct inputs *in)
{
    const struct hf_decoder *way = in->way;
    const bool windows = any_layer(c, true) || way->both_masks || way->both_types,
               full = any_layer(c, false) || way->both_types;
    const bool one_mask = windows && !full && !way->masks_by_layer && !c->sinks;
    if (!one_mask && (full || !way->masks_of_types))
        in->mask = mask_made(graph, c, job, in, HF_NO_WINDOW);
    if (windows)
        in->window_mask = mask_made(graph, c, job, in, c->sliding_window);
    if (!job->traced && (way->mixer || c->ssm_heads > 0)) /* Falcon-H1 has both */
        hf_padding_test(graph);
}

/* A mask, by a function of its own. */
static uint32_t mask_of(struct graph *graph, const struct model_job *job, uint32_t window,
                        bool chunks, bool added)
{
    graph_mark(graph, MARK_FRAME);
    uint32_t mask = chunks ? hf_chunk_mask(graph, job, window) : hf_window_mask(graph, job, window);
    if (added)
        mask = hf_eager_mask(graph, job, mask);
    graph_mark(graph, MARK_FRAME_END);
    return mask;
}

/* Whether the masks' function is given positions, which it asks whether sequences are packed; of
 * sinks it is not asked. */
static bool asks(const struct model_config *c, const struct hf_decoder *way)
{
    return !c->sinks && !way->unplaced && !way->unasked;
}

/* The package flash-attn has no masks. */
static void make_masks(struct graph *graph, const struct model_config *c,
                       const struct model_job *job, struct inputs *in)
{
    const struct hf_decoder *way = in->way;
    const bool windows = any_layer(c, true) || way->both_masks || way->both_types,
               added = hf_is_eager(graph, way) || c->sinks,
               none = graph->attention == ATTENTION_FLASH_ATTN;
    const bool one_mask = windows && !any_layer(c, false) && !way->masks_by_layer &&
                          !way->both_masks && !way->eager && !c->sinks;
    if (graph->attention_mask != GRAPH_NONE) {
        make_all_masks(graph, c, job, in);
        if (c->alibi)
            in->mask = hf_alibi_mask(graph, c, job, in->alibi, in->mask);
        return;
    }
    const bool full = any_layer(c, false) || !way->masks_of_types;
    if (asks(c, way) && full)
        hf_packed_test(graph, job, in->positions);
    if (added && !one_mask && full)
        in->mask = mask_of(graph, job, HF_NO_WINDOW, false, true);
    else if (way->masked && !none)
        in->mask = mask_of(graph, job, HF_NO_WINDOW, false, false);
    if (c->alibi)
        in->mask = hf_alibi_mask(graph, c, job, in->alibi, in->mask);
    if (windows && way->masks_by_layer && asks(c, way))
        hf_packed_test(graph, job, in->positions);
    if (none)
        return;
    if (way->chunks || (windows && (added || way->both_masks || job->seq >= c->sliding_window)))
        in->window_mask = mask_of(graph, job, c->sliding_window, way->chunks, added && windows);
}

/* Rows of the embedding times a number, which take their place, but where they are a caller's. */
static uint32_t multiplied(struct graph *graph, const struct model_config *c,
                           const struct hf_decoder *way, uint32_t rows)
{
    if (!(c->embedding_multiplier > 0))
        return rows;
    const uint32_t scaled = op_scalar(graph, OP_MUL_SCALAR, rows, c->embedding_multiplier);
    if (!way->nested)
        graph_drop(graph, rows);
    return scaled;
}

/* The embedding's rows behind dropout, by a module or a function. */
static uint32_t drop_rows(struct graph *graph, const struct model_config *c,
                          const struct hf_decoder *way, uint32_t rows)
{
    if (!way->embedding_dropout)
        return op_dropout(graph, rows, c->embedding_dropout);
    graph_call_begin(graph, "%s.%s", model_of(way), way->embedding_dropout);
    const uint32_t out = c->embedding_dropout > 0 ? op_dropout(graph, rows, c->embedding_dropout)
                                                  : op_called_alone(graph, rows);
    graph_call_end(graph);
    return out;
}

/* The norm behind the last layer. */
static const char *last_name(const struct hf_decoder *way)
{
    return way->last_norm ? way->last_norm : "norm";
}

static struct norm last_norm(struct graph *graph, const struct model_config *c,
                             const struct hf_decoder *way)
{
    char prefix[96];
    snprintf(prefix, sizeof prefix, "%s.", model_of(way));
    return hf_decoder_norm(graph, c, way, prefix, last_name(way), c->hidden);
}

/* What the script calls the model with, beside tokens: (1, s), here (s). */
static uint32_t positions_of_samples(struct graph *graph, const struct model_config *c,
                                     const struct model_job *job)
{
    const uint32_t given = build_input(graph, c, INPUT_POSITIONS, SHAPE(1, job->seq));
    return graph_view(graph, given, SHAPE(job->seq));
}

/* The first hidden states, positions, masks and RoPE tables. */
static struct inputs make_inputs(struct graph *graph, const struct model_config *c,
                                 const struct model_job *job, const struct hf_decoder *way,
                                 const struct frequencies *frequencies, struct hf_ahead *ahead_of,
                                 uint32_t embedded)
{
    struct inputs in = {.way = way,
                        .mask = GRAPH_NONE,
                        .window_mask = GRAPH_NONE,
                        .output = GRAPH_NONE,
                        .places = GRAPH_NONE};
    in.outer = way->nested ? graph->embedded : GRAPH_NONE;
    in.alibi = (struct hf_alibi){GRAPH_NONE, GRAPH_NONE};
    if (c->alibi) {
        graph_mark(graph, MARK_FRAME);
        in.alibi = hf_alibi(graph, c, job, (enum dtype)graph->tensors[embedded].dtype);
        graph_mark(graph, MARK_FRAME_END);
    }
    const bool ahead = way->masks_ahead && !job->traced;
    if (ahead)
        make_masks(graph, c, job, &in);
    graph_call_begin(graph, "%s", model_of(way));
    in.positions = job->sample_tokens               ? positions_of_samples(graph, c, job)
                   : way->encoder || way->uncounted ? op_arange(graph, job->seq)
                                                    : hf_positions(graph, job);
    graph_call_end(graph);
    if (way->encoder)
        in.mask = hf_mask_both_ways(graph, job, HF_NO_WINDOW);
    else if (job->traced && asks(c, way))
        make_all_masks(graph, c, job, &in);
    else if (!ahead)
        make_masks(graph, c, job, &in);
    if (way->late_scale && !way->scaled_apart)
        embedded = multiplied(graph, c, way, embedded);
    const bool apart = way->scaled_apart && c->embedding_multiplier > 0;
    in.first = apart ? op_scalar(graph, OP_MUL_SCALAR, embedded, c->embedding_multiplier)
                     : drop_rows(graph, c, way, embedded);
    in.embeds = way->dropped_rows ? in.first : embedded;
    in.ahead = ahead_of;
    if (way->spread)
        in.first = way->spread(graph, c, ahead_of, embedded);
    if (graph->tensors[in.embeds].storage != graph->tensors[embedded].storage)
        graph_drop(graph, embedded);
    graph_call_begin(graph, "%s.%s", model_of(way), way->rope ? way->rope : "rotary_emb");
    make_tables(graph, c, job, frequencies, &in);
    graph_call_end(graph);
    if (way->norm_first) {
        graph_mark(graph, MARK_FRAME);
        in.first = hf_decoder_normed(graph, way, in.first, last_norm(graph, c, way));
        graph_mark(graph, MARK_FRAME_END);
    }
    return in;
}

/* RoPE's tables as a layer is called with them. */
static struct hf_rope as_called(struct graph *graph, const struct model_job *job,
                                struct hf_rope rope)
{
    if (job->casts_inputs && rope.sin != GRAPH_NONE) { /* complex numbers are as they are */
        rope.cos = op_to(graph, rope.cos, graph->compute);
        rope.sin = op_to(graph, rope.sin, graph->compute);
    }
    return rope;
}

static void drop_tables(struct graph *graph, struct hf_rope rope)
{
    graph_drop(graph, rope.cos);
    if (rope.sin != GRAPH_NONE)
        graph_drop(graph, rope.sin);
}

static uint32_t run_layer(struct graph *graph, const struct model_config *c,
                          const struct model_job *job, const struct hf_decoder *way,
                          const struct hf_layer_call *call)
{
    if (way->layer)
        return way->layer(graph, c, job, call);
    const bool mixing = way->mixing && hf_mixes(c, way, call->index);
    struct hf_block block =
        hf_block_declare(graph, c, mixing ? way->mixing : way, call->index, call->prefix);
    block.window = call->window;
    block.places = call->places;
    return hf_block_run(graph, c, job, &block, call->x, call->mask, call->rope);
}

/* The part (b, s, n) that is layer `index`'s of what was computed ahead. */
static uint32_t part_of(struct graph *graph, const struct hf_ahead *ahead, uint32_t index)
{
    if (!ahead || ahead->beside == GRAPH_NONE)
        return GRAPH_NONE;
    const struct shape s = graph->tensors[ahead->beside].shape;
    return graph_view(graph, op_select(graph, ahead->beside, 2, index),
                      SHAPE(s.dim[0], s.dim[1], s.dim[3]));
}

static uint32_t block_module(struct graph *graph, const struct inputs *in, uint32_t index)
{
    return in->ahead ? in->ahead->modules[index]
                     : graph_module(graph, ROLE_BLOCK, "%s.%s.%u", model_of(in->way),
                                    in->way->layers ? in->way->layers : "layers", index);
}

static void give_tables(struct graph *graph, uint32_t module, struct hf_rope rope)
{
    if (rope.sin != GRAPH_NONE)
        graph_also_input(graph, module, rope.sin);
    if (rope.cos != GRAPH_NONE)
        graph_also_input(graph, module, rope.cos);
}

static uint32_t enter_block(struct graph *graph, const struct model_config *c,
                            const struct model_job *job, uint32_t index, uint32_t x,
                            struct inputs *in)
{
    const uint32_t beside = part_of(graph, in->ahead, index);
    const uint32_t module = block_module(graph, in, index);
    const bool window = model_has_window(c, index);
    const uint32_t mask = hf_mixes(c, in->way, index) ? GRAPH_NONE
                          : window                    ? in->window_mask
                                                      : in->mask;
    struct hf_rope none = {.cos = GRAPH_NONE, .sin = GRAPH_NONE};
    const struct hf_rope tables = in->way->mixing && hf_mixes(c, in->way, index) ? none
                                  : window                                       ? in->window_rope
                                                                                 : in->rope;
    struct hf_rope rope = as_called(graph, job, tables);
    rope.positions = none.positions = in->way->unplaced ? GRAPH_NONE : in->positions;
    rope.sample = none.sample = job->sample_tokens;
    const bool plain =
        model_is_plain(c, index) || (in->way->window_rope && c->sliding_window && !window);
    graph_enter(graph, module, x);
    if (in->way->tables_before)
        give_tables(graph, module, rope);
    if (beside != GRAPH_NONE)
        graph_also_input(graph, module, beside);
    if (!in->way->positions_first && !in->way->unplaced)
        graph_also_input(graph, module, in->positions);
    if (in->way->tables_first && mask != GRAPH_NONE)
        graph_also_input(graph, module, mask);
    if (!in->way->tables_before)
        give_tables(graph, module, rope);
    if (in->alibi.bias != GRAPH_NONE)
        graph_also_input(graph, module, in->alibi.bias);
    if (in->way->positions_first)
        graph_also_input(graph, module, in->positions);
    if (!in->way->tables_first && mask != GRAPH_NONE)
        graph_also_input(graph, module, mask);
    if (in->way->mla.hands_on && in->places != GRAPH_NONE)
        graph_also_input(graph, module, in->places);
    const struct hf_layer_call call = {.index = index,
                                       .prefix = graph->modules[module].name,
                                       .x = x,
                                       .mask = mask,
                                       .window = window && !in->way->chunks ? c->sliding_window : 0,
                                       .places = &in->places,
                                       .rope = plain ? none : rope,
                                       .beside = beside,
                                       .ahead = in->ahead};
    const uint32_t z = run_layer(graph, c, job, in->way, &call);
    graph_exit(graph, module, z);
    if (rope.cos != tables.cos)
        drop_tables(graph, rope);
    return z;
}

uint32_t hf_embedded_rows(struct graph *graph, uint32_t tokens, uint32_t table, uint32_t scale,
                          uint32_t padding)
{
    hf_call(graph, table);
    if (scale != GRAPH_NONE) /* else torch's own class */
        graph_mark(graph, MARK_FRAME);
    const uint32_t rows = op_embedding(graph, tokens, table);
    uint32_t out = rows;
    op_embedding_padding(graph, rows, padding);
    if (scale != GRAPH_NONE) {
        const uint32_t cast = op_to(graph, scale, graph->compute);
        out = op_mul_constant(graph, rows, cast);
        graph_drop(graph, rows);
        if (cast != scale)
            graph_drop(graph, cast);
        graph_mark(graph, MARK_FRAME_END);
    }
    graph_call_end(graph);
    graph->embedded = out;
    return out;
}

/* The input of the first layer: rows of the table, perhaps times a number. */
static uint32_t embed(struct graph *graph, const struct model_config *c,
                      const struct hf_decoder *way, uint32_t tokens, uint32_t *table)
{
    const float number = c->embedding_scale ? (float)c->embedding_scale : sqrtf((float)c->hidden);
    const struct buffer_values values = {.kind = VALUES_NUMBER, .number = number};
    uint32_t scale = GRAPH_NONE; /* embed_scale */
    if (way->scaled_rows)        /* torch.tensor of an integer is one */
        scale = graph_buffer(graph, c->embedding_scale ? DTYPE_INT64 : graph->made,
                             (struct shape){.rank = 0}, &values);
    const char *model = model_of(way), *name = embedding_of(way);
    const uint32_t module = graph_module(graph, ROLE_EMBEDDING, "%s.%s", model, name);
    *table =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "%s.%s.weight", model, name);
    if (way->nested)
        graph->apart = graph->modules[module].name;
    if (way->nested) /* what its outer model does before it calls it */
        graph_mark(graph, MARK_FRAME);
    graph_enter(graph, module, tokens);
    const uint32_t rows = hf_embedded_rows(graph, tokens, *table, scale, c->padding);
    graph_exit(graph, module, rows);
    if (way->nested)
        graph_mark(graph, MARK_FRAME_END);
    return way->late_scale ? rows : multiplied(graph, c, way, rows);
}

static uint32_t run_layers(struct graph *graph, const struct model_config *c,
                           const struct model_job *job, struct inputs *in)
{
    uint32_t x = in->first;
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t before = in->places, z = enter_block(graph, c, job, i, x, in);
        if (i > 0 || x != in->embeds)
            graph_drop(graph, x); /* the first one may be inputs_embeds too */
        if (in->way->mla.hands_on && before != in->places && before != GRAPH_NONE)
            graph_drop(graph, before);
        x = z;
    }
    if (in->way->gather)
        x = in->way->gather(graph, c, in->ahead, x);
    const uint32_t last =
        in->ahead ? in->ahead->last_module
                  : graph_module(graph, ROLE_NORM, "%s.%s", model_of(in->way), last_name(in->way));
    const struct norm norm = in->ahead ? in->ahead->last : last_norm(graph, c, in->way);
    graph_enter(graph, last, x);
    const bool own = /* else torch's own class */
        !in->way->biased_norms || in->way->norm == hf_layer_norm_plus_one;
    if (own)
        graph_mark(graph, MARK_FRAME);
    const uint32_t normed = hf_decoder_normed(graph, in->way, x, norm);
    if (own)
        graph_mark(graph, MARK_FRAME_END);
    graph_exit(graph, last, normed);
    if (in->way->last_named)
        in->output = x;
    else
        graph_drop(graph, x);
    return normed;
}

/* A nested model's inputs_embeds stay its caller's. */
static void drop_some(struct graph *graph, const struct inputs *in, const uint32_t *tensors,
                      int count)
{
    for (int i = 0; i < count; i++)
        if (tensors[i] != GRAPH_NONE && tensors[i] != in->outer)
            graph_drop(graph, tensors[i]);
}

/* What layers were called with: position_ids and inputs_embeds are arguments, masks local
 * variables. Where masks go by layer, arguments of the functions that make them are also in a dict,
 * which lets go last: of inputs_embeds, and in Qwen's and Gemma's of position_ids. Where that is
 * for each type of layer, the dict is a lambda's, whose variables go behind all others. */
static void let_go(struct graph *graph, const struct model_config *c, const struct inputs *made)
{
    struct inputs rest = *made, *in = &rest;
    uint32_t *last = model_has_window(c, c->layers - 1) ? &rest.window_mask : &rest.mask;
    const uint32_t named = in->way->spread ? *last : GRAPH_NONE; /* of the loop over layers */
    if (in->way->spread)
        *last = GRAPH_NONE;
    const uint32_t arguments_first[] = {in->positions, in->embeds, in->mask, in->window_mask};
    const uint32_t dict_last[] = {in->mask, in->window_mask, in->embeds, in->positions};
    const uint32_t embedded_last[] = {in->positions, in->mask, in->window_mask, in->embeds};
    const uint32_t masks_first[] = {in->mask, in->window_mask, in->positions, in->embeds};
    const bool own = in->way->nested && !in->way->deeper;
    const bool named_mask = own && !in->way->masks_by_layer; /* it is an argument */
    const uint32_t *order = in->way->masks_ahead            ? arguments_first
                            : named_mask || in->way->spread ? masks_first
                            : in->way->embedded_last || own ? embedded_last
                            : in->way->masks_by_layer       ? dict_last
                                                            : arguments_first;
    if (in->ahead && in->ahead->beside != GRAPH_NONE) /* an argument */
        graph_drop(graph, in->ahead->beside);
    if (in->alibi.bias != GRAPH_NONE) { /* masks come last */
        graph_drop(graph, in->positions);
        graph_drop(graph, in->embeds);
        graph_drop(graph, in->alibi.bias);
        if (in->alibi.ones != GRAPH_NONE)
            graph_drop(graph, in->alibi.ones);
        graph_drop(graph, in->mask);
    }
    const int count = in->alibi.bias != GRAPH_NONE ? 0 : 4,
              before = in->way->masks_of_types && count ? 2 : count;
    drop_some(graph, in, order, before);
    for (uint32_t i = 0; in->ahead && i < in->ahead->part_count; i++)
        graph_drop(graph, in->ahead->parts[i]);
    if (in->rope.cos != GRAPH_NONE)
        drop_tables(graph, in->rope);
    if (in->window_rope.cos != GRAPH_NONE && in->window_rope.cos != in->rope.cos)
        drop_tables(graph, in->window_rope);
    drop_some(graph, in, order + before, count - before);
    if (in->way->mla.hands_on)
        graph_drop(graph, in->places);
    for (uint32_t i = 0; in->ahead && i < in->ahead->holds; i++)
        graph_drop(graph, in->ahead->held[i]);
    if (named != GRAPH_NONE)
        graph_drop(graph, named);
    if (in->ahead && in->ahead->behind != GRAPH_NONE)
        graph_drop(graph, in->ahead->behind);
    if (in->output != GRAPH_NONE)
        graph_drop(graph, in->output);
    if (in->way->nested)
        graph_drop(graph, in->outer);
}

static struct linear declare_head(struct graph *graph, const struct model_config *c,
                                  const struct hf_decoder *way, uint32_t table)
{
    struct linear head = {table, GRAPH_NONE};
    if (!c->tied)
        head = build_linear(graph, "", "lm_head", c->vocab, c->hidden, way->biased_head);
    else if (way->biased_head)
        head.bias = graph_param(graph, PARAM_BIAS, SHAPE(c->vocab), "lm_head.bias");
    return head;
}

static uint32_t as_rows(struct graph *graph, uint32_t x)
{
    const struct shape shape = graph->tensors[x].shape;
    return graph_view(graph, x, SHAPE(shape.dim[0] * shape.dim[1], shape.dim[2]));
}

/* x by what its logits would be multiplied with or divided by; x: by nothing. */
static uint32_t scale_logits(struct graph *graph, const struct model_config *c, uint32_t x)
{
    if (c->logits_multiplier > 0)
        return op_scalar(graph, OP_MUL_SCALAR, x, c->logits_multiplier);
    return c->logits_scaling > 0 ? op_scalar(graph, OP_DIV_SCALAR, x, c->logits_scaling) : x;
}

static void liger_loss(struct graph *graph, uint32_t x, uint32_t weight, uint32_t labels)
{
    const struct hf_shifted targets = hf_shift(graph, labels);
    graph->loss = op_liger_linear_cross_entropy(graph, as_rows(graph, x), weight, targets.flat);
    graph_read_by_model(graph, weight);
    hf_drop_shifted(graph, targets);
}

/* apply_lce of cut_cross_entropy/transformers/utils.py: hidden states in fp32 become the weight's.
 */
static void cut_loss(struct graph *graph, const struct model_config *c, uint32_t x, uint32_t weight,
                     uint32_t labels)
{
    const enum dtype dtype = (enum dtype)graph->tensors[weight].dtype;
    const uint32_t scaled = scale_logits(graph, c, x);
    const bool wide = dtype == DTYPE_BF16 && graph->tensors[x].dtype == DTYPE_FP32;
    const uint32_t narrow = wide ? op_to(graph, scaled, dtype) : scaled;
    graph->loss =
        op_cut_cross_entropy(graph, as_rows(graph, narrow), weight, labels, c->logits_softcap);
    graph_read_by_model(graph, weight);
    if (narrow != scaled)
        graph_drop(graph, narrow);
    if (scaled != x)
        graph_drop(graph, scaled);
}

/* What reads the head's weight in the model's own forward, whose module is not called: lce_forward
 * of Liger's, cce_forward of cut-cross-entropy's, the one that add_fused_lm_head puts there. */
static void loss_with_head(struct graph *graph, const struct model_config *c,
                           const struct hf_decoder *way, uint32_t hidden, uint32_t table,
                           uint32_t labels)
{
    const bool trl = loss_is_of_trl(graph->cross_entropy);
    const uint32_t x = trl ? hidden : hf_logits_kept(graph, hidden);
    graph_module(graph, ROLE_HEAD, "lm_head");
    const struct linear head = declare_head(graph, c, way, table);
    graph_leave_module(graph);
    if (trl) {
        hf_lm_head_loss(graph, hidden, head.weight, head.bias, labels);
        return;
    }
    if (graph->cross_entropy == CROSS_ENTROPY_CUT)
        cut_loss(graph, c, x, head.weight, labels);
    else
        liger_loss(graph, x, head.weight, labels);
    graph_mark(graph, MARK_FRAME_END);
    graph_drop(graph, hidden);
    hf_return(graph, GRAPH_NONE, GRAPH_NONE);
}

/* The logits of `hidden` (b, s, h). */
static uint32_t apply_head(struct graph *graph, const struct model_config *c,
                           const struct hf_decoder *way, uint32_t hidden, uint32_t table)
{
    const uint32_t x = way->encoder ? hidden : hf_logits_kept(graph, hidden);
    const uint32_t module = graph_module(graph, ROLE_HEAD, "lm_head");
    const struct linear head = declare_head(graph, c, way, table);
    graph_enter(graph, module, x);
    graph_call_begin(graph, "lm_head");
    const uint32_t logits = apply_linear(graph, x, head);
    graph_call_end(graph);
    graph_exit(graph, module, logits);
    if (way->wide_logits) {
        const uint32_t wide = op_to(graph, logits, DTYPE_FP32);
        if (wide != logits)
            graph_drop(graph, logits);
        return wide;
    }
    if (c->logits_softcap > 0)
        return hf_softcap(graph, logits, c->logits_softcap);
    const uint32_t scaled = scale_logits(graph, c, logits);
    if (scaled != logits)
        graph_drop(graph, logits);
    return scaled;
}

/* The text model of one that sees is a module deeper, and lets go as it does by itself. */
static struct hf_decoder beside_tower(const struct model_config *c, const struct hf_decoder *way)
{
    struct hf_decoder deeper = *way;
    deeper.model = tower_text(&c->tower);
    deeper.nested = deeper.deeper = true;
    deeper.placeholders = c->tower.joint == JOINT_KIMI;
    if (c->tower.joint == JOINT_GEMMA3) /* the class around makes the masks, of types that occur */
        deeper.unasked = deeper.masks_ahead = deeper.masks_of_types = true;
    return deeper;
}

/* The text model of one that sees, whose head is the class's around it. */
static struct model_config as_around(const struct model_config *c)
{
    struct model_config around = *c;
    if (!tower_scales_logits(&c->tower))
        around.logits_softcap = around.logits_multiplier = around.logits_scaling =
            around.hidden_scaling = 0;
    return around;
}

void hf_decoder_build(struct graph *graph, const struct model_config *text,
                      const struct model_job *given, const struct hf_decoder *of_text)
{
    uint32_t table;
    const bool deeper = tower_is_there(&text->tower, given->tower) && !of_text->nested;
    const struct model_config known = deeper ? as_around(text) : *text, *c = &known;
    const struct hf_decoder whole = deeper ? beside_tower(c, of_text) : *of_text, *way = &whole;
    struct model_job joined = *given;
    const struct model_job *job = &joined;
    if (given->sample_tokens) { /* the collator makes one row of all sequences */
        joined.seq = given->seq * given->batch;
        joined.batch = 1;
    }
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t labels =
        way->encoder ? hf_targets(graph, c, job, INPUT_MASKED_TARGETS, SHAPE(job->batch * job->seq))
                     : hf_targets(graph, c, job, INPUT_LABELS, SHAPE(job->batch, job->seq));
    graph_init_weights(graph, init_normal((double)c->init_std, 0));
    struct hf_placeholders given_to = {tokens, GRAPH_NONE};
    if (way->placeholders)
        given_to = hf_without_placeholders(graph, tokens);
    const uint32_t embedded = embed(graph, c, way, given_to.tokens, &table);
    struct hf_ahead *ahead = way->ahead ? way->ahead(graph, c, job, tokens, embedded) : NULL;
    const struct frequencies frequencies = make_frequencies(graph, c, job, way);
    struct inputs in = make_inputs(graph, c, job, way, &frequencies, ahead, embedded);
    const uint32_t normed = run_layers(graph, c, job, &in);
    let_go(graph, c, &in);
    if (way->placeholders) {
        graph_drop(graph, given_to.mask);
        graph_drop(graph, given_to.tokens);
    }
    if (tower_is_there(&c->tower, job->tower)) {
        graph_leave_module(graph);
        tower_declare_rest(graph, &c->tower, c->hidden, job->tower);
    }
    if (job->task == TASK_SEQUENCE_CLASSIFICATION && way->encoder) {
        hf_classify(graph, c, job, way->classifier, NULL, normed, GRAPH_NONE, labels);
        return;
    }
    if (job->task == TASK_SEQUENCE_CLASSIFICATION) {
        hf_score(graph, c, job, normed, tokens, labels);
        return;
    }
    if (way->encoder) {
        hf_masked_loss(graph, normed, apply_head(graph, c, way, normed, table), labels);
        return;
    }
    if (loss_has_head(graph->cross_entropy)) {
        loss_with_head(graph, c, way, normed, table, labels);
        return;
    }
    if (tower_is_there(&c->tower, job->tower) && c->tower.joint == JOINT_QWEN2_AUDIO) {
        hf_loss_in_class(graph, normed, apply_head(graph, c, way, normed, table), labels);
        return;
    }
    uint32_t scaled = normed;
    if (c->hidden_scaling > 0)
        scaled = op_scalar(graph, OP_DIV_SCALAR, normed, c->hidden_scaling);
    hf_loss_scaled(graph, normed, scaled, apply_head(graph, c, way, scaled, table), labels);
}

void build_hf_llama(struct graph *graph, const struct model_config *config,
                    const struct model_job *job)
{
    hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_LLAMA_NORMS});
}

void build_hf_mistral(struct graph *graph, const struct model_config *config,
                      const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_LLAMA_NORMS, .positions_first = true});
}

void build_hf_qwen(struct graph *graph, const struct model_config *config,
                   const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){HF_LLAMA_NORMS, .masks_by_layer = true});
}
