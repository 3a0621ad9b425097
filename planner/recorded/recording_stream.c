/* recording_stream.c - a variant as a stream: what PyTorch did under a dispatch mode, or what it
 * does on a GPU.
 *
 * Where they differ (graph.h, enum autograd), the GPU's way follows from the recording:
 *     - the engine adds a gradient to one that nobody else holds in place. The recorder says which
 *       additions are the engine's, and of dense tensors that are no views; the first operand dies
 *       with the addition;
 *     - index_backward and its like put into the zeros they made, which die with the call otherwise
 *       (areAnyTensorSubclassLike, FunctionsManual.cpp);
 *     - layer norm keeps its statistics in fp32 (layer_norm_kernel.cu), unlike group norm;
 *     - _safe_softmax is three calls (SoftMax.cpp);
 *     - masks are as large as what they are laid over, and say in 64 bits where each element goes.
 * Which library computes attention is a choice of its own: flash was recorded.
 *
 * An engine that has the loss (tape_options.scaled_loss) divides it by the micro-batches and
 * multiplies it by a scale, so that the gradient which was recorded first is now the result of two
 * more nodes. */
#include "base/layout.h"
#include "graph/attention_scratch.h"
#include "recorded/recording_steps.h"

#include <stdlib.h>
#include <string.h>

struct making {
    const struct recording *recording;
    const struct recording_choice *choice;
    const struct recorded_steps *steps;
    struct stream *stream;
    uint32_t *buffer;                /* (recorded buffers) which of the stream's it is */
    bool *stays;                     /* (recorded buffers) lives on as another: its death is none */
    struct operand *operands;        /* of the kernel that is made: room for any */
    uint64_t *storage_bytes[3];      /* of parameters, inputs, module buffers: lent */
    enum attention_kernel attention; /* recorded_attention */
    bool backward;
    uint32_t copied;   /* index into grads of STEP_GRAD's source, or GRAD_AS_IT_IS */
    uint32_t taken;    /* step of the gradient that was taken last before its time; 0: none */
    uint32_t selected; /* workspace of the call that follows; GRAPH_NONE: none */
    struct scaling {   /* with scaled_loss */
        uint32_t seed, last_use; /* recorded buffer, and the step that needs it last */
        uint32_t own, divided, scaled, quotient; /* the stream's buffers */
    } scaling;
};

static void add_step(struct making *m, enum step_kind kind, uint32_t arg)
{
    struct stream *s = m->stream;
    ARRAY_GROW(s->steps, s->step_count, s->step_cap);
    s->steps[s->step_count++] =
        (struct stream_step){.kind = (uint32_t)kind & 31U, .arg = arg & MODULE_ROOT};
}

static uint32_t new_buffer(struct making *m, uint32_t label, enum dtype dtype,
                           const struct shape *shape, uint64_t bytes)
{
    struct stream *s = m->stream;
    ARRAY_GROW(s->buffers, s->buffer_count, s->buffer_cap);
    s->buffers[s->buffer_count] = (struct buffer){
        .bytes = bytes,
        .label = (uint16_t)label,
        .dtype = (uint8_t)dtype,
        .category = m->backward ? CATEGORY_BACKWARD : CATEGORY_ACTIVATION,
        .pool = LANE_COMPUTE,
        .shape = *shape,
    };
    return s->buffer_count++;
}

static uint32_t add_buffer(struct making *m, uint32_t label, enum dtype dtype,
                           const struct shape *shape, uint64_t bytes)
{
    const uint32_t buffer = new_buffer(m, label, dtype, shape, bytes);
    add_step(m, STEP_BIRTH, buffer);
    return buffer;
}

/* A workspace, alive while one kernel runs. */
static uint32_t add_scratch(struct making *m, uint64_t bytes)
{
    const struct shape shape = SHAPE((uint32_t)(bytes / 1024), 256); /* whole rows of them */
    const uint32_t buffer = add_buffer(m, ATEN_WORKSPACE, DTYPE_FP32, &shape, bytes);
    m->stream->buffers[buffer].scratch = true;
    m->stream->buffers[buffer].category = CATEGORY_WORKSPACE;
    return buffer;
}

/* ---- births ---- */

static const struct recorded_op *op_of_type(const struct making *m,
                                            const struct recorded_type *type)
{
    return &m->recording->ops[type->op];
}

