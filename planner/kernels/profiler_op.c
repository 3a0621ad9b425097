/* profiler_op.c - a launch of ATen becomes a kernel of the cost model: its operands with their
 * strides, as TensorIterator sees them, and its work. */
#include "cost/cost.h"
#include "kernels/profiler_row.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum family {
    FAMILY_MAP,     /* elementwise: every tensor is an input, the result is new */
    FAMILY_COMPARE, /* the same, into bool */
    FAMILY_ASSIGN,  /* elementwise: into the first tensor, of which nothing is read */
    FAMILY_UPDATE,  /* elementwise: into the first tensor, which is an input, too */
    FAMILY_CAT,
    FAMILY_ROWS, /* of the first tensor, by the indices that are the last */
    FAMILY_REDUCE,
    FAMILY_SOFTMAX,
    FAMILY_NORM,
    FAMILY_NORM_BACKWARD,
    FAMILY_PRODUCT,
    FAMILY_ATTENTION,
};

struct op {
    const char *name;
    enum family family;
    enum work_kind work;
    /* Products: the argument that is the left matrix. Attention: that is q; `causal` the argument
     * that says so; heads_first: (b, a, s, d). */
    uint8_t first, causal;
    bool heads_first;
};

/* clang-format off */
static const struct op ops[] = {
    {"add", FAMILY_MAP, WORK_ADD, 0, 0, 0}, {"sub", FAMILY_MAP, WORK_SUB, 0, 0, 0},
    {"rsub", FAMILY_MAP, WORK_SUB, 0, 0, 0}, {"mul", FAMILY_MAP, WORK_MUL, 0, 0, 0},
    {"div", FAMILY_MAP, WORK_DIV, 0, 0, 0}, {"neg", FAMILY_MAP, WORK_NEG, 0, 0, 0},
    {"abs", FAMILY_MAP, WORK_ABS, 0, 0, 0}, {"pow", FAMILY_MAP, WORK_POW, 0, 0, 0},
    {"sqrt", FAMILY_MAP, WORK_SQUARE_ROOT, 0, 0, 0}, {"rsqrt", FAMILY_MAP, WORK_RSQRT, 0, 0, 0},
    {"reciprocal", FAMILY_MAP, WORK_RSQRT, 0, 0, 0}, {"exp", FAMILY_MAP, WORK_LOG, 0, 0, 0},
    {"log", FAMILY_MAP, WORK_LOG, 0, 0, 0}, {"cos", FAMILY_MAP, WORK_COS, 0, 0, 0},
    {"sin", FAMILY_MAP, WORK_SIN, 0, 0, 0}, {"tanh", FAMILY_MAP, WORK_TANH, 0, 0, 0},
    {"sigmoid", FAMILY_MAP, WORK_TANH, 0, 0, 0}, {"erf", FAMILY_MAP, WORK_TANH, 0, 0, 0},
    {"silu", FAMILY_MAP, WORK_SILU, 0, 0, 0}, {"gelu", FAMILY_MAP, WORK_GELU, 0, 0, 0},
    {"relu", FAMILY_MAP, WORK_RELU, 0, 0, 0}, {"clamp_min", FAMILY_MAP, WORK_RELU, 0, 0, 0},
    {"clamp", FAMILY_MAP, WORK_RELU, 0, 0, 0}, {"hardtanh", FAMILY_MAP, WORK_RELU, 0, 0, 0},
    {"leaky_relu", FAMILY_MAP, WORK_RELU, 0, 0, 0},
    {"minimum", FAMILY_MAP, WORK_MINIMUM, 0, 0, 0}, {"maximum", FAMILY_MAP, WORK_MINIMUM, 0, 0, 0},
    {"where", FAMILY_MAP, WORK_WHERE, 0, 0, 0}, {"addcmul", FAMILY_MAP, WORK_WHERE, 0, 0, 0},
    {"addcdiv", FAMILY_MAP, WORK_WHERE, 0, 0, 0}, {"lerp", FAMILY_MAP, WORK_WHERE, 0, 0, 0},
    {"masked_fill", FAMILY_MAP, WORK_MASKED_FILL, 0, 0, 0},
    {"bitwise_and", FAMILY_MAP, WORK_AND, 0, 0, 0}, {"bitwise_or", FAMILY_MAP, WORK_OR, 0, 0, 0},
    {"bitwise_not", FAMILY_MAP, WORK_NEG, 0, 0, 0},
    {"silu_backward", FAMILY_MAP, WORK_SILU_BACKWARD, 0, 0, 0},
    {"gelu_backward", FAMILY_MAP, WORK_GELU_BACKWARD, 0, 0, 0},
    {"tanh_backward", FAMILY_MAP, WORK_TANH_BACKWARD, 0, 0, 0},
    {"threshold_backward", FAMILY_MAP, WORK_RELU_BACKWARD, 0, 0, 0},
    {"tril", FAMILY_MAP, WORK_LOWER_TRIANGLE, 0, 0, 0},
    {"triu", FAMILY_MAP, WORK_LOWER_TRIANGLE, 0, 0, 0},
    {"clone", FAMILY_MAP, WORK_COPY, 0, 0, 0},
    {"eq", FAMILY_COMPARE, WORK_EQUAL, 0, 0, 0}, {"ne", FAMILY_COMPARE, WORK_EQUAL, 0, 0, 0},
    {"lt", FAMILY_COMPARE, WORK_LESS, 0, 0, 0}, {"le", FAMILY_COMPARE, WORK_LESS_EQUAL, 0, 0, 0},
    {"gt", FAMILY_COMPARE, WORK_GREATER, 0, 0, 0},
    {"ge", FAMILY_COMPARE, WORK_GREATER_EQUAL, 0, 0, 0},
    {"isinf", FAMILY_COMPARE, WORK_IS_INFINITE, 0, 0, 0},
    {"isnan", FAMILY_COMPARE, WORK_IS_INFINITE, 0, 0, 0},
    {"logical_not", FAMILY_COMPARE, WORK_EQUAL, 0, 0, 0},
    {"logical_and", FAMILY_COMPARE, WORK_AND, 0, 0, 0},
    {"logical_or", FAMILY_COMPARE, WORK_OR, 0, 0, 0},
    {"copy_", FAMILY_ASSIGN, WORK_COPY, 0, 0, 0}, {"fill_", FAMILY_ASSIGN, WORK_FILL, 0, 0, 0},
    {"zero_", FAMILY_ASSIGN, WORK_FILL, 0, 0, 0},
    {"cat", FAMILY_CAT, WORK_CAT, 0, 0, 0},
    {"index_select", FAMILY_ROWS, WORK_EMBEDDING, 0, 0, 0},
    {"embedding", FAMILY_ROWS, WORK_EMBEDDING, 0, 0, 0},
    {"mean", FAMILY_REDUCE, WORK_MEAN, 0, 0, 0}, {"sum", FAMILY_REDUCE, WORK_SUM, 0, 0, 0},
    {"amax", FAMILY_REDUCE, WORK_SUM, 0, 0, 0}, {"amin", FAMILY_REDUCE, WORK_SUM, 0, 0, 0},
    {"max", FAMILY_REDUCE, WORK_SUM, 0, 0, 0}, {"min", FAMILY_REDUCE, WORK_SUM, 0, 0, 0},
    {"argmax", FAMILY_REDUCE, WORK_SUM, 0, 0, 0},
    {"all", FAMILY_REDUCE, WORK_ALL, 0, 0, 0}, {"any", FAMILY_REDUCE, WORK_ANY, 0, 0, 0},
    {"_softmax", FAMILY_SOFTMAX, WORK_SOFTMAX, 0, 0, 0},
    {"_log_softmax", FAMILY_SOFTMAX, WORK_LOG_SOFTMAX, 0, 0, 0},
    {"native_layer_norm", FAMILY_NORM, WORK_LAYER_NORM, 0, 0, 0},
    {"_fused_rms_norm", FAMILY_NORM, WORK_RMS_NORM, 0, 0, 0},
    {"native_layer_norm_backward", FAMILY_NORM_BACKWARD, WORK_LAYER_NORM_BACKWARD, 0, 0, 0},
    {"_fused_rms_norm_backward", FAMILY_NORM_BACKWARD, WORK_RMS_NORM_BACKWARD, 0, 0, 0},
    {"mm", FAMILY_PRODUCT, WORK_BMM_NN, 0, 0, 0}, {"bmm", FAMILY_PRODUCT, WORK_BMM_NN, 0, 0, 0},
    {"addmm", FAMILY_PRODUCT, WORK_BMM_NN, 1, 0, 0},
    {"_addmm_activation", FAMILY_PRODUCT, WORK_BMM_NN, 1, 0, 0},
    {"baddbmm", FAMILY_PRODUCT, WORK_BMM_NN, 1, 0, 0},
    {"linear", FAMILY_PRODUCT, WORK_MATMUL_NT, 0, 0, 0},
    {"_flash_attention_forward", FAMILY_ATTENTION, WORK_ATTENTION, 0, 8, false},
    {"_scaled_dot_product_flash_attention", FAMILY_ATTENTION, WORK_ATTENTION, 0, 4, true},
    {"_cudnn_attention_forward", FAMILY_ATTENTION, WORK_ATTENTION, 0, 10, true},
    {"_scaled_dot_product_cudnn_attention", FAMILY_ATTENTION, WORK_ATTENTION, 0, 6, true},
    {"_efficient_attention_forward", FAMILY_ATTENTION, WORK_EFFICIENT_ATTENTION, 0, 9, false},
    {"_scaled_dot_product_efficient_attention", FAMILY_ATTENTION, WORK_EFFICIENT_ATTENTION, 0, 6,
     true},
    {"_flash_attention_backward", FAMILY_ATTENTION, WORK_ATTENTION_BACKWARD, 1, 11, false},
    {"_scaled_dot_product_flash_attention_backward", FAMILY_ATTENTION, WORK_ATTENTION_BACKWARD, 1,
     11, true},
    {"_scaled_dot_product_cudnn_attention_backward", FAMILY_ATTENTION, WORK_ATTENTION_BACKWARD, 1,
     13, true},
};
/* clang-format on */

