/* auto_wrap.c - see auto_wrap.h. */
#include "frameworks/auto_wrap.h"

#include <string.h>

enum err_code auto_wrap_set(struct import *im, const char *policy, const struct key_row *row,
                            const struct node *node, bool *known, struct err *err)
{
    const bool second = im->settings->job.strategy.system == SYSTEM_FSDP2;
    *known = strcmp(policy, "TRANSFORMER_BASED_WRAP") == 0;
    if (!*known)
        return ERR_OK;
    if (!second || !import_is_recorded(im))
        return import_set(im, "units", second ? "torchtitan" : "blocks", row, node, err);
    import_list(im, node, row->path,
                "embeddings and [norm, head] as units: of a recorded model planned with its "
                "blocks");
    return import_set(im, "units", "blocks", row, NULL, err);
}
