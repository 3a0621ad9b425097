/* kernel_elementwise.cu - kernels that see one element of each operand at a time: eight a thread,
 * loaded as fp32, computed, stored. Comparisons take the branch that keeps a NaN. */
#include "runtime/cuda/kernel_formula.cuh"

enum { THREADS = 256 };

/* ---- y = f(x) ---- */

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

#define ROOT_HALF 0.7071067812F
#define ROOT_TWO_PI 2.506628275F

/* 0.5x(1 + tanh(u)), u = sqrt(2/pi)(x + 0.044715x^3) */
#define GELU_ROOT 0.7978845608F
#define GELU_CUBE 0.044715F

template <enum kernel_unary_op F> static __device__ __forceinline__ float value_of(float x)
{
    switch (F) {
    case KERNEL_SILU:
        return silu_of(x);
    case KERNEL_GELU:
        return 0.5F * x * (1.0F + erff(x * ROOT_HALF));
    case KERNEL_GELU_TANH:
        return 0.5F * x * (1.0F + tanhf(GELU_ROOT * (x + GELU_CUBE * x * x * x)));
    case KERNEL_RELU:
        return x < 0.0F ? 0.0F : x;
    case KERNEL_SQUARE:
        return x * x;
    case KERNEL_SQUARE_ROOT:
        return sqrtf(x);
    default: /* KERNEL_CAST */
        return x;
    }
}

template <enum kernel_unary_op F>
static __global__ void unary(struct kernel_tensor x, struct kernel_tensor y)
{
    FOR_GROUPS(i, y.count)
    {
        float value[VECTOR];
        load_some(x, i, y.count, value);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            value[j] = value_of<F>(value[j]);
        store_some(y, i, y.count, value);
    }
}

static __global__ void mul_number(struct kernel_tensor x, struct kernel_tensor y, float factor)
{
    FOR_GROUPS(i, y.count)
    {
        float value[VECTOR];
        load_some(x, i, y.count, value);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            value[j] *= factor;
        store_some(y, i, y.count, value);
    }
}

/* ---- dx = dy f'(x) ---- */

template <enum kernel_slope_op F>
static __device__ __forceinline__ float slope_of(float dy, float x)
{
    if (F == KERNEL_SILU_SLOPE) {
        const float s = sigmoid(x);
        return dy * (s * (1.0F + x * (1.0F - s)));
    }
    if (F == KERNEL_GELU_SLOPE)
        return dy * (0.5F * (1.0F + erff(x * ROOT_HALF)) + x * expf(-0.5F * x * x) / ROOT_TWO_PI);
    if (F == KERNEL_GELU_TANH_SLOPE) {
        const float squared = x * x;
        const float tanh_u = tanhf(GELU_ROOT * (x + GELU_CUBE * squared * x));
        const float u_slope = GELU_ROOT * (1.0F + 3.0F * GELU_CUBE * squared);
        return dy * (0.5F * (1.0F + tanh_u) + 0.5F * x * (1.0F - tanh_u * tanh_u) * u_slope);
    }
    return x <= 0.0F ? 0.0F : dy;
}

template <enum kernel_slope_op F>
static __global__ void slope(struct kernel_tensor dy, struct kernel_tensor x,
                             struct kernel_tensor dx)
{
    FOR_GROUPS(i, dx.count)
    {
        float gradient[VECTOR], value[VECTOR];
        load_some(dy, i, dx.count, gradient);
        load_some(x, i, dx.count, value);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            gradient[j] = slope_of<F>(gradient[j], value[j]);
        store_some(dx, i, dx.count, gradient);
    }
}

static __global__ void add_in_place(struct kernel_tensor x, struct kernel_tensor y)
{
    FOR_GROUPS(i, y.count)
    {
        float more[VECTOR], sum[VECTOR];
        load_some(x, i, y.count, more);
        load_some(y, i, y.count, sum);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            sum[j] += more[j];
        store_some(y, i, y.count, sum);
    }
}

/* ---- launchers ---- */

static unsigned blocks_of(const struct kernel_tensor *y)
{
    return blocks_for(ceil_div(y->count, VECTOR), THREADS);
}

cudaError_t kernel_unary(enum kernel_unary_op f, struct kernel_tensor x, struct kernel_tensor y,
                         cudaStream_t stream)
{
    const unsigned blocks = blocks_of(&y);
    switch (f) {
    case KERNEL_SILU:
        return kernel_launch(unary<KERNEL_SILU>, blocks, THREADS, stream, x, y);
    case KERNEL_GELU:
        return kernel_launch(unary<KERNEL_GELU>, blocks, THREADS, stream, x, y);
    case KERNEL_GELU_TANH:
        return kernel_launch(unary<KERNEL_GELU_TANH>, blocks, THREADS, stream, x, y);
    case KERNEL_RELU:
        return kernel_launch(unary<KERNEL_RELU>, blocks, THREADS, stream, x, y);
    case KERNEL_SQUARE:
        return kernel_launch(unary<KERNEL_SQUARE>, blocks, THREADS, stream, x, y);
    case KERNEL_SQUARE_ROOT:
        return kernel_launch(unary<KERNEL_SQUARE_ROOT>, blocks, THREADS, stream, x, y);
    default:
        return kernel_launch(unary<KERNEL_CAST>, blocks, THREADS, stream, x, y);
    }
}

cudaError_t kernel_mul_number(struct kernel_tensor x, struct kernel_tensor y, float factor,
                              cudaStream_t stream)
{
    return kernel_launch(mul_number, blocks_of(&y), THREADS, stream, x, y, factor);
}

cudaError_t kernel_slope(enum kernel_slope_op f, struct kernel_tensor dy, struct kernel_tensor x,
                         struct kernel_tensor dx, cudaStream_t stream)
{
    const unsigned blocks = blocks_of(&dx);
    switch (f) {
    case KERNEL_SILU_SLOPE:
        return kernel_launch(slope<KERNEL_SILU_SLOPE>, blocks, THREADS, stream, dy, x, dx);
    case KERNEL_GELU_SLOPE:
        return kernel_launch(slope<KERNEL_GELU_SLOPE>, blocks, THREADS, stream, dy, x, dx);
    case KERNEL_GELU_TANH_SLOPE:
        return kernel_launch(slope<KERNEL_GELU_TANH_SLOPE>, blocks, THREADS, stream, dy, x, dx);
    default:
        return kernel_launch(slope<KERNEL_RELU_SLOPE>, blocks, THREADS, stream, dy, x, dx);
    }
}

cudaError_t kernel_add_in_place(struct kernel_tensor x, struct kernel_tensor y, cudaStream_t stream)
{
    return kernel_launch(add_in_place, blocks_of(&y), THREADS, stream, x, y);
}
