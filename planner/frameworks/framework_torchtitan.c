/* framework_torchtitan.c - torchtitan's keys: TOML up to v0.2.2 (job_config.py), a Python dataclass
 * registry after it (config/configs.py, trainer.py), read in the sources.
 *
 * It wraps as --units torchtitan says, reduces after every micro-batch in fp32 and always clips.
 * With one shard and several replicas v0.2.2 runs DDP with buckets of 100 MiB, under autocast. */
#include "frameworks/framework_torchtitan.h"

#include "base/number.h"
#include "families/families.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    FSDP2 = FOR_SYSTEM(FSDP2),
    DDP = FOR_SYSTEM(DDP),
    SINGLE = FOR_SYSTEM(SINGLE),
    TOML = FOR_SYNTAX(TOML),
    PYTHON = FOR_SYNTAX(PYTHON),
};

/* ---- the mesh ---- */

static uint32_t shards(const struct settings *s)
{
    return s->job.strategy.world / s->job.strategy.replicate;
}

static enum err_code read_shards(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const long long shard = import_integer(im, row->path, -1);
    const long long replicas = import_integer(im, "parallelism.data_parallel_replicate_degree", 1);
    const bool ddp = shard == 1 && replicas > 1 && im->document.syntax == SYNTAX_TOML;
    if (shard == 0 || shard < -1)
        return import_refuse(im, row->path, node, err, "allowed are -1 and integers from 1 on");
    const bool alone = shard * replicas == 1 || (shard < 0 && import_is_alone(im));
    TRY(import_set(im, "strategy", alone ? "single" : ddp ? "ddp" : "fsdp2", row, node, err));
    if (shard < 0 || ddp)
        return ERR_OK;
    return import_set(im, "gpus", import_text(im, "%lld", shard * replicas), row, node, err);
}

static const char *write_shards(const struct settings *s, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, "%u", s->job.strategy.system == SYSTEM_DDP ? 1 : shards(s));
    return text;
}

static enum err_code read_replicas(struct import *im, const struct key_row *row,
                                   const struct node *node, struct err *err)
{
    const bool ddp = im->settings->job.strategy.system == SYSTEM_DDP;
    const char *text = import_text(im, "%lld", import_integer(im, row->path, 1));
    return import_set(im, ddp ? "gpus" : "replicate", text, row, node, err);
}

static const char *write_replicas(const struct settings *s, char text[NUMBER_TEXT])
{
    const bool ddp = s->job.strategy.system == SYSTEM_DDP;
    snprintf(text, NUMBER_TEXT, "%u", ddp ? s->job.strategy.world : s->job.strategy.replicate);
    return text;
}

/* ---- the batch ---- */

static long long value_of(const struct import *im, const char *setting)
{
    char buffer[NUMBER_TEXT];
    uint64_t value = 0;
    const char *text = import_value(im, setting, buffer);
    return text && number_integer(text, &value) ? (long long)value : 1;
}

/* A global number of sequences (or tokens, `each` of them a micro-batch) as micro-batches a step.
 */
static enum err_code set_accumulate(struct import *im, const struct key_row *row,
                                    const struct node *node, long long whole, long long each,
                                    struct err *err)
{
    const long long step = each * value_of(im, "gpus");
    if (!node || whole < 0)
        return import_set(im, "accumulate", "1", row, node, err);
    if (whole == 0 || whole % step != 0)
        return import_refuse(im, row->path, node, err,
                             "it is no multiple of %lld, what %lld GPUs take at once", step,
                             value_of(im, "gpus"));
    return import_set(im, "accumulate", import_text(im, "%lld", whole / step), row, node, err);
}

static enum err_code read_global_batch(struct import *im, const struct key_row *row,
                                       const struct node *node, struct err *err)
{
    return set_accumulate(im, row, node, import_integer(im, row->path, -1),
                          value_of(im, "micro-batch"), err);
}

static const char *write_global_batch(const struct settings *s, char text[NUMBER_TEXT])
{
    const struct job *job = &s->job;
    snprintf(text, NUMBER_TEXT, "%llu",
             (unsigned long long)job->model.batch * job->strategy.world * job->strategy.accumulate);
    return text;
}

