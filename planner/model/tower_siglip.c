/* tower_siglip.c - towers of CLIP's and SigLIP's kind (tower_parts.h). */
#include "model/tower_parts.h"

#include "model/build.h"

/* SigLIP's pooling head: nn.MultiheadAttention reads its output's weight itself, so that peft and
 * bitsandbytes take it for no linear layer. */
static void siglip_head(struct tower_at *at)
{
    const uint32_t width = at->t->width, ffn = at->t->ffn;
    tower_into(at, "head.");
    tower_weight(at, "probe", SHAPE(1, 1, width));
    tower_weight(at, "attention.in_proj_weight", SHAPE(3 * width, width));
    tower_weight(at, "attention.in_proj_bias", SHAPE(3 * width));
    build_weights(at->graph, at->prefix, "attention.out_proj", SHAPE(width, width), width);
    tower_norm(at, "layernorm", width, true);
    tower_linear(at, "mlp.fc1", ffn, width, true);
    tower_linear(at, "mlp.fc2", width, ffn, true);
}

/* CLIP's layers have attention before their first norm, in the order of their declaration. */
static void siglip_layer(struct tower_at *at, bool norm_first)
{
    static const char *const names[] = {"self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj",
                                        "self_attn.out_proj"};
    const uint32_t width = at->t->width, ffn = at->t->ffn;
    if (norm_first)
        tower_norm(at, "layer_norm1", width, true);
    tower_squares(at, names, 4, true);
    tower_norm(at, norm_first ? "layer_norm2" : "layer_norm1", width, true);
    tower_linear(at, "mlp.fc1", ffn, width, true);
    tower_linear(at, "mlp.fc2", width, ffn, true);
    if (!norm_first)
        tower_norm(at, "layer_norm2", width, true);
}

static void siglip_layers(struct tower_at *at, bool norm_first)
{
    for (uint32_t i = 0; i < at->t->layers; i++) {
        tower_into(at, "encoder.layers.%u.", i);
        siglip_layer(at, norm_first);
    }
    tower_here(at);
    tower_norm(at, "post_layernorm", at->t->width, true);
}

void tower_siglip(struct tower_at *at)
{
    const struct tower *t = at->t;
    const bool second = t->kind == TOWER_SIGLIP2;
    tower_here(at);
    if (second) /* of pixels side by side */
        tower_linear(at, "embeddings.patch_embedding", t->width,
                     t->channels * tower_square(t->patch), true);
    else
        tower_patches(at, "embeddings.patch_embedding", true);
    const uint32_t places = second ? t->places : tower_patches_of(t);
    tower_weight(at, "embeddings.position_embedding.weight", SHAPE(places, t->width));
    siglip_layers(at, true);
    if (t->pooled)
        siglip_head(at);
    if (!second)
        tower_buffer(at, DTYPE_INT64, SHAPE(1, places));
}

/* With RoPE in two directions besides learned positions. */
void tower_paddle(struct tower_at *at)
{
    tower_siglip(at);
    tower_frequencies(at, at->t->width / at->t->heads / 4);
}

/* With RoPE in two directions in their place. */
void tower_video_llama3(struct tower_at *at)
{
    tower_here(at);
    tower_patches(at, "embeddings.patch_embedding", true);
    siglip_layers(at, true);
    tower_frequencies(at, at->t->width / at->t->heads / 4);
}

/* With attention within a square of patches, which become one, among the layers. */
void tower_minicpm(struct tower_at *at)
{
    static const char *const names[] = {"self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj",
                                        "self_attn.out_proj"};
    const struct tower *t = at->t;
    const uint32_t window = t->width * tower_square(t->merge);
    const uint32_t wide = t->ffn * tower_square(t->merge);
    tower_here(at);
    tower_patches(at, "embeddings.patch_embedding", true);
    tower_weight(at, "embeddings.position_embedding.weight", SHAPE(tower_patches_of(t), t->width));
    siglip_layers(at, true);
    tower_into(at, "vit_merger.");
    tower_squares(at, names, 4, true);
    tower_norm(at, "layer_norm1", t->width, true);
    tower_norm(at, "pre_norm", window, true);
    tower_linear(at, "linear_1", wide, window, true);
    tower_linear(at, "linear_2", t->width, wide, true);
}

void tower_clip(struct tower_at *at)
{
    const struct tower *t = at->t;
    const uint32_t places = tower_patches_of(t) + 1;
    tower_here(at);
    tower_weight(at, "embeddings.class_embedding", SHAPE(t->width));
    tower_patches(at, "embeddings.patch_embedding", false);
    tower_weight(at, "embeddings.position_embedding.weight", SHAPE(places, t->width));
    tower_norm(at, "pre_layrnorm", t->width, true); /* as it is spelt */
    siglip_layers(at, false);
    tower_buffer(at, DTYPE_INT64, SHAPE(1, places));
}

/* One of films and one of pictures. */
void tower_clip_twice(struct tower_at *at)
{
    const char *pictures = at->base;
    at->base = "model.video_tower.";
    tower_clip(at);
    at->base = pictures;
    tower_clip(at);
}

void tower_idefics3(struct tower_at *at)
{
    const struct tower *t = at->t;
    tower_here(at);
    tower_patches(at, "embeddings.patch_embedding", true);
    tower_weight(at, "embeddings.position_embedding.weight", SHAPE(tower_patches_of(t), t->width));
    siglip_layers(at, false);
}
