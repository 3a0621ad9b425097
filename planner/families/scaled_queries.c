/* scaled_queries.c - see scaled_queries.h. */
#include "families/scaled_queries.h"

#include "model/keys_rope.h"

/* The classes multiply by what rope_parameters has of it, which is None where that lacks it: only
 * an object that is not there is the class's own. */
enum err_code scaled_queries_read(const json_t *root, const char *where,
                                  struct model_config *config, struct err *err)
{
    const json_t *object;
    const char *name;
    (void)config;
    TRY(rope_find(root, where, &object, &name, err));
    if (!object || json_is_number(json_object_get(object, "llama_4_scaling_beta")))
        return ERR_OK;
    return err_set(
        err, ERR_INVALID,
        "%s: \"%s\": \"llama_4_scaling_beta\" is missing, with which transformers' class "
        "scales queries; it fails without",
        where, name);
}