/* Which result of its call a birth is: calls birth all of theirs at once. */
static uint32_t ordinal(const struct making *m, uint32_t step)
{
    const struct recorded_step *steps = m->steps->of;
    const uint32_t op = m->recording->types[steps[step].arg].op;
    uint32_t before = 0;
    while (step > before && steps[step - before - 1].kind == RECORDED_BIRTH &&
           m->recording->types[steps[step - before - 1].arg].op == op)
        before++;
    return before;
}

/* What a library's attention keeps beside its result (ops_attention.c): logsumexp, and the state of
 * the generator. */
static void birth_of_attention(struct making *m, const struct recorded_type *type, uint32_t result,
                               struct recorded_type *out, uint16_t *label)
{
    const struct recorded_op *op = op_of_type(m, type);
    const bool cudnn = m->attention == ATTENTION_CUDNN;
    *label = cudnn ? op->cudnn_label : op->efficient_label;
    if (op->kind == RECORDED_FLASH_BACKWARD || result == 0)
        return;
    if (result >= 2) {
        *out = (struct recorded_type){
            .op = out->op, .dtype = DTYPE_INT64, .bytes = dtype_bytes(DTYPE_INT64)};
    } else if (type->shape.rank == 3 && cudnn) {
        out->shape = SHAPE(type->shape.dim[0], type->shape.dim[1], type->shape.dim[2], 1);
    } else if (type->shape.rank == 3) { /* rows are rounded to the kernel's 32 queries */
        out->shape.dim[2] = (type->shape.dim[2] + 31U) & ~31U;
        out->bytes = shape_bytes(&out->shape, out->dtype);
    }
}

static bool is_attention_replaced(const struct making *m, enum op_kind_recorded kind)
{
    return (kind == RECORDED_FLASH || kind == RECORDED_FLASH_BACKWARD) &&
           (m->attention == ATTENTION_CUDNN || m->attention == ATTENTION_EFFICIENT);
}

static void make_birth(struct making *m, uint32_t index)
{
    const struct recorded_step *step = &m->steps->of[index];
    struct recorded_type type = m->recording->types[step->arg];
    const struct recorded_op *op = op_of_type(m, &type);
    uint16_t label = op->label;
    if (is_attention_replaced(m, op->kind)) {
        birth_of_attention(m, &m->recording->types[step->arg], ordinal(m, index), &type, &label);
    } else if (op->kind == RECORDED_NORM && m->choice->autograd == AUTOGRAD_GPU &&
               ordinal(m, index) > 0) {
        type.dtype = DTYPE_FP32;
        type.bytes = shape_bytes(&type.shape, DTYPE_FP32);
    }
    m->buffer[step->buffer] = add_buffer(m, label, type.dtype, &type.shape, type.bytes);
}

/* ---- what happens in place ---- */

/* The buffer that a call writes into on a GPU, in the place of the one whose birth is step `birth`;
 * PLACE_NONE: that is born there, too. */
static uint32_t written_in_place(const struct making *m, uint32_t birth)
{
    const struct recorded_step *steps = m->steps->of;
    const uint32_t call = birth + 1;
    if (m->choice->autograd != AUTOGRAD_GPU || call >= m->steps->count ||
        steps[call].kind != RECORDED_CALL)
        return PLACE_NONE;
    const struct recorded_call *c = &m->recording->calls[steps[call].arg];
    const uint32_t *places = &m->steps->places[steps[call].first_place];
    const bool puts =
        m->backward && !steps[call].recomputed && m->recording->ops[c->op].kind == RECORDED_PUT;
    if ((!steps[call].sums && !puts) || c->places < 2 ||
        places[c->places - 1] != steps[birth].buffer || (places[0] & PLACE_MASK) != PLACE_BUFFER)
        return PLACE_NONE;
    for (uint32_t i = call + 1; i < m->steps->count && steps[i].kind == RECORDED_DEATH; i++)
        if (steps[i].buffer == places[0])
            return places[0];
    return PLACE_NONE;
}

/* ---- kernels ---- */

static uint64_t bytes_at(const struct making *m, uint32_t place)
{
    const uint32_t index = place & ~PLACE_MASK;
    switch (place & PLACE_MASK) {
    case PLACE_PARAM:
        return m->storage_bytes[0][index];
    case PLACE_INPUT:
        return m->storage_bytes[1][index];
    case PLACE_MODULE_BUFFER:
        return m->storage_bytes[2][index];
    default:
        return m->stream->buffers[index].bytes;
    }
}

