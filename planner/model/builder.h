/* builder.h - what writes a model's graph as one code has it, and the two that are here: a family's
 * row names one for each code that it is written in. */
#ifndef SHARDPLAN_BUILDER_H
#define SHARDPLAN_BUILDER_H

#include "model/model.h"

/* Declares the graph's parameters in the order of model.parameters() and runs one forward pass. */
typedef void model_builder(struct graph *graph, const struct model_config *config,
                           const struct model_job *job);

model_builder build_llama, build_qwen3, build_deepseek_v3,
    build_llama4;         /* torchtitan's op sequences */
model_builder build_gpt2; /* nanoGPT's */

#endif
