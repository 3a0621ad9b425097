/* kernels.h - the CUDA kernels' launchers, as C sees them. Each kernel_*.cu holds one operation, or
 * one tight family, and these extern "C" functions are all of it that leaves the file.
 *
 * A launcher queues its work on `stream` and returns at once; cudaSuccess says that the launch was
 * accepted, not that it ran. Operands were checked by the caller (work_check). Arithmetic is in
 * fp32, long sums in double, of eight terms at most in fp32; every result is the same from run to
 * run: no kernel adds with atomics. Letters are those of work.h. */
#ifndef SHARDPLAN_CUDA_KERNELS_H
#define SHARDPLAN_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KERNEL_DIMS = 5 };

/* The integers and truths are of walks alone. Numbers go through fp32: integers are exact below
 * 2^24, which positions and the ids of any vocabulary are; indices are read as they are. */
enum kernel_dtype {
    KERNEL_FP32,
    KERNEL_BF16,
    KERNEL_FP16,
    KERNEL_INT64,
    KERNEL_INT32,
    KERNEL_BOOL
};

/* A row-major list of floating-point numbers in device memory. Element i lies at
 * i / width · pitch + i % width. `wide`: eight elements from a multiple of 8 on lie beside each
 * other and begin at a multiple of 16 bytes, so that they move in 16-byte accesses. */
struct kernel_tensor {
    void *data;
    uint64_t count;
    uint64_t inverse;      /* kernel_inverse(width) */
    uint32_t width, pitch; /* elements; pitch 0: contiguous */
    uint8_t dtype;         /* enum kernel_dtype */
    uint8_t wide;
};

/* Kernels divide by multiplying: a 64-bit division is a call, for which registers are spilled. n /
 * d is the high half of n · kernel_inverse(d), exactly, where n · d is below 2^64 (the error is n ·
 * e / (d · 2^64), e < d); of d = 1 the inverse, 2^64, is written 0. */
static inline uint64_t kernel_inverse(uint64_t d)
{
    return d > 1 ? UINT64_MAX / d + 1 : 0;
}

struct kernel_index { /* contiguous int64 or int32 numbers */
    const void *data;
    uint64_t count;
    uint8_t is_64;
};

struct kernel_site {            /* for messages */
    uint32_t instruction, kind; /* enum work_kind */
};

/* Where a kernel leaves the first wrong index it meets: host memory that the device can reach. The
 * host may look while kernels run, and reads the rest only when all of it is there. */
enum { KERNEL_FAULT_NONE, KERNEL_FAULT_BEGUN, KERNEL_FAULT_WHOLE };
struct kernel_fault {
    uint32_t raised; /* KERNEL_FAULT_... */
    struct kernel_site site;
    int64_t value; /* the index */
    uint64_t bound;
};

/* Scratch memory of a stream: kernels of one stream follow each other, so they may share it. */
struct kernel_scratch {
    void *data; /* aligned to 256 bytes */
    uint64_t bytes;
};

/* ---- kernel_fill.cu ---- */

cudaError_t kernel_arange(struct kernel_index ids, uint32_t first, cudaStream_t stream);
cudaError_t kernel_fill(struct kernel_tensor y, float value, cudaStream_t stream);

/* ---- walks: operands of any layout (runtime/work/view.h) ---- */

/* A walk is a list of dims, outermost first and of size 1 before those that there are, and for each
 * operand the step through its memory along each. Element i is found by dividing by the dims; eight
 * elements that follow each other in the innermost dim are found at once where `whole`. */
enum { KERNEL_SIDES = 5 };

/* How eight elements of a whole group lie: apart, beside each other from a multiple of 16 bytes on,
 * or as one that is read eight times. */
enum kernel_form { KERNEL_APART, KERNEL_WIDE, KERNEL_ONE };

struct kernel_side {
    void *data;
    uint64_t step[KERNEL_DIMS]; /* elements */
    uint8_t dtype;              /* enum kernel_dtype */
    uint8_t form;               /* enum kernel_form */
};

struct kernel_walk {
    uint64_t count;
    uint64_t inverse[KERNEL_DIMS]; /* kernel_inverse(dim) */
    uint32_t dim[KERNEL_DIMS];
    uint32_t outermost; /* the first dim that is not 1; the last one at the most */
    uint32_t whole;     /* groups of eight, from a multiple of 8 on, are in one row of the last dim;
                           where it is the only one the last group may be short */
    struct kernel_side side[KERNEL_SIDES];
};

