/* liger.c - see liger.h. */
#include "families/liger.h"

#include <string.h>

enum kernels {
    ROPE = 1 << LIGER_ROPE,
    RMS_NORM = 1 << LIGER_RMS_NORM,
    GLU = 1 << LIGER_GLU,
    LOSS = 1 << LIGER_LINEAR_LOSS,
    LOGITS = 1 << LIGER_LOSS, /* where it is put into nn.functional, which is what is called */
    BLOCK = ROPE | RMS_NORM | GLU,
    ALL = BLOCK | LOSS | LOGITS,
};

/* What Liger has of a family, and what of that is planned: what was recorded. */
struct patch {
    enum arch arch;
    unsigned has, planned;
    bool geglu; /* its gated unit is called geglu */
    bool apart; /* in_place=False */
    float offset;
    uint32_t chunks; /* chunk_mem_const; 0: 1 */
};

static const struct patch patches[] = {
    {.arch = ARCH_LLAMA, .has = ALL, .planned = ALL},
    {.arch = ARCH_MISTRAL, .has = ALL & ~LOGITS, .planned = ALL & ~LOGITS},
    {.arch = ARCH_MINISTRAL, .has = ALL & ~LOGITS, .planned = ALL & ~LOGITS},
    {.arch = ARCH_QWEN2, .has = ALL, .planned = ALL},
    {.arch = ARCH_QWEN3, .has = ALL, .planned = ALL},
    {.arch = ARCH_SMOLLM3, .has = ALL, .planned = ALL},
    {.arch = ARCH_PHI3, .has = ALL, .planned = ALL},
    {.arch = ARCH_GEMMA, .has = ALL, .planned = ALL, .geglu = true, .offset = 1},
    {.arch = ARCH_GEMMA2, .has = ALL, .planned = ALL, .geglu = true, .apart = true, .offset = 1},
    {.arch = ARCH_GEMMA3, .has = ALL, .planned = ALL, .geglu = true, .apart = true, .offset = 1},
    {.arch = ARCH_EXAONE4, .has = ALL, .planned = ALL & ~RMS_NORM},
    {.arch = ARCH_GLM4, .has = ALL & ~ROPE, .planned = ALL & ~ROPE, .apart = true},
    {.arch = ARCH_GRANITE, .has = BLOCK | LOGITS, .planned = BLOCK | LOGITS},
    {.arch = ARCH_MIXTRAL, .has = ALL, .planned = ALL & ~GLU},
    {.arch = ARCH_QWEN3_MOE, .has = ALL, .planned = ALL & ~GLU},
    {.arch = ARCH_OLMO2, .has = ALL, .planned = ALL & ~RMS_NORM},
    {.arch = ARCH_OLMO3, .has = ALL, .planned = ALL & ~RMS_NORM},
    {.arch = ARCH_HUNYUAN_V1_DENSE, .has = ALL, .planned = ALL & ~RMS_NORM},
    {.arch = ARCH_HUNYUAN_V1_MOE, .has = ALL, .planned = LOSS | LOGITS | ROPE},
    {.arch = ARCH_GPT_OSS, .has = ALL & ~GLU, .planned = LOSS | LOGITS, .chunks = 8},
    {.arch = ARCH_GEMMA4, .has = ALL & ~ROPE, .planned = LOSS | LOGITS},
    {.arch = ARCH_LLAMA4, .has = ALL & ~LOGITS, .planned = LOSS},
    {.arch = ARCH_NEMOTRON, .has = LOSS, .planned = LOSS},
    {.arch = ARCH_DEEPSEEK_V2, .has = ALL & ~ROPE, .planned = LOSS | LOGITS},
    {.arch = ARCH_DEEPSEEK_V3, .has = ALL & ~ROPE, .planned = LOSS | LOGITS},
    {.arch = ARCH_QWEN3_NEXT, .has = ALL, .planned = LOSS | LOGITS},
    {.arch = ARCH_QWEN3_5, .has = ALL, .planned = LOSS | LOGITS},
    {.arch = ARCH_FALCON_H1, .has = ALL, .planned = 0},
    /* whose fused losses import what transformers 5.23 has no more (model/output_classes.py) */
    {.arch = ARCH_QWEN3_5_MOE, .has = BLOCK, .planned = 0},
    {.arch = ARCH_QWEN2_VL, .has = BLOCK, .planned = 0},
    {.arch = ARCH_QWEN2_5_VL, .has = BLOCK, .planned = 0},
    {.arch = ARCH_QWEN3_VL, .has = ROPE | RMS_NORM, .planned = 0},
    {.arch = ARCH_QWEN3_VL_MOE, .has = BLOCK, .planned = 0},
};

static const struct patch *patch_of(enum arch arch)
{
    static const struct patch none = {.has = 0};
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++)
        if (patches[i].arch == arch)
            return &patches[i];
    return &none;
}

static const char *name_of(const struct patch *patch, unsigned kernel)
{
    return kernel == ROPE       ? "rope"
           : kernel == RMS_NORM ? "rms_norm"
           : patch->geglu       ? "geglu"
                                : "swiglu";
}

/* One of `length` characters; 0: it is no kernel's name. */
static unsigned kernel_named(const char *text, size_t length)
{
    static const struct {
        const char *name;
        unsigned kernel;
    } names[] = {
        {"rope", ROPE}, {"rms_norm", RMS_NORM}, {"swiglu", GLU}, {"geglu", GLU}, {"glu", GLU}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].name) == length && strncmp(names[i].name, text, length) == 0)
            return names[i].kernel;
    return 0;
}