/* An operand is read from the start of its storage, and no more of it than is there: elements that
 * are read again and again count once, and what overlaps itself is flat. */
static void fit(struct operand *operand, const struct strides *strides, uint64_t bytes)
{
    const uint64_t elements = bytes / dtype_bytes((enum dtype)operand->dtype);
    struct shape *shape = &operand->shape;
    for (uint32_t d = 0; shape_elements(shape) > elements && d < shape->rank; d++)
        if (strides->of[d] == 0)
            shape->dim[d] = 1;
    if (shape_elements(shape) > elements)
        *shape = SHAPE((uint32_t)elements);
}

static uint32_t placed(const struct making *m, uint32_t place)
{
    return (place & PLACE_MASK) == PLACE_BUFFER ? m->buffer[place] : place;
}

/* The kernel of a call on the storages of a step; operands go to the stream's table. */
static struct kernel place_kernel(struct making *m, const struct recorded_step *step,
                                  struct operand *operands)
{
    const struct recorded_call *call = &m->recording->calls[step->arg];
    struct kernel kernel = call->kernel;
    for (uint32_t i = 0; i < (uint32_t)kernel.ins + kernel.outs; i++) {
        operands[i] = call->kernel.operands[i];
        operands[i].place = placed(m, m->steps->places[step->first_place + operands[i].place]);
        fit(&operands[i], &call->strides[i], bytes_at(m, operands[i].place));
    }
    kernel.label = m->recording->ops[call->op].label;
    kernel.backward = m->backward;
    kernel.recomputed = step->recomputed;
    return kernel;
}

static uint32_t new_kernel(struct making *m, const struct kernel *kernel,
                           const struct operand *operands)
{
    struct kernel_table *table = m->stream->kernels;
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
        kernel_table_operand(table, &operands[i]);
    return kernel_table_add(table, kernel);
}

static void add_kernel(struct making *m, const struct kernel *kernel,
                       const struct operand *operands)
{
    add_step(m, STEP_KERNEL, new_kernel(m, kernel, operands));
}

/* Gradients a and b: a += b. */
static void make_sum(struct making *m, const struct kernel *whole, struct operand *operands)
{
    const struct operand sum[2] = {operands[1], operands[0]};
    struct kernel kernel = *whole;
    kernel.work = WORK_ADD_IN_PLACE;
    kernel.label = ATEN_ADD_;
    kernel.strides = NULL;
    kernel.ins = kernel.outs = 1;
    add_kernel(m, &kernel, sum);
}

static void hold(struct making *m, uint32_t count, const uint64_t *bytes, uint32_t *scratch)
{
    for (uint32_t i = 0; i < count; i++)
        scratch[i] = add_scratch(m, bytes[i]);
}

static void let_go(struct making *m, uint32_t count, const uint32_t *scratch)
{
    while (count > 0)
        add_step(m, STEP_DEATH, scratch[--count]);
}

/* (do,) q, k, v ..., with the workspaces of the library that is chosen. */
static void make_attention(struct making *m, struct kernel *kernel, const struct operand *operands,
                           bool backward)
{
    const enum attention_kernel kind = m->attention;
    const enum attention_gpu gpu = m->choice->attention_gpu;
    const struct operand *in = operands + backward;
    const struct shape *q = &in->shape, *k = &in[1].shape, *v = &in[2].shape;
    const uint32_t element = dtype_bytes((enum dtype)in->dtype);
    uint64_t bytes[ATTENTION_SCRATCHES];
    uint32_t scratch[ATTENTION_SCRATCHES], count = 0;
    if (backward)
        count = attention_scratch_before(kind, gpu, q, v, element, bytes);
    hold(m, count, bytes, scratch);
    let_go(m, count, scratch);
    if (backward)
        count = attention_scratch(kind, gpu, q, k, v, element, bytes);
    else
        count = (bytes[0] = attention_forward_scratch(kind, gpu, q, v, element)) > 0;
    hold(m, count, bytes, scratch);
    add_kernel(m, kernel, operands);
    let_go(m, count, scratch);
}

