/* blocks.h - what transformers calls the modules of a model: whoever wraps them names their classes
 * (accelerate's transformer_layer_cls_to_wrap). */
#ifndef SHARDPLAN_FAMILIES_BLOCKS_H
#define SHARDPLAN_FAMILIES_BLOCKS_H

#include "model/model.h"

/* How a class stands to a model in transformers' code. */
enum module_class {
    CLASS_BLOCK,   /* its blocks', or one of two kinds of them */
    CLASS_OTHER,   /* may be of another module of it: of its own file, of torch.nn, of a tower */
    CLASS_FOREIGN, /* the model has no such module */
};

/* Not of a recording. */
enum module_class model_module_class(const struct model_config *config, const char *name);

/* Classes of its blocks, by commas, each of which is in the model; "" where transformers has no
 * such model. A class that only some of the blocks have is one of several. */
enum { BLOCK_CLASSES_SIZE = 96 };
void model_block_classes(const struct model_config *config, char text[BLOCK_CLASSES_SIZE]);

/* Whether the embedding of tokens is its only one: none of positions, types or distances. Not of a
 * recording. */
bool model_embeds_once(const struct model_config *config);

/* The model_type of the family that has blocks of that class; NULL: none that is known. */
const char *block_class_owner(const char *name);

#endif
