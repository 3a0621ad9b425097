/* aten_kernel.h - a call of PyTorch's dispatcher as a kernel of ours: its work, and its operands
 * with their strides, as TensorIterator sees them.
 *
 *     "mul.Tensor", [bf16 (4096, 14336), bf16 (4096, 14336)]  -->  WORK_MUL, two ins, one out
 *
 * For what PyTorch recorded: profiles of single kernels (kernels/) and streams of whole models
 * (recorded/). */
#ifndef SHARDPLAN_ATEN_KERNEL_H
#define SHARDPLAN_ATEN_KERNEL_H

#include "base/kernel.h"

enum { ATEN_TENSORS = 4096 }; /* of a call, at most: scans stack one a token */

struct aten_tensor {
    struct shape shape;
    struct strides strides;
    enum dtype dtype;
    uint32_t input; /* which argument it is, or is in; of a result, which one */
    uint32_t place; /* what becomes the operand's `place`; PLACE_NONE where nobody knows */
};

struct aten_call {
    const char *op;                        /* "add", without namespace and overload: lent */
    struct aten_tensor *tensors, *results; /* lent. Results that nobody wrote down follow from the
                                              rest */
    uint32_t count, result_count;
    /* The text of argument `input` where that is no tensor, "" where there is none. */
    const char *(*value)(const void *context, uint32_t input);
    const void *context;
    const char *traced; /* the name of the CUDA kernel that ran, "" where nobody knows: lent */
    double flops;       /* as PyTorch counts them; 0: it does not */
};

/* What its time goes by, for people; a class of measured kernels is a family. */
enum aten_family {
    ATEN_MAP,     /* elementwise: every tensor is an input, the result is new */
    ATEN_COMPARE, /* the same, into bool */
    ATEN_ASSIGN,  /* elementwise: into the first tensor, of which nothing is read */
    ATEN_JOIN,    /* cat */
    ATEN_ROWS,    /* of the first tensor, by the indices that are the last */
    ATEN_REDUCE,
    ATEN_ROWWISE_SOFTMAX,
    ATEN_NORM,
    ATEN_NORM_BACKWARD,
    ATEN_PRODUCT,
    ATEN_GROUPED, /* products of groups of rows */
    ATEN_CONVOLUTION,
    ATEN_ATTENTION,
    ATEN_PLAIN, /* each operand once, as it is */
};

struct aten_kernel { /* a kernel and what it lends: not to be moved */
    struct kernel kernel;
    struct operand operands[2 * ATEN_TENSORS];
    struct strides strides[2 * ATEN_TENSORS];
    enum aten_family family;
    bool known; /* there is a row for the op; else its work is WORK_OTHER, and it costs its bytes */
};

/* Strides of a tensor whose elements are one after the other. */
struct strides aten_dense(const struct shape *shape);

/* Fills *out. False: the tensors are not those that the op takes, or there are none. */
bool aten_kernel_make(const struct aten_call *call, struct aten_kernel *out);

#endif
