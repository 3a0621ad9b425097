/* ops.h - the operators: their list, and constructors for model builders.
 *
 * A constructor adds the op to the graph's script and returns its (first) output tensor; shapes
 * are asserted. What autograd saves and what backward does is in each operator's class. */
#ifndef SHARDPLAN_OPS_H
#define SHARDPLAN_OPS_H

#include "graph/graph.h"

/* X(KIND, name, autocast): every operator. Its class is <name>_class, in one of the files ops_*.c;
 * in what precision it computes under autocast says autocast.h: NONE, LOWER or FP32. */
#define OP_MAP(X)                                                                                  \
    X(ARANGE, arange, NONE)                                                                        \
    X(EMBEDDING, embedding, NONE)                                                                  \
    X(LINEAR, linear, LOWER)                                                                       \
    X(LINEAR_BIAS, linear_bias, LOWER)                                                             \
    X(CONV1D, conv1d, LOWER)                                                                       \
    X(FLOAT8_LINEAR, float8_linear, NONE)                                                          \
    X(LINEAR_4BIT, linear_4bit, NONE)                                                              \
    X(DEQUANTIZE_4BIT, dequantize_4bit, NONE)                                                      \
    X(LINEAR_8BIT, linear_8bit, NONE)                                                              \
    X(ADD, add, NONE)                                                                              \
    X(ADD_TO, add_to, NONE)                                                                        \
    X(SUB, sub, NONE)                                                                              \
    X(ADD_SCALAR, add_scalar, NONE)                                                                \
    X(ADD_SCALAR_TO, add_scalar_to, NONE)                                                          \
    X(MUL, mul, NONE)                                                                              \
    X(SUB_SCALAR, sub_scalar, NONE)                                                                \
    X(MUL_SCALAR, mul_scalar, NONE)                                                                \
    X(DIV_SCALAR, div_scalar, NONE)                                                                \
    X(MUL_TO, mul_to, NONE)                                                                        \
    X(MUL_ROWS_TO, mul_rows_to, NONE)                                                              \
    X(MUL_CONSTANT, mul_constant, NONE)                                                            \
    X(TO_COPY, to_copy, NONE)                                                                      \
    X(CLONE, clone, NONE)                                                                          \
    X(CLONE_KEEPING, clone_keeping, NONE)                                                          \
    X(REPEAT, repeat, NONE)                                                                        \
    X(CHUNK, chunk, NONE)                                                                          \
    X(SLICE, slice, NONE)                                                                          \
    X(SLICE_DIM, slice_dim, NONE)                                                                  \
    X(SELECT, select, NONE)                                                                        \
    X(PICK, pick, NONE)                                                                            \
    X(STRIDE, stride, NONE)                                                                        \
    X(INTERLEAVE, interleave, NONE)                                                                \
    X(CAT, cat, NONE)                                                                              \
    X(CAT_ALONE, cat_alone, NONE)                                                                  \
    X(STACK, stack, NONE)                                                                          \
    X(MEAN_FIRST, mean_first, NONE)                                                                \
    X(COPIES, copies, NONE)                                                                        \
    X(ADD_TO_SEEN, add_to_seen, NONE)                                                              \
    X(AS_STRIDED, as_strided, NONE)                                                                \
    X(ADD_TO_REST, add_to_rest, NONE)                                                              \
    X(PUT_REST, put_rest, NONE)                                                                    \
    X(VIEW, view, NONE)                                                                            \
    X(RESHAPE, reshape, NONE)                                                                      \
    X(REAL, real, NONE)                                                                            \
    X(SCALE, scale, NONE)                                                                          \
    X(NEG, neg, NONE)                                                                              \
    X(POW, pow, FP32)                                                                              \
    X(MEAN_LAST, mean_last, NONE)                                                                  \
    X(RSQRT, rsqrt, FP32)                                                                          \
    X(SQRT, sqrt, NONE)                                                                            \
    X(STD_LAST, std_last, NONE)                                                                    \
    X(TANH, tanh, NONE)                                                                            \
    X(SIGMOID, sigmoid, NONE)                                                                      \
    X(SILU, silu, NONE)                                                                            \
    X(GELU, gelu, NONE)                                                                            \
    X(GELU_TANH, gelu_tanh, NONE)                                                                  \
    X(GELU_IN_PYTHON, gelu_in_python, NONE)                                                        \
    X(RELU, relu, NONE)                                                                            \
    X(SOFTPLUS, softplus, FP32)                                                                    \
    X(EXPM1, expm1, FP32)                                                                          \
    X(EXP, exp, FP32)                                                                              \
    X(MINIMUM, minimum, NONE)                                                                      \
    X(CHOOSE, choose, NONE)                                                                        \
    X(DROPOUT, dropout, NONE)                                                                      \
    X(LAYER_NORM, layer_norm, FP32)                                                                \
    X(RMS_NORM, rms_norm, FP32)                                                                    \
    X(LIGER_RMS_NORM, liger_rms_norm, NONE)                                                        \
    X(LIGER_RMS_NORM_APART, liger_rms_norm_apart, NONE)                                            \
    X(LIGER_SWIGLU, liger_swiglu, NONE)                                                            \
    X(LIGER_GEGLU, liger_geglu, NONE)                                                              \
    X(LIGER_ROPE, liger_rope, NONE)                                                                \
    X(LORA_MLP, lora_mlp, NONE)                                                                    \
    X(LORA_MLP_GEGLU, lora_mlp_geglu, NONE)                                                        \
    X(LORA_QKV, lora_qkv, NONE)                                                                    \
    X(LORA_O, lora_o, NONE)                                                                        \
    X(FLASH_ATTENTION, flash_attention, LOWER)                                                     \
    X(EFFICIENT_ATTENTION, efficient_attention, LOWER)                                             \
    X(FLASH_ATTN, flash_attn, NONE)                                                                \
    X(FLASH_ATTN_VARLEN, flash_attn_varlen, NONE)                                                  \
    X(INDEX_PUT_FIRST_AXIS, index_put_first_axis, NONE)                                            \
    X(CAUSAL_CONV, causal_conv, NONE)                                                              \
    X(GATED_DELTA_RULE, gated_delta_rule, NONE)                                                    \
    X(SELECTIVE_SCAN, selective_scan, NONE)                                                        \
    X(MAMBA2, mamba2, NONE)                                                                        \
    X(MAMBA2_BIAS, mamba2_bias, NONE)                                                              \
    X(MASKED_FILL, masked_fill, NONE)                                                              \
    X(WHERE, where, NONE)                                                                          \
    X(PAD_LAST, pad_last, NONE)                                                                    \
    X(EXPAND, expand, NONE)                                                                        \
    X(ALIAS, alias, NONE)                                                                          \
    X(CLAMP, clamp, NONE)                                                                          \
    X(LIMIT, limit, NONE)                                                                          \
    X(CLIP, clip, NONE)                                                                            \
    X(TOPK, topk, NONE)                                                                            \
    X(MAX_LAST, max_last, NONE)                                                                    \
    X(SUM_LAST, sum_last, NONE)                                                                    \
    X(DIV, div, NONE)                                                                              \
    X(DIV_INPLACE, div_inplace, NONE)                                                              \
    X(GATHER, gather, NONE)                                                                        \
    X(PUT_SLICE, put_slice, NONE)                                                                  \
    X(PUT_NUMBER, put_number, NONE)                                                                \
    X(PUT, put, NONE)                                                                              \
    X(PUT_ROWS, put_rows, NONE)                                                                    \
    X(CAT_ROW, cat_row, NONE)                                                                      \
    X(TILE, tile, NONE)                                                                            \
    X(SUM_FIRST, sum_first, NONE)                                                                  \
    X(INDEX, index, NONE)                                                                          \
    X(SCATTER_NUMBER, scatter_number, NONE)                                                        \
    X(SAMPLED_WEIGHT, sampled_weight, NONE)                                                        \
    X(SUM_GROUPS, sum_groups, NONE)                                                                \
    X(GROUPED_MM, grouped_mm, NONE)                                                                \
    X(GROUPED_MM_NN, grouped_mm_nn, NONE)                                                          \
    X(BMM, bmm, LOWER)                                                                             \
    X(BADDBMM, baddbmm, LOWER)                                                                     \
    X(SOFTMAX, softmax, FP32)                                                                      \
    X(SAFE_SOFTMAX, safe_softmax, NONE)                                                            \
    X(LOG_SOFTMAX, log_softmax, NONE)                                                              \
    X(NLL_LOSS, nll_loss, FP32)                                                                    \
    X(NLL_LOSSES, nll_losses, FP32)                                                                \
    X(SUM_ALL, sum_all, NONE)                                                                      \
    X(FUSED_CROSS_ENTROPY, fused_cross_entropy, NONE)                                              \
    X(CHUNKED_CROSS_ENTROPY, chunked_cross_entropy, NONE)                                          \
    X(LIGER_CROSS_ENTROPY, liger_cross_entropy, NONE)                                              \
    X(LIGER_CROSS_ENTROPIES, liger_cross_entropies, NONE)                                          \
    X(LIGER_LINEAR_CROSS_ENTROPY, liger_linear_cross_entropy, NONE)                                \
    X(CUT_CROSS_ENTROPY, cut_cross_entropy, NONE)                                                  \
    X(LOG_PROBS, log_probs, NONE)                                                                  \
    X(MASKED_SCATTER, masked_scatter, NONE)                                                        \
    X(NEGATIVE_SUM, negative_sum, NONE)                                                            \
    X(DIV_COUNT, div_count, NONE)                                                                  \
    X(SUM_TOKENS, sum_tokens, NONE)                                                                \
    X(MEAN_ALL, mean_all, NONE)                                                                    \
    X(LOG_SIGMOID, log_sigmoid, NONE)                                                              \
    X(INDEX_PAIR, index_pair, NONE)                                                                \
    X(MEAN_TOKENS, mean_tokens, NONE)                                                              \
    X(MSE_LOSS, mse_loss, FP32)                                                                    \
    X(BCE_LOSS, bce_loss, FP32)                                                                    \
    X(READ, read, NONE)                                                                            \
    X(NO_GRAD, no_grad, NONE)

