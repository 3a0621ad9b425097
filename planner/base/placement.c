/* placement.c - see placement.h. */
#include "base/placement.h"

#include "base/names.h"

struct shape flat(uint64_t elements)
{
    /* A flat buffer longer than 2^32 - 1 elements is written as rows of 1024. */
    return elements <= UINT32_MAX ? SHAPE((uint32_t)elements)
                                  : SHAPE((uint32_t)((elements + 1023) / 1024), 1024);
}

/* The chunk of `rank`: where it begins among `extent` things, and how many it has. */
static uint64_t chunk_of(uint64_t extent, uint32_t ranks, uint32_t rank, uint64_t *first)
{
    const uint64_t chunk = placement_chunk(extent, ranks);
    *first = chunk * rank < extent ? chunk * rank : extent;
    return extent - *first < chunk ? extent - *first : chunk;
}

/* Elements of one step along a dim. */
static uint64_t stride_of(const struct shape *shape, uint32_t dim)
{
    uint64_t stride = 1;
    for (uint32_t i = dim + 1; i < shape->rank; i++)
        stride *= shape->dim[i];
    return stride;
}

static struct part chunk_of_dim(const struct shape *shape, uint32_t dim, uint32_t ranks,
                                uint32_t rank)
{
    const uint64_t extent = shape->rank > dim ? shape->dim[dim] : 1;
    const uint64_t stride = stride_of(shape, dim), elements = shape_elements(shape);
    uint64_t first = 0;
    const uint64_t count = chunk_of(extent, ranks, rank, &first);
    struct part part = {
        .first = first * stride,
        .runs = extent && stride ? elements / (extent * stride) : 0,
        .width = count * stride,
        .pitch = extent * stride,
        .shape = *shape,
    };
    if (shape->rank > dim)
        part.shape.dim[dim] = (uint32_t)count;
    else if (count == 0)
        part.shape = SHAPE(0);
    return part;
}

static struct part run_of_vector(struct placement placement, const struct shape *shape,
                                 uint32_t ranks, uint32_t rank)
{
    const uint64_t elements = shape_elements(shape), end = placement.at + elements;
    uint64_t first = 0;
    const uint64_t last = chunk_of(placement.total, ranks, rank, &first) + first;
    const uint64_t from = first > placement.at ? first : placement.at;
    const uint64_t to = last < end ? last : end, count = to > from ? to - from : 0;
    return (struct part){
        .first = count ? from - placement.at : 0,
        .runs = 1,
        .width = count,
        .pitch = elements,
        .offset = count ? from - first : 0,
        .shape = flat(count),
    };
}

struct part placement_part(struct placement placement, const struct shape *shape, uint32_t ranks,
                           uint32_t rank)
{
    switch (placement.kind) {
    case PLACEMENT_ROWS:
        return chunk_of_dim(shape, 0, ranks, rank);
    case PLACEMENT_COLUMNS:
        return chunk_of_dim(shape, 1, ranks, rank);
    case PLACEMENT_FLAT:
        return run_of_vector(placement, shape, ranks, rank);
    case PLACEMENT_OWNED: /* the others are as ranks behind the last chunk */
        return chunk_of_dim(shape, 0, 1, rank == placement.at ? 0 : 1);
    default:
        return chunk_of_dim(shape, 0, 1, 0);
    }
}

uint64_t placement_padded(struct placement placement, const struct shape *shape, uint32_t ranks)
{
    if (placement.kind == PLACEMENT_FLAT)
        return placement_chunk(placement.total, ranks);
    const struct part part = placement_part(placement, shape, ranks, 0);
    return placement.kind == PLACEMENT_OWNED ? shape_elements(shape) : part_elements(&part);
}

bool part_overlap(const struct part *a, uint64_t i, const struct part *b, uint64_t j,
                  uint64_t *first, uint64_t *count)
{
    const uint64_t a_first = a->first + i * a->pitch, b_first = b->first + j * b->pitch;
    const uint64_t a_end = a_first + a->width, b_end = b_first + b->width;
    *first = a_first > b_first ? a_first : b_first;
    const uint64_t end = a_end < b_end ? a_end : b_end;
    *count = end > *first ? end - *first : 0;
    return *count > 0;
}

ENUM_NAME(placement_name, enum placement_kind, PLACEMENT_MAP)
