/* placement.c - see placement.h. */
#include "base/placement.h"

#include "base/names.h"

/* The chunk of `rank`: where it begins among `extent` things, and how many it has. */
static uint64_t chunk_of(uint64_t extent, uint32_t ranks, uint32_t rank, uint64_t *first)
{
    const uint64_t chunk = placement_chunk(extent, ranks);
    *first = chunk * rank < extent ? chunk * rank : extent;
    return extent - *first < chunk ? extent - *first : chunk;
}

/* The product of the dims from one to before another. */
static uint64_t product(const struct shape *shape, uint32_t from, uint32_t to)
{
    uint64_t elements = 1;
    for (uint32_t i = from; i < to; i++)
        elements *= shape->dim[i];
    return elements;
}

/* The parts are filled in where they are wanted: a shape that is changed and then copied waits for
 * its way through the store buffer, and lowering asks for thousands. */

static void chunk_of_dim(const struct shape *shape, uint32_t dim, uint32_t ranks, uint32_t rank,
                         struct part *part)
{
    const bool there = shape->rank > dim;
    const uint64_t extent = there ? shape->dim[dim] : 1;
    const uint64_t stride = product(shape, dim + 1, shape->rank);
    uint64_t first = 0;
    const uint64_t count = chunk_of(extent, ranks, rank, &first);
    part->first = first * stride;
    part->runs = extent && stride ? product(shape, 0, there ? dim : shape->rank) : 0;
    part->width = count * stride;
    part->pitch = extent * stride;
    part->offset = 0;
    for (uint32_t i = 0; i < SHAPE_DIMS; i++)
        part->shape.dim[i] = there && i == dim ? (uint32_t)count : shape->dim[i];
    part->shape.rank = shape->rank;
    if (!there && count == 0)
        part->shape = SHAPE(0);
}

static void run_of_vector(struct placement placement, const struct shape *shape, uint32_t ranks,
                          uint32_t rank, struct part *part)
{
    const uint64_t elements = shape_elements(shape), end = placement.at + elements;
    uint64_t first = 0;
    const uint64_t last = chunk_of(placement.total, ranks, rank, &first) + first;
    const uint64_t from = first > placement.at ? first : placement.at;
    const uint64_t to = last < end ? last : end, count = to > from ? to - from : 0;
    *part = (struct part){
        .first = count ? from - placement.at : 0,
        .runs = 1,
        .width = count,
        .pitch = elements,
        .offset = count && placement.kind == PLACEMENT_FLAT ? from - first : 0,
        .shape = flat(count),
    };
}

struct part placement_part(struct placement placement, const struct shape *shape, uint32_t ranks,
                           uint32_t rank)
{
    struct part part;
    switch (placement.kind) {
    case PLACEMENT_ROWS:
        chunk_of_dim(shape, 0, ranks, rank, &part);
        break;
    case PLACEMENT_COLUMNS:
        chunk_of_dim(shape, 1, ranks, rank, &part);
        break;
    case PLACEMENT_FLAT:
    case PLACEMENT_RUN:
        run_of_vector(placement, shape, ranks, rank, &part);
        break;
    case PLACEMENT_OWNED: /* the others are as ranks behind the last chunk */
        chunk_of_dim(shape, 0, 1, rank == placement.at ? 0 : 1, &part);
        break;
    default:
        chunk_of_dim(shape, 0, 1, 0, &part);
        break;
    }
    return part;
}

uint64_t placement_padded(struct placement placement, const struct shape *shape, uint32_t ranks)
{
    switch (placement.kind) {
    case PLACEMENT_FLAT:
        return placement_chunk(placement.total, ranks);
    case PLACEMENT_ROWS:
    case PLACEMENT_COLUMNS: {
        const uint32_t dim = placement.kind == PLACEMENT_COLUMNS;
        const uint64_t extent = shape->rank > dim ? shape->dim[dim] : 1;
        return product(shape, 0, shape->rank > dim ? dim : shape->rank) *
               placement_chunk(extent, ranks) * product(shape, dim + 1, shape->rank);
    }
    default:
        return shape_elements(shape);
    }
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
