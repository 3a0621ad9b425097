/* framework_transformers.c - Hugging Face TrainingArguments as JSON, or the file of its fsdp_config
 * alone: keys and defaults of training_args.py (5.23), read in the sources. Its Trainer runs
 * accelerate, which framework_accelerate.c knows. */
#include "frameworks/framework_transformers.h"
#include "families/families.h"
#include "frameworks/auto_wrap.h"
#include "frameworks/dynamo.h"
#include "frameworks/native_amp.h"

#include <string.h>

enum {
    FSDP1 = FOR_SYSTEM(FSDP1),
    FSDP2 = FOR_SYSTEM(FSDP2),
    FSDP = FSDP1 | FSDP2,
    DDP = FOR_SYSTEM(DDP),
    SINGLE = FOR_SYSTEM(SINGLE),
    ZERO = FOR_SYSTEM(ZERO1) | FOR_SYSTEM(ZERO2) | FOR_SYSTEM(ZERO3),
};

/* "fsdp": true, or the older words "full_shard auto_wrap offload". */
static bool says(const struct import *im, const char *word)
{
    const struct node *node = import_node(im, "fsdp");
    const size_t length = strlen(word);
    for (const char *at = node && node->kind == NODE_TEXT ? node->text : ""; *at;) {
        const size_t here = strcspn(at, " ");
        if (here == length && strncmp(at, word, length) == 0)
            return true;
        at += here + strspn(at + here, " ");
    }
    return false;
}

static enum err_code read_fsdp(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    static const char *const words[] = {"full_shard",   "shard_grad_op",      "no_shard",
                                        "hybrid_shard", "hybrid_shard_zero2", "offload",
                                        "auto_wrap"};
    const long long version = import_integer(im, "fsdp_config.version", 2);
    const bool on = node && (transformers_is_on(node) || (node->kind == NODE_TEXT && *node->text));
    if (import_has_named(im) && on) /* Trainer.__init__ */
        return import_refuse(im, row->path, node, err,
                             "transformers refuses it beside deepspeed: leave one of them out");
    if (import_has_named(im))
        return ERR_OK; /* DeepSpeed's file says which ZeRO it is */
    for (const char *at = node && node->kind == NODE_TEXT ? node->text : ""; *at;) {
        const size_t here = strcspn(at, " ");
        bool known = false;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            known = known || (strlen(words[i]) == here && strncmp(at, words[i], here) == 0);
        if (!known)
            return import_refuse(im, row->path, node, err,
                                 "allowed are true, full_shard, shard_grad_op, no_shard, "
                                 "hybrid_shard, hybrid_shard_zero2, offload, auto_wrap");
        at += here + strspn(at + here, " ");
    }
    return import_set(im, "strategy",
                      !on && import_is_alone(im) ? "single"
                      : !on                      ? "ddp"
                      : version == 2             ? "fsdp2"
                                                 : "fsdp1",
                      row, node, err);
}

/* ---- what older words and newer keys both say ---- */

static enum err_code read_reshard(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const bool off = node ? !transformers_is_on(node) : says(im, "shard_grad_op");
    return import_set(im, "reshard", off ? "never" : "default", row, node, err);
}

