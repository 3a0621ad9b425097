/* framework_transformers_liger.c - Liger's kernels by the keys of those who apply them:
 *
 *     use_liger_kernel     of TrainingArguments, and enable_liger_kernel of LLaMA-Factory: what
 *                          apply_liger_kernel_to_... does by itself, but for what
 *                          liger_kernel_config says
 *     liger_rope, ...      of axolotl, where its LigerPlugin is among the plugins: these alone
 *
 * What Liger does not have of the model's family has no effect; what is not planned is listed. */
#include "frameworks/framework_transformers.h"

#include "families/families.h"

#include <stdlib.h>
#include <string.h>

struct kernel_key {
    const char *axolotl, *config; /* what it is called there, and in liger_kernel_config */
    const char *also;             /* likewise; NULL */
    enum liger_kernel kernel;
    const char *setting, *value; /* that it is */
};

static const struct kernel_key kernels[] = {
    {"liger_rope", "rope", NULL, LIGER_ROPE, "liger", "rope"},
    {"liger_rms_norm", "rms_norm", NULL, LIGER_RMS_NORM, "liger", "rms_norm"},
    {"liger_glu_activation", "swiglu", "geglu", LIGER_GLU, "liger", "glu"},
    {"liger_fused_linear_cross_entropy", "fused_linear_cross_entropy", NULL, LIGER_LINEAR_LOSS,
     "loss", "liger"},
    {"liger_cross_entropy", "cross_entropy", NULL, LIGER_LOSS, "loss", "liger-cross-entropy"},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* ---- what the model's family has ---- */

static const char *of_rope(const struct model_config *config)
{
    return liger_has(config, LIGER_ROPE);
}

static const char *of_rms_norm(const struct model_config *config)
{
    return liger_has(config, LIGER_RMS_NORM);
}

static const char *of_glu(const struct model_config *config)
{
    return liger_has(config, LIGER_GLU);
}

static const char *of_linear_loss(const struct model_config *config)
{
    return liger_has(config, LIGER_LINEAR_LOSS);
}

static const char *of_loss(const struct model_config *config)
{
    return liger_has(config, LIGER_LOSS);
}

const char *transformers_family_has(const struct import *im, enum liger_kernel kernel)
{
    static const char *(*const says[])(const struct model_config *) = {
        [LIGER_ROPE] = of_rope, [LIGER_RMS_NORM] = of_rms_norm,
        [LIGER_GLU] = of_glu,   [LIGER_LINEAR_LOSS] = of_linear_loss,
        [LIGER_LOSS] = of_loss,
    };
    return import_is_recorded(im) ? NULL : import_of_model(im, says[kernel]);
}

static bool is_none(const struct import *im, enum liger_kernel kernel)
{
    const char *has = transformers_family_has(im, kernel);
    return has && strcmp(has, LIGER_NONE) == 0;
}

/* Where there is no such setting, nothing is compiled. */
static bool is_compiled(const struct import *im)
{
    char buffer[NUMBER_TEXT];
    const char *compiled = import_value(im, "compile", buffer);
    return compiled && strcmp(compiled, "off") != 0;
}

/* Whether it is planned as Liger's: of the family, and beside what else the file says. */
static bool is_planned(const struct import *im, enum liger_kernel kernel)
{
    const char *has = transformers_family_has(im, kernel);
    return has && strcmp(has, LIGER_PLANNED) == 0 && !is_compiled(im);
}

/* ---- what is applied ---- */

/* The key that applies Liger's kernels as they are by themselves; NULL: none does. */
static const struct node *trainer_node(const struct import *im, const char **path)
{
    static const char *const paths[] = {"use_liger_kernel", "enable_liger_kernel"};
    for (int i = 0; i < 2; i++) {
        const struct node *node = import_node(im, *path = paths[i]);
        if (node_is_true(node))
            return node;
    }
    return NULL;
}

static const struct node *config_node(const struct import *im, const struct kernel_key *kernel)
{
    const struct node *config = import_node(im, "liger_kernel_config");
    for (const struct node *n = config && config->kind == NODE_TABLE ? config->first : NULL; n;
         n = n->next)
        if (n->key && (strcmp(n->key, kernel->config) == 0 ||
                       (kernel->also && strcmp(n->key, kernel->also) == 0)))
            return n;
    return NULL;
}

/* Defaults of apply_liger_kernel_to_...: all but the cross-entropy of logits, which there is where
 * there is no other. */
static bool is_applied(const struct import *im, const struct kernel_key *kernel)
{
    const struct node *said = config_node(im, kernel);
    if (said)
        return node_is_true(said);
    return kernel->kernel != LIGER_LOSS || is_none(im, LIGER_LINEAR_LOSS);
}

/* TRL's trainers have a head of their own (1.16), which calls no loss of Liger's. */
static bool is_without_losses(const struct import *im)
{
    return import_node(im, TRLS_HEAD) != NULL;
}

/* ... and which refuse it (__init__ of each): an older TRL's file has another --loss beside it. */
static enum err_code check_losses(const struct import *im, const struct node *on, struct err *err)
{
    const struct kernel_key *loss = NULL;
    for (int i = 0; i < KERNELS; i++)
        if (kernels[i].kernel == LIGER_LINEAR_LOSS)
            loss = &kernels[i];
    const struct node *said = on && is_without_losses(im) ? config_node(im, loss) : NULL;
    if (!node_is_true(said) || import_is_given(im, "loss"))
        return ERR_OK;
    return import_refuse(im, "liger_kernel_config.fused_linear_cross_entropy", said, err,
                         "TRL 1.16 refuses it beside its fused LM head: leave it out, or --loss "
                         "liger of an older one");
}

bool transformers_is_plain(const struct import *im)
{
    char buffer[NUMBER_TEXT];
    const char *torch = import_value(im, "torch", buffer);
    return !import_is_recorded(im) && !is_compiled(im) && !(torch && strcmp(torch, "2.14") != 0);
}

/* Which of it is planned, and beside what else; NULL: it is. */
const char *transformers_lm_head_lacks(const struct import *im)
{
    const struct node *smoothing = import_node(im, "label_smoothing_factor");
    if (smoothing && smoothing->text && strtod(smoothing->text, NULL) > 0)
        return "beside smoothed labels a second forward, of the metrics alone: planned without";
    if (!transformers_is_plain(im) || !import_of_model(im, lm_head_has))
        return "its trainers have no logits (1.16): planned with the model's own loss";
    return NULL;
}

/* One kernel that is applied: "rope,rms_norm" gets longer, the loss is set at once. */
static enum err_code take_kernel(struct import *im, const struct key_row *row, const char *path,
                                 const struct node *node, const struct kernel_key *kernel,
                                 const char **list, struct err *err)
{
    const bool loss = strcmp(kernel->setting, "loss") == 0;
    if (is_none(im, kernel->kernel) || (loss && is_without_losses(im)))
        return ERR_OK;
    if (!is_planned(im, kernel->kernel)) {
        import_list(im, node, path,
                    import_text(im, "Liger's %s: planned as the model's own", kernel->config));
        return ERR_OK;
    }
    if (loss)
        return import_set(im, "loss", kernel->value, row, node, err);
    *list = import_text(im, "%s%s%s", *list, **list ? "," : "", kernel->value);
    return ERR_OK;
}

enum err_code transformers_read_liger(struct import *im, const struct key_row *row,
                                      const struct node *node, struct err *err)
{
    const char *path, *list = "";
    const struct node *on = trainer_node(im, &path), *from = on;
    const bool plugged = transformers_has_plugin(im, "LigerPlugin");
    const uint32_t before = im->note_count;
    struct key_row own_row = *row;
    own_row.path = path; /* what turns them on may be the other trainer's name */
    TRY(check_losses(im, on, err));
    for (uint32_t i = 0; i < KERNELS; i++) {
        const struct node *own = import_node(im, kernels[i].axolotl);
        if (on && is_applied(im, &kernels[i]))
            TRY(take_kernel(im, &own_row, path, on, &kernels[i], &list, err));
        else if (!on && plugged && node_is_true(own))
            TRY(take_kernel(im, row, kernels[i].axolotl, from = own, &kernels[i], &list, err));
    }
    if (*list)
        TRY(import_set(im, "liger", list, on ? &own_row : row, from, err));
    if (on && im->note_count == before) /* the family has none of them */
        import_idle(im, on, path);
    if (!on && node)
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* A key of axolotl's: what it does is done above. */
enum err_code transformers_read_liger_key(struct import *im, const struct key_row *row,
                                          const struct node *node, struct err *err)
{
    const char *path;
    (void)err;
    if (!node || node == trainer_node(im, &path))
        return ERR_OK;
    const bool counts = node_is_true(node) && !trainer_node(im, &path) &&
                        transformers_has_plugin(im, "LigerPlugin");
    bool none = !counts;
    for (uint32_t i = 0; i < KERNELS; i++)
        if (strcmp(kernels[i].axolotl, row->path) == 0)
            none |= is_none(im, kernels[i].kernel);
    if (none)
        import_idle(im, node, row->path);
    return ERR_OK;
}
