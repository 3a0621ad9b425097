/* update_program.c - see update_program.h. */
#include "lower/update_program.h"

#define BIRTH(buffer, state)                                                                       \
    {                                                                                              \
        PROGRAM_BIRTH, PROGRAM_##buffer + (state), 0                                               \
    }
#define DEATH(buffer, state)                                                                       \
    {                                                                                              \
        PROGRAM_DEATH, PROGRAM_##buffer + (state), 0                                               \
    }
#define RUN(kernel, state)                                                                         \
    {                                                                                              \
        PROGRAM_RUN, PROGRAM_##kernel, state                                                       \
    }

static const struct program_event one_kernel[] = {RUN(UPDATE, 0)};

/* Of 4 bits, behind the update: what packs codes, and copies scales. */
#define PACKED(state)                                                                              \
    RUN(CODE, state), DEATH(VALUES, state), DEATH(PLACES, state), RUN(SCALE, state),               \
        DEATH(RANGES, state)

static const struct program_event packed[] = {
    BIRTH(RANGES, 0), BIRTH(RANGES, 1), BIRTH(VALUES, 0), BIRTH(VALUES, 1), BIRTH(PLACES, 0),
    BIRTH(PLACES, 1), RUN(UPDATE, 0),   PACKED(0),        PACKED(1),
};

/* The largest of few blocks are found in two steps, before. */
static const struct program_event packed_in_steps[] = {
    BIRTH(PARTS, 0),  BIRTH(PARTS, 1),  RUN(HALVES, 0),   BIRTH(RANGES, 0),
    RUN(BLOCKS, 0),   DEATH(PARTS, 0),  BIRTH(RANGES, 1), RUN(BLOCKS, 1),
    DEATH(PARTS, 1),  BIRTH(VALUES, 0), BIRTH(VALUES, 1), BIRTH(PLACES, 0),
    BIRTH(PLACES, 1), RUN(UPDATE, 0),   PACKED(0),        PACKED(1),
};

/* Inductor's num_splits (torch/_inductor/ir.py): with fewer results than 64 a multiprocessor there
 * are two steps, of as many parts as choices.py's reduction_split_factor says of 256 elements. */
enum { MULTIPROCESSORS = 132, RESULTS = 64, PARTS = 2 };

struct update_program update_program(uint32_t bits, uint64_t elements)
{
    if (bits != 4)
        return (struct update_program){one_kernel, 1};
    if (elements / STATES_BLOCK >= MULTIPROCESSORS * RESULTS)
        return (struct update_program){packed, sizeof packed / sizeof *packed};
    return (struct update_program){packed_in_steps,
                                   sizeof packed_in_steps / sizeof *packed_in_steps};
}

uint64_t update_program_elements(uint32_t buffer, uint64_t elements)
{
    const uint64_t blocks = elements / STATES_BLOCK;
    return buffer < PROGRAM_RANGES ? PARTS * blocks : buffer < PROGRAM_VALUES ? blocks : elements;
}

enum dtype update_program_dtype(uint32_t buffer)
{
    return buffer < PROGRAM_PLACES ? DTYPE_FP32 : DTYPE_INT64;
}
