/* attention_scratch.c - see attention_scratch.h. */
#include "graph/attention_scratch.h"

uint32_t attention_scratch(enum attention_kernel kernel, const struct shape *q,
                           const struct shape *k, uint32_t element_bytes,
                           uint64_t bytes[ATTENTION_SCRATCHES])
{
    const uint64_t b = q->dim[0], heads = q->dim[2], d = q->dim[3];
    const uint64_t s = (q->dim[1] + 127U) & ~127ULL, wide = (d + 31U) & ~31ULL;
    if (kernel == ATTENTION_CUDNN) {
        bytes[0] = 4 * b * heads * q->dim[1] * (d + 1);
        return 1;
    }
    bytes[0] = 4 * b * heads * s;
    bytes[1] = 4 * b * s * heads * wide;
    if (k->dim[2] == heads)
        return 2;
    bytes[2] = bytes[3] = element_bytes * b * k->dim[1] * heads * d;
    return 4;
}
