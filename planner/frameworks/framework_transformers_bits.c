/* framework_transformers_bits.c - frozen weights in few bits, as axolotl (loaders/model.py, July
 * 2026), LLaMA-Factory (model/model_utils/quantization.py, August 2026) and TRL 1.16
 * (trainer/utils.py, get_quantization_config) load them of their keys.
 *
 * All give BitsAndBytesConfig the dtype that the model is loaded in for bnb_4bit_compute_dtype, and
 * nf4; axolotl and LLaMA-Factory quantise the scales, too. What else is frozen stays in that dtype,
 * or axolotl casts it back (norms and embeddings, behind peft's prepare_model_for_kbit_training).
 * bnb_4bit_quant_storage is bf16 in axolotl, that dtype in LLaMA-Factory, and TRL's own key.
 *
 * In 8 bits all three ask BitsAndBytesConfig for load_in_8bit and nothing else. */
#include "frameworks/framework_transformers.h"

#include "model/bits4.h"
#include "model/bits8.h"

#include <string.h>

#define QUANTIZED_EXPERTS "quantize_moe_experts"

/* How many bits: 4, 8, or 0 of what is neither. */
static int bits_of(const struct key_row *row, const struct node *node)
{
    const bool named = row->kind == KEY_BOOL;
    const char *text = named ? row->path : node->text ? node->text : "";
    return strcmp(text, named ? "load_in_4bit" : "4") == 0   ? 4
           : strcmp(text, named ? "load_in_8bit" : "8") == 0 ? 8
                                                             : 0;
}

/* What the first key that is there says; NULL: none is. */
static const char *said(const struct import *im, const char *const *paths)
{
    for (; *paths; paths++) {
        const struct node *node = import_node(im, *paths);
        if (node && node->text)
            return node->text;
    }
    return NULL;
}

/* bnb_4bit_quant_storage, as a value of the setting. */
static const char *storage_of(const struct import *im)
{
    static const char *const keys[] = {"bnb_4bit_quant_storage",
                                       "bnb_config_kwargs.bnb_4bit_quant_storage", NULL};
    const char *text = said(im, keys), *half = transformers_half(im);
    const bool llama_factory = import_node(im, "quantization_bit") != NULL;
    return text                      ? text
           : llama_factory           ? (half ? half : "fp32")
           : transformers_is_trl(im) ? "uint8"
                                     : "bf16";
}

/* Whether the system is one that they are planned under. What is cut is packed in the dtype that
 * the rest of it is in; DeepSpeed cuts integers, too, but not what is in 8 bits. */
static bool is_planned(const struct import *im, int bits)
{
    const char *half = transformers_half(im), *storage = storage_of(im);
    const enum system_kind system = im->settings->job.strategy.system;
    const uint32_t stage = system_zero_stage(system);
    if (bits == 8)
        return settings_find(im->settings, "load-in-8bit", NULL) != NULL;
    if (transformers_is_whole(im))
        return true;
    if (!half || (system == SYSTEM_FSDP1 && strcmp(half, "fp16") == 0)) /* read_frozen */
        return false;
    return strcmp(storage, half) == 0 || (stage > 0 && strcmp(storage, "uint8") == 0) ||
           (strcmp(half, "bf16") == 0 && strcmp(storage, "bfloat16") == 0) ||
           (strcmp(half, "fp16") == 0 && strcmp(storage, "float16") == 0);
}

/* What a model is that axolotl names modules of: Falcon-H1. */
static const char *named_of(const struct model_config *config)
{
    return config->arch == ARCH_FALCON_H1 ? "out_proj" : NULL;
}

/* llm_int8_skip_modules, by commas; NULL: none are named. bnb_config_kwargs are of 4 bits. */
static const char *skipped_of(struct import *im, int bits)
{
    const struct node *own = import_node(im, "bnb_config_kwargs.llm_int8_skip_modules");
    const char *text = NULL;
    if (transformers_is_trl(im) || import_node(im, "quantization_bit"))
        return NULL;
    if (bits == 8 || !own)
        return import_of_model(im, named_of);
    for (const struct node *n = own->first; n; n = n->next)
        if (n->text)
            text = text ? import_text(im, "%s,%s", text, n->text) : n->text;
    return text;
}

