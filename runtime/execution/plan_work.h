/* plan_work.h - the work that an instruction of a plan asks of a device, and whether a device has
 * kernels for all of it. */
#ifndef SHARDPLAN_PLAN_WORK_H
#define SHARDPLAN_PLAN_WORK_H

#include "base/attention.h"
#include "plan/plan.h"
#include "runtime/work/operand.h"

/* The work of instruction `id`, which is a kernel, on the plan's rank: everything but addresses
 * and what a run chooses. `operand` has room for the kernel's ins and outs and is lent to the
 * result; its shapes, pitches and dtypes are filled, `data` is NULL. */
struct work plan_work(const struct plan *plan, uint32_t id, struct work_operand *operand);

/* Before anything runs: every kernel has a backend's kernel, its operands fit it and are bytes
 * that exist. The plan passes plan_verify; then no address that is made of it lies outside the
 * memory of its buffers. ERR_UNSUPPORTED lists the computations that nobody can run, each once with
 * how often the plan has it; or names the instruction whose operands no kernel takes; or the input
 * that no data has, or says that there is no optimizer. */
enum err_code plan_check_runnable(const struct plan *plan, enum work_backend backend,
                                  struct err *err);

/* (instructions) What a rehearsal whose kernels are waits does all the same: copies and collectives
 * (work_stand_in), as far as the backend has them. No address that is made of their operands lies
 * outside of its buffer. The caller owns *out: free. */
enum err_code plan_list_moved(const struct plan *plan, enum work_backend backend, bool **out,
                              struct err *err);

/* Whether a backend's device has the attention that a run asks for (--attention), for the works of
 * this plan. ERR_UNSUPPORTED says what it has instead. */
enum err_code plan_check_attention(const struct plan *plan, enum attention_kernel asked,
                                   enum work_backend backend, struct err *err);

#endif