static enum err_code read_tokens(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const long long tokens = import_integer(im, row->path, 16384), seq = value_of(im, "seq");
    if (tokens % seq != 0)
        return import_refuse(im, row->path, node, err,
                             "it is no multiple of the %lld tokens of a "
                             "sequence",
                             seq);
    return import_set(im, "micro-batch", import_text(im, "%lld", tokens / seq), row, node, err);
}

static enum err_code read_step_tokens(struct import *im, const struct key_row *row,
                                      const struct node *node, struct err *err)
{
    return set_accumulate(im, row, node, import_integer(im, row->path, -1),
                          value_of(im, "micro-batch") * value_of(im, "seq"), err);
}

/* ---- ranks that share a batch ---- */

static const char *const sharing[] = {"parallelism.tensor_parallel_degree",
                                      "parallelism.pipeline_parallel_degree",
                                      "parallelism.context_parallel_degree"};

/* What the plan has in place of the file's job: ParallelDims' data parallel ranks are all GPUs by
 * the degrees of the others (distributed/parallel_dims.py). */
static const char *without_sharing(struct import *im, const char *what, long long share)
{
    const long long gpus = value_of(im, "gpus");
    const long long sequences = gpus * value_of(im, "micro-batch") * value_of(im, "accumulate");
    const bool whole = im->document.syntax == SYNTAX_TOML
                           ? import_integer(im, "training.global_batch_size", -1) > 0
                           : import_integer(im, "training.num_tokens_per_train_step", -1) > 0;
    if (!import_is_given(im, "gpus") && import_has(im, "gpus")) /* the product of its degrees */
        return import_text(im,
                           "%s: planned on the %lld GPUs of its data-parallel ranks alone, where "
                           "the file's job has %lld",
                           what, gpus, gpus * share);
    if (gpus % share != 0)
        return import_text(im,
                           "%s: planned with %lld data-parallel ranks, where %lld GPUs share "
                           "the work of each",
                           what, gpus, share);
    if (whole && !import_is_given(im, "accumulate"))
        return import_text(
            im,
            "%s: planned with %lld data-parallel ranks, where the file's %lld GPUs are "
            "%lld, and with its %lld sequences a step",
            what, gpus, gpus, gpus / share, sequences);
    return import_text(im,
                       "%s: planned with %lld data-parallel ranks and %lld sequences a step, where "
                       "the file's %lld GPUs are %lld ranks with %lld sequences",
                       what, gpus, sequences, gpus, gpus / share, sequences / share);
}

/* The first of the degrees that is not 1 says what all of them come to. */
static enum err_code read_ranks(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    long long share = 1;
    const char *first = "";
    (void)err;
    for (size_t i = 0; i < sizeof sharing / sizeof *sharing; i++) {
        const long long degree = import_integer(im, sharing[i], 1);
        first = degree > 1 && !*first ? sharing[i] : first;
        share *= degree > 1 ? degree : 1;
    }
    if (!node)
        return ERR_OK;
    if (import_integer(im, row->path, 1) <= 1)
        import_idle(im, node, row->path);
    else if (strcmp(first, row->path) == 0)
        import_list(im, node, row->path, without_sharing(im, row->why, share));
    else
        import_list(im, node, row->path, row->why);
    return ERR_OK;
}

/* ---- the model ---- */

#define FLEX "FlexAttention, which this flavor has: planned as "
#define NARROW FLEX "scaled_dot_product_attention's kernel for values narrower than keys"
#define EVERYWHERE FLEX "scaled_dot_product_attention, with RoPE in every layer"

/* DeepSeek's flavors are of V2-Lite, V2 and V3. */
static const struct flavor {
    const char *name, *flavor, *preset;
    const char *why; /* it is planned otherwise; NULL: it is not */
} flavors[] = {
    {"llama3", "8B", "llama-3.1-8b", NULL},
    {"llama3", "70B", "llama-3.1-70b", NULL},
    {"llama3", "405B", "llama-3.1-405b", NULL},
    {"qwen3", "0.6B", "qwen3-0.6b", NULL},
    {"qwen3", "1.7B", "qwen3-1.7b", NULL},
    {"qwen3", "4B", "qwen3-4b", NULL},
    {"qwen3", "8B", "qwen3-8b", NULL},
    {"qwen3", "14B", "qwen3-14b", NULL},
    {"qwen3", "32B", "qwen3-32b", NULL},
    {"qwen3", "30B-A3B", "qwen3-30b-a3b", NULL},
    {"qwen3", "235B-A22B", "qwen3-235b-a22b", NULL},
    {"deepseek_v3", "16B", "deepseek-v2-lite", NARROW},
    {"deepseek_v3", "236B", "deepseek-v2", NARROW},
    {"deepseek_v3", "671B", "deepseek-v3", NARROW},
    {"llama4", "17bx16e", "llama-4-scout-17b-16e", NULL},
    {"llama4", "17bx128e", "llama-4-maverick-17b-128e", NULL},
    {"llama4", "17bx16e_irope", "llama-4-scout-17b-16e", EVERYWHERE},
    {"llama4", "17bx128e_irope", "llama-4-maverick-17b-128e", EVERYWHERE},
};

