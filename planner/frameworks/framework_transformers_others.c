/* framework_transformers_others.c - axolotl's and LLaMA-Factory's YAML: TrainingArguments with some
 * names of their own, brought into the form of transformers 5. Read in axolotl's utils/schemas
 * (0.13) and LLaMA-Factory's hparams (0.9.4). */
#include "frameworks/framework_transformers.h"

#include "base/number.h"

#include <string.h>

/* Whose a file is: bits, as names may be of several. */
enum { AXOLOTL = 1, LLAMA_FACTORY = 2, TRL = 4, TRAINER = 8, ALL = 15 };

/* `is_of`, `was_of`: who has the key itself; another one does not read it. */
static const struct {
    const char *was, *is;
    uint32_t was_of, is_of;
} names[] = {
    {"base_model", "model_name_or_path", AXOLOTL, LLAMA_FACTORY | TRL | TRAINER},
    {"sequence_len", "cutoff_len", AXOLOTL, LLAMA_FACTORY},
    {"micro_batch_size", "per_device_train_batch_size", AXOLOTL, LLAMA_FACTORY | TRL | TRAINER},
    {"optimizer", "optim", AXOLOTL, LLAMA_FACTORY | TRL | TRAINER},
    {"max_length", "cutoff_len", TRL | LLAMA_FACTORY,
     LLAMA_FACTORY},                                      /* there of what is generated */
    {"max_seq_length", "cutoff_len", TRL, LLAMA_FACTORY}, /* once */
    {"torch_dtype", "dtype", ALL, ALL},                   /* once */
    {"model_init_kwargs.dtype", "dtype", ALL, ALL},       /* of the trainer's arguments */
    {"model_init_kwargs.torch_dtype", "dtype", ALL, ALL},
    {"model_init_kwargs.attn_implementation", "attn_implementation", TRL, ALL},
    {"model_init_kwargs.experts_implementation", "experts_implementation", TRL, ALL},
    {"lora_r", "lora_rank", AXOLOTL | TRL, LLAMA_FACTORY},
    {"liger_swiglu", "liger_glu_activation", ALL, ALL}, /* axolotl, before */
    {"fsdp_version", "fsdp_config.version", ALL, ALL},  /* axolotl */
    {"fsdp_config.offload_params", "fsdp_config.cpu_offload", ALL, ALL},
    {"fsdp_config.sharding_strategy", "fsdp_config.reshard_after_forward", ALL, ALL},
};

const char *transformers_other_name(uint32_t i)
{
    return i < sizeof names / sizeof *names ? names[i].was : NULL;
}

const char *transformers_renamed(const char *path)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].was, path) == 0)
            return names[i].is;
    return NULL;
}

/* "auto" of axolotl: wherever the GPU can and fp16 is not asked for (resolve_dtype). */
static void settle_bf16(struct document *document)
{
    struct node *node = document_find(document, "bf16");
    if (node && node->kind == NODE_TEXT && strcmp(node->text, "auto") == 0) {
        node->kind = NODE_BOOL;
        node->said = node->text;
        node->text = node_is_true(document_find(document, "fp16")) ? "false" : "true";
    }
}

/* Whether a key holds anything: neither null, nor "", [] or {}. */
static bool holds(const struct node *node)
{
    if (!node || node->kind == NODE_NULL)
        return false;
    return node->kind == NODE_LIST || node->kind == NODE_TABLE ? node->first != NULL
                                                               : !node->text || *node->text;
}

/* axolotl shards wherever there is a fsdp_config, by FSDP1 unless its version is said. */
static void imply_fsdp(struct document *document)
{
    const bool axolotl = document_find(document, "base_model") != NULL;
    struct node *fsdp = document_find(document, "fsdp");
    if (!axolotl || (!holds(fsdp) && !holds(document_find(document, "fsdp_config"))))
        return;
    if (!fsdp)
        fsdp = document_put(document, "fsdp", NODE_NULL, "null");
    if (!holds(fsdp)) {
        fsdp->kind = NODE_BOOL;
        fsdp->text = "true";
        fsdp->read = true;
    }
    if (!holds(document_find(document, "fsdp_version")) &&
        !holds(document_find(document, "fsdp_config.version")))
        document_put(document, "fsdp_config.version", NODE_INTEGER, "1");
}

/* axolotl's adapter: qlora is lora over weights in few bits, which load_in_4bit says. "" is none.
 */
static void say_adapter(struct document *document)
{
    struct node *node = document_find(document, "adapter");
    if (node && !holds(node))
        node->kind = NODE_NULL;
    if (node && node->kind == NODE_TEXT &&
        (strcmp(node->text, "lora") == 0 || strcmp(node->text, "qlora") == 0))
        document_say(document, node, "adapter", "finetuning_type", NODE_TEXT, "lora");
}

