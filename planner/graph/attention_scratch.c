/* attention_scratch.c - see attention_scratch.h. */
#include "graph/attention_scratch.h"

enum { HEADED = 4 }; /* the rank of what has heads, as all calls have but those of nested tensors */

/* Hopper's engine adds parts of dq into the frontend's sum, and Blackwell's, which takes what is as
 * long as one of its tiles. The others sum dq in a buffer of their own, of rows in multiples of 8.
 * Where heads of k and v are shared, all have their gradients for each head of q. */
static uint64_t cudnn_engine(enum attention_gpu gpu, const struct shape *q, const struct shape *k,
                             uint32_t element_bytes)
{
    const uint64_t b = q->dim[0], s = q->dim[1], heads = q->dim[2], d = q->dim[3];
    const bool shares = k->dim[2] != heads;
    const uint64_t shared = shares ? 2ULL * element_bytes * b * k->dim[1] * heads * d : 0;
    if (gpu == ATTENTION_GPU_UNKNOWN)
        return 0;
    if (gpu == ATTENTION_GPU_HOPPER)
        return 256 + shared;
    if (gpu == ATTENTION_GPU_BLACKWELL && s > 128)
        return shares ? 128 + shared : 0;
    return 128 + 4 * b * heads * ((s + 7) & ~7ULL) * d + shared;
}

static uint64_t up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Parts of the sequence whose dk and dv are summed beside each other where that takes memory. */
static uint64_t parts_of_keys(uint64_t heads, uint64_t s, uint64_t tile)
{
    const uint64_t all = up(s, tile) / tile, most = 200 / heads;
    const uint64_t parts = heads >= 256 && s <= 2 * tile ? 1 : all < most ? all : most;
    return parts < 1 ? 1 : parts;
}

static uint64_t efficient_workspace(const struct shape *q, const struct shape *k,
                                    const struct shape *v, bool half)
{
    enum { FITS = 128, LOCK = 4 }; /* a tile has a lock and a counter of 16 bytes before it */
    const uint64_t b = q->dim[0], s = q->dim[1], heads = q->dim[2], d = q->dim[3], d_v = v->dim[3];
    const uint64_t widest = d > d_v ? d : d_v;
    const uint64_t rows = widest > 64 ? 128 : 64;
    const uint64_t columns = half && widest > 64 && widest <= FITS ? 128 : 64;
    uint64_t floats = up(s, rows) / rows * (up(d, columns) / columns) * (rows * columns + LOCK);
    if (half && widest > FITS)
        floats +=
            parts_of_keys(b * heads, k->dim[1], columns) * columns * (up(d, rows) + up(d_v, rows));
    return 4 * b * heads * up(floats, 4);
}

uint32_t attention_scratch_before(enum attention_kernel kernel, enum attention_gpu gpu,
                                  const struct shape *q, const struct shape *v,
                                  uint32_t element_bytes, uint64_t bytes[ATTENTION_SCRATCHES])
{
    if (kernel != ATTENTION_EFFICIENT || gpu == ATTENTION_GPU_UNKNOWN || element_bytes < 4 ||
        q->rank != HEADED)
        return 0;
    bytes[1] = 4ULL * q->dim[0] * q->dim[1] * q->dim[2];
    bytes[0] = bytes[1] * v->dim[3];
    return 2;
}

uint32_t attention_scratch(enum attention_kernel kernel, enum attention_gpu gpu,
                           const struct shape *q, const struct shape *k, const struct shape *v,
                           uint32_t element_bytes, uint64_t bytes[ATTENTION_SCRATCHES])
{
    if (q->rank != HEADED || k->rank != HEADED)
        return 0;
    const uint64_t b = q->dim[0], heads = q->dim[2], d = q->dim[3];
    const uint64_t s = (q->dim[1] + 127U) & ~127ULL, wide = (d + 31U) & ~31ULL;
    if (kernel == ATTENTION_CUDNN) {
        bytes[0] = 4 * b * heads * q->dim[1] * (d + 1) + cudnn_engine(gpu, q, k, element_bytes);
        return 1;
    }
    if (kernel == ATTENTION_EFFICIENT) {
        bytes[0] = 4 * b * heads * q->dim[1];
        bytes[1] = efficient_workspace(q, k, v, element_bytes < 4);
        return gpu == ATTENTION_GPU_UNKNOWN ? 0 : 2;
    }
    bytes[0] = 4 * b * heads * s;
    bytes[1] = 4 * b * s * heads * wide;
    if (k->dim[2] == heads)
        return 2;
    bytes[2] = bytes[3] = element_bytes * b * k->dim[1] * heads * d;
    return 4;
}

uint64_t attention_forward_scratch(enum attention_kernel kernel, enum attention_gpu gpu,
                                   const struct shape *q, const struct shape *v,
                                   uint32_t element_bytes)
{
    enum { TILE = 128 };
    if (q->rank != HEADED || v->rank != HEADED)
        return 0;
    if (kernel == ATTENTION_EFFICIENT)
        return gpu != ATTENTION_GPU_UNKNOWN && element_bytes < 4 && v->dim[3] > TILE
                   ? 4ULL * q->dim[0] * q->dim[1] * q->dim[2] * v->dim[3]
                   : 0;
    return kernel == ATTENTION_CUDNN && gpu == ATTENTION_GPU_HOPPER ? 256 : 0;
}