static const struct flavor *flavor_of(const struct settings *s)
{
    const struct model_preset *preset = s->model ? model_preset_of(s->model) : NULL;
    for (size_t i = 0; preset && i < sizeof flavors / sizeof flavors[0]; i++)
        if (strcmp(flavors[i].preset, preset->name) == 0)
            return &flavors[i];
    return NULL;
}

static const char *write_name(const struct settings *s, char text[NUMBER_TEXT])
{
    const struct flavor *flavor = flavor_of(s);
    (void)text;
    return flavor ? flavor->name : NULL;
}

static const char *write_flavor(const struct settings *s, char text[NUMBER_TEXT])
{
    const struct flavor *flavor = flavor_of(s);
    (void)text;
    return flavor ? flavor->flavor : NULL;
}

static enum err_code read_flavor(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const struct node *name = import_node(im, "model.name");
    for (size_t i = 0; node && node->text && name && i < sizeof flavors / sizeof flavors[0]; i++)
        if (strcmp(flavors[i].flavor, node->text) == 0 &&
            strcmp(flavors[i].name, name->text ? name->text : "") == 0) {
            if (flavors[i].why)
                import_list(im, node, row->path, flavors[i].why);
            return import_set(im, "model", flavors[i].preset, row, node, err);
        }
    if (node && !import_has(im, "model"))
        import_list(im, node, row->path, "no preset has this name and flavor: give MODEL");
    return ERR_OK;
}

/* "./assets/hf/Llama-3.1-8B": the last part is a name on Hugging Face, often a preset's. It is the
 * tokenizer's: what is trained is the flavor, where there is one. */
static enum err_code read_assets(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    if (!node || import_has(im, "model") || import_node(im, "model.flavor"))
        return ERR_OK;
    char name[PRESET_NAME_SIZE];
    return model_preset_of_path(node->text, name)
               ? import_set(im, "model", import_text(im, "%s", name), row, node, err)
               : ERR_OK;
}

/* ---- checkpointing ---- */

/* selective_ac_option: a policy of operators, or that each K-th block is checkpointed in full, all
 * with "0" and "1". */
static enum err_code read_selective(struct import *im, const struct key_row *row,
                                    const struct node *option, struct err *err)
{
    uint64_t every;
    const char *text = option && option->text ? option->text : "2"; /* torchtitan's default */
    if (strcmp(text, "op") == 0)
        return import_set(im, "checkpointing", "selective", row, option, err);
    if (!number_integer(text, &every))
        return err_set(err, ERR_INVALID, "%s: selective_ac_option %s: expected op or an integer",
                       row->path, text);
    TRY(import_set(im, "checkpointing", "full", row, option, err));
    if (every < 2)
        return ERR_OK;
    return import_set(im, "checkpoint-blocks", import_text(im, "every-%" PRIu64, every), row,
                      option, err);
}

static enum err_code read_mode(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    const char *mode = node ? node->text : row->initial;
    if (strcmp(mode, "selective") == 0)
        return read_selective(im, row, import_node(im, "activation_checkpoint.selective_ac_option"),
                              err);
    if (strcmp(mode, "memory_budget") != 0)
        return import_set(im, "checkpointing", mode, row, node, err);
    if (!import_has(im, "checkpointing"))
        import_list(im, node, row->path, "a memory budget: planned without checkpointing");
    return ERR_OK;
}

static bool has_component(const struct node *components, const char *name)
{
    for (const struct node *n = components ? components->first : NULL; n; n = n->next)
        if (n->text && strcmp(n->text, name) == 0)
            return true;
    return !components; /* the default has both, model and loss */
}

