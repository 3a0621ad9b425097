/* cuda_matmul.h - for cuda_matmul.c and cuda_matmul_choice.c: products of matrices by cuBLASLt, one
 * for each form that was met. */
#ifndef SHARDPLAN_CUDA_MATMUL_H
#define SHARDPLAN_CUDA_MATMUL_H

#include "base/err.h"
#include "runtime/work/work.h"

#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>

enum { MATMUL_CHOICES = 8 }; /* of the heuristic's list that are looked at */

struct shape_key { /* compared as bytes: made from zero. As cuBLAS counts: first is our second */
    uint32_t kind, m, n, k;
    uint32_t first_pitch, second_pitch, out_pitch;
    uint8_t dtype, out_dtype, alignment, unused; /* alignment: of the least aligned, 16 at most */
    uint64_t workspace_bytes;
};

struct product { /* what was chosen for a key */
    struct shape_key key;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t first, second, out;
    cublasLtMatmulAlgo_t algorithm;
};

static inline bool matmul_has_bias(uint32_t kind)
{
    return kind == WORK_MATMUL_NT_BIAS || kind == WORK_MATMUL_NN_BIAS;
}

struct cuda_matmuls {
    cublasLtHandle_t handle;
    struct product *products;
    uint32_t count, cap;
};

/* ERR_DEVICE with the text of the call that failed. */
enum err_code matmul_check(const struct work *work, cublasStatus_t rc, const char *what,
                           struct err *err);

/* The product of a work's form, with the heuristic's first choice when it is new: lent until the
 * next one is made. *out NULL: nothing is to be summed. */
enum err_code matmul_find(struct cuda_matmuls *matmuls, const struct work *work,
                          struct product **out, struct err *err);

/* The heuristic's choices, best first, as it thinks: at least one. */
enum err_code matmul_list(struct cuda_matmuls *matmuls, const struct work *work,
                          const struct product *product,
                          cublasLtMatmulAlgo_t choices[MATMUL_CHOICES], uint32_t *count,
                          struct err *err);

struct matmul_memory { /* lent; out is written, and the workspace */
    const void *first, *second, *bias;
    void *out, *workspace;
    uint64_t workspace_bytes;
};

/* Queues it by one of the choices. */
cublasStatus_t matmul_run(struct cuda_matmuls *matmuls, const struct product *product,
                          const cublasLtMatmulAlgo_t *algorithm, const struct matmul_memory *memory,
                          cudaStream_t stream);

#endif
