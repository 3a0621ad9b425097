/* tower_whisper.c - towers that hear (tower_parts.h): Whisper's encoder and its kin. */
#include "model/tower_parts.h"

/* Two convolutions along time, the second of which halves it. */
static void convolutions(struct tower_at *at, uint32_t bins, uint32_t width)
{
    enum { TAPS = 3 };
    tower_here(at);
    tower_convolution(at, "conv1", SHAPE(width, bins, TAPS), true);
    tower_convolution(at, "conv2", SHAPE(width, width, TAPS), true);
}

/* Whisper's keys have no bias, Qwen3-Omni's have one. */
static void layers(struct tower_at *at, const struct tower_ears *e, bool keys_biased)
{
    for (uint32_t i = 0; i < e->layers; i++) {
        tower_into(at, "layers.%u.", i);
        tower_linear(at, "self_attn.k_proj", e->width, e->width, keys_biased);
        tower_linear(at, "self_attn.v_proj", e->width, e->width, true);
        tower_linear(at, "self_attn.q_proj", e->width, e->width, true);
        tower_linear(at, "self_attn.out_proj", e->width, e->width, true);
        tower_norm(at, "self_attn_layer_norm", e->width, true);
        tower_linear(at, "fc1", e->ffn, e->width, true);
        tower_linear(at, "fc2", e->width, e->ffn, true);
        tower_norm(at, "final_layer_norm", e->width, true);
    }
    tower_here(at);
}

void tower_whisper(struct tower_at *at)
{
    const struct tower_ears *e = &at->t->ears;
    convolutions(at, e->bins, e->width);
    tower_weight(at, "embed_positions.weight", SHAPE(e->places, e->width));
    layers(at, e, false);
    tower_norm(at, "layer_norm", e->width, true);
}

/* With RoPE, of half a head, in the place of learned positions. */
void tower_glm_asr(struct tower_at *at)
{
    const struct tower_ears *e = &at->t->ears;
    const uint32_t head = e->width / e->heads;
    const uint32_t keys = e->kv_heads ? head * e->kv_heads : e->width;
    convolutions(at, e->bins, e->width);
    for (uint32_t i = 0; i < e->layers; i++) {
        tower_into(at, "layers.%u.", i);
        tower_linear(at, "self_attn.q_proj", e->width, e->width, true);
        tower_linear(at, "self_attn.k_proj", keys, e->width, false);
        tower_linear(at, "self_attn.v_proj", keys, e->width, true);
        tower_linear(at, "self_attn.o_proj", e->width, e->width, true);
        tower_linear(at, "mlp.fc1", e->ffn, e->width, true);
        tower_linear(at, "mlp.fc2", e->width, e->ffn, true);
        tower_norm(at, "input_layernorm", e->width, true);
        tower_norm(at, "post_attention_layernorm", e->width, true);
    }
    tower_here(at);
    tower_norm(at, "norm", e->width, true);
    tower_frequencies(at, head / 4);
}

void tower_qwen2_5_omni(struct tower_at *at)
{
    const struct tower_ears *e = &at->t->ears;
    const char *eyes = at->base;
    at->base = "model.audio_tower.";
    convolutions(at, e->bins, e->width);
    tower_weight(at, "audio_bos_eos_token.weight", SHAPE(2, e->out));
    layers(at, e, false);
    tower_norm(at, "ln_post", e->width, true);
    tower_linear(at, "proj", e->out, e->width, true);
    tower_buffer(at, DTYPE_FP32, SHAPE(e->places, e->width));
    at->base = eyes;
    tower_qwen2_5_vl(at);
}

/* Three convolutions along time and the spectrum, each of which halves both. */
void tower_qwen3_omni(struct tower_at *at)
{
    enum { TAPS = 3 };
    const struct tower_ears *e = &at->t->ears;
    const char *eyes = at->base;
    uint32_t bins = e->bins;
    for (int i = 0; i < 3; i++)
        bins = (bins + 1) / 2;
    at->base = "model.audio_tower.";
    layers(at, e, true);
    tower_norm(at, "ln_post", e->width, true);
    tower_convolution(at, "conv2d1", SHAPE(e->narrow, 1, TAPS, TAPS), true);
    tower_convolution(at, "conv2d2", SHAPE(e->narrow, e->narrow, TAPS, TAPS), true);
    tower_convolution(at, "conv2d3", SHAPE(e->narrow, e->narrow, TAPS, TAPS), true);
    tower_linear(at, "conv_out", e->width, e->narrow * bins, false);
    tower_linear(at, "proj1", e->width, e->width, true);
    tower_linear(at, "proj2", e->out, e->width, true);
    tower_buffer(at, DTYPE_FP32, SHAPE(e->places, e->width));
    at->base = eyes;
    tower_qwen3_vl(at);
}
