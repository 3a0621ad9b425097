/* prompts.c - see prompts.h. */
#include "families/prompts.h"

#include "model/grpo.h"

#include <string.h>

#define OPTION "--prompt-tokens"
static const uint64_t MOST_GENERATED = 1ULL << 31;

/* TRL takes a column of one number, of completions of a token, for one of each sequence. */
enum { LEAST_COMPLETION = 2 };

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
    const uint32_t left = grpo ? LEAST_COMPLETION : 1; /* tokens behind a prompt */
    const char *odd = without(family, job);
    if (grpo && job->seq <= left)
        return err_set(err, ERR_INVALID,
                       "--loss grpo: --seq %u: a prompt and two tokens of a completion take %u",
                       job->seq, left + 1);
    if (grpo && job->prompt_tokens == 0)
        return err_set(err, ERR_INVALID,
                       "--loss grpo: of the %u tokens of a sequence (--seq), how many are its "
                       "prompt? " OPTION " N, 1 to %u: the others are completion",
                       job->seq, job->seq - left);
    if (job->prompt_tokens == 0)
        return ERR_OK;
    if (odd && !grpo)
        return err_set(err, ERR_INVALID, OPTION ": %s", odd);
    if (job->prompt_tokens >= job->seq || job->seq - job->prompt_tokens < left)
        return err_set(err, job->prompt_tokens >= job->seq ? ERR_INVALID : ERR_UNSUPPORTED,
                       OPTION " %u: of --seq %u at most %u are prompt%s: %s", job->prompt_tokens,
                       job->seq, job->seq - left, grpo ? " with --loss grpo" : "",
                       grpo ? "completions of two tokens and more are planned"
                            : "a token behind it is left");
    if (grpo && (uint64_t)job->batch * grpo_generated(job) * job->seq > MOST_GENERATED)
        return err_set(err, ERR_INVALID,
                       "--loss grpo: %u sequences of %u tokens in each of %u batches that are "
                       "generated at once are over 2^31 tokens",
                       job->batch, job->seq, grpo_generated(job));
    if (job->loss == CROSS_ENTROPY_DPO)
        return err_set(err, ERR_UNSUPPORTED,
                       OPTION " with --loss dpo is not planned: every token counts as one of the "
                              "completion; --prompt-tokens 0 is");
    return ERR_OK;
}