static const char *scanned_word(const struct model_config *config)
{
    return model_has_mamba(config) ? "Mamba-2, whose kernels read out_proj as it is stored (\"mat1 "
                                     "and mat2 shapes cannot be multiplied\")"
                                   : NULL;
}

/* What of the model keeps weights in so many bits from it. */
static const char *of_model(struct import *im, int bits)
{
    const char *skipped = skipped_of(im, bits);
    if (!skipped || !bits4_skips(skipped, "model.layers.0.mamba.out_proj")) {
        const char *scanned = import_of_model(im, scanned_word);
        if (scanned)
            return scanned;
    }
    return import_of_model(im, bits == 8 ? bits8_unplanned : bits4_unplanned);
}

/* Of what weights in 4 or 8 bits are not planned; NULL: they are. */
static const char *not_of(struct import *im, const struct key_row *row, const struct node *node)
{
    const struct node *adapter = import_node(im, "adapter");
    const struct node *method = import_node(im, "quantization_method");
    const int bits = bits_of(row, node);
    if (!bits)
        return "";
    if (!transformers_has_adapters(im))
        return "a model without adapters";
    if (bits == 4 && adapter && adapter->text && strcmp(adapter->text, "lora") == 0)
        return "adapter: lora, which has them of transformers' defaults";
    if (method && method->text && strcmp(method->text, "bnb") != 0)
        return "another method than bitsandbytes'";
    return is_planned(im, bits) ? of_model(im, bits)
                                : system_name(im->settings->job.strategy.system);
}

static enum err_code list_as_planned(struct import *im, const struct key_row *row,
                                     const struct node *node, const char *of)
{
    char buffer[NUMBER_TEXT], cast[NUMBER_TEXT];
    const char *half = transformers_half(im);
    const char *dtype = system_zero_stage(im->settings->job.strategy.system) > 0
                            ? import_value(im, "param-dtype", cast) /* whatever it is loaded in */
                        : half ? half
                               : "fp32";
    const char *why =
        *of ? import_text(im, "%s, which are not planned of %s", row->why, of) : row->why;
    if (im->settings->job.strategy.system == SYSTEM_FSDP1 && strcmp(dtype, "fp16") == 0)
        dtype = "fp32"; /* read_frozen */
    if (import_is_given(im, "frozen-dtype"))
        import_list(im, node, row->path,
                    import_text(im, "%s: planned with --frozen-dtype %s", why,
                                import_value(im, "frozen-dtype", buffer)));
    else
        import_list(im, node, row->path, import_text(im, "%s: planned in %s", why, dtype));
    return ERR_OK;
}

static const char *cast_word(const struct model_config *config)
{
    return model_has_experts(config) || model_mixes(config) ? "others" : NULL;
}

/* axolotl calls prepare_model_for_kbit_training where nothing is sharded and experts are as they
 * were, and casts norms and embeddings back (loaders/model.py): of models that have more than these
 * beside their linear layers, that is in fp32. */
static enum err_code set_cast(struct import *im, const struct key_row *row, const struct node *node,
                              struct err *err)
{
    const bool axolotl = !transformers_is_trl(im) && !import_node(im, "quantization_bit");
    const char *half = transformers_half(im);
    if (!axolotl || !half || !transformers_is_whole(im) || !import_of_model(im, cast_word) ||
        transformers_is_on(import_node(im, QUANTIZED_EXPERTS)))
        return ERR_OK;
    if (strcmp(half, "bf16") == 0)
        return import_set(im, "kbit-cast-back", "*norm*,*embed*,*lm_head*", row, node, err);
    import_list(im, node, row->path,
                "what prepare_model_for_kbit_training casts to fp32: planned in fp16");
    return ERR_OK;
}

/* What is left as it is, in their place. */
static enum err_code set_skipped(struct import *im, const struct key_row *row,
                                 const struct node *node, int bits, struct err *err)
{
    const char *skipped = skipped_of(im, bits);
    TRY(set_cast(im, row, node, err));
    return skipped ? import_set(im, "llm-int8-skip-modules", skipped, row, node, err) : ERR_OK;
}

