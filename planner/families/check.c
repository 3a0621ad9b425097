/* check.c - what a config asks for and a code does not compute is refused, not left out.
 *
 * Each code honours what its source does. Dropout is config.json's in hf; torchtitan has none, and
 * nanoGPT's is a setting of its train.py, 0 unless one fine-tunes, whatever config.json says of
 * Hugging Face's. Sliding windows are masks in hf; the other two attend to all tokens before. */
#include "base/names.h"
#include "families/family.h"
#include "families/flash_attn.h"
#include "families/padding.h"
#include "families/prompts.h"
#include "model/experts.h"

#include <string.h>

/* torchtitan v0.2.2 has what its flavors ask for, and no more. */
static enum err_code check_mixture(const struct family *family, const struct model_config *c,
                                   struct err *err)
{
    const bool plain = c->arch == ARCH_QWEN3_MOE;
    const char *what = plain && experts_layers(c) < c->layers
                           ? "layers of one model with and without experts"
                       : !plain && c->tied                                  ? "a tied head"
                       : c->attention_bias || c->output_bias || c->mlp_bias ? "biases"
                       : strcmp(c->activation, "silu") != 0                 ? "another activation"
                       : c->batched_experts ? "experts by batched_mm"
                                            : NULL;
    return what ? err_set(err, ERR_UNSUPPORTED,
                          "%s with %s, which torchtitan's code has not: use --code hf",
                          family->name, what)
                : ERR_OK;
}

/* Of its mixtures what was recorded. */
static enum err_code check_mixture_job(const struct model_job *job, struct err *err)
{
    const bool wide = job->compute == DTYPE_FP32 && !job->autocast;
    const char *what = job->traced   ? "with --compile model (with --compile on they are)"
                       : job->float8 ? "with --float8"
                       : attention_is_asked(job->attention) ? "with --attention"
                       : wide                               ? "computed in fp32"
                                                            : NULL;
    return what ? err_set(err, ERR_UNSUPPORTED,
                          "torchtitan's mixtures of experts (--code torchtitan) %s: not "
                          "recorded, and not planned; transformers' (--code hf) are",
                          what)
                : ERR_OK;
}

