/* host_ops.c - see host_ops.h: which function runs which kind, and how many operands it takes. */
#include "runtime/host/host_ops_internal.h"

enum { ANY = UINT8_MAX };

struct entry {
    enum err_code (*run)(const struct work *work, struct err *err);
    uint8_t ins_least, ins_most, outs_least;
};

static const struct entry entries[WORK_KIND_COUNT] = {
    [WORK_ARANGE] = {host_arange, 0, 0, 1},
    [WORK_ONES] = {host_ones, 0, 1, 1},
    [WORK_EMBEDDING] = {host_embedding, 2, 2, 1},
    [WORK_EMBEDDING_BACKWARD] = {host_embedding_backward, 2, 2, 1},
    [WORK_MATMUL_NT] = {host_matmul, 2, 2, 1},
    [WORK_MATMUL_NT_BIAS] = {host_matmul, 3, 3, 1},
    [WORK_MATMUL_NN] = {host_matmul, 2, 2, 1},
    [WORK_MATMUL_TN] = {host_matmul, 2, 2, 1},
    [WORK_ADD] = {host_broadcast, 2, 2, 1},
    [WORK_ADD_IN_PLACE] = {host_add_in_place, 1, 1, 1},
    [WORK_MUL] = {host_broadcast, 2, 2, 1},
    [WORK_CONJUGATE] = {host_conjugate, 1, 1, 1},
    [WORK_CAST] = {host_unary, 1, 1, 1},
    [WORK_REPEAT] = {host_repeat, 1, 1, 1},
    [WORK_SUM] = {host_sum, 1, 1, 1},
    [WORK_CAT] = {host_cat, 1, ANY, 1},
    [WORK_SILU] = {host_unary, 1, 1, 1},
    [WORK_SILU_BACKWARD] = {host_slope, 2, 2, 1},
    [WORK_GELU_TANH] = {host_unary, 1, 1, 1},
    [WORK_GELU_TANH_BACKWARD] = {host_slope, 2, 2, 1},
    [WORK_RELU] = {host_unary, 1, 1, 1},
    [WORK_RELU_BACKWARD] = {host_slope, 2, 2, 1},
    [WORK_RMS_NORM] = {host_rms_norm, 2, 2, 2},
    [WORK_RMS_NORM_BACKWARD] = {host_rms_norm_backward, 4, 4, 1},
    [WORK_LAYER_NORM] = {host_layer_norm, 3, 3, 3},
    [WORK_LAYER_NORM_BACKWARD] = {host_layer_norm_backward, 5, 5, 1},
    [WORK_ATTENTION] = {host_attention, 3, 3, 2},
    [WORK_ATTENTION_BACKWARD] = {host_attention_backward, 5, 6, 3},
    [WORK_LOG_SOFTMAX] = {host_log_softmax, 1, 1, 1},
    [WORK_LOG_SOFTMAX_BACKWARD] = {host_log_softmax_backward, 2, 2, 1},
    [WORK_NLL_LOSS] = {host_nll_loss, 2, 2, 2},
    [WORK_NLL_LOSS_BACKWARD] = {host_nll_loss_backward, 2, 2, 1},
    [WORK_PACK] = {host_pack, 0, ANY, 1},
    [WORK_COPY_IN] = {host_copy_in, 0, ANY, 1},
    [WORK_COPY_OUT] = {host_copy_out, 1, 1, 0},
    [WORK_CHUNK_CAT] = {host_chunk_cat, 0, ANY, 1},
    [WORK_COPY] = {host_copy_bytes, 1, 1, 1},
    [WORK_ADAMW] = {host_adamw, 0, ANY, 0},
    [WORK_SGD] = {host_sgd, 0, ANY, 0},
    [WORK_NORMS] = {host_norms, 0, ANY, 0},
    [WORK_STACK] = {host_pack, 0, ANY, 1},
    [WORK_SQUARE] = {host_unary, 1, 1, 1},
    [WORK_SQUARE_ROOT] = {host_unary, 1, 1, 1},
    [WORK_VECTOR_NORM] = {host_norms, 1, 1, 1},
    [WORK_CLIP_COEFFICIENT] = {host_clip_coefficient, 1, 1, 1},
    [WORK_SCALE] = {host_scale, 1, ANY, 0},
};

enum err_code host_run(const struct work *work, struct err *err)
{
    if (work->kind == WORK_NOTHING)
        return ERR_OK;
    const struct entry *entry =
        (unsigned)work->kind < WORK_KIND_COUNT ? &entries[work->kind] : NULL;
    if (!entry || !entry->run) /* collectives need the other ranks: they are the device's */
        return host_refuse(work, ERR_INTERNAL, err, "no kernel of the host computes that");
    if (work->ins < entry->ins_least || (entry->ins_most != ANY && work->ins > entry->ins_most) ||
        work->outs < entry->outs_least)
        return host_refuse(work, ERR_INVALID, err,
                           "%u operands in and %u out; it takes %u or more in, %u or more out",
                           work->ins, work->outs, entry->ins_least, entry->outs_least);
    return entry->run(work, err);
}
