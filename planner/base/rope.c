/* rope.c - see rope.h. */
#include "base/rope.h"

#include "base/names.h"

#define LINEAR (1U << ROPE_LINEAR)
#define DYNAMIC (1U << ROPE_DYNAMIC)
#define YARN (1U << ROPE_YARN)
#define LONGROPE (1U << ROPE_LONGROPE)
#define LLAMA3 (1U << ROPE_LLAMA3)
#define PROPORTIONAL (1U << ROPE_PROPORTIONAL)
#define IN_ROPE(member) offsetof(struct rope, member)

const struct rope_number *rope_numbers(uint32_t *count)
{
    static const struct rope_number numbers[] = {
        {"factor", IN_ROPE(factor), false, LINEAR | DYNAMIC | YARN | LLAMA3 | PROPORTIONAL, 1, 1e6},
        {"original_max_position_embeddings", IN_ROPE(original_positions), true,
         DYNAMIC | YARN | LONGROPE | LLAMA3, 1, 1U << 30},
        {"positions", IN_ROPE(positions), true, DYNAMIC | LONGROPE, 1, 1U << 30},
        {"attention_factor", IN_ROPE(attention_factor), false, YARN | LONGROPE, 1e-6, 1e6},
        {"beta_fast", IN_ROPE(beta_fast), false, YARN, 1e-6, 1e6},
        {"beta_slow", IN_ROPE(beta_slow), false, YARN, 1e-6, 1e6},
        {"low_freq_factor", IN_ROPE(low_freq_factor), false, LLAMA3, 1e-6, 1e6},
        {"high_freq_factor", IN_ROPE(high_freq_factor), false, LLAMA3, 1e-6, 1e6},
        {"partial_rotary_factor", IN_ROPE(share), false, PROPORTIONAL, 0, 1},
    };
    *count = sizeof numbers / sizeof *numbers;
    return numbers;
}

ENUM_NAME(rope_scaling_name, enum rope_scaling, ROPE_SCALING_MAP)

ENUM_NAME(rope_layout_name, enum rope_layout, ROPE_LAYOUT_MAP)