static enum err_code check_torchtitan(const struct family *family, const struct model_config *c,
                                      const struct model_job *job, struct err *err)
{
    bool windows = false;
    if (model_has_experts(c)) {
        TRY(check_mixture(family, c, err));
        TRY(check_mixture_job(job, err));
    }
    for (uint32_t i = 0; i < c->layers; i++)
        windows = windows || model_has_window(c, i);
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

enum { RECORDED_TEXT = 1200 }; /* a row of names in an error */

/* The families whose whole is recorded, by name. */
static const char *recorded(char *text, size_t size)
{
    const char *names[ARCH_COUNT];
    uint32_t count = 0;
    for (enum arch arch = 0; arch < ARCH_COUNT; arch++)
        if (family_of(arch)->traced)
            names[count++] = family_of(arch)->name;
    return names_list(names, count, text, size);
}

const char *model_untraced(const struct model_config *config)
{
    const struct family *family = config->recording ? NULL : family_of(config->arch);
    return !family ? "recorded calls" : !family->traced ? family->name : NULL;
}

/* Of what torch.compile traces what was recorded. */
static enum err_code check_traced(const struct model_config *c, const struct model_job *job,
                                  struct err *err)
{
    const char *own = model_untraced(c);
    const char *what = own                                     ? own
                       : attention_is_composed(job->attention) ? "attention in single ops"
                                                               : NULL;
    char families[RECORDED_TEXT];
    return what ? err_set(
                      err, ERR_UNSUPPORTED,
                      "--compile model with --code hf and %s: what torch.compile makes of the "
                      "whole was not recorded, and is not planned (of %s it is); --compile on is",
                      what, recorded(families, sizeof families))
                : ERR_OK;
}

static enum err_code check_split(const struct family *family, struct err *err)
{
    char families[RECORDED_TEXT];
    return family->traced
               ? ERR_OK
               : err_set(
                     err, ERR_UNSUPPORTED,
                     "--compile with --code hf under ddp: where DDPOptimizer splits %s's blocks "
                     "was not recorded, and is not planned (of %s it is); --optimize-ddp off "
                     "leaves graphs whole",
                     family->name, recorded(families, sizeof families));
}

/* layernorm_gated.py: "This layer norm doesn't support feature dim >= 64KB." */
static enum err_code check_mamba(const struct family *family, const struct model_config *c,
                                 const struct model_job *job, struct err *err)
{
    const enum dtype dtype = job->wide_trained ? DTYPE_FP32 : job->compute;
    const uint32_t most = SSM_NORM_BYTES / (uint32_t)dtype_bytes(dtype);
    const uint64_t row = (uint64_t)c->ssm_heads * c->ssm_head_dim / c->ssm_groups;
    /* Falcon-H1's multipliers are in the dtype that it was made in, which a product of 16 bits is
     * not */
    const bool wide =
        job->compute == DTYPE_FP32 || (c->ssm_multipliers[0] > 0 && job->made == DTYPE_FP32);
    const bool casts = job->autocast && wide;
    if (casts || job->float8)
        return err_set(err, ERR_UNSUPPORTED,
                       "--%s: what becomes of %s's Mamba-2%s was not recorded, and is not planned; "
                       "parameters in bf16 are (--store-dtype, FSDP's --param-dtype)",
                       casts ? "autocast" : "float8", family->name, casts ? " in fp32" : "");
    const char *groups = NAME_OF(&family->keys, ssm_groups);
    if (row > most && !c->ssm_unnormed)
        return err_set(err, ERR_INVALID,
                       "\"%s\": %u of %u numbers in \"%s\": %u: mamba-ssm's norm takes 1 ... %u "
                       "numbers of a group in %s, not %llu",
                       NAME_OF(&family->keys, ssm_heads), c->ssm_heads, c->ssm_head_dim, groups,
                       c->ssm_groups, most, dtype_brief(dtype), (unsigned long long)row);
    if ((uint64_t)c->ssm_groups * job->batch * job->seq > UINT32_MAX) /* a tensor of one dim */
        return err_set(err, ERR_INVALID,
                       "\"%s\": %u times %llu tokens is over 2^32 - 1: fewer sequences "
                       "(--micro-batch), or shorter ones (--seq)",
                       groups, c->ssm_groups, (unsigned long long)job->batch * job->seq);
    return ERR_OK;
}

/* OLMo Hybrid's A_log, which is made in fp32 whatever the rest is. */
static enum err_code check_made(const struct family *family, const struct model_config *c,
                                const struct model_job *job, struct err *err)
{
    bool trained = false;
    for (uint32_t i = 0; i < c->layers && !job->lora; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%u.linear_attn.A_log", i);
        trained |= model_is_linear(c, i) && !(job->frozen && names_match(job->frozen, name));
    }
    if (job->made == DTYPE_FP32 || (job->as_stored && !trained))
        return ERR_OK;
    return err_set(
        err, ERR_UNSUPPORTED,
        "a model stored in %s: %s's A_log is made in fp32 whatever the rest is, which is "
        "planned where it is frozen and each rank has it whole (--lora or --freeze, "
        "--strategy single or ddp); --store-dtype fp32 is",
        dtype_brief(job->made), family->name);
}

static enum err_code check_hf(const struct family *family, const struct model_config *c,
                              const struct model_job *job, struct err *err)
{
    if (c->arch == ARCH_ERNIE4_5_MOE && job->autocast)
        return err_set(err, ERR_UNSUPPORTED,
                       "--autocast: %s's router turns it off for itself, which is not planned",
                       family->name);
    if ((c->arch == ARCH_ERNIE4_5_MOE || c->arch == ARCH_HUNYUAN_V1_MOE) && job->made != DTYPE_FP32)
        return err_set(err, ERR_UNSUPPORTED,
                       "a model stored in %s: %s's router is made in fp32 whatever the rest is, "
                       "which is not planned; --store-dtype fp32 is",
                       dtype_brief(job->made), family->name);
    if (c->arch == ARCH_FALCON && job->attention == ATTENTION_EAGER)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--attention eager: %s writes attention in Python in a way of its own, which "
            "is not planned",
            family->name);
    if (model_mixes(c) && (job->compiled || job->seq == 1))
        return err_set(err, ERR_UNSUPPORTED,
                       "--%s: what becomes of %s's %s was not recorded, and is not planned",
                       job->compiled ? "compile" : "seq 1", family->name,
                       c->delta_key_heads ? "linear attention"
                       : c->ssm_heads     ? "Mamba-2"
                       : c->scan_rank     ? "Mamba-1"
                                          : "short convolutions");
    if (c->altup_inputs && (job->bits8 || job->bits4.kind != BITS4_NOT || job->float8))
        return err_set(err, ERR_UNSUPPORTED,
                       "--%s: %s's layers limit the weights of AltUp's linear layers, which in few "
                       "bits are no numbers to limit; adapters of what is stored in bf16 are "
                       "planned (--store-dtype bf16)",
                       job->float8  ? "float8"
                       : job->bits8 ? "load-in-8bit"
                                    : "load-in-4bit",
                       family->name);
    if (model_has_mamba1(c) && (job->bits8 || job->bits4.kind != BITS4_NOT))
        return err_set(err, ERR_UNSUPPORTED,
                       "--load-in-%s: in few bits %s's dt_proj is called otherwise, which is not "
                       "planned; adapters of what is stored in bf16 are (--store-dtype bf16)",
                       job->bits8 ? "8bit" : "4bit", family->name);
    if (model_has_mamba1(c) && ((job->autocast && job->compute == DTYPE_FP32) || job->float8))
        return err_set(err, ERR_UNSUPPORTED,
                       "--%s: %s; parameters in bf16 are planned (--store-dtype, FSDP's "
                       "--param-dtype)",
                       job->float8 ? "float8" : "autocast",
                       job->float8
                           ? "what becomes of Mamba-1 was not recorded, and is not planned"
                           : "norms leave B and C of Mamba-1 in fp32 beside others in 16 "
                             "bits, which mamba-ssm's kernel does not take: it stops there");
    if (c->delta_apart)
        TRY(check_made(family, c, job, err));
    if (model_has_mamba(c))
        TRY(check_mamba(family, c, job, err));
    if (c->arch == ARCH_FALCON_H1 && job->made != job->compute)
        return err_set(
            err, ERR_UNSUPPORTED,
            "a model made in %s that computes in %s: %s's mup_vector is a buffer, which stays as "
            "it "
            "was made, and out_proj does not take what comes of it: PyTorch stops there; stored in "
            "the dtype that it computes in it runs (--store-dtype, where a system has it)",
            dtype_brief(job->made), dtype_brief(job->compute), family->name);
    if (job->compiled && job->own_experts)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile with --experts-replicate: hooks of units inside of blocks end "
                       "Dynamo's graphs, which is not planned; --experts-replicate 0 is");
    if (job->traced)
        TRY(check_traced(c, job, err));
    else if (job->split)
        TRY(check_split(family, err));
    const bool in_python = c->sinks || c->arch == ARCH_GEMMA2 || c->arch == ARCH_GPTJ ||
                           c->arch == ARCH_CODEGEN || c->arch == ARCH_GPT_NEO ||
                           c->arch == ARCH_MPT || c->arch == ARCH_MIMO_V2_FLASH ||
                           job->attention == ATTENTION_EAGER;
    if (job->compiled && in_python && !family->traced)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile: what torch.compile makes of %s's attention, which is written in "
                       "Python, was not recorded, and is not planned",
                       family->name);
    if (job->compiled && family->uncompiled)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--compile: what torch.compile makes of %s's blocks was not recorded, and is "
            "not planned; --compile off is",
            family->name);
    if (job->seq == 1 && in_python)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--seq 1: of a single token %s's attention, which is written in Python, copies "
            "otherwise, which is not planned",
            family->name);
    return ERR_OK;
}

