/* walk.c - see walk.h.
 *
 * What an element costs: THREAD for what a thread does before and after its elements, DIM for each
 * dim to divide by, INPUT for each place to compute and load, less OVERLAP, what of it hides behind
 * loads. They were fitted to seven kernels of an H100 (tests/data/gpu/kernels.csv: strided `add`,
 * `mul` and copies, three `mul` with a broadcast operand, one of them fp32) and hold for the others
 * there, of H100 and B200: neg, cat, masked_fill.
 *
 * START and CAT_TRIP were fitted to the H100's two short strided `cat` there, of one trip and of
 * five, and two short strided `add`; ROWS_TRIP to its long index_select, of 68. The same kernels of
 * B200 and MI300X, its casts and the short index_select were not fitted to. */
#include "cost/walk.h"

#include <math.h>
#include <stddef.h>

#define THREAD 0.96
#define DIM 0.115
#define INPUT 0.125
#define OVERLAP 0.08
#define CAST 0.22 /* the switch over dtypes of a load that casts: `copy_` to fp32 there */

#define START_S 0.7e-6
#define CAT_TRIP_S 1e-6
#define ROWS_TRIP_S 0.72e-6

/* Threads of a multiprocessor: cat's, for each of its parts, of which two are there at a time;
 * those of index_select. */
enum { CAT_THREADS = 2 * 512, CAT_PARTS = 2, ROWS_THREADS = 8 * 128 };

enum { INPUTS = 4 }; /* of an elementwise kernel: `where` has three */

/* What kind of loop a work runs in. */
enum loop {
    LOOP_OTHER,       /* its own: see traffics in traffic.c */
    LOOP_ELEMENTWISE, /* TensorIterator's */
    LOOP_REORDER,     /* the same, of a transposed operand */
    LOOP_CAT,         /* CatArrayBatchedCopy: threads do half as many elements */
    LOOP_ROWS,        /* rows by their indices (indexSelectLargeIndex) */
};

static enum loop loop_of(const struct kernel *kernel)
{
    switch ((enum work_kind)kernel->work) {
    case WORK_REORDER:
        return LOOP_REORDER;
    case WORK_CAT:
        return LOOP_CAT;
    case WORK_INDEX:
    case WORK_EMBEDDING: /* index_select, too */
        return LOOP_ROWS;
    case WORK_SUM:
    case WORK_SUM_DIM:
    case WORK_MEAN:
    case WORK_CUMULATIVE_SUM:
        return LOOP_OTHER;
    default:
        return kernel->work >= WORK_ADD && kernel->work <= WORK_SLICE_BACKWARD ? LOOP_ELEMENTWISE
                                                                               : LOOP_OTHER;
    }
}

/* Elements that one thread handles: four of up to two bytes, else two (elementwise_kernel<128, 4>
 * and <128, 2>). */
static double unrolled(const struct operand *out)
{
    return dtype_bytes((enum dtype)out->dtype) <= 2 ? 4 : 2;
}

static double cycles(double elements_a_thread, uint32_t dims, uint32_t inputs)
{
    return THREAD / elements_a_thread + DIM * dims + INPUT * inputs - OVERLAP;
}

/* Strides of `operand` along the dims of `out`, whose last dims its own are; of a plan's operand
 * they follow from its shape. */
static void strides_along(const struct operand *operand, const struct strides *layout,
                          const struct shape *out, uint64_t strides[SHAPE_DIMS])
{
    uint64_t step = 1;
    for (uint32_t i = 0; i < out->rank; i++) {
        const uint32_t to = out->rank - 1 - i;
        const uint32_t from = operand->shape.rank - 1 - i;
        strides[to] = 0;
        if (i >= operand->shape.rank)
            continue;
        if (operand->pitch && i == 1)
            step = operand->pitch;
        if (operand->shape.dim[from] > 1)
            strides[to] = layout ? layout->of[from] : step;
        step *= operand->shape.dim[from];
    }
}

/* Dims that are left when neighbours are joined; *contiguous: one, in which all are dense. */
static uint32_t joined_dims(const struct shape *out, uint64_t strides[][SHAPE_DIMS],
                            uint32_t operands, bool *contiguous)
{
    uint32_t dims = 0, inner = 0;
    uint64_t size = 1; /* of the dim that is growing, from the last one outwards */
    *contiguous = true;
    for (uint32_t d = out->rank; d-- > 0;) {
        if (out->dim[d] <= 1)
            continue;
        bool joins = dims > 0;
        for (uint32_t k = 0; k < operands && joins; k++)
            joins = strides[k][d] == strides[k][inner] * size;
        if (joins) {
            size *= out->dim[d];
            continue;
        }
        for (uint32_t k = 0; k < operands && dims == 0; k++)
            *contiguous = *contiguous && strides[k][d] == 1;
        inner = d;
        size = out->dim[d];
        dims++;
    }
    *contiguous = *contiguous && dims <= 1;
    return dims;
}

