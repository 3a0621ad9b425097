/* profiled.c - see profiled.h. */
#include "plan/profiled.h"

#include <stdio.h>

int32_t plan_profiled_stream(uint8_t lane)
{
    return lane == LANE_HOST ? PLAN_NO_STREAM : 7 + lane;
}

static bool is_copy(const struct plan_instruction *instruction)
{
    return instruction->lane != LANE_COMPUTE && instruction->lane != LANE_HOST &&
           !plan_op_is_collective((enum plan_op)instruction->op);
}

const char *plan_profiled_category(const struct plan_instruction *instruction)
{
    return instruction->lane == LANE_HOST ? "cpu_op"
           : is_copy(instruction)         ? "gpu_memcpy"
                                          : "kernel";
}

/* Elements as NCCL names them; it sums integers as unsigned ones. */
static const char *nccl_dtype(enum dtype dtype)
{
    static const char *const names[DTYPE_COUNT] = {
        [DTYPE_FP32] = "f32",   [DTYPE_BF16] = "bf16", [DTYPE_FP16] = "f16",
        [DTYPE_UINT32] = "u32", [DTYPE_INT64] = "u64", [DTYPE_INT32] = "u32",
        [DTYPE_UINT64] = "u64", [DTYPE_BOOL] = "u8",   [DTYPE_COMPLEX64] = "f32",
        [DTYPE_FP64] = "f64",   [DTYPE_UINT8] = "u8",  [DTYPE_INT8] = "u8",
    };
    return names[dtype];
}

/* NCCL has few kernels, each for many functions (best_kernel in its src/device/generate.py): what
 * moves data runs as RING_LL whatever its algorithm, what sums as Sum of its dtype. All-reduce has
 * one of trees, too: which one runs, NCCL decides, so its name ends before that. */
static void name_collective(const struct plan *plan, const struct plan_instruction *instruction,
                            char *text, size_t size)
{
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    const char *dtype = nccl_dtype((enum dtype)kernel->operands[0].dtype);
    switch ((enum plan_op)instruction->op) {
    case PLAN_ALL_GATHER:
        snprintf(text, size, "ncclDevKernel_AllGather_RING_LL");
        break;
    case PLAN_BROADCAST:
        snprintf(text, size, "ncclDevKernel_Broadcast_RING_LL");
        break;
    case PLAN_ALL_TO_ALL:
        snprintf(text, size, "ncclDevKernel_SendRecv");
        break;
    case PLAN_REDUCE_SCATTER:
        snprintf(text, size, "ncclDevKernel_ReduceScatter_Sum_%s_RING_LL", dtype);
        break;
    default:
        snprintf(text, size, "ncclDevKernel_AllReduce_Sum_%s", dtype);
        break;
    }
}

const char *plan_profiled_name(const struct plan *plan, const struct plan_instruction *instruction,
                               const char *what, char *text, size_t size)
{
    if (plan_op_is_collective((enum plan_op)instruction->op))
        name_collective(plan, instruction, text, size);
    else if (!is_copy(instruction))
        snprintf(text, size, "%s", what);
    else if (instruction->op == PLAN_HOST_TO_DEVICE)
        snprintf(text, size, "Memcpy HtoD");
    else if (instruction->op == PLAN_DEVICE_TO_HOST)
        snprintf(text, size, "Memcpy DtoH");
    else
        snprintf(text, size, PLAN_PROFILED_COPY "%s", what);
    return text;
}
