/* kernel_elementwise.cu - kernels that see one element of each operand at a time: eight a thread,
 * loaded as fp32, computed, stored; one kernel, of which a function makes a version. Comparisons
 * take the branch that keeps a NaN. */
#include "runtime/cuda/kernel_formula.cuh"
#include "runtime/cuda/kernel_walk.cuh"

enum { THREADS = 256 };

#define ROOT_HALF 0.7071067812F
#define ROOT_TWO_PI 2.506628275F
#define TWO_BY_PI 0.63661977236758134308
#define HALF_PI 1.57079632679489661923

/* 0.5x(1 + tanh(u)), u = sqrt(2/pi)(x + 0.044715x^3) */
#define GELU_ROOT 0.7978845608F
#define GELU_CUBE 0.044715F

/* ---- functions ---- */

/* The cosine of x less `quarters` quarters of a turn. What is left after whole quarters is found in
 * double, to a float's exactness up to angles of millions; sinf's own way there, for the largest
 * floats, takes local memory. The series are those of Cephes' sinf and cosf, for |r| <= pi / 4. */
static __device__ __forceinline__ float turned_cosine(float x, int quarters)
{
    const double turns = (double)x * TWO_BY_PI, whole = rint(turns);
    const float r = (float)((turns - whole) * HALF_PI), rr = r * r;
    const float sine =
        r + r * rr * (-1.6666654611e-1F + rr * (8.3321608736e-3F - rr * 1.9515295891e-4F));
    const float cosine =
        1.0F - 0.5F * rr +
        rr * rr *
            (4.166664568298827e-2F + rr * (-1.388731625493765e-3F + rr * 2.443315711809948e-5F));
    const int place = ((int)((long long)whole & 3) + 4 - quarters) & 3;
    const float size = place & 1 ? sine : cosine;
    return place == 1 || place == 2 ? -size : size;
}

static __device__ __forceinline__ float sine(float x)
{
    return turned_cosine(x, 1);
}

static __device__ __forceinline__ float cosine(float x)
{
    return turned_cosine(x, 0);
}

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

/* Small whole exponents are products, as PyTorch computes them. */
static __device__ __forceinline__ float power(float x, float p)
{
    if (p == 2.0F)
        return x * x;
    if (p == 3.0F)
        return x * x * x;
    if (p == 1.0F)
        return x;
    return p == 0.0F ? 1.0F : powf(x, p);
}

static __device__ __forceinline__ float gelu_slope(float dy, float x)
{
    return dy * (0.5F * (1.0F + erff(x * ROOT_HALF)) + x * expf(-0.5F * x * x) / ROOT_TWO_PI);
}

static __device__ __forceinline__ float gelu_tanh_slope(float dy, float x)
{
    const float squared = x * x;
    const float tanh_u = tanhf(GELU_ROOT * (x + GELU_CUBE * squared * x));
    const float u_slope = GELU_ROOT * (1.0F + 3.0F * GELU_CUBE * squared);
    return dy * (0.5F * (1.0F + tanh_u) + 0.5F * x * (1.0F - tanh_u * tanh_u) * u_slope);
}

static __device__ __forceinline__ float silu_slope(float dy, float x)
{
    const float s = sigmoid(x);
    return dy * (s * (1.0F + x * (1.0F - s)));
}

#define TRUTH(condition) ((condition) ? 1.0F : 0.0F)

/* How many operands a function takes, and its value of them; x is the first, p a number. */
template <enum kernel_function F> struct function;
#define FUNCTION(name, count, value)                                                               \
    template <> struct function<KERNEL_##name> {                                                   \
        enum { operands = count };                                                                 \
        static __device__ __forceinline__ float of(float x, float y, float z, float p)             \
        {                                                                                          \
            (void)x, (void)y, (void)z, (void)p;                                                    \
            return value;                                                                          \
        }                                                                                          \
    };

