/* framework_transformers.h - rules of TrainingArguments that are a file of their own. */
#ifndef SHARDPLAN_FRAMEWORK_TRANSFORMERS_H
#define SHARDPLAN_FRAMEWORK_TRANSFORMERS_H

#include "families/families.h"
#include "frameworks/framework.h"

/* Brings names of axolotl and LLaMA-Factory into transformers' own
 * (framework_transformers_others.c). */
void transformers_others(struct document *document);

/* The i-th of those names; NULL: there are no more. */
const char *transformers_other_name(uint32_t i);
const char *transformers_renamed(const char *path);

/* Where DeepSpeed's files come from that axolotl's name, or that are in LLaMA-Factory's folder. */
const char *transformers_named_from(const char *path);

/* Whose file it is, as it stands: "a configuration of axolotl". */
const char *transformers_about(const struct document *document);

/* The model by its name or a copy's path; what no preset is called is listed, with what is near. */
key_reader transformers_read_model;

/* ---- framework_transformers_adapters.c: checkpoints and adapters as the trainers say them ---- */

bool transformers_is_on(const struct node *node);

#define LLAMA_FACTORY_LAUNCHES "LLaMA-Factory's launcher starts torchrun so (OPTIM_TORCH)"

/* Whether the file is LLaMA-Factory's, whose defaults transformers_others puts there. */
bool transformers_is_llama_factory(const struct import *import);

/* Whether the file is axolotl's, by its name of the model. */
bool transformers_is_axolotl(const struct import *import);

/* Whether it is a trainer's, as it names a model, but no key says whose: it is read as
 * transformers' own. */
bool transformers_is_anyones(const struct import *import);

/* Whether blocks are checkpointed, by any of the keys. */
bool transformers_is_checkpointed(const struct import *import);

/* `gradient_checkpointing`: true, false, or what axolotl adds. */
key_reader transformers_read_checkpoints;

/* Whether those of the trainer are reentrant: its own word for it, or its default. */
key_reader transformers_read_reentrant;

/* `activation_offloading`: whether what nodes save waits on the host. */
key_reader transformers_read_offloading;

/* Whether there are adapters by the file, or by an option. */
bool transformers_has_adapters(const struct import *import);

/* Whether TRL's ModelConfig says that there are adapters (use_peft). */
bool transformers_is_trl(const struct import *import);

/* The 16 bits that TRL's keys have a model loaded in; NULL: they say none. */
const char *transformers_loaded_half(const struct import *import);

/* The 16 bits that the model is loaded in; NULL: it is in fp32. */
const char *transformers_half(const struct import *import);

/* `dtype` of TRL, which a model without adapters is trained in where each rank has it whole:
 * accelerate's FSDP casts it to fp32 first beside bf16 or fp16, DeepSpeed to a dtype of its own,
 * and axolotl loads it as those say. */
key_reader transformers_read_loaded;

/* Whether the chosen system has parameters whole on each rank. */
bool transformers_is_whole(const struct import *import);

/* `finetuning_type`, which axolotl's `adapter` has become. */
key_reader transformers_read_adapters, transformers_read_tower;

/* `adapter`, where it has become nothing else. */
key_reader transformers_read_adapter;

/* `lora_dropout`, where there are adapters. */
key_reader transformers_read_adapter_dropout;

/* `peft_autocast_adapter_dtype`: whether adapters are in fp32 beside a model of 16 bits. */
key_reader transformers_read_adapter_dtype;

/* ---- framework_transformers_padding.c ---- */

/* `packing`: without it, sequences are padded. */
key_reader transformers_read_padding;
/* What joins samples, by any of its names: attention within each is listed, but where a sequence is
 * attended to whole. */
key_reader transformers_read_packing;

/* ---- framework_transformers_objective.c ---- */

/* How many sequences of each example go through the model at once, by those keys: 1; of a pair 2;
 * 0: not known, or others are generated. `path`: the key that says it, NULL where none does. */
