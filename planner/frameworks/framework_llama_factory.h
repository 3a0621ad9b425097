/* framework_llama_factory.h - rules of LLaMA-Factory v1's model: who is trained, in what, by which
 * kernels (framework_llama_factory_model.c). */
#ifndef SHARDPLAN_FRAMEWORK_LLAMA_FACTORY_H
#define SHARDPLAN_FRAMEWORK_LLAMA_FACTORY_H

#include "frameworks/framework.h"

/* Whether TrainingArguments say bf16, which is their default; FSDP2 alone asks. */
bool llama_factory_is_bf16(const struct import *import);

/* `peft_config.name` and what is beside it: nothing, "lora" or "freeze". */
key_reader llama_factory_read_peft;

/* `quant_config.name`: frozen weights in few bits. */
key_reader llama_factory_read_bits;

/* `kernel_config.name`: kernels by commas. */
key_reader llama_factory_read_kernels;

/* What a unit of FSDP2Engine is, by the model: embeddings that the head does not share, too. */
key_reader llama_factory_read_units;

#endif
