/* aten_kernel.c - see aten_kernel.h. */
#include "aten/aten_kernel.h"

#include "aten/aten_ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char *argument(const struct aten_call *call, uint32_t input)
{
    return call->value ? call->value(call->context, input) : "";
}

static bool is_true(const char *text)
{
    return strcmp(text, "True") == 0 || strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
}

/* The tensor that is argument `input`, or NULL. */
static const struct aten_tensor *tensor_at(const struct aten_call *call, uint32_t input)
{
    for (uint32_t i = 0; i < call->count; i++)
        if (call->tensors[i].input == input)
            return &call->tensors[i];
    return NULL;
}

/* What was written down of result `index`, or NULL. */
static const struct aten_tensor *result(const struct aten_call *call, uint32_t index)
{
    return index < call->result_count ? &call->results[index] : NULL;
}

/* ---- operands ---- */

/* An operand with the memory of `t` (NULL: of nobody), as if it had `shape` and `strides`. */
static void add(struct aten_kernel *made, const struct aten_tensor *t, const struct shape *shape,
                const struct strides *strides, enum dtype dtype, bool out)
{
    const uint32_t at = (uint32_t)made->kernel.ins + made->kernel.outs;
    assert(at < sizeof made->operands / sizeof made->operands[0]);
    made->operands[at] = (struct operand){
        .dtype = (uint8_t)dtype, .shape = *shape, .place = t ? t->place : PLACE_NONE};
    made->strides[at] = strides ? *strides : (struct strides){{0}};
    made->kernel.ins = (uint16_t)(made->kernel.ins + !out);
    made->kernel.outs = (uint16_t)(made->kernel.outs + out);
}

static void add_as_is(struct aten_kernel *made, const struct aten_tensor *t, bool out)
{
    add(made, t, &t->shape, &t->strides, t->dtype, out);
}

static void add_results(struct aten_kernel *made, const struct aten_call *call, uint32_t first)
{
    for (uint32_t i = first; i < call->result_count; i++)
        add_as_is(made, &call->results[i], true);
}

struct strides aten_dense(const struct shape *shape)
{
    struct strides strides = {{0}};
    uint64_t step = 1;
    for (uint32_t d = shape->rank; d-- > 0; step *= shape->dim[d])
        strides.of[d] = step;
    return strides;
}

/* Every operand as it is, where results were written down. */
static bool make_plain(const struct aten_call *call, struct aten_kernel *made)
{
    if (call->result_count == 0)
        return false;
    for (uint32_t i = 0; i < call->count; i++)
        add_as_is(made, &call->tensors[i], false);
    add_results(made, call, 0);
    return true;
}

/* ---- elementwise ---- */

static struct shape broadcast_shape(const struct aten_call *call)
{
    struct shape shape = {.rank = 0};
    for (uint32_t i = 0; i < call->count; i++)
        if (call->tensors[i].shape.rank > shape.rank)
            shape.rank = call->tensors[i].shape.rank;
    for (uint32_t d = 0; d < shape.rank; d++)
        shape.dim[d] = 1;
    for (uint32_t i = 0; i < call->count; i++) {
        const struct shape *own = &call->tensors[i].shape;
        for (uint32_t d = 0; d < own->rank; d++)
            if (own->dim[d] != 1)
                shape.dim[d + shape.rank - own->rank] = own->dim[d];
    }
    return shape;
}

/* The order in which TensorIterator walks: the first tensor's, its largest stride outermost; where
 * it does not say, that of the next. */
