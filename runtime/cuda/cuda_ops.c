/* cuda_ops.c - from a piece of work to the launch of a kernel: which launcher, and the operands in
 * the form that kernels take. Shapes were checked by work_check. */
#include "runtime/cuda/cuda_device.h"
#include "runtime/work/operand.h"

#include <stdlib.h>

/* ---- operands ---- */

enum kernel_dtype cuda_dtype(const struct work_operand *x)
{
    return x->dtype == DTYPE_FP32   ? KERNEL_FP32
           : x->dtype == DTYPE_BF16 ? KERNEL_BF16
                                    : KERNEL_FP16;
}

struct kernel_tensor cuda_tensor(const struct work_operand *x)
{
    const uint64_t width = operand_row_width(x);
    const bool aligned = (uintptr_t)x->data % 16 == 0;
    return (struct kernel_tensor){
        .data = x->data,
        .count = operand_count(x),
        .inverse = kernel_inverse(width),
        .width = (uint32_t)width,
        .pitch = x->pitch,
        .dtype = (uint8_t)cuda_dtype(x),
        .wide = aligned && (!x->pitch || (width % 8 == 0 && x->pitch % 8 == 0)),
    };
}

struct kernel_index cuda_index(const struct work_operand *x)
{
    return (struct kernel_index){x->data, operand_count(x), x->dtype == DTYPE_INT64};
}

struct kernel_site cuda_site(const struct work *work)
{
    return (struct kernel_site){work->instruction, (uint32_t)work->kind};
}

static const struct kernel_tensor nothing; /* data NULL: an operand that is not there */

static struct kernel_tensor in(const struct work *work, uint32_t i)
{
    return cuda_tensor(work_in(work, i));
}

static struct kernel_tensor out(const struct work *work, uint32_t i)
{
    return cuda_tensor(work_out(work, i));
}

static struct kernel_tensor optional(const struct work_operand *x)
{
    return x ? cuda_tensor(x) : nothing;
}

enum err_code cuda_launched(const struct work *work, cudaError_t rc, struct err *err)
{
    if (rc == cudaSuccess)
        return ERR_OK;
    if (rc == cudaErrorMemoryAllocation) /* a launcher's way to say so */
        return work_refuse(work, ERR_UNSUPPORTED, err,
                           "%llu bytes of scratch memory are too few for operands of this size",
                           (unsigned long long)CUDA_SCRATCH_BYTES);
    return work_refuse(work, ERR_DEVICE, err, "%s", cudaGetErrorString(rc));
}

/* ---- kinds that need more than their operands in order ---- */

static bool has_layout(const struct work *work)
{
    for (uint32_t i = 0; i < work->ins + work->outs; i++)
        if (work->operand[i].layout)
            return true;
    return false;
}

/* Dims along which both go on as they do along the next one are one dim: there are fewer to divide
 * by. Dims of size 1 are none. */
struct kernel_spread cuda_spread(const struct shape *x, const struct shape *y,
                                 const struct shape *z)
{
    uint64_t x_step[SHAPE_DIMS], y_step[SHAPE_DIMS];
    struct kernel_spread spread = {.dim = {0}};
    int at = KERNEL_DIMS; /* the outermost that is filled in */
    shape_spread(x, z, x_step);
    shape_spread(y, z, y_step);
    for (uint32_t i = z->rank; i-- > 0;) {
        const uint64_t size = at < KERNEL_DIMS ? spread.dim[at] : 0;
        if (z->dim[i] == 1)
            continue;
        if (size && x_step[i] == size * spread.x_step[at] &&
            y_step[i] == size * spread.y_step[at] && size * z->dim[i] <= UINT32_MAX) {
            spread.dim[at] *= z->dim[i];
            continue;
        }
        at--;
        spread.dim[at] = z->dim[i];
        spread.x_step[at] = x_step[i];
        spread.y_step[at] = y_step[i];
    }
    while (at-- > 0)
        spread.dim[at] = 1;
    for (int i = 0; i < KERNEL_DIMS; i++)
        spread.inverse[i] = kernel_inverse(spread.dim[i]);
    return spread;
}

/* Complex numbers, in pairs. */
static cudaError_t multiply_complex(const struct work *work, cudaStream_t stream)
{
    const struct work_operand *x = work_in(work, 0), *y = work_in(work, 1), *z = work_out(work, 0);
    const struct kernel_spread spread = cuda_spread(&x->shape, &y->shape, &z->shape);
    return kernel_multiply_complex(&spread, x->data, y->data, z->data, operand_count(z), stream);
}

