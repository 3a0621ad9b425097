/* find.c - which model a text means: a preset by any of its names, or a file. */
#include "base/names.h"
#include "families/called.h"
#include "families/family.h"
#include "families/towers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NEAREST = 3 };

struct nearest { /* "llama-3-8b, llama-3-70b and llama-2-7b" */
    char text[192];
};

/* How the name's nearest kin among the presets begin. */
static enum names_kin nearest_kin(const char *name)
{
    const struct model_preset *preset;
    enum names_kin nearest = NAMES_OTHERS;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++)
        if (names_kin(name, preset->name) > nearest)
            nearest = names_kin(name, preset->name);
    return nearest;
}

/* The presets nearest to `name` of those that begin as it does; of as near ones the first of the
 * list. Empty: none does. */
static struct nearest nearest_presets(const char *name)
{
    const struct model_preset *nearest[NEAREST + 1] = {NULL}, *preset; /* one place to fall off */
    const struct called called = called_read(name);
    const struct stem stem = called_stem(&called, called.count);
    const enum names_kin kin = nearest_kin(stem.text);
    uint32_t found = 0;
    for (uint32_t i = 0; kin != NAMES_OTHERS && (preset = model_preset_at(i)) != NULL; i++) {
        if (names_kin(stem.text, preset->name) != kin)
            continue;
        uint32_t at = found;
        for (; at > 0 && names_nearer(stem.text, preset->name, nearest[at - 1]->name); at--)
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

typedef const struct model_preset *finder(const char *name);

/* By the name with as many words as finds one. */
static const struct model_preset *by_stem(const struct called *called, finder *find)
{
    const struct model_preset *preset = NULL;
    for (uint32_t dropped = 0; dropped <= called->count && !preset; dropped++) {
        const struct stem stem = called_stem(called, dropped);
        preset = stem.text[0] ? find(stem.text) : NULL;
    }
    return preset;
}

struct match {
    const struct model_preset *preset; /* NULL: there is none */
    bool seeing;                       /* it is the text model of what goes by the name */
    bool bits4;                        /* whose weights are bitsandbytes' */
};

/* Whatever the weights are quantized for. */
static struct match match_shape(const struct called *called)
{
    struct match out = {.bits4 = called->bits4};
    out.preset = by_stem(called, preset_called);
    out.seeing = !out.preset;
    if (!out.preset)
        out.preset = by_stem(called, text_model_of);
    return out;
}

static struct match match_of(const char *name)
{
    const struct called called = called_read(name);
    const struct model_preset *exact = called.format[0] ? preset_called(called.text) : NULL;
    if (called.format[0])
        return (struct match){.preset = exact};
    return match_shape(&called);
}

const struct model_preset *model_preset_of(const char *name)
{
    return match_of(name).preset;
}

const struct model_preset *model_preset_of_path(const char *path, char called[PRESET_NAME_SIZE])
{
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    if (end - start >= PRESET_NAME_SIZE)
        return NULL; /* no preset's */
    snprintf(called, PRESET_NAME_SIZE, "%.*s", (int)(end - start), path + start);
    const struct match match = match_of(called);
    if (match.preset && !match.seeing && !match.bits4)
        snprintf(called, PRESET_NAME_SIZE, "%s", match.preset->name);
    return match.preset;
}

/* "gemma3", of whose parts "gemma3_text" is one. */
static void put_outer(enum arch arch, char *out, size_t size)
{
    static const char part[] = "_text";
    const struct family *family = family_of(arch);
    const char *name = family->seeing ? family->seeing : family->outer;
    if (!name)
        name = family->name;
    const size_t length = strlen(name), less = sizeof part - 1;
    const bool is_part = length > less && strcmp(name + length - less, part) == 0;
    snprintf(out, size, "%.*s", (int)(is_part ? length - less : length), name);
}

void model_preset_missing(const char *name, char *text, size_t size)
{
    const struct called called = called_read(name);
    const struct model_preset *plain = called.format[0] ? match_shape(&called).preset : NULL;
    const struct nearest nearest = nearest_presets(name);
    if (plain)
        snprintf(text, size, "weights in %s are not planned; %s is the same model without",
                 called.format, plain->name);
    else if (nearest.text[0])
        snprintf(text, size, "the nearest are %s", nearest.text);
    else
        snprintf(text, size, "none is near, `shardplan models` lists them");
}

enum err_code model_preset_find(const char *name, struct model_config *out, struct err *err)
{
    const struct match match = match_of(name);
    char why[PRESET_MISSING_SIZE];
    *out = match.preset ? match.preset->config : (struct model_config){.layers = 0};
    if (match.preset && match.seeing) {
        put_outer(out->arch, out->stated.outer, sizeof out->stated.outer);
        tower_of_preset(match.preset->name, out);
    }
    if (match.preset && match.bits4)
        snprintf(out->stated.quantized, sizeof out->stated.quantized, "bitsandbytes");
    if (match.preset)
        return ERR_OK;
    model_preset_missing(name, why, sizeof why);
    return err_set(err, ERR_INVALID, "no preset is called \"%.200s\"; %s", name, why);
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
    char why[PRESET_MISSING_SIZE];
    *out = (struct model_config){.layers = 0};
    model_preset_missing(text, why, sizeof why);
    return err_set(err, ERR_INVALID, "\"%.200s\" is no file or folder (%s) and no preset: %s", text,
                   strerror(reason), why);
}

void model_release(struct model_config *config)
{
    recording_free(config->recording);
    config->recording = NULL;
}
