/* joint_loss.c - the mean cross-entropy as AOTAutograd traces it (joint.h).
 *
 *     logits (t, v) -> most (t, 1), log of the sum (t, 1) -> log-probabilities (t, v)
 *     -> the targets' (t, 1) -> their mean ()
 *
 * Sources: torch/_decomp/decompositions.py, _log_softmax, nll_loss_forward and their backwards;
 * where the gradient is put on the targets, torch/_inductor/decomposition.py compares each place
 * with the target's (fx_passes/joint_graph.py, scatter_upon_const_tensor). Nodes are those of the
 * graph that the partitioner is given: what is computed from what, in which dtype, over how many
 * elements. */
#include "compile/joint_works.h"

#include <assert.h>

enum { IGNORED = -100 }; /* cross_entropy's ignore_index */

static uint32_t rows_and_one(const struct works *w, uint32_t x)
{
    return joint_view(w->joint, x, SHAPE((uint32_t)shape_elements(&at(w, x)->shape), 1));
}

static uint32_t flat(const struct works *w, uint32_t x)
{
    return joint_view(w->joint, x, SHAPE((uint32_t)shape_elements(&at(w, x)->shape)));
}

static uint32_t full(const struct works *w, enum dtype dtype)
{
    return joint_node(w->joint, &(struct joint_want){.name = JOINT_FULL, .dtype = dtype});
}

/* x where it counts, else a number. */
static uint32_t where(const struct works *w, uint32_t counts, uint32_t x)
{
    const enum dtype dtype = (enum dtype)at(w, x)->dtype;
    return choose(w, dtype, at(w, counts)->shape, (uint32_t[]){counts, x, full(w, dtype)});
}

static uint32_t is_counted(const struct works *w, uint32_t targets)
{
    return element(w, JOINT_NOT_EQUAL, DTYPE_BOOL, at(w, targets)->shape, targets, JOINT_NONE,
                   IGNORED);
}

static uint32_t sum_of_all(const struct works *w, uint32_t x, enum dtype dtype)
{
    return element(w, JOINT_SUM, dtype, (struct shape){.rank = 0}, x, JOINT_NONE, 0);
}

static void log_softmax(const struct works *w)
{
    const uint32_t x = wide(w, w->in[0]);
    const uint32_t less = of_two(w, JOINT_SUB, x, over_row(w, JOINT_LARGEST, x));
    const uint32_t sum = over_row(w, JOINT_SUM, of_one(w, JOINT_EXP, less, 0));
    write(w, 0, of_two(w, JOINT_SUB, less, of_one(w, JOINT_LOG, sum, 0)));
}

static void log_softmax_backward(const struct works *w)
{
    const uint32_t dy = w->in[0], y = w->in[1];
    const uint32_t e = of_one(w, JOINT_EXP, y, 0);
    const uint32_t share = of_two(w, JOINT_MUL, e, over_row(w, JOINT_SUM, dy));
    write(w, 0, of_two(w, JOINT_SUB, dy, share));
}

static void nll_loss(const struct works *w)
{
    const uint32_t y = w->in[0], targets = flat(w, w->in[1]);
    const uint32_t counts = is_counted(w, targets);
    const uint32_t index = rows_and_one(w, where(w, counts, targets));
    const uint32_t picked =
        element(w, JOINT_GATHER, (enum dtype)at(w, y)->dtype, at(w, index)->shape, y, index, 0);
    const uint32_t losses = where(w, counts, of_one(w, JOINT_NEG, flat(w, picked), 0));
    const enum dtype dtype = (enum dtype)at(w, y)->dtype;
    const uint32_t number = cast(w, sum_of_all(w, counts, DTYPE_INT64), dtype);
    const uint32_t sum = sum_of_all(w, losses, dtype);
    joint_write(w->joint, result(w, 0), of_two(w, JOINT_DIV, sum, number));
    joint_write(w->joint, result(w, 1), number);
}

/* How many targets count: forward's, whose second result it is. */
static uint32_t find_number(const struct works *w)
{
    for (uint32_t i = 0; i < joint_count(w->joint); i++)
        if (at(w, i)->name == JOINT_CAST && at(w, at(w, i)->arg[0])->name == JOINT_SUM &&
            at(w, at(w, i)->arg[0])->dtype == DTYPE_INT64)
            return i;
    assert(!"a loss has its forward in the same region");
    return JOINT_NONE;
}

/* dloss, targets */
static void nll_loss_backward(const struct works *w)
{
    const uint32_t column = rows_and_one(w, flat(w, w->in[1])), number = find_number(w);
    const struct shape shape = result(w, 0)->shape;
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    const uint32_t each = of_two(w, JOINT_DIV, w->in[0], number);
    const uint32_t counts = is_counted(w, column);
    const uint32_t index = where(w, counts, column);
    const uint32_t places =
        joint_node(w->joint, &(struct joint_want){.name = JOINT_IOTA,
                                                  .dtype = DTYPE_INT64,
                                                  .shape = SHAPE(shape.dim[shape.rank - 1])});
    const uint32_t target = element(w, JOINT_EQUAL, DTYPE_BOOL, shape, index, places, 0);
    const uint32_t minus =
        joint_node(w->joint, &(struct joint_want){.name = JOINT_WHERE,
                                                  .dtype = dtype,
                                                  .shape = shape,
                                                  .args = 2,
                                                  .arg = {target, full(w, dtype)}});
    write(w, 0, of_two(w, JOINT_MUL, minus, where(w, counts, each)));
}

bool joint_loss(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_LOG_SOFTMAX:
        log_softmax(w);
        return true;
    case WORK_LOG_SOFTMAX_BACKWARD:
        log_softmax_backward(w);
        return true;
    case WORK_NLL_LOSS:
        nll_loss(w);
        return true;
    case WORK_NLL_LOSS_BACKWARD:
        nll_loss_backward(w);
        return true;
    default:
        return false;
    }
}
