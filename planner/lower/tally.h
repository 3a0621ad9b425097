/* tally.h - for the files of this folder: what a lowering to an outline keeps instead of allocs and
 * frees. */
#ifndef SHARDPLAN_TALLY_H
#define SHARDPLAN_TALLY_H

#include "lower/lowering.h"
#include "lower/outline.h"

struct tally {
    const struct outline *outline;
    struct outline_bytes live, most; /* resident buffers aside */
    struct outline_bytes resident;   /* those that another stands for (lowering.like) */
    uint32_t at, pending;  /* kernels of this micro-batch that have their instruction; that wait
                              for theirs, which comes with the next thing that is emitted */
    struct ledger *ledger; /* that is filled in as well, or NULL */
    uint32_t event;        /* of the outline's: the next */
};

/* Nothing has been allocated yet. */
void tally_begin(struct tally *tally);
/* A buffer of the program is allocated, freed on a lane. Residents count only where they are freed
 * and come back. */
void tally_alloc(struct lowering *low, uint32_t buffer);
void tally_free(struct lowering *low, uint32_t buffer, uint8_t lane);
/* The same of several, without a ledger and in every step. */
void tally_alloc_all(struct lowering *low, uint32_t count, const uint32_t *buffers);
void tally_free_all(struct lowering *low, uint32_t count, const uint32_t *buffers);
/* A micro-batch begins; a span of it passes. */
void tally_micro_batch(struct lowering *low);
void tally_span(struct lowering *low, const struct outline_span *span);
/* Adds what is resident. */
void tally_result(const struct tally *tally, const struct plan *plan, struct outlined *out);

/* The instruction of the stream's kernels that have none yet, if there are any. */
void emit_span(struct lowering *low);

#endif
