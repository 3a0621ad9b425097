/* framework_transformers_padding.c - sequences that a trainer's collator pads: those of axolotl,
 * LLaMA-Factory and TRL that are fine-tuned on without being packed.
 *
 * How long they are is in the data. That any is shorter than the longest is enough for a mask, and
 * what it costs is all of what padding does to memory: a token of padding is planned. */
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

/* Whether a batch has a mask with zeros in it. */
static bool is_padded(const struct import *im)
{
    const bool collates = transformers_is_axolotl(im) || transformers_is_llama_factory(im) ||
                          import_node(im, TRLS_HEAD);
    const bool several = import_integer(im, "per_device_train_batch_size", 8) > 1;
    const bool to_length = transformers_is_axolotl(im) && is_on(im, "pad_to_sequence_len");
    return collates && (several || to_length) && !is_joined(im) && !transformers_has_pairs(im);
}

enum err_code transformers_read_padding(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    const char *path = transformers_is_axolotl(im) ? "sample_packing" : "packing";
    const struct node *packing = import_node(im, path);
    (void)node;
    if (!is_padded(im) || import_is_recorded(im) || import_is_given(im, "sample-tokens"))
        return ERR_OK;
    if (import_of_model(im, padding_lacks) || is_on(im, "torch_compile")) {
        import_list(im, packing, path, PADDED ": planned as if none were");
        return ERR_OK;
    }
    if (!import_is_given(im, "padding-tokens"))
        import_open(im, packing, path,
                    PADDED ": planned as if a token were; --padding-tokens says how many");
    return import_set(im, "padding-tokens", "1", row, packing, err);
}