/* Casts on the way in are done by a kernel that is not vectorised, but for the narrowing of fp32,
 * which has one of its own (bfloat16_copy_kernel_cuda). */
static bool casts(const struct kernel *kernel)
{
    const enum dtype to = (enum dtype)kernel->operands[kernel->ins].dtype;
    const bool narrows = to == DTYPE_BF16 || to == DTYPE_FP16;
    return (kernel->work == WORK_CAST || kernel->work == WORK_COPY) && kernel->ins == 1 &&
           (enum dtype)kernel->operands[0].dtype != to &&
           !(narrows && (enum dtype)kernel->operands[0].dtype == DTYPE_FP32);
}

/* Nothing to compute places for: every operand is dense, and as large as the result or one
 * element. The usual case, without a look at strides. */
static bool is_plain(const struct kernel *kernel, const struct operand *out)
{
    const uint64_t elements = shape_elements(&out->shape);
    if (kernel->strides)
        return false;
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const uint64_t own = shape_elements(&kernel->operands[i].shape);
        if (kernel->operands[i].pitch || (own != elements && own != 1))
            return false;
    }
    return true;
}

/* Of one part, or of the operands of an elementwise kernel. */
static double strided_cycles(const struct kernel *kernel, const struct operand *out)
{
    uint64_t strides[INPUTS + 1][SHAPE_DIMS];
    const uint32_t inputs = kernel->ins < INPUTS ? kernel->ins : INPUTS;
    bool contiguous;
    for (uint32_t i = 0; i < inputs; i++)
        strides_along(&kernel->operands[i], kernel->strides ? &kernel->strides[i] : NULL,
                      &out->shape, strides[i]);
    strides_along(out, kernel->strides ? &kernel->strides[kernel->ins] : NULL, &out->shape,
                  strides[inputs]);
    const uint32_t dims = joined_dims(&out->shape, strides, inputs + 1, &contiguous);
    return contiguous ? 0 : cycles(unrolled(out), dims, inputs);
}

/* Parts are copied whole where all of them are dense, joined along their first dim or aligned
 * rows: else each element's place is computed. */
static double cat_cycles(const struct kernel *kernel, const struct operand *out)
{
    uint32_t dims = 0;
    for (uint32_t i = 0; i < kernel->ins; i++) {
        const struct operand *part = &kernel->operands[i];
        const struct strides *layout = kernel->strides ? &kernel->strides[i] : NULL;
        uint64_t strides[1][SHAPE_DIMS];
        bool contiguous;
        strides_along(part, layout, &part->shape, strides[0]);
        const uint32_t own = joined_dims(&part->shape, strides, 1, &contiguous);
        if (!contiguous)
            dims = own > dims ? own : dims;
    }
    return dims == 0 ? 0 : cycles(unrolled(out) / 2, out->shape.rank, 2); /* to and from */
}

static double elementwise_cycles(const struct kernel *kernel, const struct operand *out)
{
    const double strided = is_plain(kernel, out) ? 0 : strided_cycles(kernel, out);
    return strided > 0 ? strided : casts(kernel) ? cycles(unrolled(out), 0, 1) + CAST : 0;
}

/* Of the longest part; threads of the others do not wait for it. */
static double cat_trips_s(const struct kernel *kernel, double sms)
{
    double most = 0;
    for (uint32_t i = 0; i < kernel->ins; i++)
        most = fmax(most, (double)shape_elements(&kernel->operands[i].shape));
    return ceil((double)kernel->ins / CAT_PARTS) * ceil(most / (sms * CAT_THREADS)) * CAT_TRIP_S;
}

struct walk walk_of(const struct kernel *kernel, double sms)
{
    const enum loop loop = loop_of(kernel);
    struct walk walk = {0};
    if (loop == LOOP_OTHER || kernel->outs == 0 || sms <= 0)
        return walk;
    const struct operand *out = &kernel->operands[kernel->ins];
    const double elements = (double)shape_elements(&out->shape);
    if (loop == LOOP_ROWS)
        walk.trips_s = ceil(elements / (sms * ROWS_THREADS)) * ROWS_TRIP_S;
    else if (loop == LOOP_REORDER && !kernel->strides)
        walk.cycles = cycles(unrolled(out), 4, 1); /* two dims change places: batch, both, rest */
    else
        walk.cycles = loop == LOOP_CAT ? cat_cycles(kernel, out) : elementwise_cycles(kernel, out);
    if (loop == LOOP_CAT && walk.cycles > 0)
        walk.trips_s = cat_trips_s(kernel, sms);
    walk.start_s = walk.cycles > 0 || walk.trips_s > 0 ? START_S : 0;
    return walk;
}
