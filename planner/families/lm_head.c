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

enum err_code lm_head_check(const struct family *family, const struct model_job *job,
                            struct err *err)
{
    if (job->loss != CROSS_ENTROPY_LM_HEAD)
        return ERR_OK;
    if (job->code == CODE_HF && fails(family))
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss fused-lm-head: TRL 1.16.0 fails with %s (its output \"has no "
                       "attribute 'last_hidden_state'\")",
                       family->name);
    return head_loss_check(job, "TRL", err);
}

enum err_code lm_head_check_built(const struct family *family, const struct graph *graph,
                                  struct err *err)
{
    if (graph->cross_entropy != CROSS_ENTROPY_LM_HEAD)
        return ERR_OK;
    for (uint32_t i = graph->op_count; i-- > 0;)
        if (graph->ops[i].kind == OP_LOG_PROBS)
            return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED, "--loss fused-lm-head of %s is not planned", family->name);
}