static enum err_code read_compiled_loss(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    const struct node *loss = import_node(im, "loss");
    if (!loss || !loss->text || strncmp(loss->text, "ChunkedLossWrapper", 18) != 0)
        return import_set(im, "loss", "compiled", row, node, err);
    import_list(im, node, row->path, "a compiled loss in chunks: planned eager");
    return ERR_OK;
}

/* "model": each block on its own; "loss": what computes it, by itself (components/loss.py). */
static enum err_code read_compile(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const struct node *components = import_node(im, "compile.components");
    const bool on = strcmp(node ? node->text : row->initial, "true") == 0;
    if (on && has_component(components, "loss"))
        TRY(read_compiled_loss(im, row, components ? components : node, err));
    return import_set(im, "compile", on && has_component(components, "model") ? "on" : "off", row,
                      node, err);
}

static bool compiles_loss(const struct settings *s)
{
    return s->job.model.loss == CROSS_ENTROPY_COMPILED;
}

static const char *write_enable(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return s->job.tape.compiled || compiles_loss(s) ? "true" : "false";
}

/* Both are its default. */
static const char *write_components(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    if (s->job.tape.compiled == compiles_loss(s))
        return NULL;
    return s->job.tape.compiled ? "model" : "loss";
}

/* Whether blocks are chosen as a mode of torchtitan's chooses them. */
static bool is_each_kth(const struct settings *s)
{
    return s->job.tape.checkpointing == CHECKPOINTING_FULL &&
           s->job.tape.checkpointed == CHECKPOINTED_EVERY;
}

static const char *write_mode(const struct settings *s, char text[NUMBER_TEXT])
{
    return is_each_kth(s) ? "selective" : settings_get(s, "checkpointing", text);
}

static const char *write_option(const struct settings *s, char text[NUMBER_TEXT])
{
    if (is_each_kth(s))
        snprintf(text, NUMBER_TEXT, "%u", s->job.tape.checkpointed_number);
    return is_each_kth(s)                                         ? text
           : s->job.tape.checkpointing == CHECKPOINTING_SELECTIVE ? "op"
                                                                  : NULL;
}

/* ---- the table ---- */

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses): what the macros hold are initialisers */
#define IDLE(key) {.path = key, .kind = KEY_ANY}
#define IDLE_SECTION(key) {.path = key, .kind = KEY_SECTION}
#define DEGREE(key, what) {.path = key, .kind = KEY_INTEGER, .least = 1, .neutral = "1", .why = what}
#define RANKS(key, what) \
    {.path = key, .kind = KEY_INTEGER, .least = 1, .read = read_ranks, .why = what}
#define FLOAT8 "quantize.linear.float8."
#define TITAN_DTYPES KEY_WORDS({"bfloat16", "bf16"}, {"float32", "fp32"})

