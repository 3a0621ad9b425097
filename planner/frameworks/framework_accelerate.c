/* framework_accelerate.c - Hugging Face accelerate's YAML: distributed_type chooses FSDP
 * (fsdp_version 1 or 2), DDP or DeepSpeed. Keys and defaults are those of `accelerate launch` and
 * of FullyShardedDataParallelPlugin (1.15), read in the sources.
 *
 * With fsdp_version 2 a wrap policy by layer class makes the units that --units torchtitan has
 * (embedding, each block, [norm, head]; since 1.14), and reshard_after_forward leaves that tail
 * unsharded. Batch, sequence, clipping and the optimizer are the training script's. */
#include "frameworks/auto_wrap.h"
#include "frameworks/dynamo.h"
#include "frameworks/native_amp.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    FSDP1 = FOR_SYSTEM(FSDP1),
    FSDP2 = FOR_SYSTEM(FSDP2),
    FSDP = FSDP1 | FSDP2,
    DDP = FOR_SYSTEM(DDP),
    SINGLE = FOR_SYSTEM(SINGLE),
    ZERO = FOR_SYSTEM(ZERO1) | FOR_SYSTEM(ZERO2) | FOR_SYSTEM(ZERO3),
};

/* ---- the system ---- */

static enum err_code set_zero(struct import *im, const struct key_row *row, const struct node *node,
                              struct err *err)
{
    const struct node *stage = import_node(im, "deepspeed_config.zero_stage");
    if (import_has_named(im))
        return ERR_OK; /* DeepSpeed's file says it */
    const long long n = import_integer(im, "deepspeed_config.zero_stage", 2);
    if (n < 1 || n > 3)
        return import_refuse(im, "deepspeed_config.zero_stage", stage, err,
                             n == 0 ? "allowed are 1, 2, 3: DeepSpeed without ZeRO is not planned"
                                    : "allowed are 1, 2, 3");
    return import_set(im, "strategy", import_text(im, "zero%lld", n), row, node, err);
}

static enum err_code read_type(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    if (!node)
        return import_refuse(im, row->path, node, err, "it is missing");
    if (strcmp(node->text, "MULTI_GPU") == 0)
        return import_set(im, "strategy", "ddp", row, node, err);
    if (strcmp(node->text, "DEEPSPEED") == 0)
        return set_zero(im, row, node, err);
    if (strcmp(node->text, "NO") == 0) {
        TRY(import_set(im, "gpus", "1", row, node, err));
        return import_set(im, "strategy", "single", row, node, err);
    }
    if (strcmp(node->text, "FSDP") != 0)
        return import_refuse(im, row->path, node, err,
                             "shardplan plans FSDP, MULTI_GPU, DEEPSPEED and NO");
    static const char key[] = "fsdp_config.fsdp_version";
    const long long version = import_integer(im, key, 1);
    if (version != 1 && version != 2)
        return import_refuse(im, key, import_node(im, key), err, "allowed are 1, 2");
    return import_set(im, "strategy", version == 2 ? "fsdp2" : "fsdp1", row, node, err);
}

static const char *write_type(const struct settings *s, char text[NUMBER_TEXT])
{
    const uint32_t system = 1U << s->job.strategy.system;
    (void)text;
    return system & FSDP     ? "FSDP"
           : system & ZERO   ? "DEEPSPEED"
           : system & SINGLE ? "NO"
                             : "MULTI_GPU";
}

static const char *write_version(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return s->job.strategy.system == SYSTEM_FSDP2 ? "2" : "1";
}

static const char *write_stage(const struct settings *s, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%u", system_zero_stage(s->job.strategy.system));
    return text;
}

/* ---- the mesh ---- */

static enum err_code read_processes(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    const long long n = import_integer(im, row->path, -1);
    const long long machines = import_integer(im, "num_machines", 1);
    if (!node || n < 0)
        return ERR_OK;
    if (n == 0 || machines < 1 || n % machines != 0)
        return import_refuse(im, row->path, node, err, "num_machines does not divide it");
    TRY(import_set(im, "gpus", import_text(im, "%lld", n), row, node, err));
    return machines > 1 ? import_set(im, "gpus-per-node", import_text(im, "%lld", n / machines),
                                     row, node, err)
                        : ERR_OK;
}