/* The loop over chunks has the head in it, which the other codes call with the rest of the model.
 */
static enum err_code check_chunks(const struct family *family, const struct model_job *job,
                                  struct err *err)
{
    const uint64_t tokens = (uint64_t)job->batch * job->seq;
    if (job->code == CODE_HF || family->builder[CODE_HF] == NULL)
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss chunked: %s is planned with --loss eager or fused as %s writes it",
                       family->name, code_name(job->code));
    if (tokens % LOSS_CHUNKS)
        return err_set(err, ERR_INVALID,
                       "--loss chunked: %llu tokens do not divide into %d chunks; change --seq or "
                       "--micro-batch",
                       (unsigned long long)tokens, LOSS_CHUNKS);
    return ERR_OK;
}

/* transformers' losses of language models upcast the logits themselves. */
static enum err_code check_direct(const struct family *family, const struct model_job *job,
                                  struct err *err)
{
    if (job->code != CODE_HF)
        return ERR_OK;
    return err_set(
        err, ERR_UNSUPPORTED,
        "--loss direct: %s as %s writes it has its loss inside the model, on fp32 logits "
        "or as that model has it; use --loss eager or fused",
        family->name, code_name(job->code));
}

/* The loss by itself is a function of the logits: as one that a model calls it is not compiled. */
static enum err_code check_compiled_loss(const struct family *family, const struct model_job *job,
                                         struct err *err)
{
    if (job->code == CODE_HF || family->builder[CODE_HF] == NULL)
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss compiled: %s computes its loss in its own forward as %s writes it, "
                       "and is planned with --loss eager or fused",
                       family->name, code_name(job->code));
    return ERR_OK;
}

