/* framework_deepspeed.c - DeepSpeed's JSON, whole: keys and defaults of runtime/config.py and
 * runtime/zero/config.py (0.19.8), read in the sources.
 *
 * The keys of zero_optimization are checked here and planned from the file itself (`--zero FILE`).
 * "auto" is the Hugging Face Trainer's: its arguments decide. */
#include "frameworks/framework.h"

#include "base/number.h"

#include <stdio.h>
#include <string.h>

enum { ZERO = FOR_SYSTEM(ZERO1) | FOR_SYSTEM(ZERO2) | FOR_SYSTEM(ZERO3) };

static enum err_code read_stage(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    const long long stage = import_integer(im, row->path, 0);
    if (stage == 0 && import_has(im, "strategy")) /* then another system is asked for */
        return ERR_OK;
    if (stage == 0) /* engine.py, _do_optimizer_sanity_check; NotImplementedError */
        return import_refuse(im, row->path, node, err,
                             "allowed are 1, 2, 3: without ZeRO every rank updates whole fp32 "
                             "copies of its own (of 16 bits, FP16_UnfusedOptimizer or "
                             "FP16_Optimizer), which is not planned; with another "
                             "data_types.grad_accum_dtype DeepSpeed refuses it itself");
    if (stage < 1 || stage > 3)
        return import_refuse(im, row->path, node, err, "allowed are 1, 2, 3");
    return import_set(im, "strategy", import_text(im, "zero%lld", stage), row, node, err);
}

static const char *write_stage(const struct settings *s, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%u", system_zero_stage(s->job.strategy.system));
    return text;
}

/* ---- --offload ---- */

static const char *write_offload_optimizer(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return s->zero_offload != ZERO_OFFLOAD_NONE ? "cpu" : NULL;
}

static const char *write_offload_param(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return s->zero_offload == ZERO_OFFLOAD_ALL && s->job.strategy.system == SYSTEM_ZERO3 ? "cpu"
                                                                                         : NULL;
}

/* ---- dtypes ---- */

static bool says(const struct import *im, const char *path, const char *text)
{
    const struct node *node = import_node(im, path);
    return node && node->text && strcmp(node->text, text) == 0;
}

static bool enabled(const struct import *im, const char *path)
{
    return says(im, path, "true");
}

static bool is_auto(const struct import *im, const char *path)
{
    return says(im, path, "auto");
}

/* "auto" is whether the Trainer has --bf16 (--fp16), or accelerate that mixed_precision. Where that
 * is open it is planned as what the file makes room for: nobody writes it to train in fp32. */
static enum err_code read_dtype(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    if (enabled(im, "bf16.enabled") && enabled(im, "fp16.enabled")) /* DeepSpeedConfig */
        return import_refuse(im, "fp16.enabled", import_node(im, "fp16.enabled"), err,
                             "bf16.enabled (line %u) is true, too, and DeepSpeed refuses both: "
                             "leave one of them out",
                             import_node(im, "bf16.enabled")->line);
    if (im->in_named && !enabled(im, "bf16.enabled") && !enabled(im, "fp16.enabled"))
        return ERR_OK; /* who names the file fills it in */
    const char *dtype = enabled(im, "bf16.enabled")   ? "bf16"
                        : enabled(im, "fp16.enabled") ? "fp16"
                        : is_auto(im, "bf16.enabled") ? "bf16"
                        : is_auto(im, "fp16.enabled") ? "fp16"
                                                      : "fp32";
    if (node && is_auto(im, row->path) && !import_is_given(im, "param-dtype"))
        import_open(im, node, row->path,
                    import_text(im,
                                "the Trainer's bf16 and fp16 decide: planned in %s; without either "
                                "of them it is --param-dtype fp32",
                                dtype));
    return import_set(im, "param-dtype", dtype, row, node, err);
}

static const char *is_dtype(const struct settings *s, enum dtype dtype)
{
    return s->job.strategy.compute == dtype ? "true" : NULL;
}

static const char *write_bf16(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return is_dtype(s, DTYPE_BF16);
}

static const char *write_fp16(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return is_dtype(s, DTYPE_FP16);
}

