/* blocks.c - see blocks.h. Held to what transformers 5.23 builds (tests/model/test_blocks.c). */
#include "families/blocks.h"

#include "base/names.h"
#include "families/families.h"
#include "families/family.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* What of a model's class all classes of its file begin with: "Qwen3" of Qwen3ForCausalLM. */
static size_t stem_of(const struct family *family)
{
    static const char *const tails[] = {"ForCausalLM", "ForMaskedLM", "ThinkerForConditional",
                                        "ForConditionalGeneration", "LMHeadModel"};
    const char *name = family->class_name ? family->class_name : "";
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        const char *tail = strstr(name, tails[i]);
        if (tail)
            return (size_t)(tail - name);
    }
    return strlen(name);
}

static void classes_of(const struct family *family, char text[BLOCK_CLASSES_SIZE])
{
    text[0] = '\0';
    if (family->block_class)
        snprintf(text, BLOCK_CLASSES_SIZE, "%s", family->block_class);
    else if (family->class_name)
        snprintf(text, BLOCK_CLASSES_SIZE, "%.*sDecoderLayer", (int)stem_of(family),
                 family->class_name);
}

/* Whether the name is one of a list by commas. */
static bool is_among(const char *name, const char *list)
{
    const size_t length = strlen(name);
    for (const char *at = list; length && *at; at += *at == ',') {
        const size_t here = strcspn(at, ",");
        if (here == length && strncmp(at, name, length) == 0)
            return true;
        at += here;
    }
    return false;
}

void model_block_classes(const struct model_config *config, char text[BLOCK_CLASSES_SIZE])
{
    classes_of(family_of(config->arch), text);
}

const char *block_class_owner(const char *name)
{
    char classes[BLOCK_CLASSES_SIZE];
    for (int arch = 0; arch < ARCH_COUNT; arch++) {
        const struct family *family = family_of((enum arch)arch);
        classes_of(family, classes);
        if (is_among(name, classes))
            return family->name;
    }
    return NULL;
}

bool model_embeds_once(const struct model_config *config)
{
    const struct family *family = family_of(config->arch);
    return !family->learned_positions && !family->encoder && config->decoder_layers == 0;
}

/* Modules that models take from torch.nn, and GPT-2's. */
static bool is_common(const char *name)
{
    return is_among(name, "Embedding,Linear,LayerNorm,Dropout,ModuleList,Conv1D");
}

enum module_class model_module_class(const struct model_config *config, const char *name)
{
    const struct family *family = family_of(config->arch);
    char classes[BLOCK_CLASSES_SIZE];
    const size_t stem = stem_of(family);
    classes_of(family, classes);
    if (is_among(name, classes))
        return CLASS_BLOCK;
    if (block_class_owner(name))
        return CLASS_FOREIGN;
    const bool own =
        stem && strncmp(name, family->class_name, stem) == 0 && isupper((unsigned char)name[stem]);
    if (own && names_misspelt(name, classes)) /* no two classes of a file are so near */
        return CLASS_FOREIGN;
    const bool with_more = config->stated.class_name[0] || config->stated.outer[0] ||
                           config->stated.kin[0] || config->tower.kind != TOWER_NONE;
    return own || with_more || is_common(name) ? CLASS_OTHER : CLASS_FOREIGN;
}
