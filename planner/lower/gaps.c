/* gaps.c - what a strategy holds beside a stream, span by span: struct outline_gaps of outline.h.
 *
 * Where a step begins is known when all of it was lowered: what is resident by then, and what it
 * frees of the step before. So bytes are counted against that, and it is added at the end. */
#include "lower/tally.h"

#include <stdlib.h>
#include <string.h>

static int64_t bytes_of(const struct buffer *buffer)
{
    return ledger_has(buffer) ? (int64_t)ledger_round(buffer->bytes) : 0;
}

static void raise(int64_t *most, int64_t bytes)
{
    *most = bytes > *most ? bytes : *most;
}

struct tally_gaps *gaps_new(struct outline_gaps *out, uint32_t spans,
                            const struct outline_limit *limit)
{
    struct tally_gaps *gaps = xmalloc(sizeof *gaps);
    *gaps = (struct tally_gaps){.out = out, .spans = spans, .limit = limit};
    gaps->during = xmalloc((2 * (size_t)spans + 1) * sizeof *gaps->during);
    gaps->after = gaps->during + spans;
    return gaps;
}

void gaps_begin(struct tally_gaps *gaps)
{
    memset(gaps->carried, 0, sizeof gaps->carried);
    memset(gaps->live, 0, sizeof gaps->live);
    memset(gaps->most, 0, sizeof gaps->most);
    for (uint32_t i = 0; i < 2 * gaps->spans; i++)
        gaps->during[i] = INT64_MIN;
    gaps->host = (struct host_held){.kept = 0};
    gaps->apart = 0;
    gaps->at = &gaps->apart;
}

static void grow(struct tally_gaps *gaps, uint8_t pool, int64_t bytes)
{
    gaps->live[pool] += bytes;
    raise(&gaps->most[pool], gaps->live[pool]);
    if (pool == LANE_COMPUTE)
        raise(gaps->at, gaps->live[pool]);
}

void gaps_alloc(struct tally_gaps *gaps, const struct buffer *buffer)
{
    if (buffer->pool == LANE_HOST)
        host_held_alloc(&gaps->host, buffer, 1);
    grow(gaps, buffer->pool, bytes_of(buffer));
}

void gaps_free(struct tally_gaps *gaps, const struct buffer *buffer, uint8_t flags)
{
    if (flags & PLAN_FIRST_STEP)
        return;
    if (buffer->pool == LANE_HOST) {
        host_held_free(&gaps->host, buffer);
        if (flags & PLAN_LATER_STEPS)
            host_held_alloc(&gaps->host_there, buffer, 1);
    }
    gaps->live[buffer->pool] -= bytes_of(buffer);
    if (flags & PLAN_LATER_STEPS)
        gaps->carried[buffer->pool] += bytes_of(buffer);
}

void gaps_resident(struct tally_gaps *gaps, const struct buffer *buffer, uint32_t times)
{
    if (buffer->pool == LANE_HOST)
        host_held_alloc(&gaps->host_there, buffer, times);
    gaps->resident[buffer->pool] += times * bytes_of(buffer);
}

void gaps_apart(struct tally_gaps *gaps)
{
    gaps->at = &gaps->apart;
    raise(gaps->at, gaps->live[LANE_COMPUTE]);
}

void gaps_span(struct tally_gaps *gaps, uint32_t span, int64_t bytes)
{
    raise(&gaps->during[span], gaps->live[LANE_COMPUTE]);
    gaps->at = &gaps->after[span];
    grow(gaps, LANE_COMPUTE, bytes);
}

bool gaps_begin_beyond(struct tally_gaps *gaps, const struct plan *plan)
{
    if (!gaps->limit)
        return false;
    struct host_held host = gaps->host_there;
    gaps->there = gaps->resident[LANE_COMPUTE];
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        const struct buffer *buffer = &plan->buffers[b];
        if (buffer->resident && buffer->pool == LANE_HOST)
            host_held_alloc(&host, buffer, 1);
        else if (buffer->resident && buffer->pool == LANE_COMPUTE)
            gaps->there += bytes_of(buffer);
    }
    return gaps->there > gaps->limit->resident || (uint64_t)host.most > gaps->limit->host;
}

void gaps_watch(struct tally_gaps *gaps)
{
    gaps->watched = gaps->limit != NULL;
}

static bool is_beyond(const struct tally_gaps *gaps, int64_t bytes, int64_t limit)
{
    return bytes != INT64_MIN && gaps->there + bytes > limit;
}

bool gaps_span_beyond(const struct tally_gaps *gaps, uint32_t span)
{
    const struct outline_limit *limit = gaps->limit;
    return gaps->watched &&
           (is_beyond(gaps, gaps->during[span], limit->during[span]) ||
            (span > 0 && is_beyond(gaps, gaps->after[span - 1], limit->after[span - 1])));
}

static uint64_t in_all(const struct tally_gaps *gaps, uint32_t pool, int64_t bytes)
{
    return bytes == INT64_MIN ? 0 : (uint64_t)(gaps->resident[pool] + gaps->carried[pool] + bytes);
}

void gaps_finish(struct tally_gaps *gaps, const struct plan *plan)
{
    struct outline_gaps *out = gaps->out;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].resident)
            gaps_resident(gaps, &plan->buffers[b], 1);
    for (uint32_t i = 0; i < gaps->spans; i++) {
        out->during[i] = in_all(gaps, LANE_COMPUTE, gaps->during[i]);
        out->after[i] = in_all(gaps, LANE_COMPUTE, gaps->after[i]);
    }
    out->apart = in_all(gaps, LANE_COMPUTE, gaps->apart);
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        out->most[lane] = in_all(gaps, lane, gaps->most[lane]);
    /* in any step but the first all blocks are there */
    out->host = (uint64_t)(gaps->host_there.most + gaps->host.pageable_most + gaps->host.kept);
    out->host_blocks = (uint64_t)gaps->host.kept;
}

void gaps_free_all(struct tally_gaps *gaps)
{
    if (!gaps)
        return;
    free(gaps->during);
    free(gaps);
}
