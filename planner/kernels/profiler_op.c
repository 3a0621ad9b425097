/* profiler_op.c - a launch of ATen as a kernel of the cost model, and how long that takes. */
#include "cost/cost.h"
#include "kernels/profiler_row.h"

#include <math.h>
#include <string.h>

/* Kernels beside the one that does an operator's work: clearing counters, adding up parts, putting
 * a gradient into another dtype. What they handle is not in the row. */
static bool is_helper(const char *kernel)
{
    static const char *const helpers[] = {"Memset",   "splitKreduce", "splitKreduce", "combine",
                                          "dot_do_o", "convert_dq",   "nccl",         "clear_dq"};
    for (size_t i = 0; i < sizeof helpers / sizeof helpers[0]; i++)
        if (strstr(kernel, helpers[i]))
            return true;
    return false;
}

static const char *class_of(const struct aten_kernel *made)
{
    switch (made->family) {
    case ATEN_PRODUCT:
        return "gemm";
    case ATEN_ATTENTION:
        return "attention";
    case ATEN_ROWWISE_SOFTMAX:
        return "softmax";
    case ATEN_NORM:
    case ATEN_NORM_BACKWARD:
        return "norm";
    case ATEN_REDUCE:
        return "reduction";
    case ATEN_JOIN:
        return "cat";
    case ATEN_ROWS:
        return "rows by index";
    default:
        return kernel_is_vectorised(&made->kernel) ? "elementwise, contiguous"
                                                   : "elementwise, strided";
    }
}

/* Between host and device it is not the device's kernels that copy. */
static double host_copy_seconds(const struct aten_kernel *made, const struct profile *profile)
{
    const struct operand *out = &made->operands[made->kernel.ins];
    return profile_value(profile, PROFILE_LATENCY) - profile_value(profile, PROFILE_GAP) +
           (double)shape_bytes(&out->shape, (enum dtype)out->dtype) /
               profile_value(profile, PROFILE_PCIE);
}

/* What ran, where the operator says it: the profile's choice does not count then. */
static enum attention_kernel ran(const struct profiler_row *row)
{
    return strstr(row->op, "cudnn")       ? ATTENTION_CUDNN
           : strstr(row->op, "efficient") ? ATTENTION_EFFICIENT
                                          : ATTENTION_FLASH;
}

double profiler_row_seconds(struct profiler_row *row, const struct profile *profile,
                            const char **class)
{
    struct aten_kernel made;
    const struct aten_call call = profiler_row_call(row);
    *class = "";
    if (!row->known || row->count == 0 || is_helper(row->kernel) ||
        !aten_kernel_make(&call, &made) || !made.known)
        return NAN;
    *class = class_of(&made);
    if (strstr(row->kernel, "HtoD") || strstr(row->kernel, "DtoH")) {
        *class = "host copy";
        return host_copy_seconds(&made, profile);
    }
    struct profile used = *profile;
    used.attention = ran(row);
    return kernel_seconds(&made.kernel, &used);
}
