/* truth_strategy.c - see truth_strategy.h. */
#include "tests/support/truth_strategy.h"

#include "job/policies.h"
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum dtype truth_dtype(const char *text, enum dtype otherwise)
{
    for (int i = 0; text && i < DTYPE_COUNT; i++)
        if (strcmp(text, dtype_brief((enum dtype)i)) == 0)
            return (enum dtype)i;
    return otherwise;
}

static enum comm_hook hook_named(const char *name)
{
    return strcmp(name, "allreduce") == 0       ? COMM_HOOK_ALLREDUCE
           : strcmp(name, "bf16_compress") == 0 ? COMM_HOOK_BF16
           : strcmp(name, "fp16_compress") == 0 ? COMM_HOOK_FP16
                                                : COMM_HOOK_NONE;
}

static void read_ddp(const json_t *s, struct strategy *t)
{
    t->system = SYSTEM_DDP;
    t->bucket_cap_mb = (float)json_number_value(json_object_get(s, "bucket_cap_mb"));
    t->bucket_view = truth_bool(s, "gradient_as_bucket_view", false);
    t->static_graph = truth_bool(s, "static_graph", false);
    t->find_unused = truth_bool(s, "find_unused_parameters", false);
    t->keep_buffers = !truth_bool(s, "broadcast_buffers", true);
    t->comm_hook = hook_named(truth_text(s, "comm_hook", ""));
    const char *redundancy = truth_text(s, "zero_redundancy", "");
    t->zero_redundancy = strcmp(redundancy, "plain") == 0         ? ZERO_REDUNDANCY_PLAIN
                         : strcmp(redundancy, "bucket_view") == 0 ? ZERO_REDUNDANCY_VIEW
                                                                  : ZERO_REDUNDANCY_NONE;
}

enum system_kind truth_zero_system(const json_t *strategy)
{
    const uint32_t stage = truth_number(strategy, "stage", 0);
    return stage == 1 ? SYSTEM_ZERO1 : stage == 2 ? SYSTEM_ZERO2 : SYSTEM_ZERO3;
}

/* A row's strategy has the keys of `zero_optimization` beside its own. */
static bool read_zero(const json_t *s, struct strategy *t)
{
    static const char *const others[] = {
        "system",
        "world",
        "rank",
        "accumulate",
        "clip",
        "optimizer",
        "ac",
        "ac_early_stop",
        "ac_blocks",
        "param_dtype",
        "grad_accum_dtype",
        "no_sync",
        "code",
        "freeze",
        "tower",
        "lora",
        "keep_outputs",
        "lora_dropout",
        "lora_dtype",
        "lora_kernels",
        "loss",
        "liger",
        "input_grads",
        "precompute_ref_log_probs",
        "reference_zero",
        "task",
        "num_labels",
        "problem_type",
        "pad_token_id",
        "flatten",
        "gpus_per_node",
        "attention",
        "compile",
        "around",
        "embedding_bits",
        "load_in_4bit",
        "load_in_8bit",
        "double_quant",
        "compute_dtype",
        "quant_storage",
        "kbit",
        "skip_modules",
        "store_dtype",
    };
    struct err err = {0};
    json_t *object = json_copy((json_t *)(uintptr_t)s);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        json_object_del(object, others[i]);
    const uint32_t stage = truth_number(s, "stage", 0);
    t->system = truth_zero_system(s);
    t->grad_accum_fp32 = strcmp(truth_text(s, "grad_accum_dtype", ""), "fp32") == 0;
    t->zero = zero_defaults(stage);
    const enum err_code rc = zero_read_json(object, "row", stage, 0, &t->zero, &err);
    /* DeepSpeed's defaults, as of what is "auto" for the first */
    t->zero.auto_prefetch = t->zero.auto_persistence = json_object_get(s, "reference_zero") != NULL;
    if (rc != ERR_OK)
        print_error("%s\n", err.text);
    t->zero.node_ranks = truth_number(s, "gpus_per_node", 8);
    json_decref(object);
    return rc == ERR_OK;
}

