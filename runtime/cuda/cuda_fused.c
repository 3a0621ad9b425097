/* cuda_fused.c - from a chain of kernels that is one work (runtime/work/fused.h) to its launch. */
#include "runtime/cuda/cuda_device.h"
#include "runtime/work/fused.h"

static struct kernel_tensor in(const struct work *work, uint32_t i)
{
    return cuda_tensor(work_in(work, i));
}

static struct kernel_tensor out(const struct work *work, uint32_t i)
{
    return cuda_tensor(work_out(work, i));
}

static cudaError_t rotate(const struct work *work, cudaStream_t stream)
{
    uint64_t step[SHAPE_DIMS];
    struct shape pairs;
    work_rotate_spread(work, &pairs, step);
    const struct kernel_spread spread = cuda_spread(&pairs, &work_in(work, 1)->shape, &pairs);
    return kernel_rotate(&spread, in(work, 0), work_in(work, 1)->data, work->attr.p < 0,
                         out(work, 0), stream);
}

/* Of RMSNorm: which operands are what. */
static struct kernel_norm_args norm_args(const struct work *work, uint32_t x, uint32_t weight,
                                         const struct work_operand *rstd)
{
    return (struct kernel_norm_args){
        .x = in(work, x),
        .weight = in(work, weight),
        .rstd = cuda_tensor(rstd),
        .t = operand_rows(work_in(work, x)),
        .h = operand_last(work_in(work, x)),
        .eps = work->attr.eps,
    };
}

static cudaError_t add_norm(const struct work *work, cudaStream_t stream)
{
    const struct kernel_norm_args args = norm_args(work, 0, 2, work_out(work, 2));
    return kernel_add_norm(&args, in(work, 1), out(work, 0), out(work, 1), stream);
}

static cudaError_t norm_backward_add(const struct work *work, struct kernel_scratch scratch,
                                     cudaStream_t stream)
{
    const struct norm_backward_add to = work_norm_backward_add(work);
    const struct kernel_norm_args args = norm_args(work, 1, 2, work_in(work, 3));
    const struct kernel_tensor none = {.data = NULL};
    return kernel_norm_backward_add(&args, in(work, 0), cuda_tensor(to.dx), cuda_tensor(to.z),
                                    to.dweight ? cuda_tensor(to.dweight) : none, scratch, stream);
}

cudaError_t cuda_fused(struct cuda_device *cuda, const struct work *work,
                       struct kernel_scratch scratch, cudaStream_t stream)
{
    const struct work_operand *y = work_in(work, work->ins - 1);
    switch (work->kind) {
    case WORK_ROTATE:
        return rotate(work, stream);
    case WORK_GATE:
        return kernel_gate(in(work, 0), in(work, 1), out(work, 0), out(work, 1), stream);
    case WORK_PRODUCTS:
        return kernel_products(in(work, 0), in(work, 1), in(work, 2), out(work, 0), out(work, 1),
                               stream);
    case WORK_ADD_RMS_NORM:
        return add_norm(work, stream);
    case WORK_RMS_NORM_BACKWARD_ADD:
        return norm_backward_add(work, scratch, stream);
    default: /* CROSS_ENTROPY_SLOPE */
        return kernel_cross_entropy_slope(in(work, 0), cuda_index(work_in(work, 1)), cuda_tensor(y),
                                          out(work, 0), operand_rows(y), operand_last(y), scratch,
                                          cuda->fault, cuda_site(work), stream);
    }
}