static const char *strategy_word(const struct import *im)
{
    static const char *const words[][2] = {{"full_shard", "FULL_SHARD"},
                                           {"shard_grad_op", "SHARD_GRAD_OP"},
                                           {"no_shard", "NO_SHARD"},
                                           {"hybrid_shard", "HYBRID_SHARD"},
                                           {"hybrid_shard_zero2", "_HYBRID_SHARD_ZERO2"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (says(im, words[i][0]))
            return words[i][1];
    return "FULL_SHARD";
}

static enum err_code read_sharding(struct import *im, const struct key_row *row,
                                   const struct node *node, struct err *err)
{
    const char *value = node && node->text ? key_to_setting(row, node->text) : NULL;
    return import_set(im, "sharding", value ? value : strategy_word(im), row, node, err);
}

static enum err_code read_offload(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const bool on = node ? transformers_is_on(node) : says(im, "offload");
    return import_set(im, "offload", on ? "cpu" : "none", row, node, err);
}

#define POLICY "fsdp_config.auto_wrap_policy"
#define WRAPPED "fsdp_config.transformer_layer_cls_to_wrap"

static enum err_code read_wrapped(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const struct node *policy = import_node(im, POLICY);
    const bool by_class = !policy || !policy->text || strcmp(policy->text, TRANSFORMER_WRAP) == 0;
    return auto_wrap_classes(im, row, node, by_class, err);
}

static enum err_code read_policy(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const char *policy = node ? node->text : "TRANSFORMER_BASED_WRAP";
    const bool second = im->settings->job.strategy.system == SYSTEM_FSDP2;
    const long long least = import_integer(im, "fsdp_config.min_num_params", 0);
    bool known;
    TRY(auto_wrap_set(im, policy, WRAPPED, row, node, &known, err));
    if (known)
        return ERR_OK;
    if (!second)
        return import_set(im, "units",
                          strcmp(policy, "SIZE_BASED_WRAP") == 0 && least > 0
                              ? import_text(im, "%lld", least)
                              : "none",
                          row, node, err);
    import_list(im, node, row->path,
                "of version 2 only TRANSFORMER_BASED_WRAP is planned, which is --units torchtitan: "
                "planned with the model's blocks");
    return ERR_OK;
}

/* ---- dtypes and checkpointing ---- */

static enum err_code read_dtype(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    const struct node *half = import_node(im, "fp16");
    const bool bf16 = transformers_is_on(import_node(im, "bf16"));
    const bool both = bf16 && transformers_is_on(half), fp16 = !bf16 && transformers_is_on(half);
    const char *dtype = bf16 ? "bf16" : fp16 ? "fp16" : "same";
    if (both && !transformers_is_axolotl(im)) /* TrainingArguments._validate_args */
        return import_refuse(im, "fp16", half, err,
                             "bf16 (line %u) is on, too, and transformers refuses both: leave one "
                             "of them out",
                             import_node(im, "bf16")->line);
    if (bf16 || fp16) /* TrainingArguments.__post_init__ */
        import_overrule(im, "mixed_precision", dtype);
    if (im->before && !bf16 && !fp16) /* ACCELERATE_MIXED_PRECISION (training_args.py, 5.) */
        return ERR_OK;
    if ((1U << im->settings->job.strategy.system) & (DDP | SINGLE)) {
        if (fp16)
            import_list(im, import_node(im, "fp16"), "fp16",
                        "autocast to this dtype: planned in fp32");
        TRY(import_set(im, "autocast", bf16 ? "bf16" : "none", row, node, err));
        return native_amp_set(im, row, row->path, node, err);
    }
    if (import_has_named(im)) {
        char buffer[NUMBER_TEXT];
        const char *named = import_value(im, "param-dtype", buffer);
        if (!import_has(im, "param-dtype") || import_is_given(im, "param-dtype"))
            return import_set(im, "param-dtype", bf16 || fp16 ? dtype : "fp32", row, node, err);
        if ((bf16 || fp16) && strcmp(named, dtype) != 0) /* DeepSpeedPlugin.set_mixed_precision */
            return import_refuse(im, bf16 ? "bf16" : "fp16",
                                 import_node(im, bf16 ? "bf16" : "fp16"), err,
                                 "%s says %s.enabled true; transformers refuses what differs",
                                 im->named.path, named);
        return ERR_OK;
    }
    TRY(import_set(im, "param-dtype", dtype, row, node, err));
    if ((1U << im->settings->job.strategy.system) & FSDP)
        TRY(import_set(im, "reduce-dtype", dtype, row, node, err));
    if (bf16 || fp16)
        TRY(import_set(im, "store-dtype", "fp32", row, NULL, err));
    return native_amp_set(im, row, bf16 ? "bf16" : "fp16", import_node(im, bf16 ? "bf16" : "fp16"),
                          err);
}

/* Whether accelerate's file has FSDP checkpoint blocks. */
static bool is_checkpointed_before(const struct import *im)
{
    const struct node *node =
        im->before ? import_node(im->before, "fsdp_config.fsdp_activation_checkpointing") : NULL;
    return node_is_true(node) && ((1U << im->settings->job.strategy.system) & FSDP);
}

static enum err_code read_checkpointing(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    const char *blocks = transformers_is_checkpointed(im) ? "full" : "none";
    const struct node *trainers = import_node(im, "gradient_checkpointing");
    const bool twice = transformers_is_on(trainers) && !transformers_is_axolotl(im) &&
                       (transformers_is_on(node) || is_checkpointed_before(im));
    struct key_row own = *row;
    if (twice) /* Trainer.create_accelerator_and_postprocess */
        import_list(im, trainers, "gradient_checkpointing",
                    "transformers fails where FSDP's activation_checkpointing is on, too: planned "
                    "as blocks that are checkpointed once");
    if (!node && transformers_is_on(trainers)) {
        own.path = trainers->key ? trainers->key : row->path;
        node = trainers;
    }
    return import_set(im, "checkpointing", blocks, &own, node, err);
}

#define TORCHAO "adamw-torch-" /* 4bit, 8bit */

/* torch's AdamW in one of its implementations, or another optimizer (trainer_optimizer.py). One of
 * DeepSpeed's own file is DeepSpeed's fused one, whatever is said here. */
static enum err_code read_optim(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    const char *name = node ? node->text : row->initial, *value = key_to_setting(row, name);
    if (document_find(&im->named, "optimizer.type")) {
        import_idle(im, node, row->path);
        return ERR_OK;
    }
    if (!value) {
        import_list(im, node, row->path, row->why);
        return ERR_OK;
    }
    if (im->settings->job.strategy.offload && strncmp(value, TORCHAO, strlen(TORCHAO)) == 0) {
        import_list(im, node, row->path,
                    "on the host, where its states take less than AdamW's: planned as AdamW");
        return ERR_OK;
    }
    if (strcmp(value, "adamw") != 0)
        return import_set(im, "optimizer", value, row, node, err);
    return import_set(im, "optimizer-impl", strcmp(name, "adamw_torch") == 0 ? "foreach" : "fused",
                      row, node, err);
}

/* Trainer._build_accelerator_args: without the key they are looked for, unless blocks are
 * checkpointed; LLaMA-Factory's parser.py: unless there are adapters. */
static enum err_code read_unused(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const bool on = node ? transformers_is_on(node) : !transformers_is_checkpointed(im);
    return import_set(im, "find-unused-parameters", on ? "on" : "off", row, node, err);
}

/* TrainingArguments: a backend or a mode turns it on, too (__post_init__, 6.). */
static enum err_code read_compile(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const struct node *backend = import_node(im, "torch_compile_backend"),
                      *mode = import_node(im, "torch_compile_mode");
    const struct node *on = node && transformers_is_on(node)        ? node
                            : backend && backend->kind != NODE_NULL ? backend
                            : mode && mode->kind != NODE_NULL       ? mode
                                                                    : NULL;
    if (!on)
        return ERR_OK;
    const struct dynamo dynamo = {
        .path = on == node      ? row->path
                : on == backend ? "torch_compile_backend"
                                : "torch_compile_mode",
        .on = on,
        .backend = backend && backend->kind != NODE_NULL ? backend : NULL,
        .backend_path = "torch_compile_backend",
        .mode = mode && mode->kind != NODE_NULL ? mode : NULL,
        .mode_path = "torch_compile_mode",
    };
    return dynamo_set(im, row, &dynamo, err);
}

/* ---- the model, as axolotl and LLaMA-Factory name it ---- */

enum err_code transformers_read_model(struct import *im, const struct key_row *row,
                                      const struct node *node, struct err *err)
{
    char name[PRESET_NAME_SIZE], why[PRESET_MISSING_SIZE];
    const char *there = node ? import_model_path(im, node->text) : NULL;
    if (there)
        return import_set(im, "model", there, row, node, err);
    const struct model_preset *preset = node ? model_preset_of_path(node->text, name) : NULL;
    if (node && !preset && !import_has(im, "model")) {
        import_list(im, node, row->path, "no preset has this name: give MODEL");
        model_preset_missing(node->text, why, sizeof why);
        im->settings->no_preset =
            import_text(im, "no preset is called \"%.200s\"; %s", node->text, why);
    }
    return preset ? import_set(im, "model", import_text(im, "%s", name), row, node, err) : ERR_OK;
}

/* axolotl's model_type: a class of transformers. A language model's is what is planned. */
static enum err_code read_class(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    static const char language[] = "ForCausalLM";
    const size_t length = node ? strlen(node->text) : 0, tail = sizeof language - 1;
    (void)err;
    if (length >= tail && strcmp(node->text + length - tail, language) == 0)
        import_idle(im, node, row->path);
    else if (length)
        import_list(im, node, row->path, "another class: planned as a language model");
    return ERR_OK;
}

/* axolotl's mesh, and that of TrainingArguments. */
static enum err_code read_dp_shards(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    const long long shards = import_integer(im, row->path, -1);
    const char *dot = strrchr(row->path, '.');
    const long long replicas =
        import_integer(im, dot ? "parallelism_config.dp_replicate_size" : "dp_replicate_size", 1);
    return !node
               ? ERR_OK
               : import_set(im, "gpus", import_text(im, "%lld", shards * replicas), row, node, err);
}

/* axolotl's, of all GPUs: a file has two of three (check_batch_size_fields), and this one alone
 * beside micro_batch_size changes nothing, as gradient_accumulation_steps has a default. */
static enum err_code read_batch(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    const struct node *micro = import_node(im, "per_device_train_batch_size"),
                      *steps = import_node(im, "gradient_accumulation_steps");
    (void)err;
    if (node && !transformers_is_axolotl(im))
        import_unknown(im, node, row->path);
    else if (node)
        import_idle(im, node, row->path);
    if (transformers_is_axolotl(im) && (micro && micro->line) + !!steps + !!node < 2)
        import_open(im, NULL, row->path,
                    "axolotl asks for two of micro_batch_size, gradient_accumulation_steps and "
                    "batch_size: planned with 1 where one of the first two is missing");
    return ERR_OK;
}

/* ---- the table ---- */

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses): what the macros hold are initialisers */
#define IDLE(key) {.path = key, .kind = KEY_ANY}
#define IDLE_SECTION(key) {.path = key, .kind = KEY_SECTION}
#define ELSEWHERE(key, of_kind) {.path = key, .kind = of_kind, .read = import_elsewhere}
#define FEWER_TARGETS "fewer tokens have a target: planned as if all had; --prompt-tokens"
#define OFF(key, what) {.path = key, .kind = KEY_BOOL, .neutral = "false", .why = what}
#define WITH(key, what) {.path = key, .kind = KEY_SECTION, .why = what}
#define DEGREE(key, what) {.path = key, .kind = KEY_INTEGER, .least = 1, .neutral = "1", .why = what}
#define LIGER(key) {.path = key, .kind = KEY_BOOL, .read = transformers_read_liger_key}
#define OTHER_STATES "this optimizer's states: planned as AdamW's"
#define UNSLOTH "Unsloth's own model code: planned as transformers'"
#define C(key) "fsdp_config." key
#define O(name) {name, NULL}
#define FLASH "flash-attn's own kernels under torch.compile: planned as torch's"
#define HYBRID "flash-attn where layers have a window, torch's elsewhere: planned as torch's"
#define FLASH_3 "FlashAttention-3's own kernels: planned as torch's, which --attention chooses"
#define PACKING \
    "attention within each of the samples of a sequence: planned over all of it; " \
    "--sample-tokens says how long they are"
static enum err_code take_flash_attn(struct import *im, const struct key_row *row,
                                     const struct node *node, struct err *err)
{
    if (transformers_is_on(import_node(im, "torch_compile")))
        import_list(im, node, row->path, FLASH);
    else if (!transformers_is_on(import_node(im, "gemma4_hybrid_attn_impl")))
        return import_set(im, "attention", "flash-attn", row, node, err);
    return ERR_OK;
}

/* transformers' attn_implementation. */
static enum err_code read_attention(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    if (!node)
        return ERR_OK;
    if (strcmp(node->text, "eager") == 0)
        return import_set(im, "attention", "eager", row, node, err);
    if (strcmp(node->text, "flash_attention_2") == 0 ||
        strcmp(node->text, "kernels-community/flash-attn2") == 0)
        return take_flash_attn(im, row, node, err);
    if (strcmp(node->text, "sdpa") == 0)
        import_idle(im, node, row->path);
    else
        import_list(im, node, row->path,
                    strstr(node->text, "flash") ? FLASH_3
                                                : "attention of another library: planned as torch's");
    return ERR_OK;
}

/* axolotl's and LLaMA-Factory's, whose words are true and false, and of versions. */
static enum err_code read_flash(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    if (!node)
        return ERR_OK;
    if (transformers_is_on(node) || strcmp(node->text, "fa2") == 0)
        return take_flash_attn(im, row, node, err);
    if (strcmp(node->text, "fa3") == 0)
        import_list(im, node, row->path, FLASH_3);
    else if (strcmp(node->text, "disabled") == 0)
        return import_set(im, "attention", "eager", row, node, err);
    else
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* OptimizerNames, and some that were */
#define OPTIMS \
    KEY_WORDS({"adamw_torch_fused", "adamw"}, {"adamw_torch", "adamw"}, O("sgd"), \
              O("adafactor"), O("adamw_hf"), O("adamw_apex_fused"), O("adamw_anyprecision"), \
              O("adamw_torch_xla"), O("adamw_torch_npu_fused"), \
              {"adamw_torch_4bit", "adamw-torch-4bit"}, {"adamw_torch_8bit", "adamw-torch-8bit"}, \
              {"adamw_8bit", "adamw-8bit"}, {"adamw_bnb_8bit", "adamw-8bit"}, \
              {"paged_adamw_8bit", "paged-adamw-8bit"}, \
              {"paged_adamw_32bit", "paged-adamw-32bit"}, O("ademamix"), O("ademamix_8bit"), \
              O("paged_ademamix_32bit"), O("paged_ademamix_8bit"), O("adagrad"), \
              O("lion_8bit"), O("lion_32bit"), O("paged_lion_32bit"), O("paged_lion_8bit"), \
              O("rmsprop"), O("rmsprop_bnb"), O("rmsprop_bnb_8bit"), O("rmsprop_bnb_32bit"), \
              O("galore_adamw"), O("galore_adamw_8bit"), O("galore_adafactor"), \
              O("galore_adamw_layerwise"), O("galore_adamw_8bit_layerwise"), \
              O("galore_adafactor_layerwise"), O("lomo"), O("adalomo"), O("grokadamw"), \
              O("schedule_free_radam"), O("schedule_free_adamw"), O("schedule_free_sgd"), \
              O("apollo_adamw"), O("apollo_adamw_layerwise"), O("stable_adamw"), \
              /* axolotl's own */ \
              O("optimi_adamw"), O("ao_adamw_4bit"), O("ao_adamw_8bit"), O("ao_adamw_fp8"), \
              O("adopt_adamw"), O("came_pytorch"), O("muon"), O("dion"), O("sinkgd"), \
              O("flash_adamw"), O("flash_adam"), O("flash_sgd"), O("flash_sgdw"), \
              O("flash_lion"), O("q_galore_adamw8bit"))
#define STRATEGIES KEY_WORDS({"full_shard", "FULL_SHARD"}, {"shard_grad_op", "SHARD_GRAD_OP"},      \
                             {"no_shard", "NO_SHARD"}, {"hybrid_shard", "HYBRID_SHARD"},            \
                             {"hybrid_shard_zero2", "_HYBRID_SHARD_ZERO2"})

static const struct key_row rows[] = {
    {.path = "fsdp", .kind = KEY_ANY, .setting = "strategy", .read = read_fsdp},
    {.path = "fsdp_config", .kind = KEY_TABLE},
    {.path = C("version"), .kind = KEY_WORD, .words = KEY_WORDS({"1", NULL}, {"2", NULL}),
     .systems = FSDP, .read = import_elsewhere},
    {.path = C("reshard_after_forward"), .kind = KEY_BOOL, .setting = "reshard",
     .read = read_reshard, .systems = FSDP2},
    {.path = C("reshard_after_forward"), .kind = KEY_WORD, .words = STRATEGIES,
     .setting = "sharding", .read = read_sharding, .systems = FSDP1},
    {.path = C("cpu_offload"), .kind = KEY_BOOL, .setting = "offload", .read = read_offload,
     .systems = FSDP},
    {.path = POLICY, .kind = KEY_WORD, .setting = "units", .read = read_policy,
     .words = KEY_WORDS({"TRANSFORMER_BASED_WRAP", NULL}, {"SIZE_BASED_WRAP", NULL},
                        {"NO_WRAP", NULL}),
     .systems = FSDP},
    {.path = C("min_num_params"), .kind = KEY_INTEGER},
    {.path = C("backward_prefetch"), .kind = KEY_WORD, .setting = "backward-prefetch",
     .words = KEY_WORDS({"BACKWARD_PRE", "pre"}, {"BACKWARD_POST", "post"}, {"NO_PREFETCH", "none"}),
     .initial = "NO_PREFETCH", .systems = FSDP1},
    {.path = C("forward_prefetch"), .kind = KEY_BOOL, .setting = "forward-prefetch",
     .words = KEY_WORDS({"true", "1"}, {"false", "0"}), .initial = "false", .systems = FSDP1},
    {.path = C("use_orig_params"), .kind = KEY_BOOL, .setting = "use-orig-params",
     .words = KEY_WORDS({"true", "on"}, {"false", "off"}), .initial = "true", .systems = FSDP1},
    {.path = C("limit_all_gathers"), .kind = KEY_BOOL, .setting = "limit-all-gathers",
     .words = KEY_WORDS({"true", "on"}, {"false", "off"}), .systems = FSDP1},
    {.path = C("activation_checkpointing"), .kind = KEY_BOOL, .setting = "checkpointing",
     .read = read_checkpointing},
    {.path = C("xla"), .kind = KEY_BOOL, .neutral = "false", .why = "XLA's FSDP"},
    IDLE(C("xla_fsdp_v2")), IDLE(C("xla_fsdp_grad_ckpt")), IDLE(C("xla_fsdp_settings")),
    IDLE(C("state_dict_type")), IDLE(C("sync_module_states")), IDLE(C("cpu_ram_efficient_loading")),
    {.path = "gradient_checkpointing", .kind = KEY_ANY, .read = transformers_read_checkpoints},
    ELSEWHERE("disable_gradient_checkpointing", KEY_BOOL),
    OFF("use_unsloth_gc", "checkpoints on the host: planned on the GPU"),
    {.path = "gradient_checkpointing_kwargs.use_reentrant", .kind = KEY_BOOL,
     .setting = "checkpoint-reentrant", .read = transformers_read_reentrant},
    ELSEWHERE("use_reentrant_gc", KEY_BOOL),
    {.path = "activation_offloading", .kind = KEY_ANY, .setting = "activation-offloading",
     .read = transformers_read_offloading, .why = "activations on the host: planned on the GPU"},
    OFF("layer_offloading", "layers on the host: planned on the GPU"),
    {.path = "selective_checkpointing", .kind = KEY_ANY, .neutral = "false",
     .why = "attention is kept: planned as full; --checkpointing selective keeps more"},
    IDLE_SECTION("gradient_checkpointing_kwargs"),

    {.path = "model_name_or_path", .kind = KEY_TEXT, .setting = "model", .read = transformers_read_model},
    {.path = WRAPPED, .kind = KEY_ANY, .read = read_wrapped, .systems = FSDP},
    {.path = "model_type", .kind = KEY_TEXT, .read = read_class},
    {.path = "load_in_4bit", .kind = KEY_BOOL, .setting = "load-in-4bit",
     .read = transformers_read_bits, .why = "frozen weights in 4 bits"},
    {.path = "load_in_8bit", .kind = KEY_BOOL, .setting = "load-in-8bit",
     .read = transformers_read_bits, .why = "frozen weights in 8 bits"},
    {.path = "quantize_moe_experts", .kind = KEY_BOOL, .setting = "quantize-moe-experts",
     .read = transformers_read_experts},
    {.path = "quantization_bit", .kind = KEY_ANY, .setting = "load-in-4bit",
     .read = transformers_read_bits, .why = "frozen weights in few bits"},
    ELSEWHERE("quantization_method", KEY_TEXT), ELSEWHERE("quantization_type", KEY_TEXT),
    ELSEWHERE("double_quantization", KEY_BOOL), ELSEWHERE("bnb_4bit_quant_type", KEY_TEXT),
    ELSEWHERE("use_bnb_nested_quant", KEY_BOOL),
    ELSEWHERE("bnb_config_kwargs.bnb_4bit_quant_type", KEY_TEXT),
    ELSEWHERE("bnb_config_kwargs.bnb_4bit_use_double_quant", KEY_BOOL),
    ELSEWHERE("bnb_config_kwargs.bnb_4bit_quant_storage", KEY_TEXT),
    ELSEWHERE("bnb_config_kwargs.llm_int8_skip_modules", KEY_ANY),
    ELSEWHERE("bnb_4bit_quant_storage", KEY_TEXT), IDLE("quantization_device_map"),
    {.path = "cutoff_len", .kind = KEY_INTEGER, .least = 1, .setting = "seq"},
    {.path = "bf16", .kind = KEY_BOOL, .setting = "param-dtype", .read = read_dtype,
     .twin = "bf16.enabled"},
    {.path = "fp16", .kind = KEY_BOOL, .setting = "param-dtype", .read = import_elsewhere,
     .twin = "fp16.enabled"},
    {.path = "tf32", .kind = KEY_BOOL},
    {.path = "finetuning_type", .kind = KEY_WORD, .setting = "lora",
     .words = KEY_WORDS(O("lora"), O("full"), O("freeze"), O("oft")),
     .read = transformers_read_adapters},
    {.path = "use_peft", .kind = KEY_BOOL, .syntaxes = FOR_SYNTAX(YAML), .read = import_elsewhere},
    {.path = "dtype", .kind = KEY_TEXT, .setting = "store-dtype", .read = transformers_read_loaded},
    {.path = "adapter", .kind = KEY_TEXT, .syntaxes = FOR_SYNTAX(YAML),
     .read = transformers_read_adapter, .words = KEY_WORDS(O("lora"), O("qlora"), O("llama-adapter"))},
    {.path = "cut_cross_entropy", .kind = KEY_BOOL, .why = TRANSFORMERS_NO_LOGITS,
     .read = transformers_read_cut},
    OFF("use_eaft", "a loss of its own on all logits: planned as cross-entropy"),
    IDLE("eaft_alpha"), IDLE("eaft_k"),
    OFF("chunked_cross_entropy", "the loss of some tokens at a time: planned of all at once"),
    OFF("liger_rms_norm_gated", TRANSFORMERS_LIGER), IDLE("liger_layer_norm"),
    OFF("unsloth_cross_entropy_loss", UNSLOTH), OFF("unsloth_rms_norm", UNSLOTH),
    OFF("unsloth_rope", UNSLOTH), OFF("unsloth_lora_mlp", UNSLOTH),
    OFF("unsloth_lora_qkv", UNSLOTH), OFF("unsloth_lora_o", UNSLOTH),
    WITH("unfrozen_parameters", "some parameters alone are trained: planned as all; --freeze"),
    {.path = "kd_trainer", .kind = KEY_ANY, .neutral = "false",
     .why = "another objective, with a teacher's probabilities: planned as fine-tuning"},
    {.path = "freeze_vision_tower", .kind = KEY_BOOL, .setting = "tower", .read = transformers_read_tower},
    {.path = "freeze_mm_modules", .kind = KEY_BOOL, .setting = "tower", .read = transformers_read_tower},
    IDLE("freeze_multi_modal_projector"),
    OFF("freeze_language_model", "the text model is frozen: planned as trained; --freeze"),
    ELSEWHERE("lora_rank", KEY_INTEGER), ELSEWHERE("lora_target", KEY_ANY),
    ELSEWHERE("lora_target_modules", KEY_ANY), ELSEWHERE("lora_target_linear", KEY_BOOL),
    IDLE("lora_alpha"), IDLE("use_rslora"), IDLE("peft_use_rslora"), IDLE("pissa_init"),
    IDLE("pissa_iter"), IDLE("peft_init_lora_weights"), IDLE("lora_fan_in_fan_out"),
    IDLE("lora_on_cpu"), IDLE("merge_lora"), IDLE("create_new_adapter"),
    {.path = "lora_dropout", .kind = KEY_REAL, .setting = "lora-dropout",
     .read = transformers_read_adapter_dropout},
    OFF("use_dora", "DoRA's magnitudes"), OFF("peft_use_dora", "DoRA's magnitudes"),
    WITH("lora_modules_to_save", "modules that are trained whole: planned as frozen"),
    WITH("additional_target", "modules that are trained whole: planned as frozen"),
    WITH("lora_target_parameters", "adapters of parameters: planned without"),
    WITH("lora_rank_pattern", "ranks of their own: planned with one"),
    WITH("peft_layers_to_transform", "adapters of some layers: planned in all"),
    WITH("lora_model_dir", "an adapter that is there has a rank of its own"),
    WITH("adapter_name_or_path", "an adapter that is there has a rank of its own"),
    WITH("loraplus_lr_ratio", "groups of parameters: planned as one"),
    {.path = "peft_autocast_adapter_dtype", .kind = KEY_BOOL, .setting = "store-dtype",
     .read = transformers_read_adapter_dtype, .why = "adapters in the model's dtype: planned in fp32"},
    DEGREE("tensor_parallel_size", "tensor parallelism"),
    DEGREE("context_parallel_size", "context parallelism"),
    DEGREE("sequence_parallel_degree", "context parallelism"),
    {.path = "dp_replicate_size", .kind = KEY_INTEGER, .least = 1, .setting = "replicate",
     .systems = FSDP},
    {.path = "dp_shard_size", .kind = KEY_INTEGER, .least = 1, .setting = "gpus",
     .read = read_dp_shards, .systems = FSDP},
    {.path = "per_device_train_batch_size", .kind = KEY_INTEGER, .least = 1,
     .setting = "micro-batch", .initial = "8", .twin = "train_micro_batch_size_per_gpu"},
    {.path = "gradient_accumulation_steps", .kind = KEY_INTEGER, .least = 1,
     .setting = "accumulate", .initial = "1", .twin = "gradient_accumulation_steps"},
    {.path = "batch_size", .kind = KEY_INTEGER, .least = 1, .read = read_batch},
    {.path = "max_grad_norm", .kind = KEY_REAL, .setting = "clip", .initial = "1.0",
     .words = KEY_WORDS({"0", "off"}, {"0.0", "off"}), .twin = "gradient_clipping"},
    {.path = "optim", .kind = KEY_WORD, .setting = "optimizer", .read = read_optim,
     .words = OPTIMS, .initial = "adamw_torch_fused", .why = "this optimizer: planned as AdamW"},
    {.path = "ddp_bucket_cap_mb", .kind = KEY_REAL, .setting = "bucket-cap-mb", .systems = DDP},
    {.path = "ddp_find_unused_parameters", .kind = KEY_BOOL, .setting = "find-unused-parameters",
     .words = KEY_WORDS({"true", "on"}, {"false", "off"}), .systems = DDP, .read = read_unused},
    {.path = "ddp_broadcast_buffers", .kind = KEY_BOOL, .setting = "broadcast-buffers",
     .words = KEY_WORDS({"true", "on"}, {"false", "off"}), .systems = DDP},
    {.path = "ddp_static_graph", .kind = KEY_BOOL, .setting = "static-graph",
     .words = KEY_WORDS({"true", "on"}, {"false", "off"}), .systems = DDP},
    {.path = "neftune_noise_alpha", .kind = KEY_REAL, .why = "noise on embeddings"},
    {.path = "deepspeed", .kind = KEY_ANY, .read = import_elsewhere},
    {.path = "stage", .kind = KEY_WORD, .read = transformers_read_objective,
     .words = KEY_WORDS(O("pt"), O("sft"), O("rm"), O("ppo"), O("dpo"), O("kto"))},
    {.path = "rl", .kind = KEY_TEXT, .read = transformers_read_objective},
    {.path = "reward_model", .kind = KEY_ANY, .read = transformers_read_objective},
    {.path = "loss_type", .kind = KEY_ANY, .read = transformers_read_loss_type},
    {.path = GRPO_PROMPT, .kind = KEY_INTEGER, .least = 1, .read = transformers_read_policy},
    {.path = GRPO_COMPLETION, .kind = KEY_INTEGER, .least = 1, .read = transformers_read_policy},
    IDLE("pref_loss"), IDLE("pref_beta"), IDLE("rl_beta"), ELSEWHERE("precompute_ref_log_probs", KEY_ANY), IDLE("desirable_weight"),
    IDLE("undesirable_weight"), IDLE("reference_free"),
    {.path = "attn_implementation", .kind = KEY_TEXT, .setting = "attention",
     .read = read_attention},
    OFF("gemma4_hybrid_attn_impl", HYBRID),
    {.path = "flash_attention", .kind = KEY_BOOL, .setting = "attention", .read = read_flash},
    {.path = "flash_attn", .kind = KEY_WORD, .setting = "attention", .read = read_flash,
     .words = KEY_WORDS(O("auto"), O("sdpa"), O("disabled"), O("fa2"), O("fa3"))},
    {.path = "sdp_attention", .kind = KEY_BOOL},
    {.path = "eager_attention", .kind = KEY_BOOL, .setting = "attention",
     .words = KEY_WORDS({"true", "eager"}, O("false"))},
    {.path = "sample_packing", .kind = KEY_BOOL, .read = transformers_read_packing, .why = PACKING},
    {.path = "pad_to_sequence_len", .kind = KEY_BOOL, .read = transformers_read_padding},
    {.path = "packing", .kind = KEY_BOOL, .read = transformers_read_packing, .why = PACKING},
    {.path = "neat_packing", .kind = KEY_BOOL, .read = transformers_read_packing, .why = PACKING},
    {.path = "padding_free", .kind = KEY_BOOL, .read = transformers_read_packing, .why = PACKING},
    OFF("use_unsloth", UNSLOTH),
    OFF("pure_bf16", "stored and trained in bf16: planned as without it; --store-dtype bf16"),
    OFF("use_galore", OTHER_STATES), OFF("use_apollo", OTHER_STATES), OFF("use_adam_mini", OTHER_STATES),
    OFF("use_muon", OTHER_STATES), OFF("use_badam", "a block at a time is trained: planned as all at once"),
    OFF("shift_attn", "shifted attention: planned as the model's own"),
    OFF("upcast_layernorm", "norms in fp32: planned as the model is stored"),
    OFF("upcast_lmhead_output", "logits cast to fp32 once more: planned as the model returns them"),
    OFF("resize_vocab", "as many rows as the tokenizer has words: planned as the config.json says"),
    {.path = "mixture_of_depths", .kind = KEY_TEXT, .why = "tokens that pass layers by: planned as through all"},
    {.path = "torch_compile", .kind = KEY_BOOL, .read = read_compile},
    {.path = "torch_compile_backend", .kind = KEY_TEXT, .read = import_elsewhere},
    {.path = "torch_compile_mode", .kind = KEY_TEXT, .read = import_elsewhere},
    {.path = "plugins", .kind = KEY_ANY, .read = transformers_read_plugins},
    {.path = "lora_mlp_kernel", .kind = KEY_BOOL, .setting = "lora-kernels",
     .read = transformers_read_lora_kernels},
    {.path = "lora_qkv_kernel", .kind = KEY_BOOL, .read = transformers_read_lora_kernel},
    {.path = "lora_o_kernel", .kind = KEY_BOOL, .read = transformers_read_lora_kernel},
    {.path = "use_liger_kernel", .kind = KEY_BOOL, .setting = "liger",
     .read = transformers_read_liger},
    OFF("completion_only_loss", FEWER_TARGETS), OFF("assistant_only_loss", FEWER_TARGETS),
    {.path = "beta", .kind = KEY_REAL, .read = transformers_read_objective},
    {.path = "center_rewards_coefficient", .kind = KEY_ANY, .read = transformers_read_objective},
    {.path = "num_generations", .kind = KEY_INTEGER, .least = 1, .read = transformers_read_policies},
    ELSEWHERE("num_iterations", KEY_INTEGER), ELSEWHERE("steps_per_generation", KEY_INTEGER),
    ELSEWHERE("generation_batch_size", KEY_INTEGER),
    {.path = "use_vllm", .kind = KEY_BOOL, .read = transformers_read_vllm},
    ELSEWHERE("vllm_mode", KEY_TEXT), ELSEWHERE("vllm_gpu_memory_utilization", KEY_REAL),
    ELSEWHERE("vllm_enable_sleep_mode", KEY_BOOL),
    ELSEWHERE("vllm_importance_sampling_correction", KEY_BOOL),
    ELSEWHERE("vllm_importance_sampling_mode", KEY_TEXT),
    ELSEWHERE("importance_sampling_level", KEY_TEXT), ELSEWHERE("top_entropy_quantile", KEY_REAL),
    ELSEWHERE("entropy_coef", KEY_REAL), ELSEWHERE("use_adaptive_entropy", KEY_BOOL),
    ELSEWHERE("delta", KEY_ANY), ELSEWHERE("off_policy_mask_threshold", KEY_ANY),
    ELSEWHERE("use_bias_correction_kl", KEY_BOOL), ELSEWHERE("cast_lm_head_to_fp32", KEY_BOOL),
    IDLE("epsilon"), IDLE("epsilon_high"), IDLE("num_generations_eval"), IDLE("temperature"),
    IDLE("top_p"), IDLE("top_k"), IDLE("min_p"), IDLE("repetition_penalty"), IDLE("scale_rewards"),
    IDLE("normalize_advantages"), IDLE("reward_clip_range"), IDLE("reward_weights"), IDLE("reward_funcs"), IDLE("log_completions"),
    IDLE("num_completions_to_print"), IDLE("mask_truncated_completions"),
    IDLE("shuffle_dataset"), IDLE("vllm_server_host"), IDLE("vllm_server_port"),
    IDLE("vllm_server_base_url"), IDLE("vllm_server_timeout"), IDLE("vllm_group_port"),
    IDLE("vllm_tensor_parallel_size"), IDLE("vllm_max_model_length"), IDLE("vllm_model_impl"),
    {.path = TRLS_HEAD, .kind = KEY_BOOL, .setting = "loss",
     .read = transformers_read_lm_head},
    LIGER("enable_liger_kernel"), /* LLaMA-Factory's name */
    {.path = "liger_kernel_config", .kind = KEY_SECTION, .read = import_elsewhere},
    LIGER("liger_rope"), LIGER("liger_rms_norm"), LIGER("liger_glu_activation"),
    LIGER("liger_fused_linear_cross_entropy"), LIGER("liger_cross_entropy"),
#include "frameworks/framework_transformers_listed.def"
    IDLE("learning_rate"), IDLE("weight_decay"), IDLE("adam_beta1"), IDLE("adam_beta2"),
    IDLE("adam_epsilon"), IDLE("lr_scheduler_type"), IDLE_SECTION("lr_scheduler_kwargs"),
    IDLE("warmup_ratio"), IDLE("warmup_steps"), IDLE("num_train_epochs"), IDLE("max_steps"),
    IDLE("output_dir"), IDLE("overwrite_output_dir"), IDLE("do_train"), IDLE("do_eval"),
    {.path = "do_predict", .kind = KEY_BOOL, .read = transformers_read_no_training},
    {.path = "export_dir", .kind = KEY_TEXT, .read = transformers_read_no_training},
    {.path = "infer_backend", .kind = KEY_TEXT, .read = transformers_read_no_training},
    IDLE("eval_strategy"), IDLE("evaluation_strategy"), IDLE("eval_steps"),
    IDLE("per_device_eval_batch_size"), IDLE("logging_dir"), IDLE("logging_steps"),
    IDLE("logging_strategy"), IDLE("save_strategy"), IDLE("save_steps"), IDLE("save_total_limit"),
    IDLE("seed"), IDLE("data_seed"), IDLE("report_to"), IDLE("run_name"), IDLE("ddp_timeout"),
    IDLE("dataloader_num_workers"), IDLE("dataloader_pin_memory"), IDLE("dataloader_drop_last"),
    IDLE("datasets"), IDLE("dataset"), IDLE("dataset_dir"), IDLE("dataset_prepared_path"),
    IDLE("val_set_size"), IDLE("val_size"), IDLE("num_epochs"), IDLE("lr_scheduler"),
    IDLE("wandb_project"), IDLE("wandb_entity"), IDLE("wandb_watch"), IDLE("wandb_name"),
    IDLE("wandb_log_model"), IDLE("saves_per_epoch"), IDLE("evals_per_epoch"),
    IDLE_SECTION("special_tokens"), IDLE_SECTION("dataset_mixture"), IDLE("template"), IDLE("max_samples"), IDLE("overwrite_cache"),
    IDLE("preprocessing_num_workers"), IDLE("plot_loss"), IDLE("save_only_model"),
    IDLE("trust_remote_code"), IDLE("remove_unused_columns"), IDLE("resume_from_checkpoint"), IDLE("push_to_hub"),
    IDLE("disable_tqdm"), IDLE("logging_first_step"), IDLE("bf16_full_eval"), IDLE("fp16_full_eval"),
    IDLE("local_rank"), IDLE("strict"), IDLE("model_revision"), IDLE("tokenizer_type"),
    IDLE("tokenizer_use_mistral_common"), IDLE("processor_type"), IDLE("chat_template"),
    IDLE("eot_tokens"), IDLE("train_on_inputs"), IDLE("early_stopping_patience"),
    IDLE("eval_batch_size"), IDLE("push_dataset_to_hub"), IDLE("wandb_run_id"), IDLE("debug"),
    IDLE("eos_token"), IDLE("hub_strategy"), IDLE("log_level"), IDLE("dataset_num_proc"),
    IDLE("hub_model_id"), IDLE("eval_sample_packing"), IDLE("tokens.bos_token"),
    IDLE("tokens.eos_token"), IDLE("tokens.unk_token"), IDLE("tokens.pad_token"),
    IDLE("dataset_name"), IDLE("dataset_config"), IDLE("dataset_train_split"),
    IDLE("dataset_test_split"), IDLE("dataset_streaming"), IDLE("dataset_text_field"),
    IDLE_SECTION("dataset_kwargs"), IDLE("truncation_mode"), IDLE("shuffle_dataset"),
    IDLE("eval_packing"), IDLE("pad_token"),
    IDLE("loss_watchdog_threshold"), IDLE("loss_watchdog_patience"),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct implied_setting implied[] = {
    {"code", "hf", 0, NULL, NULL},
    {"optimizer", "adamw", 0, NULL, NULL},
    {"accumulate-sync", "last", FSDP | DDP, NULL, NULL},
    {"expandable-segments", "on", FSDP | DDP | ZERO, LLAMA_FACTORY_LAUNCHES,
     transformers_is_llama_factory},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct script_setting script[] = {
    {"model", "the model: %s", NULL, false},
    {"gpus", "what the launcher starts: %s", NULL, false},
    {"seq", "tokens of a sequence: %s", NULL, false},
    {NULL, NULL, NULL, false},
};

/* ["full_shard", "auto_wrap"] is "full_shard auto_wrap". */
static void join_words(struct document *document)
{
    struct node *node = document_find(document, "fsdp");
    const char *text = "";
    if (!node || node->kind != NODE_LIST)
        return;
    for (const struct node *n = node->first; n; n = n->next)
        text = arena_printf(&document->arena, "%s%s%s", text, *text ? " " : "",
                            n->text ? n->text : "?");
    node->kind = NODE_TEXT;
    node->text = text;
}

static bool is_config_alone(const struct document *document)
{
    static const char *const arguments[] = {
        "fsdp",      "fsdp_config", "per_device_train_batch_size",
        "deepspeed", "base_model",  "model_name_or_path"};
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++)
        if (document_find(document, arguments[i]))
            return false;
    return true;
}

/* A file of fsdp_config alone becomes the TrainingArguments that it is for; its keys lose "fsdp_".
 */
static void prepare(struct document *document)
{
    struct node *config = document_find(document, "fsdp_config");
    if (is_config_alone(document)) {
        struct node *root = document->root;
        document->root = arena_alloc(&document->arena, sizeof *root);
        document->root->kind = NODE_TABLE;
        node_add(document, document->root, "fsdp", NODE_BOOL, "true", 0)->read = true;
        root->key = "fsdp_config";
        document->root->last = document->root->last->next = config = root;
    }
    join_words(document);
    for (struct node *n = config && config->kind == NODE_TABLE ? config->first : NULL; n;
         n = n->next)
        if (n->key && strncmp(n->key, "fsdp_", 5) == 0)
            n->key += 5;
    transformers_others(document);
}

const struct framework framework_transformers = {
    .name = "transformers",
    .about = "TrainingArguments of transformers",
    .about_file = transformers_about,
    KEY_ROWS(rows),
    .implied = implied,
    .script = script,
    .systems = FSDP | DDP | SINGLE,
    .versions = "transformers 5",
    .syntax = SYNTAX_JSON,
    .prepare = prepare,
    .renamed = transformers_renamed,
    .other_name = transformers_other_name,
    .named = "deepspeed",
    .named_framework = &framework_deepspeed,
    .named_from = transformers_named_from,
    .loose = true,
};
