/* setting_names.c - see setting_names.h. */
#include "settings/setting_names.h"

#include "families/families.h"
#include "machine/builtin.h"

static const char *name_at(const struct builtins *list, uint32_t i)
{
    return i < list->count ? list->names[i] : NULL;
}

static const char *gpu_at(uint32_t i)
{
    return name_at(builtin_gpus(), i);
}

static const char *gpu_find(const char *text)
{
    return gpu_at(builtin_find(builtin_gpus(), text));
}

static const char *gpu_nearest(const char *text)
{
    return gpu_at(builtin_nearest(builtin_gpus(), text));
}

static const char *node_at(uint32_t i)
{
    return name_at(builtin_nodes(), i);
}

static const char *node_find(const char *text)
{
    return node_at(builtin_find(builtin_nodes(), text));
}

static const char *node_nearest(const char *text)
{
    return node_at(builtin_nearest(builtin_nodes(), text));
}

static const char *model_at(uint32_t i)
{
    const struct model_preset *preset = model_preset_at(i);
    return preset ? preset->name : NULL;
}

const struct setting_names setting_gpus = {gpu_at, gpu_find, gpu_nearest};
const struct setting_names setting_nodes = {node_at, node_find, node_nearest};
const struct setting_names setting_models = {model_at, NULL, NULL}; /* a file is a model, too */
