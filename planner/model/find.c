/* find.c - which model a text means: a preset by any of its names, or a file. */
#include "base/names.h"
#include "model/model.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum { NEAREST = 3 };

/* Names on Hugging Face that are not our names in another spelling; their config.json says the same
 * as the preset's. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"llama-2-7b-hf", "llama-2-7b"},
    {"llama-2-13b-hf", "llama-2-13b"},
    {"llama-2-70b-hf", "llama-2-70b"},
    {"llama-2-7b-chat-hf", "llama-2-7b"},
    {"llama-2-13b-chat-hf", "llama-2-13b"},
    {"llama-2-70b-chat-hf", "llama-2-70b"},
    {"meta-llama-3-8b", "llama-3-8b"},
    {"meta-llama-3-70b", "llama-3-70b"},
    {"meta-llama-3-8b-instruct", "llama-3-8b"},
    {"meta-llama-3-70b-instruct", "llama-3-70b"},
    {"meta-llama-3.1-8b", "llama-3.1-8b"},
    {"meta-llama-3.1-70b", "llama-3.1-70b"},
    {"meta-llama-3.1-405b", "llama-3.1-405b"},
    {"llama-3.1-8b-instruct", "llama-3.1-8b"},
    {"llama-3.1-70b-instruct", "llama-3.1-70b"},
    {"llama-3.1-405b-instruct", "llama-3.1-405b"},
    {"llama-3.2-1b-instruct", "llama-3.2-1b"},
    {"llama-3.2-3b-instruct", "llama-3.2-3b"},
    {"llama-3.3-70b-instruct", "llama-3.3-70b"},
    {"mistral-7b-v0.1", "mistral-7b"},
    {"mixtral-8x7b-v0.1", "mixtral-8x7b"},
    {"bert-base-uncased", "bert-base"},
    {"bert-large-uncased", "bert-large"},
};

/* "meta-llama/Llama-3.1-8B" is a name many people have at hand. A path has other slashes. */
static const char *without_owner(const char *name)
{
    const char *slash = strchr(name, '/');
    const bool owned = slash && slash != name && name[0] != '.' && !strchr(slash + 1, '/');
    return owned ? slash + 1 : name;
}

/* The presets nearest to `name`; ties go to the order of the table. */
static void nearest_presets(const char *name, const char *nearest[NEAREST])
{
    uint32_t distance[NEAREST] = {0}, found = 0, count;
    const struct model_preset *presets = model_presets(&count);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t d = names_distance(without_owner(name), presets[i].name);
        uint32_t at = found;
        for (; at > 0 && d < distance[at - 1]; at--)
            if (at < NEAREST) {
                distance[at] = distance[at - 1];
                nearest[at] = nearest[at - 1];
            }
        if (at < NEAREST) {
            distance[at] = d;
            nearest[at] = presets[i].name;
        }
        found += found < NEAREST;
    }
}

const struct model_preset *model_preset_of(const char *name)
{
    uint32_t count;
    const struct model_preset *presets = model_presets(&count);
    const char *text = without_owner(name);
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (names_alike(text, aliases[i].alias))
            text = aliases[i].name;
    for (uint32_t i = 0; i < count; i++)
        if (names_alike(text, presets[i].name))
            return &presets[i];
    return NULL;
}

enum err_code model_preset_find(const char *name, struct model_config *out, struct err *err)
{
    const struct model_preset *preset = model_preset_of(name);
    const char *nearest[NEAREST] = {"", "", ""};
    *out = preset ? preset->config : (struct model_config){.layers = 0};
    if (preset)
        return ERR_OK;
    nearest_presets(name, nearest);
    return err_set(err, ERR_INVALID,
                   "no preset is called \"%.200s\"; the nearest are %s, %s and %s", name,
                   nearest[0], nearest[1], nearest[2]);
}

enum err_code model_find(const char *text, struct model_config *out, struct err *err)
{
    struct stat status;
    const struct model_preset *preset = model_preset_of(text);
    const char *nearest[NEAREST] = {"", "", ""};
    const bool exact = preset && strcmp(preset->name, text) == 0;
    errno = 0;
    if (!exact && (!*text || stat(text, &status) == 0))
        return model_config_read(text, out, err);
    if (preset)
        return model_preset_find(text, out, err);

    const int reason = errno;
    *out = (struct model_config){.layers = 0};
    nearest_presets(text, nearest);
    return err_set(
        err, ERR_INVALID,
        "\"%.200s\" is no file or folder (%s) and no preset; the nearest presets are %s, "
        "%s and %s",
        text, strerror(reason), nearest[0], nearest[1], nearest[2]);
}