enum op_kind {
    OP_NONE,
#define X(KIND, name, autocast) OP_##KIND,
    OP_MAP(X)
#undef X
        OP_KIND_COUNT
};

/* x (…, in) times weight (out, in)ᵀ plus bias (out) or GRAPH_NONE: (…, out). */
uint32_t op_linear(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);
/* The same as torchao's Float8Linear computes it, by graph->float8. */
uint32_t op_float8_linear(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);
/* The same of a weight that is stored in 4 bits (graph_packed), as bitsandbytes' MatMul4Bit
 * computes it, in x's dtype. */
uint32_t op_linear_4bit(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);
/* Such a parameter made whole again, in the dtype that was quantised. */
uint32_t op_dequantize_4bit(struct graph *graph, uint32_t weight);
/* The last of that weight: where what comes back to it is transposed, its product is one for each
 * sequence. Of another weight: nothing. */
void op_4bit_across(struct graph *graph, uint32_t weight);
/* The same of a weight in 8 bits (graph_in_8bit), as bitsandbytes' MatMul8bitLt computes it. */
uint32_t op_linear_8bit(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);
/* Rows of weight (v, h) by ids (…): (…, h). */
uint32_t op_embedding(struct graph *graph, uint32_t ids, uint32_t weight);
/* Of what that returned: the row of this id gets no gradient; 0 is none, 1 the first. */
void op_embedding_padding(struct graph *graph, uint32_t embedded, uint32_t padding);
uint32_t op_arange(struct graph *graph, uint32_t count);
/* The same from a number on: (count), of int64 or int32. */
uint32_t op_arange_from(struct graph *graph, enum aten aten, enum dtype dtype, uint32_t first,
                        uint32_t count);
