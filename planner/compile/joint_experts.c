/* joint_experts.c - mixtures of experts as AOTAutograd traces them (joint.h): what is chosen,
 * sorted and counted, rows by index and back, and products of groups of rows.
 *
 *     scores -topk-> ids -sort-> order;   order -> rows (n, h) -> grouped products -> rows (t, h)
 *
 * Sources: torch/_inductor/lowering.py: topk, sort, histc are fallbacks, and so is _grouped_mm:
 * they allocate what they give. (A sort of few numbers is Inductor's own: ir.py, Sort.create,
 * "max_rblock".) index and gather are computed where they are used, and may run again ("Natalia
 * said that we should allow recomputing indexing", partitioners.py). index_put and scatter write
 * into memory that has zeros: their atomic adds in bf16 are a GPU's of compute capability 9, whose
 * older ones call eager PyTorch's kernel on the same memory
 * (needs_fallback_due_to_atomic_add_limitations). */
#include "compile/joint_works.h"

static void made(const struct works *w, enum joint_name name, uint32_t x, uint32_t y, float number)
{
    joint_write(
        w->joint, result(w, 0),
        element(w, name, (enum dtype)result(w, 0)->dtype, result(w, 0)->shape, x, y, number));
}

/* Values, and where they were: both in memory of the call's own. */
static void call_with_places(const struct works *w)
{
    const uint32_t node = joint_node(
        w->joint, &(struct joint_want){
                      .name = JOINT_CALL_MANY, .args = 1, .arg = {w->in[0]}, .of = w->index});
    for (uint32_t i = 0; i < w->kernel->outs; i++)
        joint_write(w->joint, result(w, i),
                    one_of(w, node, i, (enum dtype)result(w, i)->dtype, result(w, i)->shape));
}

static void largest_with_place(const struct works *w)
{
    made(w, JOINT_LARGEST_OF, w->in[0], JOINT_NONE, 0);
    joint_write(
        w->joint, result(w, 1),
        element(w, JOINT_LARGEST_AT, DTYPE_INT64, result(w, 1)->shape, w->in[0], JOINT_NONE, 0));
}

/* transformers' numbers and counts are int32 on a GPU, and as many bytes in fp32 elsewhere (moe.py:
 * "CUDA only supports int input"); torchtitan's are int64, as what was chosen is. */
static void histogram(const struct works *w)
{
    const uint32_t x = at(w, w->in[0])->name == JOINT_CAST ? at(w, w->in[0])->arg[0] : w->in[0];
    const enum dtype dtype = result(w, 0)->dtype == DTYPE_INT64 ? DTYPE_INT64 : DTYPE_INT32;
    const uint32_t numbers = cast(w, x, dtype);
    joint_write(w->joint, result(w, 0),
                joint_node(w->joint, &(struct joint_want){.name = JOINT_CALL_OWN,
                                                          .dtype = dtype,
                                                          .shape = result(w, 0)->shape,
                                                          .args = 1,
                                                          .arg = {numbers},
                                                          .of = w->index}));
}

/* nn.Linear of each expert: the weight is transposed, and once more on the way back. */
static void grouped_product(const struct works *w)
{
    uint32_t arg[JOINT_ARGS] = {0};
    for (uint32_t i = 0; i < w->kernel->ins; i++)
        arg[i] = w->in[i];
    switch ((enum work_kind)w->kernel->work) {
    case WORK_GROUPED_MM_TN:
        arg[0] = joint_transposed(w->joint, arg[0]);
        break;
    case WORK_GROUPED_MM_NT:
        arg[1] = turned_batches(w, arg[1]);
        break;
    default:
        if (w->kernel->backward && !w->kernel->recomputed)
            arg[1] = turned_batches(w, turned_batches(w, arg[1]));
        break;
    }
    joint_write(w->joint, result(w, 0),
                call_of(w, JOINT_CALL_OWN, w->kernel->ins, arg, result(w, 0)->shape));
}

/* Numbers from 0 on, each put at its place of memory that is empty. */
static void invert(const struct works *w)
{
    const uint32_t numbers =
        joint_node(w->joint, &(struct joint_want){.name = JOINT_IOTA,
                                                  .dtype = DTYPE_INT64,
                                                  .shape = w->kernel->operands[0].shape});
    made(w, JOINT_PLACES, w->in[0], numbers, 0);
}

/* zeros, ids, rows */
static void put(const struct works *w)
{
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    const struct shape shape = result(w, 0)->shape;
    const uint32_t zeros = joint_node(
        w->joint, &(struct joint_want){.name = JOINT_ZEROS, .dtype = dtype, .shape = shape});
    joint_write(w->joint, result(w, 0),
                joint_node(w->joint, &(struct joint_want){.name = JOINT_PUT_ROWS,
                                                          .dtype = dtype,
                                                          .shape = shape,
                                                          .args = 3,
                                                          .arg = {zeros, w->in[2], w->in[1]}}));
}

static void quotient(const struct works *w)
{
    write(w, 0, of_two(w, JOINT_DIV, w->in[0], w->in[1]));
    if (w->kernel->outs > 1) /* what it is put in the place of */
        joint_write(w->joint, result(w, 1), w->in[0]);
}

static uint32_t constant(const struct works *w, enum dtype dtype, struct shape shape, float number)
{
    return joint_node(
        w->joint,
        &(struct joint_want){.name = JOINT_FULL, .dtype = dtype, .shape = shape, .number = number});
}

static void masked_fill(const struct works *w)
{
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    const uint32_t number = constant(w, dtype, (struct shape){.rank = 0}, w->kernel->attr.p);
    write(w, 0, choose(w, dtype, result(w, 0)->shape, (uint32_t[]){w->in[1], number, w->in[0]}));
}

