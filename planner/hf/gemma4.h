/* gemma4.h - Gemma 4's builder, and what its layers have, some of which Gemma 3n's have, too. */
#ifndef SHARDPLAN_HF_GEMMA4_H
#define SHARDPLAN_HF_GEMMA4_H

#include "hf/decoder.h"
#include "model/builder.h"

/* What a layer has of keys and values. */
enum gemma4_keys {
    GEMMA4_OWN,   /* its own */
    GEMMA4_KEPT,  /* its own, which are kept: the last of its type before layers that reuse some */
    GEMMA4_REUSED /* those that the last layer of its type kept */
};
enum gemma4_keys gemma4_keys_of(const struct model_config *config, uint32_t index);

/* Sizes of a layer's heads; whether its keys are projected for values, too; its feed-forward's
 * width. */
uint32_t gemma4_head_dim(const struct model_config *config, uint32_t index);
uint32_t gemma4_kv_heads(const struct model_config *config, uint32_t index);
bool gemma4_keys_are_values(const struct model_config *config, uint32_t index);
uint32_t gemma4_ffn(const struct model_config *config, uint32_t index);

struct gemma4_attention {
    struct linear q, k, v, o;
    struct norm q_norm, k_norm, v_norm;
    bool in_turn;
};
/* The parameters of `layer`'s self_attn; in_turn: keys are normed before values are projected,
 * and declared so. */
struct gemma4_attention gemma4_attention_declare(struct graph *graph,
                                                 const struct model_config *config, uint32_t index,
                                                 const char *layer, bool in_turn);
/* y (b, s, h), which stays the caller's, through it: (b, s, h). *weights: what Python keeps until
 * the layer returns; GRAPH_NONE: nothing. What is kept for others goes to call->ahead. */
uint32_t gemma4_attention(struct graph *graph, const struct model_config *config,
                          const struct gemma4_attention *attention,
                          const struct hf_layer_call *call, uint32_t y, uint32_t *weights);

model_builder build_hf_gemma4, build_hf_gemma3n;

#endif