uint32_t transformers_sequences(const struct import *import, const char **path);

/* `stage`, `rl`, `reward_model`, `beta`: what is learned from, behind the batch's key. */
key_reader transformers_read_objective;
/* `export_dir`, `infer_backend`, `do_predict`: LLaMA-Factory's where nothing is trained. */
key_reader transformers_read_no_training;
/* Whether the loss is that of TRL's trainer of preferences; of rewards. */
bool transformers_has_preferences(const struct import *import);
bool transformers_has_rewards(const struct import *import);

/* ---- framework_transformers_policies.c ---- */

/* How long prompts and completions are at most, and GRPOConfig's default of both: that of prompts
 * is of versions that had the key. */
#define GRPO_PROMPT "max_prompt_length"
#define GRPO_COMPLETION "max_completion_length"
enum { GRPO_TOKENS = 512 };
/* Tokens that one of these keys says, at most UINT32_MAX; the default where it says none. */
uint64_t transformers_policy_tokens(const struct document *document, const char *key);
/* `num_generations`, behind what the trainers have alike. */
key_reader transformers_read_policies;
/* `use_vllm`, of any trainer that generates: what vLLM holds of the same GPUs. */
key_reader transformers_read_vllm;
/* A key that changes no other step. */
key_reader transformers_read_policy;
/* Whether the step is that of TRL's trainer of policies. */
bool transformers_has_policies(const struct import *import);

/* ---- framework_transformers_plugins.c ---- */

#define TRANSFORMERS_LIGER "Liger's kernels: planned as the model's own"
#define TRANSFORMERS_NO_LOGITS                                                                     \
    "the loss together with the head, never all logits at once: planned with all of them"

/* `plugins`: each entry is listed, as what it and its keys do to a step. */
key_reader transformers_read_plugins;

/* `cut_cross_entropy`, which turns CutCrossEntropyPlugin off: what that does is said by its entry.
 */
key_reader transformers_read_cut;

/* Whether a plugin of that class is among them. */
bool transformers_has_plugin(const struct import *import, const char *name);

/* ---- framework_transformers_liger.c ---- */

/* The loss of TRL's trainers: TRLS_HEAD is of no file, transformers_others puts it there. */
#define TRLS_HEAD "TRL's fused LM head"
key_reader transformers_read_lm_head;
/* `loss_type` of TRL's trainers: what is not the loss that is planned is listed. */
key_reader transformers_read_loss_type;
/* Why it is not planned, beside what the file says; NULL: it is. */
const char *transformers_lm_head_lacks(const struct import *import);
/* Whether the model is no recording, not compiled, and under the torch that losses of TRL's
 * trainers were recorded under. */
bool transformers_is_plain(const struct import *import);
/* Liger's kernels as settings, by all keys there are; and one of axolotl's keys. */
key_reader transformers_read_liger, transformers_read_liger_key;

/* What Liger has of the model's family: LIGER_PLANNED and so on; NULL: no model is known. */
const char *transformers_family_has(const struct import *import, enum liger_kernel kernel);

/* ---- framework_transformers_listed.c: keys of framework_transformers_listed.def ---- */

key_reader transformers_read_optim_args, transformers_read_router_loss, transformers_read_fp8,
    transformers_read_float16, transformers_read_experts_way, transformers_read_rope_scaling,
    transformers_read_frozen_layers;

/* ---- framework_transformers_kernels.c ---- */

/* axolotl's kernels of adapters, by the first of their keys, and the others. */
key_reader transformers_read_lora_kernels, transformers_read_lora_kernel;

/* ---- framework_transformers_bits.c ---- */

/* Frozen weights that are quantized: in 4 or 8 bits where these are planned; else lists what they
 * are planned in. */
key_reader transformers_read_bits;

/* axolotl's quantize_moe_experts, behind what says how many bits. */
key_reader transformers_read_experts;

#endif
