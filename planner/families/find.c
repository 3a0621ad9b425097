/* find.c - which model a text means: a preset by any of its names, or a file. */
#include "base/names.h"
#include "families/family.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { NEAREST = 3 };

/* "meta-llama/Llama-3.1-8B" is a name many people have at hand. A path has other slashes. */
static const char *without_owner(const char *name)
{
    const char *slash = strchr(name, '/');
    const bool owned = slash && slash != name && name[0] != '.' && !strchr(slash + 1, '/');
    return owned ? slash + 1 : name;
}

struct nearest { /* "llama-3-8b, llama-3-70b and llama-2-7b" */
    char text[192];
};

/* The presets nearest to `name`; of those as near the first of the list. */
static struct nearest nearest_presets(const char *name)
{
    const struct model_preset *nearest[NEAREST + 1] = {NULL}, *preset; /* one place to fall off */
    const char *own = without_owner(name);
    uint32_t found = 0;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++) {
        uint32_t at = found;
        for (; at > 0 && names_nearer(own, preset->name, nearest[at - 1]->name); at--)
            nearest[at] = nearest[at - 1];
        nearest[at] = preset;
        found += found < NEAREST;
    }
    struct nearest out = {""};
    for (uint32_t i = 0, used = 0; i < found && nearest[i] && used < sizeof out.text; i++) {
        const char *join = i == 0 ? "" : i + 1 == found ? " and " : ", ";
        used += (uint32_t)snprintf(out.text + used, sizeof out.text - used, "%s%s", join,
                                   nearest[i]->name);
    }
    return out;
}

/* The name of the preset that goes by an alias, else the text itself. */
static const char *without_alias(const char *text)
{
    for (enum arch arch = 0; arch < ARCH_COUNT; arch++) {
        const struct family *family = family_of(arch);
        for (uint32_t i = 0; i < family->alias_count; i++)
            if (names_alike(text, family->aliases[i].alias))
                return family->aliases[i].name;
    }
    return text;
}

/* What names of Hugging Face call the same shape with other weights. */
static bool is_variant(const char *word, size_t length)
{
    static const char *const variants[] = {"base", "instruct", "chat",     "it",  "pt",
                                           "hf",   "sft",      "thinking", "dpo", "pretrain"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (strlen(variants[i]) == length && strncasecmp(word, variants[i], length) == 0)
            return true;
    return false;
}

struct stem { /* "qwen2.5-7b" of "Qwen2.5-7B-Instruct"; empty where nothing is left out */
    char text[128];
};

static struct stem without_variants(const char *name)
{
    struct stem stem = {""};
    size_t used = 0;
    bool shorter = false;
    for (const char *word = name; *word && strlen(name) < sizeof stem.text;) {
        const size_t length = strcspn(word, "-_");
        if (is_variant(word, length))
            shorter = true;
        else
            used += (size_t)snprintf(stem.text + used, sizeof stem.text - used, "%s%.*s",
                                     used ? "-" : "", (int)length, word);
        word += length + (word[length] != '\0');
    }
    return shorter ? stem : (struct stem){""};
}

static const struct model_preset *preset_called(const char *name)
{
    const char *text = without_alias(name);
    const struct model_preset *preset;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++)
        if (names_alike(text, preset->name))
            return preset;
    return NULL;
}

/* The name of a model that sees, of which a preset is the text model. */
static const struct model_preset *text_model_of(const char *name)
{
    char text[128];
    const int length = snprintf(text, sizeof text, "%s-text", name);
    return length < (int)sizeof text ? preset_called(text) : NULL;
}

/* *seeing: it is the text model of what goes by the name. */
static const struct model_preset *preset_of(const char *name, bool *seeing)
{
    const char *own = without_owner(name);
    const struct stem stem = without_variants(own);
    const struct model_preset *preset = preset_called(own);
    if (!preset && stem.text[0])
        preset = preset_called(stem.text);
    *seeing = preset == NULL;
    return preset ? preset : text_model_of(stem.text[0] ? stem.text : own);
}

const struct model_preset *model_preset_of(const char *name)
{
    bool seeing;
    return preset_of(name, &seeing);
}

const struct model_preset *model_preset_of_path(const char *path, char called[PRESET_NAME_SIZE])
{
    bool seeing;
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (end - start >= PRESET_NAME_SIZE)
        return NULL; /* no preset's */
    snprintf(called, PRESET_NAME_SIZE, "%.*s", (int)(end - start), path + start);
    const struct model_preset *preset = preset_of(called, &seeing);
    if (preset && !seeing)
        snprintf(called, PRESET_NAME_SIZE, "%s", preset->name);
    return preset;
}

/* "gemma3", of whose parts "gemma3_text" is one. */
static void put_outer(enum arch arch, char *out, size_t size)
{
    static const char part[] = "_text";
    const char *name = arch_name(arch);
    const size_t length = strlen(name), less = sizeof part - 1;
    const bool is_part = length > less && strcmp(name + length - less, part) == 0;
    snprintf(out, size, "%.*s", (int)(is_part ? length - less : length), name);
}

enum err_code model_preset_find(const char *name, struct model_config *out, struct err *err)
{
    bool seeing;
    const struct model_preset *preset = preset_of(name, &seeing);
    *out = preset ? preset->config : (struct model_config){.layers = 0};
    if (preset && seeing)
        put_outer(preset->config.arch, out->stated.outer, sizeof out->stated.outer);
    if (preset)
        return ERR_OK;
    return err_set(err, ERR_INVALID, "no preset is called \"%.200s\"; the nearest are %s", name,
                   nearest_presets(name).text);
}

enum err_code model_find(const char *text, struct model_config *out, struct err *err)
{
    struct stat status;
    const struct model_preset *preset = model_preset_of(text);
    const bool exact = preset && strcmp(preset->name, text) == 0;
    errno = 0;
    if (recording_is_named(text)) {
        *out = (struct model_config){.layers = 0};
        return recording_read(text, &out->recording, err);
    }
    if (!exact && (!*text || stat(text, &status) == 0))
        return model_config_read(text, out, err);
    if (preset)
        return model_preset_find(text, out, err);

    const int reason = errno;
    *out = (struct model_config){.layers = 0};
    return err_set(err, ERR_INVALID,
                   "\"%.200s\" is no file or folder (%s) and no preset; the nearest presets are %s",
                   text, strerror(reason), nearest_presets(text).text);
}

void model_release(struct model_config *config)
{
    recording_free(config->recording);
    config->recording = NULL;
}