static void read_fsdp1(const json_t *s, struct strategy *t)
{
    static const char *const shardings[] = {
        [SHARDING_FULL] = "FULL_SHARD",
        [SHARDING_GRAD_OP] = "SHARD_GRAD_OP",
        [SHARDING_NONE] = "NO_SHARD",
        [SHARDING_HYBRID] = "HYBRID_SHARD",
        [SHARDING_HYBRID_ZERO2] = "_HYBRID_SHARD_ZERO2",
    };
    const char *sharding = truth_text(s, "sharding", "FULL_SHARD");
    const char *prefetch = truth_text(s, "backward_prefetch", NULL);
    const char *wrap = truth_text(s, "wrap", "blocks");
    t->system = SYSTEM_FSDP1;
    for (int i = 0; i <= SHARDING_HYBRID_ZERO2; i++)
        if (strcmp(shardings[i], sharding) == 0)
            t->sharding = (enum sharding)i;
    t->prefetch = json_is_null(json_object_get(s, "backward_prefetch")) ? PREFETCH_NONE
                  : prefetch && strcmp(prefetch, "post") == 0           ? PREFETCH_POST
                                                                        : PREFETCH_PRE;
    t->forward_prefetch = truth_bool(s, "forward_prefetch", false);
    t->use_orig_params = truth_bool(s, "use_orig_params", false);
    t->unlimited_gathers = !truth_bool(s, "limit_all_gathers", true);
    t->keep_low_precision_grads = truth_bool(s, "keep_low_precision_grads", false);
    t->unit_elements = truth_number(s, "wrap", 0);
    t->units = strcmp(wrap, "peft") == 0    ? UNITS_TRAINED
               : t->unit_elements           ? UNITS_ELEMENTS
               : strcmp(wrap, "none") == 0  ? UNITS_NONE
               : strcmp(wrap, "titan") == 0 ? UNITS_EMBEDDINGS
                                            : UNITS_BLOCKS;
}

/* Whether fully_shard's set_`flag` was called with true for the last micro-batch only. */
static bool is_last_only(const json_t *s, const char *flag)
{
    size_t i;
    const json_t *name;
    json_array_foreach(json_object_get(s, "last_only"), i,
                       name) if (strcmp(json_string_value(name), flag) == 0) return true;
    return false;
}

/* Units with reshard_after_forward=False of their own: the last ones, or by name. The text is the
 * row's. */
static void read_kept(const json_t *row, struct strategy *t)
{
    json_t *s = json_object_get(row, "strategy"), *units = json_object_get(s, "reshard_units");
    const uint32_t count = (uint32_t)json_object_size(units);
    const uint32_t layers = truth_number(json_object_get(row, "model"), "layers", 0);
    const char *name;
    json_t *value;
    char names[512] = "";
    bool last = true;
    json_object_foreach(units, name, value)
    {
        const char *number = strrchr(name, '.');
        last = last && number && strtoul(number + 1, NULL, 10) + count >= layers;
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? "," : "", name);
    }
    if (count == 0)
        return;
    if (last) {
        t->keep_last = count;
        return;
    }
    json_object_set_new(s, "kept_by_name", json_string(names));
    t->keep_units = truth_text(s, "kept_by_name", NULL);
}

static void read_fsdp2(const json_t *row, struct strategy *t)
{
    const json_t *s = json_object_get(row, "strategy");
    read_kept(row, t);
    t->finalize_last = is_last_only(s, "is_last_backward");
    t->all_reduce_last = is_last_only(s, "requires_all_reduce");
    t->reshard_last = is_last_only(s, "reshard_after_backward");
    t->columns = truth_number(s, "shard_dim", 0) == 1;
    t->reduce_buffers = truth_number(s, "max_input_buffers", 1);
    t->not_in_backward =
        json_string_value(json_array_get(json_object_get(s, "unshard_in_backward_off"), 0));
}

/* strategy.ac_blocks: "first-2", "first-50%", "every-2" or "all". */
static void read_blocks(const char *text, struct tape_options *tape)
{
    const char *number = strchr(text, '-');
    if (!number)
        return;
    tape->checkpointed_number = (uint32_t)strtoul(number + 1, NULL, 10);
    tape->checkpointed = strncmp(text, "every", 5) == 0 ? CHECKPOINTED_EVERY
                         : strchr(text, '%')            ? CHECKPOINTED_SHARE
                                                        : CHECKPOINTED_FIRST;
}

