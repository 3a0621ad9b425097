/* gemma4.h - Gemma 4's builder, and what its layers have. */
#ifndef SHARDPLAN_HF_GEMMA4_H
#define SHARDPLAN_HF_GEMMA4_H

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

model_builder build_hf_gemma4;

#endif
