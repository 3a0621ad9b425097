/* framework_llama_factory_model.c - the model of LLaMA-Factory v1 (core/model_engine.py and
 * plugins/model_plugins, August 2026).
 *
 * A model that is trained whole is in fp32. Beside adapters, or layers that are frozen, it stays in
 * the dtype of its checkpoint ("auto"), which is bf16 as a rule, and what is trained is in fp32. */
#include "frameworks/framework_llama_factory.h"
#include "frameworks/framework_transformers.h"

#include "model/bits4.h"
#include "model/bits8.h"

#include <stdlib.h>
#include <string.h>

#define NAME(section) section ".name"
#define CHECKPOINTS "bf16" /* the dtype of checkpoints, as a rule */

static const char *text_of(const struct import *im, const char *path)
{
    const struct node *node = import_node(im, path);
    return node && node->text ? node->text : "";
}

static bool says(const struct import *im, const char *path, const char *text)
{
    return strcmp(text_of(im, path), text) == 0;
}

static bool is_sharded(const struct import *im)
{
    return im->settings->job.strategy.system == SYSTEM_FSDP2;
}

bool llama_factory_is_bf16(const struct import *im)
{
    return !says(im, "bf16", "false");
}

/* ---- who is trained ---- */

/* What stays in the checkpoint's dtype is gathered in FSDP2's. */
static enum err_code set_frozen(struct import *im, const struct key_row *row, struct err *err)
{
    const bool cast = is_sharded(im) && llama_factory_is_bf16(im);
    if (!is_sharded(im) && !transformers_is_whole(im)) /* DeepSpeed casts all of it */
        return ERR_OK;
    return import_set(im, "frozen-dtype", cast ? "param" : CHECKPOINTS, row, NULL, err);
}

/* "q_proj,v_proj" of a list, or of one name; "all" is every linear layer but the head. */
static const char *targets_of(struct import *im)
{
    const struct node *node = import_node(im, "peft_config.target_modules");
    const char *text = "";
    if (!node || (node->text && strcmp(node->text, "all") == 0)) {
        const char *names = import_is_recorded(im) ? NULL : import_of_model(im, lora_linear_names);
        return names ? names : "all-linear";
    }
    if (node->kind != NODE_LIST)
        return node->text ? node->text : "all-linear";
    for (const struct node *n = node->first; n; n = n->next)
        text = import_text(im, "%s%s%s", text, *text ? "," : "", n->text ? n->text : "");
    return text;
}

/* Each adapter's two modules are units. What is not cast, and of which nothing is dropped, is not
 * planned so, nor what stays gathered. */
static enum err_code set_adapter_units(struct import *im, const struct key_row *row,
                                       const struct node *node, struct err *err)
{
    char buffer[NUMBER_TEXT];
    const char *dropped = import_value(im, "lora-dropout", buffer);
    const bool apart = llama_factory_is_bf16(im) || (dropped && strtod(dropped, NULL) > 0);
    if (apart && !says(im, "dist_config.reshard_after_forward", "false"))
        return import_set(im, "adapter-units", "on", row, NULL, err);
    import_list(im, node, row->path,
                "each adapter's two matrices are units of their own: planned with its block");
    return ERR_OK;
}

static enum err_code take_adapters(struct import *im, const struct key_row *row,
                                   const struct node *node, struct err *err)
{
    static const char dropout[] = "peft_config.lora_dropout";
    const struct node *said = import_node(im, dropout);
    const long long rank = import_integer(im, "peft_config.r", 8);
    TRY(import_set(im, "lora", import_text(im, "%lld,%s", rank, targets_of(im)), row, node, err));
    TRY(import_set(im, "lora-dropout", said && said->text ? said->text : "0.05", row, NULL, err));
    if (is_sharded(im))
        TRY(set_adapter_units(im, row, node, err));
    return set_frozen(im, row, err);
}