/* swiglu, where the family's is of GELU, or the other way round; glu is either. */
static bool is_the_other(const struct patch *patch, const char *text, size_t length)
{
    const char *other = patch->geglu ? "swiglu" : "geglu";
    return strlen(other) == length && strncmp(text, other, length) == 0;
}

static enum err_code check_one(const struct family *family, const struct patch *patch,
                               unsigned kernel, struct err *err)
{
    const char *name = name_of(patch, kernel);
    if (!(patch->has & kernel))
        return err_set(err, ERR_UNSUPPORTED, "--liger %s: Liger (0.8.5) has no such kernel for %s",
                       name, family->name);
    if (!(patch->planned & kernel))
        return err_set(
            err, ERR_UNSUPPORTED, "--liger %s: what Liger does to %s's modules is not planned%s",
            name, family->name, patch->planned & BLOCK ? "" : "; its fused loss is: --loss liger");
    return ERR_OK;
}

/* The kernels that `text` names. */
static enum err_code read_kernels(const struct family *family, const struct patch *patch,
                                  const char *text, unsigned *out, struct err *err)
{
    *out = 0;
    if (strcmp(text, "all") == 0) {
        for (unsigned kernel = ROPE; kernel <= GLU; kernel *= 2)
            if (patch->has & kernel)
                TRY(check_one(family, patch, kernel, err));
        *out = patch->has & BLOCK;
        return *out ? ERR_OK
                    : err_set(err, ERR_UNSUPPORTED,
                              "--liger all: Liger (0.8.5) has no kernels for %s", family->name);
    }
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, ",");
        const unsigned kernel = kernel_named(at, length);
        if (!kernel)
            return err_set(err, ERR_INVALID,
                           "--liger %s: expected all, or by commas rope, rms_norm and swiglu, "
                           "geglu or glu",
                           text);
        if (patch->has & GLU && is_the_other(patch, at, length))
            return err_set(err, ERR_INVALID, "--liger %.*s: of %s it is called %s", (int)length, at,
                           family->name, name_of(patch, GLU));
        TRY(check_one(family, patch, kernel, err));
        *out |= kernel;
        at += length + (at[length] == ',');
    }
    return ERR_OK;
}

static enum err_code check_loss(const struct family *family, const struct patch *patch,
                                enum cross_entropy loss, struct err *err)
{
    const bool fused = loss == CROSS_ENTROPY_LIGER;
    const char *option = fused ? "--loss liger" : "--loss liger-cross-entropy";
    const char *what = fused ? "fused linear cross-entropy" : "cross-entropy";
    const unsigned kernel = fused ? LOSS : LOGITS;
    if (!(patch->has & kernel))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: Liger (0.8.5) has no %s for %s that transformers 5.23 would call",
                       option, what, family->name);
    if (!(patch->planned & kernel))
        return err_set(err, ERR_UNSUPPORTED, "%s: Liger's %s of %s is not planned", option, what,
                       family->name);
    return ERR_OK;
}

/* What Liger's modules are not, or was not recorded beside them. */
static enum err_code check_beside(const struct model_job *job, const char *option, struct err *err)
{
    const char *other = job->compiled ? "--compile" : job->float8 ? "--float8" : NULL;
    if (job->code != CODE_HF)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: Liger patches transformers' modules: --code hf, not %s", option,
                       code_name(job->code));
    return other ? err_set(err, ERR_UNSUPPORTED, "%s with %s is not planned", option, other)
                 : ERR_OK;
}

enum err_code liger_read(const struct family *family, const struct model_config *config,
                         const struct model_job *job, struct graph_liger *out, struct err *err)
{
    const struct patch *patch = patch_of(config->arch);
    unsigned kernels = 0;
    *out = (struct graph_liger){.geglu = patch->geglu,
                                .apart = patch->apart,
                                .offset = patch->offset,
                                .chunks = patch->chunks ? patch->chunks : 1};
    if (job->loss == CROSS_ENTROPY_LIGER || job->loss == CROSS_ENTROPY_LIGER_LOGITS ||
        job->loss == CROSS_ENTROPY_PER_TOKEN_LIGER) {
        TRY(check_beside(job, "--loss liger", err));
        TRY(check_loss(family, patch, job->loss, err));
        const bool wide = job->compute == DTYPE_FP32 || (job->wide_trained && !job->lora);
        if (job->loss == CROSS_ENTROPY_PER_TOKEN_LIGER && wide && !job->autocast)
            return err_set(
                err, ERR_UNSUPPORTED,
                "--loss per-token-liger on logits in fp32, which the model's own loss and "
                "the trainer's would both write their gradients over, is not planned; "
                "--param-dtype bf16, or --autocast bf16");
    }
    if (!job->liger || !*job->liger)
        return ERR_OK;
    TRY(check_beside(job, "--liger", err));
    TRY(read_kernels(family, patch, job->liger, &kernels, err));
    out->rope = kernels & ROPE;
    out->rms_norm = kernels & RMS_NORM;
    out->glu = kernels & GLU;
    return ERR_OK;
}

const char *liger_has(const struct model_config *config, enum liger_kernel kernel)
{
    const struct patch *patch = patch_of(config->arch);
    return !(patch->has & 1U << kernel)    ? LIGER_NONE
           : patch->planned & 1U << kernel ? LIGER_PLANNED
                                           : LIGER_UNPLANNED;
}