/* What is minus infinity, and in which rows all is: gone with the call. */
static void make_safe_softmax(struct making *m, const struct kernel *kernel,
                              const struct operand *operands)
{
    struct shape rows = operands[0].shape;
    const struct shape *shape = &operands[0].shape;
    if (m->choice->autograd != AUTOGRAD_GPU || shape->rank == 0) {
        add_kernel(m, kernel, operands);
        return;
    }
    rows.dim[rows.rank - 1] = 1;
    const uint32_t infinite =
        add_buffer(m, ATEN_ISNEGINF, DTYPE_BOOL, shape, shape_bytes(shape, DTYPE_BOOL));
    const uint32_t all = add_buffer(m, ATEN_ALL, DTYPE_BOOL, &rows, shape_bytes(&rows, DTYPE_BOOL));
    add_kernel(m, kernel, operands);
    add_step(m, STEP_DEATH, all);
    add_step(m, STEP_DEATH, infinite);
}

/* ---- masks ---- */

/* A mask laid over all of x, if it is not as large itself: a copy. GRAPH_NONE: none is made. */
static uint32_t spread_mask(struct making *m, const struct operand *x, const struct operand *mask)
{
    const uint64_t elements = shape_elements(&x->shape);
    return shape_elements(&mask->shape) < elements ? add_scratch(m, elements) : GRAPH_NONE;
}

/* masked_scatter_ has the running sum of its mask, which says of each element of x which of the
 * rows' it gets (masked_scatter__cuda of IndexKernel.cpp, launch_masked_scatter_kernel of
 * IndexKernel.cu). What the sum itself works with, a number for a thousand elements, is left out.
 */
static void make_scatter(struct making *m, const struct kernel *kernel,
                         const struct operand *operands)
{
    if (m->choice->autograd != AUTOGRAD_GPU || kernel->ins < 2) {
        add_kernel(m, kernel, operands);
        return;
    }
    const uint32_t sum =
        add_scratch(m, dtype_bytes(DTYPE_INT64) * shape_elements(&operands[0].shape));
    const uint32_t mask = spread_mask(m, &operands[0], &operands[1]);
    add_kernel(m, kernel, operands);
    if (mask != GRAPH_NONE)
        add_step(m, STEP_DEATH, mask);
    add_step(m, STEP_DEATH, sum);
}

/* The elements that a mask chooses are found first, each by an index of every dim (masked_select of
 * IndexKernel.cpp by way of nonzero, Nonzero.cu). */
static uint32_t find_selected(struct making *m, const struct operand *x, const struct shape *chosen)
{
    const uint32_t mask = spread_mask(m, &x[0], &x[1]);
    const uint32_t where =
        add_scratch(m, dtype_bytes(DTYPE_INT64) * x[0].shape.rank * shape_elements(chosen));
    if (mask != GRAPH_NONE)
        add_step(m, STEP_DEATH, mask);
    return where;
}

/* What a call makes for itself before its results, the first of which is step `birth`; GRAPH_NONE:
 * nothing. Group norm's backward copies a gradient whose elements are in another order
 * (native_group_norm_backward of group_norm.cpp, on a GPU as on a CPU). */
static uint32_t made_before(struct making *m, uint32_t birth)
{
    const struct recorded_step *steps = m->steps->of;
    const struct recorded_type *type = &m->recording->types[steps[birth].arg];
    const enum op_kind_recorded kind = op_of_type(m, type)->kind;
    if (m->choice->autograd != AUTOGRAD_GPU || ordinal(m, birth) > 0)
        return GRAPH_NONE;
    while (birth + 1 < m->steps->count && steps[birth].kind == RECORDED_BIRTH)
        birth++;
    const struct recorded_call *call = &m->recording->calls[steps[birth].arg];
    const struct operand *x = call->kernel.operands;
    if (steps[birth].kind != RECORDED_CALL || call->op != type->op || call->kernel.ins < 2)
        return GRAPH_NONE;
    if (kind == RECORDED_SELECT)
        return find_selected(m, x, &type->shape);
    const struct strides rows = layout_of_rows(&x->shape, 0);
    if (kind == RECORDED_GROUP_NORM_BACKWARD && !layout_same(&x->shape, call->strides, &rows))
        return add_scratch(m, shape_bytes(&x->shape, (enum dtype)x->dtype));
    return GRAPH_NONE;
}