/* Elementwise with broadcasting of y to x's shape. */
uint32_t op_add(struct graph *graph, uint32_t x, uint32_t y);
/* The same in x itself: add_. */
uint32_t op_add_in_place(struct graph *graph, uint32_t x, uint32_t y);
/* The same in x itself, where ATen asks whether a tensor is a subclass: a new one for recordings.
 */
uint32_t op_add_to(struct graph *graph, uint32_t x, uint32_t y);
/* x - y, likewise. */
uint32_t op_sub(struct graph *graph, uint32_t x, uint32_t y);
/* Elementwise with broadcasting of either side and promotion to fp32. */
uint32_t op_mul(struct graph *graph, uint32_t x, uint32_t y);
/* x with a Python number: OP_ADD_SCALAR, OP_SUB_SCALAR, OP_MUL_SCALAR, OP_DIV_SCALAR, OP_POW (x to
 * the power of `number`). */
uint32_t op_scalar(struct graph *graph, enum op_kind kind, uint32_t x, float number);
/* x + number in x itself. */
uint32_t op_add_scalar_in_place(struct graph *graph, uint32_t x, float number);
/* Mean over the last dim, which is kept as 1. */
uint32_t op_mean_last(struct graph *graph, uint32_t x);
/* native_dropout: saves a mask of bools. x itself when p is 0. */
uint32_t op_dropout(struct graph *graph, uint32_t x, float p);
/* ---- calls outside autograd, each of which births one tensor ----
 *
 * An operand is the tensor that the call reads, whole, even where Python hands it a slice. */

/* From up to GRAPH_OPERANDS operands. */
uint32_t op_no_grad(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                    struct shape shape, uint32_t ins, const uint32_t *in);
/* From one, with a number. */
uint32_t op_number(struct graph *graph, enum work_kind work, enum aten aten, enum dtype dtype,
                   struct shape shape, uint32_t x, float number);
/* Sums over the last dim, which the result is without. */
uint32_t op_sum_last_no_grad(struct graph *graph, uint32_t x);
/* x where `mask` is false, `number` elsewhere. */
uint32_t op_masked_no_grad(struct graph *graph, uint32_t x, uint32_t mask, float number);
/* `number` put into places `ids` of the rows of x, which is changed. */
void op_put_number(struct graph *graph, uint32_t x, uint32_t ids, float number);
/* A copy of x repeated along dim `dim` of `repeated`, which x is without. */
uint32_t op_repeat_no_grad(struct graph *graph, enum aten aten, uint32_t x, struct shape repeated,
                           uint32_t dim);
/* From none: every element is `number`, which may be -INFINITY. */
uint32_t op_fill(struct graph *graph, enum aten aten, enum dtype dtype, struct shape shape,
                 float number);
/* A copy of a slice of x's last dim, from `first` on. */
uint32_t op_slice_copied(struct graph *graph, uint32_t x, struct shape shape, uint32_t first);
/* x times a tensor that needs no gradient and broadcasts (RoPE factors), in x's shape. */
uint32_t op_mul_constant(struct graph *graph, uint32_t x, uint32_t constant);
/* The same in x itself, which keeps its dtype; and in rows (t, h), which it returns: a view of all
 * of x (b, s, h). */
uint32_t op_mul_in_place(struct graph *graph, uint32_t x, uint32_t constant);
uint32_t op_mul_rows_in_place(struct graph *graph, uint32_t x, uint32_t constant);
/* A copy in another dtype; x itself when it has that dtype already. */
uint32_t op_to(struct graph *graph, uint32_t x, enum dtype dtype);
/* Elementwise op of one operand: OP_SIGMOID, OP_SILU, OP_GELU, OP_GELU_TANH, OP_RELU, OP_TANH,
 * OP_NEG, OP_RSQRT, OP_SQRT, OP_SOFTPLUS, OP_EXPM1, OP_EXP; OP_CLONE (contiguous() of what was
 * transposed).
 */
uint32_t op_unary(struct graph *graph, enum op_kind kind, uint32_t x);
/* gelu by tanh as a torch.autograd.Function in Python arithmetic, which keeps x alone (BLOOM's). */
uint32_t op_gelu_in_python(struct graph *graph, uint32_t x);
/* A copy of x whose node is one of several outputs: by others of these, whose nodes keep `kept` and
 * never run, that lives until it has run. */
uint32_t op_clone_keeping(struct graph *graph, uint32_t x, uint32_t kept);
/* Key/value heads repeated by expand and reshape: a clone of shape `repeated`, in which x's data
 * is repeated along `dim`; the gradient is summed over it. */
