/* framework_transformers_listed.c - what keys that are not planned change, where that depends on
 * others beside them; see framework_transformers_listed.def. */
#include "frameworks/framework_transformers.h"

#include "base/number.h"
#include "families/families.h"

#include <string.h>

static bool is_zero(const struct node *node)
{
    double value;
    return node && node->text && number_real(node->text, &value) && value == 0;
}

static const char *of_experts(const struct model_config *config)
{
    return model_has_experts(config) ? "experts" : NULL;
}

static bool has_experts(const struct import *im)
{
    return !import_is_recorded(im) && import_of_model(im, of_experts);
}

/* trainer_optimizer.py: torch's AdamW takes none of them. */
enum err_code transformers_read_optim_args(struct import *im, const struct key_row *row,
                                           const struct node *node, struct err *err)
{
    const struct node *optim = import_node(im, "optim");
    const bool torchs = !optim || strcmp(optim->text ? optim->text : "", "adamw_torch") == 0 ||
                        strcmp(optim->text ? optim->text : "", "adamw_torch_fused") == 0;
    (void)err;
    if (node && (torchs || (node->text && !*node->text)))
        import_idle(im, node, row->path);
    else if (node)
        import_list(im, node, row->path, "arguments of the optimizer: planned with its own");
    return ERR_OK;
}

/* TRL 1.16: 0.001 where its file says nothing. */
enum err_code transformers_read_router_loss(struct import *im, const struct key_row *row,
                                            const struct node *node, struct err *err)
{
    const bool trls = import_node(im, TRLS_HEAD) != NULL;
    (void)err;
    if (!node && !trls)
        return ERR_OK;
    if (has_experts(im) && !is_zero(node))
        import_list(im, node, row->path,
                    "TRL adds the routers' auxiliary loss where it is not 0: planned without");
    else if (node)
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* AxolotlTrainer.additional_accelerator_args: torchao's tensorwise recipe, with weights that
 * backward casts again where they are gathered so; convert_model_to_fp8_ao leaves the first of all
 * linear layers, too, as it is. */
enum err_code transformers_read_fp8(struct import *im, const struct key_row *row,
                                    const struct node *node, struct err *err)
{
    static const char gather[] = "fp8_enable_fsdp_float8_all_gather";
    const struct node *gathered = import_node(im, gather);
    (void)err;
    if (!transformers_is_on(node)) {
        if (node)
            import_idle(im, node, row->path);
        if (gathered)
            import_idle(im, gathered, gather);
        return ERR_OK;
    }
    import_list(im, node, row->path,
                "float8 of all linear layers but the first and the head: planned without; "
                "--float8 tensorwise plans all but the head");
    if (transformers_is_on(gathered))
        import_list(im, gathered, gather,
                    "weights cast before they are gathered: planned without; --float8-gather "
                    "precomputed, with --float8 tensorwise");
    else if (gathered)
        import_idle(im, gathered, gather);
    return ERR_OK;
}

/* axolotl's resolve_dtype: the dtype that the model is loaded in, unless bf16 says it. */
enum err_code transformers_read_float16(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    (void)err;
    if (transformers_is_on(node) && !transformers_is_on(import_node(im, "bf16")))
        import_list(im, node, row->path, "the model is loaded in fp16: planned as fp16 says");
    else if (node)
        import_idle(im, node, row->path);
    return ERR_OK;
}

enum err_code transformers_read_experts_way(struct import *im, const struct key_row *row,
                                            const struct node *node, struct err *err)
{
    (void)err;
    if (node && has_experts(im) && strcmp(node->text, "grouped_mm") != 0)
        import_list(im, node, row->path,
                    "another implementation of experts: planned as grouped_mm");
    else if (node)
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* LLaMA-Factory: other numbers in the same tensors, but for the one that finds them anew as
 * sequences grow. */
enum err_code transformers_read_rope_scaling(struct import *im, const struct key_row *row,
                                             const struct node *node, struct err *err)
{
    (void)err;
    if (node && node->text && strcmp(node->text, "dynamic") == 0)
        import_list(im, node, row->path,
                    "frequencies that are found anew as sequences grow: planned as the model's");
    else if (node)
        import_idle(im, node, row->path);
    return ERR_OK;
}

enum err_code transformers_read_frozen_layers(struct import *im, const struct key_row *row,
                                              const struct node *node, struct err *err)
{
    const struct node *type = import_node(im, "finetuning_type");
    (void)err;
    if (node && type && type->text && strcmp(type->text, "freeze") == 0)
        import_list(im, node, row->path, "which layers are trained: planned as all; --freeze");
    else if (node)
        import_idle(im, node, row->path);
    return ERR_OK;
}
