/* presets.c - models by name.
 *
 * Every preset is the config.json that its authors published on Hugging Face; the source stands
 * above each family's (family_*.c). The count beside the name is transformers' for the class named
 * there (5.23, built on the meta device), each parameter once: a head tied to the embedding adds
 * nothing.
 *
 * The same count comes from three sides, and tests hold them together: the number there, the closed
 * formula of the family, and the graph of the builder. */
#include "model/family.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { NAME_MAX_COMPARED = 48, NEAREST = 3 };

const struct model_preset *model_preset_at(uint32_t index)
{
    for (enum arch arch = 0; arch < ARCH_COUNT; arch++) {
        const struct family *family = family_of(arch);
        if (index < family->preset_count)
            return &family->presets[index];
        index -= family->preset_count;
    }
    return NULL;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete or replace to get from one name to the other (Levenshtein), without
 * regard to case. Names longer than NAME_MAX_COMPARED are cut. */
static uint32_t edit_distance(const char *a, const char *b)
{
    const size_t a_length = strnlen(a, NAME_MAX_COMPARED), b_length = strnlen(b, NAME_MAX_COMPARED);
    uint32_t row[NAME_MAX_COMPARED + 1];
    for (uint32_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= b_length; j++) {
            const uint32_t replaced = diagonal + (strncasecmp(a + i - 1, b + j - 1, 1) != 0);
            diagonal = row[j];
            row[j] = smaller(replaced, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[b_length];
}

struct nearest { /* "llama-3-8b, llama-3-70b and llama-2-7b" */
    char text[192];
};

/* The presets nearest to `name`, or to what follows its last slash: "meta-llama/Llama-3.1-8B" is a
 * name many people have at hand. Ties go to the order of the list. */
static struct nearest nearest_presets(const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *text = slash && slash[1] ? slash + 1 : name;
    const struct model_preset *nearest[NEAREST + 1] = {NULL}, *preset; /* one place to fall off */
    uint32_t distance[NEAREST + 1] = {0}, found = 0;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++) {
        const uint32_t d = edit_distance(text, preset->name);
        uint32_t at = found;
        for (; at > 0 && d < distance[at - 1]; at--) {
            distance[at] = distance[at - 1];
            nearest[at] = nearest[at - 1];
        }
        distance[at] = d;
        nearest[at] = preset;
        found = smaller(found + 1, NEAREST);
    }
    struct nearest out = {""};
    for (uint32_t i = 0, used = 0; i < found && nearest[i] && used < sizeof out.text; i++)
        used += (uint32_t)snprintf(out.text + used, sizeof out.text - used, "%s%s",
                                   i == 0           ? ""
                                   : i + 1 == found ? " and "
                                                    : ", ",
                                   nearest[i]->name);
    return out;
}

static const struct model_preset *find_preset(const char *name)
{
    const struct model_preset *preset;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++)
        if (strcasecmp(name, preset->name) == 0)
            return preset;
    return NULL;
}

enum err_code model_preset_find(const char *name, struct model_config *out, struct err *err)
{
    const struct model_preset *preset = find_preset(name);
    *out = preset ? preset->config : (struct model_config){.layers = 0};
    if (preset)
        return ERR_OK;
    return err_set(err, ERR_INVALID, "no preset is called \"%.200s\"; the nearest are %s", name,
                   nearest_presets(name).text);
}

enum err_code model_find(const char *text, struct model_config *out, struct err *err)
{
    struct stat status;
    if (find_preset(text))
        return model_preset_find(text, out, err);
    if (!*text || stat(text, &status) == 0)
        return model_config_read(text, out, err);

    const int reason = errno;
    *out = (struct model_config){.layers = 0};
    return err_set(err, ERR_INVALID,
                   "\"%.200s\" is no file or folder (%s) and no preset; the nearest presets are %s",
                   text, strerror(reason), nearest_presets(text).text);
}
