/* joint_index.c - rows by index as AOTAutograd traces them (joint.h): the embedding and what is
 * under it, which only models compiled whole have inside.
 *
 *     ids, weight (v, h) -> rows;   dy (..., h), ids -> zeros (v, h), in fp32, dy added at its rows
 *
 * Sources: torch/_inductor/decomposition.py, embedding_dense_backward; its lowering of
 * _unsafe_masked_index_put_accumulate, which writes into the zeros. What masks ids that are out of
 * range is computed where it is used, of ids alone, and left out. */
#include "compile/joint_works.h"

/* Numbers of one sequence for all: (b, s), which are as many as there are rows. */
static uint32_t for_all(const struct works *w, uint32_t ids, const struct shape *rows)
{
    struct shape all = *rows;
    all.rank--;
    if (rows->rank < 2 || shape_elements(&at(w, ids)->shape) >= shape_elements(&all))
        return ids;
    return element(w, JOINT_EXPAND, (enum dtype)at(w, ids)->dtype, all, ids, JOINT_NONE, 0);
}

/* Rows of a table that are gathered, or indexed, may be so again, which an embedding may not. */
static void embedding(const struct works *w)
{
    const bool gathers = w->kernel->label == ATEN_GATHER || w->kernel->label == ATEN_INDEX;
    const uint32_t ids = gathers ? w->in[0] : for_all(w, w->in[0], &result(w, 0)->shape);
    joint_write(w->joint, result(w, 0),
                element(w, gathers ? JOINT_GATHER : JOINT_ROWS, (enum dtype)result(w, 0)->dtype,
                        result(w, 0)->shape, w->in[1], ids, 0));
}

static void embedding_backward(const struct works *w)
{
    const struct shape shape = result(w, 0)->shape;
    const uint32_t dy = wide(w, w->in[0]);
    const uint32_t ids = for_all(w, w->in[1], &w->kernel->operands[0].shape);
    const uint32_t zeros = joint_node(
        w->joint, &(struct joint_want){.name = JOINT_ZEROS, .dtype = DTYPE_FP32, .shape = shape});
    const uint32_t sum = joint_node(w->joint, &(struct joint_want){.name = JOINT_PUT_ROWS,
                                                                   .dtype = DTYPE_FP32,
                                                                   .shape = shape,
                                                                   .args = 3,
                                                                   .arg = {zeros, dy, ids}});
    write(w, 0, sum);
}

/* The dim before the last for the last, as kernels of a dim that is not the last have it. */
static struct shape turned(const struct shape *shape)
{
    struct shape out = *shape;
    out.dim[out.rank - 1] = shape->dim[shape->rank - 2];
    out.dim[out.rank - 2] = shape->dim[shape->rank - 1];
    return out;
}

/* x as it lies in memory: an operand of such a kernel is a view of that. */
static uint32_t straight(const struct works *w, uint32_t x)
{
    const struct joint_node *node = at(w, x);
    return joint_view(w->joint, node->name == JOINT_VIEW ? node->arg[0] : x, turned(&node->shape));
}

/* A list of one place, from the end of as many as there are, which is folded to a full tensor. */
static uint32_t list_of(const struct works *w, uint32_t all)
{
    return joint_node(w->joint,
                      &(struct joint_want){.name = JOINT_FULL,
                                           .dtype = DTYPE_INT64,
                                           .shape = SHAPE(1),
                                           .number = (float)w->kernel->attr.first - (float)all});
}

static uint32_t last_of(const struct shape *shape)
{
    return shape->dim[shape->rank - 1];
}

/* x[..., [place], :]; its gradient is added to zeros there. */
static void pick(const struct works *w)
{
    const struct operand *out = result(w, 0);
    const uint32_t list = list_of(w, last_of(&at(w, w->in[0])->shape));
    const uint32_t x = straight(w, w->in[0]);
    joint_write(w->joint, out,
                element(w, JOINT_PICK, (enum dtype)out->dtype, turned(&out->shape), x, list, 0));
}

static bool is_put_by(const struct works *w, uint32_t list)
{
    for (uint32_t i = joint_count(w->joint); i-- > 0 && at(w, i)->in_backward;)
        if (at(w, i)->name == JOINT_PUT_ROWS && at(w, i)->arg[2] == list)
            return true;
    return false;
}

/* The list that autograd has saved: of the last such pick whose gradient was not put yet. */
static uint32_t list_again(const struct works *w, uint32_t all)
{
    const float place = (float)w->kernel->attr.first - (float)all;
    for (uint32_t i = joint_count(w->joint); i-- > 0;) {
        const struct joint_node *node = at(w, i);
        if (node->name == JOINT_PICK && at(w, node->arg[1])->name == JOINT_FULL &&
            at(w, node->arg[1])->number == place && !is_put_by(w, node->arg[1]))
            return node->arg[1];
    }
    return list_of(w, all);
}

static void put(const struct works *w)
{
    const struct operand *out = result(w, 0);
    const enum dtype dtype = (enum dtype)out->dtype;
    const struct shape shape = turned(&out->shape);
    const uint32_t zeros = joint_node(
        w->joint, &(struct joint_want){.name = JOINT_ZEROS, .dtype = dtype, .shape = shape});
    const uint32_t list = list_again(w, last_of(&out->shape));
    joint_write(
        w->joint, out,
        joint_node(w->joint, &(struct joint_want){.name = JOINT_PUT_ROWS,
                                                  .dtype = dtype,
                                                  .shape = shape,
                                                  .args = 3,
                                                  .arg = {zeros, straight(w, w->in[0]), list}}));
}

static void arange(const struct works *w)
{
    joint_write(w->joint, result(w, 0),
                joint_node(w->joint, &(struct joint_want){.name = JOINT_IOTA,
                                                          .dtype = (enum dtype)result(w, 0)->dtype,
                                                          .shape = result(w, 0)->shape}));
}

bool joint_by_index(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_EMBEDDING:
        embedding(w);
        return true;
    case WORK_EMBEDDING_BACKWARD:
        embedding_backward(w);
        return true;
    case WORK_ARANGE:
        arange(w);
        return true;
    case WORK_SLICE:
        if (w->kernel->label != ATEN_INDEX)
            return false;
        pick(w);
        return true;
    case WORK_SLICE_BACKWARD:
        if (w->kernel->label != ATEN_INDEX_PUT_ && w->kernel->label != ATEN_INDEX_PUT)
            return false;
        put(w);
        return true;
    default:
        return false;
    }
}