/* Keys by which a file is one trainer's: fields of its dataclasses which neither TrainingArguments
 * nor the others' files have. `dataset_name` and `dtype` are in transformers' example scripts, too,
 * which read no YAML. */
/* clang-format off */
static const char *const llama_factorys[] = { /* hparams */
    "finetuning_type", "stage", "template", "cutoff_len", "lora_rank", "lora_target", "dataset_dir",
    "disable_gradient_checkpointing", "dataset", "eval_dataset", "flash_attn",
    "enable_liger_kernel", "neat_packing", "quantization_bit", "quantization_method",
    "use_reentrant_gc", "use_unsloth", "use_unsloth_gc", "upcast_layernorm", "pure_bf16",
    "additional_target", "pref_beta", "pref_loss", "tokenized_path", "train_on_prompt", NULL};
static const char *const trls[] = { /* ScriptArguments, ModelConfig, its trainers' own */
    "dataset_name", "dataset_config", "dataset_train_split", "dataset_test_split",
    "dataset_streaming", "dataset_mixture", "dataset_text_field", "dataset_kwargs",
    "dataset_num_proc", "dtype", "torch_dtype", "attn_implementation", "model_init_kwargs",
    "use_peft", "lora_r", "lora_target_modules", "lora_task_type", "lora_modules_to_save",
    "load_in_4bit", "load_in_8bit", "use_bnb_nested_quant", "max_length", "max_seq_length",
    "packing", "packing_strategy", "eval_packing", "padding_free", "completion_only_loss",
    "assistant_only_loss", "activation_offloading", "chat_template_path", "beta",
    "precompute_ref_log_probs", "center_rewards_coefficient", "num_generations",
    "max_completion_length", NULL};
/* clang-format on */

static bool has_any(const struct document *document, const char *const *keys)
{
    for (; *keys; keys++)
        if (document_find(document, *keys))
            return true;
    return false;
}

static bool is_llama_factory(const struct document *document)
{
    return document_find(document, "model_name_or_path") && has_any(document, llama_factorys);
}

static bool is_trl(const struct document *document)
{
    return document->syntax == SYNTAX_YAML && !document_find(document, "base_model") &&
           !is_llama_factory(document) && has_any(document, trls);
}

bool transformers_is_anyones(const struct import *im)
{
    return im->document.syntax == SYNTAX_YAML && import_node(im, "model_name_or_path") &&
           !transformers_is_axolotl(im) && !transformers_is_llama_factory(im) &&
           !import_node(im, TRLS_HEAD);
}

static void put_unless(struct document *document, const char *path, enum node_kind kind,
                       const char *text)
{
    if (!document_find(document, path)) /* null is said, too */
        document_put(document, path, kind, text);
}

uint64_t transformers_policy_tokens(const struct document *document, const char *key)
{
    const struct node *node = document_find(document, key);
    double tokens;
    if (!node || !node->text || !number_real(node->text, &tokens) || tokens < 1)
        return GRPO_TOKENS; /* what is no such number is refused by its row */
    return tokens < UINT32_MAX ? (uint64_t)tokens : UINT32_MAX;
}

/* SFTConfig's; of policies, prompt and completion: by the key of theirs that is there. */
static void imply_length(struct document *document)
{
    const uint64_t most = UINT32_MAX;
    const struct node *by = NULL;
    const char *key = GRPO_COMPLETION;
    uint64_t tokens = 1024;
    if (document_find(document, "num_generations")) {
        by = document_find(document, key);
        by = by ? by : document_find(document, key = GRPO_PROMPT);
        tokens = transformers_policy_tokens(document, GRPO_PROMPT) +
                 transformers_policy_tokens(document, GRPO_COMPLETION);
    }
    struct node *node =
        document_put(document, "max_length", NODE_INTEGER,
                     arena_printf(&document->arena, "%llu",
                                  (unsigned long long)(tokens < most ? tokens : most)));
    if (by && node && by->text && by->kind != NODE_NULL) {
        node->was = key;
        node->said = by->text;
        node->line = by->line;
    }
}

/* TRL's ModelConfig says with use_peft that there are adapters. What holds where its file says
 * nothing: trainer/model_config.py, base_config.py, sft_config.py. */
static void imply_trl(struct document *document)
{
    const struct node *fp16 = document_find(document, "fp16");
    struct node *node = document_find(document, "use_peft");
    if (!is_trl(document))
        return;
    if (node && node->kind == NODE_BOOL && strcmp(node->text, "true") == 0) {
        document_say(document, node, "use_peft", "finetuning_type", NODE_TEXT, "lora");
        put_unless(document, "lora_r", NODE_INTEGER, "16");
    }
    document_put(document, TRLS_HEAD, NODE_BOOL, "true");
    put_unless(document, "gradient_checkpointing", NODE_BOOL, "true");
    if (!document_find(document, "max_length") && !document_find(document, "max_seq_length"))
        imply_length(document);
    if (!node_is_true(fp16))
        put_unless(document, "bf16", NODE_BOOL, "true");
}

