/* kernel_table.cuh - one launch over many tensors of different sizes.
 *
 * A table of entries travels as the kernel's argument; entry i is served by the blocks from
 * first[i] to first[i + 1], each of which takes one chunk of it:
 *
 *     blocks     0   1   2   3   4 | 5 | 6   7 | 8
 *     entry      [ chunks of 0    ] [1] [ 2   ] [3]      first: 0 5 6 8 9
 */
#ifndef SHARDPLAN_KERNEL_TABLE_CUH
#define SHARDPLAN_KERNEL_TABLE_CUH

#include "runtime/cuda/kernel_tensor.cuh"

enum { TABLE_ENTRIES = 60 }; /* so that the largest table stays below 4 KiB, the old limit */

template <typename T> struct table {
    uint32_t count;
    uint32_t first[TABLE_ENTRIES + 1];
    T entry[TABLE_ENTRIES];
};

template <typename T> static void table_add(struct table<T> *to, const T &entry, uint64_t chunks)
{
    if (to->count == 0)
        to->first[0] = 0;
    to->entry[to->count++] = entry;
    to->first[to->count] = to->first[to->count - 1] + (uint32_t)chunks;
}

template <typename T> static bool table_is_full(const struct table<T> *of)
{
    return of->count == TABLE_ENTRIES;
}

/* Which entry this block serves. */
template <typename T>
static __device__ __forceinline__ uint32_t table_find(const struct table<T> &in)
{
    uint32_t low = 0, high = in.count;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (in.first[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
