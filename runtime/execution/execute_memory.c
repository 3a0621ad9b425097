/* execute_memory.c - where buffers are, and how they come to be there; see execute_parts.h. */
#include "runtime/execution/execute_parts.h"

#include <stdio.h>
#include <string.h>

/* Names the buffers that hold most, for the out-of-memory message. */
static void largest_holders(const struct execution *e, char *text, size_t size)
{
    size_t used = 0;
    uint64_t bound = UINT64_MAX;
    for (int n = 0; n < 3; n++) {
        uint32_t best = PLACE_NONE;
        for (uint32_t b = 0; b < e->plan->buffer_count; b++)
            if (e->block[b] && e->plan->buffers[b].bytes < bound &&
                (best == PLACE_NONE || e->plan->buffers[b].bytes > e->plan->buffers[best].bytes))
                best = b;
        if (best == PLACE_NONE || used >= size)
            return;
        char what[160];
        bound = e->plan->buffers[best].bytes;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s (%llu bytes)", n ? ", " : "",
                             plan_buffer_text(e->plan, &e->plan->buffers[best], what, sizeof what),
                             (unsigned long long)bound);
    }
}

static enum err_code out_of_memory(struct execution *e, uint32_t buffer, uint32_t instruction,
                                   struct err *err)
{
    char what[160], holders[512] = "";
    const struct allocator_stats *stats = allocator_stats(e->allocator);
    largest_holders(e, holders, sizeof holders);
    return err_set(err, ERR_NOMEM,
                   "out of memory at instruction %u: %s asks for %llu bytes; %llu live, %llu "
                   "reserved; largest holders: %s",
                   instruction,
                   plan_buffer_text(e->plan, &e->plan->buffers[buffer], what, sizeof what),
                   (unsigned long long)e->plan->buffers[buffer].bytes,
                   (unsigned long long)stats->allocated_bytes,
                   (unsigned long long)stats->reserved_bytes, holders);
}

enum err_code execution_alloc(struct execution *e, uint32_t index, uint32_t instruction,
                              struct err *err)
{
    const struct buffer *buffer = &e->plan->buffers[index];
    if (buffer->bytes == 0)
        return ERR_OK;
    if (buffer->pool == LANE_HOST) {
        if (!e->host[index]) {
            e->host[index] = device_host_new(e->device, buffer->bytes);
            if (e->host[index] && e->moved) /* else nobody may ever write to it */
                memset(e->host[index], 0, buffer->bytes);
        }
        return e->host[index] ? ERR_OK : out_of_memory(e, index, instruction, err);
    }
    const enum err_code rc =
        allocator_alloc(e->allocator, buffer->bytes, buffer->pool, &e->block[index], NULL);
    return rc == ERR_NOMEM ? out_of_memory(e, index, instruction, err) : rc;
}

void *execution_address(const struct execution *e, uint32_t buffer)
{
    if (e->host[buffer])
        return e->host[buffer];
    if (!e->block[buffer])
        return NULL;
    return (void *)(uintptr_t)allocator_block_address(e->block[buffer]);
}