const char *transformers_about(const struct document *document)
{
    const bool yaml = document->syntax == SYNTAX_YAML;
    return yaml && document_find(document, "base_model") ? "a configuration of axolotl"
           : is_trl(document)                            ? "a configuration of TRL"
           : is_llama_factory(document)                  ? "a configuration of LLaMA-Factory"
                                                         : "TrainingArguments of transformers";
}

/* What holds in LLaMA-Factory where its file says nothing: finetuning_args.py, model_args.py,
 * data_args.py. */
static void imply_llama_factory(struct document *document)
{
    if (!is_llama_factory(document))
        return;
    put_unless(document, "finetuning_type", NODE_TEXT, "lora");
    put_unless(document, "disable_gradient_checkpointing", NODE_BOOL, "false");
    put_unless(document, "cutoff_len", NODE_INTEGER, "2048");
    put_unless(document, "freeze_vision_tower", NODE_BOOL, "true");
}

/* Either turns it on (_configure_precision_settings). */
static void say_bfloat16(struct document *document)
{
    struct node *node = document_find(document, "bfloat16"),
                *bf16 = document_find(document, "bf16");
    if (!node)
        return;
    node->read = true;
    if (!node_is_true(node) || !bf16) {
        if (node_is_true(node))
            document_say(document, node, "bfloat16", "bf16", NODE_BOOL, "true");
        return;
    }
    bf16->kind = NODE_BOOL;
    bf16->said = bf16->said ? bf16->said : bf16->text;
    bf16->text = "true";
}

/* ... in axolotl: schemas/config.py and training.py. */
static void imply_axolotl(struct document *document)
{
    if (!document_find(document, "base_model"))
        return;
    put_unless(document, "micro_batch_size", NODE_INTEGER, "1");
    put_unless(document, "sequence_len", NODE_INTEGER, "512");
    say_bfloat16(document);
    put_unless(document, "bf16", NODE_TEXT, "auto");
}

/* ---- keys that another program has ---- */

static uint32_t whose(const struct document *document)
{
    return document_find(document, "base_model") ? AXOLOTL
           : is_llama_factory(document)          ? LLAMA_FACTORY
           : is_trl(document)                    ? TRL
                                                 : ALL;
}

/* What that program calls it; NULL: nothing of the kind. */
static const char *name_of(const char *is, uint32_t by)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].is, is) == 0 && (names[i].was_of & by))
            return names[i].was;
        else if (strcmp(names[i].is, is) == 0 && (names[i].is_of & by))
            return is;
    return NULL;
}

static void set_aside(struct document *document, const char *path, const char *own)
{
    struct node *node = document_find(document, path);
    if (node && own && strcmp(own, path) != 0)
        node->meant = arena_printf(&document->arena, "did you mean %s?", own);
    else if (node)
        node->meant = "a key of LLaMA-Factory's, which axolotl does not read";
}

/* Programs pass over keys that they do not have, or stop at them. */
static void set_aside_foreign(struct document *document)
{
    const uint32_t by = whose(document);
    for (size_t i = 0; i < sizeof names / sizeof *names && by != ALL; i++) {
        if (!(names[i].is_of & by))
            set_aside(document, names[i].is, name_of(names[i].is, by));
        if (!(names[i].was_of & by))
            set_aside(document, names[i].was, name_of(names[i].is, by));
    }
    for (const char *const *key = llama_factorys; by == AXOLOTL && *key; key++)
        set_aside(document, *key, name_of(*key, by));
}

void transformers_others(struct document *document)
{
    if (document->syntax == SYNTAX_YAML)
        set_aside_foreign(document);
    imply_llama_factory(document);
    if (document->syntax != SYNTAX_YAML)
        return;
    imply_axolotl(document);
    imply_fsdp(document);
    say_adapter(document);
    imply_trl(document);
    settle_bf16(document);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct node *node = document_find(document, names[i].was);
        if (node && node->kind != NODE_TABLE && node->kind != NODE_LIST)
            document_say(document, node, names[i].was, names[i].is, node->kind, node->text);
    }
}

const char *transformers_named_from(const char *path)
{
    return strncmp(path, "deepspeed_configs/", 18) == 0
               ? "`axolotl fetch deepspeed_configs` puts it there"
           : strncmp(path, "examples/", 9) == 0
               ? "it is looked for from where this is started, LLaMA-Factory's folder, from "
                 "where the file is, and from each folder above that"
               : NULL;
}
