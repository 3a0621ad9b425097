/* cuda_passes.c - passes over views (runtime/work/passes.h) as launches of the kernels over walks,
 * and the products of many matrices. Shapes and layouts were checked by work_check. */
#include "runtime/cuda/cuda_device.h"
#include "runtime/work/operand.h"
#include "runtime/work/passes.h"

#include <assert.h>

_Static_assert((int)KERNEL_DIMS == (int)WALK_DIMS, "a walk fits into a kernel's");
_Static_assert((int)KERNEL_SIDES == (int)WALK_VIEWS, "and so do its views");
_Static_assert(CUDA_SCRATCH_BYTES / KERNEL_SORT_BYTES >= PASS_SORT_MOST, "a sort's lists");

/* ---- a pass in the form that kernels take ---- */

static uint8_t dtype_of(const struct view *x)
{
    switch (x->dtype) {
    case DTYPE_BF16:
        return KERNEL_BF16;
    case DTYPE_FP16:
        return KERNEL_FP16;
    case DTYPE_INT64:
        return KERNEL_INT64;
    case DTYPE_INT32:
        return KERNEL_INT32;
    case DTYPE_BOOL:
        return KERNEL_BOOL;
    default:
        return KERNEL_FP32;
    }
}

/* Whether every group of eight begins at a multiple of 16 bytes: `outer` steps lead to them. */
static bool is_wide(const struct view *x, uint64_t inner, const uint64_t *outer, uint32_t count)
{
    const uint64_t size = dtype_bytes((enum dtype)x->dtype);
    uint64_t places = (uint64_t)(uintptr_t)x->data;
    for (uint32_t i = 0; i < count; i++)
        places |= outer[i] * size;
    return dtype_of(x) <= KERNEL_FP16 && inner == 1 && places % 16 == 0;
}

/* Side `i` of the walk. Groups that are whole are of the last dim. */
static struct kernel_side side_of(const struct view *x, const struct walk *walk, uint32_t i)
{
    struct kernel_side side = {.data = x->data, .dtype = dtype_of(x), .form = KERNEL_APART};
    const uint32_t before = KERNEL_DIMS - walk->rank;
    for (uint32_t d = 0; d < walk->rank; d++)
        side.step[before + d] = walk->step[i][d];
    if (walk->rank == 0)
        return side;
    const uint64_t inner = walk->step[i][walk->rank - 1];
    if (inner == 0)
        side.form = KERNEL_ONE;
    else if (is_wide(x, inner, walk->step[i], walk->rank - 1))
        side.form = KERNEL_WIDE;
    return side;
}

static struct kernel_walk kernel_walk_of(const struct walk *walk, uint32_t views,
                                         const struct view *view)
{
    struct kernel_walk all = {.count = walk->count};
    const uint32_t before = KERNEL_DIMS - walk->rank;
    for (uint32_t d = 0; d < KERNEL_DIMS; d++) {
        all.dim[d] = d < before ? 1 : walk->dim[d - before];
        all.inverse[d] = kernel_inverse(all.dim[d]);
    }
    all.outermost = walk->rank ? before : KERNEL_DIMS - 1;
    all.whole = walk->rank <= 1 || walk->dim[walk->rank - 1] % 8 == 0;
    for (uint32_t i = 0; i < views; i++)
        all.side[i] = side_of(&view[i], walk, i);
    return all;
}

static struct kernel_rows rows_of(const struct pass *pass)
{
    struct kernel_rows rows = {.begin = kernel_walk_of(&pass->walk, pass->views, pass->view),
                               .length = pass->length};
    for (uint32_t i = 0; i < pass->views; i++) {
        rows.step[i] = pass->step[i];
        rows.begin.side[i].form =
            is_wide(&pass->view[i], pass->step[i], NULL, 0) ? KERNEL_WIDE : KERNEL_APART;
    }
    return rows;
}

/* ---- launches ---- */