uint32_t op_repeat(struct graph *graph, uint32_t x, struct shape repeated, uint32_t dim);
/* Chunk `index` of `count` equal parts of the last dim: a view; out[count] receives all. */
void op_chunk(struct graph *graph, uint32_t x, uint32_t count, uint32_t *out);
/* The same of x (b, s, c) where PyTorch sees it transposed, (b, c, s): so their gradients are
 * joined in memory. */
void op_chunk_across(struct graph *graph, uint32_t x, uint32_t count, uint32_t *out);
/* The same of x (b, s, count · a · d), seen as (b, s, count, a, d): unbind, in parts (b, s, a, d).
 */
void op_unbind(struct graph *graph, uint32_t x, uint32_t count, struct shape part, uint32_t *out);
/* x in two parts of the last dim, the first `width` wide: views; out[2] receives both. Or in
 * `count` of such widths, which add up to it: by torch.split of a list, or otherwise. */
void op_split(struct graph *graph, uint32_t x, uint32_t width, uint32_t *out);
void op_split_by(struct graph *graph, uint32_t x, uint32_t count, const uint32_t *widths,
                 uint32_t *out);
void op_parts(struct graph *graph, uint32_t x, uint32_t count, const uint32_t *widths,
              uint32_t *out);
/* x as part of a tensor (..., width), from `first` on in the last dim, copied there: into `whole`,
 * or, where that is GRAPH_NONE, into a new one. Returns the whole. */
uint32_t op_put_slice(struct graph *graph, uint32_t whole, uint32_t x, uint32_t first,
                      uint32_t width);
/* weight, bias (h), or GRAPH_NONE the bias or both; saves input, mean and rstd. `eps` is added to
 * the variance. */
uint32_t op_layer_norm(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias, float eps);
/* F.rms_norm. `eps` is added to the mean square. Fused it saves input and fp32 rstd; before torch
 * 2.9 it is a handful of small kernels in fp32. */
uint32_t op_rms_norm(struct graph *graph, uint32_t x, uint32_t weight, float eps);
/* What scaled_dot_product_attention chooses its kernel by, beside dtypes and the GPU. */
struct attention_asks {
    uint32_t head, width; /* of a query and key, and of a value */
    bool masked, learned; /* with a mask or bias; with one that needs a gradient */
    float dropout;
};
/* Of a call: q (b, s, a, d), v (b, s_k, a', d_v), a mask or bias or GRAPH_NONE. */
struct attention_asks op_attention_asks(const struct graph *graph, uint32_t q, uint32_t v,
                                        uint32_t mask, float dropout);
/* can_use_cudnn_attention of a call that has a backward pass, with cuDNN 9.24, as torch 2.14 comes
 * with it: none is wider than 128 on Ampere, nor on Blackwell before. Dropout is in steps of a
 * sixteenth. */
bool attention_takes_cudnn(uint32_t torch, enum attention_gpu gpu,
                           const struct attention_asks *asks);
/* Its answer (pytorch aten/src/ATen/native/transformers/cuda/sdp_utils.cpp): cuDNN's where the
 * graph prefers that and it takes the call, flash, else memory-efficient; what the model's own code
 * asks for, whatever the call. */
enum attention_kernel op_attention_kernel(const struct graph *graph,
                                          const struct attention_asks *asks);
/* Which op op_attention is, but for single ops, whose arguments are cast as those of flash. */
enum op_kind op_attention_kind(const struct graph *graph);
/* Flash attention. q (b, s, a, d), k and v (b, s_k, a, d): (b, s, a, d), born (b, a, s, d). Scores
 * are divided by the root of d. */
uint32_t op_attention(struct graph *graph, uint32_t q, uint32_t k, uint32_t v, bool causal,
                      float dropout);
/* Attention in single ops: _scaled_dot_product_attention_math, which op_attention is where the
 * graph says so. v may be of another width than q and k; of 16 bits, all is computed in fp32. */
struct math_attention {
    uint32_t q, k, v; /* (b, s, a, d), (b, s_k, a', d), (b, s_k, a', d_v) */
    uint32_t mask;    /* of bools, or added to scores: (1 or b, 1 or a, s, s_k); GRAPH_NONE: none */
    bool causal;
    bool broadcast; /* fewer heads of k and v, one, are stretched by products, not repeated */
    float dropout;
    float scale; /* of q·kᵀ; 0: 1 / the root of d */
};
/* (b, s, a, d_v), one row after the other. */
uint32_t op_math_attention(struct graph *graph, const struct math_attention *attention);
/* Memory-efficient attention, or cuDNN's (op_attention_kernel), likewise, with an additive bias (b,
 * a, s, s_k) or GRAPH_NONE; v may be of another width than q and k, which is then the result's. */
uint32_t op_efficient_attention(struct graph *graph, uint32_t q, uint32_t k, uint32_t v,
                                uint32_t bias, bool causal, float dropout);
/* The package flash-attn's (ops_flash_attn.c), of q (b, s, a, d), k and v (b, s, k, d), k dividing
 * a. Where d is no multiple of 8 the function pads all three. */