static void make_call(struct making *m, const struct recorded_step *step)
{
    struct operand *operands = m->operands;
    const struct recorded_call *call = &m->recording->calls[step->arg];
    const struct recorded_op *op = &m->recording->ops[call->op];
    struct kernel kernel = place_kernel(m, step, operands);
    const uint32_t last = (uint32_t)kernel.ins + kernel.outs - 1;
    const bool in_place = (m->backward || step->sums) && call->places > 1 && kernel.ins > 0 &&
                          operands[last].place == operands[0].place;
    const bool bias = step->sums && in_place &&
                      shape_elements(&operands[1].shape) < shape_elements(&operands[0].shape);
    if (is_attention_replaced(m, op->kind)) {
        kernel.label = m->attention == ATTENTION_CUDNN ? op->cudnn_label : op->efficient_label;
        if (m->attention == ATTENTION_EFFICIENT)
            kernel.work = op->kind == RECORDED_FLASH ? WORK_EFFICIENT_ATTENTION
                                                     : WORK_EFFICIENT_ATTENTION_BACKWARD;
    }
    if (op->kind == RECORDED_FLASH || op->kind == RECORDED_FLASH_BACKWARD) {
        make_attention(m, &kernel, operands, op->kind == RECORDED_FLASH_BACKWARD);
    } else if (op->kind == RECORDED_SAFE_SOFTMAX) {
        make_safe_softmax(m, &kernel, operands);
    } else if (op->kind == RECORDED_SCATTER) {
        make_scatter(m, &kernel, operands);
    } else if (step->sums && in_place && !bias) {
        make_sum(m, &kernel, operands);
    } else {
        if (bias)
            kernel.label = ATEN_ADD_;
        else if (op->kind == RECORDED_PUT && in_place)
            kernel.label = op->in_place_label;
        add_kernel(m, &kernel, operands);
    }
}

/* ---- a loss that an engine scales ---- */

/* A number by way of a kernel that multiplies it by another. */
static uint32_t multiplied(struct making *m, enum aten label, uint32_t from)
{
    const struct buffer x = m->stream->buffers[from];
    const uint32_t to = add_buffer(m, label, (enum dtype)x.dtype, &x.shape, x.bytes);
    const struct operand operands[2] = {{.place = from, .dtype = x.dtype, .shape = x.shape},
                                        {.place = to, .dtype = x.dtype, .shape = x.shape}};
    const struct kernel kernel = {
        .label = (uint16_t)label,
        .work = WORK_MUL_NUMBER,
        .backward = true,
        .ins = 1,
        .outs = 1,
        .attr = {.p = 1},
        .flops = 1,
        .bytes = 2.0 * (double)x.bytes,
    };
    add_kernel(m, &kernel, operands);
    return to;
}

/* The gradient of the loss is the first thing that backward() births, from the loss itself. */
static bool is_seed(const struct making *m, uint32_t step)
{
    const struct recorded_step *steps = m->steps->of;
    if (!m->choice->scaled_loss || step <= 1 || steps[step].kind != RECORDED_CALL ||
        steps[step - 1].kind != RECORDED_BIRTH || steps[step - 2].kind != RECORDED_LOSS ||
        m->recording->calls[steps[step].arg].places != 2)
        return false;
    const uint32_t loss = m->steps->places[steps[step].first_place];
    return (loss & PLACE_MASK) == PLACE_BUFFER && loss != steps[step - 1].buffer;
}

static void begin_scaling(struct making *m, uint32_t loss_step)
{
    const struct recorded_steps *s = m->steps;
    const uint32_t seed_step = loss_step + 2;
    if (seed_step >= s->count || !is_seed(m, seed_step))
        return;
    struct scaling *c = &m->scaling;
    c->seed = s->of[loss_step + 1].buffer;
    const uint32_t loss = s->places[s->of[seed_step].first_place];
    c->divided = multiplied(m, ATEN_DIV, m->buffer[loss]);
    c->scaled = multiplied(m, ATEN_MUL, c->divided);
    for (uint32_t i = seed_step + 1; i < s->count; i++) {
        const uint32_t places =
            s->of[i].kind == RECORDED_CALL ? m->recording->calls[s->of[i].arg].places : 0;
        for (uint32_t p = 0; p < places; p++)
            if (s->places[s->of[i].first_place + p] == c->seed)
                c->last_use = i;
    }
}

/* What was the seed is now behind the nodes of both; the seed itself stays to the end. */
static void unscale(struct making *m)
{
    struct scaling *c = &m->scaling;
    c->own = m->buffer[c->seed];
    const uint32_t product = multiplied(m, ATEN_MUL, c->own);
    c->quotient = multiplied(m, ATEN_DIV, product);
    add_step(m, STEP_DEATH, product);
    m->buffer[c->seed] = c->quotient;
    m->stays[c->seed] = true;
}

static void end_use(struct making *m, uint32_t step)
{
    if (m->scaling.last_use == step && step > 0)
        add_step(m, STEP_DEATH, m->scaling.quotient);
}