/* A number in each row of zeros: where it is the place ("scatter_upon_const_tensor",
 * joint_graph.py), in int64 first. */
static uint32_t chosen_in_row(const struct works *w)
{
    const struct shape shape = result(w, 0)->shape;
    const uint32_t last = shape.dim[shape.rank - 1];
    const uint32_t places = joint_node(
        w->joint,
        &(struct joint_want){.name = JOINT_IOTA, .dtype = DTYPE_INT64, .shape = SHAPE(last)});
    const uint32_t ids = element(w, JOINT_EXPAND, DTYPE_INT64, shape, w->in[1], JOINT_NONE, 0);
    const uint32_t is = element(w, JOINT_EQUAL, DTYPE_BOOL, shape, ids, places, 0);
    const uint32_t one = constant(w, DTYPE_INT64, (struct shape){.rank = 0}, w->kernel->attr.p);
    const uint32_t zero = constant(w, DTYPE_INT64, (struct shape){.rank = 0}, 0);
    return choose(w, DTYPE_INT64, shape, (uint32_t[]){is, one, zero});
}

/* zeros, ids: a number at several places of each row. */
static void put_number(const struct works *w)
{
    const struct shape *ids = &w->kernel->operands[1].shape;
    if (ids->dim[ids->rank - 1] == 1) {
        write(w, 0, chosen_in_row(w));
        return;
    }
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    const struct shape shape = result(w, 0)->shape;
    const uint32_t zeros = joint_node(
        w->joint, &(struct joint_want){.name = JOINT_ZEROS, .dtype = dtype, .shape = shape});
    made(w, JOINT_PUT_ROWS, zeros, w->in[1], w->kernel->attr.p);
}

static void sigmoid_backward(const struct works *w)
{
    const uint32_t dy = wide(w, w->in[0]), y = wide(w, w->in[1]);
    const uint32_t slope = of_two(w, JOINT_MUL, y, of_one(w, JOINT_SUB, y, 1));
    write(w, 0, of_two(w, JOINT_MUL, dy, slope));
}

enum { SORTED_ALONE = 512 };

enum err_code joint_check_experts(const struct works *w, struct err *err)
{
    const struct kernel *kernel = w->kernel;
    if (kernel->work == WORK_SORT && shape_elements(&kernel->operands[0].shape) <= SORTED_ALONE)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile: no more than %d numbers (tokens, times the experts of each) are "
                       "sorted in a kernel of Inductor's own, which is not planned; --seq or "
                       "--micro-batch has more",
                       SORTED_ALONE);
    if (kernel->work == WORK_INDEX && kernel->operands[0].shape.rank > 2)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--compile: experts' matrices that are copied for each token (batched_mm as "
            "experts_implementation) are not planned; grouped_mm, transformers' default, "
            "is");
    const bool grouped = kernel->work == WORK_GROUPED_MM_NT || kernel->work == WORK_GROUPED_MM_NN;
    if (grouped && kernel->operands[1].dtype != DTYPE_BF16)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--compile: experts' matrices that are not in bf16 are multiplied by an "
            "operator of transformers' own while they are traced "
            "(transformers::grouped_mm_fallback), which is not planned; parameters in bf16 are "
            "(--param-dtype, --store-dtype)");
    return ERR_OK;
}

static bool moves_rows(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_TOPK:
        if (w->kernel->label == ATEN_MAX_DIM)
            largest_with_place(w);
        else
            call_with_places(w);
        return true;
    case WORK_SORT:
        call_with_places(w);
        return true;
    case WORK_HISTOGRAM:
        histogram(w);
        return true;
    case WORK_INDEX:
        made(w, JOINT_PICK, w->in[0], w->in[1], 0);
        return true;
    case WORK_GATHER:
        made(w, JOINT_GATHER, w->in[0], w->in[1], 0);
        return true;
    case WORK_INDEX_PUT:
    case WORK_SCATTER:
        put(w);
        return true;
    case WORK_SCATTER_NUMBER:
        put_number(w);
        return true;
    case WORK_INVERT_PERMUTATION:
        invert(w);
        return true;
    default:
        return false;
    }
}

bool joint_experts(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_GROUPED_MM_NT:
    case WORK_GROUPED_MM_NN:
    case WORK_GROUPED_MM_TN:
        grouped_product(w);
        return true;
    case WORK_FLOOR_DIV_NUMBER:
        made(w, JOINT_FLOOR_DIV, w->in[0], JOINT_NONE, w->kernel->attr.p);
        return true;
    case WORK_DIV:
    case WORK_DIV_IN_PLACE:
        quotient(w);
        return true;
    case WORK_SIGMOID:
        made(w, JOINT_SIGMOID, w->in[0], JOINT_NONE, 0);
        return true;
    case WORK_SIGMOID_BACKWARD:
        sigmoid_backward(w);
        return true;
    case WORK_EQUAL_NUMBER:
        made(w, JOINT_EQUAL, w->in[0], JOINT_NONE, w->kernel->attr.p);
        return true;
    case WORK_AT_LEAST:
        made(w, JOINT_AT_LEAST, w->in[0], JOINT_NONE, w->kernel->attr.p);
        return true;
    case WORK_GREATER_NUMBER:
        made(w, JOINT_LESS, w->in[0], JOINT_NONE, w->kernel->attr.p);
        return true;
    case WORK_MASKED_FILL:
        masked_fill(w);
        return true;
    case WORK_SUM_DIM:
        made(w, JOINT_SUM, w->in[0], JOINT_NONE, 0);
        return true;
    default:
        return moves_rows(w);
    }
}