static const struct op *op_find(const char *name)
{
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(name, ops[i].name) == 0)
            return &ops[i];
    return NULL;
}

/* "add_" is "add" into its first tensor. */
static const struct op *op_of(const struct profiler_row *row, bool *in_place)
{
    char name[96];
    const size_t length = strlen(row->op);
    const struct op *op = op_find(row->op);
    *in_place = false;
    if (op || length < 2 || length >= sizeof name || row->op[length - 1] != '_')
        return op;
    memcpy(name, row->op, length - 1);
    name[length - 1] = '\0';
    op = op_find(name);
    *in_place = op && op->family == FAMILY_MAP;
    return *in_place ? op : NULL;
}

/* ---- elementwise ---- */

enum { OPERANDS = PROFILER_TENSORS + 1 };

struct made { /* a kernel and what it lends */
    struct kernel kernel;
    struct operand operands[OPERANDS];
    struct strides strides[OPERANDS];
};

static void add_operand(struct made *made, const struct shape *shape, const struct strides *strides,
                        enum dtype dtype, bool out)
{
    const uint32_t at = (uint32_t)made->kernel.ins + made->kernel.outs;
    made->operands[at] = (struct operand){.dtype = (uint8_t)dtype, .shape = *shape};
    if (strides)
        made->strides[at] = *strides;
    made->kernel.ins = (uint16_t)(made->kernel.ins + !out);
    made->kernel.outs = (uint16_t)(made->kernel.outs + out);
}

