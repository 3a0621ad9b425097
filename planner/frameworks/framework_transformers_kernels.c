/* framework_transformers_kernels.c - axolotl's kernels of adapters (July 2026): lora_mlp_kernel,
 * lora_qkv_kernel and lora_o_kernel as --lora-kernels. Where a file has none of them axolotl turns
 * all on by itself (check_auto_enable_lora_kernels of its utils/schemas/config.py); what it cannot
 * patch of a model stays as it is, or fails (monkeypatch/lora_kernels.py). */
#include "frameworks/framework_transformers.h"

#include "families/families.h"

#include <stdio.h>
#include <string.h>

#define AS_PEFT "axolotl's kernels of adapters: planned as peft's own"

static const struct kernel_key {
    const char *key, *name;
} keys[] = {{"lora_mlp_kernel", "mlp"}, {"lora_qkv_kernel", "qkv"}, {"lora_o_kernel", "o"}};
enum { KEYS = sizeof keys / sizeof *keys };

static bool is_said(const struct import *im)
{
    for (int i = 0; i < KEYS; i++)
        if (import_node(im, keys[i].key))
            return true;
    return import_node(im, "lora_embedding_kernel") != NULL;
}

static bool has_adapters(const struct import *im)
{
    char buffer[NUMBER_TEXT];
    const char *lora = import_value(im, "lora", buffer);
    return lora && strcmp(lora, "none") != 0;
}

/* What keeps axolotl from turning them on. */
static bool turns_on(const struct import *im)
{
    return transformers_is_axolotl(im) && !is_said(im) && !import_node(im, "rl") &&
           !transformers_is_on(import_node(im, "trust_remote_code")) &&
           !transformers_is_on(import_node(im, "nvfp4_merge_aware")) &&
           !im->settings->job.model.bits8 && im->settings->job.strategy.system != SYSTEM_FSDP1;
}

/* Beside what else the file says; of the family, names by commas. */
static const char *planned(const struct import *im)
{
    char buffer[NUMBER_TEXT];
    const char *compiled = import_value(im, "compile", buffer);
    const bool may = settings_find(im->settings, "lora-kernels", NULL) && compiled &&
                     strcmp(compiled, "off") == 0 && !im->settings->job.model.bits8 &&
                     !import_is_recorded(im);
    return may ? import_of_model(im, im->settings->job.model.bits4.kind ? lora_kernels_of_bits4
                                                                        : lora_kernels_of)
               : NULL;
}

static bool is_among(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && strncmp(at, name, length) == 0)
            return true;
    return false;
}

enum err_code transformers_read_lora_kernels(struct import *im, const struct key_row *row,
                                             const struct node *node, struct err *err)
{
    const bool on = has_adapters(im), all = on && turns_on(im);
    const char *names = on ? planned(im) : NULL;
    char text[16] = "";
    const struct node *first = NULL;
    (void)node;
    for (int i = 0; i < KEYS; i++) {
        const struct node *said = import_node(im, keys[i].key);
        const bool wanted = all || (on && transformers_is_on(said));
        if (said && !wanted)
            import_idle(im, said, keys[i].key);
        else if (wanted && names && is_among(names, keys[i].name)) {
            const size_t used = strlen(text);
            snprintf(text + used, sizeof text - used, "%s%s", used ? "," : "", keys[i].name);
            first = first ? first : said;
        } else if (said)
            import_list(im, said, keys[i].key, AS_PEFT);
    }
    if (all && !names)
        import_list(im, NULL, row->path, AS_PEFT ", which axolotl turns on by itself");
    if (!text[0])
        return ERR_OK;
    if (im->settings->job.strategy.system == SYSTEM_FSDP2)
        import_list(im, first, row->path,
                    "axolotl's FSDP2 gathers each adapter by itself, and keeps it until the step "
                    "ends: planned with its block");
    return import_set(im, "lora-kernels", text, row, first, err);
}

enum err_code transformers_read_lora_kernel(struct import *im, const struct key_row *row,
                                            const struct node *node, struct err *err)
{
    (void)im;
    (void)row;
    (void)node;
    (void)err;
    return ERR_OK; /* the first of them has read it */
}
