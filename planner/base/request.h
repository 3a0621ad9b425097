/* request.h - how large a block PyTorch's allocator gives for a request. Knows nothing of the rest.
 */
#ifndef SHARDPLAN_REQUEST_H
#define SHARDPLAN_REQUEST_H

#include <stdint.h>

#define REQUEST_UNIT 512U /* kMinBlockSize (c10/cuda/CUDACachingAllocator.cpp) */

/* Bytes of a request, up to a multiple of the unit. */
static inline uint64_t request_round(uint64_t bytes)
{
    return (bytes + REQUEST_UNIT - 1) & ~(uint64_t)(REQUEST_UNIT - 1);
}

#endif
