/* tower_others.c - towers that see, and are of no other's kind (tower_parts.h). */
#include "model/tower_parts.h"

void tower_pixtral(struct tower_at *at)
{
    static const char *const names[] = {"attention.k_proj", "attention.v_proj", "attention.q_proj",
                                        "attention.o_proj"};
    const struct tower *t = at->t;
    tower_here(at);
    tower_patches(at, "patch_conv", false);
    tower_norm(at, "ln_pre", t->width, false);
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "transformer.layers.%u.", i);
        tower_norm(at, "attention_norm", t->width, false);
        tower_gated(at, "feed_forward", t->ffn, t->width, false);
        tower_squares(at, names, 4, false);
        tower_norm(at, "ffn_norm", t->width, false);
    }
    tower_frequencies(at, t->width / t->heads / 2);
}

void tower_internvl(struct tower_at *at)
{
    static const char *const names[] = {"attention.q_proj", "attention.k_proj", "attention.v_proj"};
    const struct tower *t = at->t;
    tower_into(at, "embeddings.");
    tower_weight(at, "cls_token", SHAPE(1, 1, t->width));
    tower_weight(at, "position_embeddings", SHAPE(1, tower_patches_of(t) + 1, t->width));
    tower_patches(at, "patch_embeddings.projection", true);
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "encoder.layer.%u.", i);
        tower_weight(at, "lambda_1", SHAPE(t->width));
        tower_weight(at, "lambda_2", SHAPE(t->width));
        tower_squares(at, names, 3, t->biased);
        tower_linear(at, "attention.projection_layer", t->width, t->width, true);
        if (t->qk_norm) {
            tower_norm(at, "attention.q_norm", t->width, false);
            tower_norm(at, "attention.k_norm", t->width, false);
        }
        tower_linear(at, "mlp.fc1", t->ffn, t->width, true);
        tower_linear(at, "mlp.fc2", t->width, t->ffn, true);
        tower_norm(at, "layernorm_before", t->width, !t->qk_norm);
        tower_norm(at, "layernorm_after", t->width, !t->qk_norm);
    }
}

void tower_llama4(struct tower_at *at)
{
    static const char *const names[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "self_attn.o_proj"};
    const struct tower *t = at->t;
    tower_here(at);
    tower_weight(at, "class_embedding", SHAPE(t->width));
    tower_weight(at, "positional_embedding_vlm", SHAPE(tower_patches_of(t) + 1, t->width));
    tower_linear(at, "patch_embedding.linear", t->width, t->channels * tower_square(t->patch),
                 false);
    tower_norm(at, "layernorm_pre", t->width, true);
    tower_norm(at, "layernorm_post", t->width, true);
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "model.layers.%u.", i);
        tower_squares(at, names, 4, true);
        tower_linear(at, "mlp.fc1", t->ffn, t->width, true);
        tower_linear(at, "mlp.fc2", t->width, t->ffn, true);
        tower_norm(at, "input_layernorm", t->width, true);
        tower_norm(at, "post_attention_layernorm", t->width, true);
    }
    tower_into(at, "vision_adapter.");
    tower_linear(at, "mlp.fc1", t->joined_in, t->ffn, false);
    tower_linear(at, "mlp.fc2", t->joined_out, t->joined_out, false);
    tower_buffer(at, DTYPE_FP32,
                 SHAPE(tower_patches_of(t) + 1, 1, t->width / t->heads)); /* complex numbers */
}

void tower_gemma4(struct tower_at *at)
{
    const struct tower *t = at->t;
    const uint32_t query = t->heads * t->head_dim, keys = t->kv_heads * t->head_dim;
    tower_into(at, "patch_embedder.");
    tower_weight(at, "position_embedding_table", SHAPE(2, t->places, t->width));
    tower_linear(at, "input_proj", t->width, 3 * tower_square(t->patch), false);
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "encoder.layers.%u.", i);
        tower_linear(at, "self_attn.q_proj.linear", query, t->width, false);
        tower_linear(at, "self_attn.k_proj.linear", keys, t->width, false);
        tower_linear(at, "self_attn.v_proj.linear", keys, t->width, false);
        tower_linear(at, "self_attn.o_proj.linear", t->width, query, false);
        tower_norm(at, "self_attn.q_norm", t->head_dim, false);
        tower_norm(at, "self_attn.k_norm", t->head_dim, false);
        tower_linear(at, "mlp.gate_proj.linear", t->ffn, t->width, false);
        tower_linear(at, "mlp.up_proj.linear", t->ffn, t->width, false);
        tower_linear(at, "mlp.down_proj.linear", t->width, t->ffn, false);
        tower_norm(at, "input_layernorm", t->width, false);
        tower_norm(at, "post_attention_layernorm", t->width, false);
        tower_norm(at, "pre_feedforward_layernorm", t->width, false);
        tower_norm(at, "post_feedforward_layernorm", t->width, false);
    }
    tower_frequencies(at, t->head_dim / 4);
}

/* MoonViT: learned positions in two directions, and RoPE. */
void tower_kimi(struct tower_at *at)
{
    static const char *const names[] = {"attn.proj", "attn.q_proj", "attn.k_proj", "attn.v_proj"};
    const struct tower *t = at->t;
    tower_into(at, "patch_embed.");
    tower_patches(at, "proj", true);
    tower_weight(at, "pos_emb.position_embeddings", SHAPE(t->rows, t->columns, t->width));
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "layers.%u.", i);
        tower_norm(at, "norm1", t->width, true);
        tower_norm(at, "norm2", t->width, true);
        tower_squares(at, names, 4, true);
        tower_linear(at, "mlp.fc1", t->ffn, t->width, true);
        tower_linear(at, "mlp.fc2", t->width, t->ffn, true);
    }
    tower_here(at);
    tower_norm(at, "final_layernorm", t->width, true);
    tower_buffer(at, DTYPE_FP32, SHAPE(t->frames + 1, t->width)); /* places in time, and none */
    tower_frequencies(at, t->width / t->heads / 4);
}
