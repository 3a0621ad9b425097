/* cuda_matmul.c - a linear layer and its two gradients by cuBLASLt.
 *
 *     NT  y (t, o)  = x (t, h) · weight (o, h)ᵀ  [+ bias (o)]
 *     NN  dx (t, h) = dy (t, o) · weight (o, h)
 *     TN  dw (o, h) = dy (t, o)ᵀ · x (t, h)
 *
 * cuBLAS counts columns first: a row-major matrix is the transpose of what it sees. So each product
 * is asked for transposed, with the operands changed round (first is our second):
 *
 *     yᵀ = weight xᵀ          dxᵀ = weightᵀ dyᵀ          dwᵀ = xᵀ dy
 *          T       N                 N       N                 N  T
 *
 * A factor that lies in columns (turned.h) makes it another of the three.
 *
 * Sums are fp32 for every dtype: TF32 is not used, and a split sum may not be rounded to 16 bits
 * between its parts. What was chosen for a shape is kept: what cuda_matmul_choice.c has found
 * before the first step, or else what cuBLASLt's heuristic puts first. */
#include "runtime/cuda/cuda_matmul.h"

#include "runtime/cuda/cuda_device.h"
#include "runtime/work/operand.h"
#include "runtime/work/turned.h"

#include <stdlib.h>
#include <string.h>

enum err_code matmul_check(const struct work *work, cublasStatus_t rc, const char *what,
                           struct err *err)
{
    if (rc == CUBLAS_STATUS_SUCCESS)
        return ERR_OK;
    return work_refuse(work, ERR_DEVICE, err, "%s: %s", what, cublasLtGetStatusString(rc));
}
#define TRY_BLAS(work, err, call, what) TRY(matmul_check((work), (call), (what), (err)))

enum err_code cuda_matmuls_open(struct cuda_matmuls **out, struct err *err)
{
    cublasLtHandle_t handle = NULL;
    *out = NULL;
    const cublasStatus_t rc = cublasLtCreate(&handle);
    if (rc != CUBLAS_STATUS_SUCCESS)
        return err_set(err, ERR_DEVICE, "cublasLtCreate: %s", cublasLtGetStatusString(rc));
    struct cuda_matmuls *matmuls = xmalloc(sizeof *matmuls);
    *matmuls = (struct cuda_matmuls){.handle = handle};
    *out = matmuls;
    return ERR_OK;
}

static void drop_product(const struct product *product)
{
    if (product->what)
        cublasLtMatmulDescDestroy(product->what);
    if (product->first)
        cublasLtMatrixLayoutDestroy(product->first);
    if (product->second)
        cublasLtMatrixLayoutDestroy(product->second);
    if (product->out)
        cublasLtMatrixLayoutDestroy(product->out);
}

void cuda_matmuls_close(struct cuda_matmuls *matmuls)
{
    if (!matmuls)
        return;
    for (uint32_t i = 0; i < matmuls->count; i++)
        drop_product(&matmuls->products[i]);
    cublasLtDestroy(matmuls->handle);
    free(matmuls->products);
    free(matmuls);
}

