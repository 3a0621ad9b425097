/* placement.h - how the elements of a tensor are spread over the ranks of a group: the one rule by
 * which anything is divided, in memory, in an optimizer and in the files of a checkpoint.
 *
 *     whole     every rank has all of it
 *     rows      dim 0 in chunks of ceil(d/N), as torch.chunk cuts it: FSDP2's Shard(0)
 *     columns   dim 1 likewise: Shard(1)
 *     flat      the tensor is a run of a vector of `total` elements, beginning at `at`, and the
 *               vector is cut into N pieces of ceil(total/N): FSDP1's flat parameters, ZeRO's
 *               partitions
 *     run       the same elements, in a buffer of their own: their optimizer states
 *     owned     all of it is on rank `at` of the group: ZeroRedundancyOptimizer's states
 *
 * A rank's part of the tensor is `runs` runs of `width` elements, `pitch` apart in its row-major
 * order; ranks at the end may have less than others, or nothing. */
#ifndef SHARDPLAN_PLACEMENT_H
#define SHARDPLAN_PLACEMENT_H

#include "base/kernel.h"

#define PLACEMENT_MAP(X)                                                                           \
    X(WHOLE, "whole")                                                                              \
    X(ROWS, "rows")                                                                                \
    X(COLUMNS, "columns")                                                                          \
    X(FLAT, "flat")                                                                                \
    X(RUN, "run")                                                                                  \
    X(OWNED, "owned")

enum placement_kind {
#define X(name, text) PLACEMENT_##name,
    PLACEMENT_MAP(X)
#undef X
        PLACEMENT_KINDS
};

struct placement {
    uint8_t kind; /* enum placement_kind */
    uint64_t at,
        total; /* PLACEMENT_FLAT, PLACEMENT_RUN; of PLACEMENT_OWNED `at` is the rank; else 0 */
};

struct part {       /* of a tensor, on one rank */
    uint64_t first; /* element of the tensor that it begins with */
    uint64_t runs, width, pitch;
    uint64_t offset;    /* flat: elements of the rank's piece of the vector before it; else 0 */
    struct shape shape; /* as a tensor: a chunk of the tensor's shape; flat: one dim */
};

/* A chunk of `extent` things among `ranks`: ceil(extent/ranks). */
static inline uint64_t placement_chunk(uint64_t extent, uint32_t ranks)
{
    return (extent + ranks - 1) / ranks;
}

/* What `rank` of `ranks` has of a tensor. A scalar is one row. */
struct part placement_part(struct placement placement, const struct shape *shape, uint32_t ranks,
                           uint32_t rank);

/* Elements that every rank sets aside for a tensor, padding included: that of the first rank. */
uint64_t placement_padded(struct placement placement, const struct shape *shape, uint32_t ranks);

/* A shape for a buffer of so many elements: one dim, or where they do not fit one, rows of 1024, as
 * many dims of them as it takes (then as many whole rows as hold them). */
static inline struct shape flat(uint64_t elements)
{
    if (elements <= UINT32_MAX)
        return SHAPE((uint32_t)elements);
    const uint64_t rows = (elements + 1023) / 1024, more = (rows + 1023) / 1024;
    return rows <= UINT32_MAX ? SHAPE((uint32_t)rows, 1024) : SHAPE((uint32_t)more, 1024, 1024);
}

static inline uint64_t part_elements(const struct part *part)
{
    return part->runs * part->width;
}

/* The elements that two parts of one tensor share, run by run: the overlap of run `i` of `a` with
 * run `j` of `b`. False: none. *first: element of the tensor; *count: how many. */
bool part_overlap(const struct part *a, uint64_t i, const struct part *b, uint64_t j,
                  uint64_t *first, uint64_t *count);

const char *placement_name(enum placement_kind kind);

#endif
