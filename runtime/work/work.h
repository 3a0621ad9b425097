/* work.h - one piece of work for a device: what an instruction of a plan asks to be computed.
 *
 * A plan names kernels as PyTorch does ("mm", "_fused_rms_norm"); work_resolve turns that into one
 * of the kinds below, once when a plan is loaded. Operands are tensors in device memory, row-major;
 * `pitch` is the distance between rows of the last dims of a chunk of a wider tensor (0:
 * contiguous). Arithmetic is in fp32 whatever the storage dtype; 16-bit results are rounded to
 * nearest even when stored.
 *
 * Letters: t tokens, h hidden, o out features, b sequences, s tokens a sequence, a heads, d head
 * size, v vocabulary. */
#ifndef SHARDPLAN_WORK_H
#define SHARDPLAN_WORK_H

#include "base/err.h"
#include "base/kernel.h"

/* X(name, operands: ins -> outs, and what it computes) */
#define WORK_MAP(X)                                                                                \
    X(ARANGE, "-> ids (n): 0, 1, 2, ...")                                                          \
    X(ONES, "-> y: every element is `scale`")                                                      \
    X(EMBEDDING, "ids (...), weight (v, h) -> y (..., h)")                                         \
    X(EMBEDDING_BACKWARD, "dy (..., h), ids (...) -> dweight (v, h), summed over equal ids")       \
    X(MATMUL_NT, "x (t, h), weight (o, h) -> y (t, o): x weightᵀ")                                 \
    X(MATMUL_NT_BIAS, "x (t, h), weight (o, h), bias (o) -> y (t, o)")                             \
    X(MATMUL_NN, "dy (t, o), weight (o, h) -> dx (t, h)")                                          \
    X(MATMUL_TN, "dy (t, o), x (t, h) -> dweight (o, h): dyᵀ x")                                   \
    X(ADD, "x, y (broadcast to x from the right) -> z")                                            \
    X(ADD_IN_PLACE, "x -> y: y += x")                                                              \
    X(MUL, "x, y (broadcast to x; complex64: complex product) -> z")                               \
    X(CONJUGATE, "x complex64 -> y")                                                               \
    X(CAST, "x -> y: same elements, y's dtype")                                                    \
    X(REPEAT, "x -> y: x repeated along y's dim attr.dim (x has 1 there, or is without it)")       \
    X(SUM, "x -> y: summed to y's shape (y's dims are x's, or 1, from the right)")                 \
    X(CAT, "parts ... -> y: joined along the last dim")                                            \
    X(SILU, "x -> y")                                                                              \
    X(SILU_BACKWARD, "dy, x -> dx")                                                                \
    X(GELU, "x -> y: 0.5x(1 + erf(x / sqrt(2)))")                                                  \
    X(GELU_BACKWARD, "dy, x -> dx")                                                                \
    X(GELU_TANH, "x -> y: 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3)))")                            \
    X(GELU_TANH_BACKWARD, "dy, x -> dx")                                                           \
    X(RELU, "x -> y")                                                                              \
    X(RELU_BACKWARD, "dy, y -> dx: dy where y > 0")                                                \
    X(RMS_NORM, "x (..., h), weight (h) -> y, rstd (..., 1) fp32; attr.eps")                       \
    X(RMS_NORM_BACKWARD, "dy, x, weight, rstd -> dx, dweight")                                     \
    X(LAYER_NORM, "x (..., h), weight, bias -> y, mean (..., 1), rstd (..., 1); attr.eps")         \
    X(LAYER_NORM_BACKWARD, "dy, x, weight, mean, rstd -> dx, dweight, dbias (as many as given)")   \
    X(ATTENTION, "q, k, v (b, s, a, d) -> o, logsumexp (b, a, s) fp32, two unused rng buffers")    \
    X(ATTENTION_BACKWARD, "do, q, k, v, logsumexp, o -> dq, dk, dv")                               \
    X(LOG_SOFTMAX, "x (t, v) -> y")                                                                \
    X(LOG_SOFTMAX_BACKWARD, "dy, y -> dx")                                                         \
    X(NLL_LOSS, "log-probabilities (t, v), targets (t) -> mean loss (), total weight ()")          \
    X(NLL_LOSS_BACKWARD, "dloss (), targets (t) -> dx (t, v)")                                     \
    X(PACK, "parts ... -> y: flattened one after the other, cast to y's dtype")                    \
    X(COPY_IN, "parts ... -> gather output: packed into slice `rank` of `ranks` equal slices")     \
    X(COPY_OUT, "gather output (ranks slices) -> parts ...: slice r holds each part's r-th chunk") \
    X(CHUNK_CAT, "gradients ... -> y: rank-major, each padded to `ranks` equal chunks of rows")    \
    X(COPY, "x -> y: same bytes")                                                                  \
    X(ALL_GATHER, "y -> y: in place, slice `rank` to all")                                         \
    X(REDUCE_SCATTER, "x -> y: average over ranks of slice `rank`")                                \
    X(ALL_REDUCE, "x -> y (may be x): average over ranks; sum for clipping (`sum`)")               \
    X(ADAMW, "gradients, then parameters, exp_avgs, exp_avg_sqs (n each) -> the same")             \
    X(SGD, "gradients, then parameters (n each) -> the same")                                      \
    X(NORMS, "gradients ... -> scalars ...: 2-norm of each")                                       \
    X(STACK, "scalars ... -> y (n)")                                                               \
    X(SQUARE, "x -> y")                                                                            \
    X(SQUARE_ROOT, "x -> y")                                                                       \
    X(VECTOR_NORM, "x (n) -> y (): 2-norm")                                                        \
    X(CLIP_COEFFICIENT, "norm () -> y (): min(1, max_norm / (norm + 1e-6))")                       \
    X(SCALE, "coefficient (), gradients ... -> the gradients times it")                            \
    X(NOTHING, "a kernel without effect on values (transients of foreach optimizers)")