/* transformers finds no torch that is older (utils/import_utils.py, is_torch_available), and its
 * grouped_mm no kernel but on Hopper before the second (integrations/moe.py). */
enum { OLDEST_OF_TRANSFORMERS = 6, OLDEST_OF_EXPERTS = 9 }; /* torch 2.x */

static enum err_code check_torch(const struct model_config *config, const struct model_job *job,
                                 struct err *err)
{
    if (job->code != CODE_NANOGPT && job->torch && job->torch < OLDEST_OF_EXPERTS &&
        model_has_experts(config) && !config->batched_experts)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--torch 2.%u: a mixture of experts is planned as of torch 2.%u and newer; "
            "before, %s runs a loop over experts on most GPUs%s",
            job->torch, OLDEST_OF_EXPERTS, job->code == CODE_HF ? "transformers" : "torchtitan",
            job->code == CODE_HF ? " (batched_mm as experts_implementation is planned)" : "");
    if (job->code == CODE_HF && job->torch && job->torch < OLDEST_OF_TRANSFORMERS)
        return err_set(
            err, ERR_INVALID,
            "--torch 2.%u: transformers 5.23, whose code%s is planned, needs torch 2.%u or newer",
            job->torch, job->lora ? ", which --lora's adapters are of," : "",
            OLDEST_OF_TRANSFORMERS);
    return ERR_OK;
}

/* Of float8 what was recorded: plain Linear, no adapters, parameters in the compute dtype. */
static enum err_code check_float8(const struct model_job *job, struct err *err)
{
    const char *option = job->lora ? "--lora" : job->autocast ? "--autocast" : NULL;
    if (!option)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED, "--float8 with %s is not planned", option);
}

