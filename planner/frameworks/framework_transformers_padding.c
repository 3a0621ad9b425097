/* framework_transformers_padding.c - sequences that a trainer's collator pads: those of axolotl,
 * LLaMA-Factory and TRL that are fine-tuned on without being packed, and pairs of them, of which
 * what was chosen and what was rejected is padded to one length (nobody packs these, and DPOTrainer
 * of TRL 1.16 takes no notice of `padding_free`).
 *
 * How long they are is in the data. That any is shorter than the longest is enough for a mask, and
 * what it costs is all of what padding does to memory: a token of padding is planned. */
#include "base/number.h"
#include "frameworks/framework_transformers.h"

#include <string.h>

#define PADDED "sequences that are shorter than the longest are padded"

static bool is_on(const struct import *im, const char *path)
{
    return transformers_is_on(import_node(im, path));
}

/* LLaMA-Factory joins what it pretrains on. */
static bool is_joined(const struct import *im)
{
    const struct node *packing = import_node(im, "packing"), *stage = import_node(im, "stage");
    const bool pretrains = transformers_is_llama_factory(im) && !packing && stage && stage->text &&
                           strcmp(stage->text, "pt") == 0;
    return is_on(im, "packing") || is_on(im, "sample_packing") || is_on(im, "neat_packing") ||
           is_on(im, "padding_free") || pretrains;
}

/* LLaMA-Factory's packing alone is a sequence of several that attends to all of itself
 * (PackedSupervisedDatasetProcessor's mask of ones). */
enum err_code transformers_read_packing(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    const char *path;
    const bool whole = transformers_is_llama_factory(im) && strcmp(row->path, "packing") == 0;
    (void)err;
    if (!node)
        return ERR_OK;
    if (transformers_is_on(node) && !whole && transformers_sequences(im, &path) <= 1)
        import_list(im, node, row->path, row->why);
    else
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* Whether a micro-batch has several sequences, by an option or by the file, of `each` example so
 * many. */
static bool has_several(const struct import *im, uint32_t each)
{
    char buffer[NUMBER_TEXT];
    uint64_t batch = 8;
    const char *value = import_value(im, "micro-batch", buffer);
    const bool said = value && number_integer(value, &batch);
    return !said || batch > 1 || (each > 1 && !import_is_given(im, "micro-batch"));
}

/* Whether a batch has a mask with zeros in it. */
static bool is_padded(const struct import *im, uint32_t each)
{
    const bool collates = transformers_is_axolotl(im) || transformers_is_llama_factory(im) ||
                          import_node(im, TRLS_HEAD) || each > 1;
    const bool to_length = transformers_is_axolotl(im) && is_on(im, "pad_to_sequence_len");
    return collates && each > 0 && (has_several(im, each) || to_length) &&
           (each > 1 || !is_joined(im));
}

static bool holds(const struct import *im, const char *setting, const char *word)
{
    char buffer[NUMBER_TEXT];
    const char *value = import_value(im, setting, buffer);
    return value && strcmp(value, word) == 0;
}

static bool classifies(const struct import *im)
{
    return import_is_given(im, "task") || holds(im, "loss", "reward") ||
           (!import_is_given(im, "loss") && transformers_has_rewards(im));
}

/* Whether an option or the file asks for what is not planned beside padding. */
static bool is_lacking(const struct import *im)
{
    const char *code = import_given(im, "code"), *seq = import_given(im, "seq");
    return import_of_model(im, padding_lacks) ||
           (classifies(im) && import_of_model(im, pooling_lacks)) || is_on(im, "torch_compile") ||
           (import_has(im, "compile") && !holds(im, "compile", "off")) ||
           (code && strcmp(code, "hf") != 0) ||
           (seq && (strcmp(seq, "1") == 0 || strcmp(seq, "2") == 0));
}

enum err_code transformers_read_padding(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    const char *path;
    const uint32_t each = transformers_sequences(im, &path);
    if (each == 1)
        path = transformers_is_axolotl(im) ? "sample_packing" : "packing";
    const struct node *packing = import_node(im, path);
    (void)node;
    if (!is_padded(im, each) || import_is_recorded(im) || import_is_given(im, "sample-tokens") ||
        import_is_given(im, "padding-tokens"))
        return ERR_OK;
    if (is_lacking(im)) {
        import_list(im, packing, path, PADDED ": planned as if none were");
        return ERR_OK;
    }
    import_open(im, packing, path,
                PADDED ": planned as if a token were; --padding-tokens says how many");
    return import_set(im, "padding-tokens", "1", row, packing, err);
}