/* ---- kernel_elementwise.cu ---- */

/* Each element on its own: side 0 = f(side 1, side 2, side 3; p), so many as f takes. What is
 * written may be what is read, element for element. Truths are 0 and 1. */
enum kernel_function {
    KERNEL_NO_FUNCTION,
    /* of nothing */
    KERNEL_FILL,
    /* of x */
    KERNEL_SAME,
    KERNEL_ADD_NUMBER,
    KERNEL_MUL_NUMBER,
    KERNEL_DIV_NUMBER,
    KERNEL_FLOOR_DIV_NUMBER,
    KERNEL_AT_MOST,
    KERNEL_AT_LEAST,
    KERNEL_WITHIN,
    KERNEL_NEG,
    KERNEL_ABS,
    KERNEL_POW,
    KERNEL_SQUARE,
    KERNEL_SQUARE_ROOT,
    KERNEL_RSQRT,
    KERNEL_LOG,
    KERNEL_COS,
    KERNEL_SIN,
    KERNEL_TANH,
    KERNEL_SIGMOID,
    KERNEL_SILU,
    KERNEL_GELU,
    KERNEL_GELU_TANH,
    KERNEL_RELU,
    KERNEL_SOFTPLUS,
    KERNEL_EXPM1,
    KERNEL_POWER_OF,
    KERNEL_EQUAL_NUMBER,
    KERNEL_NOT_EQUAL_NUMBER,
    KERNEL_LESS_NUMBER,
    KERNEL_GREATER_NUMBER,
    KERNEL_IS_INFINITE,
    /* of x and y */
    KERNEL_ADD,
    KERNEL_SUB,
    KERNEL_MUL,
    KERNEL_DIV,
    KERNEL_MINIMUM,
    KERNEL_EQUAL,
    KERNEL_LESS,
    KERNEL_LESS_EQUAL,
    KERNEL_GREATER,
    KERNEL_GREATER_EQUAL,
    KERNEL_AND,
    KERNEL_OR,
    KERNEL_MASKED_FILL,
    KERNEL_POLAR_REAL, /* x cos y, x sin y */
    KERNEL_POLAR_IMAGINARY,
    /* of dy and x; of tanh, sigmoid and relu, y */
    KERNEL_TANH_SLOPE,
    KERNEL_SIGMOID_SLOPE,
    KERNEL_SILU_SLOPE,
    KERNEL_GELU_SLOPE,
    KERNEL_GELU_TANH_SLOPE,
    KERNEL_RELU_SLOPE,
    KERNEL_SOFTPLUS_SLOPE,
    /* of x, y and z */
    KERNEL_CLAMP, /* x within y and z */
    KERNEL_WHERE, /* y where x, else z */
    KERNEL_FUNCTIONS
};

cudaError_t kernel_map(enum kernel_function f, const struct kernel_walk *walk, float p,
                       cudaStream_t stream);

/* ---- kernel_reduce.cu ---- */

enum kernel_reduction {
    KERNEL_SUM,
    KERNEL_MEAN,
    KERNEL_LARGEST,
    KERNEL_SMALLEST,
    KERNEL_ALL,
    KERNEL_ANY
};

/* Of side 1 into side 0: `kept` are the dims that the result has, `terms` those over which it goes,
 * with the steps of side 1 as side 0's. A NaN is the largest. */
cudaError_t kernel_reduce(enum kernel_reduction what, const struct kernel_walk *kept,
                          const struct kernel_walk *terms, cudaStream_t stream);

/* ---- kernel_rows.cu ---- */

/* Rows of the last dim of every side, which have a walk over where they begin. */
struct kernel_rows {
    struct kernel_walk begin;
    uint64_t length, step[KERNEL_SIDES]; /* of a row: elements; from one to the next */
};

/* side 0 = softmax of side 1. `safe`: a row of nothing but minus infinity is zeros, else NaN; then
 * sides 2 (where side 1 is minus infinity) and 3 (one a row: whether all of it is) may be there. */
cudaError_t kernel_softmax(const struct kernel_rows *rows, int safe, cudaStream_t stream);
/* side 0 = y (dy - sum of y dy), dy and y sides 1 and 2. */
cudaError_t kernel_softmax_backward(const struct kernel_rows *rows, cudaStream_t stream);
cudaError_t kernel_cumulative_sum(const struct kernel_rows *rows, cudaStream_t stream);
/* side 0 = side 1 up to the diagonal of matrices (length, length), else 0. */
cudaError_t kernel_lower_triangle(const struct kernel_rows *rows, cudaStream_t stream);
/* The `most` largest of each row of side 2, of equal ones the first: into rows of side 0, and where
 * they are of side 1, an index. */