#define ALL_FUNCTIONS(X)                                                                           \
    X(FILL, 0, p)                                                                                  \
    X(SAME, 1, x)                                                                                  \
    X(ADD_NUMBER, 1, x + p)                                                                        \
    X(MUL_NUMBER, 1, x *p)                                                                         \
    X(DIV_NUMBER, 1, x / p)                                                                        \
    X(FLOOR_DIV_NUMBER, 1, floorf(x / p))                                                          \
    X(AT_MOST, 1, x > p ? p : x)                                                                   \
    X(AT_LEAST, 1, x < p ? p : x)                                                                  \
    X(WITHIN, 1, x<-p ? -p : x> p ? p : x)                                                         \
    X(NEG, 1, -x)                                                                                  \
    X(ABS, 1, fabsf(x))                                                                            \
    X(POW, 1, power(x, p))                                                                         \
    X(SQUARE, 1, x *x)                                                                             \
    X(SQUARE_ROOT, 1, sqrtf(x))                                                                    \
    X(RSQRT, 1, 1.0F / sqrtf(x))                                                                   \
    X(LOG, 1, logf(p + x))                                                                         \
    X(COS, 1, cosine(x))                                                                           \
    X(SIN, 1, sine(x))                                                                             \
    X(TANH, 1, tanhf(x))                                                                           \
    X(SIGMOID, 1, sigmoid(x))                                                                      \
    X(SILU, 1, silu_of(x))                                                                         \
    X(GELU, 1, 0.5F * x * (1.0F + erff(x * ROOT_HALF)))                                            \
    X(GELU_TANH, 1, 0.5F * x * (1.0F + tanhf(GELU_ROOT * (x + GELU_CUBE * x * x * x))))            \
    X(RELU, 1, x < 0.0F ? 0.0F : x)                                                                \
    X(SOFTPLUS, 1, x > 20.0F ? x : log1pf(expf(x)))                                                \
    X(EXPM1, 1, expm1f(x))                                                                         \
    X(POWER_OF, 1, powf(p, x))                                                                     \
    X(EQUAL_NUMBER, 1, TRUTH(x == p))                                                              \
    X(NOT_EQUAL_NUMBER, 1, TRUTH(x != p))                                                          \
    X(LESS_NUMBER, 1, TRUTH(x < p))                                                                \
    X(GREATER_NUMBER, 1, TRUTH(x > p))                                                             \
    X(IS_INFINITE, 1, TRUTH(fabsf(x) == INFINITY))                                                 \
    X(ADD, 2, x + y)                                                                               \
    X(SUB, 2, x - y)                                                                               \
    X(MUL, 2, x *y)                                                                                \
    X(DIV, 2, x / y)                                                                               \
    X(MINIMUM, 2, x > y ? y : x)                                                                   \
    X(EQUAL, 2, TRUTH(x == y))                                                                     \
    X(LESS, 2, TRUTH(x < y))                                                                       \
    X(LESS_EQUAL, 2, TRUTH(x <= y))                                                                \
    X(GREATER, 2, TRUTH(x > y))                                                                    \
    X(GREATER_EQUAL, 2, TRUTH(x >= y))                                                             \
    X(AND, 2, TRUTH(x != 0.0F && y != 0.0F))                                                       \
    X(OR, 2, TRUTH(x != 0.0F || y != 0.0F))                                                        \
    X(MASKED_FILL, 2, y != 0.0F ? p : x)                                                           \
    X(POLAR_REAL, 2, x *cosine(y))                                                                 \
    X(POLAR_IMAGINARY, 2, x *sine(y))                                                              \
    X(TANH_SLOPE, 2, x *(1.0F - y * y))                                                            \
    X(SIGMOID_SLOPE, 2, x *y *(1.0F - y))                                                          \
    X(SILU_SLOPE, 2, silu_slope(x, y))                                                             \
    X(GELU_SLOPE, 2, gelu_slope(x, y))                                                             \
    X(GELU_TANH_SLOPE, 2, gelu_tanh_slope(x, y))                                                   \
    X(RELU_SLOPE, 2, y <= 0.0F ? 0.0F : x)                                                         \
    X(SOFTPLUS_SLOPE, 2, y > 20.0F ? x : x / (1.0F + expf(-y)))                                    \
    X(CLAMP, 3, x<y ? y : x> z ? z : x)                                                            \
    X(WHERE, 3, x != 0.0F ? y : z)

ALL_FUNCTIONS(FUNCTION)

/* ---- the kernel ---- */

template <enum kernel_function F>
static __global__ void __launch_bounds__(THREADS, 4) /* 64 registers, not 32 and spilled ones */
    map(const __grid_constant__ struct kernel_walk walk, float p)
{
    enum { OPERANDS = function<F>::operands, SIDES = OPERANDS + 1 };
    FOR_GROUPS(i, walk.count)
    {
        walk_places<SIDES> at = {};
        float x[VECTOR] = {0}, y[VECTOR] = {0}, z[VECTOR] = {0};
        if (walk.whole)
            at = find_in_walk<SIDES>(walk, i);
        if constexpr (OPERANDS > 0)
            load_group<1>(walk, i, at, x);
        if constexpr (OPERANDS > 1)
            load_group<2>(walk, i, at, y);
        if constexpr (OPERANDS > 2)
            load_group<3>(walk, i, at, z);
#pragma unroll
        for (int j = 0; j < VECTOR; j++)
            x[j] = function<F>::of(x[j], y[j], z[j], p);
        store_group<0>(walk, i, at, x);
    }
}

#define VERSION(name, count, value) map<KERNEL_##name>,
static void (*const versions[KERNEL_FUNCTIONS])(struct kernel_walk walk,
                                                float p) = {NULL, ALL_FUNCTIONS(VERSION)};

/* The table is in the order of the functions. */
#define COUNT_ONE(name, count, value) +1
static_assert(1 ALL_FUNCTIONS(COUNT_ONE) == KERNEL_FUNCTIONS, "a function without a version");
#define PLACE(name, count, value) PLACE_##name,
enum { NO_PLACE, ALL_FUNCTIONS(PLACE) };
#define CHECK_PLACE(name, count, value)                                                            \
    static_assert((int)PLACE_##name == (int)KERNEL_##name, "the functions' order");
ALL_FUNCTIONS(CHECK_PLACE)

cudaError_t kernel_map(enum kernel_function f, const struct kernel_walk *walk, float p,
                       cudaStream_t stream)
{
    return kernel_launch(versions[f], blocks_for(ceil_div(walk->count, VECTOR), THREADS), THREADS,
                         stream, *walk, p);
}
