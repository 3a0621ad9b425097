/* lowering.h - for the files of this folder only: a program under construction. */
#ifndef SHARDPLAN_LOWERING_H
#define SHARDPLAN_LOWERING_H

#include "base/aten.h"
#include "lower/lower.h"

/* Running totals in place of a program: what remains of a lowering when only bytes are asked. */
struct tally {
    uint64_t live, rounded; /* requested bytes; the same rounded up to 512 each */
    enum plan_mark segment; /* the last mark that starts a segment */
    struct tally_result *out;
};

struct lowering {
    struct plan *plan;
    struct tally *tally; /* not NULL: emit nothing, count */
    const struct strategy *strategy;
    struct operand *gradient; /* (params) sharded gradient of each, PLACE_NONE: none; set before the
                                 optimizer part of the step */
    struct plan_instruction here; /* phase, site, outer and units of what is emitted next */
};

/* ---- instructions ---- */

void emit_alloc(struct lowering *low, uint32_t buffer);
void emit_free(struct lowering *low, uint32_t buffer);
uint32_t emit_record(struct lowering *low, enum stream_id stream);
void emit_wait(struct lowering *low, enum stream_id stream, uint32_t event);
void emit_mark(struct lowering *low, enum plan_mark mark);
/* An instruction of kind `op` whose operands are whole buffers. Returns its kernel. */
uint32_t emit_work(struct lowering *low, enum plan_op op, enum stream_id stream,
                   enum work_kind work, enum aten label, uint8_t group, uint32_t ins,
                   const uint32_t *in, uint32_t outs, const uint32_t *out);

/* The same with operands that are views. */
uint32_t emit_work_on(struct lowering *low, enum plan_op op, enum stream_id stream,
                      enum work_kind work, enum aten label, uint8_t group, uint32_t ins,
                      const struct operand *in, uint32_t outs, const struct operand *out);

/* Counts a stretch of the compute stream at once. */
void tally_span(struct tally *tally, const struct stream_span *span);

/* ---- buffers ---- */

/* Declares a buffer without allocating it. */
uint32_t new_buffer(struct lowering *low, enum category category, enum stream_id pool,
                    enum aten label, enum dtype dtype, struct shape shape);
/* Declares and allocates. */
uint32_t alloc_buffer(struct lowering *low, enum category category, enum stream_id pool,
                      enum aten label, enum dtype dtype, struct shape shape);

/* ---- the optimizer part of a step: optimizer.c ---- */

/* Resident buffers of the optimizer's states, by strategy->optimizer and impl. */
void declare_optimizer_states(struct lowering *low);
/* clip_grad_norm_ over all gradients. */
void emit_clip(struct lowering *low, uint8_t shard_group);
/* optimizer.step(): states in the first step, transients, the update. */
void emit_optimizer(struct lowering *low);

#endif
