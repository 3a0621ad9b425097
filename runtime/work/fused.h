/* fused.h - works that are several of a plan's in one (runtime/execution/fuse.h): what backends and
 * work_check ask of their operands.
 *
 * Each gives, bit for bit, what its parts give one after the other on the same backend: what lay
 * between them was rounded to its dtype, and is rounded to it in registers.
 *
 *     work                    its parts
 *     rotate                  cast, mul, cast; or cast, conjugate, mul, cast
 *     gate                    silu, mul
 *     products                mul, mul
 *     add_rms_norm            add, rms_norm
 *     rms_norm_backward_add   rms_norm_backward, add_in_place
 *     cross_entropy_slope     nll_loss_backward, log_softmax_backward; and perhaps a cast
 *     attention               repeat, repeat, attention: of heads that share keys and values
 *
 * An output that nobody reads outside of it may have `data` NULL: it is not written, and its dtype
 * says how the number is rounded on its way. */
#ifndef SHARDPLAN_FUSED_H
#define SHARDPLAN_FUSED_H

#include "runtime/work/operand.h"

static inline bool operand_is_written(const struct work_operand *y)
{
    return y->data != NULL;
}

/* GATE: silu x is out 0, the product out 1. PRODUCTS: out i is in i + 1 times in 0. */

/* RMS_NORM_BACKWARD_ADD: the outputs by their names; dweight NULL: not asked for. */
struct norm_backward_add {
    const struct work_operand *dx, *dweight, *z;
};
static inline struct norm_backward_add work_norm_backward_add(const struct work *work)
{
    return (struct norm_backward_add){.dx = work_out(work, 0),
                                      .dweight = work->outs > 2 ? work_out(work, 1) : NULL,
                                      .z = work_out(work, work->outs - 1)};
}

/* The angles' step in numbers along each dim of x, whose last dim counts pairs. False: they do not
 * fit. */
bool work_rotate_spread(const struct work *work, struct shape *pairs, uint64_t step[SHAPE_DIMS]);

/* For work_check's table. */
enum err_code work_check_rotate(const struct work *work, struct err *err);
enum err_code work_check_gate(const struct work *work, struct err *err);
enum err_code work_check_add_rms_norm(const struct work *work, struct err *err);
enum err_code work_check_rms_norm_backward_add(const struct work *work, struct err *err);
enum err_code work_check_cross_entropy_slope(const struct work *work, struct err *err);

#endif
