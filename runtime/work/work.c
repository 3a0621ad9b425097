/* work.c - see work.h. One table from the names of a plan to kinds of work, read from the top: the
 * first row that fits decides. A row names what it needs and leaves the rest open (NULL, EITHER),
 * so exceptions stand above the rule that they break.
 *
 * `backward` asks whether the kernel computes a gradient. A forward kernel that runs again for
 * activation checkpointing does not: callers pass false for it, or a recomputed mm would be taken
 * for the gradient of one. */
#include "runtime/work/work.h"

#include <stddef.h>
#include <string.h>

enum answer { EITHER, NO, YES };

enum { REFUSED = WORK_KIND_COUNT }; /* a name we know and cannot run */

struct meaning {
    const char *instruction_op, *label, *op; /* NULL: any */
    enum answer backward, weight_is_second, complex;
    unsigned kind;
};

#define FORWARD .backward = NO
#define BACKWARD .backward = YES

static const struct meaning meanings[] = {
    /* matrices: the op says whether the weight is (out, in), as everywhere but in conv1d */
    {"compute", "mm", "linear", FORWARD, .kind = WORK_MATMUL_NT},
    {"compute", "mm", "linear", BACKWARD, .weight_is_second = YES, .kind = WORK_MATMUL_NN},
    {"compute", "mm", "linear", BACKWARD, .weight_is_second = NO, .kind = WORK_MATMUL_TN},
    {"compute", "mm", "linear_bias", BACKWARD, .weight_is_second = YES, .kind = WORK_MATMUL_NN},
    {"compute", "mm", "linear_bias", BACKWARD, .weight_is_second = NO, .kind = WORK_MATMUL_TN},
    {"compute", "addmm", "linear_bias", FORWARD, .kind = WORK_MATMUL_NT_BIAS},

    /* elementwise; a Python number as second operand is no operand of ours */
    {"compute", "add.Tensor", "add_scalar", FORWARD, .kind = REFUSED},
    {"compute", "add.Tensor", .kind = WORK_ADD},
    {"compute", "add_.Tensor", .kind = WORK_ADD_IN_PLACE},
    {"compute", "mul.Tensor", "mul_scalar", .kind = REFUSED},
    {"compute", "mul.Tensor", .kind = WORK_MUL},
    {"compute", "_to_copy", .kind = WORK_CAST},
    {"compute", "silu", .kind = WORK_SILU},
    {"compute", "silu_backward", .kind = WORK_SILU_BACKWARD},
    {"compute", "gelu", "gelu", .kind = WORK_GELU},
    {"compute", "gelu_backward", "gelu", .kind = WORK_GELU_BACKWARD},
    {"compute", "gelu", "gelu_tanh", .kind = WORK_GELU_TANH},
    {"compute", "gelu_backward", "gelu_tanh", .kind = WORK_GELU_TANH_BACKWARD},
    {"compute", "relu", .kind = WORK_RELU},
    {"compute", "threshold_backward", .kind = WORK_RELU_BACKWARD},
    {"compute", "arange", .kind = WORK_ARANGE},
    {"compute", "ones_like", .kind = WORK_ONES},

    /* shapes; a clone that expands or reorders is more than a copy */
    {"compute", "clone", "repeat", FORWARD, .kind = WORK_REPEAT},
    {"compute", "clone", BACKWARD, .complex = YES, .kind = WORK_CONJUGATE},
    {"compute", "clone", "sum_groups", .kind = REFUSED},
    {"compute", "clone", .kind = WORK_COPY},
    {"compute", "copy_", .kind = WORK_COPY},
    {"compute", "sum.dim_IntList", "sum_groups", .kind = REFUSED},
    {"compute", "sum.dim_IntList", .kind = WORK_SUM},
    {"compute", "cat", .kind = WORK_CAT},

    /* the layers that have kernels of their own */
    {"compute", "embedding", .kind = WORK_EMBEDDING},
    {"compute", "embedding_dense_backward", .kind = WORK_EMBEDDING_BACKWARD},
    {"compute", "_fused_rms_norm", .kind = WORK_RMS_NORM},
    {"compute", "_fused_rms_norm_backward", .kind = WORK_RMS_NORM_BACKWARD},
    {"compute", "native_layer_norm", .kind = WORK_LAYER_NORM},
    {"compute", "native_layer_norm_backward", .kind = WORK_LAYER_NORM_BACKWARD},
    {"compute", "_scaled_dot_product_flash_attention", .kind = WORK_ATTENTION},
    {"compute", "_scaled_dot_product_flash_attention_backward", .kind = WORK_ATTENTION_BACKWARD},
    {"compute", "_scaled_dot_product_efficient_attention", .kind = WORK_ATTENTION},
    {"compute", "_scaled_dot_product_efficient_attention_backward",
     .kind = WORK_ATTENTION_BACKWARD},
    {"compute", "_log_softmax", .kind = WORK_LOG_SOFTMAX},
    {"compute", "_log_softmax_backward_data", .kind = WORK_LOG_SOFTMAX_BACKWARD},
    {"compute", "nll_loss_forward", .kind = WORK_NLL_LOSS},
    {"compute", "nll_loss_backward", .kind = WORK_NLL_LOSS_BACKWARD},

    /* gathering and reducing shards */
    {"compute", "_foreach_copy_", .kind = WORK_PACK},
    {"copy_in", "_foreach_copy_", .kind = WORK_COPY_IN},
    {"copy_in", "_chunk_cat", .kind = WORK_CHUNK_CAT},
    {"copy_out", "split_with_sizes_copy", .kind = WORK_COPY_OUT},
    {"copy_out", "copy_", .kind = WORK_COPY},
    {"host_to_device", "copy_", .kind = WORK_COPY},
    {"host_to_device", "_to_copy", .kind = WORK_CAST},
    {"device_to_host", "copy_", .kind = WORK_COPY},
    {"all_gather", "all_gather_into_tensor", .kind = WORK_ALL_GATHER},
    {"reduce_scatter", "reduce_scatter_tensor", .kind = WORK_REDUCE_SCATTER},
    {"all_reduce", "all_reduce", .kind = WORK_ALL_REDUCE},
    {"all_reduce", "_c10d_functional.all_reduce", .kind = WORK_ALL_REDUCE},

    /* clipping and the update; op "pow" is the model's, with an exponent of its own */
    {"compute", "_foreach_norm.Scalar", .kind = WORK_NORMS},
    {"compute", "stack", .kind = WORK_STACK},
    {"compute", "pow.Tensor_Scalar", "", FORWARD, .kind = WORK_SQUARE},
    {"compute", "sqrt", "", FORWARD, .kind = WORK_SQUARE_ROOT},
    {"compute", "linalg_vector_norm", .kind = WORK_VECTOR_NORM},
    {"compute", "clamp", "", .kind = WORK_CLIP_COEFFICIENT},
    {"compute", "_foreach_mul_.Tensor", .kind = WORK_SCALE},
    {"compute", "_foreach_sqrt", .kind = WORK_NOTHING},
    {"compute", "_c10d_functional.wait_tensor", .kind = WORK_NOTHING},
    {"optimizer", "adamw", .kind = WORK_ADAMW},
    {"optimizer", "_fused_adamw_", .kind = WORK_ADAMW},
    {"optimizer", "_foreach_add_.List", .kind = WORK_SGD},
};

