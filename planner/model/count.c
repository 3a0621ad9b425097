/* count.c - see count.h. */
#include "model/count.h"

double count_linear(double out, double in, bool biased)
{
    return out * in + (biased ? out : 0);
}

double count_classic_block(const struct model_config *c)
{
    const double h = c->hidden, f = c->ffn;
    return 4 * count_linear(h, h, c->attention_bias) + count_linear(f, h, c->mlp_bias) +
           count_linear(h, f, c->mlp_bias) + 4 * h;
}

double count_llama(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim,
                 kv = (double)c->kv_heads * c->head_dim, f = c->ffn;
    double block = count_linear(q, h, c->attention_bias) +
                   2 * count_linear(kv, h, c->attention_bias) + count_linear(h, q, c->output_bias) +
                   2 * h;
    if (c->qk_norm)
        block += 2.0 * c->head_dim;
    if (c->experts > 0)
        block += c->experts * 3.0 * h * f + count_linear(c->experts, h, false);
    else
        block += 2 * count_linear(f, h, c->mlp_bias) + count_linear(h, f, c->mlp_bias);
    return c->layers * block + (c->tied ? 1 : 2) * (double)c->vocab * h + h;
}