/* In the dtype that the model computes in gradients add up without the key, too. */
static enum err_code read_grad_accum_dtype(struct import *im, const struct key_row *row,
                                           const struct node *node, struct err *err)
{
    static const char *const dtypes[][2] = {
        {"fp32", "fp32"}, {"float32", "fp32"}, {"bf16", "bf16"}, {"bfloat16", "bf16"},
        {"fp16", "fp16"}, {"float16", "fp16"}, {"half", "fp16"}};
    char buffer[NUMBER_TEXT];
    const char *value = NULL;
    const char *own = import_value(im, "param-dtype", buffer);
    for (size_t i = 0; node && i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i][0], node->text) == 0)
            value = dtypes[i][1];
    if (!value)
        return ERR_OK;
    if (own && strcmp(value, own) == 0)
        return import_set(im, "grad-accum-dtype", "same", row, node, err);
    if (strcmp(value, "fp32") == 0)
        return import_set(im, "grad-accum-dtype", value, row, node, err);
    import_list(im, node, row->path,
                import_text(im, "another dtype than the model's: planned as %s", own ? own : "it"));
    return ERR_OK;
}

/* What it is without the key needs none. */
static const char *write_grad_accum_dtype(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return s->job.strategy.grad_accum_fp32 ? "fp32" : NULL;
}

/* ---- the batch: two of three numbers give the third ---- */

static long long value_of(const struct import *im, const char *setting)
{
    char buffer[NUMBER_TEXT];
    uint64_t value = 0;
    const char *text = import_value(im, setting, buffer);
    return text && number_integer(text, &value) ? (long long)value : 1;
}

static enum err_code read_train_batch(struct import *im, const struct key_row *row,
                                      const struct node *node, struct err *err)
{
    const long long whole = import_integer(im, row->path, -1);
    const bool gpus = import_has(im, "gpus"), micro = import_has(im, "micro-batch");
    const bool accumulate = import_has(im, "accumulate");
    const char *open = !gpus && micro && accumulate ? "gpus" : micro ? "accumulate" : "micro-batch";
    const long long known = (strcmp(open, "gpus") == 0 ? 1 : value_of(im, "gpus")) *
                            (micro ? value_of(im, "micro-batch") : 1) *
                            (accumulate ? value_of(im, "accumulate") : 1);
    const bool all = gpus && micro && accumulate;
    if (whole < 1)
        return ERR_OK;
    if (whole % known != 0 || (all && whole != known))
        return import_refuse(im, row->path, node, err,
                             "%lld GPUs x train_micro_batch_size_per_gpu x "
                             "gradient_accumulation_steps are %lld%s",
                             value_of(im, "gpus"), known, gpus ? "" : ": give --gpus");
    return all ? ERR_OK
               : import_set(im, open, import_text(im, "%lld", whole / known), row, node, err);
}

/* An optimizer of the file is DeepSpeed's fused one; any other is built by the script. */
static bool has_own_optimizer(const struct settings *s)
{
    const enum optimizer_kind kind = s->job.strategy.optimizer;
    return s->job.strategy.impl != IMPL_FUSED || (kind != OPTIMIZER_ADAMW && kind != OPTIMIZER_SGD);
}

static const char *write_optimizer(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return has_own_optimizer(s)                         ? NULL
           : s->job.strategy.optimizer == OPTIMIZER_SGD ? "SGD"
                                                        : "AdamW";
}

static const char *write_train_batch(const struct settings *s, char text[NUMBER_TEXT])
{
    const struct job *job = &s->job;
    snprintf(text, NUMBER_TEXT, "%llu",
             (unsigned long long)job->model.batch * job->strategy.world * job->strategy.accumulate);
    return text;
}

/* ---- the table ---- */

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses): what the macros hold are initialisers */
#define IDLE(key) {.path = key, .kind = KEY_ANY}
#define IDLE_SECTION(key) {.path = key, .kind = KEY_SECTION}
#define UNPLANNED(key, what) {.path = key, .kind = KEY_SECTION, .why = what}
#define FLAG(key, off, what) {.path = key, .kind = KEY_BOOL, .neutral = off, .why = what}
/* planned from the file, by --zero */
#define Z(key, of_kind, from) {.path = "zero_optimization." key, .kind = of_kind, .least = from,     \
                               .is_auto = true, .systems = ZERO, .read = read_zero}
/* What the Trainer has of the model */
#define OF_HIDDEN(key, from) {.path = "zero_optimization." key, .kind = KEY_INTEGER, .least = from,  \
                              .is_auto = true, .systems = ZERO, .read = read_zero,                 \
                              .why = "of the hidden size, as transformers' Trainer fills it in"}
#define DEVICES(key, reader, writer) {.path = "zero_optimization." key, .kind = KEY_WORD,                    \
                      .setting = "offload",                                                          \
                      .words = KEY_WORDS({"none", NULL}, {"cpu", NULL}, {"nvme", NULL}),             \
                      .systems = ZERO, .read = reader, .write = writer}