static const enum kernel_function functions[WORK_KIND_COUNT] = {
    [WORK_FILL] = KERNEL_FILL,
    [WORK_ADD] = KERNEL_ADD,
    [WORK_ADD_NUMBER] = KERNEL_ADD_NUMBER,
    [WORK_ADD_IN_PLACE] = KERNEL_ADD,
    [WORK_SUB] = KERNEL_SUB,
    [WORK_ADD_TO] = KERNEL_ADD,
    [WORK_MUL] = KERNEL_MUL,
    [WORK_MUL_NUMBER] = KERNEL_MUL_NUMBER,
    [WORK_POLAR] = KERNEL_POLAR_REAL,
    [WORK_DIV] = KERNEL_DIV,
    [WORK_DIV_NUMBER] = KERNEL_DIV_NUMBER,
    [WORK_DIV_IN_PLACE] = KERNEL_DIV,
    [WORK_FLOOR_DIV_NUMBER] = KERNEL_FLOOR_DIV_NUMBER,
    [WORK_MINIMUM] = KERNEL_MINIMUM,
    [WORK_CLAMP] = KERNEL_CLAMP,
    [WORK_AT_MOST] = KERNEL_AT_MOST,
    [WORK_AT_LEAST] = KERNEL_AT_LEAST,
    [WORK_WITHIN] = KERNEL_WITHIN,
    [WORK_NEG] = KERNEL_NEG,
    [WORK_ABS] = KERNEL_ABS,
    [WORK_POW] = KERNEL_POW,
    [WORK_POWER_OF] = KERNEL_POWER_OF,
    [WORK_SQUARE] = KERNEL_SQUARE,
    [WORK_SQUARE_ROOT] = KERNEL_SQUARE_ROOT,
    [WORK_RSQRT] = KERNEL_RSQRT,
    [WORK_LOG] = KERNEL_LOG,
    [WORK_COS] = KERNEL_COS,
    [WORK_SIN] = KERNEL_SIN,
    [WORK_TANH] = KERNEL_TANH,
    [WORK_TANH_BACKWARD] = KERNEL_TANH_SLOPE,
    [WORK_CAST] = KERNEL_SAME,
    [WORK_EQUAL] = KERNEL_EQUAL,
    [WORK_EQUAL_NUMBER] = KERNEL_EQUAL_NUMBER,
    [WORK_NOT_EQUAL_NUMBER] = KERNEL_NOT_EQUAL_NUMBER,
    [WORK_LESS] = KERNEL_LESS,
    [WORK_LESS_NUMBER] = KERNEL_LESS_NUMBER,
    [WORK_LESS_EQUAL] = KERNEL_LESS_EQUAL,
    [WORK_GREATER] = KERNEL_GREATER,
    [WORK_GREATER_NUMBER] = KERNEL_GREATER_NUMBER,
    [WORK_GREATER_EQUAL] = KERNEL_GREATER_EQUAL,
    [WORK_AND] = KERNEL_AND,
    [WORK_OR] = KERNEL_OR,
    [WORK_IS_INFINITE] = KERNEL_IS_INFINITE,
    [WORK_WHERE] = KERNEL_WHERE,
    [WORK_MASKED_FILL] = KERNEL_MASKED_FILL,
    [WORK_SIGMOID] = KERNEL_SIGMOID,
    [WORK_SIGMOID_BACKWARD] = KERNEL_SIGMOID_SLOPE,
    [WORK_SILU] = KERNEL_SILU,
    [WORK_SILU_BACKWARD] = KERNEL_SILU_SLOPE,
    [WORK_GELU] = KERNEL_GELU,
    [WORK_GELU_BACKWARD] = KERNEL_GELU_SLOPE,
    [WORK_GELU_TANH] = KERNEL_GELU_TANH,
    [WORK_GELU_TANH_BACKWARD] = KERNEL_GELU_TANH_SLOPE,
    [WORK_RELU] = KERNEL_RELU,
    [WORK_RELU_BACKWARD] = KERNEL_RELU_SLOPE,
    [WORK_SOFTPLUS] = KERNEL_SOFTPLUS,
    [WORK_SOFTPLUS_BACKWARD] = KERNEL_SOFTPLUS_SLOPE,
    [WORK_EXPM1] = KERNEL_EXPM1,
};

