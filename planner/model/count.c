/* count.c - see count.h. */
#include "model/count.h"
#include "model/experts.h"

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

/* Of each two products, and of one head the key with a LayerNorm and biases. */
static double count_indexers(const struct model_config *c)
{
    const double h = c->hidden, a = c->index_heads, d = c->index_dim;
    const double each = count_linear(a * d, c->q_lora, false) + count_linear(d, h, false) + 2 * d +
                        count_linear(a, h, false);
    double all = 0;
    for (uint32_t i = 0; c->index_heads && i < c->layers; i++)
        all += layer_listed(&c->reused_index, i) ? 0 : each;
    return all;
}

static double count_latent_attention(const struct model_config *c)
{
    const double h = c->hidden, a = c->heads, qk = (double)c->nope_dim + c->rotary_dim;
    const bool biased = c->attention_bias;
    const double q = c->q_lora ? count_linear(c->q_lora, h, biased) + c->q_lora +
                                     count_linear(a * qk, c->q_lora, false)
                               : count_linear(a * qk, h, false);
    return q + count_linear((double)c->kv_lora + c->rotary_dim, h, biased) + c->kv_lora +
           count_linear(a * ((double)c->nope_dim + c->v_dim), c->kv_lora, false) +
           count_linear(h, a * c->v_dim, biased);
}

static double count_attention(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim,
                 kv = (double)c->kv_heads * c->head_dim;
    return count_linear(q, h, c->attention_bias) + 2 * count_linear(kv, h, c->attention_bias) +
           count_linear(h, q, c->output_bias) + (c->qk_norm ? 2.0 * c->head_dim : 0) +
           (c->sinks ? c->heads : 0);
}

static double gated(double h, double f, bool biased)
{
    return 2 * count_linear(f, h, biased) + count_linear(h, f, biased);
}

/* The parameters of all layers' feed-forwards, experts or not, each a gated one. */
static double count_feed_forwards(const struct model_config *c)
{
    const double h = c->hidden, shared = experts_shared_width(c), mixed = experts_layers(c);
    const double mixture = c->experts * gated(h, experts_width(c), c->expert_bias) +
                           count_linear(c->experts, h, c->expert_bias) +
                           gated(h, shared, c->mlp_bias) + (c->shared_gate ? h : 0);
    return mixed * mixture + (c->layers - mixed) * gated(h, c->ffn, c->mlp_bias);
}

double count_llama(const struct model_config *c)
{
    const double h = c->hidden;
    const double attention = c->kv_lora ? count_latent_attention(c) : count_attention(c);
    return c->layers * (attention + 2 * h) + count_indexers(c) + count_feed_forwards(c) +
           (c->tied ? 1 : 2) * (double)c->vocab * h + h;
}

double count_ungated(const struct model_config *c)
{
    return count_llama(c) - c->layers * count_linear(c->ffn, c->hidden, c->mlp_bias);
}

double count_ungated_biased(const struct model_config *c)
{
    return count_ungated(c) + (2.0 * c->layers + 1) * c->hidden;
}