/* The first and the last dim that y is without, as (outer, terms, inner); false: there are dims of
 * y between them. */
static bool is_one_run(const struct work *work, uint64_t *terms, uint64_t *inner)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    uint64_t y_step[SHAPE_DIMS];
    bool begun = false, ended = false;
    *terms = *inner = 1;
    if (work->kind == WORK_SUM)
        shape_spread(&y->shape, &x->shape, y_step);
    for (uint32_t i = x->shape.rank; i-- > 0;) {
        const uint32_t dim = x->shape.dim[i];
        const bool kept = work->kind == WORK_SUM ? y_step[i] != 0 : i != work->attr.dim;
        if (dim == 1)
            continue;
        ended = ended || (begun && kept);
        if (!kept && ended)
            return false;
        begun = begun || !kept;
        *(kept ? inner : terms) *= ended ? 1 : dim;
    }
    return true;
}

/* SUM and SUM_DIM. What lies without gaps and is of floats has kernels of its own. */
static cudaError_t sum(const struct cuda_device *cuda, const struct work *work,
                       struct kernel_scratch scratch, cudaStream_t stream)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    const bool plain = operand_is_float(x) && operand_is_float(y) && !x->pitch && !y->pitch &&
                       !x->layout && !y->layout && operand_count(x) > 0;
    uint64_t terms, inner;
    if (!plain || !is_one_run(work, &terms, &inner))
        return cuda_passes(cuda, work, scratch, stream);
    return kernel_sum(operand_count(y) / inner, terms, inner, cuda_tensor(x), cuda_tensor(y),
                      scratch, stream);
}

static cudaError_t norm(const struct work *work, cudaStream_t stream)
{
    const struct work_operand *x = work_in(work, 0);
    const bool centred = work->kind == WORK_LAYER_NORM;
    const struct kernel_norm_args args = {
        .x = cuda_tensor(x),
        .weight = work->ins > 1 ? in(work, 1) : nothing,
        .bias = work->ins > 2 ? in(work, 2) : nothing,
        .mean = centred ? out(work, 1) : nothing,
        .rstd = out(work, centred ? 2 : 1),
        .t = operand_rows(x),
        .h = operand_last(x),
        .eps = work->attr.eps,
        .centred = centred,
    };
    return kernel_norm(&args, out(work, 0), stream);
}

static cudaError_t norm_backward(const struct work *work, struct kernel_scratch scratch,
                                 cudaStream_t stream)
{
    const struct work_operand *x = work_in(work, 1);
    const bool centred = work->kind == WORK_LAYER_NORM_BACKWARD;
    const struct norm_gradients to = work_norm_gradients(work);
    const struct kernel_norm_args args = {
        .x = cuda_tensor(x),
        .weight = !centred || work->ins > 4 ? in(work, 2) : nothing,
        .mean = centred ? in(work, work->ins - 2) : nothing,
        .rstd = in(work, work->ins - 1),
        .t = operand_rows(x),
        .h = operand_last(x),
        .eps = work->attr.eps,
        .centred = centred,
    };
    return kernel_norm_backward(&args, in(work, 0), optional(to.dx), optional(to.dweight),
                                optional(to.dbias), scratch, stream);
}

static cudaError_t embedding(const struct cuda_device *cuda, const struct work *work,
                             struct kernel_scratch scratch, cudaStream_t stream)
{
    const struct work_operand *weight = work_in(work, 1), *dweight = work_out(work, 0);
    const bool pads = work->kind == WORK_EMBEDDING_BACKWARD && work->attr.first;
    if (pads || has_layout(work))
        return cuda_passes(cuda, work, scratch, stream);
    if (work->kind == WORK_EMBEDDING)
        return kernel_embedding(cuda_index(work_in(work, 0)), cuda_tensor(weight),
                                operand_rows(weight), operand_last(weight), out(work, 0),
                                cuda->fault, cuda_site(work), stream);
    return kernel_embedding_backward(in(work, 0), cuda_index(work_in(work, 1)),
                                     cuda_tensor(dweight), operand_rows(dweight),
                                     operand_last(dweight), cuda->fault, cuda_site(work), stream);
}

