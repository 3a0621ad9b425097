/* kernel_loss.cu - mean cross-entropy as PyTorch splits it: log-softmax, then the mean of the
 * targets' log-probabilities, and the two steps back.
 *
 * A block takes a row of the vocabulary. The highest element and the sum of exponentials come from
 * one pass (each thread rescales its sum when it meets a higher element), the result from a second.
 * A target of -100 is left out of the mean; with none left the loss is 0/0, as in nll_loss. */
#include "runtime/cuda/kernel_formula.cuh"

enum { THREADS = 512, IGNORED = -100 };

/* exp(x - highest), where -inf - -inf is no NaN but nothing at all. */
static __device__ __forceinline__ float exp_below(float x, float highest)
{
    return x == -INFINITY && highest == -INFINITY ? 0.0F : expf(x - highest);
}

static __global__ void __launch_bounds__(THREADS)
    log_softmax(struct kernel_tensor x, struct kernel_tensor y, uint64_t t, uint64_t v)
{
    __shared__ float float_room[THREADS / LANES];
    __shared__ double double_room[THREADS / LANES];
    for (uint64_t row = blockIdx.x; row < t; row += gridDim.x) {
        const uint64_t begin = row * v, end = begin + v;
        float highest = -INFINITY, sum = 0.0F;
        for (uint64_t i = begin + threadIdx.x * VECTOR; i < end; i += THREADS * VECTOR) {
            float value[VECTOR];
            load_some(x, i, end, value);
            float most = highest;
            for (int j = 0; j < VECTOR; j++)
                most = i + j < end ? larger(value[j], most) : most;
            sum *= exp_below(highest, most);
            for (int j = 0; j < VECTOR; j++)
                sum += i + j < end ? exp_below(value[j], most) : 0.0F;
            highest = most;
        }
        const float most = block_max(highest, float_room);
        const double total = block_sum((double)sum * (double)exp_below(highest, most), double_room);
        const double log_sum = (double)most + log(total);
        for (uint64_t i = begin + threadIdx.x * VECTOR; i < end; i += THREADS * VECTOR) {
            float value[VECTOR];
            load_some(x, i, end, value);
            for (int j = 0; j < VECTOR; j++)
                value[j] = (float)((double)value[j] - log_sum);
            store_some(y, i, end, value);
        }
    }
}

/* dx = dy - softmax · Σ dy */
static __global__ void __launch_bounds__(THREADS)
    log_softmax_slope(struct kernel_tensor dy, struct kernel_tensor y, struct kernel_tensor dx,
                      uint64_t t, uint64_t v)
{
    __shared__ double room[THREADS / LANES];
    for (uint64_t row = blockIdx.x; row < t; row += gridDim.x) {
        const uint64_t begin = row * v, end = begin + v;
        double sum = 0;
        for (uint64_t i = begin + threadIdx.x * VECTOR; i < end; i += THREADS * VECTOR) {
            float value[VECTOR];
            load_some(dy, i, end, value);
            for (int j = 0; j < VECTOR; j++)
                sum += (double)value[j];
        }
        const float total = (float)block_sum(sum, room);
        for (uint64_t i = begin + threadIdx.x * VECTOR; i < end; i += THREADS * VECTOR) {
            float gradient[VECTOR], value[VECTOR];
            load_some(dy, i, end, gradient);
            load_some(y, i, end, value);
            for (int j = 0; j < VECTOR; j++)
                gradient[j] = log_softmax_slope_of(gradient[j], value[j], total);
            store_some(dx, i, end, gradient);
        }
    }
}

/* Whether a target counts; one that is out of range is a fault and does not. */
static __device__ __forceinline__ bool counts(int64_t target, uint64_t v,
                                              struct kernel_fault *fault, struct kernel_site site)
{
    if (target == IGNORED)
        return false;
    if (target >= 0 && (uint64_t)target < v)
        return true;
    raise_fault(fault, site, target, v);
    return false;
}

/* One block: tokens are few beside logits. */
static __global__ void __launch_bounds__(THREADS)
    nll_loss(struct kernel_tensor x, struct kernel_index targets, uint64_t t, uint64_t v,
             struct kernel_tensor loss, struct kernel_tensor weight, struct kernel_fault *fault,
             struct kernel_site site)
{
    __shared__ double room[THREADS / LANES];
    double sum = 0, count = 0;
    for (uint64_t i = threadIdx.x; i < t; i += THREADS) {
        const int64_t target = load_index(targets, i);
        if (!counts(target, v, fault, site))
            continue;
        sum -= (double)load_one(x, i * v + (uint64_t)target);
        count += 1;
    }
    sum = block_sum(sum, room);
    count = block_sum(count, room);
    if (threadIdx.x == 0) {
        store_one(loss, 0, (float)(sum / count));
        store_one(weight, 0, (float)count);
    }
}