struct passage { /* of one work; the first failure ends it */
    const struct cuda_device *cuda;
    const struct work *work;
    struct kernel_scratch scratch;
    cudaStream_t stream;
    cudaError_t rc;
};

static cudaError_t launch_map(const struct passage *to, const struct pass *pass)
{
    const struct kernel_walk walk = kernel_walk_of(&pass->walk, pass->views, pass->view);
    const enum kernel_function f = pass->kind == WORK_POLAR && pass->imaginary
                                       ? KERNEL_POLAR_IMAGINARY
                                       : functions[pass->kind];
    if (pass->view[0].dtype == DTYPE_COMPLEX64) /* their product; else their parts are passed */
        return kernel_multiply_complex_walk(&walk, to->stream);
    assert(f != KERNEL_NO_FUNCTION);
    return kernel_map(f, &walk, pass->p, to->stream);
}

static cudaError_t launch_reduction(const struct passage *to, const struct pass *pass)
{
    const struct kernel_walk kept = kernel_walk_of(&pass->walk, 2, pass->view);
    struct kernel_walk terms = kernel_walk_of(&pass->inner, 1, &pass->view[1]);
    const enum kernel_reduction what = pass->kind == WORK_MEAN      ? KERNEL_MEAN
                                       : pass->kind == WORK_MAXIMUM ? KERNEL_LARGEST
                                       : pass->kind == WORK_LEAST   ? KERNEL_SMALLEST
                                       : pass->kind == WORK_ALL     ? KERNEL_ALL
                                       : pass->kind == WORK_ANY     ? KERNEL_ANY
                                                                    : KERNEL_SUM;
    /* eight terms lie beside each other from where those of a result begin */
    if (terms.side[0].form == KERNEL_WIDE &&
        !is_wide(&pass->view[1], 1, pass->walk.step[1], pass->walk.rank))
        terms.side[0].form = KERNEL_APART;
    return kernel_reduce(what, &kept, &terms, to->stream);
}

static cudaError_t launch_rows(const struct passage *to, const struct pass *pass)
{
    const struct kernel_rows rows = rows_of(pass);
    switch (pass->kind) {
    case WORK_SOFTMAX:
    case WORK_SAFE_SOFTMAX:
        return kernel_softmax(&rows, pass->kind == WORK_SAFE_SOFTMAX, to->stream);
    case WORK_SOFTMAX_BACKWARD:
        return kernel_softmax_backward(&rows, to->stream);
    case WORK_CUMULATIVE_SUM:
        return kernel_cumulative_sum(&rows, to->stream);
    case WORK_LOWER_TRIANGLE:
        return kernel_lower_triangle(&rows, to->stream);
    default:
        return kernel_topk(&rows, (uint32_t)pass->most, to->stream);
    }
}

static cudaError_t launch_sum_of_rows(const struct passage *to, const struct pass *pass)
{
    struct kernel_scatter_sum sum = {
        .inner = kernel_walk_of(&pass->inner, 3, pass->view),
        .ids = kernel_walk_of(&pass->walk, 1, &pass->view[3]),
        .rows = pass->length,
        .pads = pass->pads,
    };
    for (uint32_t i = 0; i < 3; i++) {
        const struct view *x = &pass->view[i];
        sum.step[i] = pass->step[i];
        if (sum.inner.side[i].form == KERNEL_WIDE &&
            pass->step[i] * dtype_bytes((enum dtype)x->dtype) % 16)
            sum.inner.side[i].form = KERNEL_APART;
    }
    return kernel_add_rows(&sum, to->cuda->fault, cuda_site(to->work), to->stream);
}

static cudaError_t launch_take(const struct passage *to, const struct pass *pass)
{
    struct kernel_walk walk = kernel_walk_of(&pass->walk, 3, pass->view);
    const uint64_t size = dtype_bytes((enum dtype)pass->view[1].dtype);
    if (walk.side[1].form == KERNEL_WIDE && pass->index_step * size % 16)
        walk.side[1].form = KERNEL_APART;
    return kernel_take(&walk, pass->index_step, pass->bound, to->cuda->fault, cuda_site(to->work),
                       to->stream);
}

