/* mla.c - see mla.h. */
#include "families/mla.h"

#include "hf/decoder.h"
#include "model/experts.h"

enum err_code mla_check(const struct key_table *keys, const struct model_config *c,
                        const char *where, struct err *err)
{
    if (c->kv_heads != c->heads)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u: with latent attention it is \"%s\": %u",
                       where, NAME_OF(keys, kv_heads), c->kv_heads, NAME_OF(keys, heads), c->heads);
    if (c->rotary_dim % 2 != 0)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is odd, and RoPE turns numbers in pairs",
                       where, NAME_OF(keys, rotary_dim), c->rotary_dim);
    if (c->nope_dim + c->rotary_dim > 256 || c->v_dim > 256)
        return err_set(err, ERR_INVALID, "%s: heads of more than 256 numbers are not planned for",
                       where);
    if ((c->nope_dim + c->rotary_dim) % 8 != 0 || c->v_dim % 8 != 0)
        return err_set(
            err, ERR_INVALID,
            "%s: heads of %u numbers with values of %u: multiples of 8, which the kernel "
            "of attention takes, are planned for",
            where, c->nope_dim + c->rotary_dim, c->v_dim);
    return ERR_OK;
}

enum err_code mla_check_experts(const struct key_table *keys, const struct model_config *c,
                                const char *where, struct err *err)
{
    TRY(mla_check(keys, c, where, err));
    return experts_check_groups(keys, c, where, err);
}

enum err_code mla_check_indexed(const struct key_table *keys, const struct model_config *c,
                                const char *where, struct err *err)
{
    TRY(mla_check_experts(keys, c, where, err));
    if (!c->q_lora)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": null: the indexer reads that latent of queries", where,
                       NAME_OF(keys, q_lora));
    if (c->index_dim <= c->rotary_dim)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": %u: RoPE turns a part of it, \"%s\": %u, and more is planned "
                       "for",
                       where, NAME_OF(keys, index_dim), c->index_dim, NAME_OF(keys, rotary_dim),
                       c->rotary_dim);
    return ERR_OK;
}

void mla_build_v3(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
#define WAY(of)                                                                                    \
    {                                                                                              \
        HF_LLAMA_NORMS, .tables_first = true, .mla = {.rotate = hf_mla_rotate_v3},                 \
                        .moe = HF_DEEPSEEK_V3_MOE(of)                                              \
    }
    static const struct hf_decoder deepseek = WAY(HF_CORRECTION_AS_MADE),
                                   glm = WAY(HF_CORRECTION_FP32);
#undef WAY
    hf_decoder_build(graph, config, job, config->arch == ARCH_GLM4_MOE_LITE ? &glm : &deepseek);
}