struct flash_attn {
    uint32_t q, k, v;
    uint32_t window; /* kernel_attr's; 0: none */
    bool causal;
    float softcap; /* 0: none */
    float dropout;
    float scale; /* of q·kᵀ; 0: 1 / the root of d */
    /* flash_attn_varlen_func, of a single row that is joined of samples, of which a token sees so
     * many (the mean, weighted by tokens); 0: not */
    uint32_t sample;
    uint32_t ends, longest; /* where they begin and the last ends (n + 1), and how long one is (),
                               which the context keeps: int32. GRAPH_NONE: it is a number */
};
struct flash_attn_result {
    uint32_t out;                 /* (b, s, a, d), laid out as q, or in rows of more */
    uint32_t held[5], held_count; /* what Python has until the function returns, in this order */
};
struct flash_attn_result op_flash_attn(struct graph *graph, const struct flash_attn *attention);
/* The package's IndexPutFirstAxis: `values` (m, a, d) in rows `ids` (m) of zeros (n, a, d). */
uint32_t op_index_put_first_axis(struct graph *graph, uint32_t values, uint32_t ids, uint32_t n);
/* Of what either returned: q·kᵀ is times `scale` instead; 0: as it is. */
void op_attention_scale(struct graph *graph, uint32_t attended, float scale);
/* x (b, s, c) by a filter of each channel, weight (c, 1, w) and bias (c) or GRAPH_NONE, over the w
 * tokens up to its own, perhaps silu of that: causal-conv1d's. */
uint32_t op_causal_conv(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias, bool silu);
/* The gated delta rule as flash-linear-attention computes it, by chunks. */
struct delta_rule {
    uint32_t q, k;    /* (b, s, i, d), views of one tensor: each row is divided by its length */
    uint32_t v;       /* (b, s, a, e), another view of it; i divides a */
    uint32_t g, beta; /* (b, s, a): the logarithm of what is left of the state, fp32; and what of v
                         is new in it */
};
/* (b, s, a, e) */
uint32_t op_gated_delta_rule(struct graph *graph, const struct delta_rule *rule);
/* Mamba-1's scan of the state, gated, as mamba-ssm computes it. */
struct selective_scan {
    uint32_t u, z;  /* (b, s, i) */
    uint32_t delta; /* (b, i, s): a token's steps, without their bias and softplus */
    uint32_t decay; /* A (i, n), fp32 */
    uint32_t b, c;  /* (b, s, n) */
    uint32_t skip;  /* D (i), fp32 */
    uint32_t bias;  /* (i), fp32 */
};
/* (b, i, s) */
uint32_t op_selective_scan(struct graph *graph, const struct selective_scan *scan);
/* Mamba-2's mixer behind its first product, as mamba-ssm computes it: the convolution, the scan of
 * the state by chunks, the norm of that times silu of the gate, and the product behind it. */
struct mamba2 {
    uint32_t all;             /* (b, s, 2 i + 2 g n + a): gate, what is convolved, and dt */
    uint32_t conv, conv_bias; /* (i + 2 g n, 1, w), and (i + 2 g n) or GRAPH_NONE */
    uint32_t dt_bias;         /* (a) */
    uint32_t decay;           /* A (a), fp32 */
    uint32_t skip;            /* D (a) */
    uint32_t norm;            /* (i); GRAPH_NONE: there is none, what is scanned is gated alone */
    uint32_t out, out_bias;   /* (h, i), and (h) or GRAPH_NONE */
    uint32_t groups, chunk;   /* g; tokens of a chunk */
    float eps;
};
/* (b, s, h) */
uint32_t op_mamba2(struct graph *graph, const struct mamba2 *mixer);
/* x where `condition`, `number` elsewhere (which is born as a scalar tensor and dies at once). */
uint32_t op_where(struct graph *graph, uint32_t condition, uint32_t x, float number);
/* The same with that tensor: it is Python's. */
uint32_t op_where_else(struct graph *graph, uint32_t condition, uint32_t x, uint32_t other);
/* x where `condition`, else y, both of its shape. */
uint32_t op_choose(struct graph *graph, uint32_t condition, uint32_t x, uint32_t y);
/* The smaller of x and y: y of x's shape, or it needs no gradient and broadcasts. */
uint32_t op_minimum(struct graph *graph, uint32_t x, uint32_t y);
/* Zero where `mask` is true, else x. */
uint32_t op_masked_zero(struct graph *graph, uint32_t x, uint32_t mask);
/* `number` where `mask` is true, else x. */
uint32_t op_masked_number(struct graph *graph, uint32_t x, uint32_t mask, float number);
/* The last dim padded to `last` elements. */
uint32_t op_pad_last(struct graph *graph, uint32_t x, uint32_t last);
/* The first `count` elements from `first` on of the last dim: a view. */
uint32_t op_slice_last(struct graph *graph, uint32_t x, uint32_t first, uint32_t count);
/* The same of any dim. */
uint32_t op_slice_dim(struct graph *graph, uint32_t x, uint32_t dim, uint32_t first,
                      uint32_t count);
/* One place of a dim, which is kept as 1: a view. */
uint32_t op_select(struct graph *graph, uint32_t x, uint32_t dim, uint32_t place);
/* One place of a dim, which is kept as 1, by a list of one index (from the dim's end): a copy. The
 * list is saved for backward. */
