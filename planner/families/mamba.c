/* mamba.c - see mamba.h. */
#include "families/mamba.h"

#include "model/count.h"

#include <stdio.h>
#include <string.h>

/* What heads share out, and how the file says it. */
static enum err_code read_heads(const json_t *root, const char *where, uint32_t inner,
                                const char *said, struct model_config *c, struct err *err)
{
    const json_t *given = json_object_get(root, "mamba_d_head");
    const bool is_auto =
        !given || (json_is_string(given) && !strcmp(json_string_value(given), "auto"));
    c->ssm_head_dim = inner / c->ssm_heads;
    if (inner % c->ssm_heads)
        return err_set(err, ERR_INVALID, "%s: \"mamba_n_heads\": %u does not divide %s", where,
                       c->ssm_heads, said);
    if (!is_auto && json_integer_value(given) != (json_int_t)c->ssm_head_dim)
        return err_set(
            err, ERR_INVALID,
            "%s: \"mamba_d_head\": expected \"auto\" or %u, which is %s by \"mamba_n_heads\": %u",
            where, c->ssm_head_dim, said, c->ssm_heads);
    return ERR_OK;
}

enum err_code mamba_read(const json_t *root, const char *where, struct model_config *c,
                         struct err *err)
{
    char said[96];
    snprintf(said, sizeof said, "\"mamba_expand\": %u times \"hidden_size\": %u", c->ssm_expand,
             c->hidden);
    return read_heads(root, where, c->ssm_expand * c->hidden, said, c, err);
}

enum err_code mamba_read_inner(const json_t *root, const char *where, uint32_t inner,
                               struct model_config *c, struct err *err)
{
    char said[48];
    snprintf(said, sizeof said, "\"mamba_d_ssm\": %u", inner);
    return read_heads(root, where, inner, said, c, err);
}

void mamba_settle(struct model_config *c)
{
    for (uint32_t i = 0; !c->linear.listed && i < c->layers; i++)
        layer_put(&c->linear, i, true);
    c->linear.listed = true;
}

enum err_code mamba_check(const struct key_table *table, const struct model_config *c,
                          const char *where, struct err *err)
{
    return model_mixes(c) ? hf_mamba_check(table, c, where, err) : ERR_OK;
}

double count_mamba(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim,
                 kv = (double)c->kv_heads * c->head_dim;
    const double attention = count_linear(q, h, c->attention_bias) +
                             2 * count_linear(kv, h, c->attention_bias) +
                             count_linear(h, q, c->output_bias);
    double sum = count_llama(c);
    for (uint32_t i = 0; i < c->layers; i++)
        if (model_is_linear(c, i))
            sum += hf_mamba_count(c) - attention;
    return sum;
}
