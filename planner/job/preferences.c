/* preferences.c - see preferences.h. */
#include "job/preferences.h"

#include "job/offloading.h"

/* peft disables adapters by their original parameters' requires_grad, which FSDP1 has at hand while
 * a unit is sharded: what such a unit then hands to blocks that run again needs no gradient, and
 * when the reference's forward has sharded it, none of its parameters has a .grad
 * (_use_sharded_grad_views), so that backward drops what micro-batches before have left. */
static bool freezes_adapters(const struct job *job)
{
    const struct strategy *s = &job->strategy;
    const bool stays = /* unsharded from forward to backward */
        s->sharding == SHARDING_GRAD_OP || s->sharding == SHARDING_HYBRID_ZERO2;
    return job->model.lora && !job->model.precomputed && s->system == SYSTEM_FSDP1 &&
           s->use_orig_params && s->units != UNITS_TRAINED && !stays;
}

/* What a second model is not planned with, as prepare_fsdp and prepare_deepspeed
 * (trl/models/utils.py) shard it; NULL: nothing. */
static const char *unplanned_reference(const struct job *job)
{
    const struct strategy *s = &job->strategy;
    if (offloading_is_used(job) && s->system == SYSTEM_FSDP2)
        return " with --activation-offloading";
    if (s->system == SYSTEM_ZERO3)
        return s->zero.param.on                 ? " with offload_param"
               : s->zero.hpz_partition_size > 1 ? " with zero_hpz_partition_size"
               : s->zero.quantized_weights      ? " with zero_quantized_weights"
                                                : NULL;
    if (s->units == UNITS_ELEMENTS)
        return " with --units by size";
    return s->reshard == RESHARD_INT ? " with --reshard of a number"
           : s->columns              ? " with --placement columns"
           : s->experts_replicate    ? " with --experts-replicate"
           : s->ignore               ? " with --ignore"
                                     : NULL;
}

enum err_code preferences_check(const struct job *job, struct err *err)
{
    if (job->model.loss != CROSS_ENTROPY_DPO)
        return job->model.precomputed ? err_set(err, ERR_INVALID,
                                                "--precompute-ref-log-probs: of a reference, which "
                                                "--loss dpo has")
                                      : ERR_OK;
    const char *with = unplanned_reference(job);
    if (!job->model.lora && !job->model.precomputed && with)
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss dpo without adapters under %s%s: the reference is a second model, "
                       "which is sharded, too, and not planned so; it is with --lora, or "
                       "--precompute-ref-log-probs on",
                       system_name(job->strategy.system), with);
    if (freezes_adapters(job) && job_tape(job).checkpointing != CHECKPOINTING_NONE)
        return err_set(
            err, ERR_INVALID,
            "--loss dpo with --checkpointing under fsdp1: adapters that are in units "
            "with what is frozen are disabled for the reference, and to blocks that "
            "run again they are frozen: PyTorch fails (\"A different number of tensors "
            "was saved during the original forward and recomputation\"), or trains "
            "nothing with --checkpoint-reentrant on; --units peft, with --autocast bf16");
    if (freezes_adapters(job) && job->strategy.accumulate > 1)
        return err_set(err, ERR_INVALID,
                       "--loss dpo with --accumulate %u under fsdp1: adapters that are in units "
                       "with what is frozen are disabled for the reference, behind which PyTorch "
                       "drops the gradients of the micro-batches before: the last alone would be "
                       "trained on; --accumulate 1, --sharding SHARD_GRAD_OP, or --units peft with "
                       "--autocast bf16",
                       job->strategy.accumulate);
    return ERR_OK;
}