static cudaError_t loss(const struct cuda_device *cuda, const struct work *work,
                        struct kernel_scratch scratch, cudaStream_t stream)
{
    const struct work_operand *x = work_in(work, 0), *y = work_out(work, 0);
    switch (work->kind) {
    case WORK_LOG_SOFTMAX:
        return kernel_log_softmax(cuda_tensor(x), cuda_tensor(y), operand_rows(x), operand_last(x),
                                  stream);
    case WORK_LOG_SOFTMAX_BACKWARD:
        return kernel_log_softmax_backward(cuda_tensor(x), in(work, 1), cuda_tensor(y),
                                           operand_rows(y), operand_last(y), stream);
    case WORK_NLL_LOSS:
        return kernel_nll_loss(cuda_tensor(x), cuda_index(work_in(work, 1)), operand_rows(x),
                               operand_last(x), cuda_tensor(y), out(work, 1), cuda->fault,
                               cuda_site(work), stream);
    default:
        return kernel_nll_loss_backward(cuda_tensor(x), cuda_index(work_in(work, 1)),
                                        cuda_tensor(y), operand_rows(y), operand_last(y), scratch,
                                        cuda->fault, cuda_site(work), stream);
    }
}

/* ---- lists of tensors ---- */

static uint8_t dtype_of(const struct work_operand *x)
{
    return (uint8_t)cuda_dtype(x);
}

/* Gradients and what they change: of ADAMW and SGD the parameters (and averages), of SCALE the
 * outputs. Pitched tensors have no such kernel: parameters and their gradients are whole. */
static enum err_code list_updates(const struct work *work, struct kernel_update *updates,
                                  uint32_t n, struct err *err)
{
    const bool scale = work->kind == WORK_SCALE;
    for (uint32_t i = 0; i < work->ins + (scale ? work->outs : 0); i++)
        if (work->operand[i].pitch)
            return work_refuse(work, ERR_UNSUPPORTED, err, "operand %u has a pitch", i);
    for (uint32_t i = 0; i < n; i++) {
        const struct work_operand *g = work_in(work, scale ? i + 1 : i);
        const struct work_operand *p = scale ? work_out(work, i) : work_in(work, n + i);
        updates[i] = (struct kernel_update){.gradient = g->data,
                                            .parameter = p->data,
                                            .count = operand_count(g),
                                            .gradient_dtype = dtype_of(g),
                                            .parameter_dtype = dtype_of(p)};
        if (work->kind != WORK_ADAMW)
            continue;
        const struct work_operand *m = work_in(work, 2 * n + i), *v = work_in(work, 3 * n + i);
        updates[i].average = m->data;
        updates[i].average_square = v->data;
        updates[i].average_dtype = dtype_of(m);
        updates[i].average_square_dtype = dtype_of(v);
    }
    return ERR_OK;
}

static enum err_code update(const struct work *work, cudaStream_t stream, struct err *err)
{
    const uint32_t n = work->kind == WORK_SCALE   ? work->outs
                       : work->kind == WORK_ADAMW ? work->ins / 4
                                                  : work->ins / 2;
    struct kernel_update *updates = xmalloc((n + 1) * sizeof *updates);
    cudaError_t rc = cudaSuccess;
    const enum err_code listed = list_updates(work, updates, n, err);
    if (listed == ERR_OK && work->kind == WORK_ADAMW) {
        const struct adam_constants a = work_adam_constants(work);
        const struct kernel_adam constants = {a.decay,     a.take_g,     a.keep_v, a.take_gg,
                                              a.step_size, a.root_scale, a.eps};
        rc = kernel_adamw(updates, n, &constants, stream);
    } else if (listed == ERR_OK && work->kind == WORK_SGD) {
        rc = kernel_sgd(updates, n, work->update.lr, work->update.weight_decay, stream);
    } else if (listed == ERR_OK) {
        rc = kernel_scale(updates, n, in(work, 0), stream);
    }
    free(updates);
    return listed == ERR_OK ? cuda_launched(work, rc, err) : listed;
}

static enum err_code norms(const struct work *work, struct kernel_scratch scratch,
                           cudaStream_t stream, struct err *err)
{
    struct kernel_tensor *tensors = xmalloc((2 * work->ins + 1) * sizeof *tensors);
    for (uint32_t i = 0; i < work->ins; i++) {
        tensors[i] = in(work, i);
        tensors[work->ins + i] = out(work, i);
    }
    const cudaError_t rc = kernel_norms(tensors, tensors + work->ins, work->ins, scratch, stream);
    free(tensors);
    return cuda_launched(work, rc, err);
}

/* ---- the kinds ---- */

/* Floats whose rows lie beside each other are joined in one launch. */
static bool joins_rows(const struct work *work)
{
    const struct work_operand *y = work_out(work, 0);
    for (uint32_t i = 0; i < work->ins; i++)
        if (operand_row_width(work_in(work, i)) != operand_last(work_in(work, i)) &&
            work_in(work, i)->pitch)
            return false;
    return operand_is_float(y) && !has_layout(work) &&
           (!y->pitch || operand_row_width(y) == operand_last(y)) &&
           (work->ins != 1 || operand_last(work_in(work, 0)) == operand_last(y));
}