enum work_kind {
#define X(name, text) WORK_##name,
    WORK_MAP(X)
#undef X
        WORK_KIND_COUNT
};

struct work_operand {
    void *data; /* device address of the first element (offset applied) */
    struct shape shape;
    uint32_t pitch; /* elements */
    uint8_t dtype;  /* enum dtype */
};

struct work { /* lent to the device until the stream has passed it */
    enum work_kind kind;
    uint32_t instruction; /* id, for messages and records */
    uint32_t ins, outs;
    const struct work_operand *operand; /* ins, then outs */
    struct kernel_attr attr;
    uint32_t rank, ranks; /* COPY_IN, COPY_OUT, CHUNK_CAT: place in the shard group */
    int group;            /* collectives: index of the communicator */
    bool sum;             /* ALL_REDUCE: sum instead of average */
    float scale;          /* ONES; MAX norm of CLIP_COEFFICIENT */
    const char *label;    /* the plan's name for it, for profilers; NULL: none */
    void *workspace;      /* the plan's memory for a kernel that wants some; NULL: none */
    uint64_t workspace_bytes;
    double wait_s; /* a collective without its peers (a rehearsal): what it is to take */
    struct {       /* ADAMW, SGD */
        float lr, beta1, beta2, eps, weight_decay;
        uint32_t step; /* from 1 */
    } update;
};

/* The kind a plan's kernel means. `label`, `op`: names from the plan; `weight_is_second`: whether
 * the second input is a parameter (tells a matmul's two gradients apart); `complex`: whether the
 * operands are complex. ERR_UNSUPPORTED names label and op. */
enum err_code work_resolve(const char *instruction_op, const char *label, const char *op,
                           bool backward, bool weight_is_second, bool complex, enum work_kind *out,
                           struct err *err);

const char *work_name(enum work_kind kind);

#endif
