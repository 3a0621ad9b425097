/* framework_llama_factory.c - LLaMA-Factory v1 (USE_V1): its YAML or JSON, whose keys are those of
 * ModelArguments, DataArguments, TrainingArguments and SampleArguments (v1/config, August 2026),
 * and of the plugins that they name. What its trainer does with them was read in
 * core/base_trainer.py and plugins/trainer_plugins.
 *
 * FSDP2 shards blocks, embeddings that no head shares, and the rest, on a mesh of two dimensions;
 * one of the two may have one rank, which then changes nothing: gradients are reduced in the dtype
 * that they are kept in. Without dist_config it is DDP, or one GPU, and nothing is cast then: bf16
 * is FSDP2's alone. Gradients are reduced after each micro-batch. */
#include "frameworks/framework_llama_factory.h"
#include "frameworks/framework_transformers.h"

#include "base/number.h"

#include <string.h>

enum {
    FSDP2 = FOR_SYSTEM(FSDP2),
    DDP = FOR_SYSTEM(DDP),
    SINGLE = FOR_SYSTEM(SINGLE),
    ZERO = FOR_SYSTEM(ZERO1) | FOR_SYSTEM(ZERO2) | FOR_SYSTEM(ZERO3),
};

#define DIST "dist_config.name"

static bool says(const struct import *im, const char *path, const char *text)
{
    const struct node *node = import_node(im, path);
    return node && node->text && strcmp(node->text, text) == 0;
}

static long long value_of(const struct import *im, const char *setting)
{
    char buffer[NUMBER_TEXT];
    uint64_t value = 0;
    const char *text = import_value(im, setting, buffer);
    return text && number_integer(text, &value) ? (long long)value : 1;
}

/* ---- the system ---- */

static enum err_code read_dist(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    const char *name = node ? node->text : "";
    if (strcmp(name, "deepspeed") == 0)
        return import_has_named(im)
                   ? ERR_OK /* its file says which ZeRO it is */
                   : import_refuse(im, row->path, node, err, "dist_config.config_file is missing");
    if (strcmp(name, "fsdpturbo") == 0)
        import_list(im, node, row->path, "FSDPTurbo: planned as FSDP2");
    const bool alone = import_is_alone(im); /* then there is no mesh, and nothing is wrapped */
    return import_set(im, "strategy", alone ? "single" : *name ? "fsdp2" : "ddp", row, node, err);
}

static enum err_code read_model(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    return node ? transformers_read_model(im, row, node, err)
                : import_set(im, row->setting, row->initial, row, node, err);
}

/* ---- the mesh ---- */

static enum err_code read_ranks(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    const long long ranks = import_integer(im, "dp_size", 0),
                    share = import_integer(im, "cp_size", 1);
    const long long shards = import_integer(im, "mp_shard_size", 0);
    const long long replicas = import_integer(im, "mp_replicate_size", 1);
    const long long gpus = shards > 0 ? shards * replicas : ranks * share;
    if (!node)
        return ERR_OK;
    if (ranks > 0 && shards > 0 && ranks * share != gpus)
        return import_refuse(im, row->path, node, err,
                             "dp_size x cp_size are %lld GPUs, mp_replicate_size x mp_shard_size "
                             "%lld",
                             ranks * share, gpus);
    return gpus > 0 ? import_set(im, "gpus", import_text(im, "%lld", gpus), row, node, err)
                    : ERR_OK;
}

static enum err_code read_context(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const long long share = import_integer(im, row->path, 1), gpus = value_of(im, "gpus");
    (void)err;
    if (!node)
        return ERR_OK;
    if (share <= 1)
        import_idle(im, node, row->path);
    else
        import_list(im, node, row->path,
                    import_text(im,
                                "context parallelism: planned with %lld data-parallel ranks, where "
                                "%lld GPUs share the tokens of each",
                                gpus, share));
    return ERR_OK;
}

/* ---- batches ---- */