static cudaDataType_t data_type(unsigned dtype)
{
    return dtype == DTYPE_FP32 ? CUDA_R_32F : dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* Operands as cuBLAS takes them: `first` is our second. */
struct operands {
    const struct work_operand *first, *second, *out;
};

static struct operands operands_of(const struct work *work)
{
    return (struct operands){work_in(work, 1), work_in(work, 0), work_out(work, 0)};
}

static uint32_t pitch_of(const struct work_operand *x)
{
    return x->pitch ? x->pitch : (uint32_t)operand_last(x);
}

/* Rows of a matrix are those of its last dim: a pitch must lie between them. */
static enum err_code check_form(const struct work *work, struct err *err)
{
    const struct operands at = operands_of(work);
    const struct work_operand *const all[] = {at.first, at.second, at.out};
    for (int i = 0; i < 3; i++)
        if (all[i]->pitch && operand_row_width(all[i]) != operand_last(all[i]))
            return work_refuse(work, ERR_UNSUPPORTED, err, "a matrix of heads with a pitch");
    if (at.first->dtype != at.second->dtype ||
        (at.out->dtype != at.first->dtype && at.out->dtype != DTYPE_FP32))
        return work_refuse(
            work, ERR_UNSUPPORTED, err, "%s by %s to %s", dtype_name((enum dtype)at.second->dtype),
            dtype_name((enum dtype)at.first->dtype), dtype_name((enum dtype)at.out->dtype));
    if (matmul_has_bias((uint32_t)work->kind) &&
        (work_in(work, 2)->dtype != at.out->dtype || work_in(work, 2)->pitch))
        return work_refuse(work, ERR_UNSUPPORTED, err, "a bias in another form than the result");
    return ERR_OK;
}

/* The largest power of two, 16 at most, that divides the address. */
static uint8_t alignment_of(const void *data)
{
    uint8_t alignment = 16;
    while ((uintptr_t)data % alignment)
        alignment /= 2;
    return alignment;
}

static uint8_t least_alignment(const struct work *work)
{
    uint8_t least = alignment_of(work_out(work, 0)->data);
    for (uint32_t i = 0; i < work->ins; i++) { /* a bias among them */
        const uint8_t alignment = alignment_of(work_in(work, i)->data);
        least = alignment < least ? alignment : least;
    }
    return least;
}

static struct shape_key key_of(const struct work *work)
{
    const struct operands at = operands_of(work);
    struct shape_key key;
    memset(&key, 0, sizeof key);
    key.kind = (uint32_t)work->kind;
    key.m = (uint32_t)operand_last(at.out);
    key.n = (uint32_t)operand_rows(at.out);
    key.k = (uint32_t)(work->kind == WORK_MATMUL_TN ? operand_rows(at.second)
                                                    : operand_last(at.second));
    key.first_pitch = pitch_of(at.first);
    key.second_pitch = pitch_of(at.second);
    key.out_pitch = pitch_of(at.out);
    key.dtype = at.first->dtype;
    key.out_dtype = at.out->dtype;
    key.alignment = least_alignment(work);
    key.workspace_bytes = work->workspace ? work->workspace_bytes : 0;
    return key;
}

static cublasStatus_t set_bias(const struct product *product, const void *bias)
{
    return cublasLtMatmulDescSetAttribute(product->what, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof bias);
}

static enum err_code make_product(const struct work *work, struct product *product, struct err *err)
{
    const struct shape_key *key = &product->key;
    const bool first_turned = work->kind == WORK_MATMUL_NT || work->kind == WORK_MATMUL_NT_BIAS;
    const bool second_turned = work->kind == WORK_MATMUL_TN;
    const cublasOperation_t first_op = first_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second_op = second_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY_BLAS(work, err, cublasLtMatmulDescCreate(&product->what, CUBLAS_COMPUTE_32F, CUDA_R_32F),
             "cublasLtMatmulDescCreate");
    TRY_BLAS(work, err,
             cublasLtMatmulDescSetAttribute(product->what, CUBLASLT_MATMUL_DESC_TRANSA, &first_op,
                                            sizeof first_op),
             "transpose");
    TRY_BLAS(work, err,
             cublasLtMatmulDescSetAttribute(product->what, CUBLASLT_MATMUL_DESC_TRANSB, &second_op,
                                            sizeof second_op),
             "transpose");
    if (matmul_has_bias((uint32_t)work->kind)) {
        const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        TRY_BLAS(work, err,
                 cublasLtMatmulDescSetAttribute(product->what, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                &epilogue, sizeof epilogue),
                 "epilogue");
        /* A choice goes by the pointer's alignment and serves every bias of this key: it is shown
         * none that is better aligned. Nothing reads what is there. */
        TRY_BLAS(work, err, set_bias(product, (const void *)(uintptr_t)key->alignment), "bias");
    }
    TRY_BLAS(work, err,
             cublasLtMatrixLayoutCreate(&product->first, data_type(key->dtype),
                                        first_turned ? key->k : key->m,
                                        first_turned ? key->m : key->k, key->first_pitch),
             "cublasLtMatrixLayoutCreate");
    TRY_BLAS(work, err,
             cublasLtMatrixLayoutCreate(&product->second, data_type(key->dtype),
                                        second_turned ? key->n : key->k,
                                        second_turned ? key->k : key->n, key->second_pitch),
             "cublasLtMatrixLayoutCreate");
    TRY_BLAS(work, err,
             cublasLtMatrixLayoutCreate(&product->out, data_type(key->out_dtype), key->m, key->n,
                                        key->out_pitch),
             "cublasLtMatrixLayoutCreate");
    return ERR_OK;
}

enum err_code matmul_list(struct cuda_matmuls *matmuls, const struct work *work,
                          const struct product *product,
                          cublasLtMatmulAlgo_t choices[MATMUL_CHOICES], uint32_t *count,
                          struct err *err)
{
    const uint64_t workspace = product->key.workspace_bytes;
    const uint32_t alignment = product->key.alignment;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_NONE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment},
    };
    cublasLtMatmulPreference_t preference = NULL;
    TRY_BLAS(work, err, cublasLtMatmulPreferenceCreate(&preference), "preference");
    cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof wishes / sizeof wishes[0] && rc == CUBLAS_STATUS_SUCCESS; i++)
        rc = cublasLtMatmulPreferenceSetAttribute(preference, wishes[i].name, wishes[i].value,
                                                  wishes[i].size);
    cublasLtMatmulHeuristicResult_t results[MATMUL_CHOICES];
    int found = 0;
    *count = 0;
    memset(results, 0, sizeof results);
    if (rc == CUBLAS_STATUS_SUCCESS)
        rc = cublasLtMatmulAlgoGetHeuristic(matmuls->handle, product->what, product->first,
                                            product->second, product->out, product->out, preference,
                                            MATMUL_CHOICES, results, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    TRY_BLAS(work, err, rc, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < found; i++)
        if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= workspace)
            choices[(*count)++] = results[i].algo;
    if (*count == 0)
        return work_refuse(work, ERR_UNSUPPORTED, err, "cuBLASLt has no kernel for it");
    return ERR_OK;
}

