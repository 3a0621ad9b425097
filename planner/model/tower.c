/* tower.c - see tower.h. */
#include "model/tower.h"

#include "model/build.h"

#include <stdarg.h>
#include <stdio.h>

struct at { /* where parameters are declared */
    struct graph *graph;
    const struct tower *t;
    uint32_t text; /* the text model's width */
    char prefix[96];
};

/* ---- pieces ---- */

/* What follows is in this module. */
static void __attribute__((format(printf, 2, 3))) into(struct at *at, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(at->prefix, sizeof at->prefix, format, list);
    va_end(list);
}

static void linear(struct at *at, const char *name, uint32_t out, uint32_t in, bool biased)
{
    build_linear(at->graph, at->prefix, name, out, in, biased);
}

static void norm(struct at *at, const char *name, uint32_t width, bool biased)
{
    build_norm(at->graph, at->prefix, name, width, biased, 0);
}

static void weight(struct at *at, const char *name, struct shape shape)
{
    graph_param(at->graph, PARAM_WEIGHT, shape, "%s%s", at->prefix, name);
}

static void convolution(struct at *at, const char *name, struct shape shape, bool biased)
{
    build_weights(at->graph, at->prefix, name, shape, biased ? shape.dim[0] : 0);
}

/* nn.Conv2d of patches. */
static void patches(struct at *at, const char *name, bool biased)
{
    const struct tower *t = at->t;
    convolution(at, name, SHAPE(t->width, t->channels, t->patch, t->patch), biased);
}

/* A buffer that is there and that nothing reads. */
static void buffer(struct at *at, enum dtype dtype, struct shape shape)
{
    const struct buffer_values zeros = {.kind = VALUES_ZEROS};
    graph_buffer(at->graph, dtype, shape, &zeros);
}

/* RoPE's frequencies, and what they were at first. */
static void frequencies(struct at *at, uint32_t count)
{
    buffer(at, DTYPE_FP32, SHAPE(count));
    buffer(at, DTYPE_FP32, SHAPE(count));
}

/* Patches of a picture. */
static uint32_t patches_of(const struct tower *t)
{
    return t->image / t->patch * (t->image / t->patch);
}

static uint32_t square(uint32_t n)
{
    return n * n;
}

/* Linear layers of (width, width), by commas. */
static void squares(struct at *at, const char *const *names, uint32_t count, bool biased)
{
    for (uint32_t i = 0; i < count; i++)
        linear(at, names[i], at->t->width, at->t->width, biased);
}

/* ---- towers ---- */

/* A merger's two layers: patches of a square, side by side, to the text's width. */
static void merger(struct at *at, const char *first, const char *last)
{
    const uint32_t wide = at->t->width * square(at->t->merge);
    linear(at, first, wide, wide, true);
    linear(at, last, at->t->out, wide, true);
}

static void qwen_blocks_begin(struct at *at, bool biased)
{
    const struct tower *t = at->t;
    into(at, "model.visual.");
    convolution(at, "patch_embed.proj", SHAPE(t->width, t->channels, t->frames, t->patch, t->patch),
                biased);
}

static void qwen_attention(struct at *at, bool norm_biased)
{
    const uint32_t width = at->t->width;
    norm(at, "norm1", width, norm_biased);
    norm(at, "norm2", width, norm_biased);
    linear(at, "attn.qkv", 3 * width, width, true);
    linear(at, "attn.proj", width, width, true);
}

static void qwen2_vl(struct at *at)
{
    const struct tower *t = at->t;
    const uint32_t ffn = t->ratio * t->width;
    qwen_blocks_begin(at, false);
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.visual.blocks.%u.", i);
        qwen_attention(at, true);
        linear(at, "mlp.fc1", ffn, t->width, true);
        linear(at, "mlp.fc2", t->width, ffn, true);
    }
    into(at, "model.visual.merger.");
    norm(at, "ln_q", t->width, true);
    merger(at, "mlp.0", "mlp.2");
    frequencies(at, t->width / t->heads / 4);
}

static void qwen2_5_vl(struct at *at)
{
    const struct tower *t = at->t;
    qwen_blocks_begin(at, false);
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.visual.blocks.%u.", i);
        qwen_attention(at, false);
        linear(at, "mlp.gate_proj", t->ffn, t->width, true);
        linear(at, "mlp.up_proj", t->ffn, t->width, true);
        linear(at, "mlp.down_proj", t->width, t->ffn, true);
    }
    into(at, "model.visual.merger.");
    norm(at, "ln_q", t->width, false);
    merger(at, "mlp.0", "mlp.2");
    frequencies(at, t->width / t->heads / 4);
}

