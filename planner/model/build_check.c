/* build_check.c - what a config asks for and a code does not compute is refused, not left out.
 *
 * Each code honours what its source does. Dropout is config.json's in hf; torchtitan has none, and
 * nanoGPT's is a setting of its train.py, 0 unless one fine-tunes, whatever config.json says of
 * Hugging Face's. Sliding windows are masks in hf; the other two attend to all tokens before. */
#include "model/build.h"

static bool is_llama_like(enum arch arch)
{
    return arch == ARCH_LLAMA || arch == ARCH_MISTRAL || arch == ARCH_QWEN2 || arch == ARCH_QWEN3;
}

static enum err_code check_torchtitan(const struct model_config *c, const struct model_job *job,
                                      struct err *err)
{
    const bool windows = c->sliding_window && c->full_layers < c->layers;
    if (windows && job->seq > c->sliding_window)
        return err_set(err, ERR_UNSUPPORTED,
                       "--seq %u is longer than the model's sliding window of %u tokens, which "
                       "torchtitan's code has not: use --code hf",
                       job->seq, c->sliding_window);
    if (c->attention_dropout > 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "the model asks for attention dropout %g, which torchtitan's code has not: "
                       "use --code hf",
                       (double)c->attention_dropout);
    return ERR_OK;
}

/* Those two ask the positions in every forward pass how long the sequence is, and may make their
 * frequencies anew. */
static enum err_code check_hf(const struct model_config *c, struct err *err)
{
    const enum rope_scaling scaling = (enum rope_scaling)c->rope.scaling;
    if (scaling == ROPE_DYNAMIC || scaling == ROPE_LONGROPE)
        return err_set(err, ERR_UNSUPPORTED,
                       "RoPE scaling \"%s\" changes frequencies in the forward pass of "
                       "transformers' code, which is not planned%s",
                       rope_scaling_name(scaling),
                       is_llama_like(c->arch) ? ": use --code torchtitan" : "");
    return ERR_OK;
}

enum err_code build_check(const struct model_config *config, const struct model_job *job,
                          struct err *err)
{
    const enum arch arch = config->arch;
    if (config->max_positions && job->seq > config->max_positions &&
        (arch == ARCH_GPT2 || arch == ARCH_OPT || arch == ARCH_BERT))
        return err_set(err, ERR_INVALID, "--seq %u is longer than the model's %u learned positions",
                       job->seq, config->max_positions);
    if (is_llama_like(arch) && job->code != CODE_HF)
        return check_torchtitan(config, job, err);
    return check_hf(config, err);
}
