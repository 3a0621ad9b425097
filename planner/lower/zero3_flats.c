/* zero3_flats.c - what comes together of several parameters, dtype by dtype (see zero3.h). */
#include "lower/zero3.h"

struct zero3_flat *zero3_add_flat(struct lowering *low, struct zero3_handle *handle,
                                  enum dtype dtype)
{
    if (!handle->flats)
        handle->flats = arena_alloc(&low->scratch, handle->count * sizeof *handle->flats);
    struct zero3_flat *flat = &handle->flats[handle->flat_count++];
    *flat = (struct zero3_flat){dtype, NONE, NONE};
    return flat;
}

void zero3_drop_flats(struct lowering *low, const struct zero3_handle *handle)
{
    for (uint32_t i = 0; i < handle->flat_count; i++)
        emit_free(low, handle->flats[i].buffer);
}
