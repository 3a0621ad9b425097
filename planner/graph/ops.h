/* ops.h - the operators: constructors for model builders, and the one table the tape reads.
 *
 * A constructor adds the op to the graph's script and returns its (first) output tensor; shapes
 * are asserted. The table says for each kind what autograd saves and what backward does. */
#ifndef SHARDPLAN_OPS_H
#define SHARDPLAN_OPS_H

#include "graph/graph.h"
#include "graph/tape.h"

enum op_kind {
    OP_NONE,
    OP_ARANGE,
    OP_EMBEDDING,
    OP_LINEAR,
    OP_LINEAR_BIAS,
    OP_CONV1D,
    OP_ADD,
    OP_ADD_SCALAR,
    OP_SUB,
    OP_RSUB,
    OP_MUL,
    OP_MUL_SCALAR,
    OP_MUL_CONSTANT,
    OP_TO_COPY,
    OP_CLONE,
    OP_REPEAT,
    OP_CHUNK,
    OP_SLICE,
    OP_CAT,
    OP_VIEW,
    OP_SCALE,
    OP_NEG,
    OP_POW,
    OP_MEAN_LAST,
    OP_RSQRT,
    OP_TANH,
    OP_SILU,
    OP_GELU,
    OP_GELU_TANH,
    OP_RELU,
    OP_DROPOUT,
    OP_LAYER_NORM,
    OP_RMS_NORM,
    OP_FLASH_ATTENTION,
    OP_EFFICIENT_ATTENTION,
    OP_WHERE,
    OP_PAD_LAST,
    OP_EXPAND,
    OP_ALIAS,
    OP_CLAMP,
    OP_TOPK,
    OP_SUM_LAST,
    OP_DIV_INPLACE,
    OP_INDEX,
    OP_SUM_GROUPS,
    OP_GROUPED_MM,
    OP_BMM,
    OP_SOFTMAX,
    OP_SAFE_SOFTMAX,
    OP_LOG_SOFTMAX,
    OP_NLL_LOSS,
    OP_NO_GRAD, /* any op outside autograd: births, no node */
    OP_KIND_COUNT
};

/* torchtitan's selective checkpointing policy: outputs that are kept. mm alternates, counted in
 * the order of the block's forward; addmm, bmm and attention are always kept. */
enum op_keep { KEEP_NEVER, KEEP_EVERY_SECOND, KEEP_ALWAYS };

struct op_class {
    const char *name;
    enum aten kernel; /* label of its forward kernel */
    /* What the node keeps for backward, in the order in which autograd's generated code lists
     * (and therefore frees) it; only what the needed gradients ask for. Returns the count. */
    uint32_t (*saved)(const struct graph *graph, const struct graph_op *op,
                      uint32_t saved[GRAPH_OPERANDS + GRAPH_OUTPUTS]);
    /* Runs the node: births and gives gradients. NULL: not differentiable. */
    void (*backward)(struct tape *tape, const struct graph *graph, const struct graph_op *op);
    /* Floating-point operations of the forward kernel; NULL: one per output element. */
    double (*flops)(const struct graph *graph, const struct graph_op *op);
    enum op_keep keep;
};

/* Lent: the row of the table. */
const struct op_class *op_class(const struct graph_op *op);

/* x (…, in) times weight (out, in)ᵀ plus bias (out) or GRAPH_NONE: (…, out). */
uint32_t op_linear(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);
/* Rows of weight (v, h) by ids (…): (…, h). */
uint32_t op_embedding(struct graph *graph, uint32_t ids, uint32_t weight);
uint32_t op_arange(struct graph *graph, uint32_t count);
/* Elementwise with broadcasting of y to x's shape. */
uint32_t op_add(struct graph *graph, uint32_t x, uint32_t y);
/* Elementwise with broadcasting of either side and promotion to fp32. */
uint32_t op_mul(struct graph *graph, uint32_t x, uint32_t y);
/* x with a Python number: OP_ADD_SCALAR, OP_MUL_SCALAR, OP_POW (x to the power of `number`). */
uint32_t op_scalar(struct graph *graph, enum op_kind kind, uint32_t x, float number);
/* Mean over the last dim, which is kept as 1. */
uint32_t op_mean_last(struct graph *graph, uint32_t x);
/* native_dropout: saves a mask of bools. x itself when p is 0. */
uint32_t op_dropout(struct graph *graph, uint32_t x, float p);
/* A call outside autograd that births one tensor from up to GRAPH_OPERANDS operands. */
uint32_t op_no_grad(struct graph *graph, enum aten aten, enum dtype dtype, struct shape shape,
                    uint32_t ins, const uint32_t *in);
/* x times a tensor that needs no gradient and broadcasts (RoPE factors), in x's shape. */
uint32_t op_mul_constant(struct graph *graph, uint32_t x, uint32_t constant);
/* A copy in another dtype; x itself when it has that dtype already. */
uint32_t op_to(struct graph *graph, uint32_t x, enum dtype dtype);
/* Elementwise op of one operand: OP_SILU, OP_GELU (by erf), OP_GELU_TANH, OP_RELU, OP_TANH,
 * OP_NEG, OP_RSQRT. */
