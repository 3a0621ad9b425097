/* families.h - the models that are known: which one a config.json or a name means, what its family
 * says of it, and its graph. */
#ifndef SHARDPLAN_FAMILIES_FAMILIES_H
#define SHARDPLAN_FAMILIES_FAMILIES_H

#include "model/model.h"

/* Reads a config.json, or a folder that holds one. Errors name file and line or key, and the
 * allowed values. */
enum err_code model_config_read(const char *path, struct model_config *out, struct err *err);

/* Looks up a preset by name ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", names_alike): ERR_INVALID
 * with the nearest names when unknown. */
enum err_code model_preset_find(const char *name, struct model_config *out, struct err *err);

/* A preset when `text` is exactly its name, else a path if there is something, else a preset by any
 * of its names. The caller owns what *out has: model_release. */
enum err_code model_find(const char *text, struct model_config *out, struct err *err);

/* Frees the recording of a model that is one, which all copies of the config share. */
void model_release(struct model_config *config);

/* What a job's model has besides text (model/tower.h); NULL: nothing, or nothing that is planned.
 */
const struct tower *model_tower(const struct model_config *config, const struct model_job *job);

/* Writes the sentence number `index` about what the file says and the plan does not follow, for
 * whoever shows a plan. False: there are no more. */
bool model_note(const struct model_config *config, const struct model_job *job, uint32_t index,
                char *text, size_t size);

struct model_preset {
    const char *name;
    uint64_t parameters; /* as published: tests hold the builders to it */
    struct model_config config;
};
/* Presets, family by family: lent; NULL behind the last. */
const struct model_preset *model_preset_at(uint32_t index);

/* The preset that a name means, lent, or NULL. */
const struct model_preset *model_preset_of(const char *name);

/* The same of what may be the path of a copy, "./assets/hf/Llama-3.1-8B/": its last part is a name
 * then. A copy is not looked into, and may be another model: for files that name both alike.
 * `called`: what model_find takes for it, the preset's name; of a model that sees, or whose weights
 * are bitsandbytes', that last part, so that notes say so. Unset where none is found. */
enum { PRESET_NAME_SIZE = 128 };
const struct model_preset *model_preset_of_path(const char *path, char called[PRESET_NAME_SIZE]);

/* Of a name that no preset has: which are near, or that its weights are quantized in a way that is
 * not planned and which model it is otherwise. */
enum { PRESET_MISSING_SIZE = 256 };
void model_preset_missing(const char *name, char *text, size_t size);

/* Checks ranges and divisibility; `where` goes in front of the message. */
enum err_code model_config_check(const struct model_config *config, const char *where,
                                 struct err *err);

/* Tokens that a sequence of such a model has at most, by its position embeddings or RoPE's range;
 * 0: the config.json does not say. Not of a recording. */
uint32_t model_longest(const struct model_config *config);

/* The op sequence this architecture runs by default: one that it has. */
enum code model_default_code(enum arch arch);
/* Whether it is planned as that code writes it. */
bool model_has_code(enum arch arch, enum code code);

/* Whether it is a decoder alone: not of BERT's kind, nor of T5's. */
bool model_is_decoder(const struct model_config *config);

/* What of it keeps transformers' code from being planned as torch.compile compiles the whole: a
 * word for it, lent; NULL: nothing does. */
const char *model_untraced(const struct model_config *config);

/* Builds the graph of one forward pass. The caller owns *out: graph_free. ERR_INVALID when the
 * job does not go with the model (a sequence longer than its positions, a code that nobody wrote it
 * in). */
enum err_code model_build(const struct model_config *config, const struct model_job *job,
                          struct graph **out, struct err *err);

const char *arch_name(enum arch arch); /* model_type */
const char *code_name(enum code code); /* "torchtitan", "nanogpt", "hf", "recorded" */

/* Which of Liger's kernels a family gets (liger.h): LIGER_PLANNED, LIGER_UNPLANNED, or LIGER_NONE,
 * where Liger has no such kernel of it, or none that is called. */
enum liger_kernel {
    LIGER_ROPE,
    LIGER_RMS_NORM,
    LIGER_GLU,
    LIGER_LINEAR_LOSS, /* --loss liger */
    LIGER_LOSS,        /* --loss liger-cross-entropy */
};
#define LIGER_PLANNED "planned"
#define LIGER_UNPLANNED "unplanned"
#define LIGER_NONE "none"
const char *liger_has(const struct model_config *config, enum liger_kernel kernel);

/* Layers of nn.Linear but the head, by names, as axolotl and LLaMA-Factory ask peft for all of
 * them: "all-linear" where that is the same; NULL: of these peft makes others, which are not
 * planned. */
/* Whether peft 0.21.2 takes the name of a layer, which a parameter's path has, for the parameters
 * that transformers 5 has in the place of experts' layers, too, or fails where one of gate_proj and
 * up_proj is named alone (utils/transformers_weight_conversion.py). Planned are the layers. */
bool lora_takes_experts(const struct model_config *config, const char *param);
const char *lora_linear_names(const struct model_config *config);

/* axolotl's kernels of adapters that it gives a family and that are planned, for --lora-kernels
 * (families/lora_kernels.h): "mlp,qkv,o" or some of these; NULL: none. */
const char *lora_kernels_of(const struct model_config *config);
/* The same beside layers in 4 bits, under autocast: an activation that is in fp32 there leaves a
 * layer's output in fp32, and the kernels behind it fail. */
const char *lora_kernels_of_bits4(const struct model_config *config);

/* The family's model_type where cut cross entropy is planned of it (families/cut.h); NULL: it is
 * not. */
const char *cut_has(const struct model_config *config);
/* Its class for sequence classification in transformers (families/classifier.h); NULL: there is
 * none that is planned. */
const char *classifier_has(const struct model_config *config);
/* The same of TRL's fused LM head (families/lm_head.h). */
const char *lm_head_has(const struct model_config *config);
/* The same of LLaMA-Factory v1's loss (families/per_token.h). */
const char *per_token_has(const struct model_config *config);

/* A model of which no padded batch is planned (--padding-tokens): its name; NULL: one is. */
const char *padding_lacks(const struct model_config *config);
/* ... where it classifies sequences. */
const char *pooling_lacks(const struct model_config *config);

#endif