/* Shapes are few and repeat in order, so a search from the front is short. */
enum err_code matmul_find(struct cuda_matmuls *matmuls, const struct work *work,
                          struct product **out, struct err *err)
{
    struct work_operand operand[TURNED_OPERANDS];
    struct work turned;
    if (work_turned(work, operand, &turned))
        work = &turned;
    const struct shape_key key = key_of(work);
    *out = NULL;
    TRY(check_form(work, err));
    if (key.m == 0 || key.n == 0 || key.k == 0)
        return ERR_OK;
    for (uint32_t i = 0; i < matmuls->count; i++)
        if (memcmp(&matmuls->products[i].key, &key, sizeof key) == 0) {
            *out = &matmuls->products[i];
            return ERR_OK;
        }
    cublasLtMatmulAlgo_t choices[MATMUL_CHOICES];
    uint32_t count = 0;
    struct product made = {.key = key};
    enum err_code rc = make_product(work, &made, err);
    if (rc == ERR_OK)
        rc = matmul_list(matmuls, work, &made, choices, &count, err);
    if (rc != ERR_OK) {
        drop_product(&made);
        return rc;
    }
    made.algorithm = choices[0];
    ARRAY_GROW(matmuls->products, matmuls->count, matmuls->cap);
    matmuls->products[matmuls->count] = made;
    *out = &matmuls->products[matmuls->count++];
    return ERR_OK;
}

/* Nothing to sum is a sum of zero: the bias in every row, or zeros. */
static enum err_code fill_rows(const struct work *work, cudaStream_t stream, struct err *err)
{
    const struct work_operand *y = work_out(work, 0);
    const bool bias = matmul_has_bias((uint32_t)work->kind);
    const uint64_t size = dtype_bytes((enum dtype)y->dtype);
    const struct kernel_piece piece = {
        .from = bias ? work_in(work, 2)->data : NULL,
        .to = y->data,
        .rows = 1,
        .times = (uint32_t)operand_rows(y),
        .width = operand_last(y),
        .to_pitch = pitch_of(y),
        .unit = (uint8_t)size,
    };
    return cuda_launched(work, kernel_pieces(&piece, 1, stream), err);
}

cublasStatus_t matmul_run(struct cuda_matmuls *matmuls, const struct product *product,
                          const cublasLtMatmulAlgo_t *algorithm, const struct matmul_memory *memory,
                          cudaStream_t stream)
{
    const float one = 1.0F, zero = 0.0F;
    if (matmul_has_bias(product->key.kind)) {
        const cublasStatus_t rc = set_bias(product, memory->bias);
        if (rc != CUBLAS_STATUS_SUCCESS)
            return rc;
    }
    return cublasLtMatmul(matmuls->handle, product->what, &one, memory->first, product->first,
                          memory->second, product->second, &zero, memory->out, product->out,
                          memory->out, product->out, algorithm, memory->workspace,
                          memory->workspace_bytes, stream);
}

enum err_code cuda_matmul(struct cuda_matmuls *matmuls, const struct work *work,
                          cudaStream_t stream, struct err *err)
{
    struct work_operand operand[TURNED_OPERANDS];
    struct work turned;
    if (work_turned(work, operand, &turned))
        work = &turned;
    const struct operands at = operands_of(work);
    struct product *product = NULL;
    TRY(matmul_find(matmuls, work, &product, err));
    if (!product) /* which writes nothing where nothing is */
        return fill_rows(work, stream, err);
    const struct matmul_memory memory = {
        .first = at.first->data,
        .second = at.second->data,
        .bias = matmul_has_bias((uint32_t)work->kind) ? work_in(work, 2)->data : NULL,
        .out = at.out->data,
        .workspace = work->workspace,
        .workspace_bytes = work->workspace ? work->workspace_bytes : 0,
    };
    TRY_BLAS(work, err, matmul_run(matmuls, product, &product->algorithm, &memory, stream),
             "cublasLtMatmul");
    return ERR_OK;
}
