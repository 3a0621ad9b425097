/* recorded_under.c - see recorded_under.h. */
#include "job/recorded_under.h"

#include "job/offloading.h"
#include "job/reentrant.h"

static bool is_zero(const struct job *job)
{
    const enum system_kind system = job->strategy.system;
    return system == SYSTEM_ZERO1 || system == SYSTEM_ZERO2 || system == SYSTEM_ZERO3;
}

static bool is_ddp_or_fsdp1(const struct job *job)
{
    return job->strategy.system == SYSTEM_DDP || job->strategy.system == SYSTEM_FSDP1;
}

static bool compiles(const struct job *job)
{
    return job_tape(job).compiled != COMPILED_NOT;
}

static bool compiles_model(const struct job *job)
{
    return job->tape.compiled == COMPILED_MODEL;
}

static bool compiles_frozen(const struct job *job)
{
    return compiles(job) && (job->model.lora || (job->model.frozen && *job->model.frozen));
}

static bool compiles_experts(const struct job *job)
{
    return compiles(job) && model_has_experts(&job->config);
}

static bool compiles_under_zero(const struct job *job)
{
    return compiles(job) && is_zero(job);
}

static bool compiles_autocast(const struct job *job)
{
    return compiles(job) && job->model.autocast && job->strategy.system == SYSTEM_FSDP1;
}

static bool compiles_loss(const struct job *job)
{
    return job->model.loss == CROSS_ENTROPY_COMPILED;
}

static bool has_liger(const struct job *job)
{
    return job->model.loss == CROSS_ENTROPY_LIGER ||
           job->model.loss == CROSS_ENTROPY_LIGER_LOGITS ||
           job->model.loss == CROSS_ENTROPY_PER_TOKEN_LIGER || job->model.liger;
}

static bool has_cut(const struct job *job)
{
    return job->model.loss == CROSS_ENTROPY_CUT;
}

static bool has_lm_head(const struct job *job)
{
    return job->model.loss == CROSS_ENTROPY_LM_HEAD;
}

static bool has_preferences(const struct job *job)
{
    return job->model.loss == CROSS_ENTROPY_DPO;
}

static bool has_policies(const struct job *job)
{
    return job->model.loss == CROSS_ENTROPY_GRPO;
}

static bool classifies(const struct job *job)
{
    return job->model.task != TASK_LANGUAGE_MODEL || job->model.loss == CROSS_ENTROPY_REWARD;
}

static bool needs_inputs(const struct job *job)
{
    return job->model.input_grads;
}

static bool has_adapter_units(const struct job *job)
{
    return job->strategy.system == SYSTEM_FSDP2 && job->strategy.adapter_units;
}

static bool is_per_token(const struct job *job)
{
    return loss_is_per_token(job->model.loss);
}

static bool is_float8(const struct job *job)
{
    return job->model.float8;
}

static bool autocasts(const struct job *job)
{
    return is_ddp_or_fsdp1(job) && job->model.autocast;
}

static bool adapts(const struct job *job)
{
    return is_ddp_or_fsdp1(job) && job->model.lora;
}

static bool mixes(const struct job *job)
{
    const struct strategy *s = &job->strategy;
    return system_trains_wide(s) || (s->system == SYSTEM_FSDP1 && s->frozen_low);
}

static bool has_bits4(const struct job *job)
{
    return job->model.bits4.kind != BITS4_NOT;
}

static bool has_bits8(const struct job *job)
{
    return job->model.bits8;
}

static bool parts(const struct job *job)
{
    return job->strategy.units == UNITS_TRAINED;
}

static bool composes_attention(const struct job *job)
{
    return attention_is_composed(job->model.attention);
}

static bool replicates_experts(const struct job *job)
{
    return job->strategy.system == SYSTEM_FSDP2 && job->strategy.experts_replicate;
}

static bool offloads(const struct job *job)
{
    return job->strategy.system == SYSTEM_FSDP2 && job->strategy.offload;
}

static bool ignores(const struct job *job)
{
    return job->strategy.ignore;
}

static bool is_titan_mixture(const struct job *job)
{
    return job->model.code == CODE_TORCHTITAN && model_has_experts(&job->config);
}

enum row { START_UP };