uint32_t op_pick(struct graph *graph, uint32_t x, uint32_t dim, uint32_t place);
/* x[:, :], of so many dims: x, and up to torch 2.8 a view by a node for each. */
uint32_t op_index_all(struct graph *graph, uint32_t x, uint32_t dims);
/* Every `step`-th element from `first` on of the last dim: a view. */
uint32_t op_stride_last(struct graph *graph, uint32_t x, uint32_t first, uint32_t step);
/* Elements of x and y in turn: stack on a new last dim, seen without it. */
uint32_t op_interleave(struct graph *graph, uint32_t x, uint32_t y);
/* x (…, in) times weight (in, out) plus bias (out): GPT-2's Conv1D. */
uint32_t op_conv1d(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);
/* x and y beside each other in the last dim. */
uint32_t op_cat_last(struct graph *graph, uint32_t x, uint32_t y);
/* The same of up to GRAPH_OPERANDS parts, all of one dtype. */
uint32_t op_cat_parts(struct graph *graph, uint32_t count, const uint32_t *parts);
/* torch.cat of x alone: a copy of it, one element behind the other. */
uint32_t op_cat_alone(struct graph *graph, uint32_t x);
/* So many parts of one shape, one behind the other along a new first dim: (count, ...). */
uint32_t op_stack(struct graph *graph, uint32_t count, const uint32_t *parts);
/* The mean over the first dim, which goes; and x so many times along a new one: repeat. */
uint32_t op_mean_first(struct graph *graph, uint32_t x);
uint32_t op_copies(struct graph *graph, uint32_t x, uint32_t count);
/* y added in place to `seen`, a view of x in another order of dims: that view with its new value,
 * whose gradient comes to x by CopySlices. And a view that Python makes again behind it, by
 * as_strided. */
uint32_t op_add_to_seen(struct graph *graph, uint32_t x, uint32_t seen, uint32_t y);
uint32_t op_as_strided(struct graph *graph, uint32_t x, uint32_t seen);
/* x[1:] += y of x (n, ...), y (...), in place, as Python does it: added to a view, which then is
 * put where it is already. */
uint32_t op_add_to_others(struct graph *graph, uint32_t x, uint32_t y);
/* Standard deviation (correction 0) of the last dim, which is kept as 1. */
uint32_t op_std_last(struct graph *graph, uint32_t x);
/* A view whose gradient comes in an order of memory that the view of it cannot keep: heads
 * (b, s, a, d) of a projection, where what follows made the gradient as (b, a, s, d). The view's
 * backward is a reshape, and copies. */
uint32_t op_view_copied(struct graph *graph, uint32_t x, struct shape shape);
/* A view whose backward is a reshape: the gradient is copied where its order of memory, which the
 * tape knows, cannot be seen in x's shape. And view_as_real of complex numbers, as which x is seen
 * already, whose backward wants them one after the other. */
uint32_t op_reshape(struct graph *graph, uint32_t x, struct shape shape);
uint32_t op_real(struct graph *graph, uint32_t x);
/* As op_repeat, but a copy even of a single head: repeat_interleave. */
uint32_t op_repeat_copied(struct graph *graph, uint32_t x, struct shape repeated, uint32_t dim);
/* x times a number by mul.Scalar, as ATen itself calls it inside attention. */
uint32_t op_scale(struct graph *graph, uint32_t x, float number);
/* Batches of matrices: x (n, i, j), y (n, j, k). */
uint32_t op_bmm(struct graph *graph, uint32_t x, uint32_t y);
/* x (n, i, j) times y (n, j, k), times `alpha`, and a bias (n, 1, k) that needs no gradient. */
uint32_t op_baddbmm(struct graph *graph, uint32_t bias, uint32_t x, uint32_t y, float alpha);
/* torch.matmul of x (b, a, i, j) and y (b, a or 1, j, k): (b, a, i, k). What cannot be seen as
 * batches of matrices is copied. */
uint32_t op_matmul(struct graph *graph, uint32_t x, uint32_t y);
/* Softmax over the last dim, zeros where a whole row is masked. */
uint32_t op_safe_softmax(struct graph *graph, uint32_t x);
/* Ones of the first dims stretched to `shape`: a view; the gradient is summed to x's shape. */
uint32_t op_expand(struct graph *graph, uint32_t x, struct shape shape);
/* A view that is a node: the same bytes, with a gradient of its own that is complete before it is
 * added to that of x's other users. */
uint32_t op_alias(struct graph *graph, uint32_t x);
/* The same in another shape of the same order of memory. */
uint32_t op_view_node(struct graph *graph, uint32_t x, struct shape shape);
/* x as a module is called with it. That is x itself, unless a sharding system's hook passes a
 * module's inputs through a node, as FSDP's does, which runs its post-backward there: then inputs
 * that several modules share are summed module by module. (Where a unit is several blocks only its
 * first has that node; then two sums come in another order.) */
uint32_t op_module_input(struct graph *graph, uint32_t x);
/* The same where a system has hooks on every module (tape_options.call_hooks): x as a module is
 * called with it that uses it more than once, or passes it to several of its own, or before
 * something else that has a gradient. */