enum float8 truth_float8(const char *recipe)
{
    return strcmp(recipe, "tensorwise") == 0           ? FLOAT8_TENSORWISE
           : strcmp(recipe, "rowwise") == 0            ? FLOAT8_ROWWISE
           : strcmp(recipe, "rowwise_with_gw_hp") == 0 ? FLOAT8_ROWWISE_GW_HP
                                                       : FLOAT8_NONE;
}

enum float8_gather truth_float8_gather(const char *scales)
{
    return strcmp(scales, "dynamic") == 0       ? FLOAT8_GATHER_DYNAMIC
           : strcmp(scales, "precomputed") == 0 ? FLOAT8_GATHER_PRECOMPUTED
                                                : FLOAT8_GATHER_NOT;
}

static enum optimizer_kind optimizer_named(const char *name)
{
    return strcmp(name, "sgd") == 0                 ? OPTIMIZER_SGD
           : strcmp(name, "adamw_bnb_8bit") == 0    ? OPTIMIZER_BNB_8BIT
           : strcmp(name, "paged_adamw_8bit") == 0  ? OPTIMIZER_BNB_PAGED_8BIT
           : strcmp(name, "paged_adamw_32bit") == 0 ? OPTIMIZER_BNB_PAGED
           : strcmp(name, "adamw_torch_8bit") == 0  ? OPTIMIZER_AO_8BIT
           : strcmp(name, "adamw_torch_4bit") == 0  ? OPTIMIZER_AO_4BIT
                                                    : OPTIMIZER_ADAMW;
}

/* Weights in 4 bits, or in 8; `kbit`: what else is frozen was cast to fp32. */
static void read_bits(const json_t *s, struct job *job)
{
    const char *kind = truth_text(s, "load_in_4bit", "");
    struct graph_bits4 *bits4 = &job->model.bits4;
    bits4->kind = strcmp(kind, "nf4") == 0   ? BITS4_NF4
                  : strcmp(kind, "fp4") == 0 ? BITS4_FP4
                                             : BITS4_NOT;
    job->model.bits8 = truth_bool(s, "load_in_8bit", false);
    job->model.bits_skipped = truth_text(s, "skip_modules", NULL);
    bits4->twice = truth_bool(s, "double_quant", false);
    bits4->experts = truth_bool(s, "quantize_experts", false);
    bits4->compute = truth_dtype(truth_text(s, "compute_dtype", NULL), DTYPE_FP32);
    bits4->storage = truth_dtype(truth_text(s, "quant_storage", NULL), DTYPE_UINT8);
    job->model.cast_back = truth_text(s, "cast_back", NULL);
    const bool casts = json_object_get(s, "stage") != NULL; /* DeepSpeed does, all to its own */
    if (!truth_bool(s, "kbit", false) || job->model.cast_back || casts)
        return;
    job->strategy.compute = DTYPE_FP32;
    job->strategy.frozen_low = job->strategy.store != DTYPE_FP32;
}

static void read_task(const json_t *s, struct model_job *model)
{
    const char *problem = truth_text(s, "problem_type", "");
    model->task = json_object_get(s, "task") ? TASK_SEQUENCE_CLASSIFICATION : TASK_LANGUAGE_MODEL;
    model->labels = truth_number(s, "num_labels", 0);
    model->sets_pad_token = json_object_get(s, "pad_token_id") != NULL;
    model->problem = strcmp(problem, "regression") == 0                    ? PROBLEM_REGRESSION
                     : strcmp(problem, "single_label_classification") == 0 ? PROBLEM_SINGLE_LABEL
                     : strcmp(problem, "multi_label_classification") == 0  ? PROBLEM_MULTI_LABEL
                                                                           : PROBLEM_AUTO;
}

static void read_policies(const json_t *s, struct grpo_job *grpo)
{
    static const char *const losses[] = {"dapo", "grpo", "bnpo", "dr_grpo", "cispo"};
    const char *loss = truth_text(s, "grpo_loss", "dapo"), *vllm = truth_text(s, "vllm", "off");
    for (int i = 0; i < (int)(sizeof losses / sizeof *losses); i++)
        if (strcmp(loss, losses[i]) == 0)
            grpo->loss = (enum grpo_loss)i;
    grpo->vllm = strcmp(vllm, "token") == 0      ? GRPO_VLLM_TOKEN
                 : strcmp(vllm, "sequence") == 0 ? GRPO_VLLM_SEQUENCE
                                                 : GRPO_VLLM_OFF;
    grpo->beta = (float)json_number_value(json_object_get(s, "grpo_beta"));
    grpo->steps = truth_number(s, "steps_per_generation", 0);
    grpo->iterations = truth_number(s, "grpo_iterations", 1);
}

