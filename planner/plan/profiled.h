/* profiled.h - what a profile of PyTorch would call an instruction of a plan, so that tools for
 * such profiles (HTA among them) tell work, communication and copies apart as planner/compare does:
 *
 *     compute         mm, _fused_rms_norm, copy_out         cat "kernel"
 *     any lane        ncclDevKernel_AllGather_RING_LL       cat "kernel"
 *     other lanes     Memcpy DtoD copy_in, Memcpy HtoD      cat "gpu_memcpy"
 *     host            adamw                                 cat "cpu_op"
 *
 * What runs beside the compute lane and is no collective serves one: it has the name of a copy,
 * FSDP1's divisions of gradients among them. The names say what a GPU would run, whatever computes
 * the plan. */
#ifndef SHARDPLAN_PROFILED_H
#define SHARDPLAN_PROFILED_H

#include "plan/plan.h"

enum { PLAN_NO_STREAM = -1 };
#define PLAN_PROFILED_COPY "Memcpy DtoD " /* what the names of copies on the device begin with */

/* The number of a lane's stream: the compute lane is 7, CUPTI's number of the default stream, other
 * lanes follow it; PLAN_NO_STREAM: the host. */
int32_t plan_profiled_stream(uint8_t lane);

/* "kernel", "gpu_memcpy", or "cpu_op" for work of the host itself; of a kernel. */
const char *plan_profiled_category(const struct plan_instruction *instruction);

/* The name of a kernel that computes `what` (its label, or "fused_..."), in `text`, which it
 * returns. */
const char *plan_profiled_name(const struct plan *plan, const struct plan_instruction *instruction,
                               const char *what, char *text, size_t size);

#endif
