/* padding.c - see padding.h. */
#include "families/padding.h"

const char *padding_lacks(const struct model_config *c)
{
    const bool other = c->arch == ARCH_T5 || c->arch == ARCH_MT5 || c->arch == ARCH_LLAMA4;
    return other ? family_of(c->arch)->name : NULL;
}

enum err_code padding_check(const struct family *family, const struct model_config *c,
                            const struct model_job *job, struct err *err)
{
    /* of a single sequence a token is left, and the one that it is to predict */
    const uint32_t least = job->batch > 1 || job->task ? 1 : 2;
    const uint32_t left = job->prompt_tokens >= least ? job->prompt_tokens + 1 : least;
    const uint64_t most = padded_most(job->batch, job->seq, left);
    if (job->code != CODE_HF)
        return err_set(err, ERR_INVALID,
                       "--padding-tokens: it is transformers' models that are given a mask of "
                       "what is padded, not %s's%s",
                       code_name(job->code), family->builder[CODE_HF] ? ": --code hf" : "");
    if (job->sample_tokens)
        return err_set(err, ERR_INVALID,
                       "--padding-tokens with --sample-tokens: samples are joined so that nothing "
                       "is padded");
    if (job->padding_tokens > most)
        return err_set(
            err, ERR_INVALID,
            "--padding-tokens %u: of %u sequences of %u tokens at most %llu are padding: "
            "%s",
            job->padding_tokens, job->batch, job->seq, (unsigned long long)most,
            job->prompt_tokens && job->batch > 1
                ? "a token behind its prompt is left of each, and the longest has none"
            : job->prompt_tokens ? "a token behind the prompt is left"
            : job->batch > 1     ? "the longest has none, of the others a token each is left"
            : job->task          ? "a token is left"
                                 : "a token and the one behind it are left");
    if (padding_lacks(c))
        return err_set(err, ERR_UNSUPPORTED,
                       "--padding-tokens: what %s makes of a mask is not planned; "
                       "--padding-tokens 0 is",
                       family->name);
    if (job->compiled || job->traced)
        return err_set(err, ERR_UNSUPPORTED,
                       "--padding-tokens with --compile: what torch.compile makes of a mask is not "
                       "planned");
    return ERR_OK;
}