static void qwen3_vl(struct at *at)
{
    const struct tower *t = at->t;
    uint32_t deep = 0;
    for (uint32_t i = 0; i < 32 * sizeof t->deep / sizeof *t->deep; i++)
        deep += t->deep[i / 32] >> i % 32 & 1;
    qwen_blocks_begin(at, true);
    weight(at, "pos_embed.weight", SHAPE(t->places, t->width));
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.visual.blocks.%u.", i);
        qwen_attention(at, true);
        linear(at, "mlp.linear_fc1", t->ffn, t->width, true);
        linear(at, "mlp.linear_fc2", t->width, t->ffn, true);
    }
    into(at, "model.visual.merger.");
    norm(at, "norm", t->width, true);
    merger(at, "linear_fc1", "linear_fc2");
    for (uint32_t i = 0; i < deep; i++) {
        into(at, "model.visual.deepstack_merger_list.%u.", i);
        norm(at, "norm", t->width * square(t->merge), true);
        merger(at, "linear_fc1", "linear_fc2");
    }
    frequencies(at, t->width / t->heads / 4);
}

/* SigLIP's pooling head: nn.MultiheadAttention reads its output's weight itself, so that peft and
 * bitsandbytes take it for no linear layer. */
static void siglip_head(struct at *at)
{
    const uint32_t width = at->t->width, ffn = at->t->ffn;
    into(at, "model.vision_tower.head.");
    weight(at, "probe", SHAPE(1, 1, width));
    weight(at, "attention.in_proj_weight", SHAPE(3 * width, width));
    weight(at, "attention.in_proj_bias", SHAPE(3 * width));
    build_weights(at->graph, at->prefix, "attention.out_proj", SHAPE(width, width), width);
    norm(at, "layernorm", width, true);
    linear(at, "mlp.fc1", ffn, width, true);
    linear(at, "mlp.fc2", width, ffn, true);
}

/* CLIP's layers have attention before their first norm, in the order of their declaration. */
static void siglip_layer(struct at *at, bool norm_first)
{
    static const char *const names[] = {"self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj",
                                        "self_attn.out_proj"};
    const uint32_t width = at->t->width, ffn = at->t->ffn;
    if (norm_first)
        norm(at, "layer_norm1", width, true);
    squares(at, names, 4, true);
    norm(at, norm_first ? "layer_norm2" : "layer_norm1", width, true);
    linear(at, "mlp.fc1", ffn, width, true);
    linear(at, "mlp.fc2", width, ffn, true);
    if (!norm_first)
        norm(at, "layer_norm2", width, true);
}

static void siglip(struct at *at)
{
    const struct tower *t = at->t;
    const bool second = t->kind == TOWER_SIGLIP2;
    into(at, "model.vision_tower.");
    if (second) /* of pixels side by side */
        linear(at, "embeddings.patch_embedding", t->width, t->channels * square(t->patch), true);
    else
        patches(at, "embeddings.patch_embedding", true);
    const uint32_t places = second ? t->places : patches_of(t);
    weight(at, "embeddings.position_embedding.weight", SHAPE(places, t->width));
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.vision_tower.encoder.layers.%u.", i);
        siglip_layer(at, true);
    }
    into(at, "model.vision_tower.");
    norm(at, "post_layernorm", t->width, true);
    if (t->pooled)
        siglip_head(at);
    if (!second)
        buffer(at, DTYPE_INT64, SHAPE(1, places));
}

static void clip(struct at *at)
{
    const struct tower *t = at->t;
    const uint32_t places = patches_of(t) + 1;
    into(at, "model.vision_tower.");
    weight(at, "embeddings.class_embedding", SHAPE(t->width));
    patches(at, "embeddings.patch_embedding", false);
    weight(at, "embeddings.position_embedding.weight", SHAPE(places, t->width));
    norm(at, "pre_layrnorm", t->width, true); /* as it is spelt */
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.vision_tower.encoder.layers.%u.", i);
        siglip_layer(at, false);
    }
    into(at, "model.vision_tower.");
    norm(at, "post_layernorm", t->width, true);
    buffer(at, DTYPE_INT64, SHAPE(1, places));
}

static void pixtral(struct at *at)
{
    static const char *const names[] = {"attention.k_proj", "attention.v_proj", "attention.q_proj",
                                        "attention.o_proj"};
    const struct tower *t = at->t;
    into(at, "model.vision_tower.");
    patches(at, "patch_conv", false);
    norm(at, "ln_pre", t->width, false);
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.vision_tower.transformer.layers.%u.", i);
        norm(at, "attention_norm", t->width, false);
        linear(at, "feed_forward.gate_proj", t->ffn, t->width, false);
        linear(at, "feed_forward.up_proj", t->ffn, t->width, false);
        linear(at, "feed_forward.down_proj", t->width, t->ffn, false);
        squares(at, names, 4, false);
        norm(at, "ffn_norm", t->width, false);
    }
    frequencies(at, t->width / t->heads / 2);
}