static cudaError_t launch_pass(const struct passage *to, const struct pass *pass)
{
    struct kernel_fault *fault = to->cuda->fault;
    const struct kernel_site site = cuda_site(to->work);
    if (pass->walk.count == 0)
        return cudaSuccess;
    switch (pass->form) {
    case PASS_MAP:
        return launch_map(to, pass);
    case PASS_REDUCE:
        return launch_reduction(to, pass);
    case PASS_ROWS:
        return launch_rows(to, pass);
    case PASS_TAKE:
        return launch_take(to, pass);
    case PASS_PUT: {
        const struct kernel_rows rows = rows_of(pass);
        return kernel_put(&rows, pass->index_step, pass->bound, pass->p, fault, site, to->stream);
    }
    case PASS_ADD:
        return launch_sum_of_rows(to, pass);
    case PASS_COUNT: {
        const struct kernel_walk x = kernel_walk_of(&pass->walk, 1, &pass->view[1]);
        const struct kernel_walk counts = kernel_walk_of(&pass->inner, 1, &pass->view[0]);
        return kernel_histogram(&counts, &x, to->stream);
    }
    case PASS_INVERT: {
        const struct kernel_walk ids = kernel_walk_of(&pass->walk, 1, &pass->view[1]);
        struct kernel_side y = {.data = pass->view[0].data, .dtype = dtype_of(&pass->view[0])};
        y.step[KERNEL_DIMS - 1] = pass->index_step;
        return kernel_invert_permutation(&ids, y, pass->bound, fault, site, to->stream);
    }
    default: {
        const struct kernel_walk walk = kernel_walk_of(&pass->walk, 3, pass->view);
        return kernel_sort(&walk, to->scratch, to->stream);
    }
    }
}

static void take_pass(void *context, const struct pass *pass)
{
    struct passage *to = context;
    if (to->rc == cudaSuccess)
        to->rc = launch_pass(to, pass);
}

cudaError_t cuda_passes(const struct cuda_device *cuda, const struct work *work,
                        struct kernel_scratch scratch, cudaStream_t stream)
{
    struct passage to = {cuda, work, scratch, stream, cudaSuccess};
    const bool fits = work_passes(work, take_pass, &to);
    assert(fits); /* work_check */
    (void)fits;
    return to.rc;
}

/* ---- products ---- */

static struct kernel_matrix matrix_of(const struct work_operand *x, bool turned)
{
    const struct view view = view_of(x);
    const uint32_t last = view.shape.rank - 1;
    const uint64_t row = view.at.of[last - 1], column = view.at.of[last];
    return (struct kernel_matrix){.data = x->data,
                                  .row = turned ? column : row,
                                  .column = turned ? row : column,
                                  .batch = last > 1 ? view.at.of[0] : 0};
}

cudaError_t cuda_products(const struct cuda_device *cuda, const struct work *work,
                          cudaStream_t stream)
{
    const enum work_kind kind = work->kind;
    const bool grouped = work->ins > 2, to_weight = kind == WORK_GROUPED_MM_TN;
    const bool first_turned = kind == WORK_BMM_TN || to_weight;
    const bool second_turned = kind == WORK_BMM_NT || kind == WORK_GROUPED_MM_NT;
    const struct work_operand *x = work_in(work, 0), *y = work_in(work, 1), *z = work_out(work, 0);
    const uint32_t x_last = x->shape.rank - 1;
    const struct kernel_product product = {
        .x = matrix_of(x, first_turned),
        .y = matrix_of(y, second_turned),
        .z = matrix_of(z, false),
        .m = z->shape.dim[z->shape.rank - 2],
        .n = z->shape.dim[z->shape.rank - 1],
        .k = x->shape.dim[first_turned ? x_last - 1 : x_last],
        .batches = grouped ? (uint32_t)operand_count(work_in(work, 2)) : z->shape.dim[0],
        .dtype = (uint8_t)cuda_dtype(x),
        .out_dtype = (uint8_t)cuda_dtype(z),
        .cut_k = to_weight,
        .ends = grouped ? cuda_index(work_in(work, 2)) : (struct kernel_index){.data = NULL},
    };
    return kernel_multiply(&product, cuda->fault, cuda_site(work), stream);
}