static const char *write_machines(const struct settings *s, char text[NUMBER_TEXT])
{
    const uint32_t world = s->job.strategy.world, each = s->gpus_per_node;
    if (world <= each || world % each != 0)
        return NULL;
    snprintf(text, NUMBER_TEXT, "%u", world / each);
    return text;
}

static enum err_code read_dp_shards(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    const long long replicas =
        import_integer(im, "parallelism_config.parallelism_config_dp_replicate_size", 1);
    const long long shard = import_integer(im, row->path, -1);
    if (!node || shard < 1 || import_node(im, "num_processes"))
        return ERR_OK;
    return import_set(im, "gpus", import_text(im, "%lld", shard * replicas), row, node, err);
}

static const char *write_dp_shards(const struct settings *s, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%u", s->job.strategy.world / s->job.strategy.replicate);
    return text;
}

/* ---- torch.compile ---- */

static enum err_code read_dynamo(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const struct node *regions = import_node(im, "dynamo_config.dynamo_use_regional_compilation");
    if (!node || strcasecmp(node->text, "NO") == 0)
        return ERR_OK;
    const struct dynamo dynamo = {
        .path = row->path,
        .on = node,
        .backend = node,
        .backend_path = row->path,
        .mode = import_node(im, "dynamo_config.dynamo_mode"),
        .mode_path = "dynamo_config.dynamo_mode",
        .dynamic = import_node(im, "dynamo_config.dynamo_use_dynamic"),
        .dynamic_path = "dynamo_config.dynamo_use_dynamic",
        .regional = regions && regions->text && strcmp(regions->text, "true") == 0,
    };
    return dynamo_set(im, row, &dynamo, err);
}

/* ---- dtypes ---- */

/* With a policy, accelerate upcasts what is trained to fp32; without one the dtype is the model's.
 */
static enum err_code read_precision(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    const char *text = !node || node->kind == NODE_BOOL ? "no" : node->text;
    const char *value = key_to_setting(row, text);
    if (!value)
        import_list(im, node, row->path, row->why);
    if (import_has_named(im) && import_has(im, "param-dtype") &&
        !import_is_given(im, "param-dtype"))
        return ERR_OK;
    if (import_has_named(im) && value && strcmp(value, "same") == 0)
        value = "fp32"; /* neither file says half precision: DeepSpeedEngine's float() */
    TRY(import_set(im, "param-dtype", value ? value : "same", row, node, err));
    return value && strcmp(value, "same") != 0
               ? import_set(im, "store-dtype", "fp32", row, NULL, err)
               : ERR_OK;
}

/* FSDP1 may have its own MixedPrecision without: no autocast goes with that. */
static enum err_code read_native_amp(struct import *im, const struct key_row *row,
                                     const struct node *node, struct err *err)
{
    const bool none = !node || node->kind == NODE_BOOL || strcmp(node->text, "no") == 0;
    if (none && im->settings->job.strategy.system == SYSTEM_FSDP1)
        return ERR_OK;
    return native_amp_set(im, row, row->path, node, err);
}

static bool has_bucket_cap(const struct settings *s)
{
    return s->job.strategy.bucket_cap_mb > 0;
}

static bool is_uncast(const struct settings *s)
{
    const struct strategy *strategy = &s->job.strategy;
    return strategy->compute == DTYPE_COUNT || strategy->compute == strategy->store;
}

/* The keys have one dtype for both. */
static bool reduces_otherwise(const struct settings *s)
{
    struct strategy own = s->job.strategy;
    if (own.compute == DTYPE_COUNT)
        own.compute = own.store;
    if (own.reduce == DTYPE_COUNT)
        own.reduce = strategy_own_reduce(&own, s->job.model.torch);
    return (own.system == SYSTEM_FSDP1 || own.system == SYSTEM_FSDP2) && own.reduce != own.compute;
}

/* FSDP's plugin has a key for it. */
static bool checkpoints_by_script(const struct settings *s)
{
    return s->job.strategy.system != SYSTEM_FSDP1 && s->job.strategy.system != SYSTEM_FSDP2;
}