/* BatchGenerator. */
static enum err_code read_global_batch(struct import *im, const struct key_row *row,
                                       const struct node *node, struct err *err)
{
    const long long share = import_integer(im, "cp_size", 1), ranks = value_of(im, "gpus") / share;
    const long long each = ranks * import_integer(im, "micro_batch_size", 1);
    const long long whole = import_integer(im, row->path, -1);
    if (!node)
        return import_set(im, "accumulate", "1", row, NULL, err);
    if (each < 1 || whole % each != 0)
        return import_refuse(im, row->path, node, err,
                             "%lld data-parallel ranks x micro_batch_size are %lld, which does not "
                             "divide it: give --gpus",
                             ranks, each);
    return import_set(im, "accumulate", import_text(im, "%lld", whole / each), row, node, err);
}

/* What a micro-batch is: sequences of cutoff_len tokens at most, or one that is joined of them. */
static enum err_code read_strategy(struct import *im, const struct key_row *row,
                                   const struct node *node, struct err *err)
{
    const char *name = node ? node->text : "normal";
    const long long samples = import_integer(im, "micro_batch_size", 1);
    const long long cutoff = import_integer(im, "cutoff_len", 2048);
    const bool joined = strstr(name, "padding_free") != NULL;
    if (strcmp(name, "padding_free") == 0 && !says(im, "flash_attn", "flash_attention_2"))
        return import_refuse(im, row->path, node, err,
                             "LLaMA-Factory refuses it without flash_attn: flash_attention_2");
    if (!joined && strcmp(name, "normal") != 0)
        import_open(im, node, row->path,
                    import_text(im,
                                "how many samples are in %lld tokens: planned as %lld of %lld, "
                                "which are the most",
                                samples * cutoff, samples, cutoff));
    if (!joined) {
        TRY(import_set(im, "seq", import_text(im, "%lld", cutoff), row, node, err));
        return import_set(im, "micro-batch", import_text(im, "%lld", samples), row, NULL, err);
    }
    import_open(im, node, row->path,
                import_text(im,
                            "how long samples are: planned as %lld of %lld tokens in one sequence, "
                            "which are the most; --seq and --sample-tokens",
                            samples, cutoff));
    TRY(import_set(im, "seq", import_text(im, "%lld", samples * cutoff), row, node, err));
    TRY(import_set(im, "sample-tokens", import_text(im, "%lld", cutoff), row, NULL, err));
    return import_set(im, "micro-batch", "1", row, NULL, err);
}

/* ---- dtypes ---- */

/* infer_deepspeed_mixed_precision: bf16 unless its file says otherwise. */
static enum err_code read_named_dtype(struct import *im, const struct key_row *row, struct err *err)
{
    const struct node *bf16 = document_find(&im->named, "bf16.enabled");
    const struct node *fp16 = document_find(&im->named, "fp16.enabled");
    const char *wide = bf16 && bf16->text ? bf16->text : "auto";
    const char *half = fp16 && fp16->text ? fp16->text : "auto";
    if (strcmp(half, "true") == 0)
        return err_set(err, ERR_INVALID,
                       "%s: fp16.enabled true: LLaMA-Factory refuses it: allowed is bf16",
                       im->named.path);
    const bool is =
        strcmp(wide, "true") == 0 || (strcmp(wide, "auto") == 0 && strcmp(half, "false") != 0);
    return import_set(im, "param-dtype", is ? "bf16" : "fp32", row, NULL, err);
}

static enum err_code read_dtype(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    const char *dtype = llama_factory_is_bf16(im) ? "bf16" : "fp32";
    if (import_has_named(im))
        TRY(read_named_dtype(im, row, err));
    if (im->settings->job.strategy.system != SYSTEM_FSDP2) {
        if (node)
            import_idle(im, node, row->path);
        return ERR_OK;
    }
    TRY(import_set(im, "param-dtype", dtype, row, node, err));
    TRY(import_set(im, "reduce-dtype", "fp32", row, NULL, err));
    /* FSDPTurboFSDP2Engine.shard_model */
    return import_set(im, "store-dtype", says(im, DIST, "fsdpturbo") ? dtype : "fp32", row, NULL,
                      err);
}

