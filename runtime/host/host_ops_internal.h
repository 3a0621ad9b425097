/* host_ops_internal.h - for the kernels of the host backend only: reading and writing operands.
 *
 * A kernel sees an operand as a row-major list of fp32 numbers, whatever its dtype and however it
 * lies in memory:
 *
 *     host_load    elements [first, first + count) of the list -> fp32
 *     host_store   back, rounded to nearest even; to integers towards zero, to bools unless 0
 *
 * Integers are exact below 2^24, which positions and the ids of any vocabulary are.
 *
 * Elementwise kernels go through it HOST_BLOCK elements at a time, on the stack. */
#ifndef SHARDPLAN_HOST_OPS_INTERNAL_H
#define SHARDPLAN_HOST_OPS_INTERNAL_H

#include "runtime/host/host_ops.h"
#include "runtime/work/operand.h"

#include <assert.h>
#include <stddef.h>

enum { HOST_BLOCK = 512 };

/* ---- operands ---- */

static inline uint64_t host_least(uint64_t x, uint64_t y)
{
    return x < y ? x : y;
}

/* The number of elements of the next block of `count` elements at `first`. */
static inline uint64_t host_block(uint64_t first, uint64_t count)
{
    return host_least(count - first, HOST_BLOCK);
}

void host_load(const struct work_operand *x, uint64_t first, uint64_t count, float *out);
void host_store(const struct work_operand *y, uint64_t first, uint64_t count, const float *in);
/* What a store of dtype and a load would make of the block. */
void host_round(enum dtype dtype, uint64_t n, float *block);
/* Elements [first, first + count) of x to `at` of y, cast to its dtype. Of another dtype than the
 * floating-point ones only without cast and pitch. */
void host_copy(const struct work_operand *x, uint64_t first, const struct work_operand *y,
               uint64_t at, uint64_t count);
/* Where element i of the list is, in elements from the first. */
uint64_t host_place(const struct work_operand *x, uint64_t i);
float host_load_one(const struct work_operand *x, uint64_t i);
void host_store_one(const struct work_operand *y, uint64_t i, float value);

/* Element i of int64 or int32 indices. */
int64_t host_index(const struct work_operand *ids, uint64_t i);
void host_store_index(const struct work_operand *ids, uint64_t i, int64_t value);

/* ---- broadcasting ---- */

/* Where row `row` of z (its last dim is a row) begins in y, in elements of y's list. */
uint64_t host_spread_row(const struct shape *z, const uint64_t stride[SHAPE_DIMS], uint64_t row);

/* An operand stretched to z's shape, to which work_check has seen that it fits: `room` is lent to
 * it. */
struct work_operand host_spread(const struct work_operand *x, const struct shape *z,
                                struct strides *room);

/* ---- scratch ---- */

/* `count` elements of `size` bytes, not cleared. On ERR_OK the caller owns *out: free. */
enum err_code host_scratch(const struct work *work, uint64_t count, size_t size, void *out,
                           struct err *err);

/* ---- attention, forward and backward ---- */

enum { HOST_TILE = 64 }; /* queries, and keys, at a time */

/* A head of a sequence: `length` tokens of `width` numbers each. */
struct host_head {
    uint32_t heads, length, width, b, head;
};

static inline struct host_head host_queries(const struct attention *at, uint32_t b, uint32_t head)
{
    return (struct host_head){at->a, at->s, at->d, b, head};
}

/* Keys of a head of queries: several may have the same. */
static inline struct host_head host_keys(const struct attention *at, uint32_t b, uint32_t head)
{
    assert(at->repeats > 0); /* work_check */
    return (struct host_head){at->a / at->repeats, at->s_k, at->d, b, head / at->repeats};
}

/* The same as wide as values. */
static inline struct host_head host_values(const struct attention *at, struct host_head of)
{
    of.width = at->d_v;
    return of;
}

/* Rows `first` to first + rows of a head: (rows, width). */
void host_tile_load(struct host_head of, const struct work_operand *x, uint32_t first,
                    uint32_t rows, float *out);
void host_tile_store(struct host_head of, const struct work_operand *y, uint32_t first,
                     uint32_t rows, const float *in);

/* Adds the bias, if there is one, to scores (queries, keys) of a head. */
void host_add_bias(const struct attention *at, uint32_t b, uint32_t head, uint32_t query,
                   uint32_t queries, uint32_t key, uint32_t keys, float *score);

