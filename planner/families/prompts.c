/* prompts.c - see prompts.h. */
#include "families/prompts.h"

#include <string.h>

#define OPTION "--prompt-tokens"

/* Whose labels are not the tokens themselves, each of which is the one before's target. */
static const char *without(const struct family *family, const struct model_job *job)
{
    return job->code != CODE_HF ? "of transformers' labels alone, --code hf: others have targets"
           : family->encoder || strstr(family->name, "t5")
               ? "of a decoder, whose labels are its own tokens"
           : job->task ? "of a model that writes: one that classifies has a label a sequence"
           : job->sample_tokens ? "not with --sample-tokens: samples begin within a sequence, too"
                                : NULL;
}

enum err_code prompts_check(const struct family *family, const struct model_job *job,
                            struct err *err)
{
    const bool grpo = job->loss == CROSS_ENTROPY_GRPO;
    const char *odd = without(family, job);
    if (grpo && job->prompt_tokens == 0)
        return err_set(err, ERR_INVALID,
                       "--loss grpo: of the %u tokens of a sequence (--seq), how many are its "
                       "prompt? " OPTION " N, 1 to %u: the others are completion",
                       job->seq, job->seq > 1 ? job->seq - 1 : 1);
    if (job->prompt_tokens == 0)
        return ERR_OK;
    if (odd && !grpo)
        return err_set(err, ERR_INVALID, OPTION ": %s", odd);
    if (job->prompt_tokens >= job->seq)
        return err_set(err, ERR_INVALID,
                       OPTION " %u: of --seq %u at most %u are prompt: a token behind it is left",
                       job->prompt_tokens, job->seq, job->seq - 1);
    if (job->loss == CROSS_ENTROPY_DPO)
        return err_set(err, ERR_UNSUPPORTED,
                       OPTION " with --loss dpo is not planned: every token counts as one of the "
                              "completion; --prompt-tokens 0 is");
    return ERR_OK;
}
