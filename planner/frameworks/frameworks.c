/* frameworks.c - whose configuration a document is: by the keys that only one framework has. */
#include "frameworks/framework.h"

static const struct {
    const struct framework *framework;
    uint32_t syntaxes;
    const char *keys[8]; /* any of these; NULL ends them */
} signs[] = {
    {&framework_fsdp2, FOR_SYNTAX(PYTHON), {"SETTINGS"}},
    {&framework_torchtitan, FOR_SYNTAX(TOML), {"training", "parallelism", "model", "job"}},
    {&framework_torchtitan, FOR_SYNTAX(PYTHON), {"training", "parallelism", "model_spec"}},
    {&framework_accelerate, FOR_SYNTAX(YAML) | FOR_SYNTAX(JSON), {"distributed_type"}},
    {&framework_deepspeed,
     FOR_SYNTAX(JSON),
     {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size"}},
    {&framework_transformers,
     FOR_SYNTAX(JSON) | FOR_SYNTAX(YAML),
     {"fsdp", "fsdp_config", "per_device_train_batch_size", "deepspeed", "base_model",
      "model_name_or_path"}},
    {&framework_llama_factory,
     FOR_SYNTAX(JSON) | FOR_SYNTAX(YAML),
     {"dist_config", "peft_config", "kernel_config", "quant_config", "model_class",
      "batching_strategy", "train_dataset"}},
    {&framework_transformers,
     FOR_SYNTAX(JSON),
     {"auto_wrap_policy", "transformer_layer_cls_to_wrap", "reshard_after_forward",
      "fsdp_auto_wrap_policy", "fsdp_transformer_layer_cls_to_wrap", "min_num_params",
      "fsdp_min_num_params"}},
};

static bool has_own_loss(const struct settings *settings)
{
    return settings->job.model.loss != CROSS_ENTROPY_EAGER;
}

static bool has_liger(const struct settings *settings)
{
    return settings->job.model.liger != NULL;
}

static bool is_in_float8(const struct settings *settings)
{
    return settings->job.model.float8 != FLOAT8_NONE;
}

static bool is_gathered_in_float8(const struct settings *settings)
{
    return settings->job.model.float8_gather != FLOAT8_GATHER_NOT;
}

static bool is_in_4_bits(const struct settings *settings)
{
    return settings->job.model.bits4.kind != BITS4_NOT;
}

static bool skips_bits(const struct settings *settings)
{
    return is_in_4_bits(settings) && settings->job.model.bits_skipped;
}

bool framework_expands_segments(const struct settings *settings)
{
    return settings->expandable_segments;
}

static const struct script_setting script[] = {
    {"micro-batch", "sequences a GPU and micro-batch: %s", NULL, false},
    {"seq", "tokens of a sequence: %s", NULL, false},
    {"accumulate", "micro-batches of a step: %s", NULL, false},
    {"optimizer", "the optimizer: %s", NULL, false},
    {"loss", "the loss (compiled: torch.compile of the function that has it): %s", has_own_loss,
     false},
    {"liger", "before apply: liger_kernel.transformers.apply_liger_kernel_to_...: %s", has_liger,
     false},
    {"float8",
     "before apply: torchao.float8.convert_to_float8_training of all Linears but the head, recipe "
     "%s",
     is_in_float8, false},
    {"float8-gather",
     "likewise: enable_fsdp_float8_all_gather=True; precomputed: "
     "precompute_float8_dynamic_scale_for_fsdp(model) after each step of the optimizer: %s",
     is_gathered_in_float8, false},
    {"load-in-4bit",
     "before apply: the model is loaded with BitsAndBytesConfig(load_in_4bit=True), "
     "bnb_4bit_quant_type %s",
     is_in_4_bits, false},
    {"bnb-double-quant", "likewise: bnb_4bit_use_double_quant: %s", is_in_4_bits, false},
    {"bnb-quant-storage", "likewise: bnb_4bit_quant_storage: %s", is_in_4_bits, false},
    {"bnb-compute-dtype", "likewise: bnb_4bit_compute_dtype: %s", is_in_4_bits, false},
    {"llm-int8-skip-modules", "likewise: llm_int8_skip_modules: %s", skips_bits, false},
    EXPANDABLE_SEGMENTS_BY_SCRIPT,
    {"optimizer-impl", "foreach=True, fused=True or neither, of the optimizer: %s", NULL, false},
    {"clip", "torch.nn.utils.clip_grad_norm_(model.parameters(), MAXNORM): %s", NULL, false},
    {NULL, NULL, NULL, false},
};

const struct framework framework_fsdp2 = {
    .name = "fsdp2",
    .about = "a file of `shardplan export --to fsdp2`",
    .systems = FOR_SYSTEM(FSDP2),
    .versions = "torch 2.4 and later",
    .syntax = SYNTAX_PYTHON,
    .script = script,
    .settings_path = "SETTINGS",
};

const struct framework *framework_of(const struct document *document)
{
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        for (const char *const *key = signs[i].keys; *key; key++)
            if ((signs[i].syntaxes >> document->syntax & 1U) && document_find(document, *key))
                return signs[i].framework;
    return NULL;
}