static bool is_reentrant_by_script(const struct settings *s)
{
    return s->job.tape.reentrant && checkpoints_by_script(s);
}

static const char *write_precision(const struct settings *s, char text[NUMBER_TEXT])
{
    return is_uncast(s) ? "no" : settings_get(s, "param-dtype", text);
}

/* ---- FSDP1 ---- */

/* Hybrid strategies shard within a node and replicate between nodes. */
static enum err_code read_sharding(struct import *im, const struct key_row *row,
                                   const struct node *node, struct err *err)
{
    const char *value = key_to_setting(row, node ? node->text : row->initial);
    if ((!node && !row->initial) || !value || import_has(im, "sharding"))
        return ERR_OK;
    TRY(import_set(im, "sharding", value, row, node, err));
    const uint32_t world = im->settings->job.strategy.world, each = im->settings->gpus_per_node;
    if (!strstr(value, "HYBRID") || world <= each || world % each != 0)
        return ERR_OK;
    return import_set(im, "replicate", import_text(im, "%u", world / each), row, node, err);
}

/* ---- units ---- */

/* By size: modules of so many parameters; the launcher's default. Without a size none is wrapped.
 */
static enum err_code read_size(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    const long long least = import_integer(im, "fsdp_config.fsdp_min_num_params", 100000000);
    return import_set(im, "units", least > 0 ? import_text(im, "%lld", least) : "none", row, node,
                      err);
}

#define POLICY "fsdp_config.fsdp_auto_wrap_policy"
#define WRAPPED "fsdp_config.fsdp_transformer_layer_cls_to_wrap"

static enum err_code read_wrapped(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const struct node *policy = import_node(im, POLICY);
    const bool by_class = policy && policy->text && strcmp(policy->text, TRANSFORMER_WRAP) == 0;
    return auto_wrap_classes(im, row, node, by_class, err);
}

static enum err_code read_policy(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const char *policy = node ? node->text : "NO_WRAP";
    const bool second = im->settings->job.strategy.system == SYSTEM_FSDP2;
    bool known;
    TRY(auto_wrap_set(im, policy, WRAPPED, row, node, &known, err));
    if (known)
        return ERR_OK;
    if (strcmp(policy, "NO_WRAP") == 0 && !second)
        return import_set(im, "units", "none", row, node, err);
    if (strcmp(policy, "SIZE_BASED_WRAP") == 0 && !second)
        return read_size(im, row, node, err);
    if (node || second)
        import_list(im, node, row->path,
                    "of fsdp_version 2 only TRANSFORMER_BASED_WRAP is planned, which is --units "
                    "torchtitan: planned with the model's blocks");
    return ERR_OK;
}

static bool is_by_size(const struct settings *s)
{
    return s->job.strategy.system == SYSTEM_FSDP1 && s->job.strategy.units == UNITS_ELEMENTS;
}

static const char *write_policy(const struct settings *s, char text[NUMBER_TEXT])
{
    const char *units = settings_get(s, "units", text);
    const bool second = s->job.strategy.system == SYSTEM_FSDP2;
    if (units && strcmp(units, second ? "torchtitan" : "blocks") == 0)
        return "TRANSFORMER_BASED_WRAP";
    if (is_by_size(s))
        return "SIZE_BASED_WRAP";
    return !second && units && strcmp(units, "none") == 0 ? "NO_WRAP" : NULL;
}

static const char *write_size(const struct settings *s, char text[NUMBER_TEXT])
{
    return is_by_size(s) ? settings_get(s, "units", text) : NULL;
}

/* ---- DeepSpeed's offloading, in what accelerate makes of its plugin ---- */

static bool is_device(const struct import *im, const char *path, const char *device)
{
    const struct node *node = import_node(im, path);
    return node && node->text && strcmp(node->text, device) == 0;
}

#define OPTIMIZER_DEVICE "deepspeed_config.offload_optimizer_device"
#define PARAM_DEVICE "deepspeed_config.offload_param_device"

