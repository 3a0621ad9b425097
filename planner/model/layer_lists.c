/* layer_lists.c - which layers are otherwise; see model.h. */
#include "model/model.h"

bool layer_listed(const struct layer_list *list, uint32_t index)
{
    return list->bits[index / 32] >> (index % 32) & 1U;
}

void layer_put(struct layer_list *list, uint32_t index, bool in)
{
    list->bits[index / 32] |= (uint32_t)in << (index % 32);
}

bool model_has_window(const struct model_config *config, uint32_t index)
{
    if (config->windows.listed)
        return layer_listed(&config->windows, index);
    if (config->window_period)
        return config->sliding_window && (index + 1) % config->window_period != 0;
    return config->sliding_window && index >= config->full_layers;
}

bool model_is_plain(const struct model_config *config, uint32_t index)
{
    if (config->plain.listed)
        return layer_listed(&config->plain, index);
    return config->plain_period && (index + 1) % config->plain_period == 0;
}

bool model_is_linear(const struct model_config *config, uint32_t index)
{
    if (config->linear.listed)
        return layer_listed(&config->linear, index);
    return config->linear_period && (index + 1) % config->linear_period != 0;
}

bool model_mixes(const struct model_config *config)
{
    for (uint32_t i = 0; i < config->layers; i++)
        if (model_is_linear(config, i))
            return true;
    return false;
}

bool model_has_mamba(const struct model_config *config)
{
    return config->ssm_heads && model_mixes(config);
}

bool model_has_mamba1(const struct model_config *config)
{
    return config->scan_rank && model_mixes(config);
}

bool model_feeds(const struct model_config *config, uint32_t index)
{
    return layer_listed(&config->feeds, index);
}

bool model_attends(const struct model_config *config)
{
    for (uint32_t i = 0; i < config->layers; i++)
        if (!model_is_linear(config, i) && !model_feeds(config, i))
            return true;
    return false;
}
