/* emulated_cublas.c - the functions of cuBLASLt that the cuda backend calls: one column-major
 * product in fp32, by OpenBLAS. The heuristic knows three kernels for each:
 *
 *     0   the whole sum at once
 *     1   two halves of the sum, added: other bits
 *     2   refuses when it is to run
 *
 * Each is for operands that are aligned as the preferences say, and a bias that is aligned as the
 * one it was asked with: on others a GPU's kernel would fault, and here it is refused.
 *
 * SHARDRUN_EMULATED_FASTEST: "1 0" has kernel 1 fastest on rank 0 and kernel 0 on rank 1, the
 * others by far slower; otherwise time is what it is. */
#include "runtime/work/half.h"
#include "tests/emulate/emulated_stream.h"

#include <cblas.h>
#include <cublasLt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 3 };
#define SLOW_MS 1e6 /* no machine is as busy as that */

struct what {
    cublasOperation_t op[2];
    cublasLtEpilogue_t epilogue;
    const void *bias;
};

struct preference {
    uint32_t alignment; /* of every matrix */
};

struct layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t pitch;
};

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "ok" : "an error of the emulated cuBLASLt";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct what *what = malloc(sizeof *what);
    *what = (struct what){.epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    *out = (cublasLtMatmulDesc_t)(void *)what;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t what)
{
    free(what);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t out,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes)
{
    struct what *what = (struct what *)(void *)out;
    if (name == CUBLASLT_MATMUL_DESC_TRANSA && bytes == sizeof what->op[0])
        memcpy(&what->op[0], value, bytes);
    else if (name == CUBLASLT_MATMUL_DESC_TRANSB && bytes == sizeof what->op[1])
        memcpy(&what->op[1], value, bytes);
    else if (name == CUBLASLT_MATMUL_DESC_EPILOGUE && bytes == sizeof what->epilogue)
        memcpy(&what->epilogue, value, bytes);
    else if (name == CUBLASLT_MATMUL_DESC_BIAS_POINTER && bytes == sizeof what->bias)
        memcpy(&what->bias, value, bytes);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t pitch)
{
    struct layout *layout = malloc(sizeof *layout);
    if (pitch < (int64_t)rows) {
        free(layout);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    *layout = (struct layout){type, rows, columns, pitch};
    *out = (cublasLtMatrixLayout_t)(void *)layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    struct preference *preference = malloc(sizeof *preference);
    *preference = (struct preference){.alignment = 256};
    *out = (cublasLtMatmulPreference_t)(void *)preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes)
{
    struct preference *all = (struct preference *)(void *)preference;
    uint32_t alignment;
    if (bytes == sizeof alignment && name >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
        name <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
        memcpy(&alignment, value, bytes);
        all->alignment = alignment < all->alignment ? alignment : all->alignment;
    }
    return bytes == (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

static uint64_t alignment_of(const void *address)
{
    uint64_t alignment = 256;
    while ((uintptr_t)address % alignment)
        alignment /= 2;
    return alignment;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t what,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    const struct what *asked_with = (const struct what *)(const void *)what;
    const struct preference *wishes = (const struct preference *)(const void *)preference;
    (void)handle, (void)a, (void)b, (void)c, (void)d;
    memset(results, 0, (size_t)asked * sizeof *results);
    for (*found = 0; *found < KERNELS && *found < asked; (*found)++) {
        results[*found].algo.data[0] = (uint64_t)*found;
        results[*found].algo.data[1] = wishes->alignment;
        results[*found].algo.data[2] = alignment_of(asked_with->bias);
    }
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

/* Whether SHARDRUN_EMULATED_FASTEST has another kernel fastest on this rank. */
static bool is_slow(uint64_t kernel)
{
    const char *all = getenv("SHARDRUN_EMULATED_FASTEST");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    char *end = NULL;
    if (!all)
        return false;
    unsigned long fastest = strtoul(all, &end, 10);
    for (int r = rank ? atoi(rank) : 0; r > 0; r--)
        fastest = strtoul(end, &end, 10);
    return kernel != fastest;
}

static float load(const void *data, cudaDataType_t type, uint64_t i)
{
    if (type == CUDA_R_32F)
        return ((const float *)data)[i];
    const uint16_t half = ((const uint16_t *)data)[i];
    return type == CUDA_R_16BF ? float_from_bf16(half) : float_from_fp16(half);
}

static void store(void *data, cudaDataType_t type, uint64_t i, float value)
{
    if (type == CUDA_R_32F)
        ((float *)data)[i] = value;
    else
        ((uint16_t *)data)[i] =
            type == CUDA_R_16BF ? bf16_from_float(value) : fp16_from_float(value);
}

static float *copy_of(const void *data, const struct layout *layout)
{
    float *copy = malloc((layout->rows * layout->columns + 1) * sizeof *copy);
    for (uint64_t j = 0; j < layout->columns; j++)
        for (uint64_t i = 0; i < layout->rows; i++)
            copy[j * layout->rows + i] = load(data, layout->type, j * (uint64_t)layout->pitch + i);
    return copy;
}

struct product {
    struct what what;
    struct layout first, second, out;
    const void *A, *B;
    void *D, *workspace;
    size_t workspace_bytes;
    uint64_t kernel;
};

static int run_product(void *context)
{
    const struct product *p = context;
    const struct layout *first = &p->first, *second = &p->second, *out = &p->out;
    const enum CBLAS_TRANSPOSE turn[2] = {
        p->what.op[0] == CUBLAS_OP_T ? CblasTrans : CblasNoTrans,
        p->what.op[1] == CUBLAS_OP_T ? CblasTrans : CblasNoTrans,
    };
    const uint64_t m = out->rows, n = out->columns;
    const uint64_t k = turn[0] == CblasTrans ? first->rows : first->columns;
    if (p->workspace) /* it may be written: whoever shares it wrongly shall notice */
        memset(p->workspace, 0xff, p->workspace_bytes < 4096 ? p->workspace_bytes : 4096);
    float *x = copy_of(p->A, first), *y = copy_of(p->B, second);
    float *z = malloc((m * n + 1) * sizeof *z);
    const uint64_t half = p->kernel == 1 ? k / 2 : 0; /* of the sum, in a product of its own */
    if (is_slow(p->kernel))
        emulated_spend(SLOW_MS);
    memset(z, 0, (m * n + 1) * sizeof *z);
    for (uint64_t from = 0, to = half ? half : k; from < k; from = to, to = k)
        cblas_sgemm(CblasColMajor, turn[0], turn[1], (blasint)m, (blasint)n, (blasint)(to - from),
                    1, x + from * (turn[0] == CblasTrans ? 1 : first->rows), (blasint)first->rows,
                    y + from * (turn[1] == CblasTrans ? second->rows : 1), (blasint)second->rows, 1,
                    z, (blasint)m);
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
            const bool biased = p->what.epilogue == CUBLASLT_EPILOGUE_BIAS;
            const float bias = biased ? load(p->what.bias, out->type, i) : 0;
            store(p->D, out->type, j * (uint64_t)out->pitch + i, z[j * m + i] + bias);
        }
    free(x);
    free(y);
    free(z);
    return 1;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t compute,
                              const void *alpha, const void *A, cublasLtMatrixLayout_t a,
                              const void *B, cublasLtMatrixLayout_t b, const void *beta,
                              const void *C, cublasLtMatrixLayout_t c, void *D,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const struct product p = {
        .what = *(const struct what *)(const void *)compute,
        .first = *(const struct layout *)(const void *)a,
        .second = *(const struct layout *)(const void *)b,
        .out = *(const struct layout *)(const void *)d,
        .A = A,
        .B = B,
        .D = D,
        .workspace = workspace,
        .workspace_bytes = workspace_bytes,
        .kernel = algorithm->data[0],
    };
    const bool turned[2] = {p.what.op[0] == CUBLAS_OP_T, p.what.op[1] == CUBLAS_OP_T};
    const uint64_t k = turned[0] ? p.first.rows : p.first.columns;
    (void)handle, (void)alpha, (void)beta, (void)C, (void)c;
    if (p.kernel >= KERNELS - 1)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (((uintptr_t)A | (uintptr_t)B | (uintptr_t)D) % algorithm->data[1] ||
        (p.what.epilogue == CUBLASLT_EPILOGUE_BIAS && (uintptr_t)p.what.bias % algorithm->data[2]))
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((turned[0] ? p.first.columns : p.first.rows) != p.out.rows ||
        (turned[1] ? p.second.columns : p.second.rows) != k ||
        (turned[1] ? p.second.rows : p.second.columns) != p.out.columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cudaPeekAtLastError() != cudaSuccess) /* taken for this launch's */
        return CUBLAS_STATUS_EXECUTION_FAILED;
    return emulated_queue_copy(stream, run_product, &p, sizeof p) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