static const struct recorded_under rows[] = {
    [START_UP] = {"--start-up", 14, 15, NULL, true, "start_up.jsonl, start_up_systems.jsonl"},
    {"ZeRO", 14, 15, is_zero, false, "zero_events.jsonl, version_zero_events.jsonl"},
    {"--compile", 14, 15, compiles, false, "compile*.jsonl, version_compile_steps.jsonl"},
    {"--compile model", 14, 14, compiles_model, false,
     "compile_model.jsonl, compile_model_hf.jsonl, compile_steps_frames.jsonl"},
    {"--compile with parameters that are not trained", 14, 14, compiles_frozen, false,
     "compile_frozen.jsonl, compile_steps_frozen.jsonl"},
    {"--compile of mixtures of experts", 14, 14, compiles_experts, false,
     "compile_moe.jsonl, compile_steps_moe.jsonl, compile_steps_titan.jsonl"},
    {"--compile under ZeRO", 14, 14, compiles_under_zero, false, "compile_steps_zero.jsonl"},
    {"--compile with --autocast under FSDP1", 14, 14, compiles_autocast, false,
     "compile_steps.jsonl"},
    {"--loss compiled", 14, 14, compiles_loss, false, "compile_loss.jsonl"},
    {"--liger, --loss liger", 14, 14, has_liger, false, "liger_events.jsonl"},
    {"--loss cut-cross-entropy", 14, 14, has_cut, false, "cut_events.jsonl"},
    {"--loss fused-lm-head", 14, 14, has_lm_head, false, "lm_head_events.jsonl"},
    {"--loss per-token", 14, 14, is_per_token, true, "llama_factory_events.jsonl"},
    {"--loss dpo", 14, 14, has_preferences, false, "dpo_events.jsonl"},
    {"--loss grpo", 14, 14, has_policies, false, "grpo_events.jsonl"},
    {"--task sequence-classification", 14, 14, classifies, false, "classification_events.jsonl"},
    {"--float8", 14, 15, is_float8, false, "float8_events.jsonl, version_real_events.jsonl"},
    {"--autocast", 14, 15, autocasts, false, "systems_events.jsonl, version_systems_events.jsonl"},
    {"--lora", 14, 15, adapts, false, "lora_events.jsonl"},
    {"--frozen-dtype", 14, 14, mixes, false, "frozen_events.jsonl"},
    {"--load-in-4bit", 14, 14, has_bits4, false, "bits4_events.jsonl"},
    {"--load-in-8bit", 14, 14, has_bits8, false, "bits8_events.jsonl"},
    {"--units peft", 14, 14, parts, false, "frozen_events.jsonl"},
    {"--adapter-units", 14, 14, has_adapter_units, true, "llama_factory_events.jsonl"},
    {"--input-grads", 14, 14, needs_inputs, true, "llama_factory_events.jsonl"},
    {"--checkpoint-reentrant", 14, 14, reentrant_is_used, true, "reentrant_events.jsonl"},
    {"--activation-offloading", 14, 14, offloading_is_used, false, "offloading_events.jsonl"},
    {"--attention in single ops", 14, 15, composes_attention, true, "attention_events.jsonl"},
    {"torchtitan's mixtures of experts", 14, 14, is_titan_mixture, true, "titan_events.jsonl"},
    {"--experts-replicate", 14, 15, replicates_experts, false, "experts_events.jsonl"},
    {"--ignore", 14, 14, ignores, false, "fsdp2_events.jsonl, fsdp1_events.jsonl"},
    {"--offload", 6, 15, offloads, false, "offload_events.jsonl, older_events.jsonl"},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

static uint32_t version_of(const struct job *job)
{
    return job->model.torch ? job->model.torch : TORCH_WHOLE;
}

enum err_code recorded_under_check(const struct job *job, struct err *err)
{
    const uint32_t torch = version_of(job);
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct recorded_under *row = &rows[i];
        if (row->is_used && torch < row->first && !row->is_planned_before && row->is_used(job))
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: not known of torch 2.%u; it is planned as of 2.%u", row->what,
                           torch, row->first);
    }
    return ERR_OK;
}

static bool is_not_of(const struct recorded_under *row, uint32_t torch)
{
    return torch < row->first || torch > row->last;
}

const struct recorded_under *recorded_under_not(const struct job *job, uint32_t i)
{
    for (uint32_t at = 0; at < ROWS; at++)
        if (rows[at].is_used && is_not_of(&rows[at], version_of(job)) && rows[at].is_used(job) &&
            i-- == 0)
            return &rows[at];
    return NULL;
}

const struct recorded_under *recorded_under_start_up(const struct job *job)
{
    return is_not_of(&rows[START_UP], version_of(job)) ? &rows[START_UP] : NULL;
}

uint32_t recorded_under_instead(const struct recorded_under *row, uint32_t torch)
{
    return torch < row->first ? row->first : torch > row->last ? row->last : torch;
}
