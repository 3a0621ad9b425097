/* preferences.c - see preferences.h. */
#include "job/preferences.h"

/* peft disables adapters by their original parameters' requires_grad, which FSDP1 has at hand while
 * a unit is sharded: what such a unit then hands to blocks that run again needs no gradient. */
static bool freezes_adapters(const struct job *job)
{
    const struct strategy *s = &job->strategy;
    const bool stays = /* unsharded from forward to backward */
        s->sharding == SHARDING_GRAD_OP || s->sharding == SHARDING_HYBRID_ZERO2;
    return s->system == SYSTEM_FSDP1 && s->use_orig_params && s->units != UNITS_TRAINED && !stays &&
           job_tape(job).checkpointing != CHECKPOINTING_NONE;
}

static bool shards_models(enum system_kind system)
{
    return system == SYSTEM_FSDP2 || system == SYSTEM_FSDP1 || system == SYSTEM_ZERO3;
}

enum err_code preferences_check(const struct job *job, struct err *err)
{
    if (job->model.loss != CROSS_ENTROPY_DPO)
        return job->model.precomputed ? err_set(err, ERR_INVALID,
                                                "--precompute-ref-log-probs: of a reference, which "
                                                "--loss dpo has")
                                      : ERR_OK;
    if (!job->model.lora && !job->model.precomputed && shards_models(job->strategy.system))
        return err_set(
            err, ERR_UNSUPPORTED,
            "--loss dpo without adapters under %s: the reference is a second model, which is "
            "sharded, too, and not planned. It is under ddp, zero1 and zero2; elsewhere with "
            "--lora, or --precompute-ref-log-probs on",
            system_name(job->strategy.system));
    if (job->model.lora && !job->model.precomputed && freezes_adapters(job))
        return err_set(
            err, ERR_INVALID,
            "--loss dpo with --checkpointing under fsdp1: adapters that are in units "
            "with what is frozen are disabled for the reference, and to blocks that "
            "run again they are frozen: PyTorch fails (\"A different number of tensors "
            "was saved during the original forward and recomputation\"), or trains "
            "nothing with --checkpoint-reentrant on; --units peft, with --autocast bf16");
    return ERR_OK;
}
