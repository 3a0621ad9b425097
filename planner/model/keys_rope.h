/* keys_rope.h - RoPE's object in a config.json: for planner/families. */
#ifndef SHARDPLAN_KEYS_ROPE_H
#define SHARDPLAN_KEYS_ROPE_H

#include "model/model.h"

#include <jansson.h>

/* "rope_scaling", or "rope_parameters" as transformers 5 calls it: the object (lent), and in *name
 * what this file calls it. NULL: neither is there. ERR_INVALID: no object, or two that differ. */
enum err_code rope_find(const json_t *root, const char *where, const json_t **object,
                        const char **name, struct err *err);
/* What the family says of its RoPE. */
struct rope_form {
    uint32_t dim;  /* numbers of a head that it turns */
    bool by_layer; /* the object may have one for each type of layer, of which that of layers
                      without a window is read */
    bool woven;    /* places are in three grids, of which mrope_section cuts nothing */
};
/* Reads its scaling into out->rope; theta has been read. */
enum err_code rope_read(const json_t *root, const char *where, struct rope_form form,
                        struct model_config *out, struct err *err);
/* Whether the numbers of a RoPE go with its kind. */
enum err_code rope_check(const struct rope *rope, uint32_t dim, const char *where, struct err *err);

#endif