static void make_final(struct making *m)
{
    const bool scaled = m->scaling.last_use > 0;
    if (scaled)
        add_step(m, STEP_DEATH, m->scaling.own);
    m->stream->final_step = m->stream->step_count;
    add_step(m, STEP_FINAL, 0);
    if (scaled) {
        add_step(m, STEP_DEATH, m->scaling.scaled);
        add_step(m, STEP_DEATH, m->scaling.divided);
    }
}

/* ---- gradients ---- */

static uint32_t add_gradient(struct making *m, struct stream_grad grad)
{
    struct stream *s = m->stream;
    ARRAY_GROW(s->grads, s->grad_count, s->grad_cap);
    s->grads[s->grad_count] = grad;
    return s->grad_count++;
}

static void make_gradient(struct making *m, uint32_t index)
{
    const struct recorded_step *step = &m->steps->of[index];
    if (m->taken == index)
        return;
    if (m->copied == GRAD_AS_IT_IS)
        m->copied = add_gradient(
            m, (struct stream_grad){step->arg, m->buffer[step->buffer], GRAD_AS_IT_IS, false});
    add_step(m, STEP_GRAD, m->copied);
    m->copied = GRAD_AS_IT_IS;
}

static bool is_op(const struct making *m, uint32_t op, const char *name)
{
    return strcmp(m->recording->ops[op].name, name) == 0;
}

/* The step at which the copy that is born at step `birth` becomes a gradient: AccumulateGrad's
 * (clone_obey_contract of grad_layout_contract.h), behind which what it copied may die, and no more
 * happens. 0: it is none. */
static uint32_t gradient_behind(const struct making *m, uint32_t birth, uint32_t *from, bool *dies)
{
    const struct recorded_step *steps = m->steps->of;
    const uint32_t call_step = birth + 1;
    uint32_t at = birth + 2;
    *dies = false;
    if (!m->backward || call_step >= m->steps->count || steps[call_step].kind != RECORDED_CALL)
        return 0;
    const struct recorded_call *call = &m->recording->calls[steps[call_step].arg];
    if (!is_op(m, m->recording->types[steps[birth].arg].op, "new_empty_strided") ||
        !is_op(m, call->op, "copy_") || call->kernel.ins != 1 || call->kernel.outs != 1)
        return 0;
    *from = m->steps->places[steps[call_step].first_place + call->kernel.operands[0].place];
    for (; at < m->steps->count && steps[at].kind == RECORDED_DEATH; at++)
        *dies |= steps[at].buffer == *from;
    const bool found = at < m->steps->count && steps[at].kind == RECORDED_GRADIENT &&
                       steps[at].buffer == steps[birth].buffer &&
                       (*from & PLACE_MASK) == PLACE_BUFFER && *from != steps[birth].buffer;
    return found ? at : 0;
}

/* The hook comes before the death of what arrived: the gradient at step `at` is taken now. */
static void take_early(struct making *m, uint32_t at)
{
    add_step(m, STEP_GRAD, m->copied);
    m->copied = GRAD_AS_IT_IS;
    m->taken = at;
}

/* Such a copy, and the call that makes it; false: it is none. Where parameters are views, there is
 * no AccumulateGrad, and what arrives is the gradient. */
static bool make_copied(struct making *m, uint32_t birth)
{
    uint32_t from;
    bool dies;
    const struct recorded_step *steps = m->steps->of;
    const uint32_t at = gradient_behind(m, birth, &from, &dies);
    if (at == 0 || (m->choice->views && !dies))
        return false;
    const struct strides *strides = m->recording->calls[steps[birth + 1].arg].strides;
    struct stream_grad grad = {steps[at].arg, m->buffer[from], GRAD_AS_IT_IS, false};
    if (m->choice->views) {
        grad.strided = memcmp(&strides[0], &strides[1], sizeof *strides) != 0;
        m->stays[from] = true;
        m->copied = add_gradient(m, grad);
        return true;
    }
    const struct recorded_type *type = &m->recording->types[steps[birth].arg];
    grad.buffer = new_buffer(m, op_of_type(m, type)->label, type->dtype, &type->shape, type->bytes);
    m->buffer[steps[birth].buffer] = grad.buffer;
    const struct kernel kernel = place_kernel(m, &steps[birth + 1], m->operands);
    grad.copy = new_kernel(m, &kernel, m->operands);
    m->copied = add_gradient(m, grad);
    add_step(m, STEP_COPIED, m->copied);
    if (m->choice->node_hooks)
        take_early(m, at);
    return true;
}

