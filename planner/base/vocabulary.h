/* vocabulary.h - the two words for a kernel: its label, for people, and its work, for everything
 * else. A new operator brings its words here.
 *
 * Labels are the names of PyTorch's dispatcher, so that our event lists and traces read like its
 * own; PyTorch has one ("mm") for three different products. A storage is labelled by the call that
 * returned it first, which is not always the kernel that fills it: a fused RMSNorm allocates with
 * empty_like.
 *
 * Work is what a kernel computes: one name for each computation, with its operands. Whoever emits a
 * kernel names it; cost, calibration and execution go by that name and by nothing else. Operands
 * are row-major; ins -> outs. `attr.` are the members of struct kernel_attr. Arithmetic is in fp32
 * whatever the storage dtype. Not every backend can run each of them.
 *
 * Letters: t tokens, h hidden, o out features, n, m, k any sizes, b sequences, s tokens a sequence,
 * a heads, d head size, v vocabulary, g groups. */
#ifndef SHARDPLAN_VOCABULARY_H
#define SHARDPLAN_VOCABULARY_H

#include <stdbool.h>

/* ---- labels ---- */

/* X(NAME, the dispatcher's name) */
#define ATEN_MAP(X)                                                                                \
    X(NONE, "")                                                                                    \
    X(EMPTY, "empty.memory_format")                                                                \
    X(EMPTY_STRIDED, "empty_strided")                                                              \
    X(EMPTY_LIKE, "empty_like")                                                                    \
    X(ONES_LIKE, "ones_like")                                                                      \
    X(ZEROS, "zeros")                                                                              \
    X(NEW_ZEROS, "new_zeros")                                                                      \
    X(ARANGE, "arange")                                                                            \
    X(ARANGE_START, "arange.start")                                                                \
    X(FULL, "full")                                                                                \
    X(POW_TENSORS, "pow.Tensor_Tensor")                                                            \
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
    X(ADDMM_, "addmm_")                                                                            \
    X(BMM, "bmm")                                                                                  \
    X(BADDBMM, "baddbmm")                                                                          \
    X(ADD, "add.Tensor")                                                                           \
    X(ADD_, "add_.Tensor")                                                                         \
    X(SUB, "sub.Tensor")                                                                           \
    X(RSUB, "rsub.Scalar")                                                                         \
    X(MUL, "mul.Tensor")                                                                           \
    X(MUL_SCALAR, "mul.Scalar")                                                                    \
    X(DIV, "div.Tensor")                                                                           \
    X(FLOOR_DIVIDE, "floor_divide")                                                                \
    X(DIV_SCALAR, "div.Scalar")                                                                    \
    X(DIV_, "div_.Tensor")                                                                         \
    X(NEG, "neg")                                                                                  \
    X(POW, "pow.Tensor_Scalar")                                                                    \
    X(MEAN_DIM, "mean.dim")                                                                        \
    X(RSQRT, "rsqrt")                                                                              \
    X(ERFINV, "erfinv")                                                                            \
    X(STD, "std.correction")                                                                       \
    X(RECIPROCAL, "reciprocal")                                                                    \
    X(SUM_DIM, "sum.dim_IntList")                                                                  \
    X(TANH, "tanh")                                                                                \
    X(TANH_BACKWARD, "tanh_backward")                                                              \
    X(SIGMOID, "sigmoid")                                                                          \
    X(SIGMOID_BACKWARD, "sigmoid_backward")                                                        \
    X(SILU, "silu")                                                                                \
    X(SILU_BACKWARD, "silu_backward")                                                              \
    X(GELU, "gelu")                                                                                \
    X(GELU_BACKWARD, "gelu_backward")                                                              \
    X(RELU, "relu")                                                                                \
    X(SOFTPLUS, "softplus")                                                                        \
    X(SOFTPLUS_BACKWARD, "softplus_backward")                                                      \
    X(EXPM1, "expm1")                                                                              \
    X(ADD_SCALAR, "add.Scalar")                                                                    \
    X(MASKED_FILL_, "masked_fill_.Scalar")                                                         \
    X(THRESHOLD_BACKWARD, "threshold_backward")                                                    \
    X(NATIVE_DROPOUT, "native_dropout")                                                            \
    X(NATIVE_DROPOUT_BACKWARD, "native_dropout_backward")                                          \
    X(NATIVE_LAYER_NORM, "native_layer_norm")                                                      \
    X(NATIVE_LAYER_NORM_BACKWARD, "native_layer_norm_backward")                                    \
    X(FUSED_RMS_NORM, "_fused_rms_norm")                                                           \
    X(FUSED_RMS_NORM_BACKWARD, "_fused_rms_norm_backward")                                         \
    X(FLASH_ATTENTION, "_scaled_dot_product_flash_attention")                                      \
    X(CUDNN_ATTENTION, "_scaled_dot_product_cudnn_attention")                                      \
    X(CUDNN_ATTENTION_BACKWARD, "_scaled_dot_product_cudnn_attention_backward")                    \
    X(FLASH_ATTENTION_BACKWARD, "_scaled_dot_product_flash_attention_backward")                    \
    X(FLASH_ATTN, "flash_attn._flash_attn_forward")                                                \
    X(FLASH_ATTN_BACKWARD, "flash_attn._flash_attn_backward")                                      \
    X(FLASH_ATTN_VARLEN, "flash_attn._flash_attn_varlen_forward")                                  \
    X(FLASH_ATTN_VARLEN_BACKWARD, "flash_attn._flash_attn_varlen_backward")                        \
    X(EFFICIENT_ATTENTION, "_scaled_dot_product_efficient_attention")                              \
    X(EFFICIENT_ATTENTION_BACKWARD, "_scaled_dot_product_efficient_attention_backward")            \
    X(SOFTMAX, "_softmax")                                                                         \
    X(SOFTMAX_BACKWARD, "_softmax_backward_data")                                                  \
    X(SAFE_SOFTMAX, "_safe_softmax")                                                               \
    X(ISNEGINF, "isneginf")                                                                        \
    X(TRIL, "tril")                                                                                \
    X(NEW_ONES, "new_ones")                                                                        \
    X(ALL, "all")                                                                                  \
    X(LOG_SOFTMAX, "_log_softmax")                                                                 \
    X(LOG_SOFTMAX_BACKWARD, "_log_softmax_backward_data")                                          \
    X(NLL_LOSS, "nll_loss_forward")                                                                \
    X(NLL_LOSS_BACKWARD, "nll_loss_backward")                                                      \
    X(FUSED_CROSS_ENTROPY, "_fused_cross_entropy")                                                 \
    X(FUSED_CROSS_ENTROPY_BACKWARD, "_fused_cross_entropy_backward")                               \
    X(SLICE_BACKWARD, "slice_backward")                                                            \
    X(SELECT_BACKWARD, "select_backward")                                                          \
    X(CONSTANT_PAD, "constant_pad_nd")                                                             \
    X(SCALAR_TENSOR, "scalar_tensor")                                                              \
    X(WHERE, "where.self")                                                                         \
    X(MASKED_FILL, "masked_fill.Scalar")                                                           \
    X(EQ, "eq.Scalar")                                                                             \
    X(NE, "ne.Scalar")                                                                             \
    X(LT, "lt.Scalar")                                                                             \
    X(GT, "gt.Scalar")                                                                             \
    X(GT_TENSOR, "gt.Tensor")                                                                      \
    X(LE, "le.Tensor")                                                                             \
    X(GE, "ge.Tensor")                                                                             \
    X(LE_SCALAR, "le.Scalar")                                                                      \
    X(GE_SCALAR, "ge.Scalar")                                                                      \
    X(ISINF, "isinf")                                                                              \
    X(ANY, "any")                                                                                  \
    X(CLAMP_TENSOR, "clamp.Tensor")                                                                \
    X(EQ_TENSOR, "eq.Tensor")                                                                      \
    X(LT_TENSOR, "lt.Tensor")                                                                      \
    X(LOGICAL_OR, "logical_or")                                                                    \
    X(LOGICAL_AND, "logical_and")                                                                  \
    X(BITWISE_AND, "bitwise_and.Tensor")                                                           \
    X(MINIMUM, "minimum")                                                                          \
    X(MAX, "max")                                                                                  \
    X(MIN, "min")                                                                                  \
    X(ABS, "abs")                                                                                  \
    X(LOG, "log")                                                                                  \
    X(FULL_LIKE, "full_like")                                                                      \
    X(ZEROS_LIKE, "zeros_like")                                                                    \
    X(COS, "cos")                                                                                  \
    X(SIN, "sin")                                                                                  \
    X(POLAR, "polar")                                                                              \
    X(CUMSUM, "cumsum")                                                                            \
    X(MAX_DIM, "max.dim")                                                                          \
    X(TOPK, "topk")                                                                                \
    X(SORT, "sort")                                                                                \
    X(GATHER, "gather")                                                                            \
    X(SCATTER_ADD, "scatter_add")                                                                  \
    X(SCATTER_ADD_, "scatter_add_")                                                                \
    X(NEW_EMPTY, "new_empty")                                                                      \
    X(NEW_EMPTY_STRIDED, "new_empty_strided")                                                      \
    X(SCATTER, "scatter.src")                                                                      \
    X(SCATTER_, "scatter_.src")                                                                    \
    X(SCATTER_VALUE_, "scatter_.value")                                                            \
    X(INDEX, "index.Tensor")                                                                       \
    X(INDEX_PUT, "index_put")                                                                      \
    X(INDEX_PUT_, "_index_put_impl_")                                                              \
    X(HISTC, "histc")                                                                              \
    X(GROUPED_MM, "_grouped_mm")                                                                   \
    X(FOREACH_SQRT, "_foreach_sqrt")                                                               \
    X(FOREACH_NORM, "_foreach_norm.Scalar")                                                        \
    X(LINALG_VECTOR_NORM, "linalg_vector_norm")                                                    \
    X(SQRT, "sqrt")                                                                                \
    X(CLAMP_MIN, "clamp_min")                                                                      \
    X(CLAMP, "clamp")                                                                              \
    X(C10D_ALL_REDUCE, "_c10d_functional.all_reduce")                                              \
    X(C10D_WAIT_TENSOR, "_c10d_functional.wait_tensor")                                            \
    X(C10D_BROADCAST, "broadcast_")                                                                \
    X(ALLTOALL_BASE, "alltoall_base_")                                                             \
    X(AMAX, "amax")                                                                                \
    X(AMIN, "amin")                                                                                \
    X(ISNAN, "isnan")                                                                              \
    X(SUM, "sum")                                                                                  \
    X(LOGICAL_NOT, "logical_not")                                                                  \
    X(ZERO_, "zero_")                                                                              \
    X(BITWISE_NOT, "bitwise_not")                                                                  \
    X(BITWISE_OR, "bitwise_or.Tensor")                                                             \
    X(LIFT_FRESH, "lift_fresh")                                                                    \
    X(WORKSPACE, "workspace")                                                                      \
    X(ALL_GATHER_INTO_TENSOR, "all_gather_into_tensor")                                            \
    X(REDUCE_SCATTER_TENSOR, "reduce_scatter_tensor")                                              \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(CHUNK_CAT, "_chunk_cat")                                                                     \
    X(SPLIT_WITH_SIZES_COPY, "split_with_sizes_copy")                                              \
    X(FOREACH_COPY_, "_foreach_copy_")                                                             \
    X(ADAMW, "adamw")                                                                              \
    X(FUSED_ADAMW_, "_fused_adamw_")                                                               \
    X(BNB_UPDATE_8BIT, "bitsandbytes.optimizer_update_8bit_blockwise")                             \
    X(BNB_UPDATE_32BIT, "bitsandbytes.optimizer_update_32bit")                                     \
    X(SINGLE_PARAM_ADAM, "single_param_adam")                                                      \
    X(FOREACH_ADD_, "_foreach_add_.List")                                                          \
    X(FOREACH_MUL_, "_foreach_mul_.Tensor")                                                        \
    X(SCALED_MM, "_scaled_mm")                                                                     \
    X(DEQUANTIZE_4BIT, "bitsandbytes.dequantize_4bit")                                             \
    X(DEQUANTIZE_BLOCKWISE, "bitsandbytes.dequantize_blockwise")                                   \
    X(INT8_VECTORWISE_QUANT, "bitsandbytes.int8_vectorwise_quant")                                 \
    X(INT8_MM_DEQUANT, "bitsandbytes.int8_mm_dequant")                                             \
    X(LOG1P, "log1p")                                                                              \
    X(LOG2, "log2")                                                                                \
    X(FLOOR, "floor")                                                                              \
    X(EXP2, "exp2")                                                                                \
    X(REPEAT, "repeat")                                                                            \
    X(MUL_, "mul_.Tensor")                                                                         \
    X(ARANGE_STEP, "arange.start_step")                                                            \
    X(POW_SCALAR, "pow.Scalar")                                                                    \
    X(EXPONENTIAL_, "exponential_")                                                                \
    X(RAND_LIKE, "rand_like")                                                                      \
    X(SCATTER_VALUE, "scatter.value")                                                              \
    X(EXP, "exp")                                                                                  \
    X(CAUSAL_CONV, "causal_conv1d_fwd")                                                            \
    X(CAUSAL_CONV_BACKWARD, "causal_conv1d_bwd")                                                   \
    X(L2_NORM, "l2norm_fwd")                                                                       \
    X(L2_NORM_BACKWARD, "l2norm_bwd")                                                              \
    X(CHUNK_SUM, "chunk_local_cumsum")                                                             \
    X(DELTA_SOLVE, "chunk_gated_delta_rule_fwd_kkt_solve")                                         \
    X(DELTA_FACTORS, "recompute_w_u_fwd")                                                          \
    X(DELTA_STATES, "chunk_gated_delta_rule_fwd_h")                                                \
    X(DELTA_OUTPUT, "chunk_fwd_o")                                                                 \
    X(DELTA_VALUES_BACKWARD, "chunk_bwd_dv_local")                                                 \
    X(DELTA_STATES_BACKWARD, "chunk_gated_delta_rule_bwd_dhu")                                     \
    X(DELTA_OUTPUT_BACKWARD, "chunk_bwd_dqkwg")                                                    \
    X(DELTA_FACTORS_BACKWARD, "prepare_wy_repr_bwd")                                               \
    X(SELECTIVE_SCAN, "selective_scan_fwd")                                                        \
    X(SELECTIVE_SCAN_BACKWARD, "selective_scan_bwd")                                               \
    X(SSM_STEPS, "_chunk_cumsum_fwd")                                                              \
    X(SSM_STATES, "_chunk_state_fwd")                                                              \
    X(SSM_PASS, "_state_passing_fwd")                                                              \
    X(SSM_SCORES, "_bmm_chunk_fwd")                                                                \
    X(SSM_SCAN, "_chunk_scan_fwd")                                                                 \
    X(GATED_RMS_NORM, "_layer_norm_fwd")                                                           \
    X(SSM_GATE_BACKWARD, "_chunk_scan_bwd_dz")                                                     \
    X(GATED_RMS_NORM_BACKWARD, "_layer_norm_bwd")                                                  \
    X(SSM_STATES_BACKWARD, "_chunk_scan_bwd_dstates")                                              \
    X(SSM_PASS_BACKWARD, "_state_passing_bwd")                                                     \
    X(SSM_INPUT_BACKWARD, "_chunk_scan_chunk_state_bwd_dx")                                        \
    X(SSM_B_BACKWARD, "_chunk_state_bwd_db")                                                       \
    X(SSM_C_BACKWARD, "_chunk_scan_bwd_dC")                                                        \
    X(SSM_SCORES_BACKWARD, "_chunk_scan_bwd_dcb")                                                  \
    X(SSM_SCORES_TO_GROUP, "_bmm_chunk_bwd")                                                       \
    X(SSM_DECAY_BACKWARD, "_chunk_scan_bwd_ddAcs_stable")                                          \
    X(SSM_STEPS_BACKWARD, "_chunk_cumsum_bwd")                                                     \
    X(LIGER_CROSS_ENTROPY, "liger_cross_entropy_kernel")                                           \
    X(LIGER_RMS_NORM, "_rms_norm_forward_kernel")                                                  \
    X(LIGER_RMS_NORM_BACKWARD, "_rms_norm_backward_kernel")                                        \
    X(LIGER_SWIGLU, "_swiglu_forward_kernel")                                                      \
    X(LIGER_SWIGLU_BACKWARD, "_swiglu_backward_kernel")                                            \
    X(LIGER_GEGLU, "_geglu_tanh_forward_kernel")                                                   \
    X(LIGER_GEGLU_BACKWARD, "_geglu_tanh_backward_kernel")                                         \
    X(LIGER_ROPE, "_triton_rope")                                                                  \
    X(AXOLOTL_SWIGLU, "axolotl.swiglu_fwd")                                                        \
    X(AXOLOTL_SWIGLU_BACKWARD, "axolotl.swiglu_bwd")                                               \
    X(AXOLOTL_GEGLU, "axolotl.geglu_fwd")                                                          \
    X(AXOLOTL_GEGLU_BACKWARD, "axolotl.geglu_bwd")                                                 \
    X(CUT_CROSS_ENTROPY, "_cce_lse_forward_kernel")                                                \
    X(CUT_CROSS_ENTROPY_BACKWARD, "_cce_backward_kernel")                                          \
    X(INDEXED_NEG_DOT, "_indexed_neg_dot_forward_kernel")                                          \
    X(LOG_PROBS, "_forward_kernel")                                                                \
    X(LOG_PROBS_BACKWARD, "_backward_kernel")                                                      \
    X(MASKED_SCATTER, "masked_scatter")                                                            \
    X(MASKED_SCATTER_BACKWARD, "masked_scatter_backward")                                          \
    X(LOG_SIGMOID, "log_sigmoid_forward")                                                          \
    X(LOG_SIGMOID_BACKWARD, "log_sigmoid_backward")                                                \
    X(LOCAL_SCALAR, "_local_scalar_dense")                                                         \
    X(SORT_STABLE, "sort.stable")                                                                  \
    X(NONZERO, "nonzero")                                                                          \
    X(NEW_FULL, "new_full")                                                                        \
    X(MEAN_ALL, "mean")                                                                            \
    X(ARGMAX, "argmax")                                                                            \
    X(MSE_LOSS, "mse_loss")                                                                        \
    X(MSE_LOSS_BACKWARD, "mse_loss_backward")                                                      \
    X(BCE_LOSS, "binary_cross_entropy_with_logits")                                                \
    X(FLIP, "flip")                                                                                \
    X(FUSED, "triton_fused")                                                                       \
    X(FUSED_REDUCTION, "triton_fused_reduction")

