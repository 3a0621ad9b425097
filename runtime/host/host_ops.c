/* host_ops.c - see host_ops.h: which function runs which kind. */
#include "runtime/host/host_ops_internal.h"

struct kernel_entry { /* one of the two */
    void (*run)(const struct work *work);
    enum err_code (*attempt)(const struct work *work, struct err *err);
};

static const struct kernel_entry kernels[WORK_KIND_COUNT] = {
    [WORK_ARANGE] = {.run = host_arange},
    [WORK_FILL] = {.run = host_fill},
    [WORK_EMBEDDING] = {.attempt = host_embedding},
    [WORK_EMBEDDING_BACKWARD] = {.attempt = host_embedding_backward},
    [WORK_MATMUL_NT] = {.attempt = host_matmul},
    [WORK_MATMUL_NT_BIAS] = {.attempt = host_matmul},
    [WORK_MATMUL_NN] = {.attempt = host_matmul},
    [WORK_MATMUL_TN] = {.attempt = host_matmul},
    [WORK_ADD] = {.run = host_broadcast},
    [WORK_ADD_IN_PLACE] = {.run = host_add_in_place},
    [WORK_MUL] = {.run = host_broadcast},
    [WORK_MUL_NUMBER] = {.run = host_mul_number},
    [WORK_CONJUGATE] = {.run = host_conjugate},
    [WORK_CAST] = {.run = host_unary},
    [WORK_REPEAT] = {.run = host_repeat},
    [WORK_SUM] = {.attempt = host_sum},
    [WORK_CAT] = {.run = host_cat},
    [WORK_SILU] = {.run = host_unary},
    [WORK_SILU_BACKWARD] = {.run = host_slope},
    [WORK_GELU] = {.run = host_unary},
    [WORK_GELU_BACKWARD] = {.run = host_slope},
    [WORK_GELU_TANH] = {.run = host_unary},
    [WORK_GELU_TANH_BACKWARD] = {.run = host_slope},
    [WORK_RELU] = {.run = host_unary},
    [WORK_RELU_BACKWARD] = {.run = host_slope},
    [WORK_RMS_NORM] = {.attempt = host_rms_norm},
    [WORK_RMS_NORM_BACKWARD] = {.attempt = host_rms_norm_backward},
    [WORK_LAYER_NORM] = {.attempt = host_layer_norm},
    [WORK_LAYER_NORM_BACKWARD] = {.attempt = host_layer_norm_backward},
    [WORK_ATTENTION] = {.attempt = host_attention},
    [WORK_ATTENTION_BACKWARD] = {.attempt = host_attention_backward},
    [WORK_LOG_SOFTMAX] = {.attempt = host_log_softmax},
    [WORK_LOG_SOFTMAX_BACKWARD] = {.attempt = host_log_softmax_backward},
    [WORK_NLL_LOSS] = {.attempt = host_nll_loss},
    [WORK_NLL_LOSS_BACKWARD] = {.attempt = host_nll_loss_backward},
    [WORK_PACK] = {.run = host_pack},
    [WORK_COPY_IN] = {.run = host_copy_in},
    [WORK_COPY_OUT] = {.run = host_copy_out},
    [WORK_CHUNK_CAT] = {.run = host_chunk_cat},
    [WORK_COPY] = {.run = host_copy_bytes},
    [WORK_ADAMW] = {.run = host_adamw},
    [WORK_SGD] = {.run = host_sgd},
    [WORK_NORMS] = {.run = host_norms},
    [WORK_STACK] = {.run = host_pack},
    [WORK_SQUARE] = {.run = host_unary},
    [WORK_SQUARE_ROOT] = {.run = host_unary},
    [WORK_VECTOR_NORM] = {.run = host_norms},
    [WORK_CLIP_COEFFICIENT] = {.run = host_clip_coefficient},
    [WORK_SCALE] = {.run = host_scale},
};

enum err_code host_run(const struct work *work, struct err *err)
{
    const struct kernel_entry *kernel = &kernels[work->kind];
    if (work_is_collective(work->kind)) /* they need the other ranks: the device's */
        return work_refuse(work, ERR_INTERNAL, err, "no kernel of the host computes that");
    TRY(work_check(work, err));
    if (kernel->attempt)
        return kernel->attempt(work, err);
    kernel->run(work);
    return ERR_OK;
}
