/* llama.h - builders that several families have as they are. */
#ifndef SHARDPLAN_HF_LLAMA_H
#define SHARDPLAN_HF_LLAMA_H

#include "model/builder.h"

/* Calls and locals differ by model file, and with them the order of what dies: Qwen2 and Qwen3 are
 * alike in this; mixtures of experts have ways of their own in their files. */
model_builder build_hf_llama, build_hf_mistral, build_hf_qwen;

#endif