enum aten {
#define X(name, text) ATEN_##name,
    ATEN_MAP(X)
#undef X
        ATEN_COUNT
};

/* The dispatcher's name, for example "add.Tensor". */
const char *aten_name(enum aten aten);
/* (ATEN_COUNT) all of these names. Lent, for good. */
const char *const *aten_names(void);

/* ---- work ---- */

/* X(NAME, name in files, operands and meaning) */
#define WORK_MAP(X)                                                                                \
    X(NONE, "none", "no kernel has it: its emitter has not said")                                  \
    /* ---- out of nothing ---- */                                                                 \
    X(ARANGE, "arange", "-> ids (n): attr.first and the n - 1 after it")                           \
    X(FILL, "fill", "-> y: every element is attr.p")                                               \
    X(FILL_LOWEST, "fill_lowest", "-> y: every element is minus infinity")                         \
    X(SEED, "seed", "-> dloss (): 1 / the micro-batches of a step, whose losses are averaged")     \
    /* ---- matrices ---- */                                                                       \
    X(MATMUL_NT, "matmul_nt", "x (t, h), w (o, h) -> y (t, o): x wᵀ")                              \
    X(MATMUL_NT_BIAS, "matmul_nt_bias", "x (t, h), w (o, h), bias (o) -> y (t, o): x wᵀ + bias")   \
    X(MATMUL_NN, "matmul_nn", "x (t, o), w (o, h) -> y (t, h): x w")                               \
    X(MATMUL_NN_BIAS, "matmul_nn_bias", "x (t, h), w (h, o), bias (o) -> y (t, o): x w + bias")    \
    X(MATMUL_TN, "matmul_tn", "x (t, o), y (t, h) -> w (o, h): xᵀ y")                              \
    X(MATMUL_TN_ADD, "matmul_tn_add", "x (t, o), y (t, h) -> w (o, h): w += xᵀ y")                 \
    X(MATMUL_NT_ADD, "matmul_nt_add", "x (t, h), w (o, h) -> y (t, o): y += x wᵀ times attr.p")    \
    X(MATMUL_NN_ADD, "matmul_nn_add", "x (t, o), w (o, h) -> y (t, h): y += x w times attr.p")     \
    X(MATMUL_TN_SCALED, "matmul_tn_scaled", "x (t, o), y (t, h) -> w (o, h): xᵀ y times attr.p")   \
    X(MATMUL_TT_SCALED, "matmul_tt_scaled", "x (t, o), y (h, t) -> w (o, h): xᵀ yᵀ times attr.p")  \
    X(SCALED_MM_NT, "scaled_mm_nt",                                                                \
      "x (t, h), w (o, h) in float8, what each is divided by (one, or one a row) -> y (t, o): x "  \
      "wᵀ")                                                                                        \
    X(BMM_NN_BIAS, "bmm_nn_bias",                                                                  \
      "x (n, m, k), y (n, k, o), bias (n, 1, o) -> z (n, m, o): each attr.p x y + bias")           \
    X(BMM_NN, "bmm_nn", "x (n, m, k), y (n, k, o) -> z (n, m, o): each x y")                       \
    X(BMM_NT, "bmm_nt", "x (n, m, o), y (n, k, o) -> z (n, m, k): each x yᵀ")                      \
    X(BMM_TN, "bmm_tn", "x (n, m, k), y (n, m, o) -> z (n, k, o): each xᵀ y")                      \
    X(GROUPED_MM_NT, "grouped_mm_nt",                                                              \
      "x (t, h), w (g, o, h), ends of groups of rows (g) -> y (t, o): each group x wᵀ")            \
    X(GROUPED_MM_NN, "grouped_mm_nn",                                                              \
      "x (t, o), w (g, o, h), ends (g) -> y (t, h): each group x w")                               \
    X(GROUPED_MM_TN, "grouped_mm_tn",                                                              \
      "x (t, o), y (t, h), ends (g) -> w (g, o, h): of each group xᵀ y")                           \
    X(DEQUANTIZE_BLOCKS, "dequantize_blocks",                                                      \
      "q uint8 (m; or m/2, 1: of 4 bits), scales (g) fp32 -> y (m): by blocks of m/g")             \
    X(INT8_MM_NT, "int8_mm_nt", "x (t, h), w (o, h) int8 -> y (t, o) int32: x wᵀ")                 \
    X(SCALE_PRODUCT, "scale_product",                                                              \
      "x (t, o) int32, scales (t) and (o) fp32, perhaps a bias (o) -> y (t, o) fp16: x times "     \
      "both over 127², + bias")                                                                    \
    X(QUANTIZE_ROWS, "quantize_rows",                                                              \
      "x (t, h) fp16 -> q (t, h) int8, scales (t) fp32: the largest of a row is 127")              \
    X(CONVOLUTION, "convolution",                                                                  \
      "x (places, c), w (o, k), perhaps a bias -> y (places, o); or of it, gradients")             \
    /* ---- anything ---- */                                                                       \
    X(OTHER, "other", "x ... -> y ...: known by its name and its operands alone")                  \
    X(FUSED, "fused", "x ... -> y ...: many functions of elements in one pass (torch.compile)")    \
    X(FUSED_REDUCTION, "fused_reduction", "likewise, with sums over rows or columns")              \
    /* ---- elementwise ---- */                                                                    \
    X(ADD, "add", "x, y (broadcast to x from the right) -> z: x + y")                              \
    X(ADD_NUMBER, "add_number", "x -> y: x + attr.p")                                              \
    X(ADD_IN_PLACE, "add_in_place", "x -> y: y += x")                                              \
    X(SUB, "sub", "x, y -> z: x - y")                                                              \
    X(ADD_TO, "add_to", "x, y (broadcast to x) -> x + y in x")                                     \
    X(MUL, "mul", "x, y (broadcast to x; complex64: complex product) -> z: x y")                   \
    X(NUMBER_MINUS, "number_minus", "x -> y: attr.p - x")                                          \
    X(MUL_NUMBER, "mul_number", "x -> y (may be x): attr.p x")                                     \
    X(DIV, "div", "x, y (broadcast to x) -> z: x / y")                                             \
    X(DIV_NUMBER, "div_number", "x -> y: x / attr.p")                                              \
    X(DIV_IN_PLACE, "div_in_place", "x, y (broadcast to x) -> x / y in x, what was in x")          \
    X(FLOOR_DIV_NUMBER, "floor_div_number", "x -> y: x / attr.p, rounded down")                    \
    X(MINIMUM, "minimum", "x, y -> z: the smaller of both")                                        \
    X(MAXIMUM, "maximum", "x -> y (): the largest of x")                                           \
    X(LEAST, "least", "x -> y (): the smallest of x")                                              \
    X(LARGEST, "largest", "x -> y: the largest along the dim that is 1 in y")                      \
    X(CLAMP, "clamp", "x, least (), most () -> y: x within both")                                  \
    X(AT_MOST, "at_most", "x -> y: the smaller of x and attr.p")                                   \
    X(AT_LEAST, "at_least", "x -> y: the larger of x and attr.p")                                  \
    X(WITHIN, "within", "x -> y: x within -attr.p and attr.p")                                     \
    X(NEG, "neg", "x -> y: -x")                                                                    \
    X(ABS, "abs", "x -> y: |x|")                                                                   \
    X(POW, "pow", "x -> y: x to the power attr.p")                                                 \
    X(SQUARE, "square", "x -> y: x x")                                                             \
    X(SQUARE_ROOT, "square_root", "x -> y")                                                        \
    X(SQRT, "sqrt", "x -> y: the root of x")                                                       \
    X(RSQRT, "rsqrt", "x -> y: 1 / the square root of x")                                          \
    X(LOG, "log", "x -> y: of attr.p + x")                                                         \
    X(LOG2, "log2", "x -> y")                                                                      \
    X(FLOOR, "floor", "x -> y: x rounded down")                                                    \
    X(EXP2, "exp2", "x -> y: 2 to the power x")                                                    \
    X(POWER_OF, "power_of", "x -> y: attr.p to the power x")                                       \
    X(RECIPROCAL, "reciprocal", "x -> y: 1 / x")                                                   \
    X(COS, "cos", "x -> y")                                                                        \
    X(SIN, "sin", "x -> y")                                                                        \
    X(POLAR, "polar", "x, y -> z complex64: x (cos y + i sin y)")                                  \
    X(TANH, "tanh", "x -> y")                                                                      \
    X(TANH_BACKWARD, "tanh_backward", "dy, y -> dx: dy (1 - y²)")                                  \
    X(CAST, "cast", "x -> y: same elements, y's dtype")                                            \
    X(CONJUGATE, "conjugate", "x complex64 -> y")                                                  \
    /* ---- true or false ---- */                                                                  \
    X(EQUAL, "equal", "x, y (broadcast to x) -> z bool: x == y")                                   \
    X(EQUAL_NUMBER, "equal_number", "x -> y bool: x == attr.p")                                    \
    X(NOT_EQUAL_NUMBER, "not_equal_number", "x -> y bool: x != attr.p")                            \
    X(LESS, "less", "x, y (broadcast to x) -> z bool: x < y")                                      \
    X(LESS_NUMBER, "less_number", "x -> y bool: x < attr.p")                                       \
    X(LESS_EQUAL, "less_equal", "x, y -> z bool: x <= y")                                          \
    X(GREATER, "greater", "x, y (broadcast to x) -> z bool: x > y")                                \
    X(GREATER_NUMBER, "greater_number", "x -> y bool: x > attr.p")                                 \
    X(GREATER_EQUAL_NUMBER, "greater_equal_number", "x -> y bool: x >= attr.p")                    \
    X(GREATER_EQUAL, "greater_equal", "x, y -> z bool: x >= y")                                    \
    X(AND, "and", "x, y bool -> z (may be x)")                                                     \
    X(OR, "or", "x, y bool -> z")                                                                  \
    X(ALL, "all", "x bool -> y (): whether all are")                                               \
    X(ANY, "any", "x bool -> y (): whether any is")                                                \
    X(IS_INFINITE, "is_infinite", "x -> y bool")                                                   \
    X(WHERE, "where", "condition bool, x, y (each may be a scalar) -> z: x where true, else y")    \
    X(MASKED_FILL, "masked_fill", "x, mask bool -> y: attr.p where true, else x")                  \
    X(LOWER_TRIANGLE, "lower_triangle", "x (n, n) -> y: x on and below the diagonal, else 0")      \
    /* ---- activations ---- */                                                                    \
    X(SIGMOID, "sigmoid", "x -> y: 1 / (1 + exp(-x))")                                             \
    X(SIGMOID_BACKWARD, "sigmoid_backward", "dy, y -> dx: dy y (1 - y)")                           \
    X(SILU, "silu", "x -> y")                                                                      \
    X(SILU_BACKWARD, "silu_backward", "dy, x -> dx")                                               \
    X(GELU, "gelu", "x -> y: 0.5x(1 + erf(x / sqrt 2))")                                           \
    X(GELU_BACKWARD, "gelu_backward", "dy, x -> dx")                                               \
    X(GELU_TANH, "gelu_tanh", "x -> y: 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3)))")               \
    X(GELU_TANH_BACKWARD, "gelu_tanh_backward", "dy, x -> dx")                                     \
    X(RELU, "relu", "x -> y")                                                                      \
    X(SOFTPLUS, "softplus", "x -> y: log(1 + exp(x))")                                             \
    X(SOFTPLUS_BACKWARD, "softplus_backward", "dy, x -> dx: dy / (1 + exp(-x))")                   \
    X(EXPM1, "expm1", "x -> y: exp(x) - 1")                                                        \
    X(RELU_BACKWARD, "relu_backward", "dy, y -> dx: dy where y > 0")                               \
    X(DROPOUT, "dropout", "x -> y, kept bool: x / (1 - attr.p) where kept, else 0")                \
    X(DROPOUT_BACKWARD, "dropout_backward", "dy, kept bool -> dx")                                 \
    /* ---- shapes ---- */                                                                         \
    X(COPY, "copy", "x -> y: same bytes")                                                          \
    X(REORDER, "reorder", "x -> y: same elements, their dims in another order of memory")          \
    X(REPEAT, "repeat", "x -> y: repeated along y's dim attr.dim (x has 1 there, or is without)")  \
    X(SUM, "sum", "x -> y: summed to y's shape (y's dims are x's, or 1, from the right)")          \
    X(SUM_DIM, "sum_dim", "x -> y: summed over x's dim attr.dim, which y is without")              \
    X(MEAN, "mean", "x (..., n) -> y (..., 1)")                                                    \
    X(CUMULATIVE_SUM, "cumulative_sum", "x -> y: along the last dim")                              \
    X(CAT, "cat", "parts ... -> y: joined along the last dim; one part alone: twice")              \
    X(INTERLEAVE, "interleave", "x, y -> z: elements of the last dim in turn")                     \
    X(PAD, "pad", "x -> y: the last dim filled up with attr.p, or cut, to y's")                    \
    X(PUT_SLICE, "put_slice", "x, perhaps y -> y: x in y's last dim from attr.first on")           \
    X(SLICE, "slice", "x -> y: what y has room for in the last dim, from attr.first on")           \
    X(STRIDE_BACKWARD, "stride_backward",                                                          \
      "dy -> dx: dy at every attr.dim-th place of the last dim from attr.first on, else 0")        \
    X(SLICE_BACKWARD, "slice_backward", "dy -> dx: dy in the last dim from attr.first on, else 0") \
    /* ---- by index ---- */                                                                       \
    X(EMBEDDING, "embedding", "ids (...), weight (v, h) -> y (..., h)")                            \
    X(EMBEDDING_BACKWARD, "embedding_backward",                                                    \
      "dy (..., h), ids (...) -> dweight (v, h): summed over equal ids, but of attr.first - 1")    \
    X(INDEX, "index", "x (n, ...), ids (m) -> y (m, ...): rows of x")                              \
    X(INDEX_PUT, "index_put", "x (n, ...), ids (m), rows (m, ...) -> y: x with rows added to it")  \
    X(INDEX_SET, "index_set",                                                                      \
      "perhaps x (n, ...), ids (m), rows (m, ...) -> y: rows in those places of x, -1 the last")   \
    X(GATHER, "gather", "x (..., n), ids (..., m) -> y (..., m): elements of each row")            \
    X(SCATTER, "scatter", "x (..., n), ids (..., m), y (..., m) -> z: x with y in those places")   \
    X(SCATTER_NUMBER, "scatter_number",                                                            \
      "x (..., n), ids (..., m) -> x or y: attr.p put in those places, or a copy's")               \
    X(TOPK, "topk", "x (..., n) -> the m largest (..., m), where they are (..., m)")               \
    X(SORT, "sort", "x (n) -> x in order, the permutation")                                        \
    X(INVERT_PERMUTATION, "invert_permutation", "ids (n) -> y: y[ids[i]] = i")                     \
    X(HISTOGRAM, "histogram", "x (n) -> counts (m): how many of x are 0, 1, ...")                  \
    /* ---- norms, attention, loss ---- */                                                         \
    X(RMS_NORM, "rms_norm", "x (..., h), weight (h) -> y, rstd (..., 1) fp32; attr.eps")           \
    X(RMS_NORM_BACKWARD, "rms_norm_backward",                                                      \
      "dy, x, weight, rstd -> perhaps dx, perhaps dweight")                                        \
    X(RMS_NORM_OFFSET, "rms_norm_offset",                                                          \
      "x (..., h), weight (h) -> y, rstd (rows) fp32: by weight + attr.p; attr.eps")               \
    X(RMS_NORM_BACKWARD_PARTS, "rms_norm_backward_parts",                                          \
      "dy, x, weight, rstd -> dx (may be dy), perhaps parts of dweight (n, h): by weight + "       \
      "attr.p")                                                                                    \
    X(LAYER_NORM, "layer_norm",                                                                    \
      "x (..., h), perhaps weight, perhaps bias -> y, mean (..., 1), rstd (..., 1); attr.eps")     \
    X(LAYER_NORM_BACKWARD, "layer_norm_backward",                                                  \
      "dy, x, perhaps weight, mean, rstd -> perhaps dx, perhaps dweight, perhaps dbias")           \
    X(SWIGLU, "swiglu", "a, b -> y: silu a times b")                                               \
    X(SWIGLU_BACKWARD, "swiglu_backward", "dy, a, b -> da, db, where a and b are")                 \
    X(GEGLU, "geglu", "a, b -> y: gelu a, of tanh, times b")                                       \
    X(GEGLU_BACKWARD, "geglu_backward", "dy, a, b -> da, db, where a and b are")                   \
    X(GEGLU_ERF, "geglu_erf", "a, b -> y: gelu a times b")                                         \
    X(SWIGLU_AGAIN, "swiglu_again", "dy, a, b -> y once more, da, db, where dy, a and b are")      \
    X(GEGLU_ERF_AGAIN, "geglu_erf_again",                                                          \
      "dy, a, b -> y once more, da, db, where dy, a and b are")                                    \
    X(ROTATE_HALVES, "rotate_halves",                                                              \
      "q (b, s, a, d), k (b, s, k, d), cos, sin (1, s, d) -> q, k: x cos + (-high x, low x) sin")  \
    X(ROTATE_HALVES_BACKWARD, "rotate_halves_backward", "dq, dk, cos, sin -> dq, dk: turned back") \
    X(ATTENTION, "attention",                                                                      \
      "q, k, v (b, s, a, d; of k and v perhaps fewer heads) -> o, logsumexp (b, a, s) fp32, rng "  \
      "seed, rng offset; attr.causal, attr.scale, attr.window, attr.softcap")                      \
    X(ATTENTION_BACKWARD, "attention_backward", "do, q, k, v, logsumexp, o -> dq, dk, dv")         \
    X(EFFICIENT_ATTENTION, "efficient_attention",                                                  \
      "q, k, v, perhaps a bias (b, a, s, s) -> as attention, with rows of logsumexp rounded up")   \
    X(EFFICIENT_ATTENTION_BACKWARD, "efficient_attention_backward",                                \
      "do, q, k, v, logsumexp, perhaps the bias -> dq, dk, dv, perhaps dbias")                     \
    X(EXP, "exp", "x -> y")                                                                        \
    X(CAUSAL_CONV, "causal_conv",                                                                  \
      "x (b, s, c), weight (c, w), perhaps the bias (c) -> y: each channel's sum over w tokens, "  \
      "up to its own")                                                                             \
    X(CAUSAL_CONV_SILU, "causal_conv_silu", "the same -> silu y")                                  \
    X(CAUSAL_CONV_BACKWARD, "causal_conv_backward",                                                \
      "x, weight, perhaps the bias, dy -> dx, dweight and dbias fp32")                             \
    X(CAUSAL_CONV_SILU_BACKWARD, "causal_conv_silu_backward", "the same of silu y")                \
    X(L2_NORM, "l2_norm", "x (n, d) -> y, 1 / length (n) fp32: rows by their lengths")             \
    X(L2_NORM_BACKWARD, "l2_norm_backward", "y, 1 / length, dy -> dx")                             \
    X(CHUNK_SUM, "chunk_sum",                                                                      \
      "g (b, s, a) -> y: sums from where a chunk of 64 tokens begins, or to where it ends")        \
    X(DELTA_SOLVE, "delta_solve",                                                                  \
      "k, g, beta -> A (b, s, a, 64): a chunk's triangular system, inverted")                      \
    X(DELTA_FACTORS, "delta_factors",                                                              \
      "k, v, beta, A, g -> w, u: what a chunk takes from the state and adds to it")                \
    X(DELTA_STATES, "delta_states",                                                                \
      "k, u, w, g -> the state each chunk begins with (b, n, a, d, e), v: what it adds")           \
    X(DELTA_OUTPUT, "delta_output", "q, k, v, states, g -> o")                                     \
    X(DELTA_VALUES_BACKWARD, "delta_values_backward", "q, k, g, do -> dv within chunks")           \
    X(DELTA_STATES_BACKWARD, "delta_states_backward", "q, k, w, g, do, dv -> dstates, dv")         \
    X(DELTA_OUTPUT_BACKWARD, "delta_output_backward",                                              \
      "q, k, v, g, states, do, dstates, dv -> dq, dk, dw, dg of each piece")                       \
    X(DELTA_FACTORS_BACKWARD, "delta_factors_backward",                                            \
      "k, v, beta, g, A, dw, du -> dk, dv, dg, dbeta")                                             \
    X(SELECTIVE_SCAN, "selective_scan",                                                            \
      "u (b, i, s), dt, A (i, n), B (b, n, s), C, D (i), z (b, i, s), bias (i) -> y silu(z), y, "  \
      "each chunk's last state (b, i, k, 2 n)")                                                    \
    X(SELECTIVE_SCAN_BACKWARD, "selective_scan_backward",                                          \
      "u, dt, A, B, C, D, z, bias, states, y, dy -> du, ddt, dA, dB, dC, dD, dz, dbias")           \
    X(SSM_STEPS, "ssm_steps",                                                                      \
      "dt (b, s, a), A (a), its bias (a) -> softplus dt and A dt summed from where a chunk "       \
      "begins, (b, a, k, l)")                                                                      \
    X(SSM_STATES, "ssm_states",                                                                    \
      "x (b, s, a, e), B (b, s, g, n), dt, sums -> what each chunk adds to the state, (b, k, a, "  \
      "e, n) fp32")                                                                                \
    X(SSM_PASS, "ssm_pass", "those, sums -> the state that each chunk begins with, and the last")  \
    X(SSM_SCORES, "ssm_scores", "C, B (b, s, g, n) -> C Bᵀ of each chunk (b, k, g, l, l) fp32")    \
    X(SSM_SCAN, "ssm_scan", "scores, x, dt, sums, C, states, D (a) -> y (b, s, a, e)")             \
    X(SSM_SCAN_GATED, "ssm_scan_gated", "the same, and z (b, s, a e) -> y silu(z), y")             \
    X(GATED_RMS_NORM, "gated_rms_norm",                                                            \
      "y (t, i), z (t, i), weight (i) -> RMSNorm of groups of y silu(z), 1 / root of the mean")    \
    X(GATED_RMS_NORM_BACKWARD, "gated_rms_norm_backward",                                          \
      "dx, y, z, weight, 1 / root -> dy, dz, dweight of groups of rows, x again")                  \
    X(SSM_GATE_BACKWARD, "ssm_gate_backward",                                                      \
      "dy (b, s, a, e), y, z (b, s, a e), x, D -> dz, dy, y silu(z) again, dD of blocks")          \
    X(SSM_STATES_BACKWARD, "ssm_states_backward", "C, sums, dy -> dstates (b, k, a, e, n) fp32")   \
    X(SSM_PASS_BACKWARD, "ssm_pass_backward",                                                      \
      "dstates, states, sums -> dstates from one chunk to the next, states cast, ddecay of "       \
      "blocks")                                                                                    \
    X(SSM_INPUT_BACKWARD, "ssm_input_backward",                                                    \
      "x, scores, dy, dt, sums, B, dstates, D -> dx, ddt, dD of blocks")                           \
    X(SSM_B_BACKWARD, "ssm_b_backward",                                                            \
      "x, dstates, B, dt, sums -> dB of parts of a group, dsums")                                  \
    X(SSM_C_BACKWARD, "ssm_c_backward", "dy, states, C, sums -> dC of parts of a group, dsums")    \
    X(SSM_SCORES_BACKWARD, "ssm_scores_backward",                                                  \
      "x, dy, dt, sums -> dscores of parts of a group")                                            \
    X(SSM_SCORES_TO_GROUP, "ssm_scores_to_group",                                                  \
      "B or C, dscores, dB or dC of the rest -> dC or dB")                                         \
    X(SSM_DECAY_BACKWARD, "ssm_decay_backward", "x, dt, sums, dy, scores -> dsums of blocks")      \
    X(SSM_STEPS_BACKWARD, "ssm_steps_backward", "dsums, ddt, dt, A, its bias -> ddt, dA, dbias")   \
    X(SOFTMAX, "softmax", "x (..., n) -> y")                                                       \
    X(SAFE_SOFTMAX, "safe_softmax",                                                                \
      "x (..., n) -> y, perhaps what is minus infinity, in which rows: zeros where a whole row "   \
      "is")                                                                                        \
    X(SOFTMAX_BACKWARD, "softmax_backward", "dy, y -> dx")                                         \
    X(LOG_SOFTMAX, "log_softmax", "x (t, v) -> y")                                                 \
    X(LOG_SOFTMAX_BACKWARD, "log_softmax_backward", "dy, y -> dx")                                 \
    X(NLL_LOSS, "nll_loss", "log-probabilities (t, v), targets (t) -> mean loss (), weight ()")    \
    X(NLL_LOSS_BACKWARD, "nll_loss_backward", "dloss (), targets (t) -> dx (t, v)")                \
    X(NLL_LOSSES, "nll_losses", "log-probabilities (t, v), targets (t) -> losses (t), weight ()")  \
    X(NLL_LOSSES_BACKWARD, "nll_losses_backward", "dlosses (t), targets (t) -> dx (t, v)")         \
    X(CROSS_ENTROPY, "cross_entropy",                                                              \
      "logits (t, v), targets (t) -> mean loss (), logsumexp (t), losses (t)")                     \
    X(CROSS_ENTROPY_BACKWARD, "cross_entropy_backward",                                            \
      "dloss (), logits (t, v), targets (t), logsumexp (t) -> dx (t, v), where the logits are")    \
    X(CROSS_ENTROPY_SLOPES, "cross_entropy_slopes",                                                \
      "logits (n, v), targets (n) of more rows -> losses (n), dx (n, v), where the logits are")    \
    X(CUT_CROSS_ENTROPY, "cut_cross_entropy",                                                      \
      "x (t, h), w (v, h), rows that count (n) -> logsumexp (n) of x wᵀ, mean of each column (v)") \
    X(CUT_CROSS_ENTROPY_BACKWARD, "cut_cross_entropy_backward",                                    \
      "x (t, h), w (v, h), logsumexp (n), rows that count (n), order of the columns (v) -> "       \
      "perhaps dx, perhaps dw")                                                                    \
    X(LOG_PROBS, "log_probs",                                                                      \
      "logits (n, m), targets (n) -> statistics (n) of each row, of which these are columns")      \
    X(LOG_PROBS_BACKWARD, "log_probs_backward",                                                    \
      "logits (n, m), targets (n), logsumexp (n), entropy (n), dy (n) -> their gradient, in "      \
      "place")                                                                                     \
    X(INDEXED_DOT, "indexed_dot",                                                                  \
      "x (t, h), w (v, h), targets, rows that count (n) -> y (n): less the target's logit")        \
    X(PUT_ROWS, "put_rows", "x (m, h) -> rows (m, h) of a larger y, cast to its dtype")            \
    /* ---- several of a plan's in one, made by a run (runtime/execution/fuse.h) ---- */           \
    X(ROTATE, "rotate",                                                                            \
      "x (b, s, a, d), angles complex64 (broadcast to x's pairs) -> y: pairs of x times them; "    \
      "attr.p below 0: times their conjugates")                                                    \
    X(GATE, "gate", "x, u -> silu x, u times that")                                                \
    X(PRODUCTS, "products", "z, x, y -> x z, y z")                                                 \
    X(ADD_RMS_NORM, "add_rms_norm", "x, y (..., h), weight (h) -> x + y, its norm, rstd (..., 1)") \
    X(RMS_NORM_BACKWARD_ADD, "rms_norm_backward_add",                                              \
      "dy, x, weight, rstd -> dx, perhaps dweight, z: z += dx")                                    \
    X(CROSS_ENTROPY_SLOPE, "cross_entropy_slope",                                                  \
      "dloss (), targets (t), log-probabilities (t, v) -> dx (t, v)")                              \
    /* ---- sharding ---- */                                                                       \
    X(PACK, "pack", "parts ... -> y: flattened one after the other, cast to y's dtype")            \
    X(COPY_IN, "copy_in", "parts ... -> gather output: packed into slice `rank` of equal slices")  \
    X(COPY_OUT, "copy_out", "gather output -> parts ...: slice r holds each part's r-th chunk")    \
    X(QUANTIZE, "quantize",                                                                        \
      "x (n) fp16 -> q int8 (n; or n/2: of 4 bits), scales (g, 1): symmetric, by groups of n/g")   \
    X(DEQUANTIZE, "dequantize", "q int8, scales (g) -> y fp16")                                    \
    X(QUANTIZED_SUM, "quantized_sum",                                                              \
      "q (r n) int8 of 4 bits, scales (g, 1) -> of the sum of r parts: q (n), scales")             \
    X(CHUNK_CAT, "chunk_cat", "gradients ... -> y: rank-major, each padded to equal chunks")       \
    X(ALL_GATHER, "all_gather",                                                                    \
      "y -> y: in place, slice `rank` to all; or x -> y: x is what that slice is to be")           \
    X(REDUCE_SCATTER_AVG, "reduce_scatter_avg", "x -> y: average over ranks of slice `rank`")      \
    X(REDUCE_SCATTER_SUM, "reduce_scatter_sum", "x -> y: sum over ranks of slice `rank`")          \
    X(ALL_REDUCE_AVG, "all_reduce_avg", "x -> y (may be x): average over ranks")                   \
    X(ALL_REDUCE_SUM, "all_reduce_sum", "x -> y (may be x): sum over ranks")                       \
    X(ALL_REDUCE_MAX, "all_reduce_max", "x -> y (may be x): the largest over ranks")               \
    X(ALL_TO_ALL, "all_to_all", "x -> y: slice r of x to rank r, whose slice is y's r-th")         \
    X(BROADCAST, "broadcast", "y -> y: in place, the bytes of the group's rank attr.dim to all")   \
    /* ---- clipping and the update ---- */                                                        \
    X(ADAMW, "adamw",                                                                              \
      "gradients ..., parameters ..., exp_avgs ..., exp_avg_sqs ... -> all but the gradients ...") \
    X(ADAMW_FUSED, "adamw_fused", "as adamw, in one pass over its operands")                       \
    X(ADAMW_ALONE, "adamw_alone",                                                                  \
      "gradient, parameter, exp_avg, exp_avg_sq -> all but the gradient")                          \
    X(ADAMW_CODED, "adamw_coded",                                                                  \
      "gradient, parameter, codes of exp_avg and exp_avg_sq (n) uint8, scales of both (n/256), "   \
      "tables of both (256) -> parameter, codes, scales")                                          \
    X(SGD, "sgd", "gradients ..., parameters ... -> parameters ...")                               \
    X(NORMS, "norms", "gradients ... -> scalars ...: 2-norm of each")                              \
    X(STACK, "stack", "scalars ... -> y (n)")                                                      \
    X(VECTOR_NORM, "vector_norm", "x (n) -> y (): 2-norm")                                         \
    X(CLIP_COEFFICIENT, "clip_coefficient", "norm () -> y (): min(1, attr.p / (norm + 1e-6))")     \
    X(SCALE, "scale", "coefficient (), gradients ... -> gradients ...: times it")

