/* stream.c - see stream.h. */
#include "graph/stream.h"

#include <stdlib.h>
#include <string.h>

void stream_free(struct stream *stream)
{
    if (!stream)
        return;
    free(stream->steps);
    free(stream->buffers);
    free(stream->kernels);
    free(stream->operands);
    free(stream->grads);
    free(stream);
}

static void add_to_span(struct stream_span *span, const struct buffer *buffer, bool born)
{
    if (buffer->scratch)
        return;
    const int64_t bytes = (int64_t)buffer->bytes, rounded = (bytes + 511) & ~(int64_t)511;
    span->net += born ? bytes : -bytes;
    span->net_rounded += born ? rounded : -rounded;
    if (span->events++ == 0 || span->net > span->highest)
        span->highest = span->net;
    if (span->events == 1 || span->net_rounded > span->highest_rounded)
        span->highest_rounded = span->net_rounded;
}

struct stream_summary *stream_summarize(const struct stream *stream)
{
    uint32_t hooks = 0;
    for (uint32_t i = 0; i < stream->step_count; i++)
        hooks += stream->steps[i].kind > STEP_KERNEL;
    struct stream_summary *summary = xmalloc(sizeof *summary);
    *summary = (struct stream_summary){
        .hooks = xmalloc(hooks * sizeof *summary->hooks),
        .spans = calloc(hooks + 1, sizeof *summary->spans),
        .grads = xmalloc(stream->grad_count * sizeof *summary->grads),
    };
    if (stream->grad_count)
        memcpy(summary->grads, stream->grads, stream->grad_count * sizeof *summary->grads);
    for (uint32_t i = 0; i < stream->step_count; i++) {
        const struct stream_step step = stream->steps[i];
        if (step.kind == STEP_BIRTH || step.kind == STEP_DEATH)
            add_to_span(&summary->spans[summary->hook_count], &stream->buffers[step.arg],
                        step.kind == STEP_BIRTH);
        else if (step.kind != STEP_KERNEL)
            summary->hooks[summary->hook_count++] = step;
    }
    return summary;
}

void stream_summary_free(struct stream_summary *summary)
{
    if (!summary)
        return;
    free(summary->hooks);
    free(summary->spans);
    free(summary->grads);
    free(summary);
}