static void idefics3(struct at *at)
{
    const struct tower *t = at->t;
    into(at, "model.vision_model.");
    patches(at, "embeddings.patch_embedding", true);
    weight(at, "embeddings.position_embedding.weight", SHAPE(patches_of(t), t->width));
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.vision_model.encoder.layers.%u.", i);
        siglip_layer(at, false);
    }
    into(at, "model.vision_model.");
    norm(at, "post_layernorm", t->width, true);
}

static void internvl(struct at *at)
{
    static const char *const names[] = {"attention.q_proj", "attention.k_proj", "attention.v_proj"};
    const struct tower *t = at->t;
    into(at, "model.vision_tower.embeddings.");
    weight(at, "cls_token", SHAPE(1, 1, t->width));
    weight(at, "position_embeddings", SHAPE(1, patches_of(t) + 1, t->width));
    patches(at, "patch_embeddings.projection", true);
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.vision_tower.encoder.layer.%u.", i);
        weight(at, "lambda_1", SHAPE(t->width));
        weight(at, "lambda_2", SHAPE(t->width));
        squares(at, names, 3, t->biased);
        linear(at, "attention.projection_layer", t->width, t->width, true);
        if (t->qk_norm) {
            norm(at, "attention.q_norm", t->width, false);
            norm(at, "attention.k_norm", t->width, false);
        }
        linear(at, "mlp.fc1", t->ffn, t->width, true);
        linear(at, "mlp.fc2", t->width, t->ffn, true);
        norm(at, "layernorm_before", t->width, !t->qk_norm);
        norm(at, "layernorm_after", t->width, !t->qk_norm);
    }
}

static void llama4(struct at *at)
{
    static const char *const names[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "self_attn.o_proj"};
    const struct tower *t = at->t;
    into(at, "vision_model.");
    weight(at, "class_embedding", SHAPE(t->width));
    weight(at, "positional_embedding_vlm", SHAPE(patches_of(t) + 1, t->width));
    linear(at, "patch_embedding.linear", t->width, t->channels * square(t->patch), false);
    norm(at, "layernorm_pre", t->width, true);
    norm(at, "layernorm_post", t->width, true);
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "vision_model.model.layers.%u.", i);
        squares(at, names, 4, true);
        linear(at, "mlp.fc1", t->ffn, t->width, true);
        linear(at, "mlp.fc2", t->width, t->ffn, true);
        norm(at, "input_layernorm", t->width, true);
        norm(at, "post_attention_layernorm", t->width, true);
    }
    into(at, "vision_model.vision_adapter.");
    linear(at, "mlp.fc1", t->joined_in, t->ffn, false);
    linear(at, "mlp.fc2", t->joined_out, t->joined_out, false);
    buffer(at, DTYPE_FP32, SHAPE(patches_of(t) + 1, 1, t->width / t->heads)); /* complex numbers */
}

static void gemma4(struct at *at)
{
    const struct tower *t = at->t;
    const uint32_t query = t->heads * t->head_dim, keys = t->kv_heads * t->head_dim;
    into(at, "model.vision_tower.patch_embedder.");
    weight(at, "position_embedding_table", SHAPE(2, t->places, t->width));
    linear(at, "input_proj", t->width, 3 * square(t->patch), false);
    for (uint32_t i = 0; i < t->layers; i++) {
        into(at, "model.vision_tower.encoder.layers.%u.", i);
        linear(at, "self_attn.q_proj.linear", query, t->width, false);
        linear(at, "self_attn.k_proj.linear", keys, t->width, false);
        linear(at, "self_attn.v_proj.linear", keys, t->width, false);
        linear(at, "self_attn.o_proj.linear", t->width, query, false);
        norm(at, "self_attn.q_norm", t->head_dim, false);
        norm(at, "self_attn.k_norm", t->head_dim, false);
        linear(at, "mlp.gate_proj.linear", t->ffn, t->width, false);
        linear(at, "mlp.up_proj.linear", t->ffn, t->width, false);
        linear(at, "mlp.down_proj.linear", t->width, t->ffn, false);
        norm(at, "input_layernorm", t->width, false);
        norm(at, "post_attention_layernorm", t->width, false);
        norm(at, "pre_feedforward_layernorm", t->width, false);
        norm(at, "post_feedforward_layernorm", t->width, false);
    }
    frequencies(at, t->head_dim / 4);
}

/* ---- what joins them to the text ---- */