enum work_kind {
#define X(name, text, meaning) WORK_##name,
    WORK_MAP(X)
#undef X
        WORK_KIND_COUNT
};

/* "matmul_nt"; "?" for a number that is none. */
const char *work_name(enum work_kind kind);
/* Its operands and what it computes, as in the list above. */
const char *work_meaning(enum work_kind kind);
/* The work of a name; WORK_NONE when there is none. */
enum work_kind work_named(const char *name);
/* The one whose name takes the fewest changes to get to. */
enum work_kind work_nearest(const char *name);

/* Runs in cuBLAS: one product of matrices, or a batch of equal ones. */
static inline bool work_is_matmul(enum work_kind kind)
{
    return kind >= WORK_MATMUL_NT && kind <= WORK_BMM_TN;
}

/* What it gives is born in the order of memory of its operands, as PyTorch's TensorIterator has it:
 * elementwise work. (Sums and means are born one row after the other: resize_reduction in
 * ATen/native/ReduceOpsUtils.h.) */
static inline bool work_keeps_order(enum work_kind kind)
{
    return kind >= WORK_ADD && kind <= WORK_DROPOUT_BACKWARD;
}

/* What sharding and optimizers do to lists of tensors: one after the other, in one kernel. Each
 * moves its bytes, whatever their shapes. */
static inline bool work_is_of_lists(enum work_kind kind)
{
    return kind >= WORK_PACK;
}

/* Needs the other ranks of a group. */
static inline bool work_is_collective(enum work_kind kind)
{
    return kind >= WORK_ALL_GATHER && kind <= WORK_BROADCAST;
}

/* Products of groups of rows, each with its own matrix. */
static inline bool work_is_grouped_matmul(enum work_kind kind)
{
    return kind >= WORK_GROUPED_MM_NT && kind <= WORK_GROUPED_MM_TN;
}

#endif