static struct shape broadcast_shape(const struct profiler_row *row)
{
    struct shape shape = {.rank = 0};
    for (uint32_t i = 0; i < row->count; i++)
        if (row->tensors[i].shape.rank > shape.rank)
            shape.rank = row->tensors[i].shape.rank;
    for (uint32_t d = 0; d < shape.rank; d++)
        shape.dim[d] = 1;
    for (uint32_t i = 0; i < row->count; i++) {
        const struct shape *own = &row->tensors[i].shape;
        for (uint32_t d = 0; d < own->rank; d++)
            if (own->dim[d] != 1)
                shape.dim[d + shape.rank - own->rank] = own->dim[d];
    }
    return shape;
}

/* The order in which TensorIterator walks: the first tensor's, its largest stride outermost; where
 * it does not say, that of the next. */
static bool walks_before(const struct profiler_row *row, const struct shape *shape, uint32_t a,
                         uint32_t b)
{
    for (uint32_t i = 0; i < row->count; i++) {
        const struct profiler_tensor *t = &row->tensors[i];
        const uint32_t missing = shape->rank - t->shape.rank;
        if (a < missing || b < missing || t->shape.dim[a - missing] == 1 ||
            t->shape.dim[b - missing] == 1)
            continue;
        const uint64_t sa = t->strides.of[a - missing], sb = t->strides.of[b - missing];
        if (sa != sb && sa != 0 && sb != 0)
            return sa > sb;
    }
    return a < b;
}

