/* joint_index.c - rows by index as AOTAutograd traces them (joint.h): the embedding and what is
 * under it, which only models compiled whole have inside.
 *
 *     ids, weight (v, h) -> rows;   dy (..., h), ids -> zeros (v, h), in fp32, dy added at its rows
 *
 * Sources: torch/_inductor/decomposition.py, embedding_dense_backward; its lowering of
 * _unsafe_masked_index_put_accumulate, which writes into the zeros. What masks ids that are out of
 * range is computed where it is used, of ids alone, and left out. */
#include "compile/joint_works.h"

/* Rows of a table that are gathered, or indexed, may be so again, which an embedding may not. */
static void embedding(const struct works *w)
{
    const bool gathers = w->kernel->label == ATEN_GATHER || w->kernel->label == ATEN_INDEX;
    joint_write(w->joint, result(w, 0),
                element(w, gathers ? JOINT_GATHER : JOINT_ROWS, (enum dtype)result(w, 0)->dtype,
                        result(w, 0)->shape, w->in[1], w->in[0], 0));
}

static void embedding_backward(const struct works *w)
{
    const struct shape shape = result(w, 0)->shape;
    const uint32_t dy = wide(w, w->in[0]);
    const uint32_t zeros = joint_node(
        w->joint, &(struct joint_want){.name = JOINT_ZEROS, .dtype = DTYPE_FP32, .shape = shape});
    const uint32_t sum = joint_node(w->joint, &(struct joint_want){.name = JOINT_PUT_ROWS,
                                                                   .dtype = DTYPE_FP32,
                                                                   .shape = shape,
                                                                   .args = 3,
                                                                   .arg = {zeros, dy, w->in[1]}});
    write(w, 0, sum);
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
    default:
        return false;
    }
}
