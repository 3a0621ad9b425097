/* attention_scratch.c - see attention_scratch.h. */
#include "graph/attention_scratch.h"

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

uint32_t attention_scratch(enum attention_kernel kernel, enum attention_gpu gpu,
                           const struct shape *q, const struct shape *k, uint32_t element_bytes,
                           uint64_t bytes[ATTENTION_SCRATCHES])
{
    const uint64_t b = q->dim[0], heads = q->dim[2], d = q->dim[3];
    const uint64_t s = (q->dim[1] + 127U) & ~127ULL, wide = (d + 31U) & ~31ULL;
    if (kernel == ATTENTION_CUDNN) {
        bytes[0] = 4 * b * heads * q->dim[1] * (d + 1) + cudnn_engine(gpu, q, k, element_bytes);
        return 1;
    }
    bytes[0] = 4 * b * heads * s;
    bytes[1] = 4 * b * s * heads * wide;
    if (k->dim[2] == heads)
        return 2;
    bytes[2] = bytes[3] = element_bytes * b * k->dim[1] * heads * d;
    return 4;
}

uint64_t attention_forward_scratch(enum attention_kernel kernel, enum attention_gpu gpu)
{
    return kernel == ATTENTION_CUDNN && gpu == ATTENTION_GPU_HOPPER ? 256 : 0;
}