/* DeepSpeed offloads parameters at stage 3 alone. */
static bool takes_params(const struct import *im)
{
    return is_device(im, PARAM_DEVICE, "cpu") &&
           import_integer(im, "deepspeed_config.zero_stage", 2) == 3;
}

/* Whether a key says cpu; what else it says is checked, and nvme listed. */
static enum err_code read_device(struct import *im, const struct key_row *row,
                                 const struct node *node, bool *cpu, struct err *err)
{
    *cpu = is_device(im, row->path, "cpu");
    if (!node)
        return ERR_OK;
    TRY(import_check_word(im, row, node, err));
    if (is_device(im, row->path, "nvme"))
        import_list(im, node, row->path, "offloading to NVMe");
    return ERR_OK;
}

static enum err_code read_optimizer_device(struct import *im, const struct key_row *row,
                                           const struct node *node, struct err *err)
{
    bool cpu;
    TRY(read_device(im, row, node, &cpu, err));
    if (!cpu)
        return ERR_OK;
    return import_set(im, "offload", takes_params(im) ? "cpu" : "optimizer", row, node, err);
}

static enum err_code read_param_device(struct import *im, const struct key_row *row,
                                       const struct node *node, struct err *err)
{
    bool cpu;
    TRY(read_device(im, row, node, &cpu, err));
    if (cpu && !takes_params(im))
        import_idle(im, node, row->path);
    else if (cpu && !is_device(im, OPTIMIZER_DEVICE, "cpu"))
        import_list(im, node, row->path,
                    "parameters on the CPU and their optimizer not: --zero FILE has this");
    return ERR_OK;
}

static const char *write_optimizer_device(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return s->zero_offload == ZERO_OFFLOAD_NONE ? "none" : "cpu";
}

static const char *write_param_device(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return s->zero_offload == ZERO_OFFLOAD_ALL && s->job.strategy.system == SYSTEM_ZERO3 ? "cpu"
                                                                                         : "none";
}

/* ---- the table ---- */

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses): what the macros hold are initialisers */
#define IDLE(key) {.path = key, .kind = KEY_ANY}
#define IDLE_SECTION(key) {.path = key, .kind = KEY_SECTION}
#define F(key) "fsdp_config.fsdp_" key
#define P(key) "parallelism_config.parallelism_config_" key
#define D(key) "deepspeed_config." key
#define CPU_OR_NONE KEY_WORDS({"true", "cpu"}, {"false", "none"})
#define OFF_ON KEY_WORDS({"true", "on"}, {"false", "off"})
#define PRECISIONS KEY_WORDS({"no", "same"}, {"bf16", "bf16"}, {"fp16", "fp16"}, {"fp8", NULL})
#define STRATEGIES KEY_WORDS({"FULL_SHARD", "FULL_SHARD"}, {"SHARD_GRAD_OP", "SHARD_GRAD_OP"},      \
                             {"NO_SHARD", "NO_SHARD"}, {"HYBRID_SHARD", "HYBRID_SHARD"},            \
                             {"HYBRID_SHARD_ZERO2", "_HYBRID_SHARD_ZERO2"},                         \
                             {"1", "FULL_SHARD"}, {"2", "SHARD_GRAD_OP"}, {"3", "NO_SHARD"},        \
                             {"4", "HYBRID_SHARD"}, {"5", "_HYBRID_SHARD_ZERO2"})
#define DEVICE(key, reader, writer) {.path = D(key), .kind = KEY_WORD, .setting = "offload",         \
                                     .words = KEY_WORDS({"none", NULL}, {"cpu", NULL}, {"nvme", NULL}), \
                                     .read = reader, .write = writer, .systems = ZERO}