/* Two layers, to the text's width and once more. */
static void two_layers(struct at *at, uint32_t in, uint32_t between, bool biased)
{
    linear(at, "linear_1", between, in, biased);
    linear(at, "linear_2", at->text, between, biased);
}

static void join(struct at *at)
{
    const struct tower *t = at->t;
    const uint32_t merged = t->width * square(t->merge);
    into(at, "model.multi_modal_projector.");
    switch (t->joint) {
    case JOINT_INSIDE:
        break;
    case JOINT_GEMMA3:
        weight(at, "mm_input_projection_weight", SHAPE(t->width, at->text));
        norm(at, "mm_soft_emb_norm", t->width, false);
        break;
    case JOINT_PALIGEMMA:
        linear(at, "linear", t->joined_out, t->width, true);
        break;
    case JOINT_LLAVA:
    case JOINT_LLAVA_NEXT:
        two_layers(at, t->width, at->text, t->joint_biased);
        break;
    case JOINT_MISTRAL3:
        norm(at, "norm", t->width, false);
        linear(at, "patch_merger.merging_layer", t->width, merged, false);
        two_layers(at, t->width, at->text, t->joint_biased);
        break;
    case JOINT_IDEFICS3:
        into(at, "model.connector.");
        linear(at, "modality_projection.proj", at->text, merged, false);
        break;
    case JOINT_INTERNVL:
        norm(at, "layer_norm", merged, true);
        two_layers(at, merged, at->text, true);
        break;
    case JOINT_LLAMA4:
        into(at, "multi_modal_projector.");
        linear(at, "linear_1", at->text, t->out, false);
        break;
    case JOINT_LFM2:
        if (t->joint_norm)
            norm(at, "layer_norm", merged, true);
        two_layers(at, merged, t->joined_out, t->joint_biased);
        break;
    case JOINT_GEMMA4:
        into(at, "model.embed_vision.");
        linear(at, "embedding_projection", at->text, t->width, false);
        break;
    }
}

/* ---- all of it ---- */

typedef void declare(struct at *at);

static void declare_as(struct graph *graph, const struct tower *tower, uint32_t text,
                       enum tower_there there, declare *part)
{
    struct at at = {.graph = graph, .t = tower, .text = text};
    const bool frozen = graph->all_frozen;
    const uint32_t rank = graph->lora.rank;
    if (!tower_is_there(tower, there))
        return;
    graph->all_frozen = frozen || there != TOWER_TRAINED;
    if (there == TOWER_BARE)
        graph->lora.rank = 0;
    graph->lora.beside = true;
    part(&at);
    graph->lora.beside = false;
    graph->lora.rank = rank;
    graph->all_frozen = frozen;
}

static bool is_joined_last(const struct tower *tower)
{
    return tower->joint == JOINT_GEMMA4;
}

static void before_text(struct at *at)
{
    static declare *const towers[] = {
        [TOWER_QWEN2_VL] = qwen2_vl, [TOWER_QWEN2_5_VL] = qwen2_5_vl, [TOWER_QWEN3_VL] = qwen3_vl,
        [TOWER_SIGLIP] = siglip,     [TOWER_SIGLIP2] = siglip,        [TOWER_CLIP] = clip,
        [TOWER_PIXTRAL] = pixtral,   [TOWER_IDEFICS3] = idefics3,     [TOWER_INTERNVL] = internvl,
        [TOWER_LLAMA4] = llama4,     [TOWER_GEMMA4] = gemma4,
    };
    if (at->t->joint == JOINT_LLAVA_NEXT)
        graph_param(at->graph, PARAM_WEIGHT, SHAPE(at->text), "model.image_newline");
    towers[at->t->kind](at);
    if (!is_joined_last(at->t))
        join(at);
}

static void behind_text(struct at *at)
{
    if (is_joined_last(at->t))
        join(at);
}

void tower_declare(struct graph *graph, const struct tower *tower, uint32_t text,
                   enum tower_there there)
{
    declare_as(graph, tower, text, there, before_text);
}

void tower_declare_rest(struct graph *graph, const struct tower *tower, uint32_t text,
                        enum tower_there there)
{
    declare_as(graph, tower, text, there, behind_text);
}

const char *tower_text(const struct tower *tower)
{
    return tower->joint == JOINT_IDEFICS3 ? "model.text_model"
           : tower->joint == JOINT_LLAMA4 ? "language_model.model"
                                          : "model.language_model";
}

uint64_t tower_parameters(const struct tower *tower, uint32_t text)
{
    struct graph *graph = graph_new(DTYPE_BF16, NULL);
    tower_declare(graph, tower, text, TOWER_FROZEN);
    tower_declare_rest(graph, tower, text, TOWER_FROZEN);
    const uint64_t elements = graph_parameter_elements(graph);
    graph_free(graph);
    return elements;
}
