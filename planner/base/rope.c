/* rope.c - see rope.h. */
#include "base/rope.h"

#define LINEAR (1U << ROPE_LINEAR)
#define DYNAMIC (1U << ROPE_DYNAMIC)
#define YARN (1U << ROPE_YARN)
#define LONGROPE (1U << ROPE_LONGROPE)
#define LLAMA3 (1U << ROPE_LLAMA3)
#define AT(member) offsetof(struct rope, member)

const struct rope_number *rope_numbers(uint32_t *count)
{
    static const struct rope_number numbers[] = {
        {"factor", AT(factor), false, LINEAR | DYNAMIC | YARN | LLAMA3, 1, 1e6},
        {"original_max_position_embeddings", AT(original_positions), true,
         DYNAMIC | YARN | LONGROPE | LLAMA3, 1, 1U << 30},
        {"positions", AT(positions), true, DYNAMIC | LONGROPE, 1, 1U << 30},
        {"attention_factor", AT(attention_factor), false, YARN | LONGROPE, 1e-6, 1e6},
        {"beta_fast", AT(beta_fast), false, YARN, 1e-6, 1e6},
        {"beta_slow", AT(beta_slow), false, YARN, 1e-6, 1e6},
        {"low_freq_factor", AT(low_freq_factor), false, LLAMA3, 1e-6, 1e6},
        {"high_freq_factor", AT(high_freq_factor), false, LLAMA3, 1e-6, 1e6},
    };
    *count = sizeof numbers / sizeof *numbers;
    return numbers;
}

const char *rope_scaling_name(enum rope_scaling scaling)
{
    static const char *const names[] = {
#define X(name, text) text,
        ROPE_SCALING_MAP(X)
#undef X
    };
    return names[scaling];
}

const char *rope_layout_name(enum rope_layout layout)
{
    static const char *const names[] = {
#define X(name, text) text,
        ROPE_LAYOUT_MAP(X)
#undef X
    };
    return names[layout];
}
