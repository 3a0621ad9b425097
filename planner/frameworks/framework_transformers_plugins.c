/* framework_transformers_plugins.c - what axolotl's plugins make of a step (its integrations, July
 * 2026). A plugin is an entry of the list `plugins`, and most do what keys of their own say. */
#include "frameworks/framework_transformers.h"

#include "families/families.h"

#include <string.h>

enum { MOST_KEYS = 8 };

struct plugin {
    const char *name;                /* its class */
    const char *why;                 /* what it does that is not planned; NULL: nothing to a step */
    const char *keys[MOST_KEYS + 1]; /* any of which turns it on; none: it is on by itself */
    bool initially;                  /* what holds where no key is there */
    bool cuts; /* its loss is --loss cut-cross-entropy, where that is planned */
};

static const struct plugin plugins[] = {
    {.name = "CutCrossEntropyPlugin",
     .why = TRANSFORMERS_NO_LOGITS,
     .keys = {"cut_cross_entropy"},
     .initially = true,
     .cuts = true},
    {.name = "LigerPlugin"}, /* its keys say what it does */
    {.name = "KernelsPlugin", .why = "kernels of experts: planned as the model's own"},
    {.name = "SpectrumPlugin", .why = "some layers alone are trained: planned as all; --freeze"},
    {.name = "KDPlugin",
     .why = "another objective, with a teacher's probabilities: planned as fine-tuning",
     .keys = {"kd_trainer"}},
    {.name = "DiffusionPlugin", .why = "another objective: planned as fine-tuning"},
    {.name = "NemoGymPlugin", .why = "another objective: planned as fine-tuning"},
    {.name = "GrokfastPlugin", .why = "a running mean beside each gradient: planned without"},
    {.name = "DenseMixerPlugin", .why = "all experts run for each token: planned as routed"},
    {.name = "ExpertParallelPlugin", .why = "expert parallelism: planned without"},
    {.name = "LLMCompressorPlugin", .why = "masks of weights: planned without"},
    {.name = "MoraPlugin", .why = "adapters of another kind"},
    {.name = "HatcheryPlugin", .why = "steps on another service's machines: planned here"},
    {.name = "LMEvalPlugin"},
    {.name = "SwanLabPlugin"},
};

/* The last name of "axolotl.integrations.liger.LigerPlugin". */
static const char *class_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static const struct plugin *find(const char *path)
{
    for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++)
        if (strcmp(plugins[i].name, class_of(path)) == 0)
            return &plugins[i];
    return NULL;
}

/* The first entry, and those behind it. */
static const struct node *first_entry(const struct node *node)
{
    return node && node->kind == NODE_LIST ? node->first : node;
}

static const struct node *next_entry(const struct node *list, const struct node *entry)
{
    return list->kind == NODE_LIST ? entry->next : NULL;
}

bool transformers_has_plugin(const struct import *im, const char *name)
{
    const struct node *list = import_node(im, "plugins");
    for (const struct node *n = first_entry(list); n; n = next_entry(list, n))
        if (n->text && strcmp(class_of(n->text), name) == 0)
            return true;
    return false;
}

static bool is_on(const struct import *im, const struct plugin *plugin)
{
    bool said = false;
    for (const char *const *key = plugin->keys; *key; key++) {
        const struct node *node = import_node(im, *key);
        if (node_is_true(node))
            return true;
        said = said || node;
    }
    return !plugin->keys[0] || (plugin->initially && !said);
}

/* Of the family, and beside what else the file says. */
static bool is_cut_planned(const struct import *im)
{
    char buffer[NUMBER_TEXT];
    const char *compiled = import_value(im, "compile", buffer);
    return !import_is_recorded(im) && import_of_model(im, cut_has) && compiled &&
           strcmp(compiled, "off") == 0;
}

#define FAILING_CUT                                                                                \
    "DeepSpeed 0.19.8 fails with it under ZeRO-3, where its backward gathers the head's weight, "  \
    "which the model has gathered: planned with all logits"

static bool fails_with_cut(const struct import *im)
{
    return im->settings->job.strategy.system == SYSTEM_ZERO3 && !import_is_recorded(im) &&
           import_of_model(im, cut_has);
}

enum err_code transformers_read_plugins(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    for (const struct node *n = first_entry(node); n; n = next_entry(node, n)) {
        const struct plugin *plugin = n->text ? find(n->text) : NULL;
        if (plugin && plugin->cuts && is_on(im, plugin) && is_cut_planned(im))
            TRY(import_set(im, "loss", "cut-cross-entropy", row, n, err));
        else if (!plugin)
            import_unknown(im, n, row->path);
        else if (plugin->why && is_on(im, plugin))
            import_list(im, n, row->path,
                        plugin->cuts && fails_with_cut(im) ? FAILING_CUT : plugin->why);
        else
            import_idle(im, n, row->path);
    }
    return ERR_OK;
}

enum err_code transformers_read_cut(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    (void)err;
    if (!node || transformers_has_plugin(im, "CutCrossEntropyPlugin"))
        return ERR_OK;
    if (node_is_true(node))
        import_list(im, node, row->path, row->why);
    else
        import_idle(im, node, row->path);
    return ERR_OK;
}
