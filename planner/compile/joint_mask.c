/* joint_mask.c - masks, tables of RoPE and shifted labels as AOTAutograd traces them (joint.h):
 * what transformers' models compute of positions, which only models compiled whole have inside.
 *
 * Sources: graphs recorded as tests/truth/record_compile_model.py --hf does. aten.index and what is
 * elementwise may run again, cumsum and constant_pad_nd are not on the partitioner's list. Numbers
 * that are joined to numbers are no elementwise function to Inductor: one kernel writes each part
 * into the memory of the whole (torch/_inductor/lowering.py, cat: ConcatKernel). */
#include "compile/joint_works.h"

#include <math.h>

static void made(const struct works *w, enum joint_name name, uint32_t x, uint32_t y, float number)
{
    joint_write(
        w->joint, result(w, 0),
        element(w, name, (enum dtype)result(w, 0)->dtype, result(w, 0)->shape, x, y, number));
}

static void fill(const struct works *w, float number)
{
    joint_write(w->joint, result(w, 0),
                joint_node(w->joint, &(struct joint_want){.name = JOINT_FULL,
                                                          .dtype = (enum dtype)result(w, 0)->dtype,
                                                          .shape = result(w, 0)->shape,
                                                          .number = number}));
}

static void where(const struct works *w)
{
    joint_write(w->joint, result(w, 0),
                choose(w, (enum dtype)result(w, 0)->dtype, result(w, 0)->shape, w->in));
}

/* x from a number of its last dim on, copied. */
static void slice(const struct works *w)
{
    const enum dtype dtype = (enum dtype)result(w, 0)->dtype;
    const uint32_t part =
        joint_node(w->joint, &(struct joint_want){.name = JOINT_SLICE,
                                                  .dtype = dtype,
                                                  .shape = result(w, 0)->shape,
                                                  .args = 1,
                                                  .arg = {w->in[0]},
                                                  .detail = w->kernel->attr.first});
    write(w, 0, of_one(w, JOINT_CLONE, part, 0));
}

/* x into part of the last dim of what is there, or of memory that is empty. */
static void put_slice(const struct works *w)
{
    const struct operand *to = result(w, 0);
    const enum dtype dtype = (enum dtype)to->dtype;
    uint32_t whole = joint_value(w->joint, to->place & ~(uint32_t)PLACE_MASK, to->shape, dtype);
    if (whole == JOINT_NONE)
        whole = joint_node(
            w->joint, &(struct joint_want){.name = JOINT_FULL, .dtype = dtype, .shape = to->shape});
    const uint32_t part = of_one(w, JOINT_COPY, w->in[0], 0);
    joint_write(w->joint, to,
                joint_node(w->joint, &(struct joint_want){.name = JOINT_PUT_SLICE,
                                                          .dtype = dtype,
                                                          .shape = to->shape,
                                                          .args = 2,
                                                          .arg = {whole, part},
                                                          .detail = w->kernel->attr.first}));
}

/* Numbers beside numbers, in two kernels: the first part's memory is the whole's. */
static void join_numbers(const struct works *w)
{
    const uint32_t memory = joint_node(w->joint, &(struct joint_want){.name = JOINT_ZEROS,
                                                                      .dtype = DTYPE_INT64,
                                                                      .shape = result(w, 0)->shape,
                                                                      .args = 1,
                                                                      .arg = {w->in[0]}});
    made(w, JOINT_PUT_ROWS, memory, w->in[1], 0);
}

bool joint_mask(const struct works *w)
{
    switch ((enum work_kind)w->kernel->work) {
    case WORK_FILL:
        fill(w, w->kernel->attr.p);
        return true;
    case WORK_FILL_LOWEST:
        fill(w, -INFINITY);
        return true;
    case WORK_NOT_EQUAL_NUMBER:
        made(w, JOINT_NOT_EQUAL, w->in[0], JOINT_NONE, w->kernel->attr.p);
        return true;
    case WORK_GREATER_NUMBER:
        made(w, JOINT_GREATER, w->in[0], JOINT_NONE, w->kernel->attr.p);
        return true;
    case WORK_LESS_NUMBER:
        made(w, JOINT_LESS, w->in[0], JOINT_NONE, w->kernel->attr.p);
        return true;
    case WORK_EQUAL:
        made(w, JOINT_EQUAL, w->in[0], w->in[1], 0);
        return true;
    case WORK_GREATER:
        made(w, JOINT_LESS, w->in[1], w->in[0], 0);
        return true;
    case WORK_LESS_EQUAL:
        made(w, JOINT_LESS_EQUAL, w->in[0], w->in[1], 0);
        return true;
    case WORK_AND:
        made(w, JOINT_AND, w->in[0], w->in[1], 0);
        return true;
    case WORK_WHERE:
        where(w);
        return true;
    case WORK_CAT:
        if (result(w, 0)->dtype != DTYPE_INT64)
            return false;
        join_numbers(w);
        return true;
    case WORK_GATHER:
        if (w->kernel->label == ATEN_GATHER)
            return false;
        made(w, JOINT_PICK, w->in[0], w->in[1], 0);
        return true;
    case WORK_CUMULATIVE_SUM:
        made(w, JOINT_RUNNING, w->in[0], JOINT_NONE, 0);
        return true;
    case WORK_COS:
        made(w, JOINT_COS, w->in[0], JOINT_NONE, 0);
        return true;
    case WORK_SIN:
        made(w, JOINT_SIN, w->in[0], JOINT_NONE, 0);
        return true;
    case WORK_LOG:
        made(w, w->kernel->attr.p > 0 ? JOINT_LOG1P : JOINT_LOG, w->in[0], JOINT_NONE, 0);
        return true;
    case WORK_PAD:
        made(w, JOINT_PAD, w->in[0], JOINT_NONE, w->kernel->attr.p);
        return true;
    case WORK_PUT_SLICE:
        put_slice(w);
        return true;
    case WORK_COPY:
        made(w, JOINT_COPY, w->in[0], JOINT_NONE, 0);
        return true;
    case WORK_SLICE:
        slice(w);
        return true;
    default:
        return false;
    }
}