static const struct key_row rows[] = {
    {.path = "distributed_type", .kind = KEY_WORD, .setting = "strategy", .read = read_type,
     .write = write_type,
     .words = KEY_WORDS({"FSDP", NULL}, {"MULTI_GPU", NULL}, {"DEEPSPEED", NULL}, {"NO", NULL},
                        {"MEGATRON_LM", NULL}, {"MULTI_CPU", NULL}, {"TP", NULL}, {"XLA", NULL},
                        {"MULTI_XPU", NULL}, {"MULTI_NPU", NULL}, {"MULTI_HPU", NULL})},
    {.path = "fsdp_config", .kind = KEY_TABLE},
    {.path = F("version"), .kind = KEY_INTEGER, .least = 1, .setting = "strategy",
     .read = import_elsewhere, .write = write_version, .systems = FSDP},
    {.path = "deepspeed_config", .kind = KEY_TABLE},
    {.path = D("zero_stage"), .kind = KEY_INTEGER, .setting = "strategy", .read = import_elsewhere,
     .write = write_stage, .systems = ZERO},
    {.path = "num_processes", .kind = KEY_INTEGER, .least = -1, .setting = "gpus",
     .read = read_processes},
    {.path = "num_machines", .kind = KEY_INTEGER, .least = 1, .setting = "gpus-per-node",
     .read = import_elsewhere, .write = write_machines},
    {.path = "parallelism_config", .kind = KEY_TABLE},
    {.path = P("dp_replicate_size"), .kind = KEY_INTEGER, .least = 1, .setting = "replicate",
     .initial = "1", .systems = FSDP2},
    {.path = P("dp_shard_size"), .kind = KEY_INTEGER, .least = -1, .setting = "gpus",
     .read = read_dp_shards, .write = write_dp_shards, .systems = FSDP2},
    {.path = P("tp_size"), .kind = KEY_INTEGER, .least = 1, .neutral = "1",
     .why = "tensor parallelism"},
    {.path = P("cp_size"), .kind = KEY_INTEGER, .least = 1, .neutral = "1",
     .why = "context parallelism"},
    {.path = P("sp_size"), .kind = KEY_INTEGER, .least = 1, .neutral = "1",
     .why = "sequence parallelism"},
    IDLE(P("cp_backend")), IDLE(P("cp_comm_strategy")), IDLE(P("sp_backend")),
    IDLE(P("sp_seq_length")), IDLE(P("sp_seq_length_is_variable")), IDLE(P("sp_attn_implementation")),

    {.path = "mixed_precision", .kind = KEY_WORD, .setting = "param-dtype", .words = PRECISIONS,
     .why = "fp8: planned without a cast", .read = read_precision, .write = write_precision,
     .systems = FSDP | ZERO},
    {.path = "mixed_precision", .kind = KEY_WORD, .setting = "reduce-dtype", .words = PRECISIONS,
     .initial = "no", .systems = FSDP, .unwritten = true},
    {.path = "mixed_precision", .kind = KEY_WORD, .setting = "autocast",
     .words = KEY_WORDS({"no", "none"}, {"bf16", "bf16"}, {"fp16", NULL}, {"fp8", NULL}),
     .initial = "no", .why = "autocast to this dtype: planned in fp32",
     .systems = DDP | SINGLE},
    {.path = "mixed_precision", .kind = KEY_WORD, .setting = "outputs",
     .words = KEY_WORDS({"no", "same"}, {"bf16", "fp32"}, {"fp16", NULL}, {"fp8", NULL}),
     .read = read_native_amp, .systems = DDP | SINGLE | FSDP1, .unwritten = true},

    {.path = F("reshard_after_forward"), .kind = KEY_BOOL, .setting = "reshard",
     .words = KEY_WORDS({"true", "default"}, {"false", "never"}), .initial = "true",
     .systems = FSDP2},
    {.path = F("sharding_strategy"), .kind = KEY_WORD, .setting = "sharding", .words = STRATEGIES,
     .systems = FSDP1, .read = read_sharding},
    {.path = F("reshard_after_forward"), .kind = KEY_WORD, .setting = "sharding",
     .words = STRATEGIES, .initial = "FULL_SHARD", .systems = FSDP1, .unwritten = true,
     .read = read_sharding},
    {.path = POLICY, .kind = KEY_WORD, .setting = "units", .read = read_policy,
     .write = write_policy, .systems = FSDP,
     .words = KEY_WORDS({"TRANSFORMER_BASED_WRAP", NULL}, {"SIZE_BASED_WRAP", NULL},
                        {"NO_WRAP", NULL})},
    {.path = WRAPPED, .kind = KEY_ANY, .read = read_wrapped, .systems = FSDP},
    {.path = F("min_num_params"), .kind = KEY_INTEGER, .setting = "units", .read = import_elsewhere,
     .write = write_size, .systems = FSDP},
    {.path = F("backward_prefetch"), .kind = KEY_WORD, .setting = "backward-prefetch",
     .words = KEY_WORDS({"BACKWARD_PRE", "pre"}, {"BACKWARD_POST", "post"}, {"NO_PREFETCH", "none"}),
     .initial = "NO_PREFETCH", .systems = FSDP1},
    {.path = F("forward_prefetch"), .kind = KEY_BOOL, .setting = "forward-prefetch",
     .words = KEY_WORDS({"true", "1"}, {"false", "0"}), .initial = "false", .systems = FSDP1},
    {.path = F("forward_prefetch"), .kind = KEY_BOOL, .neutral = "false", .systems = FSDP2,
     .why = "accelerate refuses it with fsdp_version 2"},
    {.path = F("offload_params"), .kind = KEY_BOOL, .setting = "offload", .words = CPU_OR_NONE,
     .initial = "false", .systems = FSDP},
    {.path = F("activation_checkpointing"), .kind = KEY_BOOL, .setting = "checkpointing",
     .words = KEY_WORDS({"true", "full"}, {"false", "none"}), .initial = "false", .systems = FSDP},
    {.path = F("activation_checkpointing_offload"), .kind = KEY_BOOL, .neutral = "false",
     .why = "checkpoints on the CPU", .systems = FSDP},
    {.path = F("use_orig_params"), .kind = KEY_BOOL, .setting = "use-orig-params", .words = OFF_ON,
     .initial = "true", .systems = FSDP1},
    {.path = F("ignored_modules"), .kind = KEY_ANY, .neutral = "", .systems = FSDP,
     .why = "modules that are not sharded"},
    IDLE(F("state_dict_type")), IDLE(F("sync_module_states")), IDLE(F("cpu_ram_efficient_loading")),

    {.path = D("gradient_accumulation_steps"), .kind = KEY_INTEGER, .least = 1,
     .setting = "accumulate", .initial = "1", .systems = ZERO, .is_auto = true},
    {.path = D("gradient_clipping"), .kind = KEY_REAL, .setting = "clip", .initial = "1.0",
     .words = KEY_WORDS({"0.0", "off"}, {"0", "off"}, {"none", "off"}), .systems = ZERO,
     .is_auto = true, .filled = "1.0",
     .why = "whoever calls accelerate decides: planned as its default, 1.0"},
    DEVICE("offload_optimizer_device", read_optimizer_device, write_optimizer_device),
    DEVICE("offload_param_device", read_param_device, write_param_device),
    {.path = D("deepspeed_config_file"), .kind = KEY_TEXT, .read = import_elsewhere, .systems = ZERO},
    IDLE(D("zero3_init_flag")), IDLE(D("zero3_save_16bit_model")),
    IDLE(D("deepspeed_multinode_launcher")), IDLE(D("deepspeed_hostfile")),
    IDLE(D("deepspeed_inclusion_filter")), IDLE(D("deepspeed_exclusion_filter")),
    IDLE(D("offload_optimizer_nvme_path")), IDLE(D("offload_param_nvme_path")),
    IDLE(D("deepspeed_moe_layer_cls_names")),

    {.path = "dynamo_config.dynamo_backend", .kind = KEY_WORD, .read = read_dynamo},
    {.path = "dynamo_config.dynamo_mode", .kind = KEY_ANY, .read = import_elsewhere},
    {.path = "dynamo_config.dynamo_use_dynamic", .kind = KEY_ANY, .read = import_elsewhere},
    IDLE("dynamo_config.dynamo_use_fullgraph"),
    {.path = "dynamo_config.dynamo_use_regional_compilation", .kind = KEY_BOOL,
     .read = import_elsewhere},
    {.path = "use_cpu", .kind = KEY_BOOL, .neutral = "false", .why = "training on CPUs"},
    {.path = "fp8_config", .kind = KEY_SECTION, .why = "fp8"},
    {.path = "megatron_lm_config", .kind = KEY_SECTION, .why = "Megatron-LM"},
    IDLE("compute_environment"), IDLE("debug"), IDLE("downcast_bf16"), IDLE("enable_cpu_affinity"),
    IDLE("machine_rank"), IDLE("main_training_function"), IDLE("main_process_ip"),
    IDLE("main_process_port"), IDLE("rdzv_backend"), IDLE("same_network"), IDLE("gpu_ids"),
    IDLE("tpu_env"), IDLE("tpu_use_cluster"), IDLE("tpu_use_sudo"), IDLE("tpu_name"),
    IDLE("tpu_zone"), IDLE("tpu_vm"), IDLE("commands"), IDLE("command_file"),
    IDLE_SECTION("mpirun_config"),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

/* accelerate upcasts what it trains to fp32 under mixed precision (since 1.14), leaves gradients
 * unreduced while it accumulates, and does not prefetch explicitly. */
static const struct implied_setting implied[] = {
    {"code", "hf", 0, NULL, NULL},
    {"accumulate-sync", "last", FSDP | DDP, NULL, NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct script_setting script[] = {
    {"model", "the model: %s", NULL, false},
    {"code", "whose model code: %s", NULL, false},
    {"gpus", "num_processes: %s", NULL, false},
    {"seq", "tokens of a sequence of the dataset: %s", NULL, false},
    {"micro-batch", "DataLoader(batch_size=%s)", NULL, false},
    {"accumulate", "Accelerator(gradient_accumulation_steps=%s)", NULL, false},
    {"accumulate-sync", "GradientAccumulationPlugin(sync_each_batch=True) for each: %s", NULL,
     false},
    {"optimizer", "the optimizer: %s", NULL, false},
    {"optimizer-impl", "foreach=True, fused=True or neither, of the optimizer: %s", NULL, false},
    {"clip", "accelerator.clip_grad_norm_(model.parameters(), MAXNORM): %s", NULL, false},
    {"checkpointing", "model.gradient_checkpointing_enable() for full: %s", checkpoints_by_script,
     false},
    {"checkpoint-reentrant", "gradient_checkpointing_kwargs={'use_reentrant': ...}: %s",
     is_reentrant_by_script, false},
    {"activation-offloading", "activation_offloading of TRL's trainers: %s", NULL, false},
    {"freeze", "requires_grad_(False) of %s", NULL, false},
    {"bucket-cap-mb", "DistributedDataParallelKwargs(bucket_cap_mb=%s)", has_bucket_cap, false},
    {"gradient-as-bucket-view", "DistributedDataParallelKwargs(gradient_as_bucket_view=...): %s",
     NULL, false},
    {"static-graph", "DistributedDataParallelKwargs(static_graph=...): %s", NULL, false},
    {"find-unused-parameters", "DistributedDataParallelKwargs(find_unused_parameters=...): %s",
     NULL, false},
    {"broadcast-buffers", "DistributedDataParallelKwargs(broadcast_buffers=...): %s", NULL, false},
    {"zero-redundancy", "ZeroRedundancyOptimizer(..., parameters_as_bucket_view=...): %s", NULL,
     false},
    {"comm-hook", "DistributedDataParallelKwargs(comm_hook=...): %s", NULL, false},
    {"store-dtype", "the dtype that the model is loaded in: %s", is_uncast, false},
    {"reduce-dtype",
     "FullyShardedDataParallelPlugin(mixed_precision_policy=...(reduce_dtype=...)): %s",
     reduces_otherwise, true},
    EXPANDABLE_SEGMENTS_BY_SCRIPT,
    {NULL, NULL, NULL, false},
};

const struct framework framework_accelerate = {
    .name = "accelerate",
    .about = "a configuration of accelerate",
    KEY_ROWS(rows),
    .implied = implied,
    .script = script,
    .syntax = SYNTAX_YAML,
    .systems = FSDP | DDP | SINGLE | ZERO,
    .versions = "accelerate 1.14 and later",
    .named = D("deepspeed_config_file"),
    .named_framework = &framework_deepspeed,
    .loose = true,
};
