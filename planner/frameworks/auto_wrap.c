/* auto_wrap.c - see auto_wrap.h. */
#include "frameworks/auto_wrap.h"

#include "families/blocks.h"
#include "families/families.h"

#include <string.h>

#define EMBEDDING "Embedding" /* torch.nn's */

/* ---- lists of classes, as YAML's or by commas ---- */

static const char *joined(struct import *im, const struct node *node)
{
    if (!node || node->kind != NODE_LIST)
        return node && node->text ? node->text : "";
    const char *text = "";
    for (const struct node *n = node->first; n; n = n->next)
        text = import_text(im, "%s%s%s", text, n == node->first ? "" : ",", n->text ? n->text : "");
    return text;
}

/* The next name of a list, blanks and all, in the import's arena; NULL: there are no more. */
static const char *next_name(struct import *im, const char **at)
{
    if (!*at)
        return NULL;
    const size_t length = strcspn(*at, ",");
    const char *name = import_text(im, "%.*s", (int)length, *at);
    *at = (*at)[length] ? *at + length + 1 : NULL;
    return name;
}

static bool has_name(struct import *im, const char *list, const char *wanted)
{
    const char *name;
    while ((name = next_name(im, &list)))
        if (strcmp(name, wanted) == 0)
            return true;
    return false;
}

/* ---- */

/* FSDP2 has them without being asked. */
static bool has_units_of_embeddings(struct import *im, const struct node *classes)
{
    return im->settings->job.strategy.system == SYSTEM_FSDP1 &&
           has_name(im, joined(im, classes), EMBEDDING);
}

enum err_code auto_wrap_set(struct import *im, const char *policy, const char *classes,
                            const struct key_row *row, const struct node *node, bool *known,
                            struct err *err)
{
    const bool second = im->settings->job.strategy.system == SYSTEM_FSDP2;
    *known = strcmp(policy, TRANSFORMER_WRAP) == 0;
    if (!*known)
        return ERR_OK;
    const struct key_row list = {.path = classes};
    if (has_units_of_embeddings(im, import_node(im, classes)))
        return import_set(im, "units", "embeddings", &list, import_node(im, classes), err);
    if (!second || !import_is_recorded(im))
        return import_set(im, "units", second ? "torchtitan" : "blocks", row, node, err);
    import_list(im, node, row->path,
                "embeddings and [norm, head] as units: of a recorded model planned with its "
                "blocks");
    return import_set(im, "units", "blocks", row, NULL, err);
}

static enum err_code refuse_class(struct import *im, const struct key_row *row,
                                  const struct node *node, const struct model_config *config,
                                  const char *name, struct err *err)
{
    char classes[BLOCK_CLASSES_SIZE];
    const char *owner = block_class_owner(name), *word = name + strspn(name, " ");
    model_block_classes(config, classes);
    if (word != name && model_module_class(config, word) != CLASS_FOREIGN)
        return import_refuse(im, row->path, node, err,
                             "accelerate takes the blank before %s for a part of the name: leave "
                             "it out",
                             word);
    return import_refuse(im, row->path, node, err,
                         "the model (%s) has no module of class \"%s\"%s%s, and accelerate stops "
                         "there; its blocks are %s",
                         arch_name(config->arch), name, owner ? ", which is of " : "",
                         owner ? owner : "", classes);
}

/* Whether each class of the blocks is in the list. */
static bool has_blocks(struct import *im, const struct model_config *config, const char *list)
{
    char classes[BLOCK_CLASSES_SIZE];
    const char *at = classes, *name;
    model_block_classes(config, classes);
    while ((name = next_name(im, &at)))
        if (!has_name(im, list, name))
            return false;
    return true;
}

/* Whether a unit of each Embedding is planned: under FSDP1, and under FSDP2 where the one of tokens
 * is all there is and stands alone. */
static bool plans_embeddings(const struct import *im, const struct model_config *config)
{
    return im->settings->job.strategy.system == SYSTEM_FSDP1 ||
           (!config->tied && model_embeds_once(config));
}

static enum err_code check_classes(struct import *im, const struct key_row *row,
                                   const struct node *node, const struct model_config *config,
                                   struct err *err)
{
    const bool remote = node_is_true(import_node(im, "trust_remote_code"));
    const char *list = joined(im, node), *at = list, *name, *others = "";
    char classes[BLOCK_CLASSES_SIZE];
    while ((name = next_name(im, &at))) {
        const enum module_class class = model_module_class(config, name);
        if (class == CLASS_FOREIGN && !remote)
            return refuse_class(im, row, node, config, name, err);
        if (class != CLASS_BLOCK && !(strcmp(name, EMBEDDING) == 0 && plans_embeddings(im, config)))
            others = import_text(im, "%s%s%s", others, *others ? ", " : "", name);
    }
    model_block_classes(config, classes);
    if (*others)
        import_list(
            im, node, row->path,
            import_text(im, "units of %s: planned with the model's blocks, %s", others, classes));
    else if (!has_blocks(im, config, list))
        import_list(im, node, row->path,
                    import_text(im, "blocks in no unit of their own: planned with each (%s) as one",
                                classes));
    else if (!has_units_of_embeddings(im, node))
        import_idle(im, node, row->path);
    return ERR_OK;
}

enum err_code auto_wrap_classes(struct import *im, const struct key_row *row,
                                const struct node *node, bool by_class, struct err *err)
{
    struct model_config config;
    if (!node)
        return ERR_OK;
    if (!by_class || import_is_given(im, "units") || !import_model(im, &config)) {
        import_idle(im, node, row->path);
        return ERR_OK;
    }
    enum err_code rc = ERR_OK;
    if (config.recording)
        import_idle(im, node, row->path); /* its blocks are all that is known of it */
    else
        rc = check_classes(im, row, node, &config, err);
    model_release(&config);
    return rc;
}
