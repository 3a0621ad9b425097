/* lm_head.c - see lm_head.h. */
#include "families/lm_head.h"

#include "graph/ops.h"

#include <string.h>

/* Its base_model is itself, so what comes back has no last_hidden_state: TRL 1.16 fails. */
static bool fails(const struct family *family)
{
    return strcmp(family->name, "llama4_text") == 0;
}

const char *lm_head_has(const struct model_config *config)
{
    const struct family *family = family_of(config->arch);
    const bool causal = !family->encoder && !strstr(family->name, "t5");
    return causal && family->builder[CODE_HF] && !fails(family) ? family->name : NULL;
}

static enum err_code check_preferences(const struct model_job *job, struct err *err)
{
    const char *other = job->lora_kernels ? "--lora-kernels" : NULL;
    TRY(pairs_check(job, err));
    if (job->sample_tokens)
        return err_set(err, ERR_INVALID,
                       "--loss dpo --sample-tokens: TRL's trainer of preferences joins no samples");
    if (other)
        return err_set(err, ERR_UNSUPPORTED, "--loss dpo with %s is not planned", other);
    return ERR_OK;
}

static enum err_code check_policies(const struct model_job *job, struct err *err)
{
    if (job->sample_tokens)
        return err_set(err, ERR_INVALID,
                       "--loss grpo --sample-tokens: TRL's trainer of policies joins no samples");
    if (job->lora_kernels)
        return err_set(err, ERR_UNSUPPORTED, "--loss grpo with --lora-kernels is not planned");
    return ERR_OK;
}

enum err_code lm_head_check(const struct family *family, const struct model_job *job,
                            struct err *err)
{
    if (!loss_is_of_trl(job->loss))
        return ERR_OK;
    if (job->code == CODE_HF && fails(family))
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss %s: TRL 1.16.0 fails with %s (its output \"has no attribute "
                       "'last_hidden_state'\")",
                       cross_entropy_name(job->loss), family->name);
    TRY(head_loss_check(job, "TRL", err));
    return job->loss == CROSS_ENTROPY_DPO    ? check_preferences(job, err)
           : job->loss == CROSS_ENTROPY_GRPO ? check_policies(job, err)
                                             : ERR_OK;
}

enum err_code lm_head_check_built(const struct family *family, const struct graph *graph,
                                  struct err *err)
{
    if (!loss_is_of_trl(graph->cross_entropy))
        return ERR_OK;
    for (uint32_t i = graph->op_count; i-- > 0;)
        if (graph->ops[i].kind == OP_LOG_PROBS)
            return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED, "--loss %s of %s is not planned",
                   cross_entropy_name(graph->cross_entropy), family->name);
}
