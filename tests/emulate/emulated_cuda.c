/* emulated_cuda.c - the functions of the CUDA runtime and of cuBLASLt that the cuda backend calls,
 * on the CPU: memory is the host's, work is done when it is queued, an event is a time. */
#include <cblas.h>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/dtype.h"
#include "runtime/cuda/kernels.h"
#include "runtime/work/half.h"

/* ---- the runtime ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error of the emulated device";
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

/* A mapping for each: a page that says how large it is, the memory, pushed to the end of its pages,
 * and a page that nobody may touch, so that a kernel that runs past its operand is stopped there.
 */
enum { PAGE = 4096 };

struct mapping {
    size_t bytes;
};

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    const size_t rounded = (bytes + 15) / 16 * 16, pages = (rounded + PAGE - 1) / PAGE * PAGE;
    const size_t whole = pages + 2 * (size_t)PAGE;
    char *map = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    mprotect(map + PAGE + pages, PAGE, PROT_NONE);
    ((struct mapping *)(void *)map)->bytes = whole;
    *memory = map + PAGE + pages - rounded;
    memset(*memory, 0xff, bytes); /* NaN: memory that nobody wrote may be anything */
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (!memory)
        return cudaSuccess;
    char *map = (char *)((uintptr_t)memory / PAGE * PAGE) - PAGE;
    return munmap(map, ((struct mapping *)(void *)map)->bytes) == 0 ? cudaSuccess
                                                                    : cudaErrorInvalidValue;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    *stream = malloc(1);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *context)
{
    (void)stream;
    function(context);
    return cudaSuccess;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    double *time = malloc(sizeof *time);
    *time = 0;
    *event = (cudaEvent_t)(void *)time;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const double now = now_ms();
    (void)stream;
    memcpy(event, &now, sizeof now);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    double begin, end;
    memcpy(&begin, from, sizeof begin);
    memcpy(&end, to, sizeof end);
    *ms = (float)(end - begin);
    return cudaSuccess;
}

cudaError_t kernel_clock(uint64_t *ns, cudaStream_t stream)
{
    struct timespec now;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *ns = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
    return cudaSuccess;
}

cudaError_t kernel_wait(const uint64_t *begin, uint64_t nanoseconds, cudaStream_t stream)
{
    const uint64_t end = *begin + nanoseconds;
    const struct timespec time = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    (void)stream;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
    return cudaSuccess;
}

/* ---- cuBLASLt: one column-major product in fp32 ---- */

struct what {
    cublasOperation_t op[2];
    cublasLtEpilogue_t epilogue;
    const void *bias;
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
    *out = malloc(1);
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
    (void)preference;
    (void)value;
    return bytes == (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4)
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t what,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    (void)handle, (void)what, (void)a, (void)b, (void)c, (void)d, (void)preference;
    memset(results, 0, (size_t)asked * sizeof *results);
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
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

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t compute,
                              const void *alpha, const void *A, cublasLtMatrixLayout_t a,
                              const void *B, cublasLtMatrixLayout_t b, const void *beta,
                              const void *C, cublasLtMatrixLayout_t c, void *D,
                              cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const struct what *what = (const struct what *)(const void *)compute;
    const struct layout *first = (const struct layout *)(const void *)a;
    const struct layout *second = (const struct layout *)(const void *)b;
    const struct layout *out = (const struct layout *)(const void *)d;
    const uint64_t m = out->rows, n = out->columns;
    const uint64_t k = what->op[0] == CUBLAS_OP_T ? first->rows : first->columns;
    (void)handle, (void)alpha, (void)beta, (void)C, (void)c, (void)algorithm, (void)stream;
    if ((what->op[0] == CUBLAS_OP_T ? first->columns : first->rows) != m ||
        (what->op[1] == CUBLAS_OP_T ? second->columns : second->rows) != k ||
        (what->op[1] == CUBLAS_OP_T ? second->rows : second->columns) != n)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace) /* it may be written: whoever shares it wrongly shall notice */
        memset(workspace, 0xff, workspace_bytes < 4096 ? workspace_bytes : 4096);
    float *x = copy_of(A, first), *y = copy_of(B, second), *z = malloc((m * n + 1) * sizeof *z);
    cblas_sgemm(CblasColMajor, what->op[0] == CUBLAS_OP_T ? CblasTrans : CblasNoTrans,
                what->op[1] == CUBLAS_OP_T ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n,
                (blasint)k, 1, x, (blasint)first->rows, y, (blasint)second->rows, 0, z, (blasint)m);
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
            const float bias =
                what->epilogue == CUBLASLT_EPILOGUE_BIAS ? load(what->bias, out->type, i) : 0;
            store(D, out->type, j * (uint64_t)out->pitch + i, z[j * m + i] + bias);
        }
    free(x);
    free(y);
    free(z);
    return CUBLAS_STATUS_SUCCESS;
}