uint32_t op_call_input(struct graph *graph, uint32_t x);
/* x from a module that returns what it was called with, where the call itself matters. */
uint32_t op_called_alone(struct graph *graph, uint32_t x);
/* x between two scalar tensors, which need no gradient. */
uint32_t op_clamp(struct graph *graph, uint32_t x, uint32_t least, uint32_t most);
/* x at most `number`, or within -number and number. */
uint32_t op_limit(struct graph *graph, uint32_t x, float number, bool both_sides);
/* x within `least` and `most`. */
uint32_t op_clip(struct graph *graph, uint32_t x, float least, float most);
/* x at least `number`. */
uint32_t op_at_least(struct graph *graph, uint32_t x, float number);
/* Softmax over the last dim; as_is: the call names x's dtype, which autocast then lets be. */
uint32_t op_softmax(struct graph *graph, uint32_t x);
uint32_t op_softmax_as_is(struct graph *graph, uint32_t x);
/* The largest of the last dim, which is kept as 1. Where it is goes with it, saved for backward. */
uint32_t op_max_last(struct graph *graph, uint32_t x);
/* The k largest of the last dim, and where they are (int64). */
uint32_t op_topk(struct graph *graph, uint32_t x, uint32_t k, uint32_t *indices);
/* The same outside autograd. */
uint32_t op_topk_no_grad(struct graph *graph, uint32_t x, uint32_t k, uint32_t *indices);
/* The largest of the last dim, which goes, and where they are: outside autograd. */
uint32_t op_max_no_grad(struct graph *graph, uint32_t x, uint32_t *indices);
/* The same with the dim kept as 1. */
uint32_t op_max_kept_no_grad(struct graph *graph, uint32_t x, uint32_t *indices);
/* x (n, m) with `number` in places `ids` (n, k) of its rows: a new tensor. */
uint32_t op_scatter_number(struct graph *graph, uint32_t x, uint32_t ids, float number);
/* Weights of experts that were drawn at random, as Phi-MoE's multiplier has it (a function in
 * Python): weights (t, 1) times `factors` (t, 1), which are no tensors of a gradient. The scores
 * (t, E) get one by a formula of `shares` (t, E), the softmax that `weights` were taken from at
 * `experts` (t, 1) int64; nodes before `weights` and `shares` run without any. */
struct sampled {
    uint32_t scores, weights, experts, shares, factors;
};
uint32_t op_sampled_weight(struct graph *graph, const struct sampled *sampled);
/* x (n, m) in the places indices (n, k): (n, k). */
uint32_t op_gather(struct graph *graph, uint32_t x, uint32_t indices);
/* `values` (n, k) put into places `ids` of the rows of x (n, m), which is changed and has had no
 * gradient: x with one. */
uint32_t op_put(struct graph *graph, uint32_t x, uint32_t ids, uint32_t values);
/* `values` (m, h) put into rows `ids` (m) of x (n, h), -1 being the last, which is changed and has
 * had no gradient; GRAPH_NONE: of new_empty's. Returns it with one. */
uint32_t op_put_rows(struct graph *graph, uint32_t x, uint32_t n, uint32_t ids, uint32_t values);
/* x (n, h) and behind it a row (h) that needs no gradient: (n + 1, h). */
uint32_t op_cat_row(struct graph *graph, uint32_t x, uint32_t row);
/* x (n, h) so many times, one behind the other: (count · n, h). */
uint32_t op_tile(struct graph *graph, uint32_t x, uint32_t count);
/* x (g, n, h) summed over g: (n, h), under autocast in fp32. */
uint32_t op_sum_first(struct graph *graph, uint32_t x);
/* Sum over the last dim, which is kept as 1. */
uint32_t op_sum_last(struct graph *graph, uint32_t x);
/* Sum of all: (). */
uint32_t op_sum_all(struct graph *graph, uint32_t x);
/* x / y with y broadcast. */
uint32_t op_div(struct graph *graph, uint32_t x, uint32_t y);
/* x /= y with y broadcast: x's bytes, and a copy of what was there for backward. */
uint32_t op_div_inplace(struct graph *graph, uint32_t x, uint32_t y);
/* x[indices]: rows of x (n, …) by indices (m), or numbers of x (n) by indices (…). */
uint32_t op_index(struct graph *graph, uint32_t x, uint32_t indices);
/* x (n) in order, and the permutation. */
uint32_t op_sort(struct graph *graph, uint32_t x, uint32_t *permutation);
/* The same, where equals stay in order. */
uint32_t op_sort_stable(struct graph *graph, uint32_t x, uint32_t *permutation);
/* Sums of `group` neighbouring rows of x (n, h): (n / group, h). */
uint32_t op_sum_groups(struct graph *graph, uint32_t x, uint32_t group);
/* Rows of x (n, i), sorted by group, each group times its matrix of weight (g, o, i) transposed;
 * offsets (g) are the ends of the groups: (n, o). */
uint32_t op_grouped_mm(struct graph *graph, uint32_t x, uint32_t weight, uint32_t offsets);
/* The same with weight (g, i, o) as it is. */
uint32_t op_grouped_mm_nn(struct graph *graph, uint32_t x, uint32_t weight, uint32_t offsets);
/* Liger's RMSNorm of contiguous x by weight + offset, in x's dtype. */
struct liger_norm {
    float eps, offset;
    bool apart; /* in_place=False: the input's gradient has memory of its own */
};
uint32_t op_liger_rms_norm(struct graph *graph, uint32_t x, uint32_t weight,
                           const struct liger_norm *norm);
/* act(a) b: OP_LIGER_SWIGLU, OP_LIGER_GEGLU (of tanh). */
uint32_t op_liger_glu(struct graph *graph, enum op_kind kind, uint32_t a, uint32_t b);
/* Heads q (b, s, a, d) and k (b, s, k, d) turned by tables (1, s, d) in their place; what is not
 * contiguous, in a copy. */
void op_liger_rope(struct graph *graph, uint32_t qk[2], uint32_t cos, uint32_t sin);
/* Linear layers with adapters as axolotl's kernels compute them, in x's dtype, which the weights
 * have or are made whole in: what each is of, and x (..., h) with what adapters are given in its
 * place where something is dropped of that (else GRAPH_NONE). */
struct lora_projection {
    uint32_t weight, bias; /* GRAPH_NONE: it has none */
    uint32_t a, b;
};
struct lora_input {
    uint32_t x, dropped;
};
/* down(act(gate x) up x), of these three; act is silu, or gelu. */
uint32_t op_lora_mlp(struct graph *graph, const struct lora_input *x, bool gelu,
                     const struct lora_projection projections[3]);