/* A key of zero_optimization: `--zero FILE` reads it again; here its kind was checked. */
static enum err_code read_zero(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    (void)err;
    if (node && !settings_find(im->settings, "zero", NULL))
        import_list(im, node, row->path, "this version has no --zero");
    return ERR_OK;
}

/* Where it is what --offload adds, it is that, too. */
static enum err_code read_offload(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const bool param = says(im, "zero_optimization.offload_param.device", "cpu");
    TRY(read_zero(im, row, node, err));
    if (!says(im, row->path, "cpu"))
        return ERR_OK;
    return import_set(im, "offload", param ? "cpu" : "optimizer", row, node, err);
}

static const struct key_row rows[] = {
    {.path = "zero_optimization", .kind = KEY_TABLE},
    {.path = "zero_optimization.stage", .kind = KEY_INTEGER, .setting = "strategy",
     .read = read_stage, .write = write_stage},
    Z("contiguous_gradients", KEY_BOOL, 0), Z("reduce_scatter", KEY_BOOL, 0),
    OF_HIDDEN("reduce_bucket_size", 1), Z("use_multi_rank_bucket_allreduce", KEY_BOOL, 0),
    Z("allgather_partitions", KEY_BOOL, 0), Z("allgather_bucket_size", KEY_INTEGER, 0),
    Z("overlap_comm", KEY_BOOL, 0), Z("load_from_fp32_weights", KEY_BOOL, 0),
    Z("elastic_checkpoint", KEY_BOOL, 0), Z("sub_group_size", KEY_INTEGER, 0),
    Z("cpu_offload", KEY_BOOL, 0), Z("cpu_offload_params", KEY_BOOL, 0),
    Z("cpu_offload_use_pin_memory", KEY_BOOL, 0),
    OF_HIDDEN("stage3_prefetch_bucket_size", 0),
    OF_HIDDEN("stage3_param_persistence_threshold", 0),
    Z("stage3_model_persistence_threshold", KEY_INTEGER, 0),
    Z("stage3_max_live_parameters", KEY_INTEGER, 0), Z("stage3_max_reuse_distance", KEY_INTEGER, 0),
    Z("stage3_gather_16bit_weights_on_model_save", KEY_BOOL, 0),
    Z("stage3_gather_fp16_weights_on_model_save", KEY_BOOL, 0),
    Z("stage3_module_granularity_threshold", KEY_INTEGER, 0),
    Z("stage3_use_all_reduce_for_fetch_params", KEY_BOOL, 0),
    Z("stage3_allgather_sequential", KEY_BOOL, 0), Z("ignore_unused_parameters", KEY_BOOL, 0),
    Z("legacy_stage1", KEY_BOOL, 0), Z("round_robin_gradients", KEY_BOOL, 0),
    Z("zero_hpz_partition_size", KEY_INTEGER, 0), Z("zero_quantized_weights", KEY_BOOL, 0),
    Z("zero_quantized_nontrainable_weights", KEY_BOOL, 0),
    Z("zero_quantized_gradients", KEY_BOOL, 0), Z("zeropp_loco_param", KEY_TABLE, 0),
    Z("mics_shard_size", KEY_INTEGER, -1), Z("mics_hierarchical_params_gather", KEY_BOOL, 0),
    Z("memory_efficient_linear", KEY_BOOL, 0), Z("pipeline_loading_checkpoint", KEY_BOOL, 0),
    Z("override_module_apply", KEY_BOOL, 0), Z("log_trace_cache_warnings", KEY_BOOL, 0),
    Z("leaf_module", KEY_ANY, 0), Z("enable_sanity_checks", KEY_BOOL, 0),
    {.path = "zero_optimization.offload_optimizer", .kind = KEY_TABLE},
    {.path = "zero_optimization.offload_param", .kind = KEY_TABLE},
    DEVICES("offload_optimizer.device", read_offload, write_offload_optimizer),
    DEVICES("offload_param.device", read_zero, write_offload_param),
    Z("offload_optimizer.pin_memory", KEY_BOOL, 0), Z("offload_optimizer.nvme_path", KEY_TEXT, 0),
    Z("offload_optimizer.buffer_count", KEY_INTEGER, 0),
    Z("offload_optimizer.buffer_size", KEY_INTEGER, 0),
    Z("offload_optimizer.pipeline_read", KEY_BOOL, 0),
    Z("offload_optimizer.pipeline_write", KEY_BOOL, 0),
    Z("offload_optimizer.fast_init", KEY_BOOL, 0), Z("offload_optimizer.ratio", KEY_REAL, 0),
    Z("offload_optimizer.super_offload", KEY_BOOL, 0),
    Z("offload_optimizer.cpuadam_cores_perc", KEY_REAL, 0),
    Z("offload_param.pin_memory", KEY_BOOL, 0), Z("offload_param.nvme_path", KEY_TEXT, 0),
    Z("offload_param.buffer_count", KEY_INTEGER, 0),
    Z("offload_param.buffer_size", KEY_INTEGER, 0), Z("offload_param.max_in_cpu", KEY_INTEGER, 0),

    {.path = "bf16", .kind = KEY_TABLE},
    {.path = "bf16.enabled", .kind = KEY_BOOL, .setting = "param-dtype", .read = read_dtype,
     .write = write_bf16, .is_auto = true, .reads_auto = true},
    {.path = "fp16", .kind = KEY_TABLE},
    {.path = "fp16.enabled", .kind = KEY_BOOL, .setting = "param-dtype", .read = read_dtype,
     .write = write_fp16, .is_auto = true, .reads_auto = true},
    IDLE("bf16.check_grad_overflow"), IDLE("bf16.immediate_grad_update"),
    FLAG("bf16.bf16_master_weights_and_grads", "false", "bf16 master weights"),
    FLAG("bf16.bf16_optimizer_states", "false", "bf16 optimizer states"),
    IDLE("fp16.auto_cast"), IDLE("fp16.loss_scale"), IDLE("fp16.initial_scale_power"),
    IDLE("fp16.loss_scale_window"), IDLE("fp16.hysteresis"), IDLE("fp16.min_loss_scale"),
    IDLE("fp16.consecutive_hysteresis"), IDLE("fp16.opt_level"),
    FLAG("fp16.fp16_master_weights_and_grads", "false", "fp16 master weights"),
    UNPLANNED("amp", "apex's mixed precision"),
    {.path = "torch_autocast.enabled", .kind = KEY_BOOL, .neutral = "false", .why = "torch.autocast"},
    IDLE_SECTION("torch_autocast"),
    {.path = "data_types.grad_accum_dtype", .kind = KEY_WORD, .setting = "grad-accum-dtype",
     .words = KEY_WORDS({"fp32", "fp32"}, {"float32", "fp32"}, {"bf16", NULL},
                        {"bfloat16", NULL}, {"fp16", NULL}, {"float16", NULL}, {"half", NULL}),
     .read = read_grad_accum_dtype, .write = write_grad_accum_dtype, .last = true},
    IDLE("data_types.param_dtype"), IDLE("data_types.buffer_dtype"),
    {.path = "communication_data_type", .kind = KEY_TEXT, .why = "a dtype of communication"},

    {.path = "train_micro_batch_size_per_gpu", .kind = KEY_INTEGER, .least = 1,
     .setting = "micro-batch", .is_auto = true},
    {.path = "gradient_accumulation_steps", .kind = KEY_INTEGER, .least = 1,
     .setting = "accumulate", .is_auto = true},
    {.path = "train_batch_size", .kind = KEY_INTEGER, .least = 1, .setting = "accumulate",
     .read = read_train_batch, .write = write_train_batch, .is_auto = true},
    {.path = "gradient_clipping", .kind = KEY_REAL, .least = 0, .setting = "clip",
     .words = KEY_WORDS({"0.0", "off"}, {"0", "off"}), .initial = "1.0", .is_auto = true,
     .filled = "1.0", .why = "the Trainer's max_grad_norm decides: planned as its default, 1.0"},

    {.path = "optimizer", .kind = KEY_TABLE},
    {.path = "optimizer.type", .kind = KEY_WORD, .setting = "optimizer",
     .words = KEY_WORDS({"AdamW", "adamw"}, {"Adam", "adamw"}, {"SGD", "sgd"}, {"Lamb", NULL},
                        {"Lion", NULL}, {"Muon", NULL}, {"Adagrad", NULL}, {"OneBitAdam", NULL},
                        {"OneBitLamb", NULL}, {"ZeroOneAdam", NULL}, {"CPUAdam", NULL},
                        {"MuAdam", NULL}, {"MuAdamW", NULL}, {"MuSGD", NULL}),
     .why = "this optimizer: planned as adamw", .is_auto = true, .any_case = true,
     .write = write_optimizer},
    IDLE_SECTION("optimizer.params"), IDLE("optimizer.legacy_fusion"),
    IDLE_SECTION("scheduler"),

    IDLE("steps_per_print"), IDLE("wall_clock_breakdown"), IDLE("dump_state"),
    IDLE("memory_breakdown"), IDLE("prescale_gradients"), IDLE("gradient_predivide_factor"),
    IDLE("zero_allow_untested_optimizer"), IDLE("zero_force_ds_cpu_optimizer"),
    IDLE("dataloader_drop_last"), IDLE("seed"), IDLE("log_level"), IDLE("disable_python_gc"),
    IDLE("steps_per_checkpoint"), IDLE("managed_gradient_accumulation"),
    IDLE("seq_parallel_communication_data_type"), IDLE("gradient_allreduce_op"),
    FLAG("disable_allgather", "false", "no gathering"),
    FLAG("sparse_gradients", "false", "sparse gradients"),
    IDLE_SECTION("activation_checkpointing"), IDLE_SECTION("flops_profiler"),
    IDLE_SECTION("tensorboard"), IDLE_SECTION("wandb"), IDLE_SECTION("csv_monitor"),
    IDLE_SECTION("comet"), IDLE_SECTION("comms_logger"), IDLE_SECTION("monitor_config"),
    IDLE_SECTION("checkpoint"), IDLE_SECTION("elasticity"), IDLE_SECTION("autotuning"),
    IDLE_SECTION("nebula"), IDLE_SECTION("aio"), IDLE_SECTION("curriculum_learning"),
    IDLE_SECTION("hybrid_engine"),
    UNPLANNED("pipeline", "pipeline parallelism"),
    UNPLANNED("tensor_parallel", "tensor parallelism"),
    UNPLANNED("compression_training", "compression"),
    UNPLANNED("sparse_attention", "sparse attention"),
    UNPLANNED("progressive_layer_drop", "dropped layers"),
    UNPLANNED("eigenvalue", "eigenvalues"),
    UNPLANNED("quantize_training", "quantized training"),
    UNPLANNED("compile", "compiled models"),
    UNPLANNED("sequence_parallel_size", "sequence parallelism"),
    IDLE_SECTION("data_efficiency"),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct implied_setting implied[] = {
    {"code", "hf", 0, NULL, NULL},
    {"optimizer-impl", "fused", 0, NULL, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static bool is_reentrant(const struct settings *s)
{
    return s->job.tape.reentrant;
}

static const struct script_setting script[] = {
    {"model", "the model: %s", NULL, false},
    {"code", "whose model code: %s", NULL, false},
    {"gpus", "what the launcher starts: %s", NULL, false},
    {"seq", "tokens of a sequence: %s", NULL, false},
    {"micro-batch", "train_micro_batch_size_per_gpu: %s", NULL, false},
    {"checkpointing", "model.gradient_checkpointing_enable() for full: %s", NULL, false},
    {"checkpoint-blocks", "which of its blocks are checkpointed: %s", NULL, false},
    {"checkpoint-reentrant", "gradient_checkpointing_kwargs={'use_reentrant': ...}: %s",
     is_reentrant, false},
    {"early-stop", "torch.utils.checkpoint's early stop: %s", NULL, false},
    {"freeze", "requires_grad_(False) of %s", NULL, false},
    {"optimizer", "deepspeed.initialize(optimizer=...): %s", has_own_optimizer, false},
    {"optimizer-impl", "foreach=True or neither, of that optimizer: %s", has_own_optimizer, false},
    EXPANDABLE_SEGMENTS_BY_SCRIPT,
    {NULL, NULL, NULL, false},
};

static void pass_over(struct node *node)
{
    node->read = true;
    for (struct node *n = node->kind == NODE_TABLE ? node->first : NULL; n; n = n->next)
        pass_over(n);
}

/* The key of ours: what it says to people is no key of DeepSpeed's, nor what it says to us. */
static void take_own_options(struct document *document)
{
    struct node *own = document_find(document, "shardplan");
    const struct node *options = own ? node_child(own, "options") : NULL;
    if (options && options->kind == NODE_TEXT)
        document->options = options->text;
    if (own)
        pass_over(own);
}

const struct framework framework_deepspeed = {
    .name = "deepspeed",
    .about = "a configuration of DeepSpeed",
    KEY_ROWS(rows),
    .implied = implied,
    .script = script,
    .systems = ZERO,
    .versions = "DeepSpeed 0.16 and later",
    .syntax = SYNTAX_JSON,
    .prepare = take_own_options,
    .file_setting = "zero",
    .file_also = "offload",
    .file_path = "zero_optimization",
};