cudaError_t kernel_topk(const struct kernel_rows *rows, uint32_t most, cudaStream_t stream);

/* ---- kernel_index.cu ---- */

/* Side 0 = element of side 1 at its place plus `step` times the index of side 2, which is below
 * `bound`. */
cudaError_t kernel_take(const struct kernel_walk *walk, uint64_t step, uint64_t bound,
                        struct kernel_fault *fault, struct kernel_site site, cudaStream_t stream);
/* The other way, row by row in order: side 0 at its place plus step times the index of side 1 =
 * side 2, or `number` where that has no data. */
cudaError_t kernel_put(const struct kernel_rows *rows, uint64_t step, uint64_t bound, float number,
                       struct kernel_fault *fault, struct kernel_site site, cudaStream_t stream);
/* y (rows, inner) = x (data NULL: 0) + the parts whose index is the row, in their order. Sides of
 * `inner`: y, x, parts; `to` their steps from row to row, `ids` a walk over indices (side 0). No
 * part is added to row `pads` (UINT64_MAX: to any). */
struct kernel_scatter_sum {
    struct kernel_walk inner, ids;
    uint64_t rows, step[3], pads;
};
cudaError_t kernel_add_rows(const struct kernel_scatter_sum *sum, struct kernel_fault *fault,
                            struct kernel_site site, cudaStream_t stream);
/* Side 0 of `counts`: how many of side 0 of `x` are in [i, i + 1). */
cudaError_t kernel_histogram(const struct kernel_walk *counts, const struct kernel_walk *x,
                             cudaStream_t stream);
/* y[ids[i]] = i */
cudaError_t kernel_invert_permutation(const struct kernel_walk *ids, struct kernel_side y,
                                      uint64_t bound, struct kernel_fault *fault,
                                      struct kernel_site site, cudaStream_t stream);

/* ---- kernel_sort.cu ---- */

/* x (side 2) in rising order and where it was, into sides 0 and 1; of equal ones the first first.
 * Scratch: KERNEL_SORT_BYTES an element. */
enum { KERNEL_SORT_BYTES = 16 };
cudaError_t kernel_sort(const struct kernel_walk *walk, struct kernel_scratch scratch,
                        cudaStream_t stream);

/* ---- kernel_product.cu ---- */

struct kernel_matrix {
    const void *data;
    uint64_t row, column, batch; /* steps in elements */
};

/* z (m, n) = x (m, k) y (k, n), `batches` times: all of one dtype, z may be fp32. With `ends`, the
 * batches are groups of rows: the g-th ends before row ends[g]. They cut m, and rows of z behind
 * the last group become 0; or, where `cut_k`, the k rows of y, and columns of x. */
struct kernel_product {
    struct kernel_matrix x, y, z;
    uint32_t m, n, k, batches;
    uint8_t dtype, out_dtype;
    uint8_t cut_k;
    struct kernel_index ends; /* data NULL: none */
};
cudaError_t kernel_multiply(const struct kernel_product *product, struct kernel_fault *fault,
                            struct kernel_site site, cudaStream_t stream);

/* ---- kernel_broadcast.cu ---- */

/* Dims of z, outermost first, of size 1 before those that there are, and for x and y the step in
 * elements of their list that one step along a dim of z makes: 0 where they are repeated. */
struct kernel_spread {
    uint32_t dim[KERNEL_DIMS];
    uint64_t inverse[KERNEL_DIMS]; /* kernel_inverse(dim) */
    uint64_t x_step[KERNEL_DIMS], y_step[KERNEL_DIMS];
};

/* z = x y, pairs (re, im) of fp32; `count` complex elements of z, contiguous. */
cudaError_t kernel_multiply_complex(const struct kernel_spread *spread, const void *x,
                                    const void *y, void *z, uint64_t count, cudaStream_t stream);
/* The same in any layout: side 0 = side 1 times side 2, steps in complex numbers. */
cudaError_t kernel_multiply_complex_walk(const struct kernel_walk *walk, cudaStream_t stream);
cudaError_t kernel_conjugate(const void *x, void *y, uint64_t count, cudaStream_t stream);

/* ---- kernel_pieces.cu ---- */