static const struct key_row rows[] = {
    {.path = "parallelism.data_parallel_shard_degree", .kind = KEY_INTEGER, .least = -1,
     .setting = "gpus", .read = read_shards, .write = write_shards},
    {.path = "parallelism.data_parallel_replicate_degree", .kind = KEY_INTEGER, .least = 1,
     .setting = "replicate", .read = read_replicas, .write = write_replicas},
    {.path = "parallelism.fsdp_reshard_after_forward", .kind = KEY_WORD, .setting = "reshard",
     .words = KEY_WORDS({"default", "default"}, {"always", "always"}, {"never", "never"}),
     .initial = "default", .systems = FSDP2},
    {.path = "parallelism.enable_fsdp_symm_mem", .kind = KEY_BOOL, .neutral = "false",
     .why = "symmetric memory", .syntaxes = PYTHON},
    DEGREE("parallelism.expert_parallel_degree", "expert parallelism"),
    DEGREE("parallelism.expert_tensor_parallel_degree", "tensor parallelism of experts"),
    IDLE("parallelism.disable_loss_parallel"),
    IDLE("parallelism.enable_async_tensor_parallel"),
    IDLE("parallelism.enable_sequence_parallel"),
    IDLE("parallelism.spmd_backend"),
    IDLE("parallelism.module_fqns_per_model_part"),
    IDLE("parallelism.num_pp_microbatches"),
    IDLE("parallelism.pipeline_parallel_first_stage_less_layers"),
    IDLE("parallelism.pipeline_parallel_last_stage_less_layers"),
    IDLE("parallelism.pipeline_parallel_layers_per_stage"),
    IDLE("parallelism.pipeline_parallel_schedule"),
    IDLE("parallelism.pipeline_parallel_schedule_csv"),
    IDLE("parallelism.pipeline_parallel_microbatch_size"),
    IDLE("parallelism.pipeline_parallel_split_points"),
    IDLE("parallelism.pipeline_parallel_expert_parallel_overlap"),
    IDLE("parallelism.context_parallel_load_balancer"),
    IDLE("parallelism.context_parallel_ptrr_mask_key"),
    IDLE("parallelism.context_parallel_rotate_method"),
    IDLE("parallelism.expert_parallel_comm_backend"),

    {.path = "model.name", .kind = KEY_TEXT, .syntaxes = TOML, .setting = "model",
     .read = import_elsewhere, .write = write_name},
    {.path = "model.flavor", .kind = KEY_TEXT, .syntaxes = TOML, .setting = "model",
     .read = read_flavor, .write = write_flavor},
    {.path = "model.hf_assets_path", .kind = KEY_TEXT, .syntaxes = TOML, .read = read_assets},
    {.path = "model.tokenizer_path", .kind = KEY_TEXT, .syntaxes = TOML},
    {.path = "model.norm_type", .kind = KEY_TEXT, .syntaxes = TOML, .neutral = "rmsnorm",
     .why = "norms of another kind: planned as the model's own RMSNorm"},
    {.path = "model.use_flex_attn", .kind = KEY_BOOL, .syntaxes = TOML, .neutral = "false",
     .why = "FlexAttention: planned as scaled_dot_product_attention"},
    {.path = "model.converters", .kind = KEY_LIST, .syntaxes = TOML, .setting = "float8",
     .read = torchtitan_read_converters, .write = torchtitan_write_converters},
    {.path = FLOAT8 "filter_fqns", .kind = KEY_LIST, .syntaxes = TOML, .setting = "float8",
     .read = torchtitan_read_float8, .write = torchtitan_write_filter},
    {.path = FLOAT8 "recipe_name", .kind = KEY_TEXT, .syntaxes = TOML, .setting = "float8",
     .read = torchtitan_read_float8, .write = torchtitan_write_recipe},
    {.path = FLOAT8 "enable_fsdp_float8_all_gather", .kind = KEY_BOOL, .syntaxes = TOML,
     .setting = "float8-gather", .read = torchtitan_read_float8, .write = torchtitan_write_gather},
    {.path = FLOAT8 "precompute_float8_dynamic_scale_for_fsdp", .kind = KEY_BOOL, .syntaxes = TOML,
     .setting = "float8-gather", .read = torchtitan_read_float8, .write = torchtitan_write_precomputed},
    {.path = "model.print_after_conversion", .kind = KEY_BOOL, .syntaxes = TOML},
    {.path = "hf_assets_path", .kind = KEY_TEXT, .syntaxes = PYTHON, .read = read_assets},
    {.path = "model_spec", .kind = KEY_TABLE, .syntaxes = PYTHON},
    {.path = "model_spec.0", .kind = KEY_TEXT, .syntaxes = PYTHON, .setting = "model",
     .read = read_flavor},
    {.path = "model_spec.converters", .kind = KEY_ANY, .syntaxes = PYTHON, .read = torchtitan_read_converters},
    {.path = "model_spec.attn_backend", .kind = KEY_TEXT, .syntaxes = PYTHON, .neutral = "sdpa",
     .why = "another attention"},

    {.path = "training.seq_len", .kind = KEY_INTEGER, .least = 1, .setting = "seq",
     .initial = "2048", .syntaxes = TOML},
    {.path = "training.local_batch_size", .kind = KEY_INTEGER, .least = 1,
     .setting = "micro-batch", .initial = "8", .syntaxes = TOML},
    {.path = "training.global_batch_size", .kind = KEY_INTEGER, .least = -1,
     .setting = "accumulate", .syntaxes = TOML, .read = read_global_batch,
     .write = write_global_batch},
    {.path = "training.max_context_length", .kind = KEY_INTEGER, .least = 1, .setting = "seq",
     .initial = "2048", .syntaxes = PYTHON},
    {.path = "training.num_tokens_per_microbatch_per_dp_rank", .kind = KEY_INTEGER, .least = 1,
     .setting = "micro-batch", .syntaxes = PYTHON, .read = read_tokens},
    {.path = "training.num_tokens_per_train_step", .kind = KEY_INTEGER, .least = -1,
     .setting = "accumulate", .syntaxes = PYTHON, .read = read_step_tokens},
    RANKS("parallelism.tensor_parallel_degree", "tensor parallelism"),
    RANKS("parallelism.pipeline_parallel_degree", "pipeline parallelism"),
    RANKS("parallelism.context_parallel_degree", "context parallelism"),
    {.path = "training.max_norm", .kind = KEY_REAL, .least = 0, .setting = "clip",
     .initial = "1.0"},
    {.path = "training.enable_cpu_offload", .kind = KEY_BOOL, .setting = "offload",
     .words = KEY_WORDS({"true", "cpu"}, {"false", "none"}), .initial = "false", .systems = FSDP2},
    {.path = "training.dtype", .kind = KEY_WORD, .setting = "store-dtype", .words = TITAN_DTYPES,
     .initial = "float32"},
    {.path = "training.mixed_precision_param", .kind = KEY_WORD, .setting = "param-dtype",
     .words = TITAN_DTYPES, .initial = "bfloat16", .systems = FSDP2},
    {.path = "training.mixed_precision_param", .kind = KEY_WORD, .setting = "autocast",
     .words = KEY_WORDS({"bfloat16", "bf16"}, {"float32", "none"}), .initial = "bfloat16",
     .systems = DDP | SINGLE},
    {.path = "training.mixed_precision_reduce", .kind = KEY_WORD, .setting = "reduce-dtype",
     .words = KEY_WORDS({"float32", "fp32"}), .initial = "float32", .systems = FSDP2},
    {.path = "training.disable_cuda_graphs", .kind = KEY_BOOL, .neutral = "true",
     .why = "CUDA graphs", .syntaxes = PYTHON},
    IDLE("training.steps"), IDLE("training.warmup_steps"), IDLE("training.warmup_pct"),
    IDLE("training.seed"), IDLE("training.checkpoint_interval"),
    IDLE("training.checkpoint_interval_type"), IDLE("training.checkpoint_folder"),
    IDLE("training.dataset"),
    IDLE("training.dataset_path"),
    IDLE("training.gc_freq"),
    IDLE("training.gc_debug"),
    IDLE_SECTION("training.dataloader"),

    {.path = "optimizer", .kind = KEY_WORD, .setting = "optimizer", .syntaxes = PYTHON,
     .words = KEY_WORDS({"default_adamw", "adamw"}, {"OptimizersContainer.Config", NULL}),
     .why = "its parameter groups are not read", .initial = "default_adamw"},
    {.path = "optimizer.name", .kind = KEY_WORD, .setting = "optimizer", .syntaxes = TOML,
     .words = KEY_WORDS({"AdamW", "adamw"}, {"Adam", NULL}), .initial = "AdamW",
     .why = "planned as AdamW, which has the same states"},
    {.path = "optimizer.implementation", .kind = KEY_WORD, .setting = "optimizer-impl",
     .words = KEY_WORDS({"fused", "fused"}, {"foreach", "foreach"}, {"for-loop", "loop"},
                        {"fused_opt_states_bf16", NULL}),
     .initial = "fused", .why = "optimizer states in bf16: planned in fp32"},
    {.path = "optimizer.early_step_in_backward", .kind = KEY_BOOL, .neutral = "false",
     .why = "the optimizer in backward"},
    IDLE("optimizer.lr"), IDLE("optimizer.beta1"), IDLE("optimizer.beta2"), IDLE("optimizer.eps"),
    IDLE("optimizer.weight_decay"), IDLE("optimizer.param_groups"),

    {.path = "activation_checkpoint", .kind = KEY_WORD, .setting = "checkpointing",
     .words = KEY_WORDS({"SelectiveAC.Config", "selective"}, {"FullAC.Config", "full"},
                        {"MemoryBudgetAC.Config", NULL}),
     .initial = "SelectiveAC.Config", .why = "a memory budget: planned without checkpointing",
     .syntaxes = PYTHON},
    {.path = "activation_checkpoint.mode", .kind = KEY_WORD, .setting = "checkpointing",
     .words = KEY_WORDS({"none", NULL}, {"selective", NULL}, {"full", NULL},
                        {"memory_budget", NULL}),
     .initial = "selective", .read = read_mode, .write = write_mode, .syntaxes = TOML},
    {.path = "activation_checkpoint.selective_ac_option", .kind = KEY_ANY,
     .setting = "checkpointing", .read = import_elsewhere, .write = write_option, .syntaxes = TOML},
    {.path = "activation_checkpoint.early_stop", .kind = KEY_BOOL, .setting = "early-stop",
     .words = KEY_WORDS({"true", "on"}, {"false", "off"}), .initial = "false"},
    IDLE("activation_checkpoint.preserve_rng_state"),
    IDLE("activation_checkpoint.determinism_check"),
    IDLE("activation_checkpoint.debug"),
    IDLE("activation_checkpoint.memory_budget"),
    IDLE("activation_checkpoint.visualize_memory_budget_pareto"),
    IDLE("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"),
    IDLE("activation_checkpoint.force_recompute_mm_shapes_by_fqns"),

    {.path = "compile.enable", .kind = KEY_BOOL, .setting = "compile", .read = read_compile,
     .words = KEY_WORDS({"true", "on"}, {"false", "off"}), .initial = "false",
     .systems = FSDP2 | DDP | SINGLE, .write = write_enable},
    {.path = "compile.components", .kind = KEY_LIST, .setting = "loss", .read = import_elsewhere,
     .write = write_components, .systems = FSDP2 | DDP | SINGLE},
    IDLE("compile.components"), IDLE("compile.backend"),
    IDLE("compile.enable_async_tensor_parallel"),
    {.path = "loss", .kind = KEY_WORD, .setting = "loss", .syntaxes = PYTHON,
     .words = KEY_WORDS({"ChunkedLossWrapper.Config", "chunked"},
                        {"CrossEntropyLoss.Config", "eager"}),
     .neutral = "CrossEntropyLoss.Config"},
    IDLE_SECTION("loss.loss_fn"), IDLE("loss.global_vocab_size"), IDLE("loss.num_chunks"),
    {.path = "memory_estimation.enable", .kind = KEY_BOOL},
    {.path = "fault_tolerance.enable", .kind = KEY_BOOL, .neutral = "false",
     .why = "fault tolerance (torchft)"},
    IDLE_SECTION("job"), IDLE_SECTION("profiling"), IDLE_SECTION("profiler"),
    IDLE_SECTION("metrics"), IDLE_SECTION("lr_scheduler"), IDLE_SECTION("checkpoint"),
    IDLE_SECTION("comm"), IDLE_SECTION("validation"), IDLE_SECTION("validator"),
    IDLE_SECTION("debug"), IDLE_SECTION("memory_estimation"), IDLE_SECTION("fault_tolerance"),
    IDLE_SECTION("quantize"), IDLE_SECTION("float8"), IDLE_SECTION("mx"),
    IDLE_SECTION("experimental"), IDLE_SECTION("dataloader"), IDLE_SECTION("tokenizer"),
    IDLE("dump_folder"),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct implied_setting implied[] = {
    {"code", "torchtitan", 0, NULL, NULL},
    {"units", "torchtitan", FSDP2, NULL, NULL},
    {"accumulate-sync", "each", FSDP2 | DDP, NULL, NULL},
    {"bucket-cap-mb", "100", DDP, NULL, NULL},
    {"expandable-segments", "on", 0,
     "run_train.sh sets PYTORCH_ALLOC_CONF=expandable_segments:True (since October 2024, "
     "torchtitan a5e57e4a9); a launcher of one's own may not",
     NULL},
    {NULL, NULL, 0, NULL, NULL},
};

static const struct script_setting script[] = {
    {"gpus", "torchrun --nproc-per-node x --nnodes = %s", NULL, false},
    {"model", "the model: %s", NULL, false},
    {NULL, NULL, NULL, false},
};

const struct framework framework_torchtitan = {
    .name = "torchtitan",
    .about = "a configuration of torchtitan",
    KEY_ROWS(rows),
    .implied = implied,
    .script = script,
    .syntax = SYNTAX_TOML,
    .systems = FSDP2 | DDP | SINGLE,
    .versions = "torchtitan v0.2.0 to v0.2.2 (TOML)",
    .prepare = torchtitan_older,
    .renamed = torchtitan_renamed,
    .other_name = torchtitan_other_name,
};
