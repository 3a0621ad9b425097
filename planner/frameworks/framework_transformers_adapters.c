/* framework_transformers_adapters.c - peft's adapters as LLaMA-Factory (hparams/finetuning_args.py,
 * model/adapter.py, August 2026) and axolotl (loaders/adapter.py, July 2026) make them of their
 * keys. What trainers spell otherwise has LLaMA-Factory's names (framework_transformers_others.c).
 */
#include "frameworks/framework_transformers.h"

#include "base/pattern.h"
#include "families/families.h"

#include <stdio.h>
#include <string.h>

#define OTHER_KIND "adapters of another kind: planned as all trained"

#define DROPOUT_OF_TRL "0.05"

enum { TARGETS = 900, RANK_OF_LLAMA_FACTORY = 8 };

bool transformers_is_on(const struct node *node)
{
    return node && node->text && strcmp(node->text, "true") == 0;
}

bool transformers_is_trl(const struct import *im)
{
    const struct node *type = import_node(im, "finetuning_type");
    return type && type->was && strcmp(type->was, "use_peft") == 0;
}

bool transformers_is_llama_factory(const struct import *im)
{
    return import_node(im, "disable_gradient_checkpointing") != NULL;
}

bool transformers_is_axolotl(const struct import *im)
{
    const struct node *model = import_node(im, "model_name_or_path");
    return model && model->was && strcmp(model->was, "base_model") == 0;
}

static bool is_text(const struct node *node, const char *text)
{
    return node && node->text && strcmp(node->text, text) == 0;
}

static const struct node *offloading_node(const struct import *im)
{
    const struct node *checkpoints = import_node(im, "gradient_checkpointing");
    return transformers_is_axolotl(im) && is_text(checkpoints, "offload")
               ? checkpoints
               : import_node(im, "activation_offloading");
}

/* Whether what nodes save waits on the host as it is planned: TRL's trainers have it at true, and
 * axolotl, too (core/trainers/mixins/activation_checkpointing.py), which has a second one. What
 * axolotl called `gradient_checkpointing: offload` is that now (utils/schemas/validation.py). */
static bool offloads(const struct import *im)
{
    const struct node *node = offloading_node(im);
    return !import_is_given(im, "activation-offloading") &&
           settings_find(im->settings, "activation-offloading", NULL) &&
           (is_text(node, "true") || is_text(node, "offload") ||
            (transformers_is_axolotl(im) && is_text(node, "legacy")));
}

bool transformers_has_adapters(const struct import *im)
{
    const char *given = import_given(im, "lora");
    return given ? strcmp(given, "none") != 0 : is_text(import_node(im, "finetuning_type"), "lora");
}

enum err_code transformers_read_offloading(struct import *im, const struct key_row *row,
                                           const struct node *node, struct err *err)
{
    const struct node *said = offloading_node(im);
    const bool legacy = is_text(said, "legacy");
    if (!offloads(im)) {
        if (node && !is_text(node, "false") && !import_is_given(im, row->setting))
            import_list(im, node, row->path, row->why);
        return ERR_OK;
    }
    /* get_lora_act_offloading_ctx_manager does not say which memory is the model's */
    if (transformers_is_axolotl(im) && transformers_has_adapters(im))
        return import_set(im, row->setting, legacy ? "legacy-weights" : "weights", row, said, err);
    return import_set(im, row->setting, legacy ? "legacy" : "on", row, said, err);
}

/* LLaMA-Factory's checkpoint_activation: unless it is disabled, whatever TrainingArguments say. */
bool transformers_is_checkpointed(const struct import *im)
{
    const struct node *disabled = import_node(im, "disable_gradient_checkpointing");
    const bool by_fsdp =
        transformers_is_on(import_node(im, "fsdp_config.activation_checkpointing"));
    if (transformers_is_axolotl(im) &&
        offloads(im)) /* in the place of it, or around its own wrappers */
        return by_fsdp || !transformers_has_adapters(im);
    return transformers_is_on(import_node(im, "gradient_checkpointing")) || by_fsdp ||
           (disabled && !transformers_is_on(disabled));
}

enum err_code transformers_read_checkpoints(struct import *im, const struct key_row *row,
                                            const struct node *node, struct err *err)
{
    const char *text = node && node->text ? node->text : "";
    if (!node || strcmp(text, "true") == 0 || (strcmp(text, "offload") == 0 && offloads(im)))
        return ERR_OK;
    if (strcmp(text, "false") == 0) {
        if (transformers_is_checkpointed(im))
            import_open(im, node, row->path,
                        "LLaMA-Factory checkpoints all the same: disable_gradient_checkpointing "
                        "is its key");
        return ERR_OK;
    }
    if (strncmp(text, "offload", strlen("offload")) != 0 && strcmp(text, "unsloth") != 0)
        return import_refuse(im, row->path, node, err, "allowed are true, false");
    if (import_is_given(im, "checkpointing"))
        return import_set(im, "checkpointing", "full", row, node, err);
    return import_refuse(im, row->path, node, err,
                         "checkpoints that wait on the host are not planned: give true, which "
                         "keeps the input of each block on the GPU, or --checkpointing full");
}