/* ---- the rest of a step ---- */

/* DeepSpeed clips as its file says, or to what accelerate fills in. */
static enum err_code read_clip(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    if (!import_has_named(im))
        return import_set(im, "clip", node ? node->text : row->initial, row, node, err);
    if (node)
        import_idle(im, node, row->path);
    return import_has(im, "clip") ? ERR_OK : import_set(im, "clip", "1.0", row, NULL, err);
}

/* Not reentrant. Without them nothing keeps the model from filling a cache (config.use_cache). */
static enum err_code read_checkpoints(struct import *im, const struct key_row *row,
                                      const struct node *node, struct err *err)
{
    const char *value = node ? key_to_setting(row, node->text) : "full";
    if (strcmp(value, "none") == 0)
        import_list(im, node, row->path,
                    "the model keeps keys and values of each layer in a cache: planned without");
    return import_set(im, row->setting, value, row, node, err);
}

/* torch.optim.AdamW without a word of its implementation. */
static enum err_code read_optimizer(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    if (node)
        import_list(im, node, row->path, row->why);
    return import_set(im, "optimizer-impl", "foreach", row, NULL, err);
}

/* What a pair is, is said by the command: `llamafactory-cli sft`, dpo or rm. */
static enum err_code read_objective(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    (void)err;
    if (node)
        import_list(im, node, row->path,
                    says(im, row->path, "sigmoid")
                        ? "a pair is one sequence of both: planned as fine-tuning, without the "
                          "reference's forward"
                        : "a pair is one sequence of both: planned as fine-tuning");
    else
        import_open(im, NULL, row->path,
                    "the command says what is learned from: planned as `llamafactory-cli sft`");
    return ERR_OK;
}

/* Liger's cross-entropy, where that is planned, is in the place of both. */
static enum err_code read_loss(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    (void)node;
    if (import_has(im, "loss"))
        return ERR_OK;
    if (!import_is_recorded(im) && import_of_model(im, per_token_has))
        return import_set(im, row->setting, "per-token", row, NULL, err);
    import_list(im, NULL, row->path,
                "beside the model's own loss the trainer has one of its own, of another copy "
                "of all logits: planned without");
    return ERR_OK;
}

