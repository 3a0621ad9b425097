/* tally.h - for the files of this folder: what a lowering to an outline keeps instead of allocs and
 * frees. */
#ifndef SHARDPLAN_TALLY_H
#define SHARDPLAN_TALLY_H

#include "lower/lowering.h"
#include "lower/outline.h"
#include "plan/host_held.h"

/* Of outline_gaps: bytes against those that are there when a step begins, which are known last. */
struct tally_gaps {
    struct outline_gaps *out;
    int64_t *during, *after;                           /* (spans) INT64_MIN: nothing is known */
    int64_t apart, *at;                                /* at: what is raised now */
    int64_t resident[LANES_MOST], carried[LANES_MOST]; /* when the step begins */
    int64_t live[LANES_MOST], most[LANES_MOST];        /* against that */
    struct host_held host;                             /* against that, too */
    struct host_held host_there;                       /* when the step begins */
    uint32_t spans;
    const struct outline_limit *limit; /* NULL: none */
    int64_t there;                     /* with a limit: resident before the first step */
    bool watched;                      /* this step is held to it */
};

struct tally {
    const struct outline *outline;
    struct outline_bytes live, most; /* resident buffers aside */
    struct outline_bytes resident;   /* those that another stands for (lowering.like) */
    uint32_t at, pending;    /* kernels of this micro-batch that have their instruction; that wait
                                for theirs, which comes with the next thing that is emitted */
    struct ledger *ledger;   /* that is filled in as well, or NULL */
    struct tally_gaps *gaps; /* likewise */
    uint32_t event;          /* of the outline's: the next */
    bool beyond;             /* a limit: no more is lowered */
};

/* The plan's buffer that one of the stream's is in this micro-batch: an outline has gradients
 * alone. */
static inline uint32_t stream_buffer(const struct lowering *low, uint32_t buffer)
{
    return low->base + (low->tally ? low->tally->outline->gradient_of[buffer] : buffer);
}

/* Nothing has been allocated yet. */
void tally_begin(struct tally *tally);
/* A buffer of the program is allocated, freed on a lane. Residents count only where they are freed
 * and come back. */
void tally_alloc(struct lowering *low, uint32_t buffer);
void tally_free(struct lowering *low, uint32_t buffer, uint8_t lane);
/* The same of several, without a ledger and in every step. */
struct outline_bytes tally_bytes(const struct lowering *low, uint32_t count,
                                 const uint32_t *buffers);
void tally_alloc_all(struct lowering *low, const struct bundle *bundle);
void tally_free_all(struct lowering *low, const struct bundle *bundle);
/* The step comes to a mark. */
void tally_mark(struct lowering *low, enum plan_mark mark);
/* A micro-batch begins; a span of it passes. */
void tally_micro_batch(struct lowering *low);
void tally_span(struct lowering *low, const struct outline_span *span);
/* Adds what is resident. */
void tally_result(const struct tally *tally, const struct plan *plan, struct outlined *out);

/* gaps.c: a step begins; a buffer is allocated or freed in every step, or freed in a later one; so
 * many residents are there beside the plan's. */
struct tally_gaps *gaps_new(struct outline_gaps *out, uint32_t spans,
                            const struct outline_limit *limit);
void gaps_begin(struct tally_gaps *gaps);
void gaps_alloc(struct tally_gaps *gaps, const struct buffer *buffer);
void gaps_free(struct tally_gaps *gaps, const struct buffer *buffer, uint8_t flags);
void gaps_resident(struct tally_gaps *gaps, const struct buffer *buffer, uint32_t times);
/* Against the limit, in this order; without one all is within it. Before the first step, when all
 * residents are known: whether these are beyond it. From here on the spans of a step count: those
 * of one that is kept. When a span has been entered: whether the bytes of it, or of the gap before
 * it, are beyond it. */
bool gaps_begin_beyond(struct tally_gaps *gaps, const struct plan *plan);
void gaps_watch(struct tally_gaps *gaps);
bool gaps_span_beyond(const struct tally_gaps *gaps, uint32_t span);
/* No micro-batch runs; the stream is in a span, in which `bytes` of gradients are born. */
void gaps_apart(struct tally_gaps *gaps);
void gaps_span(struct tally_gaps *gaps, uint32_t span, int64_t bytes);
/* Fills in gaps->out; frees gaps. */
void gaps_finish(struct tally_gaps *gaps, const struct plan *plan);
void gaps_free_all(struct tally_gaps *gaps);

/* The instruction of the stream's kernels that have none yet, if there are any. */
void emit_span(struct lowering *low);

#endif
