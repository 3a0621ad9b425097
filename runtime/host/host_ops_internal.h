/* host_ops_internal.h - for the kernels of the host backend only: reading and writing operands.
 *
 * A kernel sees an operand as a row-major list of fp32 numbers, whatever its dtype and pitch:
 *
 *     host_load    elements [first, first + count) of the list -> fp32
 *     host_store   back, rounded to nearest even
 *
 * Elementwise kernels go through it HOST_BLOCK elements at a time, on the stack. */
#ifndef SHARDPLAN_HOST_OPS_INTERNAL_H
#define SHARDPLAN_HOST_OPS_INTERNAL_H

#include "runtime/host/host_ops.h"

#include <stddef.h>

enum { HOST_BLOCK = 512 };

/* ---- operands ---- */

static inline const struct work_operand *host_in(const struct work *work, uint32_t i)
{
    return &work->operand[i];
}

static inline const struct work_operand *host_out(const struct work *work, uint32_t i)
{
    return &work->operand[work->ins + i];
}

static inline uint64_t host_count(const struct work_operand *x)
{
    return shape_elements(&x->shape);
}

/* The last dim, and how many rows of it there are. */
static inline uint64_t host_last(const struct work_operand *x)
{
    return x->shape.rank ? x->shape.dim[x->shape.rank - 1] : 1;
}

static inline uint64_t host_rows(const struct work_operand *x)
{
    const uint64_t last = host_last(x);
    return last ? host_count(x) / last : 0;
}

static inline uint64_t host_least(uint64_t x, uint64_t y)
{
    return x < y ? x : y;
}

/* The number of elements of the next block of `count` elements at `first`. */
static inline uint64_t host_block(uint64_t first, uint64_t count)
{
    return host_least(count - first, HOST_BLOCK);
}

/* Elements between which the pitch lies: those of one row of the chunk. The last dim, or the last
 * two of (b, s, a, d), which is a row (a·d) of a chunk seen as heads; all when contiguous. */
uint64_t host_row_width(const struct work_operand *x);

void host_load(const struct work_operand *x, uint64_t first, uint64_t count, float *out);
void host_store(const struct work_operand *y, uint64_t first, uint64_t count, const float *in);
/* Elements [first, first + count) of x to `at` of y, cast to its dtype. Of another dtype than the
 * floating-point ones only without cast and pitch. */
void host_copy(const struct work_operand *x, uint64_t first, const struct work_operand *y,
               uint64_t at, uint64_t count);
float host_load_one(const struct work_operand *x, uint64_t i);
void host_store_one(const struct work_operand *y, uint64_t i, float value);

/* Element i of int64 or int32 indices. */
int64_t host_index(const struct work_operand *ids, uint64_t i);

bool host_is_float(const struct work_operand *x); /* fp32, bf16, fp16 */
bool host_is_index(const struct work_operand *x);

/* ---- broadcasting ---- */

/* Strides of `y`, stretched over `z` from the right: 0 where y has 1. False: it does not fit. */
bool host_spread(const struct shape *y, const struct shape *z, uint64_t stride[SHAPE_DIMS]);

/* Where row `row` of z (its last dim is a row) begins in y, in elements of y's list. */
uint64_t host_spread_row(const struct shape *z, const uint64_t stride[SHAPE_DIMS], uint64_t row);

/* ---- failing ---- */

/* "instruction 12: MATMUL_NT: ..." */
enum err_code host_refuse(const struct work *work, enum err_code code, struct err *err,
                          const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Checks `x` against what a kernel needs; the sentence calls it `name`. */
enum err_code host_need_count(const struct work *work, const char *name,
                              const struct work_operand *x, uint64_t count, struct err *err);
enum err_code host_need_index(const struct work *work, const char *name,
                              const struct work_operand *x, struct err *err);

/* `count` elements of `size` bytes, not cleared. On ERR_OK the caller owns *out: free. */
enum err_code host_scratch(const struct work *work, uint64_t count, size_t size, void *out,
                           struct err *err);

/* ---- attention, forward and backward ---- */

enum { HOST_TILE = 64 }; /* queries, and keys, at a time */

struct host_attention {
    const struct work_operand *q, *k, *v; /* (b, s, a, d), k and v (b, s_k, a, d) */
    uint32_t b, s, s_k, a, d;
    uint32_t logsumexp_pitch; /* between heads: s, or more where the rows are rounded up */
    float scale;
    bool causal;
};

/* Reads and checks q, k, v at operands `first` and on, and the logsumexp. */
enum err_code host_attention_read(const struct work *work, uint32_t first,
                                  const struct work_operand *logsumexp, struct host_attention *out,
                                  struct err *err);

/* Whether `x` has the elements of q (k where `keys`) in the memory order (b, s, a, d): o and the
 * gradients are born with shape (b, a, s, d), which is that memory transposed. */
enum err_code host_attention_need(const struct work *work, const struct host_attention *at,
                                  const char *name, const struct work_operand *x, bool keys,
                                  struct err *err);

/* Rows `first` to first + rows of head `head` of sequence `b`, of `length` tokens: (rows, d). */
void host_tile_load(const struct host_attention *at, const struct work_operand *x, uint32_t length,
                    uint32_t b, uint32_t head, uint32_t first, uint32_t rows, float *out);
void host_tile_store(const struct host_attention *at, const struct work_operand *y, uint32_t length,
                     uint32_t b, uint32_t head, uint32_t first, uint32_t rows, const float *in);

/* How many of the keys [key, key + keys) query `query` sees. */
static inline uint32_t host_visible(const struct host_attention *at, uint32_t query, uint32_t key,
                                    uint32_t keys)
{
    if (!at->causal || key + keys <= query + 1)
        return keys;
    return key > query ? 0 : query + 1 - key;
}

/* ---- the kernels, by file ---- */

#define HOST_KERNEL(name) enum err_code host_##name(const struct work *work, struct err *err)

/* host_ops_elementwise.c */
HOST_KERNEL(arange);
HOST_KERNEL(ones);
HOST_KERNEL(unary);
HOST_KERNEL(slope);
HOST_KERNEL(add_in_place);
HOST_KERNEL(broadcast);
HOST_KERNEL(conjugate);

/* host_ops_shape.c */
HOST_KERNEL(repeat);
HOST_KERNEL(sum);
HOST_KERNEL(cat);
HOST_KERNEL(copy_bytes);
HOST_KERNEL(embedding);
HOST_KERNEL(embedding_backward);

/* host_ops_matmul.c */
HOST_KERNEL(matmul);

/* host_ops_norm.c */
HOST_KERNEL(rms_norm);
HOST_KERNEL(rms_norm_backward);
HOST_KERNEL(layer_norm);
HOST_KERNEL(layer_norm_backward);

/* host_ops_attention.c, host_ops_attention_backward.c */
HOST_KERNEL(attention);
HOST_KERNEL(attention_backward);

/* host_ops_loss.c */
HOST_KERNEL(log_softmax);
HOST_KERNEL(log_softmax_backward);
HOST_KERNEL(nll_loss);
HOST_KERNEL(nll_loss_backward);

/* host_ops_pack.c */
HOST_KERNEL(pack);
HOST_KERNEL(copy_in);
HOST_KERNEL(copy_out);
HOST_KERNEL(chunk_cat);

/* host_ops_optimizer.c */
HOST_KERNEL(adamw);
HOST_KERNEL(sgd);
HOST_KERNEL(norms);
HOST_KERNEL(clip_coefficient);
HOST_KERNEL(scale);

#endif
