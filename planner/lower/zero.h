/* zero.h - what DeepSpeed's ZeRO stages share (deepspeed 0.19.8, runtime/zero): for zero*.c only.
 *
 * All trained parameters are one vector, cut into equal partitions; each rank updates its own one,
 * in fp32:
 *
 *     stages 1, 2    | p0 | p1    | p2 ...  | pad |      parameters one after the other
 *                    |   rank 0   |   rank 1      |
 *     stage 3        each parameter is cut by itself, and a rank's pieces follow each other
 *
 * A step is the same from there on: is anything infinite, the norm, a flat fp32 gradient, clipping,
 * the update (zero_step.c). Many of its kernels work on scalars, which zero_scalars.c lists. */
#ifndef SHARDPLAN_ZERO_H
#define SHARDPLAN_ZERO_H

#include "lower/lowering.h"

/* The dtype of a parameter: the engine casts what is of floating point to its own
 * (_cast_module_mixed_precision), and leaves integers that weights are packed in as they are. */
static inline enum dtype zero_dtype(const struct lowering *low, uint32_t param)
{
    const enum dtype stored = stored_dtype(low, param), floats = low->strategy->compute;
    return stored == DTYPE_UINT8 || stored == DTYPE_INT8 ? stored : floats;
}

/* ---- scalars ---- */

/* has_overflow_partitioned_grads_serial: whether anything in `count` gradients is infinite, on all
 * ranks of `group`. */
void zero_look_for_overflow(struct lowering *low, uint8_t group, uint32_t count,
                            const struct operand *gradients);
/* get_grad_norm_direct and what step() makes of it: the 2-norm of the gradients of all ranks of
 * `group`. Returns the scalar (fp32): the caller frees it. */
uint32_t zero_norm(struct lowering *low, uint8_t group, uint32_t count,
                   const struct operand *gradients);
/* Its parts, for offloading: whether one gradient of `dtype` is infinite; what the host found, on
 * all ranks; the norm of one gradient (fp64: the caller frees it), all on a lane. */
void zero_look_at(struct lowering *low, uint8_t lane, enum dtype dtype);
void zero_share_overflow(struct lowering *low, uint8_t group);
uint32_t zero_norm_one(struct lowering *low, uint8_t lane, struct operand gradient);
/* Its parts, for stage 3, whose scalars are fp64. The norm of one group of gradients; the norms of
 * groups as one (`dtype` theirs); whether it is valid. */
uint32_t zero_norm_fp64(struct lowering *low, uint8_t group, uint32_t count,
                        const struct operand *gradients);
uint32_t zero_combine_norms(struct lowering *low, uint8_t lane, uint32_t count,
                            const uint32_t *norms, enum dtype dtype);
void zero_check_norm(struct lowering *low, uint8_t lane, enum dtype dtype);
/* has_overflow of stage 3: two masks of the whole buffer. */
void zero_scan_for_overflow(struct lowering *low, uint8_t lane, uint8_t group,
                            struct operand gradients);
/* unscale_and_clip_grads: `gradient` (flat, fp32) times what keeps its norm below max_norm.
 * `dtype`: of scalars. Stages 1 and 2 `check` the norm once more. */
void zero_clip(struct lowering *low, uint8_t lane, uint32_t norm, struct operand gradient,
               enum dtype dtype, bool check);

/* BF16_Optimizer's (get_global_norm_of_tensors, clip_tensors_by_global_norm): the norm of all of
 * them (fp32: the caller frees it), which every rank has; each of them times what keeps that below
 * max_norm. */
uint32_t zero_norm_of_all(struct lowering *low, uint32_t count, const struct operand *gradients);
void zero_clip_all(struct lowering *low, uint32_t norm, uint32_t count,
                   const struct operand *gradients);

/* Reads norms on the device one by one, as `.item()` does: the host waits for each. Returns the sum
 * of their squares, on the host (no tensor of PyTorch's): the caller frees it. */
uint32_t zero_read_norms(struct lowering *low, uint32_t count, const uint32_t *norms);

/* A new scalar (fp64) of one: its square, or the root of it. */
uint32_t zero_scalar(struct lowering *low, uint8_t lane, enum work_kind work, uint32_t of);
/* Adds to `sum`; NONE: a new one. */
uint32_t zero_add_scalar(struct lowering *low, uint32_t sum, uint32_t scalar);
/* The root of what ranks' sums (NONE: nothing here; freed) are together, on the host: the caller
 * frees it. */
uint32_t zero_share_sum(struct lowering *low, uint8_t group, uint32_t sum);

/* A copy between device and host, which the host waits for if it `waits`. */
void zero_move(struct lowering *low, enum plan_op op, uint8_t lane, struct operand x,
               struct operand y, bool waits);

/* Memory of the host that is there before the first step, flat: pinned unless the offload says
 * otherwise. */
uint32_t zero_new_host(struct lowering *low, enum category category, enum dtype dtype,
                       uint64_t elements, const struct zero_offload *offload);

/* ---- small kernels ---- */

/* y = factor · x on a lane. */
void zero_scale(struct lowering *low, uint8_t lane, double factor, struct operand x,
                struct operand y);
void zero_copy(struct lowering *low, uint8_t lane, struct operand x, struct operand y);
/* The elements from `first` on, `count` of them, as a flat operand. */
struct operand zero_run(struct operand of, uint64_t first, uint64_t count);
/* `count` parts one after the other (`elements`) in fp32, through what their dtype makes of that;
 * of a single part it is `one`, which is all of it. */
struct operand zero_join(struct lowering *low, uint32_t count, const struct operand *parts,
                         struct operand one, uint64_t elements);
/* A name that scopes can carry: a parameter's. */
const char *zero_name(const struct lowering *low, uint32_t param);

/* ERR_UNSUPPORTED: backward gives a trained parameter no gradient. */
enum err_code zero_check_used(const struct graph *graph, const struct stream *stream,
                              struct err *err);

#endif