/* The layers that are not trained, and what is not in a layer, as globs of names. */
static const char *frozen_globs(struct import *im, uint32_t layers, long long trained)
{
    const uint32_t count = (uint32_t)(trained < 0 ? -trained : trained);
    const uint32_t most = count < layers ? count : layers;
    const uint32_t first = trained > 0 ? layers - most : 0;
    const char *text = "*embed_tokens*,model.norm.*,lm_head.*";
    for (uint32_t i = 0; i < layers; i++)
        if (i < first || i >= first + most)
            text = import_text(im, "%s,*.layers.%u.*", text, i);
    return text;
}

static bool is_all(const struct import *im)
{
    const struct node *modules = import_node(im, "peft_config.freeze_trainable_modules");
    return !modules || (modules->text && strcmp(modules->text, "all") == 0);
}

static enum err_code take_frozen(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    static const char extra[] = "peft_config.freeze_extra_modules";
    const struct node *others = import_node(im, extra);
    const uint32_t layers = import_layers(im);
    const bool narrow = says(im, "peft_config.cast_trainable_params_to_fp32", "false");
    if (!layers) {
        import_list(im, node, row->path, "some layers alone are trained: planned as all; --freeze");
        return ERR_OK;
    }
    if (!is_all(im))
        import_list(im, import_node(im, "peft_config.freeze_trainable_modules"),
                    "peft_config.freeze_trainable_modules",
                    "of these layers some modules alone: planned as all of them; --freeze");
    if (others && (others->first || (others->text && *others->text)))
        import_list(im, others, extra, "modules that are trained, too: planned as frozen");
    const long long trained = import_integer(im, "peft_config.freeze_trainable_layers", 2);
    TRY(import_set(im, "freeze", frozen_globs(im, layers, trained), row, node, err));
    if (narrow && !is_sharded(im) && !transformers_is_whole(im))
        return ERR_OK;
    if (narrow)
        return import_set(im, "store-dtype", CHECKPOINTS, row, NULL, err);
    return set_frozen(im, row, err);
}

enum err_code llama_factory_read_peft(struct import *im, const struct key_row *row,
                                      const struct node *node, struct err *err)
{
    const struct node *exported = import_node(im, "peft_config.export_dir");
    if (exported)
        return import_refuse(im, "peft_config.export_dir", exported, err,
                             "it is no training job: `llamafactory-cli merge` merges adapters into "
                             "a model and writes it");
    if (!node)
        return ERR_OK;
    /* FSDP2Engine.prepare_model, where blocks are checkpointed */
    if (is_sharded(im) && !says(im, "enable_activation_checkpointing", "false"))
        TRY(import_set(im, "input-grads", "on", row, NULL, err));
    return strcmp(node->text, "lora") == 0 ? take_adapters(im, row, node, err)
                                           : take_frozen(im, row, node, err);
}

/* ---- frozen weights in few bits ---- */

#define COMPUTE "quant_config.compute_dtype"

static enum err_code take_bits4(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    const char *type = text_of(im, "quant_config.quantization_type");
    const char *said = text_of(im, COMPUTE), *compute = *said ? said : "float16";
    const char *gathered = llama_factory_is_bf16(im) ? "bfloat16" : "float32";
    const bool other = is_sharded(im) && strcmp(compute, gathered) != 0;
    if (other)
        import_list(im, import_node(im, COMPUTE), COMPUTE,
                    import_text(im,
                                "weights are packed in %s, which FSDP2 casts to %s where it "
                                "gathers them, and their bits are lost: planned as packed and "
                                "computed in %s",
                                compute, gathered, gathered));
    compute = other ? gathered : compute;
    const char *given = import_given(im, "load-in-4bit");
    TRY(import_set(im, "load-in-4bit", *type ? type : "nf4", row, node, err));
    if (given && strcmp(given, "none") == 0)
        return ERR_OK;
    TRY(import_set(im, "bnb-double-quant",
                   says(im, "quant_config.double_quantization", "false") ? "off" : "on", row, NULL,
                   err));
    TRY(import_set(im, "bnb-compute-dtype", compute, row, NULL, err));
    return import_set(im, "bnb-quant-storage", compute, row, NULL, err);
}

