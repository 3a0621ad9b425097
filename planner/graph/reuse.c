/* reuse.c - see reuse.h.
 *
 * An input was touched last when it was written or read before. An output is written to memory when
 * the cache gives it up, unless it is dead by then and its room is written anew (the caching
 * allocator gives a small room that was freed to whoever asks next): so it counts how far its own
 * last use lies ahead. Both from its first byte on: of what is larger than the cache the beginning
 * is gone when its end was written. Bytes are all that kernels touch, also those that they touch
 * again: what separates two uses is less, never more. */
#include "graph/reuse.h"

#include <stdlib.h>

struct touched {
    double at;               /* clock: bytes touched until then; 0: not yet */
    uint64_t offset;         /* ... by an operand that begins there */
    struct operand *written; /* the output that it is */
    double written_at;
};

struct seen {
    struct touched *buffers, *params; /* (buffers, parameters) */
    uint32_t param_count;
    double clock;
};

static double bytes_of(const struct operand *operand)
{
    return (double)shape_bytes(&operand->shape, (enum dtype)operand->dtype);
}

static struct touched *touched_of(struct seen *seen, const struct operand *operand)
{
    const uint32_t index = operand->place & ~PLACE_MASK;
    if (operand->place == PLACE_NONE)
        return NULL;
    if ((operand->place & PLACE_MASK) == PLACE_BUFFER)
        return &seen->buffers[index];
    return (operand->place & PLACE_MASK) == PLACE_PARAM && index < seen->param_count
               ? &seen->params[index]
               : NULL;
}

static void read_in(struct seen *seen, struct operand *operand)
{
    struct touched *touched = touched_of(seen, operand);
    if (!touched)
        return;
    /* another part of it was touched when all was written */
    const double at = operand->offset == touched->offset ? touched->at : touched->written_at;
    if (at > 0)
        operand->since = (float)(1 + seen->clock - at);
    if (touched->written)
        touched->written->since = (float)(1 + seen->clock - touched->written_at);
    touched->at = seen->clock;
    touched->offset = operand->offset;
}

static void write_out(struct seen *seen, struct operand *operand)
{
    struct touched *touched = touched_of(seen, operand);
    const double begin = seen->clock - bytes_of(operand);
    if (touched)
        *touched = (struct touched){begin, operand->offset, operand, begin};
}

static void run_kernel(struct seen *seen, struct kernel *kernel)
{
    for (uint32_t i = 0; i < kernel->ins; i++)
        read_in(seen, &kernel->operands[i]);
    for (uint32_t i = 0; i < kernel->ins + kernel->outs; i++)
        seen->clock += bytes_of(&kernel->operands[i]);
    for (uint32_t i = kernel->ins; i < kernel->ins + kernel->outs; i++)
        write_out(seen, &kernel->operands[i]);
}

/* One more than the largest of the parameters that kernels read or write. */
static uint32_t params_of(const struct kernel_table *table)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < table->operand_count; i++) {
        const uint32_t place = table->operands[i].place;
        if (place != PLACE_NONE && (place & PLACE_MASK) == PLACE_PARAM &&
            (place & ~PLACE_MASK) >= count)
            count = (place & ~PLACE_MASK) + 1;
    }
    return count;
}

void stream_find_reuse(struct stream *stream)
{
    struct seen seen = {.param_count = params_of(stream->kernels), .clock = 1};
    seen.buffers = xcalloc((size_t)stream->buffer_count + 1, sizeof *seen.buffers);
    seen.params = xcalloc((size_t)seen.param_count + 1, sizeof *seen.params);
    for (uint32_t i = 0; i < stream->step_count; i++)
        if (stream->steps[i].kind == STEP_KERNEL)
            run_kernel(&seen, &stream->kernels->kernels[stream->steps[i].arg]);
    free(seen.buffers);
    free(seen.params);
}
