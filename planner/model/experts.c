/* experts.c - see experts.h. */
#include "model/experts.h"

const struct choice experts_ways[] = {
    {"grouped_mm", NULL, false}, {"batched_mm", NULL, true}, {NULL, NULL, false}};

bool experts_in(const struct model_config *c, uint32_t layer)
{
    if (c->experts == 0 || c->dense.listed)
        return c->experts > 0 && !layer_listed(&c->dense, layer);
    const uint32_t step = c->sparse_step ? c->sparse_step : 1;
    const bool listed = c->dense_layers[layer / 32] >> (layer % 32) & 1U;
    return layer >= c->dense_first && (!c->sparse_last || layer <= c->sparse_last) &&
           (layer + 1) % step == 0 && !listed;
}

uint32_t experts_layers(const struct model_config *c)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < c->layers; i++)
        count += experts_in(c, i);
    return count;
}

bool model_has_experts(const struct model_config *c)
{
    return experts_layers(c) > 0;
}

uint32_t experts_width(const struct model_config *c)
{
    return c->expert_ffn ? c->expert_ffn : c->ffn;
}

uint32_t experts_shared_width(const struct model_config *c)
{
    return c->shared_ffn ? c->shared_ffn : c->shared_experts * experts_width(c);
}

enum { LAYERS_TIMES_EXPERTS_MAX = 1 << 17 }; /* each is some ops of the graph */

enum err_code experts_check(const struct key_table *table, const struct model_config *c,
                            const char *where, struct err *err)
{
    if (c->experts_per_token > c->experts)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is more than \"%s\": %u", where,
                       NAME_OF(table, experts_per_token), c->experts_per_token,
                       NAME_OF(table, experts), c->experts);
    if (c->experts && c->experts_per_token == 0)
        return err_set(err, ERR_INVALID, "%s: \"%s\": expected an integer 1 ... %u, got 0", where,
                       NAME_OF(table, experts_per_token), c->experts);
    if ((uint64_t)c->experts * c->layers > LAYERS_TIMES_EXPERTS_MAX)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u times \"%s\": %u is more than %d", where,
                       NAME_OF(table, experts), c->experts, NAME_OF(table, layers), c->layers,
                       LAYERS_TIMES_EXPERTS_MAX);
    return ERR_OK;
}

enum err_code experts_check_groups(const struct key_table *table, const struct model_config *c,
                                   const char *where, struct err *err)
{
    if (c->experts % c->groups != 0)
        return key_does_not_divide(where, NAME_OF(table, groups), c->groups,
                                   NAME_OF(table, experts), c->experts, err);
    if (c->experts / c->groups < 2)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u leaves fewer than two experts a group",
                       where, NAME_OF(table, groups), c->groups);
    if (c->topk_groups > c->groups)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is more than \"%s\": %u", where,
                       NAME_OF(table, topk_groups), c->topk_groups, NAME_OF(table, groups),
                       c->groups);
    return experts_check(table, c, where, err);
}
