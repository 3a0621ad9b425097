/* aten.h - the names of the operators that births and kernels are labelled with.
 *
 * PyTorch's dispatcher names, so that our event lists and traces read like its own. A storage is
 * labelled by the call that returned it first, which is not always the kernel that fills it: a
 * fused RMSNorm allocates with empty_like. */
#ifndef SHARDPLAN_ATEN_H
#define SHARDPLAN_ATEN_H

#define ATEN_MAP(X)                                                                                \
    X(NONE, "")                                                                                    \
    X(EMPTY, "empty.memory_format")                                                                \
    X(EMPTY_LIKE, "empty_like")                                                                    \
    X(ONES_LIKE, "ones_like")                                                                      \
    X(ZEROS, "zeros")                                                                              \
    X(NEW_ZEROS, "new_zeros")                                                                      \
    X(NEW_EMPTY, "new_empty")                                                                      \
    X(FULL, "full")                                                                                \
    X(NEW_FULL, "new_full")                                                                        \
    X(ARANGE, "arange")                                                                            \
    X(ARANGE_START, "arange.start")                                                                \
    X(ONES, "ones")                                                                                \
    X(CLONE, "clone")                                                                              \
    X(TO_COPY, "_to_copy")                                                                         \
    X(COPY_, "copy_")                                                                              \
    X(CAT, "cat")                                                                                  \
    X(STACK, "stack")                                                                              \
    X(EMBEDDING, "embedding")                                                                      \
    X(EMBEDDING_DENSE_BACKWARD, "embedding_dense_backward")                                        \
    X(MM, "mm")                                                                                    \
    X(ADDMM, "addmm")                                                                              \
    X(BMM, "bmm")                                                                                  \
    X(ADD, "add.Tensor")                                                                           \
    X(ADD_, "add_.Tensor")                                                                         \
    X(ADD_SCALAR, "add.Scalar")                                                                    \
    X(SUB, "sub.Tensor")                                                                           \
    X(RSUB, "rsub.Scalar")                                                                         \
    X(MUL, "mul.Tensor")                                                                           \
    X(MUL_SCALAR, "mul.Scalar")                                                                    \
    X(DIV, "div.Tensor")                                                                           \
    X(FLOOR_DIVIDE, "floor_divide")                                                                \
    X(DIV_SCALAR, "div.Scalar")                                                                    \
    X(NEG, "neg")                                                                                  \
    X(POW, "pow.Tensor_Scalar")                                                                    \
    X(MEAN_DIM, "mean.dim")                                                                        \
    X(MEAN, "mean")                                                                                \
    X(RSQRT, "rsqrt")                                                                              \
    X(RECIPROCAL, "reciprocal")                                                                    \
    X(SUM_DIM, "sum.dim_IntList")                                                                  \
    X(SUM, "sum")                                                                                  \
    X(TANH, "tanh")                                                                                \
    X(TANH_BACKWARD, "tanh_backward")                                                              \
    X(SILU, "silu")                                                                                \
    X(SILU_BACKWARD, "silu_backward")                                                              \
    X(GELU, "gelu")                                                                                \
    X(GELU_BACKWARD, "gelu_backward")                                                              \
    X(RELU, "relu")                                                                                \
    X(THRESHOLD_BACKWARD, "threshold_backward")                                                    \
    X(NATIVE_DROPOUT, "native_dropout")                                                            \
    X(NATIVE_DROPOUT_BACKWARD, "native_dropout_backward")                                          \
    X(BERNOULLI_, "bernoulli_.float")                                                              \
    X(NATIVE_LAYER_NORM, "native_layer_norm")                                                      \
    X(NATIVE_LAYER_NORM_BACKWARD, "native_layer_norm_backward")                                    \
    X(FUSED_RMS_NORM, "_fused_rms_norm")                                                           \
    X(FUSED_RMS_NORM_BACKWARD, "_fused_rms_norm_backward")                                         \
    X(FLASH_ATTENTION, "_scaled_dot_product_flash_attention")                                      \
    X(FLASH_ATTENTION_BACKWARD, "_scaled_dot_product_flash_attention_backward")                    \
    X(EFFICIENT_ATTENTION, "_scaled_dot_product_efficient_attention")                              \
    X(EFFICIENT_ATTENTION_BACKWARD, "_scaled_dot_product_efficient_attention_backward")            \
    X(SOFTMAX, "_softmax")                                                                         \
    X(SOFTMAX_BACKWARD, "_softmax_backward_data")                                                  \
    X(SAFE_SOFTMAX, "_safe_softmax")                                                               \
    X(TRIL, "tril")                                                                                \
    X(NEW_ONES, "new_ones")                                                                        \
    X(ALL, "all")                                                                                  \
    X(LOG_SOFTMAX, "_log_softmax")                                                                 \
    X(LOG_SOFTMAX_BACKWARD, "_log_softmax_backward_data")                                          \
    X(NLL_LOSS, "nll_loss_forward")                                                                \
    X(NLL_LOSS_BACKWARD, "nll_loss_backward")                                                      \
    X(SLICE_BACKWARD, "slice_backward")                                                            \
    X(SELECT_BACKWARD, "select_backward")                                                          \
    X(CONSTANT_PAD, "constant_pad_nd")                                                             \
    X(SCALAR_TENSOR, "scalar_tensor")                                                              \
    X(WHERE, "where.self")                                                                         \
    X(WHERE_SCALAR, "where.ScalarSelf")                                                            \
    X(MASKED_FILL, "masked_fill.Scalar")                                                           \
    X(EQ, "eq.Scalar")                                                                             \
    X(NE, "ne.Scalar")                                                                             \
    X(LT, "lt.Scalar")                                                                             \
    X(GT, "gt.Scalar")                                                                             \
    X(GT_TENSOR, "gt.Tensor")                                                                      \
    X(LE, "le.Tensor")                                                                             \
    X(GE, "ge.Tensor")                                                                             \
    X(ISINF, "isinf")                                                                              \
    X(ANY, "any")                                                                                  \
    X(CLAMP_TENSOR, "clamp.Tensor")                                                                \
    X(EQ_TENSOR, "eq.Tensor")                                                                      \
    X(LT_TENSOR, "lt.Tensor")                                                                      \
    X(LOGICAL_OR, "logical_or")                                                                    \
    X(LOGICAL_AND, "logical_and")                                                                  \
    X(LOGICAL_NOT, "logical_not")                                                                  \
    X(BITWISE_AND, "bitwise_and.Tensor")                                                           \
    X(BITWISE_NOT, "bitwise_not")                                                                  \
    X(MINIMUM, "minimum")                                                                          \
    X(ABS, "abs")                                                                                  \
    X(LOG, "log")                                                                                  \
    X(FULL_LIKE, "full_like")                                                                      \
    X(ZEROS_LIKE, "zeros_like")                                                                    \
    X(COS, "cos")                                                                                  \
    X(SIN, "sin")                                                                                  \
    X(CUMSUM, "cumsum")                                                                            \
    X(TOPK, "topk")                                                                                \
    X(SORT, "sort")                                                                                \
    X(GATHER, "gather")                                                                            \
    X(SCATTER, "scatter.src")                                                                      \
    X(INDEX, "index.Tensor")                                                                       \
    X(INDEX_PUT, "index_put")                                                                      \
    X(INDEX_ADD, "index_add")                                                                      \
    X(INDEX_SELECT, "index_select")                                                                \
    X(ONE_HOT, "one_hot")                                                                          \
    X(HISTC, "histc")                                                                              \
    X(GROUPED_MM, "_grouped_mm")                                                                   \
    X(FOREACH_SQRT, "_foreach_sqrt")                                                               \
    X(FOREACH_NORM, "_foreach_norm.Scalar")                                                        \
    X(LINALG_VECTOR_NORM, "linalg_vector_norm")                                                    \
    X(SQRT, "sqrt")                                                                                \
    X(CLAMP, "clamp")                                                                              \
    X(C10D_ALL_REDUCE, "_c10d_functional.all_reduce")                                              \
    X(C10D_WAIT_TENSOR, "_c10d_functional.wait_tensor")                                            \
    X(C10D_BROADCAST, "broadcast_")                                                                \
    X(LIFT_FRESH, "lift_fresh")                                                                    \
    X(WORKSPACE, "workspace")                                                                      \
    X(ACCUMULATE_GRAD, "accumulate_grad")                                                          \
    X(ALL_GATHER_INTO_TENSOR, "all_gather_into_tensor")                                            \
    X(REDUCE_SCATTER_TENSOR, "reduce_scatter_tensor")                                              \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(CHUNK_CAT, "_chunk_cat")                                                                     \
    X(SPLIT_WITH_SIZES_COPY, "split_with_sizes_copy")                                              \
    X(FOREACH_COPY_, "_foreach_copy_")                                                             \
    X(ADAMW, "adamw")                                                                              \
    X(FUSED_ADAMW_, "_fused_adamw_")                                                               \
    X(FOREACH_ADD_, "_foreach_add_.List")                                                          \
    X(FOREACH_MUL_, "_foreach_mul_.Tensor")

enum aten {
#define X(name, text) ATEN_##name,
    ATEN_MAP(X)
#undef X
        ATEN_COUNT
};

/* The dispatcher's name, for example "add.Tensor". */
const char *aten_name(enum aten aten);

#endif
