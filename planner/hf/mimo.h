/* mimo.h - a layer of MiMo-V2-Flash as Hugging Face's transformers writes it. */
#ifndef SHARDPLAN_HF_MIMO_H
#define SHARDPLAN_HF_MIMO_H

#include "hf/decoder.h"

/* Heads of k and v in layer `index`: twice as many where it has a window. */
uint32_t mimo_kv_heads(const struct model_config *config, uint32_t index);

hf_own_layer mimo_layer;

#endif
