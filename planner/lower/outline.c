/* outline.c - see outline.h: a stream's spans, and the tally that stands for a program's allocs and
 * frees. */
#include "lower/tally.h"

#include <stdlib.h>

/* ---- bytes ---- */

static struct outline_bytes bytes_of(const struct outline *outline, const struct buffer *buffer)
{
    const bool on_device = buffer->pool != LANE_HOST && buffer->bytes > 0;
    return (struct outline_bytes){
        .requested = buffer->scratch ? 0 : (int64_t)buffer->bytes,
        .rounded = on_device ? (int64_t)outline->rounding(buffer->bytes) : 0,
    };
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void grow(struct outline_bytes *live, struct outline_bytes *most, struct outline_bytes more)
{
    live->requested += more.requested;
    live->rounded += more.rounded;
    most->requested = larger(most->requested, live->requested);
    most->rounded = larger(most->rounded, live->rounded);
}

static void shrink(struct outline_bytes *live, struct outline_bytes less)
{
    live->requested -= less.requested;
    live->rounded -= less.rounded;
}

void tally_alloc(struct tally *tally, const struct buffer *buffer)
{
    grow(&tally->live, &tally->most, bytes_of(tally->outline, buffer));
}

void tally_free(struct tally *tally, const struct buffer *buffer)
{
    shrink(&tally->live, bytes_of(tally->outline, buffer));
}

void tally_span(struct tally *tally, const struct outline_span *span)
{
    const struct outline_bytes before = tally->live;
    grow(&tally->live, &tally->most, span->most);
    tally->live.requested = before.requested + span->end.requested;
    tally->live.rounded = before.rounded + span->end.rounded;
    tally->pending += span->kernels;
}

void tally_result(const struct tally *tally, const struct plan *plan, struct outlined *out)
{
    struct outline_bytes resident = {0}, most = {0};
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].resident)
            grow(&resident, &most, bytes_of(tally->outline, &plan->buffers[b]));
    out->requested_bytes = (uint64_t)(most.requested + tally->most.requested);
    out->rounded_bytes = (uint64_t)(most.rounded + tally->most.rounded);
}

/* ---- a stream's spans ---- */

static void extend(struct outline *outline, struct outline_span *span, struct stream_step step)
{
    const struct buffer *buffers = outline->stream->buffers;
    if (step.kind == STEP_BIRTH)
        grow(&span->end, &span->most, bytes_of(outline, &buffers[step.arg]));
    else if (step.kind == STEP_DEATH)
        shrink(&span->end, bytes_of(outline, &buffers[step.arg]));
    else {
        outline->kernels[outline->kernel_count++] = step.arg;
        span->kernels++;
    }
}

struct outline *outline_new(const struct stream *stream, uint64_t (*rounding)(uint64_t bytes))
{
    struct outline *outline = xmalloc(sizeof *outline);
    *outline = (struct outline){
        .stream = stream,
        .spans = xmalloc((stream->step_count + 1) * sizeof *outline->spans),
        .kernels = xmalloc((stream->step_count + 1) * sizeof *outline->kernels),
        .rounding = rounding,
    };
    struct outline_span span = {0};
    for (uint32_t i = 0; i < stream->step_count; i++) {
        const struct stream_step step = stream->steps[i];
        if (stream_step_is_within(step)) {
            extend(outline, &span, step);
            continue;
        }
        if (step.kind == STEP_MARK && step.arg == STREAM_AFTER_FORWARD)
            outline->forward_count = outline->kernel_count;
        span.hook = step;
        outline->spans[outline->span_count++] = span;
        span = (struct outline_span){0};
    }
    return outline; /* the last step is a mark: nothing is left over */
}

void outline_free(struct outline *outline)
{
    if (!outline)
        return;
    free(outline->spans);
    free(outline->kernels);
    free(outline);
}