/* `rows` runs of `width` elements, cast where dtypes differ. `from` NULL: zeros. Repeated: each of
 * the `rows` runs of the source goes to `times` places, row r to (r · times + k) · to_pitch. */
struct kernel_piece {
    const void *from;
    void *to;
    uint64_t rows, width, from_pitch, to_pitch;
    uint32_t times;
    uint8_t from_dtype, to_dtype; /* enum kernel_dtype */
    uint8_t unit; /* not 0: no cast; `width` and pitches are units of so many bytes */
};

/* Copies all pieces, which do not overlap: as many launches as their table needs. */
cudaError_t kernel_pieces(const struct kernel_piece *pieces, uint32_t count, cudaStream_t stream);

/* ---- kernel_sum.cu ---- */

/* y (outer, inner) of x (outer, terms, inner), both contiguous. Scratch: parts of y in double, as
 * many as there is room for. */
cudaError_t kernel_sum(uint64_t outer, uint64_t terms, uint64_t inner, struct kernel_tensor x,
                       struct kernel_tensor y, struct kernel_scratch scratch, cudaStream_t stream);

/* ---- kernel_embedding.cu ---- */

cudaError_t kernel_embedding(struct kernel_index ids, struct kernel_tensor weight, uint64_t rows,
                             uint64_t h, struct kernel_tensor y, struct kernel_fault *fault,
                             struct kernel_site site, cudaStream_t stream);
/* dweight (rows, h): sums over equal ids, in the order of their positions. */
cudaError_t kernel_embedding_backward(struct kernel_tensor dy, struct kernel_index ids,
                                      struct kernel_tensor dweight, uint64_t rows, uint64_t h,
                                      struct kernel_fault *fault, struct kernel_site site,
                                      cudaStream_t stream);

/* ---- kernel_norm.cu ---- */

struct kernel_norm_args { /* data NULL: there is none; RMSNorm has neither bias nor mean */
    struct kernel_tensor x, weight, bias, mean, rstd;
    uint64_t t, h;
    float eps;
    int centred;
};
cudaError_t kernel_norm(const struct kernel_norm_args *norm, struct kernel_tensor y,
                        cudaStream_t stream);
/* dx, dweight, dbias: data NULL where not asked for. Statistics of less than fp32 are made anew. */
cudaError_t kernel_norm_backward(const struct kernel_norm_args *norm, struct kernel_tensor dy,
                                 struct kernel_tensor dx, struct kernel_tensor dweight,
                                 struct kernel_tensor dbias, struct kernel_scratch scratch,
                                 cudaStream_t stream);

/* The same of x + addend, which goes to `sum`; and with dx, rounded to its dtype (data NULL: not
 * written), added to z. */
cudaError_t kernel_add_norm(const struct kernel_norm_args *norm, struct kernel_tensor addend,
                            struct kernel_tensor sum, struct kernel_tensor y, cudaStream_t stream);
cudaError_t kernel_norm_backward_add(const struct kernel_norm_args *norm, struct kernel_tensor dy,
                                     struct kernel_tensor dx, struct kernel_tensor z,
                                     struct kernel_tensor dweight, struct kernel_scratch scratch,
                                     cudaStream_t stream);

/* ---- kernel_fused.cu: chains of kernels as one (runtime/work/fused.h) ---- */

/* Pairs of x times `angles`, complex numbers where `spread`'s y is; x is its x and z. */
cudaError_t kernel_rotate(const struct kernel_spread *spread, struct kernel_tensor x,
                          const void *angles, int conjugate, struct kernel_tensor y,
                          cudaStream_t stream);
/* silu data NULL: not written. */
cudaError_t kernel_gate(struct kernel_tensor x, struct kernel_tensor u, struct kernel_tensor silu,
                        struct kernel_tensor product, cudaStream_t stream);
cudaError_t kernel_products(struct kernel_tensor z, struct kernel_tensor x, struct kernel_tensor y,
                            struct kernel_tensor xz, struct kernel_tensor yz, cudaStream_t stream);

/* ---- kernel_loss.cu ---- */

cudaError_t kernel_log_softmax(struct kernel_tensor x, struct kernel_tensor y, uint64_t t,
                               uint64_t v, cudaStream_t stream);
cudaError_t kernel_log_softmax_backward(struct kernel_tensor dy, struct kernel_tensor y,
                                        struct kernel_tensor dx, uint64_t t, uint64_t v,
                                        cudaStream_t stream);
