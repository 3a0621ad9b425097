/* joint_works.h - for joint_work.c, joint_loss.c, joint_index.c only: one kernel while it becomes
 * functions. */
#ifndef SHARDPLAN_JOINT_WORKS_H
#define SHARDPLAN_JOINT_WORKS_H

#include "compile/joint.h"

struct works { /* of one kernel */
    struct joint *joint;
    const struct kernel *kernel;
    uint32_t index;
    uint32_t in[JOINT_ARGS]; /* its operands as nodes */
};

static inline const struct operand *result(const struct works *w, uint32_t i)
{
    return &w->kernel->operands[w->kernel->ins + i];
}

static inline const struct joint_node *at(const struct works *w, uint32_t node)
{
    return joint_at(w->joint, node);
}

/* ---- one function each ---- */

static inline uint32_t element(const struct works *w, enum joint_name name, enum dtype dtype,
                               struct shape shape, uint32_t x, uint32_t y, float number)
{
    struct joint_want want = {.name = name,
                              .dtype = dtype,
                              .shape = shape,
                              .args = y == JOINT_NONE ? 1 : 2,
                              .arg = {x},
                              .number = number};
    if (y != JOINT_NONE)
        want.arg[1] = y;
    return joint_node(w->joint, &want);
}

/* In x's shape and dtype. */
static inline uint32_t of_one(const struct works *w, enum joint_name name, uint32_t x, float number)
{
    return element(w, name, (enum dtype)at(w, x)->dtype, at(w, x)->shape, x, JOINT_NONE, number);
}

static inline uint32_t of_two(const struct works *w, enum joint_name name, uint32_t x, uint32_t y)
{
    const struct shape *a = &at(w, x)->shape, *b = &at(w, y)->shape;
    const struct shape shape = shape_elements(a) >= shape_elements(b) ? *a : *b;
    const bool wide = at(w, x)->dtype == DTYPE_FP32 || at(w, y)->dtype == DTYPE_FP32;
    return element(w, name, wide ? DTYPE_FP32 : (enum dtype)at(w, x)->dtype, shape, x, y, 0);
}

/* Element by element the second where the first says so, else the third. */
static inline uint32_t choose(const struct works *w, enum dtype dtype, struct shape shape,
                              const uint32_t arg[3])
{
    return joint_node(w->joint, &(struct joint_want){.name = JOINT_WHERE,
                                                     .dtype = dtype,
                                                     .shape = shape,
                                                     .args = 3,
                                                     .arg = {arg[0], arg[1], arg[2]}});
}

static inline bool is_wide_or_half(enum dtype dtype)
{
    return dtype == DTYPE_FP32 || dtype == DTYPE_FP64 || dtype == DTYPE_BF16 || dtype == DTYPE_FP16;
}

/* "pointless_convert" (joint_graph.py): numbers cast twice, first to what is not narrower, are cast
 * once. Where they had the last dtype before, what is left changes nothing, and stays. */
static inline bool is_cast_on(const struct works *w, uint32_t x, enum dtype dtype)
{
    const struct joint_node *node = at(w, x);
    return node->name == JOINT_CAST && is_wide_or_half(dtype) &&
           is_wide_or_half((enum dtype)node->dtype) &&
           is_wide_or_half((enum dtype)at(w, node->arg[0])->dtype) &&
           dtype_bytes((enum dtype)node->dtype) >= dtype_bytes(dtype);
}

static inline uint32_t cast(const struct works *w, uint32_t x, enum dtype dtype)
{
    if (at(w, x)->dtype == dtype)
        return x;
    if (is_cast_on(w, x, dtype))
        x = at(w, x)->arg[0];
    return element(w, JOINT_CAST, dtype, at(w, x)->shape, x, JOINT_NONE, 0);
}

static inline uint32_t wide(const struct works *w, uint32_t x)
{
    return cast(w, x, DTYPE_FP32);
}

/* Over the last dim, which stays as 1. */
static inline uint32_t over_row(const struct works *w, enum joint_name name, uint32_t x)
{
    struct shape shape = at(w, x)->shape;
    shape.dim[shape.rank - 1] = 1;
    return element(w, name, (enum dtype)at(w, x)->dtype, shape, x, JOINT_NONE, 0);
}

/* Over all dims but the last. */
static inline uint32_t over_rows(const struct works *w, uint32_t x)
{
    const struct shape *shape = &at(w, x)->shape;
    return element(w, JOINT_SUM, (enum dtype)at(w, x)->dtype, SHAPE(shape->dim[shape->rank - 1]), x,
                   JOINT_NONE, 0);
}

/* Result i of a node with several. */
static inline uint32_t one_of(const struct works *w, uint32_t node, uint32_t i, enum dtype dtype,
                              struct shape shape)
{
    return joint_node(w->joint, &(struct joint_want){.name = JOINT_RESULT,
                                                     .dtype = dtype,
                                                     .shape = shape,
                                                     .args = 1,
                                                     .arg = {node},
                                                     .detail = i});
}

static inline void write(const struct works *w, uint32_t i, uint32_t node)
{
    joint_write(w->joint, result(w, i), cast(w, node, (enum dtype)result(w, i)->dtype));
}

/* A kernel with one result. */
static inline uint32_t call_of(const struct works *w, enum joint_name name, uint32_t args,
                               const uint32_t *arg, struct shape shape)
{
    struct joint_want want = {.name = name,
                              .dtype = (enum dtype)result(w, 0)->dtype,
                              .shape = shape,
                              .args = args,
                              .of = w->index};
    for (uint32_t i = 0; i < args; i++)
        want.arg[i] = arg[i];
    return joint_node(w->joint, &want);
}

/* Of a library's. */
static inline uint32_t call(const struct works *w, uint32_t args, const uint32_t *arg,
                            struct shape shape)
{
    return call_of(w, JOINT_CALL, args, arg, shape);
}

/* (n, i, j) as (n, j, i) */
static inline uint32_t turned_batches(const struct works *w, uint32_t x)
{
    const struct shape s = at(w, x)->shape;
    return joint_node(w->joint, &(struct joint_want){.name = JOINT_PERMUTE,
                                                     .dtype = (enum dtype)at(w, x)->dtype,
                                                     .shape = SHAPE(s.dim[0], s.dim[2], s.dim[1]),
                                                     .args = 1,
                                                     .arg = {x},
                                                     .detail = JOINT_BATCHES_TURNED});
}

/* joint_loss.c: whether the kernel is of a loss, and then it is done. */
bool joint_loss(const struct works *w);
/* joint_index.c: likewise of rows by index. */
bool joint_by_index(const struct works *w);
/* joint_mask.c: likewise of a mask, and what else is made of positions. */
bool joint_mask(const struct works *w);
/* joint_weights.c: likewise of attention in single functions. */
bool joint_weights(const struct works *w);
/* joint_experts.c: likewise of a mixture of experts. */
bool joint_experts(const struct works *w);
/* ERR_UNSUPPORTED: of a mixture of experts, what Inductor makes of the kernel is another one. */
enum err_code joint_check_experts(const struct works *w, struct err *err);

#endif