/* *each = -dloss / number of targets that count */
static __global__ void __launch_bounds__(THREADS)
    nll_share(struct kernel_tensor dloss, struct kernel_index targets, uint64_t t, uint64_t v,
              float *each, struct kernel_fault *fault, struct kernel_site site)
{
    __shared__ double room[THREADS / LANES];
    double count = 0;
    for (uint64_t i = threadIdx.x; i < t; i += THREADS)
        count += counts(load_index(targets, i), v, fault, site) ? 1 : 0;
    count = block_sum(count, room);
    if (threadIdx.x == 0)
        *each = -load_one(dloss, 0) / (float)count;
}

static __global__ void nll_scatter(struct kernel_index targets, struct kernel_tensor dx, uint64_t t,
                                   uint64_t v, const float *each)
{
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < t; i += step) {
        const int64_t target = load_index(targets, i);
        if (target >= 0 && (uint64_t)target < v)
            store_one(dx, i * v + (uint64_t)target, *each);
    }
}

/* nll_scatter and log_softmax_slope in one: of dy only the target's is not zero, so it is the sum.
 */
static __global__ void __launch_bounds__(THREADS)
    cross_entropy_slope(struct kernel_index targets, struct kernel_tensor y,
                        struct kernel_tensor dx, uint64_t t, uint64_t v, const float *each)
{
    for (uint64_t row = blockIdx.x; row < t; row += gridDim.x) {
        const uint64_t begin = row * v, end = begin + v;
        const int64_t target = load_index(targets, row);
        const bool counted = target >= 0 && (uint64_t)target < v;
        const float total = counted ? *each : 0.0F;
        const uint64_t at = counted ? begin + (uint64_t)target : end;
        for (uint64_t i = begin + threadIdx.x * VECTOR; i < end; i += THREADS * VECTOR) {
            float value[VECTOR];
            load_some(y, i, end, value);
            for (int j = 0; j < VECTOR; j++)
                value[j] = log_softmax_slope_of(i + j == at ? total : 0.0F, value[j], total);
            store_some(dx, i, end, value);
        }
    }
}

cudaError_t kernel_log_softmax(struct kernel_tensor x, struct kernel_tensor y, uint64_t t,
                               uint64_t v, cudaStream_t stream)
{
    return kernel_launch(log_softmax, blocks_for(t, 1), THREADS, stream, x, y, t, v);
}

cudaError_t kernel_log_softmax_backward(struct kernel_tensor dy, struct kernel_tensor y,
                                        struct kernel_tensor dx, uint64_t t, uint64_t v,
                                        cudaStream_t stream)
{
    return kernel_launch(log_softmax_slope, blocks_for(t, 1), THREADS, stream, dy, y, dx, t, v);
}

cudaError_t kernel_nll_loss(struct kernel_tensor x, struct kernel_index targets, uint64_t t,
                            uint64_t v, struct kernel_tensor loss, struct kernel_tensor weight,
                            struct kernel_fault *fault, struct kernel_site site,
                            cudaStream_t stream)
{
    return kernel_launch(nll_loss, 1, THREADS, stream, x, targets, t, v, loss, weight, fault, site);
}

cudaError_t kernel_nll_loss_backward(struct kernel_tensor dloss, struct kernel_index targets,
                                     struct kernel_tensor dx, uint64_t t, uint64_t v,
                                     struct kernel_scratch scratch, struct kernel_fault *fault,
                                     struct kernel_site site, cudaStream_t stream)
{
    float *each = static_cast<float *>(scratch.data);
    cudaError_t rc = kernel_fill(dx, 0.0F, stream);
    if (rc == cudaSuccess)
        rc = kernel_launch(nll_share, 1, THREADS, stream, dloss, targets, t, v, each, fault, site);
    if (rc == cudaSuccess)
        rc = kernel_launch(nll_scatter, blocks_for(t, THREADS), THREADS, stream, targets, dx, t, v,
                           each);
    return rc;
}

cudaError_t kernel_cross_entropy_slope(struct kernel_tensor dloss, struct kernel_index targets,
                                       struct kernel_tensor y, struct kernel_tensor dx, uint64_t t,
                                       uint64_t v, struct kernel_scratch scratch,
                                       struct kernel_fault *fault, struct kernel_site site,
                                       cudaStream_t stream)
{
    float *each = static_cast<float *>(scratch.data);
    const cudaError_t rc =
        kernel_launch(nll_share, 1, THREADS, stream, dloss, targets, t, v, each, fault, site);
    if (rc != cudaSuccess)
        return rc;
    return kernel_launch(cross_entropy_slope, blocks_for(t, 1), THREADS, stream, targets, y, dx, t,
                         v, each);
}