cudaError_t kernel_nll_loss(struct kernel_tensor x, struct kernel_index targets, uint64_t t,
                            uint64_t v, struct kernel_tensor loss, struct kernel_tensor weight,
                            struct kernel_fault *fault, struct kernel_site site,
                            cudaStream_t stream);
cudaError_t kernel_nll_loss_backward(struct kernel_tensor dloss, struct kernel_index targets,
                                     struct kernel_tensor dx, uint64_t t, uint64_t v,
                                     struct kernel_scratch scratch, struct kernel_fault *fault,
                                     struct kernel_site site, cudaStream_t stream);

/* The last two back in one pass: dx of log-probabilities y. */
cudaError_t kernel_cross_entropy_slope(struct kernel_tensor dloss, struct kernel_index targets,
                                       struct kernel_tensor y, struct kernel_tensor dx, uint64_t t,
                                       uint64_t v, struct kernel_scratch scratch,
                                       struct kernel_fault *fault, struct kernel_site site,
                                       cudaStream_t stream);

/* ---- kernel_optimizer.cu ---- */

struct kernel_update { /* one parameter: contiguous, `count` elements each */
    void *gradient, *parameter, *average, *average_square;
    uint64_t count;
    uint8_t gradient_dtype, parameter_dtype, average_dtype, average_square_dtype;
};
struct kernel_adam { /* constants of one step */
    float decay, take_g, keep_v, take_gg, step_size, root_scale, eps;
};
cudaError_t kernel_adamw(const struct kernel_update *updates, uint32_t count,
                         const struct kernel_adam *constants, cudaStream_t stream);
cudaError_t kernel_sgd(const struct kernel_update *updates, uint32_t count, float lr, float decay,
                       cudaStream_t stream);
/* parameter = gradient · coefficient, of each. */
cudaError_t kernel_scale(const struct kernel_update *updates, uint32_t count,
                         struct kernel_tensor coefficient, cudaStream_t stream);

/* ---- kernel_norms.cu ---- */

/* y[i] = 2-norm of x[i]. Scratch: 8 bytes for each 65,536 elements of the largest. */
cudaError_t kernel_norms(const struct kernel_tensor *x, const struct kernel_tensor *y,
                         uint32_t tensors, struct kernel_scratch scratch, cudaStream_t stream);
/* y = min(1, most / (norm + 1e-6)) */
cudaError_t kernel_clip_coefficient(struct kernel_tensor norm, struct kernel_tensor y, float most,
                                    cudaStream_t stream);

/* ---- kernel_attention.cu, kernel_attention_backward.cu ---- */

enum { KERNEL_HEAD_SIZE = 256 }; /* the largest d and d_v */

struct kernel_heads { /* rows of numbers beside each other: steps between them in elements */
    void *data;
    uint64_t sequence, token, head;
    uint8_t dtype;
};
struct kernel_scores { /* one number for each query and key of each head */
    void *data;
    uint64_t sequence, head, query, key;
    uint8_t dtype;
};

struct kernel_attention_args {
    struct kernel_heads q, k, v; /* (b, s, a, d), k and v (b, s_k, a / repeats, d or d_v) */
    struct kernel_scores bias;   /* added to the scores; data NULL: none */
    uint32_t b, s, s_k, a, d, d_v, repeats;
    float *logsumexp; /* (b, a, logsumexp_pitch), the first s of each row used */
    uint32_t logsumexp_pitch;
    float scale, softcap; /* kernel_attr's */
    uint32_t window;
    int causal;
};
cudaError_t kernel_attention(const struct kernel_attention_args *at, struct kernel_heads o,
                             cudaStream_t stream);
/* Scratch: s floats a head, for `repeats` heads at least; heads go in as many launches as it takes.
 * `o` and `dbias` data NULL: absent. */
cudaError_t kernel_attention_backward(const struct kernel_attention_args *at,
                                      struct kernel_heads dout, struct kernel_heads o,
                                      struct kernel_heads dq, struct kernel_heads dk,
                                      struct kernel_heads dv, struct kernel_scores dbias,
                                      struct kernel_scratch scratch, cudaStream_t stream);

/* ---- kernel_wait.cu ---- */

/* The device's clock, nanoseconds, into device memory; and holds the stream until so many of them
 * after *begin. */
cudaError_t kernel_clock(uint64_t *ns, cudaStream_t stream);
cudaError_t kernel_wait(const uint64_t *begin, uint64_t nanoseconds, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
