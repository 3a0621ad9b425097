/* rope.h - rotary position embedding: by which angles the numbers of a head are turned.
 *
 * Pair j of d/2 at position t turns by t · f_j, where f_j = theta^(-2j/d) before scaling. The kinds
 * of scaling, the names of their numbers and what they do are those of transformers 5.23
 * (modeling_rope_utils.py); runtime/execution/rope_table.h computes what is described here. */
#ifndef SHARDPLAN_ROPE_H
#define SHARDPLAN_ROPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROPE_SCALING_MAP(X)                                                                        \
    X(DEFAULT, "default") /* none */                                                               \
    X(LINEAR, "linear")   /* f_j / factor */                                                       \
    X(DYNAMIC, "dynamic") /* a larger theta for sequences beyond the original positions */         \
    X(YARN, "yarn")       /* f_j / factor where waves are long, f_j where short, a ramp between */ \
    X(LONGROPE, "longrope")         /* f_j / a factor for each pair, of two lists */               \
    X(LLAMA3, "llama3")             /* as yarn, by other bounds and a smoother ramp */             \
    X(PROPORTIONAL, "proportional") /* f_j / factor of the first share of pairs, 0 of the others   \
                                     */

enum rope_scaling {
#define X(name, text) ROPE_##name,
    ROPE_SCALING_MAP(X)
#undef X
        ROPE_SCALING_COUNT
};

#define ROPE_LAYOUT_MAP(X)                                                                         \
    X(COMPLEX, "complex")         /* (1, s, 1, d/2): exp(i t f_j), torchtitan's freqs_cis */       \
    X(FREQUENCIES, "frequencies") /* (d/2): f_j, transformers' inv_freq */                         \
    X(SINES, "sines")             /* (n, d): sin(t f_j) of all pairs, then their cos: GPT-J's */   \
    X(TURNS, "turns") /* (n, 2d): cos(t f_j) of all pairs, twice, then sin: torchtitan's Qwen3 */

enum rope_layout {
#define X(name, text) ROPE_##name,
    ROPE_LAYOUT_MAP(X)
#undef X
        ROPE_LAYOUT_COUNT
};

enum { ROPE_PAIRS_MAX = 128 }; /* of longrope's lists */

struct rope {
    uint8_t scaling; /* enum rope_scaling */
    uint32_t dim;    /* d: how many of a head's numbers turn */
    float theta;
    float attention_factor; /* cos and sin are multiplied by it; 1 but for yarn and longrope */
    float factor;
    uint32_t positions;          /* the longest sequence that is to come: dynamic, longrope */
    uint32_t original_positions; /* what the model was made for: all but linear */
    float beta_fast, beta_slow;  /* yarn: turns over the original positions that bound the ramp */
    bool truncate;               /* yarn: bounds are rounded outwards to whole pairs */
    float low_freq_factor, high_freq_factor; /* llama3: likewise, its bounds */
    float share;                             /* proportional: of the pairs, those that turn */
    float short_factor[ROPE_PAIRS_MAX];      /* longrope: up to the original positions, (d/2) */
    float long_factor[ROPE_PAIRS_MAX];       /* longrope: beyond them, (d/2) */
};

/* The numbers that kinds of scaling have, for whoever reads, writes or checks them. */
struct rope_number {
    const char *name; /* as transformers spells it */
    size_t field;     /* in struct rope: a float, or a uint32_t if `whole` */
    bool whole;
    unsigned kinds; /* 1 << enum rope_scaling, of each kind that has it */
    double min, max;
};

/* All of them: lent. */
const struct rope_number *rope_numbers(uint32_t *count);

const char *rope_scaling_name(enum rope_scaling scaling); /* "llama3" */
const char *rope_layout_name(enum rope_layout layout);    /* "complex" */

#endif