/* Of the keys [key, key + keys), which query `query` sees: [first, end), counted from `key`. */
struct host_seen {
    uint32_t first, end;
};
static inline struct host_seen host_seen(const struct attention *at, uint32_t query, uint32_t key,
                                         uint32_t keys)
{
    const int64_t last = at->causal   ? query
                         : at->window ? (int64_t)query + at->window - 1
                                      : at->s_k;
    const int64_t first = at->window ? (int64_t)query + 1 - at->window : 0;
    const int64_t end = last + 1 - key, begin = first - key;
    struct host_seen seen = {.first = begin > 0 ? (uint32_t)host_least((uint64_t)begin, keys) : 0,
                             .end = end > 0 ? (uint32_t)host_least((uint64_t)end, keys) : 0};
    if (seen.first > seen.end)
        seen.first = seen.end;
    return seen;
}

/* No query of a tile sees a key of the other tile. */
static inline bool host_hides(const struct attention *at, uint32_t query, uint32_t queries,
                              uint32_t key, uint32_t keys)
{
    if (at->causal && key >= query + queries)
        return true;
    return at->window && ((uint64_t)key + keys + at->window <= (uint64_t)query + 1 ||
                          (uint64_t)query + queries + at->window <= (uint64_t)key + 1);
}

/* softcap · tanh(x / softcap) of `n` scores, where there is one. */
void host_cap_scores(const struct attention *at, uint64_t n, float *score);

/* ---- the kernels, by file ---- */

/* Those that can fail: for want of scratch memory, or over an index out of range. */
#define HOST_KERNEL(name) enum err_code host_##name(const struct work *work, struct err *err)

/* host_ops_elementwise.c */
void host_arange(const struct work *work);
void host_fill(const struct work *work);
void host_elementwise(const struct work *work);
void host_multiply(const struct work *work);
void host_polar(const struct work *work);
void host_silu(uint64_t n, const float *x, float *y); /* y may be x */
void host_conjugate(const struct work *work);

/* host_ops_shape.c */
void host_repeat(const struct work *work);
HOST_KERNEL(sum);
void host_cat(const struct work *work);
void host_copy_bytes(const struct work *work);
HOST_KERNEL(embedding);
HOST_KERNEL(embedding_backward);

/* host_ops_slice.c */
void host_pad(const struct work *work);
void host_slice(const struct work *work);
void host_put_slice(const struct work *work);
void host_slice_backward(const struct work *work);
void host_interleave(const struct work *work);
void host_lower_triangle(const struct work *work);

/* host_ops_reduce.c */
void host_mean(const struct work *work);
void host_cumulative_sum(const struct work *work);
HOST_KERNEL(sum_dim);
void host_extreme(const struct work *work);

/* host_ops_softmax.c */
HOST_KERNEL(softmax);
HOST_KERNEL(softmax_backward);

/* host_ops_index.c */
/* Whether ids are indices of so many things. */
enum err_code host_need_ids(const struct work *work, const struct work_operand *ids, uint64_t below,
                            struct err *err);
HOST_KERNEL(take_rows);
HOST_KERNEL(add_rows);
HOST_KERNEL(gather);
HOST_KERNEL(scatter);
HOST_KERNEL(scatter_number);
HOST_KERNEL(sort);
HOST_KERNEL(invert_permutation);
void host_histogram(const struct work *work);

/* host_ops_matmul.c */
HOST_KERNEL(matmul);
HOST_KERNEL(bmm);
HOST_KERNEL(grouped_mm);

/* host_ops_norm.c */
HOST_KERNEL(rms_norm);
HOST_KERNEL(rms_norm_backward);
HOST_KERNEL(layer_norm);
HOST_KERNEL(layer_norm_backward);
HOST_KERNEL(add_rms_norm);
HOST_KERNEL(rms_norm_backward_add);

/* host_ops_attention.c, host_ops_attention_backward.c */
HOST_KERNEL(attention);
HOST_KERNEL(attention_backward);

/* host_ops_loss.c */
HOST_KERNEL(log_softmax);
HOST_KERNEL(log_softmax_backward);
HOST_KERNEL(nll_loss);
HOST_KERNEL(nll_loss_backward);
/* Checks the targets of (t, v) and counts those that are not ignored. */
enum err_code host_count_targets(const struct work *work, const struct work_operand *targets,
                                 uint64_t t, uint64_t v, uint64_t *out, struct err *err);

/* host_ops_fused.c */
void host_rotate(const struct work *work);
void host_gate(const struct work *work);
void host_products(const struct work *work);
HOST_KERNEL(cross_entropy_slope);

/* host_ops_pack.c */
void host_pack(const struct work *work);
void host_copy_in(const struct work *work);
void host_copy_out(const struct work *work);
void host_chunk_cat(const struct work *work);

/* host_ops_optimizer.c */
void host_adamw(const struct work *work);
void host_sgd(const struct work *work);
void host_norms(const struct work *work);
void host_clip_coefficient(const struct work *work);
void host_scale(const struct work *work);

#endif