void truth_read_strategy(const json_t *row, struct job *job)
{
    const json_t *s = json_object_get(row, "strategy");
    struct strategy *t = &job->strategy;
    const bool zero = strcmp(truth_text(s, "system", ""), "deepspeed") == 0;
    assert_true(!zero || read_zero(s, t));
    if (strcmp(truth_text(s, "system", "fsdp2"), "ddp") == 0)
        read_ddp(s, t);
    else if (strcmp(truth_text(s, "system", "fsdp2"), "single") == 0)
        t->system = SYSTEM_SINGLE;
    else
        read_fsdp2(row, t);
    job->model.frozen = truth_text(s, "freeze", NULL);
    if (strcmp(truth_text(s, "tower", ""), "trained") == 0)
        job->model.tower = TOWER_TRAINED;
    job->model.lora = truth_text(s, "lora", NULL);
    job->model.input_grads = truth_number(s, "input_grads", 0) != 0;
    job->model.lora_dropout = (float)json_number_value(json_object_get(s, "lora_dropout"));
    job->model.lora_kernels = truth_text(s, "lora_kernels", NULL);
    job->strategy.ignore = truth_text(s, "ignore", NULL);
    job->model.float8 = truth_float8(truth_text(s, "float8", ""));
    const char *loss = truth_text(s, "loss", "");
    job->model.loss = strcmp(loss, "direct") == 0                ? CROSS_ENTROPY_DIRECT
                      : strcmp(loss, "liger") == 0               ? CROSS_ENTROPY_LIGER
                      : strcmp(loss, "liger-cross-entropy") == 0 ? CROSS_ENTROPY_LIGER_LOGITS
                      : strcmp(loss, "cut-cross-entropy") == 0   ? CROSS_ENTROPY_CUT
                      : strcmp(loss, "fused-lm-head") == 0       ? CROSS_ENTROPY_LM_HEAD
                      : strcmp(loss, "per-token") == 0           ? CROSS_ENTROPY_PER_TOKEN
                      : strcmp(loss, "per-token-liger") == 0     ? CROSS_ENTROPY_PER_TOKEN_LIGER
                      : strcmp(loss, "dpo") == 0                 ? CROSS_ENTROPY_DPO
                      : strcmp(loss, "reward") == 0              ? CROSS_ENTROPY_REWARD
                      : strcmp(loss, "grpo") == 0                ? CROSS_ENTROPY_GRPO
                                                                 : CROSS_ENTROPY_EAGER;
    read_task(s, &job->model);
    read_policies(s, &job->model.grpo);
    job->model.precomputed = json_is_true(json_object_get(s, "precompute_ref_log_probs"));
    job->model.liger = truth_text(s, "liger", NULL);
    job->model.float8_gather = truth_float8_gather(truth_text(s, "float8_all_gather", ""));
    const char *attention = truth_text(s, "attention", "");
    job->model.attention = strcmp(attention, "math") == 0         ? ATTENTION_MATH
                           : strcmp(attention, "eager") == 0      ? ATTENTION_EAGER
                           : strcmp(attention, "cudnn") == 0      ? ATTENTION_CUDNN
                           : strcmp(attention, "flash-attn") == 0 ? ATTENTION_FLASH_ATTN
                                                                  : ATTENTION_AUTO;
    job->model.autocast = strcmp(truth_text(s, "autocast", ""), "bf16") == 0;
    job->model.outputs_fp32 = strcmp(truth_text(s, "outputs", ""), "fp32") == 0;
    const char *kept = truth_text(s, "keep_outputs", "");
    job->model.outputs_kept = strcmp(kept, "next") == 0       ? OUTPUTS_UNTIL_NEXT
                              : strcmp(kept, "backward") == 0 ? OUTPUTS_UNTIL_BACKWARD
                                                              : OUTPUTS_DROPPED;
    t->world = truth_number(s, "world", 1);
    t->rank = truth_number(s, "rank", 0);
    t->replicate = truth_number(s, "replicate", 1);
    t->experts_replicate = truth_number(s, "experts_replicate", 0);
    t->per_unit = truth_number(s, "blocks_per_unit", 1);
    t->adapter_units = truth_number(s, "adapter_units", 0) != 0;
    const char *units = truth_text(s, "units", "");
    t->units = strcmp(units, "torchtitan") == 0   ? UNITS_TORCHTITAN
               : strcmp(units, "embeddings") == 0 ? UNITS_EMBEDDINGS
                                                  : UNITS_BLOCKS;
    const char *reshard = truth_text(s, "reshard", "default");
    t->reshard = strcmp(reshard, "always") == 0  ? RESHARD_ALWAYS
                 : strcmp(reshard, "never") == 0 ? RESHARD_NEVER
                                                 : RESHARD_DEFAULT;
    t->reshard_ranks = truth_number(s, "reshard", 0);
    if (t->reshard_ranks)
        t->reshard = RESHARD_INT;
    t->forward_prefetch = truth_number(s, "forward_prefetch", 0);
    t->backward_prefetch = truth_number(s, "backward_prefetch", 0);
    if (strcmp(truth_text(s, "system", "fsdp2"), "fsdp1") == 0)
        read_fsdp1(s, t);
    t->store = truth_dtype(truth_text(s, "store_dtype", "fp32"), DTYPE_FP32);
    t->compute = truth_dtype(truth_text(s, "param_dtype", NULL), t->store);
    t->names_compute = truth_text(s, "param_dtype", NULL) != NULL;
    if (json_object_get(s, "lora_dtype")) { /* the adapters' own: the rest is in another */
        t->frozen_low = true;
        t->store = truth_dtype(truth_text(s, "lora_dtype", NULL), t->store);
    }
    t->frozen_low |= json_object_get(s, "reference_dtype") != NULL; /* in `compute` */
    read_bits(s, job);
    t->reduce =
        truth_dtype(truth_text(s, "reduce_dtype", NULL), strategy_own_reduce(t, job->model.torch));
    job->model.compute = t->compute;
    job->model.autocast |= policies_autocast(job);
    t->accumulate = truth_number(s, "accumulate", 1);
    t->accumulate_sync = !truth_bool(s, "no_sync", true);
    const bool clips = truth_bool(s, "clip", zero); /* DeepSpeed's default is 1 */
    t->max_norm = clips || json_is_real(json_object_get(s, "clip")) ? 1.0F : 0.0F;
    t->offload = strcmp(truth_text(s, "offload", ""), "cpu") == 0;
    const char *optimizer = truth_text(s, "optimizer", "adamw_foreach");
    t->optimizer = optimizer_named(optimizer);
    t->coded_embeddings = truth_number(s, "embedding_bits", 32) == 8;
    t->impl = strcmp(optimizer, "adamw_fused") == 0  ? IMPL_FUSED
              : strcmp(optimizer, "adamw_loop") == 0 ? IMPL_LOOP
                                                     : IMPL_FOREACH;
    const char *ac = truth_text(s, "ac", "");
    job->tape.reentrant = strcmp(ac, "reentrant") == 0;
    job->tape.checkpointing = job->tape.reentrant || strcmp(ac, "full") == 0 ? CHECKPOINTING_FULL
                              : strcmp(ac, "selective") == 0 ? CHECKPOINTING_SELECTIVE
                                                             : CHECKPOINTING_NONE;
    job->tape.no_early_stop = !truth_bool(s, "ac_early_stop", true);
    const json_t *offloads = json_object_get(s, "activation_offloading");
    job->tape.saved_on = json_is_true(offloads) ? SAVED_ON_HOST_ASIDE
                         : strcmp(truth_text(s, "activation_offloading", ""), "weights") == 0
                             ? SAVED_ON_HOST_ASIDE_ALL
                         : json_is_string(offloads) ? SAVED_ON_HOST
                                                    : SAVED_ON_DEVICE;
    const char *compile = truth_text(s, "compile", "");
    job->tape.whole_graphs = !truth_bool(s, "optimize_ddp", false);
    job->tape.compiled = strcmp(compile, "model") == 0    ? COMPILED_MODEL
                         : strcmp(compile, "blocks") == 0 ? COMPILED_BLOCKS
                                                          : COMPILED_NOT;
    read_blocks(truth_text(s, "ac_blocks", "all"), &job->tape);
}