static bool walks_before(const struct aten_call *call, const struct shape *shape, uint32_t a,
                         uint32_t b)
{
    for (uint32_t i = 0; i < call->count; i++) {
        const struct aten_tensor *t = &call->tensors[i];
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

static void walk_order(const struct aten_call *call, const struct shape *shape,
                       uint32_t order[SHAPE_DIMS])
{
    for (uint32_t i = 0; i < shape->rank; i++) {
        uint32_t at = i;
        for (; at > 0 && walks_before(call, shape, i, order[at - 1]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

static void add_ordered(struct aten_kernel *made, const struct aten_tensor *t,
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
    struct aten_tensor walked = *t;
    walked.shape = ordered;
    walked.strides = strides;
    add_as_is(made, &walked, out);
}

static enum dtype result_dtype(const struct aten_call *call, enum aten_family family)
{
    enum dtype dtype = call->tensors[0].dtype;
    if (family == ATEN_COMPARE)
        return DTYPE_BOOL;
    for (uint32_t i = 1; i < call->count; i++) { /* a condition, a mask */
        const enum dtype other = call->tensors[i].dtype;
        if (dtype == DTYPE_BOOL || (other == DTYPE_FP32 && dtype_bytes(dtype) == 2))
            dtype = other;
    }
    return dtype;
}

static void make_elementwise(const struct aten_call *call, const struct aten_op *op, bool in_place,
                             struct aten_kernel *made)
{
    const struct shape shape = broadcast_shape(call);
    const bool assigns = op->family == ATEN_ASSIGN;
    const struct aten_tensor *written = result(call, 0);
    struct aten_tensor out = call->tensors[0];
    uint32_t order[SHAPE_DIMS] = {0};
    walk_order(call, &shape, order);
    for (uint32_t i = assigns; i < call->count; i++)
        add_ordered(made, &call->tensors[i], &shape, order, false);
    if (!assigns && !in_place && written && written->shape.rank == shape.rank) {
        out = *written;
    } else if (!assigns && !in_place) { /* dense, in the order of the walk */
        uint64_t step = 1;
        out = (struct aten_tensor){
            .shape = shape, .dtype = result_dtype(call, op->family), .place = PLACE_NONE};
        for (uint32_t i = shape.rank; i-- > 0;) {
            out.strides.of[order[i]] = step;
            step *= shape.dim[order[i]];
        }
    }
    add_ordered(made, &out, &shape, order, true);
}

/* ---- shapes, rows, reductions ---- */

static void make_join(const struct aten_call *call, struct aten_kernel *made)
{
    struct shape shape = call->tensors[0].shape;
    const long dim = strtol(argument(call, 1), NULL, 10);
    const uint32_t d = (uint32_t)(dim < 0 ? dim + (long)shape.rank : dim);
    /* A profile does not say the dtype of a list of tensors; that of 16-bit numbers is the rule. */
    const enum dtype dtype = call->result_count                       ? call->tensors[0].dtype
                             : strstr(call->traced, "OpaqueType<4u>") ? DTYPE_FP32
                                                                      : DTYPE_BF16;
    uint32_t total = 0;
    for (uint32_t i = 0; i < call->count; i++) {
        add(made, &call->tensors[i], &call->tensors[i].shape, &call->tensors[i].strides, dtype,
            false);
        total += d < shape.rank ? call->tensors[i].shape.dim[d] : 0;
    }
    if (call->result_count) {
        add_results(made, call, 0);
        return;
    }
    if (d < shape.rank)
        shape.dim[d] = total;
    add(made, NULL, &shape, NULL, dtype, true);
}

static bool make_rows(const struct aten_call *call, struct aten_kernel *made)
{
    const struct aten_tensor *x = &call->tensors[0], *ids = &call->tensors[call->count - 1];
    if (call->count < 2 || x->shape.rank != 2)
        return false;
    const struct shape shape = SHAPE((uint32_t)shape_elements(&ids->shape), x->shape.dim[1]);
    /* Until 2.8, index_select computed the place of each element. */
    if (strstr(call->traced, "indexSelect"))
        made->kernel.work = WORK_INDEX;
    add(made, ids, &ids->shape, NULL, ids->dtype, false);
    add(made, x, &x->shape, NULL, x->dtype, false);
    add(made, result(call, 0), &shape, NULL, x->dtype, true);
    return true;
}

static void make_reduce(const struct aten_call *call, const struct aten_op *op,
                        struct aten_kernel *made)
{
    const struct aten_tensor *x = &call->tensors[0];
    struct shape shape = x->shape;
    if (make_plain(call, made))
        return;
    if (shape.rank > 0 && op->family == ATEN_REDUCE)
        shape.dim[shape.rank - 1] = 1;
    add(made, x, &x->shape, NULL, x->dtype, false);
    add(made, NULL, &shape, NULL, x->dtype, true);
}

static void make_norm(const struct aten_call *call, bool backward, struct aten_kernel *made)
{
    const struct aten_tensor *x = &call->tensors[0];
    if (make_plain(call, made))
        return;
    add(made, x, &x->shape, NULL, x->dtype, false);
    if (backward)
        add(made, x, &x->shape, NULL, x->dtype, false);
    add(made, NULL, &x->shape, NULL, x->dtype, true);
    if (backward && call->count > 2) {
        const struct shape weight = SHAPE(x->shape.dim[x->shape.rank - 1]);
        add(made, NULL, &weight, NULL, x->dtype, true);
    }
}

/* ---- products ---- */

/* (.., m, k) x (.., k, n); of `linear`, (.., m, k) x (n, k). */
static bool make_product(const struct aten_call *call, const struct aten_op *op,
                         struct aten_kernel *made)
{
    const struct aten_tensor *x = tensor_at(call, op->first), *y = tensor_at(call, op->first + 1U);
    if (!x || !y || x->shape.rank < 2 || y->shape.rank < 2)
        return false;
    const uint32_t last = x->shape.rank - 1;
    struct shape shape = x->shape;
    shape.dim[last] = y->shape.dim[op->work == WORK_MATMUL_NT ? 0 : y->shape.rank - 1];
    made->kernel.flops = 2.0 * (double)shape_elements(&shape) * x->shape.dim[last];
    const struct strides strides = aten_dense(&shape);
    add_as_is(made, x, false);
    add_as_is(made, y, false);
    add(made, result(call, 0), &shape, &strides, x->dtype, true);
    return true;
}

/* Rows in groups, each with its own matrix: (t, k) x (g, k, n), or of each group xᵀ y: (k, t) x (t,
 * n) -> (g, k, n). */
static bool make_grouped(const struct aten_call *call, struct aten_kernel *made)
{
    const struct aten_tensor *x = tensor_at(call, 0), *y = tensor_at(call, 1);
    const struct aten_tensor *z = result(call, 0);
    if (!x || !y || !z || x->shape.rank != 2 || y->shape.rank < 2)
        return false;
    const bool summed = y->shape.rank == 2;
    made->kernel.work = summed ? WORK_GROUPED_MM_TN : WORK_GROUPED_MM_NN;
    made->kernel.flops = 2.0 * (double)shape_elements(&x->shape) * y->shape.dim[y->shape.rank - 1];
    add_as_is(made, x, false);
    add_as_is(made, y, false);
    add_as_is(made, z, true);
    return true;
}

/* As a product: rows are the places of an image (n, c, ...), columns its channels. */
static struct shape rows_of_channels(const struct shape *image)
{
    const uint32_t channels = image->rank > 1 && image->dim[1] > 0 ? image->dim[1] : 1;
    return SHAPE((uint32_t)(shape_elements(image) / channels), channels);
}

static bool make_convolution(const struct aten_call *call, const struct aten_op *op,
                             struct aten_kernel *made)
{
    const struct aten_tensor *x = tensor_at(call, op->first), *w = tensor_at(call, op->first + 1U);
    if (!x || !w || !result(call, 0) || x->shape.rank < 3 || w->shape.rank < 3)
        return false;
    const struct aten_tensor *y = op->first ? tensor_at(call, 0) : result(call, 0);
    const uint32_t outs = w->shape.dim[0];
    const double product =
        2.0 * (double)shape_elements(&y->shape) * (double)shape_elements(&w->shape) / outs;
    uint32_t gradients = 0; /* dx and dw are a product each */
    for (uint32_t i = 0; i < call->result_count; i++)
        gradients += call->results[i].shape.rank >= 3;
    made->kernel.flops = call->flops > 0 ? call->flops : product * gradients;
    for (uint32_t i = 0; i < call->count; i++) {
        const struct aten_tensor *t = &call->tensors[i];
        const struct shape shape =
            t == w || t->shape.rank < 3
                ? SHAPE(t->shape.dim[0], (uint32_t)(shape_elements(&t->shape) / t->shape.dim[0]))
                : rows_of_channels(&t->shape);
        add(made, t, &shape, NULL, t->dtype, false);
    }
    for (uint32_t i = 0; i < call->result_count; i++) {
        const struct shape shape = rows_of_channels(&call->results[i].shape);
        add(made, &call->results[i], &shape, NULL, call->results[i].dtype, true);
    }
    return true;
}

/* Two products of queries and keys forward, five backward; half of the pairs where it is causal. */
static double attention_flops(const struct aten_kernel *made, bool backward)
{
    const struct operand *q = &made->operands[backward ? 1 : 0], *v = q + 2;
    const double pairs = (double)shape_elements(&q->shape) / q->shape.dim[3] * q[1].shape.dim[1];
    const double head = q->shape.dim[3], head_v = v->shape.dim[3];
    const double a_pair = backward ? 2 * (3 * head + 2 * head_v) : 2 * (head + head_v);
    return pairs * a_pair / (made->kernel.attr.causal ? 2 : 1);
}

/* An operand (b, s, a, d), where the call has it as (b, a, s, d). */
static void add_heads(struct aten_kernel *made, const struct aten_tensor *t, bool heads_first,
                      bool out)
{
    struct aten_tensor turned = *t;
    if (heads_first && t->shape.rank == 4) {
        turned.shape.dim[1] = t->shape.dim[2];
        turned.shape.dim[2] = t->shape.dim[1];
        turned.strides.of[1] = t->strides.of[2];
        turned.strides.of[2] = t->strides.of[1];
    }
    add_as_is(made, &turned, out);
}

static bool make_attention(const struct aten_call *call, const struct aten_op *op,
                           struct aten_kernel *made)
{
    const struct aten_tensor *q = tensor_at(call, op->first);
    const bool backward = op->first > 0;
    made->kernel.attr.causal = is_true(argument(call, op->causal));
    made->kernel.backward = backward;
    if (!q || q->shape.rank != 4)
        return false;
    for (uint32_t i = 0; i < 3U + op->first; i++) {
        const struct aten_tensor *t = tensor_at(call, i);
        if (!t || t->shape.rank != 4)
            return false;
        add_heads(made, t, op->heads_first, false);
    }
    made->kernel.flops = attention_flops(made, backward);
    for (uint32_t i = 3U + op->first; call->result_count && i < 8; i++) /* logsumexp, o; a bias */
        if (tensor_at(call, i))
            add_as_is(made, tensor_at(call, i), false);
    if (call->result_count == 0)
        add(made, NULL, &made->operands[op->first].shape, NULL, q->dtype, true);
    for (uint32_t i = 0; i < call->result_count; i++)
        add_heads(made, &call->results[i], op->heads_first, true);
    return true;
}

/* ---- all of them ---- */

/* Whether its cost goes by strides. */
static bool has_strides(enum aten_family family)
{
    return family <= ATEN_JOIN || family == ATEN_PRODUCT;
}

static bool make(const struct aten_call *call, const struct aten_op *op, bool in_place,
                 struct aten_kernel *made)
{
    switch (op->family) {
    case ATEN_JOIN:
        make_join(call, made);
        return true;
    case ATEN_ROWS:
        return make_rows(call, made);
    case ATEN_REDUCE:
    case ATEN_ROWWISE_SOFTMAX:
        make_reduce(call, op, made);
        return true;
    case ATEN_NORM:
    case ATEN_NORM_BACKWARD:
        make_norm(call, op->family == ATEN_NORM_BACKWARD, made);
        return true;
    case ATEN_PRODUCT:
        return make_product(call, op, made);
    case ATEN_GROUPED:
        return make_grouped(call, made);
    case ATEN_CONVOLUTION:
        return make_convolution(call, op, made);
    case ATEN_ATTENTION:
        return make_attention(call, op, made);
    case ATEN_PLAIN:
        return make_plain(call, made);
    default:
        make_elementwise(call, op, in_place, made);
        return true;
    }
}

static void begin(struct aten_kernel *made, enum work_kind work, enum aten_family family)
{
    made->kernel = (struct kernel){.work = (uint8_t)work, .operands = made->operands};
    made->family = family;
}

bool aten_kernel_make(const struct aten_call *call, struct aten_kernel *out)
{
    bool in_place;
    const struct aten_op *op = aten_op_find(call->op, &in_place);
    assert(call->count <= ATEN_TENSORS && call->result_count < ATEN_TENSORS);
    out->known = op != NULL;
    if (call->count + call->result_count == 0)
        return false;
    if (op && (call->count > 0 || op->family == ATEN_PLAIN)) {
        begin(out, op->work, op->family);
        if (make(call, op, in_place, out)) {
            out->kernel.strides = has_strides(op->family) ? out->strides : NULL;
            return true;
        }
        out->known = false;
    }
    begin(out, WORK_OTHER, ATEN_PLAIN);
    return make_plain(call, out);
}
