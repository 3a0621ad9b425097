/* host_held.h - what a process takes of its host's memory for the tensors that it has there.
 *
 * Pageable tensors take what they are, and give it back. Pinned ones come from a caching allocator
 * (ATen/core/CachingHostAllocator.h): each takes the next power of two; when it is freed, its block
 * goes to a list of blocks of that size, from which the next of that size is taken; blocks are
 * neither split nor given back to the system. So of each size as many blocks are held as were in
 * use at once, ever. Of managed memory (buffer.paged) it depends on the device how much is here,
 * which is for who knows it (predict.h). A block comes back once the copies from and to it are
 * done: later than here, so that this is the least. */
#ifndef SHARDPLAN_HOST_HELD_H
#define SHARDPLAN_HOST_HELD_H

#include "base/kernel.h"

enum { HOST_SIZES = 64 };

struct host_held {                   /* all against what is there when one begins to count */
    int64_t pageable, pageable_most; /* bytes; at most */
    int64_t kept;                    /* bytes of pinned blocks: never less than before */
    int64_t most;                    /* both together, at most */
    int32_t used[HOST_SIZES], blocks[HOST_SIZES]; /* of 2^i bytes: in use; there */
};

static inline uint32_t host_size_of(uint64_t bytes)
{
    return bytes < 2 ? 0 : 64U - (uint32_t)__builtin_clzll(bytes - 1);
}

static inline bool host_is_block(const struct buffer *buffer)
{
    return buffer->pinned && buffer->bytes > 0;
}

/* A buffer of LANE_HOST's is allocated `times` times; is freed. */
static inline void host_held_alloc(struct host_held *h, const struct buffer *buffer, uint32_t times)
{
    const uint32_t size = host_size_of(buffer->bytes);
    if (buffer->paged)
        return;
    if (!host_is_block(buffer)) {
        h->pageable += (int64_t)(times * buffer->bytes);
        h->pageable_most = h->pageable > h->pageable_most ? h->pageable : h->pageable_most;
    } else {
        h->used[size] += (int32_t)times;
        if (h->used[size] > h->blocks[size]) {
            h->kept += (int64_t)(h->used[size] - h->blocks[size]) << size;
            h->blocks[size] = h->used[size];
        }
    }
    h->most = h->pageable + h->kept > h->most ? h->pageable + h->kept : h->most;
}

static inline void host_held_free(struct host_held *h, const struct buffer *buffer)
{
    if (buffer->paged)
        return;
    if (host_is_block(buffer))
        h->used[host_size_of(buffer->bytes)]--;
    else
        h->pageable -= (int64_t)buffer->bytes;
}

#endif
