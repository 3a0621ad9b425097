/* per_token.c - see per_token.h. */
#include "families/per_token.h"

#include "graph/ops.h"

#include <string.h>

#define OPTION "--loss per-token"

const char *per_token_has(const struct model_config *config)
{
    const struct family *family = family_of(config->arch);
    const bool causal = !family->encoder && !strstr(family->name, "t5");
    return causal && family->builder[CODE_HF] ? family->name : NULL;
}

enum err_code per_token_check(const struct model_job *job, struct err *err)
{
    if (!loss_is_per_token(job->loss))
        return ERR_OK;
    if (job->outputs_kept != OUTPUTS_DROPPED)
        return err_set(err, ERR_INVALID,
                       OPTION " with --keep-outputs: the trainer's function has what the model "
                              "returned until it is done");
    return head_loss_check(job, "LLaMA-Factory", err);
}

enum err_code per_token_check_built(const struct family *family, const struct graph *graph,
                                    struct err *err)
{
    if (!loss_is_per_token(graph->cross_entropy))
        return ERR_OK;
    for (uint32_t i = graph->op_count; i-- > 0;)
        if (graph->ops[i].kind == OP_NLL_LOSSES || graph->ops[i].kind == OP_LIGER_CROSS_ENTROPIES)
            return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED, OPTION " of %s is not planned", family->name);
}