/* TRL casts adapters beside them to bf16. */
static enum err_code set_adapters(struct import *im, const struct key_row *row,
                                  const struct node *node, struct err *err)
{
    const char *half = transformers_half(im);
    if (!transformers_is_trl(im))
        return ERR_OK;
    if (half && strcmp(half, "bf16") == 0)
        return import_set(im, "store-dtype", "bf16", row, node, err);
    import_list(im, node, row->path,
                "TRL casts adapters beside such weights to bf16: planned in fp32");
    return ERR_OK;
}

static enum err_code set_bits8(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    TRY(import_set(im, "load-in-8bit", "on", row, node, err));
    TRY(set_skipped(im, row, node, 8, err));
    return set_adapters(im, row, node, err);
}

static enum err_code set_bits4(struct import *im, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    static const char *const types[] = {"quantization_type", "bnb_4bit_quant_type",
                                        "bnb_config_kwargs.bnb_4bit_quant_type", NULL};
    static const char *const doubles[] = {"double_quantization", "use_bnb_nested_quant",
                                          "bnb_config_kwargs.bnb_4bit_use_double_quant", NULL};
    const char *type = said(im, types), *twice = said(im, doubles);
    const char *half = transformers_half(im);
    const bool on = twice ? strcmp(twice, "true") == 0 : !transformers_is_trl(im);
    const char *given = import_given(im, "load-in-4bit");
    TRY(import_set(im, "load-in-4bit", type ? type : "nf4", row, node, err));
    if (given && strcmp(given, "none") == 0)
        return ERR_OK;
    TRY(import_set(im, "bnb-double-quant", on ? "on" : "off", row, node, err));
    TRY(import_set(im, "bnb-compute-dtype", half ? half : "fp32", row, node, err));
    TRY(import_set(im, "bnb-quant-storage", storage_of(im), row, node, err));
    TRY(set_skipped(im, row, node, 4, err));
    return set_adapters(im, row, node, err);
}

enum err_code transformers_read_bits(struct import *im, const struct key_row *row,
                                     const struct node *node, struct err *err)
{
    if (!node)
        return ERR_OK;
    if (row->kind == KEY_BOOL ? !transformers_is_on(node) : !node->text || !*node->text) {
        import_idle(im, node, row->path);
        return ERR_OK;
    }
    const char *of = not_of(im, row, node);
    if (of)
        return list_as_planned(im, row, node, of);
    return bits_of(row, node) == 8 ? set_bits8(im, row, node, err) : set_bits4(im, row, node, err);
}

static const char *mixture_word(const struct model_config *config)
{
    return model_has_experts(config) ? "experts" : NULL;
}

/* Experts in the bits of linear layers: a parametrization of bitsandbytes' in 4, of axolotl's own
 * in 8. Of bnb_config_kwargs it asks for nothing. */
enum err_code transformers_read_experts(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    static const char *const types[] = {"bnb_config_kwargs.bnb_4bit_quant_type", NULL};
    static const char *const doubles[] = {"bnb_config_kwargs.bnb_4bit_use_double_quant", NULL};
    const struct graph_bits4 *bits4 = &im->settings->job.model.bits4;
    const char *half = transformers_half(im), *type = said(im, types), *twice = said(im, doubles);
    if (!node)
        return ERR_OK;
    if (!transformers_is_on(node) || !import_of_model(im, mixture_word)) {
        import_idle(im, node, row->path);
        return ERR_OK;
    }
    if (bits4->kind == BITS4_NOT || !transformers_is_whole(im)) {
        import_list(im, node, row->path,
                    import_text(im,
                                "experts in few bits, which are planned beside linear layers "
                                "in 4 bits where nothing is sharded: planned in %s",
                                half ? half : "fp32"));
        return ERR_OK;
    }
    if ((type && strcmp(type, "nf4") != 0) || (twice && strcmp(twice, "true") != 0))
        import_list(im, node, row->path,
                    "experts are in nf4 with quantised scales, whatever bnb_config_kwargs says: "
                    "planned as linear layers are");
    return import_set(im, row->setting, "on", row, node, err);
}
