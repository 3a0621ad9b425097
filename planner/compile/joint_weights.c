/* joint_weights.c - attention in single functions, as models write it in Python, as AOTAutograd
 * traces it (joint.h): products of batches, and the softmax between them.
 *
 *     q, k -> scores (n, s, s) -> weights (n, s, s);   weights, v -> (n, s, d)
 *
 * Sources: torch/_decomp/decompositions.py, _softmax_backward_data, which Inductor has with a fused
 * product and sum; torch/_refs, softmax; torch.matmul, which expands both factors to all batches.
 */
#include "base/layout.h"
#include "compile/joint_works.h"

#include <assert.h>
#include <math.h>

/* Whether the columns of each lie one after the other. */
static bool is_turned_batch(const struct operand *operand)
{
    const struct strides *layout = operand->layout;
    return layout && !layout_is_unknown(layout) && operand->shape.rank == 3 &&
           operand->shape.dim[1] > 1 && layout->of[1] == 1 && layout->of[2] != 1;
}

/* A factor as matmul makes it: expanded to all batches, which changes nothing, and flat. */
static uint32_t factor(const struct works *w, uint32_t i)
{
    const struct operand *operand = &w->kernel->operands[i];
    uint32_t x = w->in[i];
    if (is_turned_batch(operand)) {
        const struct shape *s = &operand->shape;
        x = turned_batches(w, joint_view(w->joint, x, SHAPE(s->dim[0], s->dim[2], s->dim[1])));
    }
    return element(w, JOINT_EXPAND, (enum dtype)at(w, x)->dtype, operand->shape, x, JOINT_NONE, 0);
}

static void product_of_batches(const struct works *w)
{
    uint32_t arg[2];
    for (uint32_t i = 0; i < 2; i++)
        arg[i] = w->kernel->backward && at(w, w->in[i])->in_backward ? w->in[i] : factor(w, i);
    switch ((enum work_kind)w->kernel->work) {
    case WORK_BMM_NN:
        break;
    case WORK_BMM_NT:
        arg[1] = turned_batches(w, arg[1]);
        break;
    case WORK_BMM_TN:
        arg[0] = turned_batches(w, arg[0]);
        break;
    default:
        assert(!"a product of batches");
    }
    write(w, 0, call(w, 2, arg, result(w, 0)->shape));
}

static bool is_scaled(const struct works *w, uint32_t x)
{
    const struct joint_node *n = at(w, x);
    return (n->name == JOINT_MUL || n->name == JOINT_DIV) && n->args == 1;
}

static uint32_t less_largest(const struct works *w, uint32_t x)
{
    return of_two(w, JOINT_SUB, x, over_row(w, JOINT_LARGEST, x));
}

/* Of scores times a number the largest is found before that, but of rows that have what is not
 * finite in them (joint_graph.py: div_softmax_pattern, mul_softmax_pattern). */
static uint32_t less_largest_scaled(const struct works *w, uint32_t scaled, uint32_t x)
{
    const struct joint_node n = *at(w, scaled);
    const uint32_t inner = cast(w, n.arg[0], (enum dtype)at(w, x)->dtype);
    const uint32_t stable = of_one(w, (enum joint_name)n.name,
                                   less_largest(w, of_one(w, JOINT_MUL, inner, 1)), n.number);
    const uint32_t own = less_largest(w, x);
    const struct shape shape = at(w, x)->shape;
    const uint32_t finite = element(w, JOINT_NOT_EQUAL, DTYPE_BOOL, shape,
                                    of_one(w, JOINT_ABS, x, 0), JOINT_NONE, INFINITY);
    const uint32_t number = element(w, JOINT_EQUAL, DTYPE_BOOL, shape, x, x, 0);
    const uint32_t both = element(w, JOINT_MUL, DTYPE_BOOL, shape, number, finite, 0);
    const uint32_t any = over_row(w, JOINT_LARGEST, of_one(w, JOINT_NOT_EQUAL, both, 1));
    const uint32_t none = of_one(w, JOINT_NOT_EQUAL, any, 1);
    return choose(w, (enum dtype)at(w, x)->dtype, shape, (uint32_t[]){none, stable, own});
}

static void softmax(const struct works *w)
{
    const uint32_t x = wide(w, w->in[0]);
    const uint32_t less =
        is_scaled(w, w->in[0]) ? less_largest_scaled(w, w->in[0], x) : less_largest(w, x);
    const uint32_t e = of_one(w, JOINT_EXP, less, 0);
    write(w, 0, of_two(w, JOINT_DIV, e, over_row(w, JOINT_SUM, e)));
}

/* Rows that are masked whole are zeros (torch/_decomp: _safe_softmax). */
static void safe_softmax(const struct works *w)
{
    const uint32_t x = w->in[0];
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    const struct shape shape = at(w, x)->shape;
    softmax(w);
    const uint32_t y =
        joint_value(w->joint, result(w, 0)->place & ~(uint32_t)PLACE_MASK, shape, dtype);
    const uint32_t masked = element(w, JOINT_EQUAL, DTYPE_BOOL, shape, x, JOINT_NONE, -INFINITY);
    const uint32_t seen = of_one(w, JOINT_NOT_EQUAL, masked, 1);
    const uint32_t none = of_one(w, JOINT_NOT_EQUAL, over_row(w, JOINT_LARGEST, seen), 1);
    const uint32_t zeros = joint_node(
        w->joint, &(struct joint_want){.name = JOINT_FULL, .dtype = dtype, .shape = shape});
    joint_write(w->joint, result(w, 0), choose(w, dtype, shape, (uint32_t[]){none, zeros, y}));
}

static void softmax_backward(const struct works *w)
{
    const uint32_t y = wide(w, w->in[1]);
    const uint32_t g = of_two(w, JOINT_MUL, wide(w, w->in[0]), y);
    const uint32_t minus = of_one(w, JOINT_NEG, y, 0);
    write(w, 0, of_two(w, JOINT_ADD, of_two(w, JOINT_MUL, minus, over_row(w, JOINT_SUM, g)), g));
}

bool joint_weights(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_BMM_NN:
    case WORK_BMM_NT:
    case WORK_BMM_TN:
        product_of_batches(w);
        return true;
    case WORK_SOFTMAX:
        softmax(w);
        return true;
    case WORK_SAFE_SOFTMAX:
        safe_softmax(w);
        return true;
    case WORK_SOFTMAX_BACKWARD:
        softmax_backward(w);
        return true;
    default:
        return false;
    }
}