/* ---- all steps ---- */

static void make_step(struct making *m, uint32_t index)
{
    const struct recorded_step *step = &m->steps->of[index];
    uint32_t into;
    switch (step->kind) {
    case RECORDED_BIRTH:
        into = written_in_place(m, index);
        if (into == PLACE_NONE) {
            if (m->selected == GRAPH_NONE)
                m->selected = made_before(m, index);
            make_birth(m, index);
        } else {
            m->buffer[step->buffer] = m->buffer[into];
            m->stays[into] = true;
        }
        break;
    case RECORDED_DEATH:
        if (!m->stays[step->buffer])
            add_step(m, STEP_DEATH, m->buffer[step->buffer]);
        break;
    case RECORDED_CALL:
        make_call(m, step);
        if (m->selected != GRAPH_NONE)
            add_step(m, STEP_DEATH, m->selected);
        m->selected = GRAPH_NONE;
        if (is_seed(m, index))
            unscale(m);
        end_use(m, index);
        break;
    case RECORDED_GRADIENT:
        make_gradient(m, index);
        break;
    case RECORDED_PRE_FORWARD:
        add_step(m, STEP_PRE_FORWARD, step->arg);
        break;
    case RECORDED_POST_FORWARD:
        add_step(m, STEP_POST_FORWARD, step->arg);
        break;
    case RECORDED_PRE_BACKWARD:
        add_step(m, STEP_PRE_BACKWARD, step->arg);
        break;
    case RECORDED_POST_BACKWARD:
        add_step(m, STEP_POST_BACKWARD, step->arg);
        break;
    case RECORDED_BACK:
        add_step(m, STEP_BACK, step->arg);
        break;
    case RECORDED_CALLED:
        add_step(m, STEP_CALL_FORWARD, step->arg);
        break;
    case RECORDED_RETURNED:
        add_step(m, STEP_RETURN_FORWARD, step->arg);
        break;
    case RECORDED_CALLED_BACK:
        add_step(m, STEP_CALL_BACKWARD, step->arg);
        break;
    case RECORDED_RETURNED_BACK:
        add_step(m, STEP_RETURN_BACKWARD, step->arg);
        break;
    case RECORDED_SAVED:
        add_step(m, STEP_SAVED, step->arg);
        break;
    case RECORDED_UNSAVED:
        add_step(m, STEP_UNSAVED, step->arg);
        break;
    case RECORDED_LOGITS:
        add_step(m, STEP_MARK, STREAM_AFTER_LOGITS);
        break;
    case RECORDED_LOSS:
        add_step(m, STEP_MARK, STREAM_AFTER_FORWARD);
        m->backward = true;
        if (m->choice->scaled_loss)
            begin_scaling(m, index);
        break;
    case RECORDED_BLOCKS:
        add_step(m, STEP_MARK, STREAM_BACKWARD_BLOCKS);
        break;
    case RECORDED_FINAL:
        make_final(m);
        break;
    }
}

/* Bytes of what was there before, by number: rows of `sizes`. False: they are none. */
static bool sizes_of(const json_t *rows, uint64_t **out, uint32_t *count)
{
    size_t i;
    const json_t *row;
    *count = (uint32_t)json_array_size(rows);
    *out = xcalloc(*count + 1, sizeof **out);
    json_array_foreach(rows, i, row)
    {
        const json_int_t bytes = json_integer_value(json_array_get(row, 2));
        if (json_array_size(row) != 3 || bytes <= 0)
            return false;
        (*out)[i] = (uint64_t)bytes;
    }
    return true;
}

/* Kernels lend strides and names of the recording, which may go before they do. */
static void own_lent(struct stream *stream, const struct recording *r)
{
    struct kernel_table *table = stream->kernels;
    table->label_count = r->label_count;
    table->labels = arena_alloc(&table->arena, r->label_count * sizeof *table->labels);
    for (uint32_t i = 0; i < r->label_count; i++)
        table->labels[i] =
            i < ATEN_COUNT ? r->labels[i] : arena_strdup(&table->arena, r->labels[i]);
    for (uint32_t i = 0; i < table->kernel_count; i++) {
        struct kernel *kernel = &table->kernels[i];
        if (!kernel->strides)
            continue;
        const size_t bytes = ((uint32_t)kernel->ins + kernel->outs) * sizeof *kernel->strides;
        struct strides *own = arena_alloc(&table->arena, bytes);
        memcpy(own, kernel->strides, bytes);
        kernel->strides = own;
    }
}