enum err_code llama_factory_read_bits(struct import *im, const struct key_row *row,
                                      const struct node *node, struct err *err)
{
    static const char bit[] = "quant_config.quantization_bit";
    const struct node *said = import_node(im, bit);
    const long long bits = import_integer(im, bit, 4);
    if (!node)
        return ERR_OK;
    if (!said && strcmp(node->text, "auto") == 0) {
        import_idle(im, node, row->path);
        return ERR_OK;
    }
    if (bits != 4 && bits != 8)
        return import_refuse(im, bit, said, err, "allowed are 4, 8");
    const bool planned =
        bits == 4 ? is_sharded(im) || transformers_is_whole(im) : transformers_is_whole(im);
    const char *of = !says(im, NAME("peft_config"), "lora") ? "a model without adapters"
                     : !planned
                         ? system_name(im->settings->job.strategy.system)
                         : import_of_model(im, bits == 8 ? bits8_unplanned : bits4_unplanned);
    if (of)
        import_list(im, node, row->path,
                    import_text(im,
                                "frozen weights in %lld bits, which are not planned of %s: planned "
                                "in " CHECKPOINTS,
                                bits, of));
    else if (bits == 8)
        return import_set(im, "load-in-8bit", "on", row, node, err);
    else
        return take_bits4(im, row, node, err);
    return ERR_OK;
}

/* ---- kernels ---- */

/* Whose model_type LigerKernel has a function for. */
static const char *liger_word(const struct model_config *config)
{
    const char *name = arch_name(config->arch);
    return strcmp(name, "qwen3") == 0 || strcmp(name, "qwen3_moe") == 0 ||
                   strcmp(name, "qwen3_next") == 0 || strncmp(name, "qwen3_5", 7) == 0
               ? "liger"
               : NULL;
}

/* What apply_liger_kernel_to_... does by itself, but for the loss, which is of logits. */
static enum err_code take_liger(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    static const struct {
        enum liger_kernel kernel;
        const char *name;
    } kernels[] = {{LIGER_ROPE, "rope"}, {LIGER_RMS_NORM, "rms_norm"}, {LIGER_GLU, "glu"}};
    const char *list = "";
    if (!import_of_model(im, liger_word))
        return ERR_OK;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const char *has = transformers_family_has(im, kernels[i].kernel);
        if (has && strcmp(has, LIGER_PLANNED) == 0)
            list = import_text(im, "%s%s%s", list, *list ? "," : "", kernels[i].name);
        else if (has && strcmp(has, LIGER_UNPLANNED) == 0)
            import_list(im, node, row->path,
                        import_text(im, "Liger's %s: planned as the model's own", kernels[i].name));
    }
    const char *loss = transformers_family_has(im, LIGER_LOSS);
    if (loss && strcmp(loss, LIGER_PLANNED) == 0)
        TRY(import_set(im, "loss", "per-token-liger", row, NULL, err));
    return *list ? import_set(im, "liger", list, row, node, err) : ERR_OK;
}

enum err_code llama_factory_read_kernels(struct import *im, const struct key_row *row,
                                         const struct node *node, struct err *err)
{
    bool none = true;
    for (const char *at = node ? node->text : ""; *at; at += *at == ',') {
        at += strspn(at, " ");
        const size_t length = strcspn(at, ",");
        const char *name = import_text(im, "%.*s", (int)length, at);
        at += length;
        if (strcmp(name, "auto") == 0) /* those of NPUs */
            continue;
        none = false;
        if (strcmp(name, "liger_kernel") == 0)
            TRY(take_liger(im, row, node, err));
        else
            import_list(im, node, row->path,
                        import_text(im, "the kernels of %s: planned as the model's own", name));
    }
    if (node && none)
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* ---- units ---- */

static const char *tied_word(const struct model_config *config)
{
    return config->tied ? "tied" : NULL;
}

enum err_code llama_factory_read_units(struct import *im, const struct key_row *row,
                                       const struct node *node, struct err *err)
{
    (void)node;
    if (import_is_recorded(im) || import_of_model(im, tied_word))
        return import_set(im, "units", "blocks", row, NULL, err);
    return import_set(im, "units", "embeddings", row, NULL, err);
}