enum err_code cuda_launch(struct cuda_device *cuda, uint8_t id, const struct work *work,
                          struct err *err)
{
    const struct kernel_scratch scratch = cuda_scratch(cuda, id);
    cudaStream_t stream = cuda->stream[id];
    switch (work->kind) {
    case WORK_EMBEDDING:
    case WORK_EMBEDDING_BACKWARD:
        return cuda_launched(work, embedding(cuda, work, scratch, stream), err);
    case WORK_MATMUL_NT:
    case WORK_MATMUL_NT_BIAS:
    case WORK_MATMUL_NN:
    case WORK_MATMUL_NN_BIAS:
    case WORK_MATMUL_TN:
        return cuda_matmul(cuda->matmuls, work, stream, err);
    case WORK_BMM_NN:
    case WORK_BMM_NT:
    case WORK_BMM_TN:
    case WORK_GROUPED_MM_NT:
    case WORK_GROUPED_MM_NN:
    case WORK_GROUPED_MM_TN:
        return cuda_launched(work, cuda_products(cuda, work, stream), err);
    case WORK_MUL:
        if (operand_is_complex(work_in(work, 0)) && operand_is_complex(work_in(work, 1)) &&
            operand_is_complex(work_out(work, 0)))
            return cuda_launched(work, multiply_complex(work, stream), err);
        return cuda_launched(work, cuda_passes(cuda, work, scratch, stream), err);
    case WORK_CONJUGATE:
        return cuda_launched(work,
                             kernel_conjugate(work_in(work, 0)->data, work_out(work, 0)->data,
                                              operand_count(work_out(work, 0)), stream),
                             err);
    case WORK_SUM:
    case WORK_SUM_DIM:
        return cuda_launched(work, sum(cuda, work, scratch, stream), err);
    case WORK_RMS_NORM:
    case WORK_LAYER_NORM:
        return cuda_launched(work, norm(work, stream), err);
    case WORK_RMS_NORM_BACKWARD:
    case WORK_LAYER_NORM_BACKWARD:
        return cuda_launched(work, norm_backward(work, scratch, stream), err);
    case WORK_ATTENTION:
    case WORK_ATTENTION_BACKWARD:
    case WORK_EFFICIENT_ATTENTION:
    case WORK_EFFICIENT_ATTENTION_BACKWARD:
        return cuda_attention_run(cuda->attention, work, scratch, stream, err);
    case WORK_LOG_SOFTMAX:
    case WORK_LOG_SOFTMAX_BACKWARD:
    case WORK_NLL_LOSS:
    case WORK_NLL_LOSS_BACKWARD:
        return cuda_launched(work, loss(cuda, work, scratch, stream), err);
    case WORK_COPY:
        if (has_layout(work))
            return cuda_launched(work, cuda_passes(cuda, work, scratch, stream), err);
        return cuda_copy_pieces(work, stream, err);
    case WORK_CAT:
        if (!joins_rows(work))
            return cuda_launched(work, cuda_passes(cuda, work, scratch, stream), err);
        return cuda_copy_pieces(work, stream, err);
    case WORK_PACK:
    case WORK_COPY_IN:
    case WORK_COPY_OUT:
    case WORK_CHUNK_CAT:
    case WORK_STACK:
        return cuda_copy_pieces(work, stream, err);
    case WORK_ADAMW:
    case WORK_SGD:
    case WORK_SCALE:
        return update(work, stream, err);
    case WORK_ROTATE:
    case WORK_GATE:
    case WORK_PRODUCTS:
    case WORK_ADD_RMS_NORM:
    case WORK_RMS_NORM_BACKWARD_ADD:
    case WORK_CROSS_ENTROPY_SLOPE:
        return cuda_launched(work, cuda_fused(cuda, work, scratch, stream), err);
    case WORK_NORMS:
    case WORK_VECTOR_NORM:
        return norms(work, scratch, stream, err);
    case WORK_ARANGE:
        return cuda_launched(
            work, kernel_arange(cuda_index(work_out(work, 0)), work->attr.first, stream), err);
    case WORK_CLIP_COEFFICIENT:
        return cuda_launched(
            work, kernel_clip_coefficient(in(work, 0), out(work, 0), work->attr.p, stream), err);
    default:
        return cuda_launched(work, cuda_passes(cuda, work, scratch, stream), err);
    }
}