/* ---- the table ---- */

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses): what the macros hold are initialisers */
#define IDLE(key) {.path = key, .kind = KEY_ANY}
#define IDLE_SECTION(key) {.path = key, .kind = KEY_SECTION}
#define ELSEWHERE(key, of_kind) {.path = key, .kind = of_kind, .read = import_elsewhere}
#define WITH(key, what) {.path = key, .kind = KEY_SECTION, .why = what}
#define O(name) {name, NULL}
static const struct key_row rows[] = {
    {.path = "dist_config", .kind = KEY_TABLE}, {.path = "peft_config", .kind = KEY_TABLE},
    {.path = "quant_config", .kind = KEY_TABLE},
    {.path = DIST, .kind = KEY_WORD, .setting = "strategy",
     .words = KEY_WORDS(O("fsdp2"), O("deepspeed"), O("fsdpturbo")), .read = read_dist},
    {.path = "dist_config.config_file", .kind = KEY_TEXT, .read = import_elsewhere},
    {.path = "model", .kind = KEY_TEXT, .setting = "model", .read = read_model,
     .initial = "Qwen/Qwen3-4B-Instruct-2507"},
    {.path = "model_class", .kind = KEY_WORD, .neutral = "llm",
     .words = KEY_WORDS(O("llm"), O("cls"), O("other")),
     .why = "another class: planned as a language model"},
    {.path = "mp_replicate_size", .kind = KEY_INTEGER, .least = 1, .setting = "replicate",
     .systems = FSDP2},
    {.path = "mp_shard_size", .kind = KEY_INTEGER, .least = 1, .setting = "gpus",
     .read = read_ranks},
    {.path = "dp_size", .kind = KEY_INTEGER, .least = 1, .setting = "gpus", .read = read_ranks},
    {.path = "cp_size", .kind = KEY_INTEGER, .least = 1, .read = read_context},
    {.path = "cp_mode", .kind = KEY_WORD, .words = KEY_WORDS(O("ulysses"))},

    {.path = "units", .kind = KEY_ANY, .setting = "units", .systems = FSDP2,
     .read = llama_factory_read_units},
    {.path = "dist_config.reshard_after_forward", .kind = KEY_BOOL, .setting = "reshard",
     .words = KEY_WORDS({"true", "always"}, {"false", "never"}), .initial = "true",
     .systems = FSDP2},
    {.path = "dist_config.offload_params", .kind = KEY_BOOL, .setting = "offload",
     .words = KEY_WORDS({"true", "cpu"}, {"false", "none"}), .initial = "false", .systems = FSDP2},
    IDLE("dist_config.pin_memory"), IDLE("dist_config.dcp_path"),
    {.path = "dist_config.ep_size", .kind = KEY_INTEGER, .least = 1, .neutral = "1",
     .why = "experts that tokens are sent to: planned as parameters of their blocks"},
    IDLE("dist_config.ep_dispatcher"),
    WITH("dist_config.fsdp_ignored_modules", "modules that are not sharded: planned as sharded; --ignore"),
    IDLE("dist_config.hook_modules"), IDLE("dist_config.fsdp_implementation"),

    {.path = "bf16", .kind = KEY_BOOL, .setting = "param-dtype", .read = read_dtype},
    {.path = "enable_activation_checkpointing", .kind = KEY_BOOL, .setting = "checkpointing",
     .words = KEY_WORDS({"true", "full"}, {"false", "none"}), .read = read_checkpoints},
    {.path = "flash_attn", .kind = KEY_WORD, .setting = "attention",
     .words = KEY_WORDS(O("sdpa"), {"eager", "eager"}, {"flash_attention_2", "flash-attn"})},
    {.path = "peft_config.name", .kind = KEY_WORD, .setting = "lora",
     .words = KEY_WORDS(O("lora"), O("freeze")), .read = llama_factory_read_peft},
    ELSEWHERE("peft_config.r", KEY_INTEGER), ELSEWHERE("peft_config.target_modules", KEY_ANY),
    ELSEWHERE("peft_config.lora_dropout", KEY_REAL), IDLE("peft_config.lora_alpha"),
    IDLE("peft_config.use_rslora"),
    {.path = "peft_config.use_dora", .kind = KEY_BOOL, .neutral = "false", .why = "DoRA's magnitudes"},
    WITH("peft_config.modules_to_save", "modules that are trained whole: planned as frozen"),
    WITH("peft_config.adapter_name_or_path", "an adapter that is there has a rank of its own"),
    ELSEWHERE("peft_config.export_dir", KEY_ANY), IDLE("peft_config.export_size"),
    IDLE("peft_config.export_hub_model_id"), IDLE("peft_config.infer_dtype"),
    IDLE("peft_config.export_legacy_format"),
    {.path = "peft_config.freeze_trainable_layers", .kind = KEY_INTEGER, .least = -1e9,
     .read = import_elsewhere},
    ELSEWHERE("peft_config.freeze_trainable_modules", KEY_ANY),
    ELSEWHERE("peft_config.freeze_extra_modules", KEY_ANY),
    ELSEWHERE("peft_config.cast_trainable_params_to_fp32", KEY_BOOL),
    {.path = "quant_config.name", .kind = KEY_WORD, .setting = "load-in-4bit",
     .words = KEY_WORDS(O("bnb"), O("auto")), .read = llama_factory_read_bits},
    ELSEWHERE("quant_config.quantization_bit", KEY_INTEGER),
    ELSEWHERE("quant_config.compute_dtype", KEY_TEXT),
    ELSEWHERE("quant_config.double_quantization", KEY_BOOL),
    ELSEWHERE("quant_config.quantization_type", KEY_TEXT),
    {.path = "kernel_config.name", .kind = KEY_TEXT, .setting = "liger",
     .read = llama_factory_read_kernels},
    IDLE_SECTION("kernel_config"),

    {.path = "micro_batch_size", .kind = KEY_INTEGER, .least = 1, .setting = "micro-batch",
     .read = import_elsewhere},
    {.path = "cutoff_len", .kind = KEY_INTEGER, .least = 1, .setting = "seq",
     .read = import_elsewhere},
    {.path = "batching_strategy", .kind = KEY_WORD, .setting = "seq", .read = read_strategy,
     .words = KEY_WORDS(O("normal"), O("padding_free"), O("dynamic_batching"),
                        O("dynamic_padding_free"))},
    {.path = "global_batch_size", .kind = KEY_INTEGER, .least = 1, .setting = "accumulate",
     .read = read_global_batch},
    {.path = "max_grad_norm", .kind = KEY_REAL, .least = 1e-9, .setting = "clip", .initial = "1.0",
     .read = read_clip},
    {.path = "optim_config.name", .kind = KEY_WORD, .setting = "optimizer-impl",
     .words = KEY_WORDS(O("muon")), .read = read_optimizer,
     .why = "this optimizer: planned as AdamW"},
    IDLE_SECTION("optim_config"),
    {.path = "the loss", .kind = KEY_ANY, .setting = "loss", .read = read_loss},
    {.path = "pref_loss", .kind = KEY_WORD, .read = read_objective,
     .words = KEY_WORDS(O("sigmoid"), O("orpo"), O("simpo"))},
    IDLE("pref_beta"), IDLE("pref_ftx"), IDLE("simpo_gamma"), IDLE("dpo_label_smoothing"),
    IDLE("ld_alpha"),

    IDLE_SECTION("init_config"), IDLE_SECTION("lr_scheduler_config"), IDLE("trust_remote_code"),
    IDLE("custom_chat_template"), IDLE("train_dataset"), IDLE("eval_dataset"), IDLE("output_dir"),
    IDLE("learning_rate"), IDLE("num_train_epochs"), IDLE("max_steps"), IDLE("batching_workers"),
    IDLE("dist_timeout"), IDLE("seed"), IDLE("full_determinism"), IDLE("resume_from_checkpoint"),
    IDLE("save_steps"), IDLE("save_epochs"), IDLE("save_ckpt_as_hf"), IDLE("save_total_limit"),
    IDLE("logging_steps"), IDLE("sample_backend"), IDLE("max_new_tokens"),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct implied_setting implied[] = {
    {"code", "hf", 0, NULL, NULL},
    {"optimizer", "adamw", 0, NULL, NULL},
    {"accumulate-sync", "each", FSDP2 | DDP, NULL, NULL},
    {"expandable-segments", "on", FSDP2 | DDP | ZERO, LLAMA_FACTORY_LAUNCHES, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct script_setting script[] = {
    {"gpus", "what the launcher starts: %s", NULL, false},
    {NULL, NULL, NULL, false},
};

const struct framework framework_llama_factory = {
    .name = "LLaMA-Factory",
    .about = "a configuration of LLaMA-Factory v1",
    KEY_ROWS(rows),
    .implied = implied,
    .script = script,
    .systems = FSDP2 | DDP | SINGLE,
    .versions = "LLaMA-Factory v1",
    .syntax = SYNTAX_YAML,
    .named = "dist_config.config_file",
    .named_framework = &framework_deepspeed,
    .named_from = transformers_named_from,
    .loose = true,
};