/* What transformers' decoders have in common; of the rest each writes its own. */
static enum err_code check_eager(const struct family *family, const struct model_config *config,
                                 const struct model_job *job, struct err *err)
{
    static const enum arch others[] = {ARCH_GPT2,     ARCH_GPT_BIGCODE, ARCH_OPT,
                                       ARCH_GPT_NEOX, ARCH_LLAMA4,      ARCH_BAMBA};
    bool own = config->kv_lora > 0 || !model_is_decoder(config);
    if (job->code != CODE_HF)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention eager: it is transformers' code that has it, not %s's%s",
                       code_name(job->code), family->builder[CODE_HF] ? ": --code hf" : "");
    if (job->compute == DTYPE_FP16) /* _softmax with half_to_float, native/SoftMax.cpp */
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention eager: of fp16 a GPU's softmax reads the scores as they are, "
                       "which is not planned; bf16 is");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        own = own || config->arch == others[i];
    return own ? err_set(err, ERR_UNSUPPORTED,
                         "--attention eager: how %s writes attention in Python is not planned; "
                         "--attention math is PyTorch's in single ops",
                         family->name)
               : ERR_OK;
}

enum err_code head_loss_check(const struct model_job *job, const char *who, struct err *err)
{
    const char *loss = cross_entropy_name(job->loss);
    const char *other = job->compiled ? "--compile" : job->float8 ? "--float8" : NULL;
    if (job->code != CODE_HF)
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss %s: %s has transformers' models: --code hf, not %s", loss, who,
                       code_name(job->code));
    if (other)
        return err_set(err, ERR_UNSUPPORTED, "--loss %s with %s is not planned", loss, other);
    return job->seq > 1
               ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "--loss %s --seq 1: each token's target is the next one: at least 2",
                         loss);
}

enum err_code pairs_check(const struct model_job *job, struct err *err)
{
    return job->batch % 2 == 0
               ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "--loss %s --micro-batch %u: a pair is two sequences, chosen and "
                         "rejected: 2, or a multiple of it",
                         cross_entropy_name(job->loss), job->batch);
}

enum err_code build_check(const struct family *family, const struct model_config *config,
                          const struct model_job *job, struct err *err)
{
    if (job->outputs_kept != OUTPUTS_DROPPED &&
        (job->loss == CROSS_ENTROPY_CHUNKED || loss_has_head(job->loss)))
        return err_set(err, ERR_INVALID,
                       "--keep-outputs with --loss %s: the model returns no logits then",
                       cross_entropy_name(job->loss));
    if (job->outputs_kept == OUTPUTS_UNTIL_NEXT && job->code != CODE_HF)
        return err_set(err, ERR_UNSUPPORTED,
                       "--keep-outputs next: planned of transformers' code, whose loss is known "
                       "when the model returns; of %s's --keep-outputs backward is",
                       code_name(job->code));
    if (job->loss == CROSS_ENTROPY_CHUNKED)
        TRY(check_chunks(family, job, err));
    if (job->loss == CROSS_ENTROPY_DIRECT)
        TRY(check_direct(family, job, err));
    if (job->loss == CROSS_ENTROPY_COMPILED)
        TRY(check_compiled_loss(family, job, err));
    if (job->attention == ATTENTION_EAGER)
        TRY(check_eager(family, config, job, err));
    if (job->attention == ATTENTION_FLASH_ATTN)
        TRY(flash_attn_check(family, config, job, err));
    if (job->sample_tokens)
        TRY(samples_check(family, config, job, err));
    TRY(prompts_check(family, job, err));
    if (job->padding_tokens)
        TRY(padding_check(family, config, job, err));
    TRY(check_torch(config, job, err));
    if (job->float8)
        TRY(check_float8(job, err));
    switch (job->code) {
    case CODE_TORCHTITAN:
        return check_torchtitan(family, config, job, err);
    case CODE_HF:
        return check_hf(family, config, job, err);
    default:
        return ERR_OK;
    }
}
