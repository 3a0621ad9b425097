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

enum kernel_dtype { KERNEL_FP32, KERNEL_BF16, KERNEL_FP16 };

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

cudaError_t kernel_arange(struct kernel_index ids, cudaStream_t stream);
cudaError_t kernel_fill(struct kernel_tensor y, float value, cudaStream_t stream);

/* ---- kernel_elementwise.cu ---- */

enum kernel_unary_op {
    KERNEL_CAST,
    KERNEL_SILU,
    KERNEL_GELU,
    KERNEL_GELU_TANH,
    KERNEL_RELU,
    KERNEL_SQUARE,
    KERNEL_SQUARE_ROOT
};
enum kernel_slope_op {
    KERNEL_SILU_SLOPE,
    KERNEL_GELU_SLOPE,
    KERNEL_GELU_TANH_SLOPE,
    KERNEL_RELU_SLOPE
};

/* y = f(x); y = factor x; dx = dy f'(x), of relu: x is y; y += x. Counts are equal. What is written
 * may be what is read, element for element. */
cudaError_t kernel_unary(enum kernel_unary_op f, struct kernel_tensor x, struct kernel_tensor y,
                         cudaStream_t stream);
cudaError_t kernel_mul_number(struct kernel_tensor x, struct kernel_tensor y, float factor,
                              cudaStream_t stream);
cudaError_t kernel_slope(enum kernel_slope_op f, struct kernel_tensor dy, struct kernel_tensor x,
                         struct kernel_tensor dx, cudaStream_t stream);
cudaError_t kernel_add_in_place(struct kernel_tensor x, struct kernel_tensor y,
                                cudaStream_t stream);

/* ---- kernel_broadcast.cu ---- */

/* Dims of z, outermost first, of size 1 before those that there are, and for x and y the step in
 * elements of their list that one step along a dim of z makes: 0 where they are repeated. */
struct kernel_spread {
    uint32_t dim[KERNEL_DIMS];
    uint64_t inverse[KERNEL_DIMS]; /* kernel_inverse(dim) */
    uint64_t x_step[KERNEL_DIMS], y_step[KERNEL_DIMS];
};

/* z = x + y or x · y. `flat`: all three have one shape. */
cudaError_t kernel_broadcast(int multiply, int flat, const struct kernel_spread *spread,
                             struct kernel_tensor x, struct kernel_tensor y, struct kernel_tensor z,
                             cudaStream_t stream);
/* The same for pairs (re, im) of fp32; `count` complex elements of z, contiguous. */
cudaError_t kernel_multiply_complex(const struct kernel_spread *spread, const void *x,
                                    const void *y, void *z, uint64_t count, cudaStream_t stream);
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

/* The same for any dims. Dims of x, outermost first, in two lists: those that y keeps and those
 * that are summed, with their steps in elements of x's list; y's elements in its own order are the
 * kept ones. */
struct kernel_reduction {
    uint32_t kept, summed;
    uint32_t kept_dim[KERNEL_DIMS], summed_dim[KERNEL_DIMS];
    uint64_t kept_step[KERNEL_DIMS], summed_step[KERNEL_DIMS];
    uint64_t outputs, terms; /* their products */
};
cudaError_t kernel_sum_places(const struct kernel_reduction *reduction, struct kernel_tensor x,
                              struct kernel_tensor y, cudaStream_t stream);

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

enum { KERNEL_HEAD_SIZE = 256 }; /* the largest d */

struct kernel_attention_args {
    struct kernel_tensor q, k, v; /* (b, s, a, d), k and v (b, s_k, a, d) */
    uint32_t b, s, s_k, a, d;
    float *logsumexp; /* (b, a, logsumexp_pitch), the first s of each row used */
    uint32_t logsumexp_pitch;
    float scale;
    int causal;
};
cudaError_t kernel_attention(const struct kernel_attention_args *at, struct kernel_tensor o,
                             cudaStream_t stream);
/* Scratch: s floats a head, for one head at least; heads go in as many launches as it takes. `o`
 * data NULL: absent. */
cudaError_t kernel_attention_backward(const struct kernel_attention_args *at,
                                      struct kernel_tensor dout, struct kernel_tensor o,
                                      struct kernel_tensor dq, struct kernel_tensor dk,
                                      struct kernel_tensor dv, struct kernel_scratch scratch,
                                      cudaStream_t stream);

/* ---- kernel_wait.cu ---- */

/* The device's clock, nanoseconds, into device memory; and holds the stream until so many of them
 * after *begin. */
cudaError_t kernel_clock(uint64_t *ns, cudaStream_t stream);
cudaError_t kernel_wait(const uint64_t *begin, uint64_t nanoseconds, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