/* Whether transformers checkpoints them, not accelerate's FSDP, whose wrappers are not reentrant.
 */
static bool is_checkpointed_by_trainer(const struct import *im)
{
    const struct node *disabled = import_node(im, "disable_gradient_checkpointing");
    if (transformers_is_axolotl(im) && offloads(im)) /* its own wrappers are not reentrant */
        return false;
    return transformers_is_on(import_node(im, "gradient_checkpointing")) ||
           (disabled && !transformers_is_on(disabled));
}

/* transformers 5, axolotl and TRL have them so where use_reentrant says it alone; LLaMA-Factory
 * unless use_reentrant_gc is false, but under FSDP2 (prepare_model_for_training). */
enum err_code transformers_read_reentrant(struct import *im, const struct key_row *row,
                                          const struct node *node, struct err *err)
{
    const bool llama_factory = transformers_is_llama_factory(im);
    const struct node *said = llama_factory ? import_node(im, "use_reentrant_gc") : node;
    const bool asked = said ? transformers_is_on(said) : llama_factory;
    if (!is_checkpointed_by_trainer(im)) {
        if (said)
            import_idle(im, said, llama_factory ? "use_reentrant_gc" : row->path);
        return ERR_OK;
    }
    if (!llama_factory)
        return said ? import_set(im, row->setting, asked ? "on" : "off", row, said, err) : ERR_OK;
    const bool never = im->settings->job.strategy.system == SYSTEM_FSDP2;
    return import_set(im, row->setting, asked && !never ? "on" : "off", row, said, err);
}

/* ---- targets ---- */

/* "q_proj,v_proj" of a list or of a text with commas and blanks; false: it is too long. */
static bool join_names(const struct node *node, char text[TARGETS])
{
    size_t used = strlen(text);
    for (const struct node *n = node->kind == NODE_LIST ? node->first : node; n;
         n = node->kind == NODE_LIST ? n->next : NULL)
        for (const char *at = n->text ? n->text : ""; *at;) {
            const size_t length = strcspn(at, ", ");
            if (used + length + 2 > TARGETS)
                return false;
            if (length)
                used += (size_t)snprintf(text + used, TARGETS - used, "%s%.*s", used ? "," : "",
                                         (int)length, at);
            at += length + strspn(at + length, ", ");
        }
    return true;
}

/* All linear layers, which both find and name (find_all_linear_names, find_all_linear_modules):
 * peft's all-linear is more of some mixtures of experts. */
static const char *linear_layers(const struct import *im)
{
    const char *names = import_is_recorded(im) ? NULL : import_of_model(im, lora_linear_names);
    return names ? names : "all-linear";
}

/* Which layers, for --lora; NULL: none are named. */
static const char *targets_of(const struct import *im, char text[TARGETS])
{
    const struct node *named = import_node(im, "lora_target_modules"); /* axolotl's */
    const struct node *own = import_node(im, "lora_target");           /* LLaMA-Factory's */
    text[0] = '\0';
    if (transformers_is_on(import_node(im, "lora_target_linear")))
        return linear_layers(im);
    if (named && named->text && pattern_is(named->text))
        return named->text;
    if ((named && !join_names(named, text)) || (own && !join_names(own, text)))
        return NULL;
    if (strcmp(text, "all") == 0 || (!named && !own && import_node(im, "finetuning_type") &&
                                     import_node(im, "disable_gradient_checkpointing")))
        return linear_layers(im);
    return text[0] ? text : NULL;
}

/* ---- adapters ---- */

/* TRL's dtype, float32 where it is not said; "auto" is the checkpoint's, which is bf16 as a rule.
 */
const char *transformers_loaded_half(const struct import *im)
{
    const struct node *dtype = import_node(im, "dtype");
    const char *text = dtype && dtype->text ? dtype->text : "float32";
    return strcmp(text, "bfloat16") == 0 || strcmp(text, "auto") == 0 ? "bf16"
           : strcmp(text, "float16") == 0                             ? "fp16"
                                                                      : NULL;
}

const char *transformers_half(const struct import *im)
{
    return transformers_is_trl(im)                       ? transformers_loaded_half(im)
           : transformers_is_on(import_node(im, "bf16")) ? "bf16"
           : transformers_is_on(import_node(im, "fp16")) ? "fp16"
                                                         : NULL;
}

