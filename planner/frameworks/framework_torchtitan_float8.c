/* framework_torchtitan_float8.c - torchtitan's Float8LinearConverter
 * (components/quantization/float8.py of v0.2.2; components/float8.py of v0.1.0). */
#include "frameworks/framework_torchtitan.h"

#include <stdio.h>
#include <string.h>

#define SECTION "quantize.linear.float8"

static bool has_item(const struct node *list, const char *item)
{
    for (const struct node *n = list ? list->first : NULL; n; n = n->next)
        if (n->text && strcmp(n->text, item) == 0)
            return true;
    return false;
}

static bool has_converter(const struct node *converters)
{
    return has_item(converters, SECTION) || has_item(converters, "float8");
}

/* A key of the converter's section, which was [float8] before it was [quantize.linear.float8]. */
static const struct node *take(const struct import *im, const char *key)
{
    static const char *const sections[] = {SECTION, "float8"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        char path[96];
        snprintf(path, sizeof path, "%s.%s", sections[i], key);
        struct node *node = document_find(&im->document, path);
        if (!node)
            continue;
        node->read = true;
        for (struct node *n = node->first; n; n = n->next)
            n->read = true;
        return node;
    }
    return NULL;
}

static bool is_true(const struct node *node)
{
    return node && node->text && strcmp(node->text, "true") == 0;
}

/* Without a recipe it scales tensors as wholes, and only so it gathers in float8. */
static enum err_code read_gather(struct import *im, const struct key_row *row,
                                 const struct node *recipe, struct err *err)
{
    const struct node *gather = take(im, "enable_fsdp_float8_all_gather");
    const struct node *all = take(im, "precompute_float8_dynamic_scale_for_fsdp");
    if (!is_true(gather))
        return ERR_OK;
    if (recipe && recipe->text)
        return import_refuse(im, "enable_fsdp_float8_all_gather", gather, err,
                             "torchtitan refuses it beside recipe_name");
    return import_set(im, "float8-gather", is_true(all) ? "precomputed" : "dynamic", row, gather,
                      err);
}

/* The head stays as it is where it is filtered, which torchtitan's own configurations do. */
static enum err_code read_float8(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const struct node *recipe = take(im, "recipe_name"), *filter = take(im, "filter_fqns");
    const struct node *emulated = take(im, "emulate");
    if (!has_item(filter, "output") || filter->first->next)
        import_list(im, filter ? filter : node, filter ? "filter_fqns" : row->path,
                    "which layers are in float8: planned as all but the head");
    if (is_true(emulated))
        import_list(im, emulated, "emulate", "float8 emulated: planned as the GPU's own");
    TRY(import_set(im, "float8", recipe && recipe->text ? recipe->text : "tensorwise", row,
                   recipe ? recipe : node, err));
    return read_gather(im, row, recipe, err);
}

enum err_code torchtitan_read_converters(struct import *im, const struct key_row *row,
                                         const struct node *node, struct err *err)
{
    if (!node || (node->kind == NODE_LIST && !node->first))
        return ERR_OK;
    if (!has_converter(node) || node->first->next)
        import_list(im, node, row->path, "converters (MX, LoRA, float8 of experts)");
    return has_converter(node) ? read_float8(im, row, node, err) : ERR_OK;
}

enum err_code torchtitan_read_float8(struct import *im, const struct key_row *row,
                                     const struct node *node, struct err *err)
{
    (void)err;
    if (node && !has_converter(import_node(im, "model.converters")))
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* ---- as v0.2.2 has it ---- */

static bool is_float8(const struct settings *s)
{
    return s->job.model.float8 != FLOAT8_NONE;
}

const char *torchtitan_write_converters(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return is_float8(s) ? SECTION : NULL;
}

const char *torchtitan_write_filter(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return is_float8(s) ? "output" : NULL;
}

const char *torchtitan_write_recipe(const struct settings *s, char text[NUMBER_TEXT])
{
    return is_float8(s) && s->job.model.float8 != FLOAT8_TENSORWISE
               ? settings_get(s, "float8", text)
               : NULL;
}

/* Not beside a recipe. */
static enum float8_gather gather_of(const struct settings *s)
{
    return s->job.model.float8 == FLOAT8_TENSORWISE ? s->job.model.float8_gather
                                                    : FLOAT8_GATHER_NOT;
}

const char *torchtitan_write_gather(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return gather_of(s) != FLOAT8_GATHER_NOT ? "true" : NULL;
}

const char *torchtitan_write_precomputed(const struct settings *s, char text[NUMBER_TEXT])
{
    (void)text;
    return gather_of(s) == FLOAT8_GATHER_PRECOMPUTED ? "true" : NULL;
}
