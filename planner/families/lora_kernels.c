/* lora_kernels.c - see lora_kernels.h. */
#include "families/lora_kernels.h"

#include "families/families.h"

#include <string.h>

enum kernels { MLP = 1, QKV = 2, O = 4 };

/* What axolotl (July 2026, monkeypatch/lora_kernels.py) does with a family of transformers 5.23:
 * whether it finds attention's class and the lines of its forward that it rewrites, and whether a
 * layer has a gated unit as `mlp`; where it has none (a mixture's, or none that is gated) that
 * stays what it is. Families that are not here were not recorded with it. */
static const struct patch {
    enum arch arch;
    bool attention, mlp;
} patches[] = {
    {ARCH_LLAMA, true, true},
    {ARCH_MISTRAL, true, true},
    {ARCH_QWEN2, true, true},
    {ARCH_QWEN3, true, true},
    {ARCH_APERTUS, true, false},
    {ARCH_ARCEE, true, false},
    {ARCH_COHERE, false, true},
    {ARCH_COHERE2, true, true},
    {ARCH_CWM, true, true},
    {ARCH_DOTS1, true, true},
    {ARCH_ERNIE4_5, true, true},
    {ARCH_EXAONE4, true, true},
    {ARCH_EXAONE_MOE, true, true},
    {ARCH_GEMMA, true, true},
    {ARCH_GEMMA2, true, true},
    {ARCH_GEMMA3, true, true},
    {ARCH_GLM, true, false},
    {ARCH_GLM4, true, false},
    {ARCH_GPT_OSS, true, false},
    {ARCH_GRANITE, true, true},
    {ARCH_GRANITEMOE, true, false},
    {ARCH_GRANITEMOEHYBRID, true, false},
    {ARCH_GRANITEMOESHARED, true, false},
    {ARCH_HELIUM, true, true},
    {ARCH_HUNYUAN_V1_DENSE, true, true},
    {ARCH_HY_V3, true, true},
    {ARCH_HYPERCLOVAX, true, true},
    {ARCH_INTERNLM3, false, true},
    {ARCH_IQUESTCODER, false, true},
    {ARCH_MELLUM, true, true},
    {ARCH_MINICPM3, false, true},
    {ARCH_MINISTRAL, true, true},
    {ARCH_MINISTRAL3, true, true},
    {ARCH_MIXTRAL, true, false},
    {ARCH_NANOCHAT, true, false},
    {ARCH_NEMOTRON, true, false},
    {ARCH_OLMO, false, true},
    {ARCH_OLMO2, false, true},
    {ARCH_OLMO3, false, true},
    {ARCH_QWEN2_5_VL, false, true},
    {ARCH_QWEN2_VL, false, true},
    {ARCH_QWEN3_MOE, true, false},
    {ARCH_QWEN3_VL, true, true},
    {ARCH_SEED_OSS, true, true},
    {ARCH_SMOLLM3, true, true},
    {ARCH_SOLAR_OPEN, true, false},
    {ARCH_VAULTGEMMA, true, true},
    {ARCH_YOUTU, false, true},
};

static const struct patch *patch_of(enum arch arch)
{
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++)
        if (patches[i].arch == arch)
            return &patches[i];
    return NULL;
}

static enum err_code read_names(const char *text, unsigned *out, struct err *err)
{
    static const char *const names[] = {"mlp", "qkv", "o"};
    *out = 0;
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, ",");
        unsigned kernel = 0;
        for (unsigned i = 0; i < 3; i++)
            if (strlen(names[i]) == length && strncmp(names[i], at, length) == 0)
                kernel = 1U << i;
        if (!kernel)
            return err_set(err, ERR_INVALID,
                           "--lora-kernels %s: expected off, or by commas mlp, qkv and o", text);
        *out |= kernel;
        at += length + (at[length] == ',');
    }
    return ERR_OK;
}

/* axolotl's own refusals, and what was not recorded beside them. */
static enum err_code check_beside(const struct model_job *job, struct err *err)
{
    if (!job->lora)
        return err_set(err, ERR_INVALID, "--lora-kernels: of adapters, which --lora adds");
    if (job->bits8)
        return err_set(err, ERR_INVALID,
                       "--lora-kernels with --load-in-8bit: axolotl refuses them (\"not compatible "
                       "with 8-bit LoRA\")");
    if (job->compiled)
        return err_set(err, ERR_UNSUPPORTED,
                       "--lora-kernels with --compile is not planned: what torch.compile makes of "
                       "axolotl's functions was not recorded");
    return ERR_OK;
}

static bool is_gelu(const struct model_config *config)
{
    return strstr(config->activation, "gelu") != NULL;
}

static enum err_code check_family(const struct family *family, const struct model_config *config,
                                  unsigned kernels, struct err *err)
{
    const struct patch *patch = patch_of(config->arch);
    if (!patch)
        return err_set(err, ERR_UNSUPPORTED,
                       "--lora-kernels: what axolotl does to %s's modules was not recorded, and is "
                       "not planned",
                       family->name);
    if (kernels & (QKV | O) && !patch->attention)
        return err_set(err, ERR_INVALID,
                       "--lora-kernels %s: of %s's attention axolotl finds no class, or not the "
                       "lines that it rewrites, and fails%s",
                       kernels & QKV ? "qkv" : "o", family->name,
                       patch->mlp ? "; --lora-kernels mlp is planned" : "");
    if (kernels & MLP && patch->mlp && strcmp(config->activation, "silu") != 0 && !is_gelu(config))
        return err_set(
            err, ERR_INVALID,
            "--lora-kernels mlp: axolotl has kernels of silu and gelu, and fails with %s",
            config->activation);
    return ERR_OK;
}

enum err_code lora_kernels_read(const struct family *family, const struct model_config *config,
                                const struct model_job *job, struct graph_lora *out,
                                struct err *err)
{
    unsigned kernels;
    if (!job->lora_kernels || !*job->lora_kernels || strcmp(job->lora_kernels, "off") == 0)
        return ERR_OK;
    TRY(read_names(job->lora_kernels, &kernels, err));
    TRY(check_beside(job, err));
    TRY(check_family(family, config, kernels, err));
    out->mlp = kernels & MLP && patch_of(config->arch)->mlp;
    out->qkv = kernels & QKV;
    out->o = kernels & O;
    out->gelu = is_gelu(config);
    return ERR_OK;
}

const char *lora_kernels_of(const struct model_config *config)
{
    const struct patch *patch = patch_of(config->arch);
    const bool acts = strcmp(config->activation, "silu") == 0 || is_gelu(config);
    const bool mlp = patch && patch->mlp && acts;
    return !patch ? NULL : patch->attention ? mlp ? "mlp,qkv,o" : "qkv,o" : mlp ? "mlp" : NULL;
}

const char *lora_kernels_of_bits4(const struct model_config *config)
{
    const bool kept = strcmp(config->activation, "silu") == 0 || is_gelu(config);
    return kept ? lora_kernels_of(config) : NULL;
}

enum err_code lora_kernels_check_built(const struct graph *graph, struct err *err)
{
    if (!graph->lora.mixed)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "--lora-kernels: activations, frozen weights and what autocast computes in have "
                   "to be in one dtype, or its sums in place fail (\"self and mat2 must have the "
                   "same dtype\"): --frozen-dtype bf16 under --autocast bf16%s",
                   graph->bits4.kind ? ", and --kbit-cast-back '*'" : "");
}
