/* builtin.c - see builtin.h. */
#include "machine/builtin.h"

#include "base/names.h"

#include "profiles_json.h" /* generated from planner/machine/profiles and planner/machine/nodes */

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define COUNT(names) (sizeof(names) / sizeof(names)[0])

const struct builtins *builtin_gpus(void)
{
    static const struct builtins gpus = {gpu_names, gpu_texts, COUNT(gpu_names)};
    return &gpus;
}

const struct builtins *builtin_nodes(void)
{
    static const struct builtins nodes = {node_names, node_texts, COUNT(node_names)};
    return &nodes;
}

/* nvidia-smi and rocm-smi put them in front of a model. */
static const char *without_maker(const char *text)
{
    static const char *const words[] = {"nvidia", "amd", "geforce", "tesla", "instinct"};
    for (size_t i = 0; i < COUNT(words); i++) {
        const size_t length = strlen(words[i]);
        if (strncasecmp(text, words[i], length) == 0 && text[length] && strchr(" -_", text[length]))
            return without_maker(text + length + 1);
    }
    return text;
}

static bool is_title_or_alias(const json_t *root, const char *text)
{
    const char *title = json_string_value(json_object_get(root, "title"));
    const json_t *alias;
    size_t i;
    if (title && names_alike(without_maker(title), text))
        return true;
    json_array_foreach(json_object_get(root, "aliases"), i, alias)
    {
        if (names_alike(json_string_value(alias), text))
            return true;
    }
    return false;
}

uint32_t builtin_find(const struct builtins *list, const char *text)
{
    text = without_maker(text);
    for (uint32_t i = 0; i < list->count; i++)
        if (names_alike(list->names[i], text))
            return i;
    for (uint32_t i = 0; i < list->count; i++) {
        json_t *root = json_loads(list->texts[i], 0, NULL);
        const bool found = is_title_or_alias(root, text);
        json_decref(root);
        if (found)
            return i;
    }
    return list->count;
}

struct nearest {
    uint32_t index;
    char name[64]; /* by which it is: its own or an alias; "": none yet */
};

static void keep_nearer(const char *text, const char *name, uint32_t i, struct nearest *nearest)
{
    if (!names_near(text, name) ||
        !names_nearer(text, name, nearest->name[0] ? nearest->name : NULL))
        return;
    nearest->index = i;
    snprintf(nearest->name, sizeof nearest->name, "%s", name);
}

uint32_t builtin_nearest(const struct builtins *list, const char *text)
{
    struct nearest nearest = {.index = list->count};
    text = without_maker(text);
    for (uint32_t i = 0; i < list->count; i++) {
        json_t *root = json_loads(list->texts[i], 0, NULL);
        const json_t *aliases = json_object_get(root, "aliases");
        keep_nearer(text, list->names[i], i, &nearest);
        for (size_t k = 0; k < json_array_size(aliases); k++)
            keep_nearer(text, json_string_value(json_array_get(aliases, k)), i, &nearest);
        json_decref(root);
    }
    return nearest.index;
}
