/* operand.h - what every backend asks of the operands of a piece of work: sizes, layout, whether
 * they fit together, and the sentence when they do not. */
#ifndef SHARDPLAN_OPERAND_H
#define SHARDPLAN_OPERAND_H

#include "base/err.h"
#include "runtime/work/work.h"

#include <stddef.h>

/* ---- one operand ---- */

static inline const struct work_operand *work_in(const struct work *work, uint32_t i)
{
    return &work->operand[i];
}

static inline const struct work_operand *work_out(const struct work *work, uint32_t i)
{
    return &work->operand[work->ins + i];
}

static inline uint64_t operand_count(const struct work_operand *x)
{
    return shape_elements(&x->shape);
}

/* The last dim, and how many rows of it there are. */
static inline uint64_t operand_last(const struct work_operand *x)
{
    return x->shape.rank ? x->shape.dim[x->shape.rank - 1] : 1;
}

static inline uint64_t operand_rows(const struct work_operand *x)
{
    const uint64_t last = operand_last(x);
    return last ? operand_count(x) / last : 0;
}

/* Elements between which the pitch lies: shape_row. */
uint64_t operand_row_width(const struct work_operand *x);

bool operand_is_float(const struct work_operand *x);   /* fp32, bf16, fp16 */
bool operand_is_index(const struct work_operand *x);   /* contiguous int64, int32 */
bool operand_is_complex(const struct work_operand *x); /* contiguous complex64 */
bool operand_same_shape(const struct work_operand *x, const struct work_operand *y);

/* Strides of `y`, stretched over `z` from the right: 0 where y has 1. False: it does not fit. */
bool shape_spread(const struct shape *y, const struct shape *z, uint64_t stride[SHAPE_DIMS]);

/* ---- how some kinds cut or order their operands ---- */

/* Elements of a chunk of x: whole rows of its first dim, ceil(rows / ranks) of them. */
uint64_t operand_chunk(const struct work_operand *x, uint32_t ranks);

/* Gradients of a norm come in the order dx, dweight, dbias, without those not asked for (NULL).
 * Only dx has the rank of x; of one parameter's gradient alone we take it to be the weight's. */
struct norm_gradients {
    const struct work_operand *dx, *dweight, *dbias;
};
struct norm_gradients work_norm_gradients(const struct work *work);

struct attention {
    const struct work_operand *q, *k,
        *v; /* (b, s, a, d), k and v (b, s_k, fewer heads, d or d_v) */
    uint32_t b, s, s_k, a, d, d_v;
    uint32_t repeats;                /* heads of q for each of k and v, which have a / repeats */
    const struct work_operand *bias; /* added to scores, broadcasts to (b, a, s, s_k); NULL */
    uint32_t logsumexp_pitch;        /* between heads: s, or more where the rows are rounded up */
    float scale;                     /* attr.scale, or 1 / sqrt(d) */
    float softcap;                   /* attr.softcap */
    uint32_t window;                 /* attr.window */
    bool causal;
};

/* What the operands of ATTENTION or ATTENTION_BACKWARD say; work_check has passed them. */
struct attention work_attention(const struct work *work);

/* AdamW's constants of one step, in double, each rounded once: as torch.optim.AdamW has them. */
struct adam_constants {
    float decay;                      /* 1 - lr · weight decay */
    float take_g, keep_v, take_gg;    /* 1 - β₁, β₂, 1 - β₂ */
    float step_size, root_scale, eps; /* lr / (1 - β₁ᵗ); sqrt(1 - β₂ᵗ) */
};
struct adam_constants work_adam_constants(const struct work *work);

/* ---- failing ---- */

/* "instruction 12: matmul_nt: ..." */
enum err_code work_refuse(const struct work *work, enum err_code code, struct err *err,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Checks one operand against what a kernel needs; the sentence calls it `name`. */
enum err_code work_need_count(const struct work *work, const char *name,
                              const struct work_operand *x, uint64_t count, struct err *err);
enum err_code work_need_index(const struct work *work, const char *name,
                              const struct work_operand *x, struct err *err);

/* Whose kernels: the host's are the reference, and compute all that anybody does. */
enum work_backend { WORK_ON_HOST, WORK_ON_CUDA };

const char *work_backend_name(enum work_backend backend); /* "host" */

/* Whether there is a kernel for it at all: what one backend has, all have, and in which form
 * work_check says. */
bool work_can_run(enum work_kind kind);
/* ... and in that form: with so many operands. A call that was recorded may have others: a product
 * with a number, which is no operand. */
bool work_can_run_form(const struct work *work);

/* Checks everything that can be known before the work runs: the number of operands, their dtypes,
 * and that their shapes fit together; what is in memory (the range of indices) is the kernel's to
 * check. Collectives are checked, too. ERR_INVALID: operands do not fit; ERR_UNSUPPORTED: a dtype
 * or a form or a kind that has no kernel. Each names the instruction. A backend calls it once for
 * each piece of work, so its kernels need not. */
enum err_code work_check(const struct work *work, enum work_backend backend, struct err *err);

/* Of a reduce_scatter: its output is the rank's own slice of its input. */
static inline bool operand_is_own_slice(const struct work *work, const struct work_operand *in,
                                        const struct work_operand *out)
{
    return out->data ==
           (char *)in->data + work->rank * operand_count(out) * dtype_bytes((enum dtype)out->dtype);
}

#endif