uint32_t op_unary(struct graph *graph, enum op_kind kind, uint32_t x);
/* Key/value heads repeated by expand and reshape: a clone of shape `repeated`, in which x's data
 * is repeated along `dim`; the gradient is summed over it. */
uint32_t op_repeat(struct graph *graph, uint32_t x, struct shape repeated, uint32_t dim);
/* Chunk `index` of `count` equal parts of the last dim: a view; out[count] receives all. */
void op_chunk(struct graph *graph, uint32_t x, uint32_t count, uint32_t *out);
/* weight, bias (h); saves input, mean and rstd. `eps` is added to the variance. */
uint32_t op_layer_norm(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias, float eps);
/* Fused RMSNorm: saves input and fp32 rstd. `eps` is added to the mean square. */
uint32_t op_rms_norm(struct graph *graph, uint32_t x, uint32_t weight, float eps);
/* Flash attention. q (b, s, a, d), k and v (b, s_k, a, d): (b, s, a, d), born (b, a, s, d). Scores
 * are divided by the root of d. */
uint32_t op_attention(struct graph *graph, uint32_t q, uint32_t k, uint32_t v, bool causal,
                      float dropout);
/* Memory-efficient attention, likewise; an additive bias (b, a, s, s_k) or GRAPH_NONE. */
uint32_t op_efficient_attention(struct graph *graph, uint32_t q, uint32_t k, uint32_t v,
                                uint32_t bias, bool causal, float dropout);
/* x where `condition`, a number elsewhere (which is born as a scalar tensor and dies at once). */
uint32_t op_where(struct graph *graph, uint32_t condition, uint32_t x);
/* The last dim padded to `last` elements. */
uint32_t op_pad_last(struct graph *graph, uint32_t x, uint32_t last);
/* The first `count` elements from `first` on of the last dim: a view. */
uint32_t op_slice_last(struct graph *graph, uint32_t x, uint32_t first, uint32_t count);
/* x (…, in) times weight (in, out) plus bias (out): GPT-2's Conv1D. */
uint32_t op_conv1d(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);
/* x and y beside each other in the last dim. */
uint32_t op_cat_last(struct graph *graph, uint32_t x, uint32_t y);
/* A view whose gradient comes in an order of memory that the view of it cannot keep: heads
 * (b, s, a, d) of a projection, where what follows made the gradient as (b, a, s, d). The view's
 * backward is a reshape, and copies. */
uint32_t op_view_copied(struct graph *graph, uint32_t x, struct shape shape);
/* As op_repeat, but a copy even of a single head: repeat_interleave. */
uint32_t op_repeat_copied(struct graph *graph, uint32_t x, struct shape repeated, uint32_t dim);
/* x times a number by mul.Scalar, as ATen itself calls it inside attention. */
uint32_t op_scale(struct graph *graph, uint32_t x, float number);
/* Batches of matrices: x (n, i, j), y (n, j, k). */
uint32_t op_bmm(struct graph *graph, uint32_t x, uint32_t y);
/* Softmax over the last dim, zeros where a whole row is masked. */
uint32_t op_safe_softmax(struct graph *graph, uint32_t x);
/* Ones of the first dims stretched to `shape`: a view; the gradient is summed to x's shape. */
uint32_t op_expand(struct graph *graph, uint32_t x, struct shape shape);
/* x on its way into a sharded module: the same bytes, with a gradient of its own that is complete
 * before it is added to that of x's other users. FSDP passes a module's inputs through a node that
 * runs its post-backward, so inputs that several blocks share are summed block by block. (Where
 * a unit is several blocks only its first has that node; then two sums come in another order.) */
uint32_t op_alias(struct graph *graph, uint32_t x);
/* x between two scalar tensors, which need no gradient. */
uint32_t op_clamp(struct graph *graph, uint32_t x, uint32_t least, uint32_t most);
/* Softmax over the last dim. */
uint32_t op_softmax(struct graph *graph, uint32_t x);
/* The k largest of the last dim, and where they are (int64). */
uint32_t op_topk(struct graph *graph, uint32_t x, uint32_t k, uint32_t *indices);
/* Sum over the last dim, which is kept as 1. */
uint32_t op_sum_last(struct graph *graph, uint32_t x);
/* x /= y with y broadcast: x's bytes, and a copy of what was there for backward. */
uint32_t op_div_inplace(struct graph *graph, uint32_t x, uint32_t y);
/* x[indices]: rows of x (n, …) by indices (m). */
uint32_t op_index(struct graph *graph, uint32_t x, uint32_t indices);
/* x (n) in order, and the permutation. */
uint32_t op_sort(struct graph *graph, uint32_t x, uint32_t *permutation);
/* Sums of `group` neighbouring rows of x (n, h): (n / group, h). */
uint32_t op_sum_groups(struct graph *graph, uint32_t x, uint32_t group);
/* Rows of x (n, i), sorted by group, each group times its matrix of weight (g, o, i) transposed;
 * offsets (g) are the ends of the groups: (n, o). */
uint32_t op_grouped_mm(struct graph *graph, uint32_t x, uint32_t weight, uint32_t offsets);
/* Mean cross-entropy of logits (t, v) with targets (t): a scalar in fp32. */
uint32_t op_log_softmax(struct graph *graph, uint32_t logits);
uint32_t op_nll_loss(struct graph *graph, uint32_t log_probabilities, uint32_t targets);

#endif
