/* tower_qwen.c - towers of Qwen's kind (tower_parts.h): blocks of norms, attention and a
 * feed-forward, and a merger of patches behind them. */
#include "model/tower_parts.h"

/* A merger's two layers: patches of a square, side by side, to the text's width. */
static void merger(struct tower_at *at, const char *first, const char *last)
{
    const uint32_t wide = at->t->width * tower_square(at->t->merge);
    tower_linear(at, first, wide, wide, true);
    tower_linear(at, last, at->t->out, wide, true);
}

static void qwen_blocks_begin(struct tower_at *at, bool biased)
{
    const struct tower *t = at->t;
    tower_here(at);
    tower_convolution(at, "patch_embed.proj",
                      SHAPE(t->width, t->channels, t->frames, t->patch, t->patch), biased);
}

static void qwen_norms(struct tower_at *at, bool biased)
{
    tower_norm(at, "norm1", at->t->width, biased);
    tower_norm(at, "norm2", at->t->width, biased);
}

static void qwen_attention(struct tower_at *at, bool norm_biased)
{
    const uint32_t width = at->t->width;
    qwen_norms(at, norm_biased);
    tower_linear(at, "attn.qkv", 3 * width, width, true);
    tower_linear(at, "attn.proj", width, width, true);
}

/* EXAONE 4.5's, of fewer keys and values than heads. */
static void grouped_attention(struct tower_at *at)
{
    const uint32_t width = at->t->width, keys = width / at->t->heads * at->t->kv_heads;
    qwen_norms(at, false);
    tower_linear(at, "attn.proj", width, width, true);
    tower_linear(at, "attn.qkv", width + 2 * keys, width, true);
}

/* Qwen2.5-Omni's, in products of their own. */
static void split_attention(struct tower_at *at)
{
    static const char *const names[] = {"attn.q", "attn.k", "attn.v", "attn.proj"};
    qwen_norms(at, false);
    tower_squares(at, names, 4, true);
}

void tower_qwen2_vl(struct tower_at *at)
{
    const struct tower *t = at->t;
    const uint32_t ffn = t->ratio * t->width;
    qwen_blocks_begin(at, false);
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "blocks.%u.", i);
        qwen_attention(at, true);
        tower_linear(at, "mlp.fc1", ffn, t->width, true);
        tower_linear(at, "mlp.fc2", t->width, ffn, true);
    }
    tower_into(at, "merger.");
    tower_norm(at, "ln_q", t->width, true);
    merger(at, "mlp.0", "mlp.2");
    tower_frequencies(at, t->width / t->heads / 4);
}

void tower_qwen2_5_vl(struct tower_at *at)
{
    const struct tower *t = at->t;
    qwen_blocks_begin(at, false);
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "blocks.%u.", i);
        if (t->kind == TOWER_QWEN2_5_OMNI)
            split_attention(at);
        else if (t->kv_heads)
            grouped_attention(at);
        else
            qwen_attention(at, false);
        tower_gated(at, "mlp", t->ffn, t->width, true);
    }
    tower_into(at, "merger.");
    tower_norm(at, "ln_q", t->width, false);
    merger(at, "mlp.0", "mlp.2");
    tower_frequencies(at, t->width / t->heads / 4);
}

/* Mergers of what is between the layers, too: each norm is of a whole square. Omni's are called
 * otherwise, and declared first. */
static void deep_mergers(struct tower_at *at, const char *list, const char *norm, const char *first,
                         const char *last)
{
    const struct tower *t = at->t;
    uint32_t deep = 0;
    for (uint32_t i = 0; i < 32 * sizeof t->deep / sizeof *t->deep; i++)
        deep += t->deep[i / 32] >> i % 32 & 1;
    for (uint32_t i = 0; i < deep; i++) {
        tower_into(at, "%s.%u.", list, i);
        tower_norm(at, norm, t->width * tower_square(t->merge), true);
        merger(at, first, last);
    }
}

void tower_qwen3_vl(struct tower_at *at)
{
    const struct tower *t = at->t;
    const bool omni = t->kind == TOWER_QWEN3_OMNI;
    if (omni)
        deep_mergers(at, "merger_list", "ln_q", "mlp.0", "mlp.2");
    qwen_blocks_begin(at, true);
    tower_weight(at, "pos_embed.weight", SHAPE(t->places, t->width));
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "blocks.%u.", i);
        qwen_attention(at, true);
        tower_linear(at, "mlp.linear_fc1", t->ffn, t->width, true);
        tower_linear(at, "mlp.linear_fc2", t->width, t->ffn, true);
    }
    tower_into(at, "merger.");
    tower_norm(at, omni ? "ln_q" : "norm", t->width, true);
    merger(at, omni ? "mlp.0" : "linear_fc1", omni ? "mlp.2" : "linear_fc2");
    if (!omni)
        deep_mergers(at, "deepstack_merger_list", "norm", "linear_fc1", "linear_fc2");
    tower_frequencies(at, t->width / t->heads / 4);
}

/* GLM-4.1V's, whose feed-forwards are as wide as what it returns; GLM-OCR's has biases, norms of q
 * and k, and learns no positions. */
void tower_glm4v(struct tower_at *at)
{
    const struct tower *t = at->t;
    const bool ocr = !t->placed;
    const uint32_t feeds = ocr ? t->ffn : t->out, last = ocr ? t->out * t->channels : t->ffn;
    tower_here(at);
    if (t->placed)
        tower_weight(at, "embeddings.position_embedding.weight",
                     SHAPE(tower_patches_of(t), t->width));
    qwen_blocks_begin(at, true);
    for (uint32_t i = 0; i < t->layers; i++) {
        tower_into(at, "blocks.%u.", i);
        qwen_norms(at, false);
        tower_linear(at, "attn.qkv", 3 * t->width, t->width, t->biased);
        tower_linear(at, "attn.proj", t->width, t->width, ocr && t->biased);
        if (ocr) {
            tower_norm(at, "attn.q_norm", t->width / t->heads, false);
            tower_norm(at, "attn.k_norm", t->width / t->heads, false);
        }
        tower_gated(at, "mlp", feeds, t->width, ocr && t->biased);
    }
    tower_into(at, "merger.");
    tower_linear(at, "proj", t->out, t->out, false);
    tower_norm(at, "post_projection_norm", t->out, true);
    tower_linear(at, "gate_proj", last, t->out, false);
    tower_linear(at, "up_proj", last, t->out, false);
    tower_linear(at, "down_proj", t->out, last, false);
    tower_here(at);
    if (t->placed)
        tower_norm(at, "post_conv_layernorm", t->width, false);
    tower_convolution(at, "downsample", SHAPE(t->out, t->width, t->merge, t->merge), true);
    tower_norm(at, "post_layernorm", t->width, false);
    tower_frequencies(at, t->width / t->heads / 4);
}
