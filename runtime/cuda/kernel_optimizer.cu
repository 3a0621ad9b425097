/* kernel_optimizer.cu - AdamW, SGD and the scaling of clipping, over all parameters in a few
 * launches. See host_ops_optimizer.c for the formulas: constants of a step come in double rounded
 * once, each element is fp32 with one rounding at the end. */
#include "runtime/cuda/kernel_table.cuh"

enum { THREADS = 256, CHUNK = 4 * THREADS * VECTOR /* elements of a block */ };

enum what { ADAMW, SGD, SCALE };

struct constants {
    struct kernel_adam adam;
    float lr, decay;
    struct kernel_tensor coefficient;
};

static __device__ __forceinline__ struct kernel_tensor list_of(void *data, unsigned dtype,
                                                               uint64_t count)
{
    struct kernel_tensor list = {data, count, 0, 0, 0, (uint8_t)dtype, 0};
    list.wide = reinterpret_cast<uintptr_t>(data) % 16 == 0;
    return list;
}

static __device__ __forceinline__ void update_adamw(const struct kernel_update &u,
                                                    const struct kernel_adam &a, uint64_t i)
{
    const struct kernel_tensor gradient = list_of(u.gradient, u.gradient_dtype, u.count);
    const struct kernel_tensor parameter = list_of(u.parameter, u.parameter_dtype, u.count);
    const struct kernel_tensor average = list_of(u.average, u.average_dtype, u.count);
    const struct kernel_tensor square = list_of(u.average_square, u.average_square_dtype, u.count);
    float g[VECTOR], p[VECTOR], m[VECTOR], v[VECTOR];
    load_some(gradient, i, u.count, g);
    load_some(parameter, i, u.count, p);
    load_some(average, i, u.count, m);
    load_some(square, i, u.count, v);
#pragma unroll
    for (int j = 0; j < VECTOR; j++) {
        m[j] += (g[j] - m[j]) * a.take_g;
        v[j] = v[j] * a.keep_v + a.take_gg * g[j] * g[j];
        const float denominator = sqrtf(v[j]) / a.root_scale + a.eps;
        p[j] = p[j] * a.decay - a.step_size * (m[j] / denominator);
    }
    store_some(parameter, i, u.count, p);
    store_some(average, i, u.count, m);
    store_some(square, i, u.count, v);
}

static __device__ __forceinline__ void update_sgd(const struct kernel_update &u, float lr,
                                                  float decay, uint64_t i)
{
    const struct kernel_tensor gradient = list_of(u.gradient, u.gradient_dtype, u.count);
    const struct kernel_tensor parameter = list_of(u.parameter, u.parameter_dtype, u.count);
    float g[VECTOR], p[VECTOR];
    load_some(gradient, i, u.count, g);
    load_some(parameter, i, u.count, p);
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        p[j] -= lr * (g[j] + decay * p[j]);
    store_some(parameter, i, u.count, p);
}

static __device__ __forceinline__ void scale(const struct kernel_update &u, float coefficient,
                                             uint64_t i)
{
    const struct kernel_tensor from = list_of(u.gradient, u.gradient_dtype, u.count);
    const struct kernel_tensor to = list_of(u.parameter, u.parameter_dtype, u.count);
    float value[VECTOR];
    load_some(from, i, u.count, value);
#pragma unroll
    for (int j = 0; j < VECTOR; j++)
        value[j] *= coefficient;
    store_some(to, i, u.count, value);
}

template <enum what WHAT>
static __global__ void __launch_bounds__(THREADS)
    update_all(const __grid_constant__ struct table<struct kernel_update> updates,
               const __grid_constant__ struct constants c)
{
    const uint32_t which = table_find(updates);
    const struct kernel_update &u = updates.entry[which];
    const uint64_t begin = (uint64_t)(blockIdx.x - updates.first[which]) * CHUNK;
    const uint64_t end = begin + CHUNK < u.count ? begin + CHUNK : u.count;
    const float coefficient = WHAT == SCALE ? load_one(c.coefficient, 0) : 1.0F;
    for (uint64_t i = begin + threadIdx.x * VECTOR; i < end; i += THREADS * VECTOR) {
        if (WHAT == ADAMW)
            update_adamw(u, c.adam, i);
        else if (WHAT == SGD)
            update_sgd(u, c.lr, c.decay, i);
        else
            scale(u, coefficient, i);
    }
}

template <enum what WHAT>
static cudaError_t launch(struct table<struct kernel_update> *batch, const struct constants &c,
                          cudaStream_t stream)
{
    if (batch->count == 0)
        return cudaSuccess;
    const cudaError_t rc =
        kernel_launch(update_all<WHAT>, batch->first[batch->count], THREADS, stream, *batch, c);
    batch->count = 0;
    return rc;
}

template <enum what WHAT>
static cudaError_t launch_all(const struct kernel_update *updates, uint32_t count,
                              const struct constants &c, cudaStream_t stream)
{
    struct table<struct kernel_update> batch;
    batch.count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (updates[i].count == 0)
            continue;
        table_add(&batch, updates[i], ceil_div(updates[i].count, CHUNK));
        if (!table_is_full(&batch))
            continue;
        const cudaError_t rc = launch<WHAT>(&batch, c, stream);
        if (rc != cudaSuccess)
            return rc;
    }
    return launch<WHAT>(&batch, c, stream);
}

cudaError_t kernel_adamw(const struct kernel_update *updates, uint32_t count,
                         const struct kernel_adam *constants, cudaStream_t stream)
{
    struct constants c = {};
    c.adam = *constants;
    return launch_all<ADAMW>(updates, count, c, stream);
}

cudaError_t kernel_sgd(const struct kernel_update *updates, uint32_t count, float lr, float decay,
                       cudaStream_t stream)
{
    struct constants c = {};
    c.lr = lr;
    c.decay = decay;
    return launch_all<SGD>(updates, count, c, stream);
}

cudaError_t kernel_scale(const struct kernel_update *updates, uint32_t count,
                         struct kernel_tensor coefficient, cudaStream_t stream)
{
    struct constants c = {};
    c.coefficient = coefficient;
    return launch_all<SCALE>(updates, count, c, stream);
}