bool transformers_is_whole(const struct import *im)
{
    const enum system_kind system = im->settings->job.strategy.system;
    return system == SYSTEM_DDP || system == SYSTEM_SINGLE;
}

/* axolotl casts embeddings, norms and the head to fp32 (_configure_embedding_dtypes of its
 * loaders/model.py), and back where what runs asks for it: attention other than PyTorch's or the
 * model's own, adapters, cut cross entropy. */
static bool casts_back(const struct import *im)
{
    static const char *const keys[] = {"flash_attention", "xformers_attention", "flex_attention",
                                       "sage_attention"};
    const struct node *attention = import_node(im, "attn_implementation");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (transformers_is_on(import_node(im, keys[i])))
            return true;
    if (attention && attention->text && strcmp(attention->text, "sdpa") != 0 &&
        strcmp(attention->text, "eager") != 0)
        return true;
    return transformers_has_plugin(im, "CutCrossEntropyPlugin");
}

/* axolotl loads a model in bf16 where it trains in it; FSDP and DeepSpeed cast what they shard, and
 * what adapters leave frozen is read with them. */
static enum err_code read_loaded_of_axolotl(struct import *im, const struct key_row *row,
                                            const struct node *model, struct err *err)
{
    const char *half = transformers_half(im);
    if (import_node(im, "adapter") || !transformers_is_whole(im) || !half ||
        strcmp(half, "bf16") != 0)
        return ERR_OK;
    if (!casts_back(im))
        import_list(im, model, "base_model",
                    "embeddings, norms and the head are cast to fp32: planned in bf16");
    return import_set(im, "store-dtype", half, row, NULL, err);
}

/* Whether TRL's trainer of preferences has another model beside, which stays in it under FSDP. */
static bool keeps_reference(const struct import *im)
{
    const enum system_kind system = im->settings->job.strategy.system;
    return import_node(im, "beta") && !transformers_has_adapters(im) &&
           (system == SYSTEM_FSDP1 || system == SYSTEM_FSDP2);
}

