/* native_amp.c - see native_amp.h. */
#include "frameworks/native_amp.h"

#include <string.h>

static enum system_kind system_in(const struct import *im)
{
    return im->settings->job.strategy.system;
}

static bool is(const struct import *im, const char *setting, const char *value)
{
    char buffer[NUMBER_TEXT];
    const char *is = import_value(im, setting, buffer);
    return is && strcmp(is, value) == 0;
}

bool native_amp_is(const struct import *im, const char *dtype)
{
    return is(im, system_in(im) == SYSTEM_FSDP1 ? "param-dtype" : "autocast", dtype);
}

enum err_code native_amp_set(struct import *im, const struct key_row *row, const char *path,
                             const struct node *node, struct err *err)
{
    const uint32_t systems = FOR_SYSTEM(DDP) | FOR_SYSTEM(SINGLE) | FOR_SYSTEM(FSDP1);
    const bool first = system_in(im) == SYSTEM_FSDP1;
    if (!(systems >> system_in(im) & 1))
        return ERR_OK;
    const bool recorded = import_is_recorded(im);
    if (first && native_amp_is(im, "fp16"))
        import_list(im, node, path, "autocast to this dtype around the forward: planned without");
    if (first && native_amp_is(im, "bf16") && recorded)
        import_list(im, node, path,
                    "autocast around the forward of a recorded model: planned without");
    else if (first && native_amp_is(im, "bf16"))
        TRY(import_set(im, "autocast", "bf16", row, node, err));
    if (!is(im, "autocast", "bf16"))
        return ERR_OK;
    if (!recorded)
        return import_set(im, "outputs", "fp32", row, node, err);
    import_list(im, node, path, "what is returned is cast to fp32: planned as it was recorded");
    return ERR_OK;
}
