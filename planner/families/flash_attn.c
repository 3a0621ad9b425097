/* flash_attn.c - see flash_attn.h. */
#include "families/flash_attn.h"

enum { HEAD_MAX = 256 };

static bool is_one_of(enum arch arch, const enum arch *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (arch == list[i])
            return true;
    return false;
}

#define IS_ONE_OF(arch, list) is_one_of(arch, list, sizeof(list) / sizeof(list)[0])

/* Of whole heads, the widest of any layer. */
static uint32_t widest_head(const struct model_config *c)
{
    const uint32_t head = c->kv_lora ? c->nope_dim + c->rotary_dim : c->head_dim;
    return c->full_head_dim > head ? c->full_head_dim : head;
}

/* What mha_fwd of the package asks of a call. */
static enum err_code check_call(const struct family *family, const struct model_config *c,
                                const struct model_job *job, struct err *err)
{
    const enum dtype dtype = job->autocast ? DTYPE_BF16 : job->compute;
    if (dtype != DTYPE_BF16 && dtype != DTYPE_FP16)
        return err_set(err, ERR_INVALID,
                       "--attention flash-attn in %s: \"FlashAttention only support fp16 and bf16 "
                       "data type\"; compute in bf16, or under --autocast bf16",
                       dtype_brief(dtype));
    if (widest_head(c) > HEAD_MAX)
        return err_set(err, ERR_INVALID,
                       "--attention flash-attn of %s, whose heads are up to %u wide: "
                       "\"FlashAttention forward only supports head dimension at most 256\"",
                       family->name, widest_head(c));
    if (c->attention_softcap > 0 && c->attention_dropout > 0)
        return err_set(err, ERR_INVALID,
                       "--attention flash-attn with attention_dropout: \"Softcapping does not "
                       "support dropout for now\"");
    return ERR_OK;
}

enum err_code flash_attn_check(const struct family *family, const struct model_config *config,
                               const struct model_job *job, struct err *err)
{
    static const enum arch without[] = {ARCH_CODEGEN,      ARCH_LLAMA4,     ARCH_MPT,
                                        ARCH_BLOOM,        ARCH_T5,         ARCH_MT5,
                                        ARCH_DEEPSEEK_V32, ARCH_GLM_MOE_DSA};
    /* of the last ones it was not recorded */
    static const enum arch of_their_own[] = {ARCH_GPTJ,     ARCH_GPT_NEO,       ARCH_AFMOE,
                                             ARCH_MISTRAL4, ARCH_MIMO_V2_FLASH, ARCH_OLMO_HYBRID,
                                             ARCH_JAMBA,    ARCH_COHERE2_MOE,   ARCH_AXK1};
    if (job->code != CODE_HF)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention flash-attn: it is transformers' code that calls the package, "
                       "not %s's%s",
                       code_name(job->code), family->builder[CODE_HF] ? ": --code hf" : "");
    if (IS_ONE_OF(config->arch, without))
        return err_set(err, ERR_INVALID,
                       "--attention flash-attn: \"%s does not support Flash Attention 2 yet\"",
                       family->class_name);
    if (config->sinks)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention flash-attn: for %s's sinks transformers takes kernels of its "
                       "hub instead, which are not planned; --attention eager is",
                       family->name);
    if (IS_ONE_OF(config->arch, of_their_own) || config->alibi)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention flash-attn: how %s calls the package is not planned; "
                       "--attention auto is",
                       family->name);
    if (job->compiled)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention flash-attn with --compile: what torch.compile makes around the "
                       "package's operators was not recorded, and is not planned");
    if (job->seq == 1)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention flash-attn with --seq 1: a single token's heads are turned, "
                       "which is not planned");
    return check_call(family, config, job, err);
}

enum err_code samples_check(const struct family *family, const struct model_config *c,
                            const struct model_job *job, struct err *err)
{
    static const enum arch others[] = {
        ARCH_GPT2,       ARCH_GPT_BIGCODE,      ARCH_OPT,          ARCH_GPT_NEOX, ARCH_QWEN2_VL,
        ARCH_QWEN2_5_VL, ARCH_GRANITEMOEHYBRID, ARCH_QWEN2_5_OMNI, ARCH_GLM4V,    ARCH_GLM4V_MOE,
        ARCH_GLM_OCR,    ARCH_PADDLEOCR_VL};
    const uint64_t row = (uint64_t)job->batch * job->seq;
    if (job->attention != ATTENTION_FLASH_ATTN)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--sample-tokens: planned with --attention flash-attn, to which positions say "
            "where samples begin; others have a mask over the whole sequence");
    if (job->sample_tokens >= row)
        return err_set(err, ERR_INVALID,
                       "--sample-tokens %u: a micro-batch has %llu tokens, which samples are fewer "
                       "than; 0 is a sequence that is one",
                       job->sample_tokens, (unsigned long long)row);
    if (!model_is_decoder(c) || model_mixes(c) || IS_ONE_OF(c->arch, others))
        return err_set(err, ERR_UNSUPPORTED,
                       "--sample-tokens: what %s does with joined samples is not planned; "
                       "--sample-tokens 0 is",
                       family->name);
    if (c->rope.scaling == ROPE_DYNAMIC || c->rope.scaling == ROPE_LONGROPE)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--sample-tokens: RoPE that goes by the longest position is planned of whole "
            "sequences; --sample-tokens 0");
    if (row > UINT32_MAX)
        return err_set(err, ERR_INVALID, "--sample-tokens: %llu tokens in one row are too many",
                       (unsigned long long)row);
    return ERR_OK;
}
