/* tower_parts.h - what towers are declared with: for the tower files of this folder only. */
#ifndef SHARDPLAN_TOWER_PARTS_H
#define SHARDPLAN_TOWER_PARTS_H

#include "model/tower.h"

struct tower_at { /* where parameters are declared */
    struct graph *graph;
    const struct tower *t;
    uint32_t text;    /* the text model's width */
    const char *base; /* the module that follows is part of: "model.vision_tower." */
    char prefix[96];
};

/* What follows is in this module of the base. */
void __attribute__((format(printf, 2, 3))) tower_into(struct tower_at *at, const char *format, ...);

/* ... is in the base itself. */
void tower_here(struct tower_at *at);

/* "<name>.weight" (out, in) and perhaps "<name>.bias" (out) of nn.Linear. */
void tower_linear(struct tower_at *at, const char *name, uint32_t out, uint32_t in, bool biased);
void tower_norm(struct tower_at *at, const char *name, uint32_t width, bool biased);
/* A parameter of that very name. */
void tower_weight(struct tower_at *at, const char *name, struct shape shape);
void tower_convolution(struct tower_at *at, const char *name, struct shape shape, bool biased);
/* nn.Conv2d of patches. */
void tower_patches(struct tower_at *at, const char *name, bool biased);
/* A buffer that is there and that nothing reads. */
void tower_buffer(struct tower_at *at, enum dtype dtype, struct shape shape);
/* RoPE's frequencies, and what they were at first. */
void tower_frequencies(struct tower_at *at, uint32_t count);
/* `count` linear layers of (width, width) with these names. */
void tower_squares(struct tower_at *at, const char *const *names, uint32_t count, bool biased);
/* A feed-forward's gate_proj, up_proj and down_proj in that module: "mlp". */
void tower_gated(struct tower_at *at, const char *module, uint32_t ffn, uint32_t width,
                 bool biased);
/* "linear_1" to `between`, and "linear_2" to the text's width. */
void tower_two_layers(struct tower_at *at, uint32_t in, uint32_t between, bool biased);

/* Patches of a picture. */
uint32_t tower_patches_of(const struct tower *t);
static inline uint32_t tower_square(uint32_t n)
{
    return n * n;
}

/* ---- towers, by kind ---- */

typedef void tower_part(struct tower_at *at);

tower_part tower_qwen2_vl, tower_qwen2_5_vl, tower_qwen3_vl, tower_siglip, tower_clip,
    tower_clip_twice, tower_pixtral, tower_idefics3, tower_internvl, tower_llama4, tower_gemma4,
    tower_kimi, tower_video_llama3, tower_minicpm, tower_paddle, tower_glm4v;
tower_part tower_whisper, tower_glm_asr, tower_qwen2_5_omni, tower_qwen3_omni;

#endif