static struct stream *make_stream(const struct recording *r, const struct recording_choice *choice,
                                  const struct recorded_steps *steps, uint64_t *sizes[3])
{
    struct stream *stream = xmalloc(sizeof *stream);
    *stream = (struct stream){
        .buffers = xmalloc((steps->buffers + 1) * sizeof *stream->buffers),
        .buffer_cap = steps->buffers + 1,
        .kernels = kernel_table_new(steps->count, steps->place_count),
    };
    struct making m = {
        .recording = r,
        .choice = choice,
        .steps = steps,
        .stream = stream,
        .attention = recorded_attention(r, choice),
        .buffer = xcalloc(steps->buffers + 1, sizeof *m.buffer),
        .stays = xcalloc(steps->buffers + 1, sizeof *m.stays),
        .operands = xmalloc(2 * ATEN_TENSORS * sizeof *m.operands),
        .storage_bytes = {sizes[0], sizes[1], sizes[2]},
        .copied = GRAD_AS_IT_IS,
        .selected = GRAPH_NONE,
    };
    for (uint32_t i = 0; i < steps->count; i++) {
        if (steps->of[i].kind == RECORDED_BIRTH && make_copied(&m, i))
            i++; /* the call is made with it */
        else
            make_step(&m, i);
    }
    add_step(&m, STEP_MARK, STREAM_AFTER_BACKWARD);
    own_lent(stream, r);
    kernel_table_close(stream->kernels);
    free(m.buffer);
    free(m.stays);
    free(m.operands);
    return stream;
}

/* Bytes of parameters, and which of them a variant trains. */
static bool read_params(const struct recording *r, const struct recorded_variant *variant,
                        uint64_t **bytes, bool **trained, uint32_t *count)
{
    size_t i;
    const json_t *row, *rows = json_object_get(r->header, "parameters");
    *count = (uint32_t)json_array_size(rows);
    *bytes = xcalloc(*count + 1, sizeof **bytes);
    *trained = xcalloc(*count + 1, sizeof **trained);
    json_array_foreach(rows, i, row)
    {
        struct shape shape;
        if (!recorded_shape(json_array_get(row, 1), &shape))
            return false;
        (*bytes)[i] = shape_bytes(&shape, r->info.dtype);
        (*trained)[i] =
            json_is_true(json_array_get(row, 2)) && !(variant->frozen && variant->frozen[i]);
    }
    return true;
}

enum err_code recording_stream(const struct recording *r, const struct recording_choice *choice,
                               struct stream **out, struct err *err)
{
    const struct recorded_variant *variant;
    json_t *line = NULL;
    uint64_t *sizes[3] = {NULL};
    bool *trained = NULL;
    struct recorded_limits limits = {
        .modules = r->info.units,
        .called = (uint32_t)json_array_size(json_object_get(r->header, "called")),
    };
    struct recorded_steps steps = {.of = NULL};
    *out = NULL;
    TRY(recording_choose(r, choice, &variant, err));
    TRY(recording_line(r, variant, &line, err));
    const char *text = json_string_value(json_object_get(line, "steps"));
    enum err_code rc = ERR_OK;
    if (!text || !read_params(r, variant, &sizes[0], &trained, &limits.params) ||
        !sizes_of(json_object_get(line, "inputs"), &sizes[1], &limits.inputs) ||
        !sizes_of(json_object_get(line, "constants"), &sizes[2], &limits.constants))
        rc = err_set(err, ERR_INVALID, "%s: line %u: steps, inputs or constants are missing",
                     r->path, variant->number);
    limits.trained = trained;
    if (rc == ERR_OK)
        rc = recorded_steps_read(r, variant->number, text, &limits, &steps, err);
    if (rc == ERR_OK && steps.unbegun && choice->views)
        rc = err_set(err, ERR_INVALID,
                     "%s: fsdp1 finds no tensor in what the model returns, and torch fails: let it "
                     "return a tensor, or tuples, dictionaries or dataclasses of them",
                     r->path);
    if (rc == ERR_OK)
        *out = make_stream(r, choice, &steps, sizes);
    recorded_steps_free(&steps);
    for (int i = 0; i < 3; i++)
        free(sizes[i]);
    free(trained);
    json_decref(line);
    return rc;
}