static void walk_order(const struct profiler_row *row, const struct shape *shape,
                       uint32_t order[SHAPE_DIMS])
{
    for (uint32_t i = 0; i < shape->rank; i++) {
        uint32_t at = i;
        for (; at > 0 && walks_before(row, shape, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void add_ordered(struct made *made, const struct profiler_tensor *t,
                        const struct shape *shape, const uint32_t order[SHAPE_DIMS], bool out)
{
    struct shape ordered = {.rank = shape->rank};
    struct strides strides = {{0}};
    const uint32_t missing = shape->rank - t->shape.rank;
    for (uint32_t i = 0; i < shape->rank; i++) {
        const uint32_t d = order[i];
        ordered.dim[i] = d < missing ? 1 : t->shape.dim[d - missing];
        strides.of[i] = ordered.dim[i] > 1 ? t->strides.of[d - missing] : 0;
    }
    add_operand(made, &ordered, &strides, t->dtype, out);
}

static enum dtype result_dtype(const struct profiler_row *row, enum family family)
{
    enum dtype dtype = row->tensors[0].dtype;
    if (family == FAMILY_COMPARE)
        return DTYPE_BOOL;
    for (uint32_t i = 1; i < row->count; i++) /* a condition, a mask */
        if (dtype == DTYPE_BOOL || (row->tensors[i].dtype == DTYPE_FP32 && dtype_bytes(dtype) == 2))
            dtype = row->tensors[i].dtype;
    return dtype;
}

static void make_elementwise(const struct profiler_row *row, const struct op *op, bool in_place,
                             struct made *made)
{
    const struct shape shape = broadcast_shape(row);
    const bool assigns = op->family == FAMILY_ASSIGN;
    struct profiler_tensor out = row->tensors[0];
    uint32_t order[SHAPE_DIMS] = {0};
    walk_order(row, &shape, order);
    for (uint32_t i = assigns; i < row->count; i++)
        add_ordered(made, &row->tensors[i], &shape, order, false);
    if (!assigns && !in_place) { /* dense, in the order of the walk */
        uint64_t step = 1;
        out = (struct profiler_tensor){.shape = shape, .dtype = result_dtype(row, op->family)};
        for (uint32_t i = shape.rank; i-- > 0;) {
            out.strides.of[order[i]] = step;
            step *= shape.dim[order[i]];
        }
    }
    add_ordered(made, &out, &shape, order, true);
}

/* ---- the others ---- */

static struct shape dense_shape(uint32_t rows, uint32_t columns)
{
    return SHAPE(rows, columns);
}

static void make_cat(const struct profiler_row *row, struct made *made)
{
    struct shape shape = row->tensors[0].shape;
    const long dim = strtol(profiler_value(row, 1), NULL, 10);
    const uint32_t d = (uint32_t)(dim < 0 ? dim + (long)shape.rank : dim);
    const enum dtype dtype = strstr(row->kernel, "OpaqueType<4u>") ? DTYPE_FP32 : DTYPE_BF16;
    uint32_t total = 0;
    for (uint32_t i = 0; i < row->count; i++) {
        add_operand(made, &row->tensors[i].shape, &row->tensors[i].strides, dtype, false);
        total += d < shape.rank ? row->tensors[i].shape.dim[d] : 0;
    }
    if (d < shape.rank)
        shape.dim[d] = total;
    add_operand(made, &shape, NULL, dtype, true);
}

static bool make_rows(const struct profiler_row *row, struct made *made)
{
    const struct profiler_tensor *x = &row->tensors[0], *ids = &row->tensors[row->count - 1];
    if (row->count < 2 || x->shape.rank != 2)
        return false;
    const struct shape shape = dense_shape((uint32_t)shape_elements(&ids->shape), x->shape.dim[1]);
    /* Until 2.8, index_select computed the place of each element. */
    if (strstr(row->kernel, "indexSelect"))
        made->kernel.work = WORK_INDEX;
    add_operand(made, &ids->shape, NULL, ids->dtype, false);
    add_operand(made, &x->shape, NULL, x->dtype, false);
    add_operand(made, &shape, NULL, x->dtype, true);
    return true;
}

static void make_reduce(const struct profiler_row *row, struct made *made)
{
    const struct profiler_tensor *x = &row->tensors[0];
    struct shape shape = x->shape;
    if (shape.rank > 0)
        shape.dim[shape.rank - 1] = 1;
    add_operand(made, &x->shape, NULL, x->dtype, false);
    add_operand(made, &shape, NULL, x->dtype, true);
}

static void make_norm(const struct profiler_row *row, bool backward, struct made *made)
{
    const struct profiler_tensor *x = &row->tensors[0];
    add_operand(made, &x->shape, NULL, x->dtype, false);
    if (backward)
        add_operand(made, &x->shape, NULL, x->dtype, false);
    add_operand(made, &x->shape, NULL, x->dtype, true);
    if (backward && row->count > 2) {
        const struct shape weight = SHAPE(x->shape.dim[x->shape.rank - 1]);
        add_operand(made, &weight, NULL, x->dtype, true);
    }
}

/* (.., m, k) x (.., k, n); of `linear`, (.., m, k) x (n, k). */
static bool make_product(const struct profiler_row *row, const struct op *op, struct made *made)
{
    const struct profiler_tensor *x = profiler_tensor_at(row, op->first);
    const struct profiler_tensor *y = profiler_tensor_at(row, op->first + 1U);
    if (!x || !y || x->shape.rank < 2 || y->shape.rank < 2)
        return false;
    const uint32_t last = x->shape.rank - 1;
    struct shape shape = x->shape;
    shape.dim[last] = y->shape.dim[op->work == WORK_MATMUL_NT ? 0 : y->shape.rank - 1];
    made->kernel.flops = 2.0 * (double)shape_elements(&shape) * x->shape.dim[last];
    add_operand(made, &x->shape, &x->strides, x->dtype, false);
    add_operand(made, &y->shape, &y->strides, y->dtype, false);
    add_operand(made, &shape, NULL, x->dtype, true);
    struct strides *out = &made->strides[2];
    uint64_t step = 1;
    for (uint32_t d = shape.rank; d-- > 0; step *= shape.dim[d])
        out->of[d] = step;
    return true;
}

static bool is_true(const char *text)
{
    return strcmp(text, "True") == 0 || strcmp(text, "1") == 0;
}

static bool make_attention(const struct profiler_row *row, const struct op *op, struct made *made)
{
    const struct profiler_tensor *q = profiler_tensor_at(row, op->first);
    made->kernel.attr.causal = is_true(profiler_value(row, op->causal));
    made->kernel.backward = op->work == WORK_ATTENTION_BACKWARD;
    if (!q || q->shape.rank != 4)
        return false;
    for (uint32_t i = 0; i < 3U + op->first; i++) {
        const struct profiler_tensor *t = profiler_tensor_at(row, i);
        if (!t || t->shape.rank != 4)
            return false;
        struct shape shape = t->shape;
        if (op->heads_first) {
            shape.dim[1] = t->shape.dim[2];
            shape.dim[2] = t->shape.dim[1];
        }
        add_operand(made, &shape, NULL, t->dtype, false);
    }
    add_operand(made, &made->operands[op->first].shape, NULL, q->dtype, true);
    return true;
}

/* Kernels beside the one that does an operator's work: clearing counters, adding up parts, putting
 * a gradient into another dtype. What they handle is not in the row. */
static bool is_helper(const char *kernel)
{
    static const char *const helpers[] = {"Memset",   "splitKreduce", "splitKreduce", "combine",
                                          "dot_do_o", "convert_dq",   "nccl",         "clear_dq"};
    for (size_t i = 0; i < sizeof helpers / sizeof helpers[0]; i++)
        if (strstr(kernel, helpers[i]))
            return true;
    return false;
}

static const char *class_of(const struct op *op, const struct made *made)
{
    switch (op->family) {
    case FAMILY_PRODUCT:
        return "gemm";
    case FAMILY_ATTENTION:
        return "attention";
    case FAMILY_SOFTMAX:
        return "softmax";
    case FAMILY_NORM:
    case FAMILY_NORM_BACKWARD:
        return "norm";
    case FAMILY_REDUCE:
        return "reduction";
    case FAMILY_CAT:
        return "cat";
    case FAMILY_ROWS:
        return "rows by index";
    default:
        return kernel_is_vectorised(&made->kernel) ? "elementwise, contiguous"
                                                   : "elementwise, strided";
    }
}

static bool make_kernel(const struct profiler_row *row, const struct op *op, bool in_place,
                        struct made *made)
{
    switch (op->family) {
    case FAMILY_CAT:
        make_cat(row, made);
        return true;
    case FAMILY_ROWS:
        return make_rows(row, made);
    case FAMILY_REDUCE:
    case FAMILY_SOFTMAX:
        make_reduce(row, made);
        if (op->family == FAMILY_SOFTMAX)
            made->operands[1].shape = made->operands[0].shape;
        return true;
    case FAMILY_NORM:
    case FAMILY_NORM_BACKWARD:
        make_norm(row, op->family == FAMILY_NORM_BACKWARD, made);
        return true;
    case FAMILY_PRODUCT:
        return make_product(row, op, made);
    case FAMILY_ATTENTION:
        return make_attention(row, op, made);
    default:
        make_elementwise(row, op, in_place, made);
        made->kernel.strides = made->strides;
        return true;
    }
}

/* Between host and device it is not the device's kernels that copy. */
static double host_copy_seconds(const struct made *made, const struct profile *profile)
{
    const struct operand *out = &made->operands[made->kernel.ins];
    return profile_value(profile, PROFILE_LATENCY) - profile_value(profile, PROFILE_GAP) +
           (double)shape_bytes(&out->shape, (enum dtype)out->dtype) /
               profile_value(profile, PROFILE_PCIE);
}

/* What ran, where the operator says it: the profile's choice does not count then. */
static enum attention_kernel ran(const struct profiler_row *row)
{
    return strstr(row->op, "cudnn")       ? ATTENTION_CUDNN
           : strstr(row->op, "efficient") ? ATTENTION_EFFICIENT
                                          : ATTENTION_FLASH;
}

double profiler_row_seconds(const struct profiler_row *row, const struct profile *profile,
                            const char **class)
{
    bool in_place;
    const struct op *op = op_of(row, &in_place);
    struct made made = {.kernel = {.work = op ? (uint8_t)op->work : WORK_NONE}};
    *class = "";
    if (!op || !row->known || row->count == 0 || is_helper(row->kernel))
        return NAN;
    made.kernel.operands = made.operands;
    if (!make_kernel(row, op, in_place, &made))
        return NAN;
    if (op->family == FAMILY_CAT || op->family == FAMILY_PRODUCT)
        made.kernel.strides = made.strides;
    *class = class_of(op, &made);
    if (strstr(row->kernel, "HtoD") || strstr(row->kernel, "DtoH")) {
        *class = "host copy";
        return host_copy_seconds(&made, profile);
    }
    struct profile used = *profile;
    used.attention = ran(row);
    return kernel_seconds(&made.kernel, &used);
}
