/* policies.c - see policies.h. */
#include "job/policies.h"

#include "job/offloading.h"

bool policies_autocast(const struct job *job)
{
    return job->model.loss == CROSS_ENTROPY_GRPO && job->strategy.system == SYSTEM_FSDP2 &&
           job->strategy.names_compute;
}

const char *policies_note(const struct job *job)
{
    return job->model.loss == CROSS_ENTROPY_GRPO
               ? "a step trains on completions that are there: generating and scoring them, old "
                 "log-probabilities and the reference's, and rewards are before it"
               : NULL;
}

/* An option of --loss grpo without it. */
static const char *is_of_policies(const struct model_job *m)
{
    return m->grpo.loss != GRPO_DAPO ? "--grpo-loss"
           : m->grpo.beta != 0       ? "--grpo-beta"
           : m->grpo.vllm            ? "--grpo-vllm"
           : m->grpo.steps           ? "--grpo-steps-per-generation"
           : m->grpo.iterations > 1  ? "--grpo-iterations"
                                     : NULL;
}

static enum err_code check_reference(const struct job *job, struct err *err)
{
    if (job->model.grpo.beta == 0 || job->model.lora)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "--grpo-beta without adapters: the reference is a second model, which stays on "
                   "the GPU beside the step and is not planned so; it is with --lora, whose "
                   "reference is the model without them, or --grpo-beta 0 (GRPOConfig's default)");
}

enum err_code policies_check(const struct job *job, struct err *err)
{
    const struct model_job *m = &job->model;
    const char *option = is_of_policies(m);
    if (m->loss != CROSS_ENTROPY_GRPO)
        return option ? err_set(err, ERR_INVALID,
                                "%s: of a step of TRL's trainer of policies, --loss grpo", option)
                      : ERR_OK;
    if (policies_autocast(job) && job->strategy.compute != DTYPE_BF16)
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss grpo under fsdp2 with --param-dtype %s: the trainer's forward is "
                       "under autocast to it, which is planned to bf16 alone",
                       dtype_brief(job->strategy.compute));
    if (policies_autocast(job) && job->strategy.ignore)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--ignore with --loss grpo, whose forward is under autocast, is not planned");
    if (offloading_is_used(job))
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss grpo with --activation-offloading is not planned: GRPOConfig has no "
                       "such key, and what the log's nodes saved would wait for the next step");
    return check_reference(job, err);
}
