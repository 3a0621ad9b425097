/* cuda_room.h - parts of memory that a library wants beside its operands, laid into what there is.
 *
 *     areas   the plan's buffer for this kernel | the stream's scratch | memory of our own
 *     parts   the largest first, each into the first area that still has room
 *
 * What fits into the first two costs no memory that the plan does not know of. */
#ifndef SHARDPLAN_CUDA_ROOM_H
#define SHARDPLAN_CUDA_ROOM_H

#include <stdint.h>

enum { ROOM_ALIGNMENT = 256 };

struct room_area {
    char *begin; /* NULL: not there */
    uint64_t bytes, used;
};

struct room_part {
    uint64_t bytes;
    char *at; /* NULL with bytes > 0: nowhere yet */
};

static inline uint64_t room_round(uint64_t bytes)
{
    return (bytes + ROOM_ALIGNMENT - 1) / ROOM_ALIGNMENT * ROOM_ALIGNMENT;
}

/* Lays each part that has no place into the area, in the order of `parts`. Returns the bytes of
 * those that are still without one, as an area needs them. */
static inline uint64_t room_lay(struct room_part *parts, uint32_t count, struct room_area *area)
{
    const uint64_t skew = (uint64_t)(uintptr_t)area->begin % ROOM_ALIGNMENT;
    uint64_t left = 0;
    if (area->begin && area->used == 0 && skew)
        area->used = ROOM_ALIGNMENT - skew;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t bytes = room_round(parts[i].bytes);
        if (parts[i].at || bytes == 0)
            continue;
        if (area->begin && area->used <= area->bytes && bytes <= area->bytes - area->used) {
            parts[i].at = area->begin + area->used;
            area->used += bytes;
        } else {
            left += bytes;
        }
    }
    return left;
}

#endif