static bool names_fit(const char *wanted, const char *name)
{
    return !wanted || strcmp(wanted, name) == 0;
}

static bool answers_fit(enum answer wanted, bool is)
{
    return wanted == EITHER || (wanted == YES) == is;
}

enum err_code work_resolve(const char *instruction_op, const char *label, const char *op,
                           bool backward, bool weight_is_second, bool complex, enum work_kind *out,
                           struct err *err)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        const struct meaning *m = &meanings[i];
        if (!names_fit(m->instruction_op, instruction_op) || !names_fit(m->label, label) ||
            !names_fit(m->op, op) || !answers_fit(m->backward, backward) ||
            !answers_fit(m->weight_is_second, weight_is_second) ||
            !answers_fit(m->complex, complex))
            continue;
        if (m->kind == REFUSED)
            break;
        *out = (enum work_kind)m->kind;
        return ERR_OK;
    }
    return err_set(err, ERR_UNSUPPORTED, "%s %s of op '%s'%s: no kernel computes that",
                   instruction_op, label, op, backward ? " (backward)" : "");
}

const char *work_name(enum work_kind kind)
{
    static const char *const names[] = {
#define X(name, text) #name,
        WORK_MAP(X)
#undef X
    };
    return (unsigned)kind < WORK_KIND_COUNT ? names[kind] : "?";
}