/* Three of one input; and one. */
void op_lora_qkv(struct graph *graph, const struct lora_input *x,
                 const struct lora_projection projections[3], uint32_t out[3]);
uint32_t op_lora_o(struct graph *graph, const struct lora_input *x,
                   const struct lora_projection *projection);
/* Mean cross-entropy of logits (t, v) with targets (t): a scalar of the logits' dtype. */
uint32_t op_cross_entropy(struct graph *graph, uint32_t logits, uint32_t targets);
/* Of each row (t), of the logits' dtype. */
uint32_t op_cross_entropies(struct graph *graph, uint32_t logits, uint32_t targets);
/* The mean whose backward nobody calls, with what its nodes keep, until whoever has it drops all.
 */
struct idle_loss {
    uint32_t log_probabilities, loss, weight;
};
struct idle_loss op_cross_entropy_idle(struct graph *graph, uint32_t logits, uint32_t targets);
/* The same of logits in any dtype, by a fused kernel: backward puts their gradient in their place.
 */
uint32_t op_fused_cross_entropy(struct graph *graph, uint32_t logits, uint32_t targets);
/* The same of the logits x (t, h) times weight (v, h) transposed, LOSS_CHUNKS chunks of tokens one
 * after the other, each with its backward; t is a multiple of that. */
uint32_t op_chunked_cross_entropy(struct graph *graph, uint32_t x, uint32_t weight,
                                  uint32_t targets);
/* Of logits (t, v) as Liger's LigerCrossEntropyFunction has it: forward puts their gradient in
 * their place. */
uint32_t op_liger_cross_entropy(struct graph *graph, uint32_t logits, uint32_t targets);
/* Of each row (t): backward multiplies it by theirs, into a new one. */
uint32_t op_liger_cross_entropies(struct graph *graph, uint32_t logits, uint32_t targets);
/* Of x and weight as its LigerFusedLinearCrossEntropyFunction has it: as many chunks as leave each
 * with about as many logits as x has numbers. */
uint32_t op_liger_linear_cross_entropy(struct graph *graph, uint32_t x, uint32_t weight,
                                       uint32_t targets);

/* Of x (t, h), weight and the model's labels (b, s), as cut-cross-entropy has it: no logits ever.
 * softcap: what they are capped at; 0: they are not. */
uint32_t op_cut_cross_entropy(struct graph *graph, uint32_t x, uint32_t weight, uint32_t labels,
                              float softcap);

/* What TRL's fused LM head is made of: log-probabilities (n) in fp32 of the targets (n), int64,
 * from rows (n, h) and a head's weight (v, h) and bias (v) or GRAPH_NONE; entropy (n) in fp32,
 * is_top1 (n) bool. */
enum log_probs_wanted {
    WANTS_ENTROPY = 1,     /* (n) in fp32 */
    WANTS_IS_TOP1 = 2,     /* (n) bool */
    WANTS_MEAN_LOGITS = 4, /* (n) in fp32 */
};
struct log_probs {
    uint32_t rows, weight, bias, targets;
    uint32_t wanted; /* enum log_probs_wanted, beside log-probabilities */
};
struct log_probs_found {
    uint32_t log_probs, entropy, is_top1, mean_logits;
};
struct log_probs_found op_log_probs(struct graph *graph, const struct log_probs *of);
/* What a mask (…) of labels chooses of x (…, h) or (…), all but graph_unlabelled's: (n, h) or (n);
 * and back into zeros. */
uint32_t op_masked(struct graph *graph, uint32_t x, uint32_t mask);
uint32_t op_masked_scatter(struct graph *graph, uint32_t x, uint32_t mask);
/* The sum () of *negative (…), which is -x. */
uint32_t op_negative_sum(struct graph *graph, uint32_t x, uint32_t *negative);
/* x by a count () of int64, which has no gradient. */
uint32_t op_div_count(struct graph *graph, uint32_t x, uint32_t count);

/* ---- the loss of preferences: ops_preferences.c ---- */

/* x (b, s) or (b, s, n) summed over s: (b), (b, n). The mean () of all that x has. */
uint32_t op_sum_tokens(struct graph *graph, uint32_t x);
uint32_t op_mean_all(struct graph *graph, uint32_t x);
uint32_t op_log_sigmoid(struct graph *graph, uint32_t x);
/* The host waits for a number x () and reads it: item(). */
void op_read(struct graph *graph, uint32_t x);

/* ---- sequence classification: ops_classify.c ---- */

/* x (b, s, n) at a place (b) of each of its rows (b): (b, n). */
uint32_t op_index_pair(struct graph *graph, uint32_t x, uint32_t rows, uint32_t places);
/* Where the largest of the last dim is, outside autograd: int64. */
uint32_t op_argmax_no_grad(struct graph *graph, uint32_t x);
/* 0, 1, ... of a dtype (count). */
uint32_t op_arange_of(struct graph *graph, enum dtype dtype, uint32_t count);
/* The mean over s of x (b, s, n): (b, n). */
uint32_t op_mean_tokens(struct graph *graph, uint32_t x);
/* The mean square of x - targets, which need no gradient; and the mean of what each of targets, a
 * probability, loses by logits x: (). */
uint32_t op_mse_loss(struct graph *graph, uint32_t x, uint32_t targets);
uint32_t op_bce_loss(struct graph *graph, uint32_t x, uint32_t targets);

#endif