enum err_code transformers_read_loaded(struct import *im, const struct key_row *row,
                                       const struct node *node, struct err *err)
{
    const struct node *model = import_node(im, "model_name_or_path");
    const bool axolotl = model && model->was && strcmp(model->was, "base_model") == 0;
    if (axolotl)
        TRY(read_loaded_of_axolotl(im, row, model, err));
    if (!node || transformers_is_trl(im)) /* adapters' frozen weights are in it */
        return ERR_OK;
    const bool cast = import_has_named(im) || transformers_half(im);
    if ((transformers_is_whole(im) || !cast) && transformers_loaded_half(im) && !axolotl)
        return import_set(im, "store-dtype", transformers_loaded_half(im), row, node, err);
    if (!keeps_reference(im))
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* Whether adapters stay in the model's dtype where nothing casts them but peft: axolotl's
 * peft_autocast_adapter_dtype; and TRL's, which it casts to bf16 beside weights in 4 or 8 bits. */
static bool keeps_dtype(const struct import *im)
{
    const struct node *casts = import_node(im, "peft_autocast_adapter_dtype");
    const struct model_job *model = &im->settings->job.model;
    if (transformers_is_trl(im) && (model->bits4.kind || model->bits8))
        return im->settings->job.strategy.store == DTYPE_BF16;
    return casts && !transformers_is_on(casts) && transformers_is_whole(im) &&
           transformers_half(im);
}

/* peft makes adapters in fp32, whatever the model is in; what is frozen stays as it was loaded:
 * accelerate's upcast is of what is trained (fsdp2_prepare_model). */
static enum err_code read_frozen(struct import *im, const struct key_row *row,
                                 const struct node *node, struct err *err)
{
    const char *half = transformers_half(im);
    const enum system_kind system = im->settings->job.strategy.system;
    if (half && system == SYSTEM_FSDP2)
        return import_set(im, "frozen-dtype", "param", row, NULL, err);
    if (half && transformers_is_whole(im) && !keeps_dtype(im))
        return import_set(im, "frozen-dtype", half, row, NULL, err);
    if (!half || system != SYSTEM_FSDP1)
        return ERR_OK;
    if (strcmp(half, "fp16") == 0) {
        import_list(im, node, row->path,
                    "frozen weights stay in the 16 bits that they are loaded in: planned in fp32");
        return ERR_OK;
    }
    /* update_fsdp_plugin_peft (transformers/distributed/fsdp.py); without prepare_model's autocast
     * (native_amp.h) adapters that are apart cannot be computed */
    TRY(import_set(im, "frozen-dtype", "param", row, NULL, err));
    return import_set(im, "units", "peft", row, NULL, err);
}

enum err_code transformers_read_adapter_dropout(struct import *im, const struct key_row *row,
                                                const struct node *node, struct err *err)
{
    char buffer[NUMBER_TEXT];
    if (!node && transformers_is_trl(im) && import_value(im, "lora", buffer))
        return import_set(im, "lora-dropout", DROPOUT_OF_TRL, row, node, err);
    if (!node || node->kind == NODE_NULL)
        return ERR_OK;
    if (import_value(im, "lora", buffer))
        return import_set(im, "lora-dropout", node->text, row, node, err);
    import_idle(im, node, row->path);
    return ERR_OK;
}

enum err_code transformers_read_adapter_dtype(struct import *im, const struct key_row *row,
                                              const struct node *node, struct err *err)
{
    char buffer[NUMBER_TEXT];
    if (!node)
        return ERR_OK;
    if (transformers_is_on(node) || !import_value(im, "lora", buffer))
        import_idle(im, node, row->path);
    else if (keeps_dtype(im))
        return import_set(im, "store-dtype", transformers_half(im), row, node, err);
    else
        import_list(im, node, row->path, row->why);
    return ERR_OK;
}

static enum err_code take_adapters(struct import *im, const struct key_row *row,
                                   const struct node *node, struct err *err)
{
    char text[TARGETS];
    const bool llama_factory = transformers_is_llama_factory(im);
    const long long rank = import_integer(im, "lora_rank", RANK_OF_LLAMA_FACTORY);
    const char *targets = targets_of(im, text);
    const char *given = import_given(im, "lora");
    if (given) {
        TRY(import_set(im, "lora", "none", row, node, err));
        return strcmp(given, "none") == 0 ? ERR_OK : read_frozen(im, row, node, err);
    }
    if (!llama_factory && !import_node(im, "lora_rank"))
        return import_refuse(im, row->path, node, err, "peft asks for a rank: lora_r%s",
                             document_aside(&im->document, "lora_rank")
                                 ? ", which lora_rank is in another program's files"
                                 : "");
    if (!targets && !transformers_is_trl(im)) /* which leaves them to peft */
        return import_refuse(im, row->path, node, err,
                             "peft asks for layers: lora_target_modules, or lora_target_linear: "
                             "true");
    if (targets == text && pattern_is(text))
        return import_refuse(im, row->path, node, err,
                             "lora_target_modules %.60s: a pattern is a text, what is in a list "
                             "are names",
                             targets);
    if (import_node(im, "lora_target_modules") &&
        transformers_is_on(import_node(im, "lora_target_linear")))
        import_list(im, import_node(im, "lora_target_modules"), "lora_target_modules",
                    "beside lora_target_linear only linear layers have adapters here");
    if (!node->line)
        import_open(im, NULL, row->path,
                    "--lora: adapters are LLaMA-Factory's default; finetuning_type: full trains "
                    "all");
    TRY(import_set(im, "lora",
                   targets ? import_text(im, "%lld,%s", rank, targets)
                           : import_text(im, "%lld", rank),
                   row, node, err));
    return read_frozen(im, row, node, err);
}

/* A tower that is frozen has no adapters that are trained: LLaMA-Factory's are of the text model's
 * layers then (patch_target_modules), axolotl's freeze_mm_modules freezes what others there are. */
enum err_code transformers_read_tower(struct import *im, const struct key_row *row,
                                      const struct node *node, struct err *err)
{
    if (!node)
        return ERR_OK;
    const bool frozen = strcmp(node->text, "true") == 0, adapted = transformers_has_adapters(im);
    return import_set(im, "tower",
                      frozen    ? adapted ? "bare" : "frozen"
                      : adapted ? "frozen"
                                : "trained",
                      row, node, err);
}

enum err_code transformers_read_adapters(struct import *im, const struct key_row *row,
                                         const struct node *node, struct err *err)
{
    if (!node)
        return ERR_OK;
    if (strcmp(node->text, "lora") == 0)
        return take_adapters(im, row, node, err);
    if (strcmp(node->text, "full") == 0)
        import_idle(im, node, row->path);
    else if (strcmp(node->text, "freeze") == 0)
        import_list(im, node, row->path, "some layers alone are trained: planned as all; --freeze");
    else
        import_list(im, node, row->path, OTHER_KIND);
    return ERR_OK;
}

/* axolotl's schemas/peft.py (validate_adapter): built in are the words, a plugin may bring others.
 */
enum err_code transformers_read_adapter(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    const struct node *type = import_node(im, "finetuning_type");
    if (!node || (type && type->was && strcmp(type->was, row->path) == 0))
        return ERR_OK; /* it has become that one */
    if (!import_node(im, "plugins"))
        TRY(import_check_word(im, row, node, err));
    import_list(im, node, row->path, type ? "finetuning_type says another" : OTHER_KIND);
    return ERR_OK;
}
